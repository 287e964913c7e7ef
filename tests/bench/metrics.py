"""Metrics of 1,000 ClusterQueues: how long setting and rendering them holds the event loop, and how long they take.

1,000 ClusterQueues in 100 cohorts with 4 flavors of 2 resources each, `enableClusterQueueResources`, as many LocalQueues,
20,000 Workloads of 50 forms of which half wait; for the gauges of nodes one flavor of 12,500 nodes by block, rack, host.
A heartbeat every millisecond beside it tells how late the loop comes back.

    stall_ms      the longest that the loop was held while gauges were set three times and the page was rendered three
                  times; goal: 20
    render_ms     from the request of a page until it is there, in a thread
    gauges_ms     from the beginning of a round of gauges until its end, turns of the loop included
    hold_cpu_pct  CPU of a round of gauges, of the 5 s between two rounds
    page_mib      size of the page
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.clock import SystemClock
from kqueue.core.topology import HOSTNAME, NodeFacts
from kqueue.core.workload import Flavor
from kqueue.manager.gauges import QueueGauges
from kqueue.manager.upkeep import ForeignGauges, Gauges, NodeGauges, PodGauges, RoomGauges
from kqueue.observe import Metrics
from kqueue.observe.metric_groups import MetricGroups
from kqueue.runtime.loop import freeze_after_sync, run, tune_collector
from kqueue.state.cache import Cache
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from tests.bench.table import Figure, Row, at_most, check

QUEUES, COHORTS, FLAVORS, WORKLOADS, FORMS = 1_000, 100, 4, 20_000, 50
BLOCKS, RACKS, HOSTS = 5, 25, 100
ROUNDS, BEAT = 3, 0.001
GOAL_MS = 20
NOW = datetime(2026, 1, 1, tzinfo=UTC).isoformat()


def read(kind: type[Any], **obj: Any) -> Any:
    return msgspec.convert(obj, kind, strict=False)


def condition(kind: str, *, holds: bool = True, reason: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason or kind, "message": "",
            "lastTransitionTime": NOW}  # fmt: skip


class Nobody:
    """Takes events and forgets them."""

    def record(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def record_steps(self, *_: Any, **__: Any) -> None:
        """Nothing."""


class World:
    """What the gauges are set from."""

    def __init__(self) -> None:
        self.metrics, self.cache = (
            Metrics(groups=MetricGroups(cluster_queue_resources=True), cache_seconds=0.0),
            Cache(),
        )
        self.queues = Queues(lambda: datetime.now(UTC))
        self.local_queues: list[wire.LocalQueue] = []
        self.workloads: dict[str, wire.Workload] = {}
        for number in range(FLAVORS):
            self.cache.on_flavor(f"f-{number}", read(wire.ResourceFlavor, metadata={"name": f"f-{number}"}, spec={}))
        for number in range(QUEUES):
            self._queue(number)
        for number in range(WORKLOADS):
            self._workload(number)
        self._nodes()
        clock = SystemClock()
        ledger = self.cache.ledger
        self.gauges = Gauges(
            queues=QueueGauges(self.metrics, self.cache, self.queues, clock=clock, workload=self.workloads.get),
            nodes=NodeGauges(self.metrics, ledger, Nobody()),
            foreign=ForeignGauges(self.metrics, ledger, clock),
            room=RoomGauges(self.metrics, self.cache, clock),
            pods=PodGauges(self.metrics, clock, workloads=lambda: (), not_running=lambda _workload: ()),
        )

    def _queue(self, number: int) -> None:
        name = f"team-{number}"
        amounts = [{"name": "cpu", "nominalQuota": "1000", "borrowingLimit": "500"},
                   {"name": "nvidia.com/gpu", "nominalQuota": "64"}]  # fmt: skip
        flavors = [{"name": f"f-{n}", "resources": amounts} for n in range(FLAVORS)]
        groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": flavors}]
        spec = {"resourceGroups": groups, "cohortName": f"c-{number % COHORTS}"}
        self.cache.quota.on_cluster_queue(name, read(wire.ClusterQueue, metadata={"name": name}, spec=spec))
        self.queues.set_cluster_queue(name, BEST_EFFORT_FIFO)
        self.queues.set_local_queue(f"ns/{name}", name)
        local = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": name}}
        self.local_queues.append(read(wire.LocalQueue, **local))

    def _workload(self, number: int) -> None:
        requests = {"cpu": str(number % FORMS + 1), "nvidia.com/gpu": "1"}
        pod_set = {
            "name": "main",
            "count": 2,
            "template": {"spec": {"containers": [{"resources": {"requests": requests}}]}},
        }
        queue, flavor, held = f"team-{number % QUEUES}", f"f-{number % FLAVORS}", number % 40 >= 20
        entry = {"name": "main", "flavors": dict.fromkeys(requests, flavor), "resourceUsage": requests, "count": 2}
        status = {
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": queue, "podSetAssignments": [entry]},
        } if held else {"conditions": [condition("QuotaReserved", holds=False, reason="WaitingForQuota")]}  # fmt: skip
        name = f"w-{number}"
        workload = read(
            wire.Workload, metadata={"name": name, "namespace": "ns", "uid": name, "creationTimestamp": NOW},
            spec={"queueName": queue, "podSets": [pod_set]}, status=status,
        )  # fmt: skip
        self.workloads[f"ns/{name}"] = workload
        self.cache.held.on_workload(f"ns/{name}", workload)
        if held:
            for metrics in (self.metrics.cluster_queue(queue), self.metrics.local_queue(namespace="ns", name=queue)):
                metrics.quota_reserved(priority_class="high", waited=number % 300, admitted=True)
        else:
            self.queues.push(model.pending(workload))

    def _nodes(self) -> None:
        ledger = self.cache.ledger
        ledger.on_topology("dc", ("block", "rack", HOSTNAME))
        ledger.on_flavor("f-0", Flavor(name="f-0", topology="dc", node_labels={}))
        for block in range(BLOCKS):
            for rack in range(RACKS):
                for host in range(HOSTS):
                    name = f"n-{block}-{rack}-{host}"
                    labels = {"block": f"b-{block}", "rack": f"r-{block}-{rack}", HOSTNAME: name}
                    amounts = {"cpu": 96_000, "nvidia.com/gpu": 8, "pods": 110}
                    self.cache.on_node(name, NodeFacts(name=name, labels=labels, allocatable=amounts))

    async def refresh(self) -> None:
        """A round of gauges."""
        await self.gauges.refresh(self.local_queues, self.workloads.values(), tell=True)


@asynccontextmanager
async def heartbeat() -> AsyncIterator[Callable[[], float]]:
    """Tells by how many milliseconds a timer came late at most."""
    worst = 0.0

    async def beat() -> None:
        nonlocal worst
        while True:
            asked = time.perf_counter() + BEAT
            await asyncio.sleep(BEAT)
            worst = max(worst, time.perf_counter() - asked)

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        yield lambda: worst * 1e3
    finally:
        task.cancel()


async def milliseconds(act: Callable[[], Coroutine[Any, Any, object]]) -> float:
    begun = time.perf_counter()
    await act()
    return (time.perf_counter() - begun) * 1e3


async def measured() -> list[Figure]:
    """All figures, of gauges and pages after the first of each, which make the series."""
    world = World()
    for _ in world.cache.ledger.build_steps():
        pass
    await world.refresh()
    page = await world.metrics.render()
    for text in (
        'kueue_cluster_queue_nominal_quota{cluster_queue="team-999"',
        "kqueue_gang_slots{",
        "_resource_pending{",
    ):
        check(text.encode() in page, f"the page has no {text}")
    gc.collect()
    tune_collector()
    freeze_after_sync()
    stalls: list[float] = []
    rounds: list[float] = []
    pages: list[float] = []
    cpu: list[float] = []
    for _ in range(ROUNDS):
        async with heartbeat() as worst:
            before = time.process_time()
            rounds.append(await milliseconds(world.refresh))
            cpu.append((time.process_time() - before) / 5 * 100)
            pages.append(await milliseconds(world.metrics.render))
            stalls.append(worst())
    return [
        Figure("stall_ms", [max(stalls)], goal=at_most(GOAL_MS)),
        Figure("render_ms", pages),
        Figure("gauges_ms", rounds),
        Figure("hold_cpu_pct", cpu),
        Figure("page_mib", [len(page) / 2**20]),
    ]


def measure() -> Iterator[Figure]:
    """The figures."""
    yield from run(measured())


ROWS = (Row("metrics/1000-queues", measure, alone=True),)
