"""Rounds: better than one by one where that is possible, never worse, and in the order of admission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kqueue.core.joint.candidate import CandidateName
from kqueue.core.joint.plan import PlanStatus
from kqueue.core.joint.settings import JointOrder
from kqueue.core.topology import HOSTNAME
from kqueue.core.topology.placers import JOINT, PLACERS, place_joint_by
from tests.builders import make_head
from tests.unit.core.joint.worlds import admitted, racks, round_of, world_of


@pytest.mark.mechanism("2.8")
def test_gangs_that_would_leave_two_racks_half_used_share_one() -> None:
    """E2: one by one puts 5 hosts into each rack, so that 9 find none."""
    heads = [make_head(name, pods=pods, age=9 - i) for i, (name, pods) in enumerate([("a", 5), ("b", 5), ("c", 9)])]
    plan = round_of(world_of(racks(10, 9)), heads)
    assert admitted(plan) == ["a", "b", "c"]
    assert (plan.greedy_units, plan.units, plan.bound, plan.gap) == (10, 19, 19, 0)
    assert plan.status is PlanStatus.OPTIMAL
    assert plan.chosen is not CandidateName.ONE_BY_ONE


def test_without_a_solver_the_plan_has_no_bound() -> None:
    heads = [make_head(name, pods=pods, age=9 - i) for i, (name, pods) in enumerate([("a", 5), ("b", 5), ("c", 9)])]
    plan = round_of(world_of(racks(10, 9)), heads, solved=False)
    assert admitted(plan) == ["a", "b", "c"]
    assert (plan.status, plan.bound, plan.gap) == (PlanStatus.NO_BOUND, None, None)


def test_the_first_is_not_left_out_for_two_that_use_more() -> None:
    """E3 with `Strict`."""
    heads = [make_head(name, pods=pods, age=9 - i) for i, (name, pods) in enumerate([("a", 5), ("b", 4), ("c", 4)])]
    plan = round_of(world_of(racks(8)), heads)
    assert admitted(plan) == ["a"]
    assert (plan.bound, plan.gap, plan.status) == (8, 375, PlanStatus.FEASIBLE)


def test_with_priority_two_that_use_more_pass_the_first() -> None:
    """E3 with `Priority`: equal waiting."""
    heads = [make_head(name, pods=pods, age=9 - i) for i, (name, pods) in enumerate([("a", 5), ("b", 4), ("c", 4)])]
    plan = round_of(world_of(racks(8)), heads, order=JointOrder.PRIORITY, waited={"a": 10, "b": 10, "c": 10})
    assert admitted(plan) == ["b", "c"]


def test_an_older_gang_that_was_passed_wins_when_it_has_waited_long_enough() -> None:
    """E3: 5 x (1 + a) against 8 x (1 + b)."""
    heads = [make_head(name, pods=pods, age=9 - i) for i, (name, pods) in enumerate([("a", 5), ("b", 4), ("c", 4)])]
    for waits, wins in ((158, ["b", "c"]), (160, ["a"])):
        waited = {"a": waits, "b": 99, "c": 99}
        plan = round_of(world_of(racks(8)), heads, order=JointOrder.PRIORITY, waited=waited)
        assert admitted(plan) == wins


def test_preferred_racks_are_not_split_where_all_fit_whole() -> None:
    """E5: one by one splits the last gang; the plan admits the same gangs, each in one rack."""
    sizes = [3, 5, 5, 3]
    heads = [make_head(f"g{i}", pods=pods, required=None, preferred="rack", age=9 - i) for i, pods in enumerate(sizes)]
    plan = round_of(world_of(racks(6, 5, 5, levels=("block", "rack", HOSTNAME))), heads)
    assert admitted(plan) == ["g0", "g1", "g2", "g3"]
    assert (plan.greedy_cost, plan.cost) == (180, 0)


@pytest.fixture
def _placers() -> Iterator[None]:
    """The placer of the profile is the usual one again."""
    before = PLACERS[JOINT]
    yield
    PLACERS[JOINT] = before


@pytest.mark.usefixtures("_placers")
def test_the_configured_profile_chooses_domains_inside_a_workload() -> None:
    """Best fit fills one rack and spills two pods; `balanced` spreads evenly over two racks."""
    head = replace(make_head("a", pods=8, required=None, preferred="block"), algorithm=JOINT)
    found = {}
    for name in ("BestFit", "balanced"):
        place_joint_by(name)
        plan = round_of(world_of(racks(6, 6, levels=("block", "rack", HOSTNAME))), [head])
        planned = plan.workloads[0].admitted
        assert planned is not None
        hosts = [usage.values[-1] for usage in planned.domains["gpu"]]
        found[name] = sorted(Counter(host.split("-")[0] for host in hosts).values())
    assert found == {"BestFit": [2, 6], "balanced": [4, 4]}
