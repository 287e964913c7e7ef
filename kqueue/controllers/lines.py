"""Where workloads stand in the lines of their ClusterQueues, for people.

A place is worked out for the front of a line only, for all of it together, and kept for some seconds: asking is cheap
however long the line is.  There are two for each ClusterQueue: that of those who are to be tried, and, for those who
were tried and set aside, that of all who wait.  The second is worked out in steps, between which others run.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass
from itertools import chain

from kqueue.clock import Clock
from kqueue.state.queues import Queues

FRONT = 1000
"""So many places are told; of who stands behind them only that."""
_KEPT = 5.0
"""Seconds.  Places are read by people."""
_STEP = 2000
"""Workloads that are looked at before others get a turn."""


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
        self._all: dict[str, _Line] = {}
        self._looks = asyncio.Lock()

    async def look(self, key: str) -> None:
        """Find out where a workload that was set aside stands; until then it is in no line."""
        name = self._queues.home(key)
        if name is None or self._queues.is_active(key):
            return
        async with self._looks:
            known = self._of_all(name)
            if known is None or (key not in known.places and known.length <= FRONT):
                line = await self._look_at_all(name)
                self._all = {n: known for n, known in self._all.items() if self._of_all(n) is not None}
                self._all[name] = line

    async def _look_at_all(self, name: str) -> _Line:
        waiting, first = self._queues.waiting(name), list[tuple[object, str]]()
        for start in range(0, len(waiting), _STEP):
            if start:
                await self._clock.sleep(0)
                if name not in self._queues.names():
                    break
            ranked = ((self._queues.rank(name, item), item.key) for item in waiting[start : start + _STEP])
            first = heapq.nsmallest(FRONT, chain(first, ranked))
        places = {key: place for place, (_, key) in enumerate(first, start=1)}
        return _Line(places, len(waiting), self._clock.monotonic())

    def _of_all(self, name: str) -> _Line | None:
        line = self._all.get(name)
        return line if line is not None and self._clock.monotonic() - line.seen <= _KEPT else None

    def describe(self, key: str) -> str | None:
        """Where a workload stands; None when it stands in no line that was looked at."""
        name, line = self._queues.home(key), self._line_of(key)
        if name is None or line is None:
            return None
        order = "by use, priority and age" if self._queues.goes_by_usage(name) else "by priority and age"
        which = "in the line of" if self._queues.is_active(key) else "among all that wait in"
        where = f"{which} ClusterQueue {name} ({order})"
        place = line.places.get(key)
        if place is not None:
            return f"it was number {place} of {line.length} {where}"
        if line.length <= FRONT:
            return None  # it came since
        return f"more than {FRONT} were before it {where}"

    def is_far_behind(self, key: str) -> bool:
        """Whether so many stand before a workload that its place is not told."""
        line = self._line_of(key)
        return line is not None and line.length > FRONT and key not in line.places

    def is_at_front(self, key: str) -> bool:
        """Whether a workload has a place that is told."""
        line = self._line_of(key)
        return line is not None and key in line.places

    def _line_of(self, key: str) -> _Line | None:
        """The line that a workload belongs to; None when it waits in none, or that was not looked at."""
        name = self._queues.home(key)
        if name is None:
            return None
        return self._line(name) if self._queues.is_active(key) else self._of_all(name)

    def _line(self, name: str) -> _Line:
        now = self._clock.monotonic()
        line = self._lines.get(name)
        if line is None or now - line.seen > _KEPT:
            front, length = self._queues.front(name, FRONT)
            line = _Line({key: place for place, key in enumerate(front, start=1)}, length, now)
            self._lines = {n: known for n, known in self._lines.items() if now - known.seen <= _KEPT}
            self._lines[name] = line
        return line
