"""Sums of the changes of leaving and entering workloads, so that a snapshot applies them in one step.

Many heads of a cycle are nominated under the same changes. Sums are stored per ClusterQueue, per node of the quota tree
and per host. The result equals that of one change after the other, because the usage of a queue in its cohorts depends
only on the queue's own usage, not on the order of the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kqueue.core.charging import same_hosts
from kqueue.core.preemption.simulation import Simulation
from kqueue.core.quantity import clamp
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.core.topology.node import PODS
from kqueue.core.topology.result import DomainUsage, Path
from kqueue.core.topology.tree import Ints, Tree
from kqueue.core.workload import Snapshot


class PendingChanges:
    """Sums of changes to one snapshot, whose queues and trees do not change.

    Every change can be added with the sign -1, which undoes it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._quota: dict[str, Usage] = {}
        self._nodes: dict[QuotaNode, Usage] = {}
        self._hosts: dict[str, _Hosts] = {}

    def add_quota(self, queue: str, usage: Mapping[FlavorResource, int], sign: int) -> None:
        """Add usage of a ClusterQueue; its cohort gets the part beyond local quota.  Unknown queues are skipped."""
        if queue in self._snapshot.nodes:
            _add(self._quota.setdefault(queue, {}), usage, sign)

    def add_node(self, node: QuotaNode, column: FlavorResource, amount: int) -> None:
        """Add usage to only one node of the tree."""
        _add(self._nodes.setdefault(node, {}), {column: amount}, 1)

    def add_domains(self, flavor: str, usage: Iterable[DomainUsage], sign: int) -> None:
        """Free these amounts on hosts of a flavor, in all flavors with the same hosts."""
        usage = tuple(usage)
        for hosts in self._of(flavor):
            for item in usage:
                hosts.add(item.values, item.requests, sign * item.count)
                hosts.add(item.values, {PODS: 1}, sign * item.count)

    def add_amounts(self, flavor: str, amounts: Mapping[Path, Mapping[str, int]], sign: int) -> None:
        """Free these amounts in domains of a flavor, in all flavors with the same hosts."""
        for hosts in self._of(flavor):
            for values, free in amounts.items():
                hosts.add(values, free, sign)

    def _of(self, flavor: str) -> Iterable[_Hosts]:
        topologies = self._snapshot.topologies
        for name in same_hosts(flavor, topologies):
            if name not in self._hosts:
                self._hosts[name] = _Hosts(topologies[name].tree)
            yield self._hosts[name]

    def shift_nodes(self, simulation: Simulation) -> None:
        """Apply the changes of single nodes to a simulation."""
        for node, columns in self._nodes.items():
            for column, amount in columns.items():
                if amount:
                    simulation.shift(node, column, amount)

    def charge_queues(self, simulation: Simulation) -> None:
        """Apply the changes of ClusterQueues, and with them of cohorts, to a simulation."""
        for queue, columns in self._quota.items():
            less = {column: -amount for column, amount in columns.items() if amount < 0}
            more = {column: amount for column, amount in columns.items() if amount > 0}
            if less:
                simulation.uncharge(queue, less)
            if more:
                simulation.charge(queue, more)

    def free_hosts(self, simulation: Simulation) -> None:
        """Apply the changes of hosts to a simulation."""
        for flavor, hosts in self._hosts.items():
            leaves, amounts = hosts.table()
            if amounts:
                simulation.free_more(flavor, leaves, amounts)

    @staticmethod
    def apply(many: Sequence[PendingChanges], simulation: Simulation) -> None:
        """Apply the changes of all these sums to a simulation of their snapshot."""
        for changes in many:  # nodes come first, because the usage of a cohort depends on its queues
            changes.shift_nodes(simulation)
        for changes in many:
            changes.charge_queues(simulation)
        for changes in many:
            changes.free_hosts(simulation)


class _Hosts:
    """The amounts that become free on the leaves of one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._free: dict[int, dict[str, int]] = {}
        self._table: tuple[Ints, dict[str, Ints]] | None = None

    def add(self, values: Path, amounts: Mapping[str, int], factor: int) -> None:
        """Add amounts, times `factor`, to a leaf; no effect if the tree has no such domain."""
        leaf = self._tree.leaf_of(values)
        if leaf is None:
            return
        self._table = None
        free = self._free.setdefault(leaf, {})
        for resource, amount in amounts.items():
            free[resource] = free.get(resource, 0) + amount * factor

    def table(self) -> tuple[Ints, dict[str, Ints]]:
        """Return the leaves, and the amounts that become free on each of them per resource, cut to 64 bits."""
        if self._table is None:
            changed = {leaf: free for leaf, free in self._free.items() if any(free.values())}
            resources = sorted({resource for free in changed.values() for resource, amount in free.items() if amount})
            leaves = np.fromiter(changed, dtype=np.int64, count=len(changed))
            columns = {r: [clamp(free.get(r, 0)) for free in changed.values()] for r in resources}
            self._table = leaves, {r: np.array(column, dtype=np.int64) for r, column in columns.items()}
        return self._table


def _add(to: Usage, usage: Mapping[FlavorResource, int], sign: int) -> None:
    for column, amount in usage.items():
        to[column] = to.get(column, 0) + sign * amount
