"""The devices of the cluster: what claims of pods cost in quota, and how many devices each host has.

Fed by the watches of claim templates, classes of devices, slices of devices and claims.  Without a mapping of classes
nothing is watched, and nothing is counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import devices as wire
from kqueue.core.devices.counting import NO_DEVICES, CountedDevices, DeviceRules, DeviceWorld, count_devices
from kqueue.core.devices.pools import DeviceSlice, offered
from kqueue.core.devices.selectors import of_class
from kqueue.core.devices.values import Device, DeviceClass, DeviceRequest
from kqueue.core.topology.node import NodeFacts, PodFacts
from kqueue.model import ClaimView
from kqueue.model.devices import DeviceKey

V = TypeVar("V")

HOST_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource by which hosts have devices of a class.  Kubernetes gives pods this name for such devices."""
Version = tuple[int, int]
"""Changes with every change that may change the cost of claims."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The nodes and the pods (namespace/name) whose devices have changed."""

    nodes: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()


class DeviceObjects:
    """Templates, classes and slices, and the cost of claims by them."""

    def __init__(self, rules: DeviceRules | None = None) -> None:
        """Take the rules; None: devices are not counted."""
        self.rules = rules
        self._templates: dict[str, tuple[DeviceRequest, ...]] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._extended: dict[str, DeviceClass] = {}
        self._slices: dict[str, DeviceSlice] = {}
        self._devices: tuple[Device, ...] | None = None
        self._members: dict[str, tuple[Device, ...]] = {}
        self._host_classes: frozenset[str] | None = None
        self._changes = 0
        self._changes_in: Counter[str] = Counter()

    # --- events ------------------------------------------------------------------------------------------------

    def on_template(self, old: wire.ResourceClaimTemplate | None, new: wire.ResourceClaimTemplate | None) -> str | None:
        """Follow a ResourceClaimTemplate that came, changed or is gone; return namespace/name, None: its requests are
        the same.
        """
        seen = new if new is not None else old
        assert seen is not None
        namespace = seen.metadata.namespace
        key = f"{namespace}/{seen.metadata.name}"
        requests = model.device_requests(new) if new is not None else None
        if not _put(self._templates, key, requests):
            return None
        self._changes_in[namespace] += 1
        return key

    def on_class(self, old: wire.DeviceClass | None, new: wire.DeviceClass | None) -> bool:
        """Follow a DeviceClass that came, changed or is gone; return whether that may change the cost of claims."""
        seen = new if new is not None else old
        assert seen is not None
        if not _put(self._classes, seen.metadata.name, model.device_class(new) if new is not None else None):
            return False
        self._extended = _by_extended_resource(self._classes.values())
        self._forget_members()
        self._changes += 1
        return True

    def on_slice(self, old: DeviceSlice | None, new: DeviceSlice | None) -> bool:
        """Follow a ResourceSlice that came, changed or is gone; return whether its devices have changed."""
        seen = new if new is not None else old
        assert seen is not None
        if not _put(self._slices, seen.name, new):
            return False
        self._devices = None
        self._forget_members()
        self._changes += 1
        return True

    # --- devices -----------------------------------------------------------------------------------------------

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of complete pools."""
        if self._devices is None:
            self._devices = tuple(offered(self._slices.values()))
        return self._devices

    def members(self, name: str) -> tuple[Device, ...]:
        """Return the devices of a class in complete pools."""
        found = self._members.get(name)
        if found is None:
            known = self._classes.get(name)
            found = () if known is None else tuple(device for device in self.devices() if of_class(device, known))
            self._members[name] = found
        return found

    def host_classes(self) -> frozenset[str]:
        """Return the mapped classes whose devices belong to one node and to one claim each."""
        if self._host_classes is None:
            mapped = self.rules.classes() if self.rules is not None else ()
            self._host_classes = frozenset(
                name for name in mapped if all(device.node and not device.shared for device in self.members(name))
            )
        return self._host_classes

    def _forget_members(self) -> None:
        self._members.clear()
        self._host_classes = None

    # --- the cost of claims ------------------------------------------------------------------------------------

    def version(self, namespace: str, spec: wire_core.PodSpec) -> Version | None:
        """Return the version of the objects on which the cost of a pod's devices depends; None: it has no devices."""
        if self.rules is None or not (spec.resource_claims or self._asks_extended(spec)):
            return None
        return self._changes, self._changes_in[namespace]

    def _asks_extended(self, spec: wire_core.PodSpec) -> bool:
        if self.rules is None or not self.rules.extended:
            return False
        parts = [c.resources for c in (*spec.containers, *spec.init_containers)]
        parts += [spec.resources] if spec.resources is not None else []
        return any(self._class_of(name) is not None for part in parts for name in {**part.limits, **part.requests})

    def _class_of(self, resource: str) -> DeviceClass | None:
        if resource.startswith(HOST_PREFIX):
            return self._classes.get(resource.removeprefix(HOST_PREFIX))
        return self._extended.get(resource)

    def counted(self, namespace: str, spec: wire_core.PodSpec, requests: Mapping[str, int]) -> CountedDevices:
        """Return the cost of the devices of a pod. `requests` are its total requests."""
        if self.rules is None:
            return NO_DEVICES
        world = DeviceWorld(
            template=lambda name: self._templates.get(f"{namespace}/{name}"),
            device_class=self._classes.get,
            devices_of=self.members,
            class_of=self._class_of,
        )
        return count_devices(self.rules, world, model.named_claims(spec), requests)

    def as_quota(self, amounts: Mapping[str, int]) -> Mapping[str, int]:
        """Return the requests of a pod with the quota of the devices that its claims have on its node."""
        found = dict(amounts)
        for mapping in self.rules.mappings if self.rules is not None else ():
            if not mapping.sources:
                claimed = sum(amounts.get(HOST_PREFIX + name, 0) for name in mapping.classes)
                if claimed:
                    found[mapping.resource] = found.get(mapping.resource, 0) + claimed
        return found

    def on_host(self, counted: CountedDevices, requests: Mapping[str, int]) -> Mapping[str, int]:
        """Return the requests of a pod for its node, with its devices."""
        kept = {resource: amount for resource, amount in requests.items() if resource not in counted.replaced}
        return kept | {HOST_PREFIX + name: n for name, n in counted.by_class.items() if name in self.host_classes()}


