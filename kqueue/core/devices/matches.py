"""The devices of the cluster for which selectors hold, evaluated once for each slice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kqueue.core.devices.expression import SelectorError
from kqueue.core.devices.pools import DeviceSlice
from kqueue.core.devices.selectors import is_readable, matching, of_class
from kqueue.core.devices.values import Device, DeviceClass, Selector

_MOST_KEPT = 64
"""Results that are kept: one takes about 200 bytes for each slice."""
Asked = tuple[str, tuple[Selector, ...]]
"""A class and selectors."""


@dataclass(frozen=True, slots=True)
class Found:
    """The devices for which all selectors hold.

    `problem`: why they have no value on some device; empty: they have one on all.  No device of the slice of such a
    device is among `devices`: kube-scheduler does not allocate there, either.
    """

    devices: tuple[Device, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class _Kept:
    of_class: DeviceClass | None
    version: int = -1
    by_slice: dict[str, tuple[DeviceSlice, Found]] = field(default_factory=dict)
    found: Found = field(default_factory=Found)


class Matches:
    """Evaluates selectors on the devices of complete pools; a slice that has not changed is not looked at again."""

    def __init__(self, class_of: Callable[[str], DeviceClass | None]) -> None:
        """Take the function that returns a DeviceClass by name."""
        self._class_of = class_of
        self._slices: Sequence[DeviceSlice] = ()
        self._version = 0
        self._kept: OrderedDict[Asked, _Kept] = OrderedDict()

    def offer(self, slices: Sequence[DeviceSlice]) -> None:
        """Take the slices of complete pools."""
        self._slices = slices
        self._version += 1

    def devices_to_evaluate(self, name: str, selectors: tuple[Selector, ...]) -> int | None:
        """Return how many devices of the class `find` would evaluate the selectors on; None: their result is known."""
        kept = self._kept_for(name, selectors)
        if kept is not None and kept.version == self._version:
            return None
        known = kept.by_slice if kept is not None else {}
        members = self.find(name, ())
        if not known:
            return len(members.devices)
        return sum(len(each.devices) for each in self._slices if not _is_same(known, each))

    def find(self, name: str, selectors: tuple[Selector, ...]) -> Found:
        """Return the devices of the class for which the selectors hold.

        Selectors that kqueue cannot evaluate are taken to hold.
        """
        kept = self._kept_for(name, selectors)
        if kept is None:
            kept = self._kept[name, selectors] = _Kept(self._class_of(name))
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        if kept.version != self._version:
            self._evaluate(kept, name, selectors)
        return kept.found

    def _kept_for(self, name: str, selectors: tuple[Selector, ...]) -> _Kept | None:
        """Return what is kept for the class as it is now."""
        kept = self._kept.get((name, selectors))
        if kept is None:
            return None
        if kept.of_class != self._class_of(name):
            del self._kept[name, selectors]
            return None
        self._kept.move_to_end((name, selectors))
        return kept

    def _evaluate(self, kept: _Kept, name: str, selectors: tuple[Selector, ...]) -> None:
        known, kept.by_slice = kept.by_slice, {}
        usable = tuple(each for each in selectors if is_readable(each))
        members = self._members_by_slice(name) if selectors else {}
        for each in self._slices:
            if _is_same(known, each):
                kept.by_slice[each.name] = known[each.name]
            elif not selectors:
                kept.by_slice[each.name] = each, _of_class(kept.of_class, each.devices)
            else:
                kept.by_slice[each.name] = each, _holding(members[each.name][1].devices, usable)
        results = [found for _, found in kept.by_slice.values()]
        devices = tuple(device for found in results for device in found.devices)
        kept.found = Found(devices, next((found.problem for found in results if found.problem), ""))
        kept.version = self._version

    def _members_by_slice(self, name: str) -> dict[str, tuple[DeviceSlice, Found]]:
        self.find(name, ())
        return self._kept[name, ()].by_slice


def _is_same(known: dict[str, tuple[DeviceSlice, Found]], each: DeviceSlice) -> bool:
    return each.name in known and known[each.name][0] is each


def _of_class(found: DeviceClass | None, devices: Sequence[Device]) -> Found:
    if found is None:
        return _NOTHING
    return Found(tuple(device for device in devices if of_class(device, found))) if devices else _NOTHING


def _holding(devices: Sequence[Device], selectors: Sequence[Selector]) -> Found:
    if not devices:
        return _NOTHING
    try:
        return Found(tuple(matching(devices, selectors)))
    except SelectorError as e:
        return Found(problem=str(e))


_NOTHING = Found()
