"""PodGroups whose controllers create pods only once the phase says that there is room for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from kqueue.controllers.gang_room import GangRoom
from kqueue.controllers.resources import group_object_resources
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.podgroup_volcano import FRAMEWORK, KIND
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name
from tests.unit.controllers.pod_world import Pods
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import at, make_pod

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
KEY = gang_key(FRAMEWORK, "team", "g")
[GROUPS] = group_object_resources(dialect_of(FRAMEWORK))


class Volcano(Pods):
    """A world with one PodGroup; `free` cpu are there for it."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(switches=ON)
        self.cpu_free, self.asked = 10_000, 0
        meta = {"name": "g", "namespace": "team", "uid": "u1", "creationTimestamp": at(0)}
        wish = {"minMember": 2, "minResources": {"cpu": "4"}, **spec}
        self.client.put(GROUPS, {"metadata": meta, "spec": {k: v for k, v in wish.items() if v is not None}})
        self.restart()

    def restart(self) -> None:
        """Another process writes the status from now on."""
        room = GangRoom(self.clock, queue_of=lambda _framework, _obj: "team", has_room=self._has_room)
        self.status = self.status_writer(room)

    def _has_room(self, queue: str, wanted: Mapping[str, int]) -> bool:
        self.asked += 1
        return queue == "team" and wanted["cpu"] <= self.cpu_free

    async def phase(self, *, after: float = 0.0) -> str:
        """The phase after so many seconds, with one look of the reconciler."""
        await self.clock.advance(after)
        self.sync()
        self.again = (await self.status.reconcile(KEY)).requeue_after
        found = self.client.object(GROUPS, "team/g")
        assert found is not None
        return str(found.get("status", {}).get("phase"))

    async def join(self, *names: str) -> None:
        """The controller of the PodGroup creates pods."""
        annotations = {"scheduling.k8s.io/group-name": "g"}
        self.add(*(make_pod(name, role="r", annotations=annotations) for name in names))
        await self.rest(KEY)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Volcano]]:
    worlds: list[Volcano] = []

    def build(**spec: Any) -> Volcano:
        worlds.append(Volcano(**spec))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def test_a_group_without_pods_is_inqueue_where_there_is_room(make: Callable[..., Volcano]) -> None:
    """G3.V12: two seconds after its creation; nothing is reserved, and there is no Workload."""
    world = make()
    assert await world.phase() == "Pending"
    assert world.again == 2.0
    assert await world.phase(after=1.9) == "Pending"
    assert world.asked == 0
    assert await world.phase(after=0.1) == "Inqueue"
    assert len(world.workloads.values()) == 0


async def test_the_phase_stays_until_the_quorum_is_there(make: Callable[..., Volcano]) -> None:
    """Also when the room is gone, and after a restart: the controller of the group goes on to create pods."""
    world = make()
    assert await world.phase(after=2) == "Inqueue"
    world.cpu_free = 0
    assert [await world.phase(after=60) for _ in range(2)] == ["Inqueue"] * 2
    world.restart()
    await world.join("a")
    assert await world.phase(after=2) == "Inqueue"
    await world.join("b")
    assert await world.phase(after=2) == "Pending"
    world.admit(workload_name(KIND, "g", "u1"))
    assert await world.phase(after=2) == "Inqueue"


async def test_a_group_without_room_is_looked_at_again(make: Callable[..., Volcano]) -> None:
    world = make()
    world.cpu_free = 3_999
    assert await world.phase(after=2) == "Pending"
    assert world.again == 10.0
    world.cpu_free = 4_000
    assert await world.phase(after=10) == "Inqueue"


@pytest.mark.parametrize("least", [None, {}])
async def test_a_group_that_names_no_resources_waits_for_its_pods(
    make: Callable[..., Volcano], least: JSON | None
) -> None:
    """Nothing says how much room its pods need."""
    world = make(minResources=least)
    world.cpu_free = -1
    assert await world.phase(after=60) == "Pending"


async def test_a_group_that_has_pods_waits_for_the_others(make: Callable[..., Volcano]) -> None:
    world = make()
    await world.join("a")
    assert await world.phase(after=60) == "Pending"
    assert world.asked == 0
