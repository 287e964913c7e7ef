"""The objects that a manager creates on worker clusters, and what it takes back from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqueue.api import multikueue_names, names
from kqueue.api.wire import kueue as wire
from kqueue.config.object_path import put
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects, text, whole
from kqueue.jobs.infos import infos_at_stop
from kqueue.jobs.kind import CompletedKind, EditedKind, ResizedKind, SentKind
from kqueue.jobs.managed_by import Way, managed_by_path, way_of
from kqueue.jobs.multikueue import pods
from kqueue.jobs.multikueue.owners import SentOwner
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.state.conditions import Stamp, conditions_of, status_patch

_LABEL_MAX = 63
"""The largest length of a label's value."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The mark of the copies of one manager.

    Args:
        name: the value of their label.
        manager: the UID of the manager's cluster; empty: it is not known, and the label alone counts.
    """

    name: str
    manager: str = ""

    @property
    def selector(self) -> str:
        """The selector of all copies of the manager on a worker cluster."""
        return f"{names.MULTIKUEUE_ORIGIN_LABEL}={self.name}"

    def made(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
        """Whether the manager created an object of a worker cluster.  No other object is ever touched.

        Several managers may have the same label, which has a default.  Copies that Kueue made have the label alone.
        """
        told = annotations.get(multikueue_names.MANAGER_UID_ANNOTATION, self.manager)
        return labels.get(names.MULTIKUEUE_ORIGIN_LABEL) == self.name and (not self.manager or told == self.manager)

    def is_copy(self, labels: Mapping[str, str], annotations: Mapping[str, str], uid: str) -> bool:
        """Whether an object is the copy of the manager's object with the UID; an old manager wrote no UID."""
        return self.made(labels, annotations) and annotations.get(multikueue_names.ORIGIN_UID_ANNOTATION, uid) == uid

    def _metadata(self, original: JSON, **labels: str) -> JSON:
        """Return the metadata of a copy: name, labels and annotations; owners and finalizers are of one cluster."""
        own = {k: v for k, v in labels_of(original).items() if k != names.JOB_UID_LABEL}
        marks = {multikueue_names.ORIGIN_UID_ANNOTATION: text(original, "metadata", "uid")}
        if self.manager:
            marks[multikueue_names.MANAGER_UID_ANNOTATION] = self.manager
        return {
            "name": text(original, "metadata", "name"),
            "namespace": text(original, "metadata", "namespace"),
            "labels": {**own, **labels, names.MULTIKUEUE_ORIGIN_LABEL: self.name},
            "annotations": {**annotations_of(original), **marks},
        }

    def workload_copy(self, workload: JSON) -> JSON:
        """Return the Workload to create on a worker cluster, for the manager's Workload as the API server has it."""
        spec = {key: value for key, value in mapping(workload, "spec").items() if key != "preemptionGates"}
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.WORKLOAD_KIND,
            "metadata": self._metadata(workload),
            "spec": {**spec, "active": True},
        }

    def job_copy(self, kind: SentKind, job: JSON, workload: JSON) -> JSON:
        """Return the job to create on a worker cluster: suspended, as its user wrote it, for the copy of its Workload.

        The worker's own controller runs it, so the field that names the controller is left out.  The Workloads of an
        owner of groups of pods are found by the UID of the original.
        """
        wanted = job
        for step in kind.stop(job, infos_at_stop(workload)):
            if not step.subresource:
                wanted = apply_merge_patch(wanted, step.patch)
        if isinstance(kind, CompletedKind):
            wanted = kind.as_written(wanted)
        metadata = self._metadata(wanted) if isinstance(kind, SentOwner) else self._prebuilt(wanted, workload)
        path = managed_by_path(kind)
        without_manager = put(wanted, path, None) if path else wanted
        return {
            "apiVersion": kind.gvk.api_version,
            "kind": kind.gvk.kind,
            "metadata": metadata,
            "spec": apply_merge_patch({}, without_manager["spec"]),
        }

    def _prebuilt(self, original: JSON, workload: JSON) -> JSON:
        """Return the metadata of the copy of a job that is started with the copy of its Workload."""
        name = text(workload, "metadata", "name")
        labels = {names.PREBUILT_WORKLOAD_NAME_LABEL: name} if len(name) <= _LABEL_MAX else {}
        metadata = self._metadata(pods.without_parent(original), **labels)
        metadata["annotations"][names.PREBUILT_WORKLOAD_NAME_ANNOTATION] = name
        metadata["annotations"].pop(names.STOPPING_ANNOTATION, None)
        return metadata


