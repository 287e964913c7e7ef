"""The pauses between writes of a status of which only counts change."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kqueue.controllers.status_pace import LONGEST, StatusPace


def writes_of_a_start(seconds: float, *, window: float = 1.0) -> list[float]:
    """The times at which counts are written that change twenty times a second."""
    pace, times = StatusPace(), [0.0]
    pace.note(0.0, window, state=True)
    for tick in range(1, int(seconds * 20)):
        now = tick / 20
        if pace.left(now, window) <= 0:
            pace.note(now, window, state=False)
            times.append(now)
    return times


@pytest.mark.parametrize("seconds", [3, 10, 15, 30])
def test_a_start_of_any_length_costs_at_most_ten_writes(seconds: int) -> None:
    """With those of the first and the last phase."""
    assert len(writes_of_a_start(seconds)) + 1 <= 10


def test_pauses_grow_to_a_bound() -> None:
    pauses = [later - earlier for earlier, later in pairwise(writes_of_a_start(120))]
    assert [round(pause, 2) for pause in pauses] == sorted(round(pause, 2) for pause in pauses)
    assert pauses[0] == 1.0
    assert pauses[-1] == pytest.approx(LONGEST)


@pytest.mark.parametrize(("state", "after"), [(True, 20.5), (False, 60.0)], ids=["a change of state", "a rest"])
def test_pauses_begin_anew(state: bool, after: float) -> None:
    pace = StatusPace()
    for now in writes_of_a_start(20):
        pace.note(now, 1.0, state=False)
    pace.note(after, 1.0, state=state)
    assert pace.left(after, 1.0) == 1.0


def test_the_first_write_is_not_delayed() -> None:
    assert StatusPace().left(0.0, 1.0) < 0
