"""Represent a gang as one workload: build its Workload from its members.

A gang starts whole, so a gang with contradicting members gets no Workload but a `GroupProblem`.  A Workload's role
determines the charged quota: a pod that requests more than its role is not admitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.jobs import pod_rules, pod_view, rules, syntax
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.fields import JSON, annotations_of, int_of, labels_of, text
from kqueue.jobs.gang.members import is_fast, runnable, surplus, without
from kqueue.jobs.pod import pod_set
from kqueue.jobs.pod_shape import exceeds
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """The reason why a group gets no Workload now.  `pod` is the member that causes it; None: the group as a whole."""

    message: str
    pod: ManagedPod | None = None
    incomplete: bool = False
    """Whether the group only lacks members that may still be created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The input of a group's Workload."""

    pod_sets: tuple[JSON, ...]
    kept: tuple[ManagedPod, ...]
    excess: tuple[ManagedPod, ...] = ()
    """Runnable members beyond the total: to be released from the finalizer and deleted."""


def compose(members: Sequence[ManagedPod], switches: JobFeatures) -> Composition | GroupProblem:
    """Return the input of the group's Workload, or the problem that prevents it.  `members` in order, at least one."""
    first, alive = members[0], runnable(members)
    total = first.total
    if total is None:
        message = f"{first.source.total_field} must say how many pods the group has"
        return GroupProblem(f"{message}, a whole number above 0", first)
    trouble = _index_trouble(first, total) or _incomplete(alive, total, fast=is_fast(first))
    trouble = trouble or _disagreement([pod for pod in members if pod.phase != "Failed"], total)
    if trouble is not None:
        return trouble
    excess = surplus(alive, total)
    alive = without(alive, excess)
    made = pod_sets_of(alive, total, switches, fast=is_fast(first))
    if isinstance(made, GroupProblem):
        return made
    return Composition(pod_sets=made, kept=alive, excess=tuple(excess))


def pod_sets_of(
    alive: Sequence[ManagedPod], total: int, switches: JobFeatures, *, fast: bool
) -> tuple[JSON, ...] | GroupProblem:
    """One pod set per role, sorted by name; with fast admission one of `total` pods, as the first member says."""
    roles: dict[str, list[ManagedPod]] = defaultdict(list)
    for pod in alive:
        roles[pod.role].append(pod)
    if fast:
        roles = {alive[0].role: [pod for pod in alive if pod.role == alive[0].role]}
    if len(roles) > names.MAX_PODSETS:
        return GroupProblem(
            f"its pods play {len(roles)} roles, at most {names.MAX_PODSETS} are possible; give pods that differ a "
            f"little the same requests and placement rules, or one annotation {names.ROLE_HASH_ANNOTATION}"
        )
    made: list[JSON] = []
    for role, pods in sorted(roles.items()):
        trouble = _role_trouble(role, pods, switches)
        if trouble is not None:
            return trouble
        made.append(pod_set(pods[0].obj, name=role, count=total if fast else len(pods), switches=switches))
    return tuple(made)


def _index_trouble(first: ManagedPod, total: int) -> GroupProblem | None:
    index = labels_of(first.obj).get(names.POD_GROUP_POD_INDEX_LABEL)
    number = int_of(index) if index is not None else 0
    if number is not None and 0 <= number < total:
        return None
    label = names.POD_GROUP_POD_INDEX_LABEL
    return GroupProblem(f"label {label} is {index!r} and must be a whole number from 0 to {total - 1}", first)


def _incomplete(alive: Sequence[ManagedPod], total: int, *, fast: bool) -> GroupProblem | None:
    if len(alive) >= (1 if fast else total):
        return None
    missing = (1 if fast else total) - len(alive)
    return GroupProblem(f"the group has {len(alive)} of {total} pods; it waits for {missing} more", incomplete=True)


def _disagreement(members: Sequence[ManagedPod], total: int) -> GroupProblem | None:
    queue = pod_view.queue_of(members[0]) if members else ""
    for pod in members:
        if pod_view.queue_of(pod) != queue:
            return GroupProblem(
                f"label {names.QUEUE_NAME_LABEL} is {pod_view.queue_of(pod)!r}, and {queue!r} on pod "
                f"{members[0].name} of the same group; all pods of a group need the same, correct one of them",
                pod,
            )
        if pod.source is not members[0].source:
            return GroupProblem(
                f"it says its group in another form than pod {members[0].name} of the same group: "
                f"{pod.source.total_field} instead of {members[0].source.total_field}; use one form for all pods",
                pod,
            )
        if pod.total != total:
            return GroupProblem(
                f"{pod.source.total_field} is {pod.source.written_total(pod.obj)!r}, and {total} on pod "
                f"{members[0].name} of the same group; all pods of a group need the same, correct one of them",
                pod,
            )
    return None


