"""Rows of Workloads in lists: pure functions over their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from kqueue.api import names
from kqueue.cli.tables import age, duration
from kqueue.clock import api_time
from kqueue.kube.conditions import condition, is_true

Object = Mapping[str, Any]

COLUMNS = (
    *("Name", "Job Type", "Job Name", "LocalQueue", "ClusterQueue", "Status"),
    *("Position in Queue", "Exec Time", "Age"),
)


class WorkloadState(StrEnum):
    """The states of a workload."""

    PENDING = "PENDING"
    QUOTA_RESERVED = "QUOTARESERVED"
    ADMITTED = "ADMITTED"
    FINISHED = "FINISHED"


def status_of(workload: Object) -> WorkloadState:
    """Return the most advanced state that the workload's conditions show."""
    if is_true(workload, names.CONDITION_FINISHED):
        return WorkloadState.FINISHED
    if is_true(workload, names.CONDITION_ADMITTED):
        return WorkloadState.ADMITTED
    return WorkloadState.QUOTA_RESERVED if is_true(workload, names.CONDITION_QUOTA_RESERVED) else WorkloadState.PENDING


def owners_of(obj: Object) -> Sequence[Object]:
    """Return the owner references."""
    found: Sequence[Object] = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return found


def admitted_by(workload: Object) -> str:
    """Return the ClusterQueue whose quota the Workload uses; empty without a reservation."""
    return str(((workload.get("status") or {}).get("admission") or {}).get("clusterQueue") or "")


def queue_of(workload: Object) -> str:
    """Return the LocalQueue that the workload names; may be empty."""
    return str((workload.get("spec") or {}).get("queueName") or "")


def job_types(workload: Object) -> str:
    """Return `singular.group` of the owners, joined by commas."""
    return ", ".join(_job_type(owner) for owner in owners_of(workload))


def _job_type(owner: Object) -> str:
    group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
    singular = str(owner.get("kind", "")).lower()
    return f"{singular}.{group}" if slash else singular


def job_names(workload: Object) -> str:
    """Return names of the owners, joined by commas."""
    return ", ".join(str(owner.get("name", "")) for owner in owners_of(workload))


def exec_time(workload: Object, now: datetime) -> str:
    """Return the run time from Admitted to Finished or `now`; empty for a workload that was not admitted."""
    admitted = condition(workload, names.CONDITION_ADMITTED) or {}
    since = api_time(admitted.get("lastTransitionTime"))
    if admitted.get("status") != "True" or since is None:
        return ""
    finished = condition(workload, names.CONDITION_FINISHED) or {}
    over = api_time(finished.get("lastTransitionTime")) if finished.get("status") == "True" else None
    return duration((over or now) - since)


WIDE_COLUMNS = ("Priority", "Why", "Start")


def why(workload: Object) -> str:
    """Return the message of the condition for waiting or the end; empty for a running Workload."""
    kinds = {
        WorkloadState.FINISHED: names.CONDITION_FINISHED,
        WorkloadState.PENDING: names.CONDITION_QUOTA_RESERVED,
        WorkloadState.QUOTA_RESERVED: names.CONDITION_ADMITTED,
    }
    found = condition(workload, kinds.get(status_of(workload), "")) or {}
    return str(found.get("message") or "")


def wide_row(workload: Object, *, start: str = "") -> list[str]:
    """Return the additional cells of `-o wide`; `start` is when a waiting one starts."""
    return [str((workload.get("spec") or {}).get("priority") or 0), why(workload), start]


def start_cell(start: Object, now: datetime) -> str:
    """Return when a workload starts: the time from now to p50 and to p90, or the reason why that is not known."""
    times = [api_time(start.get(name)) for name in ("p50", "p90")]
    if times[0] is None:
        return str(start.get("reason") or "")
    spans = [duration(max(at - now, timedelta())) if at is not None else "?" for at in times]
    return f"in {spans[0]}" if spans[0] == spans[1] else f"in {spans[0]} to {spans[1]}"


def row(workload: Object, *, cluster_queue: str, position: str, now: datetime) -> list[str]:
    """Return the cells of a Workload in a list; `cluster_queue` is its LocalQueue's, if it has no admission."""
    meta = workload["metadata"]
    return [
        str(meta["name"]),
        job_types(workload),
        job_names(workload),
        queue_of(workload),
        admitted_by(workload) or cluster_queue,
        status_of(workload).value,
        position,
        exec_time(workload, now),
        age(meta.get("creationTimestamp"), now),
    ]
