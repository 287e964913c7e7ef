"""Measures how late the event loop runs timers: no call may block it for more than 50 ms."""

from __future__ import annotations

from collections import deque

import structlog

from kqueue.clock import Clock
from kqueue.observe.metrics import Metrics

_log = structlog.get_logger(__name__)


_LONG = 1.0
"""Lags of at least so many seconds are remembered."""


class LoopProbe:
    """Measures the lag of the event loop: how much longer a sleep takes than requested."""

    def __init__(self, *, clock: Clock, metrics: Metrics, interval: float, limit: float) -> None:
        """Measure every `interval` seconds; lags above `limit` seconds are logged, at most one line a minute."""
        self._clock, self._metrics = clock, metrics
        self._interval, self._limit = interval, limit
        self.worst = 0.0
        """Longest lag since the start, in seconds."""
        self._long: deque[tuple[float, float]] = deque(maxlen=100)
        """End and length of each remembered lag."""

    def worst_within(self, seconds: float) -> tuple[float, float] | None:
        """Return the longest lag that ended in the last `seconds`, and how long ago it ended.

        None: there was no lag of a second or more.
        """
        now = self._clock.monotonic()
        recent = [(lag, now - ended) for ended, lag in self._long if now - ended <= seconds]
        return max(recent, default=None)

    async def run(self) -> None:
        """Measure until cancelled."""
        quiet_until = 0.0
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(self._interval)
            now = self._clock.monotonic()
            lag = max(0.0, now - before - self._interval)
            self.worst = max(self.worst, lag)
            if lag >= _LONG:
                self._long.append((now, lag))
            self._metrics.loop_lag(lag)
            if lag > self._limit and now >= quiet_until:
                quiet_until = now + 60.0
                _log.warning("event loop was blocked", seconds=round(lag, 3), limit=self._limit)
