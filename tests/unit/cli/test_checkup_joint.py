"""The doctor's verdict on joint placement."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.operations.checkup.joint import verdict_of

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
