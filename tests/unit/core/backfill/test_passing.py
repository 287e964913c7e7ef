"""Which workloads may start while room is kept for a planned start or a Reservation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.decision import Admit, Outcome, Preempt, Wait
from kqueue.core.withheld import WithheldCapacity
from kqueue.core.workload import Claim, Head, Preempts, Snapshot
from tests.builders import GPU, make_head, make_queue, make_snapshot, make_view, plan
from tests.unit.core.backfill.lines import at, gang, limited, planned, racks
from tests.unit.core.why_cases import make_world

RUNNING, ENDS = [gang("r"), gang("s", 2)], {"r": 100, "s": 50}
"""One rack is full, half of the other one is free."""
BIG = gang("big", age=10)


def kept(**more: Any) -> tuple[Snapshot, Claim]:
    """The world with the planned start of the big gang in the half-free rack at 50."""
    claim = planned(BIG, RUNNING, ENDS)
    assert claim is not None
    assert claim.at == at(50)
    claim = replace(claim, **more)
    world = make_world(racks(), *RUNNING).snapshot
    return replace(world, claims=(claim,)), claim


def small(name: str, **more: Any) -> Head:
    """One whole host."""
    return make_head(name, pods=1, **more)


@pytest.mark.parametrize(
    ("head", "more", "expected"),
    [
        pytest.param(small("w"), {}, Outcome.PLANNED, id="no limit: it waits"),
        pytest.param(limited(small("w"), 50), {}, "joins", id="it ends in time"),
        pytest.param(limited(small("w"), 51), {}, Outcome.PLANNED, id="it ends too late"),
        pytest.param(limited(small("w"), None, 50), {}, Outcome.PLANNED, id="a guess is no limit"),
        pytest.param(limited(small("w"), None, 50), {"guesses": True}, "joins", id="where guesses count"),
        pytest.param(limited(small("w"), 51, 20), {"guesses": True}, Outcome.PLANNED, id="a limit beats the guess"),
        pytest.param(small("w", priority=1), {}, "takes", id="a higher priority goes first"),
        pytest.param(small("w", age=11), {}, "takes", id="an older one goes first"),
        pytest.param(small("w", priority=-1, age=11), {}, Outcome.PLANNED, id="an older one of lower priority waits"),
        pytest.param(small("w"), {"open_to": frozenset({"team"}), "at": at(0)}, "stays", id="open to the queue"),
        pytest.param(small("w"), {"open_to": frozenset({"team"})}, Outcome.PLANNED, id="not open before its time"),
        pytest.param(small("w", priority=1), {"rank": None}, Outcome.PLANNED, id="no one is ahead of a Reservation"),
        pytest.param(make_head("w", pods=3), {}, Outcome.NO_CANDIDATES, id="no room even without the plan"),
    ],
)
def test_what_may_start(head: Head, more: dict[str, Any], expected: Outcome | str) -> None:
    """The decision, and its effect on the planned start."""
    snapshot, _ = kept(**more)

    (decision,) = plan(snapshot, [head])

    if isinstance(expected, Outcome):
        assert isinstance(decision, Wait)
        assert decision.outcome is expected
        return
    assert isinstance(decision, Admit)
    assert decision.joins == (("big",) if expected == "joins" else ())
    assert decision.takes == (("big",) if expected == "takes" else ())


def test_the_message_names_the_planned_start() -> None:
    """For a reader of the big gang's namespace."""
    snapshot, _ = kept()

    (decision,) = plan(snapshot, [small("w")])

    assert isinstance(decision, Wait)
    assert decision.message == (
        "Its room is kept for default/big, planned to start at 2026-01-01T00:00:50Z; runs limited to end before may "
        "start"
    )


