"""Fair sharing ends on target: preemption stops where the weights say, however long victims take to leave.

Every queue always has more workloads waiting.  Shares are fair when, below every cohort, no branch has more than a
sibling would have with one workload more: then nothing that was taken could have been given to that sibling instead.
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import Any

import pytest

from kqueue.core.fair_share import dominant_share
from kqueue.core.preemption import SharingStrategy
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import PodSetRequest, TopologyRequest
from kqueue.core.workload import Admitted, Head, PodSet, Preempts, QueueSpec, ResourceGroup
from tests.builders import START
from tests.unit.core.cycle_worlds import CPU, Model

BILLION = 1_000_000_000
COLUMN = FlavorResource("pool", CPU)
WORLDS = int(os.environ.get("KQUEUE_SHARE_WORLDS", "12"))
MAX_CYCLES = 600
STRATEGIES = {
    "both": (SharingStrategy.LTE, SharingStrategy.LTI),
    "final share": (SharingStrategy.LTE,),
    "initial share": (SharingStrategy.LTI,),
}

_ONE_POD = PodSetRequest(name="main", count=1, requests={CPU: 1}, topology=TopologyRequest())

Shape = list[Any]
"""[quotas and weight, children]; a child is a shape, or the name of a queue with its quotas and weight."""


class Shares(Model):
    """A world of equal workloads, many of which wait behind every queue."""

    def __init__(
        self, shape: Shape, *, fair: tuple[SharingStrategy, ...] | None, reclaims: Preempts, seed: int = 0
    ) -> None:
        self.given, self.reclaims = shape, reclaims
        super().__init__(seed, fair)
        self.evictions = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queues, self.shape = list(_queues(self.given)), self.given
        self.specs = {name: self._spec(name) for name in self.queues}

    def _spec(self, name: str) -> QueueSpec:
        return QueueSpec(
            name=name,
            groups=(ResourceGroup((CPU,), ("pool",)),),
            preempts_own=Preempts.LOWER_PRIORITY,
            reclaims=self.reclaims,
        )

    def wants(self, queue: str, count: int, *, priority: int = 1) -> None:
        """So many workloads of one cpu come to a queue."""
        for _ in range(count):
            self.clock += 1
            uid = f"{queue}-{self.clock:04}"
            self.pending[uid] = Head(
                key=f"{queue}/{uid}",
                uid=uid,
                queue=queue,
                priority=priority,
                timestamp=START + timedelta(seconds=self.clock),
                pod_sets=(PodSet(request=_ONE_POD, quota_requests={CPU: 1}, asks_topology=False),),
            )

    def runs(self, queue: str, count: int, *, priority: int = 0) -> None:
        """So many workloads of one cpu run in a queue."""
        before = set(self.pending)
        self.wants(queue, count, priority=priority)
        for uid in set(self.pending) - before:
            head = self.pending.pop(uid)
            self.admitted[uid] = (
                Admitted(
                    key=head.key,
                    uid=uid,
                    queue=queue,
                    local_queue="ns/main",
                    priority=priority,
                    timestamp=head.timestamp,
                    reserved_at=head.timestamp,
                    evicted=False,
                    usage={COLUMN: 1},
                    domains={},
                ),
                head,
            )

    def release(self, uid: str) -> None:
        """As before; evictions are counted."""
        self.evictions += self.admitted[uid][0].evicted
        super().release(uid)

    def held(self, queue: str) -> int:
        """Workloads that run in a queue and stay there."""
        return sum(w.queue == queue and not w.evicted for w, _ in self.admitted.values())

    def settle(self, *, one_in: int) -> None:
        """Run cycles until nothing happens any more; each cycle one in so many victims has left."""
        for _ in range(MAX_CYCLES):
            self.cycle()
            for uid in self.leaving:
                if self.one_in(one_in):
                    self.release(uid)
            if not self.leaving and not self.heads():
                return
        pytest.fail(f"seed {self.seed}: {self.evictions} evictions, and it goes on")

    def unfair(self) -> list[str]:
        """Siblings of which one has more than the other one would have with a workload more.

        Where the final share counts, only those where that is so even if the one gave a workload away.
        """
        root = next(iter(self.snapshot().nodes.values())).root
        given = -1 if self.fair == (SharingStrategy.LTE,) else 0
        pairs = [(r, p) for cohort in root.walk() for r in cohort.children for p in cohort.children if r is not p]
        return [
            f"{rich.name} has {dominant_share(rich).precise():.1f}, {poor.name} would have {more.precise():.1f}"
            for rich, poor in pairs
            if (left := dominant_share(rich, {COLUMN: given})) > (more := dominant_share(poor, {COLUMN: 1}))
            or (given and left == more and left.is_borrowing)
        ]


def _queues(shape: Shape) -> list[str]:
    return [name for child in shape[1] for name in ([child[0]] if isinstance(child, tuple) else _queues(child))]


def _quotas(nominal: int = 0, weight: int = 1) -> dict[str, Any]:
    return {"nominal": {COLUMN: nominal}, "weight": weight}


def one_and_two() -> Shape:
    """A parent with 6 cpu; below it a cohort of weight 1, one of weight 2, and one of weight 0."""
    light: Shape = [_quotas(weight=1), [("light", _quotas())]]
    heavy: Shape = [_quotas(weight=2), [("heavy", _quotas())]]
    scavengers: Shape = [_quotas(weight=0), [("scavenger", _quotas())]]
    return [_quotas(6), [light, heavy, scavengers]]


STARTS = {"scavenger": {"scavenger": 6}, "light": {"light": 6}, "heavy": {"heavy": 6}, "both": {"light": 3, "heavy": 3}}


@pytest.mark.parametrize("fair", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("slow", ["light", "heavy", "none"])
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_weights_of_one_and_two_end_at_two_and_four(
    start: dict[str, int], slow: str, fair: tuple[SharingStrategy, ...]
) -> None:
    """It matters neither who runs what is preempted, nor whose victims take longer to leave."""
    world = Shares(one_and_two(), fair=fair, reclaims=Preempts.LOWER_PRIORITY)
    for queue, count in start.items():
        world.runs(queue, count)
    world.wants("light", 6)
    world.wants("heavy", 6)
    for cycle in range(80):
        world.cycle()
        claimed = {victim: claim.queue for claim in world.claims.values() for victim in claim.victims}
        for uid in world.leaving:
            if claimed.get(uid) != slow or cycle % 4 == 3:
                world.release(uid)
    keeps_one = "scavenger" in start and fair == (SharingStrategy.LTE,)  # without it the scavenger's share would be 0
    assert (world.held("light"), world.held("heavy")) == (2, 3 if keeps_one else 4)
    assert world.evictions <= 6


def random_shape(chance: random.Random) -> Shape:
    """Cohorts of one or two levels with weights from 1 to 4, queues below them, quota at the root alone."""
    names = iter(f"q{i}" for i in range(99))

    def child(levels: int) -> Any:
        if levels == 0 or chance.randrange(3) == 0:
            return next(names), _quotas(weight=chance.randint(1, 4))
        return [_quotas(weight=chance.randint(1, 4)), [child(levels - 1) for _ in range(chance.randint(1, 3))]]

    return [_quotas(chance.randint(4, 14)), [child(chance.randint(0, 2)) for _ in range(chance.randint(2, 4))]]


def random_world(seed: int, fair: tuple[SharingStrategy, ...] | None, reclaims: Preempts) -> Shares:
    """All quota is in use when workloads come to every queue, more than it could ever run."""
    chance = random.Random(seed)
    shape = random_shape(chance)
    world = Shares(shape, fair=fair, reclaims=reclaims, seed=seed)
    quota = shape[0]["nominal"][COLUMN]
    for _ in range(quota):
        world.runs(chance.choice(world.queues), 1)
    for queue in world.queues:
        world.wants(queue, quota)
    return world


@pytest.mark.parametrize("reclaims", [Preempts.LOWER_PRIORITY, Preempts.ANY])
@pytest.mark.parametrize("fair", STRATEGIES.values(), ids=STRATEGIES)
def test_shares_end_on_target_in_random_trees(fair: tuple[SharingStrategy, ...], reclaims: Preempts) -> None:
    """From any start, with victims that take time to leave, and with few evictions."""
    for seed in range(WORLDS):
        world = random_world(seed, fair, reclaims)
        quota = len(world.admitted)
        world.settle(one_in=seed % 5 + 1)
        assert world.unfair() == [], f"seed {seed}"
        assert len(world.admitted) == quota, f"seed {seed}"
        assert world.evictions <= 2 * quota, f"seed {seed}"


def test_what_waits_without_candidates_costs_later_preemptors_no_further_victim() -> None:
    """Beside free quota that it may keep it is charged nothing, so each preemptor evicts what it needs."""
    for seed in range(8, 120, 16):
        world = random_world(seed, (SharingStrategy.LTI,), Preempts.LOWER_PRIORITY)
        for _ in range(30):
            world.cycle()
            assert [c for c in world.claims.values() if len(c.victims) > 1] == [], f"seed {seed}"
            for uid in world.leaving:
                world.release(uid)


@pytest.mark.parametrize("reclaims", [Preempts.LOWER_PRIORITY, Preempts.ANY])
def test_classical_preemption_comes_to_an_end_in_random_trees(reclaims: Preempts) -> None:
    """Where priority alone counts no workload has to leave twice."""
    for seed in range(WORLDS):
        world = random_world(seed, None, reclaims)
        quota = len(world.admitted)
        world.settle(one_in=seed % 5 + 1)
        assert world.evictions <= quota, f"seed {seed}"
