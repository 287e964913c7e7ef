"""Hosts that are closed to pods of a workload because of other pods of the same workload."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from kqueue.core.topology.counting import NOWHERE, Closed
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.topology.result import Path, PodSetPlacement
from kqueue.core.topology.tree import Ints, Tree


class NeighbourHosts:
    """The hosts of a workload's pods, for rules that keep its other pods off these hosts."""

    __slots__ = ("_paths", "_tree")

    def __init__(self, tree: Tree, paths: Mapping[str, Collection[Path]]) -> None:
        """Start with `paths`: the domains of each pod set that has pods already."""
        self._tree = tree
        self._paths: dict[str, set[Path]] = {name: set(there) for name, there in paths.items()} if paths else {}

    def add(self, placed: Sequence[PodSetPlacement]) -> None:
        """Add the domains of pod sets that are placed now."""
        for pod_set in placed:
            self._paths.setdefault(pod_set.name, set()).update(pod_set.paths)

    def closed(self, workers: PodSetRequest, leader: PodSetRequest | None) -> Closed:
        """Return the leaves that are closed to the workers, or to the leader."""
        if not self._paths or not self._tree.is_hostname:
            return NOWHERE
        return Closed(self._kept_off(workers), NOWHERE.leader if leader is None else self._kept_off(leader))

    def _kept_off(self, pod_set: PodSetRequest) -> Ints:
        if not pod_set.apart:
            return NOWHERE.workers
        paths = (path for name in pod_set.apart for path in self._paths.get(name, ()))
        leaves = {leaf for path in paths if (leaf := self._tree.leaf_of(path[-1:])) is not None}
        return np.array(sorted(leaves), dtype=np.int64)
