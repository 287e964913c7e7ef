"""Greedy choice among domains of one level without numpy, for so few domains that numpy calls would cost more."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from kqueue.core.topology.tree import Ints

NEVER = np.iinfo(np.int64).max
FEW = 64
"""The largest number of domains that are filled without numpy."""
_HANDFUL = 12
"""The largest number of domains among which a plain loop finds the tightest faster."""
_room_of = itemgetter(0)


def tightest(room: Ints, need: int) -> int | None:
    """Return the index of the smallest room for the need (> 0), the first of equals; None: no room suffices."""
    if len(room) > _HANDFUL:
        spare = room - need
        best = int(spare.view(np.uint64).argmin())  # as unsigned numbers, negative differences are the largest
        return best if spare.item(best) >= 0 else None
    tightest, least = None, NEVER
    for i, free in enumerate(room.tolist()):
        if need <= free < least:
            tightest, least = i, free
    return tightest


def take_few(
    pairs: Sequence[tuple[int, int]], need: int, *, ascending: bool, sort: bool
) -> list[tuple[int, int]] | None:
    """Fill as `PlacementSearch._fill` for few (room, domain), where plain Python is faster; return (units, domain) in
    the order taken.

    `ascending`: domains with the smallest room come first, and the last domain is not chosen by best fit.
    """
    able = [pair for pair in pairs if pair[0] > 0]
    if sort:
        able.sort(key=_room_of, reverse=not ascending)  # stable: equals stay in order
    left, taken = need, 0
    for room, _ in able:
        if room >= left:
            break
        left -= room
        taken += 1
    else:
        return None
    last = able[taken]
    if not ascending:
        for pair in able[taken + 1 :]:
            if left <= pair[0] < last[0]:
                last = pair
    return [*able[:taken], (left, last[1])]
