"""Policy `locality`: near the data of a workload, for which it waits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial

import numpy as np

from kqueue.core.joint.policy import BasePolicy, Depth, widest_difference
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.tree import Ints, Tree

PER_LEVEL = (300, 60, 1)
WAIT_FACTOR = 1000


class LocalityPolicy(BasePolicy):
    """Near the preferred place: elsewhere, a unit costs the points of the widest level that it leaves.

    A workload waits for places that cost more than the seconds it has waited, times `wait_factor` thousandths.
    """

    depth = Depth.HOST

    def __init__(self, per_level: Sequence[int] = PER_LEVEL, wait_factor: int = WAIT_FACTOR) -> None:
        self._per_level, self._wait_factor = tuple(per_level), wait_factor

    def key(self, pods: JudgedPods) -> Hashable:
        """See the preferred place."""
        return pods.traits.prefers

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints | None:
        """Return the cost of each leaf; None: the topology does not have the preferred place."""
        prefers = pods.traits.prefers
        return view.remembered((self, prefers), partial(self._costs, prefers, view.tree)) if prefers else None

    def _costs(self, prefers: Iterable[tuple[str, str]], tree: Tree) -> Ints | None:
        wishes = dict(prefers)
        if not wishes.keys() <= set(tree.levels):
            return None
        deepest = max(tree.levels.index(level) for level in wishes)
        wanted = [(tree.levels.index(level), value) for level, value in wishes.items()]
        there = [n for n in tree.first_leaf[deepest].tolist() if all(tree.paths[n][i] == v for i, v in wanted)]
        if not there:
            return None
        costs = np.full(len(tree), widest_difference(self._per_level, 0), dtype=np.int64)
        for level in range(deepest + 1):
            domain_of = tree.domain_of(level)
            inside = np.isin(domain_of, domain_of[there])
            costs[inside] = widest_difference(self._per_level, level + 1) if level < deepest else 0
        return costs

    def patience(self, pods: JudgedPods, view: WorldView) -> int | None:
        """Return the seconds that the workload has waited, times the factor."""
        return pods.waited * self._wait_factor // 1000 if pods.traits.prefers else None
