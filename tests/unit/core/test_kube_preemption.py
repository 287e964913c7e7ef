"""The built-in plugin that compares sets of victims, each comparison alone, and victims under a disruption budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.hooks import ProfileHooks
from kqueue.core.kube_preemption import KubePreemption
from kqueue.core.preemption import PreemptionReason, Rules, SharingStrategy, Target
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Admitted, Flavor, Snapshot
from tests.builders import GPU, START, make_head, make_queue, plan
from tests.unit.core.preemption_cases import ANY, LOWER, cohort, leaf, runs
from tests.unit.core.test_cycle_preemption import decide, quotas_of, wants

HEAD = make_head("high")
BUDGETED = frozenset({"protected", "protected-2"})


def rank(*going: Admitted) -> tuple[int, ...]:
    targets = [Target(workload, PreemptionReason.IN_CLUSTER_QUEUE) for workload in going]
    return KubePreemption(lambda: BUDGETED).rank(HEAD, targets)


def one(name: str, priority: int = 0, *, started: int = 0, evicted: bool = False) -> Admitted:
    """A workload that has run since so many seconds after the start."""
    return runs(name, "team", 1, priority=priority, reserved=started, evicted=evicted)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param([one("a", 9), one("b", 9)], [one("protected", 0)], id="fewer under a budget"),
        pytest.param([one("protected", 9)], [one("protected", 0), one("protected-2", 0)], id="one under a budget"),
        pytest.param([one("a", 1), one("b", 1), one("c", 1)], [one("a", 2)], id="a lower highest priority"),
        pytest.param([one("a", 5), one("b", 1)], [one("a", 5), one("b", 2)], id="a lower sum of priorities"),
        pytest.param([one("a", 5)], [one("a", 5), one("b", -9)], id="a negative priority makes no sum smaller"),
        pytest.param(
            [one("a", 5), one("b", 0)], [one("a", 5), one("b", -2), one("c", -(2**31) + 2)], id="fewer, of equal sums"
        ),
        pytest.param([one("a", started=7)], [one("a", started=3)], id="a later start"),
        pytest.param(
            [one("a", 5, started=7), one("b", 0, started=1)],
            [one("a", 5, started=6), one("b", 0, started=9)],
            id="the start of those with the highest priority",
        ),
        pytest.param(
            [one("a", 5, started=3), one("b", 5, started=4)],
            [one("a", 5, started=2), one("b", 5, started=9)],
            id="the earliest start of several",
        ),
        pytest.param([one("a", evicted=True)], [one("b", -9)], id="those that leave already do not count"),
        pytest.param([runs("a", "team", 1, reserved=None)],
                     [one("b", started=9)], id="a reservation that is not written yet is the latest"),
    ],
)  # fmt: skip
@pytest.mark.mechanism("3.26")
def test_each_comparison_alone_g5_23(better: list[Admitted], worse: list[Admitted]) -> None:
    assert rank(*better) < rank(*worse)
    assert rank(*reversed(better)) == rank(*better)


def two_flavors(fast: Admitted, slow: Admitted) -> Snapshot:
    columns = {FlavorResource(flavor, GPU): 1 for flavor in ("fast", "slow")}
    spec = make_queue("team", flavors=("fast", "slow"), preempts_own=LOWER, preempt_before_next_flavor=True)
    held = [
        replace(workload, usage={FlavorResource(flavor, GPU): 1})
        for flavor, workload in (("fast", fast), ("slow", slow))
    ]
    found = quotas_of([cohort("all", leaf("team", nominal=columns))], held, [spec])
    return replace(found, flavors={name: Flavor(name=name) for name in ("fast", "slow")})


@pytest.mark.parametrize(
    ("fast", "slow", "gone"),
    [
        pytest.param(one("a", 2), one("b", 1), "b", id="the better set"),
        pytest.param(one("a", 1), one("b", 1), "a", id="of equal sets the first flavor"),
    ],
)
def test_a_profile_takes_the_flavor_with_the_better_victims_g5_23(fast: Admitted, slow: Admitted, gone: str) -> None:
    """Without the plugin the first flavor is taken, where preemption comes before the next flavor."""
    high = wants("high", "team", 1, priority=9)
    hooks: Any = {"default": ProfileHooks(victims=(KubePreemption(),))}
    assert decide(two_flavors(fast, slow), high) == {"high": "preempts a"}
    assert decide(two_flavors(fast, slow), high, hooks=hooks) == {"high": f"preempts {gone}"}


# --- budgets ---------------------------------------------------------------------------------------------------------


def rules(*budgeted: str, fair: bool = False) -> Rules:
    strategies = (SharingStrategy.LTE, SharingStrategy.LTI) if fair else None
    return Rules(now=START, budgeted=frozenset(budgeted), fair=strategies)


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize(
    ("sizes", "budgeted", "wanted", "gone"),
    [
        pytest.param({"a": 1, "b": 1}, [], 1, "b", id="the latest one goes"),
        pytest.param({"a": 1, "b": 1}, ["b"], 1, "a", id="unless a budget protects it"),
        pytest.param({"a": 1, "b": 1}, ["a", "b"], 1, "b", id="a budget is no veto"),
        pytest.param({"a": 1, "b": 1, "c": 2}, ["a", "b"], 2, "c", id="the smallest set"),
        pytest.param({"a": 2, "b": 1, "c": 1}, ["a", "c"], 3, "a b", id="put back first under a budget"),
    ],
)
@pytest.mark.mechanism("3.25")
def test_workloads_under_a_budget_go_last_g5_22(
    sizes: dict[str, int], budgeted: list[str], wanted: int, gone: str, fair: bool
) -> None:
    """They are taken last and put back first, and what remains is necessary."""
    held = [runs(name, "team", size, reserved=n) for n, (name, size) in enumerate(sizes.items())]
    roots = [cohort("all", leaf("team", nominal=sum(sizes.values())))]
    snapshot = quotas_of(roots, held, [make_queue("team", preempts_own=LOWER)])
    high = wants("high", "team", wanted, priority=9)
    assert decide(snapshot, high, rules=rules(*budgeted, fair=fair)) == {"high": f"preempts {gone}"}


def test_budgets_count_before_queues_g5_22() -> None:
    """Of a workload of another queue, and one of the own queue without a budget, the latter goes."""
    roots = [cohort("all", leaf("team", nominal=2), leaf("other", nominal=0))]
    held = [runs("own", "team", 1), runs("protected", "other", 1)]
    specs = [make_queue("team", preempts_own=LOWER, reclaims=ANY), make_queue("other")]
    high = wants("high", "team", 1, priority=9)
    assert decide(quotas_of(roots, held, specs), high, rules=rules()) == {"high": "preempts protected"}
    assert decide(quotas_of(roots, held, specs), high, rules=rules("protected")) == {"high": "preempts own"}


def test_without_budgets_decisions_are_as_before() -> None:
    roots = [cohort("all", leaf("team", nominal=2))]
    snapshot = quotas_of(roots, [runs("a", "team", 2)], [make_queue("team", preempts_own=LOWER)])
    found = list(plan(snapshot, [wants("high", "team", 1, priority=9)], rules=rules("gone")))
    assert [type(decision).__name__ for decision in found] == ["Preempt"]
