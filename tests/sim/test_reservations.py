"""A rack that is reserved: nothing runs there at its time but what it is for, whoever writes, and whichever leader plans."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from kqueue.clock import utc_text
from kqueue.kube.names import HOSTNAME_LABEL
from kqueue.sandbox.api import NODES, PODS, GroupVersionResource, Object
from kqueue.sandbox.topology_spec import POOL_LABEL, RACK_LABEL
from tests.sim.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    GPU,
    LEVELS,
    LOCAL_QUEUES,
    NAMESPACE,
    TOPOLOGIES,
    cluster_queue,
    job,
    ours,
)
from tests.sim.tenancy import Tenancy, pool
from tests.sim.test_backfill import started
from tests.sim.test_start_times import told as start_times
from tests.sim.world import World, condition, is_true, simulated

RESERVATIONS = GroupVersionResource("kqueue.dev", "v1alpha1", "reservations")
LONG = 100_000
"""Seconds that are longer than any of these stories."""
SOON = 10
"""Seconds between a time and what is seen then."""


def tenancy() -> Tenancy:
    """Two racks of two hosts, and the ClusterQueues `q` and `people` on them."""
    levels = {"levels": [{"nodeLabel": level} for level in LEVELS]}
    queues = [cluster_queue(name, flavors={"gpu": {"cpu": 1000, GPU: 1000}}) for name in ("q", "people")]
    return Tenancy(
        objects=(
            (TOPOLOGIES, ours("Topology", "dc", spec=levels)),
            (FLAVORS, ours("ResourceFlavor", "gpu", spec={"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "dc"})),
            *((CLUSTER_QUEUES, queue) for queue in queues),
            *(
                (LOCAL_QUEUES, ours("LocalQueue", name, namespace=NAMESPACE, spec={"clusterQueue": name}))
                for name in ("q", "people")
            ),
        ),
        pools=(pool("gpu", (1, 2, 2), gpus=8),),
        placed=frozenset({"gpu"}),
    )


class Story:
    """A world, and what a test does in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun = world.clock.now()

    async def reserve(self, begins: int, ends: int, **spec: Any) -> None:
        """Reserve one rack; times are seconds from the beginning."""
        times = {key: utc_text(self.begun + timedelta(seconds=s)) for key, s in (("from", begins), ("to", ends))}
        body: Object = {
            "apiVersion": "kqueue.dev/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "r"},
            "spec": {"topology": "dc", "level": RACK_LABEL, "count": 1, **times, **spec},
        }
        await self.world.api.create(RESERVATIONS, body)
        await self.world.pass_time(5)

    async def submit(self, name: str, *, queue: str = "q", limit: int | None = None, seconds: int = LONG) -> None:
        """A gang that needs all of a rack; `limit`: its Job ends by then."""
        made = job(name, queue=queue, pods=2, gpus=8, run_seconds=seconds)
        if limit is not None:
            made["spec"]["activeDeadlineSeconds"] = limit
        await self.world.submit(made)
        await self.world.pass_time(5)

    async def until(self, seconds: int) -> None:
        """Let time pass until so many seconds from the beginning."""
        await self.world.pass_time(seconds - (self.world.clock.now() - self.begun).total_seconds())

    def rack_of(self, name: str) -> str:
        """The rack in which a gang runs; empty: it does not."""
        pods = [pod for pod in self.world.pods_of(name) if pod["status"].get("phase") == "Running"]
        nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.world.objects(NODES)}
        racks = {str(nodes[pod["spec"]["nodeName"]][RACK_LABEL]) for pod in pods}
        return racks.pop() if len(racks) == 1 and len(pods) == 2 else ""

    def reserved(self) -> str:
        """The rack that was chosen."""
        (domain,) = self.status()["domains"]
        return str(domain["path"][-1])

    def status(self) -> Object:
        found = self.world.find(RESERVATIONS, "r")
        assert found is not None
        return dict(found["status"])

    def is_ready(self) -> bool:
        return is_true(self.world.find(RESERVATIONS, "r"), "Ready")


@asynccontextmanager
async def told() -> AsyncIterator[Story]:
    async with simulated(0, tenancy=tenancy()) as world:
        yield Story(world)
        assert not world.bugs


