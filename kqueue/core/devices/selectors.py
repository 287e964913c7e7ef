"""Selectors of devices: their compilation, and the devices for which they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from kqueue.core.devices.expression import Method, SelectorError, compiled
from kqueue.core.devices.values import Device, DeviceClass, ExactQuantity, Selector, SemanticVersion
from kqueue.core.quantity import parse_exactly


class _Domains(dict[str, Mapping[str, Any]]):
    """Values by domain. A domain that a device does not have is empty, as in Kubernetes."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


@lru_cache(maxsize=4096)
def selector(text: str) -> Selector:
    """Return an expression as a selector, with its problem if it cannot be evaluated."""
    try:
        return Selector(text, compiled(text, _FUNCTIONS, _METHODS))
    except SelectorError as e:
        return Selector(text, problem=str(e))


def matching(devices: Iterable[Device], selectors: Iterable[Selector]) -> Iterator[Device]:
    """Yield the devices for which all selectors hold.

    Raises SelectorError when a selector cannot be evaluated on one of the devices for which those before it hold.
    """
    programs = [each.program for each in selectors]
    for device in devices:
        scope = _scope(device)
        if all(program is not None and program.holds(scope) for program in programs):
            yield device


def of_class(device: Device, device_class: DeviceClass) -> bool:
    """Whether the device belongs to the class.

    A selector that cannot be evaluated on the device does not hold: kube-scheduler does not allocate it then, either.
    """
    try:
        return any(True for _ in matching((device,), device_class.selectors))
    except SelectorError:
        return False


def _scope(device: Device) -> Mapping[str, Any]:
    return {
        "driver": device.driver,
        "attributes": _Domains(device.attributes),
        "capacity": _Domains(device.quantities),
        "allowMultipleAllocations": device.shared,
    }


def _quantity(text: Any) -> ExactQuantity:
    if not isinstance(text, str):
        raise SelectorError(f"{text!r} is no text of a quantity")
    return ExactQuantity(parse_exactly(text))


def _semver(text: Any) -> SemanticVersion:
    if not isinstance(text, str):
        raise SelectorError(f"{text!r} is no text of a version")
    return SemanticVersion.parse(text)


def _is_readable(read: Method) -> Method:
    def check(text: Any) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return check


def _order(one: Any, other: Any) -> int:
    if isinstance(one, ExactQuantity) and isinstance(other, ExactQuantity):
        return (one.number > other.number) - (one.number < other.number)
    if isinstance(one, SemanticVersion) and isinstance(other, SemanticVersion):
        return (one > other) - (one < other)
    raise SelectorError(f"{one!r} and {other!r} cannot be compared: write two quantities, or two versions")


_FUNCTIONS: Mapping[str, Method] = {
    "quantity": _quantity,
    "isQuantity": _is_readable(_quantity),
    "semver": _semver,
    "isSemver": _is_readable(_semver),
}
_METHODS: Mapping[str, Method] = {
    "compareTo": _order,
    "isGreaterThan": lambda one, other: _order(one, other) > 0,
    "isLessThan": lambda one, other: _order(one, other) < 0,
}
