"""Rounds in the scheduling loop: planned together, carried out by ordinary cycles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES
from kqueue.scheduling.joint.process import PlanningProcess, RoundPlanner
from kqueue.scheduling.joint.rounds import JointRounds, RoundResult, RoundSettings
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import (
    condition,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    read,
)
from tests.unit.scheduling.joint.planners import Broken, Here, until
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import HOST, IN_R2

RACKS = {"h1": 5, "h2": 5, "h7": 3, "h8": 3, "h9": 3}
"""Two racks, of 10 and 9 cpus."""


def gang(name: str, pods: int, *, minute: int, joint: bool = True) -> Any:
    """A gang of pods of one cpu that needs one rack."""
    workload = make_workload(name, pods=pods, minute=minute)
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
    if joint:
        workload["metadata"]["annotations"] = {"kqueue.dev/placement-profile": "joint"}
    return workload


def is_joint(obj: wire.Workload, _queue: str) -> bool:
    return obj.metadata.annotations.get("kqueue.dev/placement-profile") == "joint"


def racks(
    make: Callable[..., Scheduled],
    *workloads: Any,
    queues: Sequence[Any] = (),
    settings: LoopSettings | None = None,
    **queue: Any,
) -> Scheduled:
    """A world of two racks, of 10 and 9 cpus, and one ClusterQueue with quota for all, or these."""
    world = make(
        (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]}}),
        (RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "all"}, topologyName="dc")),
        *((CLUSTER_QUEUES, made) for made in queues or [make_cluster_queue(cpus=100, **queue)]),
        *(
            (LOCAL_QUEUES, make_local_queue(made["metadata"]["name"], cluster_queue=made["metadata"]["name"]))
            for made in queues
        ),
        settings=settings,
    )
    world.sync()
    for host, cpus in RACKS.items():
        world.intake.on_node(None, model.node_facts(read(wire_core.Node, node(host, cpus))))
    world.add(*workloads)
    return world


def node(host: str, cpus: int) -> Any:
    """A node in rack r1 or r2."""
    labels = {"rack": "r2" if host in IN_R2 else "r1", HOST: host, "pool": "all"}
    status = {"allocatable": {"cpu": str(cpus), "pods": "20"}, "conditions": [condition("Ready")]}
    return {"metadata": {"name": f"node-{host}", "labels": labels}, "status": status}


def join(world: Scheduled, planner: RoundPlanner, **settings: Any) -> tuple[JointRounds, list[RoundResult]]:
    """Let the world's loop plan jointly."""
    rounds = world.loop.plan_jointly(planner, is_joint, RoundSettings(**settings))
    results: list[RoundResult] = []
    rounds.on_end = lambda record: results.append(RoundResult(record.result))
    return rounds, results


FIVE_FIVE_NINE = (gang("a", 5, minute=1), gang("b", 5, minute=2), gang("c", 9, minute=3))


async def test_gangs_that_one_by_one_would_leave_a_rack_half_used_all_start(make: Callable[..., Scheduled]) -> None:
    world = racks(make, *FIVE_FIVE_NINE)
    rounds, results = join(world, Here())
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == ["a", "b", "c"]
    assert results == [RoundResult.APPLIED]
    assert rounds.last is not None
    assert (rounds.last.greedy_units, rounds.last.units, rounds.last.gap) == (10, 19, 0)


async def test_the_process_plans_as_this_one_does(make: Callable[..., Scheduled]) -> None:
    """The messages, the child process, and its answer."""
    world, planner = racks(make, *FIVE_FIVE_NINE), PlanningProcess()
    rounds, results = join(world, planner, time_limit=60.0)
    world.start()
    await until(world, lambda: len(world.observed.reservations) == 3)
    assert world.observed.reservations == ["a", "b", "c"]
    assert planner.starts == 1
    assert rounds.last is not None
    assert rounds.last.units == 19
    assert results == [RoundResult.APPLIED]


async def test_one_workload_is_no_round(make: Callable[..., Scheduled]) -> None:
    world, planner = racks(make, gang("a", 5, minute=0)), Here()
    _, results = join(world, planner)
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == ["a"]
    assert (planner.rounds, results) == ([], [])


