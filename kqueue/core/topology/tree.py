"""The static side of a topology: which domains there are, in which order, and which nodes stand in them.

Leaves are sorted by their full path, so every domain of every level is a contiguous run of leaves, and a sum per
domain is one `np.add.reduceat`.  Nothing here changes after construction; free capacity lives in `capacity.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kqueue.core.topology.matching import Eligibility, NodeFilter
from kqueue.core.topology.node import HOSTNAME, NodeFacts, NodeRules, Toleration
from kqueue.core.topology.result import Path

Ints = NDArray[np.int64]

_REMEMBERED_RULES = 1024


@dataclass(frozen=True, slots=True)
class Leaf:
    """A domain of the lowest level and the nodes in it: one in a hostname topology, one or more otherwise."""

    path: Path
    nodes: tuple[NodeFacts, ...]


class Tree:
    """One flavor's domains.  Never changes, so any number of snapshots may share it.

    Level 0 is the widest, domains of a level are numbered in the order of their paths (bytewise, level by level).

    Attributes:
        levels: node label keys, widest first.
        leaves: sorted by path.
        paths: path of each leaf.
        first_leaf: per level, the first leaf of each domain.
        first_child: per level but the lowest, the first child of each domain, as a domain number of the level below.
        is_hostname: True in a hostname topology, where the written form of a leaf is its host name alone.
    """

    __slots__ = (
        "_domain_of",
        "_eligible",
        "_filter",
        "_leaf_of",
        "first_child",
        "first_leaf",
        "is_hostname",
        "leaves",
        "levels",
        "paths",
        "tolerations",
        "topology",
        "written_levels",
    )

    def __init__(
        self,
        *,
        topology: str,
        levels: Sequence[str],
        leaves: Iterable[Leaf],
        tolerations: Sequence[Toleration] = (),
    ) -> None:
        self.topology = topology
        self.levels = tuple(levels)
        self.leaves = tuple(sorted(leaves, key=lambda leaf: leaf.path))
        self.paths = tuple(leaf.path for leaf in self.leaves)
        self.tolerations = tuple(tolerations)
        self.is_hostname = self.levels[-1] == HOSTNAME
        self.written_levels = (HOSTNAME,) if self.is_hostname else self.levels
        self.first_leaf = _first_leaves(self.paths, len(self.levels))
        self.first_child = tuple(
            np.searchsorted(below, above).astype(np.int64) for above, below in pairwise(self.first_leaf)
        )
        self._domain_of: list[Ints | None] = [None] * len(self.levels)
        self._leaf_of: dict[Path, int] | None = None
        self._filter: NodeFilter | None = None
        self._eligible: dict[NodeRules, Eligibility] = {}

    def __len__(self) -> int:
        return len(self.leaves)

    @property
    def lowest(self) -> int:
        """Number of the lowest level."""
        return len(self.levels) - 1

    def domains(self, level: int) -> int:
        """How many domains `level` has."""
        return len(self.first_leaf[level])

    def path_of(self, level: int, domain: int) -> Path:
        """Full path of a domain."""
        return self.paths[int(self.first_leaf[level][domain])][: level + 1]

    def written(self, leaf: int) -> Path:
        """A leaf's values as assignments write them."""
        return self.paths[leaf][-1:] if self.is_hostname else self.paths[leaf]

    def leaf_of(self, written: Path) -> int | None:
        """The leaf that an assignment calls by these values; None when the tree has no such leaf."""
        if self._leaf_of is None:
            self._leaf_of = {self.written(i): i for i in range(len(self.leaves))}
        return self._leaf_of.get(written)

    def domain_of(self, level: int) -> Ints:
        """Per leaf, the domain of `level` that it belongs to."""
        known = self._domain_of[level]
        if known is None:
            sizes = np.diff(self.first_leaf[level], append=len(self.leaves))
            known = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
            self._domain_of[level] = known
        return known

    def leaves_of(self, level: int, domain: int) -> slice:
        """The leaves of a domain."""
        starts = self.first_leaf[level]
        end = int(starts[domain + 1]) if domain + 1 < len(starts) else len(self.leaves)
        return slice(int(starts[domain]), end)

    def children(self, level: int, domains: Ints) -> Ints:
        """All children of these domains of `level` (not the lowest), ascending, as domains of the level below."""
        starts = self.first_child[level]
        end = self.domains(level + 1)
        return np.concatenate(
            [
                np.arange(starts[d], starts[d + 1] if d + 1 < len(starts) else end, dtype=np.int64)
                for d in sorted(domains.tolist())
            ]
        )

    def eligible(self, rules: NodeRules) -> Eligibility:
        """Which leaves accept pods of these rules, and why the others do not.

        Only hostname topologies look at nodes; in all others every leaf passes.
        """
        known = self._eligible.get(rules)
        if known is not None:
            return known
        if self._filter is None:
            self._filter = NodeFilter([leaf.nodes[0] for leaf in self.leaves] if self.is_hostname else [])
        result = self._filter.check(rules, self.tolerations) if self.is_hostname else Eligibility()
        if len(self._eligible) >= _REMEMBERED_RULES:
            self._eligible.clear()
        self._eligible[rules] = result
        return result


