"""Resource quantities as the API server writes them back: `1024Mi` becomes `1Gi`, `2000m` becomes `2`."""

from __future__ import annotations

import re
from functools import lru_cache

_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAMES = {exponent: name for name, exponent in _DECIMAL.items()}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_NAMES = {power: name for name, power in _BINARY.items()}
RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NANO = 10**9
_LONGEST = 64


@lru_cache(maxsize=1 << 14)
def nanos(text: str) -> int:
    """The amount in thousand-millionths, rounded away from zero.

    Raises:
        ValueError: the text is not a quantity.
    """
    match = _TEXT.fullmatch(text)
    if match is None or len(text) > _LONGEST or not (match[2] or match[3]):
        raise ValueError(RULE)
    fraction = match[3] or ""
    number, suffix = int(match[2] + fraction), match[4]
    scale = _NANO
    if suffix in _BINARY:
        scale <<= 10 * _BINARY[suffix]
        exponent = 0
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    exponent -= len(fraction)
    if exponent >= 0:
        value = number * scale * _ten_to(exponent)
    else:
        value = -(-number * scale // _ten_to(-exponent))
    return -value if match[1] == "-" else value


def _ten_to(power: int) -> int:
    return int("1" + "0" * power)


@lru_cache(maxsize=1 << 14)
def canonical(text: str) -> str:
    """The same amount with the largest suffix of its family that leaves no fraction.  Raises ValueError."""
    amount = nanos(text)
    match = _TEXT.fullmatch(text)
    assert match is not None
    if amount == 0:
        return "0"
    suffix = match[4]
    if suffix in _BINARY and amount % _NANO == 0 and abs(amount) >= 1024 * _NANO:
        return _in_binary(amount // _NANO)
    digits = amount
    exponent = -9
    while digits % 1000 == 0 and exponent < 18:
        digits //= 1000
        exponent += 3
    if suffix[:1] in ("e", "E") and suffix != "E":
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_DECIMAL_NAMES[exponent]}"


def _in_binary(whole: int) -> str:
    power = 0
    while whole % 1024 == 0 and power < max(_BINARY_NAMES):
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_NAMES[power]}" if power else str(whole)
