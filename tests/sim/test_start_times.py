"""Start times hold: in worlds whose jobs run as long as they are expected to, each workload starts at its start time.

Worlds are drawn from a seed.  Nothing arrives and nothing is changed after the question, so a start at another time has
no cause: it is a failure.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from kqueue.api.run_time_names import EXPECTED_SECONDS_ANNOTATION, START_TIME_ANNOTATION
from kqueue.config import Configuration
from kqueue.core.future.drain import NoStart
from kqueue.core.future.question import StartQuestion
from kqueue.core.future.start_times import StartTimes, start_times
from kqueue.manager.explaining import sources_of
from kqueue.manager.operator import Operator
from kqueue.manager.start_notes import add_start_notes
from kqueue.manager.start_times import make_computer, make_pending, make_questions
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from kqueue.visibility.question import AuthorizedQuestion
from kqueue.visibility.start_times import StartTimesSource, StartTimeViews
from tests.sim.chosen import few_seeds
from tests.sim.objects import WORKLOADS, job
from tests.sim.reading import holders
from tests.sim.world import World, condition, simulated

_QUEUES = ("solo", "even", "few", "left", "right", "twice")


class Here:
    """Computes start times in this process: the clock of a world does not wait for others."""

    async def ask(self, question: StartQuestion) -> StartTimes:
        """Return the start times."""
        return start_times(question)

    async def stop(self) -> None:
        """Nothing is under way."""


def views_of(world: World) -> StartTimeViews:
    """The views of the controller of a world."""
    assert world.controller is not None
    operator = world.controller.operator
    pending = make_pending(operator)
    questions = make_questions(operator, sources_of(operator), pending)
    return StartTimeViews(StartTimesSource(questions, Here(), clock=operator.clock), operator.clock)


async def told(world: World) -> dict[str, Any]:
    """The whole answer."""

    async def reads(_namespace: str) -> bool:
        return True

    answer = await views_of(world).every(AuthorizedQuestion(namespace="", name="", params={}, reads=reads))
    return dict(answer)


async def submit(world: World, chance: random.Random, name: str, seconds: int = 0, **settings: Any) -> None:
    """A job that runs as long as its user expects; 0: as long as chance says."""
    seconds = seconds or chance.randint(20, 300)
    topology = chance.choice([None, ("required", RACK_LABEL), ("required", BLOCK_LABEL), ("preferred", RACK_LABEL)])
    drawn: dict[str, Any] = {
        "queue": chance.choice(_QUEUES),
        "pods": chance.randint(1, 6),
        "gpus": chance.choice([1, 2, 4, 8]),
        "topology": topology,
    }
    made = job(name, run_seconds=seconds, **{**drawn, **settings})
    made["metadata"].setdefault("annotations", {})[EXPECTED_SECONDS_ANNOTATION] = str(seconds)
    await world.submit(made)


def admitted_at(world: World) -> dict[str, datetime]:
    """When Workloads began to hold quota, by name."""
    found: dict[str, datetime] = {}
    for workload in world.objects(WORKLOADS):
        reserved = condition(workload, "QuotaReserved")
        if reserved is not None and reserved["status"] == "True":
            found[workload["metadata"]["name"]] = datetime.fromisoformat(reserved["lastTransitionTime"])
    return found


async def first_starts(world: World, waiting: Mapping[str, Any], limit: timedelta) -> dict[str, datetime]:
    """Let time pass, and return when each of these began to hold quota."""
    begun, found = world.clock.now(), dict[str, datetime]()
    while world.clock.now() - begun < limit and len(found) < len(waiting):
        await world.pass_time(5)
        for name, at in admitted_at(world).items():
            if name in waiting:
                found.setdefault(name, at)
    return found


class _Annotates(Operator):
    """A controller that writes start times, and computes them in this process."""

    def __init__(self, *, config: Configuration, **rest: Any) -> None:
        """Switch the annotations on."""
        settings = config.start_times.model_copy(update={"annotate": True, "interval": timedelta(minutes=1)})
        super().__init__(config=config.model_copy(update={"start_times": settings}), **rest)
        self._shared[make_computer] = Here()
        add_start_notes(self)


async def test_a_start_time_is_written_until_the_workload_starts_and_is_counted() -> None:
    """The annotation of the leader, and the metric of starts inside the told interval."""
    async with simulated("start-notes", operator=_Annotates) as world:
        chance = random.Random(1)
        for name in ("first", "second"):
            await submit(world, chance, name, queue="solo", pods=6, gpus=8, topology=None, seconds=200)
        await world.pass_time(70)
        notes = {w["metadata"]["name"]: note_of(w) for w in world.objects(WORKLOADS)}
        (waiting,) = [name for name, note in notes.items() if note]
        assert admitted_at(world).keys() == notes.keys() - {waiting}
        told = json.loads(notes[waiting])
        await world.pass_time(260)
        assert waiting in admitted_at(world)
        started = admitted_at(world)[waiting]
        assert abs((datetime.fromisoformat(told["p90"]) - started).total_seconds()) <= 3
        assert not any(note_of(w) for w in world.objects(WORKLOADS))
        assert world.controller is not None
        page = (await world.controller.operator.metrics.render()).decode()
        assert 'kqueue_told_starts_total{cluster_queue="solo",told="last",outcome="inside",' in page


def note_of(workload: Mapping[str, Any]) -> str:
    """The annotation with the start time; empty: it has none."""
    return str((workload["metadata"].get("annotations") or {}).get(START_TIME_ANNOTATION, ""))


@pytest.mark.parametrize("seed", few_seeds("0,1,2,3,5,8,13,19", ",".join(map(str, range(20, 84)))))
async def test_start_times_come_true(seed: int) -> None:
    """Each workload with a start time starts then; each other one would never start.

    Two ends within the same moment may be seen in either order, and start times behind them are not compared.
    """
    chance = random.Random(seed)
    async with simulated(f"starts-{seed}") as world:
        for number in range(chance.randint(6, 12)):
            await submit(world, chance, f"early-{number}")
        await world.pass_time(5)
        for number in range(chance.randint(4, 12)):
            await submit(world, chance, f"late-{number}")
        await world.pass_time(10)
        answer = await told(world)
        at = datetime.fromisoformat(answer["generatedAt"])
        items = {one["metadata"]["name"]: one["startTime"] for one in answer["items"]}
        timed = {name: start for name, start in items.items() if "p90" in start}
        for name, start in items.items():
            if name not in timed:
                assert start["reason"] == NoStart.NOT_IN_SIGHT, f"seed {seed}: {name} {start}"
        begun = admitted_at(world)
        last = max((start["p90Seconds"] for start in timed.values()), default=0)
        found = await first_starts(world, timed, timedelta(seconds=last + 60))
        tie = first_tie(world, {**begun, **found})
        still = {w["metadata"]["name"] for w in holders(world)}
    for name, start in timed.items():
        if at + timedelta(seconds=start["p90Seconds"]) < tie:
            assert name in found, f"seed {seed}: {name} was to start at {start}; running {sorted(still)}"
            late = (found[name] - at).total_seconds() - start["p90Seconds"]
            assert abs(late) <= 1, f"seed {seed}: {name} started {late:.0f} s late: {start}"


def first_tie(world: World, begun: Mapping[str, datetime]) -> datetime:
    """When two Workloads ended within two seconds for the first time; the last moment: they never did."""
    seconds = {w["metadata"]["name"]: w["metadata"]["annotations"] for w in world.objects(WORKLOADS)}
    ends = sorted(
        since + timedelta(seconds=int(seconds[name][EXPECTED_SECONDS_ANNOTATION])) for name, since in begun.items()
    )
    return next(
        (one for one, other in pairwise(ends) if other - one < timedelta(seconds=2)), datetime.max.replace(tzinfo=UTC)
    )