async def test_other_queues_go_on_while_a_round_is_planned(make: Callable[..., Scheduled]) -> None:
    queues = [make_cluster_queue("team", cpus=100), make_cluster_queue("other", cpus=100)]
    other = gang("d", 1, minute=9, joint=False)
    other["spec"]["queueName"] = "other"
    world, planner = racks(make, *FIVE_FIVE_NINE, other, queues=queues), Here()
    join(world, planner, time_limit=60.0)
    planner.open.clear()
    world.start()
    await world.clock.advance(1)
    assert world.observed.reservations == ["d"]
    planner.open.set()
    await world.until_quiet()
    assert world.observed.reservations[:3] == ["d", "a", "b"]


async def test_a_workload_that_the_plan_leaves_out_gets_its_reason_once(make: Callable[..., Scheduled]) -> None:
    """It is tried once, parked, and no further round is made for it."""
    world, planner = racks(make, *FIVE_FIVE_NINE, gang("d", 4, minute=4)), Here()
    join(world, planner)
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == ["a", "b", "c"]
    assert world.observed.waiting == [("d", "WaitingForQuota")]
    assert len(planner.rounds) == 1


@pytest.mark.parametrize("failures", [1, 3])
async def test_without_a_plan_ordinary_cycles_try_the_batch(make: Callable[..., Scheduled], failures: int) -> None:
    world, planner = racks(make, *FIVE_FIVE_NINE), Broken()
    rounds, results = join(world, planner)
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == ["a", "b"]
    for more in range(1, failures):
        world.add(*(gang(f"{name}{more}", 30 + more, minute=10 + more) for name in "de"))
        await world.until_quiet()
    assert results == [RoundResult.FAILED] * failures
    assert rounds.is_paused is (failures == 3)
    await world.clock.advance(601)
    assert not rounds.is_paused


async def test_a_round_without_an_answer_is_given_up(make: Callable[..., Scheduled]) -> None:
    world, planner = racks(make, *FIVE_FIVE_NINE), Here()
    _, results = join(world, planner, time_limit=0.05)
    planner.open.clear()
    world.start()
    await until(world, lambda: bool(results))
    await world.until_quiet()
    assert results == [RoundResult.ABANDONED]
    assert world.observed.reservations == ["a", "b"]


async def test_a_hint_that_does_not_hold_any_more_has_no_effect(make: Callable[..., Scheduled]) -> None:
    """Hosts are lost while the round is planned: the workload is placed where there is room, or waits."""
    world, planner = racks(make, gang("a", 5, minute=0), gang("b", 5, minute=1)), Here()
    join(world, planner, time_limit=60.0)
    planner.open.clear()
    world.start()
    await world.clock.advance(1)
    world.intake.on_node(model.node_facts(read(wire_core.Node, node("h7", 3))), None)
    planner.open.set()
    await world.until_quiet()
    assert world.observed.reservations == ["a", "b"]


@pytest.mark.mechanism("2.27")
async def test_the_end_of_the_lead_ends_the_planner(make: Callable[..., Scheduled]) -> None:
    world, planner = racks(make, *FIVE_FIVE_NINE), Here()
    join(world, planner, time_limit=60.0)
    planner.open.clear()
    world.start()
    await world.clock.advance(1)
    assert world.running is not None
    world.running.cancel()
    await asyncio.gather(world.running, return_exceptions=True)
    assert planner.stopped == 1
    assert world.observed.reservations == []


async def test_a_strict_queue_offers_nothing_behind_a_workload_that_takes_no_part(
    make: Callable[..., Scheduled],
) -> None:
    first = gang("first", 30, minute=0, joint=False)
    world, planner = racks(make, first, *FIVE_FIVE_NINE, queueingStrategy="StrictFIFO"), Here()
    _, results = join(world, planner)
    world.start()
    await world.until_quiet()
    assert (world.observed.reservations, results) == ([], [])


async def test_no_round_is_planned_while_no_workload_may_be_admitted(make: Callable[..., Scheduled]) -> None:
    """`waitForPodsReady` with `blockAdmission`: all wait for the pods of the workload that was admitted."""
    first = gang("first", 1, minute=0, joint=False)
    world, planner = racks(make, first, settings=LoopSettings(block_admission=True)), Here()
    join(world, planner)
    world.start()
    await world.until_quiet()
    world.add(*FIVE_FIVE_NINE)
    await world.until_quiet()
    assert (world.observed.reservations, planner.rounds) == (["first"], [])
