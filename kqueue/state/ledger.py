"""The node ledger: which nodes there are, who takes what on them, and what each flavor therefore has free.

Fed by watch events, before anything is queued.  Every change is a plain function call, so on one event loop it is
atomic.  What is believed is kept as exact integers per node and per domain; tables for placement are derived from
these, leaf by leaf as they change, and whole only when the set of nodes of a flavor changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kqueue.core.topology.assignment import TopologyAssignment
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import HOSTNAME, PODS, NodeFacts, PodFacts
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Leaf, Membership, Tree, leaf_key, make_leaf, membership, outsider
from kqueue.core.workload import Flavor

Amounts = dict[str, int]

_FEW_LEAVES = 64  # up to this many leaves of a small tree are edited rather than the tree built anew


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedUsage:
    """One pod set's pods in one flavor.

    Args:
        requests: per pod, of the template in the Workload, without `pods` (not the admission's `resourceUsage`, which
            quota rules may have transformed).
    """

    flavor: str
    assignment: TopologyAssignment
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference between what is believed and what is true.

    `cause`: `node`, `pod`, `usage`, `foreign` (sum of foreign pods of a node), `domain` (usage sum of a domain), `tree`
    (levels and leaf paths) or `capacity` (of a leaf: free, and free without usage).  `key` names the thing; None stands
    for "not there".
    """

    cause: str
    key: str
    believed: object
    actual: object


