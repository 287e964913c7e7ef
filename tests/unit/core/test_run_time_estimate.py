"""The run time of a workload from its parts."""

from __future__ import annotations

import pytest

from kqueue.core.future.estimate import estimate, estimate_beyond
from kqueue.core.future.learned import LearnedTime
from kqueue.core.future.run_time import NOT_KNOWN, RunTime, RunTimeSource

PROMISED, EXPECTED, LEARNED = RunTimeSource.PROMISED, RunTimeSource.EXPECTED, RunTimeSource.LEARNED


def known(p50: int, p90: int, *, of_owner: bool = True) -> LearnedTime:
    return LearnedTime(p50=p50, p90=p90, runs=30, of_owner=of_owner)


@pytest.mark.parametrize(
    ("promised", "expected", "learned", "found"),
    [
        pytest.param(None, None, None, NOT_KNOWN, id="nothing"),
        pytest.param(600, None, None, RunTime(p50=600, p90=600, promised=600, source=PROMISED), id="promised"),
        pytest.param(0, None, None, RunTime(p50=0, p90=0, promised=0, source=PROMISED), id="no-time-left"),
        pytest.param(None, 300, None, RunTime(p50=300, p90=300, source=EXPECTED), id="expected"),
        pytest.param(
            200, 300, None, RunTime(p50=200, p90=200, promised=200, source=EXPECTED), id="promise-ends-expectation"
        ),
        pytest.param(None, None, known(100, 200), RunTime(p50=100, p90=200, source=LEARNED, samples=30), id="learned"),
        pytest.param(
            150,
            None,
            known(100, 200),
            RunTime(p50=100, p90=150, promised=150, source=LEARNED, samples=30),
            id="promise-cuts-what-was-learned",
        ),
        pytest.param(
            None, 1, known(100, 200), RunTime(p50=100, p90=200, source=LEARNED, samples=30), id="a-lie-does-not-count"
        ),
        pytest.param(
            None, 150, known(100, 200), RunTime(p50=150, p90=200, source=EXPECTED), id="like-what-was-learned"
        ),
        pytest.param(None, 900, known(100, 200), RunTime(p50=900, p90=900, source=EXPECTED), id="longer-than-ever"),
        pytest.param(
            None, 1, known(100, 200, of_owner=False), RunTime(p50=1, p90=1, source=EXPECTED), id="others-ran-longer"
        ),
    ],
)
def test_estimates(promised: int | None, expected: int | None, learned: LearnedTime | None, found: RunTime) -> None:
    assert estimate(promised=promised, expected=expected, learned=learned) == found


LONGER = known(500, 900)


@pytest.mark.parametrize(
    ("whole", "elapsed", "longer", "times"),
    [
        pytest.param(RunTime(p50=100, p90=200, source=LEARNED), 150, LONGER, (500, 900), id="learned"),
        pytest.param(RunTime(p50=100, p90=200, source=LEARNED), 150, None, (100, 200), id="nothing longer"),
        pytest.param(
            RunTime(p50=100, p90=200, promised=600, source=LEARNED), 150, LONGER, (500, 600), id="a promise cuts"
        ),
        pytest.param(RunTime(p50=300, p90=300, source=EXPECTED), 150, LONGER, (300, 300), id="expected"),
        pytest.param(RunTime(p50=100, p90=100, source=EXPECTED), 150, LONGER, (500, 900), id="expectation is over"),
        pytest.param(RunTime(p50=600, p90=600, promised=600, source=PROMISED), 150, LONGER, (600, 600), id="promised"),
        pytest.param(NOT_KNOWN, 150, LONGER, (None, None), id="unknown"),
    ],
)
def test_estimates_of_running_workloads(
    whole: RunTime, elapsed: int, longer: LearnedTime | None, times: tuple[int | None, int | None]
) -> None:
    found = estimate_beyond(whole, elapsed, longer)
    assert (found.p50, found.p90) == times
    assert (found.promised, found.source) == (whole.promised, whole.source)
