"""Own writes are waited for until the watch has them, their time is over, or newer ones need the room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kqueue.clock import FakeClock
from kqueue.runtime.own_writes import OwnWrites, PendingReleases

Writes = OwnWrites[str, int]
KEYS = ("a", "b", "c")


def memory(clock: FakeClock, left: list[str] | None = None) -> Writes:
    """A memory of two entries, 60 s each; a written value is its own version."""
    on_overdue = left.append if left is not None else lambda _key: None
    return OwnWrites(clock, 60.0, version_of=int, limit=2, on_overdue=on_overdue)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(lambda m: None, {"a": 5}, id="a write is waited for"),
        pytest.param(lambda m: m.echoed("a", 4), {"a": 5}, id="an older version is no echo"),
        pytest.param(lambda m: m.echoed("a", 5), {}, id="the same version is the echo"),
        pytest.param(lambda m: m.echoed("a", 6), {}, id="a newer version is an echo too"),
        pytest.param(lambda m: m.echoed("a", None), {}, id="the end of the object ends the wait"),
        pytest.param(lambda m: m.echoed("b", 9), {"a": 5}, id="the echo of another object ends nothing"),
        pytest.param(lambda m: m.forget("a"), {}, id="a failed write is forgotten"),
        pytest.param(lambda m: m.forget("b"), {"a": 5}, id="an unknown key is forgotten without effect"),
        pytest.param(lambda m: m.amend("a", 7), {"a": 7}, id="another value replaces the first"),
        pytest.param(lambda m: m.amend("b", 7), {"a": 5}, id="an unknown key cannot be amended"),
        pytest.param(lambda m: m.remember("a", 7), {"a": 7}, id="the newest write counts"),
        pytest.param(lambda m: (m.remember("b", 6), m.remember("c", 7)), {"b": 6, "c": 7}, id="the oldest makes room"),
        pytest.param(lambda m: m.clear(), {}, id="all can be forgotten"),
    ],
)
def test_how_a_write_leaves(change: Callable[[Writes], object], want: dict[str, int]) -> None:
    """What is still waited for after one change."""
    writes = memory(FakeClock())
    writes.remember("a", 5)

    change(writes)

    assert writes == want
    assert [key in writes for key in KEYS] == [key in want for key in KEYS]


@dataclass(frozen=True, slots=True)
class Overdue:
    """Seconds that pass, and keys that are waited for and that have left since."""

    seconds: float
    waiting: list[str]
    left: list[str]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Overdue(29.5, ["b", "a"], []), id="both in time"),
        pytest.param(Overdue(30.0, ["a"], ["b"]), id="one at its deadline"),
        pytest.param(Overdue(60.0, [], ["b", "a"]), id="both; a second write began its time anew"),
    ],
)
async def test_a_write_is_not_waited_for_beyond_its_timeout(case: Overdue) -> None:
    """`a` is written at 0 s and 30 s, `b` at 0 s."""
    clock, left = FakeClock(), list[str]()
    writes = memory(clock, left)
    writes.remember("a", 1)
    writes.remember("b", 1)
    await clock.advance(30)
    writes.remember("a", 2)

    await clock.advance(case.seconds)

    assert [key for key in KEYS if key in writes] == sorted(case.waiting)
    assert list(writes) == case.waiting
    assert left == case.left


async def test_a_deadline_is_kept_when_a_value_is_amended() -> None:
    """Doubt about a write does not lengthen the wait for it."""
    clock = FakeClock()
    writes = memory(clock)
    writes.remember("a", 1)
    await clock.advance(59)
    writes.amend("a", 2)

    await clock.advance(1)

    assert "a" not in writes


@pytest.mark.parametrize(
    ("seen", "behind", "newest"),
    [
        pytest.param(4, True, 5, id="older: wait, and decide on the write"),
        pytest.param(5, False, 5, id="as written"),
        pytest.param(6, False, 6, id="newer"),
    ],
)
def test_the_newer_of_watch_and_write_counts(seen: int, behind: bool, newest: int) -> None:
    """`newer` before `is_behind`, which forgets."""
    writes = memory(FakeClock())
    writes.remember("a", 5)

    assert (writes.newer("a", seen), writes.is_behind("a", seen)) == (newest, behind)
    assert ("a" in writes) is behind


def test_what_was_never_written_is_not_waited_for() -> None:
    """The watch's object is the newest then."""
    writes = memory(FakeClock())

    assert (writes.newer("a", 1), writes.is_behind("a", 1)) == (1, False)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that a gate may hold."""

    uid: str = "u"
    gated: bool = True
    resource_version: str = "1"


@pytest.mark.parametrize(
    ("doubted", "pod", "satisfied"),
    [
        pytest.param(False, Pod(), False, id="the pod as it was"),
        pytest.param(False, Pod(resource_version="2"), False, id="another change of it"),
        pytest.param(False, Pod(gated=False), True, id="its release"),
        pytest.param(True, Pod(), False, id="in doubt, the pod as it was"),
        pytest.param(True, Pod(resource_version="2"), True, id="in doubt, any change of it"),
        pytest.param(False, Pod(uid="other", gated=False), False, id="the release of another pod"),
    ],
)
def test_a_release_is_waited_for(doubted: bool, pod: Pod, satisfied: bool) -> None:
    """One event after a release at version 1, perhaps in doubt.  Another gang is not concerned."""
    releases = PendingReleases(FakeClock(), 60.0)
    releases.expect("g", "u")
    if doubted:
        releases.doubt("g", "u", "1")

    releases.observe("g", pod)

    assert (releases.satisfied("g"), releases.satisfied("h")) == (satisfied, True)


async def test_a_release_that_was_never_seen_is_given_up_after_its_timeout() -> None:
    """The newer release of the same gang is still waited for."""
    clock = FakeClock()
    releases = PendingReleases(clock, 60.0)
    releases.expect("g", "u")
    await clock.advance(30)
    releases.expect("g", "v")

    await clock.advance(30)
    releases.observed("g", "v")

    assert releases.satisfied("g")
    assert not releases._gangs