class DeviceHosts:
    """The devices of each host, and those that claims have taken.

    Devices of a claim count as requests of the pod that uses it, so that they are free when the pod has ended, and so
    that the usage of the pod's Workload covers them.  Devices of a claim without a running pod are missing on the host.
    """

    def __init__(self, objects: DeviceObjects, bound: Mapping[str, PodFacts]) -> None:
        """Take the objects, and the live mapping of pods that nodes run by namespace/name."""
        self._objects, self._bound = objects, bound
        self._expected: set[str] = set()
        """Pods without a node, of Workloads: the usage of these covers the devices already."""
        self._claims: dict[str, ClaimView] = {}
        self._claims_of: dict[str, set[str]] = {}
        """Claims by the pods that may use them."""
        self._has: dict[str, Counter[str]] = {}
        """Devices by node and class."""
        self._kinds: dict[DeviceKey, tuple[str, tuple[str, ...]]] = {}
        """The node and the classes of each device."""
        self._loose: dict[str, tuple[tuple[str, str], ...]] = {}
        """Node and class of each device of a claim that no running pod uses, by claim."""
        self._lost: Counter[tuple[str, str]] = Counter()
        """The sum of these devices by node and class."""

    def refresh(self) -> Touched:
        """Count the devices of all hosts anew, after a change of slices or classes."""
        before = {node: self._on(node) for node in self._has}
        self._has, self._kinds = {}, {}
        for name in sorted(self._objects.host_classes()):
            for device in self._objects.members(name):
                node, classes = self._kinds.get(device.key, (device.node, ()))
                self._kinds[device.key] = node, (*classes, name)
                self._has.setdefault(device.node, Counter())[name] += not device.tainted
        for key in self._claims:
            self._settle(key)
        after = {node: self._on(node) for node in self._has}
        changed = (node for node in {**before, **after} if before.get(node) != after.get(node))
        return Touched(frozenset(changed), frozenset(self._claims_of))

    def on_claim(self, old: ClaimView | None, new: ClaimView | None) -> Touched:
        """Follow a claim that came, changed or is gone."""
        seen = new if new is not None else old
        assert seen is not None
        key, after = seen.key, new if new is not None and new.devices else None
        before = self._claims.get(key)
        if not _put(self._claims, key, after):
            return Touched()
        for pod in before.pods if before is not None else ():
            self._claims_of[pod].discard(key)
            if not self._claims_of[pod]:
                del self._claims_of[pod]
        for pod in after.pods if after is not None else ():
            self._claims_of.setdefault(pod, set()).add(key)
        pods = frozenset(pod for each in (before, after) if each is not None for pod in each.pods)
        return Touched(self._settle(key), pods)

    def on_pod(self, key: str, *, expected: bool) -> Touched:
        """Follow a pod that came, changed or is gone. `expected`: no node runs it yet, and it names a Workload."""
        if expected:
            self._expected.add(key)
        else:
            self._expected.discard(key)
        claims = self._claims_of.get(key, ())
        nodes = frozenset(node for claim in claims for node in self._settle(claim))
        return Touched(nodes, frozenset(pod for claim in claims for pod in self._claims[claim].pods))

    def _settle(self, key: str) -> frozenset[str]:
        """Count the devices of a claim on their hosts if no pod there uses them; return the changed nodes."""
        claim = self._claims.get(key)
        loose = tuple(self._loose_places(claim)) if claim is not None else ()
        before = self._loose.get(key, ())
        if loose == before:
            return frozenset()
        self._lost.update(loose)
        for place in before:
            self._lost[place] -= 1
            if not self._lost[place]:
                del self._lost[place]
        _put(self._loose, key, loose or None)
        return frozenset(node for node, _ in (*before, *loose))

    def _loose_places(self, claim: ClaimView) -> Iterator[tuple[str, str]]:
        user = self._user(claim)
        if user is None or user in self._bound:
            node = self._bound[user].node if user is not None else ""
            yield from (place for place in self._places(claim) if place[0] != node)

    def _places(self, claim: ClaimView) -> Iterator[tuple[str, str]]:
        """Yield node and class of the claim's devices; once for each class that a device has."""
        for device in claim.devices:
            node, classes = self._kinds.get(device, ("", ()))
            for name in classes:
                yield node, name

    def _user(self, claim: ClaimView) -> str | None:
        """Return the pod that is charged for a claim: the first that a node runs or that is expected; None: none is."""
        return next((pod for pod in claim.pods if pod in self._bound or pod in self._expected), None)

    def _on(self, node: str) -> dict[str, int]:
        return {name: max(0, n - self._lost[node, name]) for name, n in self._has.get(node, {}).items()}

    def node_facts(self, facts: NodeFacts | None) -> NodeFacts | None:
        """Return a node with its devices, as far as no claim without a running pod has them."""
        if facts is None or facts.name not in self._has:
            return facts
        amounts = {HOST_PREFIX + name: n for name, n in self._on(facts.name).items()}
        return replace(facts, allocatable={**facts.allocatable, **amounts})

    def pod_facts(self, key: str, facts: PodFacts | None) -> PodFacts | None:
        """Return a bound pod with the devices that its claims have on its node."""
        if facts is None or key not in self._claims_of:
            return facts
        taken: Counter[str] = Counter()
        for claim in self._claims_of[key]:
            held = self._claims[claim]
            if self._user(held) in (key, None):
                taken.update(HOST_PREFIX + name for node, name in self._places(held) if node == facts.node)
        return replace(facts, requests=tuple(sorted({**dict(facts.requests), **taken}.items()))) if taken else facts


def _put(known: dict[str, V], key: str, value: V | None) -> bool:
    """Store a value, None: remove it; return whether that changed anything."""
    if known.get(key) == value:
        return False
    if value is None:
        del known[key]
    else:
        known[key] = value
    return True


def _by_extended_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """Return the class that satisfies each extended resource.

    Of several classes it is the one that was created last; of those, the first by name.  Source: Kubernetes,
    `DeviceClass.spec.extendedResourceName`.
    """
    found: dict[str, DeviceClass] = {}
    for each in sorted(classes, key=lambda c: c.name):
        known = found.get(each.extended_resource)
        if each.extended_resource and (known is None or known.created < each.created):
            found[each.extended_resource] = each
    return found
