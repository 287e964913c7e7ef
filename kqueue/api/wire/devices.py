"""Devices of nodes, their classes, and claims for them (resource.k8s.io/v1), as far as we read them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kqueue.api.wire.core import Taint
from kqueue.api.wire.meta import ObjectMeta, Quantity, ResourceList, Struct


class CelExpression(Struct, frozen=True, kw_only=True):
    """An expression about a device."""

    expression: str = ""


class CelDeviceSelector(Struct, frozen=True, kw_only=True):
    """A rule that devices must satisfy; None: of a form that we do not know."""

    cel: CelExpression | None = None


class CapacityRequest(Struct, frozen=True, kw_only=True):
    """The capacity that each device of a request must give."""

    requests: ResourceList = msgspec.field(default_factory=dict)


class ExactDeviceRequest(Struct, frozen=True, kw_only=True):
    """A request for devices of one class.  `allocation_mode` is ExactCount, or All (then `count` is 0)."""

    device_class_name: str = ""
    selectors: tuple[CelDeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    capacity: CapacityRequest | None = None


class DeviceSubRequest(Struct, frozen=True, kw_only=True):
    """One of several alternatives."""

    name: str = ""


class DeviceRequest(Struct, frozen=True, kw_only=True):
    """Devices of one claim: either `exactly`, or the first available of several alternatives."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] | None = None


class DeviceClaim(Struct, frozen=True, kw_only=True):
    """All requests of a claim."""

    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(Struct, frozen=True, kw_only=True):
    """The devices that are claimed."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaimTemplateSpec(Struct, frozen=True, kw_only=True):
    """The spec of the claims that are made from a template."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Struct, frozen=True, kw_only=True):
    """A template of claims: each pod that names it gets a claim of its own."""

    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class AllocatedDevice(Struct, frozen=True, kw_only=True):
    """A device that a claim has.

    `admin_access`: others may have it, too.  `consumed_capacity`: the part of a shared device that it has.
    """

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: ResourceList = msgspec.field(default_factory=dict)


class AllocatedDevices(Struct, frozen=True, kw_only=True):
    """All devices that a claim has."""

    results: tuple[AllocatedDevice, ...] = ()


class Allocation(Struct, frozen=True, kw_only=True):
    """The result of the allocation of a claim."""

    devices: AllocatedDevices = AllocatedDevices()


class ClaimUser(Struct, frozen=True, kw_only=True):
    """An object that may use the devices of a claim: a pod, if `resource` is pods and `api_group` is empty."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Struct, frozen=True, kw_only=True):
    """The devices of a claim and its users; None: nothing is allocated."""

    allocation: Allocation | None = None
    reserved_for: tuple[ClaimUser, ...] = ()


class ResourceClaim(Struct, frozen=True, kw_only=True):
    """A claim for devices."""

    metadata: ObjectMeta
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassSpec(Struct, frozen=True, kw_only=True):
    """The devices of a class: those for which all selectors hold."""

    selectors: tuple[CelDeviceSelector, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Struct, frozen=True, kw_only=True):
    """A class of devices."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Struct, frozen=True, kw_only=True):
    """An attribute of a device: exactly one of the fields is set, or one of a form that we do not know."""

    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None


class CapacityRange(Struct, frozen=True, kw_only=True):
    """The amounts `min`, `min + step`, `min + 2 step` and so on, up to `max`."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Struct, frozen=True, kw_only=True):
    """The amounts of a capacity that requests can get."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Struct, frozen=True, kw_only=True):
    """A capacity of a device."""

    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class CounterAmount(Struct, frozen=True, kw_only=True):
    """An amount of a shared counter."""

    value: Quantity = 0


class CounterSet(Struct, frozen=True, kw_only=True):
    """Amounts that devices of a pool share, by name."""

    name: str = ""
    counters: Mapping[str, CounterAmount] = msgspec.field(default_factory=dict)


class CounterConsumption(Struct, frozen=True, kw_only=True):
    """The amounts that a device takes from one set of counters."""

    counter_set: str = ""
    counters: Mapping[str, CounterAmount] = msgspec.field(default_factory=dict)


class Device(Struct, frozen=True, kw_only=True):
    """A device.  `node_name` is set only where each device of the slice has a node of its own."""

    name: str = ""
    attributes: Mapping[str, DeviceAttribute] = msgspec.field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = msgspec.field(default_factory=dict)
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    taints: tuple[Taint, ...] = ()
    allow_multiple_allocations: bool | None = None


class ResourcePool(Struct, frozen=True, kw_only=True):
    """The pool of a slice: only its slices with the highest generation count, once all of them are there."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Struct, frozen=True, kw_only=True):
    """Some devices of a pool of a driver."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Struct, frozen=True, kw_only=True):
    """Devices that a driver offers."""

    metadata: ObjectMeta
    spec: ResourceSliceSpec = ResourceSliceSpec()
