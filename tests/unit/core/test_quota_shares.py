"""Shares of a capacity: they rise at once, fall in steps, and never exceed the whole together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.quota_shares import WHOLE, Descent, next_amount, share_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("present", "target", "descent", "amount", "after"),
    [
        pytest.param(None, 7, None, 7, None, id="for-the-first-time"),
        pytest.param(5, 7, None, 7, None, id="up-at-once"),
        pytest.param(5, 7, Descent(9, NOW), 7, None, id="up-in-a-descent"),
        pytest.param(7, 7, None, 7, None, id="as-before"),
        pytest.param(100, 0, None, 100, Descent(100, NOW), id="a-descent-begins-with-a-minute"),
        pytest.param(100, 0, Descent(100, NOW - MINUTE / 2), 100, Descent(100, NOW - MINUTE / 2), id="not-yet"),
        pytest.param(100, 0, Descent(100, NOW - MINUTE), 90, Descent(100, NOW), id="a-step"),
        pytest.param(90, 0, Descent(100, NOW - MINUTE), 80, Descent(100, NOW), id="of-the-amount-before"),
        pytest.param(90, 85, Descent(100, NOW - MINUTE), 85, None, id="the-last-step-ends-it"),
        pytest.param(3, 0, Descent(3, NOW - MINUTE), 2, Descent(3, NOW), id="at-least-one"),
        pytest.param(100, 0, Descent(100, NOW - timedelta(days=9)), 90, Descent(100, NOW), id="a-clock-that-jumps"),
        pytest.param(100, 0, Descent(120, NOW + MINUTE), 100, Descent(120, NOW), id="a-clock-that-goes-back"),
    ],
)
def test_a_quota_rises_at_once_and_falls_in_steps(
    present: int | None, target: int, descent: Descent | None, amount: int, after: Descent | None
) -> None:
    assert next_amount(present, target, descent, NOW) == (amount, after)


def test_a_lost_capacity_is_gone_after_ten_steps() -> None:
    amount, descent, seen = 1000, None, []
    for minute in range(12):
        amount, descent = next_amount(amount, 0, descent, NOW + minute * MINUTE)
        seen.append(amount)
    assert seen == [1000, 900, 800, 700, 600, 500, 400, 300, 200, 100, 0, 0]


@given(capacity=st.integers(0, 2**63 - 1), cuts=st.lists(st.integers(0, WHOLE), max_size=8))
def test_shares_of_the_whole_do_not_exceed_it(capacity: int, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), WHOLE]
    shares = [share_of(capacity, upper - lower) for lower, upper in pairwise(edges)]
    assert sum(shares) <= capacity
    assert share_of(capacity, WHOLE) == capacity
