"""Keys in order of rank, whatever order they come and leave in."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kqueue.state.ranked import Ranked

Rank = tuple[int]


@given(st.integers(0, 2**32), st.integers(1, 300))
def test_the_first_one_is_the_smallest_of_those_who_are_there(seed: int, steps: int) -> None:
    """Against a plain sort, while keys come in order and out of order, change rank, leave and come back."""
    chance, ranked, plain = random.Random(seed), Ranked[str, Rank](), dict[str, Rank]()
    for step in range(steps):
        key = f"k{chance.randrange(6)}"
        match chance.randrange(5):
            case 0:
                ranked.put(key, (step,))
                plain[key] = (step,)
            case 1 | 2:
                rank = (chance.randrange(4),)
                ranked.put(key, rank)
                plain[key] = rank
            case 3:
                ranked.remove(key)
                plain.pop(key, None)
            case _:
                taken = ranked.take_first()
                assert taken == (min(plain, key=lambda k: (plain[k], k)) if plain else None)
                plain.pop(taken or "", None)
        order = sorted((rank, key) for key, rank in plain.items())
        assert list(ranked.in_order()) == order
        assert ranked.first() == (order[0] if order else None)
        assert (len(ranked), set(ranked)) == (len(plain), set(plain))


def test_who_left_takes_no_room_for_ever() -> None:
    """However often one behind the first changes its rank, up and down."""
    ranked: Ranked[str, Rank] = Ranked()
    ranked.put("first", (0,))
    ranked.put("last", (10_000,))
    for i in range(10_000):
        ranked.put("moves", (1 + i * 7919 % 9_999,))

    stored = len(ranked._row) + len(ranked._heap)

    assert stored < 100
    assert [key for _, key in ranked.in_order()] == ["first", "moves", "last"]
