"""`heads/*`: one cycle over 1,000 heads, one of each ClusterQueue, in cohorts of four levels; 788 or 796 of them fit.

Every queue brings 20 CPUs and 80 GiB along, and runs one workload of up to 30 CPUs: some borrow, some lend.  Nobody may
preempt.  The answer is compared with what an independent count of the tree allows.

    heads/classical     less borrowing first, then priority, then age
    heads/fair          by a tournament of shares
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from kqueue.core.preemption import SharingStrategy
from kqueue.scheduling.settings import LoopSettings
from tests.bench._crowd import Stage, cohorts, running
from tests.bench._scheduler import World
from tests.bench.table import Figure, Goal, Row, at_least, at_most, check, timed

QUEUES = 1_000
PER_COHORT = 8
QUOTA = {"cpu": 20, "memory": 80}
"""Of each queue: CPUs, and memory in GiB."""


def runs(queue: int) -> dict[str, int]:
    """What the workload that runs in a queue uses."""
    cpus = queue * 37 % 31
    return {"cpu": cpus, "memory": 4 * cpus}


def waits(queue: int) -> dict[str, int]:
    """What the workload that waits in a queue asks for."""
    return {"cpu": 1 + queue * 13 % 10, "memory": 4 * (1 + queue * 7 % 12)}


def _written(amounts: Mapping[str, int]) -> dict[str, str]:
    return {"cpu": str(amounts["cpu"]), "memory": f"{amounts['memory']}Gi"}


def fill(world: World, *, flavors: Sequence[str] = ("flavor",), annotations: Mapping[str, str] | None = None) -> None:
    """Before the first cycle.  Each queue has its quota in each flavor; `annotations` are those of waiting pods."""
    world.flavor(topology=False)
    lowest = cohorts(world)
    for i in range(QUEUES):
        weight = {"weight": str(1 + i % 3)}
        name, cohort = _queue(i), lowest[i // PER_COHORT]
        world.queue(name, quota=_written(QUOTA), cohort=cohort, flavors=flavors, fairSharing=weight)
    for i in range(QUEUES):
        used = _written(runs(i))
        world.workload("runs", queue=_queue(i), pods=1, requests=used, status=running(_queue(i), used))
    for i in range(QUEUES):
        asked = _written(waits(i))
        world.workload("waits", queue=_queue(i), pods=1, requests=asked, annotations=annotations)


def _queue(i: int) -> str:
    return f"cq-{i:04}"


def measure(goal: Goal | None, least: int, settings: LoopSettings) -> Iterator[Figure]:
    """The time of the cycle, and how many it admits."""
    stage = Stage(fill, settings)
    times = timed(stage.cycle, ready=stage.undo)
    admitted = [int(key[3:7]) for key in stage.admitted()]
    _check(admitted)
    check(len(admitted) >= least, f"{len(admitted)} of {QUEUES:,} are admitted, and {least} could be")
    stage.close()
    yield Figure("cycle_ms", times, goal=goal)
    yield Figure("admitted", [len(admitted)], goal=at_least(least))


def _check(admitted: list[int]) -> None:
    """Nobody twice, and no more than there is: nothing limits borrowing, so what counts is the sum of the tree."""
    check(len(admitted) == len(set(admitted)), "a workload is admitted twice")
    for resource, quota in QUOTA.items():
        used = sum(runs(i)[resource] for i in range(QUEUES)) + sum(waits(i)[resource] for i in admitted)
        check(used <= quota * QUEUES, f"{used} of {resource} are used, and there are {quota * QUEUES}")


ROWS = (
    Row("heads/classical", partial(measure, None, 788, LoopSettings())),
    Row(
        "heads/fair", partial(measure, at_most(300), 796, LoopSettings(fair=(SharingStrategy.LTE, SharingStrategy.LTI)))
    ),
)
