"""Workloads by their conditions, and times around noon, for tests of a Workload's life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text

JSON = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def held(kind: str, *, since: float = 0, status: str = "True", reason: str = "Because", message: str = "") -> JSON:
    """A condition that has had its status since so many seconds after noon."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": utc_text(at(since)),
    }


def check(name: str, state: str = "Pending", *, since: float = 0, message: str = "", **fields: Any) -> JSON:
    """One check's answer."""
    return {"name": name, "state": state, "message": message, "lastTransitionTime": utc_text(at(since)), **fields}


def workload(*conditions: JSON, spec: JSON | None = None, metadata: JSON | None = None, **status: Any) -> wire.Workload:
    """A Workload; `status` are further fields of its status by their JSON names."""
    obj = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", **(metadata or {})},
        "spec": {"queueName": "main", "active": True, **(spec or {})},
        "status": {"conditions": list(conditions), **status},
    }
    return msgspec.convert(obj, wire.Workload)
