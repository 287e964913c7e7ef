"""A process that loses its lease and wins it again forgets no job and keeps no charge without an owner."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.sandbox.api import JOBS, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.api_client import NONE, ROUGH, Faults
from tests.sim.chosen import is_deep, seeds
from tests.sim.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    GPU,
    LOCAL_QUEUES,
    NAMESPACE,
    WORKLOAD_PRIORITY_CLASSES,
    cluster_queue,
    job,
    ours,
)
from tests.sim.plan import draw
from tests.sim.rivalry import draw_rivalry
from tests.sim.tenancy import PEACEFUL, Tenancy, pool, rivals
from tests.sim.terms import DeposeOnce, Deposer, TermedOperator
from tests.sim.world import is_true, simulated

STRIDE = 47
"""Turns of the event loop from one run of the story to the next, in one test."""
FIRST_TURNS = range(1, STRIDE + 1) if is_deep() else (1,)
"""Where tests begin: every turn has a run with `KQUEUE_SIM_TURNS=all`, one of `STRIDE` has one otherwise."""
TURNS_OF_A_TERM = 150
"""In the mean: a step of a plan takes some hundred turns where something happens."""


@pytest.mark.parametrize("seed", seeds("0-2,21,22"))
async def test_every_promise_holds_where_the_lease_is_lost_and_won_again(seed: int) -> None:
    """Terms end at drawn turns of the event loop, between any two steps of any task.

    Jobs come to the same ends, quota holds throughout, and the audits of every term find nothing.
    """
    tenancy = rivals(seed) if seed % 2 else PEACEFUL
    plan = draw_rivalry(seed, tenancy) if seed % 2 else draw(seed)
    faults = NONE if seed % 3 == 0 else ROUGH
    async with simulated(seed, faults=faults, tenancy=tenancy, operator=TermedOperator) as world:
        invariants.watch(world)
        world.on_turn = deposer = Deposer(world, seed, every=TURNS_OF_A_TERM)
        actor = _Deposed(world, plan)
        await actor.run()
        assert deposer.losses >= 5


def _one_queue() -> Tenancy:
    """One ClusterQueue of 8 CPUs, in which higher priorities preempt lower ones."""
    queue = cluster_queue("q", flavors={"cheap": {"cpu": 8, GPU: 0}})
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    return Tenancy(
        objects=(
            (FLAVORS, ours("ResourceFlavor", "cheap", spec={"nodeLabels": {POOL_LABEL: "cheap"}})),
            (WORKLOAD_PRIORITY_CLASSES, ours("WorkloadPriorityClass", "high", value=10)),
            (CLUSTER_QUEUES, queue),
            (LOCAL_QUEUES, ours("LocalQueue", "q", namespace=NAMESPACE, spec={"clusterQueue": "q"})),
        ),
        pools=(pool("cheap", (1, 1, 2)),),
        placed=frozenset(),
    )


def _job(name: str, **settings: Any) -> Object:
    return job(name, queue="q", pods=1, gpus=0, topology=None, run_seconds=8, **settings)


async def _told(at: int, *, drain: float) -> bool:
    """Three Jobs come, then one that preempts them, and the lease is lost at a turn; False: the story was over by then.

    Nothing else happens in this world, so whoever is forgotten stays so.
    """
    slow = Faults(latency=1000, latency_max=0.3)
    async with simulated(at, faults=slow, tenancy=_one_queue(), operator=TermedOperator) as world:
        invariants.watch(world)
        await world.pass_time(2)
        world.on_turn = once = DeposeOnce(world, at, drain=drain)
        for number in range(3):
            await world.submit(_job(f"low-{number}", cpus="3"))
        await world.pass_time(0.4)
        await world.submit(_job("high-3", cpus="6", priority="high"))
        await world.pass_time(60)
        ends = {name: is_true(world.find(JOBS, name), "Complete") for name in ("low-0", "low-1", "low-2", "high-3")}
        assert all(ends.values()), f"the lease was lost at turn {at}: {ends}"
        assert invariants.breaches(world, invariants.ALWAYS + invariants.AT_REST) == []
        return once.done


@pytest.mark.parametrize("drain", [0.0, 1.0], ids=["writes are cut off at once", "writes have a second"])
@pytest.mark.parametrize("first", [pytest.param(n, marks=pytest.mark.slow if n > 1 else ()) for n in FIRST_TURNS])
async def test_nothing_is_forgotten_at_whatever_turn_the_lease_is_lost(first: int, drain: float) -> None:
    """The lease is lost once in each run, at every STRIDE-th turn of the event loop until the last Job has ended.

    A turn is a step of each task that is ready, so every await of every task ends a turn; a task that was made in the
    turn is cancelled before its first step.
    """
    at = first
    while await _told(at, drain=drain):
        at += STRIDE
    assert at > STRIDE * 3


class _Deposed(Actor):
    named = "lease_is_lost"

    async def rest(self) -> None:
        """Terms last while the world is at rest."""
        deposer, self.world.on_turn = self.world.on_turn, lambda: None
        await super().rest()
        self.world.on_turn = deposer

    async def end(self) -> None:
        """Terms last from now on."""
        self.world.on_turn = lambda: None
        await super().end()
