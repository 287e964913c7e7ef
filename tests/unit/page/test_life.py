"""A Workload's life in order, from objects of any form."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.page.life import MOST_MOMENTS, life

JSON = dict[str, Any]


def workload(*conditions: tuple[str, str, str]) -> JSON:
    found = [
        {"type": kind, "status": status, "lastTransitionTime": f"2026-01-01T00:{minute}:00Z", "message": "why"}
        for kind, status, minute in conditions
    ]
    return {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": found}}


def test_conditions_and_events_are_one_line_in_time() -> None:
    """Old and new events have their times in different fields; the page has warnings and repetitions."""
    events: list[JSON] = [
        {"type": "Warning", "reason": "Late", "lastTimestamp": "2026-01-01T00:07:00Z", "count": 3, "message": "m"},
        {"type": "Normal", "reason": "Early", "eventTime": "2026-01-01T00:01:00.000000Z"},
        {"reason": "Again", "series": {"count": 2, "lastObservedTime": "2026-01-01T00:06:00.000000Z"}},
    ]

    found = life(workload(("QuotaReserved", "True", "05"), ("PodsReady", "False", "08")), events)

    assert [(one["what"], one["kind"]) for one in found["moments"]] == [
        ("Created", ""),
        ("Early", "event"),
        ("QuotaReserved", "condition"),
        ("Again (2 times)", "event"),
        ("Late (3 times)", "warning"),
        ("PodsReady=False", "condition"),
    ]
    assert found["left"] == 0


@pytest.mark.parametrize(
    ("conditions", "states"),
    [
        ([], ["Pending"]),
        ([("QuotaReserved", "True", "01"), ("Admitted", "True", "01")], ["Pending", "Reserved", "Admitted"]),
        ([("QuotaReserved", "False", "05"), ("PodsReady", "True", "02")], ["Pending"]),
        (
            [("PodsReady", "True", "03"), ("Admitted", "True", "02"), ("Finished", "True", "09")],
            ["Pending", "Admitted", "Running", "Finished"],
        ),
    ],
)
def test_states_are_those_that_led_to_the_present_one(conditions: list[Any], states: list[str]) -> None:
    """In the order of their beginnings; pods that were ready before an eviction are no state."""
    assert [one["state"] for one in life(workload(*conditions), ())["states"]] == states


def test_an_answer_has_a_bound() -> None:
    """The oldest moments are left out, and counted."""
    events = [{"reason": "r", "eventTime": f"2026-01-01T01:00:00.{n:06}Z"} for n in range(MOST_MOMENTS)]

    found = life(workload(), events)

    assert (len(found["moments"]), found["left"]) == (MOST_MOMENTS, 1)
    assert found["moments"][0]["what"] == "r"


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": None, "status": []}, {"status": {"conditions": [None, {"type": 3}, {"status": {}}]}}]
)
def test_odd_objects_have_a_life_too(obj: JSON) -> None:
    """An event of another version is no error either."""
    event: JSON = {"series": 3, "metadata": [], "count": "many", "lastTimestamp": None}

    found = life(obj, [event])

    assert found == {"moments": [], "left": 0, "states": []}
