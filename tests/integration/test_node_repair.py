"""Nodes that trouble running gangs: one that blinks, and one that looks well while the gang's pods fail on it."""

from __future__ import annotations

from collections.abc import Set
from datetime import UTC, datetime, timedelta

import pytest

from kqueue.config import Configuration, load
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import Object, Road, has, make_road

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane

INDEX = "batch.kubernetes.io/job-completion-index"
MERGE = "application/merge-patch+json"


def configuration() -> Configuration:
    """The defaults, without leader election."""
    found = load(None)
    election = found.leader_election.model_copy(update={"leader_elect": False})
    return found.model_copy(update={"leader_election": election})


def flags(plane: Plane) -> Flags:
    """No probes, no metrics, no webhooks: Jobs here come suspended."""
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    return Flags(kubeconfig=plane.kubeconfig, parts=parts, health_address="0", metrics_address="0")


async def until_running(road: Road, pods: int, *, without: Set[str] = frozenset()) -> dict[int, Object]:
    """Wait until so many pods run, none of them one of these by UID; completion index -> pod."""

    def found(listed: Object) -> dict[int, Object]:
        run = [p for p in listed["items"] if p["status"].get("phase") == "Running"]
        return {int(p["metadata"]["labels"][INDEX]): p for p in run if p["metadata"]["uid"] not in without}

    listed = await road.cluster.until(road.pods, lambda got: len(found(got)) == pods, what=f"{pods} pods run")
    return found(listed)


def uids(pods: dict[int, Object]) -> dict[int, str]:
    """Completion index -> UID."""
    return {index: pod["metadata"]["uid"] for index, pod in pods.items()}


async def test_a_node_that_blinks_does_not_tear_the_gang_on_it(either_plane: Plane) -> None:
    """It is not ready and gets its taints, and comes back: the same pods run on, and nothing was held against it."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 4))
    async with running(configuration(), flags(either_plane)):
        await road.submit("gang", pods=3, run_seconds=600)
        before = await until_running(road, 3)
        node = f"/api/v1/nodes/{before[1]['spec']['nodeName']}"

        async def annotate(value: str | None) -> None:
            patch = {"metadata": {"annotations": {"sandbox.kqueue.dev/fail": value}}}
            await road.cluster.request("PATCH", node, patch, content_type=MERGE)

        await annotate("true")
        await road.cluster.until(node, lambda n: not has(n, "Ready") and bool(n["spec"].get("taints")), what="a taint")
        await annotate(None)
        await road.cluster.until(node, lambda n: has(n, "Ready") and not n["spec"].get("taints"), what="no taint")
        after = await until_running(road, 3)
        workload = await road.workload_of("gang")

    assert uids(after) == uids(before)
    for field in ("unhealthyNodes", "nodeFailures", "schedulingStats"):
        assert field not in workload["status"]


async def test_a_gang_leaves_a_node_that_looks_well_when_its_pods_fail_there_again(either_plane: Plane) -> None:
    """Rank 1 failed there once before, as the Workload remembers.  After the next time it runs on the rack's spare node,
    and all others are the same pods as before.
    """
    road = await make_road(either_plane.cluster, shape=(1, 1, 4))
    async with running(configuration(), flags(either_plane)):
        await road.submit("gang", pods=3, run_seconds=600)
        before = await until_running(road, 3)
        bad = before[1]["spec"]["nodeName"]
        an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = f"{road.workloads}/{(await road.workload_of('gang'))['metadata']['name']}/status"
        remembered = {"status": {"nodeFailures": [{"name": bad, "count": 1, "lastFailureTime": an_hour_ago}]}}
        await road.cluster.request("PATCH", path, remembered, content_type=MERGE)
        pod = f"{road.pods}/{before[1]['metadata']['name']}/status"
        await road.cluster.request("PATCH", pod, {"status": {"phase": "Failed"}}, content_type=MERGE)
        after = await until_running(road, 3, without={before[1]["metadata"]["uid"]})
        workload = await road.workload_of("gang")

    used = {index: p["spec"]["nodeName"] for index, p in before.items()}
    (spare,) = {f"node-0-0-{i}" for i in range(4)} - set(used.values())
    assert {index: p["spec"]["nodeName"] for index, p in after.items()} == used | {1: spare}
    assert {index for index in range(3) if uids(after)[index] != uids(before)[index]} == {1}
    assert [(entry["name"], entry["count"]) for entry in workload["status"]["nodeFailures"]] == [(bad, 2)]
    assert "schedulingStats" not in workload["status"]  # nobody was evicted
