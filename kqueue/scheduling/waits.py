"""Writes the reasons why workloads wait, beside the loop: only the newest reason of each, a limited number at a time.

A reason is written at once.  Another cause with the same reason is written some seconds later, as it is then.  When
only figures of the cause have changed, nothing is written: `kqueue explain` has the present figures.

While decisions are being written, reasons are written at a bounded rate: the API server's time goes to decisions
first, and most workloads are admitted before their turn comes.  The visibility API and `kqueue explain`
give the reason at any time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.value import value
from kqueue.core.workload import PodSet
from kqueue.isolation import isolated_logged
from kqueue.kube.timetable import Timetable
from kqueue.runtime.deadline import within
from kqueue.runtime.lane import Lane
from kqueue.runtime.turns import Turns
from kqueue.scheduling.observers import WaitObserver
from kqueue.scheduling.writes import Writes
from kqueue.state import status, waiting

_log = structlog.get_logger(__name__)

_MOST_FORMS = 4096
"""The number of distinct pod set tuples whose requests are cached; a full cache is emptied."""


@value()
class Why:
    """The outcome of a try.

    Args:
        reason: the machine-readable reason.
        message: the sentence for people.
        pod_sets: the pod sets that the workload requested; None: they could not be read.
        gated: whether the workload could preempt others if its preemption gates were open.
    """

    reason: str
    message: str
    pod_sets: tuple[PodSet, ...] | None = None
    gated: bool = False


class News(Enum):
    """How the outcome of a try differs from the reason that the workload has."""

    NOTHING = auto()
    DETAILS = auto()
    """The reason is the written one, and the cause in the message differs."""
    REASON = auto()


def news(obj: wire.Workload, why: Why, *, briefly: bool = False) -> News:
    """Compare an outcome with the written reason; with `briefly`, another message with the same reason is no news."""
    reported = _written_reason(obj)
    if reported is None or (reported.status, reported.reason) != ("False", why.reason):
        return News.REASON
    if why.gated and not model.condition_true(obj, names.CONDITION_BLOCKED_ON_PREEMPTION_GATES):
        return News.REASON
    if briefly:
        return News.NOTHING
    if not _knows_of_no_admission(obj):
        return News.REASON
    text = waiting.message(model.workload_key(obj), why.message)
    return News.NOTHING if waiting.is_same_cause(reported.message, text) else News.DETAILS


class _WrittenReason(NamedTuple):
    """The QuotaReserved condition of a Workload."""

    status: str
    reason: str
    message: str


class _PendingWrite(NamedTuple):
    """A reason that is to be written."""

    why: Why
    instead_of: _WrittenReason | None = None
    """The condition that the write replaces; the write is dropped if another one is there. None: replace any."""

    def followed_by(self, why: Why, reported: _WrittenReason | None) -> _PendingWrite:
        """Return the write after a further try with outcome `why`, at which the Workload had condition `reported`."""
        same = self.why.reason == why.reason and self.instead_of == reported
        return _PendingWrite(why, self.instead_of if same else None)


class PendingReasons:
    """Writes the reasons why workloads wait."""

    def __init__(
        self,
        *,
        writes: Writes,
        is_held: Callable[[str], bool],
        observer: WaitObserver,
        clock: Clock,
        at_once: int,
        details_after: float,
        turns: Turns,
    ) -> None:
        """`turns` spreads reasons over time while decisions are being written.

        `is_held` says whether a workload holds quota. `at_once` is the number of concurrent writes.

        `details_after`: seconds from a change of details to their write; 0: at once.
        """
        self._writes, self._is_held, self._observer, self._clock = writes, is_held, observer, clock
        self._at_once, self._writers, self._details_after = at_once, 0, details_after
        self._unwritten: dict[str, _PendingWrite] = {}
        """By workload, its pending write, also while it is being written."""
        self._line: deque[str] = deque()
        self._details: dict[str, _PendingWrite] = {}
        """Writes that are not due yet; a workload is here or in `_unwritten`, never in both."""
        self._timetable = Timetable(clock, self._report_details)
        self._turns = turns
        self._hurry = asyncio.Event()
        """Set when the loop ends: writes no longer wait for their turn."""
        self._asked: dict[int, tuple[tuple[PodSet, ...], list[status.Patch]]] = {}
        """Requests of pod sets by the identity of the tuple, which workloads of one form share."""

    def report(self, key: str, obj: wire.Workload, why: Why, *, briefly: bool = False) -> None:
        """Write why a workload waits, unless it has the reason already or is admitted before its turn.

        `briefly`: only a new reason is written; a new message with the same reason is not.
        """
        ahead = self._unwritten.get(key)
        if ahead is not None:
            if ahead.why.reason != why.reason or not briefly:
                self._unwritten[key] = ahead.followed_by(why, _written_reason(obj))
            return
        new = self._news(obj, why, briefly=briefly)
        if new is News.DETAILS:
            self._report_later(key, obj, why)
        elif new is News.REASON:
            self._forget_details(key)
            self._begin(key, _PendingWrite(why))
        elif not briefly:
            self._forget_details(key)

    def pause(self) -> None:
        """Stop writing details, and keep them for `resume`."""
        self._timetable.clear()
        self._hurry.set()

    def resume(self) -> None:
        """Continue after `pause`: write the kept details of workloads whose reason has not changed since."""
        self._hurry.clear()
        for key in self._details:
            self._timetable.add(key, self._details_after)
        for _ in self._line:  # left behind by writers that were cut off
            self._spawn()

    def _news(self, obj: wire.Workload, why: Why, *, briefly: bool = False) -> News:
        new = news(obj, why, briefly=briefly)
        return News.REASON if new is News.DETAILS and not self._details_after else new

    def _report_later(self, key: str, obj: wire.Workload, why: Why) -> None:
        self._details[key] = _PendingWrite(why, _written_reason(obj))
        self._timetable.add(key, self._details_after)

    def _forget_details(self, key: str) -> None:
        if self._details.pop(key, None) is not None:
            self._timetable.drop(key)

    def _report_details(self, key: str) -> None:
        self._begin(key, self._details.pop(key))

    def _begin(self, key: str, pending: _PendingWrite) -> None:
        self._unwritten[key] = pending
        self._line.append(key)
        self._spawn()

    def _spawn(self) -> None:
        """Start a further writer unless `at_once` of them run."""
        if self._writers < self._at_once:
            self._writers += 1
            self._writes.spawn(self._write(), ended=self._writer_ended)

    async def _write(self) -> None:
        while self._line:
            await self._turn()
            if self._line:
                await self._write_one(self._line.popleft())

    async def _turn(self) -> None:
        """Return at once, or while decisions are being written, when the next reason may be written."""
        wait = self._turns.take() if not self._hurry.is_set() else 0.0
        if wait > 0:
            with suppress(TimeoutError):
                await within(self._clock, wait, self._until_hurried())

    async def _until_hurried(self) -> None:
        await self._hurry.wait()

    def _writer_ended(self, error: BaseException | None) -> None:
        """Give the writer's place to another one, unless writers are being cut off."""
        self._writers -= 1
        if isinstance(error, Exception):
            _log.error("reasons for waiting could not be written on a bug", exc_info=error)
        if self._line and not isinstance(error, asyncio.CancelledError):
            self._spawn()

    async def _write_one(self, key: str) -> None:
        try:
            with isolated_logged(_log, "the reason for waiting could not be written on a bug", workload=key):
                await self._write_newest(key)
        except asyncio.CancelledError:
            self._line.append(key)
            raise
        del self._unwritten[key]

    async def _write_newest(self, key: str) -> None:
        """Write until no other reason has come meanwhile."""
        while True:
            pending = self._unwritten[key]
            why = pending.why
            written = await self._writes.try_write(
                key, partial(self._change, key, pending), what="the reason for waiting", lane=Lane.WORDS
            )
            if written is not None:
                _log.info("workload waits", workload=key, reason=why.reason, message=why.message)
                reported = _written_reason(written)
                if reported is not None:
                    self._observer.waits(written, reason=reported.reason, message=reported.message)
            newest = self._unwritten[key]
            if newest is pending:
                return
            new = self._news(written, newest.why) if written is not None else News.REASON
            if new is News.DETAILS and written is not None:
                self._report_later(key, written, newest.why)
            if new is not News.REASON:
                return

    def _change(self, key: str, pending: _PendingWrite, obj: wire.Workload) -> status.Patch | None:
        if self._is_held(key):
            return None  # admitted since: an old reason must not go over it
        if pending.instead_of is not None and _written_reason(obj) != pending.instead_of:
            return None  # a newer reason was written meanwhile
        return status.wait(
            obj,
            reason=pending.why.reason,
            message=pending.why.message,
            stamp=status.Stamp(self._clock.now()),
            requests=self._requests(pending.why.pod_sets) if pending.why.pod_sets is not None else None,
            gated=pending.why.gated,
        )

    def _requests(self, pod_sets: tuple[PodSet, ...]) -> list[status.Patch]:
        """Return the quota that each pod set requests."""
        known = self._asked.get(id(pod_sets))
        if known is None:
            if len(self._asked) >= _MOST_FORMS:
                self._asked.clear()
            total = {p.name: {r: amount * p.request.count for r, amount in p.quota_requests.items()} for p in pod_sets}
            known = self._asked[id(pod_sets)] = pod_sets, status.requested(total)
        return known[1]


def _written_reason(obj: wire.Workload) -> _WrittenReason | None:
    reported = model.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return _WrittenReason(reported.status, reported.reason, reported.message) if reported is not None else None


def _knows_of_no_admission(obj: wire.Workload) -> bool:
    admitted = model.condition(obj.status.conditions, names.CONDITION_ADMITTED)
    return admitted is not None and (admitted.status, admitted.reason) == ("False", names.REASON_NO_RESERVATION)
