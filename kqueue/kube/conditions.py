"""Conditions of objects as JSON.  `kqueue.model.conditions` reads those of decoded objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = dict[str, Any]


def condition(obj: Mapping[str, Any], kind: str) -> Object | None:
    """Return the condition of that type in the object's status, as a copy; None when it was never set."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return dict(entry)
    return None


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Whether the condition of that type exists and is True."""
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def transition_time(before: Mapping[str, Any] | None, status: str, now: str) -> str:
    """Return the `lastTransitionTime` of a condition that gets `status`: the one from `before` while the status stays.

    `before` None: the condition is new.  A condition without a time gets `now`.
    """
    if before is None or before.get("status") != status:
        return now
    return before.get("lastTransitionTime") or now


def with_conditions(present: Iterable[Object], changes: Iterable[Object], now: str) -> list[Object]:
    """Set the conditions of `changes` in a copy of `present`; a transition time stays while the status stays."""
    result = {entry["type"]: dict(entry) for entry in present}
    for change in changes:
        before = result.get(change["type"])
        since = transition_time(before, change["status"], now)
        result[change["type"]] = {**(before or {}), **change, "lastTransitionTime": since}
    return list(result.values())
