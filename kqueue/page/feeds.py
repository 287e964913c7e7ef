"""Feeds: one answer of the cluster each, asked for again while someone reads it, and sent on when it has changed.

A feed asks once for all its readers, so fifty open pages cost the cluster as much as one.  A reader that is slow misses
versions in between, because it gets the newest one when it is ready; one that takes nothing for a while is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import structlog

from kqueue.clock import Clock
from kqueue.errors import ApiError, KqueueError
from kqueue.isolation import isolated_logged

JSON = dict[str, Any]
Ask = Callable[[], Awaitable[JSON]]
Change = Callable[[JSON, JSON], JSON | None]
"""Returns the difference of two answers for readers that have the first one; None: send the second one whole."""

_AFTER_FAILURE_SECONDS = 5.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeedVersion:
    """One version of an answer.

    Args:
        number: counts from 1.
        answer: the answer, or an error; it is not changed any more.
        change: the difference to the version before, encoded; empty: there is none to send.
    """

    number: int
    answer: JSON
    change: bytes = b""

    @cached_property
    def whole(self) -> bytes:
        """The answer, encoded when the first reader needs it: readers of the version before take the difference."""
        return msgspec.json.encode(self.answer)


class Feed:
    """One answer, renewed every `seconds` while it has readers."""

    def __init__(self, ask: Ask, *, clock: Clock, seconds: float, change: Change | None = None) -> None:
        self._ask, self._clock, self._seconds, self._change = ask, clock, seconds, change
        self._answer: JSON | None = None
        self._now: FeedVersion | None = None
        self._news = asyncio.Condition()
        self._readers = 0
        self._work: asyncio.Task[None] | None = None
        self._answered_at: float | None = None

    @property
    def has_readers(self) -> bool:
        """Whether anyone reads the feed."""
        return self._readers > 0

    @property
    def age(self) -> float | None:
        """The seconds since the last answer without an error, by which readers see the cluster; None: there is none."""
        return None if self._answered_at is None else self._clock.monotonic() - self._answered_at

    async def versions(self) -> AsyncGenerator[bytes, None]:
        """Yield the answer whole, and then each difference, or the whole again where a version was missed.

        The feed asks as long as at least one such iterator is open; close it with `aclosing`.
        """
        self._readers += 1
        if self._work is None:
            self._now = self._answer = self._answered_at = None  # it may be old
            self._work = asyncio.create_task(self._renew(), name="feed")
        try:
            seen = 0
            while True:
                now = await self._newer_than(seen)
                is_next = now.number == seen + 1 and bool(now.change)
                yield now.change if is_next else now.whole
                seen = now.number
        finally:
            self._readers -= 1
            if not self._readers and self._work is not None:
                self._work.cancel()
                self._work = None

    async def _newer_than(self, seen: int) -> FeedVersion:
        async with self._news:
            await self._news.wait_for(lambda: self._now is not None and self._now.number > seen)
            assert self._now is not None, "the condition above has waited for a version"
            return self._now

    async def _renew(self) -> None:
        """Ask again and again.  A failure is a version, too, so that readers see it."""
        number = 0
        while True:
            answer = await self._answered()
            if "error" not in answer:
                self._answered_at = self._clock.monotonic()
            if answer != self._answer:
                number += 1
                change = None
                if self._change is not None and self._answer is not None and "error" not in {**answer, **self._answer}:
                    change = self._change(self._answer, answer)
                version = FeedVersion(
                    number=number,
                    answer=answer,
                    change=msgspec.json.encode({"change": change}) if change is not None else b"",
                )
                self._answer = answer
                async with self._news:
                    self._now = version
                    self._news.notify_all()
            await self._clock.sleep(min(self._seconds, _AFTER_FAILURE_SECONDS) if "error" in answer else self._seconds)

    async def _answered(self) -> JSON:
        with isolated_logged(_log, "a feed of the page failed") as asking:
            try:
                return await self._ask()
            except ApiError as e:
                return {"error": str(e), "reason": e.reason}
            except KqueueError as e:
                return {"error": str(e), "reason": ""}
        return {"error": f"a bug in kqueue: {asking.error}", "reason": "Bug"}
