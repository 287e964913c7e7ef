"""Planners of rounds for tests: in this process, or with a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from kqueue.core.joint.answer import PlanAnswer
from kqueue.core.joint.migration import MigrationAnswer
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.round import RoundInput
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import Resync, RoundFailed, Sent, pieces
from kqueue.scheduling.joint.process import RoundFailedError
from kqueue.scheduling.joint.worker import answers
from tests.unit.scheduling.scheduled import Scheduled


class Here:
    """Plans in this process, from the messages that the other process would get."""

    def __init__(self) -> None:
        self.rounds: list[RoundInput] = []
        self.stopped = 0
        self.open = asyncio.Event()
        """Cleared: a round is planned when it is set."""
        self.open.set()
        self.on_gains: Callable[[MigrationAnswer], None] = lambda _answer: None
        self._assembly, self._sent = Assembly(), Sent()

    async def get_ready(self) -> None:
        """It always is."""

    def plan(self, number: int, given: RoundInput) -> Coroutine[Any, Any, PlanAnswer]:
        """The plan of a round."""
        return self._exchange(number, [], pieces(number, given, self._sent))

    async def _exchange(self, number: int, messages: list[bytes], others: Iterator[bytes]) -> PlanAnswer:
        messages += others
        await self.open.wait()
        (asked,) = [found for data in messages if (found := self._assembly.take(data)) is not None]
        assert not isinstance(asked, Resync), "no message is lost here"
        assert isinstance(asked[1], RoundInput)
        self.rounds.append(asked[1])
        later = answers(number, replace(asked[1], solver=solver()))
        plan = next(later)
        assert isinstance(plan, PlanAnswer), plan
        asyncio.get_running_loop().call_soon(self._report, later)
        return plan

    def _report(self, others: Iterator[PlanAnswer | RoundFailed | MigrationAnswer]) -> None:
        for answer in others:
            assert isinstance(answer, MigrationAnswer), answer
            self.on_gains(answer)

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
