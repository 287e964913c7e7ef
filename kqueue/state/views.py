"""Holdings by ClusterQueue, as they were when a snapshot was taken.

A cycle examines the workloads of few queues, and holdings change while it runs. So a snapshot copies nothing: a view
stores each holding that a change replaces, and is assembled when it is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

import structlog

from kqueue.core.workload import Admitted
from kqueue.isolation import isolated

_log = structlog.get_logger(__name__)


class Viewed(Protocol):
    """The part of a holding that this module needs. A holding is never changed, only replaced."""

    @property
    def key(self) -> str:
        """namespace/name of the workload."""

    @property
    def queue(self) -> str:
        """The ClusterQueue whose quota the workload uses."""

    def view(self, with_topology: frozenset[str]) -> Admitted:
        """Return the workload in the form of preemption; `with_topology` are the flavors that have a topology."""


H = TypeVar("H", bound=Viewed)


class HoldingsByQueue(Generic[H]):
    """Holdings by their ClusterQueue."""

    def __init__(self) -> None:
        self._now: dict[str, dict[str, H]] = {}
        self._seen: dict[str, tuple[frozenset[str], Mapping[str, Admitted]]] = {}
        """The last result of `seen` for ClusterQueues that have not changed since."""
        self._deferred: dict[str, DeferredView] = {}
        """The last result of `deferred` for ClusterQueues that have not changed since."""
        self._open_views: list[ref[Views[H]]] = []
        self._hidden: set[str] = set()
        """Workloads that are hidden from preemption until they have no usage."""

    def of(self, queue: str) -> Mapping[str, H]:
        """Return the holdings in a ClusterQueue, by workload. Callers must not change the mapping."""
        return self._now.get(queue, {})

    def put(self, holding: H) -> None:
        """Add a holding, or replace the workload's former holding in this queue."""
        queue, key = holding.queue, holding.key
        holdings = self._now.get(queue)
        if holdings is None:
            holdings = self._now[queue] = {}
        self._keep(queue, key, holdings.get(key))
        holdings[key] = holding

    def drop(self, holding: H) -> None:
        """Remove a holding."""
        self._keep(holding.queue, holding.key, self._now[holding.queue].pop(holding.key))
        self._hidden.discard(holding.key)

    def hide(self, key: str) -> None:
        """Hide a workload from preemption until it has no usage."""
        self._hidden.add(key)
        self._seen.clear()
        self._deferred.clear()

    def _keep(self, queue: str, key: str, before: H | None) -> None:
        self._seen.pop(queue, None)
        self._deferred.pop(queue, None)
        for view_ref in self._open_views:
            views = view_ref()
            if views is not None:
                views.keep(queue, key, before)

    def views(self, queues: Collection[str], with_topology: frozenset[str]) -> Views[H]:
        """Return the present holdings of some ClusterQueues; later changes do not affect the result."""
        views = Views(self, queues, with_topology)
        self._open_views = [view_ref for view_ref in self._open_views if view_ref() is not None]
        self._open_views.append(ref(views))
        return views

    def seen(self, queue: str, with_topology: frozenset[str]) -> Mapping[str, Admitted]:
        """Return the holdings in a ClusterQueue in the form of preemption; the same object as long as nothing
        changes.
        """
        known = self._seen.get(queue)
        if known is not None and known[0] == with_topology:
            return known[1]
        made = self.viewed(self.of(queue), with_topology)
        self._seen[queue] = with_topology, made
        return made

    def deferred(self, queue: str, with_topology: frozenset[str]) -> DeferredView:
        """Return what `seen` returns, to be made later and on another thread; the same object as long as nothing
        changes.
        """
        known = self._deferred.get(queue)
        if known is None or known.with_topology != with_topology:
            known = self._deferred[queue] = self.deferred_of(self.of(queue), with_topology)
        return known

    def deferred_of(self, holdings: Mapping[str, H], with_topology: frozenset[str]) -> DeferredView:
        """Return what `viewed` returns, to be made later and on another thread."""
        hidden = self._hidden
        return DeferredView({key: one for key, one in holdings.items() if key not in hidden}, with_topology)

    def viewed(self, holdings: Mapping[str, H], with_topology: frozenset[str]) -> Mapping[str, Admitted]:
        """Return holdings in the form of preemption. A holding whose conversion fails is left out, so that it is not
        preempted and the snapshot is usable; the failure is logged once.
        """
        made: dict[str, Admitted] = {}
        for key, holding in holdings.items():
            if key in self._hidden:
                continue
            try:
                made[key] = holding.view(with_topology)
            except Exception:  # noqa: BLE001 - the boundary that keeps one workload from stopping the others
                self._hidden.add(key)
                _log.exception("a workload's usage cannot be read, so the workload is not preempted", workload=key)
        return made


