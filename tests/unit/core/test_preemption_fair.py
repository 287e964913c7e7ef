"""Preemption by fair shares: which queue gives next, and whether taking from it is fair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kqueue.core.preemption import Rules, SharingStrategy
from kqueue.core.quota import QuotaNode
from kqueue.core.workload import Admitted, Snapshot
from tests.unit.core.preemption_cases import (
    ANY,
    CPU,
    GPUS,
    LOWER,
    NOW,
    cohort,
    find_targets,
    leaf,
    named,
    policy,
    runs,
    state,
    victims,
    wants,
    world,
)

LTE, LTI = SharingStrategy.LTE, SharingStrategy.LTI
BOTH = Rules(now=NOW, fair=(LTE, LTI))
FAIR = "InCohortFairSharing"


@pytest.mark.parametrize(
    ("size", "strategies", "expected"),
    [
        pytest.param(2, (LTE,), ["y-small"], id="67 is at most what is left to y, 133"),
        pytest.param(2, (LTI,), ["y-small"], id="67 is less than y has now, 200"),
        pytest.param(2, (LTE, LTI), ["y-small"], id="the first strategy is enough"),
        pytest.param(4, (LTE,), [], id="133 is more than what would be left to y, 67"),
        pytest.param(4, (LTI,), ["y-small"], id="133 is less than y has now, 200"),
        pytest.param(4, (LTE, LTI), ["y-small"], id="what the first strategy put aside the second one takes"),
    ],
)
def test_strategies_compare_shares(size: int, strategies: tuple[SharingStrategy, ...], expected: list[str]) -> None:
    """Queue x has nothing of its own; y borrows 6 of 30, z stays within its 15."""
    tree = cohort("root", leaf("x"), leaf("y", nominal=15), leaf("z", nominal=15))
    running = [runs("y-small", "y", size), runs("y-rest", "y", 21 - size, priority=9), runs("z1", "z", 9)]
    snapshot = world([tree], running, [policy("x", reclaims=LOWER)])
    before = state(snapshot)
    targets = find_targets(snapshot, wants("x", size, priority=5), Rules(now=NOW, fair=strategies))
    assert named(targets) == [(name, FAIR) for name in expected]
    assert state(snapshot) == before


def make_branches() -> Snapshot:
    """Branch right borrows 2 of what left and the queue at the root bring along."""
    tree = cohort(
        "root",
        cohort("left", leaf("x"), nominal=2),
        cohort("right", leaf("y", nominal=1), leaf("z", nominal=3), nominal=2),
        leaf("o", nominal=4),
    )
    running = [
        runs("y1", "y", 2, reserved=1),
        runs("y2", "y", 3, reserved=2),
        runs("z1", "z", 3),
        runs("o1", "o", 4),
    ]
    return world([tree], running, [policy("x", reclaims=ANY)])


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        pytest.param((LTE, LTI), [("y2", FAIR)], id="the second strategy takes the first of those put aside"),
        pytest.param((LTI,), [("y2", FAIR)], id="the second one alone takes it at once"),
        pytest.param((LTE,), [], id="the first one alone takes nobody"),
    ],
)
def test_branches_of_the_tree_are_compared(
    strategies: tuple[SharingStrategy, ...], expected: list[tuple[str, str]]
) -> None:
    """Not the queues' shares count but those of the children of the cohort that is around both."""
    snapshot = make_branches()
    assert named(find_targets(snapshot, wants("x", 3), Rules(now=NOW, fair=strategies))) == expected


@pytest.mark.parametrize("within_nominal", [True, False], ids=["switched on", "switched off"])
def test_a_queue_within_its_nominal_quota_takes_it_back_whatever_the_shares(within_nominal: bool) -> None:
    """Otherwise a queue of high weight may keep what it borrowed."""
    tree = cohort("root", leaf("x", nominal=4), leaf("y", nominal=4, weight=1000))
    running = [runs("y1", "y", 8)]
    snapshot = world([tree], running, [policy("x", reclaims=LOWER)])
    rules = Rules(now=NOW, fair=(LTE, LTI), within_nominal=within_nominal)
    expected = "InCohortReclamation" if within_nominal else FAIR
    assert named(find_targets(snapshot, wants("x", 4, priority=5), rules)) == [("y1", expected)]


