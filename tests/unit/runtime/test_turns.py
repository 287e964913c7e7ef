"""Moments that lie apart while something urgent is under way."""

from __future__ import annotations

from kqueue.clock import FakeClock
from kqueue.runtime.turns import Turns


def test_nobody_waits_while_nothing_urgent_is_under_way() -> None:
    turns = Turns(FakeClock(), lambda: 0.5, burst=1)

    assert [turns.take() for _ in range(5)] == [0.0] * 5


async def test_after_a_burst_moments_lie_apart() -> None:
    """A pause makes another burst possible, however long it was only one."""
    clock = FakeClock()
    turns = Turns(clock, lambda: 0.4, apart=0.5, burst=2)

    assert [turns.take() for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
    await clock.advance(100)
    assert [turns.take() for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]


async def test_a_pause_does_not_end_the_waits_but_the_end_of_what_is_urgent_does() -> None:
    """Five seconds are its end.  Moments that were handed out before do not move those of the next urgent time."""
    quiet_for = 0.0
    turns = Turns(FakeClock(), lambda: quiet_for, apart=0.5, burst=2)
    assert [turns.take() for _ in range(6)][-1] == 2.0

    quiet_for = 4.9
    assert (turns.are_over, turns.take()) == (False, 0.0)
    quiet_for = 0.0
    assert turns.take() == 2.5

    quiet_for = 5.0
    assert (turns.are_over, turns.take()) == (True, 0.0)
    quiet_for = 0.0
    assert [turns.take() for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
