"""Evict a Workload that comes back after a pause, or deactivate it after too many pauses.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.state import requeueing, status
from kqueue.state.requeueing import RequeueBackoff


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedLeave:
    """The reason of an eviction with a pause.

    Args:
        reason: the reason of the condition Evicted.
        cause: the underlying cause that the counters have; empty: none.
        problem: the cause as a part of a sentence.
        limit_field: the setting with the limit of pauses, for the message of the deactivation.
        message: returns the message of the eviction from the time of the requeue and the number of requeues.
    """

    reason: str
    problem: str
    limit_field: str
    message: Callable[[str, int], str]
    cause: str = ""


def leave(obj: wire.Workload, why: PausedLeave, backoff: RequeueBackoff, *, stamp: status.Stamp) -> status.Patch | None:
    """Return a patch that evicts the Workload until its pause is over, or that requests its deactivation when the limit
    of pauses is reached; None when that is written already.
    """
    count = requeueing.times_requeued(obj) + 1
    if not backoff.allows(count):
        message = f"{why.problem}, for the {_ordinal(count)} time ({why.limit_field} {backoff.limit})"
        reason = names.REASON_REQUEUING_LIMIT_EXCEEDED
        return status.request_deactivation(obj, reason=reason, message=message, stamp=stamp)
    state = requeueing.next_requeue(obj, backoff, stamp.now)
    assert state.requeue_at is not None
    message = why.message(status.Stamp(state.requeue_at).text, count)
    return status.evict(obj, reason=why.reason, cause=why.cause, message=message, stamp=stamp, requeue_state=state)


def _ordinal(number: int) -> str:
    """Return the English ordinal of a number: 1st, 2nd, 3rd, 4th ... 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
