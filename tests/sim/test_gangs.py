"""Small worlds of gangs by labels: what one gang holds, and what others may take while it gathers, starts and runs."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.sandbox.api import EVENTS, NODES, PODS
from kqueue.sandbox.topology_spec import RACK_LABEL
from tests.sim import gang_invariants, invariants
from tests.sim.chosen import seeds, sizes
from tests.sim.gangs import LABELS, LONG, base_workload, create, create_all, is_gated, members, running
from tests.sim.kinds import pod
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS, job
from tests.sim.reading import holders
from tests.sim.world import World, condition, is_true, owner_of, simulated

CHEAP_NODES = ("cheap-b0-r0-h0", "cheap-b0-r0-h1")
AT_REST = tuple(each for each in invariants.AT_REST if each is not invariants.status_tells_the_usage)


@asynccontextmanager
async def watched(seed: int | str = 0, *, gangs: tuple[str, ...] = LABELS, **settings: Any) -> AsyncIterator[World]:
    """A world of gangs, by labels unless told otherwise, in which nothing may be breached until its end."""
    async with simulated(seed, gangs=gangs, **settings) as world:
        invariants.watch(world)
        yield world
        assert invariants.breaches(world, invariants.ALWAYS) == []


def usage(world: World, queue: str = "plain") -> int:
    """The cores of a ClusterQueue that are charged in the controller's cache."""
    assert world.controller is not None
    node = world.controller.operator.cache.quota.node_of(queue)
    assert node is not None
    return sum(amount for column, amount in node.usage.items() if column.resource == "cpu") // 1000


async def let_preempt(world: World, queue: str = "plain") -> None:
    """Higher priorities preempt lower ones in the ClusterQueue."""
    rules = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    await world.api.patch(CLUSTER_QUEUES, queue, rules)


async def cordon(world: World, *, off: bool = False) -> None:
    for name in CHEAP_NODES:
        await world.api.patch(NODES, name, {"spec": {"unschedulable": None if off else True}})


# --- while it gathers ------------------------------------------------------------------------------------------------


@pytest.mark.mechanism("0.10")
async def test_a_gang_below_its_quorum_holds_nothing() -> None:
    """Row 0.10: with 4 of 5 members there is no Workload and no usage; one event says so, also after a restart."""
    async with watched() as world:
        await create_all(world, "g", 4, quorum=5)
        for _ in range(2):
            await world.pass_time(60)
            assert (world.objects(WORKLOADS), usage(world)) == ([], 0)
            world.kill_controller()
            world.start_controller()
        await world.pass_time(60)
        notes = [e["note"] for e in world.objects(EVENTS) if e["reason"] == names.EVENT_ERR_WORKLOAD_COMPOSE]
        assert all(is_gated(each) for each in members(world, "g"))
        assert world.history.admissions == []

    assert len(notes) == 1
    assert "the group has 4 of 5 pods; it waits for 1 more" in notes[0]


@pytest.mark.mechanism("0.4")
async def test_a_gang_keeps_time_and_uid_of_its_first_member() -> None:
    """Row 0.4: also after the deletion of that member and the death of the controller; a later gang of the name has its own."""
    async with watched() as world:
        await create(world, "g-0", "g", quorum=2)
        await world.pass_time(5)
        await create(world, "g-1", "g", quorum=2)
        await world.pass_time(5)
        first = next(each for each in members(world, "g") if each["metadata"]["name"] == "g-0")
        records = [_record(world)]
        await world.api.delete(PODS, "g-0", namespace=NAMESPACE)
        await world.pass_time(5)
        world.kill_controller()
        world.start_controller()
        await create(world, "g-2", "g", quorum=2)
        await world.pass_time(10)
        records.append(_record(world))
        for name in ("g-1", "g-2"):
            await world.api.delete(PODS, name, namespace=NAMESPACE)
        await world.pass_time(60)
        assert base_workload(world, "g") is None
        await create_all(world, "g", 2, quorum=2)
        await world.pass_time(5)
        later = _record(world)

    assert records == [(first["metadata"]["uid"], first["metadata"]["creationTimestamp"])] * 2
    assert later[0] != records[0][0]
    assert later[1] > records[0][1]


def _record(world: World) -> tuple[str, str]:
    """UID and time of the gang's first member, as its Workload has them."""
    workload = base_workload(world, "g")
    assert workload is not None
    own = workload["metadata"]["annotations"]
    return own[gang_names.GANG_UID_ANNOTATION], own[gang_names.GANG_SINCE_ANNOTATION]


