"""Writes that hang or are lost: others go on meanwhile, and nothing stays charged that was not stored."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.sandbox.api import Object
from tests.sim import invariants
from tests.sim.api_client import NONE, Faults
from tests.sim.objects import CLUSTER_QUEUES, job
from tests.sim.world import World, is_true, simulated

LOST, UNANSWERED = Faults(lost_request=1000), Faults(lost_answer=1000)


def plain(name: str, pods: int, **settings: Any) -> Object:
    """A Job of pods with one core each in the ClusterQueue of 20 cores."""
    return job(name, queue="plain", pods=pods, gpus=0, topology=None, run_seconds=1000, **settings)


def charged(world: World) -> int:
    """The cores that the controller's cache holds for workloads of the ClusterQueue."""
    assert world.controller is not None
    node = world.controller.operator.cache.quota.node_of("plain")
    assert node is not None
    return sum(amount for column, amount in node.usage.items() if column.resource == "cpu") // 1000


async def close(world: World, *, off: bool = False) -> None:
    await world.api.patch(CLUSTER_QUEUES, "plain", {"spec": {"stopPolicy": "None" if off else "Hold"}})


@pytest.mark.mechanism("3.21")
async def test_others_are_admitted_while_a_status_write_hangs() -> None:
    """Row 3.21: the write of one admission takes ten seconds; cycles admit others meanwhile, beside its charge."""
    async with simulated() as world:
        await close(world)
        await world.submit(plain("slow", 8))
        await world.pass_time(1)
        waiting = world.workload_of("slow")
        assert waiting is not None
        world.slow[waiting["metadata"]["name"]] = 10.0
        await close(world, off=True)
        await world.pass_time(1)
        for name in ("first", "second", "third"):
            await world.submit(plain(name, 4))
            await world.pass_time(2)
        meanwhile = [is_true(world.workload_of(name), "Admitted") for name in ("slow", "first", "second", "third")]
        assert (meanwhile, charged(world)) == ([False, True, True, True], 20)
        await world.pass_time(10)
        assert is_true(world.workload_of("slow"), "Admitted")
        assert invariants.breaches(world, invariants.ALWAYS) == []


@pytest.mark.mechanism("3.12")
@pytest.mark.parametrize("faults", [LOST, UNANSWERED], ids=["the write is lost", "its answer is lost"])
async def test_an_assumption_ends_with_the_outcome_of_its_write(faults: Faults) -> None:
    """Row 3.12: nothing stays charged for a write that the API server never got, and a stored one stays charged."""
    async with simulated() as world:
        await close(world)
        await world.submit(plain("gang", 8))
        await world.pass_time(1)
        await close(world, off=True)
        assert world.controller is not None
        world.controller.client.faults = faults
        seen: set[int] = set()
        world.on_settled.append(lambda: seen.add(charged(world)))
        await world.pass_time(60)
        stored = is_true(world.workload_of("gang"), "Admitted")
        world.controller.client.faults = NONE
        await world.pass_time(60)
        after = (is_true(world.workload_of("gang"), "Admitted"), charged(world))
        assert invariants.breaches(world, (*invariants.ALWAYS, invariants.cache_equals_the_api)) == []

    assert after == (True, 8)
    assert stored == (faults is UNANSWERED)
    assert seen == ({8} if stored else {0, 8})
