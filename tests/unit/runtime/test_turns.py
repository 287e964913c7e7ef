"""Moments that lie apart while something urgent is under way."""

from __future__ import annotations

from kqueue.clock import FakeClock
from kqueue.runtime.turns import Turns


def test_nobody_waits_while_nothing_urgent_is_under_way() -> None:
    turns = Turns(FakeClock(), lambda: False, burst=1)

    assert [turns.take() for _ in range(5)] == [0.0] * 5


async def test_after_a_burst_moments_lie_apart() -> None:
    """A pause makes another burst possible, however long it was only one."""
    clock = FakeClock()
    turns = Turns(clock, lambda: True, apart=0.5, burst=2)

    assert [turns.take() for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
    await clock.advance(100)
    assert [turns.take() for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]


async def test_the_end_of_what_is_urgent_ends_all_waits() -> None:
    """Moments that were handed out before do not move those of the next urgent time."""
    clock, urgent = FakeClock(), True
    turns = Turns(clock, lambda: urgent, apart=0.5, burst=2)
    assert [turns.take() for _ in range(6)][-1] == 2.0

    urgent = False
    assert (turns.are_needed, turns.take()) == (False, 0.0)
    urgent = True
    assert [turns.take() for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
