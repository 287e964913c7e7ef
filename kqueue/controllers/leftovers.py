"""Finds the changes of kqueue that would remain in the cluster after kqueue is removed, from objects alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from kqueue.api import gang_names, names
from kqueue.api.wire.meta import Condition, ObjectMeta, OwnerReference, Struct
from kqueue.jobs.ancestry import parent_of
from kqueue.jobs.catalog import child_labels
from kqueue.jobs.fields import JSON, mapping
from kqueue.jobs.gang.batch_process import FRAMEWORK as BATCH_PROCESSES
from kqueue.jobs.gang.marks import gang_of
from kqueue.jobs.gang.registry import switched_on
from kqueue.jobs.kind import JobKind
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import GANG_DIALECTS, framework_above, framework_of
from kqueue.runtime.resources import ResourceType

GATES = frozenset({names.ADMISSION_GATE, names.TOPOLOGY_GATE, names.ELASTIC_JOB_GATE})
"""Scheduling gates that no controller removes when kqueue is gone."""
FINALIZERS = frozenset({names.MANAGED_POD_FINALIZER, names.RESOURCE_IN_USE_FINALIZER})
"""Finalizers that no controller removes when kqueue is gone."""
READ_IN_BULK = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})
"""Kinds whose suspension and templates `Seen` reads.  The adapters read objects of all other kinds."""
_EVERY_DIALECT = JobFeatures(gangs=switched_on(GANG_DIALECTS))
_OVER = ("Complete", "Completed", "Failed")


class Left(StrEnum):
    """The ways in which an object is left behind.  The value is the name in JSON."""

    WEBHOOKS = "webhooks"
    """A webhook configuration of kqueue: without a server behind it, queued kinds cannot be created."""
    OTHERS_WEBHOOKS = "othersWebhooks"
    """A webhook configuration of the same name that another client applied, and must remove."""
    API_SERVICES = "apiServices"
    """An APIService of kqueue: without a server behind it, the API server cannot finish the deletion of any
    namespace.
    """
    CONVERSION = "conversion"
    """A definition that names kqueue's conversion webhook: without a server behind it, no object is read or written in
    v1beta1, and an object that was ever written in v1beta1 cannot be changed.
    """
    HELD_POD = "heldPod"
    """A pod that cannot run because of a gate, or cannot be deleted because of a finalizer."""
    FINALIZER = "finalizer"
    """An object that cannot be deleted."""
    GATED_TEMPLATE = "gatedTemplate"
    """A started job whose template has a gate: its new pods will wait forever."""
    HELD_TEMPLATE = "heldTemplate"
    """A suspended Job whose template has a gate: the gate can be removed as long as the Job has not started."""
    SUSPENDED = "suspended"
    """A job that waits for kqueue to start it."""
    UNATTENDED = "unattended"
    """An unfinished BatchProcess: without kqueue no controller creates or replaces its pods."""

    @property
    def releasable(self) -> bool:
        """Whether `--release` changes the object."""
        held = (Left.HELD_POD, Left.FINALIZER, Left.HELD_TEMPLATE)
        return self in (Left.WEBHOOKS, Left.API_SERVICES, Left.CONVERSION, *held)

    @property
    def counts(self) -> bool:
        """Whether the object prevents a clean removal of kqueue; a suspended job and a BatchProcess do not."""
        return self not in (Left.SUSPENDED, Left.UNATTENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """An object that is left behind."""

    left: Left
    resource: ResourceType
    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str
    uid: str
    version: str
    """The resourceVersion that was read."""
    ours: tuple[str, ...]
    """The gates and finalizers of kqueue on the object, or another short description."""
    integration: str = ""
    """The framework of the object; empty: it has none."""
    finalizers: tuple[str, ...] | None = None
    """The finalizers that remain; None: they are not changed."""
    gates: tuple[str, ...] | None = None
    """The scheduling gates of the pod or the template that remain; None: they are not changed."""

    def patch(self) -> dict[str, Any]:
        """Return the merge patch that releases the object, for the UID and the version that were read."""
        metadata: dict[str, Any] = {"uid": self.uid, "resourceVersion": self.version}
        if self.finalizers is not None:
            metadata["finalizers"] = list(self.finalizers)
        if self.gates is None:
            return {"metadata": metadata}
        spec: dict[str, Any] = {"schedulingGates": [{"name": gate} for gate in self.gates]}
        return {"metadata": metadata, "spec": {"template": {"spec": spec}} if self.left is Left.HELD_TEMPLATE else spec}


class _Gate(Struct, frozen=True, kw_only=True):
    name: str


class _PodSpec(Struct, frozen=True, kw_only=True):
    scheduling_gates: tuple[_Gate, ...] = ()


class _Template(Struct, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _JobTemplate(Struct, frozen=True, kw_only=True):
    spec: _JobSpec


class _ReplicatedJob(Struct, frozen=True, kw_only=True):
    template: _JobTemplate


class _JobSpec(Struct, frozen=True, kw_only=True):
    """The fields of pods, Workloads, Jobs and JobSets that are read here."""

    suspend: bool = False
    template: _Template = _Template()
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    scheduling_gates: tuple[_Gate, ...] = ()
    scheduling_group: Any = None
    active: bool | None = None


class _Status(Struct, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Seen(Struct, frozen=True, kw_only=True):
    """The fields of an object of any kind that are read here."""

    metadata: ObjectMeta
    spec: _JobSpec = _JobSpec()
    status: _Status = _Status()


def of_pod(resource: ResourceType, pod: Seen, *, leave_gated: bool = False) -> Leftover | None:
    """Return a pod with a gate or finalizer of kqueue; None for other pods.  `leave_gated`: gates do not count.

    A gate counts only if the pod could still run: it has neither ended nor is it being deleted.
    """
    over = pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed")
    gates = () if over or leave_gated else tuple(gate.name for gate in pod.spec.scheduling_gates)
    ours = tuple(gate for gate in gates if gate in GATES)
    marks = tuple(f for f in pod.metadata.finalizers if f in FINALIZERS)
    if not ours and not marks:
        return None
    return _leftover(
        Left.HELD_POD,
        resource,
        pod,
        ours=ours + marks,
        integration=_framework_of_pod(pod),
        finalizers=_without(pod.metadata.finalizers, FINALIZERS) if marks else None,
        gates=_without(gates, GATES) if ours else None,
    )


def of_object(resource: ResourceType, obj: Seen) -> Leftover | None:
    """Return an object with kqueue's finalizer; None for other objects."""
    marks = tuple(f for f in obj.metadata.finalizers if f in FINALIZERS)
    if not marks:
        return None
    owners = [owner for owner in obj.metadata.owner_references if owner.controller] or obj.metadata.owner_references
    return _leftover(
        Left.FINALIZER,
        resource,
        obj,
        ours=marks,
        integration=_dialect_of_workload(obj) or (_framework_of(owners[0]) if owners else ""),
        finalizers=_without(obj.metadata.finalizers, FINALIZERS),
    )


