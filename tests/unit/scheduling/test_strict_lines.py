"""The record knows which ClusterQueues are StrictFIFO, and which workloads wait behind their heads without a try."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, WORKLOADS
from kqueue.operations.day_policy import DayPolicy, question_of
from kqueue.record.day import read_day
from kqueue.record.decoding import RecordedCycle
from kqueue.record.queries import Filter, cycles, rows, save
from kqueue.record.recorder import DecisionRecorder
from kqueue.record.records import Record
from kqueue.record.replay import replay
from kqueue.record.ring import RingSettings
from kqueue.scheduling import strict_lines
from kqueue.scheduling.settings import LoopSettings
from tests.builders import START
from tests.unit.controllers.builders import make_cluster_queue, make_workload
from tests.unit.record.test_recorder import Counts
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]


class Recorded:
    """A world whose plans are recorded.  Its ClusterQueue has 10 cores; the workload `big` does not fit."""

    def __init__(self, make: Make, folder: Path, strategy: str) -> None:
        self.folder = folder
        settings = RingSettings(path=folder, max_bytes=1 << 24, max_age=timedelta(days=1), version="v9.9.9")
        self.recorder = DecisionRecorder(settings, count=Counts(), now=lambda: START)
        queue = make_cluster_queue(queueingStrategy=strategy)
        self.world = make((CLUSTER_QUEUES, queue), settings=LoopSettings(recorder=self.recorder))

    async def cycle(self, *, seconds: int = 2) -> None:
        """One cycle, some time later, after something woke the queue."""
        await self.world.clock.advance(seconds)
        self.world.queues.flush(["team"])
        await self.world.cycle()

    def end(self, name: str) -> None:
        """A workload is deleted."""
        self.world.client.drop(WORKLOADS, f"ns/{name}")
        self.world.sync()

    def lines(self) -> list[dict[str, set[str]]]:
        """The lines of all cycles, by ClusterQueue, as names of workloads."""
        self.recorder.stop()
        return [_names(found.recorded()) for found in Record(self.folder).cycles()]


def _names(cycle: RecordedCycle) -> dict[str, set[str]]:
    return {queue: {head.key.partition("/")[2] for head in line.values()} for queue, line in cycle.lines.items()}


async def test_workloads_behind_a_head_are_recorded_as_they_come_and_go(make: Make, tmp_path: Path) -> None:
    recorded = Recorded(make, tmp_path / "ring", "StrictFIFO")
    world = recorded.world
    for name, cpus in (("big", 30), ("small", 1), ("other", 2)):
        world.add(make_workload(name, cpus=cpus))
    await recorded.cycle()
    world.add(make_workload("late", cpus=1))
    await recorded.cycle()
    recorded.end("small")
    await recorded.cycle()
    recorded.end("big")
    await recorded.cycle()
    await recorded.cycle()
    assert recorded.lines() == [
        {"team": {"small", "other"}},
        {"team": {"small", "other", "late"}},
        {"team": {"other", "late"}},
        {"team": {"other"}},  # of equal workloads the smaller UID goes first
        {"team": set()},
    ]
    assert all(replay(found.recorded()).equal for found in Record(tmp_path / "ring").cycles())


async def test_a_workload_behind_a_head_is_found_and_copied(make: Make, tmp_path: Path) -> None:
    """The rows say why it is not tried, also in a copy of its part."""
    recorded = Recorded(make, tmp_path / "ring", "StrictFIFO")
    for name, cpus in (("big", 30), ("small", 1)):
        recorded.world.add(make_workload(name, cpus=cpus))
    await recorded.cycle()
    recorded.end("big")
    await recorded.cycle()
    recorded.recorder.stop()

    wanted = Filter(workload="ns/small")
    target = tmp_path / "part.kqrecord"
    assert save(Record(tmp_path / "ring"), wanted, target) == 2
    for path in (tmp_path / "ring", target):
        found = [row for cycle in cycles(Record(path), wanted) for row in rows(cycle, wanted)]
        assert [row["decision"] for row in found] == ["NotTried", "Admit"]
        assert found[0]["cause"] == "ClusterQueue team is StrictFIFO, and ns/big comes first"
        assert [row["decision"] for c in cycles(Record(path), Filter()) for row in rows(c, Filter())] == [
            "Wait",
            "Admit",
        ]
    assert list(cycles(Record(target), Filter(workload="ns/small", queue="elsewhere"))) == []


async def test_a_day_has_the_strategy_of_the_record_and_all_that_waited(make: Make, tmp_path: Path) -> None:
    recorded = Recorded(make, tmp_path / "ring", "StrictFIFO")
    for name, cpus in (("big", 30), ("small", 1), ("other", 1)):
        recorded.world.add(make_workload(name, cpus=cpus))
    await recorded.cycle()
    recorded.recorder.stop()
    day = read_day(Record(tmp_path / "ring"), Filter())
    assert {one.head.key for one in day.arrivals.values()} == {"ns/big", "ns/small", "ns/other"}
    (line,) = question_of(day, DayPolicy()).lines
    assert line.is_strict
    assert {one.head.key for one in line.workloads} == {"ns/big", "ns/small", "ns/other"}


@pytest.mark.parametrize("turned", [False, True], ids=["always", "since-a-change"])
async def test_a_best_effort_queue_has_no_line(make: Make, tmp_path: Path, *, turned: bool) -> None:
    recorded = Recorded(make, tmp_path / "ring", "StrictFIFO" if turned else "BestEffortFIFO")
    for name, cpus in (("big", 30), ("small", 1)):
        recorded.world.add(make_workload(name, cpus=cpus))
    await recorded.cycle()
    if turned:
        recorded.world.client.put(CLUSTER_QUEUES, make_cluster_queue(queueingStrategy="BestEffortFIFO"))
        recorded.world.sync()
        await recorded.cycle()
        assert recorded.lines() == [{"team": {"small"}}, {}]
    else:
        assert recorded.lines() == [{}]
    assert list(cycles(Record(tmp_path / "ring"), Filter(workload="ns/small")))[turned:] == []


async def test_a_long_line_is_made_in_parts(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle makes a few heads, and no line is longer than the bound."""
    monkeypatch.setattr(strict_lines, "_MOST", 40)
    recorded = Recorded(make, tmp_path / "ring", "StrictFIFO")
    recorded.world.add(make_workload("big", cpus=30))
    for n in range(50):
        recorded.world.add(make_workload(f"w{n}", cpus=1))
    for _ in range(4):
        await recorded.cycle(seconds=0)
    assert [len(line["team"]) for line in recorded.lines()] == [16, 32, 40, 40]


async def test_a_workload_whose_requests_cannot_be_read_is_left_out(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(make, tmp_path / "ring", "StrictFIFO")
    for name, cpus in (("big", 30), ("small", 1), ("other", 1)):
        recorded.world.add(make_workload(name, cpus=cpus))
    heads = recorded.world.loop.planning.heads
    make_head = heads.make

    def fails(obj: object, *about: object, **more: object) -> object:
        if obj.metadata.name == "small":  # type: ignore[attr-defined]
            raise ValueError("no number")
        return make_head(obj, *about, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(heads, "make", fails)
    await recorded.cycle()
    assert recorded.lines() == [{"team": {"other"}}]
