"""Rounds of joint placement: their quality, their workloads, and what a workload's explanation says of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kqueue.cli.explain_page import page
from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.joint.migration import MigrationGain
from kqueue.core.joint.registry import DEFAULT_POLICIES, PolicySpec
from kqueue.core.joint.statistics import NO_STATISTICS
from kqueue.errors import NotFoundError
from kqueue.scheduling.joint.rounds import JointRounds
from kqueue.state.joint_history import JointHistory, RoundOfWorkload, RoundRecord
from kqueue.state.statistics import UseSummary
from kqueue.visibility.joint_rounds import JointRoundViews, JointSource
from kqueue.visibility.question import JSON
from tests.unit.scheduling.joint.planners import Broken, Here
from tests.unit.scheduling.joint.test_policies_live import UTILISATION, anywhere
from tests.unit.scheduling.joint.test_rounds import FIVE_FIVE_NINE, gang, join, racks
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.visibility.worlds import asked, explainer_of


@dataclass
class Desk:
    """A world whose gangs are planned jointly, and somebody who asks about rounds."""

    world: Scheduled
    planner: Here = field(default_factory=Here)
    leads: bool = True

    policies: tuple[PolicySpec, ...] = DEFAULT_POLICIES

    def __post_init__(self) -> None:
        self.rounds: JointRounds = join(self.world, self.planner, time_limit=60.0, policies=self.policies)[0]

    def views(self, history: JointHistory | None) -> JointRoundViews:
        source = JointSource(
            history=history,
            solver="9.15",
            is_paused=lambda: self.rounds.is_paused,
            leads=lambda: self.leads,
            use=lambda: self.rounds.use_summary(),
        )
        return JointRoundViews(source, self.world.workloads)

    async def ask(self, name: str = "", **more: Any) -> JSON:
        return await self.views(self.rounds.history).rounds(asked(name, **more))

    async def part_of(self, name: str) -> JSON:
        return await self.views(self.rounds.history).workload(replace(asked(name), namespace="ns"))

    async def explained(self, name: str) -> JSON:
        explainer = explainer_of(self.world, joint=self.rounds.history)
        return await explainer.view(replace(asked(name, whatIf="false"), namespace="ns"))


@pytest.fixture
async def desks() -> AsyncIterator[list[Desk]]:
    found: list[Desk] = []
    yield found
    for desk in found:
        desk.planner.open.set()
        await desk.world.close()


def desk_of(desks: list[Desk], *workloads: Any, planner: Here | None = None) -> Desk:
    desks.append(Desk(racks(Scheduled, *workloads), planner or Here()))
    return desks[-1]


async def test_a_round_says_how_good_its_plan_is(desks: list[Desk]) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE, gang("d", 4, minute=4))
    desk.world.start()
    await desk.world.until_quiet()
    listed, latest = await desk.ask(), await desk.ask("latest")
    (summary,) = listed["items"]
    assert (listed["enabled"], listed["leading"], listed["paused"]) == (True, True, False)
    assert listed["solver"] == "ortools 9.15"
    assert "planning" not in listed
    assert (summary["number"], summary["result"], summary["workloads"]) == (1, "applied", 4)
    assert (summary["units"], summary["greedyUnits"], summary["bound"], summary["gap"]) == (19, 14, 19, "0.000")
    assert {"sync", "apply"} <= set(summary["milliseconds"])
    assert latest == await desk.ask("1")
    assert latest["flavors"] == [
        {"flavor": "default", "units": 19, "greedyUnits": 14, "bound": 19, "gap": "0.000"},
    ]
    assert [(e["rank"], e["name"], e["planned"]) for e in latest["entries"]] == [
        (1, "a", True), (2, "b", True), (3, "c", True), (4, "d", False),
    ]  # fmt: skip


async def test_a_round_says_what_moves_would_gain(desks: list[Desk]) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE)
    desk.world.start()
    await desk.world.until_quiet()
    assert "moves" not in await desk.ask("latest")
    gains = [MigrationGain(flavor="b", gain=400, cost=10), MigrationGain(flavor="a")]
    assert desk.rounds.history.gained(1, gains) is not None
    assert desk.rounds.history.gained(99, gains) is None
    assert (await desk.ask("latest"))["moves"] == [
        {"flavor": "a", "gain": 0, "cost": 0},
        {"flavor": "b", "gain": 400, "cost": 10},
    ]


async def test_workloads_of_namespaces_that_a_user_may_not_read_have_no_name(desks: list[Desk]) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE)
    desk.world.start()
    await desk.world.until_quiet()
    latest = await desk.ask("latest", reads=lambda _namespace: False)
    assert latest["entries"][0] == {"hidden": True, "rank": 1, "planned": True, "units": 5, "relaxedUnits": 5}


async def test_a_round_without_a_plan_says_why(desks: list[Desk]) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE, planner=Broken())
    desk.world.start()
    await desk.world.until_quiet()
    latest = await desk.ask("latest")
    assert (latest["result"], latest["problem"]) == ("failed", "it is broken")
    assert "units" not in latest


async def test_the_round_that_is_being_planned_is_the_reason_to_wait(desks: list[Desk]) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE)
    desk.planner.open.clear()
    desk.world.start()
    await desk.world.clock.advance(1)
    assert (await desk.ask())["planning"]["workloads"] == 3
    assert (await desk.part_of("b")) == {
        "kind": "JointPlacement",
        "metadata": {"name": "b", "namespace": "ns", "uid": "uid-of-b"},
        "planning": {"number": 1, "workloads": 3},
    }
    answer = await desk.explained("b")
    kinds = {one["kind"]: one["message"] for one in answer["pending"]["blockers"]}
    assert kinds == {"JointRound": "waits for joint round 1 (with 2 others)"}
    assert "  round 1 is being planned, with 3 workloads" in lines(answer)


async def test_a_workload_that_the_plan_leaves_out_is_told_so(desks: list[Desk]) -> None:
    """Beside its own blocker: no placement of all before it leaves room."""
    desk = desk_of(desks, *FIVE_FIVE_NINE, gang("d", 4, minute=4))
    desk.world.start()
    await desk.world.until_quiet()
    answer = await desk.explained("d")
    told = "left out by joint round 1, proven: no placement of all that come before it leaves room"
    first, *_, last = answer["pending"]["blockers"]
    assert first["kind"] == "Topology"
    assert (last["kind"], last["message"]) == ("LeftOutByJointRound", told)
    assert f"  round 1: number 4 of 4: {told}" in lines(answer)
    assert "  plan Packed, Optimal: 19 units of at most 19, gap 0.000; one by one 14" in lines(answer)


@pytest.mark.parametrize(
    ("bound", "words"),
    [(19, "left out by joint round 1: 3 of 4 units would fit in the relaxation"), (None, "left out by joint round 1")],
)
async def test_what_the_relaxation_would_schedule_is_said_where_nothing_is_proven(
    desks: list[Desk], bound: int | None, words: str
) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE)
    desk.world.start()
    await desk.world.until_quiet()
    assert desk.rounds.last is not None
    plan = replace(desk.rounds.last, bound=bound)
    entry = replace(plan.entries[0], hint=None, units=4, relaxed=3)
    assert RoundOfWorkload(plan, entry, workloads=3).blocker() == Blocker(
        kind=BlockerKind.LEFT_OUT_BY_JOINT_ROUND, detail=words
    )


async def test_an_admitted_workload_has_its_place_in_the_round(desks: list[Desk]) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE)
    desk.world.start()
    await desk.world.until_quiet()
    desk.world.sync()
    answer = await desk.explained("c")
    assert answer["state"] == "Running"
    assert answer["joint"]["last"]["planned"] is True
    assert "  round 1: number 3 of 3: planned" in lines(answer)


async def test_unknown_rounds_are_not_found_and_the_reason_is_said(desks: list[Desk]) -> None:
    desk = desk_of(desks)
    for history, leads, words in (
        (None, True, "the feature gate JointPlacement is off"),
        (JointHistory(), False, "this replica does not decide"),
        (JointHistory(), True, "there was none yet"),
    ):
        desk.leads = leads
        with pytest.raises(NotFoundError, match=words):
            await desk.views(history).rounds(asked("latest"))
    assert (await desk.views(None).rounds(asked()))["enabled"] is False


async def test_the_oldest_rounds_are_forgotten_with_their_workloads(desks: list[Desk]) -> None:
    desk = desk_of(desks, *FIVE_FIVE_NINE)
    desk.world.start()
    await desk.world.until_quiet()
    history, (first,) = desk.rounds.history, desk.rounds.history.rounds()
    assert history.of("uid-of-a") is not None
    for number in range(2, 40):
        history.end(empty(first, number))
    assert len(history.rounds()) == 32
    assert history.of("uid-of-a") is None


def empty(record: RoundRecord, number: int) -> RoundRecord:
    return replace(record, number=number, plan=None, result="failed")


def lines(answer: JSON) -> list[str]:
    """The page of an explanation."""
    return ["  " * line.depth + line.text for line in page(answer)]


async def test_rounds_say_how_far_use_is_measured(desks: list[Desk]) -> None:
    """The list says what is known and why samples cannot be read; a round, on how many nodes reservations counted."""
    world = racks(Scheduled, anywhere("a", minute=1))
    desk = Desk(world, policies=(UTILISATION,))
    desks.append(desk)
    assert "statistics" not in await desk.ask()
    summary = UseSummary(nodes=2, kinds=1, problems=("not served",))
    desk.rounds.look_at_use(lambda: NO_STATISTICS, lambda: summary)
    world.start()
    await world.until_quiet()
    listed = await desk.ask()
    assert listed["statistics"] == {"nodes": 2, "kinds": 1, "problems": ["not served"]}
    assert listed["items"][0]["staticNodes"] == 5
    assert (await desk.part_of("a"))["last"]["plan"]["staticNodes"] == 5
    text = "".join(line.text for line in page(await desk.explained("a")))
    assert "reservations counted on 5 nodes without samples of their use" in text