class DeferredView(Mapping[str, Admitted]):
    """Holdings in the form of preemption, made at the first use.

    Holdings are never changed, so another thread may make it: two threads that make the view of one holding make equal
    ones.
    """

    def __init__(self, holdings: Mapping[str, Viewed], with_topology: frozenset[str]) -> None:
        """`holdings` does not change any more."""
        self._holdings, self.with_topology = holdings, with_topology
        self._made: dict[str, Admitted] | None = None

    def made(self) -> Mapping[str, Admitted]:
        """Return the workloads.  One whose usage cannot be read is left out, as in plans."""
        if self._made is None:
            made: dict[str, Admitted] = {}
            for key, holding in self._holdings.items():
                with isolated():  # the plan logs it
                    made[key] = holding.view(self.with_topology)
            self._made = made
        return self._made

    def __getitem__(self, key: str) -> Admitted:
        return self.made()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made())

    def __len__(self) -> int:
        return len(self._holdings if self._made is None else self._made)


class Views(Mapping[str, Mapping[str, Admitted]], Generic[H]):
    """Holdings by ClusterQueue and workload in the form of preemption, as they were when the view was made."""

    def __init__(self, holdings: HoldingsByQueue[H], queues: Collection[str], with_topology: frozenset[str]) -> None:
        self._holdings, self._queues, self._with_topology = holdings, queues, with_topology
        self._made: dict[str, Mapping[str, Admitted]] = {}
        self._before: dict[str, dict[str, H | None]] = {}

    def keep(self, queue: str, key: str, before: H | None) -> None:
        """Keep the holding that a workload had in a queue (None: none) before it changes."""
        if queue not in self._made and queue in self._queues:
            self._before.setdefault(queue, {}).setdefault(key, before)

    def __getitem__(self, queue: str) -> Mapping[str, Admitted]:
        made: Mapping[str, Admitted] | None = self.get(queue)
        if made is None:
            raise KeyError(queue)
        return made

    def _make(self, queue: str) -> Mapping[str, Admitted]:
        if queue not in self._before:
            return self._holdings.seen(queue, self._with_topology)
        then = self._then(queue)
        del self._before[queue]
        return self._holdings.viewed(then, self._with_topology)

    def get(self, queue: str, default: Any = None, /) -> Any:
        """Return as `Mapping.get`. An own method, because exceptions would cost too much: every head reads its
        queue.
        """
        made = self._made.get(queue)
        if made is None:
            if queue not in self._queues:
                return default
            made = self._made[queue] = self._make(queue)
        return made

    def deferred(self, queue: str) -> Mapping[str, Admitted]:
        """Return the workloads of one of the ClusterQueues, to be made later, also on another thread."""
        made = self._made.get(queue)
        if made is not None:
            return made
        if self._before.get(queue):
            return self._holdings.deferred_of(self._then(queue), self._with_topology)
        return self._holdings.deferred(queue, self._with_topology)

    def _then(self, queue: str) -> dict[str, H]:
        """Return the holdings of a ClusterQueue as they were when the view was made."""
        then: dict[str, H | None] = {**self._holdings.of(queue), **self._before.get(queue, {})}
        return {key: holding for key, holding in then.items() if holding is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a complete copy for another process, which cannot read this process's holdings."""
        return dict, ({queue: self[queue] for queue in self},)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)
