"""One Workload's life as a line in time: its conditions and its events, in order, and the spans of its states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names

JSON = dict[str, Any]
MOST_MOMENTS = 500
"""Moments of one answer; older ones are left out."""
_STATES = {
    names.CONDITION_QUOTA_RESERVED: "Reserved",
    names.CONDITION_ADMITTED: "Admitted",
    names.CONDITION_PODS_READY: "Running",
    names.CONDITION_FINISHED: "Finished",
}


def life(obj: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> JSON:
    """Return the moments of a Workload, the oldest first, and its states with the time at which each began.

    An object keeps the last change of each condition only; earlier evictions are seen as long as their events exist.
    Any field of the objects may be missing or odd.
    """
    moments = sorted((one for one in _moments(obj, events) if one["time"]), key=lambda one: (one["time"], one["what"]))
    return {
        "moments": moments[-MOST_MOMENTS:],
        "left": max(0, len(moments) - MOST_MOMENTS),
        "states": _states(obj),
    }


def _moments(obj: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Iterator[JSON]:
    yield {"time": _text(_part(obj, "metadata"), "creationTimestamp"), "what": "Created", "message": "", "kind": ""}
    for found in _list(_part(obj, "status"), "conditions"):
        status = _text(found, "status")
        yield {
            "time": _text(found, "lastTransitionTime"),
            "what": f"{_text(found, 'type')}{'' if status == 'True' else f'={status}'}",
            "message": _text(found, "message"),
            "kind": "condition",
        }
    for event in events:
        series = _part(event, "series")
        times = series.get("count", event.get("count", 1))
        yield {
            "time": _text(series, "lastObservedTime")
            or _text(event, "lastTimestamp")
            or _text(event, "eventTime")
            or _text(_part(event, "metadata"), "creationTimestamp"),
            "what": _text(event, "reason") + (f" ({times} times)" if isinstance(times, int) and times > 1 else ""),
            "message": _text(event, "message"),
            "kind": "warning" if event.get("type") == "Warning" else "event",
        }


def _states(obj: Mapping[str, Any]) -> list[JSON]:
    """Return the states up to the present one; a state whose condition is not true is in the past, and not known."""
    found = [{"state": "Pending", "time": _text(_part(obj, "metadata"), "creationTimestamp")}]
    for condition in _list(_part(obj, "status"), "conditions"):
        state = _STATES.get(_text(condition, "type"))
        if state is not None and _text(condition, "status") == "True":
            found.append({"state": state, "time": _text(condition, "lastTransitionTime")})
    if not {"Admitted", "Finished"} & {one["state"] for one in found}:
        found = [one for one in found if one["state"] != "Running"]  # pods that were ready before an eviction
    order = ["Pending", *_STATES.values()]
    return sorted((one for one in found if one["time"]), key=lambda one: (one["time"], order.index(one["state"])))


def _part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = value.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""
