"""An elastic RayJob that scales by itself: its RayCluster grows, and its Workloads follow, whatever is interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kqueue.controllers.others import completer, enqueue_readers
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.resources import WORKLOADS, read_resource
from kqueue.errors import UnreachableError
from kqueue.jobs.fields import JSON
from kqueue.jobs.ray import JOB
from kqueue.kinds import RAY_CLUSTERS
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import condition, status_of
from tests.unit.controllers.test_job import JOBS, KEY, Jobs
from tests.unit.jobs.builders import prefixed
from tests.unit.jobs.test_ray import ELASTIC, group, make
from tests.unit.jobs.test_ray_scaling import ray_cluster

pytestmark = pytest.mark.proves("Ray", "workload slices")

RAY_JOBS = ResourceType("ray.io", "v1", "rayjobs", "RayJob")
BELOW = "team/below"
GENERATION = "kueue.x-k8s.io/raycluster-generation"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


class RayJobs(Jobs):
    """A world with an elastic RayJob of a head and two workers, and its RayCluster once it runs."""

    def __init__(self) -> None:
        super().__init__(kind=JOB)
        self.client.drop(JOBS, KEY)
        self.client.watch(RAY_JOBS, self.jobs, _seen)
        below: Store[JSON] = Store("rayclusters")
        self.client.watch(read_resource(RAY_CLUSTERS), below, _seen)
        self.writes.complete = completer(JOB, {(RAY_CLUSTERS.group, RAY_CLUSTERS.kind): [below]})
        self.client.put(RAY_JOBS, make(JOB, group(replicas=2), annotations=dict(ELASTIC), enableInTreeAutoscaling=True))

    async def running(self, **status: Any) -> None:
        """Up to a cluster that runs."""
        await self.rest()
        self.give(self.names[0], 2)
        await self.rest()
        assert self.job["spec"]["suspend"] is False
        self.client.change(
            RAY_JOBS, KEY, {"status": {"jobDeploymentStatus": "Running", "rayClusterName": "below", **status}}
        )
        self.client.put(read_resource(RAY_CLUSTERS), ray_cluster({"groupName": "small", "replicas": 2}, generation=1))
        self.standing.update({"head": 1, "small": 2})
        await self.rest()

    def scale(self, workers: int, generation: int) -> None:
        """As the autoscaler does."""
        spec = {"workerGroupSpecs": [{"groupName": "small", "replicas": workers}]}
        self.client.change(read_resource(RAY_CLUSTERS), BELOW, {"metadata": {"generation": generation}, "spec": spec})

    def give(self, name: str, workers: int, *conditions: JSON) -> None:
        """As the scheduling loop does."""
        assignments = [
            {"name": n, "count": count, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": str(count)}}
            for n, count in (("head", 1), ("small", workers))
        ]
        told = [condition("QuotaReserved"), condition("Admitted"), *conditions]
        admission = {"clusterQueue": "team", "podSetAssignments": assignments}
        self.client.change(WORKLOADS, f"team/{name}", {"status": {"admission": admission, "conditions": told}})

    async def grown(self, workers: int, generation: int) -> str:
        """Up to an admitted slice of so many workers; its name."""
        before = set(self.names)
        self.scale(workers, generation)
        await self.rest()
        (new,) = set(self.names) - before
        self.give(new, workers)
        self.standing["small"] = workers
        await self.rest()
        return new

    @property
    def names(self) -> list[str]:
        return [key.removeprefix("team/") for key in self.client.keys(WORKLOADS)]

    @property
    def job(self) -> JSON:
        found = self.client.object(RAY_JOBS, KEY)
        assert found is not None
        return found

    def slice(self, name: str) -> JSON:
        found = self.client.object(WORKLOADS, f"team/{name}")
        assert found is not None
        return found

    @property
    def alive(self) -> list[tuple[str, int]]:
        """Unfinished slices, and their numbers of workers."""
        found = [(name, self.slice(name)) for name in self.names]
        return [(n, w["spec"]["podSets"][1]["count"]) for n, w in found if status_of(w, "Finished")[0] != "True"]


def _seen(obj: Any) -> JSON:
    return as_json(msgspec.convert(obj, RawObject))


@pytest.fixture
async def world() -> AsyncIterator[RayJobs]:
    made = RayJobs()
    yield made
    await made.close()


async def test_a_cluster_that_grows_gets_a_second_slice(world: RayJobs) -> None:
    """The job runs on; it only gets the generation of its cluster.  With its quota the second replaces the first."""
    await world.running()
    (first,), before = world.names, world.job["spec"]
    world.scale(5, generation=2)
    await world.rest()
    (second,) = set(world.names) - {first}

    assert world.job["metadata"]["annotations"][GENERATION] == "2"
    assert world.slice(second)["metadata"]["annotations"][REPLACES] == f"team/{first}"
    assert dict(world.alive) == {first: 2, second: 5}
    world.give(second, 5)
    await world.rest()
    assert status_of(world.slice(first), "Finished") == ("True", "WorkloadSliceReplaced")
    assert world.alive == [(second, 5)]
    assert world.job["spec"] == before


async def test_a_cluster_that_shrinks_keeps_its_slice(world: RayJobs) -> None:
    """Its quota shrinks once the pods have ended; the job is not written."""
    await world.running()
    world.scale(1, generation=2)
    await world.rest()
    waiting = world.alive
    world.standing["small"] = 1
    await world.rest()

    assert ([count for _, count in waiting], [count for _, count in world.alive]) == ([2], [1])
    assert world.names == [waiting[0][0]]
    assert GENERATION not in world.job["metadata"]["annotations"]


async def test_a_changed_annotation_is_written_again_before_the_next_slice(world: RayJobs) -> None:
    """Every user who may write the job may write the annotation; a Workload's name is not given a second time."""
    await world.running()
    second = await world.grown(3, generation=2)
    world.client.change(RAY_JOBS, KEY, {"metadata": {"annotations": prefixed(raycluster_generation="forged")}})
    third = await world.grown(4, generation=3)

    assert world.job["metadata"]["annotations"][GENERATION] == "3"
    assert world.alive == [(third, 4)]
    assert second != third


