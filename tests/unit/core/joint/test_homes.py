"""Gangs that stay in their domain when a search by numbers arranges several domains anew."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kqueue.core.joint.homes import with_most_at_home


@pytest.mark.parametrize(
    ("sizes", "places", "homes", "rooms", "wanted"),
    [
        pytest.param([2, 2], [1, 0], [0, 1], [2, 2], [0, 1], id="equal gangs"),
        pytest.param([3, 1, 2, 2], [1, 1, 0, 0], [0, 0, 1, 1], [4, 4], [0, 0, 1, 1], id="equal domains"),
        pytest.param([3, 2, 1], [1, 0, 0], [0, 1, 1], [3, 3], [0, 1, 1], id="other gangs of the same sum"),
        pytest.param([3, 2], [1, 0], [0, 1], [3, 5], [0, 1], id="a domain with more room"),
        pytest.param([4, 2], [1, 0], [None, 1], [3, 5], [1, 0], id="no room for the exchange"),
        pytest.param([1, 2, 2], [0, 1, 0], [None, 0, 1], [3, 2], [0, 0, 1], id="a new gang"),
    ],
)
def test_gangs_stay_in_their_domains(
    sizes: list[int], places: list[int], homes: list[int | None], rooms: list[int], wanted: list[int]
) -> None:
    assert with_most_at_home(sizes, places, homes, rooms) == wanted


@pytest.mark.parametrize("seed", range(50))
def test_no_domain_gets_more_than_its_room(seed: int) -> None:
    """Domains have the same groups of gangs as the search found, each where it has room; no fewer gangs stay."""
    random = Random(seed)
    domains = random.randint(1, 8)
    sizes = [random.choice((1, 2, 4)) for _ in range(random.randint(1, 20))]
    places = [random.randrange(domains) for _ in sizes]
    homes = [random.choice((None, random.randrange(domains))) for _ in sizes]
    rooms = [max(used(sizes, places, domain), used(sizes, homes, domain)) for domain in range(domains)]
    rooms = [room + random.choice((0, 0, 1, 3)) for room in rooms]

    found = with_most_at_home(sizes, places, homes, rooms)

    assert all(used(sizes, found, domain) <= room for domain, room in enumerate(rooms))
    assert groups(sizes, found, domains) == groups(sizes, places, domains)
    assert domains_kept(sizes, found, homes, domains) >= domains_kept(sizes, places, homes, domains)


def used(sizes: list[int], places: list[int] | list[int | None], domain: int) -> int:
    return sum(size for size, place in zip(sizes, places, strict=True) if place == domain)


def inside(sizes: list[int], places: list[int] | list[int | None], domain: int) -> tuple[int, ...]:
    return tuple(sorted(size for size, place in zip(sizes, places, strict=True) if place == domain))


def groups(sizes: list[int], places: list[int], domains: int) -> Counter[tuple[int, ...]]:
    return Counter(inside(sizes, places, domain) for domain in range(domains))


def domains_kept(sizes: list[int], places: list[int], homes: list[int | None], domains: int) -> int:
    """Domains with gangs of the same sizes as before."""
    return sum(inside(sizes, places, domain) == inside(sizes, homes, domain) for domain in range(domains))
