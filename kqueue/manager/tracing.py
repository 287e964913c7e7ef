"""Makes spans of the phases of a Workload's life."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.observe import Traces


class WorkloadTracer:
    """Makes a span of each phase that a watch event ends: queued, checks, starting, running."""

    def __init__(self, traces: Traces, clock: Clock, leads: Callable[[], bool]) -> None:
        """`leads`: whether this replica makes spans."""
        self._traces, self._clock, self._leads = traces, clock, leads

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Make spans for one change.  Objects that the watch begins with, and deletions, end no phase."""
        if old is None or new is None or not self._leads():
            return
        if (reserved := self._rise(old, new, names.CONDITION_QUOTA_RESERVED)) is not None:
            self._add_span(new, "queued", _queued_at(new), reserved)
        if (admitted := self._rise(old, new, names.CONDITION_ADMITTED)) is not None:
            since = _when_true(new, names.CONDITION_QUOTA_RESERVED)
            if since is not None and since < admitted:
                self._add_span(new, "checks", since, admitted)
        if (ready := self._rise(old, new, names.CONDITION_PODS_READY)) is not None:
            self._add_span(new, "starting", _when_true(new, names.CONDITION_ADMITTED), ready)
        for kind in (names.CONDITION_FINISHED, names.CONDITION_EVICTED):
            ended = self._rise(old, new, kind)
            if ended is not None:
                since = _when_true(old, names.CONDITION_PODS_READY) or _when_true(old, names.CONDITION_ADMITTED)
                found = model.condition(new.status.conditions, kind)
                self._add_span(new, "running", since, ended, ended_by=found.reason if found is not None else "")

    def _rise(self, old: wire.Workload, new: wire.Workload, kind: str) -> datetime | None:
        """Return when this change made the condition True; None when it did not."""
        since = _when_true(new, kind)
        return since if since is not None and since != _when_true(old, kind) else None

    def _add_span(
        self, workload: wire.Workload, name: str, began: datetime | None, ended: datetime, *, ended_by: str = ""
    ) -> None:
        if began is None:
            return
        admission = workload.status.admission
        attributes = {
            "kqueue.workload": model.workload_key(workload),
            "kqueue.local_queue": model.local_queue_key(workload),
            "kqueue.cluster_queue": admission.cluster_queue if admission is not None else "",
        }
        if ended_by:
            attributes["kqueue.ended_by"] = ended_by
        self._traces.stretch(
            name,
            uid=workload.metadata.uid,
            began=began.timestamp(),
            ended=ended.timestamp(),
            attributes=attributes,
        )


def _queued_at(workload: wire.Workload) -> datetime | None:
    """Return when the workload was queued, or requeued after its last eviction."""
    return _when_true(workload, names.CONDITION_REQUEUED) or workload.metadata.creation_timestamp


def _when_true(workload: wire.Workload, kind: str) -> datetime | None:
    found = model.condition(workload.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None
