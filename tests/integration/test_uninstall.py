"""Removing kqueue, end to end: killed with work under way, it leaves nothing behind that `uninstall` does not release."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.jobset_double import jobsets_run
from tests.integration.road import KUEUE, ControllerProcess, Object, job, make_road
from tests.integration.serving import Serving
from tests.integration.test_jobset import SetRoad, replicated
from tests.integration.test_pods import Pods, gates, held

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: default
leaderElection: {leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 1s}
integrations: {frameworks: [batch/job, pod]}
"""


@asynccontextmanager
async def installed(
    plane: Plane, folder: Path, text: str = CONFIGURATION, more: Sequence[str] = ()
) -> AsyncIterator[ControllerProcess]:
    """A controller with webhooks and `more` flags, which leads; a process of its own, so that it can be killed."""
    config = folder / "config.yaml"
    config.write_text(text)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "controller.log").open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "kqueue", "controller", "--with-webhooks", "--webhook-port", "0", "--webhook-host", "127.0.0.1"),
            *("--config", str(config), "--kubeconfig", str(plane.kubeconfig)),
            *("--health-address", f"127.0.0.1:{port}", "--metrics-address", "0", *more),
            stdout=out,
            stderr=out,
            env={**os.environ, "KQUEUE_TIMING_QUEUE_FLUSH_WINDOW": "0.1"},
        )
    running = ControllerProcess(process, f"http://127.0.0.1:{port}/readyz")
    try:
        await _ready(running)
        yield running
    finally:
        if process.returncode is None:
            await running.kill()


async def _ready(process: ControllerProcess) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(process.ready_url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)


async def uninstall(plane: Plane, folder: Path, *arguments: str) -> tuple[int, Any]:
    """The exit code, and the answer as JSON; where there is none, what was said on standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kqueue", "uninstall", *arguments, "-o", "json"),
        *("--config", str(folder / "config.yaml"), "--kubeconfig", str(plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(out) if out else err.decode()


def left(answer: Any, why: str) -> set[str]:
    """Kinds and names of what is left behind for one reason."""
    return {f"{item['kind']} {item['name']}" for item in answer["left"] if item["why"] == why}


async def submit_all(pods: Pods) -> None:
    """One of each: pods that run and wait, a group of which one is missing, Jobs that run and wait."""
    await pods.create("runs")
    await pods.until_running("runs")
    await pods.submit("train", pods=1, run_seconds=600)
    await pods.cluster.until(
        pods.pods,
        lambda listed: sum(p["status"].get("phase") == "Running" for p in listed["items"]) == 2,
        what="both run",
    )
    await pods.create("waits", gpus=8 * 64)
    await pods.create("lonely", group="g", total=2)
    await pods.submit("later", pods=64)
    await pods.cluster.until(pods.workloads, lambda listed: len(listed["items"]) >= 4, what="four workloads")


@pytest.mark.proves("Pod", "uninstall")
@pytest.mark.proves("Pod group", "uninstall")
@pytest.mark.proves("Job", "uninstall")
async def test_what_a_killed_controller_leaves_is_listed_and_released(either_plane: Plane, tmp_path: Path) -> None:
    """Pods run, a namespace ends, queues can be deleted: without kqueue."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 3))
    pods = Pods(either_plane.cluster, road.namespace)
    async with installed(either_plane, tmp_path) as controller:
        await submit_all(pods)
        refused = await uninstall(either_plane, tmp_path, "--release")
        await controller.kill()
    with pytest.raises(RequestError):
        await pods.create("late")
    checked = await uninstall(either_plane, tmp_path, "--check")
    before: Object = await pods.pod("waits")
    released = await uninstall(either_plane, tmp_path, "--release")
    after = await pods.pod("lonely")
    await pods.until_running("lonely")
    await pods.create("late")
    suspended = await either_plane.cluster.get(f"{pods.jobs}/later")
    await either_plane.cluster.request("DELETE", f"{pods.jobs}/train", {"propagationPolicy": "Background"})
    await either_plane.kubectl("delete", "namespace", pods.namespace, "--timeout=60s")
    for path in ("clusterqueues/team", "resourceflavors/gpu", "topologies/dc"):
        await either_plane.cluster.request("DELETE", f"{KUEUE}/{path}")
        with pytest.raises(RequestError):
            await either_plane.cluster.get(f"{KUEUE}/{path}")
    last = await uninstall(either_plane, tmp_path, "--check")

    assert refused[0] == 2
    assert "--despite-leader" in refused[1]
    assert checked[0] == 1
    assert {"Pod runs", "Pod waits", "Pod lonely"} <= left(checked[1], "heldPod")
    assert {"ClusterQueue team", "ResourceFlavor gpu", "Topology dc"} <= left(checked[1], "finalizer")
    assert len(left(checked[1], "webhooks")) == 2
    assert left(checked[1], "suspended") == {"Job later"}
    assert (gates(before), held(before)) == (["admission", "topology"], True)
    assert (gates(after), held(after)) == ([], False)
    assert released[1]["failed"] == []
    assert released[1]["counts"] == {**dict.fromkeys(checked[1]["counts"], 0), "gatedTemplate": 1, "suspended": 1}
    assert suspended["spec"]["suspend"] is True
    assert last[0] == 0