def test_nominal_quota_is_not_taken_back_while_the_switch_is_off_and_shares_are_against_it() -> None:
    """The queue borrows another resource, and its branch is the worse one because of that."""
    quotas = {GPUS: 4, CPU: 10}
    tree = cohort("root", leaf("x", nominal=quotas), leaf("y", nominal=quotas))
    running = [runs("x1", "x", {CPU: 20}, priority=9), runs("y1", "y", {GPUS: 8})]
    snapshot = world([tree], running, [policy("x", reclaims=LOWER)])
    preemptor = wants("x", 4, priority=5)
    found = [
        named(find_targets(snapshot, preemptor, Rules(now=NOW, fair=(LTE, LTI), within_nominal=on)))
        for on in (True, False)
    ]
    assert found == [[("y1", "InCohortReclamation")], []]


@pytest.mark.parametrize(
    ("queues", "running", "size", "expected"),
    [
        pytest.param(
            [leaf("x"), leaf("y", nominal=5), leaf("z", nominal=5), leaf("idle", nominal=4)],
            [runs("y1", "y", 6), runs("z1", "z", 2), runs("z2", "z", 2), runs("z3", "z", 4, reserved=1)],
            2,
            ["z3"],
            id="the queue with the highest share gives first",
        ),
        pytest.param(
            [leaf("x"), leaf("y", nominal=4, weight=3), leaf("z", nominal=4), leaf("idle", nominal=5)],
            [runs("y1", "y", 1), runs("y2", "y", 6), runs("z1", "z", 1), runs("z2", "z", 5)],
            1,
            ["z1"],
            id="weight divides the share",
        ),
        pytest.param(
            [leaf("x"), leaf("y", nominal=4), leaf("z", nominal=4), leaf("idle", nominal=4)],
            [runs("y1", "y", 1, reserved=1), runs("y2", "y", 5), runs("z1", "z", 1, reserved=2), runs("z2", "z", 5)],
            1,
            ["z1"],
            id="between equal shares the first candidates are compared",
        ),
        pytest.param(
            [leaf("x"), leaf("y", nominal=4), leaf("z", nominal=4)],
            [runs("y1", "y", 4), runs("z1", "z", 2), runs("z2", "z", 2)],
            1,
            [],
            id="nobody gives who does not borrow",
        ),
        pytest.param(
            [leaf("x"), leaf("y", nominal=2), leaf("idle", nominal=5)],
            [runs(f"y{i}", "y", 1, reserved=i) for i in range(7)],
            2,
            ["y6", "y5"],
            id="taking goes on as long as it is fair",
        ),
        pytest.param(
            [leaf("x"), leaf("y", nominal=2), leaf("idle", nominal=5)],
            [runs(f"y{i}", "y", 1, reserved=i) for i in range(7)],
            3,
            [],
            id="nobody goes when taking ends before there is enough",
        ),
        pytest.param(
            [leaf("x"), leaf("y", nominal=6, weight=0), leaf("z", nominal=6), leaf("idle", nominal=7)],
            [runs("y1", "y", 1), runs("y2", "y", 7), runs("z1", "z", 1), runs("z2", "z", 10)],
            1,
            ["y1"],
            id="who borrows with weight 0 gives before those who borrow more",
        ),
        pytest.param(
            [leaf("x", weight=0), leaf("y", nominal=4), leaf("z", nominal=4)],
            [runs("y1", "y", 8)],
            1,
            [],
            id="a preemptor with weight 0 takes from nobody who has weight",
        ),
        pytest.param(
            [leaf("x", weight=0), leaf("y", nominal=4, weight=0), leaf("z", nominal=4)],
            [runs("y1", "y", 1), runs("y2", "y", 7)],
            1,
            ["y1"],
            id="among those with weight 0 the amounts are compared",
        ),
    ],
)
def test_the_next_target_comes_from_the_highest_share(
    queues: list[QuotaNode], running: Sequence[Admitted], size: int, expected: list[str]
) -> None:
    """Queue x has no quota of its own and may take from anybody."""
    snapshot = world([cohort("root", *queues)], running, [policy("x", reclaims=ANY)])
    assert victims(find_targets(snapshot, wants("x", size, priority=5), BOTH)) == expected


