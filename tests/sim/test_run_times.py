"""Run times in a simulated cluster: what is learned from Jobs that finish, and what a new controller knows of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kqueue.api.run_time_names import EXPECTED_SECONDS_ANNOTATION, RUN_TIMES_CONFIG_MAP, RUN_TIMES_KEY
from kqueue.api.wire import kueue as wire
from kqueue.controllers.run_times import make_run_times
from kqueue.core.future.run_time import RunTime, RunTimeSource
from kqueue.sandbox.api import JOBS, GroupVersionResource, Object
from tests.sim.objects import NAMESPACE, job
from tests.sim.world import World, is_true, simulated

CONFIG_MAPS, NAMESPACES = GroupVersionResource("", "v1", "configmaps"), GroupVersionResource("", "v1", "namespaces")
OURS = "kueue-system"


def run_time(world: World, name: str) -> RunTime:
    """What the controller knows about the Workload of a Job."""
    assert world.controller is not None
    times = world.controller.operator.manager.shared(make_run_times)
    return times.of(msgspec.convert(world.workload_of(name), wire.Workload))


async def finishes(world: World, name: str, **settings: Any) -> None:
    """A Job of one pod runs to its end."""
    await world.submit(job(name, queue="plain", pods=1, gpus=0, topology=None, **settings))
    for _ in range(10):
        await world.pass_time(35)
        if is_true(world.find(JOBS, name), "Complete") or is_true(world.find(JOBS, name), "Failed"):
            return
    raise AssertionError(f"Job {name} does not finish")


def kept(world: World) -> Object:
    """The ConfigMap with the summary."""
    found = world.api.find(CONFIG_MAPS, RUN_TIMES_CONFIG_MAP, namespace=OURS)
    assert found is not None
    return found


async def test_a_new_controller_knows_what_the_last_one_has_learned() -> None:
    """Six Jobs of a minute succeed and two fail; then the Jobs are deleted, and a new controller knows the six."""
    async with simulated() as world:
        await world.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OURS}})
        for number in range(6):
            await finishes(world, f"train-{number}", run_seconds=60)
        for number in (6, 7):
            await finishes(world, f"train-{number}", run_seconds=5, fail=True, retries=0)
        await world.pass_time(600)
        await world.submit(job("train-8", queue="plain", pods=1, gpus=0, topology=None, run_seconds=100_000))
        await world.pass_time(5)
        learned = run_time(world, "train-8")
        assert (learned.source, learned.samples) == (RunTimeSource.LEARNED, 6)
        assert 60 <= (learned.p50 or 0) <= (learned.p90 or 0) <= 72

        for number in range(8):
            await world.api.delete(JOBS, f"train-{number}", namespace=NAMESPACE)
        await world.pass_time(30)
        before = kept(world)
        world.kill_controller()
        world.start_controller()
        await world.pass_time(700)

        assert run_time(world, "train-8") == learned
        assert kept(world)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert json.loads(kept(world)["data"][RUN_TIMES_KEY])["version"] == 1
        assert world.bugs == []


async def test_a_restart_counts_no_run_twice() -> None:
    """The controller is killed before it writes anything, and again afterwards; the finished Jobs are still there."""
    async with simulated() as world:
        await world.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OURS}})
        for number in range(5):
            await finishes(world, f"train-{number}", run_seconds=60)
            world.kill_controller()
            world.start_controller()
            await world.pass_time(20 if number % 2 else 3)
        assert run_time(world, "train-0").samples == 5
        assert world.bugs == []


async def test_an_expectation_is_followed_until_the_job_runs() -> None:
    async with simulated() as world:
        notes = {EXPECTED_SECONDS_ANNOTATION: "3600"}
        await world.submit(job("train", queue="plain", pods=1, gpus=0, cpus="400", topology=None, notes=notes))
        await world.pass_time(2)
        assert (run_time(world, "train").p90, run_time(world, "train").source) == (3_600, RunTimeSource.EXPECTED)
        change = {"metadata": {"annotations": {EXPECTED_SECONDS_ANNOTATION: "7200"}}}
        await world.api.patch(JOBS, "train", change, namespace=NAMESPACE)
        await world.pass_time(2)
        assert run_time(world, "train").p90 == 7_200
        assert world.bugs == []