@pytest.mark.mechanism("0.17")
async def test_the_last_member_of_the_quorum_makes_the_workload_at_once() -> None:
    """Row 0.17: however long the gang has waited, the Workload exists 0.3 s after the completing pod."""
    async with watched() as world:
        await create_all(world, "g", 4, quorum=5)
        await world.pass_time(333)
        await create(world, "late", "g", quorum=5)
        since = world.clock.monotonic()
        await world.pass_time(0.3)
        made = base_workload(world, "g")
        assert made is not None
        assert world.history.born[made["metadata"]["uid"]] - since < 0.3


async def _singles(gangs: int, count: int) -> list[str]:
    """The order in which single pods, one in each second, are admitted beside so many incomplete gangs."""
    async with simulated(gangs=LABELS, pods=True) as world:
        for number in range(gangs):
            await create_all(world, f"g{number}", 2, quorum=3)
        for number in range(count):
            single = pod(f"single-{number}", queue="plain", gpus=0, run_seconds=40)
            await world.api.create(PODS, single, namespace=NAMESPACE)
            await world.pass_time(1)
        while len(world.history.admissions) < count and world.clock.monotonic() < 3 * count:
            await world.pass_time(10)
        assert all(base_workload(world, f"g{number}") is None for number in range(gangs))
        return [owner_of(each.workload) for each in world.history.admissions]


@pytest.mark.mechanism("0.18")
@pytest.mark.parametrize("count", sizes(60, 500))
async def test_single_pods_are_admitted_as_if_there_were_no_waiting_gangs(count: int) -> None:
    """Row 0.18: the same pods in the same order, with and without fifty gangs that lack a member."""
    alone, beside = await _singles(0, count), await _singles(50, count)

    assert alone == [f"single-{number}" for number in range(count)]
    assert beside == alone


# --- while it starts -------------------------------------------------------------------------------------------------


@pytest.mark.mechanism("0.12")
async def test_what_a_starting_gang_has_reserved_is_given_to_nobody() -> None:
    """Row 0.12: no member has a node yet, and a gang of the same size is refused with numbers."""
    async with watched() as world:
        await cordon(world)
        await create_all(world, "first", 8, quorum=8, cpus=2)
        await world.pass_time(2)
        await create_all(world, "second", 8, quorum=8, cpus=2)
        await world.pass_time(7)  # before the gang is rejected
        assert [each["spec"].get("nodeName") for each in members(world, "first")] == [None] * 8
        assert (usage(world), running(world, "second")) == (16, [])
        waits = condition(base_workload(world, "second"), names.CONDITION_QUOTA_RESERVED)
        await cordon(world, off=True)
        await world.pass_time(30)
        assert (len(running(world, "first")), running(world, "second")) == (8, [])

    assert waits is not None
    assert "16 cpu of flavor cheap asked, ClusterQueue plain has 4 free" in waits["message"]


@pytest.mark.mechanism("0.15")
@pytest.mark.parametrize("seed", seeds("0-23"))
async def test_two_gangs_never_stand_half_started_in_each_others_way(seed: int) -> None:
    """Row 0.15: there is room for one of two gangs of eight; their pods come in turns, and one gang runs after the other."""
    chance = random.Random(seed)
    async with watched(seed) as world:
        parts: set[tuple[int, int]] = set()
        world.on_settled.append(lambda: parts.add((_released(world, "a"), _released(world, "b"))))
        order = [(gang, number) for number in range(8) for gang in chance.sample(["a", "b"], 2)]
        for gang, number in order:
            await create(world, f"{gang}-{number}", gang, quorum=8, cpus=2, run_seconds=10)
            await world.pass_time(chance.choice((0, 0, 0.05, 0.3, 2)))
        for _ in range(20):
            await world.pass_time(5)
        ends = [is_true(base_workload(world, gang), names.CONDITION_FINISHED) for gang in ("a", "b")]
        assert ends == [True, True]

    assert not any(0 < first < 8 and 0 < second < 8 for first, second in parts)
    assert {(8, 0), (0, 8)} & parts


def _released(world: World, gang: str) -> int:
    """Members that kqueue let out of their gate and that have not ended."""
    ended = ("Succeeded", "Failed")
    return sum(not is_gated(m) and m.get("status", {}).get("phase") not in ended for m in members(world, gang))


# --- while it runs ---------------------------------------------------------------------------------------------------