@pytest.mark.proves("Pod", "switched off")
@pytest.mark.proves("Pod group", "switched off")
async def test_an_integration_that_is_switched_off_is_released_while_kqueue_runs(
    either_plane: Plane, tmp_path: Path
) -> None:
    """While it is on nothing is touched; when it is off its pods are listed, and let go without a Job being touched."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 3))
    pods = Pods(either_plane.cluster, road.namespace)
    async with installed(either_plane, tmp_path):
        await pods.create("waits", gpus=8 * 64)
        await pods.create("lonely", group="g", total=2)
        await pods.cluster.until(pods.workloads, lambda listed: bool(listed["items"]), what="a workload")
        refused = await uninstall(either_plane, tmp_path, "--release", "--integration", "pod")
    async with installed(either_plane, tmp_path, CONFIGURATION.replace(", pod", "")):
        await pods.submit("train", pods=1, run_seconds=600)
        await pods.until_workload("train", "Admitted")
        checked = await uninstall(either_plane, tmp_path, "--check", "--integration", "pod")
        released = await uninstall(either_plane, tmp_path, "--release", "--integration", "pod")
        await pods.delete("waits")
        await pods.until_gone("waits")
        await pods.until_running("lonely")
        kept = await pods.workload_of("train")
    log = (tmp_path / "controller.log").read_text()
    await uninstall(either_plane, tmp_path, "--release")

    assert refused[0] == 2
    assert "still registered" in refused[1]
    assert (checked[0], left(checked[1], "heldPod")) == (1, {"Pod waits", "Pod lonely"})
    assert released[0] == 0
    assert kept["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert "pods are held by gates of integrations that are switched off" in log


async def submit_kinds(sets: SetRoad, serving: list[Serving]) -> None:
    """A JobSet that takes all quota; behind it a JobSet, an elastic Job, and what serves."""
    await sets.submit("runs", replicated("w", run_seconds=600))
    await sets.until_running("runs", 1)
    await sets.submit("later", replicated("w"))
    elastic = job("grows", sets.road.namespace, pods=1, required=None)
    elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    await sets.cluster.request("POST", sets.road.jobs, elastic)
    for kind in serving:
        await kind.create(kind.kind.lower(), gpus=1)
        await kind.until_pods(kind.kind.lower(), running=0, held=2)
    await sets.cluster.until(sets.road.workloads, lambda listed: len(listed["items"]) >= 6, what="all have workloads")


@pytest.mark.proves("JobSet", "uninstall")
@pytest.mark.proves("Deployment", "uninstall")
@pytest.mark.proves("StatefulSet", "uninstall")
async def test_what_serves_runs_on_without_kqueue_and_no_job_is_started(either_plane: Plane, tmp_path: Path) -> None:
    """Held replicas start; suspended jobs lose their gates, not their suspension; a JobSet that runs is told of."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 3), gpus=8)
    sets = SetRoad(road)
    serving = [Serving(either_plane.cluster, road.namespace, kind=kind) for kind in ("Deployment", "StatefulSet")]
    frameworks = "batch/job, jobset.x-k8s.io/jobset, deployment, statefulset"
    async with jobsets_run(either_plane):
        async with installed(either_plane, tmp_path, CONFIGURATION.replace("batch/job, pod", frameworks)) as controller:
            await submit_kinds(sets, serving)
            await controller.kill()
        checked = await uninstall(either_plane, tmp_path, "--check")
        only = await uninstall(either_plane, tmp_path, "--check", "--integration", "statefulset")
        released = await uninstall(either_plane, tmp_path, "--release")
        for kind in serving:
            await kind.until_pods(kind.kind.lower(), running=2)
        waits = await either_plane.cluster.get(f"{road.jobs}/grows")
        await either_plane.cluster.request("DELETE", f"{sets.jobsets}/runs", {"propagationPolicy": "Foreground"})
        await either_plane.kubectl("delete", "namespace", road.namespace, "--timeout=60s")
    last = await uninstall(either_plane, tmp_path, "--check", "--namespace", road.namespace)

    assert len(left(checked[1], "heldPod")) == 4
    assert left(checked[1], "suspended") == {"Job grows", "JobSet later"}
    assert left(checked[1], "heldTemplate") == {"Job grows"}
    assert "JobSet runs" in left(checked[1], "gatedTemplate")
    assert {item["integration"] for item in only[1]["left"]} == {"statefulset"}
    assert len(left(only[1], "heldPod")) == 2
    assert (released[0], released[1]["failed"]) == (1, [])
    assert {why for why, count in released[1]["counts"].items() if count} == {"gatedTemplate", "suspended"}
    assert waits["spec"]["suspend"] is True
    assert not waits["spec"]["template"]["spec"].get("schedulingGates")
    assert last[0] == 0