@pytest.mark.parametrize("restarts", [False, True], ids=["one leader", "another leader in between"])
async def test_a_rack_is_drained_used_and_open_again(restarts: bool) -> None:
    """A short promised gang starts there before, a long one does not; its ClusterQueue starts at its time; then all is
    as before.
    """
    async with told() as story:
        world = story.world
        await story.reserve(600, 1200, clusterQueue="people")
        rack = story.reserved()
        await story.submit("long-1")
        await story.submit("long-2")
        assert story.rack_of("long-1") not in ("", rack)
        assert story.rack_of("long-2") == ""
        waiting = condition(world.workload_of("long-2"), "QuotaReserved")
        assert waiting is not None
        assert "kept for Reservation r from" in waiting["message"]
        await story.submit("short", limit=300, seconds=100)
        assert story.rack_of("short") == rack
        if restarts:
            world.kill_controller()
            world.start_controller()
        await story.until(400)
        await story.submit("too-late", limit=300, seconds=10)
        await story.submit("people-1", queue="people", seconds=400)
        assert (story.rack_of("too-late"), story.rack_of("people-1")) == ("", "")
        await story.until(599)
        assert [pod for pod in world.objects(PODS) if is_on(world, pod, rack)] == []
        await story.until(640)
        assert (story.rack_of("people-1"), story.rack_of("long-2"), story.is_ready()) == (rack, "", True)
        await story.until(1100)
        assert (story.rack_of("people-1"), story.rack_of("long-2"), story.rack_of("too-late")) == ("", "", "")
        await story.until(1260)
        assert rack in (story.rack_of("long-2"), story.rack_of("too-late"))
        assert is_true(world.find(RESERVATIONS, "r"), "Ended")


def is_on(world: World, pod: Object, rack: str) -> bool:
    """Whether a pod runs in a rack."""
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"][RACK_LABEL] for node in world.objects(NODES)}
    return pod["status"].get("phase") == "Running" and nodes.get(pod["spec"].get("nodeName", "")) == rack


async def test_a_reservation_that_is_deleted_opens_the_rack_at_once() -> None:
    async with told() as story:
        await story.reserve(600, 1200)
        rack = story.reserved()
        await story.submit("long-1")
        await story.submit("long-2")
        assert story.rack_of("long-2") == ""
        await story.world.api.delete(RESERVATIONS, "r")
        await story.world.pass_time(30)
        assert story.rack_of("long-2") == rack


async def test_other_writers_and_new_nodes_change_nothing() -> None:
    """Somebody forges the status, and a node joins the rack while it is drained."""
    async with told() as story:
        world = story.world
        await story.reserve(600, 1200)
        rack = story.reserved()
        await story.submit("long-1")
        await story.submit("long-2")
        forged = {"status": {"domains": [], "conditions": [], "workloads": 7}}
        await world.api.patch(RESERVATIONS, "r", forged, subresource="status")
        for number in range(2):
            like = next(node for node in world.objects(NODES) if node["metadata"]["labels"][RACK_LABEL] == rack)
            name = f"new-{number}"
            labels = {**like["metadata"]["labels"], HOSTNAME_LABEL: name}
            node = {**like, "metadata": {"name": name, "labels": labels}}
            await world.api.create(NODES, node)
            await world.api.patch(NODES, name, {"status": like["status"]}, subresource="status")
        await world.pass_time(60)
        assert (story.reserved(), story.status()["workloads"], story.rack_of("long-2")) == (rack, 0, "")
        assert story.status()["domains"][0]["hosts"] == 4


async def test_start_times_know_the_begin_and_the_end() -> None:
    """The gang of the Reservation's ClusterQueue starts at the begin as told, the gang of another one at the end."""
    async with told() as story:
        world = story.world
        await story.reserve(100, 300, clusterQueue="people")
        await story.submit("long")
        await story.submit("others", seconds=50)
        await story.submit("ours", queue="people", limit=150, seconds=50)
        answer = await start_times(world)
        at = datetime.fromisoformat(answer["generatedAt"])
        items = {one["metadata"]["name"]: one["startTime"] for one in answer["items"]}
        await story.until(400)
        for name, begins in (("ours", 100), ("others", 300)):
            workload, start = world.workload_of(name), started(world, name)
            assert workload is not None
            assert start is not None
            expected = story.begun + timedelta(seconds=begins)
            assert abs((start - expected).total_seconds()) <= SOON, f"{name} started at {start}"
            p90 = items[workload["metadata"]["name"]]["p90Seconds"]
            late = (start - at).total_seconds() - p90
            assert -SOON <= late <= SOON, f"{name}: {late} s after its start time, {items}"
