"""The contract of placers, as a check that other packages run in their tests.

    from kqueue.placing.contract import check_placer

    def test_contract():
        check_placer(my_placer)

Questions are drawn from seeds, so a failure can be repeated: its message names the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    NodeFacts,
    PodSetRequest,
    SliceLayer,
    TopologyRequest,
    Tree,
    membership,
)
from kqueue.core.topology.counting import Tally, tally
from kqueue.core.topology.placers import Placer, Question, greedy, problem_with
from kqueue.core.topology.request import DEFAULT_PROFILE, Resolved, resolve
from kqueue.core.topology.result import Misfit

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)


class ContractError(AssertionError):
    """A placer broke its contract; the message says how, and with which seed."""


def check_placer(placer: Placer, *, seeds: Iterable[int] = range(300)) -> None:
    """Ask a placer questions of many forms and sizes.  Raises ContractError at the first wrong answer.

    A right answer places each pod in a domain with enough capacity, all pods in one domain if that is required, and no
    slice across domains; it is a Misfit if no placement exists; it is the same for the same question; and the placer
    does not change the question.
    """
    for seed in seeds:
        question = drawn(random.Random(seed))
        before = _copied(question.counts)
        found, again = placer(question), placer(question)
        if found != again:
            raise ContractError(f"seed {seed}: the same question had two answers, {found} and {again}")
        if _copied(question.counts) != before:
            raise ContractError(f"seed {seed}: the placer changed the counts of the question")
        possible = not isinstance(greedy(question), Misfit)
        if isinstance(found, Misfit):
            if possible:
                raise ContractError(f"seed {seed}: there is room, and the placer found none: {found}")
            continue
        if not possible:
            raise ContractError(f"seed {seed}: there is no room, and the placer found {found}")
        problem = problem_with(question, found.arrangement)
        if problem is not None:
            raise ContractError(f"seed {seed}: {problem}")


def drawn(chance: random.Random) -> Question:
    """Return a random question about a cluster of up to 3 blocks, 3 racks per block and 5 hosts per rack."""
    while True:
        tree = _tree(chance)
        workers, leader = _pod_sets(chance)
        resolved = resolve(workers, tree.levels, DEFAULT_PROFILE)
        if isinstance(resolved, Resolved):
            counts = tally(Capacity.of(tree), workers, leader, resolved, affinity=False)
            return Question(tree=tree, counts=counts, request=resolved, leaders=int(leader is not None), steps=10_000)


def _tree(chance: random.Random) -> Tree:
    nodes = [
        NodeFacts(
            name=host,
            labels={BLOCK: f"b{block}", RACK: f"b{block}-r{rack}", HOSTNAME: host},
            allocatable={"cpu": 1000 * chance.randint(0, 6), "pods": 110},
        )
        for block in range(chance.randint(1, 3))
        for rack in range(chance.randint(1, 3))
        for number in range(chance.randint(1, 5))
        for host in (f"b{block}-r{rack}-h{number}",)
    ]
    leaves = membership(nodes, levels=LEVELS, node_labels={}).leaves
    return Tree(topology="contract", levels=LEVELS, leaves=leaves)


def _pod_sets(chance: random.Random) -> tuple[PodSetRequest, PodSetRequest | None]:
    level = chance.choice(LEVELS)
    asked: dict[str, Any] = chance.choice([{"required": level}, {"preferred": level}])
    size = chance.choice([1, 1, 2, 3])
    count = size * chance.randint(1, 8)
    layers = () if size == 1 else (SliceLayer(chance.choice(LEVELS), size),)
    group = "g" if chance.random() < 0.3 else None
    workers = PodSetRequest(
        name="workers",
        count=count,
        requests={"cpu": 1000 * chance.randint(1, 3)},
        topology=TopologyRequest(slices=layers, **asked),
        group=group,
    )
    if group is None:
        return workers, None
    leader = PodSetRequest(
        name="leader", count=1, requests={"cpu": 1000}, topology=TopologyRequest(**asked), group=group
    )
    return workers, leader


def _copied(counts: Tally) -> list[list[list[int]]]:
    tables = (counts.pods, counts.slices, counts.pods_led, counts.slices_led, counts.leaders or [])
    return [[level.tolist() for level in table] for table in tables]
