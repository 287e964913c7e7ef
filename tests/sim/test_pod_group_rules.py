"""Small worlds of PodGroups: the resources that must be free before a start, deadlines of objects, and single pods."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kqueue.api import gang_names, names
from kqueue.clock import api_time
from kqueue.sandbox.api import PODS
from tests.sim import invariants
from tests.sim.gang_forms import ObjectGroup
from tests.sim.gangs import LABELS_AND_OBJECTS, LONG, base_workload, create_all, members, running
from tests.sim.kinds import POD_GROUPS, pod
from tests.sim.objects import NAMESPACE
from tests.sim.test_gang_deadlines import allow, evicted, lead, restart, set_gangs
from tests.sim.test_gangs import AT_REST, usage, watched
from tests.sim.world import World, condition, is_true


async def submit(world: World, name: str, quorum: int = 1, *, run_seconds: int = LONG, **spec: object) -> None:
    """Create a PodGroup with these fields and the pods of its quorum."""
    body = {"queue": "plain", "run_seconds": run_seconds}
    group = ObjectGroup(roles=(0,) * quorum, body=body, quorum=quorum)
    made = group.group_object(name)
    made["spec"] |= spec
    await world.api.create(POD_GROUPS, made, namespace=NAMESPACE)
    for number in range(quorum):
        await world.api.create(PODS, group.member(name, number), namespace=NAMESPACE)


def waits(world: World, gang: str) -> str:
    """The reason why the Workload of a gang waits for quota; empty: it has quota."""
    found = condition(base_workload(world, gang), names.CONDITION_QUOTA_RESERVED)
    return "" if found is None or found["status"] == "True" else str(found["message"])


def is_running(world: World, name: str) -> bool:
    """Whether the single pod runs."""
    found = world.find(PODS, name)
    return found is not None and found["status"].get("phase") == "Running"


@pytest.mark.mechanism("4.2")
async def test_a_group_waits_until_its_least_resources_are_free() -> None:
    """Row 4.2: 9 of 10 cpu are free, also for the next controller; one pod ends, and the group is released."""
    async with watched(gangs=LABELS_AND_OBJECTS) as world:
        await submit(world, "filler", 10)
        await submit(world, "short", run_seconds=40)
        await world.pass_time(5)
        assert usage(world) == 11
        await submit(world, "driver", minResources={"cpu": "10"})
        await world.pass_time(10)
        before = waits(world, "driver")
        await restart(world)
        await world.pass_time(10)
        assert waits(world, "driver").startswith("MinResources")
        assert running(world, "driver") == []
        await world.pass_time(30)
        assert (len(running(world, "driver")), usage(world)) == (1, 11)
        assert invariants.breaches(world, AT_REST) == []

    assert before.startswith(
        "MinResources asks for 10 cpu, 9 cpu is free of flavor cheap in ClusterQueue plain, 1 cpu more needed"
    )


@pytest.mark.mechanism("4.2")
@pytest.mark.parametrize("killed", [False, True], ids=["one controller", "killed"])
@pytest.mark.parametrize("seed", range(3))
async def test_of_two_drivers_on_room_for_one_one_starts(seed: int, killed: bool) -> None:
    """Row 4.2: the condition of the other one names the free amount; it starts when the promise to the first has ended."""
    async with watched(seed, gangs=LABELS_AND_OBJECTS) as world:
        for name in ("first", "second"):
            await submit(world, name, minResources={"cpu": "15"})
        await world.pass_time(2)
        if killed:
            await restart(world)
        await world.pass_time(40)
        started = [name for name in ("first", "second") if running(world, name)]
        told = [waits(world, name) for name in ("first", "second") if not running(world, name)]
        await world.pass_time(60)
        assert all(running(world, name) for name in ("first", "second"))
        assert invariants.breaches(world, AT_REST) == []

    assert len(started) == 1
    [message] = told
    assert message.startswith(
        "MinResources asks for 15 cpu, 5 cpu is free of flavor cheap in ClusterQueue plain, 10 cpu more needed"
    )


@pytest.mark.mechanism("4.3")
async def test_the_deadline_of_the_object_stops_all_members() -> None:
    """Row 4.3: one of three finds no node; nothing is stopped 9 s after the admission, and all at 10 s."""
    async with watched(gangs=LABELS_AND_OBJECTS) as world:
        await set_gangs(world, reject_percentage=100)
        await allow(world, 2)
        await submit(world, "g", 3, scheduleTimeoutSeconds=10)
        await world.pass_time(3)
        admitted = condition(base_workload(world, "g"), names.CONDITION_ADMITTED)
        assert admitted is not None
        since = api_time(admitted["lastTransitionTime"])
        assert since is not None
        due = since + timedelta(seconds=10)
        await world.pass_time((due - world.clock.now()).total_seconds() - 1)
        before = evicted(world, "g"), len(running(world, "g")), usage(world)
        await world.pass_time(1.5)
        reason, message = evicted(world, "g")
        left = [each for each in members(world, "g") if not each["metadata"].get("deletionTimestamp")]
        await world.pass_time(5)
        assert usage(world) == 0
        assert invariants.breaches(world, AT_REST) == []

    assert before == (("", ""), 2, 3)
    assert reason == gang_names.REASON_GANG_SCHEDULE_TIMEOUT
    assert message.startswith("2 of 3 pods were scheduled within 10 s of the admission; all are stopped")
    assert left == []


async def single(world: World, name: str) -> None:
    """Create a pod that is queued alone."""
    await world.api.create(PODS, pod(name, queue="plain", gpus=0, run_seconds=LONG), namespace=NAMESPACE)


@pytest.mark.mechanism("4.11")
async def test_a_single_pod_passes_all_gangs_that_wait() -> None:
    """Row 4.11: one gang gathers, one waits for quota, one for its least resources; all are older than the pod."""
    async with watched(gangs=LABELS_AND_OBJECTS, pods=True) as world:
        await create_all(world, "half", 2, quorum=3)
        await create_all(world, "large", 21, quorum=21)
        await submit(world, "driver", minResources={"cpu": "21"})
        await world.pass_time(30)
        await single(world, "single")
        await world.pass_time(2)
        assert is_running(world, "single")
        assert base_workload(world, "half") is None
        assert waits(world, "large")
        assert waits(world, "driver")
        assert invariants.breaches(world, AT_REST) == []


@pytest.mark.mechanism("4.11")
async def test_a_single_pod_waits_for_a_leading_gang_until_its_deadline_at_most() -> None:
    """Row 4.11: the flavor is kept for a gang of five with nodes for four, which has 65 s."""
    async with watched(gangs=LABELS_AND_OBJECTS, pods=True) as world:
        await lead(world)
        await single(world, "single")
        await world.pass_time(50)
        kept = evicted(world, "lead"), is_true(world.workload_of("single"), names.CONDITION_QUOTA_RESERVED)
        told = condition(world.workload_of("single"), names.CONDITION_QUOTA_RESERVED)
        await world.pass_time(15)
        assert is_running(world, "single")
        assert evicted(world, "lead")[0] == gang_names.REASON_GANG_SCHEDULE_TIMEOUT
        assert invariants.breaches(world, AT_REST) == []

    assert kept == (("", ""), False)
    assert told is not None
    assert "Flavor cheap is kept for gang" in told["message"]