class NodeLedger:
    """What is believed about nodes, foreign pods and usage by topology.  Mutable, changed by plain calls only.

    Args:
        merge_duplicate_hostnames: nodes of one host name label share a leaf, instead of all but the first being left
            out (for synthetic loads that reuse host names).
        share_hosts: flavors whose leaves are hosts see each other's usage.
    """

    def __init__(self, *, merge_duplicate_hostnames: bool = False, share_hosts: bool = True) -> None:
        self._merge = merge_duplicate_hostnames
        self._share_hosts = share_hosts
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, PodFacts] = {}
        self._foreign: dict[str, Amounts] = {}
        self._topologies: dict[str, tuple[str, ...]] = {}
        self._flavors: dict[str, Flavor] = {}
        self._usages: dict[str, tuple[AssignedUsage, ...]] = {}
        self._host_usage: dict[Path, Amounts] = {}
        self._rooms: dict[str, _Room] = {}
        self._generation = 0

    @property
    def generation(self) -> int:
        """Grows with every change that placement could notice.  Heartbeats of nodes leave it as it is."""
        return self._generation

    # -- events --------------------------------------------------------------------------------------------------------

    def on_node(self, name: str, facts: NodeFacts | None) -> bool:
        """A node was seen, or is gone (None).  True: something that placement looks at has changed."""
        before = self._nodes.get(name)
        if before == facts:
            return False
        if facts is None:
            del self._nodes[name]
        else:
            self._nodes[name] = facts
        for room in self._rooms.values():
            room.on_node(name, facts)
        self._generation += 1
        return True

    def on_pod(self, key: str, facts: PodFacts | None) -> set[str]:
        """A foreign pod was seen; None: it is gone, terminal, or no foreign pod any more.

        Returns:
            Nodes on which something became free: the pod left, moved away, or asks for less.
        """
        before = self._pods.get(key)
        if before == facts:
            return set()
        touched = {pod.node for pod in (before, facts) if pod is not None}
        if before is not None:
            self._add_foreign(before, -1)
            del self._pods[key]
        if facts is not None:
            self._add_foreign(facts, 1)
            self._pods[key] = facts
        for node in touched:
            for room in self._rooms.values():
                room.refresh_node(node)
        self._generation += 1
        return {before.node} if before is not None and _frees(before, facts) else set()

    def on_topology(self, name: str, levels: Sequence[str] | None) -> None:
        """A Topology was seen with these levels, or is gone (None)."""
        wanted = tuple(levels) if levels is not None else None
        if self._topologies.get(name) == wanted:
            return
        if wanted is None:
            del self._topologies[name]
        else:
            self._topologies[name] = wanted
        self._open_rooms([flavor for flavor, facts in self._flavors.items() if facts.topology == name])

    def on_flavor(self, name: str, facts: Flavor | None) -> None:
        """A ResourceFlavor was seen, or is gone (None)."""
        if self._flavors.get(name) == facts:
            return
        if facts is None:
            del self._flavors[name]
        else:
            self._flavors[name] = facts
        self._open_rooms([name])

    def add_usage(self, workload: str, usages: Iterable[AssignedUsage]) -> None:
        """The workload holds these domains.  Whatever it held before is given back first.

        Usage in a flavor that has no topology yet is kept, and counts as soon as it has one.
        """
        self.remove_usage(workload)
        held = tuple(usages)
        if not held:
            return
        self._usages[workload] = held
        for usage in held:
            self._count_usage(usage, 1)
        self._generation += 1

    def remove_usage(self, workload: str) -> bool:
        """The workload holds nothing any more.  False: it held nothing before."""
        held = self._usages.pop(workload, None)
        if held is None:
            return False
        for usage in held:
            self._count_usage(usage, -1)
        self._generation += 1
        return True

    # -- questions -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Capacity]:
        """Per flavor with a topology, its tree and what is free, independent of later changes here."""
        return {flavor: room.capacity().fork() for flavor, room in self._rooms.items()}

    def capacity(self, flavor: str) -> Capacity | None:
        """What the flavor has free now; changes with the ledger.  None: the flavor or its Topology is not known."""
        room = self._rooms.get(flavor)
        return None if room is None else room.capacity()

    def tree(self, flavor: str) -> Tree | None:
        """The flavor's domains now.  None: the flavor or its Topology is not known."""
        capacity = self.capacity(flavor)
        return None if capacity is None else capacity.tree

    def flavors_of(self, node: str) -> list[str]:
        """Flavors that this node is part of, by name."""
        return sorted(flavor for flavor, room in self._rooms.items() if node in room.members)

    def membership(self, flavor: str) -> Membership | None:
        """Which nodes make the flavor's leaves, and which are left out and why: without a level label, or with a host
        name label that another node has.  None: the flavor or its Topology is not known.
        """
        room = self._rooms.get(flavor)
        if room is None:
            return None
        return membership(
            self._nodes.values(),
            levels=room.levels,
            node_labels=room.facts.node_labels,
            merge_duplicate_hostnames=self._merge,
        )

    def holders(self, flavor: str, domain: Path) -> dict[str, int]:
        """Workloads with pods below a domain (full path of any level) of the flavor, with the number of pods."""
        room = self._rooms.get(flavor)
        if room is None:
            return {}
        tree, found = room.capacity().tree, dict[str, int]()
        for workload, usages in self._usages.items():
            for usage in usages:
                for item in usage.assignment.domains if self._meets(usage.flavor, room) else ():
                    leaf = tree.leaf_of(_written(usage.assignment, item.values))
                    if leaf is not None and tree.paths[leaf][: len(domain)] == domain:
                        found[workload] = found.get(workload, 0) + item.count
        return found

    def free_by_node(self) -> dict[str, Amounts]:
        """Of every usable node: allocatable, less foreign pods, less usage by topology that names its host.

        Usage of topologies without host names belongs to no single node and is not in it.
        """
        free: dict[str, Amounts] = {}
        for name, node in self._nodes.items():
            if node.usable:
                amounts = dict(node.allocatable)
                _subtract(amounts, self._foreign.get(name, {}))
                host = node.labels.get(HOSTNAME)
                if host is not None:
                    _subtract(amounts, self._host_usage.get((host,), {}))
                free[name] = amounts
        return free

    # -- audit ---------------------------------------------------------------------------------------------------------

    def rebuilt(self) -> NodeLedger:
        """A new ledger from the facts that this one was told, with every sum made anew."""
        fresh = NodeLedger(merge_duplicate_hostnames=self._merge, share_hosts=self._share_hosts)
        for topology, levels in self._topologies.items():
            fresh.on_topology(topology, levels)
        for flavor, facts in self._flavors.items():
            fresh.on_flavor(flavor, facts)
        for node in self._nodes.values():
            fresh.on_node(node.name, node)
        for key, pod in self._pods.items():
            fresh.on_pod(key, pod)
        for workload, usages in self._usages.items():
            fresh.add_usage(workload, usages)
        return fresh

    def audit(self, truth: NodeLedger | None = None) -> list[Drift]:
        """Compare with `truth`, a ledger fed from a fresh list; None: with this ledger's own facts, summed anew.

        Empty: nothing has drifted.  The caller heals by going on with `truth`.
        """
        actual = (truth if truth is not None else self.rebuilt()).beliefs()
        believed = self.beliefs()
        return [
            Drift(cause, key, believed.get((cause, key)), actual.get((cause, key)))
            for cause, key in sorted({*believed, *actual})
            if believed.get((cause, key)) != actual.get((cause, key))
        ]

    def beliefs(self) -> dict[tuple[str, str], object]:
        """Everything that is held here or derived from it, by (cause as in `Drift`, key)."""
        held: dict[tuple[str, str], object] = {("node", name): node for name, node in self._nodes.items()}
        held |= {("pod", key): pod for key, pod in self._pods.items()}
        held |= {("usage", workload): usages for workload, usages in self._usages.items()}
        held |= {("foreign", node): amounts for node, amounts in self._foreign.items()}
        for flavor, room in self._rooms.items():
            capacity = room.capacity()
            held["tree", flavor] = (capacity.tree.levels, capacity.tree.paths)
            held |= {("domain", f"{flavor}/{','.join(path)}"): amounts for path, amounts in room.usage.items()}
            for leaf, path in enumerate(capacity.tree.paths):
                free, idle = _without_zeros(capacity.free(leaf)), _without_zeros(capacity.empty().free(leaf))
                held["capacity", f"{flavor}/{','.join(path)}"] = (free, idle)
        return held

    # -- sums ----------------------------------------------------------------------------------------------------------

    def _add_foreign(self, pod: PodFacts, sign: int) -> None:
        total = self._foreign.setdefault(pod.node, {})
        _accumulate(total, pod.requests, sign)
        _accumulate(total, ((PODS, 1),), sign)
        if not total:
            del self._foreign[pod.node]

    def _count_usage(self, usage: AssignedUsage, sign: int) -> None:
        room = self._rooms.get(usage.flavor)
        if room is None:
            return
        for domain in usage.assignment.domains:
            key = _written(usage.assignment, domain.values)
            total = room.usage.setdefault(key, {})
            _accumulate(total, usage.requests.items(), sign * domain.count)
            _accumulate(total, ((PODS, 1),), sign * domain.count)
            if not total:
                del room.usage[key]
            for other in self._rooms.values():
                if other.usage is room.usage:
                    other.refresh_domain(key)

    def _meets(self, flavor: str, room: _Room) -> bool:
        """Whether usage in `flavor` counts in `room`."""
        other = self._rooms.get(flavor)
        return other is not None and other.usage is room.usage

    def _open_rooms(self, flavors: Iterable[str]) -> None:
        """Make the rooms of these flavors anew, and count all usage again: what it meets may have changed."""
        for name in flavors:
            self._rooms.pop(name, None)
            facts = self._flavors.get(name)
            levels = self._topologies.get(facts.topology) if facts is not None and facts.topology is not None else None
            if facts is not None and levels is not None:
                shared = self._share_hosts and levels[-1] == HOSTNAME
                self._rooms[name] = _Room(self, facts, levels, usage=self._host_usage if shared else {})
        self._host_usage.clear()
        for room in self._rooms.values():
            room.usage.clear()
            room.forget()
        for usages in self._usages.values():
            for usage in usages:
                self._count_usage(usage, 1)
        self._generation += 1

    def column(self, nodes: Iterable[NodeFacts]) -> Amounts:
        """Allocatable less foreign pods, summed over nodes, as the latest facts have them."""
        total: Amounts = {}
        for node in nodes:
            for resource, amount in self._nodes.get(node.name, node).allocatable.items():
                total[resource] = total.get(resource, 0) + amount
            _subtract(total, self._foreign.get(node.name, {}))
        return total

    @property
    def nodes(self) -> Mapping[str, NodeFacts]:
        """All nodes, usable or not, by name."""
        return self._nodes

    @property
    def merges_duplicates(self) -> bool:
        """Whether nodes of one host name label share a leaf."""
        return self._merge


