"""The node ledger: the nodes, the usage on them, and the free capacity of each flavor.

Watch events update it before any queue is informed. Every change is a plain function call, so on one event loop it is
atomic. Usage is stored as exact integers per node and per domain. The tables for placement are derived from these
integers: one leaf is updated when it changes, and a whole table is rebuilt only when the set of nodes of a flavor
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.spares import Spare
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import HOSTNAME, PODS, NodeFacts, PodFacts
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value
from kqueue.core.workload import Flavor
from kqueue.state.audit import Drift, Recounts, accumulate, chunks
from kqueue.state.bound_pods import BoundPods, HeldAmounts, amounts_of, place_of
from kqueue.state.flavor_room import Amounts, FlavorRoom, LeftOut, Shared, without_zeros
from kqueue.state.host_holders import HostHolders

K = TypeVar("K")


@value(kw_only=True)
class AssignedUsage:
    """One pod set's pods in one flavor.

    Args:
        requests: per pod, of the template in the Workload, without `pods` (not the admission's `resourceUsage`, which
            quota rules may have transformed).
    """

    flavor: str
    assignment: TopologyAssignment
    requests: Mapping[str, int]


class NodeLedger:
    """Nodes, bound pods and usage by topology.  Mutable, changed by plain calls only.

    Args:
        merge_duplicate_hostnames: nodes with equal host name labels share a leaf; otherwise all but the first are left
        out (for synthetic loads that reuse host names).
        share_hosts: flavors whose leaves are hosts see each other's usage.
    """

    def __init__(self, *, merge_duplicate_hostnames: bool = False, share_hosts: bool = True) -> None:
        self._share_hosts = share_hosts
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, PodFacts] = {}
        self._foreign: dict[str, Amounts] = {}
        self._topologies: dict[str, tuple[str, ...]] = {}
        self._flavors: dict[str, Flavor] = {}
        self._usages: dict[str, tuple[AssignedUsage, ...]] = {}
        self._pods_of: dict[str, str] = {}
        """Workloads with usage by the name by which their pods are found, and that name by workload."""
        self._workloads_of: dict[str, set[str]] = {}
        self._host_usage: dict[Path, Amounts] = {}
        self._rooms: dict[str, FlavorRoom] = {}
        self._sharing_cache: dict[str, tuple[FlavorRoom, ...]] = {}  # the result of `_sharing` for these rooms
        self._shared = Shared(
            nodes=self._nodes, foreign=self._foreign, merge_duplicate_hostnames=merge_duplicate_hostnames
        )
        self._bound = BoundPods(self._nodes, self._charge_pods, self._held_for)
        self._freed: set[str] = set()
        self._foreign_recounts = Recounts(_taken_on_node)
        self._usage_recounts = Recounts(_taken_in_domains)
        self._generation = 0
        self.holders_on = HostHolders()
        """The workloads on hosts that are reserved."""
        self.node_generation = 0
        """Grows with every change of a node, and of the flavors and levels that nodes belong to."""

    @property
    def generation(self) -> int:
        """Grows with every change that placement could notice. Heartbeats of nodes do not change it."""
        return self._generation

    # -- events --------------------------------------------------------------------------------------------------------

    def on_node(self, name: str, facts: NodeFacts | None) -> bool:
        """Follow a node that was seen, or (None) is gone; return whether a fact that placement uses has changed."""
        before = self._nodes.get(name)
        if before == facts:
            return False
        if facts is None:
            del self._nodes[name]
        else:
            self._nodes[name] = facts
        for room in self._rooms.values():
            room.on_node(name, facts)
        self._bound.on_node(name)
        self._generation += 1
        self.node_generation += 1
        return True

    def on_pod(self, key: str, facts: PodFacts | None) -> set[str]:
        """Follow a bound pod that was seen; None: it is gone or terminal.

        Returns:
            Nodes on which resources became free: a foreign pod left, moved away, or has smaller requests.
        """
        before = self._pods.get(key)
        if before == facts:
            return set()
        self._freed.clear()
        if facts is not None:
            self._pods[key] = facts
        else:
            del self._pods[key]
        for pod, sign in ((before, -1), (facts, 1)):
            if pod is not None and not pod.workload:
                self._add_foreign(pod.node, amounts_of(pod), sign)
        self._foreign_recounts.follow(key, before, facts)
        for node in {pod.node for pod in (before, facts) if pod is not None and not pod.workload}:
            self._refresh_node(node)
        self._bound.on_pod(key, before, facts)
        self._generation += 1
        left = {before.node} if before is not None and not before.workload and _frees(before, facts) else set()
        return left | self._freed

    def workloads_on(self, node: str) -> Collection[str]:
        """Return the names of the Workloads that bound pods of the node name; any user may write such a name."""
        return self._bound.workloads_on(node)

    def _charge_pods(self, node: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Charge a node for the part of the requests of pods that exceeds the usage of the Workloads that the pods
        name.
        """
        for amounts, sign in ((before, -1), (after, 1)):
            self._add_foreign(node, amounts, sign)
        if any(after.get(resource, 0) < amount for resource, amount in before.items()):
            self._freed.add(node)
        self._refresh_node(node)
        self._generation += 1

    def _refresh_node(self, node: str) -> None:
        for room in self._rooms.values():
            room.refresh_node(node)

    def on_topology(self, name: str, levels: Sequence[str] | None) -> None:
        """Follow a Topology that was seen with these levels, or (None) is gone."""
        wanted = tuple(levels) if levels is not None else None
        if self._topologies.get(name) == wanted:
            return
        if wanted is None:
            del self._topologies[name]
        else:
            self._topologies[name] = wanted
        self._reopen([flavor for flavor, facts in self._flavors.items() if facts.topology == name])

    def on_flavor(self, name: str, facts: Flavor | None) -> None:
        """Follow a ResourceFlavor that was seen, or (None) is gone."""
        if self._flavors.get(name) == facts:
            return
        if facts is None:
            del self._flavors[name]
        else:
            self._flavors[name] = facts
        self._reopen([name])

    def add_usage(self, workload: str, usages: Iterable[AssignedUsage], *, pods_of: str = "") -> None:
        """Charge these domains to the workload, after releasing its earlier ones.

        Usage in a flavor without a topology is stored, and counts as soon as the flavor has a topology. `pods_of`: the
        name that the workload's pods carry, if other workloads share it; empty: its own key.
        """
        held = tuple(usages)
        if not held:
            self.remove_usage(workload)
            return
        self._uncount(workload)
        self._usages[workload] = held
        self._pods_of[workload] = pods_of or workload
        self._workloads_of.setdefault(pods_of or workload, set()).add(workload)
        self._usage_recounts.follow(workload, None, held)
        for usage in held:
            self._count_usage(usage, 1)
        if self.holders_on:
            self.holders_on.count(workload, _places(held), 1)
        self._bound.on_usage(pods_of or workload)
        self._generation += 1

    def remove_usage(self, workload: str) -> bool:
        """Release the usage of a workload; return whether it had any."""
        pods_of = self._uncount(workload)
        if pods_of is None:
            return False
        self._bound.on_usage(pods_of)
        return True

    def _uncount(self, workload: str) -> str | None:
        """Remove the workload's usage from the sums; return the name that its pods carry, None: it had no usage.

        The caller informs the bound pods.
        """
        held = self._usages.pop(workload, None)
        if held is None:
            return None
        pods_of = self._pods_of.pop(workload)
        self._workloads_of[pods_of].discard(workload)
        if not self._workloads_of[pods_of]:
            del self._workloads_of[pods_of]
        self._usage_recounts.follow(workload, held, None)
        for usage in held:
            self._count_usage(usage, -1)
        if self.holders_on:
            self.holders_on.count(workload, _places(held), -1)
        self._generation += 1
        return pods_of

    def _held_for(self, pods_of: str) -> HeldAmounts:
        """Return the usage of the workloads whose pods carry this name, in flavors with a known topology."""
        for workload in self._workloads_of.get(pods_of, ()):
            for usage in self._usages[workload]:
                if usage.flavor in self._rooms:
                    for domain in usage.assignment.domains:
                        yield place_of(usage.assignment, domain.values), _taken_by_pods(usage, domain.count)

    # -- queries ------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Capacity]:
        """Return tree and free capacity of each topology flavor, independent of later changes."""
        return {flavor: room.capacity().fork() for flavor, room in self._rooms.items()}

    def build_steps(self) -> Iterator[None]:
        """Build the tables of all flavors in short steps, so that the first snapshot does not have to.

        Events and queries may come between the steps.
        """
        for flavor, room in list(self._rooms.items()):
            steps = room.build_steps()
            while self._rooms.get(flavor) is room and next(steps, self) is None:
                yield

    def proposed(
        self, facts: Flavor, levels: tuple[str, ...]
    ) -> Generator[None, None, tuple[Capacity, tuple[str, ...]]]:
        """Return, in steps, the tree and the free capacity that a flavor would have with these levels, and the nodes
        that are cordoned or not ready in it.
        """
        on_hosts, usage = self._share_hosts and levels[-1] == HOSTNAME, dict[Path, Amounts]()
        for held in chunks([] if on_hosts else list(self._usages.values())):
            for used in (used for some in held for used in some if used.flavor == facts.name):
                for key, amounts in _taken_by(used):
                    accumulate(usage.setdefault(key, {}), amounts.items(), 1)
            yield
        room = FlavorRoom(self._shared, facts, levels, usage=self._host_usage if on_hosts else usage, nodes={})
        for names in chunks(list(self._nodes)):
            room.read({name: node for name in names if (node := self._nodes.get(name)) is not None})
            yield
        yield from room.build_steps()
        return room.capacity().fork(), room.unusable()

    def capacity(self, flavor: str) -> Capacity | None:
        """Return the live free capacity of the flavor; None: the flavor or its Topology is not known."""
        room = self._rooms.get(flavor)
        return None if room is None else room.capacity()

    def tree(self, flavor: str) -> Tree | None:
        """Return the flavor's present domains.  None: the flavor or its Topology is not known."""
        capacity = self.capacity(flavor)
        return None if capacity is None else capacity.tree

    def flavors(self) -> list[str]:
        """Return the flavors whose topology is known."""
        return list(self._rooms)

    def flavors_of(self, node: str) -> list[str]:
        """Return the flavors whose trees have this node, by name."""
        return sorted(flavor for flavor, room in self._rooms.items() if node in room.members)

    def members(self, flavor: str) -> list[str]:
        """Return the nodes of the flavor's tree, by name; empty when the flavor or its Topology is not known."""
        room = self._rooms.get(flavor)
        return [] if room is None else list(room.members)

    def foreign_on(self, node: str) -> Mapping[str, int]:
        """Return the usage of foreign pods on a node, `pods` included; empty without foreign pods."""
        return self._foreign.get(node, {})

    def left_out(self, flavor: str) -> dict[str, LeftOut]:
        """Return nodes with the flavor's labels that are not in its tree, by name. The time grows with these nodes."""
        room = self._rooms.get(flavor)
        return {} if room is None else room.left_out()

    def unusable(self, flavor: str) -> tuple[str, ...]:
        """Return the nodes with the flavor's labels that are cordoned or not ready, by name; empty for an unknown
        flavor.
        """
        room = self._rooms.get(flavor)
        return () if room is None else room.unusable()

    def spares(self, flavor: str, most: int) -> list[Spare]:
        """Return the nodes that are left out only because they are cordoned or not ready, by name, at most `most`."""
        room = self._rooms.get(flavor)
        return [] if room is None else room.spares(most)

    def follow_hosts(self, hosts: Collection[Path]) -> None:
        """Keep `holders_on` for these hosts, and for no others from now on.  New hosts cost a walk over all usage."""
        self.holders_on.follow(hosts, ((workload, _places(held)) for workload, held in self._usages.items()))

    def holders(self, flavor: str, domain: Path) -> dict[str, int]:
        """Return the workloads with pods below a domain (full path of any level) of the flavor, with the number of
        pods.
        """
        room = self._rooms.get(flavor)
        if room is None:
            return {}
        tree, found = room.capacity().tree, dict[str, int]()
        for workload, usages in self._usages.items():
            for usage in usages:
                for item in usage.assignment.domains if self._meets(usage.flavor, room) else ():
                    leaf = tree.leaf_of(usage.assignment.named(item.values))
                    if leaf is not None and tree.paths[leaf][: len(domain)] == domain:
                        found[workload] = found.get(workload, 0) + item.count
        return found

    # -- audit ---------------------------------------------------------------------------------------------------------

    def audit_steps(self) -> Iterator[list[Drift]]:
        """Compare every sum and table with the facts, in short steps; events may come between the steps.

        Differences are corrected in the same step. Sums are computed again from the facts.
        """
        for found in self._bound.audit_steps(self._pods):
            self._generation += bool(found)
            yield found
        yield from self._audit_foreign()
        yield from self._audit_usage()
        for flavor, room in list(self._rooms.items()):
            steps = room.audit()
            while self._rooms.get(flavor) is room and (drifts := next(steps, None)) is not None:
                self._generation += bool(drifts)
                yield drifts

    def _audit_foreign(self) -> Iterator[list[Drift]]:
        with self._foreign_recounts.open() as recount:
            for _ in recount.steps(self._pods):
                yield []
            for nodes in chunks({**self._foreign, **dict.fromkeys(self._bound.nodes()), **recount.sums}):
                found = (self._audit_node(node, recount.sums.get(node)) for node in nodes)
                yield [drift for drift in found if drift is not None]

    def _audit_node(self, node: str, unnamed: Amounts | None) -> Drift | None:
        """Compare the usage of foreign pods on a node; `unnamed` is the usage of pods that name no Workload."""
        believed, total = self._foreign.get(node), dict(unnamed or {})
        for amounts in self._bound.charged_on(node):
            accumulate(total, amounts.items(), 1)
        actual = total or None
        if believed == actual:
            return None
        self._set(self._foreign, node, actual)
        self._refresh_node(node)
        return Drift("foreign-pod", f"on {node}", believed, self._foreign.get(node))

    def _audit_usage(self) -> Iterator[list[Drift]]:
        with self._usage_recounts.open() as recount:
            for _ in recount.steps(self._usages):
                yield []
            for flavor in {id(room.usage): flavor for flavor, room in self._rooms.items()}.values():
                for domains in chunks(self._domains(flavor, recount.sums)):
                    yield self._audit_domains(flavor, domains, recount.sums)

    def _domains(self, flavor: str, counted: Iterable[tuple[str, Path]]) -> list[Path]:
        """Return the domains with usage in the flavor, in the cache or in the recount."""
        room = self._rooms.get(flavor)
        if room is None:
            return []
        sources = {other for other in self._rooms if self._meets(other, room)}
        return list({**room.usage, **dict.fromkeys(key for other, key in counted if other in sources)})

    def _audit_domains(
        self, flavor: str, keys: Sequence[Path], counted: Mapping[tuple[str, Path], Amounts]
    ) -> list[Drift]:
        room, found = self._rooms.get(flavor), list[Drift]()
        if room is None:
            return found
        flavors = [other for other in self._rooms if self._meets(other, room)]
        for key in keys:
            actual: Amounts = {}
            for other in flavors:
                accumulate(actual, counted.get((other, key), {}).items(), 1)
            believed = room.usage.get(key)
            if believed != (actual or None):
                found.append(Drift("tas-usage", f"{flavor}/{','.join(key)}", believed, actual or None))
                self._set(room.usage, key, actual)
                for sharing in self._sharing(flavor):
                    sharing.refresh_domain(key)
        return found

    def _set(self, table: dict[K, Amounts], key: K, amounts: Amounts | None) -> None:
        self._generation += 1
        if amounts:
            table[key] = dict(amounts)
        else:
            table.pop(key, None)

    def audit(self, truth: NodeLedger) -> list[Drift]:
        """Compare with a ledger that was filled from another source, in one step: all facts and all that follows from
        them.
        """
        believed, actual = self._beliefs(), truth._beliefs()
        return [
            Drift(cause, key, believed.get((cause, key)), actual.get((cause, key)))
            for cause, key in sorted({*believed, *actual})
            if believed.get((cause, key)) != actual.get((cause, key))
        ]

    def _beliefs(self) -> dict[tuple[str, str], object]:
        """Return all facts and derived values of this ledger, by (cause as in `Drift`, key)."""
        held: dict[tuple[str, str], object] = {("node", name): node for name, node in self._nodes.items()}
        held |= {("foreign-pod", key): pod for key, pod in self._pods.items()}
        held |= {("foreign-pod", f"on {node}"): amounts for node, amounts in self._foreign.items()}
        held |= {("workload", workload): usages for workload, usages in self._usages.items()}
        for flavor, room in self._rooms.items():
            capacity = room.capacity()
            held["tree", flavor] = (capacity.tree.levels, capacity.tree.paths)
            held["tree", f"{flavor} without"] = room.left_out()
            held |= {("tas-usage", f"{flavor}/{','.join(path)}"): amounts for path, amounts in room.usage.items()}
            for leaf, path in enumerate(capacity.tree.paths):
                free, idle = without_zeros(capacity.free(leaf)), without_zeros(capacity.empty().free(leaf))
                held["capacity", f"{flavor}/{','.join(path)}"] = (free, idle)
        return held

    # -- sums ----------------------------------------------------------------------------------------------------------

    def _add_foreign(self, node: str, amounts: Mapping[str, int], sign: int) -> None:
        total = self._foreign.setdefault(node, {})
        accumulate(total, amounts.items(), sign)
        if not total:
            del self._foreign[node]

    def _count_usage(self, usage: AssignedUsage, sign: int) -> None:
        sharing = self._sharing(usage.flavor)
        if not sharing:
            return
        taken = sharing[0].usage
        for key, amounts in _taken_by(usage):
            total = taken.get(key)
            if total is None:
                total = taken[key] = {}
            accumulate(total, amounts.items(), sign)
            if not total:
                del taken[key]
            for room in sharing:
                room.refresh_usage(key, amounts)

    def flavors_beside(self, flavor: str) -> set[str]:
        """Return the flavors in which usage of this flavor counts, because they share hosts; this flavor included."""
        return {flavor, *(room.facts.name for room in self._sharing(flavor))}

    def _sharing(self, flavor: str) -> tuple[FlavorRoom, ...]:
        """Return the rooms of the flavors in which usage of this flavor counts; empty while this flavor has no room."""
        known = self._sharing_cache.get(flavor)
        if known is None:
            rooms, own = self._rooms.values(), self._rooms.get(flavor)
            known = self._sharing_cache[flavor] = tuple([r for r in rooms if own is not None and r.usage is own.usage])
        return known

    def _meets(self, flavor: str, room: FlavorRoom) -> bool:
        """Whether usage in `flavor` counts in `room`."""
        other = self._rooms.get(flavor)
        return other is not None and other.usage is room.usage

    def _reopen(self, flavors: Collection[str]) -> None:
        """Rebuild the rooms of these flavors: their usage no longer counts in the old rooms, and counts in the new
        ones.

        Other flavors keep their trees.
        """
        affected = [usage for held in self._usages.values() for usage in held if usage.flavor in flavors]
        for usage in affected:
            self._count_usage(usage, -1)
        for name in flavors:
            self._rooms.pop(name, None)
            self._sharing_cache.clear()
            facts = self._flavors.get(name)
            levels = self._topologies.get(facts.topology) if facts is not None and facts.topology is not None else None
            if facts is not None and levels is not None:
                shared = self._share_hosts and levels[-1] == HOSTNAME
                self._rooms[name] = FlavorRoom(self._shared, facts, levels, usage=self._host_usage if shared else {})
        for usage in affected:
            self._count_usage(usage, 1)
        for pods_of in {self._pods_of[w] for w, held in self._usages.items() if any(u.flavor in flavors for u in held)}:
            self._bound.on_usage(pods_of)
        self._generation += 1
        self.node_generation += 1

    @property
    def nodes(self) -> Mapping[str, NodeFacts]:
        """All nodes, usable or not, by name."""
        return self._nodes

    @property
    def pods(self) -> Mapping[str, PodFacts]:
        """All bound pods, by key."""
        return self._pods


