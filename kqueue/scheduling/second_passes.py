"""Tries workloads with quota again that lost hosts, or whose domains are chosen after their checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from kqueue.core.workload import Snapshot
from kqueue.isolation import isolated
from kqueue.scheduling.context import Context
from kqueue.scheduling.delayed_domains import DelayedDomains
from kqueue.scheduling.repairs import Repairs
from kqueue.scheduling.second_tries import SecondTries


class SecondPassKind(Protocol):
    """One cause of second passes."""

    def read(self, key: str) -> Any:
        """Return the workload in the form of `begin`; None: it has no such cause, or no longer."""
        ...

    def begin(self, snapshot: Snapshot, found: Any) -> bool:
        """Search, and begin to write the result; return whether there is one."""
        ...


class SecondTry(NamedTuple):
    """A workload that is due for its second pass."""

    key: str
    kind: SecondPassKind
    found: Any
    """The workload in the form of its kind."""


class SecondPasses:
    """The second passes of all kinds."""

    def __init__(self, context: Context, host_of: Callable[[str], str | None]) -> None:
        """`host_of` returns a node's host name."""
        self._second_pass = context.state.second_pass
        self._tries = SecondTries(self._second_pass)
        self._kinds: Sequence[SecondPassKind] = (
            Repairs(context, self._tries, host_of),
            DelayedDomains(context, self._tries),
        )

    def take(self) -> list[SecondTry]:
        """Return workloads that are due for their second pass and still need it."""
        taken: list[SecondTry] = []
        for key in self._second_pass.take():
            with isolated(partial(self._tries.look_later, key)):
                found = self._read(key)
                if found is None:
                    self._tries.drop(key)
                else:
                    taken.append(found)
        return taken

    def _read(self, key: str) -> SecondTry | None:
        for kind in self._kinds:
            found = kind.read(key)
            if found is not None:
                return SecondTry(key, kind, found)
        return None

    def begin(self, snapshot: Snapshot, due: SecondTry) -> bool:
        """Search for one workload, and begin to write the result; return whether there is one."""
        return due.kind.begin(snapshot, due.found)

    def try_again(self, key: str) -> None:
        """Try a workload again that no cycle has reached."""
        self._tries.try_again(key)
