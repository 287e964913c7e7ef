"""Computes long answers in short pieces, with turns of the event loop between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from kqueue.clock import Clock
from kqueue.errors import TooManyRequestsError

T = TypeVar("T")

STRETCH_SECONDS = 0.008
"""Time between two yields of a view to the event loop: with its last step well below the 20 ms of a stall."""
PLANNING_STRETCH_SECONDS = 0.004
"""The same for questions to the planner: one of its decisions may take three times as long."""


class RequestPace:
    """Yields to the event loop between small steps of a long answer."""

    def __init__(self, clock: Clock, *, stretch: float = STRETCH_SECONDS) -> None:
        self._clock, self._stretch = clock, stretch
        self._since = clock.monotonic()

    async def step(self) -> None:
        """Yield to other tasks if the last yield was long enough ago; call it before each step."""
        if self._clock.monotonic() - self._since >= self._stretch:
            await self._clock.sleep(0)
            self._since = self._clock.monotonic()


async def stepped(steps: Generator[None, None, T], pace: RequestPace) -> T:
    """Return the result of a generator that yields between pieces of its work."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await pace.step()


class PlanningBudget:
    """The planner's own time for one question, without the turns of other tasks."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds, self.pace = clock, seconds, RequestPace(clock, stretch=PLANNING_STRETCH_SECONDS)
        self.spent = 0.0

    @property
    def is_left(self) -> bool:
        """Whether time is left."""
        return self.spent < self.seconds

    async def step(self, since: float) -> float:
        """Count the time since `since`, give others a turn, and return the time after it."""
        self.spent += self.clock.monotonic() - since
        await self.pace.step()
        return self.clock.monotonic()


class QuestionTurns:
    """Turns of long questions of one kind: each user has one at a time, and one is planned at a time."""

    def __init__(self) -> None:
        self._planning = asyncio.Lock()
        self._asking: set[str] = set()

    @contextmanager
    def place_of(self, user: str) -> Iterator[None]:
        """Keep the user's place during the block.

        Raises:
            TooManyRequestsError: the user has another question of this kind.
        """
        if user in self._asking:
            raise TooManyRequestsError(
                f'user "{user}" has another question of this kind under way; ask one at a time',
                status=429,
                retry_after=1,
            )
        self._asking.add(user)
        try:
            yield
        finally:
            self._asking.discard(user)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until no other question is planned, so that each takes about as long."""
        async with self._planning:
            yield
