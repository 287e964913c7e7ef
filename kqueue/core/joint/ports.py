"""The most units that whole gangs can use of a domain."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_BITS = 1 << 20
"""Domains with more free units are not measured exactly: their sums are dense there."""


def most_used(free: int, sizes: Iterable[int]) -> int:
    """Return the largest sum of gang sizes, each used as often as wanted, that is not above `free`."""
    gangs = sorted({size for size in sizes if 0 < size <= free})
    if not gangs:
        return 0
    if free > _MOST_BITS or gangs[0] == 1:
        return free
    within, sums = (1 << (free + 1)) - 1, 1
    for size in gangs:
        step = size
        while step <= free:  # one, two, four ... gangs more: all numbers of gangs in a few steps
            sums |= (sums << step) & within
            step *= 2
    return sums.bit_length() - 1
