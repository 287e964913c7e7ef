"""What controllers tell the outside about an object: events, off the critical path."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kqueue.api import names
from kqueue.api.wire import kueue as wire


class Reporter:
    """Reporting controllers of events: scripts of the compatible system's users look for these names."""

    SCHEDULER = "kueue-admission"
    WORKLOADS = "kueue-workload-controller"
    NODES = "tas-resource-flavor-controller"
    GATES = "tas-topology-ungater"


def job_controller(framework: str) -> str:
    """The reporting controller of events about a kind of jobs."""
    return f"{framework}-kueue-controller"


class ObjectReference(NamedTuple):
    """What an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str


class Recorder(Protocol):
    """Takes events.  Returns at once; never raises; may drop events under load, and counts them."""

    def record(
        self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False, once: bool = False
    ) -> None:
        """One thing that happened to an object.  `once`: it is so, and no news where an equal event stands already."""
        ...


def workload_reference(workload: wire.Workload) -> ObjectReference:
    """A Workload as the subject of an event."""
    meta = workload.metadata
    return ObjectReference(names.API_VERSION, names.WORKLOAD_KIND, meta.name, meta.namespace, meta.uid)


def waiting_references(workload: wire.Workload) -> list[ObjectReference]:
    """Where users look for the reason for which a workload waits: itself, its job, and its first pod where pods own it.

    A job and a pod that are the same object come once.
    """
    owners = workload.metadata.owner_references
    found = [next((owner for owner in owners if owner.controller), owners[0])] if owners else []
    if not any(owner.kind == "Pod" for owner in found):
        found += [owner for owner in owners if owner.kind == "Pod"][:1]
    namespace = workload.metadata.namespace
    refs = [ObjectReference(owner.api_version, owner.kind, owner.name, namespace, owner.uid) for owner in found]
    return [workload_reference(workload), *refs]


def record_waiting(recorder: Recorder, workload: wire.Workload, *, reason: str, message: str, warning: bool) -> None:
    """One event on the workload, its job and its first pod: `kubectl describe` of each shows why it waits."""
    for regarding in waiting_references(workload):
        recorder.record(regarding, reason=reason, message=message, warning=warning)
