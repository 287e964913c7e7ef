"""apps/v1 StatefulSet: its pods are one group, whose Workload is created first, so the group is admitted as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import rules, serving
from kqueue.jobs.fields import JSON, annotations_of, mapping, whole
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.jobs.pod_shape import shape

FRAMEWORK = "statefulset"
GVK = GroupVersionKind("apps", "v1", "StatefulSet")
_WITHOUT_EFFECT = (names.PREBUILT_WORKLOAD_NAME_ANNOTATION, names.MAX_EXEC_TIME_SECONDS_LABEL)


class StatefulSet:
    """The webhooks' adapter of StatefulSets; `controllers.composed` has the reconciler."""

    framework = FRAMEWORK
    gvk = GVK
    resource = "statefulsets"
    defaults_on_update = True
    held_by = ""

    def holds_back(self, job: JSON) -> bool:
        """Return False: the gates of its pods prevent a start, no field of the StatefulSet does."""
        return False

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch that marks the template's pods to be gated; the reconciler sets group and queue of existing
        pods.

        The label makes the API server send the pods to kqueue's webhook.
        """
        if not is_ours(job):
            return {}
        new = serving.labelled(job, around)
        if not serving.is_managed(new, around):
            return {}
        labels = {names.MANAGED_LABEL: "true"}
        annotations = {names.POD_SUSPENDING_PARENT_ANNOTATION: FRAMEWORK}
        return merge_patch(job, serving.with_template(new, labels=labels, annotations=annotations))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules; while it is queued, its pods keep their shape, and it scales only from and to 0."""
        if mapping(new, "metadata").get("deletionTimestamp") or not is_ours(new):
            return []
        found = list(serving.problems(new, old, around, kind="StatefulSet", queued="its pods are one group already"))
        if serving.is_managed(new, around):
            found += serving.topology_problems(new, old, around, count=replicas(new) or None)
            if old is not None and serving.is_managed(old, around):
                found += _change_problems(new, old)
                found += rules.gate_change_problems(new, old) if around.switches.admission_gated_by else ()
        return found

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return a warning for each label and annotation without effect."""
        return serving.warnings(new, around, kind="StatefulSet", without_effect=_WITHOUT_EFFECT)


def is_ours(obj: Mapping[str, Any]) -> bool:
    """Whether no other owner of pod groups (a LeaderWorkerSet) has claimed the template's pods."""
    parent = annotations_of(mapping(obj, "spec", "template")).get(names.POD_SUSPENDING_PARENT_ANNOTATION)
    return parent in (None, FRAMEWORK)


def replicas(obj: Mapping[str, Any]) -> int:
    """Return the number of replicas; 1 by default."""
    written = whole(obj, "spec", "replicas")
    return 1 if written is None else written


def _change_problems(new: JSON, old: JSON) -> Iterator[FieldError]:
    before, after = (shape(mapping(obj, "spec", "template", "spec")) for obj in (old, new))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield FieldError(
                f"{serving.TEMPLATE}.spec.{key}",
                "what pods request and where they may run cannot change while the StatefulSet is queued; make another",
            )
    yield from _scale_problems(new, old)


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
