"""How late the event loop is: nothing may hold it longer than 50 ms."""

from __future__ import annotations

import structlog

from kqueue.clock import Clock
from kqueue.observe.metrics import Metrics

_log = structlog.get_logger(__name__)


class LoopProbe:
    """Sleeps, and measures how much longer it slept than it asked for."""

    def __init__(self, *, clock: Clock, metrics: Metrics, interval: float, limit: float) -> None:
        """Measure every `interval` seconds; lags above `limit` seconds are logged, at most one line a minute."""
        self._clock, self._metrics = clock, metrics
        self._interval, self._limit = interval, limit
        self.worst = 0.0
        """Longest lag so far, in seconds."""

    async def run(self) -> None:
        """Measure until cancelled."""
        quiet_until = 0.0
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(self._interval)
            now = self._clock.monotonic()
            lag = max(0.0, now - before - self._interval)
            self.worst = max(self.worst, lag)
            self._metrics.loop_lag(lag)
            if lag > self._limit and now >= quiet_until:
                quiet_until = now + 60.0
                _log.warning("event loop was held", seconds=round(lag, 3), limit=self._limit)
