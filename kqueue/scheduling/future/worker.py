"""The process that computes start times: `python -m kqueue.scheduling.future.worker`.

It reads questions from standard input and writes answers to standard output.  It knows no API server and no
configuration file, and leaves the processor to others that need it.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from kqueue.core.future.question import StartQuestion
from kqueue.core.future.start_times import start_times
from kqueue.isolation import isolated
from kqueue.scheduling.child import read, without_collector, write_value
from kqueue.scheduling.future.frames import (
    StartAssembly,
    StartsAsked,
    StartsEnd,
    StartsFailed,
    StartsPart,
    answer_parts,
)

_NICE = 5


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer questions until the source ends."""
    assembly = StartAssembly()
    while (data := read(source)) is not None:
        found = assembly.take(pickle.loads(data))
        if isinstance(found, StartsFailed):
            assembly = StartAssembly()
            write_value(target, found)
        elif found is not None:
            with without_collector():
                for answer in answers(*found):
                    write_value(target, answer)


def answers(asked: StartsAsked, question: StartQuestion) -> Iterator[StartsPart | StartsEnd | StartsFailed]:
    """Yield the parts of an answer; a bug gives `StartsFailed`."""
    until = time.monotonic() + asked.seconds
    found = []
    with isolated() as drains:
        found.append(start_times(question, goes_on=lambda: time.monotonic() < until))
    if drains.error is not None:
        error = drains.error
        yield StartsFailed(number=asked.number, problem=f"{type(error).__name__}: {error}")
    for one in found:
        yield from answer_parts(asked.number, one)


if __name__ == "__main__":
    os.nice(_NICE)
    serve(sys.stdin.buffer, sys.stdout.buffer)
