"""Resource quantities as integers: cpu in thousandths of a core, everything else in base units.

Kubernetes writes amounts as text (`500m`, `2`, `1.5Gi`, `1e3`).  Inside kqueue an amount is an `int`, rounded away from
zero to the next whole unit and held within 64 bits, so that no sum of them is ever a guess.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

CPU = "cpu"

_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES = ("", "k", "M", "G", "T", "P", "E")
_LONGEST_TEXT = 256
_FARTHEST_EXPONENT = 2 * _LONGEST_TEXT  # beyond it every text of allowed length is above 2^63 or below one unit


def parse_quantity(text: str | int, resource: str) -> int:
    """The integer that a Kubernetes quantity stands for.

    Args:
        text: quantity text, or the integer a JSON document holds in its place (2 is 2 cores, not 2 milli).
        resource: its name decides the unit: `cpu` in milli, everything else in base units (bytes, devices, pods).

    Returns:
        The amount, rounded away from zero, cut to what fits into 64 bits.  Negative texts give negative amounts;
        whether these make sense is the caller's rule.

    Raises:
        ValueError: the text is not a quantity.  The message quotes it and says what to write instead.

    Source: Kubernetes `resource.Quantity`.
    """
    return _parse(text if type(text) is str else _digits_of(text), 3 if resource == CPU else 0)


def parse_billionths(text: str | int) -> int:
    """A Kubernetes quantity in billionths, the finest that Kubernetes keeps; otherwise as `parse_quantity`."""
    return _parse(text if type(text) is str else _digits_of(text), 9)


def parse_exactly(text: str | int) -> Fraction:
    """A Kubernetes quantity as it stands there, neither rounded nor cut; otherwise as `parse_quantity`."""
    number, exponent = _number(text if type(text) is str else _digits_of(text))
    return Fraction(number) * Fraction(10) ** exponent


def _digits_of(number: object) -> str:
    if isinstance(number, int) and not isinstance(number, bool):
        return str(clamp(number))
    raise ValueError(_complaint(number))


@lru_cache(maxsize=1 << 16)
def _parse(text: str, places: int) -> int:
    number, exponent = _number(text)
    exponent += places
    magnitude = abs(number) * 10**exponent if exponent >= 0 else -(-abs(number) // 10**-exponent)
    return clamp(-magnitude if number < 0 else magnitude)


def _number(text: str) -> tuple[int, int]:
    """The whole number, and the power of ten that it is to be multiplied by."""
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"a quantity of {len(text)} characters is too long: write at most {_LONGEST_TEXT}")
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(_complaint(text))
    sign, whole, fraction, suffix = match.group(1), match.group(2), match.group(3) or "", match.group(4) or ""
    if not whole and not fraction:
        raise ValueError(_complaint(text))
    number = int(whole + fraction)
    number <<= _BINARY.get(suffix, 0)
    return (-number if sign == "-" else number), _exponent(suffix) - len(fraction)


def _exponent(suffix: str) -> int:
    if len(suffix) > 1 and suffix not in _BINARY:
        return max(-_FARTHEST_EXPONENT, min(_FARTHEST_EXPONENT, int(suffix[1:])))
    return _DECIMAL.get(suffix, 0)


def _complaint(text: object) -> str:
    return (
        f"{text!r} is not a quantity: write a number with an optional suffix, such as 500m, 2, 1.5, 16Gi or 1e3 "
        "(suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent)"
    )


@lru_cache(maxsize=8192)
def format_quantity(value: int, resource: str) -> str:
    """The canonical Kubernetes text of an amount; `parse_quantity` reads it back unchanged.

    Memory, ephemeral storage and huge pages are written with binary suffixes from 1024 bytes on, everything else with
    decimal ones; the largest suffix that leaves a whole number wins (1500 milli cpu is `1500m`, 2000 is `2`).
    """
    if resource == CPU:
        return _with_suffix(value, 1000, ("m", *_DECIMAL_SUFFIXES))
    if abs(value) >= 1024 and (resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")):
        return _with_suffix(value, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    return _with_suffix(value, 1000, _DECIMAL_SUFFIXES)


def format_decimal(amount: float) -> str:
    """The Kubernetes text of an estimate in base units: whole from 1000 on, else to a millionth; at most 2^63 - 1."""
    if abs(amount) < 1000:
        return _with_suffix(round(amount * 1_000_000), 1000, ("u", "m", *_DECIMAL_SUFFIXES))
    whole = round(amount) if math.isfinite(amount) else INT64_MAX
    return _with_suffix(clamp(whole), 1000, _DECIMAL_SUFFIXES)


def _with_suffix(value: int, step: int, suffixes: tuple[str, ...]) -> str:
    if value == 0:
        return "0"
    chosen = 0
    while chosen + 1 < len(suffixes) and value % step == 0:
        value //= step
        chosen += 1
    return f"{value}{suffixes[chosen]}"


def clamp(value: int) -> int:
    """`value` cut to what fits into 64 bits."""
    return INT64_MIN if value < INT64_MIN else min(value, INT64_MAX)


def saturating_add(a: int, b: int) -> int:
    """a + b, cut to what fits into 64 bits instead of wrapping."""
    return clamp(a + b)
