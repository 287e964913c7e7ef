"""How often Workloads of one owner may be made anew."""

from __future__ import annotations

from kqueue.clock import FakeClock
from kqueue.controllers.recreations import MOST, WITHIN, Recreations


def exhausted(clock: FakeClock) -> Recreations:
    recreations = Recreations(clock)
    for _ in range(MOST):
        assert recreations.allows("a", 1)
        recreations.deleted("a", 1)
    return recreations


def test_five_deletions_are_allowed_for_each_generation_of_each_owner() -> None:
    recreations = exhausted(FakeClock())

    assert not recreations.allows("a", 1)
    assert recreations.allows("b", 1)
    assert recreations.allows("a", 2)
    recreations.deleted("a", 2)
    assert [recreations.allows("a", 2) for _ in range(3)] == [True] * 3


async def test_ten_minutes_of_rest_begin_anew() -> None:
    clock = FakeClock()
    recreations = exhausted(clock)

    await clock.advance(WITHIN - 1)
    assert not recreations.allows("a", 1)
    await clock.advance(2)
    assert recreations.allows("a", 1)
