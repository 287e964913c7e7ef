"""Read the state of queued pods: gates, group, role, and end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs.fields import (
    JSON,
    annotation_of,
    annotations_of,
    condition_status,
    int_of,
    label_of,
    mapping,
    objects,
    sequence,
    text,
    whole,
)
from kqueue.jobs.gang.key import is_of_kueue

TERMINAL = ("Succeeded", "Failed")
_NO_TIME = datetime.fromtimestamp(0, UTC)
_MAKERS = {"statefulset": ("apps", "StatefulSet"), "leaderworkerset.x-k8s.io/leaderworkerset": ("apps", "StatefulSet")}
"""Parents that create groups of pods and label them after their creation, with the kind that controls these pods."""


def gates_of(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the pod's scheduling gates."""
    return [text(gate, "name") for gate in objects(pod, "spec", "schedulingGates")]


def is_gated(pod: Mapping[str, Any]) -> bool:
    """Whether a gate of kqueue prevents the start of a pod that will be admitted.

    The topology gate counts, too, until the pod is started: if a user removed the admission gate by hand, the pod still
    waits and is started at its turn.
    """
    gates = gates_of(pod)
    if names.ADMISSION_GATE in gates:
        return True
    return names.TOPOLOGY_GATE in gates and names.WORKLOAD_ANNOTATION not in annotations_of(pod)


