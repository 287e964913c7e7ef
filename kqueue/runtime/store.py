"""The objects of one watch by key: small views, indexes, and subscriptions to changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import structlog

V = TypeVar("V")

ObjectKey = str
"""`namespace/name`, or just `name` for a cluster-scoped kind: queues have keys instead of objects."""

Handler = Callable[[V | None, V | None], None]
"""Called with (old, new); old is None for an addition, new is None for a deletion."""

_log = structlog.get_logger(__name__)


def object_key(namespace: str, name: str) -> ObjectKey:
    """Return the key of an object; an empty namespace means a cluster-scoped kind."""
    return f"{namespace}/{name}" if namespace else name


def split_key(key: ObjectKey) -> tuple[str, str]:
    """Return (namespace, name) of a key; the namespace is empty for a cluster-scoped kind."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


class Store(Generic[V]):
    """A dictionary with indexes and handlers of every change.

    All changes are plain calls on the event loop, so each is atomic.  The order is: dictionary and indexes first, then
    handlers in the order of their subscription, then tasks that wait in `until`.  An error of a
    handler is logged and stops neither other handlers nor the watch.
    """

    def __init__(self, name: str = "store") -> None:
        self._name = name
        self._items: dict[ObjectKey, V] = {}
        self._indexes: dict[str, _Index[V]] = {}
        self._handlers: list[Handler[V]] = []
        self._waiting: dict[ObjectKey, list[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._items)

    def get(self, key: ObjectKey) -> V | None:
        """Return the view at `key`; None when there is none, which means "deleted" once the watch has synced."""
        return self._items.get(key)

    def list(self) -> Sequence[V]:
        """Return all views in the order of their addition."""
        return list(self._items.values())

    def values(self) -> Collection[V]:
        """Return all views without a copy; do not change the store during the iteration."""
        return self._items.values()

    def add_index(self, name: str, values: Callable[[V], Iterable[Hashable]]) -> None:
        """Add an index `name`: the keys of views by each value that `values` returns for them.

        `values` must depend on the view only.  Present objects are indexed at once.

        Raises:
            ValueError: the index exists (a bug of the caller).
        """
        if name in self._indexes:
            raise ValueError(f"index {name!r} of {self._name} exists already")
        index = self._indexes[name] = _Index(values)
        for key, view in self._items.items():
            index.change(key, None, view)

    def by_index(self, name: str, value: Hashable) -> Sequence[V]:
        """Return all views with `value` in the index, in the order in which they got the value."""
        items = self._items
        return [items[key] for key in self._indexes[name].keys_of.get(value, ())]

    def keys_by_index(self, name: str, value: Hashable) -> Sequence[ObjectKey]:
        """Return the keys of `by_index`."""
        return list(self._indexes[name].keys_of.get(value, ()))

    def values_of_index(self, name: str) -> Sequence[Hashable]:
        """Return all values in the index."""
        return list(self._indexes[name].keys_of)

    def count_by_index(self, name: str, value: Hashable) -> int:
        """Return the number of keys of `keys_by_index`."""
        return len(self._indexes[name].keys_of.get(value, ()))

    def subscribe(self, handler: Handler[V]) -> None:
        """Call `handler` on every change from now on, and once for each present object."""
        self._handlers.append(handler)
        for key, view in list(self._items.items()):
            self._call(handler, key, None, view)

    def put(self, key: ObjectKey, view: V) -> None:
        """Add or replace the view at `key`."""
        old = self._items.get(key)
        self._items[key] = view
        self._notify(key, old, view)

    def remove(self, key: ObjectKey) -> None:
        """Remove the view at `key`; without effect when there is none."""
        old = self._items.pop(key, None)
        if old is not None:
            self._notify(key, old, None)

    async def until(self, key: ObjectKey, ready: Callable[[V | None], bool]) -> V | None:
        """Wait until the view at `key` (None when absent) satisfies `ready`, and return it.

        The caller must set a time limit, because this waits without one.
        """
        while not ready(view := self._items.get(key)):
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, []).append(changed)
            await changed
        return view

    def _notify(self, key: ObjectKey, old: V | None, new: V | None) -> None:
        for name, index in self._indexes.items():
            try:
                index.change(key, old, new)
            except Exception:  # noqa: BLE001 - one object that cannot be filed must not stop the watch of all others
                _log.exception("object could not be indexed", store=self._name, key=key, index=name)
        for handler in self._handlers:
            self._call(handler, key, old, new)
        if self._waiting:
            for changed in self._waiting.pop(key, ()):
                if not changed.done():
                    changed.set_result(None)

    def _call(self, handler: Handler[V], key: ObjectKey, old: V | None, new: V | None) -> None:
        try:
            handler(old, new)
        except Exception:  # noqa: BLE001 - one broken handler must not stop the watch that feeds all others
            _log.exception("store handler failed", store=self._name, key=key, handler=_name_of(handler))


class _Index(Generic[V]):
    """Keys by value.  Dictionaries without values serve as ordered sets."""

    __slots__ = ("keys_of", "values")

    def __init__(self, values: Callable[[V], Iterable[Hashable]]) -> None:
        self.values = values
        self.keys_of: dict[Hashable, dict[ObjectKey, None]] = {}

    def change(self, key: ObjectKey, old: V | None, new: V | None) -> None:
        """Update the index for one object.  When `values` fails, the index drops the object and raises the error."""
        before = self._values_then(old)
        try:
            after = () if new is None else tuple(self.values(new))
        except Exception:
            self._refile(key, before, ())
            raise
        if before != after:
            self._refile(key, before, after)

    def _values_then(self, old: V | None) -> tuple[Hashable, ...]:
        """Return the values under which an object was indexed; none when `values` fails, as was reported then."""
        try:
            return () if old is None else tuple(self.values(old))
        except Exception:  # noqa: BLE001 - its successor may be sound
            return ()

    def _refile(self, key: ObjectKey, before: tuple[Hashable, ...], after: tuple[Hashable, ...]) -> None:
        for value in before:
            if value not in after and (keys := self.keys_of.get(value)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self.keys_of[value]
        for value in after:
            self.keys_of.setdefault(value, {})[key] = None


def _name_of(handler: Callable[..., object]) -> str:
    return getattr(handler, "__qualname__", repr(handler))
