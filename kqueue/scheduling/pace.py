"""The pace of cycles: decides when the next cycle begins.

Cycles come in rounds: a round begins after an event, and goes on until every head was tried.  On a quiet cluster a
round begins at once.  Under load a round waits, so that new workloads and freed resources are decided together: until
most writes of the last decisions have ended, or until the end of a window, which grows with the time of writes.  After
a round without admissions only the window counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from kqueue.clock import Clock
from kqueue.runtime.deadline import within

_WEIGHT = 0.1
"""Weight of the newest write in the moving mean of write times: the mean follows about twenty writes."""
_DRAINED = 4
"""The writes that were running at the end of the last cycle have drained when this fraction (1/n) of them is left."""


_REST = 0.001
"""Seconds of rest after a cycle without admissions, however short it was, so that other tasks get a turn."""


_REST_FACTOR = 2
"""Rest between rounds, in multiples of the time of their cycles: cycles take at most a third of the time."""
_LONGEST_REST = 0.25
"""Longest such rest in seconds.  In a large cluster a round takes half a second: a rest of 1 s doubled latencies."""


_LOADED = 20.0
"""Rate of written decisions, per second, above which the API server counts as loaded."""


class WritePace:
    """Follows cycles and the writes of their decisions.  All times are seconds of the clock's monotonic time."""

    def __init__(self, clock: Clock, *, shortest: float, longest: float) -> None:
        """`shortest` and `longest` bound the window."""
        self._clock, self._shortest, self._longest = clock, shortest, longest
        self._begun = float("-inf")
        self._rest_until = float("-inf")
        self._took = 0.0
        """Seconds of the cycles of this round."""
        self._enough = -1
        """Number of remaining writes at which they have drained; -1: the window has to pass."""
        self._writing = 0
        self._wrote_at = float("-inf")
        self._rate = 0.0
        """Writes per second at `_wrote_at`: each counts 1 at its end, and decays within about a second."""
        self._drained = asyncio.Event()
        self._mean: float | None = None

    @property
    def window(self) -> float:
        """Return seconds from the start of a cycle within which the next round begins under load."""
        return min(self._longest, max(self._shortest, self._mean or 0.0))

    @property
    def quiet_for(self) -> float:
        """Return seconds since the last write of a decision has ended; 0 while one is running."""
        return 0.0 if self._writing > 0 else self._clock.monotonic() - self._wrote_at

    @property
    def is_loaded(self) -> bool:
        """Whether many decisions a second are being written."""
        return self._faded(self._clock.monotonic()) >= _LOADED

    def _faded(self, now: float) -> float:
        return self._rate * math.exp(self._wrote_at - now) if self._rate else 0.0

    # --- events

    def write_begins(self) -> Callable[[], None]:
        """Record the start of a decision's write; call the returned function once, at the write's end."""
        begun = self._clock.monotonic()
        self._writing += 1

        def ended() -> None:
            self._writing -= 1
            now = self._clock.monotonic()
            self._rate, self._wrote_at = self._faded(now) + 1.0, now
            took = self._wrote_at - begun
            self._mean = took if self._mean is None else self._mean + _WEIGHT * (took - self._mean)
            if self._writing <= self._enough:
                self._drained.set()

        return ended

    def cycle_ended(self, *, begun: float, admitted: bool) -> None:
        """Record the end of a cycle with heads; `begun` is the time of its start."""
        now = self._clock.monotonic()
        self._begun, took = begun, now - begun
        self._took += took
        self._rest_until = now if admitted else now + min(self._longest, max(_REST, took))
        self._enough = self._writing // _DRAINED if admitted else -1
        self._drained.clear()
        if self._writing <= self._enough:
            self._drained.set()

    # --- the next cycle

    async def turn(self, *, goes_on: bool) -> None:
        """Wait until the next cycle may begin.

        `goes_on`: the round goes on with workloads behind the heads of the last cycle.  After a cycle without
        admissions they are tried at once, because there is no write to wait for.
        """
        if not (goes_on and self._enough < 0):
            await self._wait_drained(self._begun + self.window)
        if not goes_on:
            self._rest_until += min(_LONGEST_REST, _REST_FACTOR * self._took)
            self._took = 0.0
        rest = self._rest_until - self._clock.monotonic()
        if rest > 0:
            await self._clock.sleep(rest)

    async def _wait_drained(self, until: float) -> None:
        left = until - self._clock.monotonic()
        if left > 0 and not self._drained.is_set():
            with suppress(TimeoutError):
                await within(self._clock, left, self._until_drained())

    async def _until_drained(self) -> None:
        await self._drained.wait()
