"""By when the pods of an admitted Workload have to be ready."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.state.readiness import ReadyRules, ready_by
from tests.unit.state.life import at, held, workload

RULES = ReadyRules(start=timedelta(seconds=300), recovery=timedelta(seconds=60))
ADMITTED = held("Admitted")
LOST: Any = {"status": "False", "reason": "WaitForRecovery"}


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param([], None, id="not admitted"),
        pytest.param([ADMITTED], (300, "WaitForStart"), id="admitted, and nothing was said of its pods"),
        pytest.param([ADMITTED, held("PodsReady", status="False", reason="WaitForStart", since=50)], (300, "WaitForStart"), id="measured from the admission"),
        pytest.param([ADMITTED, held("PodsReady", reason="Started")], None, id="ready"),
        pytest.param([ADMITTED, held("PodsReady", since=100, **LOST)], (160, "WaitForRecovery"), id="a pod has failed since"),
        pytest.param([held("Admitted", since=200), held("PodsReady", since=100, **LOST)], (260, "WaitForRecovery"), id="what failed before this admission says nothing"),
        pytest.param([ADMITTED, held("Evicted")], None, id="on its way out"),
        pytest.param([ADMITTED, held("Finished")], None, id="finished"),
        pytest.param([held("Admitted", status="False")], None, id="no more admitted"),
    ],
)  # fmt: skip
def test_by_when_pods_have_to_be_ready(conditions: list[Any], want: tuple[float, str] | None) -> None:
    """None while no clock runs."""
    late = ready_by(workload(*conditions), RULES)
    assert (None if late is None else (late.due, late.cause)) == (None if want is None else (at(want[0]), want[1]))


def test_without_a_recovery_timeout_nobody_is_late_for_it() -> None:
    """Zero switches it off; the start is measured all the same."""
    rules = ReadyRules(start=timedelta(seconds=300), recovery=timedelta(0))
    assert ready_by(workload(ADMITTED, held("PodsReady", **LOST)), rules) is None
    assert ready_by(workload(ADMITTED), rules) is not None


def test_an_inactive_one_is_not_measured() -> None:
    """It leaves for another reason."""
    assert ready_by(workload(ADMITTED, spec={"active": False}), RULES) is None


def test_a_late_one_is_told_of_its_limit() -> None:
    """In seconds, and of which clock."""
    start, recovery = (
        ready_by(workload(ADMITTED), RULES),
        ready_by(workload(ADMITTED, held("PodsReady", **LOST)), RULES),
    )
    assert start is not None
    assert recovery is not None
    assert start.message() == "Not all pods were ready within 300 s of the admission"
    assert recovery.message() == "Pods that were ready were not so again within 60 s"
