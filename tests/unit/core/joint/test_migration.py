"""What moves would gain: nothing in a settled world, and what waits against what is lost where a move helps."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kqueue.core import quota
from kqueue.core.joint.batch import Batch
from kqueue.core.joint.defrag import DefragPlan, NoPlan, NoPlanReason, defragment
from kqueue.core.joint.migration import MigrationGain, migration_gains
from kqueue.core.joint.movable import pays
from kqueue.core.joint.moving import RunningGang
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.round_policies import NO_POLICIES, PolicyInput
from kqueue.core.joint.running import RunningInput
from kqueue.core.joint.settings import JointSettings
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.workload import Admitted, Head, TopologyView
from tests.builders import GPU, START, make_head
from tests.unit.core.joint.test_defrag import ANY, NEVER, gang, goal
from tests.unit.core.joint.worlds import racks, world_of

ROUNDS = int(os.environ.get("KQUEUE_SETTLED_ROUNDS", "400"))
"""Rounds of settled worlds; 10,000 take minutes."""


def asked(
    view: TopologyView,
    heads: Sequence[Head],
    gangs: Sequence[RunningGang],
    *,
    waited: int = 0,
    least: int = 2_000,
    policies: PolicyInput = NO_POLICIES,
    amount: int = 100_000,
) -> RoundInput:
    """A round in which these gangs run and those workloads wait."""
    snapshot = world_of(view, quota=amount)
    admitted: dict[str, Admitted] = {}
    for one in gangs:
        usage = {FlavorResource("gpu", GPU): 8 * one.pods}
        quota.add_usage(snapshot.nodes["team"], FlavorResource("gpu", GPU), 8 * one.pods)
        admitted[one.key] = Admitted(
            key=one.key,
            uid=one.key,
            queue="team",
            local_queue="default/main",
            priority=0,
            timestamp=START - timedelta(hours=2),
            reserved_at=START - timedelta(hours=2),
            admitted_at=START - timedelta(hours=2),
            evicted=False,
            usage=usage,
            domains=one.usage,
        )
    return RoundInput(
        state=PlannedState(snapshot=replace(snapshot, admitted={"team": admitted}), rules=Rules(now=START)),
        batch=Batch(queues={"team": tuple(heads)}),
        waited={head.uid: waited for head in heads},
        settings=JointSettings(least_gain=least),
        solver=solver(),
        policies=policies,
        running=RunningInput(movable=tuple(gangs)),
    )


def crowded(lost: int = 10, **more: Any) -> tuple[TopologyView, list[RunningGang]]:
    """A rack of four hosts, one of which is in use, and another with one free host."""
    view = racks(4, 2)
    return view, [
        gang("u", view, {"r0": 1}, lost=lost, **more),
        gang("v", view, {"r1": 1}, immovable=NEVER),
    ]


FOUR = make_head("w", pods=4)
EDGES = [
    # waited, lost, least gain, and whether four hosts of the gang that waits are worth the move of one
    (5, 10, 2_000, True),
    (4, 10, 2_000, False),
    (6, 10, 2_000, True),
    (3, 12, 1_000, True),
    (2, 9, 1_000, False),
    (2, 8, 1_000, True),
    (1, 8, 500, True),
    (1, 9, 500, False),
    (0, 10, 1, False),
    (0, 10, 0, True),
    (31, 40, 3_100, True),
    (30, 40, 3_100, False),
]


@pytest.mark.mechanism("2.10")
@pytest.mark.parametrize(("waited", "lost", "least", "moves"), EDGES)
def test_a_workload_moves_if_and_only_if_that_gains_enough(waited: int, lost: int, least: int, moves: bool) -> None:
    view, gangs = crowded(lost)
    plan = defragment({"gpu": view}, goal(view, 4, worth=4 * waited), gangs, replace(ANY, least_gain=least))
    assert pays(4 * waited, lost, least) is moves
    if moves:
        assert isinstance(plan, DefragPlan)
        assert [(move.gang.key, move.gang.cost) for move in plan.moves] == [("team/u", lost)]
    else:
        assert isinstance(plan, NoPlan)
        assert (plan.reason, plan.cheapest) == (NoPlanReason.GAIN, lost)


@pytest.mark.mechanism("2.10")
@pytest.mark.parametrize(
    ("waited", "lost", "least", "gain", "cost"),
    [
        (20, 10, 2_000, 80, 10),
        (19, 10, 2_000, 57, 0),
        (21, 10, 2_000, 84, 10),
        (10, 10, 1_000, 40, 10),
        (9, 10, 1_000, 27, 0),
        (5, 10, 500, 20, 10),
        (4, 10, 500, 12, 0),
        (0, 10, 0, 0, 0),
    ],
)
def test_a_unit_moves_only_where_it_gains_enough(waited: int, lost: int, least: int, gain: int, cost: int) -> None:
    """Three hosts of the gang fit beside the one that runs, if the gang may be split; the fourth needs its move."""
    view, gangs = crowded(lost)
    (found,) = migration_gains(asked(view, [FOUR], gangs, waited=waited, least=least))
    assert (found.flavor, found.gain) == ("gpu", gain)
    assert found.cost == cost or gain == 0
    assert found.pays(least) is (gain > 0)
    assert found.points == found.gain - found.cost


def test_a_gain_is_none_where_nothing_may_move_or_waits() -> None:
    view, gangs = crowded(immovable=NEVER)
    assert migration_gains(asked(view, [FOUR], gangs, waited=100)) == ()
    assert migration_gains(asked(view, [FOUR], [], waited=100)) == ()
    view, gangs = crowded()
    assert migration_gains(asked(view, [], gangs)) == ()
    assert migration_gains(replace(asked(view, [FOUR], gangs, waited=100), solver=None)) == ()
    assert migration_gains(asked(view, [FOUR], gangs, waited=100)) == (MigrationGain(flavor="gpu", gain=400, cost=10),)


def test_quota_that_is_missing_is_no_gain_of_moves() -> None:
    view, gangs = crowded()
    assert migration_gains(asked(view, [FOUR], gangs, waited=100, amount=40)) == ()
    assert migration_gains(asked(view, [FOUR], gangs, waited=100, amount=48))[0].gain == 400


def test_a_workload_that_leaves_already_or_has_ended_does_not_move() -> None:
    view, gangs = crowded()
    given = asked(view, [FOUR], gangs, waited=100)
    running = dict(given.state.snapshot.admitted["team"])
    leaves = {**running, "team/u": replace(running["team/u"], evicted=True)}
    ended = {key: one for key, one in running.items() if key != "team/u"}
    for admitted in (leaves, ended):
        snapshot = replace(given.state.snapshot, admitted={"team": admitted})
        assert migration_gains(replace(given, state=replace(given.state, snapshot=snapshot))) == ()


def test_the_state_of_a_round_does_not_change() -> None:
    view, gangs = crowded()
    given = asked(view, [FOUR], gangs, waited=100)
    free = [view.capacity.free(leaf) for leaf in range(len(view.tree))]
    used = dict(given.state.snapshot.nodes["team"].usage)
    migration_gains(given)
    assert [view.capacity.free(leaf) for leaf in range(len(view.tree))] == free
    assert given.state.snapshot.nodes["team"].usage == used


def test_a_policy_that_fails_is_left_out() -> None:
    view, gangs = crowded()
    policies = PolicyInput(specs=(PolicySpec(name="spreading", parameters={"each": "x"}),))
    assert migration_gains(asked(view, [FOUR], gangs, waited=100, policies=policies))[0].gain == 400


def settled(seed: int) -> tuple[TopologyView, list[RunningGang], list[Head], int]:
    """A world in which all that waits fits, and most of what runs may move; and how long the workloads have waited."""
    chance = random.Random(seed)
    view = racks(*(chance.randint(4, 8) for _ in range(chance.randint(2, 4))))
    gangs = []
    for number in range(chance.randint(1, 5)):
        row = view.capacity.row(GPU)
        assert row is not None
        rack = chance.randrange(view.tree.domains(0))
        free = int((row[view.tree.leaves_of(0, rack)] == 8).sum())
        if free > 1:
            size, lost = chance.randint(1, free - 1), chance.randint(0, 5_000)
            gangs.append(gang(f"g{number}", view, {f"r{rack}": size}, lost=lost))
    heads, room = [], pods_per_domain(view.capacity, FOUR.pod_sets[0].request.shape)[0].copy()
    for number in range(chance.randint(1, 4)):
        rack = int(room.argmax())
        size = chance.randint(1, max(1, int(room[rack])))
        if room[rack] >= size:
            room[rack] -= size
            heads.append(make_head(f"w{number}", pods=size, age=100 - number))
    return view, gangs, heads, chance.randint(0, 10**6)


@pytest.mark.mechanism("2.10")
@pytest.mark.parametrize("part", range(4))
def test_nothing_moves_in_rounds_of_a_settled_world(part: int) -> None:
    """All that waits has room: no move gains anything, and no plan is found for any of it."""
    moved = 0
    for seed in range(part, ROUNDS, 4):
        view, gangs, heads, waited = settled(seed)
        for gain in migration_gains(asked(view, heads, gangs, waited=waited)):
            assert (gain.gain, gain.cost, gain.pays(0)) == (0, 0, False), seed
            moved += 1
        for head in heads[:1]:
            wanted = goal(view, head.pod_sets[0].request.count, worth=waited)
            plan = defragment({"gpu": view}, wanted, gangs, ANY)
            assert isinstance(plan, NoPlan), seed
            assert plan.reason is NoPlanReason.FITS, seed
    assert moved > ROUNDS // 8
