"""One flavor with a topology: its member nodes, and the free capacity of its leaves.

Amounts are updated leaf by leaf as they change; the tree is edited, or rebuilt, when it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from kqueue.core.quantity import clamp
from kqueue.core.spares import Spare
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import HOSTNAME, NodeFacts
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Leaf, Tree, leaf_key, make_leaf, outsider
from kqueue.core.workload import Flavor
from kqueue.state.audit import STEP, Drift, chunks

Amounts = dict[str, int]
_Columns = tuple[Mapping[str, int], Mapping[str, int]]

_NOTHING: Mapping[str, int] = {}
_PASSING = ("notReady", "unschedulable")
_TAINTS_OF_OUTAGE = frozenset(
    f"node.kubernetes.io/{cause}" for cause in ("not-ready", "unreachable", "unschedulable", "out-of-service")
)
"""The taints that are removed when a node comes back."""
_FEW_LEAVES = 64  # if at most this many leaves change in a small tree, the tree is edited and not rebuilt
_SOUNDNESS_STEP = 5000  # leaves of a tree whose order one step checks: about 1 us each


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a node with a flavor's labels is not in its tree.

    `reason`: `notReady`, `unschedulable`, `missingLevel` or `duplicateHostname`, the first that applies. `detail`: the
    missing level labels, or the node that represents the host.
    """

    reason: str
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The ledger's live data that all flavors share.

    Args:
        nodes: all nodes, usable or not, by name.
        foreign: per node name, the sum of foreign pods, `pods` included.
        merge_duplicate_hostnames: nodes of one host name label share a leaf.
    """

    nodes: Mapping[str, NodeFacts]
    foreign: Mapping[str, Amounts]
    merge_duplicate_hostnames: bool


class FlavorRoom:
    """The members of a flavor and their leaves.

    Attributes:
        usage: by written domain name, the usage of workloads placed by topology; one dictionary for all flavors that
        share hosts.
        members: nodes of the flavor by name, including nodes with duplicate host names.
    """

    __slots__ = (
        "_capacity",
        "_changed_since_build",
        "_groups",
        "_outsiders",
        "_shared",
        "_shared_leaves",
        "_stale",
        "_unusable",
        "facts",
        "levels",
        "members",
        "usage",
    )

    def __init__(
        self,
        shared: Shared,
        facts: Flavor,
        levels: tuple[str, ...],
        *,
        usage: dict[Path, Amounts],
        nodes: Mapping[str, NodeFacts] | None = None,
    ) -> None:
        """`nodes`: the nodes that are read at once; None: all."""
        self._shared = shared
        self.facts = facts
        self.levels = levels
        self.usage = usage
        self.members: dict[str, NodeFacts] = {}
        self._groups: dict[Path, NodeFacts | dict[str, NodeFacts]] = {}  # by leaf; a single node without dict
        self._shared_leaves: set[Path] = set()  # leaves of several nodes
        self._outsiders: dict[str, LeftOut] = {}
        self._unusable: tuple[str, ...] | None = None  # None: not yet computed
        self._capacity: Capacity | None = None
        self._stale: set[Path] = set()  # leaves that are outdated in `_capacity`
        self._changed_since_build: set[Path] | None = None  # leaves since a build in steps began; None: no build
        self.read(shared.nodes if nodes is None else nodes)

    def read(self, nodes: Mapping[str, NodeFacts]) -> None:
        """Add many new nodes: as `on_node`, with a fast path for members, because most nodes are members."""
        wanted, needed = self.facts.node_labels.items(), frozenset(self.levels)
        for name, node in nodes.items():
            labels = node.labels
            whole = node.usable and wanted <= labels.items() and needed <= labels.keys()
            if whole or self._member(name, node) is not None:
                self._enter(leaf_key(node, self.levels), node)

    # -- events --------------------------------------------------------------------------------------------------------

    def on_node(self, name: str, facts: NodeFacts | None) -> None:
        """Follow a node's change: update the amounts of its leaf if only amounts changed, else mark the leaf for a
        rebuild.
        """
        before = self.members.pop(name, None)
        if self._outsiders.pop(name, None) is not None:
            self._unusable = None
        after = self._member(name, facts)
        if before is not None:
            self._leave(name, leaf_key(before, self.levels))
        if after is not None:
            key = leaf_key(after, self.levels)
            self._enter(key, after)
            if before is not None and before.labels == after.labels and before.taints == after.taints:
                self.refresh_domain(key)
                return
            self._mark(key)
        if before is not None:
            self._mark(leaf_key(before, self.levels))

    def _member(self, name: str, facts: NodeFacts | None) -> NodeFacts | None:
        """Return the facts of a member; None for other nodes, after recording why a node is left out."""
        if facts is None:
            return None
        why = self._left_out(facts)
        if why is None:
            return facts
        if why.reason != "flavorLabels":
            self._outsiders[name] = why
            self._unusable = None
        return None

    def _left_out(self, node: NodeFacts) -> LeftOut | None:
        reason = outsider(node, levels=self.levels, node_labels=self.facts.node_labels)
        if reason is None:
            return None
        if any(node.labels.get(key) != value for key, value in self.facts.node_labels.items()):
            reason = "flavorLabels"  # usable or not, the node belongs to other flavors
        missing = reason == "missingLevel"
        return LeftOut(reason, tuple(level for level in self.levels if level not in node.labels) if missing else ())

    def _enter(self, key: Path, node: NodeFacts) -> None:
        self.members[node.name] = node
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = node
        elif isinstance(group, dict):
            group[node.name] = node
        else:
            self._groups[key] = {group.name: group, node.name: node}
            self._shared_leaves.add(key)

    def _leave(self, name: str, key: Path) -> None:
        group = self._groups.get(key)
        if isinstance(group, dict):
            group.pop(name, None)
            if len(group) == 1:
                self._groups[key] = next(iter(group.values()))
                self._shared_leaves.discard(key)
        elif group is not None and group.name == name:
            del self._groups[key]

    def _mark(self, key: Path) -> None:
        """Mark the leaf: it must be rebuilt."""
        self._stale.add(key)
        if self._changed_since_build is not None:
            self._changed_since_build.add(key)

    def refresh_node(self, name: str) -> None:
        """Update the amounts of the node's leaf."""
        node = self.members.get(name)
        if node is not None:
            self.refresh_domain(leaf_key(node, self.levels))

    def refresh_domain(self, key: Path) -> None:
        """Update the amounts of the leaf with this written name."""
        found = self._changed(key)
        if found is not None:
            capacity, leaf = found
            free, idle = self._columns(key, capacity.tree.leaves[leaf])
            capacity.empty().replace(leaf, idle)
            capacity.replace(leaf, free)

    def refresh_usage(self, key: Path, resources: Iterable[str]) -> None:
        """Update these resources of a leaf after the usage of workloads placed by topology has changed there."""
        found = self._changed(key)
        if found is not None:
            capacity, leaf = found
            used, latest, foreign = self.usage.get(key, _NOTHING), self._shared.nodes, self._shared.foreign
            free = {resource: -used.get(resource, 0) for resource in resources}
            for node in capacity.tree.leaves[leaf].nodes:
                allocatable, taken = latest.get(node.name, node).allocatable, foreign.get(node.name, _NOTHING)
                for resource in free:
                    free[resource] += allocatable.get(resource, 0) - taken.get(resource, 0)
            capacity.put(leaf, free)

    def _changed(self, key: Path) -> tuple[Capacity, int] | None:
        """Return the present tables and the number of the leaf in them; None: there are no tables, or the leaf is not
        in them.
        """
        if self._changed_since_build is not None:
            self._changed_since_build.add(key)
        if self._capacity is None:
            return None
        leaf = self._capacity.tree.leaf_of(key)
        return None if leaf is None else (self._capacity, leaf)

    # -- queries ------------------------------------------------------------------------------------------------------

    def left_out(self) -> dict[str, LeftOut]:
        """Return the nodes with the flavor's labels that are not in its tree, by name, with the reasons."""
        found = dict(self._outsiders)
        if self.levels[-1] == HOSTNAME and not self._shared.merge_duplicate_hostnames:
            for key in self._shared_leaves:
                first, *others = sorted(self._group(key))
                found |= {name: LeftOut("duplicateHostname", (first,)) for name in others}
        return found

    def unusable(self) -> tuple[str, ...]:
        """Return the nodes with the flavor's labels that are cordoned or not ready, by name."""
        if self._unusable is None:
            self._unusable = tuple(sorted(n for n, why in self._outsiders.items() if why.reason in _PASSING))
        return self._unusable

    def spares(self, most: int) -> list[Spare]:
        """Return the nodes that would be members if they were ready and not cordoned, by name, at most `most`."""
        found: list[Spare] = []
        for name in sorted(self._outsiders):
            node = self._shared.nodes.get(name)
            if node is None or self._outsiders[name].reason not in _PASSING:
                continue
            spare = self._spare(node, self._outsiders[name].reason)
            if spare is not None:
                found.append(spare)
                if len(found) == most:
                    break
        return found

    def _spare(self, node: NodeFacts, reason: str) -> Spare | None:
        """Return a left-out node as a spare leaf; None if it would not be a member, or another node has its host."""
        taints = tuple(taint for taint in node.taints if taint.key not in _TAINTS_OF_OUTAGE)
        back = replace(node, ready=True, unschedulable=False, taints=taints)
        if self._left_out(back) is not None:
            return None
        key = leaf_key(back, self.levels)
        hostname = self.levels[-1] == HOSTNAME
        if hostname and key in self._groups and not self._shared.merge_duplicate_hostnames:
            return None
        leaf = make_leaf((back,), self.levels, self._shared.merge_duplicate_hostnames)
        free, idle = self._columns(key if key not in self._groups else (), leaf)  # usage on this host counts once
        return Spare(node=node.name, flavor=self.facts.name, reason=reason, leaf=leaf, free=free, idle=idle)

    def capacity(self) -> Capacity:
        """Return the flavor's tree with its free capacity."""
        if self._capacity is None or self._is_outdated(self._capacity):
            self._capacity = self._built()
        elif self._stale:
            self._capacity = self._edited(self._capacity, self._stale)
        self._stale.clear()
        return self._capacity

    def _is_outdated(self, capacity: Capacity) -> bool:
        """Whether so much has changed that new tables cost less than edits of the old ones."""
        return len(self._stale) > max(_FEW_LEAVES, len(capacity.tree) // 8)

    # -- tables --------------------------------------------------------------------------------------------------------

    def build_steps(self) -> Iterator[None]:
        """Update the tables in short steps; a few changed leaves are left to the next `capacity`.

        Changes during a rebuild are applied at its end.
        """
        if self._changed_since_build is not None:
            return
        if self._capacity is None or self._is_outdated(self._capacity):
            yield from self._rebuild_steps()
        while self._capacity is not None and len(self._stale) > STEP:
            some = list(islice(self._stale, STEP))
            self._capacity = self._edited(self._capacity, some)
            self._stale.difference_update(some)
            yield

    def _rebuild_steps(self) -> Iterator[None]:
        self._changed_since_build = set()
        try:
            leaves: list[Leaf] = []
            for keys in chunks(list(self._groups)):
                leaves += [self._leaf(group) for group in map(self._groups.get, keys) if group is not None]
                yield
            tree = self._tree(leaves)
            yield
            columns: list[_Columns] = []
            for numbers in chunks(range(len(tree))):
                columns += [self._columns(tree.written(number), tree.leaves[number]) for number in numbers]
                yield
            self._capacity, self._stale = _capacity(tree, columns), self._changed_since_build
        finally:
            self._changed_since_build = None

    def _built(self) -> Capacity:
        tree = self._tree([self._leaf(group) for group in self._groups.values()])
        return _capacity(tree, [self._columns(tree.written(number), leaf) for number, leaf in enumerate(tree.leaves)])

    def _tree(self, leaves: list[Leaf]) -> Tree:
        assert self.facts.topology is not None
        return Tree(topology=self.facts.topology, levels=self.levels, leaves=leaves, tolerations=self.facts.tolerations)

    def _edited(self, old: Capacity, stale: Collection[Path]) -> Capacity:
        """Return a copy of the tables in which these leaves are up to date."""
        removed = [leaf for leaf in map(old.tree.leaf_of, stale) if leaf is not None]
        groups = [group for group in map(self._groups.get, stale) if group is not None]
        added = sorted((self._leaf(group) for group in groups), key=lambda leaf: leaf.path)
        tree, edit = old.tree.edited(removed, added)
        columns = [self._columns(leaf.path[-1:] if tree.is_hostname else leaf.path, leaf) for leaf in added]
        return old.edited(tree, edit, [free for free, _ in columns], idle=[idle for _, idle in columns])

    def _leaf(self, group: NodeFacts | Mapping[str, NodeFacts]) -> Leaf:
        nodes = (group,) if isinstance(group, NodeFacts) else tuple(group.values())
        return make_leaf(nodes, self.levels, self._shared.merge_duplicate_hostnames)

    def _group(self, key: Path) -> Mapping[str, NodeFacts]:
        group = self._groups.get(key, {})
        return {group.name: group} if isinstance(group, NodeFacts) else group

    def _columns(self, key: Path, leaf: Leaf) -> _Columns:
        """Return the free amounts of a leaf, now and without workloads placed by topology."""
        idle = self._idle(leaf.nodes)
        used = self.usage.get(key)
        if not used:
            return idle, idle
        free = dict(idle)
        subtract(free, used)
        return free, idle

    def _idle(self, nodes: tuple[NodeFacts, ...]) -> Mapping[str, int]:
        """Return allocatable less foreign pods, summed over the latest facts of these nodes. Callers must not change
        it.
        """
        latest, foreign = self._shared.nodes, self._shared.foreign
        if len(nodes) == 1:
            (node,) = nodes
            allocatable, taken = latest.get(node.name, node).allocatable, foreign.get(node.name)
            if not taken:
                return allocatable
            total = dict(allocatable)
            subtract(total, taken)
            return total
        total = {}
        for node in nodes:
            for resource, amount in latest.get(node.name, node).allocatable.items():
                total[resource] = total.get(resource, 0) + amount
            subtract(total, foreign.get(node.name, {}))
        return total

    # -- audit ---------------------------------------------------------------------------------------------------------

    def audit(self) -> Iterator[list[Drift]]:
        """Compare members, tree and free amounts with the facts, a few at a time, and correct differences."""
        for names in chunks([*self._shared.nodes, *(self.members.keys() - self._shared.nodes.keys())]):
            yield [drift for name in names if (drift := self._audit_member(name)) is not None]
        tree = self.capacity().tree
        yield []
        for first in range(0, len(tree), _SOUNDNESS_STEP):
            yield self._audit_order(tree, range(first, min(first + _SOUNDNESS_STEP, len(tree))))
        keys = [*self._groups]
        keys += [key for key in map(tree.written, range(len(tree))) if key not in self._groups]
        yield []
        for some in chunks(keys):
            yield [drift for key in some if (drift := self._audit_leaf(key)) is not None]

    def _audit_member(self, name: str) -> Drift | None:
        facts, believed, noted = self._shared.nodes.get(name), self.members.get(name), self._outsiders.get(name)
        why = self._left_out(facts) if facts is not None else None
        actual = facts if why is None else None
        wanted = why if why is not None and why.reason != "flavorLabels" else None
        if believed == actual and noted == wanted:
            if actual is None or self._group(leaf_key(actual, self.levels)).get(name) == actual:
                return None
            believed = None  # a member that is in no leaf
        for node in (self.members.get(name), actual):
            if node is not None:
                self._leave(name, leaf_key(node, self.levels))
                self._mark(leaf_key(node, self.levels))
        self.on_node(name, facts)
        return Drift("tree", f"{self.facts.name}/{name}", believed or noted, actual or wanted)

    def _audit_order(self, tree: Tree, leaves: range) -> list[Drift]:
        flaw = tree.flaw(leaves)
        if flaw is None:
            return []
        if self._capacity is not None and self._capacity.tree is tree:
            self._capacity = None
        return [Drift("tree", self.facts.name, flaw, None)]

    def _audit_leaf(self, key: Path) -> Drift | None:
        for name in [name for name, node in self._group(key).items() if self.members.get(name) != node]:
            self._leave(name, key)
            self._mark(key)
            return Drift("tree", f"{self.facts.name}/{','.join(key)}", name, None)
        if self._capacity is None or key in self._stale:
            return None  # the leaf is rebuilt before its next use
        number, group = self._capacity.tree.leaf_of(key), self._groups.get(key)
        believed = self._capacity.tree.leaves[number] if number is not None else None
        actual = self._leaf(group) if group is not None else None
        if not _same_leaf(believed, actual):
            self._mark(key)
            return Drift("tree", f"{self.facts.name}/{','.join(key)}", believed, actual)
        if number is None or actual is None:
            return None
        shown = self._capacity.free(number), self._capacity.empty().free(number)
        if all(without_zeros(a) == without_zeros(b) for a, b in zip(shown, self._columns(key, actual), strict=True)):
            return None
        self.refresh_domain(key)
        healed = self._capacity.free(number), self._capacity.empty().free(number)
        return Drift("capacity", f"{self.facts.name}/{','.join(key)}", shown, healed)


def _capacity(tree: Tree, columns: list[_Columns]) -> Capacity:
    return Capacity.of_columns(tree, [free for free, _ in columns], idle=[idle for _, idle in columns])


def _same_leaf(one: Leaf | None, other: Leaf | None) -> bool:
    """Whether placement treats both leaves alike; the amounts of their nodes, which the columns have, may differ."""
    if one is None or other is None:
        return one is other
    if one.path != other.path or len(one.nodes) != len(other.nodes):
        return False
    pairs = zip(one.nodes, other.nodes, strict=True)
    return all(a is b or (a.name, a.labels, a.taints) == (b.name, b.labels, b.taints) for a, b in pairs)


def subtract(amounts: Amounts, taken: Mapping[str, int]) -> None:
    """Subtract amounts; the results may be negative."""
    for resource, amount in taken.items():
        amounts[resource] = amounts.get(resource, 0) - amount


def without_zeros(amounts: Mapping[str, int]) -> Amounts:
    """Return the amounts that are not 0, cut to 64 bits as in tables."""
    return {resource: clamp(amount) for resource, amount in amounts.items() if amount}
