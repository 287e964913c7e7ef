"""Rows of queues and flavors in lists."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kqueue.api import names
from kqueue.cli.ctl.table import Table
from kqueue.cli.tables import age
from kqueue.kube.conditions import condition, is_true

Object = Mapping[str, Any]


def is_active(cluster_queue: Object) -> str:
    """Return `true` if the condition Active has status True, else `false`."""
    return "true" if is_true(cluster_queue, names.CONDITION_ACTIVE) else "false"


def leads_to(local_queue: Object) -> str:
    """Return the name of the ClusterQueue of a LocalQueue."""
    return str(_spec(local_queue).get("clusterQueue") or "")


def cluster_queue_row(queue: Object, now: datetime) -> list[str]:
    """Return the cells of one ClusterQueue."""
    name, born = _name_and_age(queue, now)
    return [name, str(_spec(queue).get("cohortName") or ""), *_counts(queue), is_active(queue), born]


def local_queue_row(queue: Object, now: datetime) -> list[str]:
    """Return the cells of one LocalQueue."""
    name, born = _name_and_age(queue, now)
    return [name, leads_to(queue), *_counts(queue), born]


def flavor_row(flavor: Object, now: datetime) -> list[str]:
    """Return the cells of one ResourceFlavor."""
    name, born = _name_and_age(flavor, now)
    labels = sorted((_spec(flavor).get("nodeLabels") or {}).items())
    return [name, ", ".join(f"{key}={value}" for key, value in labels), born]


def _why_not_active(queue: Object) -> str:
    found = condition(queue, names.CONDITION_ACTIVE) or {}
    return "" if found.get("status") == "True" else str(found.get("message") or "")


def _cluster_queue_more(queue: Object) -> list[str]:
    spec = _spec(queue)
    return [str(spec.get("queueingStrategy") or ""), str(spec.get("stopPolicy") or "None"), _why_not_active(queue)]


def _local_queue_more(queue: Object) -> list[str]:
    return [str(_spec(queue).get("stopPolicy") or "None"), _why_not_active(queue)]


def _flavor_more(flavor: Object) -> list[str]:
    spec = _spec(flavor)
    return [str(spec.get("topologyName") or ""), ", ".join(map(_taint, spec.get("nodeTaints") or ()))]


def _taint(taint: Object) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


CLUSTER_QUEUES = Table(
    columns=("Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age"),
    row=cluster_queue_row,
    wide_columns=("Strategy", "Stop Policy", "Why Not Active"),
    wide_row=_cluster_queue_more,
)
LOCAL_QUEUES = Table(
    columns=("Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Age"),
    row=local_queue_row,
    wide_columns=("Stop Policy", "Why Not Active"),
    wide_row=_local_queue_more,
)
FLAVORS = Table(
    columns=("Name", "Node Labels", "Age"),
    row=flavor_row,
    wide_columns=("Topology", "Taints"),
    wide_row=_flavor_more,
)


def _counts(queue: Object) -> tuple[str, str]:
    status = queue.get("status") or {}
    return str(status.get("pendingWorkloads") or 0), str(status.get("admittedWorkloads") or 0)


def _spec(obj: Object) -> Object:
    found: Object = obj.get("spec") or {}
    return found


def _name_and_age(obj: Object, now: datetime) -> tuple[str, str]:
    meta = obj["metadata"]
    return str(meta["name"]), age(meta.get("creationTimestamp"), now)
