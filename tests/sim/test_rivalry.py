"""Small worlds in which one promise about rivals is put to the test, and what else must hold is watched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kqueue.api import names
from kqueue.config.policy import WaitForPodsReady
from kqueue.sandbox.api import JOBS
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants
from tests.sim.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACE,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    job,
    ours,
)
from tests.sim.tenancy import Tenancy, pool
from tests.sim.world import World, condition, owner_of, simulated

_LONG = 1000
_RULES = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def _tenancy(
    queues: Mapping[str, Mapping[str, int]], *, modest: frozenset[str] = frozenset(), **settings: Any
) -> Tenancy:
    """ClusterQueues of one cohort with cores of their own per flavor; each has a LocalQueue of the same name.

    All but the `modest` ones preempt the lower ones of their own, and reclaim from anybody.
    """
    flavors = sorted({flavor for quota in queues.values() for flavor in quota})
    specs = {
        name: {
            "namespaceSelector": {},
            "cohortName": "all",
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [
                        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cores)}]}
                        for flavor, cores in quota.items()
                    ],
                }
            ],
            "preemption": {} if name in modest else _RULES,
        }
        for name, quota in queues.items()
    }
    return Tenancy(
        objects=(
            *((FLAVORS, ours("ResourceFlavor", f, spec={"nodeLabels": {POOL_LABEL: "cheap"}})) for f in flavors),
            *(
                (WORKLOAD_PRIORITY_CLASSES, ours("WorkloadPriorityClass", n, value=v))
                for n, v in (("low", -10), ("high", 10))
            ),
            *((CLUSTER_QUEUES, ours("ClusterQueue", name, spec=spec)) for name, spec in specs.items()),
            *(
                (LOCAL_QUEUES, ours("LocalQueue", name, namespace=NAMESPACE, spec={"clusterQueue": name}))
                for name in queues
            ),
        ),
        pools=(pool("cheap", (1, 1, 3), cpus=128, pods=110),),
        placed=frozenset(),
        **settings,
    )


@asynccontextmanager
async def _watched(tenancy: Tenancy) -> AsyncIterator[World]:
    """A world in which nothing may be breached until its end."""
    async with simulated(tenancy=tenancy) as world:
        invariants.watch(world)
        yield world
        assert invariants.breaches(world, invariants.ALWAYS) == []


async def _submit(world: World, name: str, queue: str, cores: int, **settings: Any) -> None:
    given: dict[str, Any] = {"pods": cores, "gpus": 0, "topology": None, "run_seconds": _LONG}
    await world.submit(job(name, queue=queue, **{**given, **settings}))
    await world.pass_time(1)


def _admitted(world: World) -> list[str]:
    """The Jobs that were admitted, one after the other."""
    return [owner_of(admitted.workload) for admitted in world.history.admissions]


async def test_who_makes_room_comes_back_after_it_was_used() -> None:
    """One victim has ended and would fit elsewhere; another one takes long: the first stays away until their preemptor is in."""
    tenancy = _tenancy({"owner": {"red": 4}, "guest": {"blue": 2, "red": 0}})
    async with _watched(tenancy) as world:
        await _submit(world, "short", "guest", 2, run_seconds=10)
        await _submit(world, "quick", "guest", 2)
        await _submit(world, "slow", "guest", 2)
        world.slow["slow"] = 8.0
        await world.pass_time(10)
        await _submit(world, "rightful", "owner", 4)
        await world.pass_time(5)
        meanwhile = _admitted(world)
        await world.pass_time(30)
        finally_ = _admitted(world)

    assert meanwhile == ["short", "quick", "slow"]
    assert finally_[:4] == ["short", "quick", "slow", "rightful"]
    assert len(finally_) == 5  # one of them, where the short one was
    assert finally_[4] in ("quick", "slow")


@pytest.mark.mechanism("3.10")
async def test_what_is_freed_for_one_is_not_given_to_another() -> None:
    """Half of the room is free while the other half is still being left: nobody gets it who comes first in each cycle."""
    tenancy = _tenancy({"owner": {"red": 4}, "guest": {"red": 0}, "thief": {"red": 2}}, modest=frozenset({"thief"}))
    async with _watched(tenancy) as world:
        await _submit(world, "stays", "guest", 2)
        await _submit(world, "quick", "guest", 2)
        await _submit(world, "slow", "guest", 2)
        world.slow["slow"] = 8.0
        await _submit(world, "rightful", "owner", 4)
        await _submit(world, "passing", "thief", 2, priority="high")
        await world.pass_time(30)

    assert _admitted(world) == ["stays", "quick", "slow", "rightful"]


async def test_where_admission_is_blocked_one_comes_after_the_other() -> None:
    """Three fit at once, and each waits until the pods of the one before are ready."""
    blocked = WaitForPodsReady(block_admission=True)
    async with _watched(_tenancy({"only": {"red": 6}}, start_seconds=5.0, pods_ready=blocked)) as world:
        for number in range(3):
            await world.submit(job(f"each-{number}", queue="only", pods=2, gpus=0, topology=None, run_seconds=_LONG))
        await world.pass_time(30)
        times = [admitted.at for admitted in world.history.admissions]

    assert len(times) == 3
    assert times[1] - times[0] > 4
    assert times[2] - times[1] > 4


async def test_the_lowest_leave_and_no_more_than_must() -> None:
    """Of three that a higher one may displace, one of the lowest is enough: the other one and the middle one stay."""
    async with _watched(_tenancy({"only": {"red": 7}})) as world:
        await _submit(world, "middle", "only", 3)
        await _submit(world, "large", "only", 3, priority="low")
        await _submit(world, "small", "only", 1, priority="low")
        await _submit(world, "high", "only", 3, priority="high")
        left = [owner_of(w) for w in world.objects(WORKLOADS) if condition(w, names.CONDITION_PREEMPTED) is not None]

    assert left == ["large"]


def _is_suspended(world: World, name: str) -> bool:
    found = world.find(JOBS, name)
    assert found is not None
    return bool(found["spec"].get("suspend"))


async def test_only_who_borrows_gives_back() -> None:
    """Who is within its own stays, though it came last; of two that borrow the later one is enough."""
    tenancy = _tenancy({"owner": {"red": 4}, "content": {"red": 4}, "guest": {"red": 0}})
    async with _watched(tenancy) as world:
        await _submit(world, "early", "guest", 2)
        await _submit(world, "late", "guest", 2)
        await _submit(world, "own", "content", 4)
        await _submit(world, "rightful", "owner", 2)
        running = {name for name in ("early", "late", "own", "rightful") if not _is_suspended(world, name)}

    assert running == {"early", "own", "rightful"}
