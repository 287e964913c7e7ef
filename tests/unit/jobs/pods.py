"""Pods and groups of pods as plain JSON, with keyword defaults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.builders import JSON, PREFIX, prefixed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADMISSION, TOPOLOGY, FINALIZER = f"{PREFIX}admission", f"{PREFIX}topology", f"{PREFIX}managed"
NODE_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
UNMANAGED: JSON = {"labels": {f"{PREFIX}managed": None}, "finalizers": None}


def at(seconds: float) -> str:
    """A time as it stands in an object."""
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def make_pod(
    name: str = "p",
    *,
    group: str = "",
    total: int | str | None = None,
    cpu: str = "1",
    gated: bool = True,
    gates: list[str] | None = None,
    phase: str = "Pending",
    ready: bool = False,
    deleted: float | None = None,
    stopped: bool = False,
    node: str = "",
    born: float = 0,
    queue: str | None = "main",
    role: str = "",
    finalizer: bool = True,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A pod of one container that the webhook has been at; `deleted`: seconds from now of its deletion."""
    marks = prefixed(pod_group_name=group, pod_group_total_count=str(total)) if group else {}
    if total is None:
        marks.pop(f"{PREFIX}pod-group-total-count", None)
    if role:
        marks |= prefixed(role_hash=role)
    own = prefixed(managed="true") | ({} if queue is None else prefixed(queue_name=queue))
    held = gates if gates is not None else [ADMISSION] if gated else []
    conditions = [{"type": "Ready", "status": "True"}] if ready else []
    if stopped:
        conditions.append({"type": "TerminationTarget", "status": "True"})
    meta: JSON = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": at(born - 1000),
        "labels": own | (labels or {}),
        "annotations": marks | (annotations or {}),
    }
    if finalizer:
        meta["finalizers"] = [FINALIZER]
    if deleted is not None:
        meta |= {"deletionTimestamp": at(deleted), "deletionGracePeriodSeconds": 30}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    body: JSON = {"containers": [container], "priority": 0, "tolerations": NODE_TOLERATIONS, **spec}
    if held:
        body["schedulingGates"] = [{"name": gate} for gate in held]
    if node:
        body["nodeName"] = node
    found = {"phase": phase, "conditions": conditions, **(status or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body, "status": found}


def member(name: str = "p", *, total: int | str | None = 2, role: str = "r", **settings: Any) -> ManagedPod:
    """A pod of group `g` as its reconciler sees it."""
    return managed_pod(make_pod(name, group="g", total=total, role=role, **settings), JobFeatures())


def running(name: str, **settings: Any) -> ManagedPod:
    """A started member that is ready on a node."""
    return member(name, **{"gated": False, "phase": "Running", "ready": True, "node": "n", **settings})


def failed(name: str, **settings: Any) -> ManagedPod:
    """A started member that has failed."""
    return member(name, **{"gated": False, "phase": "Failed", "node": "n", **settings})


def done(name: str, **settings: Any) -> ManagedPod:
    """A started member that has succeeded."""
    return member(name, **{"gated": False, "phase": "Succeeded", "node": "n", **settings})


def group_workload(counts: dict[str, int], *conditions: JSON, cpu: str = "1", **more: Any) -> JSON:
    """The Workload of group `g`."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    workload = {
        "metadata": {"name": "g", "namespace": "team", "annotations": prefixed(is_group_workload="true")},
        "spec": {
            "queueName": "main",
            "podSets": [{"name": name, "count": count, "template": template} for name, count in counts.items()],
        },
        "status": {"conditions": list(conditions)},
    }
    return apply_merge_patch(workload, more)


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> JSON:
    """One condition."""
    return {"type": kind, "status": status, "reason": reason, "message": message}
