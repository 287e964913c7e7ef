"""Charges for bound pods: the part of their requests that exceeds the usage of the Workload that they name.

A pod names its Workload by an annotation, which any user may write. So the requests of all pods that name one Workload
are covered, at each of its places, up to the Workload's usage there; the rest is charged to the nodes. Pods without a
Workload, and pods whose Workload has no usage on their node, are charged in full. The sums depend only on the pods, the
nodes and the usage, not on the order of events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.topology.node import HOSTNAME, PODS, NodeFacts, PodFacts
from kqueue.core.topology.result import Path
from kqueue.state.audit import Drift, Recounts, accumulate, chunks

Amounts = dict[str, int]
Place = tuple[tuple[str, ...], Path]
"""The labels of the levels and their values; of a host only the label and value of the host name."""
HeldAmounts = Iterable[tuple[Place, Mapping[str, int]]]
"""The usage of all Workloads of one name, by place."""
Charge = Callable[[str, Mapping[str, int], Mapping[str, int]], None]

_NOTHING: Mapping[str, int] = {}
_CLAIM_COST = 50  # all places of a gang are compared


@dataclass(slots=True)
class _Group:
    """The nodes of one place that have pods of one Workload, and the sum of the requests of these pods."""

    held: Amounts
    taken: Amounts = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Claim:
    """The pods that name one Workload, by node, and the amounts charged for them."""

    held: dict[Place, Amounts] = field(default_factory=dict)
    levels: frozenset[tuple[str, ...]] = frozenset()
    """The label lists of the places in `held`."""
    taken: dict[str, Amounts] = field(default_factory=dict)
    places: dict[str, Place | None] = field(default_factory=dict)
    """The place of each node that has pods; None: the Workload has no usage that covers the node."""
    groups: dict[Place, _Group] = field(default_factory=dict)
    charged: dict[str, Amounts] = field(default_factory=dict)


class BoundPods:
    """The pods that name a Workload.

    A change of one pod takes constant time, unless the requests at its place exceed the usage there: then the time
    grows with the number of nodes of that place.
    """

    def __init__(self, nodes: Mapping[str, NodeFacts], charge: Charge, held: Callable[[str], HeldAmounts]) -> None:
        """Take the live mapping of nodes, and the two functions.

        `charge(node, before, after)` is called when the charged amounts of a node change. `held(name)` returns the
        usage of all Workloads whose pods carry a name; it is called only while such pods are bound.
        """
        self._nodes, self._charge, self._held_for = nodes, charge, held
        self._claims: dict[str, _Claim] = {}
        self._on_node: dict[str, set[str]] = {}
        self._recounts = Recounts(_taken_by_name)

    # -- events --------------------------------------------------------------------------------------------------------

    def on_pod(self, key: str, before: PodFacts | None, after: PodFacts | None) -> None:
        """Follow a pod that was bound, changed or (None) is gone. The caller handles pods that name no Workload."""
        self._recounts.follow(key, before, after)
        named = [(pod, sign) for pod, sign in ((before, -1), (after, 1)) if pod is not None and pod.workload]
        for pod, sign in named:
            self._take(pod.workload, pod.node, amounts_of(pod), sign)
        for name, node in {(pod.workload, pod.node) for pod, _ in named}:
            self._settle_node(self._claims[name], node)
            self._tidy(name, node)

    def on_node(self, node: str) -> None:
        """Follow a node that came, went, or has other labels."""
        for name in list(self._on_node.get(node, ())):
            claim = self._claims[name]
            if self._place_of(claim, node) != claim.places.get(node):
                self._leave(claim, node)
                self._enter(claim, node)
                self._settle_node(claim, node)

    def on_usage(self, name: str) -> None:
        """Follow a change in the usage of the Workloads of this name. The call is cheap while none of their pods is
        bound.
        """
        claim = self._claims.get(name)
        if claim is None:
            return
        self._read_held(name, claim)
        claim.groups = {}
        for node in claim.taken:
            self._enter(claim, node)
        for group in claim.groups.values():
            self._settle(claim, group)
        for node, place in claim.places.items():
            if place is None:
                self._set(claim, node, claim.taken[node])

    def _read_held(self, name: str, claim: _Claim) -> None:
        wanted: dict[Place, Amounts] = {}
        for place, amounts in self._held_for(name):
            accumulate(wanted.setdefault(place, {}), amounts.items(), 1)
        claim.held = {place: amounts for place, amounts in wanted.items() if amounts}
        claim.levels = frozenset(levels for levels, _ in claim.held)

    def nodes(self) -> list[str]:
        """Return the nodes with pods that name a Workload."""
        return list(self._on_node)

    def workloads_on(self, node: str) -> Collection[str]:
        """Return the names of the Workloads that pods on the node name."""
        return self._on_node.get(node, ())

    def charged_on(self, node: str) -> Iterator[Mapping[str, int]]:
        """Return the amounts charged to the node, Workload by Workload."""
        for name in self._on_node.get(node, ()):
            yield self._claims[name].charged.get(node, _NOTHING)

    # -- audit ---------------------------------------------------------------------------------------------------------

    def audit_steps(self, pods: Mapping[str, PodFacts]) -> Iterator[list[Drift]]:
        """Compare all sums with the pods and the usage of Workloads; correct differences in the same step."""
        with self._recounts.open() as recount:
            for _ in recount.steps(pods):
                yield []
            for places in chunks({**dict.fromkeys(self._places()), **recount.sums}):
                found = (self._audit_taken(name, node, recount.sums.get((name, node))) for name, node in places)
                yield [drift for drift in found if drift is not None]
        for names in chunks(list(self._claims), _CLAIM_COST):
            yield [drift for name in names if (drift := self._audit_held(name)) is not None]

    def _places(self) -> list[tuple[str, str]]:
        return [(name, node) for name, claim in self._claims.items() for node in claim.taken]

    def _audit_taken(self, name: str, node: str, actual: Amounts | None) -> Drift | None:
        claim = self._claims.get(name)
        believed = claim.taken.get(node) if claim is not None else None
        if believed == actual:
            return None
        shown = dict(believed) if believed is not None else None
        self._take(name, node, dict(believed or {}), -1)
        self._take(name, node, dict(actual or {}), 1)
        self._settle_node(self._claims[name], node)
        self._tidy(name, node)
        return Drift("foreign-pod", f"of {name} on {node}", shown, actual)

    def _audit_held(self, name: str) -> Drift | None:
        claim = self._claims.get(name)
        if claim is None:
            return None
        before = dict(claim.held), dict(claim.charged)
        self.on_usage(name)
        after = claim.held, claim.charged
        return None if before == after else Drift("foreign-pod", f"of {name}", before, after)

    # -- sums ----------------------------------------------------------------------------------------------------------

    def _take(self, name: str, node: str, amounts: Mapping[str, int], sign: int) -> None:
        claim = self._claims.get(name)
        if claim is None:
            claim = self._claims[name] = _Claim()
            self._read_held(name, claim)
        if node not in claim.taken:
            claim.taken[node] = {}
            self._on_node.setdefault(node, set()).add(name)
            self._enter(claim, node)
        accumulate(claim.taken[node], amounts.items(), sign)
        place = claim.places[node]
        if place is not None:
            accumulate(claim.groups[place].taken, amounts.items(), sign)

    def _place_of(self, claim: _Claim, node: str) -> Place | None:
        """Return the place whose usage covers pods on the node; of several places, the first by name. None: no usage
        covers the pods.
        """
        facts = self._nodes.get(node)
        if facts is None:
            return None
        found = (_place_at(levels, facts) for levels in claim.levels)
        return min((place for place in found if place is not None and place in claim.held), default=None)

    def _enter(self, claim: _Claim, node: str) -> None:
        place = claim.places[node] = self._place_of(claim, node)
        if place is not None:
            group = claim.groups.setdefault(place, _Group(claim.held[place]))
            group.nodes.add(node)
            accumulate(group.taken, claim.taken[node].items(), 1)

    def _leave(self, claim: _Claim, node: str) -> None:
        """Remove the node from its place, and compute the charges of the other nodes of the place."""
        place = claim.places.pop(node)
        if place is None:
            return
        group = claim.groups[place]
        group.nodes.discard(node)
        accumulate(group.taken, claim.taken[node].items(), -1)
        self._settle(claim, group)
        if not group.nodes:
            del claim.groups[place]

    def _settle_node(self, claim: _Claim, node: str) -> None:
        """Compute the charges of the node, and of the nodes at its place."""
        place = claim.places.get(node)
        if place is None:
            self._set(claim, node, claim.taken.get(node, _NOTHING))
        else:
            self._settle(claim, claim.groups[place])

    def _settle(self, claim: _Claim, group: _Group) -> None:
        """Distribute the Workload's usage over the nodes in the order of their names; charge each node its uncovered
        requests.
        """
        if all(amount <= group.held.get(resource, 0) for resource, amount in group.taken.items()):
            for node in group.nodes & claim.charged.keys():
                self._set(claim, node, _NOTHING)
            return
        left = dict(group.held)
        for node in sorted(group.nodes):
            beyond: Amounts = {}
            for resource, amount in claim.taken[node].items():
                covered = min(amount, left.get(resource, 0))
                left[resource] = left.get(resource, 0) - covered
                if amount > covered:
                    beyond[resource] = amount - covered
            self._set(claim, node, beyond)

    def _set(self, claim: _Claim, node: str, amounts: Mapping[str, int]) -> None:
        before = claim.charged.get(node, _NOTHING)
        if before == amounts:
            return
        if amounts:
            claim.charged[node] = dict(amounts)
        else:
            claim.charged.pop(node, None)
        self._charge(node, before, amounts)

    def _tidy(self, name: str, *nodes: str) -> None:
        """Forget nodes without requests, and the claim once it is empty."""
        claim = self._claims[name]
        for node in nodes:
            if not claim.taken.get(node, True):
                self._leave(claim, node)
                del claim.taken[node]
                self._set(claim, node, _NOTHING)
                names = self._on_node[node]
                names.discard(name)
                if not names:
                    del self._on_node[node]
        if not claim.taken:
            del self._claims[name]


def amounts_of(pod: PodFacts) -> Amounts:
    """Return the requests of a pod, `pods` included."""
    return {**dict(pod.requests), PODS: 1}


def place_of(assignment: TopologyAssignment, values: tuple[str, ...]) -> Place:
    """Return the place of a domain with these values; a host is identified by its name alone."""
    levels = assignment.levels
    return (levels[-1:] if levels[-1] == HOSTNAME else levels), assignment.named(values)


def _place_at(levels: tuple[str, ...], node: NodeFacts) -> Place | None:
    values = tuple([node.labels.get(level, "") for level in levels])
    return (levels, values) if all(values) else None


def _taken_by_name(pod: PodFacts) -> Iterator[tuple[tuple[str, str], Iterable[tuple[str, int]]]]:
    """Return the requests of a pod by its Workload's name and its node."""
    if pod.workload:
        yield (pod.workload, pod.node), amounts_of(pod).items()
