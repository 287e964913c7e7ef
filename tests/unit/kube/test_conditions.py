"""Conditions of objects as JSON: found, and set with the right transition time."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.kube.conditions import condition, is_true, transition_time, with_conditions

OLD, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "Works", "lastTransitionTime": OLD}


@pytest.mark.parametrize(
    ("obj", "found", "holds"),
    [
        pytest.param({"status": {"conditions": [{"type": "Other"}, READY]}}, READY, True, id="true"),
        pytest.param({"status": {"conditions": [{**READY, "status": "False"}]}}, {**READY, "status": "False"}, False, id="false"),
        pytest.param({"status": {"conditions": None}}, None, False, id="null"),
        pytest.param({"status": None}, None, False, id="no-status"),
        pytest.param({}, None, False, id="never-written"),
    ],
)  # fmt: skip
def test_a_condition_is_found_by_its_type(obj: dict[str, Any], found: dict[str, Any] | None, holds: bool) -> None:
    """Objects that nothing has looked at yet have none."""
    assert condition(obj, "Ready") == found
    assert is_true(obj, "Ready") is holds


def test_a_found_condition_is_a_copy() -> None:
    """Changing it does not change the object."""
    obj = {"status": {"conditions": [dict(READY)]}}
    found = condition(obj, "Ready")
    assert found is not None
    found["status"] = "False"

    assert is_true(obj, "Ready")


@pytest.mark.parametrize(
    ("before", "status", "expected"),
    [
        pytest.param(None, "True", NOW, id="new"),
        pytest.param(READY, "True", OLD, id="the-status-stays"),
        pytest.param(READY, "False", NOW, id="the-status-changes"),
        pytest.param({"type": "Ready", "status": "True"}, "True", NOW, id="without-a-time"),
    ],
)
def test_the_transition_time_moves_with_the_status(before: dict[str, Any] | None, status: str, expected: str) -> None:
    """And only then."""
    assert transition_time(before, status, NOW) == expected


def test_conditions_are_set_one_by_one() -> None:
    """The others stay, and a changed one keeps the fields that the change does not name."""
    other = {"type": "Other", "status": "False", "lastTransitionTime": OLD}
    result = with_conditions(
        [READY, other], [{"type": "Ready", "status": "False"}, {"type": "New", "status": "True"}], NOW
    )

    assert result == [
        {**READY, "status": "False", "lastTransitionTime": NOW},
        other,
        {"type": "New", "status": "True", "lastTransitionTime": NOW},
    ]
