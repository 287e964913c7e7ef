"""Decides the next steps of a BatchProcess: its Workload, its pods, its Service and its removal.  Pure.

Every decision is made from the objects alone, and a step that is repeated changes nothing, so that a controller that is
killed anywhere goes on.  The common code of gangs starts the pods, stops them at an eviction, and queues those
beyond the quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from kqueue.api import names
from kqueue.core.queued import EXTRAS_WAITING
from kqueue.jobs.fields import JSON, flag, mapping, whole
from kqueue.jobs.gang.batch_end import BatchEnd, expires, has_quorum, quorum_due, restart_of
from kqueue.jobs.gang.batch_pods import PodPlan, has_network, pod_name
from kqueue.jobs.gang.batch_process import BatchPlan, BatchRole
from kqueue.jobs.gang.batch_slots import BatchPlaces, attempt_of, has_failed
from kqueue.jobs.gang.match import counts_of
from kqueue.jobs.pod_view import ManagedPod
from kqueue.kube import conditions

CAUSE_RESTART = "GangRestarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSteps:
    """The steps to take now; all of them may be taken at once, in the order of the fields."""

    stop: tuple[ManagedPod, ...] = ()
    """Pods that run and are stopped; `cause` and `why` say why."""
    cause: str = ""
    """The reason of the stop, a word for programs."""
    why: str = ""
    drop: tuple[ManagedPod, ...] = ()
    """Pods that have not started and are deleted."""
    release: tuple[ManagedPod, ...] = ()
    """Pods that have ended and lose kqueue's finalizer."""
    finish: BatchEnd | None = None
    """The end with which the Workload is finished."""
    create: bool = False
    """Whether the Workload is created."""
    follow: bool = False
    """Whether the Workload follows the object's processes and queue; it has no quota and no pods."""
    active: bool | None = None
    """The value of the Workload's `spec.active` to write; None: it stays."""
    limit: bool = False
    """Whether the Workload follows the object's longest execution time; an admitted one cannot."""
    give_back: bool = False
    """Whether the quota of the evicted Workload, which has no pods, is released."""
    service: bool = False
    """Whether the Service has to be there."""
    make: tuple[PodPlan, ...] = ()
    delete: bool = False
    """Whether the object is deleted, because it ended long enough ago."""
    again: datetime | None = None
    """When the object has to be looked at again without an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """The facts from which the next steps are decided.

    Args:
        obj: the BatchProcess, valid.
        workload: its Workload; None: there is none.
        places: its pods.
        pending: names of pods that were created and that the watch has not brought yet.
        ready: whether a Workload may be created: there is a queue, and the API server takes the pods.
        same: whether the Workload has the processes and the queue that the object has.
        end: its end, by `end_of`.
        fast: whether pods that are being deleted use no quota.
    """

    obj: JSON
    plan: BatchPlan
    workload: JSON | None
    places: BatchPlaces
    now: datetime
    pending: frozenset[str] = frozenset()
    ready: bool = True
    same: bool = True
    end: BatchEnd | None = None
    fast: bool = False


def next_steps(facts: BatchFacts) -> BatchSteps:
    """Return the next steps; none for an object that is being deleted, whose pods go with it."""
    if mapping(facts.obj, "metadata").get("deletionTimestamp"):
        return BatchSteps(drop=_gated(facts), release=_ended(facts))
    if facts.end is not None:
        return _after_the_end(facts, facts.end) if facts.end.written else BatchSteps()
    workload = facts.workload
    if workload is None:
        return _without_workload(facts)
    if mapping(workload, "metadata").get("deletionTimestamp"):
        return BatchSteps()  # the reconciler of gangs stops the pods; the end of the Workload is an event
    if is_admitted(workload) and not _is_suspended(facts.obj):
        return _while_admitted(facts, workload)
    return _while_waiting(facts, workload)


def _after_the_end(facts: BatchFacts, end: BatchEnd) -> BatchSteps:
    """Stop all pods, finish the Workload after the last one, and delete the object when its time is over."""
    running = tuple(pod for pod in facts.places.pods if pod.at_large)
    steps = BatchSteps(stop=running, cause=end.reason, why=end.message, drop=_gated(facts), release=_ended(facts))
    if running or _any_active(facts):
        return steps
    due = expires(facts.obj)
    finish = None if facts.workload is None or conditions.is_true(facts.workload, names.CONDITION_FINISHED) else end
    over = due is not None and due <= facts.now and finish is None
    return BatchSteps(drop=steps.drop, release=steps.release, finish=finish, delete=over, again=None if over else due)


def _without_workload(facts: BatchFacts) -> BatchSteps:
    """Create the Workload once no pod of an earlier one is left."""
    left = any(pod.at_large for pod in facts.places.pods) or _any_active(facts)
    create = facts.ready and not left and not _is_suspended(facts.obj)
    return BatchSteps(drop=_gated(facts), release=_ended(facts), create=create, again=quorum_due(facts.obj))


def _while_waiting(facts: BatchFacts, workload: JSON) -> BatchSteps:
    """Keep the Workload like the object, and no pods; the common code stops those that run."""
    reserved = conditions.is_true(workload, names.CONDITION_QUOTA_RESERVED)
    evicted = conditions.is_true(workload, names.CONDITION_EVICTED)
    present = any(pod.at_large for pod in facts.places.pods) or _any_active(facts)
    return BatchSteps(
        drop=_gated(facts),
        release=_ended(facts),
        follow=not facts.same and not present and not (reserved and evicted),
        active=_wanted_active(facts.obj, workload),
        limit=_limit_differs(facts.obj, workload),
        give_back=reserved and evicted and not facts.places.pods,
        again=quorum_due(facts.obj),
    )


def _while_admitted(facts: BatchFacts, workload: JSON) -> BatchSteps:
    """Make the pods of the base, then those beyond it, and make pods that have failed anew."""
    return BatchSteps(
        stop=_of_earlier_rounds(facts),
        cause=CAUSE_RESTART,
        why="a pod failed, and all pods are made anew",
        service=has_network(facts.obj, facts.plan),
        make=tuple(_to_make(facts, workload)),
        again=quorum_due(facts.obj),
    )


# --- pods -------------------------------------------------------------------------------------------------------------


def _to_make(facts: BatchFacts, workload: JSON) -> Iterator[PodPlan]:
    """Yield the pods to make: all that the base lacks, and of the others as many as may wait at a time."""
    base = counts_of(workload)
    gang = restart_of(facts.obj) == "Gang"
    attempts = facts.places.round() if gang else 0
    failures = facts.places.failures(whole_gang=True) if gang else 0
    begun = has_quorum(facts.places, facts.plan)
    room = EXTRAS_WAITING - sum(pod.gated and pod.runnable for pod in facts.places.newest.values()) - len(facts.pending)
    for role in facts.plan.roles:
        lacking = base.get(role.name, 0) - _in_base(facts, role)
        for index in range(role.replicas):
            wanted = _pod_of_place(facts, role, index, attempts=attempts, failures=failures)
            if wanted is None:
                continue
            extra = lacking <= 0
            lacking -= 1
            if extra and (not begun or room <= 0):
                break
            if pod_name(facts.obj, role, index, wanted.attempt) in facts.pending:
                continue
            room -= extra
            yield wanted


def _in_base(facts: BatchFacts, role: BatchRole) -> int:
    """Return the pods of a process type that are in the base, or take a place of it."""
    return sum(pod.runnable and not pod.extra for pod in facts.places.of(role.name))


def _pod_of_place(facts: BatchFacts, role: BatchRole, index: int, *, attempts: int, failures: int) -> PodPlan | None:
    """Return the pod that a place lacks; None: it has one, which waits, runs or has succeeded."""
    before = facts.places.newest.get((role.name, index))
    if before is None:
        earlier = failures or facts.places.earlier.get((role.name, index), 0)
        return PodPlan(role=role, index=index, attempt=attempts, failures=earlier)
    if before.runnable:
        return None
    earlier = failures or facts.places.earlier.get((role.name, index), 0)
    return PodPlan(role=role, index=index, attempt=max(attempts, attempt_of(before) + 1), failures=earlier)


def _of_earlier_rounds(facts: BatchFacts) -> tuple[ManagedPod, ...]:
    """Return the running pods to stop because another one has failed since they began, with `restart: Gang`."""
    if restart_of(facts.obj) != "Gang":
        return ()
    now = facts.places.round()
    return tuple(
        pod for pod in facts.places.newest.values() if pod.at_large and attempt_of(pod) < now and not has_failed(pod)
    )


def _gated(facts: BatchFacts) -> tuple[ManagedPod, ...]:
    return tuple(pod for pod in facts.places.pods if pod.gated and not pod.deleting and not pod.terminated)


def _ended(facts: BatchFacts) -> tuple[ManagedPod, ...]:
    """Return pods that have ended and have kqueue's finalizer."""
    return tuple(pod for pod in _finalized(facts.places.pods) if pod.terminated or _is_gone(pod, facts))


