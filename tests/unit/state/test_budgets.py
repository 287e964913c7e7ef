"""Budgets: amounts as people read them."""

from __future__ import annotations

import pytest

from kqueue.core.budgets import HOUR_MS
from kqueue.state.budgets import hours_text


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        pytest.param(0, "nvidia.com/gpu", "0", id="nothing"),
        pytest.param(HOUR_MS - 1, "nvidia.com/gpu", "0.99", id="almost an hour is not nothing"),
        pytest.param(HOUR_MS, "nvidia.com/gpu", "1", id="an hour"),
        pytest.param(HOUR_MS * 5 // 2, "nvidia.com/gpu", "2.5", id="two and a half"),
        pytest.param(HOUR_MS // 200, "nvidia.com/gpu", "0", id="less than a hundredth"),
        pytest.param(100 * HOUR_MS - 1, "nvidia.com/gpu", "99.99", id="below a hundred"),
        pytest.param(1000 * HOUR_MS - 1, "nvidia.com/gpu", "999", id="whole hours from a hundred on"),
        pytest.param(500 * HOUR_MS, "cpu", "500m", id="half an hour of a core"),
        pytest.param(1999 * HOUR_MS, "cpu", "1.99", id="almost two hours of a core"),
        pytest.param(150_999 * HOUR_MS, "cpu", "150", id="many hours of a core"),
    ],
)
def test_hours_are_rounded_down(amount: int, resource: str, text: str) -> None:
    assert hours_text(amount, resource) == text
