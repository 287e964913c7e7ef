"""The devices of one host as a request sees them: how many of them it can still get.

A host has a whole number of devices for a request.  Devices that take amounts of shared counters, or whose capacity
several claims share, are counted as they would be handed out one after the other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kqueue.core.devices.values import Device, DeviceKey, Selector

HOST_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource by which hosts have devices of a class.  Kubernetes gives pods this name for such devices."""
_WHERE = " where "
_SHOWN = 80
_SCALE = 1_000_000
CounterKey = tuple[str, str, str, str]
"""Driver, pool, set and name of a shared counter."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The devices that a request may get: those of a class for which all selectors hold, with these capacities.

    `capacity`: requested amounts by qualified name, sorted.
    """

    device_class: str
    selectors: tuple[Selector, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()

    @property
    def row(self) -> str:
        """The resource by which hosts have these devices; it is a text of bounded length for people, too."""
        rules = [each.text for each in self.selectors] + [f"{name} >= {amount}" for name, amount in self.capacity]
        if not rules:
            return HOST_PREFIX + self.device_class
        text = " && ".join(rules)
        if len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
        return f"{HOST_PREFIX}{self.device_class}{_WHERE}{text}"


def is_of_request(resource: str) -> bool:
    """Whether a resource of hosts counts the devices that a tenant's request may get, so that views leave it out."""
    return resource.startswith(HOST_PREFIX) and _WHERE in resource


@dataclass(slots=True)
class Taken:
    """The devices and the amounts that claims have taken.  `totals`: the amounts of all shared counters."""

    totals: Mapping[CounterKey, int]
    held: set[DeviceKey] = field(default_factory=set)
    capacity: Counter[tuple[DeviceKey, str]] = field(default_factory=Counter)
    counters: Counter[CounterKey] = field(default_factory=Counter)

    def take(self, device: Device, consumed: Mapping[str, int]) -> None:
        """Take a device, or these amounts of its capacities if claims share it."""
        if device.key not in self.held:
            self.held.add(device.key)
            self.counters.update(dict(_consumption(device)))
        for name, amount in consumed.items() if device.shared else ():
            self.capacity[device.key, name] += amount


def room(devices: Iterable[Device], requested: Mapping[str, int], taken: Taken) -> int:
    """Return how many times a request for one of these devices can still be met.

    Devices without a part in shared counters come first, then those that take least of them.  For devices of one
    counter the number is exact; where devices take several counters it may be too small, and is never too large.
    """
    found = 0
    dividing: list[tuple[int, DeviceKey, Device, int]] = []
    for device in devices:
        times = _times(device, requested, taken)
        if not times:
            continue
        if device.consumes and device.key not in taken.held:
            dividing.append((_part(device, taken), device.key, device, times))
        else:
            found += times
    used: Counter[CounterKey] = Counter()
    for _, _, device, times in sorted(dividing, key=lambda each: each[:2]):
        amounts = _consumption(device)
        if all(used[key] + amount <= taken.totals.get(key, 0) - taken.counters[key] for key, amount in amounts):
            used.update(dict(amounts))
            found += times
    return found


def is_countable(device: Device) -> bool:
    """Whether a host can say how many claims may have the device."""
    return bool(device.node) and (not device.shared or bool(device.capacity))


def _times(device: Device, requested: Mapping[str, int], taken: Taken) -> int:
    """Return how many claims the device can still serve, without regard to shared counters."""
    if device.tainted or any(name not in device.capacity for name in requested):
        return 0
    if not device.shared:
        fits = all(device.amount_for(name, amount) is not None for name, amount in requested.items())
        return int(fits and device.key not in taken.held)
    times: int | None = None
    for name, (whole, _) in device.capacity.items():
        amount = device.amount_for(name, requested.get(name))
        if amount is None:
            return 0
        if amount:
            left = max(0, whole - taken.capacity[device.key, name]) // amount
            times = left if times is None else min(times, left)
    return times or 0


def _consumption(device: Device) -> list[tuple[CounterKey, int]]:
    return [((device.driver, device.pool, *key), amount) for key, amount in device.consumes.items()]


def _part(device: Device, taken: Taken) -> int:
    """Return the largest part of a shared counter that the device takes, in millionths."""
    return max(amount * _SCALE // max(1, taken.totals.get(key, 0)) for key, amount in _consumption(device))
