"""Finds the owners above the members of gangs, and with them the occupants of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cachetools import LRUCache

from kqueue.controllers.manager import Manager
from kqueue.controllers.raw import JSON
from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.jobs.ancestry import LEVELS_MAX, OwnerKind
from kqueue.jobs.fields import objects, text
from kqueue.jobs.gang.occupants import Occupant, Occupation, controller_of, occupation
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.registry import owner_kinds_for
from kqueue.kinds import GroupKind
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType

_REMEMBERED = 10_000
"""Controllers whose topmost owner is remembered; a controller never gets another owner of the same UID."""


class Occupants:
    """Topmost owners by the UID of a pod's controller: each controller is read once."""

    def __init__(self, client: Client, kinds: Mapping[GroupKind, OwnerKind]) -> None:
        self._client, self._kinds = client, kinds
        self._topmost: LRUCache[str, Occupant] = LRUCache(_REMEMBERED)

    async def learn(self, key: str, members: Sequence[ManagedPod]) -> None:
        """Read the owners above the members of a gang whose occupant is guarded, where they are not known yet."""
        if not _is_guarded(key):
            return
        pods = {pod.uid for pod in members}
        for pod in members:
            controller = controller_of(pod.obj)
            if controller is not None and controller.uid not in pods and controller.uid not in self._topmost:
                self._topmost[controller.uid] = await self._find(pod.obj, controller)

    def of(self, key: str, members: Sequence[ManagedPod], obj: JSON | None) -> Occupation:
        """Return the occupant of the gang's group; none where the dialect does not guard it."""
        if obj is None or not _is_guarded(key):
            return Occupation()
        return occupation(members, text(obj, "status", "occupiedBy"), self.topmost)

    def topmost(self, controller: Occupant) -> Occupant:
        """Return the topmost owner above a controller, as far as it is known."""
        return self._topmost.get(controller.uid, controller)

    async def _find(self, pod: JSON, controller: Occupant) -> Occupant:
        """Follow the controllers of known kinds upwards; an owner that cannot be read ends the way."""
        namespace, found, below = text(pod, "metadata", "namespace"), controller, pod
        for _ in range(LEVELS_MAX):
            kind = self._kinds.get(_kind_of_controller(below))
            if kind is None:
                return found
            resource = ResourceType(kind.gvk.group, kind.gvk.version, kind.resource, kind.gvk.kind)
            try:
                below = await self._client.get_json(resource, found.name, namespace)
            except (NotFoundError, ForbiddenError):
                return found
            above = controller_of(below)
            if text(below, "metadata", "uid") != found.uid or above is None:
                return found
            found = above
        return found


def _is_guarded(key: str) -> bool:
    return ":" in key and dialect_of(GangRef.of_key(key).framework).guards_occupant


def _kind_of_controller(obj: JSON) -> GroupKind:
    owner = next((o for o in objects(obj, "metadata", "ownerReferences") if o.get("controller") is True), {})
    return text(owner, "apiVersion").rpartition("/")[0], text(owner, "kind")


def make_occupants(manager: Manager) -> Occupants:
    """Return the finder of a process."""
    return Occupants(manager.client, owner_kinds_for(manager.config.integrations))
