"""The scheduling loop: whoever waits is told why, and trouble with one workload, queue or object stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from kqueue.errors import ServerError
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import (
    condition,
    make_cluster_queue,
    make_local_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import TEAMS, three_teams

# --- waits -----------------------------------------------------------------------------------------------------------


async def test_why_a_workload_waits_is_written_once(make: Callable[..., Scheduled]) -> None:
    """A try with the same end changes nothing; another reason is written."""
    world = make()
    world.add(make_workload(cpus=20))
    for _ in range(2):
        assert not await world.cycle()
        await world.settle()
        world.queues.flush(["team"])

    assert status_of(world.workload(), "QuotaReserved") == ("False", "ExceedsMaxQuota")
    assert world.workload()["status"]["resourceRequests"] == [{"name": "main", "resources": {"cpu": "20"}}]  # type: ignore[index]
    assert (len(world.client.calls), world.observed.waiting) == (1, [("a", "ExceedsMaxQuota")])

    world.client.put(CLUSTER_QUEUES, make_cluster_queue(cpus=20))
    world.add(make_workload("b", priority=9, status=reserved(cpus=1)))
    await world.settle()
    assert not await world.cycle()
    assert status_of(world.workload(), "QuotaReserved") == ("False", "WaitingForQuota")


@pytest.mark.parametrize(
    ("told", "writes"),
    [
        pytest.param(None, 2, id="one that was told nothing is told that it lost the quota to another"),
        pytest.param("WaitingForQuota", 1, id="one that waits for quota is told nothing that the next cycle corrects"),
        pytest.param("ExceedsMaxQuota", 2, id="one that waits for another reason is told the new one"),
    ],
)
async def test_who_loses_the_quota_within_a_cycle_is_not_told_twice(
    make: Callable[..., Scheduled], told: str | None, writes: int
) -> None:
    """Two heads fit and one of them takes the quota: the other is tried again at once, on what is left then."""
    world = make(
        *three_teams(),
        *((CLUSTER_QUEUES, make_cluster_queue(team, cpus=5, cohortName="all")) for team in TEAMS[:2]),
        settings=LoopSettings(details_after=0),
    )
    waits = {"conditions": [condition("QuotaReserved", "False", reason=told)]} if told is not None else {}
    world.add(make_workload("first", queue="red", cpus=8))
    world.add(make_workload("second", queue="green", cpus=8, minute=1, status=waits))

    assert await world.cycle()

    assert world.observed.reservations == ["first"]
    assert status_of(world.workload("second"), "QuotaReserved") == ("False", "WaitingForQuota")
    assert len(world.client.calls) == writes
    await world.settle()
    assert not await world.cycle()
    assert "8 cpu of flavor default asked, ClusterQueue green has 2 free" in message_of(
        world.workload("second"), "QuotaReserved"
    )


async def test_a_profile_that_does_not_exist_keeps_nobody_for_ever(make: Callable[..., Scheduled]) -> None:
    """It is told, and a correction of the annotation alone brings the workload back."""
    world = make()
    workload = make_workload()
    workload["metadata"]["annotations"] = {"kqueue.dev/placement-profile": "tight"}
    world.add(workload)

    assert not await world.cycle()
    assert status_of(world.workload(), "QuotaReserved") == ("False", "Misconfigured")
    await world.settle()

    world.client.change(WORKLOADS, "ns/a", {"metadata": {"annotations": {"kqueue.dev/placement-profile": "optimal"}}})
    await world.settle()
    assert await world.cycle()
    assert status_of(world.workload(), "QuotaReserved") == ("True", "QuotaReserved")


async def test_an_old_reason_does_not_go_over_an_admission(make: Callable[..., Scheduled]) -> None:
    """A slow write of why it waited finds the workload admitted, and is not made."""
    world = make()
    world.client.open.clear()
    world.add(make_workload(cpus=20))
    assert not await world.loop.cycle()
    for _ in range(5):
        await asyncio.sleep(0)
    world.client.put(CLUSTER_QUEUES, make_cluster_queue(cpus=20))
    await world.settle()
    assert await world.loop.cycle()
    world.client.open.set()
    await world.loop.drain()

    assert status_of(world.workload(), "QuotaReserved")[0] == "True"
    assert world.free() == 0


async def test_a_reason_that_cannot_be_written_costs_no_place(make: Callable[..., Scheduled]) -> None:
    """The workload stays parked and is tried when something is freed."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus=1)))
    world.client.fail(ServerError("down", status=500))
    world.add(make_workload(cpus=6))
    assert not await world.cycle()
    assert world.queues.counts("team") == (0, 1)

    world.client.put(CLUSTER_QUEUES, make_cluster_queue())
    await world.settle()

    assert await world.cycle()


