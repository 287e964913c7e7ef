"""The controller proposes plans in a running cluster: a gang waits on scattered racks, and a plan for it appears."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.cli.explain_page import page
from kqueue.clock import SystemClock, utc_text
from kqueue.config.joint import DefragBudget, DefragProposals, ReschedulingSettings
from kqueue.manager.explaining import make_explainer
from kqueue.manager.operator import Operator
from kqueue.manager.proposals import proposal_source
from kqueue.runtime.transport import Call
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.state.defrag.document import plan_hash
from kqueue.visibility.defragmentation import DefragmentationView
from tests.integration.conftest import SandboxPlane
from tests.integration.joint.joint_road import CONFIGURATION, Plane, configuration, controlled, planners_of, until
from tests.integration.joint.moves_road import PLANS, MovesRoad, told
from tests.integration.road import Object
from tests.unit.visibility.worlds import asked

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]


@asynccontextmanager
async def proposing(plane: Plane, *, minutes: int = 600, **rescheduling: Any) -> AsyncIterator[Operator]:
    """A controller that looks for plans each second."""
    proposals = DefragProposals(budget=DefragBudget(max_pod_minutes=minutes))
    config = configuration(
        defrag=proposals.model_copy(update={"interval": timedelta(seconds=1)}),
        rescheduling=ReschedulingSettings(min_gain=0, **rescheduling),
    )
    async with controlled(plane, config) as operator:
        yield operator


async def only_plan(road: MovesRoad, phase: str) -> Object:
    """Wait until there is one plan, with this phase."""
    listed = await road.cluster.until(
        PLANS,
        lambda found: [plan.get("status", {}).get("phase") for plan in found["items"]] == [phase],
        what=f"one plan is {phase}",
    )
    (plan,) = listed["items"]
    return dict(plan)


async def until_event(road: MovesRoad, name: str) -> Object:
    """Wait for the event about a proposal on a Workload."""

    def of(listed: Object) -> list[Object]:
        return [
            e for e in listed["items"] if (e["reason"], e["regarding"]["name"]) == ("DefragmentationProposed", name)
        ]

    path = f"/apis/events.k8s.io/v1/namespaces/{road.namespace}/events"
    return of(await road.cluster.until(path, lambda listed: bool(of(listed)), what=f"{name} has an event"))[0]


async def explained(operator: Operator, road: MovesRoad, name: str) -> list[str]:
    """The lines of an explanation."""
    question = replace(asked(name, whatIf="false"), namespace=road.namespace)
    return [line.text for line in page(await make_explainer(operator).view(question))]


async def answer(operator: Operator, road: MovesRoad, name: str) -> Object:
    """The answer of the view about a Workload."""
    view = DefragmentationView(
        proposal_source(operator),
        workloads=operator.watches.workloads.store,
        queues=operator.queues,
        clock=operator.clock,
    )
    return await view.view(asked(workload=f"{road.namespace}/{name}"))


def writes(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The writes of a controller from now on: verb, kind and path."""
    client, found = operator.manager.client, list[str]()
    send = client.send

    async def noted(call: Call) -> Any:
        if call.verb in ("create", "patch", "update", "delete"):
            found.append(f"{call.verb} {call.resource.plural} {call.path}")
        return await send(call)

    monkeypatch.setattr(client, "send", noted)
    return found


