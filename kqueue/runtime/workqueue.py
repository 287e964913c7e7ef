"""A queue of keys by rank: each key at most once in the queue, and with at most one worker."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from kqueue.clock import Clock
from kqueue.kube.timetable import Timetable
from kqueue.runtime.backoff import pause_after

_OLDEST_EVERY = 8
"""One of so many picks takes the key that has waited longest, whatever its rank."""


class KeyRank(IntEnum):
    """The effect of the work on a key.  The lowest rank is taken first."""

    FREE = 0
    """Quota or nodes become free: evictions, released quota, ends of workloads."""
    START = 1
    """Pods may start: admissions, starts, releases.  The rank of keys whose controller names no rank."""
    FOLLOW = 2
    """Status of running or waiting workloads: readiness, counts."""
    TELL = 3
    """Only the reason why a workload waits."""

    @property
    def label(self) -> str:
        """Name in metrics."""
        return self.name.lower()


class _Dirty(NamedTuple):
    """An active key that was added again."""

    since: float
    rank: KeyRank


class WorkQueue:
    """A queue of keys: the best rank first, first in first out inside a rank.

    - A key that is added while it waits keeps its one place.
    - A key that is added while a worker has it is queued again when the worker is done.
    - A key that is added for later has one time, the earliest.  An addition for now replaces it.
    - `retry` adds a key after a pause that grows with its failures until `forget`.
    - A key that is added again with a better rank moves up to it; a worse rank changes nothing.
    - One pick of eight takes the key that has waited longest, so that no rank waits for ever.  A limit on the age would
      fail: while thousands of keys are older than the limit, a new key of the best rank would wait behind them.
    - At most `tell_at_once` workers have keys of the last rank, so that a worker is left for the others.

    All methods but `get` are plain calls on the event loop.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        retry_base: float,
        retry_max: float,
        chance: random.Random,
        rank_of: Callable[[str], KeyRank] = lambda _key: KeyRank.START,
        tell_at_once: int | None = None,
    ) -> None:
        """`retry_base` and `retry_max` are seconds; `tell_at_once` None: no limit.

        `rank_of` returns the rank of a key when the key becomes ready; it must be quick and must not raise.
        """
        self._clock, self._chance, self._rank_of = clock, chance, rank_of
        self._retry_base, self._retry_max, self._tell_at_once = retry_base, retry_max, tell_at_once
        self._ready: dict[KeyRank, OrderedDict[str, float]] = {rank: OrderedDict() for rank in KeyRank}
        """By rank: key -> when it was queued."""
        self._active: dict[str, KeyRank] = {}
        self._telling = 0
        """Active keys of the last rank."""
        self._picks = 0
        self._dirty: dict[str, _Dirty] = {}
        self._wanted: dict[str, KeyRank] = {}
        """Best requested rank of keys that wait for their time."""
        self._later = Timetable(clock, self.add)
        self._failures: dict[str, int] = {}
        self._available = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Return the number of keys that are ready for a worker."""
        return sum(map(len, self._ready.values()))

    def depth(self, rank: KeyRank) -> int:
        """Return the number of keys of `rank` that are ready for a worker."""
        return len(self._ready[rank])

    @property
    def active(self) -> int:
        """Return the number of keys with a worker."""
        return len(self._active)

    @property
    def delayed(self) -> int:
        """Return the number of keys that wait for their time."""
        return len(self._later)

    @property
    def idle(self) -> bool:
        """Whether no key is ready and no key has a worker; keys may wait for their time."""
        return not len(self) and not self._active

    def oldest_age(self, rank: KeyRank | None = None) -> float:
        """Return how many seconds the oldest ready key of `rank` (None: of all) has waited; 0 when none is ready.

        A key keeps its age when it moves to a better rank.
        """
        now = self._clock.monotonic()
        ranks = KeyRank if rank is None else (rank,)
        return max(0.0, now - min((since for r in ranks for since in self._ready[r].values()), default=now))

    def failures(self, key: str) -> int:
        """Return the failures of `key` since it was last forgotten."""
        return self._failures.get(key, 0)

    def add(self, key: str, rank: KeyRank | None = None) -> None:
        """Queue `key` now; `rank` None: the rank that `rank_of` returns."""
        if self._closed:
            return
        self._later.drop(key)
        rank = self._best(key, rank)
        if key in self._active:
            dirty = self._dirty.get(key, _Dirty(self._clock.monotonic(), rank))
            self._dirty[key] = _Dirty(dirty.since, min(dirty.rank, rank))
            return
        now = next((r for r in KeyRank if key in self._ready[r]), None)
        if now is None:
            self._put(key, self._clock.monotonic(), rank)
        elif rank < now:
            self._put(key, self._ready[now].pop(key), rank)

    def add_after(self, key: str, seconds: float, rank: KeyRank | None = None) -> None:
        """Queue `key` in `seconds`, unless it is queued already or due sooner.

        Without `rank` the key gets the rank that `rank_of` returns at that time.
        """
        if seconds <= 0:
            self.add(key, rank)
            return
        if not (self._closed or key in self._dirty or any(key in keys for keys in self._ready.values())):
            if rank is not None:
                self._wanted[key] = min(rank, self._wanted.get(key, rank))
            self._later.add(key, seconds)

    def _best(self, key: str, rank: KeyRank | None) -> KeyRank:
        """Return the requested rank, or the one requested while the key waited for its time."""
        rank = self._rank_of(key) if rank is None else rank
        return min(rank, self._wanted.pop(key, rank))

    def _put(self, key: str, since: float, rank: KeyRank) -> None:
        self._ready[rank][key] = since
        self._available.set()

    def retry(self, key: str, *, at_least: float = 0.0, cap: float | None = None) -> float:
        """Queue `key` after its next, longer pause, and return the pause.

        `at_least` is a pause that a server asked for.  `cap` is a lower limit than the queue's; None: the queue's own.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        cap = self._retry_max if cap is None else min(cap, self._retry_max)
        pause = at_least + pause_after(failures, base=self._retry_base, cap=cap, chance=self._chance)
        self.add_after(key, pause)
        return pause

    def forget(self, key: str) -> None:
        """Forget the failures of `key`, after a success."""
        self._failures.pop(key, None)

    async def get(self) -> str | None:
        """Return the next key; call `done` with it afterwards.  None when the queue is shut down and empty."""
        while (rank := self._next_rank()) is None:
            if self._closed:
                return None
            self._available.clear()
            await self._available.wait()
        key, _ = self._ready[rank].popitem(last=False)
        self._picks += 1
        self._active[key] = rank
        self._telling += rank is KeyRank.TELL
        return key

    def _next_rank(self) -> KeyRank | None:
        """Return the rank whose first key is next; None: no key may be taken."""
        full = self._tell_at_once is not None and self._telling >= self._tell_at_once and not self._closed
        ranks = [rank for rank in KeyRank if self._ready[rank] and not (full and rank is KeyRank.TELL)]
        if not ranks or self._picks % _OLDEST_EVERY != _OLDEST_EVERY - 1:
            return ranks[0] if ranks else None
        return min(ranks, key=lambda rank: next(iter(self._ready[rank].values())))

    def done(self, key: str) -> None:
        """Note that the worker has finished with `key`; queue the key again if it was added meanwhile."""
        self._telling -= self._active.pop(key, None) is KeyRank.TELL
        dirty = self._dirty.pop(key, None)
        if dirty is not None:
            self._put(key, dirty.since, dirty.rank)
        elif self._ready[KeyRank.TELL]:
            self._available.set()  # a worker may take a key of the last rank again

    def shut_down(self) -> None:
        """Accept no more keys and drop the keys that wait for their time; ready keys can still be taken."""
        self._closed = True
        self._later.clear()
        self._wanted.clear()
        self._available.set()