def of_job(resource: ResourceType, job: Seen, *, waits_for_us: bool) -> tuple[Leftover, ...]:
    """Return kqueue's remaining changes to a Job or JobSet: its suspension, and gates in its templates.

    `waits_for_us`: an active, unfinished Workload belongs to the job.  A job with a queue name waits for kqueue, too.
    """
    if job.metadata.deletion_timestamp is not None or any(
        c.status == "True" and c.type in _OVER for c in job.status.conditions
    ):
        return ()
    integration = _parent_of(job) or framework_of(resource.group, resource.kind) or ""
    found = []
    if job.spec.suspend and (waits_for_us or names.QUEUE_NAME_LABEL in job.metadata.labels):
        found.append(_leftover(Left.SUSPENDED, resource, job, ours=("spec.suspend",), integration=integration))
    templates = [job.spec.template, *(r.template.spec.template for r in job.spec.replicated_jobs)]
    gates = [gate.name for template in templates for gate in template.spec.scheduling_gates]
    ours = tuple(sorted(GATES.intersection(gates)))
    if ours and job.spec.suspend and not job.spec.replicated_jobs:
        kept = _without(gates, GATES)
        found.append(_leftover(Left.HELD_TEMPLATE, resource, job, ours=ours, integration=integration, gates=kept))
    elif ours:
        found.append(_leftover(Left.GATED_TEMPLATE, resource, job, ours=ours, integration=integration))
    return tuple(found)


