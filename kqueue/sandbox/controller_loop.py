"""The loop of every simulated controller: a queue of keys, one worker per key, errors logged and retried."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from kqueue.clock import Clock
from kqueue.errors import ConflictError
from kqueue.isolation import isolated
from kqueue.kube.timetable import Timetable

Reconcile = Callable[[str], Awaitable[float | None]]
"""Reconciles one key; returns the seconds until the next time, or None."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 30.0
log = structlog.get_logger(__name__)


class ControllerLoop:
    """Runs `reconcile` for keys; a key never runs twice at once, and runs again if it was added meanwhile."""

    def __init__(self, name: str, reconcile: Reconcile, *, clock: Clock, workers: int = 8) -> None:
        self.name = name
        self._reconcile, self._workers = reconcile, workers
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._active: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._available = asyncio.Event()
        self._timetable = Timetable(clock, self.add)

    @property
    def idle(self) -> bool:
        """Whether no key is ready and none is being reconciled; keys may wait for their time."""
        return not self._ready and not self._active

    def add(self, key: str) -> None:
        """Reconcile `key` soon."""
        if key in self._active:
            self._again.add(key)
            return
        self._ready[key] = None
        self._available.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Reconcile `key` after `seconds`, or earlier if an earlier time was set."""
        if seconds <= 0:
            self.add(key)
        else:
            self._timetable.add(key, seconds)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            self._timetable.clear()

    async def _work(self) -> None:
        while True:
            while not self._ready:
                self._available.clear()
                await self._available.wait()
            key, _ = self._ready.popitem(last=False)
            self._active.add(key)
            try:
                await self._step(key)
            finally:
                self._active.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)
            await asyncio.sleep(0)  # a server in this process answers without waiting: yield to other tasks

    async def _step(self, key: str) -> None:
        with isolated(partial(self._try_again, key)):
            later = await self._reconcile(key)
            self._failures.pop(key, None)
            if later is not None:
                self.add_after(key, later)

    def _try_again(self, key: str, error: Exception) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 16), _LONGEST_PAUSE_SECONDS)
        if not isinstance(error, ConflictError):
            log.warning(
                "simulated controller failed", controller=self.name, key=key, error=str(error), retry_seconds=pause
            )
        self.add_after(key, 0 if failures == 1 and isinstance(error, ConflictError) else pause)
