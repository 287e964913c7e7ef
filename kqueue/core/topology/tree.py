"""The domains of a topology, their order, and their nodes.

Leaves are sorted by their full path, so every domain of every level is a contiguous run of leaves, and a sum per domain
is one `np.add.reduceat`.  A tree never changes after construction; `capacity.py` has the free capacity.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kqueue.core.topology.matching import Eligibility, NodeFilter
from kqueue.core.topology.node import HOSTNAME, NodeFacts, NodeRules
from kqueue.core.topology.result import Path
from kqueue.kube.taints import Toleration

Ints = NDArray[np.int64]

_REMEMBERED_RULES = 1024
_REMEMBERED_BYTES = 32 << 20  # of masks and scores, because many different rules on a large tree would add up
_LOOKUP_SHARE = 64  # a table of all leaves pays off after one lookup per this many leaves


@dataclass(frozen=True, slots=True)
class Leaf:
    """A domain of the lowest level and the nodes in it: one in a hostname topology, one or more otherwise."""

    path: Path
    nodes: tuple[NodeFacts, ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """The difference between the leaves of two trees.

    `removed` are leaf numbers of the old tree; `places` are, for each added leaf in order, the number of the remaining
    leaf that follows it. `in_place`: every added leaf has the path of a removed one, so none moved.
    """

    removed: Ints
    places: Ints
    in_place: bool = False

    def apply(self, old: NDArray[Any], added: NDArray[Any]) -> NDArray[Any]:
        """Convert a per-leaf table (leaves last) of the old tree into a table of the new tree, with `added` for the new
        leaves.
        """
        if self.in_place:
            new = old.copy()
            new[..., self.removed] = added
            return new
        return np.insert(np.delete(old, self.removed, axis=-1), self.places, added, axis=-1)

    def neighbourhood(self, size: int) -> list[int]:
        """Return new leaf numbers whose predecessor has changed."""
        news = self.places + np.arange(len(self.places))
        old = self.removed - np.arange(len(self.removed))
        after_gaps = old + np.searchsorted(self.places, old, side="right")
        return [i for i in sorted({*news.tolist(), *(news + 1).tolist(), *after_gaps.tolist()}) if i < size]


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
        "_lookups",
        "_nothing",
        "_path_of",
        "_splits",
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
        self.tolerations = tuple(tolerations)
        self.is_hostname = self.levels[-1] == HOSTNAME
        self.written_levels = (HOSTNAME,) if self.is_hostname else self.levels
        ordered = sorted(leaves, key=lambda leaf: leaf.path)
        paths = [leaf.path for leaf in ordered]
        self._adopt(ordered, paths, _splits(paths, len(self.levels)))

    def _adopt(self, leaves: Sequence[Leaf], paths: Sequence[Path], splits: NDArray[np.int8]) -> None:
        """Take these sorted leaves.  `splits`: per leaf, the first level at which it differs from the leaf before."""
        self.leaves = tuple(leaves)
        self.paths = tuple(paths)
        self._splits = splits
        depth = len(self.levels)
        self.first_leaf = tuple(np.flatnonzero(splits <= level) for level in range(depth))
        self.first_child = tuple(np.searchsorted(below, above) for above, below in pairwise(self.first_leaf))
        self._domain_of: list[Ints | None] = [None] * depth
        self._nothing: list[Ints | None] = [None] * depth
        self._leaf_of: dict[Path, int] | None = None
        self._path_of: dict[str, Path] | None = None
        self._lookups = 0
        self._filter: NodeFilter | None = None
        self._eligible: dict[NodeRules, Eligibility] = {}

    def edited(self, removed: Iterable[int], added: Iterable[Leaf]) -> tuple[Tree, Edit]:
        """Return a tree without some of this tree's leaves and with others, and the edit between both trees.

        A leaf that is to change is removed and added.  The cost is a copy of the tables, without a new sort.
        """
        gone = sorted(removed)
        new = sorted(added, key=lambda leaf: leaf.path)
        if [self.paths[number] for number in gone] == [leaf.path for leaf in new]:
            return self._replaced(gone, new)
        leaves, paths = list(self.leaves), list(self.paths)
        for number in reversed(gone):
            del leaves[number], paths[number]
        places = [bisect_left(paths, leaf.path) for leaf in new]
        for place, leaf in zip(reversed(places), reversed(new), strict=True):
            leaves.insert(place, leaf)
            paths.insert(place, leaf.path)
        edit = Edit(np.array(gone, dtype=np.int64), np.array(places, dtype=np.int64))
        splits = edit.apply(self._splits, np.zeros(len(new), dtype=np.int8))
        for i in edit.neighbourhood(len(leaves)):
            splits[i] = _first_difference(paths[i - 1], paths[i]) if i else 0
        tree = object.__new__(Tree)
        tree._follow(self)
        tree._adopt(leaves, paths, splits)
        tree._inherit_filter(self, edit, new)
        if self._path_of is not None:
            tree._path_of = dict(self._path_of)
            for number in gone:
                del tree._path_of[self.paths[number][-1]]
            tree._path_of.update((leaf.path[-1], leaf.path) for leaf in new)
        return tree, edit

    def _replaced(self, numbers: Sequence[int], leaves: Sequence[Leaf]) -> tuple[Tree, Edit]:
        """Return a tree with other leaves of the same paths at these places: it shares every table of paths with this
        tree.
        """
        tree = object.__new__(Tree)
        tree._follow(self)
        changed = list(self.leaves)
        for number, leaf in zip(numbers, leaves, strict=True):
            changed[number] = leaf
        tree.leaves = tuple(changed)
        tree.paths, tree._splits = self.paths, self._splits
        tree.first_leaf, tree.first_child, tree._domain_of = self.first_leaf, self.first_child, self._domain_of
        tree._nothing = self._nothing
        tree._leaf_of, tree._path_of, tree._lookups = self._leaf_of, self._path_of, self._lookups
        tree._filter, tree._eligible = None, {}
        places = np.array(numbers, dtype=np.int64)
        edit = Edit(places, places - np.arange(len(places)), in_place=True)
        tree._inherit_filter(self, edit, leaves)
        return tree, edit

    def _follow(self, old: Tree) -> None:
        """Take the topology of another tree; the caller sets the leaves next."""
        self.topology, self.levels, self.tolerations = old.topology, old.levels, old.tolerations
        self.is_hostname, self.written_levels = old.is_hostname, old.written_levels

    def _inherit_filter(self, old: Tree, edit: Edit, added: Sequence[Leaf]) -> None:
        if old._filter is not None:
            self._filter = old._filter.edited(edit.apply, [leaf.nodes[0] for leaf in added], self._leaf_nodes)

    def flaw(self, leaves: range) -> str | None:
        """Return a fault in the tables at these leaves as text; None: there is no fault."""
        for number in leaves:
            path, split = self.paths[number], int(self._splits[number])
            before = self.paths[number - 1] if number else None
            if before is not None and before >= path:
                return f"leaf {number} is after {','.join(before)}"
            if split != (0 if before is None else _first_difference(before, path)):
                return f"leaf {number} differs from the one before from level {split} on"
            if self.leaves[number].path != path or self.leaf_of(self.written(number)) != number:
                return f"leaf {number} is not found by its name"
        return None

    def _leaf_nodes(self) -> list[NodeFacts]:
        return [leaf.nodes[0] for leaf in self.leaves]

    def __len__(self) -> int:
        return len(self.leaves)

    @property
    def lowest(self) -> int:
        """The number of the lowest level."""
        return len(self.levels) - 1

    def domains(self, level: int) -> int:
        """Return the number of domains of `level`."""
        return len(self.first_leaf[level])

    def path_of(self, level: int, domain: int) -> Path:
        """Return the full path of a domain."""
        return self.paths[int(self.first_leaf[level][domain])][: level + 1]

    def written(self, leaf: int) -> Path:
        """Return a leaf's values in the form of assignments."""
        return self.paths[leaf][-1:] if self.is_hostname else self.paths[leaf]

    def leaf_of(self, written: Path) -> int | None:
        """Return the leaf with these values in the form of assignments; None: the tree has no such leaf."""
        if self._leaf_of is not None:
            return self._leaf_of.get(written)
        self._lookups += 1
        if self._lookups * _LOOKUP_SHARE > len(self.leaves):
            self._leaf_of = {self.written(i): i for i in range(len(self.leaves))}
            return self._leaf_of.get(written)
        return self._search(written)

    def _search(self, written: Path) -> int | None:
        """Find `leaf_of` in a tree that may soon be edited again: a search without a table of all leaves."""
        path: Path | None = written
        if self.is_hostname:
            if self._path_of is None:
                self._path_of = {path[-1]: path for path in self.paths}
            path = self._path_of.get(written[-1])
        if path is None:
            return None
        leaf = bisect_left(self.paths, path)
        return leaf if leaf < len(self.paths) and self.paths[leaf] == path else None

    def domain_of(self, level: int) -> Ints:
        """Return, per leaf, its domain of `level`."""
        known = self._domain_of[level]
        if known is None:
            sizes = np.diff(self.first_leaf[level], append=len(self.leaves))
            known = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
            self._domain_of[level] = known
        return known

    def nothing(self, level: int) -> Ints:
        """Return 0 per domain of a level. Callers must not change the array."""
        known = self._nothing[level]
        if known is None:
            known = np.zeros(self.domains(level), dtype=np.int64)
            known.setflags(write=False)
            self._nothing[level] = known
        return known

    def leaves_of(self, level: int, domain: int) -> slice:
        """Return the leaves of a domain."""
        starts = self.first_leaf[level]
        end = int(starts[domain + 1]) if domain + 1 < len(starts) else len(self.leaves)
        return slice(int(starts[domain]), end)

    def below(self, path: Path) -> range:
        """Return the leaves of the domain with this path; empty: there is no such domain."""
        depth = len(path)
        return range(
            bisect_left(self.paths, path, key=lambda leaf: leaf[:depth]),
            bisect_right(self.paths, path, key=lambda leaf: leaf[:depth]),
        )

    def children(self, level: int, domains: Ints) -> Ints:
        """Return all children of these domains of `level` (not the lowest), ascending, as domains of the level
        below.
        """
        starts = self.first_child[level]
        end = self.domains(level + 1)
        if len(domains) == 1:
            d = int(domains[0])
            return np.arange(starts[d], starts[d + 1] if d + 1 < len(starts) else end, dtype=np.int64)
        return np.concatenate(
            [
                np.arange(starts[d], starts[d + 1] if d + 1 < len(starts) else end, dtype=np.int64)
                for d in sorted(domains.tolist())
            ]
        )

    def eligible(self, rules: NodeRules) -> Eligibility:
        """Return the leaves that accept pods of these rules, and the causes that exclude the others.

        Only hostname topologies check nodes; in all others every leaf passes.
        """
        known = self._eligible.get(rules)
        if known is not None:
            return known
        if rules.avoided:
            result = self._without(rules)
        else:
            result = self._without_refused(rules) if rules.refused else self._checked(rules)
        if len(self._eligible) >= min(_REMEMBERED_RULES, max(16, _REMEMBERED_BYTES // (9 * len(self) + 1))):
            self._eligible.clear()
        self._eligible[rules] = result
        return result

    def _checked(self, rules: NodeRules) -> Eligibility:
        if not self.is_hostname:
            return Eligibility()
        if self._filter is None:
            self._filter = NodeFilter.of(self._leaf_nodes)
        return self._filter.check(rules, self.tolerations)

    def _without(self, rules: NodeRules) -> Eligibility:
        """Return the leaves without the hosts to be avoided; the other rules are checked once for all workloads of
        equal rules.
        """
        others = self.eligible(replace(rules, avoided=()))
        leaves = [self.leaf_of((host,)) for host in rules.avoided] if self.is_hostname else []
        return others.without([leaf for leaf in leaves if leaf is not None], len(self))

    def _without_refused(self, rules: NodeRules) -> Eligibility:
        """Exclude the hosts that plugins refuse, too; count each by the plugin's reason if nothing else excludes it."""
        others = self.eligible(replace(rules, refused=()))
        if not self.is_hostname:
            return others
        leaves: list[int] = []
        counts: dict[str, int] = {}
        for host, reason in rules.refused:
            leaf = self.leaf_of((host,))
            if leaf is not None and (others.mask is None or others.mask[leaf]):
                leaves.append(leaf)
                counts[reason] = counts.get(reason, 0) + 1
        without = others.without(leaves, len(self))
        return replace(without, excluded=replace(without.excluded, refused=counts))


def _splits(paths: Sequence[Path], depth: int) -> NDArray[np.int8]:
    """Return, per path, the first level at which it differs from the path before; 0 for the first path."""
    splits = np.full(len(paths), depth, dtype=np.int8)
    for level, values in reversed(list(enumerate(zip(*paths, strict=True)))):
        column = np.array(values, dtype=object)
        splits[1:][column[1:] != column[:-1]] = level
    splits[:1] = 0
    return splits


def _first_difference(before: Path, path: Path) -> int:
    """Return the first level at which two different paths differ; 0 if there is no path before."""
    level = 0
    for a, b in zip(before, path, strict=False):
        if a != b:
            break
        level += 1
    return level


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The nodes of a cluster that make up one flavor's leaves.

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

    A node belongs to the flavor when it is usable, has every flavor label with exactly that value, and has every level
    label (an empty value will do).  If several nodes have the same host name label, the node with the smallest name
    makes the leaf and the others are left out; if they are merged, the smallest name gives path, labels and taints.
    """
    ignored: dict[str, int] = {}
    missing_levels: dict[str, tuple[str, ...]] = {}
    members: dict[Path, list[NodeFacts]] = {}
    for node in nodes:
        reason = outsider(node, levels=levels, node_labels=node_labels)
        if reason is None:
            members.setdefault(leaf_key(node, levels), []).append(node)
            continue
        ignored[reason] = ignored.get(reason, 0) + 1
        if reason == "missingLevel":
            missing_levels[node.name] = tuple(level for level in levels if level not in node.labels)
    leaves = [make_leaf(group, levels, merge_duplicate_hostnames) for group in members.values()]
    duplicates = {
        node.name: leaf.nodes[0].name
        for leaf, group in zip(leaves, members.values(), strict=True)
        if len(leaf.nodes) < len(group)
        for node in group
        if node.name != leaf.nodes[0].name
    }
    if duplicates:
        ignored["duplicateHostname"] = len(duplicates)
    return Membership(leaves=tuple(leaves), ignored=ignored, missing_levels=missing_levels, duplicates=duplicates)


def leaf_key(node: NodeFacts, levels: Sequence[str]) -> Path:
    """Return the key that nodes of one leaf share: the host name if that is the lowest level, else the full path."""
    if levels[-1] == HOSTNAME:
        return (node.labels[HOSTNAME],)
    return tuple([node.labels[level] for level in levels])


def make_leaf(nodes: Sequence[NodeFacts], levels: Sequence[str], merge_duplicate_hostnames: bool) -> Leaf:
    """Return the leaf of all nodes with one `leaf_key`.  The smallest name comes first and gives the path."""
    ordered = tuple(sorted(nodes, key=lambda node: node.name)) if len(nodes) > 1 else tuple(nodes)
    if levels[-1] == HOSTNAME and not merge_duplicate_hostnames:
        ordered = ordered[:1]
    return Leaf(tuple([ordered[0].labels[level] for level in levels]), ordered)


def outsider(node: NodeFacts, *, levels: Sequence[str], node_labels: Mapping[str, str]) -> str | None:
    """Return why a node is not part of a flavor; None: it is part of the flavor."""
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
