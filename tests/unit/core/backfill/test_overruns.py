"""Workloads that started on a guess and run longer."""

from __future__ import annotations

import pytest

from kqueue.core.backfill.mode import BackfillMode
from kqueue.core.backfill.overruns import in_the_way, overrunning
from kqueue.core.backfill.plans import LineRule, nearest_rule
from kqueue.core.workload import Admitted, Claim
from tests.unit.core.backfill.lines import at


def running(uid: str, *, since: int | None = 0, evicted: bool = False) -> Admitted:
    """A workload that was admitted so many seconds after the start."""
    admitted = at(since) if since is not None else None
    return Admitted(
        key=f"ns/{uid}",
        uid=uid,
        queue="team",
        local_queue="ns/main",
        priority=0,
        timestamp=at(0),
        reserved_at=at(0),
        admitted_at=admitted,
        evicted=evicted,
        usage={},
    )


@pytest.mark.parametrize(
    ("workload", "guessed", "expected"),
    [
        pytest.param(running("w"), {"w": 60}, True, id="its guess is over"),
        pytest.param(running("w"), {"w": 61}, False, id="its guess is not over"),
        pytest.param(running("w", since=1), {"w": 60}, False, id="the guess counts from its admission"),
        pytest.param(running("w", since=None), {"w": 1}, False, id="its admission checks are not ready"),
        pytest.param(running("w"), {}, False, id="it has not started on a guess"),
        pytest.param(running("w", evicted=True), {"w": 1}, False, id="it is being evicted"),
    ],
)
def test_what_overruns(workload: Admitted, guessed: dict[str, int], expected: bool) -> None:
    """A minute after the start."""
    assert overrunning([workload], guessed, at(60)) == ([workload] if expected else [])


@pytest.mark.parametrize(
    ("due", "ends", "expected"),
    [
        pytest.param(60, ("w",), True, id="the planned start is due"),
        pytest.param(61, ("w",), False, id="it is not due"),
        pytest.param(60, ("x",), False, id="it does not wait for the workload"),
    ],
)
def test_what_is_in_the_way(due: int, ends: tuple[str, ...], expected: bool) -> None:
    """A minute after the start."""
    late = running("w")
    claim = Claim(
        key="ns/big", uid="big", queue="team", usage={}, victims={}, at=at(due), ends={u: ("team", u) for u in ends}
    )
    assert in_the_way(claim, [late], at(60)) == ([late] if expected else [])


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([None, BackfillMode.TIME], LineRule(name="1", guesses=False), id="the nearest that says anything"),
        pytest.param([BackfillMode.NONE, BackfillMode.TIME], None, id="none"),
        pytest.param([BackfillMode.EXPECTED], LineRule(name="0", guesses=True), id="guesses"),
        pytest.param([BackfillMode.ENFORCED], LineRule(name="0", guesses=True, evicts=True), id="enforced guesses"),
    ],
)
def test_the_rule_of_a_line(modes: list[BackfillMode | None], expected: LineRule | None) -> None:
    """A ClusterQueue and the Cohorts above it."""
    assert nearest_rule((str(number), mode) for number, mode in enumerate(modes)) == expected
