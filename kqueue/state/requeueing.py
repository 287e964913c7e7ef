"""When an evicted Workload comes back: pauses that double, and the conditions that keep it out until then.  Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zlib import crc32

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after, utc_text

_JITTER = 0.0001
"""Of a pause, added at most.  Source: the compatible system."""
_COUNT_MAX = 2**31 - 1
"""What the field holds."""


class RequeueBackoff(NamedTuple):
    """Pauses in seconds, and how many; `limit` None: any number of times."""

    base: int
    longest: int
    """0: no upper bound."""
    limit: int | None = None

    def allows(self, count: int) -> bool:
        """Whether a workload may come back for the `count`th time."""
        return self.limit is None or count <= self.limit

    def pause(self, count: int) -> int:
        """Seconds before the `count`th time (1 is the first): the base, doubled each time, up to the longest.

        The first is the base however short the longest is.
        """
        if count <= 1 or self.base == 0:
            return self.base
        doubled = self.base << min(count - 1, 40)  # 40: 30,000 years of 1 s
        return min(doubled, self.longest) if self.longest > 0 else min(doubled, _COUNT_MAX)


def returns_at_once(reason: str) -> bool:
    """Whether one evicted for this is queued again as soon as it holds nothing; others wait until its cause is gone."""
    return reason in (names.REASON_PREEMPTED, names.REASON_NODE_FAILURES)


def times_requeued(obj: wire.Workload) -> int:
    """How often it has been sent back for its pods not being ready, since its user made it active."""
    state = obj.status.requeue_state
    return min(max(0, state.count or 0), _COUNT_MAX - 1) if state is not None else 0


def requeue_at(obj: wire.Workload) -> datetime | None:
    """Until when it waits; None: for nothing."""
    state = obj.status.requeue_state
    return state.requeue_at if state is not None else None


def next_requeue(obj: wire.Workload, backoff: RequeueBackoff, now: datetime) -> wire.RequeueState:
    """The state after one more eviction: counted, and when it may come back.  A time that is later already stays.

    Workloads that are evicted together do not come back in the same moment: each adds a part of its own, which is the
    same whenever it is worked out.
    """
    count = times_requeued(obj) + 1
    own = crc32(f"{obj.metadata.uid}/{count}".encode()) / 2**32
    pause = backoff.pause(count)
    at = moment_after(now, timedelta(seconds=pause + pause * _JITTER * own))
    planned = requeue_at(obj)
    return wire.RequeueState(count=count, requeue_at=at if planned is None else max(at, planned))


def state_json(state: wire.RequeueState) -> dict[str, Any]:
    """As it stands in the status."""
    at = state.requeue_at
    return {"count": state.count, "requeueAt": utc_text(at) if at is not None else None}


def waits_until(obj: wire.Workload, now: datetime) -> datetime | None:
    """The time before which nothing is to be done with it; None when there is none, or it has passed."""
    at = requeue_at(obj)
    return at if at is not None and at > now else None


def reason_to_return(obj: wire.Workload, *, local_stopped: bool, cluster_stopped: bool) -> str | None:
    """The reason of Requeued=True when what keeps an evicted workload out is over; None while it is not, or nothing is.

    Whether a back-off is over is not asked here.  What nobody knows keeps nobody out for ever.
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
