"""Plans whose gangs are arranged by numbers: whole gangs, and room for more, against all arrangements there are."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.builders import make_head
from tests.unit.core.joint.test_packing import fits
from tests.unit.core.joint.worlds import racks, round_of, world_of

WORLDS = 60


def drawn(seed: int, *, tenths: tuple[int, int] = (6, 9)) -> tuple[list[int], list[int]]:
    """Free hosts of racks, and the hosts of gangs that ask for most of them."""
    chance = random.Random(seed)
    rooms = [chance.randint(2, 9) for _ in range(chance.randint(3, 6))]
    sizes, left = list[int](), chance.randint(*tenths) * sum(rooms) // 10
    while left >= 2:
        sizes.append(chance.randint(2, min(6, left)))
        left -= sizes[-1]
    return rooms, sizes


@pytest.mark.mechanism("2.8")
def test_plans_leave_all_the_room_for_large_gangs_that_can_be_left() -> None:
    """J2.36: at equal units and cost the plan has as many slots as any arrangement of the same gangs."""
    left = Counter[int]()
    for seed in range(WORLDS):
        rooms, sizes = drawn(seed)
        heads = [make_head(f"g{n:02}", pods=size, age=90 - n) for n, size in enumerate(sizes)]
        plan = round_of(world_of(racks(*rooms)), heads, solved=False)
        if any(one.admitted is None for one in plan.workloads):
            continue
        slots = plan.scores[plan.chosen].slots
        assert fits([*sizes, *[max(sizes)] * slots], rooms), seed
        assert not fits([*sizes, *[max(sizes)] * (slots + 1)], rooms), seed
        left[slots] += 1
    assert sum(left.values()) > WORLDS // 2, left
    assert len(left) > 2, left


@pytest.mark.mechanism("2.8")
def test_gangs_that_prefer_a_rack_are_whole_where_all_can_be() -> None:
    """J2.41: no gang costs anything where there is an arrangement of one rack for each."""
    seen = Counter[bool]()
    for seed in range(WORLDS):
        rooms, sizes = drawn(seed, tenths=(10, 10))
        heads = [
            make_head(f"g{n:02}", pods=size, required=None, preferred="rack", age=90 - n)
            for n, size in enumerate(sizes)
        ]
        plan = round_of(world_of(racks(*rooms)), heads, solved=False)
        can_be = fits(sizes, rooms)
        seen[can_be and plan.greedy_cost > 0] += 1
        assert not (can_be and plan.cost), seed
    assert seen[True], seen
