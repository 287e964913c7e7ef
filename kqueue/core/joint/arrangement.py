"""Places for the workloads of a plan by an exact search of numbers: whole gangs in one domain, and room for more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd

import numpy as np

from kqueue.core.joint.packing import packed
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.request import DEFAULT_PROFILE, GangDomains, PodSetRequest, resolve
from kqueue.core.topology.result import Misfit
from kqueue.core.topology.tree import Tree

_TRIES = 200
"""Domains that one search fills beyond the number of domains."""
_MOST = 8
"""Arrangements that leave out gangs."""
_ALL_TRIES = 4_000
"""Domains that all searches of one arrangement fill together."""


@dataclass(slots=True, kw_only=True)
class GangArrangement:
    """The gangs that could each be in one domain of a level.

    Args:
        level: of the topology of the flavor.
        gangs: with their units.
        rooms: units of each domain.
        largest: the units of the gang for which room is left.
    """

    flavor: str
    level: int
    gangs: list[tuple[PlannedAdmission, int]]
    rooms: list[int]
    largest: int
    tries: int = _ALL_TRIES

    @classmethod
    def of(
        cls,
        world: World,
        admitted: Sequence[PlannedAdmission],
        largest: tuple[str, PodSetRequest],
        unit_of: Mapping[str, Unit],
    ) -> GangArrangement | None:
        """Return the gangs that require or prefer the level of the largest one; None: it names no level.

        `world`: without these gangs.
        """
        flavor, request = largest
        view, unit = world.snapshot.topologies[flavor], unit_of[flavor]
        level = _level(view.tree, [request])
        if level is None:
            return None
        gangs = [
            (planned, size)
            for planned in admitted
            if tuple(planned.requests) == (flavor,)
            and _level(view.tree, planned.requests[flavor]) == level
            and (size := unit.of(planned.requests[flavor]))
        ]
        pods = {r.shape: unit.of_pod(r) for planned, _ in gangs for r in planned.requests[flavor]}
        pods[request.shape] = unit.of_pod(request)
        rooms = np.max([pods_per_domain(view.capacity, shape)[level] * size for shape, size in pods.items()], axis=0)
        return cls(flavor=flavor, level=level, gangs=gangs, rooms=rooms.tolist(), largest=unit.of([request]))

    def found(self, slots: int) -> Iterator[dict[int, list[PlannedAdmission]]]:
        """Yield gangs by domain: all of them, with room for more than so many of the largest if that can be.

        Where not all have room, and all only prefer the level, yield arrangements without some of them, at most
        `_MOST` ones.
        """
        sizes = [size for _, size in self.gangs]
        if not sizes:
            return
        places = self._packed(sizes)
        if places is not None:
            more = slots + 1
            while (better := self._packed([*sizes, *[self.largest] * more])) is not None:
                places, more = better, more + 1
            yield self._by_domain(places)
        elif self._all_prefer():
            yield from islice(self._without_some(sizes), _MOST)

    def _without_some(self, sizes: Sequence[int]) -> Iterator[dict[int, list[PlannedAdmission]]]:
        """Yield arrangements where gangs of more and more units are outside all domains."""
        step = outside = min(sizes)
        while self.tries > 0 and outside < sum(sizes):
            places = self._packed(sizes, outside)
            if places is not None:
                yield self._by_domain(places)
                step = gcd(*sizes)
            outside += step

    def _by_domain(self, places: Sequence[int]) -> dict[int, list[PlannedAdmission]]:
        domains = defaultdict[int, list[PlannedAdmission]](list)
        for (planned, _), domain in zip(self.gangs, places, strict=False):
            if domain < len(self.rooms):
                domains[domain].append(planned)
        return domains

    def _all_prefer(self) -> bool:
        """Whether no gang requires one domain."""
        return all(r.topology.required is None for planned, _ in self.gangs for r in planned.requests[self.flavor])

    def _packed(self, sizes: Sequence[int], outside: int = 0) -> tuple[int, ...] | None:
        """Return a domain for each gang; gangs of so many units may be outside, in a domain more than there are."""
        if self.tries <= 0 or sum(sizes) > sum(self.rooms) + outside:
            return None
        found = packed(sizes, [*self.rooms, outside], most=min(self.tries, _TRIES + len(self.rooms)))
        self.tries -= found.tries + 1
        return found.places

    def place(
        self, world: World, domains: Mapping[int, Sequence[PlannedAdmission]], unit: Unit
    ) -> list[PlannedAdmission]:
        """Place the gangs in their domains, and charge them; return those that have room there."""
        found, tree = list[PlannedAdmission](), world.snapshot.topologies[self.flavor].tree
        for domain, gangs in sorted(domains.items()):
            within = GangDomains(levels=tree.levels, paths=(tree.path_of(self.level, domain),))
            for planned in sorted(gangs, key=lambda p: -max(unit.of_pod(r) for r in p.requests[self.flavor])):
                placed = world.again(planned, within=within)
                if placed is not None:
                    world.admit(placed)
                    found.append(placed)
        return found


def _level(tree: Tree, requests: Sequence[PodSetRequest]) -> int | None:
    """Return the level whose domain should have all pods; None: there is none, or there are several."""
    found = set[int | None]()
    for request in requests:
        resolved = resolve(request, tree.levels, DEFAULT_PROFILE)
        free = isinstance(resolved, Misfit) or resolved.unconstrained
        found.add(None if free or isinstance(resolved, Misfit) else resolved.level)
    return found.pop() if len(found) == 1 else None
