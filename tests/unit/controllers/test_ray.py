"""RayJobs that are skipped or on hold, and what is told after Redis was cleared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.job import after_clean_up
from kqueue.controllers.resources import WORKLOADS, resource_of
from kqueue.jobs import ray
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name_of
from tests.unit.controllers.builders import message_of, reserved, status_of
from tests.unit.controllers.test_job import KEY, Jobs
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.test_ray import make as make_ray

DELETED = {"deletionTimestamp": "2026-01-02T00:00:00Z"}


class RayJobs(Jobs):
    """A world with a RayJob `sample`, whose cluster has a head only."""

    resource = resource_of(ray.JOB)
    workload_name = workload_name_of(ray.JOB, make_ray(ray.JOB), JobFeatures())

    def __init__(self, *, spec: JSON | None = None, switches: JobFeatures | None = None, **cluster: Any) -> None:
        job = make_ray(ray.JOB, workerGroupSpecs=[], spec=spec, **cluster)
        super().__init__(job, kind=ray.JOB, switches=switches or JobFeatures())

    @property
    def key(self) -> str:
        return f"team/{self.workload_name}"

    def tell(self, stage: str, message: str = "", **more: Any) -> None:
        """As KubeRay does."""
        self.client.change(self.resource, KEY, {"status": {"jobDeploymentStatus": stage, "message": message, **more}})

    def admit(self) -> None:
        status = reserved()
        status["admission"]["podSetAssignments"][0]["name"] = "head"
        self.client.change(WORKLOADS, self.key, {"status": status})

    async def started(self) -> None:
        await self.rest()
        self.admit()
        await self.rest()
        self.tell("Running")
        self.sync()
        assert self.job["spec"]["suspend"] is False


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., RayJobs]]:
    worlds: list[RayJobs] = []

    def build(**more: Any) -> RayJobs:
        worlds.append(RayJobs(**more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def test_a_job_in_a_cluster_that_exists_gets_no_workload(make: Callable[..., RayJobs]) -> None:
    """And is not suspended."""
    world = make(spec={"clusterSelector": {"a": "b"}, "suspend": False})

    await world.rest()

    assert world.client.keys(WORKLOADS) == []
    assert world.job["spec"]["suspend"] is False


async def test_a_job_that_kuberay_refuses_is_on_hold_until_it_is_corrected(make: Callable[..., RayJobs]) -> None:
    """It is suspended and gives its quota back; then it is queued again."""
    world = make()
    await world.started()
    world.tell("ValidationFailed", "no entrypoint")
    await world.rest()

    assert status_of(world.found, "QuotaReserved") == ("False", "OnHold")
    assert "no entrypoint" in message_of(world.found, "QuotaReserved")
    assert world.found["status"].get("admission") is None
    assert world.job["spec"]["suspend"] is True

    world.tell("Suspended")
    await world.rest()
    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")
    world.admit()
    await world.rest()
    assert world.job["spec"]["suspend"] is False


async def test_a_job_that_waits_is_on_hold_as_well(make: Callable[..., RayJobs]) -> None:
    """It takes no quota that it cannot use."""
    world = make()
    await world.rest()
    world.tell("ValidationFailed")

    await world.rest()

    assert status_of(world.found, "QuotaReserved") == ("False", "OnHold")


async def test_pods_that_run_keep_their_quota_whatever_kuberay_says(make: Callable[..., RayJobs]) -> None:
    """A job that was made invalid while it runs is not stopped by KubeRay."""
    world = make()
    await world.started()
    world.pods[world.key] = 1
    world.tell("ValidationFailed", "changed to nonsense")

    await world.rest()

    assert status_of(world.found, "QuotaReserved")[0] == "True"


def ray_cluster(*, deleted: bool = True, finalizer: str = "ray.io/gcs-ft-redis-cleanup-finalizer") -> JSON:
    """The RayCluster of RayJob `sample`."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "sample", "uid": "uid", "controller": True}
    made = make_ray(ray.CLUSTER)
    made["metadata"] |= {"ownerReferences": [owner], "finalizers": [finalizer], "uid": "cluster"}
    return {**made, "metadata": {**made["metadata"], **(DELETED if deleted else {})}}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (ray_cluster(), None, [KEY]),
        (ray_cluster(), ray_cluster(finalizer="foregroundDeletion"), [KEY]),
        (ray_cluster(), ray_cluster(), []),
        (ray_cluster(deleted=False), None, []),
        (None, ray_cluster(), []),
    ],
    ids=["gone", "cleared", "not yet", "nothing to clear", "new"],
)
def test_the_object_above_is_told_once_redis_is_cleared(old: JSON | None, new: JSON | None, told: list[str]) -> None:
    jobs: list[str] = []
    services: list[str] = []

    for kind, keys in ((ray.JOB, jobs), (ray.SERVICE, services)):
        after_clean_up(kind, ray.CLUSTER, JobFeatures(), keys.append)(old, new)

    assert (jobs, services) == (told, [])


async def test_an_evicted_job_stops_before_it_gives_back(make: Callable[..., RayJobs]) -> None:
    """KubeRay says when its cluster is gone."""
    world = make()
    await world.started()
    world.evict()
    await world.rest()
    assert world.job["spec"]["suspend"] is True
    assert status_of(world.found, "QuotaReserved")[0] == "True"

    world.tell("Suspended")
    await world.rest()

    assert status_of(world.found, "QuotaReserved")[0] == "False"


async def test_a_job_that_ends_while_its_workload_is_deleted_gives_its_quota_back(
    make: Callable[..., RayJobs],
) -> None:
    """KubeRay does not suspend a job that has finished."""
    world = make()
    await world.started()
    before = world.found["metadata"]
    await world.client.delete(WORKLOADS, before["name"], before["namespace"])
    await world.rest()
    assert world.job["spec"]["suspend"] is True
    assert world.found["metadata"]["uid"] == before["uid"]

    world.tell("Complete", "done")
    await world.rest()

    left = world.client.object(WORKLOADS, world.key)
    assert left is None or left["metadata"]["uid"] != before["uid"]
