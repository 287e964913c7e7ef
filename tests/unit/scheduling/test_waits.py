"""Reasons for waiting: the newest counts, few are written at once, and nothing is said twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import WORKLOADS
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.workload import PodSet
from kqueue.runtime.lane import Lane
from kqueue.runtime.turns import Turns
from kqueue.scheduling.waits import News, PendingReasons, Why, news
from kqueue.scheduling.writes import Writes
from kqueue.state.waiting import cause_of
from tests.unit.controllers.builders import JSON, condition, make_workload, message_of, read, status_of
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]


class Telling:
    """A world of workloads, and what tells them why they wait."""

    def __init__(self, world: Scheduled, *names: str, at_once: int = 9, details_after: float = 5.0) -> None:
        self.world, self.held = world, set[str]()
        self.decides = False
        self.writes = Writes(world.writer, in_flight=9)
        self.waits = PendingReasons(
            writes=self.writes,
            is_held=self.held.__contains__,
            observer=world.observed,
            clock=world.clock,
            at_once=at_once,
            details_after=details_after,
            turns=Turns(world.clock, lambda: 0.0 if self.decides else 10.0),
        )
        world.add(*map(make_workload, names))

    def tell(
        self,
        name: str,
        reason: str,
        message: str = "none is left",
        *,
        pod_sets: tuple[PodSet, ...] | None = None,
        briefly: bool = False,
        gated: bool = False,
    ) -> None:
        obj = self.world.writer.newest(f"ns/{name}")
        assert obj is not None
        self.waits.report(f"ns/{name}", obj, Why(reason, message, pod_sets, gated), briefly=briefly)

    async def written(self) -> list[tuple[str, str]]:
        """Who was told what, once all is written that there is."""
        self.world.client.open.set()
        await self.writes.drain()
        return self.world.observed.waiting

    def words(self) -> list[str]:
        """What was written of why workloads wait, in order."""
        said = [call.body["status"]["conditions"] for call in self.world.client.writes(subresource="status")]
        return [cause_of(c["message"]) for conditions in said for c in conditions if c["type"] == "QuotaReserved"]

    def says(self, name: str, reason: str, message: str) -> None:
        """Somebody else writes why a workload waits."""
        said = [condition("QuotaReserved", "False", reason, message), NOT_ADMITTED]
        self.world.client.change(WORKLOADS, f"ns/{name}", {"status": {"conditions": said}})
        self.world.sync()


def told(*conditions: JSON) -> wire.Workload:
    workload: wire.Workload = read(wire.Workload, make_workload(status={"conditions": list(conditions)}))
    return workload


NOT_ADMITTED = condition("Admitted", "False", "NoReservation")
SAYS_5 = condition("QuotaReserved", "False", "Waits", "5 are left")
SAYS_ALL = condition("QuotaReserved", "False", "Waits", "5 are left (2026-01-01 00:00Z); see kqueue explain a -n ns")


@pytest.mark.parametrize(
    ("conditions", "why", "briefly", "want"),
    [
        pytest.param([], Why("Waits", "5 are left"), False, News.REASON, id="nothing was said yet"),
        pytest.param([], Why("Waits", "5 are left"), True, News.REASON, id="nor briefly"),
        pytest.param([SAYS_5, NOT_ADMITTED], Why("Waits", "5 are left"), False, News.NOTHING, id="said already"),
        pytest.param([SAYS_ALL, NOT_ADMITTED], Why("Waits", "5 are left"), False, News.NOTHING, id="with a command"),
        pytest.param([SAYS_5, NOT_ADMITTED], Why("Waits", "3 are left"), False, News.NOTHING, id="other figures"),
        pytest.param([SAYS_5, NOT_ADMITTED], Why("Waits", "none fits"), False, News.DETAILS, id="another cause"),
        pytest.param([SAYS_ALL, NOT_ADMITTED], Why("Waits", "none fits"), False, News.DETAILS, id="instead of all"),
        pytest.param([SAYS_5, NOT_ADMITTED], Why("Waits", "none fits"), True, News.NOTHING, id="the reason counts"),
        pytest.param([SAYS_5, NOT_ADMITTED], Why("Never", "5 are left"), False, News.REASON, id="another reason"),
        pytest.param([SAYS_5, NOT_ADMITTED], Why("Never", "5 are left"), True, News.REASON, id="even briefly"),
        pytest.param(
            [condition("QuotaReserved", "True", "Waits", "5 are left"), NOT_ADMITTED],
            Why("Waits", "5 are left"), False, News.REASON, id="it had quota",
        ),
        pytest.param([SAYS_5, NOT_ADMITTED], Why("Waits", "none fits", gated=True), False, News.REASON, id="a gate keeps it"),
        pytest.param(
            [SAYS_5, NOT_ADMITTED, condition("BlockedOnPreemptionGates")],
            Why("Waits", "none fits", gated=True), False, News.DETAILS, id="as it says already",
        ),
        pytest.param([SAYS_5], Why("Waits", "3 are left"), False, News.REASON, id="it does not say it is not admitted"),
    ],
)  # fmt: skip
def test_what_is_news(conditions: list[JSON], why: Why, briefly: bool, want: News) -> None:
    """A reason is, and so is another cause; other figures of the same cause are not."""
    assert news(told(*conditions), why, briefly=briefly) is want


Step = Callable[[Telling], None] | float
"""What happens, or seconds that pass."""


def tell(message: str, reason: str = "Waits", **more: Any) -> Step:
    return lambda telling: telling.tell("a", reason, message, **more)


def gone(telling: Telling) -> None:
    telling.world.client.drop(WORKLOADS, "ns/a")
    telling.world.sync()


async def test_reasons_for_waiting_have_a_lane_of_their_own(make: Make) -> None:
    """Decisions do not wait behind them."""
    telling = Telling(make(), "a")

    telling.tell("a", "WaitingForQuota")
    await telling.written()

    assert [call.lane for call in telling.world.client.writes()] == [Lane.WORDS]


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        pytest.param([tell("n8")], ["n8"], id="the first word comes at once"),
        pytest.param([tell("n8"), 1.0, tell("no", "Never")], ["n8", "no"], id="and so does another reason"),
        pytest.param([tell("n8"), 60.0, tell("n7"), 4.9], ["n8"], id="other details do not"),
        pytest.param([tell("n8"), 60.0, tell("n7"), 5.0], ["n8", "n7"], id="they come when their time has come"),
        pytest.param([tell("n8"), 1.0, tell("n7"), 4.0, tell("n6"), 1.0], ["n8", "n6"], id="the newest ones do"),
        pytest.param(
            [*(step for n in range(20) for step in (tell(f"n{n}"), 1.0)), 5.0],
            ["n0", "n5", "n10", "n15", "n19"], id="and once in so long, however often they change",
        ),
        pytest.param([tell("n8"), 1.0, tell("n7"), 1.0, tell("n8"), 9.0], ["n8"], id="it is again as it was"),
        pytest.param([tell("n8"), 1.0, tell("n7"), tell("no", "Never"), 9.0], ["n8", "no"], id="a reason overtakes them"),
        pytest.param(
            [tell("n8"), 1.0, tell("n7"), tell("no", "Never"), 0.0, tell("n6"), 9.0],
            ["n8", "no", "n6"], id="and is overtaken by the one before at once",
        ),
        pytest.param([tell("n8"), 1.0, tell("n7"), tell("x", briefly=True), 9.0], ["n8", "n7"], id="passing words do not"),
        pytest.param([tell("n8"), 1.0, tell("n7"), lambda t: t.held.add("ns/a"), 9.0], ["n8"], id="it was admitted"),
        pytest.param([tell("n8"), 1.0, tell("n7"), gone, 9.0], ["n8"], id="it is gone"),
        pytest.param(
            [tell("n8"), 1.0, tell("n7"), lambda t: t.says("a", "Suspended", "held"), 9.0],
            ["n8"], id="somebody else has said something else",
        ),
        pytest.param(
            [tell("n8"), 1.0, tell("n7"), lambda t: t.says("a", "Waits", "n6"), 9.0],
            ["n8"], id="or the same with newer details",
        ),
    ],
)  # fmt: skip
async def test_details_are_told_by_and_by(make: Make, steps: list[Step], want: list[str]) -> None:
    """Where the reason stays the same, the newest details follow some seconds after the first change."""
    telling = Telling(make(), "a")
    for step in steps:
        if isinstance(step, float):
            await telling.world.clock.advance(step)
        else:
            step(telling)
    await telling.writes.drain()

    assert telling.words() == want


async def test_nobody_keeps_time_where_all_is_told(make: Make) -> None:
    """Once the newest details are written, nothing is to come."""
    telling = Telling(make(), "a", "b")
    for message in ("n8", "n7", "n6"):
        telling.tell("a", "Waits", message)
        telling.tell("b", "Waits", message)
        await telling.world.clock.advance(1)
    await telling.world.clock.advance(5)

    assert sorted(telling.words()) == ["n6", "n6", "n8", "n8"]
    assert telling.world.clock.next_wake() is None


@pytest.mark.parametrize(
    ("reason", "briefly", "want"),
    [
        pytest.param("Waits", False, ["n8", "n7"], id="other details follow later"),
        pytest.param("Waits", True, ["n8"], id="passing words do not"),
        pytest.param("Never", True, ["n8", "n7"], id="another reason does at once"),
    ],
)
async def test_what_comes_while_a_reason_is_written(make: Make, reason: str, briefly: bool, want: list[str]) -> None:
    """What is being written counts as said."""
    telling = Telling(make(), "a")
    telling.world.client.open.clear()
    telling.tell("a", "Waits", "n8")
    await telling.world.clock.advance(0)
    telling.tell("a", reason, "n7", briefly=briefly)
    await telling.written()
    assert telling.words() == (want if reason == "Never" else ["n8"])
    await telling.world.clock.advance(5)

    assert telling.words() == want


async def test_the_time_of_details_passes_while_the_reason_that_overtook_them_is_written(make: Make) -> None:
    """They are forgotten, and it is written once."""
    telling = Telling(make(), "a", at_once=1)
    telling.tell("a", "Waits", "n8")
    await telling.written()
    telling.tell("a", "Waits", "n7")
    telling.world.client.open.clear()
    telling.tell("a", "Never", "no")
    await telling.world.clock.advance(9)
    await telling.written()

    assert telling.words() == ["n8", "no"]
    telling.tell("a", "Waits", "n6")
    await telling.written()
    assert telling.words() == ["n8", "no", "n6"]


async def test_details_that_are_on_their_way_are_written_as_they_are_now(make: Make) -> None:
    """Those who wait for their turn to be written, and not over what somebody else has said meanwhile."""
    telling = Telling(make(), "a", "b", "c", at_once=1)
    for name in ("a", "b", "c"):
        telling.tell(name, "Waits", "n8")
    await telling.written()
    for name in ("a", "b", "c"):
        telling.tell(name, "Waits", "n7")
    telling.world.client.open.clear()
    await telling.world.clock.advance(5)
    for name in ("b", "c"):
        telling.tell(name, "Waits", "n6")
    telling.says("c", "Suspended", "held")
    await telling.written()

    assert telling.words() == ["n8", "n8", "n8", "n7", "n6"]


async def test_a_try_after_somebody_else_has_spoken_has_the_last_word(make: Make) -> None:
    """Also where details of before are on their way."""
    telling = Telling(make(), "a")
    telling.tell("a", "Waits", "n8")
    await telling.written()
    telling.tell("a", "Waits", "n7")
    telling.world.client.open.clear()
    await telling.world.clock.advance(5)
    telling.says("a", "Suspended", "held")
    telling.tell("a", "Waits", "n6")
    await telling.written()

    assert telling.words()[-1] == "n6"
    assert message_of(telling.world.workload(), "QuotaReserved") == "n6"


async def test_details_outlive_a_pause(make: Make) -> None:
    """Who leads no more tells nobody; who leads again tells those whom nobody has told anything else."""
    telling = Telling(make(), "a", "b")
    for message in ("n8", "n7"):
        telling.tell("a", "Waits", message)
        telling.tell("b", "Waits", message)
        await telling.written()
    telling.waits.pause()
    await telling.world.clock.advance(60)
    assert telling.words() == ["n8", "n8"]
    telling.says("b", "Waits", "n2")
    telling.waits.resume()
    await telling.world.clock.advance(5)

    assert telling.words() == ["n8", "n8", "n7"]


async def test_details_come_at_once_where_that_is_wanted(make: Make) -> None:
    """Also those that change while others are written."""
    telling = Telling(make(), "a", details_after=0)
    telling.tell("a", "Waits", "n8")
    await telling.written()
    telling.world.client.open.clear()
    telling.tell("a", "Waits", "n7")
    await telling.world.clock.advance(0)
    telling.tell("a", "Waits", "n6")
    await telling.written()

    assert telling.words() == ["n8", "n7", "n6"]


async def test_only_the_newest_reason_is_written(make: Make) -> None:
    """What came while a write is under way follows it; what was overtaken before its turn is never written."""
    telling = Telling(make(), "a", "b", at_once=1)
    telling.world.client.open.clear()
    telling.tell("a", "First")
    await telling.world.clock.advance(0)
    for reason in ("Second", "Third"):
        telling.tell("a", reason)
        telling.tell("b", reason)

    assert await telling.written() == [("a", "First"), ("a", "Third"), ("b", "Third")]


async def test_what_is_asked_for_is_told_with_the_reason(make: Make) -> None:
    """Each workload says what it costs in quota with all its pods, also where another one asks for the same."""
    telling = Telling(make(), "a", "b", "c", "d")
    two, five = (
        (PodSet(request=PodSetRequest(name="main", count=count, requests={}), quota_requests={"cpu": 500}),)
        for count in (2, 5)
    )
    for name, pod_sets in zip("abcd", (two, five, two, None), strict=True):
        telling.tell(name, "Waits", pod_sets=pod_sets)
    await telling.written()

    told = [(telling.world.workload(name) or {})["status"].get("resourceRequests") for name in "abcd"]
    asks_two, asks_five = ([{"name": "main", "resources": {"cpu": cpus}}] for cpus in ("1", "2500m"))
    assert told == [asks_two, asks_five, asks_two, None]


async def test_no_more_are_told_at_once_than_may_be(make: Make) -> None:
    """The others come later, and nobody is left out."""
    names = [f"w{n}" for n in range(7)]
    telling = Telling(make(), *names, at_once=3)
    telling.world.client.open.clear()
    for name in names:
        telling.tell(name, "Waits")
    await telling.world.clock.advance(0)

    assert len(telling.world.client.calls) == 3

    assert sorted(await telling.written()) == [(name, "Waits") for name in names]


@pytest.mark.parametrize(
    ("reason", "message", "more", "writes"),
    [
        pytest.param("Waits", "5 of 8 are left", {}, 1, id="who says it already is not written to"),
        pytest.param("Waits", "3 of 8 are left", {}, 1, id="nor for other figures"),
        pytest.param("Waits", "no node is left", {}, 2, id="another cause is, by and by"),
        pytest.param("Waits", "no node is left", {"briefly": True}, 1, id="unless only the reason counts"),
        pytest.param("Never", "5 of 8 are left", {"briefly": True}, 2, id="which is another one"),
        pytest.param("Waits", "5 of 8 are left", {"gated": True}, 2, id="that a gate keeps it is news"),
    ],
)
async def test_what_a_workload_says_already_is_not_written(
    make: Make, reason: str, message: str, more: dict[str, Any], writes: int
) -> None:
    """Neither is it reported again."""
    telling = Telling(make(), "a")
    telling.tell("a", "Waits", "5 of 8 are left")
    await telling.written()
    telling.tell("a", reason, message, **more)
    await telling.world.clock.advance(5)

    assert len(await telling.written()) == writes
    assert len(telling.world.client.calls) == writes


async def test_a_reason_on_its_way_is_overtaken_by_what_the_workload_says_now(make: Make) -> None:
    """What is being written is older than what it says, so that is written once more."""
    telling = Telling(make(), "a")
    telling.tell("a", "Old")
    await telling.written()
    telling.world.client.open.clear()
    telling.tell("a", "Passing")
    await telling.world.clock.advance(0)
    telling.tell("a", "Old", briefly=True)
    await telling.written()

    assert status_of(telling.world.workload(), "QuotaReserved") == ("False", "Old")
    assert message_of(telling.world.workload(), "QuotaReserved") == "none is left"


async def test_who_is_admitted_before_its_turn_is_told_nothing(make: Make) -> None:
    """An old reason does not go over an admission."""
    telling = Telling(make(), "a")
    telling.tell("a", "Waits")
    telling.held.add("ns/a")

    assert await telling.written() == []
    assert telling.world.client.calls == []


async def test_a_bug_on_one_workload_silences_no_other(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are told; and so is that one the next time."""
    world = make()
    telling, write = Telling(world, "bad", "good", at_once=1), world.writer.write
    failed = list[str]()

    async def failing(key: str, *rest: Any, **more: Any) -> Any:
        if key == "ns/bad" and not failed:
            failed.append(key)
            raise ZeroDivisionError
        return await write(key, *rest, **more)

    monkeypatch.setattr(world.writer, "write", failing)
    telling.tell("bad", "Waits")
    telling.tell("good", "Waits")
    assert await telling.written() == [("good", "Waits")]
    telling.tell("bad", "Waits")

    assert await telling.written() == [("good", "Waits"), ("bad", "Waits")]


