"""The Workload of a unit that runs, and the pods of each of its pod sets: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue import kinds
from kqueue.api import gang_names, names
from kqueue.jobs import pod_view, rules
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.fields import JSON, annotations_of, mapping, objects, text, whole
from kqueue.jobs.gang.compose import Composition, compose, workload_of
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.group_object import queue_of
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.gang.naming import workload_of_gang
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.record import record_annotations
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.kind import ExceptionalKind
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, workload_for
from kqueue.operations.importing.members import members_of
from kqueue.operations.importing.places import node_of
from kqueue.operations.importing.refusal import RefusalError
from kqueue.operations.importing.units import ImportUnit, controller_of

Object = Mapping[str, Any]
PriorityOf = Callable[[JSON, Sequence[JSON]], Priority]
"""Resolves the priority of an object and its pod sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The Workload to create, and the pods by pod set."""

    workload: JSON
    members: Mapping[str, Sequence[Object]]


def draft(
    unit: ImportUnit, labels: Mapping[str, str], *, priority: PriorityOf, switches: JobFeatures, copied: CopiedKeys
) -> Draft:
    """Return the Workload of a unit that will have these labels, with the name that the controllers give it.

    Raises:
        RefusalError: there is no Workload that says the truth about the unit.
        InvalidObjectError: an annotation cannot be read.
    """
    for pod in unit.pods:
        if pod_view.gates_of(pod):
            raise RefusalError(f"{_its(unit, pod)} is held by a scheduling gate, so it does not run: {_REMEDY}")
        if pod_view.is_deleting(pod):
            raise RefusalError(f"{_its(unit, pod)} is being deleted, so that it ends or restarts: try again later")
    if unit.group:
        return _of_group(unit, labels, priority=priority, switches=switches, copied=copied)
    if unit.is_job:
        _refuse_job(unit, switches)
    job = _labelled(unit.obj, labels)
    pod_sets = unit.kind.pod_sets(job, switches)
    members = members_of(pod_sets, unit.pods)
    if unit.is_job:
        _refuse_parts(unit, pod_sets, members)
    made = workload_for(unit.kind, job, priority=priority(job, pod_sets), switches=switches, copied=copied)
    if unit.base is not None:
        made["metadata"].setdefault("annotations", {}).update(_marks_of_extra(unit.base, switches))
    return Draft(workload=made, members=members)


_REMEDY = "create it anew with a queue"


def _its(unit: ImportUnit, pod: Object) -> str:
    return f"its pod {text(pod, 'metadata', 'name')}" if unit.is_job or unit.group else "it"


def _labelled(obj: Object, labels: Mapping[str, str]) -> JSON:
    meta = mapping(obj, "metadata")
    return {**obj, "metadata": {**meta, "labels": {**mapping(meta, "labels"), **labels}}}


def _refuse_job(unit: ImportUnit, switches: JobFeatures) -> None:
    """Refuse jobs that another controller runs or stops, and jobs whose Workload has parts that no import can make."""
    kind, job = unit.kind, dict(unit.obj)
    above = controller_of(job)
    parent = kinds.framework_above(text(above, "apiVersion").rpartition("/")[0], text(above, "kind"))
    if parent is not None:
        raise RefusalError(f"{above['kind']} {above['name']} controls it, and is not imported: {_REMEDY}")
    if kind.is_suspended(job):
        raise RefusalError("it is suspended, and its pods still run: try again when they have ended")
    if kind.managed_by(job) != kind.own_controller:
        raise RefusalError(f"{kind.managed_by(job)} runs it, which kqueue does not follow")
    if isinstance(kind, ExceptionalKind) and kind.on_hold(job):
        raise RefusalError(kind.on_hold(job))
    if rules.prebuilt_name(job, switches):
        raise RefusalError(f"it names a Workload that its user makes, {rules.prebuilt_name(job, switches)}: {_REMEDY}")
    if switches.admission_gated_by and rules.admission_gates(job):
        raise RefusalError(f"admission gates hold it, {', '.join(rules.admission_gates(job))}: remove them first")


def _refuse_parts(unit: ImportUnit, pod_sets: Sequence[JSON], members: Mapping[str, Sequence[Object]]) -> None:
    """Refuse a job whose pods do not all run: its Workload would claim more, or its missing pods start later without a
    place.
    """
    ended = unit.kind.reclaimable(dict(unit.obj))
    for pod_set in pod_sets:
        name = text(pod_set, "name")
        wanted, has = (whole(pod_set, "count") or 0) - ended.get(name, 0), len(members[name])
        if has != wanted:
            raise RefusalError(f"pod set {name} has {has} of {wanted} pods: try again when all of them run")
        _refuse_unbound(members[name])


def _refuse_unbound(pods: Sequence[Object]) -> None:
    waiting = next((pod for pod in pods if not node_of(pod)), None)
    if waiting is not None:
        raise RefusalError(f"its pod {text(waiting, 'metadata', 'name')} has no node yet: try again when it runs")


def _of_group(
    unit: ImportUnit, labels: Mapping[str, str], *, priority: PriorityOf, switches: JobFeatures, copied: CopiedKeys
) -> Draft:
    ref, obj = GangRef.of_key(unit.group), dict(unit.group_object) if unit.group_object is not None else None
    if dialect_of(ref.framework).makes_workloads:
        raise RefusalError(f"it is of {ref.framework}, whose Workload kqueue makes itself: {_REMEDY}")
    _refuse_unbound(unit.pods)
    members = in_order(managed_pod(_labelled(pod, labels), switches) for pod in unit.pods)
    made = compose(members, switches, group_object=obj)
    if isinstance(made, GroupProblem):
        raise RefusalError(f"{f'pod {made.pod.name}: ' if made.pod is not None else ''}{made.message}")
    if made.excess or len(made.kept) != made.wish.quorum:
        raise RefusalError(f"it has {len(members)} of {made.wish.quorum} pods that run: all of a group are imported")
    if made.wish.queue not in ("", labels[names.QUEUE_NAME_LABEL]) and queue_of(obj):
        raise RefusalError(f"its group object names LocalQueue {made.wish.queue}, the rules another")
    built = workload_of(
        made,
        name=_name(made, switches),
        priority=priority(made.speaker, made.priority_sets),
        copied=copied,
        switches=switches,
    )
    if isinstance(built, GroupProblem):
        raise RefusalError(built.message)
    if not is_of_kueue(unit.group):
        first = members[0]
        built["metadata"]["annotations"] |= record_annotations(obj, (first.uid, first.created))
    found: dict[str, list[Object]] = {text(one, "name"): [] for one in objects(built, "spec", "podSets")}
    originals = {text(pod, "metadata", "uid"): pod for pod in unit.pods}
    for member in made.kept:
        found[member.role].append(originals[member.uid])
    return Draft(workload=built, members=found)


def _marks_of_extra(base: Composition, switches: JobFeatures) -> dict[str, str]:
    """Return the annotations of the Workload of a pod beyond the quorum `base`."""
    name, obj, first = _name(base, switches), base.group_object, base.kept[0]
    return {gang_names.EXTRA_OF_ANNOTATION: name, **record_annotations(obj, (first.uid, first.created))}


def _name(made: Composition, switches: JobFeatures) -> str:
    """Return the name of a group's Workload."""
    obj = made.group_object
    ref = GangRef.of_key(made.kept[0].group)
    return workload_of_gang(ref, switches, uid=text(obj, "metadata", "uid") if obj is not None else "")


def foreign_workload(unit: ImportUnit, name: str) -> str:
    """Return the name of another Workload that a pod of the unit names; empty: none does."""
    for pod in unit.pods:
        named = annotations_of(pod).get(names.WORKLOAD_ANNOTATION, "")
        if named not in ("", name):
            return named
    return ""
