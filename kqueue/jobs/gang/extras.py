"""Extras: the members of a gang beyond its quorum.  Each is queued alone, after the quorum has started.

A mark on the pod ends its part in the gang's Workload.  All that is known is on the objects, so that a controller that
is killed anywhere goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kqueue.api import gang_names, names
from kqueue.core.queued import EXTRAS_WAITING
from kqueue.jobs.fields import JSON, condition_of, condition_status, labels_of, mapping, objects, text
from kqueue.jobs.gang.group_object import priority_class_of
from kqueue.jobs.gang.match import Match, counts_of
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod_view import ManagedPod


def to_mark(
    found: Match, extras: Sequence[ManagedPod], workload: Mapping[str, Any], *, early: bool = False
) -> tuple[ManagedPod, ...]:
    """Return the members to mark as extras now, the oldest first; none before the quorum `has_started`.

    After the end of the Workload only members count that existed then: later ones are another generation of the group.

    Args:
        extras: members that are marked already.
        early: the admission of the quorum is enough.
    """
    started = has_started(found, workload) or (early and _is_admitted(workload))
    finished = _finished_at(workload)
    if not started and finished is None:
        return ()
    waiting = [pod for pod in found.extras if pod.gated and pod.runnable]
    if finished is not None:
        waiting = [pod for pod in waiting if waits_since_before_the_end(pod, workload)]
    room = EXTRAS_WAITING - sum(pod.gated and pod.runnable for pod in extras)
    return in_order(waiting)[: max(0, room)]


def waits_since_before_the_end(pod: ManagedPod, workload: Mapping[str, Any]) -> bool:
    """Whether the pod is gated and was there when the Workload finished."""
    finished = _finished_at(workload)
    return finished is not None and pod.gated and pod.runnable and pod.created <= finished


def has_started(found: Match, workload: Mapping[str, Any]) -> bool:
    """Whether the quorum is scheduled; with assigned domains its release is enough."""
    if not _is_admitted(workload):
        return False
    assignments = objects(workload, "status", "admission", "podSetAssignments")
    if any(mapping(assignment, "topologyAssignment") for assignment in assignments):
        begun = sum(pod.runnable and not pod.gated for pod in found.kept)
    else:
        begun = sum(pod.scheduled for pod in found.kept)
    return begun >= sum(counts_of(workload).values())


def _is_admitted(workload: Mapping[str, Any]) -> bool:
    evicted = condition_status(workload, names.CONDITION_EVICTED) == "True"
    return condition_status(workload, names.CONDITION_ADMITTED) == "True" and not evicted


def _finished_at(workload: Mapping[str, Any]) -> datetime | None:
    finished = condition_of(workload, names.CONDITION_FINISHED, "True")
    return datetime.fromisoformat(text(finished, "lastTransitionTime")) if finished else None


def to_return(
    found: Match, extras: Sequence[ManagedPod], workload: Mapping[str, Any], *, reserved: Callable[[ManagedPod], bool]
) -> tuple[ManagedPod, ...]:
    """Return the waiting extras that take the places of lost members of the base: for each place of a role without a
    member the oldest extra of the role that is gated and has no reservation of its own (`reserved`).

    An early extra may have one: the quorum lacks the member for its start, and the extra is not released before.
    """
    if not extras or not found.absent:
        return ()
    present = Counter(pod.role for pod in found.kept if pod.runnable)
    vacant = {role: count - present[role] for role, count in counts_of(workload).items()}
    chosen: list[ManagedPod] = []
    for pod in in_order(extras):
        if vacant.get(pod.role, 0) > 0 and pod.gated and pod.runnable and (pod.early or not reserved(pod)):
            vacant[pod.role] -= 1
            chosen.append(pod)
    return tuple(chosen)


def lose_their_base(
    extras: Sequence[ManagedPod], base: Sequence[ManagedPod], workload: Mapping[str, Any] | None
) -> bool:
    """Whether the extras cannot be queued alone any more, because their base has no quota and has not finished."""
    if not extras:
        return False
    if workload is None:
        return any(not pod.terminated for pod in base)
    return not lets_extras_wait(workload)


def lets_extras_wait(workload: Mapping[str, Any]) -> bool:
    """Whether pods beyond the quorum may be queued alone: the Workload of the quorum is admitted, or has finished."""
    if condition_status(workload, names.CONDITION_FINISHED) == "True":
        return True
    return not mapping(workload, "metadata").get("deletionTimestamp") and _is_admitted(workload)


def mark(pod: ManagedPod, workload: Mapping[str, Any], *, early: bool = False) -> Patch:
    """Return the patch that makes the member an extra, in the queue and with the priority class of its gang; `early`:
    before the quorum has started.
    """
    own = labels_of(pod.obj)
    spec = mapping(workload, "spec")
    priority = mapping(spec, "priorityClassRef")
    wanted = {names.QUEUE_NAME_LABEL: text(spec, "queueName")}
    if text(priority, "kind") == names.WORKLOAD_PRIORITY_CLASS_KIND:
        wanted[names.PRIORITY_CLASS_LABEL] = text(priority, "name")
    labels = {key: value for key, value in wanted.items() if value and not own.get(key)}
    kind = gang_names.EARLY_EXTRA if early else gang_names.EXTRA
    metadata: Patch = {"annotations": {gang_names.EXTRA_ANNOTATION: kind}}
    return {"metadata": {**metadata, "labels": labels} if labels else metadata}


def priority_of_gang(
    pod: JSON, pod_sets: Sequence[JSON], workload: Mapping[str, Any] | None, group_object: JSON | None
) -> tuple[JSON, Sequence[JSON]]:
    """Return the extra as its gang's priority class makes it, and the pod sets that decide where no label does.

    Args:
        pod: the extra.
        pod_sets: those of the extra, which count where the gang names no class.
        workload: the Workload of the quorum, whose class is the gang's; None: the pods of the group are queued one by
            one, so that the group object decides before each pod.
        group_object: None: the gang has none.
    """
    if workload is None:
        label = priority_class_of(group_object)
        named = text(group_object, "spec", "priorityClassName")
        return (_labelled(pod, label) if label else pod), [_of_class(named), *pod_sets]
    reference = mapping(workload, "spec", "priorityClassRef")
    name = text(reference, "name")
    if text(reference, "kind") == names.WORKLOAD_PRIORITY_CLASS_KIND:
        return _labelled(pod, name), pod_sets
    return _labelled(pod, ""), [_of_class(name)]


def _of_class(name: str) -> JSON:
    return {"template": {"spec": {"priorityClassName": name}}}


def _labelled(pod: JSON, priority_class: str) -> JSON:
    labels = labels_of(pod) | {names.PRIORITY_CLASS_LABEL: priority_class}
    return {**pod, "metadata": {**mapping(pod, "metadata"), "labels": labels}}


def unmark() -> Patch:
    """Return the patch that makes an extra a member again."""
    return {"metadata": {"annotations": {gang_names.EXTRA_ANNOTATION: None}}}
