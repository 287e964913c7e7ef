"""Random worlds with cohorts, claims and several pod sets: a plan is never worse, and all of it can be admitted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from kqueue.core.joint.batch import Batch
from kqueue.core.joint.candidate import CandidateName
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import JointPlan
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.settings import JointOrder, JointSettings
from kqueue.core.planned_state import PlannedState
from kqueue.core.quota import FlavorResource, available
from kqueue.core.workload import Head, Snapshot
from tests.unit.core.cycle_worlds import CPU, Model

WORLDS = int(os.environ.get("KQUEUE_JOINT_WORLDS", "120"))
PARTS = 4


def batch_of(heads: Iterable[Head], strict: frozenset[str]) -> Batch:
    """The workloads by queue, by priority and age."""
    queues: dict[str, list[Head]] = {}
    for head in sorted(heads, key=lambda h: (-h.priority, h.timestamp, h.uid)):
        queues.setdefault(head.queue, []).append(head)
    return Batch(queues={name: tuple(some) for name, some in queues.items()}, strict=strict)


def drawn(seed: int) -> RoundInput:
    """A world in which some workloads run and others wait."""
    model = Model(seed)
    for _ in range(model.chance.randint(3, 12)):
        model.arrive()
        if model.one_in(2):
            model.cycle()
    for _ in range(model.chance.randint(2, 10)):
        model.arrive()
    claimed = set(model.claims)
    strict = frozenset(queue for queue in model.queues if model.one_in(4))
    waiting = [head for uid, head in sorted(model.pending.items()) if uid not in claimed]
    return RoundInput(
        state=PlannedState(
            snapshot=model.snapshot(model.claims.values()),
            rules=model.rules(),
            holders=[running for running, _ in model.admitted.values()],
        ),
        batch=batch_of(waiting, strict),
        waited={head.uid: model.chance.randint(0, 100) for head in waiting},
        settings=JointSettings(order=model.chance.choice(list(JointOrder)), steps=64),
        solver=solver(),
    )


def overdrawn(plan: JointPlan, snapshot: Snapshot) -> list[str]:
    """Hosts and quota that the plan takes beyond what is free; it shares no code with the planner's own check."""
    hosts: Counter[tuple[str, str]] = Counter()
    quota: dict[str, Counter[FlavorResource]] = {}
    for one in plan.workloads:
        if one.admitted is None:
            continue
        amounts = {p.name: p.request.requests for p in one.admitted.head.pod_sets}
        for pod_set in one.admitted.pod_sets:
            for resource, amount in pod_set.usage.items():
                column = FlavorResource(pod_set.flavors[resource], resource)
                quota.setdefault(one.head.queue, Counter())[column] += amount
            for domain in pod_set.topology.domains if pod_set.topology is not None else ():
                hosts[domain.values[-1], CPU] += amounts[pod_set.name][CPU] * domain.count
                hosts[domain.values[-1], "pods"] += domain.count
    view = snapshot.topologies["racks"]
    wrong = []
    for (host, resource), taken in hosts.items():
        leaf = view.tree.leaf_of((host,))
        free = view.capacity.free(leaf)[resource] if leaf is not None else 0
        if taken > max(0, free):
            wrong.append(f"{host}: {taken} of {free} {resource}")
    for queue, columns in quota.items():
        for column, taken in columns.items():
            if taken > max(0, available(snapshot.nodes[queue], column)):
                wrong.append(f"{queue}: {taken} of {column}")
    return wrong


@pytest.mark.mechanism("2.8")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_plan_is_worse_than_one_by_one(part: int) -> None:
    better: Counter[str] = Counter()
    for seed in range(part, WORLDS, PARTS):
        given = drawn(seed)
        plan = plan_round(given)
        best, greedy = plan.scores[plan.chosen], plan.scores[CandidateName.ONE_BY_ONE]
        assert best.key() >= greedy.key(), seed
        assert not plan.faults, seed
        assert not overdrawn(plan, given.state.snapshot), seed
        if plan.bound is not None:
            assert plan.units <= plan.bound, seed
        better["more" if best.ranks > greedy.ranks else "same"] += 1
    assert better["more"], better


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_equal_inputs_have_equal_plans(seed: int) -> None:
    assert plan_round(drawn(seed)) == plan_round(drawn(seed))


@pytest.mark.parametrize("seed", [244, 489, 977, 1650, 2492, 3241, 3768])
def test_no_plan_exceeds_its_bound(seed: int) -> None:
    """Several flavors, fewer pods, claims, and quota that is lent in part of a unit."""
    plan = plan_round(drawn(seed))
    assert plan.scores[plan.chosen].key() >= plan.scores[CandidateName.ONE_BY_ONE].key()
    assert plan.bound is not None
    assert plan.units <= plan.bound


def test_the_state_of_a_round_does_not_change() -> None:
    given = drawn(3)
    before = state_of(given.state.snapshot)
    plan_round(given)
    assert state_of(given.state.snapshot) == before


def state_of(snapshot: Snapshot) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Usage of all quota, and the free amounts of all leaves."""
    usage = {
        node.name: {column: amount for column, amount in node.usage.items() if amount}
        for queue in snapshot.nodes.values()
        for node in queue.path_to_root()
    }
    free = {name: [v.capacity.free(i) for i in range(len(v.tree))] for name, v in snapshot.topologies.items()}
    return usage, free


def test_steps_limit_repairs_and_nothing_else() -> None:
    given = drawn(1)
    plan = plan_round(replace(given, settings=JointSettings(steps=0)))
    assert plan.scores[plan.chosen].key() >= plan.scores[CandidateName.ONE_BY_ONE].key()
