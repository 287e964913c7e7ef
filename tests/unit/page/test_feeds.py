"""Feeds ask only while they are read, once for all readers, and send what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from kqueue.clock import FakeClock
from kqueue.errors import ForbiddenError
from kqueue.page.feeds import Feed

JSON = dict[str, Any]


class Source:
    """Answers that a test sets, and the number of questions."""

    def __init__(self) -> None:
        self.answer: JSON = {"n": 1}
        self.error: Exception | None = None
        self.asked = 0

    async def ask(self) -> JSON:
        """Return the present answer."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        return dict(self.answer)


def feed_of(source: Source, clock: FakeClock, **more: Any) -> Feed:
    return Feed(source.ask, clock=clock, seconds=2.0, **more)


async def following(versions: AsyncGenerator[bytes, None]) -> JSON:
    return msgspec.json.decode(await anext(versions), type=JSON)


async def test_a_feed_without_readers_asks_nothing() -> None:
    """It begins with its first reader and ends with its last one."""
    source, clock = Source(), FakeClock()
    feed = feed_of(source, clock)
    await clock.advance(60)
    assert source.asked == 0

    async with aclosing(feed.versions()) as versions:
        assert await following(versions) == {"n": 1}
        await clock.advance(60)
        while_read = source.asked
    await clock.advance(60)

    assert while_read > 10
    assert source.asked == while_read
    assert not feed.has_readers


async def test_many_readers_cost_as_much_as_one() -> None:
    """All get the same version."""
    source, clock = Source(), FakeClock()
    feed = feed_of(source, clock)
    readers = [feed.versions() for _ in range(50)]

    got = await asyncio.gather(*(following(reader) for reader in readers))

    assert got == [{"n": 1}] * 50
    assert source.asked == 1
    for reader in readers:
        await reader.aclose()


async def test_equal_answers_are_one_version() -> None:
    """Nothing is sent while nothing changes."""
    source, clock = Source(), FakeClock()
    async with aclosing(feed_of(source, clock).versions()) as versions:
        await following(versions)
        waiting = asyncio.ensure_future(following(versions))
        await clock.advance(10)
        assert not waiting.done()
        source.answer = {"n": 2}
        await clock.advance(2)
        assert await waiting == {"n": 2}


async def test_a_reader_that_has_the_version_before_gets_the_change() -> None:
    """One that has missed a version gets the newest one whole: a slow reader holds nothing up."""
    source, clock = Source(), FakeClock()
    feed = feed_of(source, clock, change=lambda before, after: {"from": before["n"], "to": after["n"]})
    async with aclosing(feed.versions()) as quick, aclosing(feed.versions()) as slow:
        await following(quick)
        await following(slow)
        for number in (2, 3):
            source.answer = {"n": number}
            await clock.advance(2)
            assert await following(quick) == {"change": {"from": number - 1, "to": number}}

        assert await following(slow) == {"n": 3}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ForbiddenError("no right", status=403, reason="Forbidden"), {"error": "no right", "reason": "Forbidden"}),
        (KeyError("items"), {"error": "a bug in kqueue: 'items'", "reason": "Bug"}),
    ],
)
async def test_a_failure_is_shown_and_ends_with_the_next_answer(error: Exception, shown: JSON) -> None:
    """The page stays, says why it has no answer, and gets the whole answer after it: never a change of a failure."""
    source, clock = Source(), FakeClock()
    async with aclosing(feed_of(source, clock, change=lambda *_: {"never": 1}).versions()) as versions:
        await following(versions)
        source.error = error
        await clock.advance(2)
        assert await following(versions) == shown
        source.error = None
        await clock.advance(2)

        assert await following(versions) == {"n": 1}


async def test_a_failure_is_soon_asked_again() -> None:
    """Also where answers are renewed seldom: a cluster that was away for a moment is shown within seconds."""
    source, clock = Source(), FakeClock()
    source.error = ForbiddenError("no", status=403, reason="Forbidden")
    async with aclosing(Feed(source.ask, clock=clock, seconds=30.0).versions()) as versions:
        assert "error" in await following(versions)
        source.error = None
        await clock.advance(5)

        assert await following(versions) == {"n": 1}


async def test_a_new_reader_after_a_pause_gets_no_old_answer() -> None:
    """What was true before the pause is not shown as if it were true now."""
    source, clock = Source(), FakeClock()
    feed = feed_of(source, clock)
    async with aclosing(feed.versions()) as versions:
        await following(versions)
    source.answer = {"n": 9}

    async with aclosing(feed.versions()) as versions:
        assert await following(versions) == {"n": 9}
