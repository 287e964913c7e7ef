"""The scheduling loop: what is decided is charged at once, and nobody is lost whatever becomes of the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS
from kqueue.core.scan import ScanRules
from kqueue.errors import ApiError, ConflictError, NotFoundError, ServerError, UnreachableError
from kqueue.scheduling.loop import LoopSettings
from kqueue.state import from_api
from tests.unit.controllers.builders import (
    World,
    condition,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    message_of,
    read,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled

HOST = "kubernetes.io/hostname"
TEAMS = ("red", "green", "blue")


def three_teams() -> list[Any]:
    """A ClusterQueue and a LocalQueue of each team's name."""
    return [
        pair
        for team in TEAMS
        for pair in (
            (CLUSTER_QUEUES, make_cluster_queue(team)),
            (LOCAL_QUEUES, make_local_queue(team, cluster_queue=team)),
        )
    ]


# --- admission -------------------------------------------------------------------------------------------------------


async def test_what_is_admitted_is_charged_before_the_write_ends(make: Callable[..., Scheduled]) -> None:
    """Quota is taken while the write is under way; reservation and admission then stand there by one patch."""
    world = make()
    world.client.open.clear()
    world.add(make_workload(cpus=6))

    assert await world.loop.cycle()

    assert (world.free(), status_of(world.workload(), "QuotaReserved")) == (4, ("", ""))
    assert not world.queues.is_known("ns/a")
    world.client.open.set()
    await world.loop.drain()
    assert status_of(world.workload(), "QuotaReserved") == ("True", "QuotaReserved")
    assert status_of(world.workload(), "Admitted") == ("True", "Admitted")
    [call] = world.client.calls
    assert call.body["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] == {"cpu": "6"}
    assert world.observed.reservations == ["a"]


async def test_the_next_cycle_need_not_wait_for_the_write(make: Callable[..., Scheduled]) -> None:
    """What an unfinished write will take is not offered to the next workload."""
    world = make()
    world.client.open.clear()
    world.add(make_workload("a", cpus=6), make_workload("b", cpus=6, minute=1), make_workload("c", cpus=4, minute=2))

    assert [await world.loop.cycle() for _ in range(3)] == [True, False, True]

    assert (world.free(), world.observed.cycles) == (0, [True, False, True])


@pytest.mark.parametrize(
    ("checks", "admitted"),
    [
        pytest.param([{"name": "budget"}], ("False", "UnsatisfiedAdmissionChecks"), id="it waits for checks"),
        pytest.param([], ("True", "Admitted"), id="the list of checks is empty"),
    ],
)
async def test_a_reservation_is_an_admission_where_no_check_is_asked_for(
    make: Callable[..., Scheduled], checks: list[Any], admitted: tuple[str, str]
) -> None:
    """With admission checks in the queue they are listed with the reservation, and waited for."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(admissionChecksStrategy={"admissionChecks": checks})))
    check = {"metadata": {"name": "budget"}, "spec": {"controllerName": "x"}}
    world.intake.on_check(None, read(wire.AdmissionCheck, {**check, "status": {"conditions": [condition("Active")]}}))
    world.add(make_workload())

    assert await world.cycle()

    assert status_of(world.workload(), "QuotaReserved")[0] == "True"
    assert status_of(world.workload(), "Admitted") == admitted


async def test_only_so_many_writes_are_under_way_at_once(make: Callable[..., Scheduled]) -> None:
    """The others wait for their turn; all are made."""
    world = make(*three_teams(), settings=LoopSettings(in_flight=2))
    world.client.open.clear()
    world.add(*(make_workload(team, queue=team) for team in TEAMS))
    await world.loop.cycle()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(world.client.calls) == 2

    world.client.open.set()
    await world.loop.drain()

    assert sorted(world.observed.reservations) == sorted(TEAMS)


# --- writes that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "times"),
    [
        pytest.param(ServerError("down", status=500), 1, id="the server fails"),
        pytest.param(UnreachableError("no answer"), 1, id="no answer comes"),
        pytest.param(ConflictError("newer", status=409), 5, id="conflicts without end"),
    ],
)
async def test_a_failed_write_gives_back_charge_and_place(
    make: Callable[..., Scheduled], error: ApiError, times: int
) -> None:
    """Quota is free again, the workload waits for a moment, and is admitted then."""
    world = make()
    world.client.fail(error, times=times)
    world.add(make_workload(cpus=6))

    assert await world.cycle()

    assert (world.free(), world.queues.counts("team"), world.observed.reservations) == (10, (0, 1), [])
    await world.clock.advance(1)
    assert await world.cycle()
    assert (world.free(), world.observed.reservations) == (4, ["a"])


async def test_writes_that_fail_again_and_again_are_made_less_and_less_often(make: Callable[..., Scheduled]) -> None:
    """The pauses double up to half a minute; others of the queue are not held up."""
    world = make()
    world.client.fail(ServerError("down", status=500), key="ns/a", times=1000)
    world.add(make_workload("a"), make_workload("b", minute=1))
    world.start()

    await world.clock.advance(0.5)
    assert status_of(world.workload("b"), "Admitted")[0] == "True"
    tries = []
    for seconds in (10, 110, 300):
        before = len([call for call in world.client.writes() if "ns/a" in str(call) or str(call).endswith(" a")])
        await world.clock.advance(seconds)
        after = len([call for call in world.client.writes() if "ns/a" in str(call) or str(call).endswith(" a")])
        tries.append(after - before)

    assert tries == [3, 4, 10]


async def test_news_end_the_pause_after_a_failed_write(make: Callable[..., Scheduled]) -> None:
    """What failed for one version of a workload may go well for the next."""
    world = make()
    world.client.fail(ServerError("down", status=500), times=1)
    world.add(make_workload())
    await world.cycle()
    assert world.queues.counts("team") == (0, 1)

    world.client.change(WORKLOADS, "ns/a", {"metadata": {"generation": 2}})
    world.sync()

    assert world.queues.counts("team") == (1, 0)


async def test_a_running_loop_tries_again_by_itself(make: Callable[..., Scheduled]) -> None:
    """After a failed write nothing else has to happen."""
    world = make()
    world.client.fail(ServerError("down", status=500), times=2)
    world.add(make_workload())
    world.start()

    await world.until_quiet()

    assert status_of(world.workload(), "Admitted")[0] == "True"


async def test_a_conflict_is_read_again(make: Callable[..., Scheduled]) -> None:
    """Somebody wrote something that does not matter: the admission is written over the newest version."""
    world = make()
    world.add(make_workload())
    world.client.change(WORKLOADS, "ns/a", {"metadata": {"labels": {"theirs": "yes"}}})

    assert await world.cycle()

    assert [call.verb for call in world.client.calls] == ["patch", "get", "patch"]
    assert status_of(world.workload(), "Admitted")[0] == "True"


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"priority": 5}}, id="it asks for something else now"),
        pytest.param({"metadata": {"uid": "other"}}, id="it is another workload of that name"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}}, id="it is going"
        ),
        pytest.param({"status": {"conditions": [condition("Finished")]}}, id="it has finished"),
    ],
)
async def test_a_decision_on_what_is_no_longer_true_is_not_written(
    make: Callable[..., Scheduled], patch: dict[str, Any]
) -> None:
    """Found out by a conflict: the charge is given back, and the watch's next event decides about its place."""
    world = make()
    world.add(make_workload(cpus=6))
    world.client.change(WORKLOADS, "ns/a", patch)

    assert await world.cycle()

    assert world.free() == 10
    assert status_of(world.workload(), "QuotaReserved") == ("", "")


async def test_what_another_request_asks_for_is_decided_anew(make: Callable[..., Scheduled]) -> None:
    """A workload that was changed while it was being admitted is admitted as it is then."""
    world = make()
    world.add(make_workload(cpus=6))
    world.client.put(WORKLOADS, make_workload(cpus=3))
    await world.cycle()
    world.sync()

    assert await world.cycle()

    assert world.free() == 7


async def test_a_write_whose_answer_was_lost_keeps_its_charge(make: Callable[..., Scheduled]) -> None:
    """The repetition of a write that had come through is a conflict: the workload is admitted, so it is charged."""
    world = make()
    world.client.fail(ConflictError("our own first attempt came through", status=409), done=True)
    world.add(make_workload(cpus=6), make_workload("b", cpus=6, minute=1))

    assert await world.cycle()
    assert (world.free(), world.queues.is_known("ns/a")) == (4, False)
    assert not await world.cycle()
    world.sync()

    assert (world.free(), world.queues.is_known("ns/a")) == (4, False)


@pytest.mark.parametrize("done", [False, True], ids=["the write was lost", "its answer was lost"])
@pytest.mark.parametrize("how", ["gone", "finished"])
async def test_who_came_to_an_end_while_it_was_being_admitted_holds_nothing(
    make: Callable[..., Scheduled], how: str, done: bool
) -> None:
    """The watch tells of the end before the write fails: no charge comes back, and no place."""
    world = make()
    world.add(make_workload(cpus=6))
    world.client.open.clear()
    world.client.fail(ConflictError("newer", status=409), done=done)
    if not done:
        world.client.fail(ServerError("down", status=500), verb="get")
    assert await world.loop.cycle()
    if how == "gone":
        world.workloads.remove("ns/a")
    else:
        over = {"conditions": [condition("Finished")]}
        world.workloads.put("ns/a", read(wire.Workload, make_workload(status=over, metadata={"generation": 1})))
    world.client.open.set()
    await world.loop.drain()

    assert (world.free(), world.queues.is_known("ns/a")) == (10, False)


async def test_a_workload_that_is_gone_leaves_nothing(make: Callable[..., Scheduled]) -> None:
    """Deleted while it was being admitted: no charge, no place, no further request."""
    world = make()
    world.add(make_workload(cpus=6))
    world.client.fail(NotFoundError("gone", status=404))
    assert await world.cycle()
    world.client.drop(WORKLOADS, "ns/a")
    world.sync()

    assert (world.free(), world.queues.is_known("ns/a"), len(world.client.calls)) == (10, False, 1)


# --- slices of elastic jobs ------------------------------------------------------------------------------------------

ELASTIC = LoopSettings(elastic=True)


def make_slice(name: str, *, pods: int, instead_of: str) -> Any:
    """A Workload that takes over from another one."""
    annotations = {"kueue.x-k8s.io/workload-slice-replacement-for": f"ns/{instead_of}"}
    workload = make_workload(name, pods=pods)
    workload["metadata"]["annotations"] = annotations
    return workload


async def test_a_newer_slice_takes_over_and_the_older_one_ends(make: Callable[..., Scheduled]) -> None:
    """In a queue that has room for the difference only; afterwards the newer one alone holds quota."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus=4)), settings=ELASTIC)
    world.add(
        make_workload("old", pods=3, status=reserved(pods=3, cpus=3)), make_slice("new", pods=4, instead_of="old")
    )

    assert await world.cycle()
    await world.settle()

    assert status_of(world.workload("new"), "QuotaReserved") == ("True", "QuotaReserved")
    assert status_of(world.workload("old"), "Finished") == ("True", "WorkloadSliceReplaced")
    assert world.observed.taken_over == [("old", "ns/new (UID uid-of-new)")]
    assert [holding.key for holding in world.cache.holdings()] == ["ns/new"]


@pytest.mark.parametrize(
    ("older", "settings"),
    [
        pytest.param(make_workload("old", pods=3, status=reserved(pods=3, cpus=3)), None, id="slices are switched off"),
        pytest.param(
            make_workload("old", pods=3, status=reserved(condition("Evicted", reason="Preempted"), pods=3, cpus=3)),
            ELASTIC,
            id="the older one is on its way out",
        ),
    ],
)
async def test_a_slice_that_may_not_take_over_waits_like_any_other(
    make: Callable[..., Scheduled], older: Any, settings: LoopSettings | None
) -> None:
    """Until the older one has left."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus=4)), settings=settings)
    world.add(older, make_slice("new", pods=4, instead_of="old"))

    assert not await world.cycle()

    assert status_of(world.workload("new"), "QuotaReserved") == ("False", "WaitingForQuota")
    assert world.observed.taken_over == []


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
        settings=LoopSettings(details_told_after=0),
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
    assert "6 cpu more needed" in message_of(world.workload("second"), "QuotaReserved")


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


# --- going on, and resting -------------------------------------------------------------------------------------------


async def test_one_wake_tries_everybody_who_waits(make: Callable[..., Scheduled]) -> None:
    """A best-effort head that does not fit is passed; the loop goes on until nobody is left, then rests."""
    world = make()
    world.add(*(make_workload(f"large-{n}", cpus=20 + n, minute=n) for n in range(5)), make_workload("small", minute=9))
    await world.settle()
    world.start()

    assert await world.until_quiet() == 6

    assert world.observed.reservations == ["small"]
    assert len(world.observed.waiting) == 5


@pytest.mark.parametrize("cpus", [pytest.param(20, id="too large"), pytest.param("lots", id="unreadable")])
async def test_a_strict_head_that_cannot_start_does_not_make_the_loop_spin(
    make: Callable[..., Scheduled], cpus: int | str
) -> None:
    """It is tried on a state once and once more, not for ever; what changes the state has it tried again."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(queueingStrategy="StrictFIFO")))
    world.add(make_workload(cpus=cpus), make_workload("behind", minute=1))
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == []

    world.client.put(CLUSTER_QUEUES, make_cluster_queue(cpus=30, queueingStrategy="StrictFIFO"))
    world.client.put(WORKLOADS, make_workload(cpus=20))
    await world.settle()
    await world.until_quiet()

    assert sorted(world.observed.reservations) == ["a", "behind"]


async def test_a_strict_head_does_not_keep_other_queues_from_being_worked_off(make: Callable[..., Scheduled]) -> None:
    """While one queue is blocked by its head the others are tried down to their last workload."""
    world = make(*three_teams(), (CLUSTER_QUEUES, make_cluster_queue("red", queueingStrategy="StrictFIFO")))
    world.add(make_workload("stuck", queue="red", cpus=20))
    world.start()
    await world.until_quiet()

    world.add(*(make_workload(f"large-{n}", queue="blue", cpus=20 + n, minute=n) for n in range(3)))
    world.add(make_workload("small", queue="blue", minute=9))
    await world.until_quiet()

    assert world.observed.reservations == ["small"]


@pytest.mark.parametrize("blocked", [False, True], ids=["nobody", "a strict head"])
async def test_who_was_refused_before_does_not_hide_who_came_since(
    make: Callable[..., Scheduled], blocked: bool
) -> None:
    """The head that the last cycle refused comes once more, with another behind it: both are tried."""
    world = make(*three_teams(), (CLUSTER_QUEUES, make_cluster_queue("red", queueingStrategy="StrictFIFO")))
    await world.settle()
    world.start()
    if blocked:
        world.add(make_workload("stuck", queue="red", cpus=20))
        await world.until_quiet()
        world.client.drop(WORKLOADS, "ns/stuck")
        world.sync()
    world.add(make_workload("large", cpus=20))
    await world.until_quiet()

    world.client.put(WORKLOADS, make_workload("large", cpus=21))
    world.add(make_workload("small", minute=1))
    await world.until_quiet()

    assert world.observed.reservations == ["small"]


def make_racks(*names: str) -> list[Any]:
    """ClusterQueue `team` with quota of 10 in each of the flavors, whose nodes make up a topology of hosts."""
    return [
        (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": HOST}]}}),
        (CLUSTER_QUEUES, make_cluster_queue(cpus=dict.fromkeys(names, 10))),
        *((RESOURCE_FLAVORS, make_flavor(name, nodeLabels={"pool": name}, topologyName="dc")) for name in names),
    ]


def set_nodes(world: World, **cpus: int) -> None:
    """The one node of each flavor has so many cpus."""
    for name, amount in cpus.items():
        node = {
            "metadata": {"name": name, "labels": {HOST: name, "pool": name}},
            "status": {"allocatable": {"cpu": str(amount), "pods": "9"}, "conditions": [condition("Ready")]},
        }
        world.intake.on_node(None, from_api.node_facts(read(wire_core.Node, node)))


async def test_tables_of_a_new_flavor_are_made_in_steps_between_which_others_run(
    make: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle that finds a large flavor unprepared does not hold the event loop until all is ready."""
    monkeypatch.setattr("kqueue.state.audit.STEP", 1)
    names = [f"host{i}" for i in range(20)]
    world = make(*make_racks(*names[:1]))
    world.sync()
    set_nodes(world, **dict.fromkeys(names, 4))
    world.client.put(RESOURCE_FLAVORS, make_flavor(names[0], topologyName="dc"))  # of all nodes
    world.add(make_workload(cpus=3))
    cycle, turns = asyncio.create_task(world.loop.cycle()), 0
    while world.loop.cycles == 0 and not cycle.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2 * len(names)
    assert await cycle is True


async def test_a_scan_that_stopped_early_goes_on_at_the_next_flavor(make: Callable[..., Scheduled]) -> None:
    """Quota without room in its domains ends a try; the next cycles look at the other flavors, on every state."""
    world = make(*make_racks("default", "second", "third"))
    world.add(make_workload(cpus=5))
    set_nodes(world, default=1, second=1, third=1)
    await world.settle()
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == []

    set_nodes(world, third=8)
    await world.until_quiet()

    assert world.observed.reservations == ["a"]
    assert world.free(flavor="third") == 5


@pytest.mark.parametrize(
    ("happens", "keeps_progress", "flavor"),
    [
        pytest.param("nothing", True, "second", id="goes on"),
        pytest.param("it changes", True, "default", id="begins anew for another request"),
        pytest.param("its namespace changes", True, "default", id="begins anew for what its namespace adds"),
        pytest.param("it comes back", True, "default", id="begins anew after an admission"),
        pytest.param("it may be tried again", True, "second", id="goes on for the same request"),
        pytest.param("it may be tried again", False, "default", id="begins anew where no progress is kept"),
    ],
)
async def test_where_the_scan_of_flavors_begins(
    make: Callable[..., Scheduled], happens: str, keeps_progress: bool, flavor: str
) -> None:
    """What was remembered of a try is of use for the same request only, until it is admitted."""
    settings = LoopSettings(scan=ScanRules(keeps_progress=keeps_progress))
    world = make(*make_racks("default", "second"), settings=settings)
    world.add(make_workload(cpus=5))
    set_nodes(world, default=1, second=8)
    assert not await world.cycle()
    if happens == "it changes":
        world.client.put(WORKLOADS, make_workload(cpus=6))
    elif happens == "its namespace changes":
        spec = {"limits": [{"type": "Container", "default": {"cpu": "9"}}]}
        bounds = read(wire_core.LimitRange, {"metadata": {"name": "bounds", "namespace": "ns"}, "spec": spec})
        world.cache.requests.on_limit_range(None, bounds)
        for workload in world.workloads.values():
            world.intake.on_workload(workload, workload)
    elif happens == "it may be tried again":
        requeued = {"type": "Requeued", "status": "True", "reason": "BackoffFinished"}
        stored = world.client.object(WORKLOADS, "ns/a")
        assert stored is not None
        conditions = stored["status"]["conditions"]
        world.client.change(WORKLOADS, "ns/a", {"status": {"conditions": [*conditions, requeued]}})
    elif happens == "it comes back":
        assert await world.cycle()
        world.sync()
        conditions = [condition("QuotaReserved", "False", "PendingEvaluation"), condition("Admitted", "False")]
        world.client.change(WORKLOADS, "ns/a", {"status": {"admission": None, "conditions": conditions}})
    world.sync()
    set_nodes(world, default=8)

    assert await world.cycle()

    found = world.workload()
    assert found is not None
    assert found["status"]["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": flavor}


async def test_the_time_of_cycles_is_added_up(make: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that had nobody to try take none."""
    world = make()
    monkeypatch.setattr(world.clock, "monotonic", iter(range(100)).__next__)
    world.add(make_workload())
    assert await world.cycle()
    once = world.loop.busy
    assert once > 0

    assert not await world.cycle()
    assert world.loop.busy == once
    world.add(make_workload("b", minute=1))
    assert await world.cycle()
    assert world.loop.busy == 2 * once


async def test_cycles_without_success_slow_down(make: Callable[..., Scheduled]) -> None:
    """The pause doubles up to its bound, and a success ends it."""
    world = make(settings=LoopSettings(retry_base=1, retry_max=4))
    world.add(*(make_workload(f"w{n}", cpus=20 + n, minute=n) for n in range(4)))
    await world.settle()
    world.start()
    pauses = []
    for _ in range(4):
        await world.clock.advance(0)
        pauses.append(world.clock.next_wake())
        await world.clock.advance(pauses[-1] or 0)

    assert pauses == [2, 4, 4, 4]


# --- failed hosts ----------------------------------------------------------------------------------------------------


def placed(name: str = "a", *, unhealthy: tuple[str, ...] = ("h1",), required: str = "rack", **hosts: int) -> Any:
    """An admitted Workload with pods of one cpu on these hosts."""
    total = sum(hosts.values())
    workload = make_workload(name, pods=total, status=reserved(pods=total))
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": required}
    (held,) = workload["status"]["admission"]["podSetAssignments"]
    values = [{"universal": next(iter(hosts))}] if len(hosts) == 1 else [{"individual": {"roots": list(hosts)}}]
    counts = {"individual": list(hosts.values())}
    slices = [{"domainCount": len(hosts), "valuesPerLevel": values, "podCounts": counts}]
    held["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    workload["status"]["unhealthyNodes"] = [{"name": host} for host in unhealthy]
    return workload


def hospital(make: Callable[..., Scheduled], *workloads: Any, settings: LoopSettings | None = None, **cpus: int) -> Any:
    """A world of hosts in one rack, where these Workloads are due for their second pass."""
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]
    world = make(
        (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": levels}}),
        (RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "all"}, topologyName="dc")),
        settings=settings,
    )
    world.sync()
    for host, amount in cpus.items():
        labels = {"rack": "r1", HOST: host, "pool": "all"}
        node = {
            "metadata": {"name": f"node-{host}", "labels": labels},
            "status": {"allocatable": {"cpu": str(amount), "pods": "9"}, "conditions": [condition("Ready")]},
        }
        world.intake.on_node(None, from_api.node_facts(read(wire_core.Node, node)))
    world.add(*workloads)
    for workload in workloads:
        world.second_pass.ask(f"ns/{workload['metadata']['name']}")
        world.second_pass.ready(f"ns/{workload['metadata']['name']}")
    world.pauses.clear()
    return world


def hosts_of(world: World, name: str = "a") -> dict[str, int]:
    """Host -> pods, as the server has it."""
    obj = read(wire.Workload, world.workload(name) or {})
    stored = obj.status.admission.pod_set_assignments[0].topology_assignment
    return {domain.values[-1]: domain.count for domain in from_api.assignment(stored).domains}


@pytest.mark.parametrize(
    "unhealthy",
    [
        pytest.param(("h1",), id="listed by its host name"),
        pytest.param(("node-h1",), id="listed by the name of its node"),
    ],
)
async def test_failed_hosts_are_replaced_by_one_patch(make: Callable[..., Scheduled], unhealthy: tuple[str]) -> None:
    """The other pods stay, the list of failed hosts is empty, and nothing else of the status is touched."""
    world = hospital(make, placed(h1=2, h2=2, unhealthy=unhealthy), h2=2, h3=2)
    before = world.workload()

    assert await world.cycle()

    after = world.workload()
    assert hosts_of(world) == {"h2": 2, "h3": 2}
    assert "unhealthyNodes" not in after["status"]
    assert after["status"]["conditions"] == before["status"]["conditions"]
    assert [str(call) for call in world.client.writes()] == ["patch workloads ns/a/status"]
    assert world.second_pass.take() == []
    assert world.pauses == []


def columns(**hosts: int) -> list[Any]:
    """The slices of an assignment."""
    return [
        {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": pods}}
        for host, pods in hosts.items()
    ]


async def test_only_pods_that_have_not_ended_are_replaced(make: Callable[..., Scheduled]) -> None:
    """One of two pods on the failed host has ended, and one on the other, which therefore has room.  The new domains are
    of what is left, so nothing is given back of them yet.
    """
    gang = placed(h1=2, h2=2)
    gone = {"levels": [HOST], "slices": columns(h1=1, h2=1)}
    gang["status"] |= {
        "reclaimablePods": [{"name": "main", "count": 2}],
        "finishedPods": [{"name": "main", "topologyAssignment": gone}],
    }
    world = hospital(make, gang, h2=2)

    assert await world.cycle()

    assert hosts_of(world) == {"h2": 2}
    assert "finishedPods" not in world.workload()["status"]
    world.sync()
    assert world.cache.audit() == []
    assert world.cache.ledger.free_by_node()["node-h2"]["cpu"] == 0


async def test_a_new_host_is_charged_before_the_write_ends_and_given_back_if_it_fails(
    make: Callable[..., Scheduled],
) -> None:
    """While it is written no head gets the host; when the write fails, the Workload asks for another pass."""
    world = hospital(make, placed(h1=2), h3=2)
    world.client.open.clear()
    world.client.fail(UnreachableError("no answer"))
    assert await world.loop.cycle()
    world.add(make_workload("b", cpus=2, minute=1))

    assert not await world.loop.cycle()
    world.client.open.set()
    await world.loop.drain()

    assert hosts_of(world) == {"h1": 2}
    assert world.pauses == [1.0]
    world.second_pass.ready("ns/a")
    assert await world.cycle()
    assert hosts_of(world) == {"h3": 2}


async def test_an_event_on_the_way_does_not_give_a_new_host_away(make: Callable[..., Scheduled]) -> None:
    """The Workload's old domains come by the watch while the new ones are written: no head gets the host."""
    world = hospital(make, placed(h1=2), h3=2)
    world.client.open.clear()
    assert await world.loop.cycle()
    world.client.change(WORKLOADS, "ns/a", {"metadata": {"labels": {"any": "change"}}})
    world.add(make_workload("b", cpus=2, minute=1))

    assert not await world.loop.cycle()

    world.client.open.set()
    await world.loop.drain()
    assert hosts_of(world) == {"h3": 2}


async def test_what_changed_meanwhile_is_not_overwritten(make: Callable[..., Scheduled]) -> None:
    """Another host failed between the decision and the write: the decision is dropped, the next pass takes both."""
    world = hospital(make, placed(h1=1, h2=1), h2=1, h3=2)
    world.client.open.clear()
    assert await world.loop.cycle()
    world.client.change(WORKLOADS, "ns/a", {"status": {"unhealthyNodes": [{"name": "h1"}, {"name": "h2"}]}})
    world.client.open.set()
    await world.loop.drain()
    assert hosts_of(world) == {"h1": 1, "h2": 1}

    world.sync()
    world.second_pass.ready("ns/a")
    assert await world.cycle()

    assert hosts_of(world) == {"h3": 2}


async def test_a_repair_is_of_the_places_that_are_held_when_it_is_written(make: Callable[..., Scheduled]) -> None:
    """A pod on the failed host ended meanwhile, and its place was given back: one pod is to be replaced, not two."""
    world = hospital(make, placed(h1=2, h2=1), h2=1, h3=2)
    world.client.open.clear()
    assert await world.loop.cycle()
    gone = {"levels": [HOST], "slices": columns(h1=1)}
    ended = {
        "reclaimablePods": [{"name": "main", "count": 1}],
        "finishedPods": [{"name": "main", "topologyAssignment": gone}],
    }
    world.client.change(WORKLOADS, "ns/a", {"status": ended})
    world.client.open.set()
    await world.loop.drain()
    assert hosts_of(world) == {"h1": 2, "h2": 1}

    world.sync()
    world.second_pass.ready("ns/a")
    assert await world.cycle()

    assert hosts_of(world) == {"h2": 1, "h3": 1}


async def test_a_gang_that_cannot_be_mended_is_evicted(make: Callable[..., Scheduled]) -> None:
    """The condition names the nodes and what is short; the list is cleared."""
    world = hospital(make, placed(h1=2, h2=2), h2=2, h3=1)

    assert not await world.cycle()

    after = world.workload()
    assert status_of(after, "Evicted") == ("True", "NodeFailures")
    for fact in ("h1", "2 pods do not fit", "level rack"):
        assert fact in message_of(after, "Evicted")
    assert "unhealthyNodes" not in after["status"]
    assert len(world.observed.not_mended_messages) == 1
    assert world.pauses == []


FAILED_TWICE = {"name": "h1", "count": 2, "lastFailureTime": "2026-01-01T00:00:00Z"}
"""At the moment at which the fake clock starts."""


def failed_twice_on_h1(workload: Any) -> Any:
    """The workload remembers this."""
    workload["status"]["nodeFailures"] = [FAILED_TWICE]
    return workload


async def test_pods_leave_a_node_on_which_they_failed_repeatedly_while_another_has_room(
    make: Callable[..., Scheduled],
) -> None:
    """The node itself is well and has room; what is remembered stays."""
    world = hospital(make, failed_twice_on_h1(placed(h1=2, h2=2)), h1=9, h2=2, h3=2)

    assert await world.cycle()

    assert hosts_of(world) == {"h2": 2, "h3": 2}
    assert world.workload()["status"]["nodeFailures"] == [FAILED_TWICE]
    assert world.observed.not_mended_messages == []


async def test_pods_stay_on_a_node_on_which_they_failed_when_no_other_has_room(make: Callable[..., Scheduled]) -> None:
    """Nobody is evicted: the list is cleared, the user is told, and later changes are followed as ever."""
    world = hospital(make, failed_twice_on_h1(placed(h1=2, h2=2)), h1=2, h2=2)

    assert await world.cycle()

    after = world.workload()
    assert hosts_of(world) == {"h1": 2, "h2": 2}
    assert "unhealthyNodes" not in after["status"]
    assert status_of(after, "Evicted") == ("", "")
    (message,) = world.observed.not_mended_messages
    assert "Pods stay on h1" in message
    assert world.cache.holding("ns/a").replaces is None
    assert world.second_pass.take() == []


async def test_a_workload_gets_no_node_on_which_it_failed_repeatedly(make: Callable[..., Scheduled]) -> None:
    """Until a day has passed; h1 would be the tighter fit."""
    world = hospital(make, h1=1, h2=2)
    for name in ("a", "b"):
        workload = make_workload(name, status={"nodeFailures": [FAILED_TWICE]})
        workload["spec"]["podSets"][0]["topologyRequest"] = {"required": HOST}
        world.add(workload)
        assert await world.cycle()
        await world.clock.advance(24 * 3600)

    assert (hosts_of(world, "a"), hosts_of(world, "b")) == ({"h2": 1}, {"h1": 1})


@pytest.mark.parametrize(
    ("hosts", "settings"),
    [
        pytest.param({"h2": 2, "h3": 1}, LoopSettings(fail_fast=False), id="when failing fast is switched off"),
        pytest.param({"h3": 9}, LoopSettings(), id="while another of its hosts is out of use and not listed"),
    ],
)
async def test_a_second_pass_in_vain_is_tried_again_after_growing_pauses(
    make: Callable[..., Scheduled], hosts: dict[str, int], settings: LoopSettings
) -> None:
    """Nothing is written; the pauses double up to half a minute."""
    world = hospital(make, placed(h1=2, h2=2), settings=settings, **hosts)

    for _ in range(7):
        assert not await world.cycle()
        world.second_pass.ready("ns/a")

    assert world.client.writes() == []
    assert world.pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert len(world.observed.not_mended_messages) == 7


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"status": {"unhealthyNodes": None}}, id="its node has come back"),
        pytest.param({"status": {"unhealthyNodes": [{"name": "h9"}]}}, id="it does not stand on the failed node"),
        pytest.param({"spec": {"active": False}}, id="it is switched off"),
    ],
)
async def test_a_second_pass_that_is_not_needed_any_more_does_nothing(
    make: Callable[..., Scheduled], change: dict[str, Any]
) -> None:
    """It is forgotten, and may be asked for again."""
    world = hospital(make, placed(h1=2), h3=2)
    world.client.change(WORKLOADS, "ns/a", change)
    world.sync()

    assert not await world.cycle()

    assert world.client.writes() == []
    world.second_pass.ask("ns/a")
    assert world.pauses == [1.0]


async def test_the_damaged_come_before_the_heads(make: Callable[..., Scheduled]) -> None:
    """There is room for one: the gang that holds the rest of its hosts gets it."""
    world = hospital(make, placed(h1=2, h2=2), h2=2, h3=2)
    world.add(make_workload("b", cpus=2, priority=9))

    assert await world.cycle()

    assert hosts_of(world) == {"h2": 2, "h3": 2}
    assert world.observed.reservations == []
