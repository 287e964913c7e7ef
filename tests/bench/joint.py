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
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from kqueue.clock import SystemClock
from kqueue.core.demand import Demands
from kqueue.core.joint.baseline import one_by_one
from kqueue.core.joint.batch import ranked
from kqueue.core.joint.classes import ClassInput, classes_of
from kqueue.core.joint.exact import ExactInput, ExactWorkload, exact_solver
from kqueue.core.joint.graph import FlowSolver
from kqueue.core.joint.network import build
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import JointPlan, PlanStatus
from kqueue.core.joint.round import plan_round
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.topology import TopologyRequest
from kqueue.core.topology.counting import pods_per_domain
from kqueue.runtime.loop import run
from kqueue.scheduling.joint.frames import Assembly, TreeNumbers, pieces
from kqueue.scheduling.joint.process import PlanningProcess
from tests.bench._joint_worlds import GPU, Load, gang, round_input
from tests.bench._loop import LoopLag
from tests.bench.table import Figure, Row, at_least, at_most, check

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


def processor_ms(act: Callable[[], object]) -> list[float]:
    """Milliseconds of processor time of five calls, after one that fills tables."""
    act()
    times = []
    for _ in range(5):
        began = time.process_time()
        act()
        times.append((time.process_time() - began) * 1e3)
    return times


def quality(load: Load, *, order: JointOrder = JointOrder.STRICT) -> Iterator[Figure]:
    """Units of plans against one by one and against the bound."""
    plans = [plan_round(round_input(seed, load, found_solver(), order=order)) for seed in SEEDS]
    yield from _units(plans)


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
        began = time.process_time()
        plans.append(plan_round(given))
        times.append((time.process_time() - began) * 1e3)
    yield Figure("round_ms", times, at_most(limit))
    yield Figure("gangs", [len(plan.workloads) for plan in plans])
    yield Figure("bound", [plan.bound or 0 for plan in plans])
    yield from _units(plans, gain=gain, gap=gap)


