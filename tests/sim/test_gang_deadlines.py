"""Gangs whose members find no nodes: deadlines, rejections, pauses, and flavors that are kept for the nearest gang."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.clock import api_time
from kqueue.core.topology import HOSTNAME
from kqueue.sandbox.api import NODES, PODS
from tests.sim import invariants
from tests.sim.gangs import base_workload, create, create_all, labelled, members, running
from tests.sim.objects import NAMESPACE
from tests.sim.test_gangs import AT_REST, CHEAP_NODES, cordon, usage, watched
from tests.sim.world import World, condition, is_true


async def set_gangs(world: World, **settings: Any) -> None:
    """Let the controller run with other settings of gangs."""
    gangs = world.configured.gangs.model_copy(update=settings)
    world.configured = world.configured.model_copy(update={"gangs": gangs})
    await restart(world)


async def restart(world: World) -> None:
    world.kill_controller()
    world.start_controller()
    await world.settle()


def evicted(world: World, gang: str) -> tuple[str, str]:
    """Reason and message of the eviction of a gang; empty: it goes on."""
    found = condition(base_workload(world, gang), names.CONDITION_EVICTED)
    return (found["reason"], found["message"]) if found is not None and found["status"] == "True" else ("", "")


def admissions(world: World, gang: str) -> list[float]:
    """The times at which the gang got quota."""
    workload = base_workload(world, gang)
    assert workload is not None
    uid = workload["metadata"]["uid"]
    return [each.at for each in world.history.admissions if each.uid == uid]


async def allow(world: World, cpus: int, *, node: int = 0) -> None:
    """Only this much of cpu is free on one node, none on the other."""
    for number, name in enumerate(CHEAP_NODES):
        amount = str(cpus if number == node else 0)
        await world.api.patch(NODES, name, {"status": {"allocatable": {"cpu": amount}}}, subresource="status")


@pytest.mark.mechanism("0.13")
@pytest.mark.parametrize(("quorum", "seconds"), [(2, 62), (5, 65)])
async def test_a_gang_without_nodes_is_stopped_at_its_deadline_and_holds_nothing(quorum: int, seconds: int) -> None:
    """Rows 0.13, 0.14, 4.3, 4.19: not a second before; then no member runs and no quota is used, also over a restart."""
    async with watched() as world:
        await set_gangs(world, reject_percentage=100)
        await cordon(world)
        before = usage(world)
        await create_all(world, "g", quorum, quorum=quorum)
        await world.pass_time(2)
        held = usage(world)
        await restart(world)
        await world.pass_time(seconds - 4)
        waits = evicted(world, "g")
        await world.pass_time(4)
        reason, message = evicted(world, "g")
        left = [
            each["metadata"]["name"] for each in members(world, "g") if not each["metadata"].get("deletionTimestamp")
        ]
        after = usage(world)

    assert held == before + quorum
    assert waits == ("", "")
    assert reason == gang_names.REASON_GANG_SCHEDULE_TIMEOUT
    assert message.startswith(f"0 of {quorum} pods were scheduled within {seconds} s of the admission; all are stopped")
    assert (left, after) == ([], before)


@pytest.mark.mechanism("0.14", "4.19")
async def test_the_deadline_of_one_member_is_that_of_all() -> None:
    """Rows 0.14, 4.19: one member finds no node; all others are deleted with it, in the same second."""
    async with watched() as world:
        await allow(world, 4)
        await create_all(world, "g", 5, quorum=5)
        await set_gangs(world, reject_percentage=100)
        await world.pass_time(10)
        assert len(running(world, "g")) == 4
        some: list[int] = []
        world.on_settled.append(lambda: some.append(len(running(world, "g"))))
        await world.pass_time(60)
        assert evicted(world, "g")[0] == gang_names.REASON_GANG_SCHEDULE_TIMEOUT
        assert usage(world) == 0
        assert invariants.breaches(world, AT_REST) == []

    assert set(some) == {4, 0}


@pytest.mark.mechanism("3.4", "4.16")
async def test_a_rejected_gang_is_tried_at_the_end_of_its_pause_and_not_before() -> None:
    """Rows 3.4, 4.16: 10, 20 and 40 s; when the quorum has run, the count begins again."""
    async with watched() as world:
        await cordon(world)
        pauses: list[float] = []
        for attempt in range(3):
            await _again(world, attempt)
            await world.pass_time(13)
            reason, _ = evicted(world, "g")
            assert reason == gang_names.REASON_GANG_REJECTED, attempt
            workload = base_workload(world, "g")
            assert workload is not None
            due = api_time(workload["status"]["requeueState"]["requeueAt"])
            since = api_time((condition(workload, names.CONDITION_EVICTED) or {})["lastTransitionTime"])
            assert due is not None
            assert since is not None
            pauses.append(round((due - since).total_seconds()))
            tried = len(admissions(world, "g"))
            await _again(world, attempt + 1)
            left = (due - world.clock.now()).total_seconds()
            await world.pass_time(left - 1)
            assert len(admissions(world, "g")) == tried
            await world.pass_time(2.5)
            assert len(admissions(world, "g")) == tried + 1
        await cordon(world, off=True)
        await world.pass_time(10)
        assert len(running(world, "g")) == 2
        workload = base_workload(world, "g")

    assert pauses == [10, 20, 40]
    assert workload is not None
    assert not workload["status"].get("requeueState")


async def _again(world: World, number: int) -> None:
    """The owner of the gang's pods makes others in place of those that were stopped."""
    present = [each for each in members(world, "g") if not each["metadata"].get("deletionTimestamp")]
    for index in range(2 - len(present)):
        await create(world, f"g-{number}-{index}", "g", quorum=2)


