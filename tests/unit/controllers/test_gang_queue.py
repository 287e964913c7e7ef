"""Another queue on a group object: the members follow while none is released, and the Workload moves after them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from tests.unit.controllers.pod_world import Pods
from tests.unit.controllers.test_group_objects import GROUPS, KEY, ON, name_of, of_group, pod_group
from tests.unit.jobs.builders import JSON

QUEUE = "kueue.x-k8s.io/queue-name"
IGNORED = "QueueChangeIgnored"


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build(*pods: JSON, queue: str = "main") -> Pods:
        worlds.append(Pods(*pods, switches=ON))
        worlds[-1].client.put(GROUPS, pod_group(labels={QUEUE: queue} if queue else {}))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def move(world: Pods, queue: str) -> None:
    """A user labels the PodGroup."""
    world.client.change(GROUPS, "team/g", {"metadata": {"labels": {QUEUE: queue}}})


def queues(world: Pods) -> list[str]:
    """The queues of the members, and of the Workload."""
    labels = [world.pod(name)["metadata"]["labels"].get(QUEUE, "") for name in world.names()]
    return [*labels, world.workload_named(name_of())["spec"]["queueName"]]


@pytest.mark.parametrize("before", ["main", ""])
async def test_a_waiting_gang_follows_its_group_object(make: Callable[..., Pods], before: str) -> None:
    """G2.6: one patch for each member, also for those beyond the quorum; then nothing is left to do."""
    world = make(of_group("a"), of_group("b"), of_group("c", born=1), queue=before)
    await world.rest(KEY)
    move(world, "other")
    seen = len(world.client.writes())
    await world.rest(KEY)
    assert queues(world) == ["other"] * 4
    patched = [str(call) for call in world.client.writes()[seen:] if "pods" in str(call)]
    assert len(patched) == 3
    assert IGNORED not in [reason for _, reason in world.recorder.events]


async def test_a_difference_from_the_beginning_is_no_change(make: Callable[..., Pods]) -> None:
    """G2.4: the label of the oldest member counts before that of the group object."""
    world = make(of_group("a"), of_group("b"), queue="other")
    await world.rest(KEY)
    assert queues(world) == ["main"] * 3
    move(world, "third")
    await world.rest(KEY)
    assert queues(world) == ["third"] * 3


async def test_an_admitted_gang_that_has_not_begun_gives_its_quota_back(make: Callable[..., Pods]) -> None:
    """It is admitted in the new queue, and no pod is released on the quota of the old one."""
    world = make(of_group("a"), of_group("b"))
    await world.rest(KEY)
    world.admit(name_of())
    move(world, "other")
    await world.rest(KEY)
    assert queues(world) == ["other"] * 3
    assert [world.gated(name) for name in world.names()] == [True, True]
    held = {c["type"]: c["status"] for c in world.workload_named(name_of())["status"]["conditions"]}
    assert held["QuotaReserved"] == "False"


async def test_a_restart_between_two_patches_leaves_nothing_behind(make: Callable[..., Pods]) -> None:
    """What is left of the change is seen from the objects; the labels that differ make no problem."""
    world = make(of_group("a"), of_group("b"))
    await world.rest(KEY)
    move(world, "other")
    world.client.change(PODS, "team/a", {"metadata": {"labels": {QUEUE: "other"}}})
    await world.rest(KEY)
    assert queues(world) == ["other"] * 3
    assert "ErrWorkloadCompose" not in [reason for _, reason in world.recorder.events]


async def test_a_gang_that_has_begun_stays_and_the_user_is_told(make: Callable[..., Pods]) -> None:
    """G2.6: once; an eviction lets the gang follow, because then nothing is released."""
    world = make(of_group("a"), of_group("b"), of_group("c", born=1))
    await world.rest(KEY)
    world.admit(name_of())
    await world.rest(KEY)
    world.runs("a", "b")
    move(world, "other")
    await world.rest(KEY)
    await world.rest(KEY)
    assert queues(world) == ["main"] * 4
    told = [(what, reason) for what, reason in world.recorder.events if reason == IGNORED]
    assert told == [("PodGroup g", IGNORED)]
    world.evict(name_of())
    await world.rest(KEY)
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    world.add(of_group("d", born=2))
    await world.rest(KEY)
    assert queues(world) == ["other"] * 3


async def test_a_workload_without_the_mark_is_left_alone(make: Callable[..., Pods]) -> None:
    """An earlier version or another writer left it: whether the label was changed is not known."""
    world = make(of_group("a"), of_group("b"))
    await world.rest(KEY)
    mark: JSON = {"metadata": {"annotations": {"kqueue.dev/group-object-queue": None}}}
    world.client.change(WORKLOADS, f"team/{name_of()}", mark)
    move(world, "other")
    await world.rest(KEY)
    assert queues(world) == ["main"] * 3