def classes(number: int, pods: int, *, limit: float | None = None) -> Iterator[Figure]:
    """A network of classes on 12,512 hosts: built, solved and read, with tables of hosts that are known."""
    solve, chance = found_solver(), random.Random(3)
    load = replace(GANGS_12500, gangs=0)
    snapshot = round_input(1, load, solve).state.snapshot
    shapes = [(1 + n % 10, chance.choice([1, 2, 4, 8])) for n in range(number)]
    each = sum(count for count, _ in shapes)
    copies = max(1, pods // each)
    heads = [
        gang(f"g{n}-{copy}", count, gpus, n * copies + copy)
        for n, (count, gpus) in enumerate(shapes)
        for copy in range(copies)
    ]
    inputs = [
        ClassInput(
            ranked=one,
            requests=[p.request for p in one.head.pod_sets],
            quota={"main": one.head.pod_sets[0].quota_requests[GPU]},
        )
        for one in ranked(heads, JointOrder.STRICT, {})
    ]
    sizes = list[int]()

    def relaxed() -> None:
        found = classes_of(inputs, snapshot.topologies["gpu"].tree.levels, Unit(GPU, 1), JointOrder.STRICT)
        network = build("gpu", snapshot, found, Unit(GPU, 1))
        network.scheduled(solve(network.graph))
        sizes[:] = len(found), len(network.graph.tails)

    times = processor_ms(relaxed)
    yield Figure("relaxed_ms", times, at_most(limit) if limit else None)
    yield Figure("classes", [sizes[0]])
    yield Figure("arcs", [sizes[1]])
    yield Figure("pods", [sum(head.pod_sets[0].request.count for head in heads)])


def first() -> Iterator[Figure]:
    """A round of 12,512 hosts by a process without anything: messages made, read and put together."""
    given = round_input(1, GANGS_12500, None)

    def exchanged() -> None:
        assembly = Assembly()
        found = [asked for data in pieces(1, given, TreeNumbers()) if (asked := assembly.take(data)) is not None]
        check(len(found) == 1, "no round was asked for")

    yield Figure("messages_ms", processor_ms(exchanged), at_most(1_000))
    known, assembly = TreeNumbers(), Assembly()
    for data in pieces(1, given, known):
        assembly.take(data)
    yield Figure("again_ms", processor_ms(lambda: [assembly.take(data) for data in pieces(2, given, known)]))


def stall() -> Iterator[Figure]:
    """The longest time for which the event loop is held while a round of 12,512 hosts is sent and planned."""

    async def planned() -> float:
        clock, planner = SystemClock(), PlanningProcess()
        lag = LoopLag(clock=clock, interval=0.001)
        beating = asyncio.ensure_future(lag.run())
        await planner.get_ready()
        given = round_input(1, replace(GANGS_12500, gangs=1_000), None)
        await asyncio.sleep(0.2)
        lag.reset()
        await planner.plan(1, given)
        longest = lag.longest
        beating.cancel()
        await planner.stop()
        return longest * 1e3

    yield Figure("stall_ms", [run(planned()) for _ in range(3)], at_most(50))


def domains() -> Iterator[Figure]:
    """Racks of preferred gangs of whole hosts, in plans and one by one."""
    load = Load(racks=32, gangs=60, demand=0.95, requests=(PREFERRED,))
    planned, alone = list[int](), list[int]()
    for seed in SEEDS:
        given = round_input(seed, load, found_solver())
        planned += [_racks(one.admitted) for one in plan_round(given).workloads if one.admitted is not None]
        world = World(given.state, given.batch.queues, demands=Demands(), charged=False)
        alone += map(_racks, one_by_one(world, given.batch, rules=given.state.rules).admitted.values())
    yield Figure("racks", [statistics.mean(planned)], at_most(1.02))
    yield Figure("alone_racks", [statistics.mean(alone)])
    yield Figure("gangs", [len(planned)])
    yield Figure("alone_gangs", [len(alone)])


def _racks(planned: PlannedAdmission) -> int:
    hosts = [d.values[-1] for one in planned.pod_sets if one.topology is not None for d in one.topology.domains]
    return len({host.partition("-")[0] for host in hosts})


def slots(demand: float) -> Iterator[Figure]:
    """Room that is left for gangs of the largest form, where all gangs fit."""
    load = Load(racks=32, gangs=200, demand=demand, smallest=2, largest=8)
    left, alone = 0, 0
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
        left, alone = left + best.slots, alone + greedy
        check(best.slots >= greedy, f"seed {seed}: {best.slots} slots, one by one {greedy}")
    yield Figure("slots", [left / len(SEEDS)])
    yield Figure("alone_slots", [alone / len(SEEDS)])
    yield Figure("gain", [left / max(1, alone)], at_least(1.15) if demand == 0.7 else None)


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
    *(Row(f"joint/quality_{name}", partial(quality, load)) for name, load in LOADS.items()),
    Row("joint/quality_1.2_priority", partial(quality, LOADS["1.2"], order=JointOrder.PRIORITY)),
    Row("joint/gangs_2560", partial(gangs, GANGS_2560, 20, limit=400, gain=1.0, gap=0.03)),
    Row("joint/gangs_12500", partial(gangs, GANGS_12500, 1, limit=3_000, gain=1.015, gap=0.02), alone=True),
    *(
        Row(f"joint/classes_{n}", partial(classes, n, 10_000, limit=limit))
        for n, limit in ((50, 100), (500, None), (2_000, 250))
    ),
    *(Row(f"joint/many_pods_{n}", partial(classes, n, 150_000)) for n in (50, 500, 2_000)),
    Row("joint/first_12500", first, alone=True),
    Row("joint/exact", exact),
    Row("joint/domains", domains),
    *(Row(f"joint/slots_{demand}", partial(slots, demand)) for demand in (0.3, 0.5, 0.7)),
    Row("joint/stall", stall, alone=True),
)
