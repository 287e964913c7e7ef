"""What is learned from finished runs, how much of it is kept, and what hostile tenants and clocks do to it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kqueue.core.future.learned import (
    CLOCK_TOLERANCE_SECONDS,
    MOST_REMEMBERED,
    RUNS_PER_WINDOW,
    WINDOW_SECONDS,
    FinishedRun,
    GroupSummary,
    LearnedRunTimes,
    RunKeys,
    RunSummary,
)

NOW = 1_800_000_000
MARKS = itertools.count()


def keys(owner: str = "train", shape: str = "8x", queue: str = "main", namespace: str = "team") -> RunKeys:
    return RunKeys(namespace, (f"{queue}/{owner}/{shape}", f"{queue}/{shape}", queue))


def run(seconds: int, *, ended: int = NOW, mark: str = "", of: RunKeys | None = None) -> FinishedRun:
    return FinishedRun(mark=mark or f"m{next(MARKS)}", keys=of or keys(), seconds=seconds, ended=ended)


def taught(
    *seconds: int, of: RunKeys | None = None, memory: LearnedRunTimes | None = None, start: int = NOW
) -> LearnedRunTimes:
    """Runs that ended one window after the other, so that none is one of a flood."""
    memory = memory or LearnedRunTimes(most_groups=100)
    for number, one in enumerate(seconds):
        ended = start + number * WINDOW_SECONDS
        assert memory.learn(run(one, ended=ended, of=of), ended)
    return memory


def p50(memory: LearnedRunTimes, of: RunKeys | None = None) -> int | None:
    found = memory.look(of or keys())
    return found.p50 if found is not None else None


@pytest.mark.parametrize(
    ("runs", "asked", "answer"),
    [
        pytest.param(4, keys(), None, id="too-few"),
        pytest.param(5, keys(), (5, True), id="of-the-owner"),
        pytest.param(9, keys("other"), None, id="too-few-of-the-shape"),
        pytest.param(10, keys("other"), (10, False), id="of-the-shape"),
        pytest.param(19, keys("other", "2x"), None, id="too-few-of-the-queue"),
        pytest.param(20, keys("other", "2x"), (20, False), id="of-the-queue"),
        pytest.param(50, keys(queue="other"), None, id="another-queue"),
        pytest.param(50, keys(namespace="other"), None, id="another-namespace"),
    ],
)
def test_the_most_special_group_with_enough_runs_answers(
    runs: int, asked: RunKeys, answer: tuple[int, bool] | None
) -> None:
    found = taught(*[100] * runs).look(asked)
    assert (None if found is None else (found.runs, found.of_owner)) == answer
    assert found is None or 100 <= found.p50 <= found.p90 <= 113


@pytest.mark.parametrize(
    ("elapsed", "found"),
    [
        pytest.param(0, (100, 1_000, True), id="begin"),
        pytest.param(150, (1_000, 1_000, True), id="longer than most"),
        pytest.param(2_000, (5_000, 5_000, False), id="longer than all of its owner"),
        pytest.param(9_000, None, id="longer than all"),
    ],
)
def test_a_run_goes_on_as_longer_ones_did(elapsed: int, found: tuple[int, int, bool] | None) -> None:
    """The next group answers where none of the owner's runs was longer."""
    memory = taught(*[100] * 8, 1_000, 1_000)
    taught(*[5_000] * 12, of=keys("other"), memory=memory, start=NOW + 100 * WINDOW_SECONDS)
    learned = memory.look_beyond(keys(), elapsed)
    if found is None:
        assert learned is None
        return
    assert learned is not None
    p50, p90, of_owner = found
    assert p50 <= learned.p50 <= p50 * 9 // 8
    assert p90 <= learned.p90 <= p90 * 9 // 8
    assert learned.of_owner is of_owner


def test_a_run_counts_once() -> None:
    """A run that is told again after a restart with the summary does not count either."""
    memory = taught(*[100] * 4)
    last = run(100, ended=NOW + 9_000)
    assert memory.learn(last, NOW + 9_000)
    assert not memory.learn(last, NOW + 9_001)
    after = LearnedRunTimes(most_groups=100)
    after.restore(memory.summary())
    assert not after.learn(last, NOW + 9_002)
    assert after.summary() == memory.summary()
    assert after.look(keys()) == memory.look(keys())


def test_runs_before_the_remembered_ones_count_no_more() -> None:
    """A new process with a summary sees thousands of finished workloads again; each counts once."""
    memory = LearnedRunTimes(most_groups=100)
    runs = [run(100, ended=NOW + number) for number in range(3 * MOST_REMEMBERED)]
    for one in runs:
        memory.learn(one, one.ended)
    summary = memory.summary()
    assert len(summary.remembered) == MOST_REMEMBERED
    after = LearnedRunTimes(most_groups=100)
    after.restore(summary)
    assert not any(after.learn(one, NOW + 10**4) for one in runs)
    assert after.summary() == summary


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_teaches_nothing() -> None:
    memory = LearnedRunTimes(most_groups=100)
    assert not memory.learn(run(-5), NOW)
    assert memory.changes == 0


