"""Told start times are compared with the starts that follow, in bounded memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kqueue.core.future.told import WHOLE, HeldStart, StartOutcome, Telling, ToldStart, ToldStarts, stretched

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


def lived(starts: ToldStarts, number: int, waited: float, *, planned: float = 600) -> None:
    one = ToldStart(
        uid=f"u{number}", key="ns/u", queue="team", at=NOW, p50=at(planned), p90=at(planned), planned=at(planned)
    )
    starts.tell(one)
    list(starts.started(one.uid, at(waited)))


def test_late_starts_stretch_the_next_p90() -> None:
    """Nine of ten starts were not later; a few starts stretch nothing, nor do early ones shorten."""
    starts = ToldStarts()
    for number in range(19):
        lived(starts, number, 1_200)
    assert starts.stretch("team") == WHOLE
    lived(starts, 19, 1_200)
    assert 2_000 <= starts.stretch("team") <= 2_250
    assert starts.stretch("other") == WHOLE
    for number in range(300):
        lived(starts, number, 60)
    assert starts.stretch("team") == WHOLE


@pytest.mark.parametrize(
    ("planned", "waited", "most"),
    [
        pytest.param(600, 600_000, 10_000, id="endless"),
        pytest.param(1, 30, 1_000, id="short waits say nothing"),
        pytest.param(600, -5, 1_000, id="a clock was set back"),
    ],
)
def test_a_stretch_is_bounded(planned: float, waited: float, most: int) -> None:
    starts = ToldStarts()
    for number in range(50):
        lived(starts, number, waited, planned=planned)
    assert WHOLE <= starts.stretch("team") <= most


def test_a_workload_that_leaves_early_stretches_nothing() -> None:
    starts = ToldStarts()
    for number in range(50):
        one = ToldStart(uid=f"u{number}", key="ns/u", queue="team", at=NOW, p50=at(60), p90=at(600), planned=at(60))
        starts.tell(one)
        assert not list(starts.left(one.uid, at(500)))
    assert starts.stretch("team") == WHOLE
    assert len(starts) == 0


def test_a_stretched_time_is_rounded_up() -> None:
    assert [stretched(seconds, 1_001) for seconds in (0, 1, 1_000)] == [0, 2, 1_001]
