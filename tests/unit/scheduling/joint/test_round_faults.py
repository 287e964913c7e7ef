"""Rounds and what happens meanwhile: lost room, claims, queues that stop, wrong plans, processes that do not start."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.controllers.resources import CLUSTER_QUEUES
from kqueue.core.joint.answer import PlanAnswer
from kqueue.errors import ServerError
from kqueue.scheduling.joint import process
from kqueue.scheduling.joint.process import PlanningProcess, RoundFailedError
from kqueue.scheduling.joint.rounds import JointRounds, RoundResult
from tests.unit.controllers.builders import make_cluster_queue, message_of, read, status_of
from tests.unit.scheduling.joint.planners import Here, until
from tests.unit.scheduling.joint.test_rounds import FIVE_FIVE_NINE, gang, join, node, racks
from tests.unit.scheduling.scheduled import Scheduled


def stale_hints(rounds: JointRounds) -> list[None]:
    """One entry for each hint that did not hold any more."""
    found: list[None] = []
    rounds.on_stale = lambda: found.append(None)
    return found


async def planning(world: Scheduled, planner: Here) -> None:
    """Let a round begin; it is planned when `planner.open` is set."""
    planner.open.clear()
    world.start()
    await world.clock.advance(1)


async def test_an_admission_names_the_plan(make: Callable[..., Scheduled]) -> None:
    world = racks(make, *FIVE_FIVE_NINE)
    rounds, _ = join(world, Here())
    stale = stale_hints(rounds)
    world.start()
    await world.until_quiet()
    told = {message_of(world.workload(name), "QuotaReserved") for name in "abc"}
    assert told == {"Quota reserved in ClusterQueue team, joint round 1, gap 0.000"}
    assert stale == []


async def test_a_stale_hint_is_counted_and_its_admission_names_no_plan(make: Callable[..., Scheduled]) -> None:
    """A host that the plan uses is lost while the plan is on its way."""
    world, planner = racks(make, gang("a", 5, minute=0), gang("b", 5, minute=1)), Here()
    rounds, _ = join(world, planner, time_limit=60.0)
    stale = stale_hints(rounds)
    await planning(world, planner)
    world.intake.on_node(model.node_facts(read(wire_core.Node, node("h1", 5))), None)
    planner.open.set()
    await world.until_quiet()
    assert rounds.last is not None
    assert {entry.key for entry in rounds.last.entries if entry.hint is not None} == {"ns/a", "ns/b"}
    assert len(stale) == 1
    assert world.observed.reservations == ["a", "b"]
    told = [message_of(world.workload(name), "QuotaReserved") for name in "ab"]
    assert told.count("Quota reserved in ClusterQueue team") == len(stale)


async def test_a_plan_takes_nothing_from_a_claim(make: Callable[..., Scheduled]) -> None:
    """A preemptor of another queue waits until its victim has left; until then the plan leaves its rack alone."""
    queues = [
        make_cluster_queue("team", cpus=100),
        make_cluster_queue("other", cpus=100, preemption={"withinClusterQueue": "LowerPriority"}),
    ]
    wide, low, high = (gang(name, pods, minute=0, joint=False) for name, pods in (("wide", 9), ("low", 6), ("high", 9)))
    for each, priority in ((wide, 20), (low, 0), (high, 10)):
        each["spec"] |= {"queueName": "other", "priority": priority}
    world, planner = racks(make, wide, low, queues=queues), Here()
    join(world, planner)
    world.start()
    await world.until_quiet()
    world.add(high)
    await world.until_quiet()
    assert world.observed.preemptions == [("low", "high")]
    world.add(gang("x", 3, minute=3), gang("y", 1, minute=4))
    await world.until_quiet()
    (given,) = planner.rounds
    assert [head.key for heads in given.batch.queues.values() for head in heads] == ["ns/x", "ns/y"]
    assert world.observed.reservations == ["wide", "low", "y"]


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_queue_that_ends_in_the_middle_of_a_round_admits_nothing(
    make: Callable[..., Scheduled], stopped: bool
) -> None:
    """It is deleted, or stopped; the plan of the other queue is carried out."""
    queues = [make_cluster_queue("team", cpus=100), make_cluster_queue("other", cpus=100)]
    mine = [gang("a", 3, minute=0), gang("b", 3, minute=1)]
    others = [gang("c", 3, minute=2), gang("d", 3, minute=3)]
    for each in others:
        each["spec"]["queueName"] = "other"
    world, planner = racks(make, *mine, *others, queues=queues), Here()
    _, results = join(world, planner, time_limit=60.0)
    await planning(world, planner)
    if stopped:
        world.client.put(CLUSTER_QUEUES, make_cluster_queue("team", cpus=100, stopPolicy="Hold"))
    else:
        world.client.drop(CLUSTER_QUEUES, "team")
    world.sync()
    planner.open.set()
    await world.until_quiet()
    assert world.observed.reservations == ["c", "d"]
    assert len(results) == 1


class Lying(Here):
    """Answers with a plan that is changed."""

    def __init__(self, change: Callable[[PlanAnswer], PlanAnswer]) -> None:
        super().__init__()
        self._change = change

    async def _exchange(self, *given: Any) -> PlanAnswer:
        return self._change(await super()._exchange(*given))


def of_another_round(plan: PlanAnswer) -> PlanAnswer:
    return replace(plan, round=plan.round + 1)


def with_a_stranger(plan: PlanAnswer) -> PlanAnswer:
    return replace(plan, entries=(replace(plan.entries[0], uid="uid-of-z", key="ns/z"), *plan.entries[1:]))


def without_the_first(plan: PlanAnswer) -> PlanAnswer:
    return replace(plan, entries=plan.entries[1:])


@pytest.mark.parametrize("change", [of_another_round, with_a_stranger, without_the_first])
async def test_a_plan_of_other_workloads_is_dropped(
    make: Callable[..., Scheduled], change: Callable[[PlanAnswer], PlanAnswer]
) -> None:
    """Ordinary cycles try the batch."""
    world = racks(make, *FIVE_FIVE_NINE)
    rounds, results = join(world, Lying(change))
    world.start()
    await world.until_quiet()
    assert results == [RoundResult.FAILED]
    assert rounds.last is None
    assert world.observed.reservations == ["a", "b"]


async def test_in_a_strict_queue_a_newcomer_with_a_higher_priority_goes_first(make: Callable[..., Scheduled]) -> None:
    """It comes between plan and application, and takes the larger rack; the others are planned anew."""
    world, planner = racks(make, *FIVE_FIVE_NINE, queueingStrategy="StrictFIFO"), Here()
    rounds, results = join(world, planner, time_limit=60.0)
    await planning(world, planner)
    newcomer = gang("first", 10, minute=5)
    newcomer["spec"]["priority"] = 10
    world.add(newcomer)
    planner.open.set()
    await world.until_quiet()
    assert world.observed.reservations[0] == "first"
    assert world.observed.reservations == ["first", "a"]
    first, second = reversed(rounds.history.rounds())
    assert first.plan is not None
    assert second.plan is not None
    assert (first.plan.units, second.plan.units) == (19, 5)
    assert results == [RoundResult.APPLIED, RoundResult.GREEDY]


@pytest.mark.parametrize("module", ["no.such.module", "kqueue.build"])
async def test_a_process_that_dies_while_it_starts_has_no_plan(
    make: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """The module is missing, or ends at once; ordinary cycles try the batch."""
    monkeypatch.setattr(process, "_MODULE", module)
    world, planner = racks(make, *FIVE_FIVE_NINE), PlanningProcess()
    _, results = join(world, planner, time_limit=60.0)
    world.start()
    await until(world, lambda: bool(results))
    await world.until_quiet()
    assert results == [RoundResult.FAILED]
    assert world.observed.reservations == ["a", "b"]


class NotStarting(Here):
    """Cannot be started."""

    async def get_ready(self) -> None:
        raise RoundFailedError("the planning process does not start: out of memory")


class NeverReady(Here):
    """Is started, and does not get ready."""

    async def get_ready(self) -> None:
        await asyncio.Event().wait()


async def test_a_planner_that_does_not_get_ready_gives_the_round_up(make: Callable[..., Scheduled]) -> None:
    """A round waits as long as for a plan, and ordinary cycles admit what fits."""
    world = racks(make, *FIVE_FIVE_NINE)
    rounds, results = join(world, NeverReady())
    world.start()
    await world.clock.advance(4)
    assert results == []
    for _ in range(2):
        await world.clock.advance(6)
    await world.until_quiet()
    assert results == [RoundResult.ABANDONED] * 2
    assert world.observed.reservations == ["a", "b"]
    assert {r.problem for r in rounds.history.rounds()} == {"no plan within the time limit: took longer than 5 s"}


async def test_a_planner_that_cannot_be_started_pauses_rounds(make: Callable[..., Scheduled]) -> None:
    world = racks(make, *FIVE_FIVE_NINE)
    rounds, results = join(world, NotStarting())
    world.start()
    for minute in range(10, 14):
        await world.until_quiet()
        world.add(gang(f"d{minute}", 30, minute=minute), gang(f"e{minute}", 31, minute=minute))
    await world.until_quiet()
    assert results == [RoundResult.FAILED] * 3
    assert rounds.is_paused
    assert world.observed.reservations == ["a", "b"]
    (record, *_) = rounds.history.rounds()
    assert record.problem == "the planning process does not start: out of memory"


@pytest.mark.mechanism("2.19")
async def test_each_admission_of_a_plan_is_one_write(make: Callable[..., Scheduled]) -> None:
    """The first answer is lost, and the plan's admission is there all the same."""
    world = racks(make, *FIVE_FIVE_NINE)
    join(world, Here())
    world.client.fail(ServerError("the answer is lost", status=500), key="ns/b", done=True)
    world.start()
    await world.until_quiet()
    written = Counter(call.key for call in world.client.writes(subresource="status"))
    assert (written["ns/a"], written["ns/c"]) == (1, 1)
    assert [status_of(world.workload(name), "QuotaReserved")[0] for name in "abc"] == ["True"] * 3
    assert hosts_of(world, "c") == {"h7", "h8", "h9"}