def _first_leaves(paths: Sequence[Path], depth: int) -> tuple[Ints, ...]:
    """Per level, the numbers of the leaves whose path differs from the one before at that level or above."""
    starts: list[list[int]] = [[] for _ in range(depth)]
    previous: Path = ()
    for leaf, path in enumerate(paths):
        level = 0
        while level < len(previous) and path[level] == previous[level]:
            level += 1
            if level == depth:
                break
        for wider in range(level, depth):
            starts[wider].append(leaf)
        previous = path
    return tuple(np.array(level, dtype=np.int64) for level in starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Which nodes of a cluster make up one flavor's leaves.

    Attributes:
        leaves: as a tree takes them, in no order.
        ignored: nodes left out, by the first reason that applies: `notReady`, `unschedulable`, `flavorLabels`,
            `missingLevel`, `duplicateHostname`.
        missing_levels: usable nodes with the flavor's labels, but without some level label: the labels they lack.
        duplicates: nodes left out because a node with a smaller name has the same host name label, with that name.
    """

    leaves: tuple[Leaf, ...]
    ignored: Mapping[str, int]
    missing_levels: Mapping[str, tuple[str, ...]]
    duplicates: Mapping[str, str]


def membership(
    nodes: Iterable[NodeFacts],
    *,
    levels: Sequence[str],
    node_labels: Mapping[str, str],
    merge_duplicate_hostnames: bool = False,
) -> Membership:
    """Sort nodes into leaves.

    A node belongs to the flavor when it is usable, has every flavor label with exactly that value, and has every
    level label (an empty value will do).  Two nodes of one host name label: the smallest node name makes the leaf and
    the others are left out, unless they are to be merged, where the smallest name gives path, labels and taints.
    """
    ignored: dict[str, int] = {}
    missing_levels: dict[str, tuple[str, ...]] = {}
    duplicates: dict[str, str] = {}
    members: dict[Path, list[NodeFacts]] = {}
    is_hostname = levels[-1] == HOSTNAME
    for node in sorted(nodes, key=lambda n: n.name):
        reason = outsider(node, levels=levels, node_labels=node_labels)
        if reason is None:
            path = tuple(node.labels[level] for level in levels)
            members.setdefault(path[-1:] if is_hostname else path, []).append(node)
            continue
        ignored[reason] = ignored.get(reason, 0) + 1
        if reason == "missingLevel":
            missing_levels[node.name] = tuple(level for level in levels if level not in node.labels)
    if is_hostname and not merge_duplicate_hostnames:
        for group in members.values():
            duplicates.update((node.name, group[0].name) for node in group[1:])
            del group[1:]
        if duplicates:
            ignored["duplicateHostname"] = len(duplicates)
    leaves = tuple(Leaf(tuple(group[0].labels[level] for level in levels), tuple(group)) for group in members.values())
    return Membership(leaves=leaves, ignored=ignored, missing_levels=missing_levels, duplicates=duplicates)


def outsider(node: NodeFacts, *, levels: Sequence[str], node_labels: Mapping[str, str]) -> str | None:
    """Why a node is no part of a flavor; None when it is."""
    if not node.ready:
        return "notReady"
    if node.unschedulable:
        return "unschedulable"
    labels = node.labels
    if any(labels.get(key) != value for key, value in node_labels.items()):
        return "flavorLabels"
    if any(level not in labels for level in levels):
        return "missingLevel"
    return None
