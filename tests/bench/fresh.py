"""`fresh/*`: the first cycles of a controller that has just started, in memory: 1,000 heads a cycle, all of which fit.

first_cycle_ms      the first cycle, its answered writes included, in which each queue admits for the first time
median_cycle_ms     of the seven cycles after it
first_to_median     what is made at the first admission of a queue counts here; goal: 1.5
reports_pct         the part of a cycle that metrics and events take, from a run without them
gauges_ms           one refresh of all gauges of queues.  The compatible system sets gauges of pending workloads
                    within its cycle; here they are set beside it, every 5 s, so a comparison of cycles must add them

fresh/classical, fresh/fair    without and with fair sharing
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from kqueue.core.preemption import SharingStrategy
from kqueue.manager.gauges import QueueGauges
from kqueue.runtime.loop import freeze_after_sync
from kqueue.scheduling.settings import LoopSettings
from tests.bench._scheduler import World
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check

QUEUES, COHORTS, CYCLES = 1_000, 50, 8
GOAL = 1.5


class Silent:
    """Takes all that a loop reports, and does nothing with it."""

    def __getattr__(self, _name: str) -> Any:
        return self._nothing

    @staticmethod
    def _nothing(*_: Any, **__: Any) -> None:
        """Nothing."""


def filled(settings: LoopSettings, *, reports: bool = True) -> World:
    """The world before its first cycle."""
    world = World(settings)
    if not reports:
        silent = Silent()
        applier = world.loop._parts.applier
        for part in (world.loop._runner, applier, applier._admissions, world.loop._waits):
            part._observer = silent
    world.flavor(topology=False)
    for cohort in range(COHORTS):
        world.cohort(f"cohort-{cohort}")
    for number in range(QUEUES):
        name = f"cq-{number:04}"
        world.queue(name, quota={"cpu": "1000"}, cohort=f"cohort-{number % COHORTS}")
        for workload in range(CYCLES):
            world.workload(f"w-{workload}", queue=name, pods=2, requests={"cpu": "1"})
    return world


async def cycles(world: World) -> list[float]:
    """Milliseconds of each cycle and its writes."""
    gc.collect()
    freeze_after_sync()
    took = []
    for _ in range(CYCLES):
        begun = time.perf_counter()
        await world.cycle()
        took.append((time.perf_counter() - begun) * 1e3)
    check(len(world.writer.patches) == QUEUES * CYCLES, f"{len(world.writer.patches)} workloads are admitted")
    gc.unfreeze()
    return took


async def gauges(world: World) -> float:
    """Milliseconds of a refresh, after the first one."""
    shown = QueueGauges(world.metrics, world.cache, world.queues, clock=world.clock, workload=world.writer.objects.get)
    took = 0.0
    for _ in range(2):
        begun = time.perf_counter()
        await shown.refresh([], list(world.writer.objects.values()))
        took = (time.perf_counter() - begun) * 1e3
    return took


async def once(settings: LoopSettings) -> tuple[list[float], list[float], float]:
    """Cycles with reports, and without; the refresh of gauges."""
    world, quiet = filled(settings), filled(settings, reports=False)
    told, untold = await cycles(world), await cycles(quiet)
    refreshed = await gauges(world)
    await world.close()
    await quiet.close()
    return told, untold, refreshed


def measure(settings: LoopSettings) -> Iterator[Figure]:
    """Several fresh worlds."""
    runs = [asyncio.run(once(settings)) for _ in range(REPETITIONS)]
    later = [statistics.median(told[1:]) for told, _, _ in runs]
    untold = [statistics.median(took[1:]) for _, took, _ in runs]
    yield Figure("first_cycle_ms", [told[0] for told, _, _ in runs])
    yield Figure("median_cycle_ms", later)
    yield Figure(
        "first_to_median", [told[0] / median for (told, _, _), median in zip(runs, later, strict=True)], at_most(GOAL)
    )
    yield Figure("reports_pct", [100 * (1 - a / b) for a, b in zip(untold, later, strict=True)])
    yield Figure("gauges_ms", [refreshed for _, _, refreshed in runs])


ROWS = (
    Row("fresh/classical", partial(measure, LoopSettings()), alone=True),
    Row("fresh/fair", partial(measure, LoopSettings(fair=(SharingStrategy.LTE, SharingStrategy.LTI))), alone=True),
)
