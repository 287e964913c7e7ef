"""Owners whose pods are queued in groups, each with a Workload that is created before its pods.

Compute the Workload of a group, the labels of its pods, and the next step; this module writes nothing.  The pods join
the Workload as they appear; their group size never exceeds the Workload's count, so that the group always matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from kqueue.api import kind_names, multikueue_names, names
from kqueue.jobs import node_classes, pod_view, rules, syntax
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.fields import JSON, annotations_of, condition_status, int_of, labels_of, mapping, objects, text, whole
from kqueue.jobs.gang.match import counts_of, is_group_workload, on_hold
from kqueue.jobs.gang.occupants import controller_of
from kqueue.jobs.kind import GroupVersionKind, ReviewedKind
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.several import Placed
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, equivalent, workload_name
from kqueue.kube import names as kube_names
from kqueue.kube.owned_names import LONG_NAME, SHORT_NAME

_REVISION = "controller-revision-hash"


class Next(Enum):
    """The next step for the Workload of a group."""

    NOTHING = auto()
    CREATE = auto()
    ADOPT = auto()
    """Another client created it for this owner: add the owner reference."""
    HOLD = auto()
    """The group has no pods and is to have none: put the Workload on hold and release its quota."""
    WAIT = auto()
    """As HOLD, but only after the pods are gone."""
    GIVE_BACK = auto()
    """The Workload has quota for another number of pods, and no pod has started: requeue it."""
    REWRITE = auto()
    """The Workload has no quota and does not match the owner: rewrite it."""
    RESUME = auto()
    """The group is to have pods again: requeue the Workload."""
    MISFIT = auto()
    """Pods run, and the Workload has another number of pods; only its user resolves this."""
    OVER = auto()
    """The Workload is finished, and the owner is not."""


@dataclass(frozen=True, slots=True)
class ComposedGroup:
    """Pods of an owner that are admitted together.

    Args:
        name: the name that stands for the owner in the name of the Workload.
        pod_sets: pod sets of the Workload.
        index: number of the group, from 0 on; None: the owner has one group.
    """

    name: str
    pod_sets: Sequence[JSON]
    index: int | None = None

    @property
    def count(self) -> int:
        """The number of pods."""
        return sum(whole(pod_set, "count") or 0 for pod_set in self.pod_sets)


class ComposedKind(ReviewedKind, Protocol):
    """One kind of owners whose pods are queued in groups."""

    @property
    def follows_priority(self) -> bool:
        """Whether a Workload follows another priority class of its owner."""
        ...

    def is_ours(self, obj: Mapping[str, Any]) -> bool:
        """Whether no other owner of pod groups has claimed the pods of the object."""
        ...

    def templates(self, obj: Mapping[str, Any]) -> Sequence[Placed]:
        """Return the pod templates of the object, with their paths."""
        ...

    def groups(self, obj: JSON, switches: JobFeatures) -> Iterator[ComposedGroup]:
        """Yield all groups that the object is to have, in the order of their indexes."""
        ...

    def group_name(self, obj: Mapping[str, Any], index: int) -> str:
        """Return the name that stands for the object in the name of the Workload of a group."""
        ...

    def group_count(self, obj: Mapping[str, Any]) -> int:
        """Return the number of these groups."""
        ...

    def misfit(self, group: ComposedGroup, counted: int) -> str:
        """Return what a user can do if pods run, and quota was given for `counted` pods, and not for the group's."""
        ...

    # --- pods

    def owner_name(self, pod: Mapping[str, Any]) -> str:
        """Return the name of the owner that a pod names; empty: it names none of this kind."""
        ...

    def is_member(self, pod: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
        """Whether a pod with the object's name was made for the object."""
        ...

    def group_of(self, pod: Mapping[str, Any]) -> int | None:
        """Return the index of a member's group; None where the owner has one group."""
        ...

    def rank_of(self, pod: Mapping[str, Any]) -> int | None:
        """Return the number of a member in its group; None: members beyond the count of a Workload may join it."""
        ...

    def marks_of(self, pod: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, str]:
        """Return the annotations of the kind for a new member, with its role."""
        ...

    def rolled_by(self, obj: Mapping[str, Any], pods: Sequence[ManagedPod]) -> str | None:
        """Return the name of the StatefulSet whose revisions decide which gated pods are outdated; None: the object
        is that StatefulSet; empty: no pod can be outdated.
        """
        ...


def is_marked(kind: ComposedKind, obj: Mapping[str, Any]) -> bool:
    """Whether the webhook has reviewed the object, so that its pods are gated."""
    marks = (annotations_of(template) for _, template in kind.templates(obj))
    return all(own.get(names.POD_SUSPENDING_PARENT_ANNOTATION) == kind.framework for own in marks)


def vanished_group(kind: ComposedKind, obj: Mapping[str, Any], workload: Mapping[str, Any]) -> int | None:
    """Return the index of the Workload's group if the object does not have the group any more; None: it has."""
    index = int_of(annotations_of(workload).get(kind_names.COMPONENT_WORKLOAD_INDEX_ANNOTATION, ""))
    if index is None or not is_group_workload(workload) or not _owned(obj, workload):
        return None
    return index if not 0 <= index < kind.group_count(obj) else None


def origin_uid(obj: Mapping[str, Any]) -> str:
    """Return the UID of the original on a manager of which the object is a copy; empty: it is no copy."""
    if names.MULTIKUEUE_ORIGIN_LABEL not in labels_of(obj):
        return ""
    return annotations_of(obj).get(multikueue_names.ORIGIN_UID_ANNOTATION, "")


def names_of_workload(
    gvk: GroupVersionKind, group: str, owner: Mapping[str, Any], switches: JobFeatures
) -> tuple[str, str]:
    """Return the name of the Workload of a group, and another name by which it may have been created before.

    That is the name for an owner without a UID; for a copy, the name that its manager gives where its feature gate for
    short names is set otherwise.
    """
    limits = (SHORT_NAME, LONG_NAME) if switches.short_names else (LONG_NAME, SHORT_NAME)
    if origin := origin_uid(owner):
        first, second = (workload_name(gvk, group, origin, limit=limit) for limit in limits)
        return first, second
    uid = text(owner, "metadata", "uid")
    return workload_name(gvk, group, uid, limit=limits[0]), workload_name(gvk, group, "", limit=limits[0])


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group of one owner: what its Workload and its pods are to say, and the next step."""

    kind: ComposedKind
    owner: JSON
    group: ComposedGroup
    switches: JobFeatures

    @property
    def what(self) -> str:
        """The group in messages, as in `The StatefulSet`."""
        kind = self.kind.gvk.kind
        return f"The {kind}" if self.group.index is None else f"Group {self.group.index} of the {kind}"

    @property
    def names(self) -> tuple[str, str]:
        """The name of the Workload, and another name by which it may have been created before."""
        return names_of_workload(self.kind.gvk, self.group.name, self.owner, self.switches)

    @property
    def is_copy(self) -> bool:
        """Whether a manager has made the owner, which then also makes, changes and deletes the Workload."""
        return bool(origin_uid(self.owner))

    # --- the Workload

    def workload(self, priority: Priority, copied: CopiedKeys = COPIES_NONE) -> JSON:
        """Return the complete Workload to create."""
        labels = {**copied.labels_from(self.owner), **node_classes.class_labels(self.owner)}
        uid = text(self.owner, "metadata", "uid")
        if uid and syntax.label_value(uid) is None:
            labels[names.JOB_UID_LABEL] = uid
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.WORKLOAD_KIND,
            "metadata": {
                "name": self.names[0],
                "namespace": text(self.owner, "metadata", "namespace"),
                "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
                "ownerReferences": [self.owner_reference()],
                "labels": labels,
                "annotations": {**copied.annotations_from(self.owner), **_copied(self.owner), **self.marks()},
            },
            "spec": self.spec(priority),
        }

    def spec(self, priority: Priority) -> JSON:
        """Return only the `spec`, to rewrite a Workload without a reservation."""
        spec: JSON = {"podSets": list(self.group.pod_sets), "priority": priority.value, "active": True}
        if rules.queue_name(self.owner):
            spec["queueName"] = rules.queue_name(self.owner)
        if priority.reference is not None:
            spec["priorityClassRef"] = priority.reference
        return spec

    def owner_reference(self) -> JSON:
        """Return an owner reference that is no controller reference: the Workload is deleted with the owner and the
        last of its pods.
        """
        return {
            "apiVersion": self.kind.gvk.api_version,
            "kind": self.kind.gvk.kind,
            "name": text(self.owner, "metadata", "name"),
            "uid": text(self.owner, "metadata", "uid"),
        }

    def marks(self) -> dict[str, str]:
        """Return the annotations that the Workload must have, gates included."""
        gates, index = annotations_of(self.owner).get(names.ADMISSION_GATED_BY_ANNOTATION, ""), self.group.index
        return {
            names.IS_GROUP_WORKLOAD_ANNOTATION: "true",
            names.JOB_OWNER_GVK_ANNOTATION: f"{self.kind.gvk.api_version}, Kind={self.kind.gvk.kind}",
            names.JOB_OWNER_NAME_ANNOTATION: text(self.owner, "metadata", "name"),
            **({kind_names.COMPONENT_WORKLOAD_INDEX_ANNOTATION: str(index)} if index is not None else {}),
            **({names.ADMISSION_GATED_BY_ANNOTATION: gates} if gates and self.switches.admission_gated_by else {}),
        }

    def is_of_copy(self, labels: Mapping[str, str]) -> bool:
        """Whether a Workload with these labels has the same manager as the owner, if that is a copy."""
        key = names.MULTIKUEUE_ORIGIN_LABEL
        return not self.is_copy or labels.get(key) == labels_of(self.owner).get(key)

    def next_step(self, workload: JSON | None, *, runs: bool) -> Next:
        """Return the next step for the Workload; `runs`: whether any pod of the group may use resources.

        The Workload of a copy is its manager's: it only gets its owner here.
        """
        step = self._next_step(workload, runs=runs)
        if self.is_copy and step not in (Next.ADOPT, Next.OVER):
            return Next.NOTHING
        return step

    def _next_step(self, workload: JSON | None, *, runs: bool) -> Next:
        wanted = self.group.count
        if workload is None:
            return Next.CREATE if wanted else Next.NOTHING
        if mapping(workload, "metadata").get("deletionTimestamp"):
            return Next.NOTHING
        if condition_status(workload, names.CONDITION_FINISHED) == "True":
            return Next.OVER if wanted else Next.NOTHING
        if not self._is_known(workload):
            return Next.ADOPT
        if wanted == 0:
            if on_hold(workload):
                return Next.NOTHING
            return Next.WAIT if runs else Next.HOLD
        if condition_status(workload, names.CONDITION_QUOTA_RESERVED) == "True":
            if sum(counts_of(workload).values()) == wanted:
                return Next.NOTHING
            return Next.MISFIT if runs else Next.GIVE_BACK
        if not equivalent(self.group.pod_sets, workload, slim=True):
            return Next.MISFIT if runs else Next.REWRITE
        return Next.RESUME if on_hold(workload) else Next.NOTHING

    def _is_known(self, workload: JSON) -> bool:
        has, wanted = annotations_of(workload), self.marks()
        gates = names.ADMISSION_GATED_BY_ANNOTATION
        return _owned(self.owner, workload) and all(has.get(key, "") == wanted.get(key, "") for key in {*wanted, gates})

    # --- its pods

    def stamp(self, pod: ManagedPod, workload: JSON) -> Patch:
        """Return the patch that adds a live pod to the group; empty if the pod is in it, is being deleted, or has no
        place in the Workload.

        Afterwards the patch has only changes of the queue and of the number of pods.
        """
        if pod.deleting or pod.terminated or pod_view.suspending_parent(pod.obj) != self.kind.framework:
            return {}
        counts = counts_of(workload)
        total = min(self.group.count, sum(counts.values()))
        queue, name = rules.queue_name(self.owner), text(workload, "metadata", "name")
        is_member = pod.group == f"{text(self.owner, 'metadata', 'namespace')}/{name}"
        # a pod that was started stays in the queue that has paid for it
        labels: dict[str, str] = {names.QUEUE_NAME_LABEL: queue} if queue and (pod.gated or not is_member) else {}
        annotations: dict[str, str] = {names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(total)} if total else {}
        if pod.group and not is_member:
            return {}  # a group cannot change; the pod was made for an earlier owner of this name
        if not is_member:
            marks, rank = self.kind.marks_of(pod.obj, self.owner), self.kind.rank_of(pod.obj)
            if marks[names.ROLE_HASH_ANNOTATION] not in counts or (rank is not None and rank >= sum(counts.values())):
                return {}
            labels[names.MANAGED_LABEL] = "true"
            if rules.priority_class(self.owner):
                labels[names.PRIORITY_CLASS_LABEL] = rules.priority_class(self.owner)
            annotations |= {names.POD_GROUP_SERVING_ANNOTATION: "true", **marks}
            identifiers = {names.POD_GROUP_NAME_ANNOTATION: name, names.PREBUILT_WORKLOAD_NAME_ANNOTATION: name}
            (annotations if self.switches.identifier_annotations else labels).update(identifiers)
        changes = {
            "labels": _others(labels, labels_of(pod.obj)),
            "annotations": _others(annotations, annotations_of(pod.obj)),
        }
        metadata = {part: change for part, change in changes.items() if change}
        return {"metadata": metadata} if metadata else {}


def _owned(obj: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
    uid = text(obj, "metadata", "uid")
    return any(text(owner, "uid") == uid for owner in objects(workload, "metadata", "ownerReferences"))


def _copied(owner: JSON) -> dict[str, str]:
    own = annotations_of(owner)
    found = {key: value for key, value in own.items() if key.startswith(names.PROVISIONING_REQUEST_ANNOTATION_PREFIX)}
    found |= node_classes.class_annotations(owner) | rules.joint_traits(owner)
    if rules.placement_profile(owner):
        found[names.PLACEMENT_PROFILE_ANNOTATION] = rules.placement_profile(owner)
    return found


def _others(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def outdated(stateful_set: Mapping[str, Any], pods: Sequence[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the gated pods of a StatefulSet whose revision is being replaced.

    The StatefulSet controller waits until they are ready, in vain if they can only start after the update.
    """
    spec, now = mapping(stateful_set, "spec"), mapping(stateful_set, "status")
    current, update = text(now, "currentRevision"), text(now, "updateRevision")
    if not update or current == update or text(spec, "updateStrategy", "type") not in ("", "RollingUpdate"):
        return ()
    first = whole(spec, "updateStrategy", "rollingUpdate", "partition") or 0
    uid = text(stateful_set, "metadata", "uid")
    return tuple(
        pod
        for pod in pods
        if pod.gated
        and not pod.deleting
        and (owner := controller_of(pod.obj)) is not None
        and owner.uid == uid
        and labels_of(pod.obj).get(_REVISION) == current
        and _ordinal(pod) >= first
    )


def _ordinal(pod: ManagedPod) -> int:
    number = int_of(labels_of(pod.obj).get(kube_names.STATEFUL_SET_POD_INDEX_LABEL, ""))
    return -1 if number is None else number
