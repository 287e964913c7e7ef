"""For how long a Workload may run in all.  Pure.  Waiting does not count, and what was run before an eviction does."""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after

SECONDS_MAX = 2**31 - 1
"""What the field of the status holds."""


def ends_at(obj: wire.Workload) -> datetime | None:
    """When an admitted workload has run for as long as it may; None: it does not run, or has no limit."""
    limit, admitted = obj.spec.maximum_execution_time_seconds, model.since(obj, names.CONDITION_ADMITTED)
    if limit is None or admitted is None or not obj.spec.active:
        return None
    ran = max(0, obj.status.accumulated_past_execution_time_seconds or 0)
    return moment_after(admitted, timedelta(seconds=limit - ran))


def accumulated(obj: wire.Workload, now: datetime) -> int | None:
    """Seconds that it has run in all when it stops running now; None: it does not run."""
    admitted = model.since(obj, names.CONDITION_ADMITTED)
    if admitted is None:
        return None
    before = max(0, obj.status.accumulated_past_execution_time_seconds or 0)
    return min(before + max(0, int((now - admitted).total_seconds())), SECONDS_MAX)
