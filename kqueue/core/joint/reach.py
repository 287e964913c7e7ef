"""The room of a flavor by form of gangs, and the domains to which a network has arcs.

Nothing here is per class and host: counts of pods are kept per shape (`counting.py`), and rows per form and domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kqueue.core.joint.classes import GangShape
from kqueue.core.joint.policies.topology import TIGHTEST
from kqueue.core.joint.units import Unit
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import tally
from kqueue.core.topology.tree import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """The room for the gangs of one form, alone.

    Args:
        pods: pods that fit, by level and domain.
        gangs: whole gangs that fit in each domain of their level.
        per_pod: units of one pod.
        extra: units of the leader.
    """

    pods: list[Ints]
    gangs: Ints
    per_pod: int
    extra: int

    @classmethod
    def of(cls, form: GangShape, capacity: Capacity, unit: Unit) -> Room:
        """Return the room that the capacity has now."""
        counts = tally(capacity, form.workers, form.leader, form.resolved, affinity=False)
        level, resolved = max(0, form.level), form.resolved
        in_slices = level <= resolved.slice_level
        room = (counts.slices if in_slices else counts.pods)[level]
        need = resolved.need if in_slices else resolved.need * resolved.slice_size
        gangs = room // need
        if form.leader is not None and counts.leaders is not None:
            led = (counts.slices_led if in_slices else counts.pods_led)[level]
            gangs = np.where((led >= need) & (counts.leaders[level] > 0), np.maximum(gangs, 1), 0)
        extra = unit.of_pod(form.leader) if form.leader is not None else 0
        return cls(counts.pods, gangs, unit.of_pod(form.workers), extra)

    def units(self, level: int, gangs: int) -> Ints:
        """Return the units of pods of so many gangs that fit in each domain of a level."""
        pods = self.pods[level]
        found: Ints = pods * self.per_pod + (gangs * self.extra) * (pods > 0) if self.extra else pods * self.per_pod
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """The domains of one level to which gangs of one form have arcs; the others are reached through the rest.

    Args:
        domains: the cheapest domains, ascending.
        capacities: units of the whole gangs that each of them has room for.
        costs: points per unit of each of them.
        rest: units of the whole gangs that all others have room for; None: there are no others.
        dearest: the largest cost of the others.
        most: the largest cost of all.
    """

    domains: Ints
    capacities: Ints
    costs: Ints
    rest: int | None
    dearest: int
    most: int

    @classmethod
    def of(cls, gangs: Ints, costs: Ints, size: int, most: int) -> Reach:
        """Return the arcs of gangs of `size` units, at most `most` of them; `costs` are of all domains."""
        domains = np.flatnonzero(gangs)
        of_domains, capacities = costs[domains], gangs[domains] * size
        kept = cheapest(of_domains, most)
        rest, dearest = None, 0
        if len(kept) < len(domains):
            others = np.ones(len(domains), dtype=np.bool_)
            others[kept] = False
            rest, dearest = int(capacities[others].sum()), int(of_domains[others].max())
        return cls(domains[kept], capacities[kept], of_domains[kept], rest, dearest, int(of_domains.max(initial=0)))


def cheapest(costs: Ints, most: int) -> Ints:
    """Return the places of the smallest costs, at most `most` of them, ascending; of equal costs the first ones."""
    size = len(costs)
    if size <= most:
        return np.arange(size, dtype=np.int64)
    in_order = costs * size + np.arange(size, dtype=np.int64)  # all differ, so the choice is one of a kind
    return np.sort(np.argpartition(in_order, most - 1)[:most])


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A reach where the tightest domains are the cheapest, and what it was made of.

    Args:
        gangs, free: of each domain of the level, whole gangs that fit and free units.
        size: units of a gang.
        most: the number of arcs that it may have.
    """

    gangs: Ints
    free: Ints
    size: int
    most: int
    reach: Reach

    @classmethod
    def of(cls, gangs: Ints, free: Ints, size: int, most: int) -> Row:
        """Return the row that follows from these values."""
        costs = np.clip(free - size, 0, TIGHTEST)
        return cls(gangs, free, size, most, Reach.of(gangs, costs, size, most))

    def counts_for(self, gangs: Ints, free: Ints, size: int, most: int) -> bool:
        """Whether the reach follows from these values."""
        same = (self.size, self.most) == (size, most)
        return same and np.array_equal(self.gangs, gangs) and np.array_equal(self.free, free)

    def is_sound(self) -> bool:
        """Whether the reach is the one that would be made anew."""
        mine, anew = self.reach, Row.of(self.gangs, self.free, self.size, self.most).reach
        return (mine.rest, mine.dearest, mine.most) == (anew.rest, anew.dearest, anew.most) and all(
            np.array_equal(*pair)
            for pair in (
                (mine.domains, anew.domains),
                (mine.capacities, anew.capacities),
                (mine.costs, anew.costs),
            )
        )
