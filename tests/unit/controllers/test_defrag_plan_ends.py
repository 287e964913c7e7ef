"""Proposals end: on an API server that fails, beside other writers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.errors import ApiError, ConflictError, NotFoundError, ServerError, TerminalError
from kqueue.state.defrag.document import plan_hash
from tests.unit.controllers.defrag_world import ProposalWorld, gang, settings

JSON = dict[str, Any]
MINUTE = 60.0
AUTO = {"rescheduling": {"migration": "Auto", "minGain": 0}}


async def proposed(**joint: Any) -> ProposalWorld:
    """A world with one proposal."""
    world = ProposalWorld(given=settings(**joint))
    await world.look()
    world.client.calls.clear()
    return world


def change(world: ProposalWorld, **patch: Any) -> None:
    """Another client writes the plan."""
    world.client.change(DEFRAGMENTATION_PLANS, world.only()["metadata"]["name"], patch)


def phase(world: ProposalWorld) -> str:
    return str(world.only()["status"]["phase"])


def conditions(world: ProposalWorld) -> list[tuple[str, str]]:
    return [(c["type"], c["reason"]) for c in world.only()["status"]["conditions"]]


async def test_a_proposal_that_nobody_approves_expires_and_is_deleted_an_hour_later() -> None:
    world = await proposed()
    await world.settle()
    assert not world.client.writes()
    await world.clock.advance(10 * MINUTE)
    await world.settle()
    assert phase(world) == "Expired"
    assert conditions(world) == [("Proposed", "ByController"), ("Expired", "NotApproved")]
    await world.clock.advance(59 * MINUTE)
    await world.settle()
    assert world.stored()
    await world.clock.advance(MINUTE)
    await world.settle()
    assert world.stored() == []
    assert [call.verb for call in world.client.writes()] == ["patch", "delete"]


async def test_the_next_look_is_when_something_is_due() -> None:
    world = await proposed()
    name = world.only()["metadata"]["name"]
    assert (await world.ends.reconcile(name)).requeue_after == 10 * MINUTE
    await world.clock.advance(10 * MINUTE)
    assert (await world.ends.reconcile(name)).requeue_after == 1
    world.client.sync()
    assert (await world.ends.reconcile(name)).requeue_after == 60 * MINUTE
    assert (await world.ends.reconcile("unknown")).requeue_after is None


@pytest.mark.parametrize("end", ["gone", "admitted", "finished", "inactive"])
async def test_a_proposal_for_a_gang_that_does_not_wait_is_superseded(end: str) -> None:
    world = await proposed()
    key = "team-a/big"
    if end == "gone":
        world.workloads.remove(key)
    else:
        made = gang("big")
        if end == "admitted":
            made["status"]["admission"] = {"clusterQueue": "team", "podSetAssignments": []}
        elif end == "finished":
            made["status"]["conditions"].append({"type": "Finished", "status": "True"})
        else:
            made["spec"]["active"] = False
        world.workloads.put(key, msgspec.convert(made, wire.Workload))
    assert list(world.ends.of_workload(key)) == [world.only()["metadata"]["name"]]
    await world.settle()
    assert phase(world) == "Superseded"
    assert conditions(world)[-1] == ("Superseded", "DoesNotWait")


async def test_an_approved_plan_is_left_alone() -> None:
    """Even once its time is over and its gang is gone: somebody else carries it out."""
    world = await proposed()
    change(world, spec={"approved": world.only()["status"]["hash"]})
    world.workloads.remove("team-a/big")
    await world.clock.advance(100 * MINUTE)
    await world.settle()
    assert not world.client.writes()
    assert phase(world) == "Proposed"


@pytest.mark.mechanism("2.10")
async def test_auto_approves_what_the_controller_proposed() -> None:
    """J5.14: the hash in the spec, and a condition that says by what right."""
    world = await proposed(**AUTO)
    await world.settle()
    plan = world.only()
    assert plan["spec"]["approved"] == plan["status"]["hash"] == plan_hash(plan["spec"], plan["status"])
    assert phase(world) == "Approved"
    assert conditions(world) == [("Proposed", "ByController"), ("Approved", "AutoBudget")]
    world.client.calls.clear()
    await world.settle()
    assert not world.client.writes()


async def test_propose_approves_nothing() -> None:
    world = await proposed()
    await world.settle()
    assert not world.client.writes()
    assert world.only()["spec"]["approved"] == ""


async def test_auto_does_not_approve_beyond_the_budget() -> None:
    """A proposal of a process with a larger one."""
    world = await proposed(**AUTO)
    less = ProposalWorld(given=settings(**AUTO, defrag={"budget": {"maxPodMinutes": 9}}))
    less.client.put(DEFRAGMENTATION_PLANS, world.only())
    await less.settle()
    assert not less.client.writes()
    await less.clock.advance(10 * MINUTE)
    await less.settle()
    assert phase(less) == "Expired"


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"moves": [{"workload": "team-a/v1", "pods": 3}]}},
        {"status": {"cost": {"podSeconds": 1}}},
        {"spec": {"budget": {"maxMoves": 1}}},
        {"status": {"hash": f"sha256:{0:064}"}},
        {"status": {"conditions": []}},
    ],
)
async def test_auto_does_not_approve_what_another_client_has_changed(patch: JSON) -> None:
    world = await proposed(**AUTO)
    change(world, **patch)
    await world.settle()
    assert not world.client.writes()
    await world.clock.advance(10 * MINUTE)
    await world.settle()
    assert phase(world) == "Expired"


async def test_a_plan_that_is_carried_out_at_once_keeps_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs before the approval has its condition."""
    world = await proposed(**AUTO)
    name, patch = world.only()["metadata"]["name"], world.client.patch

    async def quick(*args: Any, subresource: str | None = None, **more: Any) -> JSON:
        answer = await patch(*args, subresource=subresource, **more)
        if subresource is None:
            world.client.change(DEFRAGMENTATION_PLANS, name, {"status": {"phase": "Running"}})
        return answer

    monkeypatch.setattr(world.client, "patch", quick)
    await world.settle()
    assert phase(world) == "Running"
    assert conditions(world)[-1] == ("Approved", "AutoBudget")


