"""The doctor's verdict on joint placement."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.clock import utc_text
from kqueue.operations.checkup.joint import verdict_of, with_plans
from kqueue.operations.checkup.values import ok, warning
from tests.builders import START

SOLVER = {"solver": "ortools 9.15"}
FAILED = {"items": [{"number": 7, "problem": "the planning process has ended in round 7"}, {"number": 6}]}


@pytest.mark.parametrize(
    ("rounds", "status", "words"),
    [
        pytest.param({"enabled": False}, "ok", "is off", id="off"),
        pytest.param({"enabled": True, **SOLVER, "items": [{"number": 3}]}, "ok", "ortools 9.15", id="on"),
        pytest.param({"enabled": True}, "warning", "OR-tools is missing", id="without the solver"),
        pytest.param({"enabled": True, "paused": True, **SOLVER, **FAILED}, "warning", "rests", id="paused"),
        pytest.param({"enabled": True, **SOLVER, **FAILED}, "warning", "has failed", id="the last one failed"),
        pytest.param(
            {"enabled": True, **SOLVER, "statistics": {"nodes": 3, "kinds": 1, "problems": []}},
            *("ok", "ortools 9.15"),
            id="use is measured",
        ),
        pytest.param(
            {"enabled": True, **SOLVER, "statistics": {"nodes": 0, "kinds": 0, "problems": ["not served"]}, **FAILED},
            *("warning", "measured use, which cannot be read"),
            id="use cannot be measured",
        ),
    ],
)
def test_the_verdict(rounds: dict[str, Any], status: str, words: str) -> None:
    verdict = verdict_of(rounds)
    assert verdict.status.value == status
    assert words in verdict.message
    assert bool(verdict.remedy) is (status == "warning")


def test_the_reason_why_use_cannot_be_measured_is_the_remedy() -> None:
    problems = ["the API metrics.k8s.io is not served: install a metrics server", "another"]
    verdict = verdict_of({"enabled": True, **SOLVER, "statistics": {"problems": problems}})
    assert (verdict.remedy, verdict.details) == (problems[0], ("another",))


def test_the_problem_of_the_last_round_is_a_detail() -> None:
    assert verdict_of({"enabled": True, **SOLVER, **FAILED}).details == (
        "round 7: the planning process has ended in round 7",
    )


def plan(name: str, phase: str, *, minutes: int = 5, workload: str = "") -> dict[str, Any]:
    """A stored plan whose proposal is valid for some more minutes."""
    goal = {"workload": {"namespace": "team", "name": workload}} if workload else {"flavor": "gpu", "nodes": 4}
    until = utc_text(START + timedelta(minutes=minutes))
    return {"metadata": {"name": name}, "spec": {"goal": goal}, "status": {"phase": phase, "validUntil": until}}


def test_plans_that_wait_for_approval_are_named() -> None:
    found = [
        plan("a", "Proposed", workload="job-big"),
        plan("b", "Proposed"),
        plan("old", "Proposed", minutes=-1),
        plan("done", "Done"),
    ]
    assert with_plans(ok("on"), found, START) == ok(
        "on",
        "plan a waits for approval, for team/job-big: kqueue defrag show a",
        "plan b waits for approval: kqueue defrag show b",
    )


def test_a_plan_that_has_failed_is_a_warning() -> None:
    found = [plan("a", "Failed", workload="job-big")]
    verdict = with_plans(ok("on"), found, START)
    assert verdict.status.value == "warning"
    assert verdict.details == ("plan a has failed, for team/job-big: kqueue defrag show a",)
    paused = warning("paused", "wait", "round 7")
    assert with_plans(paused, found, START) == warning("paused", "wait", "round 7", *verdict.details)


def test_ten_plans_are_named() -> None:
    verdict = with_plans(ok("on"), [plan(f"p{n}", "Proposed") for n in range(12)], START)
    assert len(verdict.details) == 11
    assert verdict.details[-1] == "and 2 more: kqueue defrag list"
