"""Holds a ClusterQueue for the pods beyond the quorum of a gang that it admits, so that the gang is one run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.workload import Admission
from kqueue.state.queues import Queues

CountExtras = Callable[[wire.Workload], int]
"""Returns the number of present pods beyond the quorum that a Workload counts, 0 for a Workload of no gang."""


def no_extras(_obj: wire.Workload) -> int:
    """Return 0: no pods are queued."""
    return 0


class GangRuns:
    """Begins and ends holds."""

    def __init__(self, queues: Queues, *, extras_of: CountExtras, wake_at: Callable[[datetime], None]) -> None:
        """`wake_at` wakes the scheduling loop at the end of a hold."""
        self._queues, self._extras_of, self._wake_at = queues, extras_of, wake_at

    def begin(self, admission: Admission, obj: wire.Workload, *, is_checked: bool) -> None:
        """Hold the ClusterQueue of the admission for the pods beyond the quorum of the Workload, if there are any.

        `is_checked`: admission checks must be ready first.  The pods get their Workloads after the checks, which may
        take hours, so there is no hold.
        """
        if is_checked or not self._queues.keeps_runs(admission.queue):
            return
        until = self._queues.hold_for(admission.queue, model.workload_key(obj), self._extras_of(obj))
        if until is not None:
            self._wake_at(until)

    def end(self, key: str) -> None:
        """End the hold for the gang of a Workload whose admission was not written."""
        self._queues.end_hold(key)
