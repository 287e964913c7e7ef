"""What a run takes: percentiles, and processor time of processes and the machine."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests.bench._meter import Meter, cpu_seconds, percentile


@pytest.mark.parametrize(
    ("values", "percent", "want"),
    [
        pytest.param([3, 1, 2], 50, 2, id="half of three values is the middle one"),
        pytest.param([4, 1, 3, 2], 50, 2, id="half of four values is the second"),
        pytest.param(list(range(1, 101)), 99, 99, id="one of a hundred values is above the 99th"),
        pytest.param(list(range(1, 61)), 99, 60, id="of sixty values the 99th is the largest"),
        pytest.param([7], 50, 7, id="a single value is all of them"),
        pytest.param([5, 6], 100, 6, id="the hundredth is the largest"),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: int, want: float) -> None:
    """The smallest that so many percent do not exceed."""
    assert percentile(values, percent) == want


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_meter_counts_what_was_used_since_its_creation() -> None:
    """By process, and not what was used before."""
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    meter = Meter({"self": os.getpid()})
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    spent = meter.spent()

    assert 0.05 <= spent.by["self"] <= cpu_seconds(os.getpid()) - 0.02
    assert spent.by["others"] >= 0
    assert spent.ours == spent.by["self"]
