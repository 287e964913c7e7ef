"""Where workloads stand in their lines, as people are told."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from kqueue.clock import FakeClock
from kqueue.controllers.lines import Lines
from kqueue.state.queues import Pending, Queues, RequeueReason, Strategy

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_pending(uid: str) -> Pending:
    return Pending(key=f"ns/{uid}", uid=uid, local_queue="ns/main", priority=0, timestamp=NOW, shape=uid, version="1")


def make(*uids: str, usage: Callable[[str], float] | None = None) -> tuple[Queues, Lines, FakeClock]:
    """ClusterQueue `team` with workloads in the order of their uids."""
    clock, queues = FakeClock(), Queues(lambda: NOW)
    queues.set_cluster_queue("team", Strategy.BEST_EFFORT_FIFO, usage=usage)
    queues.set_local_queue("ns/main", "team")
    for uid in uids:
        queues.push(make_pending(uid))
    return queues, Lines(queues, clock), clock


@pytest.mark.parametrize(
    ("usage", "order"),
    [
        pytest.param(None, "by priority and age", id="as a rule"),
        pytest.param(lambda _: 1.0, "by use, priority and age", id="where use counts"),
    ],
)
def test_a_place_tells_by_what_the_line_goes(usage: Callable[[str], float] | None, order: str) -> None:
    """Number, length, ClusterQueue and order."""
    _, lines, _ = make("a", "b", usage=usage)

    assert lines.describe("ns/b") == f"it was number 2 of 2 in the line of ClusterQueue team ({order})"


async def test_a_line_is_looked_at_once_in_some_seconds() -> None:
    """What has changed since is told later; who came since has no place yet."""
    queues, lines, clock = make("a", "b", "d")
    assert lines.is_at_front("ns/b")
    queues.delete("ns/a")
    queues.push(make_pending("c"))
    assert str(lines.describe("ns/b")).startswith("it was number 2 of 3")
    assert lines.describe("ns/c") is None

    await clock.advance(5.1)

    assert str(lines.describe("ns/b")).startswith("it was number 1 of 3")
    assert str(lines.describe("ns/c")).startswith("it was number 2 of 3")


def set_aside(queues: Queues, *uids: str) -> None:
    """They are tried in this order, and do not fit."""
    for uid in uids:
        assert [item.uid for _, item in queues.pop_heads(lambda _: True)] == [uid]
        queues.requeue(f"ns/{uid}", RequeueReason.NO_FIT)


async def test_who_was_set_aside_stands_among_all_that_wait() -> None:
    """Once somebody has looked; who waits nowhere stands nowhere."""
    queues, lines, _ = make("a", "b", "c")
    set_aside(queues, "a", "b")
    keys = ["ns/a", "ns/b", "ns/c", "ns/no"]
    assert [lines.is_at_front(key) for key in keys] == [False, False, True, False]
    assert lines.describe("ns/a") is None
    for key in keys:
        await lines.look(key)

    assert [lines.is_at_front(key) for key in keys] == [True, True, True, False]
    assert (
        lines.describe("ns/b") == "it was number 2 of 3 among all that wait in ClusterQueue team (by priority and age)"
    )
    assert lines.describe("ns/c") == "it was number 1 of 1 in the line of ClusterQueue team (by priority and age)"


async def test_one_look_at_all_that_wait_serves_for_some_seconds() -> None:
    """However many ask; then what has changed is seen."""
    queues, lines, clock = make("a", "b", "c")
    set_aside(queues, "a", "b", "c")
    await lines.look("ns/b")
    queues.delete("ns/a")
    await lines.look("ns/c")
    assert str(lines.describe("ns/c")).startswith("it was number 3 of 3")

    await clock.advance(5.1)
    assert lines.describe("ns/c") is None
    await lines.look("ns/c")

    assert str(lines.describe("ns/c")).startswith("it was number 2 of 2")


async def test_a_look_at_many_lets_others_run_and_stands_what_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are those of the moment when it began; of a queue that is gone meanwhile nobody has one."""
    monkeypatch.setattr("kqueue.controllers.lines._STEP", 1)
    queues, lines, _ = make("a", "b", "c")
    set_aside(queues, "a", "b", "c")
    look = asyncio.create_task(lines.look("ns/c"))
    await asyncio.sleep(0)
    assert not look.done()
    queues.delete("ns/a")
    await look
    assert str(lines.describe("ns/c")).startswith("it was number 3 of 3")

    queues.push(dataclasses.replace(make_pending("d"), priority=9))
    set_aside(queues, "d")
    again = Lines(queues, FakeClock())
    look = asyncio.create_task(again.look("ns/c"))
    await asyncio.sleep(0)
    queues.remove_cluster_queue("team")
    await look
    assert again.describe("ns/c") is None


async def test_far_behind_all_that_wait_places_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that many come before."""
    monkeypatch.setattr("kqueue.controllers.lines.FRONT", 2)
    queues, lines, _ = make("a", "b", "c")
    set_aside(queues, "a", "b", "c")
    await lines.look("ns/c")

    assert not lines.is_at_front("ns/c")
    assert lines.describe("ns/c") == (
        "more than 2 were before it among all that wait in ClusterQueue team (by priority and age)"
    )
