"""Parts that run for ever: one that fails comes back, with pauses that grow, and the others never notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog

from kqueue.clock import FakeClock
from kqueue.runtime.supervision import Supervisor, guarded


class Part:
    """Runs for so many seconds and fails then, as often as it is told to; then it runs on."""

    def __init__(self, clock: FakeClock, *lives: float) -> None:
        self._clock, self._lives = clock, list(lives)
        self.started: list[float] = []

    async def run(self) -> None:
        self.started.append(self._clock.monotonic())
        if self._lives:
            await self._clock.sleep(self._lives.pop(0))
            raise ZeroDivisionError("planted")
        await asyncio.Event().wait()


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


async def supervise(clock: FakeClock, run: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> Supervisor:
    """Let a part run for so long, and end it."""
    supervisor = Supervisor(clock)
    with structlog.testing.capture_logs():
        task = asyncio.create_task(supervisor.run("part", run))
        await clock.advance(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    return supervisor


async def test_a_part_that_fails_is_started_again_after_pauses_that_grow(clock: FakeClock) -> None:
    """One second, two, four."""
    part = Part(clock, 0, 0, 0)

    await supervise(clock, part.run, 60)

    assert part.started == [0, 1, 3, 7]


async def test_a_part_that_ran_well_for_long_begins_anew(clock: FakeClock) -> None:
    """A failure each hour is no row of failures."""
    part = Part(clock, 0, 0, 3600, 0)

    await supervise(clock, part.run, 4000)

    assert part.started == [0, 1, 3, 3604, 3606]


async def test_what_is_down_is_known_until_it_is_up(clock: FakeClock) -> None:
    """And why: readiness tells it."""
    supervisor, part = Supervisor(clock), Part(clock, 5)
    with structlog.testing.capture_logs():
        task = asyncio.create_task(supervisor.run("part", part.run))
        await clock.advance(4)
        before = supervisor.down
        await clock.advance(1.5)
        during = supervisor.down
        await clock.advance(1)
        after = supervisor.down
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert (before, during, after) == ({}, {"part": "ZeroDivisionError: planted"}, {})


async def test_a_part_that_ends_is_over(clock: FakeClock) -> None:
    """It is not started again."""
    supervisor = Supervisor(clock)

    async def brief() -> None:
        return

    await supervisor.run("part", brief)

    assert supervisor.down == {}


def test_a_step_that_fails_is_logged() -> None:
    """By its name, and nothing else happens."""
    with structlog.testing.capture_logs() as lines:
        guarded("a step", lambda: 1 // 0)

    assert [line["step"] for line in lines] == ["a step"]
