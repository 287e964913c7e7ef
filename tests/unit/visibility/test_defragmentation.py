"""The plan for a waiting workload, or why there is none; and what its explanation says about the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.cli.explain_page import page
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.core.joint.defrag import MoveBlocker
from kqueue.errors import ConfigError, NotFoundError
from kqueue.state.defrag.searches import SearchResult
from kqueue.visibility.defragmentation import DefragmentationView, ProposalSource, plan_part
from tests.unit.controllers.defrag_world import ProposalWorld, gang
from tests.unit.visibility.worlds import asked

JSON = dict[str, Any]


async def ask(
    world: ProposalWorld,
    workload: str = "team-a/big",
    *,
    off: str = "",
    leads: bool = True,
    reads: Callable[[str], bool] = lambda _namespace: True,
    **params: str,
) -> JSON:
    """The answer of the view."""
    source = ProposalSource(
        off=off, plans=lambda: () if off else world.plans.values(), memory=world.state.memory, leads=lambda: leads
    )
    view = DefragmentationView(source, workloads=world.workloads, queues=world.queues, clock=world.clock)
    return await view.view(asked(reads=reads, workload=workload, **params))


async def test_the_plan_that_stands_is_shown_with_the_command_that_approves_it() -> None:
    world = ProposalWorld()
    await world.look()
    plan = world.only()
    name, status = plan["metadata"]["name"], plan["status"]
    assert await ask(world) == {
        "kind": "Defragmentation",
        "metadata": {},
        "workload": {"namespace": "team-a", "name": "big"},
        "enabled": True,
        "leading": True,
        "searchedAt": "2026-01-01T12:00:00Z",
        "plan": {
            "name": name,
            "phase": "Proposed",
            "hash": status["hash"],
            "flavor": "gpu",
            "domain": ["b"],
            "moves": [
                {"namespace": "team-b", "name": "u", "pods": 10, "from": ["b"], "to": ["a"], "cost": 600,
                 "state": "Planned"},
            ],
            "cost": {"podSeconds": 600},
            "gain": {"slotsBefore": 0, "slotsAfter": 1, "fragmentationBefore": 1000, "fragmentationAfter": 238},
            "show": f"kqueue defrag show {name}",
            "validUntil": "2026-01-01T12:10:00Z",
            "approve": f"kqueue defrag approve {name} --hash {status['hash']}",
        },
    }  # fmt: skip


async def test_workloads_of_namespaces_that_a_user_may_not_read_have_no_name() -> None:
    world = ProposalWorld()
    await world.look()
    (move,) = (await ask(world, reads=lambda namespace: namespace == "team-a"))["plan"]["moves"]
    assert move["hidden"]
    assert not {"namespace", "name"} & move.keys()


async def test_an_approved_plan_has_no_command_to_approve_it() -> None:
    world = ProposalWorld()
    await world.look()
    plan = world.only()
    world.client.change(DEFRAGMENTATION_PLANS, plan["metadata"]["name"], {"spec": {"approved": plan["status"]["hash"]}})
    world.client.sync()
    shown = (await ask(world))["plan"]
    assert shown["name"] == plan["metadata"]["name"]
    assert not {"approve", "validUntil"} & shown.keys()


async def searched(world: ProposalWorld) -> None:
    await world.look()


async def ended(world: ProposalWorld) -> None:
    """The plan expires."""
    await world.look()
    await world.clock.advance(600)


async def admitted(world: ProposalWorld) -> None:
    made = gang("big")
    made["status"]["admission"] = {"clusterQueue": "team", "podSetAssignments": []}
    world.workloads.put("team-a/big", msgspec.convert(made, wire.Workload))


async def nothing(_world: ProposalWorld) -> None:
    """No search was made."""


@pytest.mark.parametrize(
    ("consent", "before", "settings", "reason", "message"),
    [
        ({}, nothing, {"off": "x is 0"}, "Off", "no plan: the controller proposes none, because x is 0"),
        ({}, nothing, {}, "NotSearched",
         "no plan: no search was made for it yet; the first gangs in order are searched for"),
        ({}, nothing, {"leads": False}, "NotLeading",
         "this replica makes no searches; ask again to reach the one that does"),
        ({}, ended, {}, "Ended", "no plan: the last one has ended; the next search may find another"),
        ({}, admitted, {}, "DoesNotWait", "no plan: it has its quota already"),
        ({"u": "Never", "v2": "Never"}, searched, {}, "Blocked",
         "no plan: a comes closest and lacks room for 3 pods"),
    ],
)  # fmt: skip
async def test_the_reason_for_no_plan_is_said(
    consent: JSON, before: Callable[[ProposalWorld], Any], settings: JSON, reason: str, message: str
) -> None:
    world = ProposalWorld(**consent)
    await before(world)
    found = await ask(world, **settings)
    assert (found["plan"], found["reason"], found["message"]) == (None, reason, message)


@pytest.mark.parametrize(
    ("readable", "stays"),
    [
        (("team-a", "team-b"),
         {"namespace": "team-b", "name": "u", "pods": 10, "reasons": ["kqueue.dev/reschedule: Never"]}),
        (("team-a",), {"hidden": True, "pods": 10}),
    ],
)  # fmt: skip
async def test_workloads_that_stay_are_named_where_the_user_may_read_them(
    readable: tuple[str, ...], stays: JSON
) -> None:
    world = ProposalWorld(u="Never", v1="Never", v2="Never")
    await world.look()
    found = await ask(world)
    assert [one["name"] for one in found["blockedBy"]] == ["v1", "v2"]
    blocker = MoveBlocker(key="team-b/u", pods=10, reasons=("kqueue.dev/reschedule: Never",))
    result = SearchResult(at=world.clock.now(), reason="Blocked", message="m", blockers=(blocker,))
    world.state.memory.note("uid-big", result)
    found = await ask(world, reads=lambda namespace: namespace in readable)
    assert found["blockedBy"] == [stays]


async def test_a_gang_that_waits_for_quota_needs_no_plan() -> None:
    world = ProposalWorld(gang("big", reason="ExceedsMaxQuota"))
    assert (await ask(world))["reason"] == "OtherReason"


@pytest.mark.parametrize("workload", ["", "big", "team-a/", "/big", "team-a/big/x"])
async def test_a_question_without_a_workload_is_refused(workload: str) -> None:
    with pytest.raises(ConfigError, match="must be NAMESPACE/NAME"):
        await ask(ProposalWorld(), workload)


async def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match="no parameter here"):
        await ask(ProposalWorld(), flavor="gpu")


@pytest.mark.parametrize(("workload", "reads"), [("team-a/none", True), ("team-a/big", False)])
async def test_a_workload_that_the_user_may_not_read_is_not_found(workload: str, reads: bool) -> None:
    """It might exist, and the answer does not say so."""
    with pytest.raises(NotFoundError, match=workload.partition("/")[2]):
        await ask(ProposalWorld(), workload, reads=lambda _namespace: reads)


async def test_an_explanation_names_the_plan_and_the_commands() -> None:
    """J6.20: how to look at it, and how to approve it."""
    world = ProposalWorld()
    await world.look()
    (plan,) = world.plans.values()
    name, digest = plan.metadata.name, plan.status.hash
    part = plan_part(plan)
    answer = {
        "state": "Pending", "summary": "It waits", "metadata": {"name": "big", "namespace": "team-a"},
        "localQueue": "main", "asOf": {"time": "2026-01-01T12:00:00Z", "leading": True}, "defragmentation": part,
    }  # fmt: skip
    lines = [line.text for line in page(answer)]
    start = lines.index("Defragmentation plan")
    assert lines[start + 1 : start + 4] == [
        f"plan {name} is Proposed: it moves 1 workload at a cost of 10 pod-minutes, to make room for this one",
        f"run: kqueue defrag show {name}",
        f"run: kqueue defrag approve {name} --hash {digest}",
    ]
