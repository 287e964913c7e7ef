"""The scheduling loop: when it goes on, and when it rests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.controllers.resources import CLUSTER_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS
from kqueue.core.scan import ScanRules
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import World, condition, make_cluster_queue, make_flavor, make_workload, read
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import HOST, three_teams


async def test_one_wake_tries_everybody_who_waits(make: Callable[..., Scheduled]) -> None:
    """A best-effort head that does not fit is passed; the loop goes on until nobody is left, then rests."""
    world = make()
    world.add(*(make_workload(f"large-{n}", cpus=20 + n, minute=n) for n in range(5)), make_workload("small", minute=9))
    await world.settle()
    world.start()

    assert await world.until_quiet() == 6

    assert world.observed.reservations == ["small"]
    assert len(world.observed.waiting) == 5


@pytest.mark.parametrize("cpus", [pytest.param(20, id="too large"), pytest.param("lots", id="unreadable")])
async def test_a_strict_head_that_cannot_start_does_not_make_the_loop_spin(
    make: Callable[..., Scheduled], cpus: int | str
) -> None:
    """It is tried on a state once and once more, not for ever; what changes the state has it tried again."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(queueingStrategy="StrictFIFO")))
    world.add(make_workload(cpus=cpus), make_workload("behind", minute=1))
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == []

    world.client.put(CLUSTER_QUEUES, make_cluster_queue(cpus=30, queueingStrategy="StrictFIFO"))
    world.client.put(WORKLOADS, make_workload(cpus=20))
    await world.settle()
    await world.until_quiet()

    assert sorted(world.observed.reservations) == ["a", "behind"]


async def test_a_strict_head_does_not_keep_other_queues_from_being_worked_off(make: Callable[..., Scheduled]) -> None:
    """While one queue is blocked by its head the others are tried down to their last workload."""
    world = make(*three_teams(), (CLUSTER_QUEUES, make_cluster_queue("red", queueingStrategy="StrictFIFO")))
    world.add(make_workload("stuck", queue="red", cpus=20))
    world.start()
    await world.until_quiet()

    world.add(*(make_workload(f"large-{n}", queue="blue", cpus=20 + n, minute=n) for n in range(3)))
    world.add(make_workload("small", queue="blue", minute=9))
    await world.until_quiet()

    assert world.observed.reservations == ["small"]


@pytest.mark.parametrize("blocked", [False, True], ids=["nobody", "a strict head"])
async def test_who_was_refused_before_does_not_hide_who_came_since(
    make: Callable[..., Scheduled], blocked: bool
) -> None:
    """The head that the last cycle refused comes once more, with another behind it: both are tried."""
    world = make(*three_teams(), (CLUSTER_QUEUES, make_cluster_queue("red", queueingStrategy="StrictFIFO")))
    await world.settle()
    world.start()
    if blocked:
        world.add(make_workload("stuck", queue="red", cpus=20))
        await world.until_quiet()
        world.client.drop(WORKLOADS, "ns/stuck")
        world.sync()
    world.add(make_workload("large", cpus=20))
    await world.until_quiet()

    world.client.put(WORKLOADS, make_workload("large", cpus=21))
    world.add(make_workload("small", minute=1))
    await world.until_quiet()

    assert world.observed.reservations == ["small"]


