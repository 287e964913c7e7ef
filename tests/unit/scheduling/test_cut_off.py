"""Tasks of the scheduling loop that are cancelled before their first step: what was taken for them is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kqueue.controllers.resources import CLUSTER_QUEUES
from kqueue.errors import UnreachableError
from kqueue.scheduling.settings import LoopSettings
from tests.readings import free_by_node
from tests.unit.controllers.builders import make_cluster_queue, make_workload, reserved, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import hospital, hosts_of, placed

Make = Callable[..., Scheduled]
LOWER = {"withinClusterQueue": "LowerPriority"}


async def cut_off(world: Scheduled) -> None:
    """Run one cycle, and cancel every task that it has made before the task takes its first step."""
    before = asyncio.all_tasks()
    await world.loop.cycle()
    made = asyncio.all_tasks() - before
    assert made, "the cycle has begun nothing"
    for task in made:
        task.cancel()
    await asyncio.wait(made)
    await world.loop.drain()


async def lead_again(world: Scheduled) -> None:
    """The same process leads once more, and everything flows."""
    world.client.open.set()
    world.sync()
    world.start()
    for _ in range(10):
        await world.until_quiet()
        world.sync()


async def test_an_admission_that_never_began_gives_its_charge_back(make: Make) -> None:
    """Quota is free at once, the workload waits in its queue, and the next term admits it."""
    world = make()
    world.add(make_workload("a", cpus=6))

    await cut_off(world)

    assert (world.free(), world.queues.is_known("ns/a")) == (10, True)
    assert world.cache.held.holding("ns/a") is None
    await lead_again(world)
    assert status_of(world.workload("a"), "Admitted")[0] == "True"
    assert world.free() == 4


async def test_victims_of_a_preemption_that_never_began_are_preempted_later(make: Make) -> None:
    """They are not taken for workloads that leave."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(preemption=LOWER)))
    world.add(
        make_workload("low", cpus=10, status=reserved(cpus=10)),
        make_workload("high", cpus=6, priority=1),
    )

    await cut_off(world)

    held = world.cache.held.holding("ns/low")
    assert held is not None
    assert not held.evicted
    await lead_again(world)
    assert world.observed.preemptions == [("low", "high")]
    assert world.observed.loops == []


async def test_writers_that_never_began_leave_their_places_to_others(make: Make) -> None:
    """There is one place to tell why workloads wait, and the next term has it."""
    world = make(settings=LoopSettings(reasons_at_once=1))
    world.add(make_workload("a", cpus=20))

    await cut_off(world)
    assert status_of(world.workload("a"), "QuotaReserved") == ("", "")
    await lead_again(world)

    assert status_of(world.workload("a"), "QuotaReserved")[1] == "ExceedsMaxQuota"


async def test_a_repair_that_never_began_keeps_the_old_hosts_and_asks_again(make: Make) -> None:
    """The new host is free for others, and the workload waits for another pass."""
    world = hospital(make, placed(h1=2), h3=2)
    before = world.cache.held.holding("ns/a")

    await cut_off(world)

    now = world.cache.held.holding("ns/a")
    assert before is not None
    assert now is not None
    assert (now.admission, now.replaces) == (before.admission, None)
    assert free_by_node(world.cache.ledger)["node-h3"]["cpu"] == 2000
    assert world.pauses == [1.0]
    world.second_pass.ready("ns/a")
    await world.cycle()
    assert hosts_of(world) == {"h3": 2}


async def test_a_repair_without_new_hosts_that_never_began_asks_again(make: Make) -> None:
    """The decision to try later, or to evict, is made again."""
    world = hospital(make, placed(h1=2))

    await cut_off(world)

    assert world.pauses == [1.0]
    assert world.second_pass.ready("ns/a")


async def test_a_charge_is_given_back_although_its_workload_was_marked_as_a_victim(make: Make) -> None:
    """The mark makes another holding of it, of the same decision."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(preemption=LOWER)))
    world.add(make_workload("low", cpus=10))
    world.client.open.clear()
    world.client.fail(UnreachableError("no answer"))
    await world.loop.cycle()
    assert world.cache.held.mark_evicted("ns/low", world.cache.held.holdings()[0].uid)

    world.client.open.set()
    await world.loop.drain()

    assert (world.free(), world.queues.is_known("ns/low")) == (10, True)


async def test_a_victim_that_was_not_admitted_yet_can_be_preempted_later(make: Make) -> None:
    """The eviction comes before the admission of the victim is written, so there is nothing to evict: the victim is as
    before, and the preemptor is tried again.
    """
    world = make((CLUSTER_QUEUES, make_cluster_queue(preemption=LOWER)), settings=LoopSettings(in_flight=1))
    world.add(make_workload("first", cpus=1), make_workload("low", cpus=9, minute=1))
    world.client.open.clear()
    for _ in range(2):
        await world.loop.cycle()
        await asyncio.sleep(0)  # the one place for writes is taken by the first one
    world.add(make_workload("high", cpus=9, priority=1))
    await world.loop.cycle()
    for _ in range(5):
        await asyncio.sleep(0)

    held = world.cache.held.holding("ns/low")
    assert held is not None
    assert not held.evicted
    await lead_again(world)
    assert world.observed.preemptions == [("low", "high")]


async def test_a_pause_after_a_failed_write_outlives_the_term(make: Make) -> None:
    """A workload that is set aside because its admission could not be written is tried in the next term."""
    world = make()
    world.loop.drain_for = lambda: 1.0
    world.sync()
    await world.clock.advance(5)  # whatever follows from the making of the queue is done
    world.client.fail(UnreachableError("no answer"))
    world.add(make_workload("a", cpus=6))
    world.start()
    await world.clock.advance(0.2)
    assert world.running is not None
    world.running.cancel()
    await world.clock.advance(0.2)
    assert world.running.done()

    world.start()
    await world.clock.advance(3)

    assert status_of(world.workload("a"), "Admitted")[0] == "True"