def test_the_own_queue_gives_when_it_has_the_highest_share() -> None:
    """Within the own queue its policy decides, and no share is compared."""
    tree = cohort("root", leaf("x", nominal=2), leaf("y", nominal=8))
    running = [
        runs("x-low", "x", 3),
        runs("x-high", "x", 2, priority=9),
        runs("y-some", "y", 1),
        runs("y-rest", "y", 4, priority=9),
    ]
    snapshot = world([tree], running, [policy("x", reclaims=LOWER, preempts_own=LOWER)])
    assert named(find_targets(snapshot, wants("x", 3, priority=5), BOTH)) == [("x-low", "InClusterQueue")]


def test_the_own_queue_gives_although_it_does_not_borrow() -> None:
    """It is left out only when it has no candidates any more."""
    tree = cohort("root", leaf("x", nominal=4), leaf("y", nominal=4))
    running = [runs("x1", "x", 2), runs("x2", "x", 2, priority=1), runs("y1", "y", 4)]
    snapshot = world([tree], running, [policy("x", reclaims=LOWER, preempts_own=LOWER)])
    targets = find_targets(snapshot, wants("x", 3, priority=5), BOTH)
    assert named(targets) == [("x1", "InClusterQueue"), ("x2", "InClusterQueue")]


def test_a_queue_without_cohort_takes_from_itself() -> None:
    """There is no share to compare with."""
    snapshot = world(
        [leaf("x", nominal=4)],
        [runs("x1", "x", 2), runs("x2", "x", 2, priority=1)],
        [policy("x", reclaims=ANY, preempts_own=LOWER)],
    )
    assert named(find_targets(snapshot, wants("x", 1, priority=5), BOTH)) == [("x1", "InClusterQueue")]


def test_who_borrows_what_nobody_lends_gives_although_its_share_is_none() -> None:
    """A cohort may have lost the right to borrow after its queues did."""
    tree = cohort("root", leaf("x", nominal=4), cohort("left", leaf("y"), borrows=0))
    snapshot = world([tree], [runs("y1", "y", 4)], [policy("x", reclaims=LOWER)])
    assert named(find_targets(snapshot, wants("x", 4, priority=5), BOTH)) == [("y1", "InCohortReclamation")]


def test_priority_still_counts_when_reclaiming() -> None:
    """The policy says who may go at all; shares say which of them."""
    tree = cohort("root", leaf("x"), leaf("y", nominal=4))
    running = [runs("y-high", "y", 2, priority=5), runs("y-low", "y", 2, priority=4)]
    snapshot = world([tree], running, [policy("x", reclaims=LOWER)])
    assert find_targets(snapshot, wants("x", 1, priority=5), BOTH) == ()
    lent = cohort("root", leaf("x"), leaf("y", nominal=1), leaf("z", nominal=3))
    snapshot = world([lent], running, [policy("x", reclaims=LOWER)])
    assert victims(find_targets(snapshot, wants("x", 1, priority=5), BOTH)) == ["y-low"]


def test_those_that_need_not_go_are_given_back() -> None:
    """A small one goes first and is given back when a large one had to go after all."""
    tree = cohort("root", leaf("x", nominal=6), leaf("y", nominal=6))
    running = [runs("y-small", "y", 2), runs("y-large", "y", 10, priority=1)]
    snapshot = world([tree], running, [policy("x", reclaims=ANY)])
    assert victims(find_targets(snapshot, wants("x", 5, priority=5), BOTH)) == ["y-large"]


def test_shares_do_not_depend_on_how_candidates_are_listed() -> None:
    """Equal input in another order gives equal targets."""
    snapshot = make_branches()
    turned = {
        name: dict(reversed(list(workloads.items()))) for name, workloads in reversed(list(snapshot.admitted.items()))
    }
    for node in {ancestor for queue in snapshot.nodes.values() for ancestor in queue.path_to_root()}:
        node.children.reverse()
    again = replace(snapshot, admitted=turned)
    assert victims(find_targets(again, wants("x", 3), BOTH)) == ["y2"]
