"""Jobs and Workloads as plain JSON, with keyword defaults."""

from __future__ import annotations

from typing import Any

from kqueue.jobs.job import BatchJob
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, workload_for

JSON = dict[str, Any]

UID = "11111111-2222-3333-4444-555555555555"
PREFIX = "kueue.x-k8s.io/"


def prefixed(**short: Any) -> dict[str, Any]:
    """Keys of ours from Python names: `queue_name="a"` becomes `kueue.x-k8s.io/queue-name: a`."""
    return {PREFIX + key.replace("_", "-"): value for key, value in short.items()}


def make_job(
    name: str = "sample",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    template: JSON | None = None,
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A queued, suspended Job of one container; `spec` entries by their JSON names."""
    body = {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": UID,
            "labels": prefixed(queue_name="main") if labels is None else labels,
            "annotations": annotations or {},
        },
        "spec": {"suspend": True, "parallelism": 4, "template": template or {"metadata": {}, "spec": body}, **spec},
        "status": status or {},
    }


def make_template(
    *, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> JSON:
    """A template of one container."""
    return {
        "metadata": {"annotations": annotations or {}, "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec},
    }


def make_workload(job: JSON, *, assignment: JSON | None = None, status: JSON | None = None) -> JSON:
    """The job's Workload; with `assignment` admitted, its one pod set assigned so."""
    workload = workload_for(BatchJob(), job, priority=Priority(), switches=JobFeatures())
    if assignment is not None:
        conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
        admission = {"clusterQueue": "cluster", "podSetAssignments": [{"name": "main", **assignment}]}
        workload["status"] = {"conditions": conditions, "admission": admission}
    return {**workload, "status": {**workload.get("status", {}), **(status or {})}}


def pruned(value: Any) -> Any:
    """JSON without nulls and empty parts, as the API server gives it back."""
    if isinstance(value, dict):
        parts = {key: pruned(item) for key, item in value.items()}
        return {key: item for key, item in parts.items() if item not in (None, {}, [], "")}
    return [pruned(item) for item in value] if isinstance(value, list) else value
