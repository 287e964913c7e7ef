"""The child process that plans rounds and searches for moves, as the manager sees it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from collections.abc import Coroutine, Iterator
from itertools import chain
from typing import Any, Protocol

from kqueue.core.joint.answer import PlanAnswer
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, NoPlan
from kqueue.core.joint.round import RoundInput
from kqueue.scheduling.joint.frames import Defragmented, RoundFailed, TreeNumbers, pieces, search_pieces
from kqueue.scheduling.joint.worker import LENGTH

_MODULE = "kqueue.scheduling.joint.worker"


class RoundFailedError(Exception):
    """The round or the search has no answer; the message says why."""


class RoundPlanner(Protocol):
    """Plans rounds beside the event loop."""

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


class PlanningProcess:
    """A child process, which is started with the first round or search, and again after it has failed.

    It does one thing at a time: a round that begins while a search is under way waits for its answer in `get_ready`.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._trees = TreeNumbers()
        self._turn = asyncio.Lock()
        """Held by the round or the search that the process works on."""
        self._searches = 0
        self.starts = 0
        """How often a process was started."""

    async def get_ready(self) -> None:
        """Wait for the end of a search, and start the process unless it runs."""
        async with self._turn:
            await self._start()

    async def _start(self) -> None:
        if self._process is not None and self._process.returncode is None:
            return
        self._trees = TreeNumbers()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _MODULE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        except OSError as e:
            raise RoundFailedError(f"the planning process does not start: {e}") from e
        self.starts += 1

    def plan(self, number: int, given: RoundInput) -> Coroutine[Any, Any, PlanAnswer]:
        """Return the plan of a round; see `RoundPlanner`."""
        messages = pieces(number, given, self._trees)
        return self._planned(number, next(messages), messages)

    async def _planned(self, number: int, first: bytes, others: Iterator[bytes]) -> PlanAnswer:
        async with self._turn:
            answer = await self._exchange(f"round {number}", chain([first], others))
            if not isinstance(answer, PlanAnswer) or answer.round != number:
                raise await self._mixed_up(f"round {number}")
            return answer

    async def search(self, question: DefragQuestion) -> DefragPlan | NoPlan:
        """Return the answer to a search for moves, whose input must not change meanwhile.

        Cancelling the call ends the process.  Raises RoundFailedError: the process has failed.
        """
        async with self._turn:
            await self._start()
            self._searches += 1
            what = f"search {self._searches}"
            answer = await self._exchange(what, search_pieces(self._searches, question, self._trees))
            if not isinstance(answer, Defragmented) or answer.search != self._searches:
                raise await self._mixed_up(what)
            return answer.found

    async def _mixed_up(self, what: str) -> RoundFailedError:
        await self.stop()
        return RoundFailedError(f"the planning process gave another answer than that of {what}")

    async def _exchange(self, what: str, messages: Iterator[bytes]) -> object:
        """Send the messages of a round or a search, and return the answer."""
        process = self._process
        if process is None:
            raise RoundFailedError("the planning process does not run")
        try:
            for message in messages:
                await self._send(process, message)
            answer = await self._answer(process)
        except (OSError, asyncio.IncompleteReadError, pickle.UnpicklingError) as e:
            await self.stop()
            raise RoundFailedError(f"the planning process has ended in {what}") from e
        except asyncio.CancelledError:  # it may be in the middle of a message, or of a plan that nobody waits for
            await self.stop()
            raise
        if isinstance(answer, RoundFailed):
            raise RoundFailedError(answer.problem)
        return answer

    async def _send(self, process: asyncio.subprocess.Process, data: bytes) -> None:
        assert process.stdin is not None
        process.stdin.write(len(data).to_bytes(LENGTH, "big") + data)
        await process.stdin.drain()
        await asyncio.sleep(0)

    async def _answer(self, process: asyncio.subprocess.Process) -> object:
        assert process.stdout is not None
        size = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
        return pickle.loads(await process.stdout.readexactly(size))

    async def stop(self) -> None:
        """Kill the process, which keeps nothing that is worth saving."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
