"""The scheduling loop: what is decided is charged at once, and nobody is lost whatever becomes of the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import CLUSTER_QUEUES, WORKLOADS
from kqueue.errors import ApiError, ConflictError, NotFoundError, ServerError, UnreachableError
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import condition, make_cluster_queue, make_workload, read, reserved, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import TEAMS, three_teams

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


@pytest.mark.mechanism("0.12", "3.21")
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


async def test_the_one_write_of_an_admission_says_that_pods_are_waited_for(make: Callable[..., Scheduled]) -> None:
    """No further write is needed before the pods are ready."""
    world = make(settings=LoopSettings(waits_for_ready=True))
    world.add(make_workload())
    await world.cycle()

    assert len(world.client.writes()) == 1
    assert status_of(world.workload(), "PodsReady") == ("False", "WaitForStart")


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
@pytest.mark.mechanism("3.12")
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


@pytest.mark.mechanism("3.12")
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
    assert [holding.key for holding in world.cache.held.holdings()] == ["ns/new"]


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
