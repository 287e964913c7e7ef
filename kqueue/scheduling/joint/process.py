"""The child process that plans rounds, as the manager sees it."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

from kqueue.core.joint.answer import PlanAnswer
from kqueue.core.joint.migration import MigrationAnswer
from kqueue.core.joint.round import RoundInput
from kqueue.scheduling.joint.frames import Resync, RoundFailed, RoundMessages, Sent
from kqueue.scheduling.joint.worker import LENGTH

_MODULE = "kqueue.scheduling.joint.worker"


class RoundFailedError(Exception):
    """The round has no plan; the message says why."""


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


class PlanningProcess:
    """A child process, which is started with the first round, and again after it has failed."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._sent = Sent()
        self.starts = 0
        """How often a process was started."""
        self.resyncs = 0
        """How often a process had something else than it should have, and got everything anew."""
        self.on_gains: Callable[[MigrationAnswer], None] = lambda _answer: None
        self._late: asyncio.Task[None] | None = None
        """Reads the gains of the last round, which come after its plan."""

    async def get_ready(self) -> None:
        """Start the process unless it runs."""
        if self._process is not None and self._process.returncode is None:
            return
        self._sent = Sent()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _MODULE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        except OSError as e:
            raise RoundFailedError(f"the planning process does not start: {e}") from e
        self.starts += 1

    def plan(self, number: int, given: RoundInput) -> Coroutine[Any, Any, PlanAnswer]:
        """Return the plan of a round; see `RoundPlanner`."""
        return self._exchange(number, RoundMessages.of(number, given), has_gains=bool(given.running.movable))

    async def _exchange(self, number: int, messages: RoundMessages, *, has_gains: bool) -> PlanAnswer:
        """Send the messages of a round, and return the answer; a process that has lost messages gets all anew."""
        process = self._process
        if process is None:
            raise RoundFailedError("the planning process does not run")
        try:
            answer = await self._asked(process, messages.pieces(self._sent))
            if isinstance(answer, Resync):
                self._sent, self.resyncs = Sent(), self.resyncs + 1
                answer = await self._asked(process, messages.pieces(self._sent))
        except (OSError, asyncio.IncompleteReadError, pickle.UnpicklingError) as e:
            await self.stop()
            raise RoundFailedError(f"the planning process has ended in round {number}") from e
        except asyncio.CancelledError:  # it may be in the middle of a message, or of a plan that nobody waits for
            await self.stop()
            raise
        if isinstance(answer, RoundFailed):
            raise RoundFailedError(answer.problem)
        if not isinstance(answer, PlanAnswer) or answer.round != number:
            await self.stop()
            raise RoundFailedError(f"the planning process gave another answer than that of round {number}")
        if has_gains:
            self._late = asyncio.get_running_loop().create_task(self._read_gains(process, number))
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
        late, self._late = self._late, None
        if late is not None:
            late.cancel()
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
