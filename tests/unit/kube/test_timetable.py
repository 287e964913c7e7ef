"""The timetable: each key at its earliest time, and nobody who keeps time for nothing."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from kqueue.clock import FakeClock
from kqueue.kube.timetable import Timetable


@pytest.mark.parametrize(
    ("script", "want"),
    [
        pytest.param([("add", "a", 5), ("to", 4.9)], [], id="not-before-its-time"),
        pytest.param([("add", "a", 5), ("to", 9)], [(5, "a")], id="at-its-time-and-once"),
        pytest.param([("add", "a", 5), ("add", "a", 2), ("to", 9)], [(2, "a")], id="the-earlier-time-wins"),
        pytest.param([("add", "a", 2), ("add", "a", 5), ("to", 9)], [(2, "a")], id="a-later-time-loses"),
        pytest.param([("add", "b", 3), ("add", "a", 1), ("to", 9)], [(1, "a"), (3, "b")], id="in-order-of-time"),
        pytest.param(
            [("add", "b", 5), ("to", 1), ("add", "a", 1), ("to", 9)], [(2, "a"), (5, "b")], id="who-comes-in-between"
        ),
        pytest.param([("add", "a", 1), ("to", 2), ("add", "a", 1), ("to", 9)], [(1, "a"), (3, "a")], id="and-again"),
        pytest.param([("add", "a", 1), ("add", "b", 2), ("drop", "a"), ("to", 9)], [(2, "b")], id="dropped"),
        pytest.param([("add", "a", 1), ("drop", "a"), ("add", "a", 3), ("to", 9)], [(3, "a")], id="later-after-all"),
        pytest.param([("drop", "a"), ("to", 9)], [], id="what-is-not-there-may-be-dropped"),
        pytest.param([("add", "a", 1), ("clear",), ("to", 2), ("add", "b", 1), ("to", 9)], [(3, "b")], id="cleared"),
        pytest.param(
            [("add", "z", 7), *(("add", f"{n}", 5.0) for n in range(200)), *(("drop", f"{n}") for n in range(200)),
             ("add", "a", 6), ("to", 9)], [(6, "a"), (7, "z")], id="many-that-went",
        ),
    ],
)  # fmt: skip
async def test_keys_are_due_at_their_times(script: list[tuple[Any, ...]], want: list[tuple[float, str]]) -> None:
    """After a series of calls and of time passing; then nobody sleeps any more."""
    clock = FakeClock()
    due: list[tuple[float, str]] = []
    timetable = Timetable(clock, lambda key: due.append((clock.monotonic(), key)))

    for step in script:
        match step:
            case ("to", until):
                await clock.advance(until - clock.monotonic())
            case (method, *rest):
                getattr(timetable, method)(*rest)

    assert due == want
    if script[-1] == ("to", 9):
        assert (len(timetable), clock.next_wake()) == (0, None)


async def test_who_is_due_may_be_added_again_at_once() -> None:
    """Also sooner than all others."""
    clock = FakeClock()
    due: list[float] = []

    def again(key: str) -> None:
        due.append(clock.monotonic())
        if len(due) < 3:
            timetable.add(key, 1)

    timetable = Timetable(clock, again)
    timetable.add("a", 1)
    timetable.add("b", 9)
    await clock.advance(4)

    assert due == [1, 2, 3]
    assert len(timetable) == 1
    timetable.clear()


async def test_what_fails_at_its_time_keeps_nobody_from_theirs() -> None:
    """The next key is due all the same."""
    clock, due = FakeClock(), list[str]()

    def on_due(key: str) -> None:
        due.append(key)
        if key == "bad":
            raise ZeroDivisionError

    table = Timetable(clock, on_due)
    table.add("bad", 1)
    table.add("good", 1)
    with structlog.testing.capture_logs():
        await clock.advance(2)

    assert due == ["bad", "good"]
