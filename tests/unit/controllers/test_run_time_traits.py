"""Workloads follow what their owners tell about run times, and keep no forged deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import BATCH_PROCESSES, PODS, WORKLOADS
from tests.unit.controllers.batch_world import KEY as BATCH_KEY
from tests.unit.controllers.batch_world import Batches, batch
from tests.unit.controllers.builders import reserved
from tests.unit.controllers.pod_world import GROUP, Pods, grouped
from tests.unit.controllers.test_job import JOBS, KEY, NAME, Jobs
from tests.unit.controllers.test_job_workload import made, wanting
from tests.unit.jobs.builders import JSON, make_job
from tests.unit.jobs.gang.test_batch_process import process
from tests.unit.jobs.pods import make_pod

EXPECTED, DEADLINE = "kqueue.dev/expected-seconds", "kqueue.dev/deadline-seconds"


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Any]]:
    worlds: list[Any] = []

    def build(kind: Callable[..., Any], *args: Any, **more: Any) -> Any:
        worlds.append(kind(*args, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def told(world: Any) -> JSON:
    """The annotations about run times of the only Workload."""
    (key,) = world.client.keys(WORKLOADS)
    annotations = world.client.object(WORKLOADS, key)["metadata"].get("annotations") or {}
    return {key: annotations[key] for key in (EXPECTED, DEADLINE) if key in annotations}


def write(world: Any, **annotations: str | None) -> None:
    """A user changes annotations of the only Workload."""
    (key,) = world.client.keys(WORKLOADS)
    change = {f"kqueue.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    world.client.change(WORKLOADS, key, {"metadata": {"annotations": change}})


async def test_the_workload_of_a_job_follows_it(make: Callable[..., Any]) -> None:
    """At its creation, while it waits, and the deadline also while it runs."""
    world: Jobs = make(Jobs, make_job(annotations={EXPECTED: "60"}, activeDeadlineSeconds=99))
    await world.rest()
    assert told(world) == {EXPECTED: "60", DEADLINE: "99"}

    world.client.change(JOBS, KEY, {"metadata": {"annotations": {EXPECTED: None}}})
    await world.rest()
    assert told(world) == {DEADLINE: "99"}

    world.client.change(WORKLOADS, f"team/{NAME}", {"status": reserved(pods=4)})
    await world.rest()
    world.client.change(JOBS, KEY, {"spec": {"activeDeadlineSeconds": 500}})
    await world.rest()
    assert told(world) == {DEADLINE: "500"}


async def test_a_forged_deadline_goes(make: Callable[..., Any]) -> None:
    """Only the field of a job ends it, so a tenant promises nothing by editing the Workload."""
    world: Jobs = make(Jobs, make_job())
    await world.rest()
    write(world, deadline_seconds="5", expected_seconds="7")
    await world.rest()
    assert told(world) == {}


async def test_a_prebuilt_workload_keeps_its_own_expectation(make: Callable[..., Any]) -> None:
    """Not a deadline of its own."""
    world: Jobs = make(Jobs, wanting(activeDeadlineSeconds=99))
    made(world)
    write(world, expected_seconds="60", deadline_seconds="5")
    await world.rest()
    assert told(world) == {EXPECTED: "60", DEADLINE: "99"}


async def test_the_workload_of_a_pod_follows_it(make: Callable[..., Any]) -> None:
    world: Pods = make(Pods, make_pod(annotations={EXPECTED: "60"}, activeDeadlineSeconds=99))
    await world.rest("team/p")
    assert told(world) == {EXPECTED: "60", DEADLINE: "99"}
    world.client.change(PODS, "team/p", {"metadata": {"annotations": {EXPECTED: "90"}}})
    await world.rest("team/p")
    assert told(world) == {EXPECTED: "90", DEADLINE: "99"}


async def test_the_workload_of_a_group_follows_its_oldest_pod(make: Callable[..., Any]) -> None:
    """Deadlines of single pods say nothing about the group, which may get other pods."""
    pods = [grouped(name, annotations={EXPECTED: "60"}, activeDeadlineSeconds=99) for name in ("a", "b")]
    world: Pods = make(Pods, *pods)
    await world.rest(GROUP)
    assert told(world) == {EXPECTED: "60"}
    write(world, deadline_seconds="5", expected_seconds="7")
    await world.rest(GROUP)
    assert told(world) == {EXPECTED: "60"}


async def test_the_workload_of_a_batch_process_follows_it(make: Callable[..., Any]) -> None:
    obj = batch(process("worker", 2))
    world: Batches = make(Batches, {**obj, "metadata": {**obj["metadata"], "annotations": {EXPECTED: "60"}}})
    await world.settle_all()
    assert told(world) == {EXPECTED: "60"}
    world.client.change(BATCH_PROCESSES, BATCH_KEY, {"metadata": {"annotations": {EXPECTED: "90"}}})
    write(world, deadline_seconds="5")
    world.sync()
    await world.settle_all()
    assert told(world) == {EXPECTED: "90"}
