"""For how long what has ended is kept.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after


def finished_expires(obj: wire.Workload, after: timedelta | None) -> datetime | None:
    """When a finished Workload is to be deleted; None: never, or it has not finished.

    `after`: so long after its end; None: they are kept for ever.
    """
    ended = model.since(obj, names.CONDITION_FINISHED)
    return moment_after(ended, after) if ended is not None and after is not None else None


def deactivated_expires(obj: wire.Workload, after: timedelta | None) -> datetime | None:
    """When the job of a Workload that we have deactivated is to be deleted; None: never.

    What its user has deactivated, or made active again, is kept.  `after`: so long after its eviction; None: for ever.
    """
    evicted = model.condition(obj.status.conditions, names.CONDITION_EVICTED)
    if after is None or obj.spec.active or evicted is None or evicted.status != "True":
        return None
    if not evicted.reason.startswith(names.DEACTIVATED_DUE_TO_PREFIX) or evicted.last_transition_time is None:
        return None
    return moment_after(evicted.last_transition_time, after)
