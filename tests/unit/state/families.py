"""Parents and variants of concurrent admission, for tests of their steps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.model.variants import VariantPolicy, variant_name
from kqueue.state.variant_steps import VariantFamily, family_of

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PARENT, UID = "job-sample-5b05d", "11111111-2222-3333-4444-555555555555"
GATE = "kueue.x-k8s.io/concurrent-admission"
FLAVORS = ("reserved", "spot", "on-demand")
POLICY = VariantPolicy(flavors=FLAVORS)
RETAIN = VariantPolicy(flavors=FLAVORS, retains_first=True)


def clock(hour: float) -> str:
    """The time of day as text of an object."""
    return f"2026-01-01T{int(hour):02}:{round(hour % 1 * 60):02}:00Z"


def condition(kind: str, status: str = "True", reason: str = "", message: str = "", hour: float = 10) -> JSON:
    """One condition, since this hour."""
    at = clock(hour)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def admission(flavor: str, cpus: int = 4) -> JSON:
    """An admission of the one pod set in a flavor."""
    held = {"name": "main", "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": str(cpus)}, "count": cpus}
    return {"clusterQueue": "team", "podSetAssignments": [held]}


def admitted(flavor: str, *conditions: JSON, hour: float = 10, **status: Any) -> JSON:
    """The status of an admitted Workload."""
    own = [condition("QuotaReserved", reason="QuotaReserved", hour=hour), condition("Admitted", reason="Admitted", hour=hour)]  # fmt: skip
    return {"conditions": [*own, *conditions], "admission": admission(flavor), **status}


def reserving(flavor: str, *conditions: JSON) -> JSON:
    """The status of a Workload with a reservation that waits for admission checks."""
    own = [condition("QuotaReserved", reason="QuotaReserved"), condition("Admitted", "False", "UnsatisfiedAdmissionChecks")]  # fmt: skip
    return {"conditions": [*own, *conditions], "admission": admission(flavor)}


def waiting(*conditions: JSON, **status: Any) -> JSON:
    """The status of a Workload that was tried and waits."""
    return {"conditions": [condition("QuotaReserved", "False", "WaitingForQuota"), *conditions], **status}


def evicted(reason: str = "Preempted", message: str = "made room", hour: float = 11) -> JSON:
    return condition("Evicted", reason=reason, message=message, hour=hour)


def parent_json(
    status: JSON | None = None, *, metadata: JSON | None = None, annotations: JSON | None = None, cpus: int = 1, **spec: Any
) -> JSON:  # fmt: skip
    """The Workload of a Job, marked as a parent."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpus)}}}]}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sample", "uid": "job-uid", "controller": True}
    meta = {
        "name": PARENT,
        "namespace": "ns",
        "uid": UID,
        "labels": {"kueue.x-k8s.io/concurrent-admission-parent": "true", "kueue.x-k8s.io/job-uid": "job-uid"},
        "annotations": annotations or {},
        "ownerReferences": [owner],
        **(metadata or {}),
    }
    pod_sets = [{"name": "main", "count": 4, "template": template}]
    return {"metadata": meta, "spec": {"queueName": "main", "priority": 0, "active": True, "podSets": pod_sets, **spec}, "status": status or {}}  # fmt: skip


def variant_json(
    flavor: str, status: JSON | None = None, *, metadata: JSON | None = None, cpus: int = 1, gate: JSON | None = None, **spec: Any
) -> JSON:  # fmt: skip
    """The variant of the parent for a flavor; `gate` is the state of its preemption gate."""
    made = parent_json(status, cpus=cpus, **{"preemptionGates": [{"name": GATE}], **spec})
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": PARENT, "uid": UID, "controller": True}
    made["metadata"] = {
        "name": variant_name(PARENT, UID, flavor),
        "namespace": "ns",
        "uid": f"uid-of-{flavor}",
        "labels": {"kueue.x-k8s.io/job-uid": "job-uid"},
        "annotations": {"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor},
        "ownerReferences": [owner],
        **(metadata or {}),
    }
    if gate is not None:
        made["status"] = {**made["status"], "preemptionGates": [gate]}
    return made


def gate_at(hour: float, position: str = "Open") -> JSON:
    """The state of a variant's preemption gate since this hour."""
    return {"name": GATE, "position": position, "lastTransitionTime": clock(hour)}


def workload(obj: JSON) -> wire.Workload:
    """The object as controllers see it."""
    return msgspec.convert(obj, wire.Workload)


def family(parent: JSON | None = None, *variants: JSON, policy: VariantPolicy = POLICY) -> VariantFamily:
    """A parent and the Workloads that it controls."""
    return family_of(workload(parent or parent_json()), [workload(v) for v in variants], policy)
