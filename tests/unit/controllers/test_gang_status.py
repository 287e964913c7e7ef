"""The status of group objects follows their gangs, in few writes and beside other writers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import ConflictError
from kqueue.jobs.gang import podgroup_k8s
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.client import Json
from kqueue.runtime.resources import ResourceType
from tests.unit.controllers.pod_world import Pods
from tests.unit.controllers.test_group_objects import GROUPS, KEY, ON, name_of, of_group, pod_group
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import make_pod


class Status(Pods):
    """A world with one PodGroup, and the reconciler of its status."""

    def pod_group(self) -> Json:
        found = self.client.object(GROUPS, "team/g")
        assert found is not None
        return found

    @property
    def shown(self) -> Json:
        """The status that users see."""
        return dict(self.pod_group().get("status", {}))

    def writes_of_status(self) -> int:
        return sum(call.resource == GROUPS for call in self.client.writes(subresource="status"))

    async def settle(self, *, seconds: float = 2.0) -> None:
        """All reconcilers have nothing left to do; time goes on before each look at the status."""
        for _ in range(4):
            await self.rest(KEY)
            for name in self.names():
                await self.rest(f"team/{name}")
            for _ in range(4):
                await self.clock.advance(seconds)
                self.sync()
                await self.status.reconcile(KEY)

    def condition(self, kind: str) -> tuple[str, str, str]:
        [found] = [c for c in self.shown["conditions"] if c["type"] == kind]
        return found["status"], found["reason"], found["message"]

    def told_group(self) -> list[str]:
        """Reasons of the events on the PodGroup, in order, without those of its Workload."""
        of_workload = ("CreatedWorkload", "UpdatedWorkload", "ErrWorkloadCompose")
        return [reason for what, reason in self.recorder.events if what == "PodGroup g" and reason not in of_workload]


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Status]]:
    worlds: list[Status] = []

    def build(*pods: JSON, group: JSON | None = None, switches: JobFeatures = ON) -> Status:
        worlds.append(Status(*pods, switches=switches))
        worlds[-1].client.put(GROUPS, group or pod_group())
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def running(make: Callable[..., Status], *more: JSON) -> Status:
    """A world in which the quorum runs."""
    world = make(of_group("a"), of_group("b"), *more)
    await world.settle()
    world.admit(name_of())
    await world.settle()
    world.runs("a", "b")
    await world.settle()
    return world


@pytest.mark.proves("PodGroup", "eviction and requeue")
@pytest.mark.proves("PodGroup", "finished")
@pytest.mark.mechanism("3.31", "4.4")
async def test_every_field_through_a_life_with_two_evictions(make: Callable[..., Status]) -> None:
    """g3_P7 to g3_P12: phase, counts, time of the last release, message, conditions."""
    world = make(of_group("a"))
    await world.settle()
    assert world.shown["phase"] == "Pending"
    assert world.shown["message"] == "the group has 1 of 2 pods; it waits for 1 more"
    assert world.condition("Queued") == ("False", "NotEnoughTasks", world.shown["message"])

    world.add(of_group("b"))
    for round_ in range(3):
        await world.settle()
        assert (world.shown["phase"], world.condition("Queued")[0]) == ("Pending", "True")
        world.admit(name_of())
        await world.settle()
        assert (world.shown["phase"], world.shown["running"], world.shown["scheduled"]) == ("Scheduling", 0, 0)
        assert world.shown["scheduleStartTime"]
        world.runs(*world.names())
        await world.settle()
        assert (world.shown["phase"], world.shown["running"], world.shown["scheduled"]) == ("Running", 2, 2)
        assert [world.condition(kind)[0] for kind in ("Queued", "Scheduled", "Ready")] == ["True"] * 3
        if round_ == 2:
            break
        started = world.shown["scheduleStartTime"]
        world.evict(name_of(), message=f"needed by others ({round_})")
        await world.settle()
        assert (world.shown["phase"], world.shown["message"]) == ("Pending", f"needed by others ({round_})")
        assert world.shown["scheduleStartTime"] == started
        for name in world.names():
            world.client.drop(PODS, f"team/{name}")
        world.add(of_group(f"a{round_}"), of_group(f"b{round_}"))
    world.runs(*world.names(), phase="Succeeded")
    await world.settle()
    assert (world.shown["phase"], world.shown["succeeded"]) == ("Finished", 2)
    life = ["Scheduled", "Running", "Preempted"]
    assert world.told_group() == [
        *life,
        *life,
        "Scheduled",
        "Running",
        "Finished",
    ]


async def test_a_quiet_gang_is_written_once(make: Callable[..., Status]) -> None:
    """g7_22, g3_17: nothing is written while the status stays equal, not by a new process, either."""
    world = await running(make)
    before = len(world.client.writes())
    await world.settle()
    assert len(world.client.writes()) == before
    world.status._memories.clear()
    world.status._dropped.clear()
    await world.settle()
    assert len(world.client.writes()) == before
    assert world.writes_of_status() <= 10


async def test_counts_alone_are_written_once_in_a_window(make: Callable[..., Status]) -> None:
    """g3_17: a new phase is written at once; several changed counts are one write, the newest."""
    world = make(of_group("a"), of_group("b"), of_group("c", born=1), group=pod_group(minimum=3))
    await world.settle()
    world.admit(name_of())
    await world.settle()
    before = world.writes_of_status()
    for name in ("a", "b"):
        world.runs(name)
        result = await world.status.reconcile(KEY)
    assert result.requeue_after is not None
    assert world.writes_of_status() == before + 1
    world.runs("c")
    await world.status.reconcile(KEY)
    assert world.writes_of_status() == before + 2
    assert world.shown["phase"] == "Running"


async def test_a_conflict_is_computed_again_from_the_newer_object(make: Callable[..., Status]) -> None:
    """g3_18: another writer of the object does not lose its change."""
    world = make(of_group("a"), of_group("b"))
    await world.rest(KEY)
    world.sync()
    world.client.change(GROUPS, "team/g", {"metadata": {"labels": {"mine": "yes"}}})
    world.client.fail(ConflictError("changed", status=409), key="team/g")
    await world.status.reconcile(KEY)
    assert world.shown["phase"] == "Pending"
    assert world.pod_group()["metadata"]["labels"] == {"mine": "yes"}


async def test_fields_that_the_definition_lacks_are_written_once(make: Callable[..., Status]) -> None:
    """g3_19: the project's own definition has neither `scheduled`, `message` nor conditions."""
    world = make(of_group("a"), of_group("b"))
    world.client.pruned |= {"scheduled", "message", "conditions"}
    await world.settle()
    assert "conditions" not in world.shown
    before = world.writes_of_status()
    await world.settle()
    assert (before, world.writes_of_status()) == (1, 1)
    world.admit(name_of())
    await world.settle()
    assert world.shown["phase"] == "Scheduling"