def _taken_on_node(pod: PodFacts) -> Iterator[tuple[str, Iterable[tuple[str, int]]]]:
    """Return the requests of a pod that names no Workload, by node."""
    if not pod.workload:
        yield pod.node, (*pod.requests, (PODS, 1))


def _taken_in_domains(held: Iterable[AssignedUsage]) -> Iterator[tuple[tuple[str, Path], Iterable[tuple[str, int]]]]:
    """Return the usage of a workload by flavor and written domain."""
    for usage in held:
        for key, amounts in _taken_by(usage):
            yield (usage.flavor, key), amounts.items()


def _taken_by(usage: AssignedUsage) -> Iterator[tuple[Path, Amounts]]:
    """Return the usage of one pod set by written domain."""
    assignment = usage.assignment
    for domain in assignment.domains:
        yield assignment.named(domain.values), _taken_by_pods(usage, domain.count)


def _places(held: Iterable[AssignedUsage]) -> Iterator[tuple[Path, int]]:
    """Yield the written domains of a workload with the number of its pods there."""
    for usage in held:
        for domain in usage.assignment.domains:
            yield usage.assignment.named(domain.values), domain.count


def _taken_by_pods(usage: AssignedUsage, count: int) -> Amounts:
    """Return the usage of `count` pods of a pod set."""
    amounts = {resource: amount * count for resource, amount in usage.requests.items()}
    amounts[PODS] = amounts.get(PODS, 0) + count
    return amounts


def _frees(before: PodFacts, after: PodFacts | None) -> bool:
    if after is None or after.node != before.node:
        return True
    asked = dict(after.requests)
    return any(asked.get(resource, 0) < amount for resource, amount in before.requests)