async def test_a_gang_on_scattered_racks_gets_a_proposal_and_nothing_else_is_written(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J6.12, J6.20: two writes for the plan, and none about the workload that it would move."""
    road = await MovesRoad.half_full(either_plane.cluster)
    async with proposing(either_plane) as operator:
        await road.fill()
        moved = (await road.workload_of("moves"))["metadata"]["name"]
        written = writes(operator, monkeypatch)
        name = await road.wait_big()
        plan = await only_plan(road, "Proposed")
        assert plan["spec"] == {
            "goal": {"workload": {"namespace": road.namespace, "name": name}},
            "budget": {"maxMoves": 4, "maxPodMinutes": 600},
            "approved": "",
        }
        assert plan["status"]["hash"] == plan_hash(plan["spec"], plan["status"])
        assert [move["workload"] for move in plan["status"]["moves"]] == [f"{road.namespace}/{moved}"]
        assert len(planners_of(os.getpid())) == 1
        event = await until_event(road, name)
        shown = await answer(operator, road, name)
        command = f"kqueue defrag approve {plan['metadata']['name']} --hash {plan['status']['hash']}"
        assert command in event["note"]
        assert (shown["plan"]["name"], shown["plan"]["approve"]) == (plan["metadata"]["name"], command)
        assert (await answer(operator, road, moved))["reason"] == "DoesNotWait"
        assert f"run: {command}" in await explained(operator, road, name)
        assert [line.split()[0] for line in written if "defragmentationplans" in line] == ["create", "patch"]
        assert not [line for line in written if moved in line or "/pods/" in line or "/jobs/moves" in line]


async def test_a_proposal_expires_is_followed_by_another_and_is_deleted(either_plane: Plane) -> None:
    """Other writers set the times back, so that the test need not wait."""
    road = await MovesRoad.half_full(either_plane.cluster)
    past = utc_text(SystemClock().now() - timedelta(hours=2))
    async with proposing(either_plane):
        await road.fill()
        await road.wait_big()
        first = (await only_plan(road, "Proposed"))["metadata"]["name"]
        await road.change_plan(first, validUntil=past)
        await road.until_phase(first, "Expired")
        listed = await road.cluster.until(
            PLANS,
            lambda found: (
                sorted(p.get("status", {}).get("phase", "") for p in found["items"]) == ["Expired", "Proposed"]
            ),
            what="another plan is proposed",
        )
        (second,) = [p["metadata"]["name"] for p in listed["items"] if p["metadata"]["name"] != first]
        expired = await road.plan(first)
        conditions = [{**c, "lastTransitionTime": past} for c in expired["status"]["conditions"]]
        await road.change_plan(first, conditions=conditions)
        assert (await only_plan(road, "Proposed"))["metadata"]["name"] == second
        await road.cluster.request("DELETE", f"{road.jobs}/big?propagationPolicy=Background")
        await road.until_phase(second, "Superseded")


async def test_auto_frees_the_rack_within_the_budget(either_plane: Plane) -> None:
    """J5.14: nobody approves the plan, and the gang starts."""
    road = await MovesRoad.half_full(either_plane.cluster)
    async with proposing(either_plane, migration="Auto"):
        await road.fill()
        await road.wait_big()
        await road.until_running_pods("big", 4)
        plan = await only_plan(road, "Done")
        reasons = {c["type"]: c["reason"] for c in plan["status"]["conditions"]}
        assert (reasons["Proposed"], reasons["Approved"]) == ("ByController", "AutoBudget"), told(plan)
        assert plan["spec"]["approved"] == plan["status"]["hash"]
        assert await road.evictions("moves") == 1


async def test_auto_moves_nothing_beyond_the_budget(either_plane: Plane) -> None:
    """Two pods that lose an hour and a restart each, and a budget of two hours."""
    road = await MovesRoad.half_full(either_plane.cluster)
    async with proposing(either_plane, minutes=120, migration="Auto") as operator:
        await road.fill()
        name = await road.wait_big()
        memory = proposal_source(operator).memory
        await until(lambda: memory.last is not None, "a search was made")
        none = await answer(operator, road, name)
        assert (none["plan"], none["reason"]) == (None, "Budget")
        assert "moves that cost 12" in none["message"]
        assert (await road.cluster.get(PLANS))["items"] == []
        assert await road.evictions("moves") == 0


async def test_nothing_is_proposed_where_moves_are_switched_off(either_plane: Plane) -> None:
    """`maxMovesPerHour: 0`, and without the feature gate; the view says by which setting."""
    road = await MovesRoad.half_full(either_plane.cluster)
    async with proposing(either_plane, max_moves_per_hour=0) as operator:
        await road.fill()
        name = await road.wait_big()
        none = await answer(operator, road, name)
        assert (none["reason"], "joint.rescheduling.maxMovesPerHour is 0" in none["message"]) == ("Off", True)
        assert "defragmentation_proposals" not in {one.name for one in operator.manager.controllers}
    async with controlled(either_plane, configuration(CONFIGURATION)) as operator:
        assert (await answer(operator, road, name))["reason"] == "Off"
        assert not [watch for watch in operator.watches.named() if "defragmentationplans" in watch]
    assert (await road.cluster.get(PLANS))["items"] == []


async def test_a_cluster_without_the_definition_of_plans_runs_as_before(tmp_path: Path) -> None:
    """An installation whose definitions are older."""
    crds = tmp_path / "crds"
    crds.mkdir()
    for file in crd_folder().glob("*.yaml"):
        if "defragmentation" not in file.name:
            (crds / file.name).write_text(file.read_text())
    sandbox = Sandbox(SandboxOptions(crds=(crds,)))
    await sandbox.start()
    try:
        sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        plane = SandboxPlane(tmp_path / "kubeconfig")
        road = await MovesRoad.half_full(plane.cluster)
        async with proposing(plane) as operator:
            await road.fill()
            name = await road.wait_big()
            assert (await answer(operator, road, name))["reason"] == "NotSearched"
    finally:
        await sandbox.stop()
