"""Makes the views of start times from the state of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqueue.controllers.run_times import make_run_times
from kqueue.manager import rules
from kqueue.manager.backfill import make_lines
from kqueue.manager.explaining import Sources
from kqueue.manager.recording import recording_answers
from kqueue.scheduling.future.process import StartTimesProcess
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.start_question import DrainRules, StartQuestions
from kqueue.visibility.start_times import StartTimesSource, StartTimeViews

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator


def make_questions(operator: Operator, sources: Sources, pending: PendingWorkloads) -> StartQuestions:
    """Return what reads questions for start times from the state of this process."""
    settings = rules.loop_settings(operator.config, operator.timings)
    return StartQuestions(
        known=sources.known,
        planning=sources.planning,
        pending=pending,
        held_back=sources.held_back,
        run_time_of=operator.manager.shared(make_run_times).of,
        rules=DrainRules(order=settings.order, looks=settings.looks, line_of=operator.manager.shared(make_lines).of),
    )


def make_start_times(operator: Operator, sources: Sources, pending: PendingWorkloads) -> StartTimeViews:
    """Return the views; the child process starts with the first question."""
    source = StartTimesSource(
        make_questions(operator, sources, pending),
        StartTimesProcess(),
        clock=operator.clock,
        on_answer=recording_answers(operator.decision_recorder, operator.clock),
    )
    return StartTimeViews(source, operator.clock)
