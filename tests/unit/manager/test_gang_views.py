"""The gangs of a process for views and summaries: from the first pod to the end, with the deadlines of the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.podgroup_x_k8s import FRAMEWORK
from kqueue.jobs.gang.stage import GangStage
from kqueue.manager.gang_census import GangCensus
from kqueue.manager.gang_views import GangOverviews
from tests.unit.controllers.test_gang_status import Status
from tests.unit.controllers.test_group_objects import GROUPS, KEY, ON, name_of, of_group, pod_group
from tests.unit.jobs.builders import JSON


class Census:
    """A world with one PodGroup, its census, and the source of the view."""

    def __init__(self, *pods: JSON, queued: bool = False) -> None:
        self.world = Status(*pods, switches=ON)
        self.census = GangCensus(
            self.world.records, self.world.clock, pods=self.world.pods, frameworks=(KUEUE_GROUPS, FRAMEWORK)
        )
        self.views = GangOverviews(
            self.census, workloads=self.world.workloads, has_queue=lambda _framework, _obj: queued
        )
        for name in pods:
            self.world.client.put(PODS, name)
        self.world.client.put(GROUPS, pod_group())

    async def keys(self, *, strangers: bool = False) -> list[str]:
        self.world.sync()
        await self.views.refresh()
        return [*self.views.keys("team", strangers=strangers)]

    async def stages(self) -> dict[Any, int]:
        await self.keys()
        return dict(self.census.stages())

    async def settle(self) -> None:
        await self.world.settle()

    async def shown(self) -> JSON:
        await self.keys()
        found = self.views.overview(KEY)
        assert found is not None
        return found


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Census]]:
    found: list[Census] = []

    def build(*pods: JSON, **more: Any) -> Census:
        found.append(Census(*pods, **more))
        return found[-1]

    yield build
    for each in found:
        await each.world.close()


async def test_a_gang_is_shown_before_it_has_a_workload(make: Callable[..., Census]) -> None:
    """g3_67: with the members that it lacks; the deadline is that of the configuration, and is no assumption."""
    gangs = make(of_group("a"))
    await gangs.settle()
    shown = await gangs.shown()
    assert (shown["phase"], shown["missing"], shown["members"]["present"]) == ("Pending", {"(any)": 1}, 1)
    assert "workload" not in shown
    assert (shown["deadline"]["isDefault"], "isAssumed" in shown["deadline"]) == (True, False)


@pytest.mark.parametrize(("queued", "listed"), [(False, []), (True, [KEY])])
async def test_a_group_object_alone_is_listed_where_it_has_a_queue(
    make: Callable[..., Census], queued: bool, listed: list[str]
) -> None:
    """Another scheduler may own it; its name finds it."""
    gangs = make(queued=queued)
    assert await gangs.keys() == listed
    assert await gangs.keys(strangers=True) == [KEY]


async def test_a_gang_counts_at_its_queue_in_its_stage_until_it_is_gone(make: Callable[..., Census]) -> None:
    """Each stage once, at the ClusterQueue that admits it."""
    gangs = make(of_group("a"))
    world = gangs.world
    await gangs.settle()
    found = [await gangs.stages()]
    world.add(of_group("b"))
    await gangs.settle()
    found.append(await gangs.stages())
    world.admit(name_of())
    await gangs.settle()
    found.append(await gangs.stages())
    world.runs("a", "b")
    await gangs.settle()
    found.append(await gangs.stages())
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    world.client.drop(GROUPS, "team/g")
    world.client.drop(WORKLOADS, f"team/{name_of()}")

    (queue,) = {key[1] for key in found[3]}
    assert queue
    assert found == [
        {("team/main", "", GangStage.GATHERING): 1},
        {("team/main", "", GangStage.WAITING): 1},
        {("team/main", queue, GangStage.STARTING): 1},
        {("team/main", queue, GangStage.RUNNING): 1},
    ]
    assert await gangs.stages() == {}
    assert await gangs.keys(strangers=True) == []


async def test_pods_beyond_the_quorum_say_why_they_wait(make: Callable[..., Census]) -> None:
    """g3_67: each has a Workload of its own."""
    gangs = make(of_group("a"), of_group("b"), of_group("c", born=1))
    world = gangs.world
    await gangs.settle()
    world.admit(name_of())
    await gangs.settle()
    world.runs("a", "b")
    await gangs.settle()
    (extra,) = (await gangs.shown())["extras"]
    assert (extra["pod"], extra["state"]) == ("c", "waiting")
    assert extra["workload"].startswith("pod-c-")


async def test_a_gang_that_cannot_be_read_hides_no_other(
    make: Callable[..., Census], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is logged, and the others are counted."""
    gangs = make(of_group("a"))
    await gangs.settle()
    of = gangs.world.records.of

    def fails(key: str) -> Any:
        if key == KEY:
            raise ZeroDivisionError
        return of(key)

    monkeypatch.setattr(gangs.world.records, "of", fails)
    group: JSON = of_group("z")
    del group["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
    group["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "other"
    gangs.world.add(group)
    assert set(await gangs.stages()) == {("team/main", "", GangStage.GATHERING)}
