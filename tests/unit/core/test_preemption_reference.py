"""The search for targets against the plain reference: the same targets on random trees."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.preemption import Preemptor, Rules, SharingStrategy
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.workload import Admitted, Preempts, QueueSpec, Snapshot
from tests.unit.core.preemption_cases import (
    CPU,
    GPUS,
    NOW,
    cohort,
    find_targets,
    leaf,
    named,
    none_may_be_preempted,
    policy,
    runs,
    state,
    wants,
    world,
)
from tests.unit.core.reference_preemption import Answer, classical, fair

CASES = int(os.environ.get("KQUEUE_REFERENCE_CASES", "2000"))
BATCH = 100


class World:
    """A random tree of up to three levels of cohorts, what runs in it, and who wants to."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._columns = self._chance.choice([[GPUS], [GPUS, CPU]])
        self._queues: list[str] = []
        root = self._queue() if self._one_in(10) else self._cohort("c", levels=self._chance.randint(1, 3))
        running = [w for queue in self._queues for w in self._workloads(queue)]
        self.snapshot = world([root], running, [self._policy(queue) for queue in self._queues])
        self.preemptor = self._preemptor()
        protected = frozenset([w.uid for w in running if self._one_in(12)])
        self.rules = Rules(now=NOW, spared={self.preemptor.uid: protected})

    def _one_in(self, n: int) -> bool:
        return self._chance.randrange(n) == 0

    def _quotas(self) -> dict[str, Any]:
        nominal = {column: self._chance.choice([0, 0, 2, 3, 4, 6]) for column in self._columns}
        limit = self._chance.randint(0, 5) if self._one_in(4) else None
        ceiling = self._chance.randint(0, 6) if self._one_in(4) else None
        return {"nominal": nominal, "lends": limit, "borrows": ceiling, "weight": self._chance.choice([1, 1, 2, 3, 0])}

    def _cohort(self, name: str, *, levels: int) -> QuotaNode:
        children = [self._queue() for _ in range(self._chance.randint(1, 3))]
        if levels > 1:
            inner = range(self._chance.randint(1, 2))
            children += [self._cohort(f"{name}{i}", levels=levels - self._chance.randint(1, 2)) for i in inner]
        self._chance.shuffle(children)
        return cohort(name, *children, **self._quotas())

    def _queue(self) -> QuotaNode:
        name = f"q{len(self._queues)}"
        self._queues.append(name)
        return leaf(name, **self._quotas())

    def _workloads(self, queue: str) -> list[Admitted]:
        return [
            runs(
                f"{queue}-{self._chance.randrange(100):02}-{i}",
                queue,
                self._amounts(4),
                priority=self._chance.randint(0, 3),
                reserved=self._chance.choice([None, 0, 1, 2, 3]),
                created=self._chance.choice([99, 100, 101]),
                evicted=self._one_in(8),
            )
            for i in range(self._chance.randint(0, 4))
        ]

    def _amounts(self, most: int) -> dict[FlavorResource, int]:
        some = self._chance.sample(self._columns, self._chance.randint(1, len(self._columns)))
        return {column: self._chance.randint(1, most) for column in some}

    def _policy(self, name: str) -> QueueSpec:
        rules = list(Preempts)
        return policy(
            name,
            preempts_own=self._chance.choice(rules),
            reclaims=self._chance.choice([*rules[1:], *rules[1:], rules[0]]),
            borrow_preempts=self._one_in(2),
            borrow_preempts_up_to=self._chance.choice([None, None, 0, 1, 2]),
        )

    def _preemptor(self) -> Preemptor:
        amounts = self._amounts(9)
        needs = self._chance.sample(list(amounts), self._chance.randint(1, len(amounts)))
        return wants(self._chance.choice(self._queues), amounts, priority=self._chance.randint(0, 4), needs=needs)


def assert_same(seed: int, world: World, rules: Rules, expected: Callable[[Snapshot, Preemptor, Rules], Answer]) -> int:
    """Compare one answer; how many targets there are."""
    before = state(world.snapshot)
    is_clear = none_may_be_preempted(world.snapshot, world.preemptor, world.preemptor.needs, rules)
    targets = named(find_targets(world.snapshot, world.preemptor, rules))
    assert targets == expected(world.snapshot, world.preemptor, rules), f"seed {seed}"
    assert not (is_clear and targets), f"seed {seed}: somebody may go all the same"
    assert state(world.snapshot) == before, f"seed {seed}"
    return len(targets)


@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_by_quota_and_priority_the_reference_finds_the_same_targets(start: int) -> None:
    """Same targets, same reasons, same order, and the snapshot is left as it was."""
    found = []
    for seed in range(start, start + BATCH):
        world = World(seed)
        found.append(assert_same(seed, world, world.rules, classical))
    assert sum(n > 0 for n in found) > BATCH // 10


@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_by_fair_shares_the_reference_finds_the_same_targets(start: int) -> None:
    """With any of the strategies, and with or without the right to what is nominal."""
    found = []
    for seed in range(start, start + BATCH):
        world = World(seed)
        strategies = [(SharingStrategy.LTE,), (SharingStrategy.LTI,), (SharingStrategy.LTE, SharingStrategy.LTI)][
            seed % 3
        ]
        rules = replace(world.rules, fair=strategies, within_nominal=seed % 2 == 0)
        found.append(assert_same(seed, world, rules, fair))
    assert sum(n > 0 for n in found) > BATCH // 10
