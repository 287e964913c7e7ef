"""Represent a gang as one workload: build its Workload from its members.

A gang starts whole, so a gang with contradicting members gets no Workload but a `GroupProblem`.  A Workload's role
determines the charged quota: a pod that requests more than its role is not admitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs import pod_rules, rules, run_times, syntax
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, text
from kqueue.jobs.gang.dialect import DEFAULT_TIMEOUTS, LARGEST_QUORUM, GangRules, GroupProblem, ScheduleTimeouts
from kqueue.jobs.gang.group_object import speaker_of
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.members import (
    base_of,
    gang_queue,
    lowest_member,
    mixed_priorities,
    queue_disagreement,
    runnable,
    shortage,
    surplus,
    without,
)
from kqueue.jobs.gang.naming import gang_annotation
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangNotice, GangRef, GangSpec
from kqueue.jobs.kind import GroupVersionKind
from kqueue.jobs.pod import pod_set
from kqueue.jobs.pod_shape import exceeds
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, controller_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The input of a group's Workload."""

    wish: GangSpec
    pod_sets: tuple[JSON, ...]
    kept: tuple[ManagedPod, ...]
    """The base: the members that start first."""
    excess: tuple[ManagedPod, ...] = ()
    """Runnable members beyond the total, whose finalizer is removed and which are deleted."""
    extras: tuple[ManagedPod, ...] = ()
    """Runnable members beyond the quorum, which are queued alone."""
    group_object: JSON | None = None
    """The object that owns the Workload; None: the members own it."""

    @property
    def speaker(self) -> JSON:
        """The object whose labels and annotations speak for the gang, as those of a job do."""
        return speaker_of(self.kept[0].obj, self.group_object)

    @property
    def priority_sets(self) -> Sequence[JSON]:
        """Pod sets of which the first one with a PriorityClass decides the priority where no label does: that of the
        group object, then that of the member with the lowest priority; of Kueue's groups the first role's.
        """
        if is_of_kueue(self.kept[0].group):
            return self.pod_sets
        named = {"template": {"spec": {"priorityClassName": self.wish.pod_priority_class}}}
        lowest = lowest_member(self.kept)
        return [named, {"template": {"spec": lowest[0].spec}} if lowest is not None else {}]

    @property
    def notices(self) -> tuple[GangNotice, ...]:
        """Contradictions that do not hold the gang up."""
        decided = rules.priority_class(self.speaker) or self.wish.pod_priority_class
        mixed = () if decided or is_of_kueue(self.kept[0].group) else mixed_priorities(self.kept)
        return (*self.wish.notices, *mixed)


def compose(
    members: Sequence[ManagedPod],
    switches: JobFeatures,
    *,
    group_object: JSON | None = None,
    timeouts: ScheduleTimeouts = DEFAULT_TIMEOUTS,
    levels: frozenset[str] | None = None,
) -> Composition | GroupProblem:
    """Return the input of the group's Workload, or the problem that prevents it.

    Args:
        members: all members of the gang in order, at least one.
        group_object: the object that the dialect has for the group; None: it has none, or there is none.
        timeouts: the deadlines of gangs whose dialect names none.
        levels: the levels of all topologies; None: not known.
    """
    ref = GangRef.of_key(members[0].group)
    dialect = dialect_of(ref.framework)
    wish = dialect.spec(ref, group_object, members, GangRules(switches=switches, timeouts=timeouts, levels=levels))
    if isinstance(wish, GroupProblem):
        return wish
    made = _composed(wish, members, switches, has_extras=dialect.has_extras)
    return made if isinstance(made, GroupProblem) else replace(made, group_object=group_object)


def hindrance(wish: GangSpec, members: Sequence[ManagedPod], *, has_extras: bool) -> GroupProblem | None:
    """Return why the members make no Workload, by their number, roles and queues; None: they are complete.

    Args:
        wish: that of the gang's dialect.
        members: all members in order.
        has_extras: whether the dialect queues members beyond the quorum alone.
    """
    if has_extras and wish.quorum > LARGEST_QUORUM:
        return GroupProblem(f"the quorum is {wish.quorum}, at most {LARGEST_QUORUM} are possible")
    trouble = queue_disagreement(pod for pod in members if pod.phase != "Failed") if has_extras else None
    return trouble or shortage(runnable(members), wish.quorum, roles=wish.roles, fast=wish.fast)


def _composed(
    wish: GangSpec, members: Sequence[ManagedPod], switches: JobFeatures, *, has_extras: bool
) -> Composition | GroupProblem:
    trouble = hindrance(wish, members, has_extras=has_extras)
    if trouble is not None:
        return trouble
    alive = runnable(members)
    excess = () if has_extras else surplus(alive, wish.quorum)
    base = base_of(alive, wish.quorum, wish.roles) if has_extras else without(alive, excess)
    made = pod_sets_of(base, wish.quorum, switches, fast=wish.fast, topology=wish.topology)
    if isinstance(made, GroupProblem):
        return made
    extras = without(alive, base) if has_extras else ()
    if extras and any(_has_slices(pod_set) for pod_set in made):
        return GroupProblem(
            f"slices of a topology request need a quorum of all members; set {wish.quorum_field} to {len(alive)}, or "
            f"take {names.SLICE_SIZE_ANNOTATION} away"
        )
    return Composition(wish=wish, pod_sets=made, kept=base, excess=tuple(excess), extras=extras)


def _has_slices(pod_set: JSON) -> bool:
    return any("Slice" in key for key in mapping(pod_set, "topologyRequest"))


