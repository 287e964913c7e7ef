"""`backlog/*`: 50,000 workloads wait in 1,000 ClusterQueues; a cycle tries 1,000 of them.

A queue has 4 workloads of 20 CPUs, 11 of 5 and 35 of 1, of one pod each; the larger, the higher its priority.

    backlog/flat_all_fit        10 cohorts without levels, quota for all: a cycle admits 1,000
    backlog/flat_none_fits      the same, and all of the quota is in use by equals: a cycle refuses 1,000 and parks with
                                each the others of its shape, so that after three nobody is left to try
    backlog/tree_fair_all_fit   a tree of cohorts with fair sharing, quota for all

A repetition is the mean of some cycles; what they did is undone after it.  Memory is that of the process after the
first repetition, with the objects as they were parsed: all of it at the highest, and what came after the imports.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kqueue.core.preemption import SharingStrategy
from kqueue.runtime.loop import freeze_after_sync
from kqueue.scheduling.settings import LoopSettings
from tests.bench._crowd import PREEMPTING, Stage, cohorts, running
from tests.bench._scheduler import World
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check

QUEUES, COHORTS = 1_000, 10
KINDS = (("small", 35, 1, 50), ("medium", 11, 5, 100), ("large", 4, 20, 200))
"""(name, workloads of a queue, CPUs, priority)"""
WORKLOADS = QUEUES * sum(count for _, count, _, _ in KINDS)
CPUS = {name: cpus for name, _, cpus, _ in KINDS}
ENOUGH, FULL = 100_000, 20


@dataclass(frozen=True, slots=True)
class Case:
    """`fits`: the quota holds all that waits; otherwise none of it, now.  `tree`: cohorts have levels."""

    fits: bool
    cycles: int
    goal_ms: float
    goal_mib: float
    tree: bool = False
    settings: LoopSettings | None = None

    def fill(self, world: World) -> None:
        """Before the first cycle."""
        world.flavor(topology=False)
        lowest = cohorts(world) if self.tree else [f"cohort-{i}" for i in range(COHORTS)]
        quota = {"cpu": str(ENOUGH if self.fits else FULL)}
        for i in range(QUEUES):
            cohort = lowest[i * len(lowest) // QUEUES]
            world.queue(_queue(i), quota=quota, cohort=cohort, preemption=PREEMPTING)
        if not self.fits:
            for i in range(QUEUES):
                status = running(_queue(i), quota)
                world.workload("runs", queue=_queue(i), pods=1, requests=quota, priority=200, status=status)
        for i in range(QUEUES):
            for name, count, cpus, priority in KINDS:
                for n in range(count):
                    requests = {"cpu": str(cpus)}
                    world.workload(f"{name}-{n}", queue=_queue(i), pods=1, requests=requests, priority=priority)

    def check(self, stage: Stage) -> None:
        """After the cycles: who was admitted, what that takes, and where all others are."""
        names = [name for name, count, _, _ in reversed(KINDS) for _ in range(count)][: self.cycles]
        wanted = Counter(names if self.fits else ())
        admitted: dict[str, Counter[str]] = {_queue(i): Counter() for i in range(QUEUES)}
        for key in stage.admitted():
            queue, _, name = key.partition("/")
            admitted[queue][name.partition("-")[0]] += 1
        for queue, kinds in admitted.items():
            check(kinds == wanted, f"{dict(kinds)} of {queue} are admitted, {dict(wanted)} should be")
            used = sum(CPUS[kind] * count for kind, count in kinds.items())
            check(used <= ENOUGH if self.fits else not used, f"{used} CPUs of {queue} are in use")
            left = WORKLOADS // QUEUES - kinds.total()
            there = stage.world.queues.counts(queue)
            check(there == ((left, 0) if self.fits else (0, left)), f"(to be tried, parked) of {queue} are {there}")
        if not self.fits:
            reasons = Counter(p[-1]["status"]["conditions"][0]["reason"] for p in stage.world.writer.patches.values())
            check(reasons == {"WaitingForQuota": self.cycles * QUEUES}, f"who was refused is told {dict(reasons)}")


def _queue(i: int) -> str:
    return f"cq-{i:04}"


def measure(case: Case) -> Iterator[Figure]:
    """The mean time of a cycle, and memory."""
    before = _mib("VmRSS")
    stage = Stage(case.fill, case.settings)
    gc.collect()
    freeze_after_sync()
    means: list[float] = []
    heap, peak = 0.0, 0.0
    for repetition in range(REPETITIONS):
        start = time.perf_counter()
        for _ in range(case.cycles):
            stage.cycle()
        means.append((time.perf_counter() - start) * 1e3 / case.cycles)
        case.check(stage)
        if not repetition:
            heap, peak = _mib("VmRSS") - before, _mib("VmHWM")
        stage.undo()
    stage.close()
    yield Figure("cycle_mean_ms", means, goal=at_most(case.goal_ms))
    yield Figure("heap_mib", [heap])
    yield Figure("peak_rss_mib", [peak], goal=at_most(case.goal_mib))


def _mib(field: str) -> float:
    """A size of this process as the kernel counts it."""
    lines: Sequence[str] = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


FAIR = LoopSettings(fair=(SharingStrategy.LTE, SharingStrategy.LTI))
CASES = {
    "flat_all_fit": Case(fits=True, cycles=10, goal_ms=130, goal_mib=600),
    "flat_none_fits": Case(fits=False, cycles=len(KINDS), goal_ms=50, goal_mib=600),
    "tree_fair_all_fit": Case(fits=True, cycles=2, goal_ms=300, goal_mib=600, tree=True, settings=FAIR),
}
ROWS = tuple(Row(f"backlog/{name}", partial(measure, case), alone=True) for name, case in CASES.items())
