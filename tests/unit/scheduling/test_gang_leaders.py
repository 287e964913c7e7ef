"""A flavor without topology is kept for the gang closest to its quorum."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from kqueue.errors import ServerError
from kqueue.state.gangs import StartingGang
from tests.builders import START
from tests.unit.controllers.builders import (
    JSON,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]
GANG = "ns/kqueue.dev/coscheduling-labels:lead"
WAITS = ("False", "WaitingForPodsReady")


def starting(world: Scheduled, name: str = "lead", *, scheduled: int = 4, keeps: str = "default") -> StartingGang:
    return StartingGang(
        key=GANG.replace("lead", name),
        uid=f"uid-of-{name}",
        workload=f"ns/{name}",
        since=START,
        scheduled=scheduled,
        quorum=5,
        flavors=frozenset({keeps or "default"}),
        keeps=keeps,
        until=world.clock.now() + timedelta(seconds=65),
    )


def led(make: Make, *objects: Any, other: int = 10, **spec: Any) -> Scheduled:
    """`lead` holds 5 of 10 cpu of flavor `default` and has nodes for 4 of its 5 pods; flavor `other` is second."""
    team = make_cluster_queue(cpus={"default": 10, "other": other}, **spec)
    lead = make_workload("lead", pods=5, status=reserved(pods=5))
    world = make((CLUSTER_QUEUES, team), (RESOURCE_FLAVORS, make_flavor("other")), (WORKLOADS, lead), *objects)
    world.sync()
    world.cache.gangs.note(starting(world))
    return world


def workload(world: Scheduled, name: str) -> JSON:
    found = world.client.object(WORKLOADS, f"ns/{name}")
    assert found is not None
    return found


def reservation(world: Scheduled, name: str) -> tuple[str, str]:
    return status_of(workload(world, name), "QuotaReserved")


@pytest.mark.mechanism("4.14")
async def test_a_workload_of_equal_priority_waits_until_the_gang_has_its_quorum(make: Make) -> None:
    """G3.52 rule 4, G3.53: there is quota, and the wait ends with the hold, not before."""
    world = led(make)
    world.add(make_workload("small"))
    world.start()
    await world.until_quiet()
    before, message = reservation(world, "small"), message_of(workload(world, "small"), "QuotaReserved")
    world.cache.gangs.drop("ns/lead")
    await world.until_quiet()

    assert before == WAITS
    assert message == (
        f"Flavor default is kept for gang {GANG}, of which 4 of 5 pods are scheduled, until 2026-01-01T00:01:05Z at the "
        "latest"
    )
    assert reservation(world, "small")[0] == "True"


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
async def test_a_waiting_workload_makes_the_loop_rest(make: Make, strategy: str) -> None:
    """Nobody spins: three workloads cost a try each."""
    world = led(make, queueingStrategy=strategy)
    world.add(*(make_workload(f"small-{number}") for number in range(3)))
    world.start()
    cycles = await world.until_quiet()

    assert cycles <= 6
    assert status_of(workload(world, "small-0"), "QuotaReserved") == WAITS


async def test_a_further_member_of_the_gang_goes_on(make: Make) -> None:
    """G3.52 rule 1."""
    world = led(make)
    extra = make_workload("extra", metadata={"annotations": {"kqueue.dev/extra-of": "lead"}})
    world.add(extra)
    await world.cycle()
    assert reservation(world, "extra")[0] == "True"
    assert status_of(workload(world, "lead"), "Evicted") == ("", "")


async def test_a_workload_that_uses_another_flavor_goes_on(make: Make) -> None:
    """G3.52 rule 2: the first flavor has no room for it."""
    world = led(make)
    world.add(make_workload("large", cpus=6))
    await world.cycle()
    assert reservation(world, "large")[0] == "True"


@pytest.mark.mechanism("4.15")
async def test_a_workload_of_higher_priority_makes_the_gang_leave_in_its_cycle(make: Make) -> None:
    """G3.52 rule 3: the gang comes back after a pause; a second such workload evicts nobody."""
    world = led(make)
    world.add(make_workload("urgent", priority=5), make_workload("urgent-too", priority=5, minute=1))
    await world.cycle()
    await world.cycle()
    lead = workload(world, "lead")

    assert reservation(world, "urgent")[0] == reservation(world, "urgent-too")[0] == "True"
    assert status_of(lead, "Evicted") == ("True", "GangMadeWay")
    assert message_of(lead, "Evicted") == "made way for ns/urgent, which has a higher priority"
    assert lead["status"]["requeueState"] == {"count": 1, "requeueAt": "2026-01-01T00:00:10Z"}
    assert world.observed.gangs_away == [("lead", "made way for ns/urgent, which has a higher priority")]


async def test_a_gang_whose_eviction_is_not_written_stays_the_leader(make: Make) -> None:
    """The flavor is kept for it again."""
    world = led(make)
    world.client.fail(ServerError("down", status=500), key="ns/lead", times=9)
    world.add(make_workload("urgent", priority=5))
    await world.cycle()
    world.add(make_workload("small"))
    await world.cycle()
    assert status_of(workload(world, "lead"), "Evicted") == ("", "")
    assert reservation(world, "small") == WAITS


async def test_nobody_is_preempted_in_a_kept_flavor_by_an_equal(make: Make) -> None:
    """A workload that would preempt for it waits, and its victim runs on."""
    victim = make_workload("victim", priority=-1, cpus=5, status=reserved(cpus=5))
    spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    world = led(make, (WORKLOADS, victim), other=1, **spec)
    world.add(make_workload("equal", cpus=5))
    await world.cycle()
    assert reservation(world, "equal") == WAITS
    assert status_of(workload(world, "victim"), "Evicted") == ("", "")


async def test_another_namespace_does_not_learn_the_name_of_the_gang(make: Make) -> None:
    """Its ClusterQueue is named instead."""
    queue = make_local_queue()
    queue["metadata"]["namespace"] = "elsewhere"
    world = led(make, (LOCAL_QUEUES, queue))
    world.namespaces["elsewhere"] = {}
    world.sync()
    stranger = make_workload("small")
    stranger["metadata"]["namespace"] = "elsewhere"
    world.add(stranger)
    await world.cycle()
    found = world.client.object(WORKLOADS, "elsewhere/small")
    assert message_of(found, "QuotaReserved").startswith(
        "Flavor default is kept for a workload of ClusterQueue team, of which 4 of 5 pods are scheduled"
    )
