"""Start times from the state of this process: their views, and how well they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from kqueue.controllers.run_times import make_run_times
from kqueue.core.future.told import ToldStart
from kqueue.manager import rules
from kqueue.manager.backfill import make_lines
from kqueue.manager.explaining import Sources, sources_of
from kqueue.manager.recording import recording_answers
from kqueue.manager.start_coverage import StartCoverage
from kqueue.runtime.store import ObjectKey
from kqueue.scheduling.future.process import StartTimesProcess
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.start_question import DrainRules, StartQuestions
from kqueue.visibility.start_times import (
    NoAnswer,
    StartAnswer,
    StartComputer,
    StartTimesSource,
    StartTimeViews,
    told_starts,
)

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator

_log = structlog.get_logger(__name__)


def make_pending(operator: Operator) -> PendingWorkloads:
    """Return the waiting workloads of a process in their order."""
    return PendingWorkloads(
        queues=operator.queues,
        workloads=operator.watches.workloads.store,
        local_queues=operator.watches.local_queues.store,
        clock=operator.clock,
    )


def make_questions(operator: Operator, sources: Sources, pending: PendingWorkloads) -> StartQuestions:
    """Return what reads questions for start times from the state of this process."""
    settings = rules.loop_settings(operator.config, operator.timings)
    return StartQuestions(
        known=sources.known,
        planning=sources.planning,
        pending=pending,
        held_back=sources.held_back,
        run_times=operator.manager.shared(make_run_times),
        rules=DrainRules(
            order=settings.order,
            looks=settings.looks,
            line_of=operator.manager.shared(make_lines).of,
            one_by_one=settings.block_admission,
        ),
    )


def make_computer(_operator: Operator) -> StartComputer:
    """Return the child process that computes start times; it starts with the first question."""
    return StartTimesProcess()


def make_source(operator: Operator) -> StartTimesSource:
    """Return the start times of a process; call it through `operator.shared`: views and annotations share answers."""
    watches, clock = operator.watches, operator.clock
    coverage = StartCoverage(watches.workloads.store, operator.metrics, clock)
    watches.workloads.subscribe(coverage.on_workload)
    questions = make_questions(operator, sources_of(operator), make_pending(operator))
    record = recording_answers(operator.decision_recorder, clock)

    async def on_answer(answer: StartAnswer) -> None:
        await coverage.on_answer(answer)
        if record is not None:
            await record(answer)

    source = StartTimesSource(
        questions,
        operator.shared(make_computer),
        clock=clock,
        on_answer=on_answer,
        stretch_of=coverage.stretch,
    )
    operator.on_finish.append(source.stop)
    return source


def make_start_times(operator: Operator) -> StartTimeViews:
    """Return the views."""
    return StartTimeViews(operator.shared(make_source), operator.clock)


async def told_by_key(operator: Operator) -> Mapping[ObjectKey, ToldStart] | None:
    """Return the start times of all waiting workloads by the key of their Workload; None: they are not known now."""
    answer = await operator.shared(make_source).renewed()
    if isinstance(answer, NoAnswer):
        _log.warning("start times are not known, annotations stay as they are", error=answer.message)
        return None
    pace, found = RequestPace(operator.clock), dict[ObjectKey, ToldStart]()
    for one in told_starts(answer):
        await pace.step()
        found[one.key] = one
    return found
