"""Writes failed hosts to the status of Workloads, and records an event if the failure concerns the user."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.record import Recorder, workload_reference
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.state import failures, host_status, status

_log = structlog.get_logger(__name__)

EVENT_AVOIDED = "NodeAvoided"


class HostMarks:
    """The failed hosts of Workloads, and the hosts on which their pods failed, in status."""

    def __init__(self, *, book: WorkloadBook, recorder: Recorder, clock: Clock) -> None:
        self._book, self._recorder, self._clock = book, recorder, clock

    def newest(self, key: str) -> wire.Workload | None:
        """Return the newest known version of a Workload; None: it does not exist."""
        return self._book.newest(key)

    async def mark(self, key: str, host: str) -> bool:
        """Add the host to the Workload's list of failed hosts; return whether that evicts the Workload."""

        def change(workload: wire.Workload) -> status.Patch | None:
            if not model.is_placed(workload):
                return None
            return host_status.mark_unhealthy(workload, host, stamp=status.Stamp(self._clock.now()))

        written = await self._book.write(key, change)
        if written is None:
            return False
        evicted = model.condition_true(written, names.CONDITION_EVICTED)
        if evicted:
            message = next(c.message for c in written.status.conditions if c.type == names.CONDITION_EVICTED)
            reason = f"EvictedDueTo{names.REASON_NODE_FAILURES}"
            self._recorder.record(workload_reference(written), reason=reason, message=message)
        _log.info("node has failed for workload", workload=key, host=host, evicted=evicted)
        return evicted

    async def unmark(self, key: str, host: str, entries: AbstractSet[str]) -> None:
        """Remove the host, under any of the names in `entries`, from the Workload's list of failed hosts."""
        if await self._book.write(key, lambda w: host_status.unmark_unhealthy(w, entries)) is not None:
            _log.info("node is no failure for workload any more", workload=key, host=host)

    async def blame(self, key: str, host: str, created: datetime) -> None:
        """Count a failure of a pod on the host, unless it was counted before; `created` is the pod's creation time.

        The user is warned when the workload has failed there repeatedly.
        """

        def change(workload: wire.Workload) -> status.Patch | None:
            if not model.is_placed(workload):
                return None
            return host_status.blame(workload, host, created, stamp=status.Stamp(self._clock.now()))

        written = await self._book.write(key, change)
        if written is None:
            return
        times = failures.failures_on(written, host, self._clock.now())
        _log.info("pods of workload failed on node", workload=key, host=host, times=times)
        if times >= failures.REPEATEDLY:
            message = (
                f"The workload failed on node {host} {times} times: the node is avoided for it where others have room"
            )
            self._recorder.record(workload_reference(written), reason=EVENT_AVOIDED, message=message, warning=True)
