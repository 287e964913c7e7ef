"""Policies of ClusterQueues in a whole world: quotas that follow nodes, the order of victims, budgets."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from kqueue.core.quantity import parse_quantity
from kqueue.model.budgets import ledger
from kqueue.sandbox.api import JOBS, NODES, Object
from kqueue.sandbox.json_object import stamp
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants
from tests.sim.actor import Actor
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
from tests.sim.tenancy import Tenancy, pool
from tests.sim.world import World, is_true, simulated

RESOLVED = "kqueue.dev/resolved-quota"


def one_queue(cpus: int, **annotations: str) -> Tenancy:
    """Four nodes of eight CPUs, and one ClusterQueue in which higher priorities preempt lower ones."""
    queue = cluster_queue("q", flavors={"cheap": {"cpu": cpus, GPU: 0}})
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    queue["metadata"]["annotations"] = {f"kqueue.dev/{k.replace('_', '-')}": text for k, text in annotations.items()}
    return Tenancy(
        objects=(
            (FLAVORS, ours("ResourceFlavor", "cheap", spec={"nodeLabels": {POOL_LABEL: "cheap"}})),
            (WORKLOAD_PRIORITY_CLASSES, ours("WorkloadPriorityClass", "high", value=10)),
            (CLUSTER_QUEUES, queue),
            (LOCAL_QUEUES, ours("LocalQueue", "q", namespace=NAMESPACE, spec={"clusterQueue": "q"})),
        ),
        pools=(pool("cheap", (1, 1, 4), cpus=8),),
        placed=frozenset(),
    )


def cpus(name: str, amount: int, **more: Any) -> Object:
    """A Job of one pod that runs for long."""
    return job(name, queue="q", pods=1, gpus=0, topology=None, run_seconds=30_000, cpus=str(amount), **more)


def running(world: World) -> set[str]:
    """The Jobs that kqueue has started."""
    return {o["metadata"]["name"] for o in world.objects(JOBS) if not o["spec"].get("suspend")}


def resolved(world: World) -> int:
    """The resolved quota of ClusterQueue `q` in CPUs."""
    found = world.find(CLUSTER_QUEUES, "q")
    assert found is not None
    text = found["metadata"]["annotations"][RESOLVED]
    return parse_quantity(text.removeprefix("cheap/cpu="), "cpu") // 1000


async def test_a_resolved_quota_follows_the_nodes_and_evicts_nothing_at_once() -> None:
    """Half of 32 CPUs, as the spec says at first; the controller is killed in the middle of a descent."""
    tenancy = one_queue(16, quota_from_capacity="cheap/cpu=500")
    async with simulated(1, tenancy=tenancy) as world:
        invariants.watch(world)
        actor = Actor(world, draw(1))
        await world.pass_time(20)
        for number in range(3):
            await world.submit(cpus(f"j{number}", 6))
        await world.pass_time(20)
        assert (resolved(world), running(world)) == (16, {"j0", "j1"})
        spec = world.find(CLUSTER_QUEUES, "q")

        for node in world.objects(NODES)[:3]:
            await actor.cordon(node["metadata"]["name"])
        seen = []
        for minute in range(8):
            if minute == 3:
                world.kill_controller()
                world.start_controller()
            await world.pass_time(60)
            seen.append(resolved(world))
            assert running(world) == {"j0", "j1"}
        assert seen == sorted(seen, reverse=True)
        assert seen[0] >= 13
        assert seen[-1] < 10
        assert all(before - after <= 2 for before, after in pairwise(seen))

        await actor.repair_nodes()
        await world.pass_time(20)
        assert resolved(world) == 16
        now = world.find(CLUSTER_QUEUES, "q")
        assert spec is not None
        assert now is not None
        assert now["spec"] == spec["spec"]
        assert invariants.breaches(world, invariants.ALWAYS) == []


async def test_of_equal_victims_the_one_goes_that_loses_least() -> None:
    """All start in the same second; one has written a checkpoint, and a third claims one in the future."""
    async with simulated(2, tenancy=one_queue(9)) as world:
        invariants.watch(world)
        await world.pass_time(2)
        for number in range(3):
            await world.submit(cpus(f"j{number}", 3))
        await world.pass_time(600)
        assert running(world) == {"j0", "j1", "j2"}
        for name, seconds in (("j1", -30), ("j2", 3000)):
            notes = {"kqueue.dev/last-checkpoint": stamp(world.clock.now() + timedelta(seconds=seconds))}
            await world.api.patch(JOBS, name, {"metadata": {"annotations": notes}}, namespace=NAMESPACE)
        await world.pass_time(5)
        await world.submit(cpus("urgent", 3, priority="high"))
        await world.pass_time(20)
        assert running(world) == {"j0", "j2", "urgent"}
        assert is_true(world.workload_of("j1"), "Preempted")
        assert invariants.breaches(world, invariants.ALWAYS) == []


def completed(world: World) -> int:
    """The number of Jobs that have ended well."""
    return sum(is_true(one, "Complete") for one in world.objects(JOBS))


async def test_no_job_starts_after_the_end_of_its_budget_until_the_next_period() -> None:
    """Half an hour of one CPU in each half hour; four jobs of two CPUs and 150 seconds fit at a time.

    The first four and the next four start, because 1200 seconds of 1800 are used then; after five minutes 2400 are.  The
    controller is killed in the middle of the second four, and while the last four wait.
    """
    async with simulated(3, tenancy=one_queue(8, budgets="cpu=500mh/1800s")) as world:
        await world.pass_time(2)
        for number in range(12):
            await world.submit(job(f"j{number}", queue="q", pods=1, gpus=0, topology=None, run_seconds=150, cpus="2"))
        await world.pass_time(200)
        assert (completed(world), len(running(world))) == (4, 8)
        world.kill_controller()
        world.start_controller()
        await world.pass_time(250)
        assert (completed(world), len(running(world))) == (8, 8)
        world.kill_controller()
        world.start_controller()
        while world.clock.now().minute < 30:
            assert len(running(world)) == 8
            assert used_cpu_seconds(world) in range(2350, 2450)
            await world.pass_time(310)
        await world.pass_time(30)
        assert len(running(world)) == 12
        await world.pass_time(200)
        assert completed(world) == 12
        assert invariants.breaches(world, invariants.AT_REST) == []


def used_cpu_seconds(world: World) -> int:
    """The written use of the budget."""
    found = world.find(CLUSTER_QUEUES, "q")
    assert found is not None
    spent = ledger(found["metadata"]["annotations"]).spent
    return sum(one.used for one in spent.values()) // 1_000_000
