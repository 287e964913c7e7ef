"""Resource quantities as the API server accepts and writes them: `1024Mi` becomes `1Gi`, `2000m` becomes `2`."""

from __future__ import annotations

from functools import lru_cache

from kqueue.kube import quantity

RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_LONGEST = 64
_FARTHEST_EXPONENT = 999
"""Limit of exponents: larger ones are refused, not cut, because the server writes the exact amount back."""


@lru_cache(maxsize=1 << 14)
def nanos(text: str) -> int:
    """Return the amount in units of 10^-9, rounded away from zero.

    Raises:
        ValueError: the text is not a quantity.
    """
    return _read(text).rounded(quantity.FINEST_PLACES)


@lru_cache(maxsize=1 << 14)
def canonical(text: str) -> str:
    """Return the same amount with the largest suffix of its family that needs no fraction.  Raises ValueError."""
    return quantity.canonical(_read(text))


def _read(text: str) -> quantity.Quantity:
    found = quantity.parse(text) if len(text) <= _LONGEST else None
    if found is None or abs(found.exponent) > _FARTHEST_EXPONENT:
        raise ValueError(RULE)
    return found
