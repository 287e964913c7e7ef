"""Events on group objects of gangs."""

from __future__ import annotations

from cachetools import TTLCache

from kqueue.api import names
from kqueue.clock import Clock
from kqueue.controllers.manager import Manager
from kqueue.controllers.raw import JSON
from kqueue.controllers.record import ObjectReference, Recorder, job_controller
from kqueue.jobs.fields import mapping, text
from kqueue.jobs.pod import FRAMEWORK

_REMEMBERED, _QUIET = 10_000, 600.0
"""Objects and reasons whose last message is remembered, and the seconds in which an equal one is not repeated."""
_LASTING = (names.EVENT_ERR_WORKLOAD_COMPOSE,)
"""Reasons of events that describe a lasting state, which another process does not record again, either."""


class GroupEvents:
    """Records events on group objects; of a lasting state one event is recorded within some minutes."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._told: TTLCache[tuple[str, str], str] = TTLCache(_REMEMBERED, _QUIET, clock.monotonic)

    def record(self, obj: JSON | None, *, reason: str, message: str, warning: bool = False) -> None:
        """Record what has just happened; without effect for a gang without a group object."""
        if obj is not None:
            self._recorder.record(reference_of(obj), reason=reason, message=message, warning=warning)

    def tell(self, obj: JSON | None, *, reason: str, message: str) -> None:
        """Record a lasting problem, unless it was recorded within some minutes."""
        uid = text(mapping(obj, "metadata"), "uid")
        if obj is None or self._told.get((uid, reason)) == message:
            return
        self._told[uid, reason] = message
        once = reason in _LASTING
        self._recorder.record(reference_of(obj), reason=reason, message=message, warning=True, once=once)


def make_group_events(manager: Manager) -> GroupEvents:
    """Return the events of a process."""
    return GroupEvents(manager.recorder(job_controller(FRAMEWORK)), manager.clock)


def reference_of(obj: JSON) -> ObjectReference:
    """Return the reference of a group object for events."""
    metadata = mapping(obj, "metadata")
    name, namespace, uid = (text(metadata, part) for part in ("name", "namespace", "uid"))
    return ObjectReference(text(obj, "apiVersion"), text(obj, "kind"), name, namespace, uid)
