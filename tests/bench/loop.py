"""`loop/*`: the whole loop in memory, from popping heads to the answered status writes.

Five cohorts of six ClusterQueues hold 500 workloads each, all of which fit; a cycle takes one head of every queue, so
500 cycles admit 15,000.  Nothing finishes.  What is not timed: parsing objects, encoding and sending what is written.

    loop/quota_only             no topology
    loop/tas_640, tas_2560      workloads ask for a required rack, a preferred rack, or slices of a rack; hosts by 64 in
                                a rack, 10 or 40 racks in one block
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kqueue.core.topology import decode
from kqueue.runtime.loop import freeze_after_sync
from tests.bench._scheduler import RACK, World
from tests.bench.table import REPETITIONS, Figure, Row, at_least, check

COHORTS, QUEUES, HEADS = 5, 6, 30
CPUS, PODS = 96, 250
HOST: Mapping[str, str | int] = {"cpu": CPUS, "memory": "256Gi", "pods": PODS}
HOSTS_PER_RACK = 64


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal workloads of a queue: so many of each wish, pods of so many milli-CPUs each, slices of so many pods."""

    name: str
    of_each: tuple[int, int, int]
    pods: int
    cpu_milli: int
    priority: int
    slice_size: int

    def wishes(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """(name, topology request) of each workload, in the order in which they are made."""
        wishes: tuple[Mapping[str, Any], ...] = (
            {"required": RACK},
            {"preferred": RACK},
            {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": self.slice_size},
        )
        wanted = [wish for wish, count in zip(wishes, self.of_each, strict=True) for _ in range(count)]
        yield from ((f"{self.name}-{i}", wish) for i, wish in enumerate(wanted))


KINDS = (
    Kind("small", (120, 120, 110), 2, 500, 50, 1),
    Kind("medium", (34, 33, 33), 4, 1250, 100, 2),
    Kind("large", (17, 17, 16), 8, 2500, 200, 4),
)
WORKLOADS = COHORTS * QUEUES * sum(sum(kind.of_each) for kind in KINDS)


def filled(racks: int) -> World:
    """The world before its first cycle; without racks: without topology."""
    world = World()
    world.flavor(topology=racks > 0)
    for rack in range(racks):
        for host in range(HOSTS_PER_RACK):
            world.node(f"host-{rack:02}-{host:02}", block="block-0", rack=f"rack-{rack:02}", allocatable=HOST)
    for cohort in range(COHORTS):
        for queue in range(QUEUES):
            name = f"cq-{cohort}-{queue}-cohort-{cohort}"
            world.queue(
                name,
                quota={"cpu": "100000"},
                cohort=f"cohort-{cohort}",
                preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            )
            for kind in KINDS:
                for workload, wish in kind.wishes():
                    world.workload(
                        workload,
                        queue=name,
                        pods=kind.pods,
                        requests={"cpu": f"{kind.cpu_milli}m"},
                        priority=kind.priority,
                        topology=wish if racks else None,
                    )
    return world


async def emptied(racks: int) -> list[float]:
    """Run until nothing waits; the seconds of each cycle, its writes included."""
    world, answers, cycles = filled(racks), Answers(), list[float]()
    gc.collect()
    freeze_after_sync()
    while True:
        start = time.perf_counter()
        if not await world.cycle():
            break
        cycles.append(time.perf_counter() - start)
        answers.take(world)
    gc.unfreeze()
    await world.close()
    check(answers.placed == (WORKLOADS if racks else 0), f"{answers.placed} of {WORKLOADS} have places")
    check(answers.admitted == WORKLOADS, f"{answers.admitted} of {WORKLOADS} are admitted")
    check(world.loop.cycles == WORKLOADS // HEADS, f"{world.loop.cycles} cycles")
    check(world.events == 2 * WORKLOADS, f"{world.events} events")
    return cycles


def run(racks: int) -> Iterator[Figure]:
    """Admissions a second, and how long the slowest of a hundred cycles takes."""
    runs = [asyncio.run(emptied(racks)) for _ in range(REPETITIONS)]
    yield Figure("admissions_per_s", [WORKLOADS / sum(cycles) for cycles in runs], goal=at_least(GOALS[racks]))
    yield Figure("cycle_p99_ms", [sorted(cycles)[len(cycles) * 99 // 100] * 1e3 for cycles in runs])


# --- is the answer right


class Answers:
    """What was written: who is admitted, and what hosts have to bear."""

    def __init__(self) -> None:
        self.admitted = self.placed = 0
        self._kinds = {kind.name: (kind, [wish for _, wish in kind.wishes()]) for kind in KINDS}
        self._pods = Counter[str]()
        self._cpu_milli = Counter[str]()

    def take(self, world: World) -> None:
        """Check what was written since, and let go of it: a writer keeps nothing either."""
        for key, patches in world.writer.patches.items():
            check(len(patches) == 1, f"{key} is written {len(patches)} times")
            self._take(key, patches[0]["status"])
        world.writer.patches.clear()

    def _take(self, key: str, status: Mapping[str, Any]) -> None:
        true = {c["type"] for c in status["conditions"] if c["status"] == "True"}
        check(true == {"QuotaReserved", "Admitted"}, f"{key} is {true}")
        (held,) = status["admission"]["podSetAssignments"]
        name, _, number = key.partition("/")[2].partition("-")
        kind, wishes = self._kinds[name]
        check(held["count"] == kind.pods, f"{key} has {held['count']} pods")
        self.admitted += 1
        if "topologyAssignment" in held:
            self._place(key, held["topologyAssignment"], wishes[int(number)], kind)

    def _place(self, key: str, assignment: Mapping[str, Any], wish: Mapping[str, Any], kind: Kind) -> None:
        self.placed += 1
        by_rack = Counter[str]()
        for domain in decode(assignment).domains:
            host = domain.values[-1]
            self._pods[host] += domain.count
            self._cpu_milli[host] += domain.count * kind.cpu_milli
            check(self._pods[host] <= PODS, f"{host} has too many pods")
            check(self._cpu_milli[host] <= CPUS * 1000, f"{host} has too little cpu")
            by_rack[host.rpartition("-")[0]] += domain.count
        check(by_rack.total() == kind.pods, f"{key} has places for {by_rack.total()} pods")
        if "required" in wish or "preferred" in wish:  # there is room enough for either
            check(len(by_rack) == 1, f"{key} is in {len(by_rack)} racks")
        else:
            check(all(count % kind.slice_size == 0 for count in by_rack.values()), f"{key} has a torn slice")


GOALS = {0: 8_000, 10: 5_000, 40: 4_500}
"""By racks."""

ROWS = (
    Row("loop/quota_only", partial(run, 0)),
    Row("loop/tas_640", partial(run, 10)),
    Row("loop/tas_2560", partial(run, 40)),
)