class _Room:
    """One flavor with a topology: its member nodes, and a capacity that is brought up to date when it is asked for."""

    __slots__ = ("_capacity", "_ledger", "_stale", "facts", "groups", "levels", "members", "usage")

    def __init__(
        self, ledger: NodeLedger, facts: Flavor, levels: tuple[str, ...], *, usage: dict[Path, Amounts]
    ) -> None:
        self._ledger = ledger
        self.facts = facts
        self.levels = levels
        self.usage = usage
        self.members: dict[str, NodeFacts] = {}
        self.groups: dict[Path, dict[str, NodeFacts]] = {}
        self._capacity: Capacity | None = None
        self._stale: set[Path] = set()
        for name, node in ledger.nodes.items():
            self.on_node(name, node)

    def forget(self) -> None:
        """Drop the derived tables; they are made anew when asked for."""
        self._capacity = None

    def on_node(self, name: str, facts: NodeFacts | None) -> None:
        """Take in a node's change: one column when only amounts changed, else a leaf that is no longer right."""
        before = self.members.pop(name, None)
        after = facts if facts is not None and self._takes(facts) else None
        if before is not None:
            self._regroup(leaf_key(before, self.levels), name, None)
        if after is not None:
            key = leaf_key(after, self.levels)
            self.members[name] = after
            self._regroup(key, name, after)
            if before is not None and before.labels == after.labels and before.taints == after.taints:
                self.refresh_domain(key)
                return
            self._stale.add(key)
        if before is not None:
            self._stale.add(leaf_key(before, self.levels))

    def _takes(self, node: NodeFacts) -> bool:
        return outsider(node, levels=self.levels, node_labels=self.facts.node_labels) is None

    def _regroup(self, key: Path, name: str, node: NodeFacts | None) -> None:
        if node is not None:
            self.groups.setdefault(key, {})[name] = node
            return
        del self.groups[key][name]
        if not self.groups[key]:
            del self.groups[key]

    def refresh_node(self, name: str) -> None:
        """What is free on the node's leaf has changed."""
        node = self.members.get(name)
        if node is not None and self._capacity is not None:
            self.refresh_domain(leaf_key(node, self.levels))

    def refresh_domain(self, key: Path) -> None:
        """What is free in the leaf of this written name has changed."""
        if self._capacity is None:
            return
        leaf = self._capacity.tree.leaf_of(key)
        if leaf is None:
            return
        free, idle = self._columns(key, self._capacity.tree.leaves[leaf])
        self._capacity.empty().replace(leaf, idle)
        self._capacity.replace(leaf, free)

    def _columns(self, key: Path, leaf: Leaf) -> tuple[Amounts, Amounts]:
        """What is free in a leaf, and what would be without workloads placed by topology."""
        idle = self._ledger.column(leaf.nodes)
        free = dict(idle)
        _subtract(free, self.usage.get(key, {}))
        return free, idle

    def capacity(self) -> Capacity:
        """The flavor's tree with what is free."""
        if self._capacity is None or len(self._stale) > max(_FEW_LEAVES, len(self._capacity.tree) // 8):
            self._capacity = self._built()
        elif self._stale:
            self._capacity = self._edited(self._capacity)
        self._stale.clear()
        return self._capacity

    def _built(self) -> Capacity:
        assert self.facts.topology is not None
        tree = Tree(
            topology=self.facts.topology,
            levels=self.levels,
            leaves=[self._leaf(group) for group in self.groups.values()],
            tolerations=self.facts.tolerations,
        )
        columns = [self._columns(tree.written(number), leaf) for number, leaf in enumerate(tree.leaves)]
        return Capacity.of_columns(tree, [free for free, _ in columns], idle=[idle for _, idle in columns])

    def _edited(self, old: Capacity) -> Capacity:
        removed = [leaf for leaf in map(old.tree.leaf_of, self._stale) if leaf is not None]
        groups = [group for group in map(self.groups.get, self._stale) if group is not None]
        added = sorted((self._leaf(group) for group in groups), key=lambda leaf: leaf.path)
        tree, edit = old.tree.edited(removed, added)
        columns = [self._columns(leaf.path[-1:] if tree.is_hostname else leaf.path, leaf) for leaf in added]
        return old.edited(tree, edit, [free for free, _ in columns], idle=[idle for _, idle in columns])

    def _leaf(self, group: Mapping[str, NodeFacts]) -> Leaf:
        return make_leaf(list(group.values()), self.levels, self._ledger.merges_duplicates)


def _written(assignment: TopologyAssignment, values: Path) -> Path:
    """The name of a domain in usage sums: the host alone where the assignment names hosts."""
    return values[-1:] if assignment.levels[-1] == HOSTNAME else values


def _accumulate(total: Amounts, amounts: Iterable[tuple[str, int]], factor: int) -> None:
    """Add factor x amounts to `total`; what comes to nothing is not kept, so that equal sums are equal values."""
    for resource, amount in amounts:
        value = total.get(resource, 0) + amount * factor
        if value:
            total[resource] = value
        else:
            total.pop(resource, None)


def _subtract(amounts: Amounts, taken: Mapping[str, int]) -> None:
    for resource, amount in taken.items():
        amounts[resource] = amounts.get(resource, 0) - amount


def _frees(before: PodFacts, after: PodFacts | None) -> bool:
    if after is None or after.node != before.node:
        return True
    asked = dict(after.requests)
    return any(asked.get(resource, 0) < amount for resource, amount in before.requests)


def _without_zeros(amounts: Amounts) -> Amounts:
    return {resource: amount for resource, amount in amounts.items() if amount}