def test_ends_in_the_future_are_not_believed() -> None:
    """Such ends would make all later runs look old."""
    memory = LearnedRunTimes(most_groups=100)
    assert not memory.learn(run(5, ended=NOW + CLOCK_TOLERANCE_SECONDS + 1), NOW)
    assert memory.learn(run(5, ended=NOW + CLOCK_TOLERANCE_SECONDS), NOW)


def test_learning_goes_on_after_a_clock_was_ahead_for_years() -> None:
    """The clock is that of the leader's machine; the summary has the floor and windows of that time."""
    memory, years = LearnedRunTimes(most_groups=100), 10**9
    for number in range(MOST_REMEMBERED + 10):
        memory.learn(run(100, ended=NOW + years + number), NOW + years + number)
    assert memory.summary().floor > NOW + years
    taught(*[1_000] * 300, memory=memory, start=NOW)
    assert p50(memory) is not None
    assert (p50(memory) or 0) >= 1_000


# --- floods -----------------------------------------------------------------------------------------------------------


def test_a_flood_of_short_jobs_does_not_make_the_next_one_look_short() -> None:
    """Ten thousand jobs of one second within ten minutes count as sixteen."""
    memory = taught(*[3_600] * 100)
    begin = NOW + 100 * WINDOW_SECONDS
    counted = [memory.learn(run(1, ended=begin + number // 20), begin + 600) for number in range(10_000)]
    assert sum(counted) <= 2 * RUNS_PER_WINDOW
    found = memory.look(keys())
    assert found is not None
    assert 3_600 <= found.p50 <= found.p90 <= 4_050


def test_a_flood_teaches_nothing_about_other_tenants() -> None:
    memory = taught(*[3_600] * 30, of=keys(namespace="victim"))
    for number in range(1_000):
        memory.learn(run(1, ended=NOW + number * 60), NOW + number * 60)
    assert (p50(memory, keys(namespace="victim")) or 0) >= 3_600
    assert (p50(memory, keys("new", "new", namespace="victim")) or 0) >= 3_600


def test_a_million_owners_take_the_places_of_their_own_tenant() -> None:
    """The test has ten thousand owners and a memory of 100 groups."""
    memory = taught(*[3_600] * 30, of=keys(namespace="victim"))
    for number in range(10_000):
        memory.learn(run(1, ended=NOW + number, of=keys(f"o{number}", f"s{number}")), NOW + number)
    assert memory.groups == 100
    found = memory.look(keys(namespace="victim"))
    assert found is not None
    assert (found.runs, found.of_owner) == (30, True)


def test_groups_that_learn_stay() -> None:
    """The group that has learned nothing for the longest time goes first."""
    memory = LearnedRunTimes(most_groups=7)
    taught(*[60] * 5, of=keys("kept"), memory=memory)
    for number in range(50):
        taught(60, of=keys(f"o{number}"), memory=memory, start=NOW + (10 + 2 * number) * WINDOW_SECONDS)
        taught(60, of=keys("kept"), memory=memory, start=NOW + (11 + 2 * number) * WINDOW_SECONDS)
    found = memory.look(keys("kept"))
    assert found is not None
    assert (found.runs, found.of_owner) == (55, True)
    assert memory.groups == 7


# --- summaries --------------------------------------------------------------------------------------------------------


def test_a_summary_of_more_groups_than_allowed_is_cut() -> None:
    memory = LearnedRunTimes(most_groups=100)
    for number in range(20):
        taught(60, of=keys(f"o{number}"), memory=memory)
    small = LearnedRunTimes(most_groups=10)
    small.restore(memory.summary())
    assert small.groups == 10


def test_an_impossible_group_is_named() -> None:
    group = GroupSummary(key="k", window=0, taken=0, counts=((5, 0),))
    memory = taught(*[60] * 5)
    before = memory.summary()
    with pytest.raises(ValueError, match="group k of namespace team: bucket 5"):
        memory.restore(RunSummary(floor=0, remembered=(), namespaces=(("team", (group,)),)))
    assert memory.summary() == before


def test_a_look_changes_nothing() -> None:
    memory = taught(*[60] * 30)
    before, changes = memory.summary(), memory.changes
    memory.look(keys())
    memory.look(keys("other", namespace="none"))
    assert (memory.summary(), memory.changes) == (before, changes)
    assert replace(before, floor=1) != before
