"""`explain/*`: why one workload waits, with 12,500 nodes, 10,000 workloads that wait, and others that fill the nodes.

    explain/rack        20 whole hosts in one rack of 20: every rack holds four gangs of five hosts, or three and a half
    explain/anywhere    4,000 whole hosts, wherever they are
    explain/preempting  the same rack, in a queue that may preempt lower priorities, of which there are none
    explain/victims     the same, and all others have a lower priority
    explain/runs        where one that runs is, and how good that is

`explain_ms` is the whole answer; the search for changes ends at its own limit.  `stretch_ms` is the longest time for
which nobody else had a turn of the event loop.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.clock import SystemClock
from kqueue.core.topology import Domain, TopologyAssignment
from kqueue.runtime.loop import freeze_after_sync
from kqueue.runtime.store import Store
from kqueue.state.heads import Heads
from kqueue.state.tries import Tries
from kqueue.visibility.explanation import WorkloadExplainer
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.sources import Freshness, Known, PlanningSource
from tests.bench._crowd import running
from tests.bench._scheduler import HOST, RACK, World
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check

BLOCKS, RACKS, HOSTS = 25, 25, 20
NODES = BLOCKS * RACKS * HOSTS
QUEUES, WAITING = 10, 10_000
GANG = 5
GPUS, GPU = 8, "nvidia.com/gpu"
ASKS: Mapping[str, str] = {GPU: str(GPUS), "cpu": "32"}
QUOTA: Mapping[str, str] = {GPU: str(GPUS * NODES * 2), "cpu": str(64 * NODES * 2)}
RUNS = "cq-0/runs-0"
PREEMPTING = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}


def _host(block: int, rack: int, host: int) -> str:
    return f"b{block:02}-r{rack:02}-h{host:02}"


def _queue(i: int) -> str:
    return f"cq-{i}"


def fill(world: World, stores: _Stores) -> None:
    """Nodes, who stands on them, and who waits."""
    world.flavor(topology=True)
    for i in range(QUEUES):
        world.queue(_queue(i), quota=QUOTA, cohort="all", preemption=PREEMPTING if i == 1 else {})
    number = 0
    for block in range(BLOCKS):
        for rack in range(RACKS):
            hosts = [_host(block, rack, host) for host in range(HOSTS)]
            for name in hosts:
                there: Mapping[str, str | int] = {GPU: GPUS, "cpu": 64, "pods": 110}
                world.node(name, block=f"b{block:02}", rack=f"b{block:02}-r{rack:02}", allocatable=there)
            for first in range(0, HOSTS - (GANG if number % 3 == 0 else 0), GANG):
                where = TopologyAssignment((HOST,), tuple(Domain((h,), 1) for h in hosts[first : first + GANG]))
                queue = _queue((block * RACKS + rack) % QUEUES)
                usage = {GPU: str(GPUS * GANG), "cpu": str(32 * GANG)}
                status = running(queue, usage, pods=GANG, where=where)
                stores.keep(world.workload(f"runs-{number}", queue=queue, pods=GANG, requests=ASKS, status=status))
                number += 1
    for i in range(WAITING):
        waits, its_queue = f"waits-{i}", _queue(i % QUEUES)
        stores.keep(
            world.workload(waits, queue=its_queue, pods=10 + i % 10, requests=ASKS, topology={"required": RACK})
        )
    for asks, number, pods, wish, priority in (
        ("rack", 0, HOSTS, {"required": RACK}, 0),
        ("anywhere", 0, 4_000, {"unconstrained": True}, 0),
        ("preempting", 1, HOSTS, {"required": RACK}, -1),
        ("victims", 1, HOSTS, {"required": RACK}, 10),
    ):
        made = world.workload(asks, queue=_queue(number), pods=pods, requests=ASKS, topology=wish, priority=priority)
        stores.keep(made)


@dataclass(slots=True)
class _Stores:
    workloads: Store[wire.Workload] = field(default_factory=Store)
    local_queues: Store[wire.LocalQueue] = field(default_factory=Store)

    def keep(self, obj: wire.Workload) -> None:
        self.workloads.put(f"{obj.metadata.namespace}/{obj.metadata.name}", obj)


@cache
def stage() -> tuple[World, WorkloadExplainer, asyncio.AbstractEventLoop]:
    """The world, and who explains it."""
    loop = asyncio.new_event_loop()

    async def made() -> tuple[World, WorkloadExplainer]:
        world, stores = World(), _Stores()
        fill(world, stores)
        for i in range(QUEUES):
            local = wire.LocalQueue(
                metadata=ObjectMeta(name=_queue(i), namespace=_queue(i)),
                spec=wire.LocalQueueSpec(cluster_queue=_queue(i)),
            )
            stores.local_queues.put(f"{_queue(i)}/{_queue(i)}", local)
        explainer = WorkloadExplainer(
            known=Known(
                workloads=stores.workloads,
                local_queues=stores.local_queues,
                cache=world.cache,
                queues=world.queues,
                namespace_labels=lambda _: {},
            ),
            planning=PlanningSource(
                heads=Heads(world.cache, world.writer.newest),
                tries=Tries(),
                rules=world.loop.planning.rules,
                claims=world.loop.planning.claims,
                held_by=world.loop.planning.held_by,
            ),
            held_back=lambda _: (),
            clock=SystemClock(),
            freshness=Freshness(leads=lambda: True),
        )
        return world, explainer

    world, explainer = loop.run_until_complete(made())
    for _ in world.cache.ledger.build_steps():
        pass
    gc.collect()
    freeze_after_sync()
    return world, explainer, loop


async def _asked(explainer: WorkloadExplainer, namespace: str, name: str) -> tuple[JSON, float, float]:
    """The answer, the milliseconds that it took, and the longest of them without a turn for others."""
    longest = 0.0

    async def others() -> None:
        nonlocal longest
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now

    async def reads(_namespace: str) -> bool:
        return True

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    start = time.perf_counter()
    answer = await explainer.view(AuthorizedQuestion(namespace=namespace, name=name, params={}, reads=reads))
    took = time.perf_counter() - start
    beside.cancel()
    return answer, took * 1e3, longest * 1e3


def measure(name: str, queue: int, right: Callable[[JSON], bool]) -> Iterator[Figure]:
    """Ask again and again; what is free on hosts changes in between, as it does in a cluster."""
    world, explainer, loop = stage()
    times, stretches = [], []
    answer: JSON = {}
    for _ in range(REPETITIONS + 1):
        obj = world.writer.objects[RUNS]
        world.intake.on_workload(obj, None)
        world.intake.on_workload(None, obj)
        answer, took, stretch = loop.run_until_complete(_asked(explainer, _queue(queue), name))
        times.append(took)
        stretches.append(stretch)
    check(right(answer), f"the answer is {answer['summary']}")
    yield Figure("explain_ms", times[1:], goal=at_most(300))
    yield Figure("first_ms", times[:1])
    yield Figure("stretch_ms", stretches[1:], goal=at_most(20))


def _changes(answer: JSON) -> set[str]:
    return {one["change"]["kind"] for one in answer["pending"]["wouldStartIf"]}


def _rack(answer: JSON) -> bool:
    pending: dict[str, Any] = answer["pending"]
    levels = pending["flavors"][0]["levels"]
    return len(levels) == 2 and {"OtherTopologyRequest", "FewerPods", "WorkloadsEnd"} <= _changes(answer)


def _anywhere(answer: JSON) -> bool:
    return {"FewerPods", "WorkloadsEnd"} <= _changes(answer)


def _victims(answer: JSON) -> bool:
    return bool(answer["pending"]["now"]["outcome"] == "Preempt")


def _runs(answer: JSON) -> bool:
    return bool(answer["running"]["podSets"][0]["placement"]["levels"])


ROWS = (
    Row("explain/rack", partial(measure, "rack", 0, _rack)),
    Row("explain/anywhere", partial(measure, "anywhere", 0, _anywhere)),
    Row("explain/preempting", partial(measure, "preempting", 1, _rack)),
    Row("explain/victims", partial(measure, "victims", 1, _victims)),
    Row("explain/runs", partial(measure, RUNS.partition("/")[2], 0, _runs)),
)
