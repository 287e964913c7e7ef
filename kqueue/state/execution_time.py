"""Compute how long a Workload may run in total.  Pure.  Runs that ended in an eviction count; time in the queue does
not.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after

SECONDS_MAX = 2**31 - 1
"""The largest value of the status field (int32)."""


def ends_at(obj: wire.Workload) -> datetime | None:
    """Return when a workload reaches its maximum execution time.

    None: the workload is not admitted, is inactive, or has no maximum.
    """
    limit, admitted = obj.spec.maximum_execution_time_seconds, model.since(obj, names.CONDITION_ADMITTED)
    if limit is None or admitted is None or not obj.spec.active:
        return None
    ran = max(0, obj.status.accumulated_past_execution_time_seconds or 0)
    return moment_after(admitted, timedelta(seconds=limit - ran))


def accumulated(obj: wire.Workload, now: datetime) -> int | None:
    """Return the total seconds that the workload has run if its run ends now; None: the workload is not admitted."""
    admitted = model.since(obj, names.CONDITION_ADMITTED)
    if admitted is None:
        return None
    before = max(0, obj.status.accumulated_past_execution_time_seconds or 0)
    return min(before + max(0, int((now - admitted).total_seconds())), SECONDS_MAX)
