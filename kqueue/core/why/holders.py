"""The workloads that use the leaves of a flavor, or a column of quota."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kqueue.core.charging import same_hosts
from kqueue.core.planned_state import PlannedState
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.topology.node import PODS
from kqueue.core.topology.result import DomainUsage
from kqueue.core.value import value
from kqueue.core.workload import Admitted, TopologyView

SHOWN = 3
"""The number of holders that are named; the others are counted."""
_STEP = 200
"""The number of workloads examined in one step."""


@value(kw_only=True)
class Holder:
    """A workload that uses some of a scarce resource. `pods` is 0 if the resource is quota."""

    workload: Admitted
    amount: int
    pods: int = 0


@value(kw_only=True)
class ResourceHolders:
    """The holders of a resource that a workload lacks.

    Args:
        resource: the resource.
        first: the workloads that use most of it, at most `SHOWN`.
        others: the number of further workloads that use some of it.
        foreign: the amount used by pods that are not placed by topology; None: it was not summed.
    """

    resource: str
    first: tuple[Holder, ...] = ()
    others: int = 0
    foreign: int | None = None

    @classmethod
    def of(cls, resource: str, holders: Iterable[Holder], foreign: int | None = None) -> ResourceHolders:
        """Return the summary of these holders, the largest first; equals are ordered by key."""
        known = list(holders)
        first = heapq.nsmallest(SHOWN, known, key=lambda h: (-h.amount, -h.pods, h.workload.key))
        return cls(resource=resource, first=tuple(first), others=len(known) - len(first), foreign=foreign)


class Occupancy:
    """The workloads on each leaf of one flavor.  Empty until `steps` have ended."""

    def __init__(self, flavor: str, view: TopologyView) -> None:
        self._flavor, self._view = flavor, view
        self._on: dict[int, list[tuple[Admitted, DomainUsage]]] = {}

    def steps(self, world: PlannedState) -> Iterator[None]:
        """Assign all workloads with usage to their leaves, in short steps."""
        topologies = world.snapshot.topologies
        leaf_of, on = self._view.tree.leaf_of, self._on
        meets = {name: self._flavor in same_hosts(name, topologies) for name in topologies}
        for number, workload in enumerate(world.holders, start=1):
            for flavor, domains in workload.domains.items():
                if not meets.get(flavor):
                    continue
                for usage in domains:
                    leaf = leaf_of(usage.values)
                    if leaf is not None:
                        on.setdefault(leaf, []).append((workload, usage))
            if number % _STEP == 0:
                yield

    def holders(self, leaves: slice, resource: str) -> list[Holder]:
        """Return the workloads that use a resource on these leaves."""
        amounts: dict[Admitted, list[int]] = {}
        on = self._on
        for leaf in range(leaves.start, leaves.stop):
            for workload, usage in on.get(leaf, ()):
                sums = amounts.get(workload)
                if sums is None:
                    sums = amounts[workload] = [0, 0]
                sums[0] += usage.count if resource == PODS else usage.requests.get(resource, 0) * usage.count
                sums[1] += usage.count
        return [Holder(workload=w, amount=amount, pods=pods) for w, (amount, pods) in amounts.items() if amount]

    def held(self, leaves: slice, resource: str) -> ResourceHolders:
        """Return the summary of the holders, with the usage of foreign pods."""
        idle = self._view.capacity.empty().row(resource)
        there = sum(node.allocatable.get(resource, 0) for leaf in self._view.tree.leaves[leaves] for node in leaf.nodes)
        left = int(np.maximum(idle[leaves], 0).sum(dtype=object)) if idle is not None else 0
        return ResourceHolders.of(resource, self.holders(leaves, resource), foreign=max(0, there - left))


def column_holders(world: PlannedState, queue: str, column: FlavorResource) -> list[Holder]:
    """Return the workloads that use a column's quota in the tree of a ClusterQueue."""
    node = world.snapshot.nodes[queue]
    return [
        Holder(workload=workload, amount=amount)
        for name in _queues_of(node)
        for workload in (world.snapshot.admitted.get(name) or {}).values()
        if (amount := workload.usage.get(column, 0)) > 0
    ]


def _queues_of(node: QuotaNode) -> Sequence[str]:
    return [below.name for below in node.root.walk() if not below.is_cohort]
