"""Start times of waiting workloads: two drains of the planner, with the shorter and with the longer run times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from kqueue.core.future.drain import Drain, NotPlanned, Planned, PlannedStart
from kqueue.core.future.question import StartQuestion
from kqueue.core.future.remaining import Quantile, remaining
from kqueue.core.future.run_time import RunTimeSource
from kqueue.core.value import value


@value(kw_only=True)
class StartTime:
    """When a waiting workload starts, by two drains.

    A drain with shorter run times may start a workload later, because another one takes its place: so both are sorted.

    Args:
        earlier, later: the starts of the two drains; `later` None: only one of them has a start, for `reason`.
        reason: why a drain has none; None: both have one.
    """

    earlier: PlannedStart | None
    later: PlannedStart | None
    reason: NotPlanned | None = None


@value(kw_only=True)
class Assumptions:
    """The facts on which start times depend, besides that nothing new arrives and nothing is changed.

    Args:
        running, waiting: the number of workloads by the source of their run times.
        outlived: running workloads that have run longer than half of their kind.
        unknown: running workloads of which no end is known.
        horizon: seconds from now.
    """

    running: Mapping[RunTimeSource, int]
    waiting: Mapping[RunTimeSource, int]
    outlived: int
    unknown: int
    horizon: int


@value(kw_only=True)
class StartTimes:
    """The answer of the drains.

    Args:
        of: by UID, for all workloads of the question.
        tries: heads that both drains have planned.
        is_complete: whether no bound has stopped a drain.
    """

    of: Mapping[str, StartTime]
    assumptions: Assumptions
    tries: int
    is_complete: bool


class StartsFailedError(Exception):
    """There are no start times; the message says why."""


def _always() -> bool:
    return True


def start_times(question: StartQuestion, *, goes_on: Callable[[], bool] = _always) -> StartTimes:
    """Return the start times of all waiting workloads; where `goes_on` says no, the drain under way stops."""
    short = Drain(question, Quantile.P50, goes_on=goes_on)
    long = Drain(question, Quantile.P90, goes_on=goes_on)
    by_p50, by_p90 = short.run(), long.run()
    return StartTimes(
        of={uid: _interval(one, by_p90[uid]) for uid, one in by_p50.items()},
        assumptions=_assumptions(question),
        tries=short.tries + long.tries,
        is_complete=short.is_complete and long.is_complete,
    )


def _interval(one: Planned, other: Planned) -> StartTime:
    starts = sorted((p for p in (one, other) if isinstance(p, PlannedStart)), key=lambda planned: planned.seconds)
    reasons = [p for p in (other, one) if isinstance(p, NotPlanned)]
    return StartTime(
        earlier=starts[0] if starts else None,
        later=starts[1] if len(starts) == 2 else None,
        reason=reasons[0] if reasons else None,
    )


def _assumptions(question: StartQuestion) -> Assumptions:
    running = question.running.values()
    return Assumptions(
        running=Counter(one.run_time.source for one in running),
        waiting=Counter(one.run_time.source for line in question.lines for one in line.workloads),
        outlived=sum(one.outlived for one in running),
        unknown=sum(remaining(one.run_time, one.elapsed, Quantile.P90) is None for one in running),
        horizon=question.bounds.horizon,
    )
