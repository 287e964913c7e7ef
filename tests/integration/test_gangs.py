"""Gangs of other dialects than Kueue's, end to end, with the webhooks: a quorum that starts together, and extras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import Object, condition, has, make_road
from tests.integration.test_pods import PARTS, Pods, gates, held

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [kqueue.dev/coscheduling-labels]}
"""


class LabelledGangs(Pods):
    """One tenant whose pods say their gang by labels."""

    async def create_labelled(self, group: str, *names: str, quorum: str, seconds: int = 600) -> None:
        """Make pods of a gang, one by one."""
        for name in names:
            await self.create(name, seconds=seconds, labels={NAME: group, QUORUM: quorum})

    async def workload_named(self, *, extra: bool) -> Object:
        """The Workload of the quorum, or the oldest one of an extra."""
        key = "kqueue.dev/extra-of" if extra else "kqueue.dev/gang"

        def of(listed: Object) -> list[Object]:
            return [w for w in listed["items"] if key in w["metadata"].get("annotations", {})]

        listed = await self.cluster.until(self.workloads, lambda found: bool(of(found)), what=f"Workload with {key}")
        return of(listed)[0]


@asynccontextmanager
async def world(plane: Plane, *, gpus: int) -> AsyncIterator[LabelledGangs]:
    """Nodes, a tenant with quota for so many GPUs, and a controller with its webhooks."""
    road = await make_road(plane.cluster, gpus=gpus)
    pods = LabelledGangs(plane.cluster, road.namespace)
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configuration = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    async with running(configuration, flags, timings=Timings(queue_flush_window=0.1)) as process:
        await process.operator.ready.wait()
        yield pods


@pytest.mark.mechanism("0.1", "0.2")
async def test_a_quorum_runs_and_the_third_pod_waits(either_plane: Plane) -> None:
    """Rows 0.1, 0.2: one Workload of two; the third pod waits alone until there is quota; a pod in no gang is left
    alone; a wrong number is refused."""
    async with world(either_plane, gpus=16) as pods:
        single = await pods.create("single", gpus=1, seconds=1)
        with pytest.raises(RequestError, match="must be a whole number of pods, 1 or more"):
            await pods.create_labelled("bad", "bad-0", quorum="two")
        await pods.create_labelled("g", "g-0", "g-1", "g-2", quorum="2")
        base = await pods.workload_named(extra=False)
        await pods.until_running("g-0", "g-1")
        extra = await pods.workload_named(extra=True)
        waits = await pods.pod("g-2")
        await pods.delete("g-0")
        await pods.until_gone("g-0")
        replaced = await pods.until_pod("g-2", lambda p: p["status"].get("phase") == "Running", what="takes the place")

    assert gates(single) == []
    assert [pod_set["count"] for pod_set in base["spec"]["podSets"]] == [2]
    assert extra["metadata"]["annotations"]["kqueue.dev/extra-of"] == base["metadata"]["name"]
    assert gates(waits) == ["admission", "topology"]
    assert "kqueue.dev/extra" not in replaced["metadata"]["annotations"]


async def test_an_extra_runs_beside_its_quorum_and_beyond_its_end(either_plane: Plane) -> None:
    """The Workload of the quorum finishes when the quorum has succeeded, and the extra runs on to its own end."""
    async with world(either_plane, gpus=24) as pods:
        await pods.create_labelled("g", "g-0", "g-1", quorum="2", seconds=3)
        await pods.until_running("g-0", "g-1")
        await pods.create_labelled("g", "g-2", quorum="2", seconds=6)
        await pods.until_running("g-2")
        extra, base = await pods.workload_named(extra=True), await pods.workload_named(extra=False)
        path = f"{pods.workloads}/{base['metadata']['name']}"
        finished = await pods.cluster.until(path, lambda w: has(w, "Finished"), what="the quorum has finished")
        end = await pods.until_pod("g-2", lambda p: p["status"].get("phase") == "Succeeded", what="succeeds")
        await pods.until_pod("g-2", lambda p: not held(p), what="is let go")

    assert condition(finished, "Finished")["message"] == "2 of 2 pods of the group succeeded"
    assert [pod_set["count"] for pod_set in extra["spec"]["podSets"]] == [1]
    assert end["metadata"]["annotations"]["kqueue.dev/extra"] == "true"
