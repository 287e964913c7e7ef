"""The child process that plans rounds and searches for moves, as the manager sees it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Protocol

from kqueue.core.joint.answer import PlanAnswer
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, NoPlan
from kqueue.core.joint.migration import MigrationAnswer
from kqueue.core.joint.round import RoundInput
from kqueue.scheduling.child import ChildProcess
from kqueue.scheduling.joint.frames import Defragmented, Resync, RoundFailed, RoundMessages, Sent, search_pieces

_MODULE = "kqueue.scheduling.joint.worker"


class RoundFailedError(Exception):
    """The round or the search has no answer; the message says why."""


class RoundPlanner(Protocol):
    """Plans rounds beside the event loop.

    `on_gains` is called after a plan whose round has workloads that may be moved, with what moves would gain.
    """

    on_gains: Callable[[MigrationAnswer], None]

    async def get_ready(self) -> None:
        """Start what the planner needs.  Raises RoundFailedError: that is not possible."""
        ...

    def plan(self, number: int, given: RoundInput) -> Coroutine[Any, Any, PlanAnswer]:
        """Return the plan of a round.

        The call reads all of the state that may change; the coroutine reads nothing of it.  Cancelling the coroutine
        gives the round up.

        Raises RoundFailedError: the planner has failed.
        """
        ...

    async def stop(self) -> None:
        """End the planner; the next round starts it anew."""
        ...


class PlanningProcess(ChildProcess):
    """A child process, which is started with the first round or search, and again after it has failed.

    It does one thing at a time: a round that begins while a search is under way waits for its answer in `get_ready`.
    """

    def __init__(self) -> None:
        super().__init__(_MODULE)
        self._sent = Sent()
        self._turn = asyncio.Lock()
        """Held by the round or the search that the process works on."""
        self._searches = 0
        self.resyncs = 0
        """How often a process had something else than it should have, and got everything anew."""
        self.on_gains: Callable[[MigrationAnswer], None] = lambda _answer: None
        self._late: asyncio.Task[None] | None = None
        """Reads the gains of the last round, which come after its plan."""

    async def get_ready(self) -> None:
        """Wait for the end of a search, and start the process unless it runs."""
        async with self._turn:
            await self._start()

    async def _start(self) -> None:
        try:
            if await self._start_anew():
                self._sent = Sent()
        except OSError as e:
            raise RoundFailedError(f"the planning process does not start: {e}") from e

    def plan(self, number: int, given: RoundInput) -> Coroutine[Any, Any, PlanAnswer]:
        """Return the plan of a round; see `RoundPlanner`."""
        messages = RoundMessages.of(number, given)
        return self._planned(number, messages, has_gains=bool(given.running.movable))

    async def _planned(self, number: int, messages: RoundMessages, *, has_gains: bool) -> PlanAnswer:
        async with self._turn:
            answer = await self._exchange(f"round {number}", messages.pieces)
            if not isinstance(answer, PlanAnswer) or answer.round != number:
                raise await self._mixed_up(f"round {number}")
            if has_gains and self._process is not None:
                self._late = asyncio.get_running_loop().create_task(self._read_gains(self._process, number))
            return answer

    async def search(self, question: DefragQuestion) -> DefragPlan | NoPlan:
        """Return the answer to a search for moves, whose input must not change meanwhile.

        Cancelling the call ends the process.  Raises RoundFailedError: the process has failed.
        """
        async with self._turn:
            await self._start()
            self._searches += 1
            number = self._searches
            answer = await self._exchange(f"search {number}", partial(search_pieces, number, question))
            if not isinstance(answer, Defragmented) or answer.search != number:
                raise await self._mixed_up(f"search {number}")
            return answer.found

    async def _mixed_up(self, what: str) -> RoundFailedError:
        await self.stop()
        return RoundFailedError(f"the planning process gave another answer than that of {what}")

    async def _exchange(self, what: str, pieces: Callable[[Sent], Iterator[bytes]]) -> object:
        """Send the messages of a round or a search, and return the answer.

        A process that has lost messages gets all of them anew.
        """
        process = self._process
        if process is None:
            raise RoundFailedError("the planning process does not run")
        try:
            answer = await self._asked(process, pieces(self._sent))
            if isinstance(answer, Resync):
                self._sent, self.resyncs = Sent(), self.resyncs + 1
                answer = await self._asked(process, pieces(self._sent))
        except (OSError, asyncio.IncompleteReadError, pickle.UnpicklingError) as e:
            await self.stop()
            raise RoundFailedError(f"the planning process has ended in {what}") from e
        except asyncio.CancelledError:  # it may be in the middle of a message, or of a plan that nobody waits for
            await self.stop()
            raise
        if isinstance(answer, RoundFailed):
            raise RoundFailedError(answer.problem)
        return answer

    async def _asked(self, process: asyncio.subprocess.Process, messages: Iterator[bytes]) -> object:
        for message in messages:
            await self._send(process, message)
        if self._late is not None:
            await asyncio.wait([self._late])
        return await self._answer(process)

    async def _read_gains(self, process: asyncio.subprocess.Process, number: int) -> None:
        """Report what moves gain in a round; the next round finds out whether the process has ended."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, pickle.UnpicklingError):
            answer = await self._answer(process)
            if isinstance(answer, MigrationAnswer) and answer.round == number:
                self.on_gains(answer)

    async def stop(self) -> None:
        """Kill the process, which keeps nothing that is worth saving."""
        late, self._late = self._late, None
        if late is not None:
            late.cancel()
        await super().stop()