def _role_trouble(role: str, pods: Sequence[ManagedPod], switches: JobFeatures) -> GroupProblem | None:
    problem = syntax.dns_label(role)
    if problem is not None:
        return GroupProblem(f"annotation {names.ROLE_HASH_ANNOTATION} is {role!r} and {problem}", pods[0])
    for mistake in pod_rules.topology_problems(pods[0].obj, switches):
        return GroupProblem(str(mistake), pods[0])
    for pod in pods[1:]:
        more = difference(pod, pods[0].spec, of=f"pod {pods[0].name} of the same role {role}")
        if more:
            return GroupProblem(more, pod)
    held = [pod for pod in pods if pod.gated]  # a started pod has a marker of kqueue
    for pod in held[1:]:
        if switches.topology and _topology(pod) != _topology(held[0]):
            return GroupProblem(
                f"its topology annotations differ from those of pod {held[0].name} of the same role {role}; all pods "
                "of a role need the same",
                pod,
            )
    return None


def difference(pod: ManagedPod, template: Mapping[str, Any], *, of: str, paid: Mapping[str, int] | None = None) -> str:
    """Return a sentence that says why the template's quota does not cover the pod; empty: it does.  `of` names the
    template.

    `paid` is what quota was given for per pod, where it was.
    """
    more = exceeds(pod.spec, template, paid)
    if not more:
        return ""
    return (
        f"it requests more {' and '.join(more)} than {of}, whose requests are what the group's quota is counted by; "
        f"make it anew without annotation {names.ROLE_HASH_ANNOTATION}, or with equal requests"
    )


def _topology(pod: ManagedPod) -> dict[str, str]:
    return {k: v for k, v in annotations_of(pod.obj).items() if k in names.TOPOLOGY_ANNOTATIONS}


def workload_of(
    made: Composition, *, name: str, priority: Priority, copied: CopiedKeys, switches: JobFeatures
) -> JSON | GroupProblem:
    """The Workload to create, complete; `priority` is resolved from the first member and the pod sets."""
    first = made.kept[0]
    agreed = _copied_labels(made.kept, copied.labels)
    if isinstance(agreed, GroupProblem):
        return agreed
    labels = {**copied.labels_from(first.obj), **agreed}
    metadata: JSON = {
        "name": name,
        "namespace": text(first.obj, "metadata", "namespace"),
        "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": [owner_reference(pod) for pod in made.kept],
        "annotations": {
            **copied.annotations_from(first.obj),
            **_copied_annotations(first, switches),
            names.IS_GROUP_WORKLOAD_ANNOTATION: "true",
        },
    }
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKLOAD_KIND,
        "metadata": metadata,
        "spec": spec_of(made, priority),
    }


def spec_of(made: Composition, priority: Priority) -> JSON:
    """The `spec` alone, for rewriting a Workload that is not reserved."""
    first = made.kept[0].obj
    spec: JSON = {"podSets": list(made.pod_sets), "priority": priority.value, "active": True}
    for key, value in (
        ("queueName", pod_view.queue_of(made.kept[0])),
        ("priorityClassRef", priority.reference),
        ("maximumExecutionTimeSeconds", rules.maximum_execution_time(first)),
    ):
        if value:
            spec[key] = value
    return spec


def owner_reference(pod: ManagedPod) -> JSON:
    """Return an owner reference that is no controller reference: the Workload is deleted with the last of its pods."""
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}


def _copied_labels(pods: Sequence[ManagedPod], keys: Iterable[str]) -> dict[str, str] | GroupProblem:
    found: dict[str, str] = {}
    for key in keys:
        for pod in pods:
            value = labels_of(pod.obj).get(key)
            if value is not None and found.setdefault(key, value) != value:
                message = f"label {key} is {value!r}, and {found[key]!r} on another pod of the group; make them equal"
                return GroupProblem(message, pod)
    return found


def _copied_annotations(pod: ManagedPod, switches: JobFeatures) -> dict[str, str]:
    own = annotations_of(pod.obj)
    found = {key: value for key, value in own.items() if key.startswith(names.PROVISIONING_REQUEST_ANNOTATION_PREFIX)}
    if rules.placement_profile(pod.obj):
        found[names.PLACEMENT_PROFILE_ANNOTATION] = rules.placement_profile(pod.obj)
    gated_by = own.get(names.ADMISSION_GATED_BY_ANNOTATION, "")
    if gated_by and switches.admission_gated_by:
        found[names.ADMISSION_GATED_BY_ANNOTATION] = gated_by
    return found
