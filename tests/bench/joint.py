"""Joint placement: how many units more than one by one, how far from the bound, and what a round costs.

Hosts of 8 GPUs, 16 in a rack; gangs have filled 90 % of them, and a part has left again.  `of_bound` is the units of the
plan by those of the bound, `alone_of_bound` the units of one by one, `gain` plan by one by one.  `ms` is processor
time of one core, but for `stall_ms`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import TypeVar

from kqueue.api.wire.metrics import PodMetrics
from kqueue.clock import SystemClock
from kqueue.controllers.usage_metrics import use_of
from kqueue.core.demand import Demands
from kqueue.core.joint.baseline import one_by_one
from kqueue.core.joint.batch import Batch, RankedWorkload, ranked
from kqueue.core.joint.exact import ExactInput, ExactWorkload, exact_solver
from kqueue.core.joint.graph import FlowSolver
from kqueue.core.joint.kept import Kept
from kqueue.core.joint.network import build
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import JointPlan, PlanStatus
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.settings import JointOrder, JointSettings
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.topology import TopologyRequest
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.workload import Head, Snapshot
from kqueue.runtime.list_items import ListItems
from kqueue.runtime.loop import run
from kqueue.scheduling.child import without_collector
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import Resync, Sent, pieces
from kqueue.scheduling.joint.process import PlanningProcess
from kqueue.state.statistics import StatisticsStore
from tests.bench._joint_optimum import fewest_split, most_further
from tests.bench._joint_worlds import GPU, GPUS, NOW, Load, gang, round_input, snapshot_of
from tests.bench._loop import LoopLag
from tests.bench.table import Figure, Row, at_least, at_most, check

T = TypeVar("T")

PREFERRED, ANYWHERE = TopologyRequest(preferred="rack"), TopologyRequest(unconstrained=True)
LARGE = 782
"""Racks of a cluster of 12,512 hosts."""
SEEDS = range(20)

LOADS = {
    "0.8": Load(racks=32, gangs=40, demand=0.8),
    "1.0": Load(racks=32, gangs=60, demand=1.0),
    "1.2": Load(racks=32, gangs=70, demand=1.2),
    "1.0_large": Load(racks=160, gangs=260, demand=1.0),
    "1.0_mixed": Load(racks=32, gangs=120, demand=1.0, whole=False),
}
GANGS_2560 = Load(
    racks=160,
    gangs=100,
    demand=2.0,
    smallest=64,
    largest=64,
    whole=False,
    gpus=(1, 2, 2, 2),
    requests=(TopologyRequest(required="rack"), PREFERRED, ANYWHERE),
)
GANGS_12500 = Load(racks=LARGE, gangs=1_088, demand=2.0, smallest=2, largest=16, whole=False, leave=0.16, shapes=50)


def found_solver() -> FlowSolver:
    """OR-tools, without which there is no bound."""
    found = solver()
    assert found is not None
    return found


def processor_ms(act: Callable[[T], object], prepare: Callable[[], T]) -> list[float]:
    """Milliseconds of processor time of five calls, after one that fills tables; preparing them is not counted."""
    act(prepare())
    times = []
    for _ in range(5):
        prepared = prepare()
        began = time.process_time()
        act(prepared)
        times.append((time.process_time() - began) * 1e3)
    return times


def quality(load: Load, *, order: JointOrder = JointOrder.STRICT, gap: float = 0.03) -> Iterator[Figure]:
    """Units of plans against one by one and against the bound."""
    plans = [plan_round(round_input(seed, load, found_solver(), order=order)) for seed in SEEDS]
    yield from _units(plans, gap=gap)


def _units(plans: list[JointPlan], *, gain: float | None = None, gap: float = 0.03) -> Iterator[Figure]:
    for plan in plans:
        check(not plan.faults, f"{plan.faults}")
        check(plan.bound is not None and plan.units <= plan.bound, f"{plan.units} units of {plan.bound}")
    bounds = [plan.bound or 1 for plan in plans]
    yield Figure(
        "of_bound", [statistics.mean(p.units / b for p, b in zip(plans, bounds, strict=True))], at_least(1 - gap)
    )
    yield Figure("alone_of_bound", [statistics.mean(p.greedy_units / b for p, b in zip(plans, bounds, strict=True))])
    gains = [plan.units / plan.greedy_units for plan in plans]
    yield Figure("gain", [statistics.mean(gains)], at_least(gain) if gain else None)
    yield Figure("least_gain", [min(gains)], at_least(1.0))
    yield Figure("better_plans", [sum(gain > 1 for gain in gains)])


def gangs(load: Load, seeds: int, *, limit: float, gain: float, gap: float) -> Iterator[Figure]:
    """The processor time of whole rounds, and their units."""
    times, plans = [], []
    for seed in range(seeds):
        given = round_input(seed, load, found_solver())
        with without_collector():
            began = time.process_time()
            plans.append(plan_round(given))
            times.append((time.process_time() - began) * 1e3)
    yield Figure("round_ms", times, at_most(limit))
    yield Figure("gangs", [len(plan.workloads) for plan in plans])
    yield Figure("bound", [plan.bound or 0 for plan in plans])
    yield from _units(plans, gain=gain, gap=gap)


class Relaxing:
    """Classes of gangs on 12,512 hosts, as a process keeps them: classes made, network built, solved and read.

    Before each time, gangs have left or taken 100 hosts, and 50 workloads have been replaced; all else is known.
    """

    def __init__(self, number: int, pods: int) -> None:
        self.waiting = equal_gangs(number, pods)
        view = round_input(1, replace(GANGS_12500, gangs=0), None).state.snapshot.topologies["gpu"]
        self.snapshot, self.capacity = snapshot_of(view.tree, view.capacity), view.capacity
        self.chance, self.kept, self.solve = random.Random(3), Kept(), found_solver()
        self.classes = self.arcs = 0
        self._start = World(self.state, ["team"], demands=self.kept.demands)
        self.choices = {head.uid: list(self._start.choices(head)) for head in self.waiting}

    @property
    def state(self) -> PlannedState:
        """The state before a round."""
        return PlannedState(snapshot=self.snapshot, rules=Rules(now=NOW))

    @property
    def pods(self) -> int:
        """The pods of all gangs."""
        return sum(head.pod_sets[0].request.count for head in self.waiting)

    def changed(self) -> tuple[RankedWorkload, ...]:
        """Let something happen; return the workloads in their order."""
        for leaf in self.chance.sample(range(len(self.capacity.tree)), 100):
            self.capacity.put(leaf, {GPU: self.chance.randint(0, GPUS)})
        for place in self.chance.sample(range(len(self.waiting)), min(50, len(self.waiting))):
            head = self.waiting[place] = replace(self.waiting[place])
            self.choices[head.uid] = list(self._start.choices(head))
        return ranked(self.waiting, JointOrder.STRICT, {})

    def relaxed(self, order: Sequence[RankedWorkload], kept: Kept | None = None, now: Snapshot | None = None) -> None:
        """Make the classes and solve their network."""
        kept, now, unit = kept or self.kept, now or self.snapshot, Unit(GPU, 1)
        book = kept.book("gpu", now.topologies["gpu"].tree.levels, unit)
        found = book.classes(order, self.choices, now.queues, JointOrder.STRICT)
        network = build("gpu", now, found, unit, kept=kept.rows_of("gpu"))
        network.scheduled(self.solve(network.graph))
        self.classes, self.arcs = len(found), len(network.graph.tails)

    def timed(self) -> float:
        """Milliseconds of one time, after a change that is not counted."""
        order = self.changed()
        began = time.process_time()
        self.relaxed(order)
        return (time.process_time() - began) * 1e3


def classes(number: int, *, limit: float | None = None) -> Iterator[Figure]:
    """The time of so many classes with 10,000 pods, and by how much 15 times the pods take longer."""
    few, many = Relaxing(number, 10_000), Relaxing(number, 150_000)
    pairs = [(few.timed(), many.timed()) for _ in range(10)][1:]
    yield Figure("relaxed_ms", [one for one, _ in pairs], at_most(limit) if limit else None)
    yield Figure("many_pods_ms", [other for _, other in pairs], at_most(limit) if limit else None)
    ratio = statistics.median(other for _, other in pairs) / statistics.median(one for one, _ in pairs)
    yield Figure("many_by_few", [ratio], at_most(1.5))
    yield Figure("classes", [few.classes])
    yield Figure("arcs", [few.arcs])
    yield Figure("pods", [few.pods])
    yield Figure("many_pods", [many.pods])


def kept_round() -> Iterator[Figure]:
    """A round of 12,512 hosts and 50 classes by a process that has the last one: 100 hosts and 50 workloads changed.

    `applied_ms`: messages read; `ms`: with classes, network and solution; without choices of new workloads and searches.
    """
    world, known, assembly = Relaxing(50, 10_000), Sent(), Assembly()
    applied, whole = [], []
    sizes = list[int]()
    for number in range(8):
        order = world.changed()
        given = RoundInput(
            state=world.state, batch=Batch(queues={"team": tuple(world.waiting)}), waited={}, settings=JointSettings()
        )
        messages = list(pieces(number, given, known))
        began = time.process_time()
        (asked,) = [found for data in messages if (found := assembly.take(data)) is not None]
        taken = time.process_time()
        assert not isinstance(asked, Resync)
        assert isinstance(asked[1], RoundInput)
        there = {head.uid: head for head in asked[1].batch.heads()}
        order = tuple([replace(one, head=there[one.head.uid]) for one in order])
        world.relaxed(order, asked[1].kept, asked[1].state.snapshot)
        applied.append((taken - began) * 1e3)
        whole.append((time.process_time() - began) * 1e3)
        sizes.append(sum(map(len, messages)))
    yield Figure("ms", whole[2:], at_most(100))
    yield Figure("applied_ms", applied[2:])
    yield Figure("kilobytes", [size / 1024 for size in sizes[2:]])
    yield Figure("first_kilobytes", [sizes[0] / 1024])


def equal_gangs(number: int, pods: int) -> list[Head]:
    """So many classes of gangs in the order of their age, with so many pods in all, or a little less."""
    chance = random.Random(3)
    shapes = [(1 + n % 10, chance.choice([1, 2, 4, 8])) for n in range(number)]
    copies = max(1, pods // sum(count for count, _ in shapes))
    return [
        gang(f"g{n}-{copy}", count, gpus, n * copies + copy)
        for n, (count, gpus) in enumerate(shapes)
        for copy in range(copies)
    ]


def first() -> Iterator[Figure]:
    """A round of 12,512 hosts by a process without anything: messages made, read and put together."""
    given = round_input(1, GANGS_12500, None)

    def exchanged() -> None:
        assembly = Assembly()
        found = [asked for data in pieces(1, given, Sent()) if (asked := assembly.take(data)) is not None]
        check(len(found) == 1, "no round was asked for")

    yield Figure("messages_ms", processor_ms(lambda _: exchanged(), lambda: None), at_most(1_000))
    known, assembly = Sent(), Assembly()
    for data in pieces(1, given, known):
        assembly.take(data)

    def read(changed: RoundInput) -> None:
        check(
            any(isinstance(assembly.take(data), tuple) for data in pieces(2, changed, known)), "no round was asked for"
        )

    yield Figure("again_ms", processor_ms(read, lambda: given))
    hosts = count()
    yield Figure("node_ms", processor_ms(read, lambda: _without_a_host(given, next(hosts))))


def _without_a_host(given: RoundInput, host: int) -> RoundInput:
    """The same round without one of the hosts."""
    view = given.state.snapshot.topologies["gpu"]
    tree, edit = view.tree.edited([host], [])
    fewer = replace(view, tree=tree, capacity=view.capacity.edited(tree, edit, [], idle=[]))
    snapshot = replace(given.state.snapshot, topologies={"gpu": fewer})
    return replace(given, state=replace(given.state, snapshot=snapshot))


def stall() -> Iterator[Figure]:
    """The longest time for which the event loop is held while a round of 12,512 hosts is sent and planned."""

    given = round_input(1, replace(GANGS_12500, gangs=1_000), None)  # before the loop begins, which it would hold

    async def planned() -> float:
        clock, planner = SystemClock(), PlanningProcess()
        lag = LoopLag(clock=clock, interval=0.001)
        beating = asyncio.ensure_future(lag.run())
        await planner.get_ready()
        await planner.plan(1, round_input(1, Load(racks=6, gangs=12, demand=1.0), None))  # it has started
        lag.reset()
        await planner.plan(2, given)
        longest = lag.longest
        beating.cancel()
        await planner.stop()
        return longest * 1e3

    yield Figure("stall_ms", [run(planned()) for _ in range(3)], at_most(50))


def measured() -> Iterator[Figure]:
    """A list of 100,000 pods, 35 MB, that is read; samples of 12,500 nodes that are kept, copied and sent."""
    item = b'{"metadata":{"name":"p","namespace":"ns","labels":{"text":"%s"}},"timestamp":"2026-01-01T00:00:00Z",' % (
        b"x" * 200
    )
    item += b'"window":"15s","containers":[{"name":"c","usage":{"cpu":"123456789n","memory":"123456Ki"}}]}'
    body = b'{"kind":"PodMetricsList","metadata":{},"items":[' + b",".join([item] * 100_000) + b"]}"

    async def read() -> float:
        clock = SystemClock()
        lag, found = LoopLag(clock=clock, interval=0.001), 0
        beating = asyncio.ensure_future(lag.run())
        await asyncio.sleep(0)  # the first beat begins
        async for piece in ListItems(PodMetrics, first_field="metadata", clock=clock).of(body, "list pods"):
            found += sum(use_of(one.containers[0].usage) is not None for one in piece if one is not None)
        longest = lag.longest
        beating.cancel()
        check(found == 100_000, "pods were lost")
        return longest * 1e3

    yield Figure("mib", [len(body) / (1 << 20)])
    yield Figure("read_stall_ms", [run(read()) for _ in range(3)], at_most(50))
    yield Figure("read_ms", processor_ms(lambda _none: run(read()), lambda: None))
    store = StatisticsStore(interval=15, samples=10, clock=SystemClock().monotonic)
    samples = {f"node-{n}": (n, n, n) for n in range(12_500)}
    some = dict(islice(samples.items(), 2_000))
    for _ in range(10):
        store.add_nodes(samples)
    yield Figure("add_2000_ms", processor_ms(lambda _none: store.add_nodes(some), lambda: None), at_most(50))
    yield Figure("copy_ms", processor_ms(lambda _none: store.statistics(), lambda: None), at_most(50))
    yield Figure("kept_mib", [store.nodes.size / (1 << 20)])


def domains() -> Iterator[Figure]:
    """Racks of preferred gangs of whole hosts, in plans and one by one, and by the fewest racks that any plan could use."""
    load = Load(racks=32, gangs=60, demand=0.95, requests=(PREFERRED,))
    planned, alone, fewest = list[int](), list[int](), 0
    for seed in SEEDS:
        given = round_input(seed, load, found_solver())
        admitted = [one for one in plan_round(given).workloads if one.admitted is not None]
        used = [_racks(one.admitted) for one in admitted if one.admitted is not None]
        view = given.state.snapshot.topologies["gpu"]
        request = admitted[0].head.pod_sets[0].request
        rooms = pods_per_domain(view.capacity, request.shape)[0].tolist()
        split = fewest_split([one.head.pod_sets[0].request.count for one in admitted], rooms)
        check(sum(racks > 1 for racks in used) >= split, f"seed {seed}: {used}, at least {split} must be split")
        fewest += len(used) + split
        planned += used
        world = World(given.state, given.batch.queues, demands=Demands(), charged=False)
        alone += map(_racks, one_by_one(world, given.batch, rules=given.state.rules).admitted.values())
    yield Figure("racks", [statistics.mean(planned)])
    yield Figure("alone_racks", [statistics.mean(alone)])
    yield Figure("by_fewest", [sum(planned) / fewest], at_most(1.02))
    yield Figure("gangs", [len(planned)])
    yield Figure("alone_gangs", [len(alone)])


def _racks(planned: PlannedAdmission) -> int:
    hosts = [d.values[-1] for one in planned.pod_sets if one.topology is not None for d in one.topology.domains]
    return len({host.partition("-")[0] for host in hosts})


def slots(demand: float) -> Iterator[Figure]:
    """Room that is left for gangs of the largest form, where all gangs fit, and the most room that any plan could leave."""
    load = Load(racks=32, gangs=200, demand=demand, smallest=2, largest=8)
    left, alone, known = 0, 0, [0, 0]
    for seed in SEEDS:
        given = round_input(seed, load, found_solver())
        plan = plan_round(given)
        best = plan.scores[plan.chosen]
        world = World(given.state, given.batch.queues, demands=Demands(), charged=False)
        admitted = one_by_one(world, given.batch, rules=given.state.rules).admitted
        fit = sum(one.admitted is not None for one in plan.workloads)
        if not len(admitted) == fit == len(plan.workloads) or plan.cost != plan.greedy_cost:
            continue
        largest = max((one.head.pod_sets[0].request for one in plan.workloads), key=lambda request: request.count)
        room = pods_per_domain(world.snapshot.topologies["gpu"].capacity, largest.shape)[0]
        greedy = int((room // largest.count).sum())
        before = pods_per_domain(given.state.snapshot.topologies["gpu"].capacity, largest.shape)[0].tolist()
        most = most_further([one.head.pod_sets[0].request.count for one in plan.workloads], before, largest.count)
        if most is not None:
            known[0], known[1] = known[0] + best.slots, known[1] + most
            check(best.slots <= most, f"seed {seed}: {best.slots} slots, the optimum is {most}")
        left, alone = left + best.slots, alone + greedy
        check(best.slots >= greedy, f"seed {seed}: {best.slots} slots, one by one {greedy}")
    yield Figure("slots", [left / len(SEEDS)])
    yield Figure("alone_slots", [alone / len(SEEDS)])
    yield Figure("gain", [left / max(1, alone)])
    yield Figure("of_optimum", [known[0] / max(1, known[1])], at_least(0.97))


def exact(cases: int = 60) -> Iterator[Figure]:
    """The part of small loads in which the plan has as many units as the optimum by CP-SAT."""
    solve = exact_solver()
    assert solve is not None
    best, alone, known = 0, 0, 0
    for seed in range(cases):
        given = round_input(seed, Load(racks=6, gangs=12, demand=1.0), found_solver())
        plan = plan_round(given)
        snapshot = given.state.snapshot
        workloads = [
            ExactWorkload(
                queue=one.head.queue,
                rank=one.rank,
                units=one.units,
                worth=max(1, one.units),
                request=one.head.pod_sets[0].request,
                usage={},
                planned={},
            )
            for one in plan.workloads
        ]
        capacity = snapshot.topologies["gpu"].capacity
        units = solve(ExactInput(workloads=workloads, capacity=capacity, nodes=snapshot.nodes))
        if units is not None:
            check(plan.status is not PlanStatus.OPTIMAL or plan.units == units, f"seed {seed}: {plan.units} of {units}")
            check(plan.bound is not None and units <= plan.bound, f"seed {seed}: {units} of {plan.bound}")
            known, best, alone = known + 1, best + (plan.units == units), alone + (plan.greedy_units == units)
    check(known > cases // 2, f"the optimum of {known} of {cases} loads was found")
    yield Figure("best", [best / known], at_least(0.9))
    yield Figure("alone_best", [alone / known])
    yield Figure("loads", [known])


ROWS = (
    *(
        # no plan has more than 0.966 of the bound at 1.0 (docs/performance.md)
        Row(f"joint/quality_{name}", partial(quality, load, gap=0.05 if name == "1.0" else 0.03))
        for name, load in LOADS.items()
    ),
    Row("joint/quality_1.2_priority", partial(quality, LOADS["1.2"], order=JointOrder.PRIORITY)),
    Row("joint/gangs_2560", partial(gangs, GANGS_2560, 20, limit=400, gain=1.0, gap=0.03)),
    Row("joint/gangs_12500", partial(gangs, GANGS_12500, 1, limit=3_000, gain=1.015, gap=0.02), alone=True),
    *(
        Row(f"joint/classes_{n}", partial(classes, n, limit=limit))
        for n, limit in ((50, 100), (500, None), (2_000, 250))
    ),
    Row("joint/round_12500", kept_round, alone=True),
    Row("joint/first_12500", first, alone=True),
    Row("joint/exact", exact),
    Row("joint/domains", domains),
    *(Row(f"joint/slots_{demand}", partial(slots, demand)) for demand in (0.3, 0.5, 0.7)),
    Row("joint/stall", stall, alone=True),
    Row("joint/measured", measured, alone=True),
)
