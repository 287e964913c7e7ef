"""The devices of the cluster, and what claims of pods cost in quota and take of hosts.

Fed by the watches of claim templates, classes of devices, slices of devices and claims.  Without a mapping of classes
nothing is watched, and nothing is counted here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import devices as wire
from kqueue.core.devices.budget import PARSING, WorkBudget
from kqueue.core.devices.counting import (
    NO_DEVICES,
    CountedDevices,
    DeviceRules,
    DeviceWorld,
    count_devices,
    too_long,
    view_of,
)
from kqueue.core.devices.matches import Matches
from kqueue.core.devices.pools import DeviceSlice, complete
from kqueue.core.devices.selectors import is_readable
from kqueue.core.devices.values import Device, DeviceClass, DeviceRequest, Selector
from kqueue.core.devices.views import HOST_PREFIX, CounterKey, DeviceView, is_countable

V = TypeVar("V")

COUNT_PREFIX = "deviceclass.kqueue.dev/"
"""Prefix of the resource by which bound pods have the number of their claimed devices of a class, where they take
another number of the node's devices: quota counts these.
"""
Version = tuple[int, int]
"""Changes with every change that may change the cost of claims."""
_MOST_VIEWS, _MOST_VIEWS_EACH = 48, 8
"""Requests with selectors or capacities whose devices are counted on hosts: in all, and of one namespace.  Each costs
time and memory for each device of the cluster.
"""


class DeviceObjects:
    """Templates, classes and slices, and the cost of claims by them."""

    def __init__(self, rules: DeviceRules | None = None) -> None:
        """Take the rules; None: devices are not counted."""
        self.rules = rules
        self._templates: dict[str, tuple[DeviceRequest, ...]] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._extended: dict[str, DeviceClass] = {}
        self._slices: dict[str, DeviceSlice] = {}
        self._slices_changed = False
        self._complete: tuple[DeviceSlice, ...] = ()
        self._matches = Matches(self._classes.get)
        self._countable: dict[DeviceView, bool] = {}
        """Whether hosts can count the devices of a request."""
        self._views: dict[DeviceView, Counter[str]] = {}
        """The requests of templates whose devices are counted on hosts, with their namespaces."""
        self._views_of: Counter[str] = Counter()
        """The number of such requests by namespace."""
        self._budget = WorkBudget()
        self.on_work: Callable[[], None] = lambda: None
        """Is called when selectors of tenants are evaluated: `refill` is due a second later."""
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
        before, requests = self._templates.get(key), model.device_requests(new) if new is not None else None
        if not _put(self._templates, key, requests):
            return None
        self._drop_views(namespace, before or ())
        self._add_views(namespace, requests or ())
        self._changes_in[namespace] += 1
        return key

    def on_class(self, old: wire.DeviceClass | None, new: wire.DeviceClass | None) -> bool:
        """Follow a DeviceClass that came, changed or is gone; return whether that may change the cost of claims."""
        seen = new if new is not None else old
        assert seen is not None
        if not _put(self._classes, seen.metadata.name, model.device_class(new) if new is not None else None):
            return False
        self._extended = _by_extended_resource(self._classes.values())
        self._countable.clear()
        self._changes += 1
        return True

    def on_slice(self, old: DeviceSlice | None, new: DeviceSlice | None) -> bool:
        """Follow a ResourceSlice that came, changed or is gone; return whether its devices have changed."""
        seen = new if new is not None else old
        assert seen is not None
        if not _put(self._slices, seen.name, new):
            return False
        self._slices_changed = True
        self._countable.clear()
        self._changes += 1
        return True

    # --- requests whose devices hosts count ------------------------------------------------------------------------

    def _add_views(self, namespace: str, requests: Iterable[DeviceRequest]) -> None:
        for view in _views(requests):
            known = self._views.get(view)
            if known is None and len(self._views) >= _MOST_VIEWS:
                continue
            if known is None or namespace not in known:
                if self._views_of[namespace] >= _MOST_VIEWS_EACH:
                    continue
                self._views_of[namespace] += 1
            self._views.setdefault(view, Counter())[namespace] += 1

    def _drop_views(self, namespace: str, requests: Iterable[DeviceRequest]) -> None:
        for view in _views(requests):
            users = self._views.get(view, Counter())
            if not users[namespace]:
                continue
            users[namespace] -= 1
            if not users[namespace]:
                del users[namespace]
                self._views_of[namespace] -= 1
            if not users:
                del self._views[view]
                self._countable.pop(view, None)

    def views(self) -> frozenset[DeviceView]:
        """Return the requests of templates whose devices are counted on hosts."""
        return frozenset(self._views)

    def host_views(self) -> Iterator[tuple[DeviceView, tuple[Device, ...] | None]]:
        """Yield what requests may ask of hosts, with the devices that they may get; None: these are evaluated later."""
        for name in sorted(self.host_classes()):
            yield DeviceView(name), self.members(name)
        for view, namespaces in sorted(self._views.items(), key=lambda item: item[0].row):
            name = view.device_class
            if not self._is_known_class(name) or too_long(view.selectors, len(self.members(name))):
                continue
            if not self._affords(min(namespaces), name, view.selectors):
                yield view, None
            elif self._counts_on_hosts(view):
                yield view, self._find(name, view.selectors)

    # --- devices -----------------------------------------------------------------------------------------------

    def slices(self) -> tuple[DeviceSlice, ...]:
        """Return the slices of complete pools."""
        if self._slices_changed:
            self._complete = tuple(complete(self._slices.values()))
            self._matches.offer(self._complete)
            self._slices_changed = False
        return self._complete

    def counters(self) -> dict[CounterKey, int]:
        """Return the amounts that devices of a pool share."""
        return {
            (each.driver, each.pool, *key): amount for each in self.slices() for key, amount in each.counters.items()
        }

    def members(self, name: str) -> tuple[Device, ...]:
        """Return the devices of a class in complete pools."""
        return self._find(name, ())

    def _find(self, name: str, selectors: tuple[Selector, ...]) -> tuple[Device, ...]:
        self.slices()
        return self._matches.find(name, selectors).devices

    def host_classes(self) -> frozenset[str]:
        """Return the mapped classes whose devices hosts can count."""
        mapped = self.rules.classes() if self.rules is not None else ()
        return frozenset(
            name for name in mapped if self._is_known_class(name) and self._counts_on_hosts(DeviceView(name))
        )

    def _is_known_class(self, name: str) -> bool:
        """Whether kqueue knows the devices of a class; one that does not exist has none."""
        found = self._classes.get(name)
        return found is None or all(map(is_readable, found.selectors))

    def _counts_on_hosts(self, view: DeviceView) -> bool:
        found = self._countable.get(view)
        if found is None:
            devices = self._find(view.device_class, view.selectors)
            found = self._countable[view] = all(map(is_countable, devices))
        return found

    # --- the budget of selectors -------------------------------------------------------------------------------

    def without_budget(self) -> None:
        """Evaluate all selectors when they are needed: for a process that plans for one user, and once."""
        self._budget = WorkBudget(sys.maxsize)

    def _affords(self, namespace: str, name: str, selectors: tuple[Selector, ...]) -> bool:
        """Whether selectors may be evaluated now; if so, their work is taken off the budget of the namespace."""
        self.slices()
        devices = self._matches.devices_to_evaluate(name, selectors)
        if devices is None:
            return True
        may = self._budget.spend(namespace, sum(len(each.text) for each in selectors) * (PARSING + devices))
        self.on_work()
        return may

    def refill(self) -> tuple[frozenset[str], bool]:
        """Give the work of a second; return the namespaces whose selectors had to wait for it, and whether another
        call is due a second later.
        """
        waiting = self._budget.refill()
        for namespace in waiting:
            self._changes_in[namespace] += 1
        return waiting, self._budget.is_used

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
        self.slices()
        world = DeviceWorld(
            template=lambda name: self._templates.get(f"{namespace}/{name}"),
            device_class=self._classes.get,
            matching=self._matches.find,
            class_of=self._class_of,
            affords=lambda request: self._affords(namespace, request.device_class, request.selectors),
        )
        return count_devices(self.rules, world, model.named_claims(spec), requests)

    def as_quota(self, amounts: Mapping[str, int]) -> Mapping[str, int]:
        """Return the requests of a pod with the quota of the devices that its claims have on its node."""
        found = dict(amounts)
        for mapping in self.rules.mappings if self.rules is not None else ():
            if not mapping.sources:
                claimed = sum(
                    amounts.get(COUNT_PREFIX + name, amounts.get(HOST_PREFIX + name, 0)) for name in mapping.classes
                )
                if claimed:
                    found[mapping.resource] = found.get(mapping.resource, 0) + claimed
        return found

    def on_host(self, counted: CountedDevices, requests: Mapping[str, int]) -> Mapping[str, int]:
        """Return the requests of a pod for its node, with its devices."""
        kept = {resource: amount for resource, amount in requests.items() if resource not in counted.replaced}
        known = self.host_classes()
        classes = {HOST_PREFIX + name: n for name, n in counted.by_class.items() if name in known}
        return kept | classes | {view.row: n for view, n in counted.by_view.items() if self._is_asked(view)}

    def _is_asked(self, view: DeviceView) -> bool:
        """Whether hosts are asked for the devices of a request that was counted before."""
        return view in self._views and self._is_known_class(view.device_class) and self._counts_on_hosts(view)


def _put(known: dict[str, V], key: str, value: V | None) -> bool:
    """Store a value, None: remove it; return whether that changed anything."""
    if known.get(key) == value:
        return False
    if value is None:
        del known[key]
    else:
        known[key] = value
    return True


def _views(requests: Iterable[DeviceRequest]) -> Iterator[DeviceView]:
    """Yield the requests that ask for a part of a class's devices, or for a part of a device."""
    for request in requests:
        if request.exact and not request.admin and (request.selectors or request.capacity):
            yield view_of(request)


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
