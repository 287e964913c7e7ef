"""Pods that run without quota end within seconds, whatever grace period they ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from tests.unit.controllers.builders import EARLIER, condition, status_of
from tests.unit.controllers.test_job import JOBS, KEY, Jobs
from tests.unit.jobs.builders import JSON, make_job

LABEL = "batch.kubernetes.io/job-name"


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Jobs]]:
    worlds: list[Jobs] = []

    def build(*args: Any, **more: Any) -> Jobs:
        worlds.append(Jobs(*args, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def pod(job: JSON, name: str = "p", *, grace: int | None = None, owner: str = "", **spec: Any) -> JSON:
    """A bound pod of the job; `grace`: it is being deleted with so many seconds."""
    meta = job["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": owner or meta["uid"]}
    metadata: JSON = {
        "name": name,
        "namespace": meta["namespace"],
        "uid": f"uid-{name}",
        "labels": {LABEL: meta["name"]},
        "ownerReferences": [reference | {"controller": True}],
    }
    if grace is not None:
        metadata |= {"deletionTimestamp": EARLIER, "deletionGracePeriodSeconds": grace, "finalizers": ["held"]}
    return {"metadata": metadata, "spec": {"nodeName": "n", **spec}, "status": {"phase": "Running"}}


def started_by_hand(**more: Any) -> JSON:
    return make_job(suspend=False, status={"active": 1}, **more)


def ended(world: Jobs) -> Mapping[str, JSON]:
    calls = [call for call in world.client.writes() if call.verb == "delete" and call.resource == PODS]
    return {call.key.rpartition("/")[2]: call.body for call in calls}


@pytest.mark.parametrize(
    ("pods", "stopped"),
    [
        pytest.param([{}], ["p"], id="it-runs"),
        pytest.param([{"grace": 3600}], ["p"], id="it-was-told-to-end-within-the-hour"),
        pytest.param([{"grace": 5}], [], id="it-ends-soon"),
        pytest.param([{"nodeName": ""}], [], id="it-is-bound-to-no-node"),
        pytest.param([{"owner": "another"}], [], id="another-job-controls-it"),
    ],
)
async def test_a_job_that_was_started_by_hand_ends_soon(
    make: Callable[..., Jobs], pods: list[JSON], stopped: list[str]
) -> None:
    """The job is suspended, and its pods do not run on for their own grace period."""
    job = started_by_hand()
    world = make(job)
    for settings in pods:
        world.client.put(PODS, pod(job, **settings))
    await world.step()

    assert world.client.object(JOBS, KEY)["spec"]["suspend"] is True  # type: ignore[index]
    assert ended(world) == {name: {"gracePeriodSeconds": 5} for name in stopped}


async def test_pods_of_a_workload_that_holds_quota_have_their_own_time(make: Callable[..., Jobs]) -> None:
    """An eviction pays for the grace period: quota goes with the last pod."""
    world = make(make_job())
    await world.step()
    (key,) = world.client.keys(WORKLOADS)
    held = [condition("QuotaReserved"), condition("Evicted", reason="Preempted")]
    world.client.change(WORKLOADS, key, {"status": {"conditions": held, "admission": {"clusterQueue": "q"}}})
    job = world.client.object(JOBS, KEY)
    assert job is not None
    world.client.change(JOBS, KEY, {"spec": {"suspend": False}, "status": {"active": 1}})
    world.client.put(PODS, pod(job, grace=3600))
    world.client.sync()
    await world.step()

    assert ended(world) == {}


async def test_a_job_that_contradicts_its_admission_cannot_be_started_by_hand(make: Callable[..., Jobs]) -> None:
    """Its Workload is finished and holds nothing, so nothing would ever stop the job."""
    world = make(make_job())
    await world.step()
    (key,) = world.client.keys(WORKLOADS)
    refused = [condition("Finished", reason="FailedToStart")]
    world.client.change(WORKLOADS, key, {"status": {"conditions": refused}})
    world.client.change(JOBS, KEY, {"spec": {"suspend": False}})
    world.client.sync()
    await world.step()

    assert status_of(world.client.object(WORKLOADS, key), "Finished") == ("True", "FailedToStart")
    assert world.client.object(JOBS, KEY)["spec"]["suspend"] is True  # type: ignore[index]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, [("team/p", "team/main")], id="it-runs"),
        pytest.param({"grace": 3600}, [("team/p", "team/main")], id="it-was-told-to-end-within-the-hour"),
        pytest.param({"grace": 5}, [("team/p", "team/main")], id="it-ends-soon"),
        pytest.param({"nodeName": ""}, [], id="it-is-bound-to-no-node"),
        pytest.param({"owner": "another"}, [], id="another-job-controls-it"),
    ],
)
async def test_pods_without_quota_are_charged_to_their_jobs_queue(
    make: Callable[..., Jobs], settings: JSON, expected: list[tuple[str, str]]
) -> None:
    """Until they have ended, each time that they are seen."""
    job, charged = started_by_hand(), list[tuple[str, str]]()
    world = make(job, charge=lambda pod, queue: charged.append((pod, queue)))
    world.client.put(PODS, pod(job, **settings))
    await world.step()

    assert charged == expected
