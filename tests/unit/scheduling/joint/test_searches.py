"""Searches for moves in the process that plans rounds: the same answers, and never in the way of a round."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kqueue.core.joint.answer import answer_of
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, DefragSettings
from kqueue.core.joint.movable import MoveLimits
from kqueue.core.joint.round import plan_round
from kqueue.core.steps import result_of
from kqueue.core.workload import TopologyView
from kqueue.operations.defrag.reading import state_of
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import Resync, Sent, search_pieces
from kqueue.scheduling.joint.process import PlanningProcess, RoundFailedError
from kqueue.state.defrag.planning import question_steps
from tests.unit.cli.defrag_cluster import NOW, WAITING, cluster
from tests.unit.core.joint.test_never_worse import drawn

SETTINGS = DefragSettings(least_gain=0, pod_seconds=10_000)
ROUND = drawn(6)


def question(**consent: str) -> DefragQuestion:
    """The search for a rack; `consent` by workload."""
    state = state_of(cluster(**consent), NOW)
    found = result_of(question_steps(state, WAITING, SETTINGS, limits=MoveLimits()))
    assert isinstance(found, DefragQuestion)
    return found


WORLDS = [{}, {"u": "Never"}, {"u": "Never", "v2": "Never"}]


def test_messages_of_searches_change_nothing() -> None:
    """With topologies that are known already, too."""
    assembly, sent = Assembly(), Sent()
    for _ in range(2):
        for number, consent in enumerate(WORLDS):
            asked = question(**consent)
            (found,) = [done for data in search_pieces(number, asked, sent) if (done := assembly.take(data))]
            assert not isinstance(found, Resync)
            assert found[0] == number
            assert isinstance(found[1], DefragQuestion)
            assert repr(found[1].answer()) == repr(asked.answer())


async def test_the_process_answers_searches_and_rounds_in_turn() -> None:
    planner = PlanningProcess()
    wanted = repr(answer_of(1, plan_round(ROUND), {}))
    async with asyncio.timeout(120):
        for consent in WORLDS:
            asked = question(**consent)
            found = await planner.search(asked)
            assert repr(found) == repr(asked.answer())
            await planner.get_ready()
            assert repr(replace(await planner.plan(1, ROUND), seconds={})) == wanted
        await planner.stop()
    assert planner.starts == 1


async def test_a_round_that_begins_during_a_search_waits_before_its_time_begins() -> None:
    planner, done = PlanningProcess(), list[str]()

    async def search() -> None:
        assert isinstance(await planner.search(question()), DefragPlan)
        done.append("search")

    async def plan() -> None:
        await planner.get_ready()
        assert done == ["search"]
        await planner.plan(1, ROUND)
        done.append("round")

    async with asyncio.timeout(120):
        searching = asyncio.ensure_future(search())
        await asyncio.sleep(0)
        await asyncio.gather(searching, plan())
        await planner.stop()
    assert done == ["search", "round"]


async def test_a_process_that_is_killed_while_it_searches_has_no_answer() -> None:
    planner = PlanningProcess()
    async with asyncio.timeout(120):
        await planner.get_ready()
        waiting = asyncio.ensure_future(planner.search(question()))
        assert planner._process is not None
        planner._process.kill()
        with pytest.raises(RoundFailedError, match="has ended in search 1"):
            await waiting
        assert isinstance(await planner.search(question()), DefragPlan)
        await planner.stop()
    assert planner.starts == 2


async def test_a_search_that_is_given_up_ends_the_process() -> None:
    """Its late answer would be taken for another one's."""
    planner = PlanningProcess()
    async with asyncio.timeout(120):
        await planner.get_ready()
        waiting = asyncio.ensure_future(planner.search(question()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await planner.get_ready()
        assert (await planner.plan(1, ROUND)).units == plan_round(ROUND).units
        await planner.stop()
    assert planner.starts == 2


async def test_a_fault_of_a_search_stops_nothing_else() -> None:
    planner, asked = PlanningProcess(), question()
    views = {name: TopologyView(view.name, view.tree, view.capacity) for name, view in asked.topologies.items()}
    broken = replace(asked, goal=replace(asked.goal, flavor="none"), topologies=views)
    async with asyncio.timeout(120):
        with pytest.raises(RoundFailedError, match="KeyError"):
            await planner.search(broken)
        assert isinstance(await planner.search(asked), DefragPlan)
        await planner.stop()
    assert planner.starts == 1