def _is_gone(pod: ManagedPod, facts: BatchFacts) -> bool:
    return pod.deleting and not pod.active(facts.now, fast=facts.fast)


def _finalized(pods: Iterable[ManagedPod]) -> Iterator[ManagedPod]:
    return (pod for pod in pods if pod.finalizer)


def _any_active(facts: BatchFacts) -> bool:
    return any(pod.active(facts.now, fast=facts.fast) for pod in facts.places.pods)


# --- the Workload -----------------------------------------------------------------------------------------------------


def is_admitted(workload: Mapping[str, object]) -> bool:
    """Whether the Workload is admitted, and not evicted or finished."""
    return conditions.is_true(workload, names.CONDITION_ADMITTED) and not any(
        conditions.is_true(workload, kind) for kind in (names.CONDITION_EVICTED, names.CONDITION_FINISHED)
    )


def _is_suspended(obj: JSON) -> bool:
    return flag(obj, "spec", "suspend")


def _wanted_active(obj: JSON, workload: JSON) -> bool | None:
    """Return the wanted `spec.active`; None: it has the value already, or another actor deactivated the Workload."""
    active = mapping(workload, "spec").get("active") is not False
    if _is_suspended(obj):
        return False if active else None
    resumed = conditions.is_true(obj, "Suspended")
    return True if resumed and not active else None


def limit_of(obj: JSON) -> int | None:
    """Return the longest execution time in seconds; None: there is no limit."""
    found = whole(obj, "spec", "activeDeadlineSeconds")
    return found if found is not None and found > 0 else None


def _limit_differs(obj: JSON, workload: JSON) -> bool:
    return limit_of(obj) != whole(workload, "spec", "maximumExecutionTimeSeconds")
