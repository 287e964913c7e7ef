"""Sessions end when their time is over, and one user does not take the places of all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqueue.clock import FakeClock
from kqueue.page.sessions import PageSession, SessionLimits, Sessions

LIMITS = SessionLimits(most=4, most_of_user=2, idle=100.0, absolute=1000.0)


class Kept:
    """Sessions on a fake clock, and the askers whose sessions have ended."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ended: list[str] = []
        self.sessions = Sessions[str](clock=self.clock, limits=LIMITS, on_end=self.ended.append)

    def begin(self, asker: str) -> str:
        """Begin a session of a user with one token."""
        return self.sessions.begin(asker, asker)


async def test_an_identifier_is_long_and_never_the_same() -> None:
    """Also for one user, so that nobody can guess or keep one."""
    kept = Kept()
    first, second = kept.begin("ann"), kept.begin("ann")

    assert first != second
    assert min(len(first), len(second)) >= 43  # 256 bits


async def idle(kept: Kept, session: PageSession[str], _: str) -> None:
    await kept.clock.advance(101)


async def used_for_long(kept: Kept, session: PageSession[str], identifier: str) -> None:
    for _ in range(11):
        await kept.clock.advance(99)
        kept.sessions.find(identifier)


async def read_for_long(kept: Kept, session: PageSession[str], _: str) -> None:
    session.answering = 1
    await kept.clock.advance(1001)


async def ended(kept: Kept, session: PageSession[str], identifier: str) -> None:
    kept.sessions.end(identifier)


async def ended_with_its_asker(kept: Kept, session: PageSession[str], _: str) -> None:
    kept.sessions.end_of("ann")


ENDS = [idle, used_for_long, read_for_long, ended, ended_with_its_asker]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.replace("_", " "))
async def test_a_session_that_is_over_is_not_found(end: Callable[[Kept, PageSession[str], str], object]) -> None:
    """The end of a session ends its streams, and releases its asker once."""
    kept = Kept()
    identifier = kept.begin("ann")
    session = kept.sessions.find(identifier)
    assert session is not None
    await end(kept, session, identifier)  # type: ignore[misc]
    kept.sessions.sweep()

    assert kept.sessions.find(identifier) is None
    assert session.ended.is_set()
    assert kept.ended == ["ann"]


async def looked_at(kept: Kept, identifier: str, session: PageSession[str]) -> None:
    kept.sessions.find(identifier, touch=False)


async def used(kept: Kept, identifier: str, session: PageSession[str]) -> None:
    kept.sessions.find(identifier)


async def reading(kept: Kept, identifier: str, session: PageSession[str]) -> None:
    session.answering = 1
    kept.sessions.sweep()


@pytest.mark.parametrize(("act", "stays"), [(looked_at, False), (used, True), (reading, True)])
async def test_what_counts_as_use(act: Callable[..., object], stays: bool) -> None:
    """A page that only looks whether it is signed in does not keep its session."""
    kept = Kept()
    identifier = kept.begin("ann")
    session = kept.sessions.find(identifier)
    assert session is not None
    await kept.clock.advance(60)
    await act(kept, identifier, session)  # type: ignore[misc]
    await kept.clock.advance(60)

    assert (kept.sessions.find(identifier) is not None) == stays


async def test_forged_identifiers_are_nobodys() -> None:
    """Whatever a client sends as a cookie."""
    kept = Kept()
    identifier = kept.begin("ann")

    for forged in ("", identifier[:-1], identifier + "x", identifier.upper(), "\udcff", "x" * 100_000):
        assert kept.sessions.find(forged) is None
        kept.sessions.end(forged)
    assert kept.sessions.find(identifier) is not None


async def test_a_user_ends_its_own_oldest_session_and_no_other() -> None:
    """Signing in again and again takes no place of other people."""
    kept = Kept()
    other = kept.begin("bob")
    mine = []
    for _ in range(10):
        mine.append(kept.begin("ann"))
        await kept.clock.advance(1)

    assert [kept.sessions.find(each) is not None for each in mine] == [False] * 8 + [True] * 2
    assert kept.sessions.find(other) is not None


async def test_a_full_server_takes_nobody_until_a_session_is_over() -> None:
    """It never ends the session of one user for another one."""
    kept = Kept()
    for name in ("ann", "bob", "cid", "dan"):
        kept.begin(name)
    with pytest.raises(OverflowError):
        kept.begin("eve")
    await kept.clock.advance(101)

    assert kept.begin("eve")
    assert len(kept.sessions) == 1
