"""The Workloads of a LeaderWorkerSet's groups through their lives, and by a controller that is killed at any write."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.controllers.composed import STATEFUL_SETS
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import ConflictError
from kqueue.jobs.leader_worker_set import LeaderWorkerSet
from tests.unit.controllers.builders import status_of
from tests.unit.controllers.composed_world import MOST, Composed, Story
from tests.unit.jobs.builders import JSON, make_template, prefixed
from tests.unit.jobs.test_leader_worker_set import MARKS, ROLLING, made, member, plan_of

KEY = "team/serve"
TWO = make_template(annotations=MARKS)
"""A template of leaders, so that a group has two roles."""


class Groups(Composed):
    """One LeaderWorkerSet of groups of two pods, and the reconcilers of it and of its groups."""

    def __init__(self, replicas: int = 2) -> None:
        super().__init__(LeaderWorkerSet(), KEY)
        self.scale(replicas)

    def scale(self, replicas: int, **changes: Any) -> None:
        """As its user does."""
        self.write(made(replicas, **{"size": 2, "leader": TWO, **changes}))

    def appear(self, *places: tuple[int, int], **settings: Any) -> None:
        """Pods of these groups and ranks, as the set's controller and the webhook make them."""
        for group, rank in places:
            self.client.put(PODS, member(group, rank, **settings).obj)
        self.sync()

    def name(self, index: int) -> str:
        """Of a group's Workload."""
        return plan_of(made(9), index).names[0]

    def of(self, index: int) -> JSON:
        return self.workload_named(self.name(index))

    def admit_group(self, index: int) -> None:
        self.admit(self.name(index))

    def reserved(self, index: int) -> str:
        return status_of(self.of(index), "QuotaReserved")[0]

    @property
    def indexes(self) -> list[int]:
        """Groups that have a Workload."""
        names = {key.partition("/")[2] for key in self.client.keys(WORKLOADS)}
        return [index for index in range(9) if self.name(index) in names]


PLACES = ((0, 0), (1, 0), (0, 1), (1, 1))


async def life(story: Story[Groups]) -> None:
    """One group starts before the other, a group is added, one is evicted and starts again, one is taken away."""
    await story.settle()
    assert story.world.indexes == [0, 1]
    story.world.appear(*PLACES)
    await story.settle()
    assert story.world.all_held() == [True] * 4
    story.world.admit_group(1)
    await story.settle()
    assert [name for name in story.world.names() if not story.world.gated(name)] == ["serve-1", "serve-1-1"]
    story.world.runs("serve-1", "serve-1-1")
    story.world.scale(3)
    await story.settle()
    assert story.world.indexes == [0, 1, 2]
    story.world.evict(story.world.name(1))
    await story.settle()
    story.world.vanish("serve-1", "serve-1-1")
    story.world.appear((1, 0), (1, 1))
    await story.settle()
    assert story.world.reserved(1) == "False"
    story.world.admit_group(1)
    await story.settle()
    story.world.runs("serve-1", "serve-1-1")
    story.world.scale(1)
    story.world.vanish("serve-1", "serve-1-1")
    await story.settle()
    assert story.world.indexes == [0]
    story.world.admit_group(0)
    await story.settle()
    assert story.world.all_held() == [False] * 2


@pytest.mark.proves("LeaderWorkerSet", "scale")
@pytest.mark.proves("LeaderWorkerSet", "eviction and requeue")
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_is_made_up_for(done: bool) -> None:
    """The first write, the second, ... until the story has no more of them."""
    interrupted = 0
    for at in range(1, MOST):
        story = Story(Groups, at=at, done=done)
        await life(story)
        await story.world.close()
        if not story.died:
            break
        interrupted += 1

    assert 15 <= interrupted < MOST - 1


async def test_nothing_is_written_when_nothing_has_changed() -> None:
    """A restart costs no write."""
    world = Groups()
    await world.settle()
    world.appear(*PLACES)
    world.admit_group(0)
    await world.settle()
    before = len(world.client.writes())
    await world.settle()
    await world.close()

    assert len(world.client.writes()) == before


async def test_a_leader_starts_before_its_workers_exist() -> None:
    """Which some sets make only once it is ready: quota is there for all of them."""
    world = Groups(1)
    await world.settle()
    world.appear((0, 0))
    await world.settle()
    world.admit_group(0)
    await world.settle()
    first = world.gated("serve-0")
    world.runs("serve-0")
    world.appear((0, 1))
    await world.settle()
    await world.close()

    assert (first, world.gated("serve-0-1")) == (False, False)


async def test_a_group_that_is_scaled_away_holds_its_quota_until_its_last_pod_has_ended() -> None:
    """Its pods run on for as long as they take to end, and their controller may be slow."""
    world = Groups(2)
    await world.settle()
    world.appear(*PLACES)
    for group in (0, 1):
        world.admit_group(group)
    await world.settle()
    world.runs("serve-0", "serve-0-1", "serve-1", "serve-1-1")
    world.scale(1)
    await world.settle()
    during, again = world.reserved(1), (await world.reconcile(world.key)).requeue_after
    world.vanish("serve-1")
    await world.settle()
    last = world.indexes
    world.vanish("serve-1-1")
    await world.settle()
    await world.close()

    assert (during, again, last, world.indexes) == ("True", 5.0, [0, 1], [0])


