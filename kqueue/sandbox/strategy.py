"""The steps of a write that differ from kind to kind: defaults, fields of the server, validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.failure import Cause


class ClusterView(Protocol):
    """The facts of the cluster that a kind's rules may read."""

    @property
    def chance(self) -> Random:
        """The seeded source of all random choices."""
        ...

    def now_text(self) -> str:
        """Return the present second as RFC 3339 text."""
        ...

    def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Object | None:
        """Return a stored object; None: there is none."""
        ...

    def every(self, resource: GroupVersionResource, namespace: str | None = None) -> Sequence[Object]:
        """Return all stored objects of a kind, or those of one namespace."""
        ...


def nothing(*_: object) -> None:
    """Do nothing: the step of a kind that needs none."""


def no_causes(*_: object) -> list[Cause]:
    """Return no mistakes: the rules of a kind that has none."""
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStrategy:
    """The steps of a write that depend on the kind.  Steps change the new object in place; rules return mistakes.

    A write runs: `default`, `admit`, admission webhooks, `prepare_create` or `prepare_update`, the rules.
    """

    default: Callable[[Object], None] = nothing
    """Fill defaults; runs again after webhooks have changed the object."""
    admit: Callable[[Object, ClusterView], None] = nothing
    """Apply built-in admission to new objects, such as a pod's priority from its class; may raise ApiError."""
    admit_update: Callable[[Object], None] = nothing
    """Apply built-in admission again at every write of the main resource."""
    prepare_create: Callable[[Object, ClusterView], None] = nothing
    """Set fields that only the server may set: the first status, a job's selector."""
    prepare_update: Callable[[Object, Object], None] = nothing
    """Given (new, old): keep fields that a write of the main resource must not change, besides status."""
    validate: Callable[[Object], list[Cause]] = no_causes
    """Rules for any state of the object."""
    validate_create: Callable[[Object], list[Cause]] = no_causes
    """Rules for new objects only."""
    validate_update: Callable[[Object, Object], list[Cause]] = no_causes
    """Rules for the change from old to new, given (new, old)."""
    validate_status: Callable[[Object, Object], list[Cause]] = no_causes
    """Rules for a write to the status subresource, given (new, old)."""
    grace_period: Callable[[Object], int] = lambda _: 0
    """Returns seconds between the request to delete and the deletion, if the request has no grace period."""
    ready_to_go: Callable[[Object], bool] = lambda _: True
    """Whether an object that is marked for deletion and has no finalizers may be removed."""


PLAIN = WriteStrategy()
"""The strategy of a kind without steps of its own."""
