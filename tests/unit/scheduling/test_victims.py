"""A preemptor whose victims are leaving is asked again when something has been given back, and is never forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from tests.unit.controllers.builders import make_cluster_queue, make_local_queue, make_workload, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.test_preemption import by_priority, is_admitted, leave, running

Make = Callable[..., Scheduled]
LONGEST = 0.25


def asked(world: Scheduled, name: str) -> int:
    """The number of the cycle in which the workload was tried last."""
    item = next(item for item in world.queues.waiting("team") if item.key == f"ns/{name}")
    tried = world.tries.of(item.key, "team", item.shape)
    assert tried is not None
    return tried.cycle


async def waiting(make: Make) -> Scheduled:
    """`high` waits until its victims `a` and `b` have left, and was tried once more after their eviction."""
    elsewhere = [
        (CLUSTER_QUEUES, make_cluster_queue("other", cpus=4)),
        (LOCAL_QUEUES, make_local_queue("other", cluster_queue="other")),
    ]
    world = make(*by_priority(), *elsewhere)
    world.add(running("a", cpus=5), running("b", cpus=5), make_workload("high", cpus=8, priority=1))
    for _ in range(3):
        await world.cycle()
        world.sync()
    return world


async def arrives(world: Scheduled) -> None:
    world.add(make_workload("late", cpus=1, minute=9))


async def arrives_elsewhere(world: Scheduled) -> None:
    world.add(make_workload("far", cpus=1, queue="other"))


async def one_leaves(world: Scheduled) -> None:
    await leave(world, "a")


async def one_stays(world: Scheduled) -> None:
    """Its eviction did not come to anything."""
    world.cache.held.mark_evicted("ns/a", "uid-of-a", evicted=False)


async def changes(world: Scheduled) -> None:
    """It asks for less."""
    world.client.put(WORKLOADS, make_workload("high", cpus=7, priority=1))
    world.sync()


async def quota_changes(world: Scheduled) -> None:
    world.client.put(CLUSTER_QUEUES, make_cluster_queue(cpus=9, preemption={"withinClusterQueue": "LowerPriority"}))
    world.sync()


@pytest.mark.parametrize(
    ("event", "again"),
    [
        pytest.param(arrives, False, id="a workload of lower priority arrives"),
        pytest.param(arrives_elsewhere, False, id="a workload of another tree is admitted"),
        pytest.param(one_leaves, True, id="a victim has left"),
        pytest.param(one_stays, True, id="a victim does not leave any more"),
        pytest.param(changes, True, id="the preemptor changes"),
        pytest.param(quota_changes, True, id="quota changes"),
    ],
)
async def test_it_is_asked_again_when_the_answer_may_be_another(make: Make, event: Any, again: bool) -> None:
    world = await waiting(make)
    before = asked(world, "high")

    await event(world)
    for _ in range(2):
        await world.cycle()

    assert (asked(world, "high") > before) is again
    assert not is_admitted(world, "high")


async def test_it_is_admitted_when_its_victims_have_left(make: Make) -> None:
    world = await waiting(make)
    await leave(world, "a", "b")
    await world.cycle()

    assert is_admitted(world, "high")


@pytest.mark.parametrize("seed", range(20))
async def test_no_preemptor_waits_when_its_victims_have_gone(make: Make, seed: int) -> None:
    """Workloads of all priorities come and end, and victims leave when they like.  Two windows after the last victim
    has left no workload waits for room that is there, or that it may make.
    """
    pick, world = random.Random(seed), make(*by_priority())
    world.start()
    for number in range(40):
        name = f"w{number}"
        job = make_workload(name, cpus=pick.randint(1, 8), priority=pick.randint(0, 3), minute=number % 60)
        world.client.put(WORKLOADS, job)
        world.client.sync()
        await world.clock.advance(pick.choice([0.0, 0.001, 0.03, 0.3]))
        for known in sorted(_held(world)):
            evicted = status_of(world.workload(known), "Evicted")[0] == "True"
            if pick.random() < (0.4 if evicted else 0.15):
                await (leave(world, known) if evicted else _end(world, known))
    for _ in range(40):
        await world.clock.advance(2 * LONGEST)
        for known in sorted(_held(world)):
            if status_of(world.workload(known), "Evicted")[0] == "True":
                await leave(world, known)
    await world.clock.advance(2 * LONGEST)

    running_ones = [_facts(world, name) for name in _held(world)]
    pending = [_facts(world, key.removeprefix("ns/")) for key in world.queues.known()]
    for priority, cpus in pending:
        lower = sum(held for at, held in running_ones if at < priority)
        assert cpus > world.free() + lower, f"{cpus} cpus of priority {priority} wait"


async def _end(world: Scheduled, name: str) -> None:
    world.client.drop(WORKLOADS, f"ns/{name}")
    world.sync()


def _held(world: Scheduled) -> list[str]:
    return [holding.key.removeprefix("ns/") for holding in world.cache.held.holdings()]


def _facts(world: Scheduled, name: str) -> tuple[int, int]:
    """Priority and CPUs of a workload."""
    workload = world.workload(name)
    assert workload is not None
    [container] = workload["spec"]["podSets"][0]["template"]["spec"]["containers"]
    return workload["spec"]["priority"], int(container["resources"]["requests"]["cpu"])