async def test_a_person_who_approves_meanwhile_wins() -> None:
    """The watch does not have the approval yet."""
    world = await proposed()
    await world.clock.advance(10 * MINUTE)
    change(world, spec={"approved": world.only()["status"]["hash"]})
    await world.ends.reconcile(world.only()["metadata"]["name"])
    assert phase(world) == "Proposed"
    assert not world.client.writes()


@pytest.mark.parametrize("error", [ConflictError("changed", status=409), ServerError("down", status=500)])
async def test_a_write_that_fails_is_made_again(error: ApiError) -> None:
    """The reconciler is called again by its queue."""
    world = await proposed()
    await world.clock.advance(10 * MINUTE)
    world.client.fail(error)
    with pytest.raises(type(error)):
        await world.settle()
    await world.settle()
    assert phase(world) == "Expired"


async def test_a_plan_that_is_gone_needs_nothing() -> None:
    world = await proposed()
    await world.clock.advance(10 * MINUTE)
    name = world.only()["metadata"]["name"]
    world.client.fail(NotFoundError("gone", status=404), verb="get")
    assert (await world.ends.reconcile(name)).requeue_after is None


async def test_a_plan_that_cannot_be_read_any_more_is_not_tried_again() -> None:
    world = await proposed()
    await world.clock.advance(10 * MINUTE)
    change(world, status={"moves": "none"})
    with pytest.raises(TerminalError, match="cannot be read"):
        await world.ends.reconcile(world.only()["metadata"]["name"])


@pytest.mark.parametrize(
    "status",
    [
        None,
        {"phase": "Proposed"},
        {"phase": "Proposed", "hash": "x", "moves": [], "validUntil": "9999-12-31T23:59:59Z"},
        {"phase": "Proposed", "conditions": [{"type": "Proposed", "status": "True"}]},
    ],
)
async def test_a_mutilated_proposal_ends_as_any_other(status: JSON | None) -> None:
    """Within an hour, whatever its status says."""
    world = await proposed(**AUTO)
    broken: JSON = {
        "metadata": {"name": "broken", "uid": "b", "creationTimestamp": utc_text(world.clock.now())},
        "spec": {"goal": {"workload": {"namespace": "team-a", "name": "big"}}},
        **({"status": status} if status is not None else {}),
    }
    world.client.put(DEFRAGMENTATION_PLANS, broken)
    await world.settle()
    found = world.client.object(DEFRAGMENTATION_PLANS, "broken")
    assert found is not None
    assert found.get("spec", {}).get("approved", "") == ""
    await world.clock.advance(60 * MINUTE)
    await world.settle()
    found = world.client.object(DEFRAGMENTATION_PLANS, "broken")
    assert found is not None
    assert found["status"]["phase"] == "Expired"
