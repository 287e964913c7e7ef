"""Handles a workload on which scheduling fails with a bug: it is tried once more after a pause.

A workload that fails again enters quarantine.  No function here may raise: the error boundaries around each workload
call them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import structlog
from cachetools import LRUCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.errors import KqueueError
from kqueue.isolation import isolated_logged
from kqueue.kube.timetable import Timetable
from kqueue.scheduling.context import Context
from kqueue.state import status
from kqueue.state.quarantine import SET_ASIDE, Quarantined

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a report that could not be written is written again; doubles."""


class FailingWorkloads:
    """Delays and quarantines workloads that break scheduling, and reports their quarantine."""

    def __init__(self, context: Context, *, paused: Callable[[str, datetime], None]) -> None:
        """`paused` is called with a ClusterQueue and the time until which one of its workloads is delayed."""
        state = context.state
        self._quarantine, self._cache, self._queues = state.quarantine, state.cache, state.queues
        self._start_plans = state.start_plans
        self._preemptions, self._order, self._paused = state.preemptions, context.settings.queue_order, paused
        self._writer, self._writes = context.writer, context.writes
        self._observer, self._clock = context.observer, context.clock
        self._arrivals = 0
        self._reported: LRUCache[str, Quarantined] = LRUCache(maxsize=10_000)
        self._pauses: dict[str, float] = {}
        self._timetable = Timetable(context.clock, self._report)

    def failed(self, key: str, error: Exception, *, doing: str) -> None:
        """Set a workload (namespace/name) aside: scheduling failed while `doing` something, such as "planning it"."""
        _log.error("scheduling failed on a bug", workload=key, doing=doing, exc_info=error)
        # When this fails, the workload has left its queue, so it stops no other workload.
        with isolated_logged(_log, "a workload that breaks scheduling could not be set aside", workload=key):
            self._failed(key, error, doing)

    def _failed(self, key: str, error: Exception, doing: str) -> None:
        self._queues.delete(key)
        obj = self._writer.newest(key)
        if obj is None:
            return
        self._preemptions.end(obj.metadata.uid)
        self._start_plans.end(obj.metadata.uid)
        queue = self._queues.cluster_queue_of(f"{obj.metadata.namespace}/{obj.spec.queue_name}") or ""
        now = self._clock.now()
        if self._quarantine.strike(key, obj, error, doing=doing, queue=queue, now=now) is not None:
            self.report()
            return
        with isolated_logged(_log, "a workload that was set aside cannot be queued again", workload=key) as queued:
            if model.is_queueable(obj) and self._cache.held.holding(key) is None:
                self._queues.push(self._quarantine.delayed(self._cache.requests.pending(obj, self._order)))
                self._paused(queue, now + SET_ASIDE)
        if queued.error is not None:  # nothing would try the workload again, so it must say why it waits
            self._quarantine.strike(key, obj, queued.error, doing="taking it in", queue=queue, now=now, for_good=True)
            self.report()

    # --- reporting

    def report(self) -> None:
        """Write the quarantine to each Workload whose status does not show it yet."""
        if self._arrivals == self._quarantine.arrivals:
            return
        self._arrivals = self._quarantine.arrivals
        for held in self._quarantine.values():
            if self._reported.get(held.key) is not held:
                self._reported[held.key] = held
                self._report(held.key)

    def resume(self) -> None:
        """Begin, or go on after a pause: report workloads that came into quarantine meanwhile."""
        self._reported.clear()
        self._arrivals = 0
        self.report()

    def pause(self) -> None:
        """Stop writing reports that could not be written so far."""
        self._timetable.clear()
        self._pauses.clear()

    def _report(self, key: str) -> None:
        self._writes.spawn(self._write(key))

    async def _write(self, key: str) -> None:
        def change(obj: wire.Workload) -> status.Patch | None:
            held = self._quarantine.get(key)
            if held is None or not held.is_of(obj) or self._cache.held.holding(key) is not None:
                return None
            stamp = status.Stamp(self._clock.now())
            return status.wait(obj, reason=names.REASON_QUARANTINED, message=held.message, stamp=stamp)

        try:
            written = await self._writes.write(key, change)
        except KqueueError as e:
            pause = self._pauses[key] = min(_LONGEST_PAUSE, 2 * self._pauses.get(key, _FIRST_PAUSE / 2))
            _log.warning("a quarantine was not written, tried again", workload=key, error=str(e), seconds=pause)
            self._timetable.add(key, pause)
            return
        self._pauses.pop(key, None)
        held = self._quarantine.get(key)
        if written is not None and held is not None:
            _log.error("workload is in quarantine", workload=key, cluster_queue=held.queue, message=held.message)
            self._observer.quarantined(written, queue=held.queue, message=held.message)
