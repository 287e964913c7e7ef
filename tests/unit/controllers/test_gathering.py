"""Events of one key are collected for a moment, and keys without events are forgotten."""

from __future__ import annotations

from kqueue.clock import FakeClock
from kqueue.controllers.gathering import Gathering


async def test_the_first_event_counts_soon_and_later_ones_wait_for_more() -> None:
    clock, asked = FakeClock(), list[tuple[str, float]]()
    gathering = Gathering(lambda key, after=0.0: asked.append((key, after)), clock)
    gathering.add("a")
    gathering.add("a")
    gathering.add("b")
    await clock.advance(1)
    gathering.add("a")
    assert asked == [("a", 0.05), ("a", 0.2), ("b", 0.05), ("a", 0.05)]


async def test_memory_is_bounded_by_the_keys_of_a_moment() -> None:
    """Names of gangs come and go for as long as a process runs."""
    clock = FakeClock()
    gathering = Gathering(lambda key, after=0.0: None, clock)
    for number in range(5000):
        gathering.add(str(number))
        await clock.advance(0.01)
    assert len(gathering._last) <= 1001
