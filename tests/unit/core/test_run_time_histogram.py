"""Quantiles of counted run times against the exact ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.future.histogram import BOUNDS, MOST_RUNS, MOST_SECONDS, RunHistogram

SECONDS = st.integers(0, MOST_SECONDS)
FEW = st.lists(SECONDS, min_size=1, max_size=MOST_RUNS - 1)


def counted(runs: list[int]) -> RunHistogram:
    found = RunHistogram()
    for seconds in runs:
        found.add(seconds)
    return found


def exact(runs: list[int], percent: int) -> int:
    """The run within which the next one ends with this probability; the longest one, if there is none."""
    rank = min(len(runs), -(-percent * (len(runs) + 1) // 100))
    return sorted(runs)[rank - 1]


@given(runs=FEW, percent=st.sampled_from([50, 90, 99]))
def test_a_quantile_is_at_most_an_eighth_above_the_exact_one(runs: list[int], percent: int) -> None:
    found, true = counted(runs).quantile(percent), exact(runs, percent)
    assert true <= found <= max(true + 1, true * 9 // 8 + 1)


@given(runs=st.lists(SECONDS, min_size=MOST_RUNS, max_size=3 * MOST_RUNS))
def test_memory_is_bounded_and_quantiles_stay_in_order(runs: list[int]) -> None:
    found = counted(runs)
    assert 0 < found.runs < MOST_RUNS
    assert sum(count for _, count in found.counts()) == found.runs
    assert found.quantile(50) <= found.quantile(90) <= BOUNDS[-1]


@given(runs=FEW, percent=st.sampled_from([50, 90]), elapsed=SECONDS)
def test_a_quantile_of_longer_runs_counts_them_alone(runs: list[int], percent: int, elapsed: int) -> None:
    """Runs within an eighth of the elapsed time may count, too."""
    found = counted(runs).quantile_beyond(elapsed, percent)
    longer = [one for one in runs if one > elapsed]
    if found is None:
        assert not longer
        return
    assert found > elapsed
    assert found <= BOUNDS[-1]
    if not any(elapsed >= one > elapsed * 8 // 9 - 1 for one in runs):
        assert found == counted(longer).quantile(percent)


def test_halving_keeps_the_distribution() -> None:
    """Also of runs in buckets of their own: every second one stays, not none and not all."""
    found = counted([*range(1, 9)] * 31 + [1, 2, 3, 4, 5, 6, 7, 8])
    assert (found.runs, found.quantile(50), found.quantile(90)) == (MOST_RUNS // 2, 5, 8)
    assert {count for _, count in found.counts()} == {16}


def test_old_runs_are_forgotten() -> None:
    """Jobs that became ten times as long are known as such after as many runs as were known."""
    found = counted([60] * 200)
    for _ in range(300):
        found.add(600)
    assert 600 <= found.quantile(50) <= 675


def test_buckets_are_fine_and_few() -> None:
    assert len(BOUNDS) < 200
    assert all(low < high <= max(low + 1, low * 9 // 8) for low, high in pairwise(BOUNDS))
    assert counted([10 * MOST_SECONDS]).quantile(90) == BOUNDS[-1]


@given(runs=FEW)
def test_counts_come_back(runs: list[int]) -> None:
    found = counted(runs)
    again = RunHistogram.restored(found.counts())
    assert (again.counts(), again.runs, again.quantile(90)) == (found.counts(), found.runs, found.quantile(90))


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ([(len(BOUNDS), 1)], "bucket"),
        ([(-1, 1)], "bucket"),
        ([(3, 1), (3, 1)], "above 3"),
        ([(3, 0)], "1 run or more"),
        ([(3, MOST_RUNS)], "fewer than"),
    ],
)
def test_impossible_counts_are_refused(counts: list[tuple[int, int]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RunHistogram.restored(counts)


def test_nothing_counted_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no run"):
        RunHistogram().quantile(50)
