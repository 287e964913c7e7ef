"""Rules of the webhooks for pods: gate pods that are queued, refuse pods that contradict themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import gang_names, names
from kqueue.errors import FieldError
from kqueue.jobs import pod_view, rules, run_times, syntax, topology_request
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects, sequence, text
from kqueue.jobs.gang import marks
from kqueue.jobs.gang.pods import group_name, rank_of, role_of
from kqueue.jobs.gang.registry import dialect_of, membership
from kqueue.jobs.gang.value import GangMembership
from kqueue.jobs.kind import JobContext
from kqueue.jobs.patch import Patch
from kqueue.jobs.switches import JobFeatures

_DEFAULT_SCHEDULER = "default-scheduler"
_MAY_BE_WRONG = names.TOPOLOGY_ANNOTATIONS | {names.POD_INDEX_OFFSET_ANNOTATION}
_ANNOTATIONS, _LABELS = "metadata.annotations", "metadata.labels"
_MANAGED = f"{_LABELS}[{names.MANAGED_LABEL}]"
_ROLE = f"{_ANNOTATIONS}[{names.ROLE_HASH_ANNOTATION}]"
_RETRIABLE = f"{_ANNOTATIONS}[{names.RETRIABLE_IN_GROUP_ANNOTATION}]"


def defaults(pod: JSON, around: JobContext) -> Patch:
    """Return the additions to a new pod that is queued: label, gates, finalizer, role; empty for any other pod."""
    if pod_view.is_deleting(pod):
        return {}
    labels: dict[str, str] = {}
    metadata: Patch = {}
    if pod_view.suspending_parent(pod) is None:
        if not around.managed_namespace or around.managed_ancestor:
            return {}
        labels = dict(mapping(rules.default_labels(pod, around), "metadata", "labels"))
        if not labels.get(names.QUEUE_NAME_LABEL) and not rules.managed(pod, around):
            return {}
        labels[names.MANAGED_LABEL] = "true"
        if not pod_view.has_finalizer(pod):
            metadata["finalizers"] = [*sequence(pod, "metadata", "finalizers"), names.MANAGED_POD_FINALIZER]
    own, gang = labels_of(pod), membership(pod, around.switches)
    rank = rank_of(pod, gang)
    if around.switches.topology and rank is not None:
        labels[names.POD_GROUP_POD_INDEX_LABEL] = rank
    new = {key: value for key, value in labels.items() if own.get(key) != value}
    if new:
        metadata["labels"] = new
    annotations, given = dict[str, str](), labels.get(names.QUEUE_NAME_LABEL)
    if not annotations_of(pod).get(names.ROLE_HASH_ANNOTATION):
        annotations[names.ROLE_HASH_ANNOTATION] = role_of(pod, gang)
    if given and marks.gang_of(pod, around.switches) is not None:
        annotations[gang_names.GIVEN_QUEUE_ANNOTATION] = given
    if annotations:
        metadata["annotations"] = annotations
    spec = _gates(pod, around)
    if gang is not None and text(pod, "spec", "schedulerName") in around.switches.take_over_schedulers:
        spec["schedulerName"] = _DEFAULT_SCHEDULER
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}


def _gates(pod: JSON, around: JobContext) -> Patch:
    has = pod_view.gates_of(pod)
    wanted = [names.ADMISSION_GATE, names.TOPOLOGY_GATE] if around.switches.topology else [names.ADMISSION_GATE]
    missing = [{"name": gate} for gate in wanted if gate not in has]
    return {"schedulingGates": [*objects(pod, "spec", "schedulingGates"), *missing]} if missing else {}


def problems(new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
    """Return every mistake in a pod.  A pod that is being deleted has none, so that its finalizers can be removed."""
    if pod_view.is_deleting(new):
        return []
    if marks.is_stranger(new, around) and (old is None or marks.is_stranger(old, around)):
        return list(marks.stranger_problems(new, around))
    elastic = marks.gang_of(new, around.switches) is not None  # without effect there, and warned of
    return [
        *(rules.create_problems(new, around, elastic=elastic) if old is None else ()),
        *_managed_problems(new),
        *_group_problems(new, old, around),
        *topology_problems(new, around.switches),
        *(_change_problems(new, old, around) if old is not None else ()),
    ]


def warnings(pod: JSON, around: JobContext) -> list[str]:
    """Return warnings about fields that are allowed and probably unintended."""
    found: list[str] = []
    if around.managed_ancestor and pod_view.is_managed(pod) and pod_view.suspending_parent(pod) is None:
        found.append(
            f"{_MANAGED} is set on a pod whose owner is queued itself; remove the label, the owner's Workload counts it"
        )
    if around.switches.topology:
        found += [said.removeprefix(".") for said in topology_request.warnings(pod, pod, path="")]
    return [*found, *marks.warnings(pod, around)]


def _managed_problems(pod: Mapping[str, Any]) -> Iterator[FieldError]:
    written = labels_of(pod).get(names.MANAGED_LABEL)
    if written not in (None, "true"):
        yield FieldError(_MANAGED, 'must be "true" where it is set; kqueue sets it on pods that it queues', written)


def _group_problems(pod: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
    yield from marks.problems(pod, old, around)
    role = annotations_of(pod).get(names.ROLE_HASH_ANNOTATION)
    if role:
        yield from syntax.check(syntax.dns_label, role, _ROLE)


def topology_problems(pod: Mapping[str, Any], switches: JobFeatures) -> Iterator[FieldError]:
    """Yield mistakes in the topology annotations of a pod; sizes are compared with the count if the count is 1."""
    if _MAY_BE_WRONG.isdisjoint(mapping(pod, "metadata", "annotations")):
        return
    count = None if group_name(pod, switches) else 1
    for problem in topology_request.problems(pod, pod, path="", count=count, switches=switches):
        yield FieldError(problem.path.removeprefix("."), problem.problem, problem.value)


def _group_change(
    before: GangMembership | None, after: GangMembership | None, *, started: bool
) -> Iterator[FieldError]:
    if before is not None and (after is None or (after.framework, after.name) != (before.framework, before.name)):
        yield FieldError(
            dialect_of(before.framework).joined_by,
            f"cannot change from {before.name!r}; delete the pod and make another",
            after.name if after is not None else None,
        )
    elif after is not None and before is None and started:
        yield FieldError(
            dialect_of(after.framework).joined_by,
            "cannot be set on a pod that was started alone; delete it and make another",
            after.name,
        )


def _change_problems(new: JSON, old: JSON, around: JobContext) -> Iterator[FieldError]:
    suspended = pod_view.is_suspended(new)
    yield from run_times.problems(new) if run_times.is_changed(new, old) else ()
    yield from rules.update_problems(
        new, old, around, new_suspended=suspended, old_suspended=pod_view.is_suspended(old)
    )
    if pod_view.is_managed(old) and not pod_view.is_managed(new) and not pod_view.is_terminated(new):
        yield FieldError(_MANAGED, "cannot be removed: the pod would run on without being counted; delete the pod")
    before, after = membership(old, around.switches), membership(new, around.switches)
    yield from _group_change(before, after, started=pod_view.is_managed(old) and not suspended)
    role = names.ROLE_HASH_ANNOTATION
    if not suspended and before and annotations_of(new).get(role) != annotations_of(old).get(role):
        yield FieldError(_ROLE, "cannot change once the pod was started", annotations_of(new).get(role))
    retriable = names.RETRIABLE_IN_GROUP_ANNOTATION
    if before and annotations_of(old).get(retriable) == "false" != annotations_of(new).get(retriable):
        yield FieldError(_RETRIABLE, "cannot be taken back once it is false", annotations_of(new).get(retriable))
