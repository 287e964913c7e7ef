"""A PodGroup belongs to one owner at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from kqueue.controllers.resources import PODS
from kqueue.errors import ForbiddenError
from kqueue.runtime.resources import ResourceType
from tests.unit.controllers.test_gang_status import Status
from tests.unit.controllers.test_group_objects import GROUPS, ON, gated, name_of, of_group, pod_group, workloads
from tests.unit.jobs.builders import JSON

SETS = ResourceType("apps", "v1", "replicasets", "ReplicaSet")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Status]]:
    worlds: list[Status] = []

    def build(*pods: JSON) -> Status:
        worlds.append(Status(*pods, switches=ON))
        worlds[-1].client.put(GROUPS, pod_group())
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def owned(name: str, by: str, *, kind: str = "ReplicaSet", version: str = "apps/v1", born: float = 0) -> JSON:
    """A member whose controller is `by`."""
    pod = of_group(name, born=born)
    owner = {"apiVersion": version, "kind": kind, "name": by, "uid": f"uid-{by}", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def replica_set(name: str, deployment: str = "") -> JSON:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": f"uid-{deployment}"}
    owners = [{**owner, "controller": True}] if deployment else []
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "ownerReferences": owners},
        "spec": {},
    }


@pytest.mark.mechanism("4.9")
async def test_pods_of_a_second_owner_wait_until_the_first_is_gone(make: Callable[..., Status]) -> None:
    """g3_P15, g3_P16, row 4.9."""
    world = make(owned("a0", "a"), owned("a1", "a"), owned("b0", "b", born=1), owned("b1", "b", born=1))
    await world.settle()
    world.admit(name_of())
    await world.settle()
    assert gated(world) == [False, False, True, True]
    assert world.shown["occupiedBy"] == "uid-a"
    message = "PodGroup g is occupied by ReplicaSet a (uid-a); this pod belongs to ReplicaSet b; use another PodGroup"
    assert world.told("b0") == ["PodGroupOccupied"]
    assert world.recorder.messages.count(message) == 3  # on both pods, and once on the PodGroup
    world.runs("a0", "a1", phase="Succeeded")
    for name in ("a0", "a1"):
        world.client.drop(PODS, f"team/{name}")
    world.client.change(GROUPS, "team/g", {"status": {"phase": "Pending"}})
    await world.settle()
    assert world.shown["occupiedBy"] == "uid-b"


async def test_one_deployment_is_one_occupant(make: Callable[..., Status]) -> None:
    """Pods of two ReplicaSets of one Deployment, and each controller is read once."""
    world = make(owned("a0", "a"), owned("b0", "b", born=1))
    for name in "ab":
        world.client.put(SETS, replica_set(name, "web"))
    await world.settle()
    assert world.shown["occupiedBy"] == "uid-web"
    assert workloads(world) == [name_of()]
    assert sum(call.verb == "get" and call.resource == SETS for call in world.client.calls) == 2


async def test_executors_belong_to_their_driver(make: Callable[..., Status]) -> None:
    """Pods that a member owns have the occupant of that member, which here is nobody."""
    world = make(of_group("driver"), owned("e0", "driver", kind="Pod", version="v1", born=1))
    await world.settle()
    assert workloads(world) == [name_of()]
    assert world.shown.get("occupiedBy", "") == ""


async def test_a_value_that_is_no_uid_is_replaced(make: Callable[..., Status]) -> None:
    """g3_P17: other controllers write names there."""
    world = make(owned("a0", "a"))
    world.client.change(GROUPS, "team/g", {"status": {"occupiedBy": "team/a,team/b"}})
    await world.settle()
    assert world.shown["occupiedBy"] == "uid-a"


async def test_an_owner_that_may_not_be_read_is_the_occupant(make: Callable[..., Status]) -> None:
    world = make(owned("a0", "a"), owned("a1", "a"))
    world.client.fail(ForbiddenError("no", status=403), verb="get", key="team/a")
    await world.settle()
    assert world.shown["occupiedBy"] == "uid-a"


async def test_a_finished_group_takes_no_more_members(make: Callable[..., Status]) -> None:
    """g3_P18."""
    world = make(of_group("a"), of_group("b"))
    await world.settle()
    world.admit(name_of())
    await world.settle()
    world.runs("a", "b", phase="Succeeded")
    await world.settle()
    world.add(of_group("late", born=2000))
    await world.settle()
    assert world.shown["phase"] == "Finished"
    assert gated(world)[-1]
    assert world.told("late") == ["GroupFinished"]
