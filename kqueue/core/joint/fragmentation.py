"""How much of the free room of a level whole gangs can use.

A domain has room for a whole number of gangs of n pods.  Such gangs cannot use the rest of its free room.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kqueue.core.joint.ports import most_used
from kqueue.core.topology.tree import Ints
from kqueue.core.value import value


@value()
class Fragmentation:
    """The free room of the domains of one level, for gangs of one size.

    Args:
        slots: the number of gangs that fit, each in one domain.
        free: the pods that fit, in all domains.
        thousandths: the part of the free room that no gang can use, rounded down: 0 if all of it is usable, or nothing
            is free; 1000 if none of it is.
    """

    slots: int
    free: int
    thousandths: int


def fragmentation(pods: Ints, size: int) -> Fragmentation:
    """Return how usable the free room is for gangs of `size` pods; `pods` has the pods that fit, by domain."""
    slots, free = slots_of(pods, size), int(pods.sum())
    return Fragmentation(slots, free, 1000 * (free - size * slots) // free if free else 0)


def slots_of(pods: Ints, size: int) -> int:
    """Return how many gangs of `size` pods fit, each in one domain."""
    return int((pods // size).sum())


def reachable_slots(emptied: Ints, total: int, size: int, others: Iterable[int] = ()) -> int:
    """Return a number of gangs of `size` pods above which no arrangement of the movable workloads gets.

    Args:
        emptied: the pods that fit by domain, once all movable workloads have left.
        total: the pods that fit at most beside the movable workloads, wherever these stand.
        others: the sizes of the movable workloads, in pods of the gang, if each of them needs one domain; empty: pods
            of movable workloads may be anywhere.
    """
    whole, sizes = slots_of(emptied, size), [size, *others]
    if len(sizes) == 1:
        return min(whole, total // size)
    usable = sum(most_used(room, sizes) for room in np.maximum(emptied, 0).tolist())
    return min(whole, total // size, max(0, usable - sum(others)) // size)
