"""Shares of ClusterQueues by weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from kqueue.core.joint.costs import RankCosts
from kqueue.core.joint.fair_shares import FairShares
from kqueue.core.joint.plan import JointPlan
from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.round_policies import PolicyInput
from kqueue.core.workload import Head
from tests.builders import GPU, make_head
from tests.unit.core.joint.worlds import anywhere, racks, round_of, world_of


def fair(
    weights: Mapping[str, int], asked: Mapping[str, int], hosts: int, **more: int
) -> tuple[JointPlan, Counter[str]]:
    """A plan for pods of one GPU on hosts of one, and the units of each ClusterQueue."""
    heads: list[Head] = [
        anywhere(
            make_head(
                f"{queue}{i:02}", queue=queue, pods=1, required=None, requests={GPU: 1}, priority=more.get(queue, 0)
            )
        )
        for queue, number in asked.items()
        for i in range(number)
    ]
    spec = PolicySpec(name="fairness", parameters={"weights": {q: w * 1000 for q, w in weights.items()}})
    plan = round_of(world_of(racks(hosts, gpus=1), queues=asked), heads, policies=PolicyInput(specs=(spec,)))
    return plan, Counter(one.head.queue for one in plan.workloads if one.admitted is not None)


@pytest.mark.mechanism("2.17")
def test_saturated_shares_follow_the_weights() -> None:
    """E14: every ClusterQueue asks for all."""
    plan, shares = fair({"a": 3, "b": 2, "c": 1}, {"a": 60, "b": 60, "c": 60}, 60)
    assert shares == {"a": 30, "b": 20, "c": 10}
    assert plan.bound == 60


def test_others_share_what_one_does_not_ask_for() -> None:
    """E14: the second asks for 5 only; the others share 55 by 3 to 1, within one step."""
    _, shares = fair({"a": 3, "b": 2, "c": 1}, {"a": 60, "b": 5, "c": 60}, 60)
    assert shares["b"] == 5
    assert sum(shares.values()) == 60
    assert abs(shares["a"] - 3 * shares["c"]) <= 3 + 3


@pytest.mark.parametrize("seed", range(8))
def test_shares_are_within_one_step_for_random_weights(seed: int) -> None:
    weights = dict(zip("abc", np.random.default_rng(seed).integers(1, 6, size=3).tolist(), strict=True))
    _, shares = fair(weights, dict.fromkeys("abc", 30), 30)
    assert sum(shares.values()) == 30
    steps = {queue: -(-shares[queue] // weights[queue]) for queue in weights if shares[queue] < 30}
    assert max(steps.values()) - min(steps.values()) <= 1


@pytest.mark.mechanism("2.17")
def test_priority_comes_before_shares() -> None:
    _, shares = fair({"a": 5, "b": 1}, {"a": 8, "b": 8}, 8, b=1)
    assert shares == {"b": 8}


def test_the_relaxation_shares_as_the_plan_does() -> None:
    plan, _ = fair({"a": 3, "b": 1}, {"a": 8, "b": 8}, 8)
    relaxed = Counter[str]()
    for one in plan.workloads:
        relaxed[one.head.queue] += one.relaxed
    assert relaxed == {"a": 6, "b": 2}


def test_used_units_count() -> None:
    shares = FairShares.of({"a": 2, "b": 1}, 0, {"a": 3})
    assert [shares.step("a", n) for n in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]
    assert shares.arcs("a", 4) == [(1, 200_000), (2, 300_000), (1, 400_000)]
    assert shares.worth("a", 3, 4) == 63 + 2 * 62 + 61
    assert shares.arcs("b", 100)[-1] == (100 - 63, 64 * 100_000)


@pytest.mark.parametrize("units", [1, 5, 200])
def test_the_worth_of_units_is_that_of_each(units: int) -> None:
    shares = FairShares.of({"a": 3, "b": 0}, 0, {})
    for queue in "ab":
        assert shares.worth(queue, 2, units) == sum(65 - shares.step(queue, n) for n in range(3, 3 + units))


def test_a_rank_is_dearer_than_all_shares() -> None:
    """E0 with one cohort."""
    assert RankCosts.of(ranks=2, classes=2, levels=3, nodes=10, shares=1).step == 5_592_001 + 12_800_000