def is_terminated(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's containers have ended and will not restart."""
    return text(pod, "status", "phase") in TERMINAL


def is_suspended(pod: Mapping[str, Any]) -> bool:
    """Whether no container may run: the pod is gated or terminated."""
    return is_gated(pod) or is_terminated(pod)


def is_deleting(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is being deleted."""
    return bool(mapping(pod, "metadata").get("deletionTimestamp"))


def is_managed(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's label marks it as managed by kqueue."""
    return label_of(pod, names.MANAGED_LABEL) == "true"


def has_finalizer(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has kqueue's finalizer."""
    return names.MANAGED_POD_FINALIZER in sequence(pod, "metadata", "finalizers")


def suspending_parent(pod: Mapping[str, Any]) -> str | None:
    """Return the framework of the parent that requested the gate; None: the pod names none."""
    return annotations_of(pod).get(names.POD_SUSPENDING_PARENT_ANNOTATION)


def stopped_by_us(pod: Mapping[str, Any]) -> bool:
    """Whether kqueue deleted the pod before it succeeded."""
    return is_deleting(pod) and condition_status(pod, names.CONDITION_POD_TERMINATION_TARGET) == "True"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManagedPod:
    """A pod with its most used properties.  `obj` is the pod as JSON.

    Views compare by identity, so that sets of a thousand views need no comparison of their fields.
    """

    obj: JSON
    key: str
    """namespace/name."""
    uid: str
    group: str
    """Key of its gang (`gang_key`); empty: it is in none."""
    role: str
    """Its role in the gang, the pod set of a member that is not queued alone; empty for a pod in no gang."""
    phase: str
    gated: bool
    deleting: bool
    finalizer: bool
    """Whether the pod has kqueue's finalizer."""
    stopped: bool
    """Whether kqueue has requested the pod's deletion."""
    created: datetime

    @property
    def spec(self) -> Mapping[str, Any]:
        """The pod's spec."""
        return mapping(self.obj, "spec")

    @property
    def name(self) -> str:
        """Name without its namespace."""
        return text(self.obj, "metadata", "name")

    @property
    def total(self) -> int | None:
        """The number of pods in the group, by Kueue's annotation; None: it has no whole number above 0."""
        return total_count(self.obj)

    @property
    def extra(self) -> bool:
        """Whether it is marked as a member beyond the quorum of its gang, which is queued alone; never in Kueue's own
        groups.
        """
        return self._mark in (gang_names.EXTRA, gang_names.EARLY_EXTRA)

    @property
    def early(self) -> bool:
        """Whether it is such a member, and must not be released before the quorum has started."""
        return self._mark == gang_names.EARLY_EXTRA

    @property
    def _mark(self) -> str:
        return "" if is_of_kueue(self.group) else annotation_of(self.obj, gang_names.EXTRA_ANNOTATION)

    @property
    def alone(self) -> bool:
        """Whether it is queued alone, as an extra of its gang, or in no gang."""
        return not self.group or self.extra

    @property
    def scheduled(self) -> bool:
        """Whether the pod is bound to a node and needs no replacement, or has succeeded."""
        return self.runnable and (self.succeeded or bool(text(self.spec, "nodeName")))

    @property
    def unschedulable(self) -> bool:
        """Whether the scheduler found no node for the pod."""
        if self.gated or not self.runnable or self.scheduled:
            return False
        conditions = objects(self.obj, "status", "conditions")
        found = next((c for c in conditions if c.get("type") == "PodScheduled"), {})
        return found.get("status") == "False" and found.get("reason") == "Unschedulable"

    @property
    def terminated(self) -> bool:
        """Whether the pod's containers have ended and will not restart."""
        return self.phase in TERMINAL

    @property
    def succeeded(self) -> bool:
        """Whether the pod has succeeded; a pod that ended without error after kqueue deleted it has not."""
        return self.phase == "Succeeded" and not self.stopped

    @property
    def runnable(self) -> bool:
        """Whether the pod runs, will run, or has succeeded, so that it needs no replacement."""
        if self.phase == "Failed" or (self.deleting and not text(self.spec, "nodeName")):
            return False
        return not (self.stopped and self.phase == "Succeeded")

    @property
    def at_large(self) -> bool:
        """Whether the pod may use resources without an admission: it is ungated, and neither ended nor being
        deleted.
        """
        return not self.gated and not self.terminated and not self.deleting

    def active(self, now: datetime, *, fast: bool) -> bool:
        """Whether the pod may still use resources: it is bound or running, or may have been bound meanwhile, and its
        deletion's grace period is not over.

        `fast`: a pod that is being deleted does not count.
        """
        if self.terminated or (fast and self.deleting):
            return False
        due = _time(text(self.obj, "metadata", "deletionTimestamp"))
        if self.gated and not text(self.spec, "nodeName"):
            return False  # whatever its status says: it has that of its copy if another cluster runs it
        if self.phase != "Running" and not text(self.spec, "nodeName"):
            return due is None  # no pod is bound after its deletion
        if due is None:
            return True
        return now <= due + timedelta(seconds=whole(self.obj, "metadata", "deletionGracePeriodSeconds") or 0)

    @property
    def last_active(self) -> datetime | None:
        """Return the time at which the pod's containers failed or its deletion was requested; None: not known."""
        times = [_time(text(self.obj, "metadata", "deletionTimestamp"))]
        for condition in objects(self.obj, "status", "conditions"):
            ended = condition.get("type") == "ContainersReady" and condition.get("status") == "False"
            if ended and text(condition, "reason") in ("Failed", "PodFailed"):
                times.append(_time(text(condition, "lastTransitionTime")))
        return min((t for t in times if t is not None), default=None)


def total_count(pod: Mapping[str, Any]) -> int | None:
    """Return the number of pods in the pod's group, by Kueue's annotation; None: it has no whole number above 0."""
    total = int_of(written_total(pod) or "")
    return total if total is not None and total > 0 else None


def written_total(pod: Mapping[str, Any]) -> str | None:
    """Return the text of that annotation; None: the pod has none."""
    return annotations_of(pod).get(names.POD_GROUP_TOTAL_COUNT_ANNOTATION)


def creation_of(pod: Mapping[str, Any]) -> datetime:
    """Return the time of the pod's creation; the epoch for a pod without one."""
    return _time(text(pod, "metadata", "creationTimestamp")) or _NO_TIME


def waits_for_its_parent(pod: ManagedPod) -> bool:
    """Whether the pod's parent has not yet labelled the pod with its group.

    A pod without a controller of such a kind does not wait, whatever its labels are.
    """
    makers = _MAKERS.get(suspending_parent(pod.obj) or "")
    if pod.group or makers is None:
        return False
    references = objects(pod.obj, "metadata", "ownerReferences")
    controllers = (r for r in references if r.get("controller") is True)
    return any((text(r, "apiVersion").rpartition("/")[0], text(r, "kind")) == makers for r in controllers)


def _time(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written) if written else None
    except ValueError:
        return None
