"""Keys that are due later: one sleeper for all of them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import structlog

from kqueue.clock import Clock
from kqueue.isolation import isolated_logged

_log = structlog.get_logger(__name__)

_SLACK = 64


class Timetable:
    """Keys and the times at which they are due, per key the earliest.  No task sleeps while no key waits.

    All methods are plain calls on the event loop.
    """

    def __init__(self, clock: Clock, on_due: Callable[[str], None]) -> None:
        """`on_due` is called with each key at its time, which is forgotten then; it must not raise."""
        self._clock, self._on_due = clock, on_due
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # an entry counts only if `_due` agrees
        self._sleeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Count the keys that wait for their time."""
        return len(self._due)

    def add(self, key: str, seconds: float) -> None:
        """Have `key` be due in `seconds`, unless it is sooner anyway."""
        due = self._clock.monotonic() + seconds
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        self._trim()
        if self._sleeper is None or self._sleeper.done() or self._heap[0] == (due, key):
            self._restart()

    def drop(self, key: str) -> None:
        """Forget the time of `key`, if it has one."""
        self._due.pop(key, None)

    def clear(self) -> None:
        """Forget all keys."""
        self._due.clear()
        self._heap.clear()
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None

    def _trim(self) -> None:
        """Drop entries that no longer count once they are the majority, so that the heap stays bounded."""
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(due, key) for key, due in self._due.items()]
            heapq.heapify(self._heap)

    def _restart(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
        self._sleeper = asyncio.create_task(self._keep_time())

    async def _keep_time(self) -> None:
        while self._heap:
            due, key = self._heap[0]
            if self._due.get(key) != due:
                heapq.heappop(self._heap)
            elif (wait := due - self._clock.monotonic()) > 0:
                await self._clock.sleep(wait)
            else:
                heapq.heappop(self._heap)
                del self._due[key]
                with isolated_logged(_log, "the work on a due key failed on a bug", key=key):
                    self._on_due(key)
