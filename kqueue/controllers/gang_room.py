"""Tells when there is room for a group whose controller creates pods only then.

Nothing is reserved: the pods are queued when they exist, like those of any gang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple

from kqueue import model
from kqueue.clock import Clock, moment_after
from kqueue.controllers.manager import Manager
from kqueue.controllers.namespace_queue import queue_of_object
from kqueue.controllers.raw import JSON
from kqueue.core import least
from kqueue.jobs.fields import text
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import Gang
from kqueue.runtime.store import object_key

_WITHOUT_MEMBERS = timedelta(seconds=2)
"""The age from which a group without members counts as one that waits to be told."""
_LOOK_AGAIN = 10.0
"""Seconds between two looks for room."""


class RoomLook(NamedTuple):
    """The result of a look for room."""

    found: bool = False
    again: float | None = None
    """Seconds until the next look; None: no look is needed."""


class GangRoom:
    """Looks for room for one group object at a time."""

    def __init__(
        self, clock: Clock, *, queue_of: Callable[[str, JSON], str], has_room: Callable[[str, Mapping[str, int]], bool]
    ) -> None:
        """Take the parts.

        Args:
            clock: the time.
            queue_of: returns the ClusterQueue of a group object, for its dialect and the object; empty: it has none.
            has_room: returns whether so much is free to a ClusterQueue.
        """
        self._clock, self._queue_of, self._has_room = clock, queue_of, has_room

    def look(self, gang: Gang, obj: JSON, workload: JSON | None) -> RoomLook:
        """Return whether as much is free as the group names as its least resources."""
        framework = gang.ref.framework
        if not dialect_of(framework).announces_room or workload is not None or gang.members:
            return RoomLook()
        if gang.wish is None or not gang.wish.least:
            return RoomLook()
        left = (moment_after(gang.since, _WITHOUT_MEMBERS) - self._clock.now()).total_seconds()
        if left > 0:
            return RoomLook(again=left)
        queue = self._queue_of(framework, obj)
        fits = bool(queue) and self._has_room(queue, model.least_amounts(gang.wish.least))
        return RoomLook(fits, None if fits else _LOOK_AGAIN)


def make_gang_room(manager: Manager) -> GangRoom:
    """Return the look of a process."""

    def queue_of(framework: str, obj: JSON) -> str:
        local = queue_of_object(manager, framework, obj)
        namespace = text(obj, "metadata", "namespace")
        return (manager.queues.cluster_queue_of(object_key(namespace, local)) if local else None) or ""

    def has_room(queue: str, wanted: Mapping[str, int]) -> bool:
        return least.has_room(manager.cache.snapshot([queue]), queue, wanted)

    return GangRoom(manager.clock, queue_of=queue_of, has_room=has_room)
