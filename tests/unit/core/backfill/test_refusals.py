"""Which refused workload of a line gets the planned start."""

from __future__ import annotations

import pytest

from kqueue.core.backfill.plans import LineRule, StartPlans
from kqueue.core.backfill.refusals import Refusals
from kqueue.core.decision import Outcome, Wait
from kqueue.core.explain import WaitReason
from kqueue.core.workload import Claim, Head
from tests.unit.core.backfill.lines import at, gang

LINE = LineRule(name="Cohort/all", guesses=False)
OLD, NEW, HIGH = gang("old", age=10), gang("new", age=5), gang("high", age=1, priority=1)


def refused(head: Head, outcome: Outcome = Outcome.NO_CANDIDATES) -> Wait:
    return Wait(head=head, outcome=outcome, reason=WaitReason.WAITING_FOR_QUOTA, blockers=())


def planned(head: Head) -> Claim:
    """The planned start of a workload."""
    rank = (head.priority, head.timestamp)
    return Claim(key=head.key, uid=head.uid, queue=head.queue, usage={}, victims={}, at=at(9), rank=rank)


@pytest.mark.parametrize(
    ("heads", "has_plan", "expected"),
    [
        pytest.param([OLD, NEW], None, OLD, id="the older one"),
        pytest.param([NEW, OLD], None, OLD, id="also if the cycle tried it later"),
        pytest.param([OLD, HIGH, NEW], None, HIGH, id="the higher priority"),
        pytest.param([NEW], OLD, None, id="none behind the planned start"),
        pytest.param([NEW, OLD], NEW, OLD, id="one ahead of the planned start"),
        pytest.param([OLD], OLD, OLD, id="the planned one itself"),
    ],
)
def test_the_first_in_line(heads: list[Head], has_plan: Head | None, expected: Head | None) -> None:
    """Heads of one cycle, in the order in which it tried them."""
    plans = StartPlans()
    if has_plan is not None:
        plans.put(LINE.name, planned(has_plan))
    refusals = Refusals(plans, lambda _: LINE)

    for head in heads:
        refusals.decided(refused(head))

    assert [wait.head for _, wait in refusals.take()] == ([] if expected is None else [expected])
    assert refusals.take() == []


def test_a_workload_that_never_fits_gets_none() -> None:
    refusals = Refusals(StartPlans(), lambda _: LINE)
    refusals.decided(refused(OLD, Outcome.NO_FIT))
    refusals.decided(refused(NEW))
    assert [wait.head for _, wait in refusals.take()] == [NEW]
