"""A workload that breaks scheduling: found, tried twice, left alone; everybody else is admitted meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import structlog

from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from kqueue.core import cycle as core_cycle
from kqueue.core import flavors
from kqueue.core.claims import Claims
from kqueue.core.preemption import candidates
from kqueue.errors import ServerError
from kqueue.scheduling.admissions import Admissions
from kqueue.state import status
from kqueue.state.holding import Holding
from kqueue.state.requests import Requests
from tests.unit.controllers.builders import (
    make_cluster_queue,
    make_local_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]
Plant = pytest.MonkeyPatch
AGAIN = "kqueue.dev/try-again"
TEAMS = ("red", "green", "blue")
QUARANTINED = ("False", "Quarantined")


def teams(**red: Any) -> list[Any]:
    """A ClusterQueue of ten cpus and a LocalQueue for each team; `red` is said of that one alone."""
    return [
        pair
        for team in TEAMS
        for pair in (
            (CLUSTER_QUEUES, make_cluster_queue(team, **(red if team == "red" else {}))),
            (LOCAL_QUEUES, make_local_queue(team, cluster_queue=team)),
        )
    ]


def name_in(*given: Any) -> bool:
    """Whether the workload `ns/bad` is among what a function was given."""
    seen: list[Any] = []
    for each in given:
        seen += each if isinstance(each, list | tuple) else [each]
    for each in seen:
        head = getattr(each, "head", each)
        key = getattr(head, "key", None) or getattr(getattr(head, "metadata", None), "name", None)
        if key in ("ns/bad", "bad"):
            return True
    return False


@pytest.fixture(autouse=True)
def told() -> Iterator[list[Any]]:
    """What is logged, without the seconds that a drawn traceback takes."""
    with structlog.testing.capture_logs() as lines:
        yield lines


class Fault:
    """A function that fails on the workload `bad`, and as it was before on all others."""

    def __init__(self, plant: Plant, where: Any, name: str, *, times: int = 10**6) -> None:
        self.calls, self._left, self._whole = 0, times, getattr(where, name)
        fault = self

        def broken(*args: Any, **more: Any) -> Any:
            if name_in(*args, *more.values()) and fault._left > 0:
                fault.calls, fault._left = fault.calls + 1, fault._left - 1
                raise ZeroDivisionError("planted")
            return fault._whole(*args, **more)

        plant.setattr(where, name, broken)


PLACES = [
    pytest.param(Requests, "head", id="reading the workload"),
    pytest.param(flavors, "assign", id="choosing flavors"),
    pytest.param(core_cycle._Cycle, "process", id="its turn in the cycle"),
    pytest.param(core_cycle._Cycle, "turns", id="the order of a whole cycle"),
    pytest.param(Admissions, "begin", id="charging it"),
]


async def ended(world: Scheduled) -> None:
    """Wait until the running loop has nothing more to do."""
    await world.until_quiet()
    await world.loop.drain()
    world.sync()


# --- who is found ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize(("where", "name"), PLACES)
async def test_who_breaks_the_planner_twice_is_left_alone_and_all_others_go_on(
    make: Make, monkeypatch: Plant, where: Any, name: str, strategy: str
) -> None:
    """It says so, is out of its queue, and stops neither its own queue nor the others."""
    world = make(*teams(queueingStrategy=strategy))
    world.add(make_workload("bad", queue="red"), make_workload("behind", queue="red", minute=1))
    world.add(*(make_workload(team, queue=team, minute=2) for team in TEAMS))
    fault = Fault(monkeypatch, where, name)
    world.start()

    await ended(world)

    assert sorted(world.observed.reservations) == ["behind", "blue", "green", "red"]
    assert fault.calls >= 2
    assert status_of(world.workload("bad"), "QuotaReserved") == QUARANTINED
    assert "ZeroDivisionError: planted" in message_of(world.workload("bad"), "QuotaReserved")
    assert AGAIN in message_of(world.workload("bad"), "QuotaReserved")
    assert not world.queues.is_known("ns/bad")
    assert [told[:2] for told in world.observed.quarantines] == [("bad", "red")]
    assert world.quarantine.by_queue() == {"red": 1}


async def test_a_whole_cycle_is_taken_apart_no_further_than_needed(make: Make, monkeypatch: Plant) -> None:
    """Of many heads on which the order fails, a few plans find the one: not one for each of them."""
    many = [f"team-{i}" for i in range(32)]
    world = make(
        *((CLUSTER_QUEUES, make_cluster_queue(team)) for team in many),
        *((LOCAL_QUEUES, make_local_queue(team, cluster_queue=team)) for team in many),
    )
    world.add(*(make_workload(f"of-{team}", queue=team) for team in many[1:]), make_workload("bad", queue=many[0]))
    fault = Fault(monkeypatch, core_cycle._Cycle, "turns")

    assert await world.cycle()

    assert len(world.observed.reservations) == 31
    assert fault.calls == 6  # 32, 16, 8, 4, 2, 1


async def test_who_broke_it_once_is_tried_again_and_forgiven(make: Make, monkeypatch: Plant) -> None:
    """A failure that passes costs a second, and is not counted with a later one."""
    world = make(*teams())
    Fault(monkeypatch, flavors, "assign", times=1)
    world.add(make_workload("bad", queue="red", cpus=20))
    world.start()

    await ended(world)

    assert status_of(world.workload("bad"), "QuotaReserved") == ("False", "ExceedsMaxQuota")
    Fault(monkeypatch, flavors, "assign", times=1)
    world.intake.retry_all()
    await ended(world)
    assert status_of(world.workload("bad"), "QuotaReserved") == ("False", "ExceedsMaxQuota")
    assert world.observed.quarantines == []


async def test_a_second_try_is_not_made_before_its_time(make: Make, monkeypatch: Plant) -> None:
    """Whatever the watch tells meanwhile: what passes by itself shall have passed."""
    world = make(*teams())
    fault = Fault(monkeypatch, flavors, "assign")
    world.add(make_workload("bad", queue="red"))
    world.start()
    await world.clock.advance(0.5)
    world.client.put(WORKLOADS, make_workload("bad", queue="red", metadata={"labels": {"new": "one"}}))
    world.sync()
    await world.clock.advance(0.4)

    assert fault.calls == 1
    await world.clock.advance(0.2)
    assert fault.calls == 2


async def test_a_workload_whose_admission_cannot_be_written_down_is_not_lost(make: Make, monkeypatch: Plant) -> None:
    """It has left its queue by then: what it was charged is given back, and it comes back, twice at most."""
    world = make(*teams())
    Fault(monkeypatch, status, "reserve")
    world.add(make_workload("bad", queue="red", cpus=6), make_workload("behind", queue="red", cpus=4, minute=1))
    world.start()

    await ended(world)

    assert status_of(world.workload("bad"), "QuotaReserved") == QUARANTINED
    assert world.observed.reservations == ["behind"]
    assert world.free("red") == 6


async def test_who_cannot_even_be_queued_is_told_so(make: Make, monkeypatch: Plant) -> None:
    """Nothing would ever try it, so it waits with a word; the next version of it is taken in as any other."""
    world = make(*teams())
    with monkeypatch.context() as plant:
        Fault(plant, Requests, "pending")
        world.start()
        await world.clock.advance(1)
        world.add(make_workload("bad", queue="red"), make_workload("behind", queue="red"))
        await ended(world)
    told = message_of(world.workload("bad"), "QuotaReserved")
    assert told.startswith("Taking it in fails on a bug in kqueue (ZeroDivisionError: planted)")
    assert world.observed.reservations == ["behind"]

    world.client.change(WORKLOADS, "ns/bad", {"spec": {"priority": 1}})
    world.sync()
    await ended(world)

    assert status_of(world.workload("bad"), "Admitted")[0] == "True"


# --- what they share -------------------------------------------------------------------------------------------------


def lower(**more: Any) -> dict[str, Any]:
    return {"preemption": {"withinClusterQueue": "LowerPriority"}, **more}


async def test_a_holder_that_cannot_be_looked_at_spoils_no_preemption(make: Make, monkeypatch: Plant) -> None:
    """It is not preempted; who preempts others is not blamed for it."""
    world = make(*teams(**lower()))
    Fault(monkeypatch, Holding, "_seen")
    world.add(
        make_workload("bad", queue="red", cpus=4, status=reserved(cpus=4, queue="red")),
        make_workload("low", queue="red", cpus=6, minute=1, status=reserved(cpus=6, queue="red")),
        make_workload("high", queue="red", cpus=6, priority=1),
    )
    world.start()

    await ended(world)

    assert world.observed.preemptions == [("low", "high")]
    assert world.observed.quarantines == []


@pytest.mark.parametrize("runs", [2, 9])
async def test_a_holder_on_whom_plans_fail_is_not_preempted_and_nobody_is_blamed(
    make: Make, monkeypatch: Plant, runs: int
) -> None:
    """The one among all that run is found; whoever wanted to preempt finds others."""
    world = make(*teams(**lower()))
    Fault(monkeypatch, candidates, "_yields")
    names = ["bad", *(f"low{i}" for i in range(runs - 1))]
    world.add(
        *(make_workload(n, queue="red", minute=i, status=reserved(queue="red")) for i, n in enumerate(names)),
        make_workload("rest", queue="red", cpus=10 - runs, priority=9, status=reserved(cpus=10 - runs, queue="red")),
        make_workload("high", queue="red", priority=1),
    )
    world.start()

    await ended(world)

    assert len(world.observed.preemptions) == 1
    assert world.observed.preemptions[0][0].startswith("low")
    assert world.quarantine.arrivals == 0


async def test_a_claim_that_breaks_every_plan_is_ended(make: Make, monkeypatch: Plant) -> None:
    """Room is kept for it no longer, it is blamed, and all others are planned in the same cycle."""
    world = make(*reversed(teams(**lower())))
    world.add(
        make_workload("low", queue="red", cpus=10, status=reserved(cpus=10, queue="red")),
        make_workload("bad", queue="red", cpus=6, priority=1),
    )
    await world.cycle()
    assert world.preemptions.has_claims
    whole = Claims.__init__

    def broken(self: Claims, snapshot: Any, claims: Any) -> None:
        if name_in(*claims):
            raise ZeroDivisionError("planted")
        whole(self, snapshot, claims)

    monkeypatch.setattr(Claims, "__init__", broken)
    world.add(make_workload("other", queue="blue"))

    assert await world.cycle()

    assert world.observed.reservations == ["other"]
    assert not world.preemptions.has_claims


@pytest.mark.parametrize("name", ["snapshot", "inactive"])
async def test_a_queue_that_cannot_be_looked_at_rests_and_blames_nobody(
    make: Make, monkeypatch: Plant, name: str
) -> None:
    """Its workloads wait, are in no quarantine, and start when it is well again; other queues go on."""
    world = make(*teams())
    owner = world.cache if name == "snapshot" else world.cache.quota
    whole = getattr(owner, name)

    def broken(queues: Any, *more: Any) -> Any:
        if queues == "red" or (not isinstance(queues, str) and "red" in queues):
            raise ZeroDivisionError("planted")
        return whole(queues, *more)

    with monkeypatch.context() as plant:
        plant.setattr(owner, name, broken)
        world.add(make_workload("waits", queue="red"), make_workload("other", queue="blue"))
        world.start()
        await world.clock.advance(30)
        assert world.observed.reservations == ["other"]
        assert world.quarantine.arrivals == 0
        assert world.loop.cycles < 50
    world.add(make_workload("next", queue="blue", minute=1))  # whatever wakes the loop
    await world.clock.advance(15)

    assert sorted(world.observed.reservations) == ["next", "other", "waits"]


async def test_where_nothing_can_be_planned_the_pauses_grow(make: Make, monkeypatch: Plant) -> None:
    """Nobody is to blame, nobody spins, and all go on when it is over."""
    world = make(*teams())
    asked: list[float] = []

    def broken(*_: Any) -> Any:
        asked.append(world.clock.monotonic())
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as plant:
        plant.setattr(world.cache, "snapshot", broken)
        world.add(*(make_workload(team, queue=team) for team in TEAMS))
        world.start()
        await world.clock.advance(60)
        assert world.quarantine.arrivals == 0
        moments = sorted(set(asked))
        gaps = [after - before for before, after in pairwise(moments)]
        assert gaps == sorted(gaps)
        assert gaps[-1] >= 10
        assert len(gaps) >= 8
    await world.clock.advance(30)

    assert sorted(world.observed.reservations) == sorted(TEAMS)


# --- who comes back --------------------------------------------------------------------------------------------------


async def quarantined(make: Make, plant: Plant) -> Scheduled:
    """A world in which `bad` is in quarantine, and the fault that brought it there is mended."""
    world = make(*teams())
    with plant.context() as planted:
        Fault(planted, flavors, "assign")
        world.add(make_workload("bad", queue="red"))
        world.start()
        await ended(world)
    assert status_of(world.workload("bad"), "QuotaReserved") == QUARANTINED
    return world


@pytest.mark.parametrize(
    ("change", "admitted"),
    [
        pytest.param({"spec": {"priority": 1}}, True, id="its spec changes"),
        pytest.param({"metadata": {"annotations": {AGAIN: "please"}}}, True, id="somebody asks for it"),
        pytest.param({"metadata": {"uid": "another"}}, True, id="another one of its name"),
        pytest.param({"metadata": {"labels": {"some": "label"}}}, False, id="a label is no reason"),
    ],
)
async def test_it_is_tried_again_when_it_changes(
    make: Make, monkeypatch: Plant, change: dict[str, Any], admitted: bool
) -> None:
    """And only then."""
    world = await quarantined(make, monkeypatch)

    world.client.change(WORKLOADS, "ns/bad", change)
    world.sync()
    world.intake.retry_all()
    await ended(world)

    assert (status_of(world.workload("bad"), "QuotaReserved")[0] == "True") is admitted
    assert len(world.quarantine.values()) == (0 if admitted else 1)


async def test_the_same_answer_to_the_annotation_does_not_free_it_twice(make: Make, monkeypatch: Plant) -> None:
    """One wish is one more try: it goes back at its second failure, and says so once more."""
    world = await quarantined(make, monkeypatch)
    Fault(monkeypatch, flavors, "assign")
    world.client.change(WORKLOADS, "ns/bad", {"metadata": {"annotations": {AGAIN: "1"}}})
    world.sync()

    await ended(world)

    assert world.quarantine.arrivals == 2
    assert "ns/bad" in world.quarantine


async def test_one_that_is_deleted_is_forgotten(make: Make, monkeypatch: Plant) -> None:
    """Nothing of it is left in any figure."""
    world = await quarantined(make, monkeypatch)

    world.client.drop(WORKLOADS, "ns/bad")
    world.sync()

    assert world.quarantine.by_queue() == {}


async def test_what_could_not_be_told_is_told_later(make: Make, monkeypatch: Plant) -> None:
    """The API server is away while it comes into quarantine; it says so when that is back."""
    world = make(*teams())
    Fault(monkeypatch, flavors, "assign")
    world.client.fail(ServerError("down", status=500), key="ns/bad", times=3)
    world.add(make_workload("bad", queue="red"))
    world.start()

    await ended(world)

    assert status_of(world.workload("bad"), "QuotaReserved") == QUARANTINED
    assert len(world.observed.quarantines) == 1


async def test_a_new_leader_tells_what_it_found_while_it_followed(make: Make, monkeypatch: Plant) -> None:
    """A follower takes Workloads in as well, and writes nothing before it leads."""
    world = make(*teams())
    with monkeypatch.context() as plant:
        Fault(plant, Requests, "pending")
        world.add(make_workload("bad", queue="red"))
    await world.settle()
    assert status_of(world.workload("bad"), "QuotaReserved") == ("", "")

    world.start()
    await ended(world)

    assert status_of(world.workload("bad"), "QuotaReserved") == QUARANTINED
