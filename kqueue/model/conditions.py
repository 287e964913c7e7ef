"""Conditions and their times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition

NO_TIME = datetime.fromtimestamp(0, UTC)


def condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of that type; None: it was never written."""
    for found in conditions:
        if found.type == kind:
            return found
    return None


def condition_true(obj: wire.Workload, kind: str) -> bool:
    """Whether the condition exists and is True."""
    found = condition(obj.status.conditions, kind)
    return found is not None and found.status == "True"


def since(obj: wire.Workload, kind: str) -> datetime | None:
    """Return the time since which the condition has been True; None: it is not True."""
    found = condition(obj.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None


def is_active(conditions: Iterable[Condition]) -> bool:
    """Whether the condition Active is True."""
    found = condition(conditions, names.CONDITION_ACTIVE)
    return found is not None and found.status == "True"
