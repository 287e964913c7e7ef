"""Kubernetes quantities as the simulated scheduler counts them: cpu in milli, everything else in base units."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_TEXT = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?", re.ASCII)
_FACTORS: dict[str, Fraction] = {
    "": Fraction(1),
    **{
        suffix: Fraction(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{letter}i": Fraction(1024) ** (rank + 1) for rank, letter in enumerate("KMGTPE")},
}
_LONGEST = 64
_LARGEST = 2**63 - 1


@lru_cache(maxsize=1 << 14)
def amount(written: str | int, resource: str) -> int:
    """The integer that a quantity stands for, rounded up, cut to 64 bits.

    Raises:
        ValueError: `written` is negative or no quantity; the message says what to write instead.
    """
    match = _TEXT.fullmatch(str(written)[: _LONGEST + 1])
    if match is None or isinstance(written, bool):
        raise ValueError(
            f"{written!r} is not a quantity: write a number with an optional suffix, such as 500m, 2 or 16Gi"
        )
    suffix = match[2] or ""
    factor = _FACTORS[suffix] if suffix in _FACTORS else Fraction(10) ** int(suffix[1:])
    exact = Fraction(match[1]) * factor * (1000 if resource == "cpu" else 1)
    return min(-(-exact.numerator // exact.denominator), _LARGEST)
