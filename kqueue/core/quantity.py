"""Resource quantities as integers: cpu in thousandths of a core, everything else in base units.

Kubernetes writes amounts as text (`500m`, `2`, `1.5Gi`, `1e3`).  In kqueue an amount is an `int`, rounded away from
zero to the next whole unit and limited to 64 bits, so that sums are exact.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from kqueue.kube.quantity import (
    BINARY_SUFFIXES,
    DECIMAL_SUFFIXES,
    FINEST_PLACES,
    LONGEST_TEXT,
    Quantity,
    parse,
    with_suffix,
)

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

CPU = "cpu"

_FROM_ONE = DECIMAL_SUFFIXES[3:]
_FROM_MILLI, _FROM_MILLIONTHS = DECIMAL_SUFFIXES[2:], DECIMAL_SUFFIXES[1:]
_FARTHEST_EXPONENT = 2 * LONGEST_TEXT  # beyond it every text of allowed length is above 2^63 or below one unit


def parse_quantity(text: str | int, resource: str) -> int:
    """Return the value of a Kubernetes quantity as an integer.

    Args:
        text: quantity text, or the integer that a JSON document has in its place (2 is 2 cores, not 2 milli).
        resource: its name decides the unit: `cpu` in milli, everything else in base units (bytes, devices, pods).

    Returns:
        The amount, rounded away from zero, cut to what fits into 64 bits.  Negative texts give negative amounts;
        whether these are allowed is the caller's rule.

    Raises:
        ValueError: the text is not a quantity.  The message quotes it and says what to write instead.

    Source: Kubernetes `resource.Quantity`.
    """
    return _parse(text if type(text) is str else _digits_of(text), 3 if resource == CPU else 0)


def parse_billionths(text: str | int) -> int:
    """Return a Kubernetes quantity in billionths, the finest unit of Kubernetes; otherwise as `parse_quantity`."""
    return _parse(text if type(text) is str else _digits_of(text), FINEST_PLACES)


def read_quantity(text: str | int) -> Quantity:
    """Return a Kubernetes quantity with its suffix, neither rounded nor cut; otherwise as `parse_quantity`."""
    return _read(text if type(text) is str else _digits_of(text))


def parse_exactly(text: str | int) -> Fraction:
    """Return the value of a Kubernetes quantity, neither rounded nor cut; otherwise as `parse_quantity`."""
    found = read_quantity(text)
    return Fraction(found.number) * Fraction(10) ** found.exponent


def _digits_of(number: object) -> str:
    if isinstance(number, int) and not isinstance(number, bool):
        return str(clamp(number))
    raise ValueError(_complaint(number))


@lru_cache(maxsize=1 << 16)
def _parse(text: str, places: int) -> int:
    return clamp(_read(text).rounded(places))


def _read(text: str) -> Quantity:
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a quantity of {len(text)} characters is too long: write at most {LONGEST_TEXT}")
    found = parse(text)
    if found is None:
        raise ValueError(_complaint(text))
    if -_FARTHEST_EXPONENT <= found.exponent <= _FARTHEST_EXPONENT:
        return found
    return found._replace(exponent=_FARTHEST_EXPONENT if found.exponent > 0 else -_FARTHEST_EXPONENT)


def _complaint(text: object) -> str:
    return (
        f"{text!r} is not a quantity: write a number with an optional suffix, such as 500m, 2, 1.5, 16Gi or 1e3 "
        "(suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent)"
    )


@lru_cache(maxsize=8192)
def format_quantity(value: int, resource: str) -> str:
    """Return the canonical Kubernetes text of an amount; `parse_quantity` reads it back unchanged.

    Memory, ephemeral storage and huge pages are written with binary suffixes from 1024 bytes on, everything else with
    decimal ones; the largest suffix with a whole number is used (1500 milli cpu is `1500m`, 2000 is `2`).
    """
    if resource == CPU:
        return with_suffix(value, 1000, _FROM_MILLI)
    if abs(value) >= 1024 and (resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")):
        return with_suffix(value, 1024, BINARY_SUFFIXES)
    return with_suffix(value, 1000, _FROM_ONE)


def format_decimal(amount: float) -> str:
    """Return the Kubernetes text of an estimate in base units: whole from 1000 on, else to a millionth; at most 2^63 -
    1.
    """
    if abs(amount) < 1000:
        return with_suffix(round(amount * 1_000_000), 1000, _FROM_MILLIONTHS)
    whole = round(amount) if math.isfinite(amount) else INT64_MAX
    return with_suffix(clamp(whole), 1000, _FROM_ONE)


def clamp(value: int) -> int:
    """Return `value` cut to 64 bits."""
    return INT64_MIN if value < INT64_MIN else min(value, INT64_MAX)


def saturating_add(a: int, b: int) -> int:
    """Return a + b, cut to 64 bits instead of wrapping."""
    return clamp(a + b)
