"""The run time of one workload from what is promised, expected and learned."""

from __future__ import annotations

from dataclasses import replace

from kqueue.core.future.learned import LearnedTime
from kqueue.core.future.run_time import NOT_KNOWN, RunTime, RunTimeSource


def estimate(*, promised: int | None, expected: int | None, learned: LearnedTime | None) -> RunTime:
    """Return the run time of a workload; None: the part is not known.

    The expectation of its user counts first, then what was learned, then the promise.  Runs of the same owner and shape
    count before an expectation that is shorter than half of them took, and lengthen the p90 of a longer one.
    """
    found = _expected(expected, learned) if expected is not None else _learned(learned)
    if promised is None:
        return found
    if found.p50 is None or found.p90 is None:
        return RunTime(p50=promised, p90=promised, promised=promised, source=RunTimeSource.PROMISED)
    return replace(found, p50=min(found.p50, promised), p90=min(found.p90, promised), promised=promised)


def estimate_beyond(whole: RunTime, elapsed: int, longer: LearnedTime | None) -> RunTime:
    """Return the run time, from its begin, of a workload that has run for `elapsed` seconds.

    Learned runs count as far as they took longer.  An expectation counts until it is over, then these runs do.

    Args:
        whole: the run time at the begin.
        elapsed: the seconds.
        longer: what was learned of runs that took longer; None: there was none.
    """
    is_guess = whole.source is RunTimeSource.EXPECTED and whole.p50 is not None and whole.p50 > elapsed
    if longer is None or is_guess or whole.source not in (RunTimeSource.EXPECTED, RunTimeSource.LEARNED):
        return whole
    limit = whole.promised
    p50, p90 = (longer.p50, longer.p90) if limit is None else (min(longer.p50, limit), min(longer.p90, limit))
    return replace(whole, p50=p50, p90=p90)


def _expected(expected: int, learned: LearnedTime | None) -> RunTime:
    if learned is None or not learned.of_owner:
        return RunTime(p50=expected, p90=expected, source=RunTimeSource.EXPECTED)
    if expected < learned.p50:
        return _learned(learned)
    return RunTime(p50=expected, p90=max(expected, learned.p90), source=RunTimeSource.EXPECTED)


def _learned(learned: LearnedTime | None) -> RunTime:
    if learned is None:
        return NOT_KNOWN
    return RunTime(p50=learned.p50, p90=learned.p90, source=RunTimeSource.LEARNED, samples=learned.runs)