async def test_a_surge_has_workloads_until_the_update_is_complete() -> None:
    """And then they go, also when its pods are still there."""
    world = Groups(1)
    rolls = {"replicas": 2, "updatedReplicas": 0}
    world.scale(1, surge=1, status=rolls)
    await world.settle()
    during = world.indexes
    world.appear((1, 0))
    await world.settle()
    world.scale(1, surge=1, status={"replicas": 2, "updatedReplicas": 1})
    await world.settle()
    world.vanish()
    await world.settle()
    await world.close()

    assert (during, world.indexes) == ([0, 1], [0])
    assert ("LeaderWorkerSet serve", "DeletedWorkload") in world.recorder.events


async def test_workloads_follow_class_queue_and_gates() -> None:
    """The class also while pods run; the queue only before."""
    world = Groups(2)
    world.workload_classes(low=1, high=10)
    world.scale(2, labels=prefixed(priority_class="low"), annotations=prefixed(admission_gated_by="a.b/c"))
    await world.settle()
    world.appear(*PLACES)
    world.admit_group(0)
    await world.settle()
    world.runs("serve-0", "serve-0-1")
    gates = [world.of(index)["metadata"]["annotations"].get("kueue.x-k8s.io/admission-gated-by") for index in range(2)]
    world.scale(2, labels=prefixed(priority_class="high"), queue="other")
    await world.settle()
    found = [world.of(index) for index in range(2)]
    await world.close()

    assert gates == ["a.b/c"] * 2
    assert [w["spec"]["priority"] for w in found] == [10, 10]
    assert [w["spec"]["queueName"] for w in found] == ["main", "other"]
    assert not any("kueue.x-k8s.io/admission-gated-by" in w["metadata"]["annotations"] for w in found)


async def test_one_group_that_cannot_be_written_keeps_no_other_up() -> None:
    """All others have their Workloads, however many there are, and it is tried again."""
    world = Groups(101)
    world.client.fail(ConflictError("somebody was faster"), verb="create", times=1)
    with pytest.raises(ConflictError):
        await world.look(KEY)
    first = len(world.client.keys(WORKLOADS))
    await world.look(KEY)
    second = len(world.client.keys(WORKLOADS))
    await world.close()

    assert (first, second) == (100, 101)


async def test_held_leaders_of_an_old_revision_are_replaced_unstarted() -> None:
    """The StatefulSet of all leaders says which they are; it is read only once the set has changed."""
    world = Groups(1)
    world.client.put(
        STATEFUL_SETS, {"metadata": {"name": "serve", "namespace": "team", "uid": "set-serve"}, "status": ROLLING}
    )
    world.appear((0, 0), (0, 1))
    await world.settle()
    before = world.names()
    world.scale(1, generation=2)
    await world.settle()
    await world.close()

    assert before == ["serve-0", "serve-0-1"]
    assert world.names() == ["serve-0-1"]


@pytest.mark.parametrize("queued", [False, True], ids=["without a Workload", "with its Workload"])
async def test_held_pods_of_a_set_that_is_gone_do_not_wait_for_ever(queued: bool) -> None:
    """They go, unless their Workload is there still and starts them: nothing runs without quota."""
    world = Groups(1)
    await world.settle()
    world.appear((0, 0), (0, 1))
    await world.settle()
    world.sets.remove(KEY)
    early = await world.look(KEY)
    world.client.drop(world.resource, KEY)
    if not queued:
        world.client.drop(WORKLOADS, f"team/{world.name(0)}")
        world.sync()
    await world.look(KEY)
    left = world.names()
    await world.close()

    assert early == []
    assert left == (["serve-0", "serve-0-1"] if queued else [])


async def test_pods_with_the_labels_of_a_set_that_did_not_make_them_are_left_alone() -> None:
    """Their owner is a StatefulSet of somebody's: they join no group, and take no place in it."""
    world = Groups(1)
    await world.settle()
    world.appear((0, 0), owner="mine")
    world.admit_group(0)
    await world.settle()
    pod = world.pod("serve-0")
    await world.close()

    assert world.gated("serve-0")
    assert "kueue.x-k8s.io/pod-group-name" not in pod["metadata"]["annotations"]


async def test_a_huge_set_is_looked_at_anew_once_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its groups get their Workloads bit by bit, and none that are not wanted any more."""
    world = Groups(0)
    await world.settle()
    world.scale(1000)
    create, smaller = world.client.create, made(0, size=2, leader=TWO)

    async def once(*args: Any, **more: Any) -> JSON:
        world.sets.put(KEY, smaller)
        return await create(*args, **more)

    monkeypatch.setattr(world.client, "create", once)
    await world.look(KEY)
    found = len(world.client.keys(WORKLOADS))
    await world.close()

    assert 0 < found <= 100
