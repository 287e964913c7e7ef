"""What admission, scale and the other subresources use of the API server's objects."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.decoding import Validation
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange, StoredObject


@dataclass(slots=True, kw_only=True)
class WriteOptions:
    """How a write is to be done.  `warnings` is filled for the one who asked."""

    manager: str = "sandbox"
    dry_run: bool = False
    force: bool = False
    validation: Validation = "Ignore"
    user: str = "system:sandbox"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    warnings: list[str] = field(default_factory=list)


class Objects(Protocol):
    """The objects of a cluster.  `cluster_api.ClusterApi` is the one that there is."""

    chance: random.Random

    def now_text(self) -> str:
        """The time as the API has it."""
        ...

    def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Object | None:
        """An object; None: there is none."""
        ...

    def every(self, resource: GroupVersionResource, namespace: str | None = None) -> list[Object]:
        """All objects of a kind, or those of a namespace."""
        ...

    def record(self, kind: ServedKind, name: str, namespace: str | None) -> StoredObject:
        """An object as it is stored.  Raises NotFoundError."""
        ...

    def listen(self, listener: Callable[[ServedKind, StoreChange], None]) -> None:
        """Call this after each change."""
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
        """Store what `make` makes of the present object."""
        ...

    @property
    def delete_owned(self) -> Callable[..., Awaitable[Any]]:
        """Delete an object, with everything that a client can say."""
        ...