async def test_a_new_cluster_begins_its_generations_anew(world: RayJobs) -> None:
    """The job is evicted and runs again with its own numbers; the slice of the same generation has another name."""
    await world.running()
    second = await world.grown(3, generation=2)
    evicted = condition("Evicted", reason="Preempted", message="somebody needs it")
    conditions = [*world.slice(second)["status"]["conditions"], evicted]
    world.client.change(WORKLOADS, f"team/{second}", {"status": {"conditions": conditions}})
    await world.rest()
    assert world.job["spec"]["suspend"] is True
    world.client.drop(read_resource(RAY_CLUSTERS), BELOW)
    world.client.change(RAY_JOBS, KEY, {"status": {"jobDeploymentStatus": "Suspended", "rayClusterName": None}})
    world.standing.clear()
    await world.rest()
    assert world.alive == [(second, 2)]
    world.give(second, 2, condition("Evicted", "False"))
    await world.rest()
    world.client.change(RAY_JOBS, KEY, {"status": {"jobDeploymentStatus": "Running", "rayClusterName": "below"}})
    world.client.put(read_resource(RAY_CLUSTERS), ray_cluster({"groupName": "small", "replicas": 2}, generation=1))
    world.standing.update({"head": 1, "small": 2})
    await world.rest()
    third = await world.grown(3, generation=2)

    assert world.job["metadata"]["annotations"][GENERATION] == "2"
    assert world.alive == [(third, 3)]
    assert third != second


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("nth", range(4))
async def test_killed_at_any_write_it_grows_once(world: RayJobs, nth: int, done: bool) -> None:
    """The annotation, the new slice, and the end of the old one."""
    await world.running()
    (first,) = world.names
    world.scale(5, generation=2)
    writes, killed = 0, False
    for _ in range(12):
        waits = [name for name, count in world.alive if count == 5 and name != first]
        if waits and status_of(world.slice(waits[0]), "Admitted")[0] != "True":
            world.give(waits[0], 5)
        if not killed and writes == nth:
            killed = True
            for verb in ("patch", "create"):
                world.client.fail(UnreachableError("killed"), verb=verb, done=done)
        try:
            writes += len(await world.step())
        except UnreachableError:
            writes += 1

    assert [count for _, count in world.alive] == [5]
    assert len(world.names) == 2
    assert status_of(world.slice(first), "Finished") == ("True", "WorkloadSliceReplaced")


def test_a_job_is_looked_at_when_its_cluster_changes() -> None:
    """Those of other jobs concern nobody."""
    jobs, clusters = Store[JSON]("jobs"), Store[JSON]("clusters")
    found: list[str] = []
    enqueue_readers(JOB, jobs, {(RAY_CLUSTERS.group, RAY_CLUSTERS.kind): [clusters]}, found.append)
    status = {"rayClusterName": "below"}
    more: dict[str, Any] = {"suspend": False, "annotations": dict(ELASTIC), "enableInTreeAutoscaling": True}
    jobs.put(KEY, make(JOB, status=status, **more))
    for name in ("below", "other"):
        clusters.put(f"team/{name}", {"metadata": {"name": name, "namespace": "team"}})

    assert found == [KEY]