def make_racks(*names: str) -> list[Any]:
    """ClusterQueue `team` with quota of 10 in each of the flavors, whose nodes make up a topology of hosts."""
    return [
        (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": HOST}]}}),
        (CLUSTER_QUEUES, make_cluster_queue(cpus=dict.fromkeys(names, 10))),
        *((RESOURCE_FLAVORS, make_flavor(name, nodeLabels={"pool": name}, topologyName="dc")) for name in names),
    ]


def set_nodes(world: World, **cpus: int) -> None:
    """The one node of each flavor has so many cpus."""
    for name, amount in cpus.items():
        node = {
            "metadata": {"name": name, "labels": {HOST: name, "pool": name}},
            "status": {"allocatable": {"cpu": str(amount), "pods": "9"}, "conditions": [condition("Ready")]},
        }
        world.intake.on_node(None, model.node_facts(read(wire_core.Node, node)))


async def test_tables_of_a_new_flavor_are_made_in_steps_between_which_others_run(
    make: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle that finds a large flavor unprepared does not hold the event loop until all is ready."""
    monkeypatch.setattr("kqueue.state.audit.STEP", 1)
    names = [f"host{i}" for i in range(20)]
    world = make(*make_racks(*names[:1]))
    world.sync()
    set_nodes(world, **dict.fromkeys(names, 4))
    world.client.put(RESOURCE_FLAVORS, make_flavor(names[0], topologyName="dc"))  # of all nodes
    world.add(make_workload(cpus=3))
    cycle, turns = asyncio.create_task(world.loop.cycle()), 0
    while world.loop.cycles == 0 and not cycle.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2 * len(names)
    assert await cycle is True


async def test_a_scan_that_stopped_early_goes_on_at_the_next_flavor(make: Callable[..., Scheduled]) -> None:
    """Quota without room in its domains ends a try; the next cycles look at the other flavors, on every state."""
    world = make(*make_racks("default", "second", "third"))
    world.add(make_workload(cpus=5))
    set_nodes(world, default=1, second=1, third=1)
    await world.settle()
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == []

    set_nodes(world, third=8)
    await world.until_quiet()

    assert world.observed.reservations == ["a"]
    assert world.free(flavor="third") == 5


@pytest.mark.parametrize(
    ("happens", "keeps_progress", "flavor"),
    [
        pytest.param("nothing", True, "second", id="goes on"),
        pytest.param("it changes", True, "default", id="begins anew for another request"),
        pytest.param("its namespace changes", True, "default", id="begins anew for what its namespace adds"),
        pytest.param("it comes back", True, "default", id="begins anew after an admission"),
        pytest.param("it may be tried again", True, "second", id="goes on for the same request"),
        pytest.param("it may be tried again", False, "default", id="begins anew where no progress is kept"),
    ],
)
async def test_where_the_scan_of_flavors_begins(
    make: Callable[..., Scheduled], happens: str, keeps_progress: bool, flavor: str
) -> None:
    """What was remembered of a try is of use for the same request only, until it is admitted."""
    settings = LoopSettings(scan=ScanRules(keeps_progress=keeps_progress))
    world = make(*make_racks("default", "second"), settings=settings)
    world.add(make_workload(cpus=5))
    set_nodes(world, default=1, second=8)
    assert not await world.cycle()
    if happens == "it changes":
        world.client.put(WORKLOADS, make_workload(cpus=6))
    elif happens == "its namespace changes":
        spec = {"limits": [{"type": "Container", "default": {"cpu": "9"}}]}
        bounds = read(wire_core.LimitRange, {"metadata": {"name": "bounds", "namespace": "ns"}, "spec": spec})
        world.cache.requests.on_limit_range(None, bounds)
        for workload in world.workloads.values():
            world.intake.on_workload(workload, workload)
    elif happens == "it may be tried again":
        requeued = {"type": "Requeued", "status": "True", "reason": "BackoffFinished"}
        stored = world.client.object(WORKLOADS, "ns/a")
        assert stored is not None
        conditions = stored["status"]["conditions"]
        world.client.change(WORKLOADS, "ns/a", {"status": {"conditions": [*conditions, requeued]}})
    elif happens == "it comes back":
        assert await world.cycle()
        world.sync()
        conditions = [condition("QuotaReserved", "False", "PendingEvaluation"), condition("Admitted", "False")]
        world.client.change(WORKLOADS, "ns/a", {"status": {"admission": None, "conditions": conditions}})
    world.sync()
    set_nodes(world, default=8)

    assert await world.cycle()

    found = world.workload()
    assert found is not None
    assert found["status"]["admission"]["podSetAssignments"][0]["flavors"] == {"cpu": flavor}


async def test_the_time_of_cycles_is_added_up(make: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that had nobody to try take none."""
    world = make()
    monkeypatch.setattr(world.clock, "monotonic", iter(range(100)).__next__)
    world.add(make_workload())
    assert await world.cycle()
    once = world.loop.busy
    assert once > 0

    assert not await world.cycle()
    assert world.loop.busy == once
    world.add(make_workload("b", minute=1))
    assert await world.cycle()
    assert world.loop.busy == 2 * once


@pytest.mark.parametrize(
    ("took", "ends_in_vain", "goes_on", "rest"),
    [
        pytest.param(0.03, True, True, 0.03, id="a round goes on after as long as it took"),
        pytest.param(0.0, True, True, 0.001, id="not less than a moment"),
        pytest.param(3.0, True, True, 0.25, id="not for ever"),
        pytest.param(0.03, False, True, 0.0, id="not after a success"),
        pytest.param(0.03, True, False, 0.09, id="a round is followed by a rest twice as long"),
        pytest.param(3.0, True, False, 0.5, id="nor is that for ever"),
        pytest.param(0.0, True, False, 0.02, id="not less than the window"),
    ],
)
async def test_a_cycle_in_vain_is_followed_by_a_rest(
    make: Callable[..., Scheduled],
    monkeypatch: pytest.MonkeyPatch,
    took: float,
    ends_in_vain: bool,
    goes_on: bool,
    rest: float,
) -> None:
    """Trying in vain must not take more than half of the time; of all time, tries take a third at most."""
    world = make()
    begun: list[float] = []

    async def cycle(loop: SchedulingLoop) -> bool:
        begun.append(world.clock.monotonic())
        loop._runner.cycles += 1
        await world.clock.sleep(took)
        loop._goes_on = goes_on
        loop.wake()
        return not ends_in_vain

    monkeypatch.setattr(SchedulingLoop, "cycle", cycle)
    world.start()
    world.loop.wake()
    await world.clock.advance(took + rest + 1e-6)

    assert [begun[1] - begun[0], len(begun)] == [pytest.approx(took + rest), 2]
