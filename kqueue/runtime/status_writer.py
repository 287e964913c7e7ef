"""Read, decide, write: changes of one object's status that nobody else's write can undo or be undone by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec

from kqueue.errors import ConflictError, NotFoundError
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import ObjectKey, Store, split_key

T = TypeVar("T")
Change = Callable[[T], Mapping[str, Any] | None]


class StatusWriter(Generic[T]):
    """Writes the status of objects of one kind by merge patch under the optimistic lock of their resource version.

    Writes of one object go one after the other.  Each is made from the newest object known: the watch's, or the answer
    to our own last write where that is newer.  A conflict is answered by reading the object afresh and asking again.
    """

    def __init__(
        self,
        client: Client,
        resource: ResourceType,
        *,
        store: Store[T],
        decode: type[T],
        key_of: Callable[[T], ObjectKey],
        version_of: Callable[[T], str],
        attempts: int = 5,
    ) -> None:
        """`key_of` and `version_of` read an object's key and resource version; `attempts` bounds the tries."""
        self._client, self._resource, self._store = client, resource, store
        self._decode, self._key_of, self._version_of, self._attempts = decode, key_of, version_of, attempts
        self._ours: OwnWrites[ObjectKey, T] = OwnWrites(version_of=self._version)
        """Our newest answers.  Without a timeout: nothing waits for their echo, and the watch ends each of them."""
        self._locks: dict[ObjectKey, tuple[asyncio.Lock, int]] = {}
        store.subscribe(self._observe)

    def newest(self, key: ObjectKey) -> T | None:
        """The newest version known; None when the watch does not have the object."""
        seen = self._store.get(key)
        return None if seen is None else self._ours.newer(key, seen)

    def _version(self, obj: T) -> int:
        return int(self._version_of(obj) or 0)

    async def write(
        self,
        key: ObjectKey,
        change: Change[T],
        *,
        lane: Lane = Lane.STATUS,
        subresource: str | None = "status",
    ) -> T | None:
        """Apply `change` to the newest object; returns it as written.

        `change` makes the patch and is asked again after a conflict.  None from it: nothing is written, None returned.
        None is returned too when the object is gone.  Raises ConflictError when the tries are used up.

        Reasons wait for their lane before they take the lock of their object, so no decision on it waits behind them.
        """
        if lane is Lane.WORDS:
            async with self._client.placed(lane) as client:
                return await self._write(client, key, change, lane, subresource)
        return await self._write(self._client, key, change, lane, subresource)

    async def _write(
        self, client: Client, key: ObjectKey, change: Change[T], lane: Lane, subresource: str | None
    ) -> T | None:
        async with self._locked(key):
            current = self.newest(key)
            for _ in range(self._attempts):
                if current is None:
                    return None
                patch = change(current)
                if patch is None:
                    return None
                try:
                    return await self._send(client, key, current, patch, lane, subresource)
                except NotFoundError:
                    return None
                except ConflictError:
                    current = await self._read(client, key, lane)
            raise ConflictError(f"{self._resource} {key} changed faster than its status could be written", status=409)

    async def _send(
        self, client: Client, key: ObjectKey, current: T, patch: Mapping[str, Any], lane: Lane, subresource: str | None
    ) -> T:
        namespace, name = split_key(key)
        metadata = {**patch.get("metadata", {}), "resourceVersion": self._version_of(current)}
        answer = await client.patch(
            self._resource,
            name,
            {**patch, "metadata": metadata},
            namespace or None,
            subresource=subresource,
            lane=lane,
        )
        written = msgspec.convert(answer, self._decode)
        if key in self._store:
            self._ours.remember(key, written)
        return written

    async def _read(self, client: Client, key: ObjectKey, lane: Lane) -> T | None:
        namespace, name = split_key(key)
        try:
            return await client.get(self._resource, name, namespace or None, decode=self._decode, lane=lane)
        except NotFoundError:
            return None

    def _observe(self, old: T | None, new: T | None) -> None:
        """Forget our answer once the watch has caught up with it, or the object is gone."""
        seen = new if new is not None else old
        if seen is None:
            return
        self._ours.echoed(self._key_of(seen), None if new is None else self._version(new))

    @asynccontextmanager
    async def _locked(self, key: ObjectKey) -> AsyncIterator[None]:
        """One lock per key, which exists only while somebody holds or waits for it."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
