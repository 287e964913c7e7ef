"""Running workloads in rounds of the loop: victims that lose less, and what moves would gain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kqueue.core.joint.migration import MigrationGain
from kqueue.core.joint.movable import MoveLimits
from kqueue.core.joint.running import RunningInput
from kqueue.core.joint.settings import JointSettings, VictimChoice
from kqueue.scheduling.joint.process import PlanningProcess
from kqueue.scheduling.joint.rounds import JointRounds
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.joint_history import RoundRecord
from tests.unit.controllers.builders import make_cluster_queue
from tests.unit.scheduling.joint.planners import Here, until
from tests.unit.scheduling.joint.test_rounds import gang, join, racks
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import placed

LOWER = {"withinClusterQueue": "LowerPriority"}
JOINT = JointSettings(victims=VictimChoice.JOINT)
NOW = "2026-01-01T00:00:00Z"


def runs(name: str, since: str, annotations: dict[str, str] | None = None, **hosts: int) -> Any:
    """A workload that runs on these hosts since a time of the last day of 2025."""
    obj = placed(name, unhealthy=(), required="rack", **hosts)
    for one in obj["status"]["conditions"]:
        one["lastTransitionTime"] = f"2025-12-31T{since}:00Z"
    obj["metadata"]["annotations"] = annotations or {}
    return obj


def waiting(priority: int = 9) -> list[Any]:
    """A gang that fits into either rack if its workload leaves, and one that fits nowhere."""
    first, never = gang("w", 9, minute=1), gang("x", 30, minute=2)
    first["spec"]["priority"] = priority
    return [first, never]


def full(make: Callable[..., Scheduled], saved: str = NOW, some: Sequence[Any] = (), **more: Any) -> Scheduled:
    """Two full racks: `old` runs for a day and has saved, `new` runs for an hour."""
    if "queues" not in more:
        more["preemption"] = LOWER
    return racks(
        make,
        runs("old", "00:00", {"kqueue.dev/last-checkpoint": saved}, h7=3, h8=3, h9=3),
        runs("new", "23:00", h1=5, h2=5),
        *(some or waiting()),
        **more,
    )


def read_all(world: Scheduled, rounds: JointRounds) -> None:
    """Let rounds know the running workloads of the world."""
    rounds.read_running(lambda: [f"ns/{one.metadata.name}" for one in world.workloads.values()])


@pytest.mark.mechanism("2.6")
@pytest.mark.parametrize(
    ("settings", "saved", "gone"),
    [
        (JOINT, NOW, "old"),
        (JOINT, "2025-12-31T22:00:00Z", "new"),
        (JointSettings(), NOW, "new"),
    ],
)
async def test_the_workload_that_loses_less_leaves(
    make: Callable[..., Scheduled], settings: JointSettings, saved: str, gone: str
) -> None:
    world = full(make, saved)
    rounds, _ = join(world, Here(), joint=settings)
    read_all(world, rounds)
    world.start()
    await world.until_quiet()
    assert world.observed.preemptions == [(gone, "w")]
    assert rounds.number == 1
    message = next(
        one["message"] for one in (world.workload("w") or {})["status"]["conditions"] if one["type"] == "QuotaReserved"
    )
    assert ("which lose less work than others (joint round 1" in message) is (gone == "old")


@pytest.mark.mechanism("2.6")
@pytest.mark.parametrize("kept", ["policy", "runtime", "gate", "priority"])
async def test_who_may_not_preempt_never_does(make: Callable[..., Scheduled], kept: str) -> None:
    """However long it has waited: for a policy `Never`, in the minimum runtime, before a gate, or for an equal."""
    queue = make_cluster_queue(cpus=100, preemption={"withinClusterQueue": "Never"} if kept == "policy" else LOWER)
    if kept == "runtime":
        queue["metadata"]["annotations"] = {"kqueue.dev/minimum-runtime": "48h"}
    some = waiting(0 if kept == "priority" else 9)
    if kept == "gate":
        some[0]["spec"]["preemptionGates"] = [{"name": "budget"}]
    world = full(make, some=some, queues=[queue], settings=LoopSettings(preemption_gates=True))
    rounds, _ = join(world, Here(), joint=JOINT)
    read_all(world, rounds)
    world.start()
    await world.clock.advance(5)
    assert rounds.number > 0
    assert ("w", "WaitingForQuota" if kept != "gate" else "AdmissionGated") in world.observed.waiting
    assert world.observed.preemptions == []


def crowded(make: Callable[..., Scheduled], annotations: dict[str, str]) -> Scheduled:
    """`u` runs on one host of the larger rack, and a gang needs all of it; there is room for `u` elsewhere."""
    return racks(make, runs("u", "20:00", annotations, h1=1), gang("w", 10, minute=1), gang("x", 1, minute=2))


@pytest.mark.mechanism("2.10")
@pytest.mark.parametrize(
    ("annotations", "limits", "gains"),
    [
        ({"kqueue.dev/reschedule": "Always"}, MoveLimits(), True),
        ({"kqueue.dev/reschedule": "Never"}, MoveLimits(), False),
        ({}, MoveLimits(), False),
        ({"kqueue.dev/reschedule": "AfterCheckpoint", "kqueue.dev/last-checkpoint": NOW}, MoveLimits(), True),
        ({"kqueue.dev/reschedule": "AfterCheckpoint"}, MoveLimits(), False),
        ({"kqueue.dev/reschedule": "Always"}, MoveLimits(moves=0), False),
        ({"kqueue.dev/reschedule": "Always"}, None, False),
    ],
)
async def test_a_round_says_what_moves_would_gain(
    make: Callable[..., Scheduled], annotations: dict[str, str], limits: MoveLimits | None, gains: bool
) -> None:
    world, planner = crowded(make, annotations), Here()
    rounds, _ = join(world, planner, **({"moves": limits} if limits is not None else {}))
    read_all(world, rounds)
    seen: list[RoundRecord] = []
    rounds.on_gains = seen.append
    world.start()
    await world.until_quiet()
    assert world.observed.reservations == ["x"]
    assert [len(given.running.movable) for given in planner.rounds] == [int(gains)]
    (record,) = rounds.history.rounds()
    assert seen == [record]
    if gains:
        assert record.gains["default"].gain > 0
        assert record.gains["default"].pays(2_000)
    else:
        assert record.gains == {}


@pytest.mark.parametrize(
    ("of_queue", "of_workload", "movable"),
    [("Always", "", True), ("Always", "Never", False), ("Never", "Always", True), ("AfterCheckpoint", "", False)],
)
async def test_the_consent_of_a_cluster_queue_counts_for_its_workloads(
    make: Callable[..., Scheduled], of_queue: str, of_workload: str, movable: bool
) -> None:
    """No workload needs an annotation of its own, and one of its own wins."""
    queue = make_cluster_queue(cpus=100)
    queue["metadata"]["annotations"] = {"kqueue.dev/reschedule": of_queue}
    annotations = {"kqueue.dev/reschedule": of_workload} if of_workload else {}
    world = racks(make, *(runs(f"u{n}", "20:00", annotations, h1=1) for n in range(3)), queues=[queue])
    rounds, _ = join(world, Here(), moves=MoveLimits())
    rounds.read_running(lambda: [f"ns/u{n}" for n in range(3)] if of_workload else [])
    found = await rounds.running()
    assert [gang.key for gang in found.movable] == ([f"ns/u{n}" for n in range(3)] if movable else [])


async def test_a_cluster_without_annotations_reads_no_workload(
    make: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = racks(make, runs("u", "20:00", h1=1))
    rounds, _ = join(world, Here(), joint=JOINT, moves=MoveLimits())
    read: list[str] = []
    newest = world.writer.newest

    def counted(key: str) -> Any:
        read.append(key)
        return newest(key)

    monkeypatch.setattr(world.writer, "newest", counted)
    rounds.read_running(list)
    assert await rounds.running() == RunningInput()
    assert read == []
    rounds.read_running(lambda: ["ns/u", "ns/gone"])
    assert list((await rounds.running()).checkpoints) == ["uid-of-u"]
    assert set(read) == {"ns/u"}


async def test_gains_come_after_the_plan_of_the_process(make: Callable[..., Scheduled]) -> None:
    """Two rounds of one process, each with gains: the second plan is not mistaken for them."""
    world, planner = crowded(make, {"kqueue.dev/reschedule": "Always"}), PlanningProcess()
    rounds, results = join(world, planner, moves=MoveLimits(), time_limit=60.0)
    read_all(world, rounds)
    seen: list[RoundRecord] = []
    rounds.on_gains = seen.append
    world.start()
    await until(world, lambda: len(seen) == 1)
    world.add(gang("y", 12, minute=3), gang("z", 1, minute=4))
    await until(world, lambda: len(seen) == 2)
    assert [record.number for record in seen] == [1, 2]
    assert all(isinstance(gain, MigrationGain) and gain.gain > 0 for gain in seen[0].gains.values())
    assert planner.starts == 1
    assert len(results) == 2
    assert world.observed.reservations == ["x", "z"]


async def test_the_end_of_the_planner_ends_the_wait_for_gains(make: Callable[..., Scheduled]) -> None:
    world, planner = crowded(make, {"kqueue.dev/reschedule": "Always"}), PlanningProcess()
    rounds, _ = join(world, planner, moves=MoveLimits(), time_limit=60.0)
    read_all(world, rounds)
    world.start()
    await until(world, lambda: bool(world.observed.reservations))
    await planner.stop()
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if "_read_gains" in repr(task) and not task.done()] == []
