"""Who among many is to be told something."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers import owed as module
from kqueue.controllers.owed import Owed
from tests.unit.controllers.builders import condition, make_workload, read

NAMES = ("a", "b", "c")


def says(name: str, reason: str | None) -> wire.Workload:
    """A Workload that waits for this reason; None: it says nothing."""
    conditions = [condition("QuotaReserved", "False", reason)] if reason is not None else []
    workload: wire.Workload = read(wire.Workload, make_workload(name, status={"conditions": conditions}))
    return workload


def told(owed: Owed, *names: str) -> None:
    """The watch brings that a try has said something of them."""
    for name in names:
        owed.observe(None, says(name, "WaitingForQuota"))


@pytest.mark.parametrize(
    ("reasons", "first"),
    [
        pytest.param([None], True, id="it says nothing"),
        pytest.param(["PendingEvaluation"], True, id="no cycle has tried it"),
        pytest.param(["Suspended"], True, id="its queue was stopped"),
        pytest.param(["WaitingForQuota"], False, id="a try has said why"),
        pytest.param([None, "WaitingForQuota"], False, id="it has been told"),
        pytest.param(["WaitingForQuota", "PendingEvaluation"], True, id="it is to be tried anew"),
    ],
)
def test_who_is_owed_a_first_word(reasons: list[str | None], first: bool) -> None:
    """As its condition says now; nobody who is gone is."""
    owed, before = Owed(FakeClock()), None
    for reason in reasons:
        now = says("a", reason)
        owed.observe(before, now)
        before = now

    assert owed.is_first("ns/a") is first
    assert list(owed.among(["ns/a"])) == (["ns/a"] if first else [])
    owed.observe(before, None)
    assert not owed.is_first("ns/a")
    assert list(owed.among(["ns/a"])) == []


@pytest.mark.parametrize(
    ("note", "want"),
    [
        pytest.param(lambda o: None, [], id="nothing is noted"),
        pytest.param(lambda o: o.tell_again("ns/a", 5, 9), ["ns/a"], id="its time has come"),
        pytest.param(lambda o: o.tell_again("ns/a", 6, 9), [], id="its time is to come"),
        pytest.param(lambda o: [o.tell_again("ns/a", n, 9) for n in (5, 6)], [], id="it was put off"),
        pytest.param(lambda o: [o.tell_again("ns/a", n, 9) for n in (6, 4)], ["ns/a"], id="it was brought forward"),
        pytest.param(lambda o: [o.tell_again("ns/a", 1, 9), o.forget_again("ns/a")], [], id="it was forgotten"),
        pytest.param(lambda o: o.tell_again("ns/x", 1, 9), [], id="it is not one of them"),
        pytest.param(lambda o: o.observe(None, says("a", None)), ["ns/a"], id="a first word"),
        pytest.param(
            lambda o: [o.tell_again("ns/a", 1, 9), o.observe(None, says("a", None))], ["ns/a"], id="both, named once"
        ),
    ],
)
@pytest.mark.parametrize("asked", [["ns/a"], [f"ns/{n}" for n in range(99)] + ["ns/a"]], ids=["few", "many"])
async def test_who_is_owed_something(note: Callable[[Owed], object], want: list[str], asked: Collection[str]) -> None:
    """After five seconds, among those who are asked about."""
    clock = FakeClock()
    owed = Owed(clock)
    told(owed, *NAMES)
    note(owed)
    await clock.advance(5)

    assert list(owed.among(asked)) == want
    assert list(owed.among(asked)) == want
    assert owed.is_due("ns/a") is (want == ["ns/a"] and owed.again("ns/a") is not None)


async def test_a_time_that_was_taken_to_be_used_has_not_come() -> None:
    """Once it is noted anew, also where it had been found."""
    clock = FakeClock()
    owed = Owed(clock)
    owed.tell_again("ns/a", 1, 1)
    await clock.advance(1)
    assert list(owed.among(["ns/a"])) == ["ns/a"]
    owed.tell_again("ns/a", 2, 2)

    assert list(owed.among(["ns/a"])) == []
    await clock.advance(2)
    assert list(owed.among(["ns/a"])) == ["ns/a"]


async def test_no_more_times_are_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was noted first goes; notes of one over and over take no room."""
    monkeypatch.setattr(module, "MOST", 3)
    clock = FakeClock()
    owed = Owed(clock)
    for name in "abc":
        owed.tell_again(name, 1, 1)
    for _ in range(1000):
        owed.tell_again("a", 1, 1)
    owed.tell_again("d", 1, 1)
    await clock.advance(1)

    assert [name for name in "abcd" if owed.again(name)] == ["a", "c", "d"]
    assert set(owed.among("abcd")) == {"a", "c", "d"}
    assert len(owed._heap) < 100
