"""Makes the views of start times from the state of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqueue.api.wire import kueue as wire
from kqueue.core.future.run_time import NOT_KNOWN, RunTime, RunTimeSource
from kqueue.manager import rules
from kqueue.manager.explaining import Sources
from kqueue.scheduling.future.process import StartTimesProcess
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.start_question import DrainRules, StartQuestions
from kqueue.visibility.start_times import StartTimesSource, StartTimeViews

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator


def promised(obj: wire.Workload) -> RunTime:
    """Return the run time that the maximum execution time of a Workload allows, without its past runs."""
    limit = obj.spec.maximum_execution_time_seconds
    if limit is None:
        return NOT_KNOWN
    left = max(1, limit - max(0, obj.status.accumulated_past_execution_time_seconds or 0))
    return RunTime(p50=left, p90=left, promised=left, source=RunTimeSource.PROMISED)


def make_questions(operator: Operator, sources: Sources, pending: PendingWorkloads) -> StartQuestions:
    """Return what reads questions for start times from the state of this process."""
    settings = rules.loop_settings(operator.config, operator.timings)
    return StartQuestions(
        known=sources.known,
        planning=sources.planning,
        pending=pending,
        held_back=sources.held_back,
        run_time_of=promised,
        rules=DrainRules(order=settings.order, looks=settings.looks),
    )


def make_start_times(operator: Operator, sources: Sources, pending: PendingWorkloads) -> StartTimeViews:
    """Return the views; the child process starts with the first question."""
    source = StartTimesSource(make_questions(operator, sources, pending), StartTimesProcess(), clock=operator.clock)
    return StartTimeViews(source, operator.clock)
