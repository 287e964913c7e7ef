"""Preemption by quota and priority: whom the policies give away, in which order, and how few of them go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from kqueue.core import preemption, quota
from kqueue.core.lost_work import Checkpoints, RunFacts, RunLimits
from kqueue.core.preemption import Findings, LocalQueueUsage, Rules, SharingStrategy
from kqueue.core.quota import QuotaNode
from kqueue.core.workload import Admitted, Preempts, QueueSpec
from tests.unit.core.preemption_cases import (
    ANY,
    CPU,
    GPUS,
    LOWER,
    LOWER_OR_NEWER,
    NEVER,
    NOW,
    RULES,
    cohort,
    find_targets,
    leaf,
    named,
    none_may_be_preempted,
    policy,
    runs,
    spared,
    state,
    victims,
    wants,
    world,
)


def test_those_that_need_not_go_are_given_back_and_the_last_takes_their_place() -> None:
    """Three are removed before the preemptor fits; the first of them may stay after all."""
    running = [
        runs("a1", "a", 2, priority=9),
        runs("b1", "b", 2, reserved=20),
        runs("b2", "b", 3, reserved=10),
        runs("b3", "b", 5, priority=1),
    ]
    tree = cohort("team", leaf("a", nominal=10), leaf("b", nominal=2))
    snapshot = world([tree], running, [policy("a", reclaims=ANY)])
    targets = find_targets(snapshot, wants("a", 8, priority=5), RULES)
    assert named(targets) == [("b3", "InCohortReclamation"), ("b2", "InCohortReclamation")]


@pytest.mark.parametrize(
    "rules", [RULES, Rules(now=NOW, fair=(SharingStrategy.LTE,))], ids=["by quota", "by fair shares"]
)
def test_what_is_known_of_a_cohort_ends_with_the_next_change(rules: Rules) -> None:
    """Within one cycle a queue begins to borrow, and ends: it gives back in between only."""
    rules = replace(rules)
    tree = cohort("team", leaf("a", nominal=6), leaf("b", nominal=6))
    snapshot = world([tree], [runs("b1", "b", 3), runs("b2", "b", 3)], [policy("a", reclaims=LOWER)])
    found = []
    for change in (0, 6, -6):
        quota.shift_usage(snapshot.nodes["b"], GPUS, change)
        quota.shift_usage(snapshot.nodes["b"].root, GPUS, change)
        assert none_may_be_preempted(snapshot, wants("a", 5, priority=3), frozenset({GPUS}), rules) is (change <= 0)
        found.append(sorted(victims(find_targets(snapshot, wants("a", 5, priority=3), rules))))
    assert found == [[], ["b1", "b2"], []]


@pytest.mark.parametrize(
    "rules", [RULES, Rules(now=NOW, fair=(SharingStrategy.LTE,))], ids=["by quota", "by fair shares"]
)
@pytest.mark.parametrize(
    ("own", "before", "after"),
    [
        pytest.param(LOWER, {"priority": 3}, {"priority": 2}, id="its priority is lower now"),
        pytest.param(LOWER_OR_NEWER, {"priority": 3}, {"priority": 3, "created": 200}, id="it is a newer one now"),
        pytest.param(NEVER, {"priority": 0}, None, id="nobody of its own queue, whoever that is"),
    ],
)
def test_that_nobody_may_go_is_true_of_those_who_run_now(
    rules: Rules, own: Preempts, before: dict[str, Any], after: dict[str, Any] | None
) -> None:
    """The same rules are asked twice, and who runs in between is another one."""
    rules, preemptor = replace(rules), wants("a", 4, priority=3)

    def is_clear(**running: Any) -> bool:
        snapshot = world([leaf("a", nominal=6)], [runs("a1", "a", 6, **running)], [policy("a", preempts_own=own)])
        answer = none_may_be_preempted(snapshot, preemptor, preemptor.needs, rules)
        assert answer is not bool(find_targets(snapshot, preemptor, rules))
        return answer

    assert is_clear(**before)
    assert after is None or not is_clear(**after)


def test_a_queue_within_its_nominal_quota_reclaims_from_one_that_borrows() -> None:
    """The most recently admitted of the lesser workloads goes, and one is enough."""
    running = [
        runs("a1", "a", 1, priority=9),
        runs("b-old", "b", 3, reserved=1),
        runs("b-new", "b", 3, reserved=2),
        runs("b-high", "b", 3, priority=5, reserved=3),
    ]
    tree = cohort("team", leaf("a", nominal=6), leaf("b", nominal=6))
    snapshot = world([tree], running, [policy("a", reclaims=LOWER)])
    assert named(find_targets(snapshot, wants("a", 4, priority=3), RULES)) == [("b-new", "InCohortReclamation")]


@pytest.mark.parametrize(
    ("rule", "other", "yields"),
    [
        pytest.param(NEVER, {"priority": 0}, False, id="never preempts nobody"),
        pytest.param(LOWER, {"priority": 4}, True, id="lower priority yields"),
        pytest.param(
            LOWER, {"priority": 5, "created": 999}, False, id="equal priority does not yield to lower priority"
        ),
        pytest.param(LOWER, {"priority": 6}, False, id="higher priority does not yield"),
        pytest.param(LOWER_OR_NEWER, {"priority": 4, "created": 1}, True, id="lower priority yields however old"),
        pytest.param(LOWER_OR_NEWER, {"priority": 5, "created": 101}, True, id="newer of equal priority yields"),
        pytest.param(LOWER_OR_NEWER, {"priority": 5, "created": 100}, False, id="as old and of equal priority stays"),
        pytest.param(LOWER_OR_NEWER, {"priority": 5, "created": 99}, False, id="older of equal priority stays"),
        pytest.param(LOWER_OR_NEWER, {"priority": 6, "created": 101}, False, id="newer of higher priority stays"),
        pytest.param(ANY, {"priority": 9, "created": 0}, True, id="any yields"),
    ],
)
@pytest.mark.parametrize("own", [True, False], ids=["own queue", "other queue"])
def test_the_policy_says_whom_a_queue_may_preempt(
    rule: Preempts, other: dict[str, Any], yields: bool, own: bool
) -> None:
    """The policy for the own queue and the one for the rest of the cohort read the same."""
    borrower = runs("other", "a" if own else "b", 4, **other)
    high = runs("high", borrower.queue, 4, priority=99, created=0)  # so that the queue is not all above or below
    spec = policy("a", preempts_own=rule) if own else policy("a", reclaims=rule)
    if own:
        snapshot = world([leaf("a", nominal=8)], [borrower, high], [spec])
    else:
        running = [borrower, high] if rule is not ANY else [borrower]
        snapshot = world([cohort("team", leaf("a", nominal=4 * len(running)), leaf("b"))], running, [spec])
    targets = find_targets(snapshot, wants("a", 4, priority=5), RULES)
    reason = "InClusterQueue" if own else "InCohortReclamation"
    assert named(targets) == ([("other", reason)] if yields else [])


def test_no_cohort_no_reclaim() -> None:
    """A queue that stands alone finds nobody in other trees."""
    snapshot = world(
        [leaf("a", nominal=4), leaf("b", nominal=4)],
        [runs("a1", "a", 4, priority=9), runs("b1", "b", 8)],
        [policy("a", reclaims=ANY, preempts_own=LOWER)],
    )
    assert find_targets(snapshot, wants("a", 4, priority=5), RULES) == ()


ORDER = [
    pytest.param(
        [runs("evicted", "a", 2, priority=4, evicted=True), runs("low", "a", 2, priority=0)],
        ["evicted", "low"],
        id="already evicted before lower priority",
    ),
    pytest.param(
        [runs("low", "a", 2, priority=0, reserved=1), runs("lower", "a", 2, priority=-1, reserved=0)],
        ["lower", "low"],
        id="lower priority before more recently admitted",
    ),
    pytest.param(
        [runs("old", "a", 2, reserved=1), runs("new", "a", 2, reserved=2)],
        ["new", "old"],
        id="most recently admitted first",
    ),
    pytest.param(
        [runs("written", "a", 2, reserved=86_399), runs("unwritten", "a", 2, reserved=None)],
        ["unwritten", "written"],
        id="a reservation that is not written yet counts as now",
    ),
    pytest.param(
        [runs("future", "a", 2, reserved=86_401), runs("unwritten", "a", 2, reserved=None)],
        ["future", "unwritten"],
        id="one that a fast clock wrote in the future comes before one of now",
    ),
    pytest.param([runs("y", "a", 2), runs("x", "a", 2)], ["x", "y"], id="the uid decides between equals"),
    pytest.param(
        [runs("a1", "a", 2, priority=0), runs("b1", "b", 2, priority=3)],
        ["b1", "a1"],
        id="other queues before the own one",
    ),
    pytest.param(
        [runs("a1", "a", 2, priority=0, evicted=True), runs("b1", "b", 2, priority=3)],
        ["a1", "b1"],
        id="evicted ones of the own queue before other queues",
    ),
]


@pytest.mark.parametrize("backwards", [False, True], ids=["as listed", "backwards"])
@pytest.mark.parametrize(("running", "expected"), ORDER)
def test_candidates_go_in_order(running: list[Admitted], expected: list[str], backwards: bool) -> None:
    """Of two candidates, each of which is enough, the first goes."""
    tree = cohort("team", leaf("a", nominal=4), leaf("b"))
    listed = list(reversed(running)) if backwards else running
    snapshot = world([tree], listed, [policy("a", reclaims=ANY, preempts_own=LOWER)])
    assert victims(find_targets(snapshot, wants("a", 2, priority=5), RULES)) == expected[:1]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param({"eager": 5.0, "modest": 1.0}, "eager-high", id="the LocalQueue that used most goes first"),
        pytest.param({"eager": 1.0, "modest": 1.0}, "modest-low", id="equal usage leaves it to priority"),
        pytest.param(None, "modest-low", id="unknown usage leaves it to priority"),
    ],
)
def test_usage_of_local_queues_counts_before_priority(usage: dict[str, float] | None, expected: str) -> None:
    """Within one ClusterQueue, where it is known."""
    running = [
        runs("eager-high", "a", 2, priority=3, local_queue="eager"),
        runs("modest-low", "a", 2, priority=0, local_queue="modest"),
    ]
    snapshot = world([leaf("a", nominal=4)], running, [policy("a", preempts_own=LOWER)])

    used = {f"default/{name}": amount for name, amount in (usage or {}).items()}
    by_usage = frozenset[str]() if usage is None else frozenset({"a"})
    rules = Rules(now=NOW, local_queue_usage=LocalQueueUsage(by_usage, used))
    assert victims(find_targets(snapshot, wants("a", 2, priority=5), rules)) == [expected]


def test_usage_of_local_queues_does_not_count_between_cluster_queues() -> None:
    """The queues of others are compared by the priority of who would go first in each."""
    running = [
        runs("b-eager", "b", 2, priority=3, local_queue="eager"),
        runs("b-modest", "b", 2, priority=0, local_queue="modest"),
        runs("c", "c", 2, priority=2, local_queue="idle"),
    ]
    tree = cohort("team", leaf("a", nominal=6), leaf("b"), leaf("c"))
    snapshot = world([tree], running, [policy("a", reclaims=LOWER)])
    used = {"default/eager": 9.0, "default/modest": 5.0, "default/idle": 0.0}
    rules = Rules(now=NOW, local_queue_usage=LocalQueueUsage(frozenset("abc"), used))
    assert [victims(find_targets(snapshot, wants("a", n, priority=5), rules)) for n in (2, 4)] == [
        ["c"],
        ["c", "b-eager"],
    ]


def test_only_those_with_a_column_in_need_go() -> None:
    """Who holds other flavors or resources does not help; the amount held does not matter."""
    running = [
        runs("cpu-only", "a", {CPU: 4}),
        runs("gpu", "a", {GPUS: 4}, priority=1),
    ]
    snapshot = world([leaf("a", nominal={CPU: 8, GPUS: 4})], running, [policy("a", preempts_own=LOWER)])
    preemptor = wants("a", {CPU: 1, GPUS: 2}, priority=5, needs=[GPUS])
    assert victims(find_targets(snapshot, preemptor, RULES)) == ["gpu"]


def test_all_columns_must_fit_not_only_those_in_need() -> None:
    """A column that fits by itself may stand in the way later."""
    snapshot = world(
        [leaf("a", nominal={CPU: 4, GPUS: 4})],
        [runs("gpu", "a", {GPUS: 4}), runs("cpu", "a", {CPU: 2})],
        [policy("a", preempts_own=LOWER)],
    )
    assert find_targets(snapshot, wants("a", {CPU: 3, GPUS: 2}, priority=5, needs=[GPUS]), RULES) == ()


def test_one_column_alone_is_asked_about_by_itself() -> None:
    """Choosing a flavor asks what one column could get, whatever the others look like."""
    snapshot = world(
        [leaf("a", nominal={CPU: 4, GPUS: 4})],
        [runs("gpu", "a", {GPUS: 4}), runs("cpu", "a", {CPU: 2}, priority=9)],
        [policy("a", preempts_own=LOWER)],
    )
    preemptor = wants("a", {CPU: 3, GPUS: 2}, priority=5)
    answers = [victims(find_targets(snapshot, preemptor.alone(c, preemptor.usage[c]), RULES)) for c in (GPUS, CPU)]
    assert answers == [["gpu"], []]


def test_protected_workloads_are_not_chosen_unless_they_are_leaving() -> None:
    """Protection keeps a workload from being evicted, not from being counted as gone when it is."""
    running = [
        runs("young", "a", 2),
        runs("leaving", "a", 2, priority=1, evicted=True),
        runs("old", "a", 2, priority=2),
    ]
    snapshot = world([leaf("a", nominal=6)], running, [policy("a", preempts_own=LOWER)])
    rules = Rules(now=NOW, spared=spared("young", "leaving"))
    found = [victims(find_targets(snapshot, wants("a", n, priority=5), rules)) for n in (2, 4, 6)]
    assert found == [["leaving"], ["leaving", "old"], []]


@pytest.mark.parametrize(
    ("spec", "running", "size", "expected"),
    [
        pytest.param(
            policy("a", reclaims=ANY),
            [runs("a1", "a", 4), runs("b1", "b", 6)],
            2,
            [],
            id="a queue at its nominal quota does not take from others without borrowWithinCohort",
        ),
        pytest.param(
            policy("a", reclaims=LOWER, borrow_preempts=True),
            [runs("a1", "a", 4), runs("b1", "b", 6)],
            2,
            [("b1", "InCohortReclaimWhileBorrowing")],
            id="with borrowWithinCohort it takes from lesser ones while it borrows itself",
        ),
        pytest.param(
            policy("a", reclaims=ANY, borrow_preempts=True),
            [runs("a1", "a", 4), runs("b1", "b", 6, priority=5)],
            2,
            [],
            id="while borrowing, equal priority stays whatever the policy",
        ),
        pytest.param(
            policy("a", reclaims=LOWER, borrow_preempts=True, borrow_preempts_up_to=1),
            [runs("a1", "a", 4), runs("b1", "b", 2, priority=2), runs("b2", "b", 4, priority=1)],
            2,
            [("b2", "InCohortReclaimWhileBorrowing")],
            id="while borrowing, those above the threshold stay",
        ),
        pytest.param(
            policy("a", reclaims=LOWER, borrow_preempts=True, borrow_preempts_up_to=1),
            [runs("a1", "a", 2), runs("b1", "b", 8, priority=2)],
            2,
            [("b1", "InCohortReclamation")],
            id="within nominal quota those above the threshold go",
        ),
        pytest.param(
            policy("a", reclaims=LOWER, preempts_own=LOWER),
            [runs("a1", "a", 3), runs("b1", "b", 7, priority=9)],
            3,
            [("a1", "InClusterQueue")],
            id="the own queue helps where the cohort does not",
        ),
        pytest.param(
            policy("a", reclaims=LOWER, preempts_own=LOWER),
            [
                runs("a1", "a", 1, priority=1),
                runs("a2", "a", 2),
                runs("b1", "b", 1),
                runs("b2", "b", 6, priority=1),
            ],
            3,
            [("b1", "InCohortReclamation"), ("a2", "InClusterQueue")],
            id="under nominal quota, without a right, it first tries to do without borrowing",
        ),
    ],
)
def test_borrowing_is_tried_as_the_queue_allows(
    spec: QueueSpec, running: Sequence[Admitted], size: int, expected: list[tuple[str, str]]
) -> None:
    """Queue a has 4 of its own, b has 4, and 2 more belong to the cohort."""
    tree = cohort("team", leaf("a", nominal=4), leaf("b", nominal=4), nominal=2)
    snapshot = world([tree], running, [spec])
    before = state(snapshot)
    assert named(find_targets(snapshot, wants("a", size, priority=5), RULES)) == expected
    assert state(snapshot) == before


@pytest.mark.parametrize(
    ("tree", "running", "spec", "expected"),
    [
        pytest.param(
            cohort("root", cohort("left", leaf("a", nominal=4), leaf("b")), cohort("right", leaf("c", nominal=4))),
            [runs("b1", "b", 4), runs("b2", "b", 4, priority=1)],
            policy("a", reclaims=ANY, borrow_preempts=True),
            [("b1", "InCohortReclamation")],
            id="the queue's own nominal quota is its right",
        ),
        pytest.param(
            cohort("root", cohort("left", leaf("a"), nominal=4), cohort("right", leaf("c", nominal=4))),
            [runs("c1", "c", 4), runs("c2", "c", 4, priority=9)],
            policy("a", reclaims=ANY, borrow_preempts=True),
            [("c1", "InCohortReclamation")],
            id="what its cohort brings along is its right against other cohorts",
        ),
        pytest.param(
            cohort("root", cohort("left", leaf("a"), leaf("b"), nominal=4), cohort("right", leaf("c", nominal=4))),
            [runs("b1", "b", 4, priority=9), runs("c1", "c", 4)],
            policy("a", reclaims=ANY, borrow_preempts=True),
            [],
            id="a cohort has no right against its own queues",
        ),
        pytest.param(
            cohort("root", cohort("left", leaf("a"), leaf("b"), nominal=4), cohort("right", leaf("c", nominal=4))),
            [runs("b1", "b", 4), runs("c1", "c", 4)],
            policy("a", reclaims=ANY, borrow_preempts=True),
            [("b1", "InCohortReclaimWhileBorrowing")],
            id="but borrowWithinCohort lets it borrow in the place of lesser ones",
        ),
        pytest.param(
            cohort(
                "root",
                cohort("left", leaf("a"), nominal=4),
                cohort("right", leaf("c", nominal=4), leaf("d", nominal=2)),
                leaf("e"),
            ),
            [runs("c1", "c", 6), runs("e1", "e", 4, priority=3)],
            policy("a", reclaims=ANY),
            [("e1", "InCohortReclamation")],
            id="who borrows inside of a cohort that does not is left alone",
        ),
        pytest.param(
            cohort("root", leaf("a", nominal=8), leaf("b", nominal=2), leaf("c", nominal=2)),
            [
                runs("b1", "b", 2),
                runs("b2", "b", 3, reserved=1),
                runs("b3", "b", 3, reserved=2),
                runs("c1", "c", 4, priority=1),
            ],
            policy("a", reclaims=ANY),
            [("b3", "InCohortReclamation"), ("b2", "InCohortReclamation"), ("c1", "InCohortReclamation")],
            id="a queue gives until it is within its nominal quota, then the next one does",
        ),
        pytest.param(
            cohort("root", leaf("a", nominal=8), cohort("right", leaf("b"), leaf("c"), nominal=2), leaf("d")),
            [
                runs("b1", "b", 2, reserved=2),
                runs("b2", "b", 2),
                runs("c1", "c", 2, reserved=1),
                runs("d1", "d", 4, priority=1),
            ],
            policy("a", reclaims=ANY),
            [("b1", "InCohortReclamation"), ("c1", "InCohortReclamation"), ("d1", "InCohortReclamation")],
            id="a cohort gives until it is within its quota, though its queues still borrow",
        ),
        pytest.param(
            cohort("root", leaf("a", nominal=4, lends=0), leaf("b", nominal=6)),
            [runs("a1", "a", 2), runs("b1", "b", 6)],
            policy("a", reclaims=ANY, preempts_own=LOWER),
            [("a1", "InClusterQueue")],
            id="nobody borrows what is not lent",
        ),
    ],
)
def test_rights_follow_the_tree(
    tree: QuotaNode, running: Sequence[Admitted], spec: QueueSpec, expected: list[tuple[str, str]]
) -> None:
    """Queue a wants all that is nominal to it, or to its cohort."""
    snapshot = world([tree], running, [spec])
    size = snapshot.nodes["a"].subtree[GPUS] or 4
    before = state(snapshot)
    assert named(find_targets(snapshot, wants("a", size, priority=5), RULES)) == expected
    assert state(snapshot) == before


@pytest.mark.parametrize("backwards", [False, True], ids=["older first", "newer first"])
def test_one_newer_workload_among_older_ones_is_found(backwards: bool) -> None:
    """That a queue is not looked through in vain must not hide anybody."""
    running = [runs("older", "a", 2, priority=5, created=99), runs("newer", "a", 2, priority=5, created=101)]
    listed = list(reversed(running)) if backwards else running
    snapshot = world([leaf("a", nominal=4)], listed, [policy("a", preempts_own=LOWER_OR_NEWER)])
    assert victims(find_targets(snapshot, wants("a", 2, priority=5), RULES)) == ["newer"]


HOUR = {"a": timedelta(hours=1)}


@pytest.mark.parametrize(
    ("reserved", "admitted", "until"),
    [
        pytest.param(NOW, NOW - timedelta(minutes=50), NOW + timedelta(minutes=10), id="has-run-for-less"),
        pytest.param(NOW, NOW - timedelta(hours=1), None, id="has-run-for-so-long"),
        pytest.param(NOW, None, None, id="may-not-run-yet"),
        pytest.param(None, None, NOW + timedelta(seconds=1), id="reservation-is-not-written-yet"),
    ],
)
def test_minimum_runtime(reserved: datetime | None, admitted: datetime | None, until: datetime | None) -> None:
    workload = replace(runs("w", "a", 2), reserved_at=reserved, admitted_at=admitted)
    assert Rules(now=NOW, limits=RunLimits(minimum=HOUR)).protected_until(workload) == until
    assert Rules(now=NOW, limits=RunLimits(minimum={"b": timedelta(hours=1)})).protected_until(workload) is None


@pytest.mark.parametrize(
    ("asked", "own", "longest", "granted"),
    [
        pytest.param(None, 0, None, 0, id="nobody-asks"),
        pytest.param(None, 60, 3600, 60, id="a-job-that-does-not-ask"),
        pytest.param(600, 0, None, 0, id="a-queue-that-grants-none"),
        pytest.param(600, 60, None, 60, id="no-more-than-the-queues-own"),
        pytest.param(30, 60, None, 30, id="a-job-may-do-with-less"),
        pytest.param(0, 60, 3600, 0, id="a-job-may-do-without"),
        pytest.param(600, 60, 3600, 600, id="as-asked"),
        pytest.param(10**9, 60, 3600, 3600, id="a-lie-gets-the-longest"),
        pytest.param(600, 60, 0, 0, id="the-queue-trusts-no-job-that-asks"),
    ],
)
def test_a_job_asks_and_its_queue_grants(asked: int | None, own: int, longest: int | None, granted: int) -> None:
    limits = RunLimits(
        minimum={"a": timedelta(seconds=own)} if own else {},
        longest={} if longest is None else {"a": timedelta(seconds=longest)},
    )
    facts = RunFacts(minimum_runtime=None if asked is None else timedelta(seconds=asked))

    assert limits.granted("a", facts) == timedelta(seconds=granted)
    workload = replace(runs("w", "a", 2), reserved_at=NOW, admitted_at=NOW, facts=facts)
    until = NOW + timedelta(seconds=granted) if granted else None
    assert Rules(now=NOW, limits=limits).protected_until(workload) == until


# --- lost work -------------------------------------------------------------------------------------------------------


def equal(name: str, queue: str = "a", *, pods: int = 1, saved: int | None = None, **more: Any) -> Admitted:
    """A workload that was admitted an hour ago; `saved`: the age of its last checkpoint in seconds."""
    last = None if saved is None else NOW - timedelta(seconds=saved)
    began = NOW - timedelta(hours=1)
    workload = runs(name, queue, 2, **more)
    return replace(workload, reserved_at=began, admitted_at=began, pods=pods, facts=RunFacts(last_checkpoint=last))


def chosen(running: Sequence[Admitted], size: int = 2, **rules: Any) -> list[str]:
    """The targets for a workload of this size, with a queue that is full."""
    snapshot = world([leaf("a", nominal=2 * len(running))], running, [policy("a", preempts_own=LOWER)])
    found = preemption.find_targets(snapshot, wants("a", size, priority=5), Findings(Rules(now=NOW, **rules)))
    return sorted(target.admitted.uid for target in found)


@pytest.mark.parametrize(
    ("running", "first"),
    [
        pytest.param([equal("x", pods=2), equal("y")], "y", id="fewer-pods"),
        pytest.param([equal("x"), equal("y", saved=60)], "y", id="a-checkpoint"),
        pytest.param([equal("x", saved=120), equal("y", saved=60)], "y", id="a-later-checkpoint"),
        pytest.param([equal("x", saved=60, pods=90), equal("y", pods=2)], "y", id="pods-times-seconds"),
        pytest.param([equal("x", saved=-60), equal("y", saved=60)], "y", id="a-checkpoint-in-the-future-is-none"),
        pytest.param([equal("y"), equal("x", saved=10**8)], "x", id="the-far-past-is-no-later-than-the-start"),
        pytest.param([equal("y", saved=60), equal("x", saved=60)], "x", id="the-uid-between-equals"),
        pytest.param([equal("x", priority=1), equal("y", pods=9)], "y", id="priority-comes-before"),
        pytest.param(
            [equal("x", saved=0), replace(equal("y", pods=9), reserved_at=NOW - timedelta(minutes=59))],
            "y",
            id="the-later-reservation-comes-before",
        ),
    ],
)
def test_lost_work_decides_between_equals(running: Sequence[Admitted], first: str) -> None:
    """The rules of the compatible system come before; only the uid comes after."""
    assert chosen(running) == [first]
    assert chosen(running[::-1]) == [first]


@pytest.mark.parametrize("fair", [None, (SharingStrategy.LTE,)], ids=["classical", "fair"])
def test_work_above_the_limit_of_its_queue_is_lost_last(fair: Any) -> None:
    """Such a workload is preempted after workloads of higher priority, and still before the preemptor waits."""
    dear, other = equal("dear", pods=10), equal("other", priority=1)
    lost = dear.lost(NOW)
    assert lost == 10 * 3660

    assert chosen([dear, other], fair=fair) == ["dear"]
    assert chosen([dear, other], fair=fair, limits=RunLimits(most_lost={"a": lost})) == ["dear"]
    assert chosen([dear, other], fair=fair, limits=RunLimits(most_lost={"a": lost - 1})) == ["other"]
    assert chosen([dear, other], fair=fair, limits=RunLimits(most_lost={"b": 0})) == ["dear"]
    assert chosen([dear, other], 4, fair=fair, limits=RunLimits(most_lost={"a": 0})) == ["dear", "other"]


def test_a_claimed_restart_counts_for_an_hour_at_most() -> None:
    facts = RunFacts(checkpoints=Checkpoints(restart=10**8))
    assert replace(equal("w"), facts=facts).lost(NOW) == 3600 + 3600


def test_a_workload_that_does_not_run_loses_nothing() -> None:
    assert replace(equal("w"), admitted_at=None).lost(NOW) == 0


def test_a_plan_says_when_the_first_protected_workload_may_be_preempted() -> None:
    times = {"early": NOW - timedelta(minutes=30), "late": NOW - timedelta(minutes=10)}
    running = [replace(runs(name, "a", 2), reserved_at=at, admitted_at=at) for name, at in times.items()]
    snapshot = world([leaf("a", nominal=4)], running, [policy("a", preempts_own=LOWER)])
    findings = Findings(Rules(now=NOW, limits=RunLimits(minimum=HOUR)))
    assert preemption.find_targets(snapshot, wants("a", 4, priority=5), findings) == ()
    assert findings.retry_at == {"waiting": NOW + timedelta(minutes=30)}


def test_what_was_found_out_about_one_snapshot_is_not_believed_of_another() -> None:
    """Findings may be used for more than one snapshot, as the planner's trials do."""
    findings = Findings(RULES)
    found = []
    for priority in (9, 0, 9):
        running = [runs("one", "a", 4, priority=priority)]
        snapshot = world([leaf("a", nominal=4)], running, [policy("a", preempts_own=LOWER)])
        found.append(victims(preemption.find_targets(snapshot, wants("a", 2, priority=5), findings)))
    assert found == [[], ["one"], []]
