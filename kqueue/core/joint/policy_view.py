"""The view of policies: pods to judge, and the hosts and domains as they are when a policy is asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from kqueue.core.joint.statistics import NO_STATISTICS, NodeStatistics, measured_kind
from kqueue.core.joint.traits import NO_TRAITS, Traits
from kqueue.core.joint.units import Unit
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.node import PODS
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints, Tree
from kqueue.core.value import value

T = TypeVar("T")
_NODES = ("measured", "nodes")
"""The key of the nodes among remembered facts."""


@value(kw_only=True)
class JudgedPods:
    """Equal pods of one workload.

    Args:
        queue: the ClusterQueue.
        request: the pod set; its count is the number of pods.
        level: the level that the pods require or prefer; -1: none.
        units: of one pod, at least 1.
        waited: seconds.
    """

    queue: str
    request: PodSetRequest
    level: int
    units: int = 1
    waited: int = 0
    traits: Traits = NO_TRAITS

    @property
    def is_free(self) -> bool:
        """Whether each pod may be on any host, whatever the hosts of the others."""
        return self.level < 0 and not self.request.topology.slices and self.request.group is None


@dataclass(slots=True)
class TreeFacts:
    """Facts of a tree that do not change in a round, computed when they are first needed."""

    tree: Tree
    statistics: NodeStatistics = NO_STATISTICS
    static: set[str] = field(default_factory=set)
    """Nodes whose reservations counted, because they had no sample of a resource that a policy looked at."""
    _allocatable: dict[str, Ints] = field(default_factory=dict)
    _measured: dict[tuple[str, int], tuple[Ints, Ints]] = field(default_factory=dict)
    _remembered: dict[Hashable, Any] = field(default_factory=dict)

    def remembered(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was computed for the key; the first time it is computed."""
        if key not in self._remembered:
            self._remembered[key] = make()
        return self._remembered[key]

    def allocatable(self, resource: str) -> Ints:
        """Return the allocatable amount of each leaf."""
        known = self._allocatable.get(resource)
        if known is None:
            amounts = [sum(n.allocatable.get(resource, 0) for n in leaf.nodes) for leaf in self.tree.leaves]
            known = self._allocatable[resource] = np.array(amounts, dtype=np.int64)
        return known

    def measured(self, resource: str, percentile: int) -> tuple[Ints, Ints]:
        """Return the measured amount of each leaf, and 1 for the leaves of which all nodes have samples.

        Nodes that have the resource and no sample of it are noted in `static`.
        """
        known = self._measured.get((resource, percentile))
        if known is None:
            known = self._measured[resource, percentile] = self._measure(resource, percentile)
        return known

    def _measure(self, resource: str, percentile: int) -> tuple[Ints, Ints]:
        names, leaf_of = self.remembered(_NODES, self._nodes)
        amounts, usable = np.zeros(len(self.tree), dtype=np.int64), np.ones(len(self.tree), dtype=np.int64)
        column = {node: number for number, node in enumerate(self.statistics.nodes)}
        columns = np.array([column.get(name, -1) for name in names], dtype=np.int64)
        of_node, has = self.statistics.measured(resource, percentile)
        there = columns >= 0
        there[there] = has[columns[there]]
        np.add.at(amounts, leaf_of[there], of_node[columns[there]])
        usable[leaf_of[~there]] = 0
        unknown = {names[number] for number in np.flatnonzero(~there).tolist()}
        self.static.update(
            n.name for leaf in self.tree.leaves for n in leaf.nodes if n.name in unknown and n.allocatable.get(resource)
        )
        return amounts, usable

    def _nodes(self) -> tuple[list[str], Ints]:
        """Return the names of all nodes, and the leaf of each."""
        found = [(node.name, number) for number, leaf in enumerate(self.tree.leaves) for node in leaf.nodes]
        return [name for name, _ in found], np.array([number for _, number in found], dtype=np.int64)


