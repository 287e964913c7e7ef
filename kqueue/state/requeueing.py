"""Decide when an evicted Workload is requeued: doubling pauses, and the conditions that delay the requeue.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zlib import crc32

from kqueue import model
from kqueue.api import backfill_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after, utc_text

_JITTER = 0.0001
"""Largest fraction of a pause that is added as jitter.  Source: the compatible system."""
_BACK_AT_ONCE = frozenset(
    {
        names.REASON_PREEMPTED,
        names.REASON_NODE_FAILURES,
        names.REASON_RESCHEDULED,
        backfill_names.REASON_BACKFILL_OVERRUN,
    }
)
_COUNT_MAX = 2**31 - 1
"""The largest value of the field `requeueState.count` (int32)."""


class RequeueBackoff(NamedTuple):
    """The pauses before requeues, in seconds, and the largest number of requeues; `limit` None: no largest number."""

    base: int
    longest: int
    """0: no upper bound."""
    limit: int | None = None

    def allows(self, count: int) -> bool:
        """Whether a workload may be requeued for the `count`th time."""
        return self.limit is None or count <= self.limit

    def pause(self, count: int) -> int:
        """Return the seconds before the `count`th requeue (from 1): the base, doubled each time, up to `longest`.

        The first pause is the base, even where `longest` is shorter.
        """
        if count <= 1 or self.base == 0:
            return self.base
        doubled = self.base << min(count - 1, 40)  # 40: 30,000 years of 1 s
        return min(doubled, self.longest) if self.longest > 0 else min(doubled, _COUNT_MAX)


DEFAULT_GANG_BACKOFF = RequeueBackoff(10, 600)
"""The pauses of gangs whose start failed."""


def returns_at_once(reason: str) -> bool:
    """Whether a workload evicted for this reason is requeued as soon as its reservation is released.

    After any other reason, a workload is requeued when the cause of its eviction is gone.
    """
    return reason in _BACK_AT_ONCE


def times_requeued(obj: wire.Workload) -> int:
    """Return how often the workload was requeued because its pods were not ready, since its user activated it."""
    state = obj.status.requeue_state
    return min(max(0, state.count or 0), _COUNT_MAX - 1) if state is not None else 0


def requeue_at(obj: wire.Workload) -> datetime | None:
    """Return the time until which the workload waits to be requeued; None: no such time is set."""
    state = obj.status.requeue_state
    return state.requeue_at if state is not None else None


def next_requeue(obj: wire.Workload, backoff: RequeueBackoff, now: datetime) -> wire.RequeueState:
    """Return the requeue state after one more eviction: the count plus one, and the time of the requeue.

    A later time that is already set is kept.  The jitter is a hash of the UID and the count: workloads that are evicted
    together are requeued at different times, and computing the state again gives the same time.
    """
    count = times_requeued(obj) + 1
    own = crc32(f"{obj.metadata.uid}/{count}".encode()) / 2**32
    pause = backoff.pause(count)
    at = moment_after(now, timedelta(seconds=pause + pause * _JITTER * own))
    planned = requeue_at(obj)
    return wire.RequeueState(count=count, requeue_at=at if planned is None else max(at, planned))


def state_json(state: wire.RequeueState) -> dict[str, Any]:
    """Return the requeue state as JSON of the Workload's status."""
    at = state.requeue_at
    return {"count": state.count, "requeueAt": utc_text(at) if at is not None else None}


def waits_until(obj: wire.Workload, now: datetime) -> datetime | None:
    """Return the time before which the workload must not be requeued; None: no time is set, or the time has passed."""
    at = requeue_at(obj)
    return at if at is not None and at > now else None


def reason_to_return(obj: wire.Workload, *, local_stopped: bool, cluster_stopped: bool) -> str | None:
    """Return the reason of Requeued=True for an evicted workload whose cause of eviction is gone.

    None: the cause persists, the workload is inactive, or its condition Requeued is not False.  The caller checks
    whether a back-off is over.  A workload with an unknown reason is requeued, so that it does not wait forever.
    """
    requeued = model.condition(obj.status.conditions, names.CONDITION_REQUEUED)
    if requeued is None or requeued.status != "False" or not obj.spec.active:
        return None
    match requeued.reason:
        case names.REASON_LOCAL_QUEUE_STOPPED:
            return None if local_stopped else names.REASON_LOCAL_QUEUE_RESTARTED
        case names.REASON_CLUSTER_QUEUE_STOPPED:
            return None if cluster_stopped else names.REASON_CLUSTER_QUEUE_RESTARTED
        case names.REASON_INADMISSIBLE:
            return None  # its device claims are refused
        case reason if reason.startswith(names.REASON_DEACTIVATED):
            return names.REASON_REACTIVATED
    return names.REASON_BACKOFF_FINISHED
