"""Follows claim templates, classes and slices of devices, and claims: they change the quota of workloads and the free
devices of hosts.

Nothing is watched while no class of devices is mapped to quota.  The kinds are optional: a cluster that does not serve
them yet is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kqueue import model
from kqueue.api.wire import devices as wire
from kqueue.api.wire import kueue as wire_kueue
from kqueue.controllers import resources as kinds
from kqueue.controllers.intake import Intake
from kqueue.controllers.watches import Watches
from kqueue.core.devices.pools import DeviceSlice
from kqueue.model import ClaimView, PodView
from kqueue.runtime.reflector import Reflector
from kqueue.state.cache import Cache
from kqueue.state.device_hosts import Touched

_BY_TEMPLATE = "resource-claim-template"
_BY_DEVICES = "devices"
"""Indexes of Workloads: by the claim templates that they name, and those that may need devices."""
_EVERY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWatches:
    """The watches of the kinds of devices."""

    templates: Reflector[wire.ResourceClaimTemplate, wire.ResourceClaimTemplate]
    classes: Reflector[wire.DeviceClass, wire.DeviceClass]
    slices: Reflector[wire.ResourceSlice, DeviceSlice]
    claims: Reflector[wire.ResourceClaim, ClaimView]


class DeviceIntake:
    """Tells the cache about devices, and has workloads whose quota may have changed read again."""

    def __init__(
        self,
        watches: Watches,
        cache: Cache,
        intake: Intake,
        *,
        again: Callable[[str], None],
        recount: Callable[[], None],
        refill: Callable[[], None],
    ) -> None:
        """Take the state and three functions: `again(key)` has a Workload read again soon, `recount()` has
        `count_hosts` called soon and `refill()` has `refill` called a second later, once for many calls.
        """
        self._watches, self._cache, self._intake = watches, cache, intake
        self._again, self._recount = again, recount
        self._classes_changed = True
        self._refill = cache.requests.devices.on_work = refill

    def on_template(self, old: wire.ResourceClaimTemplate | None, new: wire.ResourceClaimTemplate | None) -> None:
        """Follow a ResourceClaimTemplate; workloads that wait for it are tried again."""
        devices = self._cache.requests.devices
        before = devices.views()
        key = devices.on_template(old, new)
        if key is not None:
            if devices.views() != before:
                self._recount()  # hosts count other requests than before
            for workload in self._watches.workloads.store.keys_by_index(_BY_TEMPLATE, key):
                self._again(workload)

    def on_class(self, old: wire.DeviceClass | None, new: wire.DeviceClass | None) -> None:
        """Follow a DeviceClass: the devices of its claims, and the extended resource that they satisfy."""
        if self._cache.requests.devices.on_class(old, new):
            self._classes_changed = True
            self._recount()

    def on_slice(self, old: DeviceSlice | None, new: DeviceSlice | None) -> None:
        """Follow a ResourceSlice: the devices of hosts, and those that selectors may match."""
        if self._cache.requests.devices.on_slice(old, new):
            self._recount()

    def on_claim(self, old: ClaimView | None, new: ClaimView | None) -> None:
        """Follow a ResourceClaim: the devices that it keeps from others."""
        self._tell(self._cache.devices.on_claim(old, new))

    def on_pod(self, old: PodView | None, new: PodView | None) -> None:
        """Follow a pod whose claims may have devices, after the intake has followed it."""
        seen = new if new is not None else old
        assert seen is not None
        expected = new is not None and new.bound is None and (new.gang is not None or bool(new.workload))
        self._tell(self._cache.devices.on_pod(seen.key, expected=expected))

    def count_hosts(self) -> None:
        """Count the devices of hosts after slices or classes have changed, and read workloads with devices again."""
        self._tell(self._cache.devices.refresh())
        classes_changed, self._classes_changed = self._classes_changed, False
        for key in self._watches.workloads.store.keys_by_index(_BY_DEVICES, _EVERY):
            workload = self._watches.workloads.store.get(key)
            if workload is not None and (classes_changed or self._cache.requests.needs_devices(workload)):
                self._again(key)  # changed classes may satisfy other extended resources than before

    def refill(self) -> None:
        """Give tenants' selectors the work of a second; those that waited for it are tried again."""
        waiting, more = self._cache.requests.devices.refill()
        if more:
            self._refill()
        if not waiting:
            return
        self._recount()
        for key in self._watches.workloads.store.keys_by_index(_BY_DEVICES, _EVERY):
            if key.split("/", 1)[0] in waiting:
                self._again(key)

    def _tell(self, touched: Touched) -> None:
        """Have the ledger read nodes and pods again: their devices have changed."""
        for name in touched.nodes:
            node = self._watches.nodes.store.get(name)
            if node is not None:
                self._intake.on_node(node, node)
        for key in touched.pods:
            pod = self._watches.pods.store.get(key)
            if pod is not None and pod.bound is not None:
                self._intake.recount_pod(key, pod.bound)


def watch_devices(watches: Watches) -> DeviceWatches:
    """Add the watches of the kinds of devices."""
    return DeviceWatches(
        templates=watches.watch(kinds.RESOURCE_CLAIM_TEMPLATES, wire.ResourceClaimTemplate, optional=True),
        classes=watches.watch(kinds.DEVICE_CLASSES, wire.DeviceClass, optional=True),
        slices=watches.watch(kinds.RESOURCE_SLICES, wire.ResourceSlice, model.device_slice, optional=True),
        claims=watches.watch(kinds.RESOURCE_CLAIMS, wire.ResourceClaim, model.claim_view, optional=True),
    )


def subscribe_devices(found: DeviceWatches, watches: Watches, devices: DeviceIntake) -> None:
    """Have the watches of devices followed.  The intake must have subscribed to pods before."""
    watches.workloads.store.add_index(_BY_TEMPLATE, _templates_of)
    watches.workloads.store.add_index(_BY_DEVICES, _with_devices)
    found.templates.subscribe(devices.on_template)
    found.classes.subscribe(devices.on_class)
    found.slices.subscribe(devices.on_slice)
    found.claims.subscribe(devices.on_claim)
    watches.pods.subscribe(devices.on_pod)


def _templates_of(workload: wire_kueue.Workload) -> list[str]:
    """Return namespace/name of the claim templates that a Workload's pods name."""
    namespace = workload.metadata.namespace
    claims = (claim for p in workload.spec.pod_sets for claim in model.named_claims(p.template.spec))
    return [f"{namespace}/{claim.template}" for claim in claims if claim.template]


def _with_devices(workload: wire_kueue.Workload) -> tuple[str, ...]:
    """Return one value for a Workload whose pods claim devices or ask for an extended resource."""
    return (_EVERY,) if any(model.may_need_devices(p.template.spec) for p in workload.spec.pod_sets) else ()