@pytest.mark.parametrize(
    ("selector", "labels", "says"),
    [
        pytest.param({}, None, "Namespace ns does not exist", id="no such namespace"),
        pytest.param(None, {}, "admits no namespace", id="the queue has no selector"),
        pytest.param({"matchLabels": {"team": "red"}}, {"team": "blue"}, "does not match", id="other labels"),
    ],
)
async def test_a_namespace_that_may_not_use_the_queue_is_told(
    make: Callable[..., Scheduled], selector: Any, labels: dict[str, str] | None, says: str
) -> None:
    """Misconfigured, with the remedy; it is tried again when the namespace fits."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(namespaceSelector=selector, queueingStrategy="StrictFIFO")))
    world.namespaces.clear()
    if labels is not None:
        world.namespaces["ns"] = labels
    world.add(make_workload())

    assert not await world.cycle()

    assert status_of(world.workload(), "QuotaReserved") == ("False", "Misconfigured")
    assert says in message_of(world.workload(), "QuotaReserved")
    assert world.queues.counts("team") == (0, 1)
    world.namespaces["ns"] = {"team": "red"}
    world.client.put(CLUSTER_QUEUES, make_cluster_queue(namespaceSelector={"matchLabels": {"team": "red"}}))
    await world.settle()
    assert await world.cycle()


async def test_a_stopped_queue_offers_nobody(make: Callable[..., Scheduled]) -> None:
    """Its workloads stay where they are, and no write is made for them."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(stopPolicy="Hold")))
    world.add(make_workload())

    assert not await world.cycle()

    assert (world.queues.counts("team"), world.client.calls) == ((1, 0), [])


# --- trouble ---------------------------------------------------------------------------------------------------------


async def test_one_broken_workload_does_not_stop_the_others(make: Callable[..., Scheduled]) -> None:
    """What cannot be read is told so; the heads of other queues, and the next of its own, are admitted."""
    world = make(*three_teams())
    world.add(
        make_workload("broken", queue="red", cpus="lots"),
        make_workload("next", queue="red", minute=1),
        make_workload("other", queue="blue"),
    )
    world.start()

    await world.until_quiet()

    assert sorted(world.observed.reservations) == ["next", "other"]
    assert status_of(world.workload("broken"), "QuotaReserved") == ("False", "Misconfigured")
    assert "'lots'" in message_of(world.workload("broken"), "QuotaReserved")