def pod_sets_of(
    alive: Sequence[ManagedPod],
    total: int,
    switches: JobFeatures,
    *,
    fast: bool,
    topology: Mapping[str, str] | None = None,
) -> tuple[JSON, ...] | GroupProblem:
    """Return one pod set per role, sorted by name; with fast admission one pod set of `total` pods like the first
    member.

    `topology`: topology annotations for roles whose pods have none.
    """
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
        example = _example(pods, topology or {})
        trouble = _role_trouble(role, pods, example, switches)
        if trouble is not None:
            return trouble
        made.append(pod_set(example, name=role, count=total if fast else len(pods), switches=switches))
    return tuple(made)


def _example(pods: Sequence[ManagedPod], topology: Mapping[str, str]) -> JSON:
    """Return the oldest pod of a role with the topology annotations of the oldest one that was not started, because a
    start writes some of its own; where users wrote none, with those of the group object.
    """
    held = next((pod for pod in pods if pod.gated), pods[0])
    wanted, first = _topology(held) or topology, pods[0]
    if wanted == _topology(first):
        return first.obj
    own = {key: value for key, value in annotations_of(first.obj).items() if key not in names.TOPOLOGY_ANNOTATIONS}
    return {**first.obj, "metadata": {**mapping(first.obj, "metadata"), "annotations": {**own, **wanted}}}


def _role_trouble(role: str, pods: Sequence[ManagedPod], example: JSON, switches: JobFeatures) -> GroupProblem | None:
    problem = syntax.dns_label(role)
    if problem is not None:
        return GroupProblem(f"annotation {names.ROLE_HASH_ANNOTATION} is {role!r} and {problem}", pods[0])
    for mistake in pod_rules.topology_problems(example, switches):
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

    `paid`: the admitted quota per pod; None: not admitted.
    """
    more = exceeds(pod.spec, template, paid)
    if not more:
        return ""
    return (
        f"it requests more {' and '.join(more)} than {of}, whose requests are what the group's quota is counted by; "
        f"create it again without annotation {names.ROLE_HASH_ANNOTATION}, or with equal requests"
    )


def _topology(pod: ManagedPod) -> dict[str, str]:
    return {k: v for k, v in annotations_of(pod.obj).items() if k in names.TOPOLOGY_ANNOTATIONS}


def workload_of(
    made: Composition, *, name: str, priority: Priority, copied: CopiedKeys, switches: JobFeatures
) -> JSON | GroupProblem:
    """Return the complete Workload to create, or a problem; `priority` is resolved from the first member and the pod
    sets.
    """
    first = made.kept[0]
    agreed = _copied_labels(made.kept, copied.labels)
    if isinstance(agreed, GroupProblem):
        return agreed
    labels = {**copied.labels_from(first.obj), **agreed}
    metadata: JSON = {
        "name": name,
        "namespace": text(first.obj, "metadata", "namespace"),
        "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": _owners(made),
        "annotations": {
            **copied.annotations_from(first.obj),
            **_copied_annotations(made.speaker, switches),
            names.IS_GROUP_WORKLOAD_ANNOTATION: "true",
            **gang_annotation(GangRef.of_key(first.group)),
            **{key: value for key, value in topology_mark(made.wish).items() if value},
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


def topology_mark(wish: GangSpec) -> dict[str, str | None]:
    """Return the annotation that asks for one domain for all roles, where the group object names a level; None as its
    value elsewhere.
    """
    levels = (names.REQUIRED_TOPOLOGY_ANNOTATION, names.PREFERRED_TOPOLOGY_ANNOTATION)
    named = any(wish.topology.get(level) for level in levels)
    return {gang_names.GANG_TOPOLOGY_ANNOTATION: gang_names.TOGETHER if named else None}


def spec_of(made: Composition, priority: Priority) -> JSON:
    """Return only the `spec`, to rewrite a Workload without a reservation."""
    first = made.kept[0].obj
    spec: JSON = {"podSets": list(made.pod_sets), "priority": priority.value, "active": True}
    for key, value in (
        ("queueName", gang_queue(made.kept, made.wish.queue)),
        ("priorityClassRef", priority.reference),
        ("maximumExecutionTimeSeconds", made.wish.limit or rules.maximum_execution_time(first)),
    ):
        if value:
            spec[key] = value
    return spec


def _owners(made: Composition) -> list[JSON]:
    """Return the group object as the controller, or a reference for each member of the base; never both."""
    obj = made.group_object
    return [object_reference(obj)] if obj is not None else [owner_reference(pod) for pod in made.kept]


def object_reference(obj: JSON) -> JSON:
    """Return the reference by which a group object controls the Workload."""
    group, _, version = text(obj, "apiVersion").rpartition("/")
    return controller_reference(GroupVersionKind(group, version, text(obj, "kind")), obj)


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


def _copied_annotations(speaker: JSON, switches: JobFeatures) -> dict[str, str]:
    own = annotations_of(speaker)
    found = {key: value for key, value in own.items() if key.startswith(names.PROVISIONING_REQUEST_ANNOTATION_PREFIX)}
    found |= rules.joint_traits(speaker) | run_times.expected_trait(speaker)
    if rules.placement_profile(speaker):
        found[names.PLACEMENT_PROFILE_ANNOTATION] = rules.placement_profile(speaker)
    gated_by = own.get(names.ADMISSION_GATED_BY_ANNOTATION, "")
    if gated_by and switches.admission_gated_by:
        found[names.ADMISSION_GATED_BY_ANNOTATION] = gated_by
    return found
