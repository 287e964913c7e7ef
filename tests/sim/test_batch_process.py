"""Small worlds of BatchProcesses: the quorum, the end of the wait for it, and controllers that are killed meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kqueue.api import gang_names, names
from kqueue.jobs.gang.batch_process import FRAMEWORK, KIND, PLURAL
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox.api import NODES, PODS, GroupVersionResource, Object
from tests.sim import invariants
from tests.sim.gangs import LONG
from tests.sim.objects import NAMESPACE, WORKLOADS
from tests.sim.world import World, condition, is_true, simulated

BATCHES = GroupVersionResource(KIND.group, KIND.version, PLURAL)
CHEAP_NODES = ("cheap-b0-r0-h0", "cheap-b0-r0-h1")
AT_REST = tuple(each for each in invariants.AT_REST if each is not invariants.status_tells_the_usage)


@asynccontextmanager
async def watched(seed: int | str = 0) -> AsyncIterator[World]:
    """A world of BatchProcesses in which nothing may be breached until its end."""
    async with simulated(seed, gangs=(FRAMEWORK,)) as world:
        invariants.watch(world)
        yield world
        assert invariants.breaches(world, invariants.ALWAYS) == []


def batch(*, timeout: int | None = None) -> Object:
    """Two types with two pods each, of which one each starts first."""
    template = {"metadata": {"annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: str(LONG)}}}
    processes = [
        {
            "name": name,
            "replicas": 2,
            "minAvailable": 1,
            "resources": {"limits": {"cpu": "1"}},
            "template": template,
        }
        for name in ("teacher", "student")
    ]
    group = {"minAvailable": 2, **({} if timeout is None else {"timeoutSeconds": timeout})}
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {"name": "distill", "namespace": NAMESPACE, "labels": {names.QUEUE_NAME_LABEL: "plain"}},
        "spec": {"image": "example.com/train:1", "podGroup": group, "simpleProcesses": processes},
    }


def found(world: World) -> Object:
    obj = world.find(BATCHES, "distill")
    assert obj is not None
    return obj


def shown(world: World, kind: str) -> Object:
    """A condition that the BatchProcess must have."""
    wanted = condition(found(world), kind)
    assert wanted is not None
    return wanted


def pods(world: World) -> list[Object]:
    return [p for p in world.objects(PODS) if gang_names.BATCH_PROCESS_LABEL in (p["metadata"].get("labels") or {})]


def bound(world: World) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods(world))


async def cordon(world: World, *, off: bool = False) -> None:
    for name in CHEAP_NODES:
        await world.api.patch(NODES, name, {"spec": {"unschedulable": None if off else True}})


def replace_controller(world: World) -> None:
    world.kill_controller()
    world.start_controller()


@pytest.mark.mechanism("3.32")
@pytest.mark.parametrize("killed", [False, True], ids=["one controller", "killed"])
async def test_the_wait_for_the_quorum_ends_once(killed: bool) -> None:
    """Row 3.32: no pod gets a node within 10 s, so all are removed, and nothing comes back when there is room."""
    async with watched() as world:
        await cordon(world)
        await world.api.create(BATCHES, batch(timeout=10), namespace=NAMESPACE)
        await world.pass_time(5)
        assert (len(pods(world)), bound(world)) == (2, 0)
        if killed:
            world.kill_controller()
            await world.pass_time(20)
            world.start_controller()
        await world.pass_time(15)
        failed = shown(world, "Failed")
        await cordon(world, off=True)
        await world.pass_time(60)
        replace_controller(world)
        await world.pass_time(60)

        assert (pods(world), found(world)["status"]["phase"]) == ([], "Failed")
        assert [is_true(workload, names.CONDITION_FINISHED) for workload in world.objects(WORKLOADS)] == [True]
        assert invariants.breaches(world, AT_REST) == []
    assert failed["reason"] == "TimedOut"
    assert failed["message"].startswith("0 of 2 pods were scheduled within 10 s of the creation; all pods were removed")


@pytest.mark.mechanism("3.34")
async def test_the_quorum_is_scheduled_with_its_last_bind() -> None:
    """Row 3.34: `Scheduled` is True as soon as two pods have nodes, and not before; then the others come."""
    async with watched() as world:
        await cordon(world)
        await world.api.create(BATCHES, batch(), namespace=NAMESPACE)
        await world.pass_time(5)
        assert shown(world, "Scheduled")["status"] == "False"
        await cordon(world, off=True)
        for _ in range(100):
            if is_true(found(world), "Scheduled"):
                break
            await world.pass_time(0.1)
        assert bound(world) >= 2
        assert found(world)["status"]["scheduled"] >= 2
        await world.pass_time(30)
        assert bound(world) == 4
        assert invariants.breaches(world, AT_REST) == []


@pytest.mark.mechanism("3.33")
async def test_a_killed_pod_is_made_anew_by_the_next_controller() -> None:
    """Row 3.33: the other three run on."""
    async with watched() as world:
        await world.api.create(BATCHES, batch(), namespace=NAMESPACE)
        await world.pass_time(30)
        before = {pod["metadata"]["uid"]: pod for pod in pods(world)}
        assert bound(world) == 4
        victim = next(iter(before.values()))
        world.kill_controller()
        await world.api.delete(PODS, victim["metadata"]["name"], namespace=NAMESPACE)
        await world.pass_time(5)
        world.start_controller()
        await world.pass_time(30)

        after = {pod["metadata"]["uid"]: pod for pod in pods(world)}
        assert len(before.keys() & after.keys()) == 3
        assert bound(world) == 4
        assert found(world)["status"]["failures"] == 1
        assert invariants.breaches(world, AT_REST) == []
