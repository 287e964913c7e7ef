"""Runs a reconcile function over keys; a failure of one key does not stop the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import structlog

from kqueue.clock import Clock
from kqueue.errors import ApiError, ConflictError, KqueueError, TerminalError
from kqueue.isolation import isolated, isolated_logged
from kqueue.runtime.deadline import cancel_and_wait, within
from kqueue.runtime.supervision import guarded
from kqueue.runtime.workqueue import KeyRank, WorkQueue

_log = structlog.get_logger(__name__)

_NAMED = 10
"""Limit of keys in a log line."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a successful reconcile: seconds until the next call; None: the next call follows a change."""

    requeue_after: float | None = None


Reconcile = Callable[[str], Coroutine[Any, Any, Result]]
"""Brings the objects of a key into their desired state.  Gets only the key, and reads all objects itself."""


class ReconcileOutcome(Enum):
    """The outcome of a reconcile.  The value is its name in metrics, as in controller-runtime."""

    DONE = "success"
    REQUEUED = "requeue_after"
    CONFLICT = "conflict"
    TERMINAL = "terminal_error"
    FAILED = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileRecord:
    """A finished reconcile."""

    controller: str
    key: str
    outcome: ReconcileOutcome
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Times in seconds."""

    workers: int = 1
    """Keys reconciled at the same time; a key never has two workers."""
    timeout: float = 120.0
    """Time limit of a reconcile: enough for a few API calls with their retries."""
    retry_base: float = 0.005
    """First pause after a failure; doubles."""
    retry_max: float = 60.0
    """Longest pause after failures."""
    conflict_retry_max: float = 1.0
    """Longest pause after conflicts, because the watch soon brings the newer object."""


class Controller:
    """Calls a reconcile function for each queued key.

    A reconcile that raises
    - `TerminalError` is logged and waits for a change of the object;
    - `ConflictError` is retried soon and not logged as an error: another writer was faster;
    - anything else is retried after a growing pause, and not before the server's `Retry-After`.
    A failure never stops the controller or another key.

    `run` may be cancelled (leadership lost) and called again: keys stay queued, even after a cancelled reconcile.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        clock: Clock,
        settings: ControllerSettings | None = None,
        chance: random.Random | None = None,
        on_reconcile: Callable[[ReconcileRecord], None] | None = None,
        rank_of: Callable[[str], KeyRank] | None = None,
    ) -> None:
        """`on_reconcile` is called after each reconcile; it must be quick and must not raise.

        `rank_of` returns the rank of a key at the moment when the key becomes ready; None: first come, first served.
        A quarter of the workers, if there are two or more, takes no keys of the last rank.
        """
        self.name = name
        self._reconcile, self._clock = reconcile, clock
        self._settings = s = settings or ControllerSettings()
        self.on_reconcile = on_reconcile
        self._rank_of = rank_of
        self.queue = WorkQueue(
            clock=clock,
            retry_base=s.retry_base,
            retry_max=s.retry_max,
            chance=chance or random.Random(),
            rank_of=self._rank,
            tell_at_once=max(1, s.workers - max(1, s.workers // 4)),
        )
        self._running: asyncio.Future[None] | None = None
        self._busy: dict[asyncio.Task[None], str | None] = {}
        """The key of each worker."""
        self._ends = False
        self.drain_for: Callable[[], float] = lambda: 0.0
        """Returns, when `run` is cancelled, the seconds after which running reconciles are cancelled."""

    @property
    def ranks(self) -> tuple[KeyRank, ...]:
        """Ranks that `rank_of` may return."""
        return (KeyRank.START,) if self._rank_of is None else tuple(KeyRank)

    def enqueue(self, key: str, after: float = 0.0, rank: KeyRank | None = None) -> None:
        """Reconcile `key` soon, or in `after` seconds; several calls before it count as one of the best rank.

        `rank` None: the rank that `rank_of` returns.
        """
        self.queue.add_after(key, after, rank)

    def _rank(self, key: str) -> KeyRank:
        """Return the rank of a key; when `rank_of` raises, the default rank, so that the key is not lost."""
        if self._rank_of is not None:
            with isolated_logged(_log, "the rank of a key failed on a bug", controller=self.name, key=key):
                return self._rank_of(key)
        return KeyRank.START

    async def run(self) -> None:
        """Work until `stop` has drained the queue, or until cancelled."""
        self._ends = False
        running = self._running = asyncio.ensure_future(self._run_workers())
        try:
            await asyncio.shield(running)
        finally:
            await self._drain(running)

    async def _drain(self, running: asyncio.Future[None]) -> None:
        """Take no more keys, and let running reconciles end within the time limit."""
        self._ends = True
        limit = self.drain_for() if self.queue.active else 0.0
        if limit > 0:
            for worker, key in self._busy.items():
                if key is None:
                    worker.cancel()
            await self._end_within(running, limit)
        await cancel_and_wait(running)

    async def _end_within(self, running: asyncio.Future[None], seconds: float) -> None:
        try:
            await within(self._clock, seconds, _ended(running))
        except TimeoutError:
            cut = [key for key in self._busy.values() if key is not None]
            _log.warning("reconciles were cut off, their keys stay queued", controller=self.name, keys=cut[:_NAMED])

    async def stop(self, grace: float = 10.0) -> None:
        """Take no new keys and finish the ready ones; after `grace` seconds cancel running reconciles."""
        self.queue.shut_down()
        running = self._running
        if running is None:
            return
        try:
            await within(self._clock, grace, _ended(running))
        except TimeoutError:
            _log.warning("controller cancelled before it had drained", controller=self.name, active=self.queue.active)
            await cancel_and_wait(running)

    async def _run_workers(self) -> None:
        self._busy.clear()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.workers):
                self._busy[group.create_task(self._work())] = None

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not self._ends and (key := await self.queue.get()) is not None:
            started = self._clock.monotonic()
            self._busy[me] = key
            try:
                outcome = await self._reconcile_one(key)
            except asyncio.CancelledError:
                self.queue.add(key)  # cancelled half-way: the next run must reconcile the key again
                raise
            finally:
                self._busy[me] = None
                self.queue.done(key)
            if self.on_reconcile is not None:
                took = self._clock.monotonic() - started
                record = ReconcileRecord(controller=self.name, key=key, outcome=outcome, seconds=took)
                guarded("counting a reconcile", partial(self.on_reconcile, record))

    async def _reconcile_one(self, key: str) -> ReconcileOutcome:
        with isolated(partial(self._retry_after_failure, key)):
            return await self._reconcile_unless_stale(key)
        return ReconcileOutcome.FAILED

    async def _reconcile_unless_stale(self, key: str) -> ReconcileOutcome:
        try:
            result = await within(self._clock, self._settings.timeout, self._reconcile(key))
        except TerminalError as e:
            self.queue.forget(key)
            _log.warning("reconcile gave up until a change", controller=self.name, key=key, error=str(e))
            return ReconcileOutcome.TERMINAL
        except ConflictError as e:
            self.queue.retry(key, cap=self._settings.conflict_retry_max)
            _log.debug("reconcile met a newer object", controller=self.name, key=key, error=str(e))
            return ReconcileOutcome.CONFLICT
        self.queue.forget(key)
        if result.requeue_after is None:
            return ReconcileOutcome.DONE
        self.queue.add_after(key, result.requeue_after)
        return ReconcileOutcome.REQUEUED

    def _retry_after_failure(self, key: str, error: Exception) -> None:
        asked = error.retry_after if isinstance(error, ApiError) else None
        pause = self.queue.retry(key, at_least=asked or 0.0)
        bug = not isinstance(error, KqueueError | TimeoutError)
        _log.error(
            "reconcile failed",
            controller=self.name,
            key=key,
            error=str(error) or type(error).__name__,
            failures=self.queue.failures(key),
            retry_in_seconds=round(pause, 3),
            exc_info=error if bug else None,
        )


async def _ended(task: asyncio.Future[None]) -> None:
    await asyncio.wait({task})
