"""Where workloads stand in their lines, as people are told."""

from __future__ import annotations

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


def test_who_is_set_aside_or_elsewhere_stands_in_no_line() -> None:
    """What they wait for is said by the try that set them aside, or by nobody."""
    queues, lines, _ = make("a", "b")
    queues.pop_heads(lambda _: True)
    queues.requeue("ns/a", RequeueReason.NO_FIT)

    assert [lines.describe(key) for key in ("ns/a", "ns/no")] == [None, None]
    assert [lines.is_at_front(key) for key in ("ns/a", "ns/b", "ns/no")] == [False, True, False]
