"""Spans of cycles and of the ways of Workloads."""

from __future__ import annotations

import asyncio
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.manager.tracing import WorkloadTracer
from kqueue.observe import Traces, traces_from

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
UID = "0123abcd-0000-4000-8000-00000000000f"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}


def workload(**conditions: int) -> wire.Workload:
    """A Workload with these conditions true since so many seconds after its creation."""
    since = {kind: (BEGIN + timedelta(seconds=after)).isoformat() for kind, after in conditions.items()}
    listed = [
        {"type": kind, "status": "True", "reason": f"{kind}Because", "message": "", "lastTransitionTime": text}
        for kind, text in since.items()
    ]
    obj = {
        "metadata": {"name": "w", "namespace": "ns", "uid": UID, "creationTimestamp": BEGIN.isoformat()},
        "spec": {"queueName": "lq", "podSets": []},
        "status": {"conditions": listed, "admission": {"clusterQueue": "q", "podSetAssignments": []}},
    }
    return msgspec.convert(obj, wire.Workload, strict=False)


class Noted(Traces):
    """Keeps what is told."""

    def __init__(self) -> None:
        self.stretches: list[tuple[str, float, float, str]] = []

    def stretch(self, name: str, *, uid: str, began: float, ended: float, attributes: Any) -> None:
        assert (uid, attributes["kqueue.workload"], attributes["kqueue.cluster_queue"]) == (UID, "ns/w", "q")
        start = BEGIN.timestamp()
        self.stretches.append((name, began - start, ended - start, attributes.get("kqueue.ended_by", "")))


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param({}, {"QuotaReserved": 5, "Admitted": 5}, [("queued", 0, 5, "")], id="reserved and admitted"),
        pytest.param({}, {"QuotaReserved": 5}, [("queued", 0, 5, "")], id="reserved"),
        pytest.param({"Requeued": 3}, {"Requeued": 3, "QuotaReserved": 5}, [("queued", 3, 5, "")], id="queued again"),
        pytest.param({"QuotaReserved": 5}, {"QuotaReserved": 5, "Admitted": 8}, [("checks", 5, 8, "")], id="checked"),
        pytest.param({"Admitted": 5}, {"Admitted": 5, "PodsReady": 9}, [("starting", 5, 9, "")], id="started"),
        pytest.param({"Admitted": 5, "PodsReady": 9}, {"Admitted": 5, "PodsReady": 9, "Finished": 60},
                     [("running", 9, 60, "FinishedBecause")], id="finished"),
        pytest.param({"Admitted": 5}, {"Admitted": 5, "Evicted": 7}, [("running", 5, 7, "EvictedBecause")], id="evicted"),
        pytest.param({"Admitted": 5}, {"Admitted": 5}, [], id="nothing new"),
        pytest.param(None, {"Admitted": 5}, [], id="from before the watch"),
    ],
)  # fmt: skip
def test_a_stretch_is_told_when_it_is_over(
    old: dict[str, int] | None, new: dict[str, int], want: list[tuple[str, float, float, str]]
) -> None:
    """With its own times, and by whom it was ended."""
    noted = Noted()
    before = workload(**old) if old is not None else None
    WorkloadTracer(noted, FakeClock(), lambda: True).on_workload(before, workload(**new))
    assert noted.stretches == want

    WorkloadTracer(noted, FakeClock(), lambda: False).on_workload(before, workload(**new))
    assert noted.stretches == want, "a follower tells nothing"


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="no endpoint"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, id="an empty one"),
        pytest.param(ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, id="switched off"),
    ],
)
def test_traces_are_off_until_they_are_asked_for(environ: dict[str, str]) -> None:
    """The library is not even loaded."""
    assert traces_from(environ) is None


def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that an operator puts into every pod must not keep a controller from starting."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert traces_from(ENDPOINT) is None


async def test_all_spans_of_a_workload_are_one_trace() -> None:
    """Its id is the UID; cycles have traces of their own, and keep their times and attributes."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    traces = traces_from(ENDPOINT, exporter=exporter)
    assert traces is not None
    traces.stretch("queued", uid=UID, began=10, ended=12.5, attributes={"kqueue.workload": "ns/w"})
    traces.cycle(began=12, ended=12.25, attributes={"kqueue.heads": 3})
    traces.stretch("starting", uid=UID, began=13, ended=11, attributes={})
    traces.stretch("queued", uid="no-uid", began=1, ended=2, attributes={})
    await traces.finish(5)

    queued, cycle, starting, odd = exporter.get_finished_spans()
    assert format(queued.context.trace_id, "032x") == UID.replace("-", "")
    assert starting.context.trace_id == queued.context.trace_id
    assert len({queued.context.trace_id, cycle.context.trace_id, odd.context.trace_id}) == 3
    assert (cycle.start_time, cycle.end_time, cycle.attributes) == (12 * 10**9, 12.25 * 10**9, {"kqueue.heads": 3})
    assert (starting.start_time, starting.end_time) == (13 * 10**9, 13 * 10**9), "clocks that disagree"
    assert queued.resource.attributes["service.name"] == "kqueue"


async def test_a_collector_that_is_not_there_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends no later than `finish` may take, though the exporter still tries.

    The exporter's thread goes on for its own timeout and draws random pauses.  The test waits for that thread: a thread
    that outlives its test changes the state of `random`, and a property test of the same process then fails.
    """
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    for name, value in (ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}).items():
        monkeypatch.setenv(name, value)
    before = set(threading.enumerate())
    traces = traces_from()
    assert traces is not None
    traces.cycle(began=1, ended=2, attributes={})
    async with asyncio.timeout(5):
        await traces.finish(0.2)

    for thread in set(threading.enumerate()) - before:
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive(), thread.name
