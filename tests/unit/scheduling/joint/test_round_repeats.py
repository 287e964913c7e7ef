"""Rounds that are not repeated, and rounds that end before they have begun."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.controllers.resources import CLUSTER_QUEUES
from tests.unit.controllers.builders import read
from tests.unit.scheduling.joint.planners import Here
from tests.unit.scheduling.joint.test_rounds import FIVE_FIVE_NINE, gang, join, node, racks
from tests.unit.scheduling.scheduled import Scheduled

TOO_LARGE = tuple(gang(f"g{n}", 11, minute=n) for n in range(3))


async def woken(world: Scheduled, times: int = 5) -> None:
    """Wake the loop without any change."""
    for _ in range(times):
        world.loop.wake()
        await world.until_quiet()


@pytest.mark.mechanism("2.23")
@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
async def test_without_a_change_no_round_is_repeated(make: Callable[..., Scheduled], strategy: str) -> None:
    """The head of a strict queue comes back at once, and the loop is woken for other reasons."""
    world, planner = racks(make, *TOO_LARGE, queueingStrategy=strategy), Here()
    join(world, planner)
    world.start()
    await world.until_quiet()
    await woken(world)
    assert len(planner.rounds) == 1
    world.intake.on_node(None, model.node_facts(read(wire_core.Node, node("h3", 5))))
    await world.until_quiet()
    await woken(world)
    after = len(planner.rounds)
    assert 2 <= after <= 3  # an admission is a change, and a strict queue has the others at its front
    await woken(world)
    assert len(planner.rounds) == after
    assert world.observed.reservations == ["g0"]


async def test_a_workload_that_has_changed_is_worth_a_round(make: Callable[..., Scheduled]) -> None:
    world, planner = racks(make, *TOO_LARGE, queueingStrategy="StrictFIFO"), Here()
    join(world, planner)
    world.start()
    await world.until_quiet()
    smaller = gang("g0", 5, minute=0)
    smaller["metadata"]["generation"] = 2
    world.add(smaller)
    await world.until_quiet()
    assert len(planner.rounds) >= 2
    assert world.observed.reservations == ["g0"]


async def test_the_status_of_a_queue_is_no_reason_for_a_round(make: Callable[..., Scheduled]) -> None:
    world, planner = racks(make, *TOO_LARGE, queueingStrategy="StrictFIFO"), Here()
    join(world, planner)
    world.start()
    await world.until_quiet()
    queue = world.client.object(CLUSTER_QUEUES, "team")
    assert queue is not None
    world.client.put(CLUSTER_QUEUES, {**queue, "status": {"pendingWorkloads": 3}})
    world.sync()
    await woken(world)
    assert len(planner.rounds) == 1


@pytest.mark.mechanism("2.27")
async def test_a_round_that_ends_before_its_first_step_holds_no_queue(make: Callable[..., Scheduled]) -> None:
    """The lease is lost in the turn in which the round begins; the next term plans."""
    world, planner = racks(make, *FIVE_FIVE_NINE), Here()
    rounds, _ = join(world, planner)
    assert rounds.pop(lambda _queue: True) == []
    planning = [rounds.is_planning]
    await rounds.stop()
    assert [*planning, rounds.is_planning] == [True, False]
    world.start()
    await world.until_quiet()
    assert sorted(world.observed.reservations) == ["a", "b", "c"]
