"""A local copy of all objects of one kind, updated by a watch and by the simulated controllers' own writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import structlog

from kqueue.clock import Clock
from kqueue.errors import ApiError
from kqueue.isolation import isolated_logged
from kqueue.sandbox.api import Api, EventType, GroupVersionResource, Object
from kqueue.sandbox.json_object import key_of, uid_of, version_of

Handler = Callable[[Object | None, Object | None], None]
"""Called after every change with the object before (None: created) and after (None: deleted); must be quick."""

_PAUSE_SECONDS = 1.0
_EMPTY: Mapping[str, Object] = {}
log = structlog.get_logger(__name__)


class Mirror:
    """All objects of one resource, by key and by the values of added indexes.

    A controller passes its own writes to `remember`, so it always acts on a state that includes them.  Versions come
    from one counter, and the watch delivers them in order, so a write with a version below the watch's is ignored: the
    object may have been deleted meanwhile.
    """

    def __init__(self, api: Api, resource: GroupVersionResource, clock: Clock) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.changes = 0
        self._api, self._clock = api, clock
        self._objects: dict[str, Object] = {}
        self._handlers: list[Handler] = []
        self._indexes: dict[str, tuple[Callable[[Object], str | None], dict[str, dict[str, Object]]]] = {}
        self._passed = 0

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._objects)

    def on_change(self, handler: Handler) -> None:
        """Call `handler` on every change from now on; to be set before `run`."""
        self._handlers.append(handler)

    def add_index(self, name: str, value_of: Callable[[Object], str | None]) -> None:
        """Group objects by `value_of` (None: in no group); to be set before `run`."""
        self._indexes[name] = (value_of, {})

    def get(self, key: str) -> Object | None:
        """Return the last known state of an object, or None."""
        return self._objects.get(key)

    def all(self) -> Mapping[str, Object]:
        """Return all objects by key.  A live view: copy before awaiting."""
        return self._objects

    def by(self, index: str, value: str) -> Mapping[str, Object]:
        """Return the objects of one group by key.  A live view: copy before awaiting."""
        return self._indexes[index][1].get(value, _EMPTY)

    def remember(self, written: Object) -> None:
        """Store the result of a write, before the watch delivers it."""
        if version_of(written) > self._passed:
            self._put(written)

    def forget(self, deleted: Object) -> None:
        """Remove a deleted object, before the watch delivers the deletion."""
        self._drop(deleted)

    async def run(self) -> None:
        """Follow the watch until the server stops; start again after an error."""
        while True:
            try:
                await self._follow()
                return
            except ApiError as error:
                log.warning("watch of the simulated cluster broke", resource=self.resource.plural, error=str(error))
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _follow(self) -> None:
        events = self._api.watch(self.resource)
        waiting: asyncio.Future[tuple[EventType, Object]] = asyncio.ensure_future(anext(events))
        try:
            await asyncio.sleep(0)  # the watch has begun: it delivers all changes after the list below
            self._replace(self._api.list(self.resource))
            self.synced.set()
            self._take(*await waiting)
            async for event, obj in events:
                self._take(event, obj)
        except StopAsyncIteration:
            return
        finally:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, ApiError):
                await waiting

    def _replace(self, present: list[Object]) -> None:
        kept = {key_of(obj) for obj in present}
        for key in [key for key in self._objects if key not in kept]:
            self._drop(self._objects[key])
        for obj in present:
            self._put(obj)

    def _take(self, event: EventType, obj: Object) -> None:
        if event == "BOOKMARK":
            return
        if event == "ERROR":
            raise ApiError(str(obj.get("message", "the watch reported an error")))
        self._passed = max(self._passed, version_of(obj))
        if event == "DELETED":
            self._drop(obj)
        else:
            self._put(obj)

    def _put(self, obj: Object) -> None:
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None and version_of(old) >= version_of(obj):
            return
        self._objects[key] = obj
        self._changed(key, old, obj)

    def _drop(self, obj: Object) -> None:
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None and uid_of(old) == uid_of(obj):
            del self._objects[key]
            self._changed(key, old, None)

    def _changed(self, key: str, old: Object | None, new: Object | None) -> None:
        self.changes += 1
        for value_of, groups in self._indexes.values():
            before = None if old is None else value_of(old)
            after = None if new is None else value_of(new)
            if before is not None and before != after:
                group = groups[before]
                del group[key]
                if not group:
                    del groups[before]
            if after is not None and new is not None:
                groups.setdefault(after, {})[key] = new
        for handler in self._handlers:
            failed = "simulated controller cannot read an object"
            with isolated_logged(log, failed, resource=self.resource.plural, key=key):
                handler(old, new)
