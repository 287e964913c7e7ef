"""Greedy choice among domains of one level without numpy, where they are so few that its calls cost more."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from kqueue.core.topology.tree import Ints

NEVER = np.iinfo(np.int64).max
FEW = 64
"""Up to so many domains are filled without numpy, whose calls cost more than their work then."""
_HANDFUL = 12
"""Among so few domains the tightest is found faster by looking at one after the other."""
_room_of = itemgetter(0)


def tightest(room: Ints, need: int) -> int | None:
    """The smallest room that holds the need (> 0), the first of equals; None when none does."""
    if len(room) > _HANDFUL:
        spare = room - need
        best = int(spare.view(np.uint64).argmin())  # as unsigned numbers, differences below zero are the largest
        return best if spare.item(best) >= 0 else None
    tightest, least = None, NEVER
    for i, free in enumerate(room.tolist()):
        if need <= free < least:
            tightest, least = i, free
    return tightest


def take_few(
    pairs: Sequence[tuple[int, int]], need: int, *, ascending: bool, sort: bool
) -> list[tuple[int, int]] | None:
    """`PlacementSearch._fill` for few (room, domain), where plain Python is faster; returns (units, domain) in the
    order taken.

    `ascending`: domains with the smallest room come first, and no best fit is searched for the last one.
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
