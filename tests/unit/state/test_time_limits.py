"""For how long a Workload runs, and how long what has ended is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.state import execution_time, retention
from tests.unit.state.life import at, held, workload

LIMIT = {"maximumExecutionTimeSeconds": 25}


@pytest.mark.parametrize(
    ("spec", "conditions", "before", "want"),
    [
        pytest.param(LIMIT, [held("Admitted", since=5)], None, 30, id="measured from the admission"),
        pytest.param(LIMIT, [held("Admitted", since=5)], 10, 20, id="less what it ran before"),
        pytest.param(LIMIT, [held("Admitted", since=5)], 40, -10, id="it has run for longer already"),
        pytest.param(LIMIT, [held("Admitted", since=5)], -40, 30, id="nobody has run for less than nothing"),
        pytest.param(LIMIT, [held("QuotaReserved")], None, None, id="waiting does not count"),
        pytest.param({}, [held("Admitted")], None, None, id="without a limit"),
        pytest.param({**LIMIT, "active": False}, [held("Admitted")], None, None, id="it is switched off already"),
    ],
)
def test_when_its_time_is_over(
    spec: dict[str, Any], conditions: list[Any], before: int | None, want: int | None
) -> None:
    """None while it is not measured."""
    obj = workload(*conditions, spec=spec, accumulatedPastExecutionTimeSeconds=before)
    assert execution_time.ends_at(obj) == (None if want is None else at(want))


@pytest.mark.parametrize(
    ("before", "now", "want"),
    [(None, 15.9, 15), (10, 15, 25), (10, -5, 10), (2**31 - 5, 60, 2**31 - 1)],
    ids=["whole seconds", "all runs together", "clocks that disagree", "as much as the field holds"],
)
def test_what_it_has_run_is_kept(before: int | None, now: float, want: int) -> None:
    """For its next run."""
    obj = workload(held("Admitted"), accumulatedPastExecutionTimeSeconds=before)
    assert execution_time.accumulated(obj, at(now)) == want
    assert execution_time.accumulated(workload(), at(now)) is None


@pytest.mark.parametrize(
    ("conditions", "after", "want"),
    [
        pytest.param([held("Finished", since=10)], 60, 70, id="so long after its end"),
        pytest.param([held("Finished", since=10)], 0, 10, id="not at all"),
        pytest.param([held("Finished", since=10)], None, None, id="for ever"),
        pytest.param([held("Finished", status="False")], 60, None, id="it has not finished"),
    ],
)
def test_for_how_long_a_finished_one_is_kept(conditions: list[Any], after: int | None, want: int | None) -> None:
    """None: it is not deleted."""
    kept = None if after is None else timedelta(seconds=after)
    assert retention.finished_expires(workload(*conditions), kept) == (None if want is None else at(want))


OURS, USERS = "DeactivatedDueToAdmissionCheck", "Deactivated"


@pytest.mark.parametrize(
    ("reason", "active", "after", "want"),
    [
        pytest.param(OURS, False, 60, 60, id="switched off by us"),
        pytest.param(OURS, False, None, None, id="kept for ever"),
        pytest.param(OURS, True, 60, None, id="active again"),
        pytest.param(USERS, False, 60, None, id="switched off by its user"),
    ],
)
def test_for_how_long_a_job_that_we_switched_off_is_kept(
    reason: str, active: bool, after: int | None, want: int | None
) -> None:
    """None: its job is not deleted."""
    kept = None if after is None else timedelta(seconds=after)
    obj = workload(held("Evicted", reason=reason), spec={"active": active})
    assert retention.deactivated_expires(obj, kept) == (None if want is None else at(want))
    assert retention.deactivated_expires(workload(spec={"active": active}), kept) is None