async def test_a_contested_status_is_left_alone_for_a_while(make: Callable[..., Status]) -> None:
    """g2_12: after three changes by another controller within a minute kqueue is silent for ten minutes."""
    world = await running(make)
    for _ in range(5):
        world.client.change(GROUPS, "team/g", {"status": {"phase": "Scheduled"}})
        world.sync()
        await world.status.reconcile(KEY)
        world.sync()
    assert world.told_group().count("StatusContested") == 1
    assert world.shown["phase"] == "Scheduled"
    before = world.writes_of_status()
    await world.settle()
    assert world.writes_of_status() == before
    await world.clock.advance(600)
    await world.settle()
    assert world.shown["phase"] == "Running"


async def test_changes_of_others_now_and_then_are_corrected(make: Callable[..., Status]) -> None:
    """A user who edits the status once in a while is no other controller."""
    world = await running(make)
    for _ in range(5):
        await world.clock.advance(61)
        world.client.change(GROUPS, "team/g", {"status": {"running": 7}})
        world.sync()
        await world.settle()
        assert world.shown["running"] == 2
    assert "StatusContested" not in world.told_group()


@pytest.mark.mechanism("4.7")
async def test_failed_members_are_events_and_a_failed_extra_is_no_phase(make: Callable[..., Status]) -> None:
    """g3_16, row 4.7."""
    world = await running(make, of_group("c", born=1))
    [extra] = [name for name in workloads(world) if name.startswith("pod-")]
    world.admit(extra)
    await world.settle()
    world.runs("c", phase="Failed")
    await world.settle()
    assert (world.shown["phase"], world.shown["failed"]) == ("Running", 1)
    world.runs("a", phase="Failed")
    await world.settle()
    assert world.shown["phase"] == "Failed"
    assert world.told_group()[-3:] == ["ExtraStarted", "MemberFailed", "MemberFailed"]
    assert "pod a failed: its containers ended with an error; 1 of 3 are left" in world.recorder.messages


def workloads(world: Pods) -> list[str]:
    return sorted(key.partition("/")[2] for key in world.client.keys(WORKLOADS))


async def test_a_strange_object_is_never_written(make: Callable[..., Status]) -> None:
    """g2_8: without members of kqueue and without a queue it belongs to another scheduler."""
    world = make()
    world.status._is_ours = lambda _framework, _obj: False
    await world.settle()
    assert world.writes_of_status() == 0
    world.status._is_ours = lambda _framework, _obj: True
    await world.settle()
    assert world.shown["phase"] == "Pending"


async def test_kubernetes_own_pod_groups_have_events_and_no_status() -> None:
    """g3_K8: kube-scheduler writes their status; a new process does not repeat the events of a running gang."""
    on = JobFeatures(gangs=(KUEUE_GROUPS, podgroup_k8s.FRAMEWORK))
    key = gang_key(podgroup_k8s.FRAMEWORK, "team", "g")
    resource = ResourceType("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
    pods = [make_pod(name, role="r", schedulingGroup={"podGroupName": "g"}) for name in "ab"]
    world = Status(*pods, switches=on)
    policy = {"gang": {"minCount": 2}}
    world.client.put(resource, pod_group() | {"spec": {"schedulingPolicy": policy}})
    workload = await through(world, key)
    assert world.told_group() == ["Scheduled", "Running"]
    assert "status" not in (world.client.object(resource, "team/g") or {})
    world.status._memories.clear()
    await world.status.reconcile(key)
    assert world.told_group() == ["Scheduled", "Running"]
    assert world.workload_named(workload)["metadata"]["ownerReferences"][0]["apiVersion"] == resource.api_version
    await world.close()


async def through(world: Status, key: str) -> str:
    """Bring a gang of two to its run; the name of its Workload."""

    async def look() -> None:
        await world.rest(key)
        for _ in range(3):
            await world.status.reconcile(key)

    await look()
    [name] = workloads(world)
    world.admit(name)
    await look()
    world.runs("a", "b")
    await look()
    return name
