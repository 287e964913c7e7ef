"""Pods that run already come under management, and stay there when the controller comes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kqueue.cli import app
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, make_road
from tests.integration.test_pods import Pods
from tests.integration.test_uninstall import installed

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane


async def import_pods(plane: Plane, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """Exit code and everything that was printed."""
    capsys.readouterr()
    async with asyncio.timeout(120):
        code = await asyncio.to_thread(app.run, ["import", "--kubeconfig", str(plane.kubeconfig), *flags])
    return code, "".join(capsys.readouterr())


def admitted(workload: Object) -> bool:
    """Whether a Workload holds quota and may run."""
    true = {c["type"] for c in workload.get("status", {}).get("conditions", ()) if c["status"] == "True"}
    return {"QuotaReserved", "Admitted"} <= true


async def test_running_pods_are_imported(
    either_plane: Plane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run on, their quota counts, and it is free again when they go; what has no rule is in the way of all."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 3), gpus=20)
    cluster, pods = road.cluster, Pods(either_plane.cluster, road.namespace)
    await pods.create("first", queue=None, labels={"app": "train"})
    await pods.create("second", queue=None, labels={"app": "train"})
    await pods.create("other", queue=None, gpus=1, labels={"app": "web"})
    await pods.until_running("first", "second", "other")
    by_label = ("-n", road.namespace, "--queuelabel", "app", "--queuemapping", "train=main")
    rules = tmp_path / "rules.yaml"
    rules.write_text("- match: {labels: {app: train}}\n  toLocalQueue: main\n- skip: true\n")
    by_file = ("-n", road.namespace, "--queuemapping-file", str(rules))

    refused = await import_pods(either_plane, capsys, *by_label, "--dry-run=false")
    checked = await import_pods(either_plane, capsys, *by_file)
    nothing = (await cluster.get(road.workloads))["items"]
    done = await import_pods(either_plane, capsys, *by_file, "--dry-run", "false", "--add-labels", "who=me", "-v")
    again = await import_pods(either_plane, capsys, *by_file, "--dry-run", "false")

    assert refused[0] == 1
    assert (
        f"no rule maps it to a LocalQueue; add one, with skip: true if it is to stay out: {road.namespace}/other"
        in refused[1]
    )
    assert checked[0] == 0
    assert "2 can be imported, 1 are skipped" in checked[1]
    assert nothing == []
    assert done[0] == 0
    assert "2 imported" in done[1]
    assert "0 can be imported, 3 are skipped or managed already" in again[1]
    workloads = (await cluster.get(road.workloads))["items"]
    assert [admitted(w) for w in workloads] == [True, True]
    assert workloads[0]["status"]["admission"]["podSetAssignments"] == [
        {"name": "main", "count": 1, "flavors": {"cpu": "gpu", "nvidia.com/gpu": "gpu"},
         "resourceUsage": {"cpu": "1", "nvidia.com/gpu": "8"}}
    ]  # fmt: skip
    assert (await pods.pod("first"))["metadata"]["labels"]["who"] == "me"

    names = [w["metadata"]["name"] for w in workloads]
    labels = {"metadata": {"labels": {"kueue.x-k8s.io/managed": None, "kueue.x-k8s.io/queue-name": None}}}
    merge = "application/merge-patch+json"
    await cluster.request("PATCH", f"{pods.pods}/first", labels, content_type=merge)  # as if we had been killed here
    wiped: dict[str, Any] = {"status": {"admission": None, "conditions": []}}
    await cluster.request("PATCH", f"{road.workloads}/{names[1]}/status", wiped, content_type=merge)  # or here
    await cluster.request("PATCH", f"{pods.pods}/second", labels, content_type=merge)
    rest = await import_pods(either_plane, capsys, *by_file, "--dry-run", "false")
    assert "2 imported" in rest[1]
    workloads = (await cluster.get(road.workloads))["items"]
    assert [(w["metadata"]["name"], admitted(w)) for w in workloads] == [(name, True) for name in names]

    uids = {name: (await pods.pod(name))["metadata"]["uid"] for name in ("first", "second")}
    async with installed(either_plane, tmp_path):
        counted = f"{KUEUE}/clusterqueues/team"
        await cluster.until(counted, lambda q: q.get("status", {}).get("admittedWorkloads") == 2, what="both count")
        await pods.create("late")
        await cluster.until(counted, lambda q: q["status"]["pendingWorkloads"] == 1, what="the third has no quota")
        assert {name: (await pods.pod(name))["metadata"]["uid"] for name in uids} == uids
        waits = await import_pods(either_plane, capsys, *by_file, "--dry-run", "false")
        await pods.create("stray", queue=None, gpus=0, labels={"app": "train"})
        await pods.until_running("stray")
        early = await import_pods(
            either_plane, capsys, *by_file, "--config", str(tmp_path / "config.yaml"), "--dry-run=false"
        )
        assert (waits[0], "0 imported" in waits[1]) == (0, True), "what a queue has is left to it"
        assert early[0] == 2
        assert "leads and looks after pods" in early[1]
        await cluster.request("DELETE", f"{pods.pods}/first?gracePeriodSeconds=0")
        await pods.until_running("late")
        assert (await pods.pod("second"))["metadata"]["uid"] == uids["second"]
