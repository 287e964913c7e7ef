"""Annotations of budgets: all or nothing, with a sentence that says what to write; and the written use."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kqueue.core.budgets import HOUR_MS, Budget, Calendar, Period, Spent
from kqueue.model.budgets import Meter, budgets, ledger, ledger_text

BUDGETS, USED = "kqueue.dev/budgets", "kqueue.dev/budgets-used"
GPU, WEEK = "nvidia.com/gpu", Period(Calendar.WEEK)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nvidia.com/gpu=1000h/week", [Budget(resource=GPU, amount=1000 * HOUR_MS, period=WEEK)]),
        ("cpu=2h/86400s", [Budget(resource="cpu", amount=2000 * HOUR_MS, period=Period(86400))]),
        (
            " a : nvidia.com/gpu = 5h / day , a/main:nvidia.com/gpu=0h/month",
            [
                Budget(scope="a", resource=GPU, amount=5 * HOUR_MS, period=Period(Calendar.DAY)),
                Budget(scope="a/main", resource=GPU, amount=0, period=Period(Calendar.MONTH)),
            ],
        ),
    ],
)
def test_budgets_are_read(text: str, found: list[Budget]) -> None:
    assert budgets({BUDGETS: text}) == (tuple(found), "")
    assert budgets({}) == ((), "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nvidia.com/gpu",
        "nvidia.com/gpu=1000/week",
        "nvidia.com/gpu=1000h",
        "nvidia.com/gpu=-1h/week",
        "nvidia.com/gpu=lotsh/week",
        "nvidia.com/gpu=1h/year",
        "nvidia.com/gpu=1h/59s",
        "nvidia.com/gpu=1h/99999999s",
        "=1h/week",
        ":cpu=1h/week",
        "a/:cpu=1h/week",
        "a/b/c:cpu=1h/week",
        "cpu=1h/week,",
    ],
)
def test_a_wrong_annotation_has_no_budget_at_all(text: str) -> None:
    found, problem = budgets({BUDGETS: text})
    assert found == ()
    assert "is no budget; write [NAMESPACE[/LOCALQUEUE]:]RESOURCE=AMOUNTh/PERIOD such as" in problem


def test_two_budgets_of_one_resource_are_refused() -> None:
    assert budgets({BUDGETS: "a:cpu=1h/day,a:cpu=2h/week"})[1] == "a has two budgets of cpu; keep one of them"
    assert budgets({BUDGETS: "cpu=1h/day,cpu=2h/week"})[1].startswith("every namespace has two budgets of cpu")
    many = ",".join(f"n{number}:cpu=1h/day" for number in range(501))
    assert budgets({BUDGETS: many})[1].startswith("has more than 500 budgets")


def test_the_written_use_is_read_back_however_large() -> None:
    """A petabyte for a month has more than 64 bits."""
    now, start = datetime(2026, 11, 27, 12, 0, 0, 250_000, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)
    spent: dict[Meter, Spent] = {
        ("a/main", GPU, WEEK): Spent(start, 7),
        ("a/", "memory", Period(60)): Spent(start, 2**50 * 31 * 86_400_000),
    }
    found = ledger({USED: ledger_text(now, spent)})
    assert (found.at, found.spent) == (now, spent)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"at": 1}', '{"used": {"a/b": {"cpu week": [1]}}}', "[" * 5000, '{"used": {"a": 1}}']
)
def test_a_use_that_cannot_be_read_is_none(text: str) -> None:
    found = ledger({USED: text})
    assert (found.at, found.spent) == (None, {})


def test_parts_that_cannot_be_read_are_left_out() -> None:
    entries = '"cpu week": [0, 5], "cpu year": [0, 1], "week": [0, 1], "x week": [0, -1], "y week": [99999999999, 1]'
    found = ledger({USED: '{"at": "soon", "used": {"a/b": {' + entries + "}}}"})
    assert found.at is None
    assert found.spent == {("a/b", "cpu", WEEK): Spent(datetime.fromtimestamp(0, UTC), 5)}
