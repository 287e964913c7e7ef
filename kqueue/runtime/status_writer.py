"""Writes status with optimistic locks, so that concurrent writers do not overwrite each other's changes."""

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

    Writes of one object are sequential.  Each is made from the newest known object: the watch's, or the answer to our
    own last write where it is newer.  After a conflict the object is read again and the change is made anew.
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
        """`key_of` and `version_of` read an object's key and resource version; `attempts` limits the tries."""
        self._client, self._resource, self._store = client, resource, store
        self._decode, self._key_of, self._version_of, self._attempts = decode, key_of, version_of, attempts
        self._ours: OwnWrites[ObjectKey, T] = OwnWrites(version_of=self._version)
        """Newest answers to our writes.  Without a timeout: no caller awaits the echo, and the watch removes them."""
        self._locks: dict[ObjectKey, tuple[asyncio.Lock, int]] = {}
        store.subscribe(self._observe)

    def newest(self, key: ObjectKey) -> T | None:
        """Return the newest known object; None when the watch does not have it."""
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
        """Apply `change` to the newest object; return the object as written.

        `change` makes the patch, and is called again after a conflict.  When it returns None, nothing is written and
        None is returned, as for a deleted object.  Raises ConflictError after the last try.

        Reasons for waiting wait for their lane before they take the lock of the object, so that no decision on the
        object waits behind them.
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
        """Forget our answer once the watch has caught up with it, or the object is deleted."""
        seen = new if new is not None else old
        if seen is None:
            return
        self._ours.echoed(self._key_of(seen), None if new is None else self._version(new))

    @asynccontextmanager
    async def _locked(self, key: ObjectKey) -> AsyncIterator[None]:
        """Lock a key for the block; a lock exists only while it is held or awaited."""
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
