"""The group objects of all dialects of gangs that are on: one watch for each version of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from cachetools import LRUCache

from kqueue.controllers.manager import Manager
from kqueue.controllers.raw import JSON, RawObject, as_json
from kqueue.controllers.resources import group_object_resources
from kqueue.errors import NotFoundError
from kqueue.jobs.fields import mapping, text
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.registry import dialect_of, dialects
from kqueue.jobs.gang.value import GangRef
from kqueue.runtime.client import Client
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store, object_key

_log = structlog.get_logger(__name__)

_REMEMBERED = 10_000
"""Objects of which it is remembered that they had a Workload; one that is forgotten costs a request without effect."""


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """One version of the kind of a dialect's group objects."""

    resource: ResourceType
    store: Store[JSON]


class GroupObjects:
    """Finds group objects of gangs, and reports their changes."""

    def __init__(self, client: Client, versions: Mapping[str, Sequence[GroupVersion]]) -> None:
        """Take the versions of each framework, the newest first."""
        self._client, self._versions = client, versions
        self._owned: LRUCache[str, bool] = LRUCache(_REMEMBERED)
        """UIDs of objects for which this process has created a Workload."""

    def get(self, ref: GangRef) -> JSON | None:
        """Return the group object with `apiVersion` and `kind`; None: it does not exist, or is being deleted."""
        found = self._newest(ref)
        return found[1] if found is not None and not _is_deleting(found[1]) else None

    @staticmethod
    def may_have(key: str) -> bool:
        """Whether gangs of this key's dialect have group objects."""
        return ":" in key and bool(dialect_of(GangRef.of_key(key).framework).kinds)

    def resource(self, ref: GangRef) -> ResourceType | None:
        """Return the kind and version in which `get` finds the object; None: there is no object."""
        found = self._newest(ref)
        return found[0].resource if found is not None else None

    def store(self, resource: ResourceType) -> Store[JSON] | None:
        """Return the watched objects of one version; None: it is not watched."""
        every = (version for versions in self._versions.values() for version in versions)
        return next((version.store for version in every if version.resource == resource), None)

    def _newest(self, ref: GangRef) -> tuple[GroupVersion, JSON] | None:
        key = object_key(ref.namespace, ref.name)
        for version in self._versions.get(ref.framework, ()):
            obj = version.store.get(key)
            if obj is not None:
                return version, obj
        return None

    async def lives(self, ref: GangRef, uid: str) -> bool:
        """Whether the API server has the object with this UID and does not delete it.

        The watch may be behind, so a decision that ends a gang asks the API server.
        """
        for version in self._versions.get(ref.framework, ()):
            try:
                found = await self._client.get_json(version.resource, ref.name, ref.namespace)
            except NotFoundError:
                continue
            return text(found, "metadata", "uid") == uid and not _is_deleting(found)
        return False

    async def may_own(self, ref: GangRef, uid: str) -> bool:
        """Whether a Workload may be created for the object with this UID; the caller then tries to create it.

        After the first one the API server is asked: while the watch is behind, the garbage collector deletes a Workload
        whose object is gone, and it would be created again and again.
        """
        if uid in self._owned:
            return await self.lives(ref, uid)
        self._owned[uid] = True
        return True

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with the key of the gang whose group object appears, changes or goes."""
        for framework, versions in self._versions.items():
            for version in versions:
                version.store.subscribe(partial(_report, framework, handler))


def _report(framework: str, handler: Callable[[str], None], old: JSON | None, new: JSON | None) -> None:
    metadata = mapping(new if new is not None else old, "metadata")
    handler(gang_key(framework, text(metadata, "namespace"), text(metadata, "name")))


def _is_deleting(obj: JSON) -> bool:
    return bool(text(obj, "metadata", "deletionTimestamp"))


def watch_group_objects(manager: Manager) -> GroupObjects:
    """Return the group objects of a process, with their watches."""
    found: dict[str, list[GroupVersion]] = {}
    for dialect in dialects(manager.switches):
        watches = [_watch(manager, resource) for resource in group_object_resources(dialect)]
        if watches:
            found[dialect.framework] = [GroupVersion(watch.resource, watch.store) for watch in watches]
            manager.background.append(partial(_report_missing, dialect.framework, watches))
    return GroupObjects(manager.client, found)


def _watch(manager: Manager, resource: ResourceType) -> Reflector[RawObject, JSON]:
    view = partial(view_of, resource)
    return manager.watches.watch(resource, RawObject, view, suffix=f"-{resource.version}-groups")


def view_of(resource: ResourceType, obj: RawObject) -> JSON:
    """Return a group object as its store keeps it, with `apiVersion` and `kind`."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **as_json(obj)}


async def _report_missing(framework: str, watches: Sequence[Reflector[RawObject, JSON]]) -> None:
    """Log that no version of the kind is served, when each watch has asked for its version."""
    for watch in watches:
        await watch.settled.wait()
    if all(watch.missing for watch in watches):
        message = f"framework {framework} is on and the API server does not serve {watches[0].resource}"
        _log.warning(f"{message}; its gangs wait for the kind")
