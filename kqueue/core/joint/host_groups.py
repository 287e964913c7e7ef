"""Groups of hosts: the lowest nodes of a network whose policies look at hosts.

Leaves of one domain with equal free units are one node where no class tells them apart, so a network has few nodes
for many equal hosts.  A cost that grows with the pods of a host is a sequence of arcs behind the group.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kqueue.core.joint.costs import PLACE_MAX
from kqueue.core.joint.policy import NEVER
from kqueue.core.topology.tree import Ints


@dataclass(frozen=True, slots=True, eq=False)
class HostGroups:
    """The groups of the leaves of a tree, numbered by their first leaf.

    Args:
        order: the leaves, group by group, in path order inside a group.
        starts: the place of the first leaf of each group in `order`.
        parents: the lowest domain of the network that has the group.
        free: the free units of each group.
        steps: capacity and points per unit, by group, of the arcs behind the groups; costs never fall.
    """

    order: Ints
    starts: Ints
    parents: Ints
    free: Ints
    steps: Sequence[tuple[Ints, Ints]]

    @classmethod
    def of(
        cls, parents: Ints, free: Ints, seen: Iterable[Ints], growing: Sequence[Ints] = (), size: int = 1
    ) -> HostGroups:
        """Return the groups of leaves.

        Args:
            parents: of each leaf, the lowest domain of the network.
            free: the free units of each leaf.
            seen: what classes see of each leaf: leaves that differ there are in different groups.
            growing: the points per unit of the first, second ... pod on each leaf.
            size: the units of such a pod.
        """
        ids = _refined(np.zeros(len(parents), dtype=np.int64), [parents, free, *seen, *growing])
        first = np.unique(ids, return_index=True)[1]
        ids = np.argsort(np.argsort(first))[ids]
        order = np.argsort(ids, kind="stable")
        starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
        found = cls(order, starts, parents[order[starts]], np.zeros(0, dtype=np.int64), ())
        units = found.sums(free)
        return cls(order, starts, found.parents, units, found._steps_of(units, growing, size))

    def __len__(self) -> int:
        return len(self.starts)

    def sums(self, of_leaves: Ints) -> Ints:
        """Return the sum of a value of leaves, by group."""
        found: Ints = np.add.reduceat(of_leaves[self.order], self.starts) if len(self.starts) else of_leaves[:0]
        return found

    def firsts(self, of_leaves: Ints) -> Ints:
        """Return the value of the first leaf of each group: that of all its leaves, if the groups see the value."""
        found: Ints = of_leaves[self.order[self.starts]]
        return found

    def leaves(self, group: int) -> list[int]:
        """Return the leaves of a group in path order."""
        end = int(self.starts[group + 1]) if group + 1 < len(self.starts) else len(self.order)
        found: list[int] = self.order[int(self.starts[group]) : end].tolist()
        return found

    def grows(self, group: int) -> bool:
        """Whether further pods on a leaf of the group cost more."""
        return any(int(costs[group]) > 0 for _, costs in self.steps)

    def _steps_of(self, units: Ints, growing: Sequence[Ints], size: int) -> list[tuple[Ints, Ints]]:
        """Return the arcs behind the groups: each step has room for one pod on each leaf, the last one for the rest."""
        if not growing:
            return [(units, np.zeros(len(units), dtype=np.int64))]
        left, found = units.copy(), list[tuple[Ints, Ints]]()
        numbers = np.diff(self.starts, append=len(self.order))
        before = base = self.firsts(growing[0])
        for number, row in enumerate(growing):
            before = np.maximum(before, self.firsts(row))
            costs = np.where(base == NEVER, 0, np.clip(before - base, 0, PLACE_MAX))
            capacities = left.copy() if number == len(growing) - 1 else np.minimum(left, numbers * size)
            left -= capacities
            found.append((capacities, costs))
        return found


def _refined(ids: Ints, rows: Iterable[Ints]) -> Ints:
    """Return numbers that are equal for two places where the old numbers and all rows are equal."""
    known = set[bytes]()
    for row in rows:
        if row.tobytes() in known:
            continue
        known.add(row.tobytes())
        codes = np.unique(row, return_inverse=True)[1].reshape(-1)
        ids = np.unique(ids * (len(row) + 1) + codes, return_inverse=True)[1].reshape(-1)
    return ids


class Seats:
    """Turns the units that a flow sends to groups into pods on leaves; classes come one after the other."""

    def __init__(self, groups: HostGroups, free: Ints) -> None:
        """Take the groups, and the free units of each leaf."""
        self._groups, self._free = groups, free
        self._left = free.copy()

    def take(self, group: int, pods: int, size: int, fits: Ints) -> dict[int, int]:
        """Return so many pods of `size` units by leaf, as far as the leaves have room; this room is used up.

        Where further pods on a leaf cost more, each pod goes to the leaf with the fewest units taken; otherwise leaves
        are filled in path order.  `fits`: the pods of the class that fit on each leaf.
        """
        found: dict[int, int] = {}
        leaves = self._groups.leaves(group)
        if not self._groups.grows(group):
            for leaf in leaves:
                taken = min(pods, int(fits[leaf]), int(self._left[leaf]) // size)
                if taken > 0:
                    found[leaf] = taken
                    pods -= taken
                    self._left[leaf] -= taken * size
            return found
        heap = [(int(self._free[leaf] - self._left[leaf]), leaf) for leaf in leaves]
        heapq.heapify(heap)
        while pods and heap:
            taken, leaf = heapq.heappop(heap)
            if found.get(leaf, 0) >= fits[leaf] or self._left[leaf] < size:
                continue
            found[leaf] = found.get(leaf, 0) + 1
            self._left[leaf] -= size
            pods -= 1
            heapq.heappush(heap, (taken + size, leaf))
        return found
