"""Decide when finished and deactivated Workloads expire.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after


def finished_expires(obj: wire.Workload, after: timedelta | None) -> datetime | None:
    """Return when a finished Workload is to be deleted; None: never, or the Workload has not finished.

    `after`: the time to keep a Workload after its end; None: finished Workloads are kept forever.
    """
    ended = model.since(obj, names.CONDITION_FINISHED)
    return moment_after(ended, after) if ended is not None and after is not None else None


def deactivated_expires(obj: wire.Workload, after: timedelta | None) -> datetime | None:
    """Return when the job of a Workload that kqueue has deactivated is to be deleted; None: never.

    A Workload that its user deactivated or activated again is kept.  `after`: the time to keep the job after the
    eviction; None: forever.
    """
    evicted = model.condition(obj.status.conditions, names.CONDITION_EVICTED)
    if after is None or obj.spec.active or evicted is None or evicted.status != "True":
        return None
    if not evicted.reason.startswith(names.DEACTIVATED_DUE_TO_PREFIX) or evicted.last_transition_time is None:
        return None
    return moment_after(evicted.last_transition_time, after)
