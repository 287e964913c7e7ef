"""Cycles of a ClusterQueue that goes by what its LocalQueues used lately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from kqueue.errors import ServerError
from kqueue.state.fair_usage import BY_USAGE, FairRules, FairUsage
from tests.unit.controllers.builders import make_cluster_queue, make_local_queue, make_workload, reserved
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]
SCOPE = {"admissionMode": BY_USAGE}
DAY = FairRules(half_life=86400.0)


def by_usage(make: Make, *, cpus: int = 10, lean: str = "lean", **spec: Any) -> Scheduled:
    """ClusterQueue `team`, which goes by usage, behind LocalQueues `main` and `lean`."""
    return make(
        (CLUSTER_QUEUES, make_cluster_queue(cpus=cpus, admissionScope=SCOPE, **spec)),
        (LOCAL_QUEUES, make_local_queue(lean)),
        fair_usage=FairUsage(DAY),
    )


def usage(world: Scheduled, queue: str = "main") -> float:
    assert world.fair_usage is not None
    return world.fair_usage.usage(f"ns/{queue}")


async def test_local_queues_take_turns_while_nothing_is_used_yet(make: Make) -> None:
    """Each admission counts at once, so that a queue that came first does not take all, whatever its priorities."""
    world = by_usage(make)
    world.add(
        *(make_workload(f"m{i}", priority=9, minute=i) for i in range(3)),
        *(make_workload(f"l{i}", queue="lean", minute=i) for i in range(3)),
    )

    while await world.cycle():
        pass  # the watch tells nothing of what is admitted: only the decisions count

    assert world.observed.reservations == ["m0", "l0", "m1", "l1", "m2", "l2"]


async def test_without_the_mode_usage_does_not_count(make: Make) -> None:
    """Priority alone decides in a ClusterQueue that does not ask for it."""
    world = make((LOCAL_QUEUES, make_local_queue("lean")), fair_usage=FairUsage(DAY))
    world.add(*(make_workload(f"m{i}", priority=9, minute=i) for i in range(2)), make_workload("l0", queue="lean"))

    while await world.cycle():
        pass

    assert world.observed.reservations == ["m0", "m1", "l0"]
    assert usage(world) == 0


async def test_a_write_that_fails_does_not_count(make: Make) -> None:
    """The workload waits, and nothing stands against it."""
    world = by_usage(make)
    world.add(make_workload("m0"))
    world.client.fail(ServerError("down", status=500), key="ns/m0")

    await world.cycle()

    assert usage(world) == 0
    assert sum(world.queues.counts("team")) == 1


async def test_an_admission_that_the_watch_has_told_is_a_part_of_the_past(make: Make) -> None:
    """Ahead of it, and from then on, it counts the same: as much as one interval of its use."""
    world = by_usage(make)
    world.add(make_workload("m0", cpus=4))
    await world.cycle()
    assert world.fair_usage is not None
    ahead = usage(world)
    record = world.fair_usage.record("ns/main")
    assert record is not None
    assert record.consumed == {}
    assert ahead == pytest.approx(4 * DAY.alpha(300))

    world.sync()

    record = world.fair_usage.record("ns/main")
    assert record is not None
    assert record.consumed["cpu"] == usage(world) == ahead


async def test_who_used_most_is_preempted_first_whatever_the_priority(make: Make) -> None:
    """Of two workloads that may be preempted, the one whose LocalQueue used more goes, although it is worth more."""
    world = by_usage(make, cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    world.add(
        make_workload("much", priority=1, status=reserved()),
        make_workload("little", queue="lean", status=reserved()),
    )
    assert world.fair_usage is not None
    await world.clock.advance(3600)
    world.fair_usage.sample("ns/main", world.cache.held.held_through("ns/main", "team").used, world.clock.now())
    assert usage(world) > usage(world, "lean") == 0
    world.client.put(LOCAL_QUEUES, make_local_queue("urgent"))
    world.add(make_workload("urgent", queue="urgent", priority=9))

    await world.cycle()

    assert world.observed.preemptions == [("much", "urgent")]


async def test_a_workload_that_leaves_before_it_is_admitted_leaves_no_usage(make: Make) -> None:
    """Its user deletes it between the decision and the watch's word of it."""
    world = by_usage(make)
    world.add(make_workload("m0"))
    await world.cycle()
    assert usage(world) > 0

    world.client.drop(WORKLOADS, "ns/m0")
    world.sync()

    assert usage(world) == 0
