"""Clocks as values, and how times are written.

No other code of kqueue reads the system's clock, so that tests and simulations can replace it.

Like `errors` this module imports nothing of ours, and every room but the core may import it
(the core receives `now` as a value).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec


def short_span(seconds: int) -> str:
    """Write a time span, not negative, in one or two units, as kubectl writes ages: `45s`, `3m5s`, `7h30m`, `3y10d`.

    The second unit is written only for short spans of the first one.  Source: Kubernetes `duration.HumanDuration`.
    """
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(many: int, unit: str, rest: int, small: str) -> str:
    return f"{many}{unit}{rest}{small}" if rest else f"{many}{unit}"


def utc_text(moment: datetime, *, digits: int = 0) -> str:
    """Write an aware time as RFC 3339 in UTC, with so many digits of a second (at most 6), cut and not rounded.

    Every admission is stamped in half a dozen places, and `isoformat` takes ten times as long.
    """
    text: str = msgspec.to_builtins(moment.astimezone(UTC))
    if not digits:
        return text[:19] + "Z"
    if not moment.microsecond:
        text = text[:19] + ".000000"
    return text[: 20 + digits] + "Z"


def api_time(text: str | None) -> datetime | None:
    """Return the moment that a timestamp of the API names; None when there is none, or it cannot be read."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def moment_after(moment: datetime, span: timedelta) -> datetime:
    """Return the moment `span` later (or earlier), or the last moment that can be written (or the first).

    Times in objects are input: any moment may be in them.
    """
    try:
        return moment + span
    except OverflowError:
        last = datetime.max.replace(microsecond=0, tzinfo=moment.tzinfo)  # as it is read back from where it is written
        return last if span > timedelta(0) else datetime.min.replace(tzinfo=moment.tzinfo)


class Clock(Protocol):
    """Where a component takes its time from."""

    def now(self) -> datetime:
        """Return the wall time, timezone-aware UTC: for times in objects."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back: for measuring time spans."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once, but after one turn of the loop, if not positive."""
        ...


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_seconds = _boot_time if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
"""A virtual machine that was paused must know that its lease is over."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the system's monotonic seconds, on Linux with the time in which the machine was suspended."""
        return _seconds()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(max(0.0, seconds))


class FakeClock:
    """A clock that only `advance` moves.

    `advance` wakes sleepers in the order of their deadlines and lets the loop run between them, so the work of
    a sleeper at its time ends before the next one wakes.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """Return the start plus the time advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced past now + `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        await woken

    def next_wake(self) -> float | None:
        """Return the seconds until the earliest sleeper's deadline; None when no task sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] - self._elapsed if self._sleepers else None

    async def advance(self, seconds: float, *, turns: int = 20) -> None:
        """Move time on by `seconds`; before it moves and after each wake-up the loop gets `turns` turns."""
        await _turn(turns)  # a task that was just made goes to sleep now, not after the time has passed
        target = self._elapsed + seconds
        while True:
            wait = self.next_wake()
            if wait is None or self._elapsed + wait > target:
                break
            deadline, _, woken = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, deadline)
            woken.set_result(None)
            await _turn(turns)
        self._elapsed = target
        await _turn(turns)


async def _turn(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
