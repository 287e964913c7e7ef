"""When running workloads are taken to end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kqueue.core.backfill.ends import UNKNOWN_RUN, expected_end
from kqueue.core.future.run_time import RunTime
from tests.unit.core.backfill.lines import at

WEEK = int(UNKNOWN_RUN.total_seconds())


@pytest.mark.parametrize(
    ("run_time", "now", "expected"),
    [
        pytest.param(RunTime(promised=100), 10, 100, id="a limit ends it"),
        pytest.param(RunTime(promised=100, p90=50), 10, 100, id="a limit counts before a guess"),
        pytest.param(RunTime(promised=100), 100, 160, id="its pods need a minute after the limit"),
        pytest.param(RunTime(promised=100), 160, 220, id="or two"),
        pytest.param(RunTime(p50=20, p90=50), 10, 50, id="nine of ten have ended"),
        pytest.param(RunTime(p90=50), 50, 100, id="it runs longer: twice as long"),
        pytest.param(RunTime(p90=50), 199, 200, id="four times as long"),
        pytest.param(RunTime(p90=0), 1, 2, id="a guess of nothing"),
        pytest.param(RunTime(), 10, WEEK, id="nothing is known: a week after its start"),
        pytest.param(RunTime(), WEEK, 2 * WEEK, id="it runs for a week"),
    ],
)
def test_a_running_workload(run_time: RunTime, now: int, expected: int) -> None:
    """It runs since the start; the time is later than now."""
    assert expected_end(run_time, at(0), at(now)) == at(expected)


def test_a_start_that_is_not_over() -> None:
    """A clock that was set back, and a workload that does not run yet."""
    assert expected_end(RunTime(p90=50), at(1000), at(10)) == at(60)
    assert expected_end(RunTime(p90=50), None, at(10)) == at(60)


@pytest.mark.parametrize(
    "since",
    [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
    ids=["the first moment", "the last moment"],
)
def test_forged_times(since: datetime) -> None:
    """Any moment may be in an object."""
    assert expected_end(RunTime(p90=1), since, at(10)) > at(10)
