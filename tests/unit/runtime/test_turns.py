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
