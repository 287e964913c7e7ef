"""Bad input on the real control plane: one clear sentence each, and everybody else goes on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from kqueue.manager.process import running
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, condition, make_road
from tests.integration.test_road import configuration, flags

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

MERGE = "application/merge-patch+json"


def workload(name: str, namespace: str, requests: dict[str, Any]) -> dict[str, Any]:
    """A Workload written by hand, whose template the API server does not check."""
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "queueName": "main",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
        },
    }


async def test_every_mistake_gets_a_sentence_that_names_the_field_and_the_remedy(plane: ControlPlane) -> None:
    """Missing queue, missing ClusterQueue, unknown level, malformed quantity: a reason each; a sound job runs."""
    road = await make_road(plane.cluster, shape=(1, 1, 4))
    lost = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "lost", "namespace": road.namespace},
        "spec": {"clusterQueue": "nowhere"},
    }
    await plane.cluster.request("POST", f"{KUEUE}/namespaces/{road.namespace}/localqueues", lost)
    async with running(configuration(), flags(plane)):
        await road.submit("no-queue", queue="missing")
        await road.submit("no-cluster-queue", queue="lost")
        await road.submit("no-level", required="example.com/aisle")
        malformed = workload("malformed", road.namespace, {"cpu": "many", "nvidia.com/gpu": "1"})
        await plane.cluster.request("POST", road.workloads, malformed)
        await road.submit("sound", pods=2)
        await road.until_complete("sound")
        said = {
            name: await road.until_workload(name, "QuotaReserved", status="False")
            for name in ("no-queue", "no-cluster-queue", "no-level")
        }
        path = f"{road.workloads}/malformed"
        await plane.cluster.until(path, lambda w: "conditions" in w.get("status", {}), what="a condition")
        said["malformed"] = condition(await plane.cluster.get(path), "QuotaReserved")

    wanted = {
        "no-queue": ("Misconfigured", ["LocalQueue missing", "create it"]),
        "no-cluster-queue": ("Misconfigured", ["ClusterQueue nowhere", "spec.clusterQueue"]),
        "no-level": ("NoMatchingFlavor", ["no level example.com/aisle", "it has"]),
        "malformed": ("Misconfigured", ["spec.podSets[0].template.spec.containers[0].resources.requests[cpu]", "many"]),
    }
    for name, (reason, facts) in wanted.items():
        assert said[name]["reason"] == reason, said[name]
        assert [fact for fact in facts if fact not in said[name]["message"]] == [], said[name]


async def test_a_queue_whose_flavor_is_missing_says_so_and_heals(plane: ControlPlane) -> None:
    """A job waits because the flavor is gone, and starts when it is created."""
    road = await make_road(plane.cluster, shape=(1, 1, 4))
    flavor = await plane.cluster.get(f"{KUEUE}/resourceflavors/gpu")
    await plane.cluster.request("DELETE", f"{KUEUE}/resourceflavors/gpu")
    async with running(configuration(), flags(plane)):
        await road.submit("gang", pods=2)
        waiting = await road.until_workload("gang", "QuotaReserved", status="False")
        new = {key: flavor[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "gpu"}}
        await plane.cluster.request("POST", f"{KUEUE}/resourceflavors", new)
        await road.until_complete("gang")

    assert "ResourceFlavor gpu not found; create it" in waiting["message"]


async def test_a_kubeconfig_that_does_not_exist_is_exit_code_2(tmp_path: Path) -> None:
    """One sentence with the path, no traceback."""
    missing = tmp_path / "nowhere"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "controller", "--kubeconfig", str(missing)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()

    assert process.returncode == 2
    assert str(missing) in err.decode()
    assert "Traceback" not in err.decode()
