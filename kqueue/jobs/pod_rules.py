"""What the webhooks do with pods: gate those that are queued, refuse what contradicts itself or would cost nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import pod_view, rules, syntax, topology_request
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects
from kqueue.jobs.kind import Surroundings
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.jobs.pod_shape import role_hash
from kqueue.jobs.switches import Switches

_ANNOTATIONS, _LABELS = "metadata.annotations", "metadata.labels"
_MANAGED = f"{_LABELS}[{names.MANAGED_LABEL}]"
_GROUP = f"{_ANNOTATIONS}[{names.POD_GROUP_NAME_ANNOTATION}]"
_TOTAL = f"{_ANNOTATIONS}[{names.POD_GROUP_TOTAL_COUNT_ANNOTATION}]"
_ROLE = f"{_ANNOTATIONS}[{names.ROLE_HASH_ANNOTATION}]"
_RETRIABLE = f"{_ANNOTATIONS}[{names.RETRIABLE_IN_GROUP_ANNOTATION}]"
_PREBUILT = f"{_ANNOTATIONS}[{names.PREBUILT_WORKLOAD_NAME_ANNOTATION}]"


def defaults(pod: JSON, around: Surroundings) -> Patch:
    """What a new pod that is to be queued gets: label, gates, finalizer, role; empty for any other."""
    if pod_view.is_deleting(pod):
        return {}
    by_parent = pod_view.suspending_parent(pod) is not None
    new = pod
    if not by_parent:
        if not around.managed_namespace or around.managed_ancestor:
            return {}
        new = apply_merge_patch(pod, rules.default_labels(pod, around))
        if not rules.managed(new, around):
            return {}
        finalizers = list(mapping(pod, "metadata").get("finalizers") or ())
        if names.MANAGED_POD_FINALIZER not in finalizers:
            finalizers.append(names.MANAGED_POD_FINALIZER)
        wanted = {"labels": {names.MANAGED_LABEL: "true"}, "finalizers": finalizers}
        new = apply_merge_patch(new, {"metadata": wanted})
    return merge_patch(pod, _with_role(_gated(new, around)))


def _gated(pod: JSON, around: Surroundings) -> JSON:
    gates = [names.ADMISSION_GATE]
    if around.switches.topology:
        gates.append(names.TOPOLOGY_GATE)
        key = annotations_of(pod).get(names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION)
        if key is not None and key in labels_of(pod):
            index = {names.POD_GROUP_POD_INDEX_LABEL: labels_of(pod)[key]}
            pod = apply_merge_patch(pod, {"metadata": {"labels": index}})
    has = pod_view.gates_of(pod)
    all_gates = [*objects(pod, "spec", "schedulingGates"), *({"name": gate} for gate in gates if gate not in has)]
    return apply_merge_patch(pod, {"spec": {"schedulingGates": all_gates}})


def _with_role(pod: JSON) -> JSON:
    if annotations_of(pod).get(names.ROLE_HASH_ANNOTATION):
        return pod
    role = {names.ROLE_HASH_ANNOTATION: role_hash(mapping(pod, "spec"))}
    return apply_merge_patch(pod, {"metadata": {"annotations": role}})


def problems(new: JSON, old: JSON | None, around: Surroundings) -> list[FieldError]:
    """Every mistake in a pod.  One that is being deleted has none: nothing may hold its finalizers back."""
    if pod_view.is_deleting(new):
        return []
    return [
        *(rules.create_problems(new, around, elastic=False) if old is None else ()),
        *_managed_problems(new),
        *_group_problems(new, around),
        *topology_problems(new, around.switches),
        *(_change_problems(new, old, around) if old is not None else ()),
    ]


def warnings(pod: JSON, around: Surroundings) -> list[str]:
    """What is allowed and probably not meant."""
    found: list[str] = []
    if around.managed_ancestor and pod_view.is_managed(pod) and pod_view.suspending_parent(pod) is None:
        found.append(
            f"{_MANAGED} is set on a pod whose owner is queued itself; remove the label, the owner's Workload counts it"
        )
    if around.switches.topology:
        found += [text.removeprefix(".") for text in topology_request.warnings(pod, pod, path="")]
    return found


def _managed_problems(pod: Mapping[str, Any]) -> Iterator[FieldError]:
    written = labels_of(pod).get(names.MANAGED_LABEL)
    if written not in (None, "true"):
        yield FieldError(_MANAGED, 'must be "true" where it is set; kqueue sets it on pods that it queues', written)


def _group_problems(pod: Mapping[str, Any], around: Surroundings) -> Iterator[FieldError]:
    switches, annotations = around.switches, annotations_of(pod)
    group, total = pod_view.group_name(pod, switches), annotations.get(names.POD_GROUP_TOTAL_COUNT_ANNOTATION)
    if group:
        yield from syntax.check(syntax.subdomain, group, _GROUP)
    if group and total is None:
        yield FieldError(_TOTAL, f"must be set together with the group's name: how many pods {group} has")
    if total is not None and not group:
        yield FieldError(_GROUP, f"must be set together with {names.POD_GROUP_TOTAL_COUNT_ANNOTATION}")
    if total is not None and pod_view.total_count(pod) is None:
        yield FieldError(_TOTAL, "must be a whole number of pods, 1 or more", total)
    labelled = labels_of(pod).get(names.POD_GROUP_NAME_LABEL, "")
    if labelled and group and labelled != group:
        yield FieldError(_GROUP, f"says another group than the label of that name, {labelled!r}; keep one", group)
    prebuilt = rules.prebuilt_name(pod, switches)
    if prebuilt and group and prebuilt != group:
        yield FieldError(_PREBUILT, f"must be the group's name, {group!r}, or be removed", prebuilt)
    role = annotations.get(names.ROLE_HASH_ANNOTATION)
    if role:
        yield from syntax.check(syntax.dns_label, role, _ROLE)


def topology_problems(pod: Mapping[str, Any], switches: Switches) -> Iterator[FieldError]:
    """Mistakes in the topology annotations of a pod; sizes are compared with the count where that is 1."""
    count = None if pod_view.group_name(pod, switches) else 1
    for problem in topology_request.problems(pod, pod, path="", count=count, switches=switches):
        yield FieldError(problem.path.removeprefix("."), problem.problem, problem.value)


def _change_problems(new: JSON, old: JSON, around: Surroundings) -> Iterator[FieldError]:
    suspended = pod_view.is_suspended(new)
    yield from rules.update_problems(
        new, old, around, new_suspended=suspended, old_suspended=pod_view.is_suspended(old)
    )
    if pod_view.is_managed(old) and not pod_view.is_managed(new) and not pod_view.is_terminated(new):
        yield FieldError(_MANAGED, "cannot be removed: the pod would run on and nobody would count it; delete the pod")
    before, after = pod_view.group_name(old, around.switches), pod_view.group_name(new, around.switches)
    if before and after != before:
        yield FieldError(_GROUP, f"cannot change from {before!r}; delete the pod and make another", after or None)
    elif after and not before and pod_view.is_managed(old) and not suspended:
        yield FieldError(_GROUP, "cannot be set on a pod that was started alone; delete it and make another", after)
    role = names.ROLE_HASH_ANNOTATION
    if not suspended and before and annotations_of(new).get(role) != annotations_of(old).get(role):
        yield FieldError(_ROLE, "cannot change once the pod was started", annotations_of(new).get(role))
    retriable = names.RETRIABLE_IN_GROUP_ANNOTATION
    if before and annotations_of(old).get(retriable) == "false" != annotations_of(new).get(retriable):
        yield FieldError(_RETRIABLE, "cannot be taken back once it is false", annotations_of(new).get(retriable))
