"""What lists tell about queues and flavors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kqueue.api import names
from kqueue.cli.ctl.workload_view import holds
from kqueue.cli.tables import age

Object = Mapping[str, Any]

CLUSTER_QUEUE_COLUMNS = ("Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age")
LOCAL_QUEUE_COLUMNS = ("Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Age")
FLAVOR_COLUMNS = ("Name", "Node Labels", "Age")


def is_active(cluster_queue: Object) -> str:
    """`true` where its condition Active holds, else `false`."""
    return "true" if holds(cluster_queue, names.CONDITION_ACTIVE) else "false"


def leads_to(local_queue: Object) -> str:
    """The ClusterQueue of a LocalQueue."""
    return str(_spec(local_queue).get("clusterQueue") or "")


def cluster_queue_row(queue: Object, now: datetime) -> list[str]:
    """One line of the list."""
    name, born = _name_and_age(queue, now)
    return [name, str(_spec(queue).get("cohortName") or ""), *_counts(queue), is_active(queue), born]


def local_queue_row(queue: Object, now: datetime) -> list[str]:
    """One line of the list."""
    name, born = _name_and_age(queue, now)
    return [name, leads_to(queue), *_counts(queue), born]


def flavor_row(flavor: Object, now: datetime) -> list[str]:
    """One line of the list."""
    name, born = _name_and_age(flavor, now)
    labels = sorted((_spec(flavor).get("nodeLabels") or {}).items())
    return [name, ", ".join(f"{key}={value}" for key, value in labels), born]


def _counts(queue: Object) -> tuple[str, str]:
    status = queue.get("status") or {}
    return str(status.get("pendingWorkloads") or 0), str(status.get("admittedWorkloads") or 0)


def _spec(obj: Object) -> Object:
    found: Object = obj.get("spec") or {}
    return found


def _name_and_age(obj: Object, now: datetime) -> tuple[str, str]:
    meta = obj["metadata"]
    return str(meta["name"]), age(meta.get("creationTimestamp"), now)
