"""Which kinds the server knows: by path, by group, by kind's name.  Custom kinds come and go while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqueue.sandbox.api import GroupVersionResource, Object
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
    """Kinds of one storage are the same objects in different versions."""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    """Whether `/status` is a resource of its own, which the main resource cannot write."""
    subresources: tuple[str, ...] = ()
    """Further ones, each with its own code in the server."""
    scale: Any = None
    """Where the numbers of its `scale` subresource are (`scale.ScalePaths`); None when it has none."""
    generation: bool = False
    """Whether `metadata.generation` counts changes of what the user asks for."""
    columns: tuple[TableColumn, ...] = NAME_AND_AGE
    strategy: WriteStrategy = PLAIN
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field selectors besides name and namespace: the written path, and the keys that lead to the value."""
    custom: Any = None
    """For custom kinds their compiled schema (`crd.CustomSchema`); None for built-in ones."""
    unconditional_update: bool = True
    """Whether an update may come without a resourceVersion."""
    returns_deleted: bool = False
    """Whether a deletion answers with the object even when it is gone at once."""
    orphans_by_default: bool = False
    """Whether a deletion that does not say otherwise leaves dependents behind."""
    inward: Callable[[Object], Object] | None = None
    """From this version to the stored form; None when they are the same."""
    outward: Callable[[Object], Object] | None = None
    """From the stored form to this version; None when they are the same."""

    @property
    def api_version(self) -> str:
        """`v1`, `batch/v1`."""
        resource = self.resource
        return f"{resource.group}/{resource.version}" if resource.group else resource.version

    @property
    def list_kind(self) -> str:
        """The kind of a list of these."""
        return f"{self.kind}List"

    def shown(self, obj: Object) -> Object:
        """A stored object as this version shows it; the same object when nothing differs."""
        return obj if self.outward is None else self.outward(obj)


class KindRegistry:
    """All kinds that are served now."""

    def __init__(self, kinds: tuple[ServedKind, ...] = ()) -> None:
        self._kinds: dict[GroupVersionResource, ServedKind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(list(self._kinds.values()))

    def add(self, kind: ServedKind) -> None:
        """Serve `kind`, in place of one with the same path."""
        self._kinds[kind.resource] = kind

    def remove(self, resource: GroupVersionResource) -> None:
        """Serve it no longer."""
        self._kinds.pop(resource, None)

    def find(self, resource: GroupVersionResource) -> ServedKind | None:
        """The kind at this path, or None."""
        return self._kinds.get(resource)

    def groups(self) -> dict[str, list[str]]:
        """Group names (without the core group) to their versions, in the order they were added."""
        found: dict[str, list[str]] = {}
        for resource in self._kinds:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found

    def served(self, group: str, version: str) -> list[ServedKind]:
        """All kinds of one group and version."""
        return [k for k in self._kinds.values() if k.resource.group == group and k.resource.version == version]
