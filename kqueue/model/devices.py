"""Devices, classes and claims as values of the core."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import structlog

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import devices as wire
from kqueue.api.wire.meta import Quantity
from kqueue.core.devices.counting import NamedClaim
from kqueue.core.devices.pools import DeviceSlice
from kqueue.core.devices.values import (
    NO_POLICY,
    AttributeValue,
    CapacityPolicy,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceRequest,
    ExactQuantity,
    Selector,
    SemanticVersion,
)
from kqueue.core.quantity import parse_exactly, parse_quantity
from kqueue.model.conditions import NO_TIME

_log = structlog.get_logger(__name__)

_BY_TAINT = frozenset(("NoSchedule", "NoExecute"))


def named_claims(spec: wire_core.PodSpec) -> tuple[NamedClaim, ...]:
    """Return the claims of a pod spec."""
    return tuple(
        NamedClaim(c.name, c.resource_claim_template_name or "", c.resource_claim_name or "")
        for c in spec.resource_claims
    )


def device_requests(template: wire.ResourceClaimTemplate) -> tuple[DeviceRequest, ...]:
    """Return the requests of each claim that is made from the template."""
    return tuple(_request(each) for each in template.spec.spec.devices.requests)


def _request(request: wire.DeviceRequest) -> DeviceRequest:
    exact = request.exactly
    if exact is None:
        return DeviceRequest(exact=False, alternatives=request.first_available is not None)
    mode = exact.allocation_mode or "ExactCount"
    return DeviceRequest(
        alternatives=bool(request.first_available),
        device_class=exact.device_class_name,
        mode=mode,
        count=max(0, exact.count) or int(mode == "ExactCount"),
        admin=exact.admin_access is True,
        selectors=_selectors(exact.selectors),
        capacity={} if exact.capacity is None else {k: _amount(v) for k, v in exact.capacity.requests.items()},
    )


def _selectors(written: tuple[wire.CelDeviceSelector, ...]) -> tuple[Selector, ...]:
    return tuple(
        Selector(each.cel.expression) if each.cel is not None else Selector("", problem="its form is not known")
        for each in written
    )


def device_class(obj: wire.DeviceClass) -> DeviceClass:
    """Return a DeviceClass as a value."""
    return DeviceClass(
        name=obj.metadata.name,
        selectors=_selectors(obj.spec.selectors),
        extended_resource=obj.spec.extended_resource_name or "",
        created=(obj.metadata.creation_timestamp or NO_TIME).isoformat(),
    )


def device_slice(obj: wire.ResourceSlice) -> DeviceSlice:
    """Return a ResourceSlice as a value."""
    spec = obj.spec
    shared = spec.shared_counters
    return DeviceSlice(
        name=obj.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        devices=tuple(_device(each, spec) for each in spec.devices or ()),
        counters={(each.name, name): _amount(c.value) for each in shared for name, c in each.counters.items()},
    )


def _device(written: wire.Device, spec: wire.ResourceSliceSpec) -> Device:
    attributes: dict[str, dict[str, AttributeValue | ExactQuantity]] = {}
    quantities: dict[str, dict[str, AttributeValue | ExactQuantity]] = {}
    capacity: dict[str, tuple[int, CapacityPolicy]] = {}
    for name, attribute in written.attributes.items():
        value = _attribute(attribute)
        if value is not None:
            domain, plain = _qualified(name, spec.driver)
            attributes.setdefault(domain, {})[plain] = value
    for name, each in written.capacity.items():
        domain, plain = _qualified(name, spec.driver)
        quantities.setdefault(domain, {})[plain] = ExactQuantity(parse_exactly(each.value))
        capacity[name] = (_amount(each.value), _policy(each.request_policy))
    counters: dict[str, int] = {}
    consumes: dict[tuple[str, str], int] = {}
    for taken in written.consumes_counters:
        for name, counter in taken.counters.items():
            consumes[taken.counter_set, name] = amount = _amount(counter.value)
            counters[name] = max(counters.get(name, 0), amount)
    return Device(
        driver=spec.driver,
        pool=spec.pool.name,
        name=written.name,
        node=spec.node_name or written.node_name or "",
        attributes=attributes,
        quantities=quantities,
        counters=counters,
        consumes=consumes,
        capacity=capacity,
        tainted=any(taint.effect in _BY_TAINT for taint in written.taints),
        shared=written.allow_multiple_allocations is True,
    )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Return domain and name of an attribute; a name without a domain has the driver's."""
    domain, slash, plain = name.rpartition("/")
    return (domain, plain) if slash else (driver, name)


def _attribute(written: wire.DeviceAttribute) -> AttributeValue | None:
    if written.version is not None:
        try:
            return SemanticVersion.parse(written.version)
        except ValueError as e:
            _log.warning("a version of a device cannot be parsed and is ignored", error=str(e))
            return None
    if written.bool_ is not None:
        return written.bool_
    return written.int_ if written.int_ is not None else written.string


def _policy(written: wire.CapacityRequestPolicy | None) -> CapacityPolicy:
    if written is None:
        return NO_POLICY
    bounds = written.valid_range
    return CapacityPolicy(
        default=_optional(written.default),
        valid=tuple(sorted(_amount(each) for each in written.valid_values)),
        least=None if bounds is None else _optional(bounds.min),
        most=None if bounds is None else _optional(bounds.max),
        step=None if bounds is None else _optional(bounds.step),
    )


def _amount(text: Quantity) -> int:
    return parse_quantity(text, "")


def _optional(text: Quantity | None) -> int | None:
    return None if text is None else _amount(text)


@dataclass(frozen=True, slots=True)
class ClaimView:
    """The stored part of a ResourceClaim.

    Args:
        key: namespace/name.
        devices: the devices that it keeps from others.
        consumed: the amounts that it takes of capacities of devices that claims share: device, name and amount.
        pods: namespace/name of the pods for which it is reserved, or of the pod for which it was made.
    """

    key: str
    devices: tuple[DeviceKey, ...] = ()
    pods: tuple[str, ...] = ()
    consumed: tuple[tuple[DeviceKey, str, int], ...] = ()


def claim_view(claim: wire.ResourceClaim) -> ClaimView:
    """Return a claim with its devices and pods."""
    meta, status = claim.metadata, claim.status
    key = f"{meta.namespace}/{meta.name}"
    if status.allocation is None:
        return ClaimView(key)
    users = [user.name for user in status.reserved_for if (user.api_group, user.resource) == ("", "pods")]
    owners = [o.name for o in meta.owner_references if (o.api_version, o.kind) == ("v1", "Pod")]
    held = [
        ((sys.intern(each.driver), sys.intern(each.pool), sys.intern(each.device)), each.consumed_capacity)
        for each in status.allocation.devices.results
        if not each.admin_access
    ]
    return ClaimView(
        key,
        devices=tuple(device for device, _ in held),
        consumed=tuple((device, name, _amount(text)) for device, taken in held for name, text in taken.items()),
        pods=tuple(f"{meta.namespace}/{name}" for name in users or owners),
    )


def may_need_devices(spec: wire_core.PodSpec) -> bool:
    """Whether a pod claims devices, or asks for a resource outside of those of Kubernetes, as devices may satisfy."""
    parts = [container.resources for container in (*spec.containers, *spec.init_containers)]
    parts += [spec.resources] if spec.resources is not None else []
    return bool(spec.resource_claims) or any("/" in name for part in parts for name in (*part.limits, *part.requests))
