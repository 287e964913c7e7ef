"""Events that controllers record on objects, off the critical path."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kqueue.api import names
from kqueue.api.wire import kueue as wire


class Reporter:
    """Names of reporting controllers in events.  Scripts of users of the compatible system filter by these names."""

    SCHEDULER = "kueue-admission"
    WORKLOADS = "kueue-workload-controller"
    VARIANTS = "concurrent-admission-controller"
    NODES = "tas-resource-flavor-controller"
    GATES = "tas-topology-ungater"
    DEFRAGMENTATION = "kqueue-defragmentation"
    RESERVATIONS = "kqueue-reservations"
    PROVISIONING = "kueue-provisioning-request-controller"


def job_controller(framework: str) -> str:
    """Return the reporting controller of events on jobs of one framework."""
    return f"{framework}-kueue-controller"


class ObjectReference(NamedTuple):
    """The object that an event regards."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str


class Recorder(Protocol):
    """Accepts events.  It returns at once, never raises, and may drop events under load; it counts dropped events."""

    def record(
        self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False, once: bool = False
    ) -> None:
        """Record an event on an object.

        Args:
            regarding: the object.
            reason: one word for programs.
            message: a sentence for users.
            warning: whether the event's type is Warning instead of Normal.
            once: the event describes a lasting state; it is dropped if an equal event exists.
        """
        ...


def workload_reference(workload: wire.Workload) -> ObjectReference:
    """Return the reference of a Workload for events."""
    meta = workload.metadata
    return ObjectReference(names.API_VERSION, names.WORKLOAD_KIND, meta.name, meta.namespace, meta.uid)


def waiting_references(workload: wire.Workload) -> list[ObjectReference]:
    """Return the objects on which users look for the reason for which a workload waits.

    They are the Workload, its job, and its first pod if pods own it.  A job and a pod that are the same object are
    returned once.
    """
    owners = workload.metadata.owner_references
    found = [next((owner for owner in owners if owner.controller), owners[0])] if owners else []
    if not any(owner.kind == "Pod" for owner in found):
        found += [owner for owner in owners if owner.kind == "Pod"][:1]
    namespace = workload.metadata.namespace
    refs = [ObjectReference(owner.api_version, owner.kind, owner.name, namespace, owner.uid) for owner in found]
    return [workload_reference(workload), *refs]


def record_waiting(recorder: Recorder, workload: wire.Workload, *, reason: str, message: str, warning: bool) -> None:
    """Record an event on the workload, its job and its first pod: `kubectl describe` of each then shows the reason."""
    for regarding in waiting_references(workload):
        recorder.record(regarding, reason=reason, message=message, warning=warning)
