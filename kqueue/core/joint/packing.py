"""Whole gangs into domains with little room: an exact search by numbers alone, limited by tries.

Domains are filled one after the other, the one with least room first.  Each is given the gangs that leave the least of
it unused; when gangs are left over at the end, the search goes back to the last domain that has another way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import gcd

from kqueue.core.value import value

_CALLS = 512
"""Parts of ways that are looked at between two tries, for one domain."""

Counts = tuple[int, ...]
"""Gangs by size, in the order of the sizes."""
Way = tuple[tuple[int, int], ...]
"""The place of a size in their order, and the gangs of this size that one domain has."""


@value(kw_only=True)
class Packed:
    """The result of a search.

    Args:
        places: the index of the domain of each gang, in their order; None: no packing was found.
        tries: the number of domains that were filled.
    """

    places: tuple[int, ...] | None
    tries: int


def packed(sizes: Sequence[int], rooms: Sequence[int], *, most: int) -> Packed:
    """Return a domain for each gang, so that no domain has more than its room.

    Args:
        sizes: of the gangs, each above 0.
        rooms: of the domains, in the same unit.
        most: the number of tries after which the search is given up.
    """
    unit = reduce(gcd, sizes, 0)
    if not unit:
        return Packed(places=(), tries=0)
    search = _Packing.of([size // unit for size in sizes], [room // unit for room in rooms])
    ways = search.run(most)
    if ways is None:
        return Packed(places=None, tries=search.tries)
    return Packed(places=_places([size // unit for size in sizes], search, ways), tries=search.tries)


def _places(sizes: Sequence[int], search: _Packing, ways: Sequence[Way]) -> tuple[int, ...]:
    """Return the domain of each gang, where each domain has so many gangs of each size."""
    domains: dict[int, list[int]] = defaultdict(list)
    for (_, domain), way in zip(search.bins, ways, strict=False):
        for number, many in way:
            domains[search.kinds[number]] += [domain] * many
    return tuple([domains[size].pop(0) for size in sizes])


@dataclass(slots=True)
class _Fullest:
    """The way to fill a domain that leaves the least of it unused, with the largest gangs.

    Args:
        used: the sum of its gangs.
        way: None: it has too many parts to be looked for.
        calls: parts of ways that were looked at to find it.
    """

    used: int
    way: Way | None
    calls: int


@dataclass(slots=True)
class _Packing:
    """One search.

    Args:
        kinds: the sizes, the largest first.
        counts: the gangs of each size.
        bins: room and index of the domains that have room for any gang, in the order in which they are filled.
        usable: by place in this order, the most that this domain and all later ones can have of such gangs.
        many: by place in this order, for each size: how many gangs of the size these domains have room for.
    """

    kinds: tuple[int, ...]
    counts: Counts
    bins: list[tuple[int, int]]
    reach: dict[int, int]
    """By room, the most that sums of gangs use of it."""
    usable: list[int] = field(default_factory=list)
    many: list[Counts] = field(default_factory=list)
    tries: int = 0
    _calls: int = 0
    _most_of: dict[int, Counts] = field(default_factory=dict)
    """By what a domain can use, how many gangs of each size it has room for."""
    _fullest: dict[tuple[int, Counts], _Fullest] = field(default_factory=dict)
    """By what a domain can use, and the gangs of each size as far as one domain has room for them."""

    @classmethod
    def of(cls, sizes: Sequence[int], rooms: Sequence[int]) -> _Packing:
        """Prepare the search."""
        number = Counter(sizes)
        kinds = tuple(sorted(number, reverse=True))
        total = sum(sizes)
        bins = sorted((min(room, total), domain) for domain, room in enumerate(rooms) if room >= kinds[-1])
        counts, widest = tuple([number[kind] for kind in kinds]), max((room for room, _ in bins), default=0)
        sums, *_ = _sums(kinds, counts, widest)
        reach = {room: (sums & (1 << room + 1) - 1).bit_length() - 1 for room, _ in bins}
        found = cls(kinds, counts, bins, reach)
        usable, many = 0, tuple([0] * len(kinds))
        found.usable, found.many = [usable], [many]
        for room, _ in reversed(bins):
            usable += reach[room]
            many = tuple([before + room // kind for before, kind in zip(many, kinds, strict=True)])
            found.usable.append(usable)
            found.many.append(many)
        found.usable.reverse()
        found.many.reverse()
        return found

    def run(self, most: int) -> list[Way] | None:
        """Return the gangs of each domain, in the order of the domains; None: there is no packing, or none was found
        within so many tries.
        """
        failed = set[tuple[int, Counts]]()
        ways: list[Way] = []
        size = sum([kind * number for kind, number in zip(self.kinds, self.counts, strict=True)])
        fits = self._may_fit(0, self.counts, size)
        stack = [(self.counts, size, self._ways(0, self.counts, size))] if fits else []
        while stack:
            counts, size, others = stack[-1]
            way = next(others, None)
            if way is None:
                failed.add((len(stack) - 1, counts))
                stack.pop()
                del ways[-1:]
                continue
            self.tries += 1
            if self.tries > most:
                return None
            left = _without(counts, way)
            if not any(left):
                return [*ways, way]
            size -= sum([self.kinds[number] * many for number, many in way])
            if (len(stack), left) not in failed and self._may_fit(len(stack), left, size):
                ways.append(way)
                stack.append((left, size, self._ways(len(stack), left, size)))
        return None

    def _may_fit(self, place: int, counts: Counts, size: int) -> bool:
        """Whether the domains from this place on could have all gangs, as far as sums and large gangs tell.

        `size`: of all gangs.
        """
        if size > self.usable[place]:
            return False
        as_large = 0
        for number, room in zip(counts, self.many[place], strict=True):
            as_large += number
            if as_large > room:
                return False
        return True

    def _ways(self, place: int, counts: Counts, size: int) -> Iterator[Way]:
        """Yield the ways to fill the domain at this place, those that use most of it first, then those with larger
        gangs; the later domains can have what each leaves.
        """
        reach = self.reach[self.bins[place][0]]
        known = self._fullest_of(reach, counts)
        least, most = reach - known.used, min(self.usable[place] - size, reach)
        self._calls = known.calls if least <= most else 0
        if least > most:
            return
        if known.way is not None:
            yield known.way
        calls, self._calls = self._calls, 0
        sums = _sums(self.kinds, counts, reach)
        others = self._using(known.used, 0, counts, sums)
        next(others, None)
        self._calls = calls
        yield from others
        for waste in range(least + 1, most + 1):
            if sums[0] >> reach - waste & 1:
                yield from self._using(reach - waste, 0, counts, sums)

    def _fullest_of(self, reach: int, counts: Counts) -> _Fullest:
        """Return the first way to fill a domain that can use so much.

        It is the same for many domains: while gangs of a size are left for more than one, their number has no effect.
        """
        most = self._most_of.get(reach)
        if most is None:
            most = self._most_of[reach] = tuple([reach // kind for kind in self.kinds])
        within = tuple(map(min, counts, most))
        key = reach, within
        known = self._fullest.get(key)
        if known is None:
            sums = _sums(self.kinds, within, reach)
            used = sums[0].bit_length() - 1
            self._calls = 0
            way = next(self._using(used, 0, within, sums), None)
            known = self._fullest[key] = _Fullest(used, way, self._calls)
        return known

    def _using(self, units: int, first: int, counts: Counts, sums: Sequence[int]) -> Iterator[Way]:
        """Yield the ways to use exactly so many units for gangs from the first of these sizes on, the larger first.

        `sums`: of these gangs, by place of a size; there is at least one way.
        """
        self._calls += 1
        if not units:
            yield ()
        for number in range(first, len(self.kinds)):
            if not units or self._calls > _CALLS or not sums[number] >> units & 1:
                return
            kind, smaller = self.kinds[number], sums[number + 1]
            for many in range(min(counts[number], units // kind), 0, -1):
                rest = units - many * kind
                if smaller >> rest & 1:
                    for others in self._using(rest, number + 1, counts, sums):
                        yield ((number, many), *others)


def _without(counts: Counts, way: Way) -> Counts:
    left = list(counts)
    for number, many in way:
        left[number] -= many
    return tuple(left)


def _sums(kinds: Sequence[int], counts: Sequence[int], most: int) -> list[int]:
    """Return by place of a size the bits of all sums up to `most` of so many gangs of this and smaller sizes.

    The last entry is that of no gangs.
    """
    bits, within = 1, (1 << most + 1) - 1
    found = [bits]
    for kind, count in zip(reversed(kinds), reversed(counts), strict=True):
        left, step = min(count, most // kind), 1
        while left:
            taken = min(step, left)
            bits |= bits << kind * taken & within
            left, step = left - taken, step * 2
        found.append(bits)
    return found[::-1]
