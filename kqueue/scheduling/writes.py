"""Status writes that run beside the loop.

A decision takes a charge, a mark or a place in a queue before its write begins.  A plain function settles these when
the write's task has ended: after success, failure, cancellation, and cancellation before the first step, which the
coroutine itself cannot notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.errors import KqueueError
from kqueue.isolation import isolated_logged
from kqueue.runtime.deadline import within
from kqueue.runtime.lane import Lane
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state import status

_log = structlog.get_logger(__name__)

Change = Callable[[wire.Workload], status.Patch | None]
Ended = Callable[[BaseException | None], None]


class WithdrawnError(KqueueError):
    """The workload has changed, so the decision no longer applies."""


class Writes:
    """Runs the writes of one loop as tasks, and waits for their end."""

    def __init__(
        self,
        writer: StatusWriter[wire.Workload],
        *,
        in_flight: int,
        begins: Callable[[], Callable[[], None]] = lambda: lambda: None,
    ) -> None:
        """`in_flight`: the number of concurrent writes of decisions.  `begins` is called when the write of a
        decision begins to wait for its place; the function that it returns is called when that write has ended.
        """
        self._writer, self._begins = writer, begins
        self._places = asyncio.Semaphore(in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()

    def spawn(self, work: Coroutine[Any, Any, None], *, ended: Ended | None = None) -> None:
        """Run `work` as a task.

        Args:
            work: the write.
            ended: called exactly once when the task has ended, with its error: None for success, CancelledError also if
                the task was cancelled before its first step.  It must settle the charge, mark or place of `work`, and
                must not wait.  Without it, a failure of `work` is logged.
        """
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, ended))

    async def drain(self, *, clock: Clock | None = None, limit: float | None = None) -> None:
        """Wait until every running write has ended; after `limit` seconds (None: never) cancel the rest."""
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

    async def commit(self, key: str, change: Change, *, doing: str) -> wire.Workload:
        """Write a decision that has a charge.

        Raises:
            WithdrawnError: `change` returned None, because the workload has changed since the decision.
            KqueueError: the write failed.
        """
        ended = self._begins()
        try:
            async with self._places:
                written = await self._writer.write(key, change)
        finally:
            ended()
        if written is None:
            raise WithdrawnError(f"{key} changed while {doing}")
        return written

    async def write(self, key: str, change: Change) -> wire.Workload | None:
        """Write a decision; return None when `change` had nothing to write. Errors of the write are raised."""
        ended = self._begins()
        try:
            return await self._writer.write(key, change)
        finally:
            ended()

    async def try_write(self, key: str, change: Change, *, what: str, lane: Lane = Lane.STATUS) -> wire.Workload | None:
        """Write in `lane`; a failure is only logged.  Return None if nothing was written."""
        try:
            return await self._writer.write(key, change, lane=lane)
        except KqueueError as e:
            _log.warning(f"{what} was not written", workload=key, error=str(e))
            return None

    def _done(self, ended: Ended | None, task: asyncio.Task[None]) -> None:
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        try:
            with isolated_logged(_log, "a status write could not be settled on a bug"):
                if ended is not None:
                    ended(error)
                elif error is not None and not task.cancelled():
                    _log.error("a status write failed on a bug", exc_info=error)
        finally:
            self._tasks.discard(task)
            if not self._tasks:
                self._idle.set()
