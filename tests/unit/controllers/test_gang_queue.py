"""Another queue on a group object: the members follow while none is released, and the Workload moves after them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS, group_object_resources
from kqueue.jobs.gang import podgroup_volcano
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.switches import JobFeatures
from tests.unit.controllers.pod_world import Pods
from tests.unit.controllers.test_group_objects import GROUPS, KEY, ON, name_of, of_group, pod_group
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import make_pod

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


# --- while it gathers


def given(name: str, queue: str = "main", **more: Any) -> JSON:
    """A member that named no queue, so that kqueue gave it one."""
    return of_group(name, queue=queue, annotations={"kqueue.dev/given-queue": "main"}, **more)


def labels_of(world: Pods) -> list[str]:
    return [world.pod(name)["metadata"]["labels"].get(QUEUE, "") for name in world.names()]


async def test_a_gathering_gang_follows_its_group_object(make: Callable[..., Pods]) -> None:
    """G2.6: the first member moves before the second one comes, also where the controller was away."""
    world = make(given("a"))
    await world.rest(KEY)
    move(world, "other")
    await world.rest(KEY)
    assert labels_of(world) == ["other"]
    move(world, "third")
    world.add(of_group("b", queue="third", annotations={"kqueue.dev/given-queue": "third"}, born=1))
    await world.rest(KEY)
    assert queues(world) == ["third"] * 3
    move(world, "fourth")
    await world.rest(KEY)
    assert queues(world) == ["fourth"] * 3


async def test_a_queue_of_the_users_own_stays_while_the_gang_gathers(make: Callable[..., Pods]) -> None:
    """G2.4: its label was written, or changed, by its user; and an object without a queue changes nothing."""
    world = make(of_group("a"), queue="main")
    await world.rest(KEY)
    move(world, "other")
    await world.rest(KEY)
    assert labels_of(world) == ["main"]
    world.client.drop(PODS, "team/a")
    world.add(given("b", queue="mine"))
    await world.rest(KEY)
    assert labels_of(world) == ["mine"]
    world.client.drop(PODS, "team/b")
    world.client.change(GROUPS, "team/g", {"metadata": {"labels": {QUEUE: None}}})
    world.add(given("c"))
    await world.rest(KEY)
    assert labels_of(world) == ["main"]


# --- a field with the queue


VOLCANO = JobFeatures(gangs=(KUEUE_GROUPS, podgroup_volcano.FRAMEWORK))
[VOLCANO_GROUPS] = group_object_resources(dialect_of(podgroup_volcano.FRAMEWORK))


@pytest.mark.parametrize("members", [1, 2])
async def test_a_queue_in_a_field_counts_where_it_is_a_local_queue(members: int) -> None:
    """G2.6 for Volcano's `spec.queue`, before and after the Workload is there."""
    key = gang_key(podgroup_volcano.FRAMEWORK, "team", "g")
    marks = {"scheduling.k8s.io/group-name": "g", "kqueue.dev/given-queue": "main"}
    world = Pods(*(make_pod(f"p{i}", role="r", annotations=marks) for i in range(members)), switches=VOLCANO)
    world.queue_keys = {"team/main", "team/other"}
    world.client.put(VOLCANO_GROUPS, pod_group() | {"spec": {"minMember": 2, "queue": "main"}})
    seen = []
    for queue in ("missing", "other"):
        await world.rest(key)
        world.client.change(VOLCANO_GROUPS, "team/g", {"spec": {"queue": queue}})
        await world.rest(key)
        seen.append(labels_of(world))
    await world.close()
    assert seen == [["main"] * members, ["other"] * members]
