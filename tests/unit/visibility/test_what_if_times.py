"""The start times of a what-if are those of a cluster in which the change is really made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import what_if as api
from kqueue.core.future.question import StartQuestion
from kqueue.core.future.start_times import StartTimes, start_times
from kqueue.scheduling.future.process import StartTimesProcess
from kqueue.state.run_times import RunTimes
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.start_question import DrainRules, StartQuestions
from kqueue.visibility.start_times import NoAnswer, StartTimesSource
from kqueue.visibility.what_if import WhatIfTimes, WhatIfView
from kqueue.visibility.what_if_times import StartTimesOfStates
from tests.unit.controllers.builders import make_workload
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.visibility.test_placements import put_node, racks
from tests.unit.visibility.test_simulation import prospects_of
from tests.unit.visibility.test_start_times import Here as Computer
from tests.unit.visibility.test_what_if import cycles, quota, reader_of
from tests.unit.visibility.test_what_if_objects import apply, drawn, local, made, queue
from tests.unit.visibility.worlds import known_of, planning_of


class Here:
    """Computes in this process; `problem`: it does not."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem

    async def of_questions(self, questions: Sequence[StartQuestion]) -> list[StartTimes] | NoAnswer:
        """Return the start times."""
        return NoAnswer(self.problem) if self.problem else [start_times(question) for question in questions]


def questions_of(world: Scheduled) -> StartQuestions:
    return StartQuestions(
        known=known_of(world),
        planning=planning_of(world),
        pending=PendingWorkloads(
            queues=world.queues, workloads=world.workloads, local_queues=world.local_queues, clock=world.clock
        ),
        held_back=prospects_of(world).held_back,
        run_times=RunTimes(None, world.clock.now),
        rules=DrainRules(),
    )


async def asked(
    world: Scheduled,
    *,
    readable: bool = True,
    problem: str = "",
    computer: StartTimesOfStates | None = None,
    **spec: Any,
) -> JSON:
    async def reads(_namespace: str) -> bool:
        return readable

    times = WhatIfTimes(questions=questions_of(world), computer=computer or Here(problem))
    view = WhatIfView(prospects_of(world), reader_of(world), times=times, plan_seconds=60)
    body = msgspec.json.encode({"spec": {"when": True, **spec}})
    found = await view.view(AuthorizedQuestion(namespace="", name="", params={}, body=body, reads=reads))
    return dict(msgspec.json.decode(msgspec.json.encode(found))["startTimes"])


def timed(workload: JSON, seconds: int) -> JSON:
    """A workload that promises its run time."""
    workload["spec"]["maximumExecutionTimeSeconds"] = seconds
    return workload


async def starts(world: Scheduled) -> dict[str, int | None]:
    """The seconds to the start of each waiting workload; None: it has none."""
    found, keys = await questions_of(world).read(world.clock.now(), RequestPace(world.clock))
    of = start_times(found).of
    return {keys[uid]: one.earlier.seconds if one.earlier is not None else None for uid, one in of.items()}


@pytest.mark.parametrize("seed", range(25))
async def test_start_times_are_those_after_the_change(seed: int) -> None:
    """Of new and changed queues, cohorts and flavors; a workload that is not in the answer starts as before."""
    random = Random(seed)
    objects, waiting, proposed = drawn(random)
    world = made(*objects)
    try:
        world.add(*(timed(one, random.randint(1, 30) * 60) for one in waiting))
        await cycles(world, 12)
        before = await starts(world)
        answer = await asked(world, objects=proposed)
        apply(world, *proposed)
        after = await starts(world)
        said = {f"{one['namespace']}/{one['name']}": one for one in answer["items"]}
        for key, seconds in after.items():
            if key in said:
                assert said[key]["with"].get("p50Seconds") == seconds, (key, proposed)
                assert said[key]["without"].get("p50Seconds") == before.get(key), (key, proposed)
            else:
                assert seconds == before.get(key), (key, proposed)
    finally:
        await world.close()


