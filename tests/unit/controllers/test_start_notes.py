"""Start times reach the annotation of waiting Workloads at a bounded rate, and nothing else does."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
import structlog

from kqueue.api.run_time_names import START_TIME_ANNOTATION
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock, utc_text
from kqueue.config.start_times import StartTimeSettings
from kqueue.controllers.resources import WORKLOADS
from kqueue.controllers.start_notes import StartNotes
from kqueue.core.future.told import ToldStart
from kqueue.errors import ForbiddenError, InvalidError, ServerError
from kqueue.runtime.lane import Lane
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, make_workload, read, reserved
from tests.unit.controllers.fakes import FakeClient


class Process:
    """A leader whose start times a test chooses, in minutes from the begin."""

    def __init__(self, *, annotate: bool = True, writes_per_second: int = 50) -> None:
        self.client, self.clock = FakeClient(), FakeClock()
        self.begin = self.clock.now()
        self.workloads: Store[wire.Workload] = Store("workloads")
        self.client.watch(WORKLOADS, self.workloads, lambda obj: read(wire.Workload, obj))
        self.told: dict[str, ToldStart] | None = {}
        self.failure: Exception | None = None
        self.asked = 0
        writer: StatusWriter[wire.Workload] = StatusWriter(
            self.client,
            WORKLOADS,
            store=self.workloads,
            decode=wire.Workload,
            key_of=lambda w: f"{w.metadata.namespace}/{w.metadata.name}",
            version_of=lambda w: w.metadata.resource_version,
        )
        self.notes = StartNotes(
            workloads=self.workloads,
            writer=writer,
            told=self._told,
            clock=self.clock,
            settings=StartTimeSettings(annotate=annotate, writes_per_second=writes_per_second),
        )
        self.workloads.subscribe(self.notes.on_workload)
        self.task: asyncio.Task[None] | None = None

    async def _told(self) -> dict[str, ToldStart] | None:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.told

    def add(self, name: str, note: str | None = None, status: JSON | None = None) -> None:
        metadata = {"annotations": {START_TIME_ANNOTATION: note}} if note is not None else {}
        obj = make_workload(name, status=status)
        self.client.put(WORKLOADS, {**obj, "metadata": {**obj["metadata"], **metadata}})
        self.client.sync()

    def tells(self, name: str, p50: float | None, p90: float | None = None, **more: Any) -> None:
        """The start of a workload, in minutes from the begin."""
        assert self.told is not None
        times = [self.begin + timedelta(minutes=m) if m is not None else None for m in (p50, p90)]
        self.told[f"ns/{name}"] = ToldStart(
            **{
                "uid": f"uid-of-{name}",
                "key": f"ns/{name}",
                "queue": "team",
                "at": self.clock.now(),
                "p50": times[0],
                "p90": times[1],
                **more,
            }
        )

    async def passes(self, seconds: float = 300) -> None:
        if self.task is None:
            self.task = asyncio.create_task(self.notes.run())
        await self.clock.advance(seconds)
        self.client.sync()
        await self.clock.advance(0)

    def note(self, name: str) -> JSON | None:
        found = self.client.object(WORKLOADS, f"ns/{name}")
        assert found is not None
        text = (found["metadata"].get("annotations") or {}).get(START_TIME_ANNOTATION)
        return dict(json.loads(text)) if text is not None else None

    def written(self) -> list[str]:
        return [call.key.removeprefix("ns/") for call in self.client.writes()]


async def test_waiting_workloads_get_their_start_times_the_nearest_first() -> None:
    """Each as one merge patch of the annotation alone; those without a time come last, with their reason."""
    process = Process()
    for name in ("late", "never", "soon"):
        process.add(name)
    process.tells("late", 60, 90)
    process.tells("never", None, reason="NotInSight", message="it does not start")
    process.tells("soon", 10, 20)
    await process.passes(10)
    assert process.written() == ["soon", "late", "never"]
    assert process.note("soon") == {
        "p50": utc_text(process.begin + timedelta(minutes=10)),
        "p90": utc_text(process.begin + timedelta(minutes=20)),
        "generatedAt": utc_text(process.begin),
    }
    assert process.note("never") == {
        "reason": "NotInSight",
        "message": "it does not start",
        "generatedAt": utc_text(process.begin),
    }
    for call in process.client.writes():
        metadata = call.body["metadata"]
        assert (call.lane, call.subresource, set(call.body)) == (Lane.WORDS, "", {"metadata"})
        assert set(metadata) == {"annotations", "resourceVersion"}
        assert set(metadata["annotations"]) == {START_TIME_ANNOTATION}


async def test_a_bounded_number_of_writes_fits_in_a_second() -> None:
    process = Process(writes_per_second=2)
    for number in range(100):
        process.add(f"w{number:03}")
        process.tells(f"w{number:03}", number, number)
    await process.passes(9.9)
    assert process.written() == [f"w{number:03}" for number in range(20)]


@pytest.mark.parametrize(
    ("minutes", "writes"),
    [
        pytest.param((60, 90), 0, id="same"),
        pytest.param((64, 90), 0, id="below the smallest change"),
        pytest.param((67, 90), 1, id="p50 moved"),
        pytest.param((60, 120), 1, id="p90 moved"),
        pytest.param((60, None), 1, id="p90 lost"),
        pytest.param((None, None), 1, id="no time"),
    ],
)
async def test_only_changes_that_are_worth_it_are_written(minutes: tuple[float, float], writes: int) -> None:
    process = Process()
    process.add("a")
    process.tells("a", 60, 90)
    await process.passes()
    process.tells("a", *minutes)
    await process.passes()
    assert len(process.client.writes()) == 1 + writes


async def test_far_starts_move_by_more_before_they_are_written() -> None:
    """A tenth of the time until then."""
    process = Process()
    process.add("a")
    process.tells("a", 1_000, 2_000)
    await process.passes()
    process.tells("a", 1_090, 2_150)
    await process.passes()
    assert len(process.client.writes()) == 1
    process.tells("a", 1_150, 2_150)
    await process.passes()
    assert len(process.client.writes()) == 2


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param("", id="empty"),
        pytest.param("now", id="no JSON"),
        pytest.param("[" * 100_000, id="huge"),
        pytest.param('{"p50":"2026-01-01T00:01:00Z","p90":"2026-01-01T00:01:00Z"}', id="another time"),
        pytest.param(
            '{"p50":"2026-01-01T01:00:00Z","p90":"2026-01-01T01:30:00Z","generatedAt":"2026-01-01T00:00:00Z","x":1}',
            id="more fields",
        ),
        pytest.param(
            '{"p50":"2026-01-01T01:00:00Z","p90":"2026-01-01T01:30:00Z","generatedAt":"2999-01-01T00:00:00Z"}',
            id="of the future",
        ),
    ],
)
async def test_a_forged_annotation_is_replaced(forged: str) -> None:
    """Both while the workload waits and at once where it does not."""
    process = Process()
    process.add("waits", forged)
    process.add("runs", forged, reserved())
    process.add("unknown", forged)
    process.tells("waits", 60, 90)
    await process.passes(10)
    found = process.note("waits")
    assert found is not None
    assert found["p50"] == utc_text(process.begin + timedelta(minutes=60))
    assert (process.note("runs"), process.note("unknown")) == (None, None)


async def test_a_workload_that_starts_loses_its_annotation_before_others_get_theirs() -> None:
    process = Process(writes_per_second=1)
    process.add("a")
    process.tells("a", 1, 2)
    await process.passes(30)
    process.add("a", json.dumps(process.note("a")), reserved())
    process.add("b")
    process.tells("b", 5, 6)
    await process.passes(5)
    assert process.note("a") is None
    await process.passes()
    assert process.written() == ["a", "a", "b"]


async def test_an_older_workload_of_the_same_name_says_nothing() -> None:
    process = Process()
    process.add("a")
    process.tells("a", 1, 2, uid="of-another")
    await process.passes(30)
    assert process.client.writes() == []


async def test_one_broken_workload_stops_no_other() -> None:
    """Another webhook refuses it, and the log says so; it has its turn again."""
    process = Process()
    for name in ("bad", "good"):
        process.add(name)
    process.tells("bad", 1, 2)
    process.tells("good", 5, 6)
    process.client.fail(InvalidError("refused", status=422), key="ns/bad")
    with structlog.testing.capture_logs() as logs:
        await process.passes(10)
    assert process.note("good") is not None
    assert [line["workload"] for line in logs] == ["ns/bad"]
    await process.passes()
    assert process.note("bad") is not None


async def test_failures_of_all_writes_fill_no_log() -> None:
    process = Process()
    for number in range(20):
        process.add(f"w{number}")
        process.tells(f"w{number}", number, number)
    process.client.fail(ForbiddenError("no", status=403), times=100)
    with structlog.testing.capture_logs() as logs:
        await process.passes(310)
    assert [line for line in logs if line.get("workloads") == 17]
    assert len(logs) <= 7
    assert "startTimes.annotate" in logs[0]["remedy"]


@pytest.mark.parametrize(
    "failure", [pytest.param(ServerError("down", status=500), id="error"), pytest.param(None, id="not known")]
)
async def test_annotations_stay_while_start_times_are_not_known(failure: Exception | None) -> None:
    process = Process()
    process.add("a")
    process.tells("a", 60, 90)
    await process.passes()
    process.told, process.failure = None, failure
    await process.passes(600)
    assert process.note("a") is not None
    assert process.asked >= 3
    assert len(process.client.writes()) == 1


async def test_switched_off_annotations_are_removed_and_nothing_is_asked() -> None:
    process = Process(annotate=False)
    process.add("a", "{}")
    process.add("b")
    await process.passes(10)
    assert process.note("a") is None
    assert process.written() == ["a"]
    assert process.asked == 0
    assert process.task is not None
    assert process.task.done()
