"""Conditions of an object during a change, and the form in which they are written: shortened messages, transition
times.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import utc_text
from kqueue.kube.conditions import transition_time

Patch = dict[str, Any]

MESSAGE_BYTES = 32_768


class Stamp:
    """The time at which a change is written."""

    __slots__ = ("now", "text")

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.text = utc_text(now)
        """The time as text of an object: whole seconds, UTC."""


def cut(message: str, limit: int = MESSAGE_BYTES) -> str:
    """Return the message in at most `limit` bytes; a shortened message ends in a space and three dots."""
    if 4 * len(message) <= limit:  # no character has more than 4 bytes
        return message
    raw = message.encode()
    if len(raw) <= limit:
        return message
    return raw[: limit - 4].decode(errors="ignore") + " ..."


class Conditions:
    """The conditions of one object while they change. `patch` returns the changes."""

    def __init__(self, before: Iterable[Condition], *, generation: int, stamp: Stamp) -> None:
        # the schema requires both fields, also where another writer left them empty
        self._before = {c.type: {"reason": "", "message": "", **msgspec.to_builtins(c)} for c in before}
        self._after: dict[str, Patch] = self._before.copy()
        self._generation, self._stamp = generation, stamp

    def set(self, kind: str, *, status: bool, reason: str, message: str) -> None:
        """Write one condition; its transition time changes only with its status."""
        old = self._after.get(kind)
        value, message = "True" if status else "False", cut(message)
        said = value, reason, message
        if old is not None and (old["status"], old.get("reason", ""), old.get("message", "")) == said:
            return
        self._after[kind] = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": transition_time(old, value, self._stamp.text),
            "observedGeneration": self._generation,
        }

    def status(self, kind: str) -> str:
        """Return `True`, `False`, or an empty text when the object has no such condition."""
        return str(self._after.get(kind, {}).get("status", ""))

    def reason(self, kind: str) -> str:
        """Return the reason of a condition; empty when the object has no such condition."""
        return str(self._after.get(kind, {}).get("reason", ""))

    def remove(self, kind: str) -> None:
        """Remove a condition."""
        self._after.pop(kind, None)

    @property
    def changed(self) -> bool:
        """Whether any condition differs from before."""
        return self._after != self._before

    def list(self) -> list[Patch]:
        """Return all conditions, in the form in which they are written."""
        return list(self._after.values())


def conditions_of(obj: wire.Workload, stamp: Stamp) -> Conditions:
    """Return the conditions of a Workload, for changes."""
    return Conditions(obj.status.conditions, generation=obj.metadata.generation, stamp=stamp)


def status_patch(conditions: Conditions, **fields: Any) -> Patch | None:
    """Return a status patch with these conditions and fields; None when nothing changes."""
    if not fields and not conditions.changed:
        return None
    fields["conditions"] = conditions.list()
    return {"status": fields}