def of_kind(resource: ResourceType, obj: JSON, kind: JobKind, *, waits_for_us: bool) -> tuple[Leftover, ...]:
    """Return kqueue's remaining changes to an object of any kind, by its adapter; gates are searched in the whole
    object.
    """
    metadata = mapping(obj, "metadata")
    if metadata.get("deletionTimestamp") or kind.finished(obj) is not None:
        return ()
    meta = msgspec.convert(metadata, ObjectMeta)
    seen = Seen(metadata=meta)
    if kind.is_suspended(obj):
        waits = waits_for_us or names.QUEUE_NAME_LABEL in meta.labels
        said = ("is suspended",)
        return (_leftover(Left.SUSPENDED, resource, seen, ours=said, integration=kind.framework),) if waits else ()
    ours = tuple(sorted(GATES.intersection(_gates_in(obj))))
    return (_leftover(Left.GATED_TEMPLATE, resource, seen, ours=ours, integration=kind.framework),) if ours else ()


def of_batch_process(resource: ResourceType, obj: Seen) -> Leftover | None:
    """Return a BatchProcess that has not ended; None for others."""
    over = obj.metadata.deletion_timestamp is not None
    if over or any(c.status == "True" and c.type in _OVER for c in obj.status.conditions):
        return None
    return _leftover(Left.UNATTENDED, resource, obj, ours=(), integration=BATCH_PROCESSES)


def _gates_in(value: Any) -> Iterator[str]:
    """Yield the names of all scheduling gates below a value."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "schedulingGates" and isinstance(item, list):
                yield from (str(gate.get("name")) for gate in item if isinstance(gate, dict))
            else:
                yield from _gates_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _gates_in(item)


def waiting_owners(workloads: Iterable[Seen]) -> set[str]:
    """Return the UIDs of the owners of active, unfinished Workloads."""
    return {
        owner.uid
        for workload in workloads
        if workload.spec.active is not False
        and not any(c.type == names.CONDITION_FINISHED and c.status == "True" for c in workload.status.conditions)
        for owner in workload.metadata.owner_references
    }


def _leftover(left: Left, resource: ResourceType, obj: Seen, **more: Any) -> Leftover:
    meta = obj.metadata
    return Leftover(
        left=left, resource=resource, namespace=meta.namespace, name=meta.name, uid=meta.uid,
        version=meta.resource_version, **more,
    )  # fmt: skip


def _without(names_: Iterable[str], ours: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in names_ if name not in ours)


def _dialect_of_workload(obj: Seen) -> str:
    """Return the dialect of the gang that a Workload counts; empty for other objects."""
    return obj.metadata.annotations.get(gang_names.GANG_ANNOTATION, "").partition(":")[0]


def _dialect_of_pod(pod: Seen) -> str:
    """Return the dialect of the gang in which kqueue queues the pod; empty: it is in none, or in a group of Kueue."""
    meta = pod.metadata
    if names.MANAGED_LABEL not in meta.labels:
        return ""
    references = [{"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "controller": o.controller}
                  for o in meta.owner_references]  # fmt: skip
    metadata = {"labels": meta.labels, "annotations": meta.annotations, "ownerReferences": references}
    gang = gang_of({"metadata": metadata, "spec": {"schedulingGroup": pod.spec.scheduling_group}}, _EVERY_DIALECT)
    return gang.framework if gang is not None else ""


def _framework_of_pod(pod: Seen) -> str:
    dialect = _dialect_of_pod(pod)
    if dialect:
        return dialect
    parent = pod.metadata.annotations.get(names.POD_SUSPENDING_PARENT_ANNOTATION, "")
    if parent_of(parent) is not None:  # its nearest owner may be of another kind that is queued through its pods
        return parent
    owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    if owner is None:
        return "pod"
    above = _parent_of(pod) if owner.kind == "Job" else ""
    return above or _framework_of(owner)


def _parent_of(child: Seen) -> str:
    """Return the framework of the parent of a Job, or of a pod of such a Job; empty: the Job has no parent."""
    return next((name for name, label in child_labels().items() if label in child.metadata.labels), "")


def _framework_of(owner: OwnerReference) -> str:
    group = owner.api_version.rpartition("/")[0]
    found = framework_above(group, owner.kind)
    return found or f"{group}/{owner.kind.lower()}".lstrip("/")  # the name of declared kinds
