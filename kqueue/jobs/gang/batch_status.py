"""Computes the status of a BatchProcess: phase, counts, conditions and times.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from kqueue.api import names
from kqueue.clock import utc_text
from kqueue.jobs.fields import JSON, flag, mapping, objects, text, whole
from kqueue.jobs.gang.batch_end import (
    COMPLETE,
    FAILED,
    SUSPENDED,
    BatchEnd,
    failures_of,
    has_quorum,
    scheduled,
    suspended_seconds,
)
from kqueue.jobs.gang.batch_life import is_admitted
from kqueue.jobs.gang.batch_process import BatchPlan, BatchRole
from kqueue.jobs.gang.batch_slots import BatchPlaces
from kqueue.jobs.gang.counts import gang_counts, member_counts
from kqueue.jobs.gang.match import counts_of
from kqueue.jobs.gang.value import GangCounts, GangPhase
from kqueue.kube import conditions

QUEUED, ADMITTED, SCHEDULED, NETWORK = "Queued", "Admitted", "Scheduled", "Network"
REASON_NO_QUEUE, REASON_INVALID, REASON_CREATED = "NoQueue", "Invalid", "WorkloadCreated"
REASON_SERVICE_EXISTS, REASON_SERVICE_READY = "ServiceExists", "ServiceReady"
PHASE_SUSPENDED, PHASE_SCHEDULED = "Suspended", "Scheduled"
_REJECTIONS = ("GangRejected", "GangScheduleTimeout")


@dataclass(frozen=True, slots=True)
class QueueHindrance:
    """Why a BatchProcess has no Workload: the reason of condition `Queued`, and the sentence."""

    reason: str
    message: str


NO_QUEUE = QueueHindrance(REASON_NO_QUEUE, f"no queue: label the BatchProcess with {names.QUEUE_NAME_LABEL}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """The facts from which a status is computed.

    Args:
        obj: the BatchProcess in its newest known version.
        workload: its Workload; None: there is none.
        hindrance: why no Workload can be created; None: one exists or will.
        end: its end, by `end_of`.
        service: whether the Service is there (True) or is another one's (False); None: unknown, or none is wanted.
    """

    obj: JSON
    plan: BatchPlan
    workload: JSON | None
    places: BatchPlaces
    now: datetime
    hindrance: QueueHindrance | None = None
    end: BatchEnd | None = None
    service: bool | None = None


def status_of(view: BatchView) -> JSON:
    """Return the complete status; conditions and times that have not changed are those of the object."""
    obj, plan, places = view.obj, view.plan, view.places
    counts = gang_counts(
        places.pods, view.workload, quorum=plan.quorum, before=_phase_before(text(obj, "status", "phase"))
    )
    found: JSON = {
        "observedGeneration": whole(obj, "metadata", "generation") or 0,
        "phase": _phase(view, counts),
        "quorum": f"{plan.quorum}/{plan.replicas}",
        "replicas": plan.replicas,
        "created": len(places.newest),
        **_numbers(places, counts),
        "failures": failures_of(obj, places),
        "processes": [_process(role, view, counts) for role in plan.roles],
        "conditions": conditions.with_conditions(
            [dict(c) for c in mapping(obj, "status").get("conditions") or ()],
            _conditions(view, counts),
            utc_text(view.now),
        ),
        **_times(view),
    }
    message = _message(view, counts)
    found |= {"message": message} if message else {}
    return found | ({"workload": text(view.workload, "metadata", "name")} if view.workload is not None else {})


def invalid_status(obj: JSON, hindrance: QueueHindrance, now: datetime) -> JSON:
    """Return the status of an object that cannot be read: all as it was, but the reason."""
    change = _condition(QUEUED, False, hindrance.reason, hindrance.message)
    before = dict(mapping(obj, "status"))
    return {
        **before,
        "observedGeneration": whole(obj, "metadata", "generation") or 0,
        "phase": text(before, "phase") or GangPhase.PENDING.value,
        "message": hindrance.message,
        "conditions": conditions.with_conditions(
            [dict(c) for c in before.get("conditions") or ()], [change], utc_text(now)
        ),
    }


def _phase_before(written: str) -> GangPhase | None:
    if written in (PHASE_SUSPENDED, GangPhase.FINISHED.value):
        return GangPhase.PENDING
    if written == PHASE_SCHEDULED:
        return GangPhase.SCHEDULING
    return GangPhase(written) if written in {phase.value for phase in GangPhase} else None


def _phase(view: BatchView, counts: GangCounts) -> str:
    if view.end is not None:
        return (GangPhase.FINISHED if view.end.success else GangPhase.FAILED).value
    if flag(view.obj, "spec", "suspend"):
        return PHASE_SUSPENDED
    if counts.phase is GangPhase.FINISHED:  # all have succeeded, and the success policy will say so, or wants more
        return GangPhase.RUNNING.value
    if counts.phase is GangPhase.SCHEDULING and has_quorum(view.places, view.plan):
        return PHASE_SCHEDULED
    return counts.phase.value


def _numbers(places: BatchPlaces, counts: GangCounts) -> JSON:
    return {
        "scheduled": scheduled(places),
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
    }


def _process(role: BatchRole, view: BatchView, counts: GangCounts) -> JSON:
    base = counts_of(view.workload).get(role.name, 0) if view.workload is not None else role.base
    mine = member_counts(pod for pod in view.places.pods if pod.role == role.name)
    return {
        "name": role.name,
        "replicas": role.replicas,
        "minAvailable": base,
        "created": len(view.places.of(role.name)),
        "scheduled": sum(pod.scheduled for pod in view.places.of(role.name)),
        "running": mine.running,
        "succeeded": mine.succeeded,
        "failed": mine.failed,
    }


def _message(view: BatchView, counts: GangCounts) -> str:
    if view.end is not None:
        return view.end.message
    if view.hindrance is not None and view.workload is None:
        return view.hindrance.message
    return counts.message


def _times(view: BatchView) -> JSON:
    """Return the times, each written once, and the seconds of suspensions that are over."""
    obj, now = view.obj, utc_text(view.now)
    begun = any(not pod.gated for pod in view.places.pods)
    facts = {
        "startTime": begun,
        "scheduledTime": has_quorum(view.places, view.plan),
        "completionTime": view.end is not None,
    }
    found: JSON = {
        name: text(obj, "status", name) or now for name, holds in facts.items() if holds or text(obj, "status", name)
    }
    resumed = conditions.is_true(obj, SUSPENDED) and not _is_suspended(view)
    seconds = suspended_seconds(obj, view.now if resumed else None)
    return found | ({"suspendedSeconds": seconds} if seconds else {})


def _is_suspended(view: BatchView) -> bool:
    """Whether the object is suspended, or was and its Workload is not active again yet."""
    if flag(view.obj, "spec", "suspend"):
        return True
    inactive = view.workload is not None and mapping(view.workload, "spec").get("active") is False
    return inactive and conditions.is_true(view.obj, SUSPENDED)


# --- conditions -------------------------------------------------------------------------------------------------------


def _condition(kind: str, holds: bool, reason: str, message: str) -> JSON:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def _conditions(view: BatchView, counts: GangCounts) -> list[JSON]:
    """Return the conditions that the present facts decide, in a fixed order; the others stay as they are."""
    return [
        *_queued(view),
        *_admitted(view),
        *_scheduled(view, counts),
        *_suspended(view),
        *_network(view),
        *([_condition(view.end.condition, True, view.end.reason, view.end.message)] if view.end is not None else []),
    ]


def _queued(view: BatchView) -> Iterator[JSON]:
    if view.workload is not None:
        message = f"Workload {text(view.workload, 'metadata', 'name')} counts {view.plan.quorum} pods"
        yield _condition(QUEUED, True, REASON_CREATED, message)
    elif view.end is not None:
        return
    elif flag(view.obj, "spec", "suspend"):
        yield _condition(QUEUED, False, PHASE_SUSPENDED, "it is suspended; set spec.suspend to false to queue it")
    elif view.hindrance is not None:
        yield _condition(QUEUED, False, view.hindrance.reason, view.hindrance.message)


def _admitted(view: BatchView) -> Iterator[JSON]:
    if view.workload is None:
        if conditions.is_true(view.obj, ADMITTED):
            yield _condition(ADMITTED, False, "NoWorkload", "there is no Workload")
        return
    admitted = conditions.condition(view.workload, names.CONDITION_ADMITTED)
    reserved = conditions.condition(view.workload, names.CONDITION_QUOTA_RESERVED)
    waits = reserved is not None and reserved.get("status") != "True"  # its reason is better than that it waits
    found = reserved if waits else admitted
    if found is not None:
        yield _condition(ADMITTED, found.get("status") == "True", text(found, "reason"), text(found, "message"))


def _scheduled(view: BatchView, counts: GangCounts) -> Iterator[JSON]:
    number, quorum = scheduled(view.places), view.plan.quorum
    message = f"{number} pods are scheduled; the quorum is {quorum}"
    if has_quorum(view.places, view.plan):
        yield _condition(SCHEDULED, True, "QuorumScheduled", f"the quorum of {quorum} pods is scheduled")
    elif view.workload is not None and is_admitted(view.workload):
        yield _condition(SCHEDULED, False, "Starting", message)
    elif conditions.condition(view.obj, SCHEDULED) is not None:
        reason = counts.reason if counts.reason in _REJECTIONS else "Starting"
        yield _condition(SCHEDULED, False, reason, counts.message if reason in _REJECTIONS else message)


def _suspended(view: BatchView) -> Iterator[JSON]:
    if _is_suspended(view):
        yield _condition(SUSPENDED, True, PHASE_SUSPENDED, "spec.suspend is true")
    elif conditions.is_true(view.obj, SUSPENDED):
        yield _condition(SUSPENDED, False, "Resumed", "spec.suspend is false")


def _network(view: BatchView) -> Iterator[JSON]:
    name = text(view.obj, "metadata", "name")
    if view.service is True:
        yield _condition(NETWORK, True, REASON_SERVICE_READY, f"Service {name} gives each pod an address")
    elif view.service is False:
        message = (
            f"Service {name} is another owner's, so the pods have no addresses; delete it, or name one differently"
        )
        yield _condition(NETWORK, False, REASON_SERVICE_EXISTS, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEvent:
    """An event that a change of status causes."""

    reason: str
    message: str
    warning: bool = False


def events_of(before: Mapping[str, object], after: Mapping[str, object]) -> list[BatchEvent]:
    """Return the events of a change of status: start, quorum, failures, eviction and end."""
    found: list[BatchEvent] = []
    quorum, running = text(after, "quorum").partition("/")[0], whole(after, "running") or 0
    if not text(before, "startTime") and text(after, "startTime"):
        found.append(BatchEvent(reason="Scheduled", message=f"{quorum} pods were released together"))
    phases = (phase_of(before), phase_of(after))
    if phases[0] != phases[1] and phases[1] == GangPhase.RUNNING.value:
        found.append(BatchEvent(reason="Running", message=f"{running} pods run; the quorum is {quorum}"))
    if (more := (whole(after, "failures") or 0) - (whole(before, "failures") or 0)) > 0:
        message = f"{more} pods failed; {whole(after, 'failures')} failures in all"
        found.append(BatchEvent(reason="MemberFailed", message=message, warning=True))
    if _state(before, ADMITTED) == "True" != _state(after, ADMITTED) and not _is_over(after):
        condition = next((c for c in _all_conditions(after) if c.get("type") == ADMITTED), {})
        message = text(after, "message") or text(condition, "message")
        found.append(BatchEvent(reason=text(condition, "reason") or "Evicted", message=message, warning=True))
    for kind in (COMPLETE, FAILED):
        if _state(before, kind) != "True" == _state(after, kind):
            reason = "Finished" if kind == COMPLETE else FAILED
            found.append(BatchEvent(reason=reason, message=text(after, "message"), warning=kind == FAILED))
    return found


def _is_over(status: Mapping[str, object]) -> bool:
    return any(_state(status, kind) == "True" for kind in (COMPLETE, FAILED))


def _state(status: Mapping[str, object], kind: str) -> str:
    return next((text(c, "status") for c in _all_conditions(status) if c.get("type") == kind), "")


def _all_conditions(status: Mapping[str, object] | None) -> list[Mapping[str, object]]:
    return objects(status or {}, "conditions")


def phase_of(status: Mapping[str, object] | None) -> str:
    """Return the written phase; empty: none was written."""
    return text(status or {}, "phase")


def changed_state(before: Mapping[str, object] | None, after: Mapping[str, object]) -> bool:
    """Whether the phase or any condition differs, so that the status is written at once."""
    return phase_of(before) != phase_of(after) or _states(before) != _states(after)


def _states(status: Mapping[str, object] | None) -> list[tuple[str, str, str]]:
    return sorted((text(c, "type"), text(c, "status"), text(c, "reason")) for c in _all_conditions(status))