async def test_a_bug_in_one_cycle_does_not_end_scheduling(
    make: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heads of a cycle that failed before it decided anything are tried by the next."""
    world = make()
    world.add(make_workload())
    whole = world.cache.snapshot
    answers = iter([ZeroDivisionError()])

    def snapshot(*asked: Any) -> Any:
        error = next(answers, None)
        if error is not None:
            raise error
        return whole(*asked)

    await world.settle()
    monkeypatch.setattr(world.cache, "snapshot", snapshot)
    world.start()

    await world.until_quiet()

    assert status_of(world.workload(), "Admitted")[0] == "True"


async def test_nobody_is_lost_when_a_plan_is_cut_off(make: Callable[..., Scheduled]) -> None:
    """Whom the plan had not reached goes back to the queue; whom it had admitted is written."""
    world = make(*three_teams(), settings=LoopSettings(yield_after=-1.0))
    world.add(*(make_workload(team, queue=team) for team in TEAMS))
    cycle = asyncio.create_task(world.loop.cycle())
    await asyncio.sleep(0)
    cycle.cancel()
    await asyncio.gather(cycle, return_exceptions=True)
    await world.loop.drain()
    assert cycle.cancelled()
    assert len(world.observed.reservations) == 1
    assert sum(world.queues.counts(team)[0] for team in TEAMS) == 2

    assert await world.cycle()

    assert sorted(world.observed.reservations) == sorted(TEAMS)


@pytest.mark.parametrize(
    ("happens", "free", "known"),
    [
        pytest.param(lambda w: w.client.drop(WORKLOADS, "ns/a"), 10, False, id="it is gone"),
        pytest.param(lambda w: w.client.change(WORKLOADS, "ns/a", {"spec": {"active": False}}), 10, False, id="it is switched off"),
        pytest.param(lambda w: w.client.put(WORKLOADS, make_workload(cpus=5)), 10, True, id="it asks for something else"),
        pytest.param(lambda w: w.client.put(CLUSTER_QUEUES, make_cluster_queue(cpus=1)), 1, True, id="its quota is gone"),
        pytest.param(lambda w: w.client.change(WORKLOADS, "ns/a", {"metadata": {"labels": {"a": "b"}}}), 7, False, id="nothing that matters"),
    ],
)  # fmt: skip
async def test_what_happens_between_two_decisions_counts(
    make: Callable[..., Scheduled], happens: Callable[[Scheduled], object], free: int, known: bool
) -> None:
    """A decision is taken back when the world has moved on since the plan was made; the next cycle decides anew."""
    world = make(*three_teams(), settings=LoopSettings(yield_after=-1.0))
    world.add(make_workload("first", queue="red", priority=9), make_workload(cpus=3))
    cycle = asyncio.create_task(world.loop.cycle())
    await asyncio.sleep(0)
    happens(world)
    world.sync()
    await cycle

    assert (world.free(), world.queues.is_known("ns/a")) == (free, known)


async def test_one_that_was_made_anew_between_two_decisions_is_tried_by_itself(make: Callable[..., Scheduled]) -> None:
    """The decision on the workload that had its name before is dropped, its own place is not."""
    world = make(*three_teams(), settings=LoopSettings(yield_after=-1.0))
    world.add(make_workload("first", queue="red", priority=9), make_workload(cpus=3))
    cycle = asyncio.create_task(world.loop.cycle())
    await asyncio.sleep(0)
    world.client.drop(WORKLOADS, "ns/a")
    world.sync()
    world.add(make_workload(cpus=5, metadata={"uid": "anew"}))
    await cycle
    assert world.free() == 10

    assert await world.cycle()

    assert world.free() == 5


async def test_what_we_have_just_written_ourselves_counts(make: Callable[..., Scheduled]) -> None:
    """The watch has not told yet that the workload was switched off: it is not admitted."""
    world = make()
    world.add(make_workload())
    await world.writer.write("ns/a", lambda _: {"spec": {"active": False}}, subresource=None)

    assert not await world.cycle()

    assert (world.free(), world.queues.is_known("ns/a")) == (10, False)


async def test_a_head_that_is_withdrawn_while_it_is_tried_does_not_block_its_queue(
    make: Callable[..., Scheduled],
) -> None:
    """A LocalQueue is stopped between two decisions of a cycle: the next workload of the ClusterQueue has its turn."""
    world = make(
        *three_teams(),
        (LOCAL_QUEUES, make_local_queue("other")),
        settings=LoopSettings(yield_after=-1.0),
    )
    world.add(
        make_workload("first", queue="red", priority=9),
        make_workload("a", cpus=20),
        make_workload("b", queue="other", minute=1),
    )
    cycle = asyncio.create_task(world.loop.cycle())
    await asyncio.sleep(0)
    world.client.put(LOCAL_QUEUES, make_local_queue(stopPolicy="Hold"))
    world.sync()
    await cycle

    assert await world.cycle()

    assert sorted(world.observed.reservations) == ["b", "first"]


async def test_the_end_of_the_loop_waits_for_its_writes(make: Callable[..., Scheduled]) -> None:
    """Cancelled with a write under way it ends after the write."""
    world = make()
    world.client.open.clear()
    world.add(make_workload())
    world.start()
    assert world.running is not None
    await world.clock.advance(0)
    world.running.cancel()
    await world.clock.advance(0)
    assert not world.running.done()

    world.client.open.set()
    await asyncio.gather(world.running, return_exceptions=True)

    assert status_of(world.workload(), "Admitted")[0] == "True"
