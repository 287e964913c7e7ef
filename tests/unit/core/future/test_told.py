"""Told start times are compared with the starts that follow, in bounded memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kqueue.core.future.told import HeldStart, StartOutcome, Telling, ToldStart, ToldStarts

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def told(p50: float | None, p90: float | None, uid: str = "u") -> ToldStart:
    times = [at(s) if s is not None else None for s in (p50, p90)]
    return ToldStart(uid=uid, key=f"ns/{uid}", queue="team", at=NOW, p50=times[0], p90=times[1])


@pytest.mark.parametrize(
    ("tellings", "start", "first", "last"),
    [
        pytest.param([(100, 200)], 94, "before", "before", id="before"),
        pytest.param([(100, 200)], 95, "inside", "inside", id="begin"),
        pytest.param([(100, 200)], 205, "inside", "inside", id="end"),
        pytest.param([(100, 200)], 206, "after", "after", id="after"),
        pytest.param([(100, 200), (300, 400), (500, 600)], 550, "after", "inside", id="moved"),
        pytest.param([(100, None), (300, 400)], 350, "inside", "inside", id="first-with-p90"),
        pytest.param([(100, 200), (None, None)], 150, "inside", "untold", id="lost"),
        pytest.param([(100, None)], 100, "untold", "untold", id="no-p90"),
    ],
)
def test_a_start_is_compared_with_the_first_and_the_last_interval(
    tellings: list[tuple[float | None, float | None]], start: float, first: str, last: str
) -> None:
    starts = ToldStarts()
    for one in tellings:
        starts.tell(told(*one))
    found = {held.telling: held for held in starts.started("u", at(start))}
    assert found == {
        Telling.FIRST: HeldStart("team", Telling.FIRST, StartOutcome(first)),
        Telling.LAST: HeldStart("team", Telling.LAST, StartOutcome(last)),
    }
    assert not list(starts.started("u", at(start)))


def test_a_workload_that_leaves_counts_only_after_its_p90() -> None:
    """So workloads that are deleted because they wait too long do not make the coverage look better."""
    starts = ToldStarts()
    starts.tell(told(100, 200))
    assert not list(starts.left("u", at(150)))
    starts.tell(told(100, 200))
    assert [held.outcome for held in starts.left("u", at(300))] == [StartOutcome.AFTER, StartOutcome.AFTER]
    assert "u" not in starts


def test_the_memory_is_bounded() -> None:
    starts = ToldStarts(most=3)
    for number in range(10):
        starts.tell(told(1, 2, uid=f"u{number}"))
    assert len(starts) == 3
    assert "u9" in starts
