"""Keys that want attention: each at most once in the queue, each with at most one worker."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict

from kqueue.clock import Clock
from kqueue.runtime.backoff import pause_after
from kqueue.runtime.timetable import Timetable


class WorkQueue:
    """A first-in-first-out queue of keys.

    - A key that is added while it waits keeps its one place.
    - A key that is added while a worker has it is queued again when the worker is done.
    - A key that is added for later has one time: the earliest.  Being added for now replaces it.
    - `retry` adds a key after a pause that grows with its failures until `forget`.

    All methods but `get` are plain calls on the event loop.
    """

    def __init__(self, *, clock: Clock, retry_base: float, retry_max: float, chance: random.Random) -> None:
        """`retry_base` and `retry_max` are seconds."""
        self._clock, self._chance = clock, chance
        self._retry_base, self._retry_max = retry_base, retry_max
        self._ready: OrderedDict[str, float] = OrderedDict()  # key -> when it was queued, in order
        self._active: set[str] = set()
        self._dirty: dict[str, float] = {}  # active keys that were added meanwhile -> when
        self._later = Timetable(clock, self.add)
        self._failures: dict[str, int] = {}
        self._available = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Keys that are ready for a worker."""
        return len(self._ready)

    @property
    def active(self) -> int:
        """Keys that workers have now."""
        return len(self._active)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._later)

    @property
    def idle(self) -> bool:
        """Nothing is ready and nothing is being worked on; some keys may wait for their time."""
        return not self._ready and not self._active

    def oldest_age(self) -> float:
        """Seconds that the first ready key has waited; 0 when none is ready."""
        return max(0.0, self._clock.monotonic() - next(iter(self._ready.values()))) if self._ready else 0.0

    def failures(self, key: str) -> int:
        """Failures of `key` since it was last forgotten."""
        return self._failures.get(key, 0)

    def add(self, key: str) -> None:
        """Queue `key` now."""
        if self._closed:
            return
        self._later.drop(key)
        if key in self._active:
            self._dirty.setdefault(key, self._clock.monotonic())
        elif key not in self._ready:
            self._ready[key] = self._clock.monotonic()
            self._available.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Queue `key` in `seconds`, unless it is queued or due sooner anyway."""
        if seconds <= 0:
            self.add(key)
            return
        if not (self._closed or key in self._ready or key in self._dirty):
            self._later.add(key, seconds)

    def retry(self, key: str, *, at_least: float = 0.0, cap: float | None = None) -> float:
        """Queue `key` after its next, longer pause, and return the pause.

        `at_least` is a wait that a server asked for; `cap` a lower limit than the queue's, None for the queue's own.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        cap = self._retry_max if cap is None else min(cap, self._retry_max)
        pause = at_least + pause_after(failures, base=self._retry_base, cap=cap, chance=self._chance)
        self.add_after(key, pause)
        return pause

    def forget(self, key: str) -> None:
        """`key` went well: its next failure is its first."""
        self._failures.pop(key, None)

    async def get(self) -> str | None:
        """Take the next key; call `done` with it afterwards.  None when the queue is shut down and empty."""
        while not self._ready:
            if self._closed:
                return None
            self._available.clear()
            await self._available.wait()
        key, _ = self._ready.popitem(last=False)
        self._active.add(key)
        return key

    def done(self, key: str) -> None:
        """The worker has finished with `key`; it is queued again if it was added meanwhile."""
        self._active.discard(key)
        since = self._dirty.pop(key, None)
        if since is not None:
            self._ready[key] = since
            self._available.set()

    def shut_down(self) -> None:
        """Take no more keys and drop those that wait for their time; what is ready is still handed out."""
        self._closed = True
        self._later.clear()
        self._available.set()
