"""Fair sharing with real queues: the loop knows what waits behind a preemptor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES
from kqueue.core.preemption import SharingStrategy
from kqueue.scheduling.settings import LoopSettings
from kqueue.state import status
from tests.unit.controllers.builders import (
    condition,
    make_cluster_queue,
    make_local_queue,
    make_workload,
    read,
    reserved,
)
from tests.unit.scheduling.scheduled import Scheduled

WEIGHTS = {"light": "1", "heavy": "2", "scavenger": "0"}
BOTH = LoopSettings(fair=(SharingStrategy.LTE, SharingStrategy.LTI))


def company() -> list[Any]:
    """One ClusterQueue without quota in a cohort of each weight."""
    objects: list[Any] = []
    lower = {"reclaimWithinCohort": "LowerPriority", "withinClusterQueue": "LowerPriority"}
    for name in WEIGHTS:
        objects += [
            (CLUSTER_QUEUES, make_cluster_queue(name, cpus=0, cohortName=f"{name}-teams", preemption=lower)),
            (LOCAL_QUEUES, make_local_queue(name, cluster_queue=name)),
        ]
    return objects


def add_cohorts(world: Scheduled) -> None:
    """A parent with 6 cpu, and below it the cohorts with their weights."""
    groups = make_cluster_queue(cpus=6)["spec"]["resourceGroups"]
    cohorts = {f"{n}-teams": {"parentName": "company", "fairSharing": {"weight": w}} for n, w in WEIGHTS.items()}
    for name, spec in {"company": {"resourceGroups": groups}, **cohorts}.items():
        world.intake.on_cohort(None, read(wire.Cohort, {"metadata": {"name": name}, "spec": spec}))


async def let_go(world: Scheduled, queue: str) -> None:
    """The victims of this ClusterQueue's preemptors have left; of all others, those that have no preemptor any more."""
    claims = world.loop.planning.claims()
    staying = {uid for claim in claims if claim.queue != queue for uid in claim.victims}
    stamp = status.Stamp(world.clock.now())
    for name in [f"low-{i}" for i in range(6)]:
        obj = world.writer.newest(f"ns/{name}")
        assert obj is not None
        if obj.metadata.uid not in staying and model.condition_true(obj, names.CONDITION_EVICTED):
            await world.writer.write(
                f"ns/{name}",
                lambda w: status.unreserve(w, reason="PendingEvaluation", message="", stamp=stamp, requeued=True),
            )
    world.sync()


async def test_a_lighter_cohort_does_not_overtake_one_that_waits_for_its_victims(
    make: Callable[..., Scheduled],
) -> None:
    """The victims of the heavier one leave four times as slowly; still they end at 2 and 4."""
    world = make(*company(), settings=BOTH)
    world.sync()
    add_cohorts(world)
    held = reserved(condition("Admitted", reason="Admitted"), queue="scavenger")
    world.add(*(make_workload(f"low-{i}", queue="scavenger", status=held) for i in range(6)))
    for queue in ("light", "heavy"):
        world.add(*(make_workload(f"{queue}-{i}", queue=queue, priority=1, minute=i) for i in range(6)))

    for step in range(60):
        await world.cycle()
        world.sync()
        await let_go(world, "heavy" if step % 4 == 3 else "light")

    running = {q: sum(name.startswith(q) for name in world.observed.reservations) for q in ("light", "heavy")}
    assert running == {"light": 2, "heavy": 4}
    assert len(world.observed.preemptions) == 6
