"""A controller that is killed at any of its writes, before or after it is done: the next one brings the group to the
same end, never starts a part of it, and leaves nothing held.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from tests.unit.controllers.builders import status_of
from tests.unit.controllers.fakes import Call
from tests.unit.controllers.pod_world import GROUP, Pods, grouped
from tests.unit.controllers.test_group_objects import GROUPS, KEY, ON, name_of, of_group, pod_group
from tests.unit.jobs.pods import make_pod

MOST = 60
"""More writes than any story below has."""


class KilledError(BaseException):
    """The process that wanted to write does not exist any more."""


class Story:
    """A world whose controller dies once, at its `at`-th write; `done`: the server has seen that one."""

    def __init__(self, *pods: Any, at: int, done: bool, world: Callable[..., Pods] = Pods) -> None:
        self._at, self._done, self._writes, self._make = at, done, 0, world
        self.died = False
        self.world = world(*pods)
        self._arm()

    def _arm(self) -> None:
        answer = self.world.client._answer

        async def counted(call: Call, act: Callable[[], Any]) -> Any:
            if call.verb not in ("get", "list"):
                self._writes += 1
                if self._writes == self._at:
                    if self._done:
                        act()
                    raise KilledError
            return await answer(call, act)

        self.world.client._answer = counted  # type: ignore[method-assign]

    async def rest(self, *keys: str) -> None:
        """Reconcile until nothing is left to do, by a new process where the first has died."""
        for key in keys:
            try:
                await self.world.rest(key)
            except (KilledError, BaseExceptionGroup):
                assert not self.died
                self.died = True
                await self._reborn()
                await self.world.rest(key)

    async def status(self, key: str) -> None:
        """Reconcile the status of a group object likewise, while time goes on."""
        for _ in range(4):
            try:
                await self._look_at_status(key)
            except KilledError:
                assert not self.died
                self.died = True
                await self._reborn()
                await self._look_at_status(key)

    async def _look_at_status(self, key: str) -> None:
        await self.world.clock.advance(2)
        self.world.sync()
        await self.world.status.reconcile(key)

    async def _reborn(self) -> None:
        old = self.world
        await old.close()
        self.world = self._make()
        self.world.client._objects = old.client._objects
        self.world.client._version = old.client._version
        self.world.sync()

    def gated(self) -> list[bool]:
        return [self.world.gated(name) for name in self.world.names()]


async def told(
    story: Callable[[Story], Awaitable[None]], *pods: Any, at: int, done: bool, world: Callable[..., Pods] = Pods
) -> bool:
    """Whether the story was interrupted; it has its own checks."""
    made = Story(*pods, at=at, done=done, world=world)
    await story(made)
    await made.world.close()
    return made.died


async def life_of_a_group(story: Story) -> None:
    """Queued, started, evicted, replaced, started again, finished."""
    await story.rest(GROUP)
    assert story.gated() == [True] * 3
    story.world.admit("g")
    await story.rest(GROUP)
    assert story.gated() == [False] * 3
    story.world.runs("a", "b", "c")
    await story.rest(GROUP)
    story.world.evict("g")
    await story.rest(GROUP)
    assert status_of(story.world.workload_named("g"), "QuotaReserved")[0] == "True"
    story.world.runs("a", "b", "c", phase="Failed")
    await story.rest(GROUP)
    assert status_of(story.world.workload_named("g"), "QuotaReserved")[0] == "False"
    assert status_of(story.world.workload_named("g"), "WaitingForReplacementPods")[0] == "True"
    assert all(story.world.finalizer(name) for name in ("a", "b", "c"))
    story.world.add(*(grouped(name, total=3) for name in "def"))
    await story.rest(GROUP)
    assert story.world.names() == ["d", "e", "f"]
    assert story.gated() == [True] * 3
    story.world.admit("g")
    await story.rest(GROUP)
    assert story.gated() == [False] * 3
    story.world.runs("d", "e", "f", phase="Succeeded")
    await story.rest(GROUP)
    assert status_of(story.world.workload_named("g"), "Finished") == ("True", "Succeeded")
    assert not any(story.world.finalizer(name) for name in story.world.names())
    assert story.world.client.keys(WORKLOADS) == [GROUP]


async def life_of_a_pod(story: Story) -> None:
    """Queued, started, evicted; nothing is left but a finished Workload."""
    await story.rest("team/p")
    (key,) = story.world.client.keys(WORKLOADS)
    story.world.admit(key.partition("/")[2])
    await story.rest("team/p")
    assert not story.world.gated("p")
    story.world.runs("p")
    await story.rest("team/p")
    story.world.evict(key.partition("/")[2])
    await story.rest("team/p")
    assert story.world.client.keys(PODS) == []
    assert status_of(story.world.client.object(WORKLOADS, key), "Finished") == ("True", "OwnerNotFound")
    assert status_of(story.world.client.object(WORKLOADS, key), "QuotaReserved")[0] == "False"
    assert status_of(story.world.client.object(WORKLOADS, key), "Requeued") == ("False", "Preempted")


async def end_of_a_group(story: Story) -> None:
    """Its Workload is deleted while it runs: no pod and no Workload is left."""
    await story.rest(GROUP)
    story.world.admit("g")
    await story.rest(GROUP)
    story.world.runs("a", "b", "c")
    deleted = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    story.world.client.change(WORKLOADS, GROUP, deleted)
    await story.rest(GROUP)
    assert (story.world.client.keys(PODS), story.world.client.keys(WORKLOADS)) == ([], [])


TRIO = [grouped(name, total=3) for name in "abc"]
STORIES = [
    pytest.param(life_of_a_group, TRIO, marks=pytest.mark.proves("Pod group", "eviction and requeue")),
    pytest.param(end_of_a_group, TRIO, marks=pytest.mark.proves("Pod group", "stop and restore")),
    pytest.param(life_of_a_pod, [make_pod()], marks=pytest.mark.proves("Pod", "eviction and requeue")),
]


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("story", "pods"), STORIES)
async def test_a_controller_killed_at_any_write_is_made_up_for(
    story: Callable[[Story], Awaitable[None]], pods: list[Any], done: bool
) -> None:
    """The first write, the second, ... until the story has no more of them."""
    interrupted = 0
    for at in range(1, MOST):
        if not await told(story, *pods, at=at, done=done):
            break
        interrupted += 1
    assert 4 <= interrupted < MOST - 1


# --- a gang with a group object


async def life_of_a_pod_group(story: Story) -> None:
    """Queued, started, evicted, started again with other pods, finished; the status follows."""
    story.world.client.put(GROUPS, pod_group())
    await follow(story, "Pending")
    for pods in ("ab", "cd"):
        if pods == "cd":
            story.world.add(*map(of_group, pods))
            await follow(story, "Pending")
        assert story.gated() == [True] * 2
        story.world.admit(name_of())
        await follow(story, "Scheduling")
        assert story.gated() == [False] * 2
        story.world.runs(*pods)
        await follow(story, "Running")
        if pods == "ab":
            story.world.evict(name_of())
            await follow(story, "Pending")
            story.world.runs(*pods, phase="Failed")
            await follow(story, "Pending")
            assert story.world.names() == []
    story.world.runs("c", "d", phase="Succeeded")
    await follow(story, "Finished")
    assert not any(story.world.finalizer(name) for name in story.world.names())
    assert status_of(story.world.workload_named(name_of()), "Finished") == ("True", "Succeeded")
    assert len(story.world.client.keys(WORKLOADS)) == 1


async def follow(story: Story, phase: str) -> None:
    await story.rest(KEY)
    await story.status(KEY)
    found = story.world.client.object(GROUPS, "team/g")
    assert found is not None
    assert found["status"]["phase"] == phase


async def end_of_a_pod_group(story: Story) -> None:
    """The object is deleted while its pods run: they end by themselves, and nothing is held afterwards."""
    story.world.client.put(GROUPS, pod_group())
    await story.rest(KEY)
    story.world.admit(name_of())
    await story.rest(KEY)
    story.world.runs("a", "b")
    story.world.client.drop(GROUPS, "team/g")
    await story.rest(KEY)
    assert story.gated() == [False] * 2
    story.world.runs("a", "b", phase="Succeeded")
    await story.rest(KEY)
    assert story.world.client.keys(WORKLOADS) == []
    assert not any(story.world.finalizer(name) for name in story.world.names())


def with_groups(*pods: Any) -> Pods:
    """A world that knows PodGroups."""
    return Pods(*pods, switches=ON)


@pytest.mark.parametrize("done", [True, False], ids=["done", "not-done"])
@pytest.mark.parametrize("story", [life_of_a_pod_group, end_of_a_pod_group])
async def test_a_gang_with_an_object_outlives_a_kill_at_each_write(
    story: Callable[[Story], Awaitable[None]], done: bool
) -> None:
    """g3_66."""
    for at in range(1, MOST):
        if not await told(story, of_group("a"), of_group("b"), at=at, done=done, world=with_groups):
            assert at > 5
            return
    raise AssertionError("the story has more writes than are tried")