@pytest.mark.mechanism("4.17")
@pytest.mark.parametrize(
    ("percentage", "room", "rejected"), [(10, 9, False), (10, 8, True), (0, 9, True), (100, 1, False)]
)
async def test_a_gang_is_rejected_by_the_share_of_members_without_nodes(
    percentage: int, room: int, rejected: bool
) -> None:
    """Row 4.17: one of ten waits at 10 %, two are too many; nothing is held after a rejection."""
    async with watched() as world:
        await set_gangs(world, reject_percentage=percentage)
        await allow(world, room)
        await create_all(world, "g", 10, quorum=10)
        await world.pass_time(9)
        before = evicted(world, "g")
        await world.pass_time(5)
        reason, message = evicted(world, "g")
        after = usage(world)

    assert before == ("", "")
    assert reason == (gang_names.REASON_GANG_REJECTED if rejected else "")
    assert after == (0 if rejected else 10)
    if rejected:
        lacking = 10 - room
        assert message.startswith(
            f"{lacking} of 10 pods cannot be scheduled ({10 * lacking} %, more than {percentage} %)"
        )


async def bound_apart(world: World) -> None:
    """Gang `far` of 5 gets nodes for 2, gang `near` of 5 for 4; the last member of `near` needs both places of `far`."""
    hosts = [{"kubernetes.io/hostname": name.replace("cheap-", "cheap-", 1)} for name in CHEAP_NODES]
    for name, cpus in zip(CHEAP_NODES, (4, 2), strict=True):
        await world.api.patch(NODES, name, {"status": {"allocatable": {"cpu": str(cpus)}}}, subresource="status")
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in world.objects(NODES)}
    hosts = [{HOSTNAME: labels[name][HOSTNAME]} for name in CHEAP_NODES]

    async def make(gang: str, number: int, *, cpus: int = 1, host: int | None = None) -> None:
        made = labelled(f"{gang}-{number}", gang, quorum=5, cpus=cpus)
        if host is not None:
            made["spec"]["nodeSelector"] = hosts[host]
        await world.api.create(PODS, made, namespace=NAMESPACE)

    for number in range(4):
        await make("far", number, host=1)
    await world.pass_time(1)
    for number in range(4):
        await make("near", number, host=0)
    await world.pass_time(1)
    await make("far", 4, host=1)
    await make("near", 4, cpus=2)