class Neighbours:
    """Pods by class of interference and by leaf."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[Path, int]] = {}
        self._on: dict[tuple[str, int], tuple[Tree, Ints]] = {}
        """The pods of a class on each leaf of a tree, by the tree's identity; it has the tree, so that it stays one."""

    def note(self, interference: str, leaf: Path, pods: int) -> None:
        """Add pods of a class to a leaf, named by its written values; a negative number takes them away."""
        there = self._pods.setdefault(interference, {})
        there[leaf] = there.get(leaf, 0) + pods
        for (name, _), (tree, counts) in self._on.items():
            number = tree.leaf_of(leaf) if name == interference else None
            if number is not None:
                counts[number] += pods

    def on(self, interference: str, tree: Tree) -> Ints:
        """Return the pods of a class on each leaf of a tree.  Callers must not change the array."""
        known = self._on.get((interference, id(tree)))
        if known is None:
            counts = np.zeros(len(tree), dtype=np.int64)
            for path, pods in self._pods.get(interference, {}).items():
                leaf = tree.leaf_of(path)
                if leaf is not None:
                    counts[leaf] += pods
            known = self._on[interference, id(tree)] = tree, counts
        return known[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldView:
    """The topology of a flavor as a policy sees it.  Callers must not change its arrays.

    Args:
        capacity: the free amounts now.
        start: the free amounts before the round.
        unit: the unit of the flavor; None: no pod of the batch has units.
    """

    flavor: str
    capacity: Capacity
    start: Capacity
    facts: TreeFacts
    unit: Unit | None = None
    neighbours: Neighbours = field(default_factory=Neighbours)

    @property
    def tree(self) -> Tree:
        """The domains."""
        return self.capacity.tree

    def allocatable(self, resource: str) -> Ints:
        """Return the allocatable amount of each leaf."""
        return self.facts.allocatable(resource)

    def reserved(self, resource: str) -> Ints:
        """Return the amount of each leaf that pods have reserved, those that this round has placed included."""
        found: Ints = np.maximum(self.allocatable(resource) - self._free(self.capacity, resource), 0)
        return found

    def load(self, resource: str, percentile: int) -> Ints:
        """Return the load of each leaf: what is measured and what this round has placed, or else what is reserved."""
        amounts, usable = self.facts.measured(resource, percentile)
        placed = np.maximum(self._free(self.start, resource) - self._free(self.capacity, resource), 0)
        return np.where(usable > 0, amounts + placed, self.reserved(resource))

    def use_of_one(self, pods: JudgedPods, resource: str) -> int:
        """Return what one pod is expected to use: the mean of pods of its kind, or else what it requests."""
        kind = measured_kind(pods.queue, pods.request.requests)
        mean = self.facts.statistics.mean(kind, resource)
        return pods.request.requests.get(resource, 0) if mean is None else mean

    def pods(self) -> Ints:
        """Return the number of pods on each leaf, of kqueue and of others."""
        return self.reserved(PODS)

    def fitting(self, request: PodSetRequest) -> list[Ints]:
        """Return the pods of a pod set that fit, per level and domain."""
        return pods_per_domain(self.capacity, request.shape)

    def free_units(self, level: int) -> Ints:
        """Return the free units of each domain of a level."""
        starts = self.tree.first_leaf[level]
        if self.unit is None or not len(starts):
            return np.zeros(len(starts), dtype=np.int64)
        found: Ints = np.add.reduceat(self._free(self.capacity, self.unit.resource) // self.unit.size, starts)
        return found

    def neighbours_on(self, interference: str) -> Ints:
        """Return the pods of a class of interference on each leaf."""
        return self.neighbours.on(interference, self.tree)

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what a policy has computed of the tree alone, which it computes once a round."""
        found: T = self.facts.remembered(key, make)
        return found

    def _free(self, capacity: Capacity, resource: str) -> Ints:
        row = capacity.row(resource)
        if row is None:
            return np.zeros(len(capacity.tree), dtype=np.int64)
        found: Ints = np.maximum(row, 0)
        return found