async def test_a_workload_that_never_starts_again_is_told() -> None:
    """Its queue keeps too little quota, also when all others have ended; others wait less long for their turn."""
    world = made()
    try:
        world.add(timed(make_workload("runs", cpus=8), 600))
        await cycles(world, 2)
        world.add(
            timed(make_workload("large", cpus=9, minute=1), 600), timed(make_workload("small", cpus=3, minute=2), 60)
        )
        answer = await asked(world, quotas=[quota(8)])
        of = {one["name"]: one for one in answer["items"]}
        assert answer["counts"] == {"earlier": 1, "later": 0, "again": 0, "neverAgain": 1}
        assert (of["large"]["without"]["p50Seconds"], of["large"]["with"]["known"]) == (600, False)
        assert of["large"]["with"]["reason"] == "NotInSight"
        assert (of["small"]["without"]["p50Seconds"], of["small"]["with"]["p50Seconds"]) == (1200, 600)
    finally:
        await world.close()


@pytest.mark.parametrize(
    ("most", "problem", "words"),
    [
        pytest.param(1, "", "there are 2 ClusterQueues; .* for up to 1", id="wide"),
        pytest.param(9, "ask again", "ask again", id="busy"),
    ],
)
async def test_a_question_without_start_times_has_all_else(
    monkeypatch: pytest.MonkeyPatch, most: int, problem: str, words: str
) -> None:
    monkeypatch.setattr(api, "MOST_QUEUES_WHEN", most)
    world = made()
    try:
        answer = await asked(world, objects=[queue("new"), local("new", "new")], problem=problem)
        assert answer["known"] is False
        assert re.search(words, answer["message"])
    finally:
        await world.close()


async def test_start_times_name_no_workload_that_the_user_may_not_read() -> None:
    world = made()
    try:
        world.add(timed(make_workload("runs", cpus=8), 600))
        await cycles(world, 2)
        world.add(timed(make_workload("next", cpus=9, minute=1), 600))
        answer = await asked(world, readable=False, quotas=[quota(20)])
        (one,) = answer["items"]
        assert one["hidden"] is True
        assert "name" not in one
    finally:
        await world.close()


class Beside:
    """Computes in a child process, however long that takes."""

    def __init__(self, process: StartTimesProcess) -> None:
        self.process = process

    async def of_questions(self, questions: Sequence[StartQuestion]) -> list[StartTimes] | NoAnswer:
        """Return the start times."""
        return [await self.process.ask(question) for question in questions]


@pytest.mark.parametrize("seed", [3, 8])
async def test_the_child_process_answers_about_both_states(seed: int) -> None:
    """As this process would, for domains and quota trees that are not those of the cluster."""
    random, process = Random(seed), StartTimesProcess(seconds=60, grace=60)
    world = made(*racks())
    try:
        put_node(world, "h0", "r0")
        for n in range(4):
            gang = timed(make_workload(f"w{n}", cpus=4, pods=random.randint(1, 2), minute=n), 600)
            gang["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
            world.add(gang)
        await cycles(world, 6)
        change: JSON = {
            "addNodes": [{"like": "h0", "count": 1, "domain": "r0"}],
            "objects": [queue("team", cpus=50)],
        }
        here = await asked(world, **change)
        there = await asked(world, computer=Beside(process), **change)
        assert there["items"] == here["items"]
        assert there["counts"]["earlier"] > 0
    finally:
        await process.stop()
        await world.close()


async def test_questions_about_other_states_take_turns() -> None:
    """A second one is told to ask again while the first is computed; the first is told when it takes too long."""
    world, computer = made(), Computer()
    computer.gate = asyncio.Event()
    source = StartTimesSource(questions_of(world), computer, clock=world.clock)
    try:
        first = asyncio.create_task(source.of_questions([]))
        await asyncio.sleep(0)
        second = await source.of_questions([])
        assert isinstance(second, NoAnswer)
        assert "computed for other questions" in second.message
        assert await first == []

        question, _ = await questions_of(world).read(world.clock.now(), RequestPace(world.clock))
        await world.clock.advance(1)
        slow = asyncio.create_task(source.of_questions([question]))
        await asyncio.sleep(0)
        await world.clock.advance(13)
        found = await slow
        assert isinstance(found, NoAnswer)
        assert found.message == "start times take longer than 12 s to compute"
    finally:
        await source.stop()
        await world.close()
