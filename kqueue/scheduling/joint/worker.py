"""The process that plans rounds and searches for moves: `python -m kqueue.scheduling.joint.worker`.

It reads messages from standard input and writes answers to standard output, each with its length before it.  It knows
no API server and no configuration file.
"""

from __future__ import annotations

import pickle
import sys
import time
from dataclasses import replace
from functools import partial
from typing import BinaryIO

from kqueue.core.joint.answer import answer_of
from kqueue.core.joint.defrag import DefragQuestion
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import RoundPhase
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.topology.placers import place_joint_by
from kqueue.isolation import isolated
from kqueue.scheduling.joint.extensions import load_policies
from kqueue.scheduling.joint.frames import Assembly, Defragmented, RoundFailed
from kqueue.scheduling.stopwatch import Stopwatch

LENGTH = 4
"""Bytes of the length before each message, the first one the most significant."""


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer rounds and searches until the source ends."""
    assembly, find = Assembly(), solver()
    while (data := read(source)) is not None:
        asked = assembly.take(data)
        if asked is not None:
            number, given = asked
            answer: list[object] = []
            with isolated(partial(_failed, number, answer)):
                answer.append(
                    Defragmented(search=number, found=given.answer())
                    if isinstance(given, DefragQuestion)
                    else _planned(number, replace(given, solver=find))
                )
            write(target, pickle.dumps(answer[-1], protocol=pickle.HIGHEST_PROTOCOL))


def _planned(number: int, given: RoundInput) -> object:
    place_joint_by(given.settings.within)
    watch = Stopwatch(time.monotonic, RoundPhase.BASELINE)
    plan = plan_round(given, watch.enter)
    watch.stop()
    return answer_of(number, plan, {phase.value: spent for phase, spent in watch.seconds.items()})


def _failed(number: int, answer: list[object], error: Exception) -> None:
    answer.append(RoundFailed(round=number, problem=f"{type(error).__name__}: {error}"))


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


if __name__ == "__main__":
    load_policies()
    serve(sys.stdin.buffer, sys.stdout.buffer)
