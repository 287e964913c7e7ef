"""The interface to the API server's objects for admission, scale and other subresources."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.decoding import Validation
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange, StoredObject

if TYPE_CHECKING:
    from kqueue.sandbox.forms import ObjectForms


@dataclass(slots=True, kw_only=True)
class WriteOptions:
    """Options of a write.  `warnings` collects warnings for the client."""

    manager: str = "sandbox"
    dry_run: bool = False
    force: bool = False
    validation: Validation = "Ignore"
    user: str = "system:sandbox"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    warnings: list[str] = field(default_factory=list)


class Objects(Protocol):
    """The objects of a cluster; implemented by `cluster_api.ClusterApi`."""

    chance: random.Random
    forms: ObjectForms

    def now_text(self) -> str:
        """Return the present second in the format of objects."""
        ...

    def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Object | None:
        """Return an object, or None."""
        ...

    def every(self, resource: GroupVersionResource, namespace: str | None = None) -> list[Object]:
        """Return all objects of a kind, or the objects of a namespace."""
        ...

    def record(self, kind: ServedKind, name: str, namespace: str | None) -> StoredObject:
        """Return the stored record.  Raises NotFoundError."""
        ...

    def listen(self, listener: Callable[[ServedKind, StoreChange], None]) -> None:
        """Call `listener` after each change."""
        ...

    async def rewrite(
        self,
        kind: ServedKind,
        name: str,
        namespace: str,
        make: Callable[[Object], Object],
        subresource: str,
        options: WriteOptions,
    ) -> Object:
        """Store the result of `make` on the present object."""
        ...

    @property
    def delete_owned(self) -> Callable[..., Awaitable[Any]]:
        """The method that deletes an object with all options of a client."""
        ...
