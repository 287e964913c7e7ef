"""Tells users and operators of work on other clusters: events of Workloads, and metrics by ClusterQueue and cluster."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.api import multikueue_names as words
from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import QueueDispatchMetrics
from kqueue.controllers.record import Recorder, workload_reference


class MultiKueueReports:
    """Events and metrics of MultiKueue."""

    def __init__(self, recorder: Recorder, metrics_of: Callable[[str], QueueDispatchMetrics]) -> None:
        """`metrics_of` returns the metrics of a ClusterQueue."""
        self._recorder, self._metrics_of = recorder, metrics_of

    def told(self, workload: wire.Workload, message: str, *, is_fault: bool = False) -> None:
        """Record an event about a change."""
        self._recorder.record(
            workload_reference(workload), reason=words.EVENT_MULTIKUEUE, message=message, warning=is_fault
        )

    def refused(self, workload: wire.Workload, message: str) -> None:
        """Record a warning about a refused write, which is tried again; equal warnings make one event."""
        self._recorder.record(
            workload_reference(workload), reason=words.EVENT_MULTIKUEUE, message=message, warning=True, once=True
        )

    def dispatched(self, workload: wire.Workload, cluster: str) -> None:
        """Count a copy of a Workload that was created on a worker cluster."""
        if queue := _queue_of(workload):
            self._metrics_of(queue).dispatched(cluster)

    def admitted(self, workload: wire.Workload, cluster: str) -> None:
        """Count a Workload that a worker cluster has admitted, and whose job it runs."""
        if queue := _queue_of(workload):
            self._metrics_of(queue).admitted_elsewhere(cluster)


def _queue_of(workload: wire.Workload) -> str:
    """Return the ClusterQueue that a Workload has quota of; empty: it has lost the quota by now."""
    return workload.status.admission.cluster_queue if workload.status.admission is not None else ""
