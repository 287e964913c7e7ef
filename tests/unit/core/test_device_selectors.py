"""Selectors of devices: the part of CEL that is evaluated, and what is refused."""

from __future__ import annotations

import contextlib
import time
from fractions import Fraction

import pytest

from kqueue.core.devices.expression import SelectorError
from kqueue.core.devices.selectors import matching, of_class, problem_of
from kqueue.core.devices.values import Device, DeviceClass, ExactQuantity, Selector, SemanticVersion

GIB = 2**30
GPU = Device(
    driver="gpu.example.com",
    pool="n1",
    name="gpu-0",
    node="n1",
    attributes={
        "gpu.example.com": {
            "model": "A100",
            "index": 3,
            "healthy": True,
            "driverVersion": SemanticVersion.parse("1.20.3"),
        }
    },
    quantities={"gpu.example.com": {"memory": ExactQuantity(Fraction(80 * GIB))}},
)
OWN = "device.attributes['gpu.example.com']"
MEMORY = "device.capacity['gpu.example.com'].memory"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("device.driver == 'gpu.example.com'", True),
        ("device.driver == \"other\" || device.driver.startsWith('gpu.')", True),
        ("device.driver.endsWith('.com') && !device.driver.contains('nvidia')", True),
        ("device.driver in ['a', 'gpu.example.com']", True),
        (f"{OWN}.model == 'A100'", True),
        (f"{OWN}['model'] != 'A100'", False),
        (f"{OWN}.model.lowerAscii() == 'a100' && {OWN}.model.size() == 4", True),
        (f"{OWN}.index >= 3 && {OWN}.index < 4 && {OWN}.index % 2 == 1", True),
        (f"{OWN}.index * 2 + 1 == 7 && -{OWN}.index == -3 && -7 / 2 == -3", True),
        (f"{OWN}.healthy", True),
        (f"{OWN}.healthy ? {OWN}.index == 3 : false", True),
        (f"{OWN}.driverVersion.isGreaterThan(semver('1.9.0'))", True),
        (f"{OWN}.driverVersion.compareTo(semver('1.20.3-rc.1')) > 0", True),
        (f"{OWN}.driverVersion == semver('1.20.3+build')", True),
        (f"{MEMORY}.compareTo(quantity('40Gi')) >= 0", True),
        (f"{MEMORY}.isLessThan(quantity('81Gi')) && {MEMORY}.isGreaterThan(quantity('79.5Gi'))", True),
        (f"{MEMORY} == quantity('80Gi')", True),
        (f"has({OWN}.model) && !has({OWN}.family)", True),
        ("has(device.attributes['elsewhere'].model)", False),
        ("'gpu.example.com' in device.attributes && 'model' in device.attributes['gpu.example.com']", True),
        (f"cel.bind(own, {OWN}, own.model == 'A100' && own.index == 3)", True),
        ("isQuantity('1Gi') && !isQuantity('a lot') && !isSemver('1.2')", True),
        ("device.allowMultipleAllocations", False),
        (f"{OWN}.missing == 'x' || device.driver == 'gpu.example.com'", True),
        (f"{OWN}.missing == 'x' && device.driver == 'other'", False),
        (f"{OWN}.index == '3'", False),
        (f"{OWN}.healthy == 1", False),
        (r"""'a\'b' == "a'b" """, True),
    ],
)
def test_selectors_hold_as_cel_says(text: str, want: bool) -> None:
    """Commutative `||` and `&&`: a part without a value does not matter when another one decides."""
    found = Selector(text)

    assert problem_of(found) == ""
    assert (list(matching([GPU], [found])) == [GPU]) is want


@pytest.mark.parametrize(
    "text",
    [
        "",
        "device.driver ==",
        "device.driver == 'a' 'b'",
        "device.serial == 'x'",
        "object.metadata.name == 'x'",
        "device.driver.matches('(a+)+$')",
        "['a'].exists(x, x == 'a')",
        "device.driver == b'a'",
        "1.5 < 2",
        "has(device)",
        "has(device.attributes['a'])",
        "cel.bind(device, 1, true)",
        "cel.block(1)",
        "cel.bind(a, 1, true) && a == 1",
        r"'\x41' == 'A'",
        "(" * 100 + "true" + ")" * 100,
        "!" * 100 + "true",
        "has(" * 2000 + "device.driver" + ")" * 2000,
        "cel.bind(a, " * 800 + "true",
        "[" * 2000,
        "true ? " * 1000 + "true",
        "device[" * 1000,
        "99999999999999999999 > 1",
        "'" + "a" * 11_000 + "' == 'a'",
    ],
)
def test_what_is_outside_of_the_part_has_a_problem(text: str) -> None:
    """It is told when the template is read, not when a device is looked at."""
    assert problem_of(Selector(text))


@pytest.mark.parametrize(
    "text",
    [
        f"{OWN}.missing == 'x'",
        f"{OWN}.model",
        f"{OWN}.model < 3",
        f"{OWN}.index / 0 == 1",
        "9223372036854775807 + 1 > 0",
        "device.driver + 'a' == 'b'",
        f"{MEMORY}.compareTo(3) > 0",
        "quantity('a lot') == quantity('1')",
        "device.driver.startsWith('a', 'b')",
        "device" + "['driver']" * 1000 + " == 'a'",
        "1" + "+1" * 5000 + " == 5001",
        "1" + "*1" * 5000 + " == 1",
    ],
)
def test_a_selector_without_a_value_raises(text: str) -> None:
    """A class does not have the device then, as for kube-scheduler."""
    with pytest.raises(SelectorError):
        list(matching([GPU], [Selector(text)]))
    assert not of_class(GPU, DeviceClass(name="c", selectors=(Selector(text),)))


def test_a_class_without_selectors_has_every_device() -> None:
    assert of_class(GPU, DeviceClass(name="c"))
    assert not of_class(GPU, DeviceClass(name="c", selectors=(Selector("true"), Selector("not CEL"))))


@pytest.mark.parametrize(
    "text",
    [
        "has(" * 20 + "device.driver" + ")" * 20,
        "cel.bind(a, device.driver, " * 20 + "true" + ")" * 20,
        "[" * 20 + "]" * 20 + " == []",
        "device.driver" + "[device.driver" * 20 + "]" * 20 + " == 'a'",
    ],
)
def test_deep_expressions_take_no_exponential_time(text: str) -> None:
    began = time.monotonic()
    found = Selector(text)
    with contextlib.suppress(SelectorError):
        list(matching([GPU] * 10, [found]))

    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("1.2.3", "1.2.10"),
        ("1.0.0-alpha", "1.0.0"),
        ("1.0.0-2", "1.0.0-10"),
        ("1.0.0-9", "1.0.0-a"),
        ("0.9.9", "1.0.0"),
    ],
)
def test_versions_compare_as_semver_says(less: str, more: str) -> None:
    assert SemanticVersion.parse(less) < SemanticVersion.parse(more)