def bound(world: World, gang: str) -> int:
    """Members that have a node and go on."""
    return sum(
        bool(each["spec"].get("nodeName")) and not each["metadata"].get("deletionTimestamp")
        for each in members(world, gang)
    )


@pytest.mark.mechanism("4.13")
async def test_the_gang_further_from_its_quorum_is_rejected_and_the_other_completes() -> None:
    """Row 4.13: four of five and two of five stand in each other's way."""
    async with watched() as world:
        await bound_apart(world)
        await world.pass_time(5)
        apart = bound(world, "near"), bound(world, "far")
        await world.pass_time(10)
        reason, _ = evicted(world, "far")
        complete = bound(world, "near"), evicted(world, "near")

    assert apart == (4, 2)
    assert reason == gang_names.REASON_GANG_REJECTED
    assert complete == (5, ("", ""))


async def lead(world: World) -> None:
    """Gang `lead` of 5 has nodes for 4 members, and the flavor is kept for it."""
    await set_gangs(world, reject_percentage=100)
    await allow(world, 4)
    await create_all(world, "lead", 5, quorum=5)
    await world.pass_time(5)
    assert bound(world, "lead") == 4


@pytest.mark.mechanism("4.14")
async def test_late_gangs_wait_and_the_free_node_goes_to_the_leader() -> None:
    """Row 4.14: there is quota for the small ones; they run after the leader has its quorum, also over a restart."""
    async with watched() as world:
        await lead(world)
        for name in ("small", "smaller"):
            await create_all(world, name, 1, quorum=1)
        await world.pass_time(10)
        waits = condition(base_workload(world, "small"), names.CONDITION_QUOTA_RESERVED)
        assert waits is not None
        assert (waits["status"], waits["reason"]) == ("False", names.REASON_WAITING_FOR_PODS_READY)
        await restart(world)
        await world.pass_time(5)
        assert bound(world, "small") == bound(world, "smaller") == 0
        await allow(world, 5)
        await world.pass_time(5)
        assert (bound(world, "lead"), bound(world, "small")) == (5, 0)
        await allow(world, 7)
        await world.pass_time(5)
        assert len(running(world, "small")) == len(running(world, "smaller")) == 1
        assert invariants.breaches(world, AT_REST) == []

    assert "Flavor cheap is kept for gang" in waits["message"]
    assert "of which 4 of 5 pods are scheduled" in waits["message"]


async def test_the_first_cycle_after_a_restart_keeps_the_flavor_for_the_leader() -> None:
    """A gang that came while no controller ran is not admitted before the new one has looked at the leader."""
    async with watched() as world:
        await lead(world)
        await create_all(world, "small", 1, quorum=1)
        await world.pass_time(10)
        before = len(world.history.admissions)
        await restart(world)
        await world.pass_time(10)
        assert len(world.history.admissions) == before


@pytest.mark.mechanism("4.15")
async def test_a_newcomer_of_higher_priority_takes_the_leaders_place() -> None:
    """Row 4.15: it is admitted at once, and the leader holds nothing once its pods have ended."""
    async with watched() as world:
        await lead(world)
        await create_all(world, "urgent", 2, quorum=2, priority="high")
        await world.pass_time(1)
        admitted = is_true(base_workload(world, "urgent"), names.CONDITION_ADMITTED)
        reason, message = evicted(world, "lead")
        await world.pass_time(5)
        after = usage(world), len(running(world, "urgent"))

    assert admitted
    assert reason == gang_names.REASON_GANG_MADE_WAY
    assert message.startswith("made way for ")
    assert after == (2, 2)
