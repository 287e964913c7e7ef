"""A waiting Workload follows the topology of its group object; one with quota keeps that of its admission."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, group_object_resources
from kqueue.jobs.gang import podgroup_volcano, podgroup_x_k8s
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.kind import GroupVersionKind
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name
from tests.unit.controllers.pod_world import Pods
from tests.unit.controllers.test_group_objects import pod_group
from tests.unit.jobs.builders import JSON, prefixed
from tests.unit.jobs.pods import make_pod

X, V = podgroup_x_k8s.FRAMEWORK, podgroup_volcano.FRAMEWORK
KINDS: dict[str, GroupVersionKind] = {X: podgroup_x_k8s.KIND, V: podgroup_volcano.KIND}
Make = Callable[[str], "Gang"]


class Gang(Pods):
    """A gang of two with a PodGroup of one dialect."""

    def __init__(self, framework: str) -> None:
        super().__init__(switches=JobFeatures(gangs=(KUEUE_GROUPS, framework)))
        self.levels = frozenset({"rack", "block"})
        self.gang, self.name = gang_key(framework, "team", "g"), workload_name(KINDS[framework], "g", "u1")
        [self.groups] = group_object_resources(dialect_of(framework))
        self.client.put(self.groups, pod_group())
        marks: JSON = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
        if framework == V:
            marks = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
        self.add(*(make_pod(name, role="r", **marks) for name in ("a", "b")))

    async def says(self, change: JSON) -> None:
        """A user changes the PodGroup."""
        self.client.change(self.groups, "team/g", change)
        await self.rest(self.gang)

    def asks(self) -> tuple[str, Any]:
        """The level of the Workload, and whether one domain is for all roles."""
        workload = self.workload_named(self.name)
        request = workload["spec"]["podSets"][0].get("topologyRequest") or {}
        level = next((f"{key} {request[key]}" for key in ("required", "preferred") if request.get(key)), "")
        return level, workload["metadata"]["annotations"].get("kqueue.dev/gang-topology")


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    worlds: list[Gang] = []

    def build(framework: str) -> Gang:
        worlds.append(Gang(framework))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def network(mode: str, tier: str) -> JSON:
    return {"spec": {"networkTopology": {"mode": mode, "highestTierName": tier}}}


def marked(**levels: str | None) -> JSON:
    return {"metadata": {"annotations": prefixed(**levels)}}


@pytest.mark.parametrize(
    ("framework", "required", "preferred", "none"),
    [
        pytest.param(
            X,
            marked(podset_required_topology="rack"),
            marked(podset_required_topology=None, podset_preferred_topology="block"),
            marked(podset_preferred_topology=None),
            id="coscheduling",
        ),
        pytest.param(
            V, network("hard", "rack"), network("soft", "block"), {"spec": {"networkTopology": None}}, id="volcano"
        ),
    ],
)
async def test_a_waiting_gang_follows_the_topology_of_its_object(
    make: Make, framework: str, required: JSON, preferred: JSON, none: JSON
) -> None:
    """G3.59, G3.V9: a level that is added, changed and taken off; name and age of the Workload stay."""
    world = make(framework)
    await world.rest(world.gang)
    before = world.workload_named(world.name)["metadata"]["uid"]
    seen = [world.asks()]
    for change in (required, preferred, none):
        await world.says(change)
        seen.append(world.asks())
    assert seen == [("", None), ("required rack", "together"), ("preferred block", "together"), ("", None)]
    assert world.workload_named(world.name)["metadata"]["uid"] == before


async def test_a_tier_that_is_no_level_changes_nothing(make: Make) -> None:
    world = make(V)
    await world.rest(world.gang)
    await world.says(network("hard", "row"))
    assert world.asks() == ("", None)


async def test_a_gang_with_quota_follows_after_its_eviction(make: Make) -> None:
    """Its pods stand where the old level had room; the next admission heeds the new one."""
    world = make(V)
    await world.rest(world.gang)
    world.admit(world.name)
    await world.rest(world.gang)
    world.runs("a", "b")
    await world.says(network("hard", "rack"))
    assert world.asks() == ("", None)
    world.evict(world.name)
    await world.rest(world.gang)
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    world.add(*(make_pod(n, role="r", annotations={"scheduling.k8s.io/group-name": "g"}) for n in ("c", "d")))
    await world.rest(world.gang)
    assert world.asks() == ("required rack", "together")