def more_than_a_burst(world: Scheduled, workloads: int) -> Telling:
    """While decisions are being written, each of these workloads (`w0`, `w1`, ...) gets a first reason."""
    telling = Telling(world, *(f"w{i}" for i in range(workloads)))
    telling.decides = True
    for i in range(workloads):
        telling.tell(f"w{i}", "Waits")
    return telling


async def test_while_decisions_are_written_reasons_are_written_at_a_bounded_rate(make: Make) -> None:
    """Some at once, then ten a second; the rest follows as soon as the decisions are written."""
    telling = more_than_a_burst(make(), 100)
    clock, waiting = telling.world.clock, telling.world.observed.waiting
    await clock.advance(0, turns=500)
    assert 38 <= len(waiting) <= 41
    await clock.advance(1.0, turns=500)
    assert 48 <= len(waiting) <= 51
    telling.decides = False
    await clock.advance(0.5, turns=500)
    assert len(waiting) == 100


async def test_no_reason_is_written_for_a_workload_that_is_admitted_before_its_turn(make: Make) -> None:
    telling = more_than_a_burst(make(), 60)
    await telling.world.clock.advance(0)
    telling.held.update(f"ns/w{i}" for i in range(50, 60))
    await telling.world.clock.advance(5)

    assert len(telling.world.observed.waiting) == 50


async def test_the_end_of_the_loop_does_not_wait_for_turns(make: Make) -> None:
    """All reasons that are left are written at once, so that no workload waits for the next leader to write them."""
    telling = more_than_a_burst(make(), 60)
    await telling.world.clock.advance(0)
    telling.waits.pause()

    assert len(await telling.written()) == 60
