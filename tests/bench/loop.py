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
    world = filled(racks)
    gc.collect()
    freeze_after_sync()
    cycles = []
    while True:
        start = time.perf_counter()
        if not await world.cycle():
            break
        cycles.append(time.perf_counter() - start)
    gc.unfreeze()
    await world.close()
    check_answer(world, racks)
    return cycles


def run(racks: int) -> Iterator[Figure]:
    """Admissions a second, and how long the slowest of a hundred cycles takes."""
    runs = [asyncio.run(emptied(racks)) for _ in range(REPETITIONS)]
    yield Figure("admissions_per_s", [WORKLOADS / sum(cycles) for cycles in runs], goal=at_least(GOALS[racks]))
    yield Figure("cycle_p99_ms", [sorted(cycles)[len(cycles) * 99 // 100] * 1e3 for cycles in runs])


# --- is the answer right


def check_answer(world: World, racks: int) -> None:
    """Everybody is admitted once, and told so; with topology all pods are where they may be, and no host is overfull."""
    kinds = {kind.name: kind for kind in KINDS}
    pods, milli = Counter[str](), Counter[str]()
    check(len(world.writer.patches) == WORKLOADS, f"{len(world.writer.patches)} of {WORKLOADS} are written")
    check(world.loop.cycles == WORKLOADS // HEADS, f"{world.loop.cycles} cycles")
    check(world.events == 2 * WORKLOADS, f"{world.events} events")
    for key, patches in world.writer.patches.items():
        (status,) = [patch["status"] for patch in patches]
        true = {c["type"] for c in status["conditions"] if c["status"] == "True"}
        check(true == {"QuotaReserved", "Admitted"}, f"{key} is {true}")
        (held,) = status["admission"]["podSetAssignments"]
        name, _, number = key.partition("/")[2].partition("-")
        kind = kinds[name]
        check(held["count"] == kind.pods, f"{key} has {held['count']} pods")
        if racks:
            wish = [wish for _, wish in kind.wishes()][int(number)]
            places = _places(key, held, wish, kind)
            pods.update(places)
            milli.update({host: count * kind.cpu_milli for host, count in places.items()})
    check(max(pods.values(), default=0) <= PODS, "a host has too many pods")
    check(max(milli.values(), default=0) <= CPUS * 1000, "a host has too little cpu")


def _places(key: str, held: Mapping[str, Any], wish: Mapping[str, Any], kind: Kind) -> Counter[str]:
    """Pods by host, which must be as the workload wishes."""
    found = decode(held["topologyAssignment"])
    places = Counter({domain.values[-1]: domain.count for domain in found.domains})
    check(places.total() == kind.pods, f"{key} has places for {places.total()} pods")
    by_rack = Counter[str]()
    for host, count in places.items():
        by_rack[host.rpartition("-")[0]] += count
    if "required" in wish or "preferred" in wish:  # there is room enough for either
        check(len(by_rack) == 1, f"{key} is in {len(by_rack)} racks")
    elif wish:
        check(all(count % kind.slice_size == 0 for count in by_rack.values()), f"{key} has a torn slice")
    return places


GOALS = {0: 8_000, 10: 5_000, 40: 4_500}
"""By racks."""

ROWS = (
    Row("loop/quota_only", partial(run, 0)),
    Row("loop/tas_640", partial(run, 10)),
    Row("loop/tas_2560", partial(run, 40)),
)
