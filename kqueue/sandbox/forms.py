"""Objects in the version of a request, and in the version in which they are stored."""

from __future__ import annotations

from collections.abc import Iterable

from kqueue.sandbox import field_versions
from kqueue.sandbox.api import Object
from kqueue.sandbox.conversion import Converter
from kqueue.sandbox.registry import KindRegistry, ServedKind
from kqueue.sandbox.store import StoredObject


class ObjectForms:
    """Converts objects of all kinds: built-in ones by functions, custom ones as their definitions say."""

    def __init__(self, registry: KindRegistry, converter: Converter) -> None:
        self._registry, self._converter = registry, converter

    def learn(self, storage: str, definition: Object | None) -> None:
        """Note the conversion webhook of a definition; None: the definition is gone."""
        self._converter.learn(storage, definition)

    async def prepare(self, kind: ServedKind, records: Iterable[StoredObject]) -> None:
        """Convert stored objects, where a webhook does that, so that `kind.shown` has them.

        Raises:
            ServerError: the webhook failed.
        """
        if kind.converts:
            await self._converter.prepare(kind, records)

    def other_versions(self, kind: ServedKind) -> list[ServedKind]:
        """Return the other served versions of a custom kind; empty for built-in kinds."""
        if not kind.stored:
            return []
        return [each for each in self._registry if each.storage == kind.storage and each.resource != kind.resource]

    async def converted(self, kind: ServedKind, obj: Object, api_version: str) -> Object:
        """Return an object of a custom kind in another version; the object itself if it is in that version.

        Raises:
            ServerError: a webhook converts it, and failed.
        """
        if not kind.stored or obj["apiVersion"] == api_version:
            return obj
        if not kind.converts:
            return {**obj, "apiVersion": api_version}
        (found,) = await self._converter.convert(kind, [obj], api_version)
        return found

    async def to_store(self, kind: ServedKind, obj: Object) -> Object:
        """Return an object in the form in which it is stored.  Raises as `converted`."""
        return await self.converted(kind, obj, kind.stored) if kind.inward is None else kind.inward(obj)

    async def shown(self, kind: ServedKind, record: StoredObject) -> Object:
        """Return a stored object in the version of `kind`.  Raises as `prepare`."""
        await self.prepare(kind, [record])
        return kind.shown(record)

    async def to_change(self, kind: ServedKind, record: StoredObject) -> Object:
        """Return a stored object with the owners of its fields in the version of `kind`, too.  Raises as `prepare`."""
        obj = await self.shown(kind, record)
        if not kind.converts:
            return obj
        others = {each.api_version: each for each in self.other_versions(kind)}
        return await field_versions.translated(
            kind, others, obj, lambda each, version: self.converted(kind, each, version)
        )
