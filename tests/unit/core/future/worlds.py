"""Futures that are computed by hand: workloads that run and wait, with their run times in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kqueue.core.future.question import DrainBounds, Line, StartQuestion, WaitingWorkload, WorkloadRun
from kqueue.core.future.run_time import NOT_KNOWN, RunTime, RunTimeSource
from kqueue.core.future.start_times import StartTimes, start_times
from kqueue.core.preemption import Rules
from kqueue.core.workload import Head, Snapshot
from tests.unit.core.why_cases import make_world

Times = int | tuple[int, int] | RunTime | None
"""A promised run time, p50 and p90, or what is known; None: nothing is known."""


def run_time(times: Times) -> RunTime:
    """The run time of a workload."""
    match times:
        case RunTime():
            return times
        case int():
            return RunTime(p50=times, p90=times, promised=times, source=RunTimeSource.PROMISED)
        case (p50, p90):
            return RunTime(p50=p50, p90=p90, source=RunTimeSource.LEARNED, samples=9)
    return NOT_KNOWN


def shape(head: Head) -> str:
    """Equal for workloads that are tried alike."""
    return repr((head.priority, head.pod_sets))


def waits(head: Head, times: Times = None, **more: Any) -> WaitingWorkload:
    """A workload that waits."""
    return WaitingWorkload(head=head, run_time=run_time(times), shape=shape(head), **more)


def ask(
    snapshot: Snapshot,
    running: Sequence[tuple[Head, Times]],
    waiting: Sequence[WaitingWorkload],
    *,
    strict: Sequence[str] = (),
    elapsed: Mapping[str, int] | None = None,
    bounds: DrainBounds | None = None,
    rules: Rules | None = None,
    evicted: Sequence[str] = (),
) -> StartQuestion:
    """The question for the start times of these workloads; each ClusterQueue has its own in the given order."""
    world = make_world(snapshot, *[head for head, _ in running], evicted=evicted)
    lines: dict[str, list[WaitingWorkload]] = {}
    for one in waiting:
        lines.setdefault(one.head.queue, []).append(one)
    return StartQuestion(
        state=replace(world, rules=rules) if rules is not None else world,
        lines=tuple(Line(queue=q, is_strict=q in strict, workloads=tuple(some)) for q, some in lines.items()),
        running={head.uid: _running(head, times, (elapsed or {}).get(head.uid, 0)) for head, times in running},
        bounds=bounds or DrainBounds(),
    )


def _running(head: Head, times: Times, elapsed: int) -> WorkloadRun:
    known = run_time(times)
    outlived = known.p50 is not None and elapsed >= known.p50
    return WorkloadRun(run_time=known, elapsed=elapsed, outlived=outlived, waits_as=waits(head, times))


def seconds(found: StartTimes) -> dict[str, tuple[int | None, int | None] | str]:
    """The interval of each workload, or the reason why it has none."""
    shown: dict[str, tuple[int | None, int | None] | str] = {}
    for uid, one in found.of.items():
        interval = tuple(None if start is None else start.seconds for start in (one.earlier, one.later))
        assert len(interval) == 2
        shown[uid] = str(one.reason.reason) if one.reason is not None and one.earlier is None else interval
    return shown


def starts(*args: Any, **more: Any) -> dict[str, tuple[int | None, int | None] | str]:
    """The intervals of the answer to `ask`."""
    return seconds(start_times(ask(*args, **more)))
