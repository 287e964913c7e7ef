"""The process that plans rounds and searches for moves: `python -m kqueue.scheduling.joint.worker`.

It reads messages from standard input and writes answers to standard output, each with its length before it.  It knows
no API server and no configuration file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import BinaryIO

from kqueue.core.joint.answer import PlanAnswer, answer_of
from kqueue.core.joint.defrag import DefragQuestion
from kqueue.core.joint.graph import FlowSolver
from kqueue.core.joint.migration import MigrationAnswer, migration_gains
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import RoundPhase
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.topology.placers import place_joint_by
from kqueue.isolation import isolated
from kqueue.scheduling.child import read, without_collector, write_value
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.extensions import load_policies
from kqueue.scheduling.joint.frames import Defragmented, Resync, RoundFailed
from kqueue.scheduling.stopwatch import Stopwatch

_AUDIT_EVERY = 64
"""Rounds from one check of kept tables to the next."""


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer rounds and searches until the source ends."""
    assembly, find = Assembly(), solver()
    while (data := read(source)) is not None:
        asked = assembly.take(data)
        if isinstance(asked, Resync):
            assembly = Assembly()
            write_value(target, asked)
        elif asked is not None:
            number, given = asked
            with without_collector():
                for answer in answered(number, given, find):
                    write_value(target, answer)


def answered(
    number: int, given: RoundInput | DefragQuestion, find: FlowSolver | None
) -> Iterator[PlanAnswer | RoundFailed | MigrationAnswer | Defragmented]:
    """Yield the answers to a round or to a search."""
    if isinstance(given, RoundInput):
        yield from answers(number, replace(given, solver=find))
        return
    failed: list[RoundFailed] = []
    with isolated(partial(_failed, number, failed)):
        yield Defragmented(search=number, found=given.answer())
    yield from failed


def answers(number: int, given: RoundInput) -> Iterator[PlanAnswer | RoundFailed | MigrationAnswer]:
    """Yield the plan of a round, then, if workloads may be moved, what moves would gain.

    The second answer does not delay the first one.
    """
    failed: list[RoundFailed] = []
    with isolated(partial(_failed, number, failed)):
        yield _planned(number, given)
    if failed:
        yield failed[0]
    elif given.running.movable:
        gains: list[MigrationAnswer] = []
        with isolated(partial(_unknown, number, gains)):
            gains.append(MigrationAnswer(round=number, gains=migration_gains(given)))
        yield gains[0]


def _planned(number: int, given: RoundInput) -> PlanAnswer:
    place_joint_by(given.settings.within)
    drifts = audited(number, given)
    watch = Stopwatch(time.monotonic, RoundPhase.BASELINE)
    plan = plan_round(given, watch.enter)
    watch.stop()
    answer = answer_of(number, plan, {phase.value: spent for phase, spent in watch.seconds.items()})
    return replace(answer, drifts=drifts)


def audited(number: int, given: RoundInput) -> tuple[str, ...]:
    """Check some of the kept tables before every 64th round; return what differed, which is made anew."""
    if given.kept is None or number % _AUDIT_EVERY:
        return ()
    capacities = {flavor: view.capacity for flavor, view in given.state.snapshot.topologies.items()}
    return tuple(given.kept.audit(capacities, number // _AUDIT_EVERY))


def _failed(number: int, answer: list[RoundFailed], error: Exception) -> None:
    answer.append(RoundFailed(round=number, problem=f"{type(error).__name__}: {error}"))


def _unknown(number: int, answer: list[MigrationAnswer], error: Exception) -> None:
    answer.append(MigrationAnswer(round=number, problem=f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    load_policies()
    serve(sys.stdin.buffer, sys.stdout.buffer)
