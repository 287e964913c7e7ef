"""Where workloads stand in the lines of their ClusterQueues, for people.

A place is worked out for the front of a line only, for all of it together, and kept for some seconds: asking is cheap
however long the line is.
"""

from __future__ import annotations

from dataclasses import dataclass

from kqueue.clock import Clock
from kqueue.state.queues import Queues

FRONT = 1000
"""So many places are told; of who stands behind them only that."""
_KEPT = 5.0
"""Seconds.  Places are read by people."""


@dataclass(frozen=True, slots=True)
class _Line:
    places: dict[str, int]
    length: int
    seen: float


class Lines:
    """The lines of all ClusterQueues."""

    def __init__(self, queues: Queues, clock: Clock) -> None:
        self._queues, self._clock = queues, clock
        self._lines: dict[str, _Line] = {}

    def describe(self, key: str) -> str | None:
        """Where a workload stands among those that are to be tried; None when it does not stand there."""
        name = self._queues.home(key)
        if name is None or not self._queues.is_active(key):
            return None
        line = self._line(name)
        order = "by use, priority and age" if self._queues.goes_by_usage(name) else "by priority and age"
        place = line.places.get(key)
        if place is not None:
            return f"it was number {place} of {line.length} in the line of ClusterQueue {name} ({order})"
        if line.length <= FRONT:
            return None  # it came since
        return f"more than {FRONT} were before it in the line of ClusterQueue {name} ({order})"

    def is_at_front(self, key: str) -> bool:
        """Whether a workload has a place that is told."""
        name = self._queues.home(key)
        return name is not None and self._queues.is_active(key) and key in self._line(name).places

    def _line(self, name: str) -> _Line:
        now = self._clock.monotonic()
        line = self._lines.get(name)
        if line is None or now - line.seen > _KEPT:
            front, length = self._queues.front(name, FRONT)
            line = _Line({key: place for place, key in enumerate(front, start=1)}, length, now)
            self._lines = {n: known for n, known in self._lines.items() if now - known.seen <= _KEPT}
            self._lines[name] = line
        return line
