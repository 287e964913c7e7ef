"""The search that puts whole gangs into domains by numbers alone, against all ways there are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest

from kqueue.core.joint.packing import packed

ENOUGH = 10_000


def fits(sizes: Sequence[int], rooms: Sequence[int]) -> bool:
    """Whether there is any way to put the gangs into the domains, by trying all of them."""

    @cache
    def rest(left: tuple[int, ...], free: tuple[int, ...]) -> bool:
        if not left:
            return True
        return any(
            rest(left[1:], tuple(sorted((*free[:n], room - left[0], *free[n + 1 :]))))
            for n, room in enumerate(free)
            if room >= left[0] and room not in free[:n]
        )

    return rest(tuple(sorted(sizes, reverse=True)), tuple(sorted(rooms)))


def drawn(chance: random.Random) -> tuple[list[int], list[int]]:
    """Domains, and gangs that ask for about as much as these have."""
    rooms = [chance.randint(0, 12) for _ in range(chance.randint(1, 6))]
    sizes, left = list[int](), sum(rooms) - chance.randint(0, 2)
    while left >= 2:
        sizes.append(chance.randint(2, min(left, 8)))
        left -= sizes[-1]
    return sizes, rooms


@pytest.mark.mechanism("2.8")
def test_a_packing_is_found_where_there_is_one_and_none_elsewhere() -> None:
    seen = Counter[bool]()
    for seed in range(400):
        sizes, rooms = drawn(random.Random(seed))
        found = packed(sizes, rooms, most=ENOUGH)
        seen[found.places is not None] += 1
        assert (found.places is not None) is fits(sizes, rooms), (sizes, rooms)
        if found.places is not None:
            taken = Counter[int]()
            for size, place in zip(sizes, found.places, strict=True):
                taken[place] += size
            assert all(amount <= rooms[place] for place, amount in taken.items()), (sizes, rooms, found)
    assert min(seen[True], seen[False]) > 50, seen


@pytest.mark.parametrize(
    ("sizes", "rooms", "places"),
    [
        ([], [3], ()),
        ([5, 5, 9], [10, 9], (0, 0, 1)),
        ([4], [3], None),
        ([3, 3], [5], None),
        ([40, 40], [80], (0, 0)),
    ],
)
def test_packings(sizes: list[int], rooms: list[int], places: tuple[int, ...] | None) -> None:
    assert packed(sizes, rooms, most=ENOUGH).places == places


def test_tries_are_limited() -> None:
    sizes, rooms = [2, 3] * 9 + [7] * 6, [13, 11, 9, 8] * 3
    found = packed(sizes, rooms, most=3)
    assert found.places is None
    assert found.tries == 4
