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
