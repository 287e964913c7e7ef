"""Which gangs stay where they are when a search by numbers arranges the gangs of several domains anew.

The search names sizes and rooms alone, so gangs of one size are exchangeable, and so are all gangs of two domains if
each has room for those of the other.  Each gang that stays saves a search for its hosts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence


def with_most_at_home(
    sizes: Sequence[int], places: Sequence[int], homes: Sequence[int | None], rooms: Sequence[int]
) -> list[int]:
    """Return an equally good domain for each gang, with many gangs in their former one.

    Args:
        sizes: of the gangs.
        places: the index of the domain that the search gave each gang.
        homes: the index of the domain that has the gang now; None: it is new.
        rooms: of the domains, in the unit of sizes; no domain has more in `places` and `homes`.
    """
    return _by_gang(sizes, _by_domain(sizes, places, homes, rooms), homes)


def _by_domain(
    sizes: Sequence[int], places: Sequence[int], homes: Sequence[int | None], rooms: Sequence[int]
) -> list[int]:
    """Return the places with domains exchanged, so that more domains have gangs of the same sizes as before."""
    new, old = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for size, place, home in zip(sizes, places, homes, strict=True):
        new[place].append(size)
        if home is not None:
            old[home].append(size)
    before = [tuple(sorted(old[domain])) for domain in range(len(rooms))]
    after = [tuple(sorted(new[domain])) for domain in range(len(rooms))]
    origin = list(range(len(rooms)))
    """By domain: the domain whose gangs, by the search, it has."""
    wanting = defaultdict[tuple[int, ...], list[int]](list)
    for domain, some in enumerate(before):
        if after[domain] != some:
            wanting[some].append(domain)
    for domain, room in enumerate(rooms):
        while after[domain] != before[domain]:
            others = wanting[after[domain]]
            other = next((each for each in others if sum(after[each]) <= room), None)
            if other is None:
                break
            others.remove(other)
            after[domain], after[other] = after[other], after[domain]
            origin[domain], origin[other] = origin[other], origin[domain]
    target = {found: domain for domain, found in enumerate(origin)}
    return [target[place] for place in places]


def _by_gang(sizes: Sequence[int], places: Sequence[int], homes: Sequence[int | None]) -> list[int]:
    """Return the places in another order among equal sizes, so that as many as possible have their home."""
    free: dict[int, Counter[int]] = defaultdict(Counter)
    for size, place in zip(sizes, places, strict=True):
        free[size][place] += 1
    found: list[int | None] = []
    for size, home in zip(sizes, homes, strict=True):
        stays = home is not None and free[size][home] > 0
        found.append(home if stays else None)
        if stays and home is not None:
            free[size][home] -= 1
    left = {size: counts.elements() for size, counts in free.items()}
    return [next(left[size]) if place is None else place for size, place in zip(sizes, found, strict=True)]
