"""Rows of pods in lists, and the selector of a job's pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kqueue.cli.ctl.table import Table
from kqueue.cli.tables import age
from kqueue.kinds import OWNERS

Object = Mapping[str, Any]


def pod_selector(group: str, job: Object) -> str | None:
    """Return a label selector for the pods of a job; None if the job's kind has none."""
    row = OWNERS.get((group, str(job.get("kind"))))
    if row is not None and row.pod_label:
        return f"{row.pod_label}={job['metadata']['name']}"
    selector = (job.get("spec") or {}).get("selector")
    return _selector(selector) if group == "apps" and isinstance(selector, Mapping) else None


def _selector(selector: Object) -> str:
    labels = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    return ",".join([*labels, *map(_requirement, selector.get("matchExpressions") or ())])


def _requirement(requirement: Object) -> str:
    key, values = str(requirement["key"]), ",".join(requirement.get("values") or ())
    forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
    return forms.get(str(requirement["operator"]), key)


def row(pod: Object, now: datetime) -> list[str]:
    """Return the cells of a pod in a list."""
    statuses = _statuses(pod)
    containers = (pod.get("spec") or {}).get("containers") or ()
    ready = sum(bool(status.get("ready")) for status in statuses)
    return [
        str(pod["metadata"]["name"]),
        f"{ready}/{len(containers)}",
        state_of(pod),
        str(sum(int(status.get("restartCount") or 0) for status in statuses)),
        age(pod["metadata"].get("creationTimestamp"), now),
    ]


def state_of(pod: Object) -> str:
    """Return the state of a pod in one word: why it does not run, or its phase."""
    status = pod.get("status") or {}
    phase = str(status.get("reason") or status.get("phase") or "Unknown")
    if pod["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    for container in _statuses(pod):
        state = container.get("state") or {}
        reason = (state.get("waiting") or state.get("terminated") or {}).get("reason")
        if reason:
            return str(reason)
    if phase == "Pending" and (pod.get("spec") or {}).get("schedulingGates"):
        return "SchedulingGated"
    return {"Succeeded": "Completed"}.get(phase, phase)


def _more(pod: Object) -> list[str]:
    return [str((pod.get("spec") or {}).get("nodeName") or ""), str((pod.get("status") or {}).get("podIP") or "")]


PODS = Table(
    columns=("Name", "Ready", "Status", "Restarts", "Age"), row=row, wide_columns=("Node", "IP"), wide_row=_more
)


def _statuses(pod: Object) -> Sequence[Object]:
    found: Sequence[Object] = (pod.get("status") or {}).get("containerStatuses") or ()
    return found
