"""apps/v1 StatefulSet: its pods are one group, whose Workload is created first, so the group is admitted as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import rules, serving, topology_request
from kqueue.jobs.ancestry import controller_kind
from kqueue.jobs.composed import ComposedGroup
from kqueue.jobs.fields import JSON, annotations_of, mapping, text, whole
from kqueue.jobs.gang.occupants import controller_of
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.several import Placed
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import as_pod_set
from kqueue.kube import names as kube_names

FRAMEWORK = "statefulset"
GVK = GroupVersionKind("apps", "v1", "StatefulSet")
_INDEX = topology_request.IndexLabels(pod=kube_names.STATEFUL_SET_POD_INDEX_LABEL)


class StatefulSet:
    """The adapter of StatefulSets for webhooks and the reconciler of composed owners."""

    framework = FRAMEWORK
    gvk = GVK
    resource = "statefulsets"
    defaults_on_update = True
    held_by = ""
    follows_priority = False
    """The priority class counts when the Workload is created.  Source: Kueue."""

    # --- webhooks

    def holds_back(self, job: JSON) -> bool:
        """Return False: the gates of its pods prevent a start, no field of the StatefulSet does."""
        return False

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch that marks the template's pods to be gated; the reconciler sets group and queue of existing
        pods.

        The label makes the API server send the pods to kqueue's webhook.
        """
        if not self.is_ours(job):
            return {}
        new = serving.labelled(job, around)
        if not serving.is_managed(new, around):
            return {}
        labels = {names.MANAGED_LABEL: "true"}
        annotations = {names.POD_SUSPENDING_PARENT_ANNOTATION: FRAMEWORK}
        return merge_patch(job, serving.with_template(new, labels=labels, annotations=annotations))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules; while it is queued, its pods keep their shape, and it scales only from and to 0."""
        if mapping(new, "metadata").get("deletionTimestamp") or not self.is_ours(new):
            return []
        how, templates = "its pods are one group already", serving.only_template(new)
        found = list(serving.problems(new, old, around, templates=templates, kind=GVK.kind, queued=how))
        if serving.is_managed(new, around):
            found += serving.topology_problems(new, old, around, count=replicas(new) or None)
            if old is not None and serving.is_managed(old, around):
                found += serving.shape_problems(templates[0], mapping(old, "spec", "template"), kind=GVK.kind)
                found += _scale_problems(new, old)
                found += rules.gate_change_problems(new, old) if around.switches.admission_gated_by else ()
        return found

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return a warning for each label and annotation without effect."""
        templates, without_effect = serving.only_template(new), serving.WITHOUT_EFFECT
        return serving.warnings(new, around, templates=templates, kind=GVK.kind, without_effect=without_effect)

    # --- the group of its pods

    def is_ours(self, obj: Mapping[str, Any]) -> bool:
        """Whether no other owner of pod groups (a LeaderWorkerSet) has claimed the template's pods."""
        parent = annotations_of(mapping(obj, "spec", "template")).get(names.POD_SUSPENDING_PARENT_ANNOTATION)
        return parent in (None, FRAMEWORK)

    def templates(self, obj: Mapping[str, Any]) -> Sequence[Placed]:
        """Return its template."""
        return serving.only_template(obj)

    def groups(self, obj: JSON, switches: JobFeatures) -> Iterator[ComposedGroup]:
        """Yield one group of all replicas, also of none, with one pod set `main`."""
        template = mapping(obj, "spec", "template")
        found: JSON = {"name": names.DEFAULT_PODSET, "count": replicas(obj), "template": as_pod_set(template)}
        request = topology_request.topology_request(template, {}, index=_INDEX, switches=switches)
        pod_set = found if request is None else {**found, "topologyRequest": request}
        yield ComposedGroup(self.group_name(obj, 0), [pod_set])

    def group_name(self, obj: Mapping[str, Any], index: int) -> str:
        """Return the name of the StatefulSet."""
        return text(obj, "metadata", "name")

    def group_count(self, obj: Mapping[str, Any]) -> int:
        """Return 1."""
        return 1

    def misfit(self, group: ComposedGroup, counted: int) -> str:
        """Return how the StatefulSet gets quota for another number of replicas."""
        return (
            f"spec.replicas is {group.count}, and quota was given for {counted}: a StatefulSet is admitted as a whole, "
            f"so no more than {counted} pods are started, and no quota is given back; scale to 0, then, when all pods "
            f"are gone, to {group.count}"
        )

    # --- its pods

    def owner_name(self, pod: Mapping[str, Any]) -> str:
        """Return the name of the StatefulSet that controls a pod; empty: none does."""
        owner = controller_of(pod)
        return owner.name if owner is not None and controller_kind(dict(pod)) == (GVK.group, GVK.kind) else ""

    def is_member(self, pod: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
        """Whether the pod's controller has the UID of the StatefulSet."""
        owner = controller_of(pod)
        return owner is not None and owner.uid == text(obj, "metadata", "uid")

    def group_of(self, pod: Mapping[str, Any]) -> int | None:
        """Return None: there is one group."""
        return None

    def rank_of(self, pod: Mapping[str, Any]) -> int | None:
        """Return None: pods beyond the count join the group, which is fast, and wait in it."""
        return None

    def marks_of(self, pod: Mapping[str, Any], obj: Mapping[str, Any]) -> dict[str, str]:
        """Return the annotations of a group that starts before all of its pods exist, ranked by the pods' index."""
        return {
            names.POD_GROUP_FAST_ADMISSION_ANNOTATION: "true",
            names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION: kube_names.STATEFUL_SET_POD_INDEX_LABEL,
            names.ROLE_HASH_ANNOTATION: names.DEFAULT_PODSET,
        }

    def rolled_by(self, obj: Mapping[str, Any], pods: Sequence[ManagedPod]) -> str | None:
        """Return None: it has the revisions of its pods itself."""
        return None


def replicas(obj: Mapping[str, Any]) -> int:
    """Return the number of replicas; 1 by default."""
    written = whole(obj, "spec", "replicas")
    return 1 if written is None else written


def _scale_problems(new: JSON, old: JSON) -> Iterator[FieldError]:
    had, wants = replicas(old), replicas(new)
    if had == wants or wants == 0:
        return
    if had:
        yield FieldError(
            "spec.replicas",
            f"can change only to 0 and from 0, for its {had} pods are one gang; scale to 0 first",
            wants,
        )
    elif left := whole(old, "status", "replicas") or 0:
        yield FieldError(
            "spec.replicas", f"cannot leave 0 while {left} pods of before are left; wait for their end", wants
        )
