"""Planners of rounds for tests: in this process, or with a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from kqueue.core.joint.answer import PlanAnswer, answer_of
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.scheduling.joint.frames import Assembly, TreeNumbers, pieces
from kqueue.scheduling.joint.process import RoundFailedError
from tests.unit.scheduling.scheduled import Scheduled


class Here:
    """Plans in this process, from the messages that the other process would get."""

    def __init__(self) -> None:
        self.rounds: list[RoundInput] = []
        self.stopped = 0
        self.open = asyncio.Event()
        """Cleared: a round is planned when it is set."""
        self.open.set()
        self._assembly, self._trees = Assembly(), TreeNumbers()

    async def get_ready(self) -> None:
        """It always is."""

    def plan(self, number: int, given: RoundInput) -> Coroutine[Any, Any, PlanAnswer]:
        """The plan of a round."""
        messages = pieces(number, given, self._trees)
        return self._exchange(number, [next(messages)], messages)

    async def _exchange(self, number: int, messages: list[bytes], others: Iterator[bytes]) -> PlanAnswer:
        messages += others
        await self.open.wait()
        (asked,) = [found for data in messages if (found := self._assembly.take(data)) is not None]
        assert isinstance(asked[1], RoundInput)
        self.rounds.append(asked[1])
        return answer_of(number, plan_round(replace(asked[1], solver=solver())), {})

    async def stop(self) -> None:
        """It counts."""
        self.stopped += 1


class Broken(Here):
    """Has no plan."""

    async def _exchange(self, number: int, messages: list[bytes], others: Iterator[bytes]) -> PlanAnswer:
        raise RoundFailedError("it is broken")


async def until(world: Scheduled, reached: Callable[[], bool]) -> None:
    """Let the clock run until `reached` holds; processes and threads get real time, which no fake clock gives them."""
    async with asyncio.timeout(60):
        while not reached():
            await world.clock.advance(0.05)
            await asyncio.sleep(0.01)
