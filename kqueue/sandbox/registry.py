"""The kinds that the server serves, by path and by group.  Custom kinds are added and removed at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqueue.sandbox import failure
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.store import StoredObject
from kqueue.sandbox.strategy import PLAIN, WriteStrategy
from kqueue.sandbox.table import NAME_AND_AGE, TableColumn

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedKind:
    """One kind in one version, as the server stores and serves it."""

    resource: GroupVersionResource
    kind: str
    namespaced: bool = True
    storage: str
    """Kinds with the same storage are versions of the same objects."""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    """Whether `/status` is a subresource, and writes to the main resource ignore it."""
    subresources: tuple[str, ...] = ()
    """Other subresources, each with its own code in the server."""
    scale: Any = None
    """Paths of the `scale` subresource (`scale.ScalePaths`); None if the kind has none."""
    generation: bool = False
    """Whether `metadata.generation` counts changes outside of metadata and status."""
    columns: tuple[TableColumn, ...] = NAME_AND_AGE
    strategy: WriteStrategy = PLAIN
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field selectors besides name and namespace: the path in the selector, and the keys of the value."""
    custom: Any = None
    """The compiled schema of a custom kind (`crd.CustomSchema`); None for built-in kinds."""
    unconditional_update: bool = True
    """Whether an update may have no resourceVersion."""
    returns_deleted: bool = False
    """Whether a deletion returns the object even if it was deleted at once."""
    orphans_by_default: bool = False
    """Whether a deletion without a propagation policy keeps dependents."""
    inward: Callable[[Object], Object] | None = None
    """Converts this version of a built-in kind to the stored form; None if they are the same."""
    outward: Callable[[Object], Object] | None = None
    """Converts the stored form of a built-in kind to this version; None if they are the same."""
    stored: str = ""
    """`apiVersion` in which new objects of a custom kind are stored; empty for built-in kinds."""
    converts: bool = False
    """Whether a webhook converts objects of this custom kind between versions."""
    deprecation: str = ""
    """Warning to every client that uses this version; empty: none."""

    @property
    def api_version(self) -> str:
        """`v1`, `batch/v1`."""
        resource = self.resource
        return f"{resource.group}/{resource.version}" if resource.group else resource.version

    @property
    def list_kind(self) -> str:
        """The kind of a list of these."""
        return f"{self.kind}List"

    def is_as_stored(self, record: StoredObject) -> bool:
        """Whether a stored object is in this version."""
        return self.outward is None and (not self.stored or record.obj["apiVersion"] == self.api_version)

    def shown(self, record: StoredObject) -> Object:
        """Return a stored object in this version; the same object if nothing differs.

        Raises:
            ServerError: a webhook converts the object and was not asked (`ObjectForms.prepare`).
        """
        if self.is_as_stored(record):
            return record.obj
        if self.outward is not None:
            return self.outward(record.obj)
        if not self.converts:
            return {**record.obj, "apiVersion": self.api_version}
        found = record.forms.get(self.api_version)
        if found is None:
            raise failure.internal(f"{self.kind} {record.name} is stored as {record.obj['apiVersion']}: list it first")
        return found


class KindRegistry:
    """All kinds that are served now."""

    def __init__(self, kinds: tuple[ServedKind, ...] = ()) -> None:
        self._kinds: dict[GroupVersionResource, ServedKind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(list(self._kinds.values()))

    def add(self, kind: ServedKind) -> None:
        """Serve `kind`; it replaces a kind with the same path."""
        self._kinds[kind.resource] = kind

    def remove(self, resource: GroupVersionResource) -> None:
        """Stop serving the kind."""
        self._kinds.pop(resource, None)

    def find(self, resource: GroupVersionResource) -> ServedKind | None:
        """Return the kind at this path; None: there is none."""
        return self._kinds.get(resource)

    def groups(self) -> dict[str, list[str]]:
        """Return group names (without the core group) and their versions, in the order they were added."""
        found: dict[str, list[str]] = {}
        for resource in self._kinds:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found

    def served(self, group: str, version: str) -> list[ServedKind]:
        """Return all kinds of one group and version."""
        return [k for k in self._kinds.values() if k.resource.group == group and k.resource.version == version]
