"""When and where a workload that waits may start: computed by hand from the ends of those that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kqueue.core.workload import Head
from tests.builders import make_snapshot, make_view
from tests.unit.core.backfill.lines import at, gang, planned

ONE, TWO, THREE = gang("one", 2), gang("two", 2), gang("three", 4)


@pytest.mark.parametrize(
    ("running", "ends", "head", "expected"),
    [
        pytest.param([], {}, gang("g"), (0, ()), id="now where all is free"),
        pytest.param([gang("r")], {"r": 60}, gang("g"), (0, ()), id="now in the other rack"),
        pytest.param([gang("r"), gang("s")], {"r": 60, "s": 30}, gang("g"), (30, ("s",)), id="at the first end"),
        pytest.param(
            [ONE, TWO, THREE],
            {"one": 10, "two": 20, "three": 50},
            gang("g"),
            (20, ("one", "two")),
            id="when all of one rack have ended",
        ),
        pytest.param(
            [ONE, TWO, THREE],
            {"one": 10, "three": 50},
            gang("g"),
            (50, ("one", "three")),
            id="not in a rack where one runs for ever",
        ),
        pytest.param([gang("r"), gang("s")], {}, gang("g"), None, id="never where all run for ever"),
        pytest.param([gang("r"), gang("s")], {"r": 9, "s": 9}, gang("g", 5), None, id="never where no rack is so wide"),
        pytest.param(
            [gang("r"), gang("s")], {"r": 9, "s": 9}, gang("g"), (9, ("r", "s")), id="ends at one time are one"
        ),
    ],
)
def test_the_earliest_time(
    running: Sequence[Head], ends: Mapping[str, int], head: Head, expected: tuple[int, tuple[str, ...]] | None
) -> None:
    """The time, and the workloads whose ends count, of those that are on its hosts or in its tree."""
    claim = planned(head, running, ends)

    if expected is None:
        assert claim is None
        return
    assert claim is not None
    assert claim.at == at(expected[0])
    assert tuple(sorted(claim.ends)) == expected[1]
    assert not claim.victims
    assert claim.usage == {("gpu", "nvidia.com/gpu"): 32}


@pytest.mark.parametrize(
    ("quota", "seconds"), [pytest.param(96, 0, id="enough"), pytest.param(64, 5, id="when two have ended")]
)
def test_quota_counts_as_hosts_do(quota: int, seconds: int) -> None:
    """A third rack is free all the time."""
    snapshot = make_snapshot({"team": {"gpu": quota}}, topologies={"gpu": make_view((1, 3, 4))})

    claim = planned(gang("g"), [gang("r", 2), gang("s", 2), gang("t", 4)], {"r": 3, "s": 5, "t": 8}, snapshot)

    assert claim is not None
    assert claim.at == at(seconds)


def test_a_start_that_borrows_says_so() -> None:
    """The queue has less quota of its own than the gang needs."""
    snapshot = make_snapshot(
        {"team": {"gpu": 16}, "other": {"gpu": 48}}, cohort="all", topologies={"gpu": make_view((1, 2, 4))}
    )
    running = [replace(gang("r"), queue="other"), replace(gang("s", 2), queue="other")]

    claim = planned(gang("g"), running, {"r": 7, "s": 9}, snapshot)

    assert claim is not None
    assert claim.borrows
    assert claim.at == at(7)


def test_the_room_of_another_planned_start_is_taken() -> None:
    """Two gangs want the rack that is free first; the second one gets the other rack."""
    running, ends = [gang("r"), gang("s")], {"r": 30, "s": 60}
    first = planned(gang("g"), running, ends)
    assert first is not None

    second = planned(gang("h"), running, ends, None, first)

    assert second is not None
    assert second.at == at(60)
