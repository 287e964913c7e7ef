"""Gangs of another dialect than Kueue's are queued, started and told apart by the same reconciler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.jobs.gang import registry
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.naming import workload_key_of_gang
from kqueue.jobs.gang.registry import register
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.store import split_key
from tests.unit.controllers.builders import make_workload
from tests.unit.controllers.pod_world import GROUP, Pods
from tests.unit.jobs.pods import at, make_pod
from tests.unit.toys.toy_dialect import FRAMEWORK, GANG, SIZE, ToyGangs

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
KEY = gang_key(FRAMEWORK, "team", "g")


@pytest.fixture(autouse=True)
def workload() -> Iterator[str]:
    """The dialect is registered with one line, for one test; the name of the gang's Workload."""
    register(ToyGangs())
    yield split_key(workload_key_of_gang(KEY, ON))[1]
    del registry._dialects[FRAMEWORK]


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build(*pods: Any, **more: Any) -> Pods:
        worlds.append(Pods(*pods, switches=ON, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def of_toy(name: str, *, size: str = "2", **more: Any) -> dict[str, Any]:
    """A member of gang `g`."""
    pod: dict[str, Any] = make_pod(name, role="r", **more)
    pod["metadata"]["labels"] |= {GANG: "g", SIZE: size}
    return pod


def gated(world: Pods) -> list[bool]:
    return [world.gated(name) for name in world.names()]


async def test_pods_of_a_dialect_are_one_workload_and_start_together(make: Callable[..., Pods], workload: str) -> None:
    """G1.13: a dialect of one file is enough; the Workload says whose it is (G1.11)."""
    world = make(of_toy("p0"), of_toy("p1"))
    await world.rest(KEY)
    made = world.workload_named(workload)
    assert (sum(p["count"] for p in made["spec"]["podSets"]), made["spec"]["queueName"]) == (2, "main")
    assert made["metadata"]["annotations"]["kqueue.dev/gang"] == f"{FRAMEWORK}:g"
    assert gated(world) == [True, True]
    world.admit(workload)
    await world.rest(KEY)
    assert gated(world) == [False, False]


@pytest.mark.mechanism("4.18")
async def test_an_incomplete_gang_waits(make: Callable[..., Pods]) -> None:
    world = make(of_toy("p0", size="3"), of_toy("p1", size="3"))
    await world.rest(KEY)
    assert world.client.keys(WORKLOADS) == []
    assert f"Pod group {KEY} makes no Workload: the group has 2 of 3 pods" in world.recorder.messages[-1]


async def test_one_name_in_two_dialects_is_two_gangs(make: Callable[..., Pods], workload: str) -> None:
    """Neither counts pods of the other."""
    kueue = [make_pod(f"k{i}", group="g", total=2, role="r") for i in range(2)]
    world = make(of_toy("p0"), of_toy("p1"), *kueue)
    for key in (GROUP, KEY):
        await world.rest(key)
    assert sorted(world.client.keys(WORKLOADS)) == sorted(["team/g", f"team/{workload}"])
    world.admit("g")
    await world.rest(GROUP)
    await world.rest(KEY)
    assert gated(world) == [False, False, True, True]


async def test_a_workload_of_the_name_that_is_another_gangs_is_a_conflict(
    make: Callable[..., Pods], workload: str
) -> None:
    """Its annotation says another gang: it is not used, and the oldest pod is told."""
    world = make(of_toy("p0"), of_toy("p1"))
    theirs = make_workload(workload, metadata={"annotations": {"kueue.x-k8s.io/is-group-workload": "true"}})
    theirs["metadata"]["namespace"] = "team"
    world.client.put(WORKLOADS, theirs)
    await world.rest(KEY)
    assert world.told("p0") == ["WorkloadNameConflict"]


async def test_members_that_are_gone_leave_the_workload(make: Callable[..., Pods], workload: str) -> None:
    """As Kueue's groups do: the Workload is let go when its last pod is gone."""
    world = make(of_toy("p0"), of_toy("p1"))
    await world.rest(KEY)
    for name in world.names():
        world.client.drop(PODS, f"team/{name}")
    await world.rest(KEY)
    assert world.workload_named(workload)["metadata"].get("finalizers") in (None, [])


async def test_a_gang_that_its_user_deletes_ends_with_its_last_pod(make: Callable[..., Pods], workload: str) -> None:
    """Ended members of a gang without a group object wait for replacements while another member is there, not longer."""
    world = make(of_toy("p0"), of_toy("p1"))
    await world.rest(KEY)
    world.admit(workload)
    await world.rest(KEY)
    world.runs("p0", "p1")
    _ends(world, "p0")
    await world.rest(KEY)
    kept = [world.finalizer(name) for name in ("p0", "p1")]
    _ends(world, "p1")
    await world.rest(KEY)
    assert kept == [True, True]
    assert [world.finalizer(name) for name in world.names()] == [False] * len(world.names())


def _ends(world: Pods, name: str) -> None:
    """A user has deleted the pod, and its containers have ended."""
    change = {"metadata": {"deletionTimestamp": at(0), "deletionGracePeriodSeconds": 30}, "status": {"phase": "Failed"}}
    world.client.change(PODS, f"team/{name}", change)
    world.sync()


@pytest.mark.mechanism("0.4")
async def test_a_gang_keeps_its_first_member_as_its_identity(make: Callable[..., Pods], workload: str) -> None:
    """g1_6, g1_7, row 0.4: after the deletion of that pod, too; a new gang of the name has another identity."""
    world = make(of_toy("p0", born=-9), of_toy("p1"), of_toy("p2"))
    world.client.drop(PODS, "team/p0")
    await world.rest(KEY)
    marks = world.workload_named(workload)["metadata"]["annotations"]
    assert (marks["kqueue.dev/gang-uid"], marks["kqueue.dev/gang-since"]) == ("uid-p0", at(-1009))
    for name in world.names():
        world.client.drop(PODS, f"team/{name}")
    world.client.drop(WORKLOADS, f"team/{workload}")
    await world.rest(KEY)
    world.add(of_toy("p3"), of_toy("p4"))
    await world.rest(KEY)
    assert world.workload_named(workload)["metadata"]["annotations"]["kqueue.dev/gang-uid"] == "uid-p3"
