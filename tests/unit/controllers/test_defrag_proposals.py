"""The controller proposes plans: for which gangs, when, and what becomes of the answers."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta
from typing import Any

import pytest

from kqueue.clock import utc_text
from kqueue.controllers.defrag_settings import proposal_settings, why_no_proposals
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.core.explain import NO_DOMAINS
from kqueue.core.joint.movable import MovePolicy
from kqueue.errors import ForbiddenError, ServerError
from kqueue.state.defrag.document import plan_hash
from kqueue.state.defrag.stored import MOST_PLANS
from tests.unit.cli.defrag_cluster import NOW
from tests.unit.controllers.defrag_world import ProposalWorld, configuration, gang, settings

JSON = dict[str, Any]
INTERVAL = 300.0


def stored_plan(number: int, phase: str, *, workload: str = "team-a/x", minutes: int = 10, **status: Any) -> JSON:
    """A plan of an API server; it was made now, and is valid for these minutes."""
    namespace, _, name = workload.partition("/")
    now = utc_text(NOW)
    plan: JSON = {
        "metadata": {"name": f"plan-{number:02}", "uid": f"plan-{number}", "creationTimestamp": now},
        "spec": {"goal": {"workload": {"namespace": namespace, "name": name}}},
        "status": {
            "phase": phase,
            "validUntil": utc_text(NOW + timedelta(minutes=minutes)),
            "conditions": [{"type": phase, "status": "True", "reason": "r", "message": "", "lastTransitionTime": now}],
            **status,
        },
    }
    plan["status"]["hash"] = plan_hash(plan["spec"], plan["status"])
    return plan


async def test_a_gang_that_waits_on_scattered_racks_gets_a_proposal() -> None:
    """J6.12: the plan, its status, and an event; nothing else is written."""
    world = ProposalWorld()
    await world.look()
    assert list(map(str, world.client.writes())) == [
        f"create defragmentationplans {world.only()['metadata']['name']}",
        f"patch defragmentationplans {world.only()['metadata']['name']}/status",
    ]
    plan = world.only()
    status, spec = plan["status"], plan["spec"]
    assert spec["goal"] == {"workload": {"namespace": "team-a", "name": "big"}}
    assert (spec["approved"], status["phase"]) == ("", "Proposed")
    assert status["hash"] == plan_hash(spec, status)
    assert [move["workload"] for move in status["moves"]] == ["team-b/u"]
    assert status["validUntil"] == utc_text(NOW + timedelta(minutes=10))
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Proposed", "ByController")
    assert world.recorder.events == [("Workload big", "DefragmentationProposed")]
    (told,) = world.recorder.messages
    name = plan["metadata"]["name"]
    assert told == (
        f"DefragmentationPlan {name} would make room by moving 1 running workload, at a cost of 10 pod-minutes; "
        f"look at it with: kqueue defrag show {name}; "
        f"approve it with: kqueue defrag approve {name} --hash {status['hash']}"
    )


@pytest.mark.parametrize(
    ("waiting", "searched"),
    [
        pytest.param([gang("a")], ["a"], id="one that waits for topology"),
        pytest.param([gang("a", reason="WaitingForQuota")], [], id="one that waits for quota"),
        pytest.param([gang("a", reason="")], [], id="one that was not tried"),
        pytest.param(
            [gang("a", reason="WaitingForQuota", message=f"{NO_DOMAINS}: the best rack has room for 10 of 16 pods")],
            ["a"],
            id="one that has quota and no domains, because others have them",
        ),
        pytest.param(
            [gang("a", priority=9, reason="WaitingForQuota"), gang("b")], ["b"], id="waiters for quota do not count"
        ),
        pytest.param(
            [gang(name, priority=priority) for name, priority in (("a", 1), ("b", 5), ("c", 2), ("d", 3))],
            ["b", "c", "d"],
            id="the first three by priority",
        ),
        pytest.param(
            [gang(name, priority=9, queueName="other") for name in "abc"] + [gang(name) for name in "defg"],
            ["d", "e", "f"],
            id="none of a LocalQueue that nobody made",
        ),
    ],
)
async def test_the_first_three_gangs_that_wait_for_topology_are_searched_for(
    waiting: list[JSON], searched: list[str]
) -> None:
    world = ProposalWorld(*waiting, u="Never", v1="Never", v2="Never")
    await world.look()
    assert world.searched == searched
    assert len(world.searcher.questions) == len(searched)
    assert not world.client.writes()


async def test_gangs_for_which_no_quota_is_left_are_skipped() -> None:
    """Their last try found quota, and now there is none; moves free none."""
    world = ProposalWorld(*(gang(name, priority=9) for name in "abcd"), gang("small", pods=12), quota="320")
    await world.look()
    assert [question.goal.pods for question in world.searcher.questions] == [12]
    assert world.message("a") == "no plan: it waits for quota, and moves free none"


@pytest.mark.parametrize(
    ("phase", "minutes", "searches"),
    [("Proposed", 10, 0), ("Approved", -60, 0), ("Running", -60, 0), ("Proposed", 0, 1), ("Expired", 10, 1),
     ("Aborted", 10, 1), ("Superseded", 10, 1)],
)  # fmt: skip
async def test_a_goal_with_a_valid_plan_gets_no_second_one(phase: str, minutes: int, searches: int) -> None:
    world = ProposalWorld()
    world.client.put(DEFRAGMENTATION_PLANS, stored_plan(0, phase, workload="team-a/big", minutes=minutes))
    world.client.sync()
    await world.look()
    assert len(world.searcher.questions) == searches
    assert len(world.stored()) == 1 + searches


async def test_a_gang_with_a_plan_is_one_of_the_three() -> None:
    world = ProposalWorld(*(gang(name, priority=9 - place) for place, name in enumerate("pqrs")), u="Never", v1="Never")
    world.client.put(DEFRAGMENTATION_PLANS, stored_plan(0, "Approved", workload="team-a/p"))
    world.client.sync()
    await world.look()
    assert world.searched == ["q", "r"]


async def test_looks_are_an_interval_apart() -> None:
    world = ProposalWorld(u="Never", v1="Never")
    running = asyncio.ensure_future(world.maker.run())
    for seconds, searches in ((INTERVAL - 1, 0), (1, 1), (INTERVAL - 1, 1), (1, 2)):
        await world.clock.advance(seconds)
        assert len(world.searcher.questions) == searches
    running.cancel()


async def test_a_round_goes_before_a_search() -> None:
    """The look waits for the end of the round."""
    world = ProposalWorld(u="Never", v1="Never")
    world.searcher.free = False
    running = asyncio.ensure_future(world.maker.run())
    await world.clock.advance(INTERVAL + 30)
    assert not world.searcher.questions
    world.searcher.free = True
    await world.clock.advance(1)
    assert len(world.searcher.questions) == 1
    running.cancel()


async def test_a_look_for_which_rounds_leave_no_time_is_given_up() -> None:
    world = ProposalWorld()
    world.searcher.free = False
    running = asyncio.ensure_future(world.look())
    await world.clock.advance(121)
    await running
    assert not world.searcher.questions
    assert "the search failed" in world.message()


async def test_a_search_that_takes_too_long_is_given_up() -> None:
    world = ProposalWorld()
    world.searcher.hangs = True
    running = asyncio.ensure_future(world.look())
    await world.clock.advance(11)
    await running
    assert world.message() == "no plan: the search failed: took longer than 10 s; it is tried again"
    assert not world.client.writes()


async def test_a_failed_search_stops_no_other() -> None:
    world = ProposalWorld(gang("a", priority=2), gang("b", priority=1))
    world.searcher.failures = [RuntimeError("broken")]
    await world.look()
    assert world.message("a") == "no plan: the search failed: broken; it is tried again"
    assert world.only()["status"]["gain"]["starts"] == "team-a/b"


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_plan_that_cannot_be_stored_leaves_nothing(verb: str) -> None:
    """The next look tries it again."""
    world = ProposalWorld()
    world.client.fail(ForbiddenError("no right", status=403), verb=verb)
    await world.look()
    assert world.stored() == []
    assert "no right" in world.message()
    assert world.recorder.events == []
    await world.look()
    assert world.only()["status"]["phase"] == "Proposed"


async def test_a_plan_whose_remains_cannot_be_deleted_counts_as_none() -> None:
    world = ProposalWorld()
    for verb in ("patch", "delete"):
        world.client.fail(ServerError("down", status=500), verb=verb)
    await world.look()
    assert "status" not in world.only()
    await world.clock.advance(1)
    await world.look()
    assert sorted(plan.get("status", {}).get("phase", "") for plan in world.stored()) == ["", "Proposed"]


@pytest.mark.parametrize(("phase", "left"), [("Expired", 15), ("Superseded", 15), ("Proposed", 16), ("Done", 16)])
async def test_at_most_sixteen_plans_exist(phase: str, left: int) -> None:
    """The oldest one that ended without an approval makes room."""
    world = ProposalWorld()
    for number in range(MOST_PLANS):
        world.client.put(DEFRAGMENTATION_PLANS, stored_plan(number, phase))
    world.client.sync()
    await world.look()
    names = [plan["metadata"]["name"] for plan in world.stored()]
    assert len(names) == MOST_PLANS
    assert sum(name.startswith("plan-") for name in names) == left
    assert ("plan-00" in names) is (left == MOST_PLANS)
    if left == MOST_PLANS:
        assert world.message().startswith("no plan: 16 DefragmentationPlans exist")


async def test_plans_of_one_look_count_before_the_watch_brings_them() -> None:
    world = ProposalWorld(*(gang(name, priority=9 - place) for place, name in enumerate("abc")))
    for number in range(MOST_PLANS - 1):
        world.client.put(DEFRAGMENTATION_PLANS, stored_plan(number, "Proposed"))
    world.client.sync()
    await world.look()
    assert len(world.stored()) == MOST_PLANS
    assert world.message("b").startswith("no plan: 16 DefragmentationPlans exist")


async def test_nothing_is_looked_for_where_plans_cannot_be_stored() -> None:
    """An API server without the definition."""
    world = ProposalWorld()
    world.served = False
    await world.look()
    assert not world.searcher.questions
    assert not world.client.calls


@pytest.mark.parametrize(
    ("joint", "message"),
    [
        ({"defrag": {"budget": {"maxPodMinutes": 9}}}, "moves that cost 10 pod-minutes would help"),
        ({"rescheduling": {"maxPodsPerHour": 9}}, "comes closest"),
        ({"rescheduling": {"minGain": 1_000_000}}, "the wait of the gang is not worth 1000 times as much yet"),
        ({"rescheduling": {"maxCheckpointAge": "1s"}}, None),
    ],
)
async def test_plans_are_within_the_configuration(joint: JSON, message: str | None) -> None:
    world = ProposalWorld(given=settings(**joint), v1="Never")
    await world.look()
    assert bool(world.stored()) is (message is None)
    assert (message or "") in world.message()


@pytest.mark.parametrize(
    ("joint", "gate", "why"),
    [
        ({}, "true", ""),
        ({}, "false", "the feature gate JointPlacement is off"),
        ({"rescheduling": {"migration": "Auto"}}, "true", ""),
        ({"rescheduling": {"migration": "Never"}}, "true", "joint.rescheduling.migration is Never"),
        ({"defrag": {"budget": {"maxMoves": 0}}}, "true", "joint.defrag.budget.maxMoves is 0"),
        ({"rescheduling": {"maxMovesPerHour": 0}}, "true", "joint.rescheduling.maxMovesPerHour is 0"),
        ({"rescheduling": {"maxPodsPerHour": 0}}, "true", "joint.rescheduling.maxPodsPerHour is 0"),
    ],
)
def test_the_configuration_switches_proposals_off(joint: JSON, gate: str, why: str) -> None:
    assert why_no_proposals(configuration(gate, **joint)) == why


def test_settings_come_from_the_configuration() -> None:
    joint = configuration(
        rescheduling={
            "migration": "Auto", "minGain": 7, "maxMovesPerHour": 3, "maxPodsPerHour": 50, "cooldown": "1h",
            "maxCheckpointAge": "2m",
        },
        defrag={"interval": "30s", "budget": {"maxMoves": 5, "maxPodMinutes": 6}},
    ).joint  # fmt: skip
    found = proposal_settings(joint)
    assert found.interval == 30
    assert (found.search.moves, found.search.pods, found.search.pod_seconds, found.search.least_gain) == (3, 50, 360, 7)
    assert (found.limits.migration, found.limits.moves, found.limits.pods) == (MovePolicy.AUTO, 3, 50)
    assert (found.limits.cooldown, found.limits.checkpoint_age) == (3600, 120)
    assert found.auto is not None
    assert (found.auto.moves, found.auto.pod_seconds) == (5, 360)
    assert proposal_settings(configuration().joint).auto is None


async def test_the_question_is_the_same_in_another_process() -> None:
    """It holds values only."""
    world = ProposalWorld()
    await world.look()
    (question,) = world.searcher.questions
    other = pickle.loads(pickle.dumps((question.goal, question.running, question.settings)))
    assert repr(other) == repr((question.goal, question.running, question.settings))
