"""Random clusters: a plan keeps its promises, and moves nobody who did not agree."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from kqueue.core.joint.defrag import DefragPlan, DefragSettings, Goal, Move, NoPlan, NoPlanReason, defragment
from kqueue.core.joint.moving import RunningGang, charge, placed
from kqueue.core.topology import HOSTNAME, Capacity, Leaf, NodeFacts, PodSetRequest, TopologyRequest, Tree
from kqueue.core.topology.request import DEFAULT_PROFILE, SliceLayer
from kqueue.core.topology.result import Path
from kqueue.core.workload import TopologyView
from tests.builders import GPU

LEVELS = ("block", "rack", HOSTNAME)
WORLDS = 300
LIMITS = DefragSettings(moves=5, pods=40, pod_seconds=30_000)


def tree_of(blocks: int, racks: int, hosts: int) -> Tree:
    """Blocks of racks of hosts."""
    leaves = []
    for number in range(blocks * racks * hosts):
        rack = number // hosts
        path = (f"b{rack // racks}", f"r{rack:02}", f"h{number:03}")
        node = NodeFacts(name=path[-1], labels=dict(zip(LEVELS, path, strict=True)), allocatable={GPU: 8, "pods": 50})
        leaves.append(Leaf(path, (node,)))
    return Tree(topology="dc", levels=LEVELS, leaves=leaves)


def request_of(chance: random.Random) -> tuple[PodSetRequest, ...]:
    """One pod set, or a leader with its workers."""
    pods, gpus = chance.randint(1, 6), chance.choice([2, 4, 8, 8, 8])
    topology = chance.choice(
        [
            TopologyRequest(required="rack"),
            TopologyRequest(required="rack"),
            TopologyRequest(required="block"),
            TopologyRequest(preferred="rack"),
            TopologyRequest(unconstrained=True),
            TopologyRequest(required="block", slices=(SliceLayer("rack", 2),)),
        ]
    )
    if topology.slices:
        pods += pods % 2
    workers = PodSetRequest(name="workers", count=pods, requests={GPU: gpus}, topology=topology)
    if chance.random() < 0.8 or topology.slices:
        return (workers,)
    return (
        PodSetRequest(name="leader", count=1, requests={GPU: 2}, topology=topology, group="g"),
        PodSetRequest(name="workers", count=pods, requests={GPU: gpus}, topology=topology, group="g"),
    )


def drawn(seed: int) -> tuple[Mapping[str, TopologyView], Goal, list[RunningGang]]:
    """A cluster that gangs have filled, and from which every third one has left."""
    chance = random.Random(seed)
    tree = tree_of(chance.randint(1, 2), chance.randint(2, 4), chance.randint(3, 8))
    views = {"gpu": TopologyView("dc", tree, Capacity.of(tree))}
    there, running = [], []
    for number in range(60):
        requests = {"gpu": request_of(chance)}
        target = placed(requests, views, DEFAULT_PROFILE)
        if target is None:
            continue
        charge(target.usage, views)
        there.append((number, requests, target))
    for number, requests, target in chance.sample(there, 2 * len(there) // 3):
        running.append(
            RunningGang(
                key=f"ns/g{number:02}",
                queue="team",
                requests=requests,
                places=target.places,
                usage=target.usage,
                lost=chance.choice([60, 360, 1260]),
                immovable=() if chance.random() < 0.7 else ("kqueue.dev/reschedule: Never",),
            )
        )
    fresh = Capacity.of(tree, usage=[usage for gang in running for usage in gang.usage["gpu"]])
    hosts = max(Counter(path[1] for path in tree.paths).values())
    wanted = PodSetRequest(
        name="main",
        count=chance.randint(max(2, hosts // 2), hosts),
        requests={GPU: 8},
        topology=TopologyRequest(required="rack"),
    )
    return {"gpu": TopologyView("dc", tree, fresh)}, Goal(flavor="gpu", level=1, requests=(wanted,)), running


def held(places: Mapping[str, Sequence[tuple[Path, int]]], gang: RunningGang) -> Counter[Path]:
    """GPUs by host."""
    gpus = {request.name: request.requests[GPU] for request in gang.requests["gpu"]}
    found: Counter[Path] = Counter()
    for name, domains in places.items():
        for path, count in domains:
            found[path] += gpus[name] * count
    return found


def used(move: Move, places: Mapping[str, Sequence[tuple[Path, int]]]) -> list[int]:
    """The domains with pods of a workload, by level."""
    return [len({path[: level + 1] for path in held(places, move.gang)}) for level in range(3)]


def problems(plan: DefragPlan, goal: Goal, tree: Tree, running: list[RunningGang]) -> list[str]:
    """What is wrong with a plan; the check shares no code with the search."""
    wrong = []
    total: Counter[Path] = Counter()
    for gang in running:
        total += held(gang.places, gang)
    for move in plan.moves:
        target = held(move.target.places, move.gang)
        total += target  # its present place is not free yet
        if move.gang.immovable:
            wrong.append(f"{move.gang.key} did not agree")
        if sum(target.values()) != sum(held(move.gang.places, move.gang).values()):
            wrong.append(f"{move.gang.key} does not move as a whole")
        if any(path[:2] == plan.domain for path in target):
            wrong.append(f"{move.gang.key} moves into the domain")
        if any(
            after > before
            for after, before in zip(used(move, move.target.places), used(move, move.gang.places), strict=True)
        ):
            wrong.append(f"{move.gang.key} is worse off")
        (*_, workers) = move.gang.requests["gpu"]
        if workers.topology.slices:
            racks = Counter[Path]()
            for path, count in move.target.places["workers"]:
                racks[path[:2]] += count
            if any(count % 2 for count in racks.values()):
                wrong.append(f"{move.gang.key} has a slice in two racks")
    if any(gpus > 8 for gpus in total.values()):
        wrong.append("a host has too little room before anybody leaves")
    for move in plan.moves:
        total -= held(move.gang.places, move.gang)
    racks = Counter(path[:2] for path in tree.paths if total[path] == 0)
    if racks[plan.domain] < goal.pods:
        wrong.append("the domain has no room for the gang")
    if sum(rack // goal.pods for rack in racks.values()) != plan.after.slots or plan.after.slots <= plan.before.slots:
        wrong.append("slots are not as promised")
    return wrong


@pytest.mark.parametrize("part", range(3))
def test_plans_keep_their_promises(part: int) -> None:
    results: Counter[str] = Counter()
    for seed in range(part, WORLDS, 3):
        views, goal, running = drawn(seed)
        plan = defragment(views, goal, running, LIMITS)
        if isinstance(plan, NoPlan):
            results[plan.reason] += 1
            continue
        results["plan"] += 1
        assert not problems(plan, goal, views["gpu"].tree, running), seed
        assert plan.cost <= LIMITS.pod_seconds
        assert len(plan.moves) <= LIMITS.moves
        assert sum(move.gang.pods for move in plan.moves) <= LIMITS.pods
    assert results["plan"] >= 10, results
    assert results[NoPlanReason.BLOCKED] >= 3, results


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_equal_worlds_have_equal_plans(seed: int) -> None:
    def moves(turned: bool) -> object:
        views, goal, running = drawn(seed)
        plan = defragment(views, goal, running[::-1] if turned else running, LIMITS)
        return plan if isinstance(plan, NoPlan) else (plan.domain, [(m.gang.key, m.target.places) for m in plan.moves])

    assert moves(False) == moves(True)


def test_nothing_moves_for_a_gang_that_has_room() -> None:
    for seed in range(WORLDS):
        views, goal, running = drawn(seed)
        plan = defragment(views, goal, running, LIMITS)
        fits = placed({"gpu": goal.requests}, views, DEFAULT_PROFILE) is not None
        assert fits is (isinstance(plan, NoPlan) and plan.reason is NoPlanReason.FITS), seed
