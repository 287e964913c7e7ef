"""Status writes beside the loop: many at once, none forgotten, and what was held for one that fails is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any

import structlog

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.errors import KqueueError
from kqueue.runtime.deadline import within
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state import status

_log = structlog.get_logger(__name__)

Change = Callable[[wire.Workload], status.Patch | None]


class WithdrawnError(KqueueError):
    """What was decided no longer applies."""


class Writes:
    """The writes of one loop that are under way."""

    def __init__(self, writer: StatusWriter[wire.Workload], *, in_flight: int) -> None:
        """`in_flight`: so many writes that something is held for, at once."""
        self._writer = writer
        self._places = asyncio.Semaphore(in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside the loop."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def drain(self, *, clock: Clock | None = None, limit: float | None = None) -> None:
        """Wait until every write under way has ended; after `limit` seconds (None: never) cut them off."""
        if clock is None or limit is None:
            await self._ended()
            return
        try:
            await within(clock, limit, self._ended())
        except TimeoutError:
            _log.warning("status writes were cut off", writes=len(self._tasks), seconds=limit)
            for task in list(self._tasks):
                task.cancel()
            await self._ended()

    async def _ended(self) -> None:
        while self._tasks:
            self._idle.clear()
            await self._idle.wait()

    async def hold(
        self, key: str, change: Change, held: AbstractContextManager[object], *, doing: str
    ) -> wire.Workload:
        """Write while something is held for it; what is held is given back on failure, and kept else.

        Raises WithdrawnError when `change` finds that the workload is not any more what was decided on, and whatever
        the write raises.
        """
        with held:
            async with self._places:
                written = await self._writer.write(key, change)
            if written is None:
                raise WithdrawnError(f"{key} changed while {doing}")
        return written

    async def write(self, key: str, change: Change) -> wire.Workload | None:
        """Write; None when there was nothing to be written.  Raises whatever the write raises."""
        return await self._writer.write(key, change)

    async def tell(self, key: str, change: Change, *, what: str) -> wire.Workload | None:
        """Write what is only told: failure is logged.  None when nothing was written."""
        try:
            return await self._writer.write(key, change)
        except KqueueError as e:
            _log.warning(f"{what} was not written", workload=key, error=str(e))
            return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a status write failed on a bug", exc_info=task.exception())
