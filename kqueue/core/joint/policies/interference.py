"""Policy `interference`: away from pods that disturb each other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from kqueue.core.joint.policy import BasePolicy, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.tree import Ints

MOST_NAMES = 16


class InterferencePolicy(BasePolicy):
    """Away from pods that disturb each other: a pod costs the sum of its points with each pod of its host.

    `matrix` has the points for two classes of interference; a pair that it has in one order only counts in both.
    """

    depth = Depth.HOST

    def __init__(self, matrix: Mapping[str, Mapping[str, int]] | None = None) -> None:
        self._matrix = matrix or {}
        names = {*self._matrix, *(name for row in self._matrix.values() for name in row)}
        if len(names) > MOST_NAMES:
            raise ValueError(f"matrix names {len(names)} classes, and may name {MOST_NAMES}")
        self._names = sorted(names)

    def key(self, pods: JudgedPods) -> Hashable:
        """See the class of interference."""
        return pods.traits.interference

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints | None:
        """Return the points with the pods on each leaf, and with those of the same workload before the n-th."""
        mine = pods.traits.interference
        if mine not in self._names:
            return None
        costs = np.full(len(view.tree), (nth - 1) * self._points(mine, mine), dtype=np.int64)
        for name in self._names:
            points = self._points(mine, name)
            if points:
                costs += points * view.neighbours_on(name)
        return costs

    def _points(self, one: str, other: str) -> int:
        row = self._matrix.get(one, {})
        return row[other] if other in row else self._matrix.get(other, {}).get(one, 0)
