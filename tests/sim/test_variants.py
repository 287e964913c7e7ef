"""Two jobs of a ClusterQueue with a concurrentAdmissionPolicy: they start where there is room, move to the flavor that the
queue prefers, and preempt in one flavor, with a controller that is killed at each of its writes.
"""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import names
from kqueue.config import load
from kqueue.sandbox.api import JOBS, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants, variant_invariants
from tests.sim.lifetime import Lifetime, interrupted, told
from tests.sim.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACE,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    cluster_queue,
    job,
    ours,
)
from tests.sim.tenancy import Tenancy, pool
from tests.sim.world import condition, is_true, owner_of

ORDER = ("reserved", "spot", "ondemand")
"""Flavors and pools, the most preferred first."""
STRIDE = 83


def queue_with(reserved: int) -> Object:
    """The ClusterQueue; its most preferred flavor has so many cpus."""
    amounts = {"reserved": {"cpu": reserved}, "spot": {"cpu": 4}, "ondemand": {"cpu": 4}}
    made = cluster_queue("mixed", flavors=amounts)
    made["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    made["spec"]["concurrentAdmissionPolicy"] = {"migration": {"mode": "TryPreferredFlavors"}}
    return made


def tenancy() -> Tenancy:
    """One tenant with three flavors; pods take two seconds to end."""
    flavors = [ours("ResourceFlavor", name, spec={"nodeLabels": {POOL_LABEL: name}}) for name in ORDER]
    classes = [ours("WorkloadPriorityClass", name, value=value) for name, value in (("low", 1), ("high", 9))]
    local = ours("LocalQueue", "mixed", namespace=NAMESPACE, spec={"clusterQueue": "mixed"})
    return Tenancy(
        objects=(
            *((FLAVORS, flavor) for flavor in flavors),
            *((WORKLOAD_PRIORITY_CLASSES, made) for made in classes),
            (CLUSTER_QUEUES, queue_with(0)),
            (LOCAL_QUEUES, local),
        ),
        pools=tuple(pool(name, (1, 1, 2), cpus=4) for name in ORDER),
        placed=frozenset(),
        stop_seconds=2.0,
    )


class VariantLife(Lifetime):
    """`first` starts in spot and moves to reserved; `second`, of a higher priority, comes and takes its place."""

    ALWAYS = variant_invariants.ALWAYS
    AT_REST = (*variant_invariants.AT_REST, invariants.audits_find_nothing, invariants.watches_are_true)

    async def prepare(self) -> None:
        world = self.world
        world.kill_controller()
        on = load(None, feature_gates="ConcurrentAdmission=true")
        kept = {"leader_election": world.configured.leader_election, "integrations": world.configured.integrations}
        world.configured = on.model_copy(update=kept)
        world.start_controller()

    async def live(self) -> None:
        world = self.world
        await world.submit(self.job_of("first", "low", seconds=40))
        await self.until(lambda: self.pool_of("first") == "spot")
        await world.api.patch(
            CLUSTER_QUEUES, "mixed", {"spec": {"resourceGroups": queue_with(4)["spec"]["resourceGroups"]}}
        )
        await self.until(lambda: self.pool_of("first") == "reserved")
        await world.submit(self.job_of("second", "high", seconds=20))
        await self.until(lambda: self.pool_of("second") == "reserved")
        await self.until(lambda: self.pool_of("first") in ("spot", "ondemand"))
        await self.until(lambda: all(is_true(world.find(JOBS, name), "Complete") for name in ("first", "second")))

    def look(self) -> None:
        """All is in the invariants."""

    @staticmethod
    def job_of(name: str, priority: str, *, seconds: int) -> Object:
        return job(name, queue="mixed", pods=2, gpus=0, cpus="2", topology=None, priority=priority, run_seconds=seconds)

    def pool_of(self, name: str) -> str:
        """The pool in which all pods of a job run; empty: not all run."""
        pods = self.running(lambda pod: owner_of(pod) == name)
        pools = {str(pod["spec"]["nodeName"]).partition("-")[0] for pod in pods}
        return pools.pop() if len(pods) == 2 and len(pools) == 1 else ""

    def end(self) -> dict[str, Any]:
        """What became of both jobs, and of their variants."""
        ends = {
            name: (condition(found, names.CONDITION_FINISHED) or {}).get("reason")
            for name in ("first", "second")
            if (found := self.world.workload_of(name)) is not None
        }
        finished = sum(is_true(w, names.CONDITION_FINISHED) for w in self.world.objects(WORKLOADS))
        return {"ends": ends, "finished": finished}


END: dict[str, Any] = {"ends": {"first": "Succeeded", "second": "Succeeded"}, "finished": 8}
SETTINGS: dict[str, Any] = {"tenancy": tenancy()}


async def test_jobs_start_move_and_preempt_in_one_flavor_at_a_time() -> None:
    """Until both have ended, and their variants with them."""
    life = await told(VariantLife, **SETTINGS)

    assert not life.died
    assert life.end() == END


@pytest.mark.slow
@pytest.mark.parametrize(("first", "after"), [(1, False), (9, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_gives_no_job_two_flavors(first: int, after: bool) -> None:
    """Every eighty-third write (set `STRIDE` to 1 for all of them), until the story has no more."""
    tellings = await interrupted(VariantLife, first, STRIDE, after=after, **SETTINGS)

    assert len(tellings) >= 2
    assert {life.at: life.end() for life in tellings} == {life.at: END for life in tellings}
