"""Run times are learned from the watch in every process, and kept in a ConfigMap by the leader."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock, utc_text
from kqueue.controllers.resources import CONFIG_MAPS, WORKLOADS
from kqueue.controllers.run_times import RunSummaryStore, RunTimeTeacher
from kqueue.core.future.learned import MOST_REMEMBERED, LearnedRunTimes
from kqueue.errors import ApiError, ForbiddenError, NotFoundError, ServerError
from kqueue.runtime.store import Store
from kqueue.state.run_times import RunTimes
from tests.unit.controllers.builders import JSON, make_workload, read
from tests.unit.controllers.fakes import FakeClient

KEY = "kueue-system/kqueue-run-times"
INTERVAL = 300.0


class Process:
    """A process with the watch of a server; `leads`: it writes, too."""

    def __init__(self, client: FakeClient, clock: FakeClock) -> None:
        self.client, self.clock = client, clock
        self.learned = LearnedRunTimes(most_groups=100)
        self.times = RunTimes(self.learned, clock.now)
        self.workloads: Store[wire.Workload] = Store("workloads")
        self.settled = asyncio.Event()
        self.teacher = RunTimeTeacher(
            self.learned,
            self.times,
            store=RunSummaryStore(client, "kueue-system"),
            workloads=cast("Any", SimpleNamespace(store=self.workloads, settled=self.settled)),
            clock=clock,
            interval=INTERVAL,
        )
        self.workloads.subscribe(self.teacher.on_workload)
        client.watch(WORKLOADS, self.workloads, lambda obj: read(wire.Workload, obj))
        self.tasks = [asyncio.create_task(self.teacher.read())]

    async def starts(self, *, leads: bool = True) -> None:
        """The watch brings its first state."""
        self.client.sync()
        self.settled.set()
        if leads:
            self.tasks.append(asyncio.create_task(self.teacher.keep()))
        await self.clock.advance(0)

    async def ends(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def runs(self) -> int:
        """The runs that are known of Workloads like `job-0`."""
        return self.times.of(job(self.clock, 0)).samples


def job(clock: FakeClock, number: int, *, seconds: float | None = None, ago: float = 0.0) -> wire.Workload:
    found: wire.Workload = read(wire.Workload, job_json(clock, number, seconds=seconds, ago=ago))
    return found


def job_json(clock: FakeClock, number: int, *, seconds: float | None = None, ago: float = 0.0) -> JSON:
    """The Workload of Job `job-NUMBER`; it has run for these seconds and ended so long ago."""
    ended = clock.now().timestamp() - ago
    times = [] if seconds is None else [("Admitted", ended - seconds, "Admitted"), ("Finished", ended, "Succeeded")]
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": _text(at)}
        for kind, at, reason in times
    ]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number}", "uid": "j", "controller": True}
    obj = make_workload(f"job-{number}", status={"conditions": conditions})
    return {**obj, "metadata": {**obj["metadata"], "uid": f"u{number}", "ownerReferences": [owner]}}


def _text(moment: float) -> str:
    return utc_text(datetime.fromtimestamp(moment, UTC))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def finish(process: Process, first: int, count: int) -> None:
    """Jobs of ten minutes finish, one each quarter of an hour."""
    for number in range(first, first + count):
        await process.clock.advance(900)
        process.client.put(WORKLOADS, job_json(process.clock, number, seconds=600))
        process.client.sync()


def written(client: FakeClient) -> str:
    found = client.object(CONFIG_MAPS, KEY)
    assert found is not None
    return str(found["data"]["summary.json"])


async def test_the_leader_writes_what_it_learns_at_a_bounded_rate(clock: FakeClock) -> None:
    """One write for all changes of an interval; none without a change."""
    client = FakeClient()
    leader = Process(client, clock)
    await leader.starts()
    await clock.advance(10_000)
    assert client.writes() == []
    for number in range(50):
        await clock.advance(60)
        client.put(WORKLOADS, job_json(clock, number, seconds=600))
        client.sync()
    await clock.advance(600)
    assert leader.runs() >= 16
    assert 10 <= len(client.writes()) <= 12
    before = len(client.writes())
    await clock.advance(10_000)
    assert len(client.writes()) == before
    await leader.ends()


async def test_a_restart_knows_what_was_learned_and_counts_nothing_twice(clock: FakeClock) -> None:
    """Finished Workloads that still exist come again with the watch."""
    client = FakeClient()
    first = Process(client, clock)
    await first.starts()
    await finish(first, 0, 8)
    await clock.advance(600)
    await first.ends()
    kept = written(client)

    second = Process(client, clock)
    await second.starts()
    assert (second.runs(), second.times.of(job(clock, 0))) == (8, first.times.of(job(clock, 0)))
    await clock.advance(10_000)
    assert written(client) == kept
    await finish(second, 8, 1)
    assert second.runs() == 9
    await second.ends()


async def test_what_was_not_written_is_learned_again(clock: FakeClock) -> None:
    """The leader dies before its next write; Workloads that still exist teach the next one."""
    client = FakeClient()
    first = Process(client, clock)
    await first.starts()
    await finish(first, 0, 4)
    await clock.advance(600)
    await first.ends()
    for number in range(4, 8):
        client.put(WORKLOADS, job_json(clock, number, seconds=600))
    second = Process(client, clock)
    await second.starts()
    assert second.runs() == 8
    await second.ends()


async def test_ten_thousand_finished_workloads_teach_in_the_order_of_their_ends(clock: FakeClock) -> None:
    """They come in the order of their names, which is the reverse one here; here three times as many as remembered."""
    client = FakeClient()
    for number in range(3 * MOST_REMEMBERED):
        client.put(WORKLOADS, job_json(clock, number, seconds=600, ago=60 * (number + 1)))
    process = Process(client, clock)
    await process.starts(leads=False)
    summary = process.learned.summary()
    assert len(summary.remembered) == MOST_REMEMBERED
    ends = [ended for _, ended in summary.remembered]
    assert ends == sorted(ends)
    assert process.learned.changes == 3 * MOST_REMEMBERED
    await process.ends()


async def test_a_follower_learns_and_writes_nothing(clock: FakeClock) -> None:
    client = FakeClient()
    follower = Process(client, clock)
    await follower.starts(leads=False)
    await finish(follower, 0, 8)
    assert follower.runs() == 8
    assert client.writes() == []
    follower.tasks.append(asyncio.create_task(follower.teacher.keep()))
    await clock.advance(20)
    assert len(client.writes()) == 1
    await follower.ends()


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param({"summary.json": "{"}, "truncated", id="cut-off"),
        pytest.param({"other": "x"}, "is missing", id="no-key"),
        pytest.param({}, "is missing", id="empty"),
        pytest.param(
            {
                "summary.json": '{"version":1,"floor":0,"remembered":[],'
                '"namespaces":{"a":[["0000000000000000",0,0,[[900,1]]]]}}'
            },
            "group 0000000000000000 of namespace a: bucket 900",
            id="impossible",
        ),
    ],
)
async def test_a_damaged_config_map_is_refused_with_the_place(clock: FakeClock, data: JSON, place: str) -> None:
    """Everything is learned anew, and the next write repairs it."""
    client = FakeClient()
    client.put(CONFIG_MAPS, {"metadata": {"name": "kqueue-run-times", "namespace": "kueue-system"}, "data": data})
    for number in range(6):
        client.put(WORKLOADS, job_json(clock, number, seconds=600, ago=60))
    with structlog.testing.capture_logs() as logs:
        process = Process(client, clock)
        await process.starts()
    (line,) = [line for line in logs if "cannot be read" in line["event"]]
    assert line["place"] == f"ConfigMap {KEY}, data[summary.json]"
    assert place in line["error"]
    assert process.runs() == 6
    await clock.advance(20)
    assert '"version":1' in written(client)
    await process.ends()


async def test_without_rights_run_times_are_learned_and_not_kept(clock: FakeClock) -> None:
    """One line says which rights are missing; no request is repeated."""
    client = FakeClient()
    client.fail(ForbiddenError("no", status=403), verb="get", times=100)
    with structlog.testing.capture_logs() as logs:
        process = Process(client, clock)
        await process.starts()
        await finish(process, 0, 8)
    (line,) = [line for line in logs if line["log_level"] == "warning"]
    assert "runTimes.learn" in line["remedy"]
    assert process.runs() == 8
    assert len(client.calls) == 1
    await process.ends()


@pytest.mark.parametrize(
    "error", [ServerError("no", status=500), ForbiddenError("no", status=403)], ids=["server", "rights"]
)
async def test_a_write_that_fails_is_tried_again_after_an_interval(clock: FakeClock, error: ApiError) -> None:
    client = FakeClient()
    client.fail(error, verb="patch", times=2)
    process = Process(client, clock)
    await process.starts()
    await finish(process, 0, 1)
    await clock.advance(11)
    assert client.object(CONFIG_MAPS, KEY) is None
    await clock.advance(2 * INTERVAL)
    assert len(client.writes()) == 3
    assert written(client)
    await process.ends()


async def test_a_missing_namespace_is_told_once(clock: FakeClock) -> None:
    client = FakeClient()
    client.fail(NotFoundError("no", status=404), verb="patch", times=100)
    with structlog.testing.capture_logs() as logs:
        process = Process(client, clock)
        await process.starts()
        await finish(process, 0, 8)
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "learned run times are not kept: the namespace does not exist"
    ]
    assert len(client.writes()) == 1
    assert process.runs() == 8
    await process.ends()


async def test_nothing_is_written_before_the_config_map_was_read(clock: FakeClock) -> None:
    """Otherwise a server that answers late would cost all that was known."""
    client = FakeClient()
    client.fail(ServerError("no", status=500), verb="get", times=5)
    process = Process(client, clock)
    await process.starts()
    client.put(WORKLOADS, job_json(clock, 0, seconds=600))
    client.sync()
    await clock.advance(45)
    assert client.writes() == []
    await clock.advance(60)
    assert len(client.writes()) == 1
    await process.ends()
