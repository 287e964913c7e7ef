"""A StatefulSet's Workload through its life, told to its events, and by a controller that is killed at any write."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.controllers.composed import STATEFUL_SETS
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import ConflictError
from kqueue.jobs.composed import GroupPlan
from kqueue.jobs.stateful_set import StatefulSet
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority
from tests.unit.controllers.builders import status_of
from tests.unit.controllers.composed_world import MOST, Composed, Story
from tests.unit.jobs.builders import JSON, prefixed
from tests.unit.jobs.pods import make_pod
from tests.unit.jobs.test_composed import INDEX, made

KEY = "team/db"


class Sets(Composed):
    """One StatefulSet, and the reconcilers of it and of its group."""

    def __init__(self, replicas: int = 2) -> None:
        super().__init__(StatefulSet(), KEY)
        self.scale(replicas)

    def scale(self, replicas: int, **changes: Any) -> None:
        """As its user does."""
        self.write(made(replicas, **changes))

    def appear(self, *numbers: int, **settings: Any) -> None:
        """As the StatefulSet controller does."""
        uid = made()["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": uid, "controller": True}
        for number in numbers:
            marks = prefixed(pod_suspending_parent="statefulset", role_hash="abc")
            pod = make_pod(f"db-{number}", queue=None, finalizer=False, annotations=marks,
                           labels={INDEX: str(number)}, **settings)  # fmt: skip
            pod["metadata"]["ownerReferences"] = [owner]
            self.client.put(PODS, pod)
        self.sync()

    @property
    def only_workload(self) -> JSON:
        (key,) = self.client.keys(WORKLOADS)
        return self.workload_named(key.partition("/")[2])

    @property
    def count(self) -> int:
        return int(self.only_workload["spec"]["podSets"][0]["count"])

    def admitted(self) -> None:
        self.admit(self.only_workload["metadata"]["name"])

    def reserved(self) -> tuple[str, str]:
        return status_of(self.only_workload, "QuotaReserved")


async def life(story: Story[Sets]) -> None:
    """Queued, started whole, scaled to 0, back with another size, evicted, started again."""
    await story.settle()
    assert story.world.count == 2
    story.world.appear(0, 1)
    await story.settle()
    assert story.world.all_held() == [True, True]
    story.world.admitted()
    await story.settle()
    assert story.world.all_held() == [False, False]
    story.world.runs("db-0", "db-1")
    story.world.scale(0)
    await story.settle()
    assert story.world.reserved()[0] == "True"
    story.world.vanish()
    await story.settle()
    assert story.world.reserved() == ("False", "OnHold")
    story.world.scale(3)
    await story.settle()
    assert (story.world.reserved(), story.world.count) == (("False", "PendingEvaluation"), 3)
    story.world.appear(0, 1, 2)
    await story.settle()
    assert story.world.all_held() == [True] * 3
    story.world.admitted()
    await story.settle()
    assert story.world.all_held() == [False] * 3
    story.world.runs("db-0", "db-1", "db-2")
    await story.settle()
    story.world.evict(story.world.only_workload["metadata"]["name"])
    await story.settle()
    story.world.vanish()
    story.world.appear(0, 1, 2)
    await story.settle()
    assert story.world.reserved()[0] == "False"
    assert story.world.all_held() == [True] * 3
    story.world.admitted()
    await story.settle()
    assert story.world.all_held() == [False] * 3
    assert status_of(story.world.only_workload, "Finished")[0] == ""


@pytest.mark.proves("StatefulSet", "scale")
@pytest.mark.proves("StatefulSet", "eviction and requeue")
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_is_made_up_for(done: bool) -> None:
    """The first write, the second, ... until the story has no more of them."""
    interrupted = 0
    for at in range(1, MOST):
        story = Story(Sets, at=at, done=done)
        await life(story)
        await story.world.close()
        if not story.died:
            break
        interrupted += 1

    assert 15 <= interrupted < MOST - 1


async def test_nothing_is_written_when_nothing_has_changed() -> None:
    """A restart costs no write."""
    world = Sets()
    await world.settle()
    world.appear(0, 1)
    await world.settle()
    world.admitted()
    await world.settle()
    before = len(world.client.writes())
    await world.settle()
    await world.close()

    assert len(world.client.writes()) == before


async def test_more_replicas_than_admitted_are_held_and_told_of_once() -> None:
    """The group is never more than its Workload says, so it stays in step with it."""
    world = Sets()
    await world.settle()
    world.appear(0, 1)
    await world.settle()
    world.admitted()
    await world.settle()
    world.runs("db-0", "db-1")
    world.scale(3)
    world.appear(2)
    await world.settle()
    await world.look(KEY)
    told = [reason for what, reason in world.recorder.events if reason == "ReplicasDiffer"]
    await world.close()

    assert world.all_held() == [False, False, True]
    assert (world.count, status_of(world.only_workload, "Finished")[0]) == (2, "")
    assert told == ["ReplicasDiffer"]


@pytest.mark.parametrize("replicas", [1, 4], ids=["fewer", "more"])
async def test_another_size_is_taken_over_while_it_waits(replicas: int) -> None:
    """Also when its pods said the old one already."""
    world = Sets()
    await world.settle()
    world.appear(0, 1)
    await world.settle()
    world.scale(replicas)
    await world.settle()
    totals = {
        world.pod(name)["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for name in world.names()
    }
    await world.close()

    assert (world.count, totals) == (replicas, {str(replicas)})
    assert status_of(world.only_workload, "Finished")[0] == ""


async def test_what_was_admitted_moves_to_another_queue_before_it_has_begun() -> None:
    """Its old quota goes back first; pods that run stay where they are."""
    world = Sets()
    await world.settle()
    world.admitted()
    world.scale(2, queue="other")
    await world.settle()
    moved = (world.only_workload["spec"]["queueName"], world.reserved()[0])
    world.appear(0, 1)
    await world.settle()
    world.admitted()
    await world.settle()
    world.runs("db-0", "db-1")
    world.scale(2, queue="third")
    await world.settle()
    await world.close()

    assert moved == ("other", "False")
    assert (world.only_workload["spec"]["queueName"], world.reserved()[0]) == ("other", "True")


async def test_a_missing_priority_class_is_told() -> None:
    """On the StatefulSet; no Workload is made until it is there."""
    world = Sets()
    world.scale(2, labels=prefixed(priority_class="none"))
    with pytest.raises(Exception, match="none does not exist"):
        await world.look(KEY)
    events = list(world.recorder.events)
    await world.close()

    assert ("StatefulSet db", "WorkloadPriorityClassNotFound") in events
    assert world.client.keys(WORKLOADS) == []


async def test_one_pod_that_cannot_be_written_keeps_nobody_up() -> None:
    """The others join the group, and it is tried again."""
    world = Sets()
    await world.settle()
    world.appear(0, 1)
    world.client.fail(ConflictError("somebody was faster"), verb="patch", key="team/db-0", times=1)
    with pytest.raises(ConflictError):
        await world.look(KEY)
    joined = "kueue.x-k8s.io/pod-group-name" in world.pod("db-1")["metadata"]["annotations"]
    await world.settle()
    await world.close()

    assert joined
    assert "kueue.x-k8s.io/pod-group-name" in world.pod("db-0")["metadata"]["annotations"]


async def test_one_that_is_not_queued_any_more_gives_back_when_its_last_pod_is_gone() -> None:
    """Its label was taken off past the webhook: what runs stays counted, and nothing is held for ever."""
    world = Sets()
    await world.settle()
    world.appear(0, 1)
    await world.settle()
    world.admitted()
    await world.settle()
    world.runs("db-0", "db-1")
    world.scale(2, queue="")
    world.sets.remove(KEY)
    await world.settle()
    counted = world.reserved()[0]
    world.vanish()
    await world.settle()
    await world.close()

    assert counted == "True"
    assert world.client.keys(WORKLOADS) == []
    assert ("StatefulSet db", "DeletedWorkload") in world.recorder.events


@pytest.mark.parametrize("has_workload", [False, True])
async def test_one_that_is_gone_owns_nothing_any_more(has_workload: bool) -> None:
    """Our watch has it still; what we would make or give it the garbage collector takes away as fast."""
    world = Sets()
    if has_workload:
        await world.settle()
        world.client.change(WORKLOADS, world.client.keys(WORKLOADS)[0], {"metadata": {"ownerReferences": None}})
    world.sync()
    world.client.drop(STATEFUL_SETS, KEY)
    writes = await world.look(KEY, late=True)
    await world.close()

    assert writes == []


async def test_the_workload_of_one_that_is_gone_is_left_to_the_garbage_collector() -> None:
    """As it is when the watch is only late."""
    world = Sets()
    await world.settle()
    found = world.sets.get(KEY)
    world.sets.remove(KEY)
    late = await world.look(KEY)
    assert found is not None
    world.client.drop(STATEFUL_SETS, KEY)
    gone = await world.look(KEY)
    await world.close()

    assert (late, gone) == ([], [])
    assert len(world.client.keys(WORKLOADS)) == 1


@pytest.mark.parametrize(("generation", "counted"), [pytest.param(1, 1, id="new"), pytest.param(2, 0, id="changed")])
async def test_only_the_first_workload_of_a_new_one_tells_how_long_it_took(generation: int, counted: int) -> None:
    """One that comes back from 0 replicas was not waiting for its Workload all the time."""
    sets = Sets()
    found = sets.sets.get(KEY)
    assert found is not None
    found["metadata"]["generation"] = generation
    await sets.settle()

    assert len(sets.latencies) == counted
    await sets.close()


ORIGIN, ORIGIN_UID = "kueue.x-k8s.io/multikueue-origin", "kueue.x-k8s.io/multikueue-origin-uid"


class Copies(Sets):
    """A StatefulSet that a manager has made here, with the Workload that it made before."""

    def scale(self, replicas: int, **changes: Any) -> None:
        self.write(made(replicas, labels={ORIGIN: "west"}, annotations={ORIGIN_UID: "theirs"}, **changes))

    def dispatched(self, *, origin: str = "west") -> None:
        """The manager makes the Workload, of the size that the StatefulSet has there."""
        theirs = made(2)
        theirs["metadata"]["uid"] = "theirs"
        (group,) = StatefulSet().groups(theirs, JobFeatures())
        found = GroupPlan(StatefulSet(), theirs, group, JobFeatures()).workload(Priority())
        meta = {key: found["metadata"][key] for key in ("name", "namespace", "annotations")}
        self.client.put(WORKLOADS, {**found, "metadata": {**meta, "uid": "copy", "labels": {ORIGIN: origin}}})
        self.sync()


async def test_a_copy_runs_with_the_workload_of_its_manager() -> None:
    """9: it makes none, becomes its owner, starts its pods, and changes nothing of it when it is scaled."""
    world = Copies()
    await world.settle()
    world.appear(0, 1)
    await world.settle()
    assert (world.client.keys(WORKLOADS), world.all_held()) == ([], [True, True])
    world.dispatched()
    await world.settle()
    before = world.only_workload["spec"]
    world.admitted()
    await world.settle()
    assert world.all_held() == [False, False]
    world.runs("db-0", "db-1")
    world.scale(3)
    await world.settle()
    world.scale(0)
    world.vanish()
    await world.settle()
    owners = [o["kind"] for o in world.only_workload["metadata"]["ownerReferences"]]
    status = world.reserved()
    await world.close()

    assert owners[0] == "StatefulSet"
    assert world.only_workload["metadata"]["labels"][ORIGIN] == "west"
    assert (world.only_workload["spec"], status[0]) == (before, "True")


async def test_a_copy_takes_no_workload_of_another_origin() -> None:
    """17.2: an object without the origin of its manager is never used."""
    world = Copies()
    world.dispatched(origin="east")
    world.appear(0, 1)
    world.admitted()
    await world.settle()
    held, owners = world.all_held(), world.only_workload["metadata"].get("ownerReferences", [])
    await world.close()

    assert (held, owners) == ([True, True], [])
