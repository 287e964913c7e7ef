"""Decides how a BatchProcess ends: complete by its success policy, or failed.  Pure.

The end is a condition of the object.  It is written before any pod is removed for it, so that it is the same after a
restart; a written end is never taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kqueue.api import names
from kqueue.clock import api_time, moment_after
from kqueue.jobs.fields import JSON, flag, mapping, sequence, text, whole
from kqueue.jobs.gang.batch_process import BatchPlan
from kqueue.jobs.gang.batch_slots import BatchPlaces, failure_text
from kqueue.jobs.gang.match import counts_of
from kqueue.jobs.pod_view import ManagedPod
from kqueue.kube import conditions

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
"""Conditions of a BatchProcess."""
REASON_TIMED_OUT = "TimedOut"
REASON_BACKOFF_LIMIT = "BackoffLimitExceeded"
REASON_POD_FAILED = "PodFailed"
REASON_POD_REFUSED = "PodRefused"
REASON_DEADLINE = "DeadlineExceeded"
REASON_POLICY_MET = "SuccessPolicyMet"
DEFAULT_BACKOFF_LIMIT = 6
_TOO_LONG = names.REASON_DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """The end of a BatchProcess."""

    success: bool
    reason: str
    message: str
    written: bool = False
    """Whether the object's status has it, so that pods may be removed for it."""

    @property
    def condition(self) -> str:
        """The condition that says it."""
        return COMPLETE if self.success else FAILED


def restart_of(obj: JSON) -> str:
    """Return what follows when a pod fails: `Member`, `Gang` or `None`."""
    return text(obj, "spec", "failurePolicy", "restart") or "Member"


def failures_of(obj: JSON, places: BatchPlaces) -> int:
    """Return the failures until now; those of pods that are gone were written to the status."""
    seen = places.failures(whole_gang=restart_of(obj) == "Gang")
    return max(seen, whole(obj, "status", "failures") or 0)


def written_end(obj: JSON) -> BatchEnd | None:
    """Return the end that the conditions of the object say; None: it has not ended."""
    for kind in (COMPLETE, FAILED):
        found = conditions.condition(obj, kind)
        if found is not None and found.get("status") == "True":
            return BatchEnd(
                success=kind == COMPLETE, reason=text(found, "reason"), message=text(found, "message"), written=True
            )
    return None


def end_of(
    obj: JSON, plan: BatchPlan, workload: JSON | None, places: BatchPlaces, now: datetime, *, refusal: str = ""
) -> BatchEnd | None:
    """Return the end of the BatchProcess; None: it goes on.

    Success counts before failure, and the quorum before the timeout, where both are true at the same moment.

    Args:
        refusal: the server's words about a pod that it does not take; empty: none was refused.
    """
    found = written_end(obj)
    if found is not None or flag(obj, "spec", "suspend"):
        return found
    return (
        _success(obj, plan, workload, places)
        or _refused(refusal)
        or _failure(obj, places)
        or _workload_end(workload)
        or _timeout(obj, plan, places, now)
    )


def _refused(refusal: str) -> BatchEnd | None:
    return BatchEnd(success=False, reason=REASON_POD_REFUSED, message=refusal) if refusal else None


def _success(obj: JSON, plan: BatchPlan, workload: JSON | None, places: BatchPlaces) -> BatchEnd | None:
    """Return the end by the success policy; it needs a Workload, which says the base counts."""
    if workload is None:
        return None
    named = [name for name in sequence(obj, "spec", "successPolicy", "processes") if isinstance(name, str)]
    processes = named or [role.name for role in plan.roles]
    pods = {process: places.of(process) for process in processes}
    done = sum(pod.succeeded for found in pods.values() for pod in found)
    if text(obj, "spec", "successPolicy", "operator") == "Any":
        first = next((pod for found in pods.values() for pod in found if pod.succeeded), None)
        if first is None:
            return None
        return BatchEnd(success=True, reason=REASON_POLICY_MET, message=f"pod {first.name} succeeded")
    base = counts_of(workload)
    if done and all(_all_succeeded(found, base.get(process, 0)) for process, found in pods.items()):
        return BatchEnd(success=True, reason=REASON_POLICY_MET, message=f"{done} pods succeeded")
    return None


