"""A child process that answers questions: messages to its standard input, answers from its standard output.

Each message has its length before it.  Both ends are the same version of kqueue, and the process is a child of the
manager, so that pickled values are safe here.  A process that dies or hangs costs the answer only: it is started again
with the next question.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

LENGTH = 4
"""Bytes of the length before each message, the first one the most significant."""


class ChildProcess:
    """The manager's end: `python -m MODULE`, which is started with the first question, and again after it has failed.

    Questions take turns: a subclass asks one at a time.
    """

    def __init__(self, module: str) -> None:
        """Start nothing yet."""
        self._module = module
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0
        """How often a process was started."""

    async def _start_anew(self) -> bool:
        """Start the process unless it runs; return whether it is a new one.  Raises OSError: it does not start."""
        if self._process is not None and self._process.returncode is None:
            return False
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self.starts += 1
        return True

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


# --- the child's end ------------------------------------------------------------------------------------------------


def read(source: BinaryIO) -> bytes | None:
    """Return the next message; None: the source has ended."""
    head = source.read(LENGTH)
    if len(head) < LENGTH:
        return None
    size = int.from_bytes(head, "big")
    data = source.read(size)
    return data if len(data) == size else None


def write(target: BinaryIO, data: bytes) -> None:
    """Write a message."""
    target.write(len(data).to_bytes(LENGTH, "big") + data)
    target.flush()


def write_value(target: BinaryIO, answer: object) -> None:
    """Write an answer."""
    write(target, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


@contextmanager
def without_collector() -> Iterator[None]:
    """Leave the collector of cycles off while a question is answered: a plan has next to none, and looking for them
    costs a tenth of a large round.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
