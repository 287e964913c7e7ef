"""leaderworkerset.x-k8s.io/v1 LeaderWorkerSet: each of its replicas is a group of a leader and workers, with a Workload
of its own.

Its controller makes one StatefulSet of all leaders, and, for each leader, one of its workers.  Source of the labels and
annotations on the pods: the LWS project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import pod_set_groups, pod_view, rules, serving, topology_request
from kqueue.jobs.ancestry import controller_kind
from kqueue.jobs.composed import ComposedGroup
from kqueue.jobs.fields import (
    JSON,
    annotation_of,
    annotations_of,
    condition_status,
    int_of,
    label_of,
    labels_of,
    mapping,
    text,
    whole,
)
from kqueue.jobs.gang.occupants import controller_of
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.jobs.pod_set_groups import GroupMember
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.several import Placed
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import as_pod_set
from kqueue.kube import names as kube_names

FRAMEWORK = "leaderworkerset.x-k8s.io/leaderworkerset"
GVK = GroupVersionKind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
MOST_REPLICAS = 1_000_000
"""The largest number of groups.  Source: Kueue."""
LEADER, WORKER = "leader", "worker"
_SPEC = "leaderWorkerTemplate"
_LEADER_PATH, _WORKER_PATH = f"spec.{_SPEC}.leaderTemplate", f"spec.{_SPEC}.workerTemplate"
_SIZE = f"spec.{_SPEC}.size"
_RANKED = topology_request.IndexLabels(pod=kube_names.LWS_WORKER_INDEX_LABEL)
_UNRANKED = topology_request.IndexLabels()


class LeaderWorkerSet:
    """The adapter of LeaderWorkerSets for webhooks and the reconciler of composed owners."""

    framework = FRAMEWORK
    gvk = GVK
    resource = "leaderworkersets"
    defaults_on_update = True
    held_by = ""
    follows_priority = True

    # --- webhooks

    def holds_back(self, job: JSON) -> bool:
        """Return False: the gates of its pods prevent a start, no field of the LeaderWorkerSet does."""
        return False

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch that marks the pods of its templates to be gated, with queue and priority class.

        Beside a leader template, workers begin with rank 1, unless both are placed as one group of pod sets.
        """
        new = serving.labelled(job, around)
        if not serving.is_managed(new, around):
            return {}
        labels = serving.queue_labels(new)
        annotations = {
            names.POD_SUSPENDING_PARENT_ANNOTATION: FRAMEWORK,
            names.POD_GROUP_SERVING_ANNOTATION: "true",
        }
        done, templates = new, self.templates(new)
        for path, _ in templates:
            done = serving.with_template(done, labels=labels, annotations=annotations, path=path)
        grouped = any(names.PODSET_GROUP_NAME_ANNOTATION in annotations_of(template) for _, template in templates)
        if around.switches.topology and len(templates) > 1 and not grouped:
            offset = {names.POD_INDEX_OFFSET_ANNOTATION: "1"}
            done = serving.with_template(done, labels={}, annotations=offset, path=_WORKER_PATH)
        return merge_patch(job, done)

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules, the number of groups and topology; while it is queued, groups keep size and shape."""
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        how, templates = "the pods of each replica are one group already", self.templates(new)
        found = list(serving.problems(new, old, around, templates=templates, kind=GVK.kind, queued=how))
        wanted = _written_replicas(new)
        if not 0 <= wanted <= MOST_REPLICAS:
            found.append(FieldError("spec.replicas", f"must be between 0 and {MOST_REPLICAS}", wanted))
        if serving.is_managed(new, around):
            if old is None or _placement(new) != _placement(old):
                found += pod_set_groups.topology_problems(_members(new), {}, around.switches, counted=True)
            if old is not None and serving.is_managed(old, around):
                found += _change_problems(new, old, around.switches)
                found += rules.gate_change_problems(new, old) if around.switches.admission_gated_by else ()
        return found

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return a warning for each label and annotation without effect."""
        templates, without_effect = self.templates(new), serving.WITHOUT_EFFECT
        return serving.warnings(new, around, templates=templates, kind=GVK.kind, without_effect=without_effect)

    # --- its groups

    def is_ours(self, obj: Mapping[str, Any]) -> bool:
        """Return True: no other owner of pod groups makes LeaderWorkerSets."""
        return True

    def templates(self, obj: Mapping[str, Any]) -> Sequence[Placed]:
        """Return the template of leaders, if there is one, and that of workers."""
        return [(member.path, member.template) for member in _members(obj)]

    def groups(self, obj: JSON, switches: JobFeatures) -> Iterator[ComposedGroup]:
        """Yield each group: pod sets `leader` and `worker`, or `main` where leaders have no template of their own."""
        pod_sets = _pod_sets(obj, switches)
        for index in range(self.group_count(obj)):
            yield ComposedGroup(self.group_name(obj, index), pod_sets, index)

    def group_name(self, obj: Mapping[str, Any], index: int) -> str:
        """Return the name of the leader of the group."""
        return f"{text(obj, 'metadata', 'name')}-{index}"

    def group_count(self, obj: Mapping[str, Any]) -> int:
        """Return the number of replicas; in a rolling update also of the surge that exists, within its limit."""
        wanted = min(max(0, _written_replicas(obj)), MOST_REPLICAS)
        there = whole(obj, "status", "replicas") or 0
        if there <= wanted or not _is_rolling(obj, wanted):
            return wanted
        return max(wanted, min(there, wanted + _surge(obj, wanted)))

    def misfit(self, group: ComposedGroup, counted: int) -> str:
        """Return how a group gets quota for another number of pods, or for other pods."""
        return (
            f"group {group.index} is to have {group.count} pods now, and its Workload counts {counted} as they were: "
            "no others are started; delete the pods of the group, and it is queued again"
        )

    # --- their pods

    def owner_name(self, pod: Mapping[str, Any]) -> str:
        """Return the name of the LeaderWorkerSet by the pod's label, if it is the parent that suspends the pod."""
        if pod_view.suspending_parent(pod) != FRAMEWORK:
            return ""
        return label_of(pod, kube_names.LWS_NAME_LABEL)

    def is_member(self, pod: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
        """Whether labels and controller of the pod fit together: a leader is of the StatefulSet of all leaders, a
        worker of that of its own leader.
        """
        name, index, rank = text(obj, "metadata", "name"), self.group_of(pod), self.rank_of(pod)
        if index is None or index < 0 or rank is None or rank < 0 or controller_kind(dict(pod)) != _STATEFUL_SET:
            return False
        leader, owner = annotation_of(pod, kube_names.LWS_LEADER_NAME_ANNOTATION), controller_of(pod)
        if leader:
            return rank > 0 and leader == f"{name}-{index}" and owner is not None and owner.name == leader
        return rank == 0 and owner is not None and owner.name == name

    def group_of(self, pod: Mapping[str, Any]) -> int | None:
        """Return the index of the pod's group; None: it has no label with a number."""
        return int_of(label_of(pod, kube_names.LWS_GROUP_INDEX_LABEL))

    def rank_of(self, pod: Mapping[str, Any]) -> int | None:
        """Return the index of the pod in its group, 0 for the leader; None: it has no label with a number."""
        return int_of(label_of(pod, kube_names.LWS_WORKER_INDEX_LABEL))

    def marks_of(self, pod: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, str]:
        """Return the role of the pod, by the annotation that workers have."""
        if not _has_leader_template(obj):
            return {names.ROLE_HASH_ANNOTATION: names.DEFAULT_PODSET}
        is_worker = bool(annotation_of(pod, kube_names.LWS_LEADER_NAME_ANNOTATION))
        return {names.ROLE_HASH_ANNOTATION: WORKER if is_worker else LEADER}

    def rolled_by(self, obj: Mapping[str, Any], pods: Sequence[ManagedPod]) -> str | None:
        """Return the name of the StatefulSet of all leaders, if the object was changed and a leader is gated.

        Workers have no revisions of their own: they are replaced with their leader.
        """
        changed = (whole(obj, "metadata", "generation") or 0) > 1
        held = any(pod.gated and self.rank_of(pod.obj) == 0 for pod in pods)
        return text(obj, "metadata", "name") if changed and held else ""


_STATEFUL_SET = ("apps", "StatefulSet")


def size(obj: Mapping[str, Any]) -> int:
    """Return the number of pods of a group; 1 by default and at least."""
    return max(1, whole(obj, "spec", _SPEC, "size") or 1)


def _written_replicas(obj: Mapping[str, Any]) -> int:
    written = whole(obj, "spec", "replicas")
    return 1 if written is None else written


def _has_leader_template(obj: Mapping[str, Any]) -> bool:
    return bool(mapping(obj, "spec", _SPEC, "leaderTemplate"))


def _is_rolling(obj: Mapping[str, Any], wanted: int) -> bool:
    """Whether a rolling update is not complete."""
    updated = whole(obj, "status", "updatedReplicas") or 0
    return condition_status(obj, "UpdateInProgress") == "True" or updated < wanted


def _surge(obj: Mapping[str, Any], wanted: int) -> int:
    """Return the number of groups that a rolling update may add; a share is rounded up."""
    written = mapping(obj, "spec", "rolloutStrategy", "rollingUpdateConfiguration").get("maxSurge")
    if isinstance(written, str):
        percent = int_of(written.removesuffix("%")) if written.endswith("%") else None
        return max(0, -(-wanted * percent // 100)) if percent is not None else 0
    return max(0, written) if isinstance(written, int) and not isinstance(written, bool) else 0


def _members(obj: Mapping[str, Any]) -> list[GroupMember]:
    """Return the templates with their numbers of pods in each group."""
    worker = mapping(obj, "spec", _SPEC, "workerTemplate")
    if not _has_leader_template(obj):
        return [GroupMember(_WORKER_PATH, worker, size(obj))]
    leader = mapping(obj, "spec", _SPEC, "leaderTemplate")
    return [GroupMember(_LEADER_PATH, leader, 1), GroupMember(_WORKER_PATH, worker, size(obj) - 1)]


def _placement(obj: Mapping[str, Any]) -> object:
    """Return what the topology of a group depends on."""
    return [(member.path, annotations_of(member.template), member.count) for member in _members(obj)]


def _pod_sets(obj: JSON, switches: JobFeatures) -> list[JSON]:
    """Return the pod sets of every group.  Names that the controller of the kind gives its pods are left out."""
    members = _members(obj)
    roles = (LEADER, WORKER) if len(members) > 1 else (names.DEFAULT_PODSET,)
    found: list[JSON] = []
    for role, member in zip(roles, members, strict=True):
        index = _UNRANKED if role == LEADER else _RANKED
        pod_set: JSON = {"name": role, "count": member.count, "template": as_pod_set(_own(member.template))}
        request = topology_request.topology_request(member.template, {}, index=index, switches=switches)
        found.append(pod_set if request is None else {**pod_set, "topologyRequest": request})
    return found


def _own(template: Mapping[str, Any]) -> JSON:
    """Return a template without the labels and annotations of the controller, but for the set's name."""
    labels = {k: v for k, v in labels_of(template).items() if not _is_lws(k) or k == kube_names.LWS_NAME_LABEL}
    annotations = {k: v for k, v in annotations_of(template).items() if not _is_lws(k)}
    return {**template, "metadata": {**mapping(template, "metadata"), "labels": labels, "annotations": annotations}}


def _is_lws(key: str) -> bool:
    return key.startswith(kube_names.LWS_PREFIX)


def _change_problems(new: JSON, old: JSON, switches: JobFeatures) -> Iterator[FieldError]:
    """Yield changes of size and shape of a group.  The number of groups may change freely."""
    if size(new) != size(old) and switches.immutable_group_size:
        yield FieldError(_SIZE, f"is {size(old)} and cannot change while the LeaderWorkerSet is queued", size(new))
    if _has_leader_template(new) != _has_leader_template(old):
        yield FieldError(_LEADER_PATH, "cannot be added or removed while the LeaderWorkerSet is queued; make another")
    before = {member.path: member.template for member in _members(old)}
    for member in _members(new):
        if member.path in before:
            yield from serving.shape_problems((member.path, member.template), before[member.path], kind=GVK.kind)
