"""Finds the owners of objects: in the watches that have them, else in the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachetools import TTLCache

from kqueue.clock import Clock
from kqueue.controllers.children import may_be_child
from kqueue.controllers.manager import Manager
from kqueue.errors import NotFoundError
from kqueue.jobs.ancestry import (
    Ancestor,
    Lineage,
    OwnerKind,
    controller_uid,
    has_known_owner,
    lineage_of,
    queued_controller,
)
from kqueue.jobs.fields import text
from kqueue.jobs.registry import owner_kinds_for
from kqueue.kinds import GroupKind
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store, object_key

JSON = dict[str, Any]
_JOB: GroupKind = ("batch", "Job")
_REMEMBERED = 10_000
_FRESH_SECONDS = 10.0
"""Seconds for which an owner that was read is used again: many children need one owner at once."""


class Owners:
    """Finds the managed ancestor of jobs.  A missing owner is not cached, because it may be created later."""

    def __init__(
        self,
        *,
        client: Client,
        known: Mapping[GroupKind, OwnerKind],
        stores: Mapping[GroupKind, Store[JSON]],
        manages_all: bool,
        clock: Clock,
    ) -> None:
        """Take the client and the options; `stores` are the watched objects by kind; other owners are read from the API
        server.
        """
        self._client, self._known, self._stores, self._manages_all = client, known, stores, manages_all
        self._asked: TTLCache[tuple[GroupKind, str], JSON] = TTLCache(_REMEMBERED, _FRESH_SECONDS, clock.monotonic)

    async def lineage(self, job: JSON, child: GroupKind) -> Lineage:
        """Return the owners of a job and the topmost owner that is queued itself.  `child` is the job's kind.

        Raises:
            AncestryError: the owners cannot be followed.
        """
        if not has_known_owner(job, self._known):
            return Lineage()
        return await lineage_of(
            job, child=child, known=self._known, manages_all=self._manages_all, fetch=self._fetch, made=self._made
        )

    async def queued_controller(self, obj: JSON) -> Ancestor | None:
        """Return the controller that an object names, if it is queued itself; None: it is not, or does not exist."""
        return await queued_controller(obj, known=self._known, manages_all=self._manages_all, fetch=self._fetch)

    def _made(self, owner_kind: GroupKind, owner: JSON, child: JSON) -> bool:
        uid = text(owner, "metadata", "uid")
        jobs = self._stores.get(_JOB) if owner_kind == _JOB else None
        siblings = [job for job in jobs.values() if controller_uid(job) == uid] if jobs is not None else []
        return may_be_child(owner_kind, owner, child, siblings)

    async def _fetch(self, kind: OwnerKind, namespace: str, name: str) -> JSON | None:
        group_kind, key = (kind.gvk.group, kind.gvk.kind), object_key(namespace, name)
        store = self._stores.get(group_kind)
        seen = store.get(key) if store is not None else None
        if seen is not None:
            return seen
        remembered = self._asked.get((group_kind, key))
        if remembered is not None:
            return remembered
        resource = ResourceType(kind.gvk.group, kind.gvk.version, kind.resource, kind.gvk.kind)
        try:
            found = await self._client.get_json(resource, name, namespace)
        except NotFoundError:
            return None
        owner = {"metadata": found["metadata"]}
        self._asked[group_kind, key] = owner
        return owner


def make_owners(manager: Manager) -> Owners:
    """Return the finder of a process, with the watches of the enabled job kinds."""
    jobs = manager.watches.jobs
    return Owners(
        client=manager.client,
        known=owner_kinds_for(manager.config.integrations),
        stores={(kind.gvk.group, kind.gvk.kind): jobs[kind.framework].store for kind in manager.kinds},
        manages_all=manager.config.manage_jobs_without_queue_name,
        clock=manager.clock,
    )