def hosts_of(world: Scheduled, name: str) -> set[str]:
    """The hosts on which a workload holds capacity."""
    holding = world.cache.held.holding(f"ns/{name}")
    assert holding is not None
    return {d.values[-1] for p in holding.admission.pod_sets if p.topology is not None for d in p.topology.domains}


@pytest.mark.mechanism("2.20")
async def test_a_round_sees_the_last_state_of_a_workload(make: Callable[..., Scheduled]) -> None:
    """It is changed three times before its round."""
    world, planner = racks(make, *FIVE_FIVE_NINE), Here()
    join(world, planner)
    for pods in (7, 6, 8):
        world.add(gang("c", pods, minute=3))
    world.start()
    await world.until_quiet()
    (given,) = planner.rounds
    sizes = {head.key: head.pod_sets[0].request.count for heads in given.batch.queues.values() for head in heads}
    assert sizes == {"ns/a": 5, "ns/b": 5, "ns/c": 8}


@pytest.mark.mechanism("2.23")
async def test_an_arrival_in_a_round_is_in_the_next_one(make: Callable[..., Scheduled]) -> None:
    """The next round begins when the plan is carried out, and has the two that came meanwhile."""
    world, planner = racks(make, gang("a", 3, minute=0), gang("b", 3, minute=1)), Here()
    join(world, planner, time_limit=60.0)
    await planning(world, planner)
    world.add(gang("c", 3, minute=2), gang("d", 3, minute=3))
    await world.clock.advance(1)
    assert (planner.rounds, world.observed.reservations) == ([], [])
    planner.open.set()
    await world.until_quiet()
    batches = [[head.key for heads in each.batch.queues.values() for head in heads] for each in planner.rounds]
    assert batches == [["ns/a", "ns/b"], ["ns/c", "ns/d"]]
    assert sorted(world.observed.reservations) == ["a", "b", "c", "d"]


@pytest.mark.mechanism("2.23")
@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
async def test_a_settled_world_has_no_rounds(make: Callable[..., Scheduled], strategy: str) -> None:
    """Gangs that do not fit are planned again only after an event."""
    world, planner = racks(make, *(gang(f"g{n}", 11, minute=n) for n in range(4)), queueingStrategy=strategy), Here()
    join(world, planner)
    world.start()
    await world.until_quiet()
    settled = len(planner.rounds)
    assert settled <= 2
    for _ in range(20):
        await world.clock.advance(60)
    assert len(planner.rounds) == settled
    world.intake.on_node(None, model.node_facts(read(wire_core.Node, node("h3", 5))))
    await world.until_quiet()
    assert settled < len(planner.rounds) <= settled + 2
    assert world.observed.reservations == ["g0"]
