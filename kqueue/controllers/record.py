"""What controllers tell the outside about an object: events, off the critical path."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kqueue.api import names
from kqueue.api.wire import kueue as wire


class ObjectReference(NamedTuple):
    """What an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str


class Recorder(Protocol):
    """Takes events.  Returns at once; never raises; may drop events under load, and counts them."""

    def record(
        self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False, once: bool = False
    ) -> None:
        """One thing that happened to an object.  `once`: it is so, and no news where an equal event stands already."""
        ...


def workload_reference(workload: wire.Workload) -> ObjectReference:
    """A Workload as the subject of an event."""
    meta = workload.metadata
    return ObjectReference(names.API_VERSION, names.WORKLOAD_KIND, meta.name, meta.namespace, meta.uid)
