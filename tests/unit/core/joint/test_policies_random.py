"""Random worlds with random policies: no plan is worse than one by one, all of it can be admitted, and it is the same
for the same input.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.joint.candidate import CandidateName
from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.round_policies import PolicyInput
from kqueue.core.joint.statistics import NodeStatistics
from kqueue.core.joint.traits import Traits
from tests.unit.core.joint.test_never_worse import WORLDS, drawn, overdrawn

PARTS = 4
PARAMETERS: dict[str, dict[str, Any]] = {
    "interference": {"matrix": {"x": {"x": 40, "y": 100}}},
    "network": {"resource": "cpu"},
    "locality": {"perLevel": [50, 20, 1]},
}
NAMES = (
    "topology",
    "spreading",
    "packing",
    "locality",
    "network",
    "interference",
    "utilisation",
    "shortest",
    "fairness",
)


def with_policies(seed: int) -> RoundInput:
    """A drawn world, with policies, traits and statistics."""
    given, chance = drawn(seed), random.Random(seed)
    tree = given.state.snapshot.topologies["racks"].tree
    names = chance.sample(NAMES, chance.randint(1, 4))
    specs = tuple(
        PolicySpec(name=name, weight=chance.choice([1, 500, 1000, 3000]), parameters=PARAMETERS.get(name, {}))
        for name in names
    )
    uids = [head.uid for head in given.batch.heads()]
    uids += [one.uid for some in given.state.snapshot.admitted.values() for one in some.values()]
    traits = {
        uid: Traits(
            prefers=((tree.levels[0], chance.choice(tree.paths)[0]),) if chance.random() < 0.5 else (),
            interference=chance.choice(["", "x", "y"]),
            expected_seconds=chance.choice([None, 60, 7200]),
        )
        for uid in uids
    }
    samples = {
        node.name: [{"cpu": chance.randint(0, 9000)}]
        for leaf in tree.leaves
        for node in leaf.nodes
        if chance.random() < 0.7
    }
    return replace(given, policies=PolicyInput(specs=specs, traits=traits, statistics=NodeStatistics.of(samples)))


def seeds(part: int) -> Iterator[int]:
    yield from range(part, WORLDS, PARTS)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_plan_with_policies_is_worse_than_one_by_one(part: int) -> None:
    cheaper = waits = 0
    for seed in seeds(part):
        given = with_policies(seed)
        plan = plan_round(given)
        best, greedy = plan.scores[plan.chosen], plan.scores[CandidateName.ONE_BY_ONE]
        assert best.key() >= greedy.key(), seed
        assert not plan.failed_policies, seed
        assert not plan.faults, seed
        assert not overdrawn(plan, given.state.snapshot), seed
        assert plan.bound is None or plan.units <= plan.bound, seed
        for one in plan.workloads:
            assert not one.is_deferred or (one.admitted is None and not one.is_proven), seed
        cheaper += best.cost < greedy.cost
        waits += sum(one.is_deferred for one in plan.workloads)
    assert cheaper, "policies must change places in some world"
    assert waits, "gangs must wait for their data in some world"


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_equal_inputs_with_policies_have_equal_plans(seed: int) -> None:
    given = with_policies(seed)
    there = pickle.loads(pickle.dumps(replace(given, solver=None)))
    assert plan_round(given) == plan_round(replace(there, solver=given.solver))