def _all_succeeded(pods: Sequence[ManagedPod], base: int) -> bool:
    """Whether every pod that was started has succeeded, and at least as many as the base has."""
    started = [pod for pod in pods if not pod.gated]
    return all(pod.succeeded for pod in started) and len(started) >= base


def _failure(obj: JSON, places: BatchPlaces) -> BatchEnd | None:
    written = whole(obj, "spec", "failurePolicy", "backoffLimit")
    limit = DEFAULT_BACKOFF_LIMIT if written is None else written
    number = failures_of(obj, places)
    failed = places.failed()
    if not failed:
        return None
    at_once = restart_of(obj) == "None"
    if not at_once and number <= limit:
        return None
    return BatchEnd(
        success=False,
        reason=REASON_POD_FAILED if at_once else REASON_BACKOFF_LIMIT,
        message=failure_text(failed[-1], number, limit),
    )


def _workload_end(workload: JSON | None) -> BatchEnd | None:
    """Return the end by a Workload that others have finished, or that ran for longer than it may."""
    if workload is None:
        return None
    finished = conditions.condition(workload, names.CONDITION_FINISHED)
    if finished is not None and finished.get("status") == "True":
        reason = text(finished, "reason")
        return BatchEnd(success=reason == names.REASON_SUCCEEDED, reason=reason, message=text(finished, "message"))
    evicted = conditions.condition(workload, names.CONDITION_EVICTED)
    if evicted is not None and evicted.get("status") == "True" and text(evicted, "reason") == _TOO_LONG:
        return BatchEnd(success=False, reason=REASON_DEADLINE, message=text(evicted, "message"))
    return None


def _timeout(obj: JSON, plan: BatchPlan, places: BatchPlaces, now: datetime) -> BatchEnd | None:
    due = quorum_due(obj)
    if due is None or now < due or has_quorum(places, plan):
        return None
    seconds = whole(obj, "spec", "podGroup", "timeoutSeconds")
    message = (
        f"{scheduled(places)} of {plan.quorum} pods were scheduled within {seconds} s of the creation; all pods were "
        "removed; delete it, or make it anew with a longer spec.podGroup.timeoutSeconds"
    )
    return BatchEnd(success=False, reason=REASON_TIMED_OUT, message=message)


def quorum_due(obj: JSON) -> datetime | None:
    """Return the time until which the quorum must be scheduled for the first time; suspended time does not count.

    None: there is no such time, it was met, or the BatchProcess is suspended.
    """
    seconds = whole(obj, "spec", "podGroup", "timeoutSeconds")
    created = api_time(text(obj, "metadata", "creationTimestamp"))
    if seconds is None or created is None or text(obj, "status", "scheduledTime") or flag(obj, "spec", "suspend"):
        return None
    return moment_after(created, timedelta(seconds=seconds + suspended_seconds(obj, None)))


def suspended_seconds(obj: JSON, now: datetime | None) -> int:
    """Return the seconds for which it was suspended; `now` adds the time since the last suspension, None does not."""
    found = whole(obj, "status", "suspendedSeconds") or 0
    since = api_time(text(conditions.condition(obj, SUSPENDED) or {}, "lastTransitionTime"))
    if now is None or since is None or not conditions.is_true(obj, SUSPENDED):
        return found
    return found + max(0, int((now - since).total_seconds()))


def scheduled(places: BatchPlaces) -> int:
    """Return the number of pods that have a node or have succeeded."""
    return sum(pod.scheduled for pod in places.newest.values())


def has_quorum(places: BatchPlaces, plan: BatchPlan) -> bool:
    """Whether as many pods are scheduled as the quorum needs."""
    return scheduled(places) >= plan.quorum


def expires(obj: JSON) -> datetime | None:
    """Return the time at which the ended BatchProcess is deleted; None: it has not ended, or is kept."""
    seconds = whole(obj, "spec", "ttlSecondsAfterFinished")
    ended = api_time(text(mapping(obj, "status"), "completionTime"))
    return None if seconds is None or ended is None else moment_after(ended, timedelta(seconds=seconds))
