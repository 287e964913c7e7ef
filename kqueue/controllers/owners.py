"""Owners of objects, for whoever follows them: from the watches where these have them, else from the API server."""

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
"""Labels of owners hardly ever change, and many children ask for the same owner at once."""


class Owners:
    """Finds the managed ancestor of jobs.  A missing owner is never remembered: it may come."""

    def __init__(
        self,
        *,
        client: Client,
        known: Mapping[GroupKind, OwnerKind],
        stores: Mapping[GroupKind, Store[JSON]],
        manages_all: bool,
        clock: Clock,
    ) -> None:
        """`stores`: what watches have brought, by kind; what is not in them is asked for."""
        self._client, self._known, self._stores, self._manages_all = client, known, stores, manages_all
        self._asked: TTLCache[tuple[GroupKind, str], JSON] = TTLCache(_REMEMBERED, _FRESH_SECONDS, clock.monotonic)

    async def lineage(self, job: JSON, child: GroupKind) -> Lineage:
        """The owners of a job, and the topmost one that is queued itself.  `child` is the job's kind.

        Raises:
            AncestryError: its owners cannot be followed.
        """
        if not has_known_owner(job, self._known):
            return Lineage()
        return await lineage_of(
            job, child=child, known=self._known, manages_all=self._manages_all, fetch=self._fetch, made=self._made
        )

    async def queued_controller(self, obj: JSON) -> Ancestor | None:
        """The controller that an object names, where that is queued itself; None: it is not, or does not exist."""
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
    """The finder of a process, over the watches of the job kinds that are on."""
    jobs = manager.watches.jobs
    return Owners(
        client=manager.client,
        known=owner_kinds_for(manager.config.integrations),
        stores={(kind.gvk.group, kind.gvk.kind): jobs[kind.framework].store for kind in manager.kinds},
        manages_all=manager.config.manage_jobs_without_queue_name,
        clock=manager.clock,
    )
