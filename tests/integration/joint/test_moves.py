"""Approved plans are carried out: a rack is freed, and the gang that waits for it starts there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kqueue.clock import SystemClock
from kqueue.config import Configuration
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.manager.operator import Operator
from kqueue.operations.defrag import storing
from kqueue.runtime.client import Client, connect
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.joint.joint_road import Plane, controlled, until
from tests.integration.joint.moves_road import PLANS, Halt, MovesRoad, moving, target_of, told

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox, pytest.mark.mechanism("2.10")]

ENDS = ("Done", "Aborted", "Failed", "Superseded", "Expired")


@asynccontextmanager
async def filled(
    plane: Plane, config: Configuration | None = None
) -> AsyncIterator[tuple[MovesRoad, Client, Operator]]:
    """Two racks that are half full, and a controller."""
    road = await MovesRoad.half_full(plane.cluster)
    async with controlled(plane, config or moving()) as operator, await connect(plane.kubeconfig) as client:
        await road.fill()
        yield road, client, operator


async def approved(road: MovesRoad, client: Client) -> str:
    """Approve the plan for the gang, and return its name."""
    name = await road.propose(client, await road.wait_big())
    await storing.approve(client, name, "", SystemClock().now())
    return name


async def assert_nothing_moved(road: MovesRoad, name: str, phase: str) -> str:
    """The plan has ended without a trace; return its last condition."""
    plan = await road.until_phase(name, phase)
    states = {move["state"] for move in plan["status"]["moves"]}
    assert states <= {"Planned", "Aborted"}, told(plan)
    assert await road.evictions("moves") == 0
    return told(plan)[-1]


async def test_a_plan_frees_a_rack_and_the_waiting_gang_starts_there(either_plane: Plane) -> None:
    async with filled(either_plane) as (road, client, operator):
        before = await road.racks_of("moves")
        name = await approved(road, client)
        await road.until_running_pods("big", 4)
        done = await road.until_phase(name, *ENDS)
        assert done["status"]["phase"] == "Done", told(done)
        assert [move["state"] for move in done["status"]["moves"]] == ["Done"]
        assert [c["type"] for c in done["status"]["conditions"]] == ["Proposed", "Approved", "Running", "Done"]
        assert await road.racks_of("big") == before
        assert await road.racks_of("moves") == await road.racks_of("stays") != before
        assert await road.evictions("moves") == 1
        assert operator.manager.moves.claims() == ()
        await road.until_told_of(name)


async def _goes_on(plane: Plane, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """The leader ends at a written state; the next one moves the workload, and evicts it once."""
    halt = Halt(monkeypatch, state)
    async with filled(plane) as (road, client, _):
        name = await approved(road, client)
        await halt.until_reached()
    halt.remove()
    async with controlled(plane, moving()):
        done = await road.until_phase(name, *ENDS)
        assert done["status"]["phase"] == "Done", told(done)
        await road.until_running_pods("big", 4)
        await road.until_running_pods("moves", 2)
        assert await road.racks_of("moves") == await road.racks_of("stays") != await road.racks_of("big")
        assert await road.evictions("moves") == 1


async def test_a_new_leader_goes_on_where_the_last_one_was(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _goes_on(either_plane, monkeypatch, "Evicting")


@pytest.mark.parametrize("state", ["Reserved", "Evicted", "Running", "Done"])
async def test_a_new_leader_goes_on_at_every_state(
    sandbox_plane: Plane, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    await _goes_on(sandbox_plane, monkeypatch, state)


async def test_a_new_leader_places_a_workload_that_waits_for_its_target(
    sandbox_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue is on hold, so that the move stays in the state `Replacing`."""
    halt = Halt(monkeypatch, "Evicted")
    async with filled(sandbox_plane) as (road, client, _):
        name = await approved(road, client)
        await halt.until_reached()
        await road.hold()
    halt.remove()
    async with controlled(sandbox_plane, moving()):
        await road.until_state(name, "Replacing")
    async with controlled(sandbox_plane, moving()):
        await road.open()
        done = await road.until_phase(name, *ENDS)
        assert done["status"]["phase"] == "Done", told(done)
        assert await road.racks_of("moves") == await road.racks_of("stays") != await road.racks_of("big")
        assert await road.evictions("moves") == 1


