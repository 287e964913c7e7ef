"""What pods that are queued say of themselves: gated or not, of which group and role, how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kqueue.api import names
from kqueue.jobs.fields import (
    JSON,
    annotations_of,
    condition_status,
    labels_of,
    mapping,
    objects,
    sequence,
    text,
    whole,
)
from kqueue.jobs.gang_source import GangSource, source_of
from kqueue.jobs.switches import JobFeatures

TERMINAL = ("Succeeded", "Failed")
_NO_TIME = datetime.fromtimestamp(0, UTC)
_MAKERS = {"statefulset": ("apps", "StatefulSet"), "leaderworkerset.x-k8s.io/leaderworkerset": ("apps", "StatefulSet")}
"""Parents that make groups of pods and say so by and by, and what controls these pods."""


def gates_of(pod: Mapping[str, Any]) -> list[str]:
    """Names of the pod's scheduling gates."""
    return [text(gate, "name") for gate in objects(pod, "spec", "schedulingGates")]


def is_gated(pod: Mapping[str, Any]) -> bool:
    """Whether a gate of ours holds the pod that is to be admitted.

    That of topology does, too, as long as the pod was not started: where the other one was taken off by hand it waits
    on and is started when its turn comes.
    """
    gates = gates_of(pod)
    if names.ADMISSION_GATE in gates:
        return True
    return names.TOPOLOGY_GATE in gates and names.WORKLOAD_ANNOTATION not in annotations_of(pod)


def is_terminated(pod: Mapping[str, Any]) -> bool:
    """Whether its containers have ended for good."""
    return text(pod, "status", "phase") in TERMINAL


def is_suspended(pod: Mapping[str, Any]) -> bool:
    """Whether nothing of it may run: gated, or terminated."""
    return is_gated(pod) or is_terminated(pod)


def is_deleting(pod: Mapping[str, Any]) -> bool:
    """Whether its deletion was asked for."""
    return bool(mapping(pod, "metadata").get("deletionTimestamp"))


def is_managed(pod: Mapping[str, Any]) -> bool:
    """Whether the label says that we manage it."""
    return labels_of(pod).get(names.MANAGED_LABEL) == "true"


def has_finalizer(pod: Mapping[str, Any]) -> bool:
    """Whether our finalizer holds it."""
    return names.MANAGED_POD_FINALIZER in sequence(pod, "metadata", "finalizers")


def suspending_parent(pod: Mapping[str, Any]) -> str | None:
    """Framework of the parent that asked for the gate; None without one."""
    return annotations_of(pod).get(names.POD_SUSPENDING_PARENT_ANNOTATION)


def group_name(pod: Mapping[str, Any], switches: JobFeatures) -> str:
    """The group that the pod is in, in whatever form it says so; empty when it is in none."""
    return source_of(pod, switches).group(pod, switches)


def stopped_by_us(pod: Mapping[str, Any]) -> bool:
    """Whether we asked for its end, before its work was done."""
    return is_deleting(pod) and condition_status(pod, names.CONDITION_POD_TERMINATION_TARGET) == "True"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManagedPod:
    """A pod as its reconcilers see it.  `obj` is the pod as JSON; the rest is what is asked of it most often.

    Two views are never equal, so that a thousand of them are told apart without a look into each.
    """

    obj: JSON
    key: str
    """namespace/name."""
    uid: str
    source: GangSource
    """The form in which it says its group."""
    group: str
    """namespace/name of its group; empty: it is queued alone."""
    role: str
    """Its pod set; empty for a pod that is queued alone."""
    phase: str
    gated: bool
    deleting: bool
    finalizer: bool
    """Our finalizer holds it."""
    stopped: bool
    """It is being deleted because we asked for that."""
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
        """How many pods its group has; None where that is not said as a whole number above 0."""
        return self.source.total(self.obj)

    @property
    def terminated(self) -> bool:
        """Its containers have ended for good."""
        return self.phase in TERMINAL

    @property
    def succeeded(self) -> bool:
        """It has done its work.  One that ended well because we asked it to go has not."""
        return self.phase == "Succeeded" and not self.stopped

    @property
    def runnable(self) -> bool:
        """It runs, will run, or has done its work: it needs no replacement."""
        if self.phase == "Failed" or (self.deleting and not text(self.spec, "nodeName")):
            return False
        return not (self.stopped and self.phase == "Succeeded")

    @property
    def at_large(self) -> bool:
        """It may take up resources without anybody's leave: ungated, neither ended nor on its way."""
        return not self.gated and not self.terminated and not self.deleting

    def active(self, now: datetime, *, fast: bool) -> bool:
        """Whether it may still hold resources: bound or running, and not past its deletion's grace period.

        `fast`: a pod that is being deleted does not count.
        """
        if self.terminated or (fast and self.deleting):
            return False
        if self.phase != "Running" and not text(self.spec, "nodeName"):
            return False
        due = _time(text(self.obj, "metadata", "deletionTimestamp"))
        if due is None:
            return True
        return now <= due + timedelta(seconds=whole(self.obj, "metadata", "deletionGracePeriodSeconds") or 0)

    @property
    def last_active(self) -> datetime | None:
        """When it ceased to be of use: its containers failed, or its deletion was asked for; None: not known."""
        times = [_time(text(self.obj, "metadata", "deletionTimestamp"))]
        for condition in objects(self.obj, "status", "conditions"):
            ended = condition.get("type") == "ContainersReady" and condition.get("status") == "False"
            if ended and text(condition, "reason") in ("Failed", "PodFailed"):
                times.append(_time(text(condition, "lastTransitionTime")))
        return min((t for t in times if t is not None), default=None)


def managed_pod(pod: JSON, switches: JobFeatures) -> ManagedPod:
    """The view of a pod that carries our label."""
    namespace = text(pod, "metadata", "namespace")
    source = source_of(pod, switches)
    group = source.group(pod, switches)
    return ManagedPod(
        obj=pod,
        source=source,
        key=f"{namespace}/{text(pod, 'metadata', 'name')}",
        uid=text(pod, "metadata", "uid"),
        group=f"{namespace}/{group}" if group else "",
        role=_role_of(pod, source) if group else "",
        phase=text(pod, "status", "phase"),
        gated=is_gated(pod),
        deleting=is_deleting(pod),
        finalizer=has_finalizer(pod),
        stopped=stopped_by_us(pod),
        created=_time(text(pod, "metadata", "creationTimestamp")) or _NO_TIME,
    )


def _role_of(pod: JSON, source: GangSource) -> str:
    """The role that the webhook noted: what a start adds to the pod must not change it; else what its form says."""
    return annotations_of(pod).get(names.ROLE_HASH_ANNOTATION, "").lower() or source.role(pod)


def waits_for_its_parent(pod: ManagedPod) -> bool:
    """Whether its parent's controller has yet to say which group it belongs to.

    A pod that no object of such a kind controls waits for nobody, whatever it says.
    """
    makers = _MAKERS.get(suspending_parent(pod.obj) or "")
    if pod.group or makers is None:
        return False
    references = objects(pod.obj, "metadata", "ownerReferences")
    controllers = (r for r in references if r.get("controller") is True)
    return any((text(r, "apiVersion").rpartition("/")[0], text(r, "kind")) == makers for r in controllers)


def queue_of(pod: ManagedPod) -> str:
    """LocalQueue that it asks for; empty: none."""
    return pod.source.queue(pod.obj)


def _time(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written) if written else None
    except ValueError:
        return None