@pytest.mark.mechanism("3.33")
async def test_the_successor_of_a_killed_member_starts_alone() -> None:
    """Row 3.33: one of four running members is deleted; the others run on, and a new pod takes the place."""
    async with watched() as world:
        await create_all(world, "g", 4, quorum=4)
        await world.pass_time(5)
        before = {each["metadata"]["uid"] for each in members(world, "g")}
        assert len(running(world, "g")) == 4
        await world.api.delete(PODS, "g-1", namespace=NAMESPACE)
        await world.pass_time(5)
        assert running(world, "g") == ["g-0", "g-2", "g-3"]
        await create(world, "g-4", "g", quorum=4)
        await world.pass_time(5)
        assert running(world, "g") == ["g-0", "g-2", "g-3", "g-4"]
        after = {each["metadata"]["uid"] for each in members(world, "g")}
        assert len(after & before) == 3
        assert len(world.history.admissions) == 1
        assert invariants.breaches(world, AT_REST) == []


async def test_a_waiting_member_beyond_the_quorum_takes_the_place_of_a_lost_one() -> None:
    """It is queued alone no more; the others that wait go on waiting."""
    async with watched() as world:
        await create_all(world, "g", 8, quorum=2, queue="solo", gpus=8)
        await world.pass_time(5)
        before = set(running(world, "g"))
        await world.api.delete(PODS, "g-0", namespace=NAMESPACE)
        await world.pass_time(150)
        after = set(running(world, "g"))
        assert (len(before), before - after, len(after - before)) == (6, {"g-0"}, 1)
        assert invariants.breaches(world, (*AT_REST, *gang_invariants.OF_GANGS)) == []


@pytest.mark.parametrize("topology", [None, ("required", RACK_LABEL)])
async def test_the_next_run_of_a_gang_needs_a_quorum_of_its_own(topology: tuple[str, str] | None) -> None:
    """A user deletes the Workload of a finished gang, keeps its pods, and creates members again, one by one."""
    async with watched() as world:
        settings = {"quorum": 2, "queue": "solo", "gpus": 4, "topology": topology, "run_seconds": 3}
        await create_all(world, "g", 2, **settings)
        await world.pass_time(20)
        first = base_workload(world, "g")
        assert first is not None
        await world.api.delete(WORKLOADS, first["metadata"]["name"], namespace=NAMESPACE)
        await world.pass_time(5)
        await create(world, "again-0", "g", **settings)
        await world.pass_time(20)
        assert base_workload(world, "g") is None
        await create(world, "again-1", "g", **settings)
        await world.pass_time(20)
        assert is_true(base_workload(world, "g"), names.CONDITION_FINISHED)
        ends = [(each["metadata"]["name"], each["status"]["phase"]) for each in members(world, "g")]
        assert invariants.breaches(world, (*AT_REST, *gang_invariants.OF_GANGS)) == []

    assert ends == [(name, "Succeeded") for name in ("again-0", "again-1", "g-0", "g-1")]


@pytest.mark.mechanism("4.20")
async def test_a_gang_is_preempted_whole() -> None:
    """Row 4.20: a Job that needs a part of a gang's room takes all of it; no member runs on."""
    async with watched() as world:
        await let_preempt(world)
        await create_all(world, "low", 5, quorum=5, cpus=2, priority="low")
        await create_all(world, "other", 2, quorum=2, cpus=2)
        await world.pass_time(5)
        await world.submit(job("high", queue="plain", pods=8, gpus=0, topology=None, priority="high", run_seconds=LONG))
        await world.pass_time(10)
        preempted = is_true(base_workload(world, "low"), names.CONDITION_PREEMPTED)
        assert (running(world, "low"), len(running(world, "other"))) == ([], 2)
        assert [owner_of(w) for w in holders(world) if owner_of(w)] == ["high"]

    assert preempted


@pytest.mark.mechanism("4.20")
async def test_a_gang_takes_what_it_needs_or_nobodys_room() -> None:
    """Row 4.20: a gang preempts others if all of it fits then; one that never fits preempts nobody."""
    async with watched() as world:
        await let_preempt(world)
        await create_all(world, "small", 4, quorum=4, cpus=2, priority="low")
        await create_all(world, "large", 6, quorum=6, cpus=2, priority="low")
        await world.pass_time(5)
        await create_all(world, "huge", 11, quorum=11, cpus=2, priority="high")
        await world.pass_time(20)
        untouched = (len(running(world, "small")), len(running(world, "large")))
        await create_all(world, "high", 8, quorum=8, cpus=2, priority="high")
        await world.pass_time(20)
        assert (running(world, "small"), running(world, "large")) == ([], [])
        assert len(running(world, "high")) == 8

    assert untouched == (4, 6)
