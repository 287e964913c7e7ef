"""The loop of a simulated controller whose objects own others: changes of both kinds reconcile the owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kqueue.clock import Clock
from kqueue.errors import NotFoundError
from kqueue.sandbox.api import Api, Object
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.job_status import changed_fields
from kqueue.sandbox.json_object import key_of, split_key, uid_of
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.replicas import owner_key

Look = Callable[[Object], Awaitable[float | None]]
"""Reconciles one owner; returns the seconds until the next time, or None."""


class OwnerLoop:
    """Reconciles an owner after each change of the owner or of an object that it controls."""

    def __init__(
        self,
        name: str,
        look: Look,
        *,
        api: Api,
        owners: Mirror,
        owned: Mirror,
        owner_of: Callable[[Object], str | None],
        clock: Clock,
    ) -> None:
        """`owner_of` returns the UID of an object's owner of this kind, or None."""
        self._look, self._api = look, api
        self._owners, self._owned, self._owner_of = owners, owned, owner_of
        self._index = name
        self.loop = ControllerLoop(name, self._reconcile, clock=clock)
        owned.add_index(self._index, owner_of)
        owners.on_change(self._on_owner)
        owned.on_change(self._on_owned)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._owners.synced.wait()
        await self._owned.synced.wait()
        await self.loop.run()

    def owned_by(self, owner: Object) -> list[Object]:
        """Return the objects that `owner` controls, terminating ones included."""
        return list(self._owned.by(self._index, uid_of(owner)).values())

    async def write_status(self, owner: Object, wanted: Object) -> None:
        """Merge the fields of `wanted` that differ into the owner's status."""
        changes = changed_fields(owner.get("status") or {}, wanted)
        if not changes:
            return
        namespace, name = split_key(key_of(owner))
        resource = self._owners.resource
        written = await self._api.patch(resource, name, {"status": changes}, namespace=namespace, subresource="status")
        self._owners.remember(written)

    def _on_owner(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self.loop.add(key_of(new))

    def _on_owned(self, old: Object | None, new: Object | None) -> None:
        changed = new or old
        assert changed is not None
        if self._owner_of(changed) is not None:
            self.loop.add(owner_key(changed))

    async def _reconcile(self, key: str) -> float | None:
        namespace, name = split_key(key)
        try:
            owner = self._api.get(self._owners.resource, name, namespace=namespace)
        except NotFoundError:
            return None
        return await self._look(owner)
