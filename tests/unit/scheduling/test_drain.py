"""The end of a lead: what is being written has some seconds, and what is cut off is lost to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES
from tests.unit.controllers.builders import make_cluster_queue, make_workload, reserved, status_of
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]
LOWER = {"withinClusterQueue": "LowerPriority"}


async def told_to_end(world: Scheduled, *, limit: float, opens_after: float | None) -> float:
    """End the running loop while the API server does not answer, perhaps for ever; how long that took."""
    world.loop.drain_for = lambda: limit
    world.client.open.clear()
    world.start()
    await world.clock.advance(0.5)
    assert world.running is not None
    world.running.cancel()
    began = world.clock.monotonic()
    while not world.running.done():
        await world.clock.advance(0.25)
        if opens_after is not None and world.clock.monotonic() - began >= opens_after:
            world.client.open.set()
        assert world.clock.monotonic() - began < 60, "it does not end"
    return world.clock.monotonic() - began


async def again(world: Scheduled) -> None:
    """The process leads once more, and everything flows."""
    world.client.open.set()
    world.sync()
    world.start()
    await world.until_quiet()
    world.sync()


async def test_writes_under_way_are_finished(make: Make) -> None:
    """No longer than they need, and nothing is decided meanwhile."""
    world = make()
    world.add(make_workload("a", cpus=6), make_workload("b", cpus=4, minute=1), make_workload("c", minute=2))

    took = await told_to_end(world, limit=10, opens_after=2)

    assert took <= 3
    assert sorted(world.observed.reservations) == ["a", "b"]
    cycles = world.loop.cycles
    await world.clock.advance(30)
    assert world.loop.cycles == cycles


async def test_a_write_that_takes_too_long_is_cut_off_and_tried_by_whoever_leads_next(make: Make) -> None:
    """The charge is given back, the workload is queued again, and admitted once."""
    world = make()
    world.add(make_workload("a", cpus=6))

    took = await told_to_end(world, limit=5, opens_after=None)

    assert 5 <= took <= 6
    assert (world.free(), world.queues.is_known("ns/a")) == (10, True)
    await again(world)
    assert status_of(world.workload("a"), "Admitted")[0] == "True"
    assert world.free() == 4


async def test_who_was_not_told_why_it_waits_is_told_by_whoever_leads_next(make: Make) -> None:
    """The line of those that are to be told outlives the one that tells."""
    world = make()
    world.add(*(make_workload(f"w{i}", cpus=20 + i) for i in range(12)))

    await told_to_end(world, limit=1, opens_after=None)
    assert all(status_of(world.workload(f"w{i}"), "QuotaReserved") == ("", "") for i in range(12))
    await again(world)

    assert {status_of(world.workload(f"w{i}"), "QuotaReserved")[1] for i in range(12)} == {"ExceedsMaxQuota"}


@pytest.mark.parametrize("victims", [1, 9], ids=["one victim", "more than are written at once"])
async def test_victims_that_were_not_told_are_told_by_whoever_leads_next(make: Make, victims: int) -> None:
    """None of them is taken for one that leaves."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(preemption=LOWER)))
    world.add(
        *(make_workload(f"low{i}", cpus=1, status=reserved(cpus=1)) for i in range(victims)),
        make_workload("rest", cpus=10 - victims, priority=9, status=reserved(cpus=10 - victims)),
        make_workload("high", cpus=victims, priority=1),
    )

    await told_to_end(world, limit=1, opens_after=None)
    await again(world)

    assert sorted(world.observed.preemptions) == [(f"low{i}", "high") for i in range(victims)]
    assert world.observed.loops == []


async def test_the_end_is_not_delayed_by_what_can_be_told_later(make: Make) -> None:
    """Without writes under way it ends at once, whatever the limit is."""
    world = make()
    world.loop.drain_for = lambda: 60
    world.start()
    await world.clock.advance(1)
    assert world.running is not None
    world.running.cancel()
    await world.clock.advance(0)

    assert world.running.done()
    await asyncio.gather(world.running, return_exceptions=True)
