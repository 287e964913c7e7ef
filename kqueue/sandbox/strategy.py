"""What one kind does differently from the others while it is written: its defaults, its own fields, its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.failure import Cause


class ClusterView(Protocol):
    """What a kind's rules may ask of the cluster around the object."""

    @property
    def chance(self) -> Random:
        """The seeded source of everything that is picked at random."""
        ...

    def now_text(self) -> str:
        """The present second as RFC 3339 text."""
        ...

    def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Object | None:
        """A stored object, or None."""
        ...

    def every(self, resource: GroupVersionResource, namespace: str | None = None) -> Sequence[Object]:
        """All stored objects of a kind, or those of one namespace."""
        ...


def nothing(*_: object) -> None:
    """The step of a kind that needs none."""


def no_causes(*_: object) -> list[Cause]:
    """The rules of a kind that has none."""
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStrategy:
    """The steps of a write that depend on the kind.  All change the new object in place; rules return mistakes.

    A write runs: `default`, `admit`, admission webhooks, `prepare_create` or `prepare_update`, the rules.
    """

    default: Callable[[Object], None] = nothing
    """Fill what the user left out; runs again after webhooks have changed the object."""
    admit: Callable[[Object, ClusterView], None] = nothing
    """What the server's own admission sets on new objects from others (a pod's priority); may raise ApiError."""
    admit_update: Callable[[Object], None] = nothing
    """What the server's own admission sets again whenever the main resource is written."""
    prepare_create: Callable[[Object, ClusterView], None] = nothing
    """Set what only the server may set: the first status, a job's selector."""
    prepare_update: Callable[[Object, Object], None] = nothing
    """Given new and old: keep what the main resource must not change, besides status."""
    validate: Callable[[Object], list[Cause]] = no_causes
    """The rules for any state of the object."""
    validate_create: Callable[[Object], list[Cause]] = no_causes
    """The rules for a new object alone."""
    validate_update: Callable[[Object, Object], list[Cause]] = no_causes
    """The rules for the step from old to new, given (new, old)."""
    validate_status: Callable[[Object, Object], list[Cause]] = no_causes
    """The rules for a write to the status subresource, given (new, old)."""
    grace_period: Callable[[Object], int] = lambda _: 0
    """Seconds between the request to delete and the deletion, when the request names none."""
    ready_to_go: Callable[[Object], bool] = lambda _: True
    """Whether an object marked for deletion, with no finalizer left, may go."""


PLAIN = WriteStrategy()
"""A kind that does nothing of its own."""