async def test_an_abort_before_the_eviction_leaves_no_trace(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = Halt(monkeypatch, "Reserved")
    async with filled(either_plane) as (road, client, operator):
        name = await approved(road, client)
        await halt.until_reached()
        assert operator.manager.moves.claims()
        await storing.abort(client, name, SystemClock().now())
        halt.go()
        await road.until_state(name, "Aborted")
        assert "ByUser" in await assert_nothing_moved(road, name, "Aborted")
        await road.until_running_pods("moves", 2)
        await until(lambda: operator.manager.moves.claims() == (), "nothing is kept any more")


async def test_after_an_abort_the_move_that_is_under_way_goes_forward(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = Halt(monkeypatch, "Evicted")
    async with filled(either_plane) as (road, client, operator):
        name = await approved(road, client)
        await halt.until_reached()
        await storing.abort(client, name, SystemClock().now())
        halt.go()
        ended = await road.until_state(name, "Done")
        assert ended["status"]["phase"] == "Aborted"
        await road.until_running_pods("moves", 2)
        assert await road.evictions("moves") == 1
        await until(lambda: operator.manager.moves.claims() == (), "nothing is kept any more")


async def test_a_disruption_budget_forbids_a_move(either_plane: Plane) -> None:
    async with filled(either_plane) as (road, client, operator):
        big = await road.wait_big()
        name = await road.propose(client, big)
        budgets = f"/apis/policy/v1/namespaces/{road.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "moves"}}}
        kept = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"}, "spec": spec}
        await road.cluster.request("POST", budgets, kept)
        watch = operator.manager.watches.named()["poddisruptionbudgets.policy"].store
        await until(lambda: len(watch) == 1, "the budget is seen")
        await storing.approve(client, name, "", SystemClock().now())
        assert "PodDisruptionBudget kept" in await assert_nothing_moved(road, name, "Aborted")


async def forge(road: MovesRoad, name: str, phase: str, **move: object) -> None:
    """Change the moves of a plan behind its hash, and approve the hash, while no controller runs."""
    plan = await road.plan(name)
    change = {"moves": [{**one, **move} for one in plan["status"]["moves"]], "phase": phase}
    path, approval = f"{PLANS}/{name}", {"spec": {"approved": plan["status"]["hash"]}}
    await road.cluster.request("PATCH", f"{path}/status", {"status": change}, content_type=MERGE_PATCH)
    await road.cluster.request("PATCH", path, approval, content_type=MERGE_PATCH)


@pytest.mark.parametrize("phase", ["Proposed", "Approved", "Running"])
async def test_a_plan_that_was_changed_after_it_was_shown_is_a_proposal_again(either_plane: Plane, phase: str) -> None:
    async with filled(either_plane) as (road, client, _):
        name = await road.propose(client, await road.wait_big())
    await forge(road, name, phase, cost=1)
    async with controlled(either_plane, moving()):
        await road.cluster.until(
            f"{PLANS}/{name}", lambda found: not found["spec"].get("approved"), what="the approval is withdrawn"
        )
        await assert_nothing_moved(road, name, "Proposed")


async def test_a_forged_state_evicts_no_workload_without_consent(either_plane: Plane) -> None:
    """A writer of plans claims that a move was begun, of a workload that its user does not let move."""
    async with filled(either_plane) as (road, client, _):
        name = await road.propose(client, await road.wait_big())
        no = {"metadata": {"annotations": {"kqueue.dev/reschedule": "Never"}}}
        await road.cluster.request("PATCH", f"{road.jobs}/moves", no, content_type=MERGE_PATCH)
        await road.cluster.until(
            road.workloads,
            lambda listed: any(
                w["metadata"].get("annotations", {}).get("kqueue.dev/reschedule") == "Never" for w in listed["items"]
            ),
            what="the Workload has what its user says now",
        )
    await forge(road, name, "Running", state="Evicting")
    async with controlled(either_plane, moving()):
        assert "kqueue.dev/reschedule: Never" in await assert_nothing_moved(road, name, "Aborted")


async def test_a_workload_whose_target_is_lost_goes_elsewhere(
    sandbox_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = Halt(monkeypatch, "Evicted")
    async with filled(sandbox_plane) as (road, client, operator):
        await road.add_rack("rack-2", 2)
        await until(lambda: len(operator.watches.nodes.store) == 10, "all nodes are seen")
        name = await approved(road, client)
        await halt.until_reached()
        (move,) = (await road.plan(name))["status"]["moves"]
        lost = target_of(move)[0]
        await road.cluster.request("DELETE", f"/api/v1/nodes/{lost}")
        await until(lambda: len(operator.watches.nodes.store) == 9, "the node is gone")
        halt.go()
        done = await road.until_phase(name, *ENDS)
        assert done["status"]["phase"] == "Done", told(done)
        await road.until_running_pods("moves", 2)
        await road.until_running_pods("big", 4)
        nodes = await road.nodes_of("moves")
        assert not nodes & set(target_of(move))
        assert await road.evictions("moves") == 1


async def test_the_workload_of_a_deleted_plan_goes_forward(
    sandbox_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = Halt(monkeypatch, "Evicted")
    async with filled(sandbox_plane) as (road, client, operator):
        name = await approved(road, client)
        await halt.until_reached()
        await client.delete(DEFRAGMENTATION_PLANS, name)
        halt.go()
        await road.until_running_pods("moves", 2)
        assert await road.evictions("moves") == 1
        await until(lambda: operator.manager.moves.claims() == (), "nothing is kept any more")


async def test_a_workload_that_is_deleted_while_it_moves_gives_its_room(
    sandbox_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = Halt(monkeypatch, "Evicted")
    async with filled(sandbox_plane) as (road, client, _):
        name = await approved(road, client)
        await halt.until_reached()
        await road.cluster.request("DELETE", f"{road.jobs}/moves?propagationPolicy=Background")
        halt.go()
        done = await road.until_phase(name, *ENDS)
        assert (done["status"]["phase"], done["status"]["moves"][0]["state"]) == ("Done", "Done"), told(done)
        await road.until_running_pods("big", 4)


async def test_two_plans_are_carried_out_one_after_the_other(
    sandbox_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = Halt(monkeypatch, "Evicted")
    async with filled(sandbox_plane) as (road, client, _):
        big = await road.wait_big()
        first = await road.propose(client, big)
        second = await road.propose(client, big, name="second")
        await storing.approve(client, first, "", SystemClock().now())
        await halt.until_reached()
        await storing.approve(client, second, "", SystemClock().now())
        await asyncio.sleep(0)
        halt.go()
        await road.until_phase(first, "Done")
        await road.until_phase(second, "Superseded")
        assert await road.evictions("moves") == 1
