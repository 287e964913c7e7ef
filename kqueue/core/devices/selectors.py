"""Selectors of devices: their compilation, and the devices for which they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from kqueue.core.devices.expression import Method, Program, SelectorError, compiled
from kqueue.core.devices.values import Device, DeviceClass, ExactQuantity, Selector, SemanticVersion
from kqueue.core.quantity import parse_exactly


class _Domains(dict[str, Mapping[str, Any]]):
    """Values by domain. A domain that a device does not have is empty, as in Kubernetes."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


@lru_cache(maxsize=256)  # a long expression takes some hundred KiB
def _compiled(text: str) -> Program | str:
    """Return the program of an expression, or why there is none."""
    try:
        return compiled(text, _FUNCTIONS, _METHODS)
    except SelectorError as e:
        return str(e)


def program_of(selector: Selector) -> Program:
    """Return the selector in a form that can be evaluated.

    Raises SelectorError for a selector outside of the part of CEL that kqueue knows.
    """
    found = selector.problem or _compiled(selector.text)
    if isinstance(found, str):
        raise SelectorError(found)
    return found


def problem_of(selector: Selector) -> str:
    """Return why the selector cannot be evaluated; empty: it can."""
    try:
        program_of(selector)
    except SelectorError as e:
        return str(e)
    return ""


def is_readable(selector: Selector) -> bool:
    """Whether the selector is in the part of CEL that kqueue knows."""
    return not problem_of(selector)


def matching(devices: Iterable[Device], selectors: Iterable[Selector]) -> Iterator[Device]:
    """Yield the devices for which all selectors hold.

    Raises SelectorError when a selector cannot be evaluated, in general or on one of the devices for which those before
    it hold.
    """
    programs = [program_of(each) for each in selectors]
    for device in devices:
        scope = _scope(device)
        if all(program.holds(scope) for program in programs):
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


def _can(read: Method) -> Method:
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
    "isQuantity": _can(_quantity),
    "semver": _semver,
    "isSemver": _can(_semver),
}
_METHODS: Mapping[str, Method] = {
    "compareTo": _order,
    "isGreaterThan": lambda one, other: _order(one, other) > 0,
    "isLessThan": lambda one, other: _order(one, other) < 0,
}
