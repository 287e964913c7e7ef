"""Rounds of small worlds: changes, kills and losses of the lease at every step; planners that hang; gangs that wait."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kqueue.api import names
from kqueue.config.joint import JointPlacementSettings
from kqueue.sandbox.api import JOBS, Object
from kqueue.sandbox.topology_spec import POOL_LABEL, RACK_LABEL
from tests.readings import page_of
from tests.sim import invariants
from tests.sim.chosen import is_deep
from tests.sim.joint_actor import JointActor
from tests.sim.joint_planner import AskedRound, Desk, PlannerFault
from tests.sim.joint_tenancy import JOINT, LOCAL
from tests.sim.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    FOREIGN,
    GPU,
    LEVELS,
    LOCAL_QUEUES,
    NAMESPACE,
    TOPOLOGIES,
    cluster_queue,
    job,
    ours,
)
from tests.sim.plan import Plan
from tests.sim.tenancy import Tenancy, pool
from tests.sim.terms import DeposeOnce
from tests.sim.world import World, condition, is_true, simulated

STRIDE = 53
"""Turns of the event loop from one run of a story to the next."""
FIRST_TURNS = range(1, STRIDE + 1) if is_deep() else (3,)
"""Every turn has a run with `KQUEUE_SIM_TURNS=all`."""
GANGS = {"first": 5, "second": 5, "third": 9}
"""Whole hosts; one by one, the first takes the rack that the third needs."""


def one_queue(*, racks: tuple[int, int, int] = (1, 2, 10), policies: str = "", strict: bool = False) -> Tenancy:
    """One ClusterQueue that is planned jointly: blocks, racks in each, hosts in each."""
    queue = cluster_queue("q", flavors={"gpu": {"cpu": 1000, GPU: 1000}}, strict=strict)
    notes = {names.JOINT_POLICIES_ANNOTATION: policies} if policies else {}
    queue["metadata"]["annotations"] = {**JOINT, **notes}
    levels = {"levels": [{"nodeLabel": level} for level in LEVELS]}
    gpu = {"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "dc"}
    return Tenancy(
        objects=(
            (TOPOLOGIES, ours("Topology", "dc", spec=levels)),
            (FLAVORS, ours("ResourceFlavor", "gpu", spec=gpu)),
            (CLUSTER_QUEUES, queue),
            (LOCAL_QUEUES, ours("LocalQueue", "q", namespace=NAMESPACE, spec={"clusterQueue": "q"})),
        ),
        pools=(pool("gpu", racks, gpus=8),),
        placed=frozenset({"gpu"}),
        joint=JointPlacementSettings(),
    )


def gang(name: str, hosts: int, **settings: Any) -> Object:
    """A gang of whole hosts in one rack."""
    return job(name, **{"queue": "q", "pods": hosts, "gpus": 8, "run_seconds": 20, **settings})


@asynccontextmanager
async def joint_world(desk: Desk, tenancy: Tenancy) -> AsyncIterator[tuple[World, JointActor]]:
    """A world whose rounds are planned at a desk, and its actor; at the end all invariants hold."""
    async with simulated(desk.seed, tenancy=tenancy, operator=desk.operator()) as world:
        invariants.watch(world)
        actor = JointActor(world, Plan(), desk)
        await world.pass_time(2)
        yield world, actor
        actor.check((*invariants.ALWAYS, *invariants.AT_REST, *actor.watch.at_rest))


async def nineteen_hosts(world: World, actor: JointActor) -> None:
    """A stranger takes one of the twenty hosts."""
    await actor.add_foreign_pod(f"{FOREIGN}0", "b0-r1-h9", 8)
    await world.pass_time(2)


async def submit(world: World, gangs: dict[str, int] = GANGS) -> None:
    """The gangs of a story come at once: their queue opens when all are there."""
    await world.api.patch(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "Hold"}})
    for name, hosts in gangs.items():
        await world.submit(gang(name, hosts))
    await world.settle()
    await world.api.patch(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "None"}})


def admitted(world: World, *gangs: str) -> list[str]:
    """The gangs of this list that are admitted."""
    return [name for name in gangs or GANGS if is_true(world.workload_of(name), names.CONDITION_ADMITTED)]


def places(asked: AskedRound) -> dict[str, Any]:
    """The domains that a plan gives, by workload."""
    assert asked.answer is not None
    return {e.key.partition("-")[2][:9]: e.hint.places for e in asked.answer.entries if e.hint is not None}


async def test_a_plan_is_better_than_one_by_one() -> None:
    async with joint_world(Desk("better"), one_queue()) as (world, actor):
        await nineteen_hosts(world, actor)
        await submit(world)
        await world.pass_time(1)
        assert admitted(world) == list(GANGS)
        assert actor.watch.by_plan == 3
        await world.pass_time(60)
        assert len(actor.desk.rounds) == 1


@pytest.mark.mechanism("2.29")
async def test_the_plan_after_a_kill_at_any_message_is_that_of_an_undisturbed_planner() -> None:
    """The round of two gangs that never fit is lost at one of its messages; that of the others is planned anew."""
    found: list[dict[str, Any]] = []
    messages, number = 1, -1
    while number < messages:
        desk = Desk("killed", kill_at=number)
        desk.next += [PlannerFault.KILLED_BEFORE] if number >= 0 else []
        async with joint_world(desk, one_queue()) as (world, actor):
            await nineteen_hosts(world, actor)
            await submit(world, {"large": 11, "larger": 12})
            await world.pass_time(5)
            await submit(world)
            await world.pass_time(5)
            lost, planned = desk.rounds[0], desk.rounds[-1]
            messages = lost.messages if number < 0 else messages
            assert (lost.answer is None) == (number >= 0)
            assert lost.messages == (number if number >= 0 else messages)
            assert admitted(world) == list(GANGS)
            found.append(places(planned))
            await world.pass_time(60)
        number += 1
    assert messages > 3
    assert all(each == found[0] for each in found)


async def _told(at: int, *, drain: float) -> bool:
    """Three gangs come, and the lease is lost at a turn; False: the story was over by then."""
    async with joint_world(Desk(at, delays=[0.2]), one_queue()) as (world, actor):
        await nineteen_hosts(world, actor)
        world.on_turn = once = DeposeOnce(world, at, drain=drain)
        await submit(world)
        await world.pass_time(1.0)
        is_over = not once.done
        world.on_turn = lambda: None
        await world.pass_time(60)
        ends = {name: is_true(world.find(JOBS, name), "Complete") for name in GANGS}
        assert all(ends.values()), f"the lease was lost at turn {at}: {ends}"
        uids = [a.uid for a in world.history.admissions]
        assert len(uids) == len(set(uids)) == 3, f"the lease was lost at turn {at}"
        actor.check((*invariants.AT_REST, invariants.nothing_is_held))
        return not is_over


@pytest.mark.mechanism("2.27")
@pytest.mark.parametrize("drain", [0.0, 1.0], ids=["writes are cut off at once", "writes have a second"])
@pytest.mark.parametrize("first", FIRST_TURNS)
async def test_the_lease_is_lost_at_any_turn_of_a_round_and_of_its_plan(first: int, drain: float) -> None:
    """The next leader plans anew; all gangs run, and none is admitted twice."""
    at = first
    while await _told(at, drain=drain):
        at += STRIDE
    assert at > STRIDE * 2


async def _came(at: int, *, strict: bool) -> bool:
    """Two gangs are planned, and two others come at a turn of their round; False: the round was over by then."""
    desk = Desk(at, delays=[0.2])
    async with joint_world(desk, one_queue(strict=strict)) as (world, _actor):
        left, tasks = [at], list[asyncio.Task[Object]]()

        def turn() -> None:
            left[0] -= 1
            if left[0] == 0:
                tasks.extend(asyncio.ensure_future(world.submit(gang(name, 4))) for name in ("late", "later"))

        world.on_turn = turn
        await submit(world, {"early": 5, "earlier": 5})
        await world.pass_time(0.5)
        world.on_turn = lambda: None
        if not tasks:
            await world.pass_time(10)
            return False
        await asyncio.gather(*tasks)
        assert admitted(world, "early", "earlier", "late", "later") == ["early", "earlier", "late", "later"]
        batches = [len(asked.uids) for asked in desk.rounds]
        assert len(batches) <= 2, f"at turn {at}: {batches}"
        await world.pass_time(100)
        assert len(desk.rounds) == len(batches)
        return True


@pytest.mark.mechanism("2.23")
@pytest.mark.parametrize("strict", [False, True], ids=["best effort", "strict"])
@pytest.mark.parametrize("first", FIRST_TURNS)
async def test_what_comes_at_any_turn_of_a_round_is_in_it_or_in_the_next(first: int, strict: bool) -> None:
    at = first
    while await _came(at, strict=strict):
        at += STRIDE
    assert at > STRIDE


async def test_a_planner_that_hangs_holds_a_queue_for_the_time_limit_and_then_rests() -> None:
    """Ordinary cycles admit after five seconds; after three failures rounds rest for ten minutes, and come back."""
    desk = Desk("hangs")
    desk.next += [PlannerFault.NO_ANSWER, PlannerFault.NEVER_READY, PlannerFault.NO_ANSWER]
    async with joint_world(desk, one_queue()) as (world, actor):
        for number, pair in enumerate((("a", "b"), ("c", "d"), ("e", "f"))):
            assert not _is_paused(world)
            await submit(world, dict.fromkeys(pair, 3))
            await world.pass_time(4.9)
            before = admitted(world, *pair)
            await world.pass_time(0.2)
            assert (number, before, admitted(world, *pair)) == (number, [], list(pair))
        assert _is_paused(world)
        asked = len(desk.rounds)
        await submit(world, {"i": 1, "j": 1})
        await world.pass_time(0.1)
        assert admitted(world, "i", "j") == ["i", "j"]
        await world.pass_time(600)
        await submit(world, {"g": 3, "h": 3})
        await world.pass_time(0.1)
        assert not _is_paused(world)
        assert len(desk.rounds) == asked + 1
        assert actor.watch.by_plan == 2
        await world.pass_time(60)


def _is_paused(world: World) -> bool:
    assert world.controller is not None
    found = re.findall(
        r"^kqueue_joint_paused\S* (\S+)$", page_of(world.controller.operator.metrics).decode(), re.MULTILINE
    )
    assert len(found) == 1, "the gauge has one series"
    return float(found[0]) > 0


@pytest.mark.mechanism("2.14")
async def test_a_gang_waits_for_the_rack_that_it_prefers_as_long_as_its_policy_says() -> None:
    """The rack is full; to leave its block costs forty points, which are forty seconds."""
    async with joint_world(Desk("local"), one_queue(racks=(2, 1, 3), policies=LOCAL)) as (world, actor):
        await world.submit(gang("full", 3, prefers=f"{RACK_LABEL}=b0-r0", run_seconds=1000))
        await world.pass_time(1)
        await world.submit(gang("waits", 2, prefers=f"{RACK_LABEL}=b0-r0", run_seconds=10))
        await world.pass_time(5)
        said = condition(world.workload_of("waits"), names.CONDITION_QUOTA_RESERVED) or {}
        assert said["reason"] == names.REASON_WAITING_FOR_LOCALITY
        rounds = len(actor.desk.rounds)
        await world.pass_time(34)
        early = admitted(world, "waits")
        await world.pass_time(2)
        assert (early, admitted(world, "waits")) == ([], ["waits"])
        assert len(actor.desk.rounds) == rounds + 1
        await world.pass_time(60)
