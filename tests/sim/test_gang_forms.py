"""Gangs of every form in small worlds: orders of creation, names as long as possible, namespaces that are deleted."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kqueue.sandbox.api import NAMESPACES, PODS, Object
from tests.sim import gang_invariants, invariants
from tests.sim.gang_forms import DIALECTS, FORMS, BatchGroup, ObjectGroup
from tests.sim.gangs import base_workload, members, running
from tests.sim.kinds import group_objects
from tests.sim.objects import LOCAL_QUEUES, NAMESPACE, WORKLOADS, ours
from tests.sim.world import World, simulated

AT_REST = tuple(
    each
    for each in (*gang_invariants.ALWAYS, *gang_invariants.AT_REST)
    if each is not invariants.status_tells_the_usage  # of a flavor without GPUs
)
WITH_OBJECT = [form for form, kind in FORMS.items() if issubclass(kind, ObjectGroup) and kind is not BatchGroup]
BODY = {"queue": "plain", "priority": "", "topology": None, "run_seconds": 1000}


async def created(world: World, obj: Object, group: ObjectGroup | None = None, *, namespace: str = NAMESPACE) -> None:
    """Create a pod, or the group object of a gang."""
    kind = PODS if group is None else group.resource
    await world.api.create(kind, {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}, namespace=namespace)


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "with-pauses"])
@pytest.mark.parametrize("place", [0, 1, 3], ids=["before", "between", "after"])
@pytest.mark.parametrize("form", WITH_OBJECT)
async def test_a_group_object_may_come_at_any_place_among_its_pods(form: str, place: int, *, late: bool) -> None:
    """g7_2: the quorum of two runs, and then the third pod, wherever the object comes; also with another controller."""
    async with simulated(gangs=DIALECTS, job_sets=True, pods=True) as world:
        invariants.watch(world)
        group = FORMS[form](roles=(0, 0, 0), quorum=2, body=BODY)
        assert isinstance(group, ObjectGroup)
        for number in range(4):
            if number == place:
                await created(world, group.group_object("g"), group)
                if late:
                    world.kill_controller()
                    world.start_controller()
                    await world.pass_time(5)
            if number < 3:
                await created(world, group.member("g", number))
            await world.pass_time(5 if late else 0)
        await world.pass_time(30)

        assert running(world, "g") == ["g-1", "g-2", "g-3"]
        assert invariants.breaches(world, AT_REST) == []


LONG = "a" * 240 + "-long-name"
"""A name with as many characters as names of pods with a number may have, when `-1` and more follow."""


@pytest.mark.parametrize("form", ["volcano", "kubernetes"])
async def test_two_gangs_whose_long_names_differ_in_the_last_character_are_two(form: str) -> None:
    """g7_14: names of 253 characters; their Workloads have short names of their own, and members beyond them, too."""
    async with simulated(gangs=DIALECTS, job_sets=True, pods=True) as world:
        invariants.watch(world)
        gangs = [f"{LONG:a<252}"[:252] + end for end in "ab"]
        for gang, stem in zip(gangs, ("x", "y"), strict=True):
            group = FORMS[form](roles=(0, 0, 0), quorum=2, body=BODY)
            assert isinstance(group, ObjectGroup)
            await created(world, group.group_object(gang), group)
            for number in range(3):
                made = group.member(gang, number)
                made["metadata"]["name"] = f"{stem * 252}{number}"
                await created(world, made)
        await world.pass_time(60)

        assert [len(gang) for gang in gangs] == [253, 253]
        assert [len(running(world, gang)) for gang in gangs] == [3, 3]
        names = sorted(each["metadata"]["name"] for each in world.objects(WORKLOADS))
        assert len(names) == 4
        assert all(
            len(name) <= 253 and first != second for name, (first, second) in zip(names, pairwise(names), strict=False)
        )
        assert invariants.breaches(world, AT_REST) == []


@pytest.mark.parametrize("killed", [False, True], ids=["one-controller", "killed"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_namespace_with_gangs_empties(form: str, *, killed: bool) -> None:
    """g7_15: one gang runs with a pod beyond its quorum, one has a pod that waits beyond it, one waits, one gathers."""
    async with simulated(gangs=DIALECTS, job_sets=True, pods=True) as world:
        invariants.watch(world)
        await world.api.create(NAMESPACES, {"metadata": {"name": "team"}})
        queue = ours("LocalQueue", "plain", namespace="team", spec={"clusterQueue": "plain"})
        await world.api.create(LOCAL_QUEUES, queue, namespace="team")
        sizes = {"runs": (2, 3), "beyond": (4, 20), "waits": (9, 9), "gathers": (2, 1)}
        for name, (quorum, number) in sizes.items():
            if form == "batch" and number < quorum:
                continue
            group = FORMS[form](roles=(0,) * number, quorum=quorum, body=BODY)
            if isinstance(group, ObjectGroup):
                await created(world, group.group_object(name), group, namespace="team")
            for each in range(number if form != "batch" else 0):
                await created(world, group.member(name, each), namespace="team")
            await world.pass_time(10)
        assert len(running(world, "runs")) == 3
        assert len(running(world, "beyond")) < len(members(world, "beyond")) == 20
        assert base_workload(world, "waits") is not None
        assert running(world, "waits") == []
        if killed:
            world.kill_controller()
        await world.api.delete(NAMESPACES, "team")
        await world.pass_time(20)
        if killed:
            world.start_controller()
        await world.pass_time(100)

        assert world.api.find(NAMESPACES, "team") is None
        left = (*world.objects(PODS), *world.objects(WORKLOADS), *group_objects(world))
        assert left == ()
        assert invariants.breaches(world, (*AT_REST, invariants.nothing_is_held)) == []