def test_no_workload_is_preempted_for_room_that_is_kept() -> None:
    """The one that ends before the planned start has a lower priority than the head, and its room would be kept."""
    spec = make_queue("team", preempts_own=Preempts.LOWER_PRIORITY)
    running = [gang("r"), gang("s", 2, priority=-5)]
    claim = planned(BIG, RUNNING, ENDS)
    assert claim is not None
    world = make_world(racks(specs=[spec]), *running).snapshot

    (decision,) = plan(replace(world, claims=(claim,)), [small("w")])
    (without,) = plan(make_world(racks(specs=[spec]), *running).snapshot, [gang("w")])

    assert isinstance(decision, Wait)
    assert decision.outcome is Outcome.PLANNED
    assert isinstance(without, Preempt)


def test_room_beside_the_plan_is_used_without_a_limit() -> None:
    """Hosts have eight devices, and the gang takes four of each."""
    big = gang("big", gpus=4, age=10)
    running = [gang("r"), gang("s", gpus=6)]
    claim = planned(big, running, {"s": 50})
    assert claim is not None
    assert claim.at == at(50)
    world = replace(make_world(racks(), *running).snapshot, claims=(claim,))

    decisions = [*plan(world, [make_head("w", pods=4, gpus=1), make_head("x", pods=4, gpus=2)])]

    assert [type(d) for d in decisions] == [Admit, Wait]
    assert isinstance(decisions[0], Admit)
    assert not decisions[0].joins


def test_one_that_joins_leaves_the_rest_of_the_kept_room() -> None:
    """Two hosts are free and kept: two workloads that end in time use one each, and a third finds none."""
    snapshot, _ = kept()

    decisions = [*plan(snapshot, [limited(small(name), 40) for name in "abc"])]

    assert [type(d) for d in decisions] == [Admit, Admit, Wait]


def test_the_planned_workload_starts_when_there_is_room() -> None:
    """Its own claim does not bind it, and it is decided before others."""
    world = make_world(racks(), gang("r")).snapshot
    claim = planned(BIG, RUNNING, ENDS)
    assert claim is not None

    decisions = [*plan(replace(world, claims=(claim,)), [small("w", priority=0), BIG])]

    admitted = [d.head.uid for d in decisions if isinstance(d, Admit)]
    assert admitted == ["big"]


def test_the_planned_workload_waits_with_its_claim() -> None:
    """Later heads of the same cycle do not get its room."""
    snapshot, _ = kept()

    decisions = [*plan(snapshot, [BIG, small("w")])]

    assert [d.outcome for d in decisions if isinstance(d, Wait)] == [Outcome.NO_CANDIDATES, Outcome.PLANNED]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [pytest.param(2, True, id="within its own quota"), pytest.param(3, False, id="not if it would borrow, too")],
)
def test_lent_quota_returns_to_its_owner(pods: int, expected: bool) -> None:
    """The planned start borrows from a queue whose own workload comes."""

    def company() -> Snapshot:
        return make_snapshot(
            {"team": {"gpu": 24}, "owner": {"gpu": 16}}, cohort="all", topologies={"gpu": make_view((1, 3, 4))}
        )

    big, running = gang("big", 4, age=10), [gang("r", 2)]
    claim = planned(big, running, {"r": 50}, company())
    assert claim is not None
    assert claim.borrows
    world = replace(make_world(company(), *running).snapshot, claims=(claim,))

    (decision,) = plan(world, [gang("own", pods, queue="owner")])

    assert isinstance(decision, Admit) is expected


def test_a_cycle_gives_everything_back() -> None:
    """After decisions to wait the snapshot is as before, but for what the claim keeps: the two free hosts."""
    snapshot, _ = kept()
    gpus = snapshot.topologies["gpu"].capacity

    withheld = WithheldCapacity(snapshot)
    for decision in plan(snapshot, [small("w"), limited(make_head("v", pods=3), 40)], withheld=withheld):
        assert isinstance(decision, Wait)
    withheld.give_back()

    assert sum(gpus.free(leaf)[GPU] for leaf in range(len(gpus.tree))) == 0
    node = snapshot.nodes["team"]
    assert node.usage == {("gpu", GPU): 64}
