"""Resource quantities: their grammar, their exact value, and the text that Kubernetes writes for them.

An amount is a whole number times a power of ten, so nothing is rounded before the caller asks for it.  Each caller has
its own rules for the exponents that it accepts, for error messages, and for cutting amounts to 64 bits.

Source: Kubernetes `resource.Quantity`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
DECIMAL_SUFFIXES: Final = tuple(_DECIMAL)
"""From n (billionths) to E, a thousand apart."""
BINARY_SUFFIXES: Final = ("", *_BINARY)
"""From bytes to Ei, 1024 apart."""
LONGEST_TEXT: Final = 256
"""Characters that a quantity may have here, so that reading it takes little time."""
FINEST_PLACES: Final = 9
"""Decimal places that Kubernetes keeps; finer amounts are rounded away from zero."""
_FINEST = 10**FINEST_PLACES


class Quantity(NamedTuple):
    """The exact amount `number` x 10^`exponent`, and the suffix that it was written with."""

    number: int
    exponent: int
    suffix: str

    def rounded(self, places: int) -> int:
        """Return the amount in units of 10^-`places`, rounded away from zero."""
        number, exponent = self.number, self.exponent + places
        if exponent >= 0:
            return number * int(10**exponent)
        divisor = int(10**-exponent)
        return -(-number // divisor) if number > 0 else number // divisor


def parse(text: str) -> Quantity | None:
    """Parse an amount; None for a text that is no quantity or has more than `LONGEST_TEXT` characters."""
    match = _TEXT.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        return None
    sign, whole, fraction, suffix = match.groups("")
    if not whole and not fraction:
        return None
    number = int(whole + fraction)
    if sign == "-":
        number = -number
    exponent = _DECIMAL.get(suffix)
    if exponent is None and (shift := _BINARY.get(suffix)):
        number, exponent = number << shift, 0
    return Quantity(number, (int(suffix[1:]) if exponent is None else exponent) - len(fraction), suffix)


def canonical(quantity: Quantity) -> str:
    """Return the API server's text of a quantity: the largest suffix of its family that leaves a whole number.

    `1024Mi` becomes `1Gi`, `1000m` becomes `1`, `0.5` becomes `500m`, `1000e3` becomes `1e6`.  Binary amounts below
    1024, and binary amounts with a fraction, get decimal suffixes.  Amounts finer than billionths are rounded away from
    zero.
    """
    billionths = quantity.rounded(FINEST_PLACES)
    if quantity.suffix in _BINARY and billionths % _FINEST == 0 and abs(billionths) >= 1024 * _FINEST:
        return with_suffix(billionths // _FINEST, 1024, BINARY_SUFFIXES)
    if quantity.suffix in _BINARY or quantity.suffix in _DECIMAL:
        return with_suffix(billionths, 1000, DECIMAL_SUFFIXES)
    return with_suffix(billionths, 1000, _EXPONENTS)


_EXPONENTS = tuple(f"e{exponent}" if exponent else "" for exponent in _DECIMAL.values())


def with_suffix(value: int, step: int, suffixes: Sequence[str]) -> str:
    """Write `value` units of the first of `suffixes` with the last suffix that leaves a whole number.

    Each suffix means `step` times the one before.  Zero has no suffix.
    """
    if value == 0:
        return "0"
    chosen = 0
    while chosen + 1 < len(suffixes) and value % step == 0:
        value //= step
        chosen += 1
    return f"{value}{suffixes[chosen]}"
