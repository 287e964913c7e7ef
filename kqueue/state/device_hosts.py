"""How many devices each host has for requests, and those that claims have taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kqueue.core.devices.values import Device, DeviceKey
from kqueue.core.devices.views import HOST_PREFIX, CounterKey, DeviceView, Taken, room
from kqueue.core.topology.node import NodeFacts, PodFacts
from kqueue.model import ClaimView
from kqueue.state.devices import COUNT_PREFIX, DeviceObjects

_Members = Mapping[str, tuple[Device, ...]]
"""Devices by node."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The nodes and the pods (namespace/name) whose devices have changed."""

    nodes: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Rows:
    """The amounts that a node has by resource, and those that its pods take."""

    has: dict[str, int] = field(default_factory=dict)
    pods: dict[str, dict[str, int]] = field(default_factory=dict)


class DeviceHosts:
    """The devices of each host, and those that claims have taken.

    Devices of a claim count as requests of the pod that uses it, so that they are free when the pod has ended, and so
    that the usage of the pod's Workload covers them.  A pod takes of each request what can no longer be met without
    its devices: a divided device may cost several of its parts.  Devices of a claim without a running pod are missing
    on the host.
    """

    def __init__(self, objects: DeviceObjects, bound: Mapping[str, PodFacts]) -> None:
        """Take the objects, and the live mapping of pods that nodes run by namespace/name."""
        self._objects, self._bound = objects, bound
        self._expected: set[str] = set()
        """Pods without a node, of Workloads: the usage of these covers the devices already."""
        self._claims: dict[str, ClaimView] = {}
        self._claims_of: dict[str, set[str]] = {}
        """Claims by the pods that may use them."""
        self._claims_on: dict[str, set[str]] = {}
        """Claims by the nodes whose devices they have."""
        self._devices: dict[DeviceKey, Device] = {}
        """The devices of nodes."""
        self._views: dict[DeviceView, _Members] = {}
        """The devices by node that requests may get."""
        self._nodes: dict[str, tuple[DeviceView, ...]] = {}
        """The requests for which a node has devices."""
        self._counters: Mapping[CounterKey, int] = {}
        self._rows: dict[str, _Rows] = {}

    def refresh(self) -> Touched:
        """Count the devices of all hosts anew, after a change of slices, classes or templates."""
        known, self._views = self._views, {}
        for view, devices in self._objects.host_views():
            self._views[view] = known.get(view, {}) if devices is None else _by_node(devices)
        self._counters = self._objects.counters()
        slices = self._objects.slices() if self._views else ()
        self._devices = {device.key: device for each in slices for device in each.devices if device.node}
        nodes: dict[str, list[DeviceView]] = {}
        for view, members in self._views.items():
            for node in members:
                nodes.setdefault(node, []).append(view)
        self._nodes = {node: tuple(views) for node, views in nodes.items()}
        self._claims_on = {}
        for key, claim in self._claims.items():
            self._note_nodes(key, claim)
        touched = self._count({*self._rows, *self._nodes})
        return Touched(touched.nodes, touched.pods | frozenset(self._claims_of))

    def on_claim(self, old: ClaimView | None, new: ClaimView | None) -> Touched:
        """Follow a claim that came, changed or is gone."""
        seen = new if new is not None else old
        assert seen is not None
        key, after = seen.key, new if new is not None and new.devices else None
        before = self._claims.get(key)
        if before == after:
            return Touched()
        nodes: set[str] = set()
        if before is not None:
            nodes |= self._nodes_of(before)
            self._forget(key, before)
        if after is not None:
            self._claims[key] = after
            nodes |= self._note_nodes(key, after)
            for pod in after.pods:
                self._claims_of.setdefault(pod, set()).add(key)
        touched = self._count(nodes)
        pods = {pod for each in (before, after) if each is not None for pod in each.pods}
        return Touched(touched.nodes, touched.pods | pods)

    def _forget(self, key: str, claim: ClaimView) -> None:
        del self._claims[key]
        for node in self._nodes_of(claim):
            self._claims_on.get(node, set()).discard(key)
        for pod in claim.pods:
            held = self._claims_of.get(pod, set())
            held.discard(key)
            if not held:
                self._claims_of.pop(pod, None)

    def _note_nodes(self, key: str, claim: ClaimView) -> set[str]:
        nodes = self._nodes_of(claim)
        for node in nodes:
            self._claims_on.setdefault(node, set()).add(key)
        return nodes

    def _nodes_of(self, claim: ClaimView) -> set[str]:
        return {self._devices[device].node for device in claim.devices if device in self._devices}

    def on_pod(self, key: str, *, expected: bool) -> Touched:
        """Follow a pod that came, changed or is gone. `expected`: no node runs it yet, and it names a Workload."""
        if expected:
            self._expected.add(key)
        else:
            self._expected.discard(key)
        claims = [self._claims[claim] for claim in self._claims_of.get(key, ())]
        touched = self._count({node for claim in claims for node in self._nodes_of(claim)})
        return Touched(touched.nodes, touched.pods | {pod for claim in claims for pod in claim.pods})

    # --- one host ----------------------------------------------------------------------------------------------

    def _count(self, nodes: Iterable[str]) -> Touched:
        """Count the devices of these nodes anew; return what has changed."""
        changed: set[str] = set()
        pods: set[str] = set()
        for node in nodes:
            before, after = self._rows.pop(node, _NO_ROWS), self._rows_on(node)
            if node in self._nodes:
                self._rows[node] = after
            if before.has != after.has:
                changed.add(node)
            pods |= {pod for pod in (*before.pods, *after.pods) if before.pods.get(pod) != after.pods.get(pod)}
        return Touched(frozenset(changed), frozenset(pods))

    def _rows_on(self, node: str, also: str = "") -> _Rows:
        """Return what the node has.  `also`: a pod that the node is about to run."""
        views = self._nodes.get(node, ())
        of_pods: dict[str, list[ClaimView]] = {}
        taken = Taken(self._counters)
        for key in sorted(self._claims_on.get(node, ())):
            claim = self._claims[key]
            user = self._user(claim, also)
            if user is None or (user != also and user in self._bound and self._bound[user].node != node):
                self._take(taken, claim, node)
            elif user == also or user in self._bound:
                of_pods.setdefault(user, []).append(claim)
        left = self._left(views, node, taken)
        found = _Rows(has=dict(left))
        for pod in sorted(of_pods):
            number: Counter[str] = Counter()
            for claim in of_pods[pod]:
                self._take(taken, claim, node)
                number.update(self._by_class(claim, node, views))
            then = self._left(views, node, taken)
            lost = {row: n - then[row] for row, n in left.items() if n != then[row]}
            counts = {COUNT_PREFIX + c: n for c, n in number.items() if n != lost.get(HOST_PREFIX + c, 0)}
            found.pods[pod], left = {**lost, **counts}, then
        return found

    def _left(self, views: Iterable[DeviceView], node: str, taken: Taken) -> dict[str, int]:
        return {view.row: room(self._views[view][node], dict(view.capacity), taken) for view in views}

    def _take(self, taken: Taken, claim: ClaimView, node: str) -> None:
        consumed: dict[DeviceKey, dict[str, int]] = {}
        for key, name, amount in claim.consumed:
            amounts = consumed.setdefault(key, {})
            amounts[name] = amounts.get(name, 0) + amount
        for device in self._on_node(claim, node):
            taken.take(device, consumed.pop(device.key, {}))

    def _on_node(self, claim: ClaimView, node: str) -> Iterator[Device]:
        found = (self._devices.get(key) for key in claim.devices)
        return (device for device in found if device is not None and device.node == node)

    def _by_class(self, claim: ClaimView, node: str, views: Iterable[DeviceView]) -> Counter[str]:
        """Return the number of the claim's devices by class."""
        held = [device.key for device in self._on_node(claim, node)]
        number: Counter[str] = Counter()
        for view in views:
            if not (view.selectors or view.capacity):
                members = {device.key for device in self._views[view][node]}
                number[view.device_class] = sum(key in members for key in held)
        return number

    def _user(self, claim: ClaimView, also: str = "") -> str | None:
        """Return the pod that is charged for a claim: the first that a node runs or that is expected; None: none is."""
        known = (self._bound, self._expected, (also,))
        return next((pod for pod in claim.pods if any(pod in each for each in known)), None)

    def node_facts(self, facts: NodeFacts | None) -> NodeFacts | None:
        """Return a node with its devices, as far as no claim without a running pod has them."""
        if facts is None or facts.name not in self._rows:
            return facts
        return replace(facts, allocatable={**facts.allocatable, **self._rows[facts.name].has})

    def pod_facts(self, key: str, facts: PodFacts | None) -> PodFacts | None:
        """Return a bound pod with what the devices of its claims take of its node."""
        if facts is None or key not in self._claims_of:
            return facts
        bound = self._bound.get(key)
        settled = bound is not None and bound.node == facts.node and facts.node in self._rows
        rows = self._rows[facts.node] if settled else self._rows_on(facts.node, also=key)
        taken = rows.pods.get(key)
        return replace(facts, requests=tuple(sorted({**dict(facts.requests), **taken}.items()))) if taken else facts


def _by_node(devices: Iterable[Device]) -> _Members:
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(device.node, []).append(device)
    return {node: tuple(devices) for node, devices in found.items()}


_NO_ROWS = _Rows()