def dispatch_problem(kind: SentKind | None, parts: Sequence[JSON]) -> str:
    """Return why no worker cluster can run a job; empty: one can.

    Args:
        kind: None: the owner is of no enabled kind.
        parts: the job, or the pods of a group; empty: they are not known.
    """
    if kind is None:
        return "The owner of the workload is of no kind that a worker cluster can run"
    way = way_of(kind)
    if way is Way.NONE:
        return f"A {kind.gvk.kind} cannot be run by a worker cluster"
    if way is Way.GATE:
        return pods.problem(parts)
    if way is Way.GATES:
        return ""
    job = next(iter(parts), None)
    if way is Way.FLAG:
        runs = job is not None and (kind.active(job) or not kind.is_suspended(job)) and kind.finished(job) is None
        return f"The {kind.gvk.kind} runs on this cluster already; delete it and create it again" if runs else ""
    if job is not None and kind.managed_by(job) != names.MULTIKUEUE_CONTROLLER:
        path = ".".join(managed_by_path(kind))
        return f"{path} of the job is not {names.MULTIKUEUE_CONTROLLER}; create the job with that value"
    return ""


def status_back(kind: SentKind, job: JSON, copy: JSON) -> Patch:
    """Return the patch of the status of the manager's job by its copy; empty: there is nothing to write.

    While only the manager's job is suspended, it is about to start or to stop, and takes no status of one that runs or
    is being stopped: the API server refuses a Job that is suspended and runs.  It takes the end of a job that was
    faster.
    """
    way = way_of(kind)
    if way is Way.GATE:
        return pods.status_back(job, copy)
    if way is Way.GATES:
        return {}  # the manager's own controllers write the status
    if way is Way.FLAG and kind.finished(copy) is None:
        return {}  # they do so until the end
    if kind.holds_back(job) and not kind.is_suspended(copy) and kind.finished(copy) is None:
        return {}
    patch = merge_patch(mapping(job, "status"), mapping(copy, "status"))
    return {"status": patch} if patch else {}


def resized(kind: SentKind, copy: JSON, workload: wire.Workload) -> Patch:
    """Return the patch by which the copy of an elastic job gets the size of a slice and is that slice's; empty: it is.

    Both go in one write: a cluster never compares the job with a slice of another size.
    """
    if not isinstance(kind, ResizedKind):
        return {}
    name, counts = workload.metadata.name, {pods.name: pods.count for pods in workload.spec.pod_sets}
    wanted = kind.resized(copy, counts)
    labels = {names.PREBUILT_WORKLOAD_NAME_LABEL: name if len(name) <= _LABEL_MAX else None}
    metadata = {"labels": labels, "annotations": {names.PREBUILT_WORKLOAD_NAME_ANNOTATION: name}}
    return merge_patch(copy, apply_merge_patch(wanted, {"metadata": metadata}))


def forwarded(kind: SentKind, job: JSON, copy: JSON) -> Patch:
    """Return the patch by which the copy of a job follows an edit of its user; empty: it has.

    Fields that only the copy has stay: its cluster's API server may write them again.
    """
    if not isinstance(kind, EditedKind):
        return {}
    ours, theirs = kind.edited(job), mapping(copy, "spec")
    patch = merge_patch({key: theirs[key] for key in ours if key in theirs}, ours)
    return {"spec": patch} if patch else {}


def reclassed(job: JSON, copy: JSON) -> Patch:
    """Return the patch that gives the copy of a job, or pod, the priority class of the manager's; empty: it has it.

    The worker's own queue may take the priority of its Workload from this label again.
    """
    key = names.PRIORITY_CLASS_LABEL
    wanted = labels_of(job).get(key)
    return {"metadata": {"labels": {key: wanted}}} if wanted and labels_of(copy).get(key) != wanted else {}


def caught_up(workload: wire.Workload, copy: JSON) -> Patch:
    """Return the patch that gives a copy the workload's priority and counts; empty: it has them."""
    reference = workload.spec.priority_class_ref
    counts = {pods.name: pods.count for pods in workload.spec.pod_sets}
    wanted: JSON = {
        **mapping(copy, "spec"),
        "priority": workload.spec.priority,
        "priorityClassRef": None
        if reference is None
        else {"group": reference.group, "kind": reference.kind, "name": reference.name},
        "podSets": [_counted(pods, counts) for pods in objects(copy, "spec", "podSets")],
    }
    patch = merge_patch(mapping(copy, "spec"), wanted)
    return {"spec": patch} if patch else {}


def _counted(pods: Mapping[str, Any], counts: Mapping[str, int]) -> JSON:
    wanted = counts.get(text(pods, "name") or names.DEFAULT_PODSET)
    return dict(pods) if wanted in (None, whole(pods, "count")) else {**pods, "count": wanted}


def deactivation(copy: wire.Workload, now: datetime) -> Patch | None:
    """Return the status patch by which a worker evicts a copy; None: it has been told already."""
    conditions = conditions_of(copy, Stamp(now))
    conditions.set(
        names.CONDITION_DEACTIVATION_TARGET,
        status=True,
        reason=multikueue_names.REASON_EVICTED_ON_MANAGER_CLUSTER,
        message="The manager cluster has evicted the workload",
    )
    return status_patch(conditions)
