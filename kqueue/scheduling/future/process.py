"""The child process that computes start times, as the manager sees it."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

from kqueue.core.future.question import StartQuestion
from kqueue.core.future.start_times import StartsFailedError, StartTime, StartTimes
from kqueue.scheduling.child import ChildProcess
from kqueue.scheduling.future.frames import StartMessages, StartsEnd, StartsFailed, StartsPart
from kqueue.scheduling.joint.frames import Sent

_MODULE = "kqueue.scheduling.future.worker"
_SECONDS = 20.0
"""The time after which drains stop."""
_GRACE = 10.0
"""Seconds beyond it, after which the process is taken to hang."""


class StartTimesProcess(ChildProcess):
    """Computes start times, for one question at a time."""

    def __init__(self, *, seconds: float = _SECONDS, grace: float = _GRACE) -> None:
        """Drains stop after `seconds`; a process that has not answered `grace` seconds later is killed."""
        super().__init__(_MODULE)
        self._seconds, self._grace = seconds, grace
        self._sent = Sent()
        self._turn = asyncio.Lock()
        self._number = 0

    async def ask(self, question: StartQuestion) -> StartTimes:
        """Return the start times.  The call reads all of the state that may change before its first turn of the loop.

        Raises StartsFailedError: the process does not start, has died or hangs, or the drain has failed.
        """
        self._number += 1
        number = self._number
        messages = StartMessages(number, question, self._seconds)
        async with self._turn:
            try:
                async with asyncio.timeout(self._seconds + self._grace):
                    return await self._asked(number, messages)
            except TimeoutError as e:
                await self.stop()
                raise StartsFailedError("the process that computes start times has not answered in time") from e
            except (OSError, asyncio.IncompleteReadError, pickle.UnpicklingError) as e:
                await self.stop()
                raise StartsFailedError(f"the process that computes start times has failed: {e}") from e
            except asyncio.CancelledError:  # it may be in the middle of a message
                await self.stop()
                raise

    async def _asked(self, number: int, messages: StartMessages) -> StartTimes:
        for _ in range(2):
            if await self._start_anew():
                self._sent = Sent()
            process = self._process
            assert process is not None, "it was started"
            for piece in messages.pieces(self._sent):
                await self._send(process, piece)
            found: dict[str, StartTime] = {}
            while isinstance(answer := await self._answer(process), StartsPart):
                found.update(answer.of)
            if isinstance(answer, StartsEnd) and answer.number == number:
                return replace(answer.rest, of=found)
            if isinstance(answer, StartsFailed) and not answer.is_resync:
                raise StartsFailedError(f"the start times could not be computed: {answer.problem}")
            self._sent = Sent()  # it has something else than it should have: it gets all anew
            if not isinstance(answer, StartsFailed):
                await self.stop()
        raise StartsFailedError("the process that computes start times has lost messages twice")
