"""Objects of one kind, and the log of their changes.

Every change is kept once, encoded once, and linked to the next.  A watcher is a cursor: a reference to the last change
it has seen.  Nothing is queued per watcher, so many watchers cost no more than one until they write to connections.
All changes of state are plain functions on one event loop, so each is atomic.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from kqueue.sandbox import failure
from kqueue.sandbox.api import EventType, Object

LOG_LENGTH = 20_000
"""Changes of one kind that are kept for watchers that reconnect.  A cluster of 15,000 nodes restarts within it."""

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def copied(value: T) -> T:
    """Return a deep copy of a JSON value."""
    copy: T = _copied(value)
    return copy


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) if type(item) in _NESTED else item for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) if type(item) in _NESTED else item for item in value]
    return value


_NESTED = (dict, list)


class Versions:
    """The one counter that gives resource versions to all stores."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current = 1

    def next(self) -> int:
        """Return a new version."""
        self.current += 1
        return self.current


class StoredObject:
    """One stored object at one version, with its encoded bytes.  Never changes."""

    __slots__ = ("_encoded", "_forms", "name", "namespace", "obj", "version")

    def __init__(self, obj: Object, version: int) -> None:
        metadata = obj["metadata"]
        self.obj = obj
        self.namespace: str = metadata.get("namespace", "")
        self.name: str = metadata["name"]
        self.version = version
        self._encoded: bytes | None = None
        self._forms: dict[str, Object] | None = None

    @property
    def forms(self) -> dict[str, Object]:
        """The object in other versions, by `apiVersion`, as far as a webhook has converted it."""
        if self._forms is None:
            self._forms = {}
        return self._forms

    @property
    def encoded(self) -> bytes:
        """Return the object as JSON, encoded at first use."""
        if self._encoded is None:
            self._encoded = _encode(self.obj)
        return self._encoded


class StoreChange:
    """One entry of the log, linked to the next one.

    `record` is the object after the change, or, after a deletion, its last state with the version of the deletion;
    `old` is the object before the change, None for a new object.
    """

    __slots__ = ("_line", "next", "number", "old", "record", "type", "version")

    def __init__(
        self, type_: EventType, number: int, version: int, record: StoredObject | None, old: StoredObject | None
    ) -> None:
        self.type, self.number, self.version, self.record, self.old = type_, number, version, record, old
        self.next: StoreChange | None = None
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """Return the watch event as one line, encoded at first use and shared by all watchers."""
        if self._line is None:
            self._line = event_line(self.type, self.record.encoded if self.record else b"null")
        return self._line


def event_line(type_: str, encoded: bytes) -> bytes:
    """Return one watch event as a line."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), encoded)


class ObjectStore:
    """All objects of one kind by namespace and name (namespace "" for cluster-wide kinds)."""

    def __init__(self, versions: Versions, *, log_length: int = LOG_LENGTH) -> None:
        self._versions = versions
        self._spaces: dict[str, dict[str, StoredObject]] = {}
        self._unsorted: set[str] = set()
        self._log: deque[StoreChange] = deque()
        self._log_length = log_length
        # Version of the newest change that the log no longer has.  At first that is the present version: before, the
        # kind was not served, or a former definition was deleted with its objects, and watchers must list again.
        self._forgotten = versions.current
        self._waiting: list[asyncio.Future[None]] = []
        self.tail = StoreChange("BOOKMARK", 0, versions.current, None, None)
        """The last change; the cursor for watchers of later changes only."""

    def __len__(self) -> int:
        return sum(map(len, self._spaces.values()))

    def get(self, namespace: str, name: str) -> StoredObject | None:
        """Return the present object; None: there is none."""
        space = self._spaces.get(namespace)
        return space.get(name) if space is not None else None

    def records(self, namespace: str | None = None) -> Iterator[StoredObject]:
        """Yield present objects, of one namespace or of all (None), by namespace and then name."""
        spaces = sorted(self._spaces) if namespace is None else [namespace]
        for space in spaces:
            yield from self._sorted(space).values()

    def _sorted(self, namespace: str) -> dict[str, StoredObject]:
        space = self._spaces.get(namespace, {})
        if namespace in self._unsorted:
            self._unsorted.discard(namespace)
            space = self._spaces[namespace] = dict(sorted(space.items()))
        return space

    def put(self, obj: Object) -> StoredObject:
        """Store `obj` with a new version, which is written into it."""
        version = self._stamp(obj)
        record = StoredObject(obj, version)
        space = self._spaces.setdefault(record.namespace, {})
        old = space.get(record.name)
        if old is None and space:
            self._unsorted.add(record.namespace)
        space[record.name] = record
        self._append("ADDED" if old is None else "MODIFIED", version, record, old)
        return record

    def remove(self, last: Object) -> StoredObject:
        """Remove the object with `last`'s name; watchers get `last` with a new version."""
        version = self._stamp(last)
        record = StoredObject(last, version)
        space = self._spaces[record.namespace]
        old = space.pop(record.name)
        if not space:
            del self._spaces[record.namespace]
            self._unsorted.discard(record.namespace)
        self._append("DELETED", version, record, old)
        return record

    def _stamp(self, obj: Object) -> int:
        version = self._versions.next()
        obj["metadata"]["resourceVersion"] = str(version)
        return version

    def _append(self, type_: EventType, version: int, record: StoredObject, old: StoredObject | None) -> None:
        change = StoreChange(type_, self.tail.number + 1, version, record, old)
        self.tail.next = change
        self.tail = change
        self._log.append(change)
        if len(self._log) > self._log_length:
            self._forgotten = self._log.popleft().version
        self.wake()

    def wake(self) -> None:
        """Complete the futures of `changed`."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change, or when `wake` is called."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def forget_waiting(self, future: asyncio.Future[None]) -> None:
        """Drop a future of `changed` that no task waits for any more."""
        if future in self._waiting:
            self._waiting.remove(future)

    def behind(self, cursor: StoreChange) -> int:
        """Return the number of changes after `cursor`."""
        return self.tail.number - cursor.number

    @property
    def log_length(self) -> int:
        """The number of changes that a cursor may fall behind."""
        return self._log_length

    def cursor_at(self, version: int) -> StoreChange:
        """Return the cursor after which all changes after `version` follow.

        Raises:
            GoneError: changes after `version` are no longer kept, or `version` is in the future (it comes from a
                former process of this server).
        """
        self._check_kept(version)
        index = bisect_right(self._log, version, key=lambda change: change.version)
        if index == len(self._log):
            return self.tail
        first = self._log[index]
        before = StoreChange("BOOKMARK", first.number - 1, version, None, None)
        before.next = first
        return before

    def at(self, version: int, namespace: str | None = None) -> list[StoredObject]:
        """Return the objects at `version`, in the order of `records`.

        Raises:
            GoneError: as in `cursor_at`.
        """
        self._check_kept(version)
        past: dict[tuple[str, str], StoredObject | None] = {}
        for change in reversed(self._log):
            if change.version <= version:
                break
            assert change.record is not None
            past[change.record.namespace, change.record.name] = change.old
        present = self.records(namespace)
        if not past:
            return list(present)
        kept = [r for r in present if (r.namespace, r.name) not in past]
        revived = [r for r in past.values() if r is not None and namespace in (None, r.namespace)]
        return sorted(kept + revived, key=lambda r: (r.namespace, r.name))

    def _check_kept(self, version: int) -> None:
        if version < self._forgotten:
            raise failure.expired(f"too old resource version: {version} ({self._forgotten})")
        if version > self._versions.current:
            raise failure.expired(
                f"resource version {version} is not of this server, which is at {self._versions.current}"
            )
