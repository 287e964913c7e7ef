"""Wake-ups: changes after which waiting workloads may be admitted.

Each source publishes a `WakeUp` with a scope.  Only `Queues.helped_by` turns the scope into names of ClusterQueues.
`docs/architecture.md` has the table of all sources, scopes and times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol


class Haste(Enum):
    """When the workloads that a change can help are tried again."""

    AT_ONCE = auto()
    """The scheduling loop starts a round now."""
    SOON = auto()
    """With the next round of the scheduling loop, or when the flush window ends."""
    WITH_NODES = auto()
    """When the window for node events ends."""


class WakeUpSource(Enum):
    """Kinds of changes."""

    WORKLOAD = auto()
    CLAIM = auto()
    GANG = auto()
    CLUSTER_QUEUE = auto()
    COHORT = auto()
    FLAVOR = auto()
    TOPOLOGY = auto()
    CHECK = auto()
    NAMESPACE = auto()
    NODE = auto()
    FOREIGN_POD = auto()
    CHARGED_POD = auto()
    AUDIT = auto()
    PAUSE = auto()

    @property
    def haste(self) -> Haste:
        """When the workloads that the change can help are tried again."""
        return _HASTE[self]


_HASTE = {
    WakeUpSource.WORKLOAD: Haste.AT_ONCE,
    WakeUpSource.CLAIM: Haste.SOON,
    WakeUpSource.GANG: Haste.AT_ONCE,
    WakeUpSource.CLUSTER_QUEUE: Haste.AT_ONCE,
    WakeUpSource.COHORT: Haste.SOON,
    WakeUpSource.FLAVOR: Haste.AT_ONCE,
    WakeUpSource.TOPOLOGY: Haste.AT_ONCE,
    WakeUpSource.CHECK: Haste.SOON,
    WakeUpSource.NAMESPACE: Haste.SOON,
    WakeUpSource.NODE: Haste.WITH_NODES,
    WakeUpSource.FOREIGN_POD: Haste.SOON,
    WakeUpSource.CHARGED_POD: Haste.SOON,
    WakeUpSource.AUDIT: Haste.SOON,
    WakeUpSource.PAUSE: Haste.AT_ONCE,
}

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUp:
    """A change, and its scope: the union of all fields; with none of them the change helps no parked workload.

    Args:
        source: the kind of change.
        cluster_queues: names of ClusterQueues, without their trees.
        trees_of: names of ClusterQueues; the scope has all ClusterQueues of their cohort trees.
        cohorts: names of cohorts; the scope has all ClusterQueues of their trees.
        flavors: names of flavors; the scope has the ClusterQueues that list one of them.
        nodes_of: names of flavors; the scope has the ClusterQueues that list a flavor with the same nodes.
        everywhere: the scope has every ClusterQueue.
    """

    source: WakeUpSource
    cluster_queues: frozenset[str] = _NONE
    trees_of: frozenset[str] = _NONE
    cohorts: frozenset[str] = _NONE
    flavors: frozenset[str] = _NONE
    nodes_of: frozenset[str] = _NONE
    everywhere: bool = False

    @property
    def is_of_trees(self) -> bool:
        """Whether the scope has trees, and nothing else but ClusterQueues."""
        return bool(self.trees_of or self.cohorts) and not (self.flavors or self.nodes_of or self.everywhere)

    @classmethod
    def together(cls, wake_ups: Iterable[WakeUp]) -> WakeUp:
        """Return the union of wake-ups with such scopes; there is at least one."""
        found = list(wake_ups)
        return cls(
            source=found[0].source,
            cluster_queues=frozenset().union(*(one.cluster_queues for one in found)),
            trees_of=frozenset().union(*(one.trees_of for one in found)),
            cohorts=frozenset().union(*(one.cohorts for one in found)),
        )


class QueueLookup(Protocol):
    """Queries for the ClusterQueues of a tree, a flavor or nodes; `QuotaCache` answers from its present state."""

    def in_trees(self, queues: Collection[str], cohorts: Collection[str], /) -> Collection[str]:
        """Return the ClusterQueues in the trees of these ClusterQueues and cohorts; unknown ones have no tree."""
        ...

    def queues_of_flavor(self, flavor: str, /) -> Collection[str]:
        """Return the ClusterQueues that list a flavor."""
        ...

    def queues_beside(self, flavor: str, /) -> Collection[str]:
        """Return the ClusterQueues that list a flavor, or another flavor with the same nodes."""
        ...
