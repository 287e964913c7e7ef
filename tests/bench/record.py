"""`record/*`: how long the record of decisions holds the event loop, with 12,500 nodes, 10,000 workloads that wait in 20
ClusterQueues, ten of them StrictFIFO, and 2,500 that run.

A cycle decides 20 heads, and there are five cycles a second: 100 decisions a second.  Before each cycle twelve workloads
end, and all ClusterQueues are woken.  Every 15th cycle begins a file, which has the whole state.  The first cycle of the
process counts.

    record/hold       without plugins
    record/plugins    a plugin judges workloads, flavors and every node of 12,500, and scores flavors

`hold_ms` is the processor time of the loop's thread in all calls of the recorder in one cycle, at most, `calls_ms` the
median, `hold_wall_ms` the longest time of them, in which other threads and processes ran, too.  `late_ms`
is how late a timer of 1 ms was at most while the thread of the recorder wrote what the cycle before had brought,
`begin_late_ms` the same in each cycle that begins a file, and `late_without_ms` in a world that records nothing: so much
is the machine's.  `thread_ms` is the processor
time of the thread for each cycle, `kb` the bytes on disk for each.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from kqueue.core.decision import Decision
from kqueue.core.hooks import HooksByProfile, ProfileHooks
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.plugins import AGREED, Verdict
from kqueue.core.share_order import NextHead
from kqueue.core.topology import Domain, NodeFacts, TopologyAssignment
from kqueue.core.workload import Flavor, Head, PodSet
from kqueue.record.capture import Lines
from kqueue.record.recorder import DecisionRecorder
from kqueue.record.records import Record
from kqueue.record.replay import replay
from kqueue.record.ring import RingSettings
from kqueue.runtime.loop import freeze_after_sync
from kqueue.scheduling.recording import PlanRecording
from kqueue.scheduling.settings import LoopSettings
from tests.bench._crowd import running
from tests.bench._scheduler import HOST, RACK, World
from tests.bench.table import Figure, Row, at_most, check

BLOCKS, RACKS, HOSTS = 25, 25, 20
NODES = BLOCKS * RACKS * HOSTS
QUEUES, WAITING = 20, 10_000
GANG, ENDING = 5, 12
GPUS, GPU = 8, "nvidia.com/gpu"
ASKS: Mapping[str, str] = {GPU: str(GPUS), "cpu": "32"}
QUOTA: Mapping[str, str] = {GPU: str(GPUS * NODES * 2), "cpu": str(64 * NODES * 2)}
CYCLES, PAUSE = 70, 0.2
"""Cycles, and the seconds between two."""
FILE_AGE = timedelta(seconds=3)
WHOLE_BYTES = 100_000
"""A cycle that takes more bytes begins a file."""
REPLAYED = 3
"""Cycles that are replayed at the end: the record must be right."""


class _Judge:
    """A plugin that agrees, but for some nodes."""

    name = "judge"

    def screen(self, head: Head) -> Verdict:
        return AGREED

    def allows_flavor(self, pod_set: PodSet, flavor: Flavor) -> str:
        return ""

    def allows_node(self, pod_set: PodSet, node: NodeFacts) -> str:
        return "not in this rack" if node.name.endswith("-h19") and pod_set.request.count % 2 else ""

    def score(self, prepared: Head, flavor: Flavor) -> int:
        return 50


class _TimedRecording:
    """A recording whose calls are timed."""

    def __init__(self, recording: PlanRecording, timed: _TimedRecorder) -> None:
        self._recording, self._timed = recording, timed
        self.question = recording.question

    def asking(self, next_head: NextHead) -> NextHead:
        return self._recording.asking(next_head)

    def decided(self, decision: Decision) -> None:
        with self._timed:
            self._recording.decided(decision)

    def ended(self, error: BaseException | None = None) -> None:
        with self._timed:
            self._recording.ended(error)


class _TimedRecorder:
    """A recorder that adds up the time of the calls of each cycle."""

    def __init__(self, recorder: DecisionRecorder) -> None:
        self._recorder, self._began = recorder, (0.0, 0.0)
        self.spent: list[tuple[float, float]] = []
        """By cycle: processor time of the loop's thread, and time."""

    def __enter__(self) -> None:
        self._began = time.thread_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        busy, whole = self.spent[-1]
        began, at = self._began
        self.spent[-1] = busy + time.thread_time() - began, whole + time.perf_counter() - at

    def begin(self, question: PlanQuestion, lines: Lines) -> PlanRecording:
        with self:
            recording = self._recorder.begin(question, lines)
        return _TimedRecording(recording, self)


class _Counts:
    """Counts cycles by result, their bytes, and the thread's processor time."""

    def __init__(self) -> None:
        self.cycles: Counter[str] = Counter()
        self.stored: list[int] = []
        self.thread: list[float] = []
        self._before: float | None = None

    def recorded(self, result: str, stored: int) -> None:
        """Called on the thread behind each cycle."""
        self.cycles[result] += 1
        self.stored.append(stored)
        now = time.thread_time()
        self.thread.append(now - (self._before or 0.0))
        self._before = now


def _host(block: int, rack: int, host: int) -> str:
    return f"b{block:02}-r{rack:02}-h{host:02}"


def _queue(i: int) -> str:
    return f"cq-{i:02}"


def fill(world: World) -> list[str]:
    """Nodes, ClusterQueues and workloads; return the keys of those that run."""
    world.flavor(topology=True)
    for i in range(QUEUES):
        strategy = "StrictFIFO" if i % 2 else "BestEffortFIFO"
        world.queue(_queue(i), quota=QUOTA, cohort=f"cohort-{i % 4}", queueingStrategy=strategy)
    there: Mapping[str, str | int] = {GPU: GPUS, "cpu": 64, "pods": 110}
    keys: list[str] = []
    for block in range(BLOCKS):
        for rack in range(RACKS):
            hosts = [_host(block, rack, host) for host in range(HOSTS)]
            for name in hosts:
                world.node(name, block=f"b{block:02}", rack=f"b{block:02}-r{rack:02}", allocatable=there)
            for first in range(0, HOSTS, GANG):
                where = TopologyAssignment((HOST,), tuple(Domain((h,), 1) for h in hosts[first : first + GANG]))
                queue = _queue(len(keys) % QUEUES)
                usage = {GPU: str(GPUS * GANG), "cpu": str(32 * GANG)}
                status = running(queue, usage, pods=GANG, where=where)
                world.workload(f"runs-{len(keys)}", queue=queue, pods=GANG, requests=ASKS, status=status)
                keys.append(f"{queue}/runs-{len(keys)}")
    for i in range(QUEUES):
        if i % 4 == 1:  # a head that never fits holds the line
            world.workload("first", queue=_queue(i), pods=HOSTS, requests=ASKS, topology={"required": RACK}, priority=9)
    for n in range(WAITING - QUEUES // 4):
        wish = {"required": RACK}
        world.workload(f"waits-{n}", queue=_queue(n % QUEUES), pods=1 + n % GANG, requests=ASKS, topology=wish)
    return keys


class _Stage:
    """A world with or without a record, and its cycles."""

    def __init__(self, path: Path | None, hooks: HooksByProfile) -> None:
        self.counts, self.timed, self.recorder = _Counts(), None, None
        if path is not None:
            settings = RingSettings(path=path, max_bytes=1 << 30, max_age=16 * FILE_AGE, version="v9.9.9")
            self.recorder = DecisionRecorder(settings, count=self.counts, now=lambda: self.world.clock.now())
            self.timed = _TimedRecorder(self.recorder)
        self.world = World(LoopSettings(recorder=self.timed, hooks=hooks))
        self._running = deque(fill(self.world))
        self._time_lines()
        self.decisions = 0

    def _time_lines(self) -> None:
        lines, timed = self.world.loop.planning._strict_lines, self.timed
        take = lines.take

        def timed_take(tried: Collection[Head]) -> Any:
            assert timed is not None
            timed.spent.append((0.0, 0.0))
            with timed:
                return take(tried)

        lines.take = timed_take  # type: ignore[method-assign]

    async def cycle(self) -> None:
        """Some workloads end, and one cycle decides the heads."""
        world = self.world
        for _ in range(ENDING):
            obj = world.writer.objects[self._running.popleft()]
            world.intake.on_workload(obj, None)
        await world.clock.advance(PAUSE)
        world.queues.flush([_queue(i) for i in range(QUEUES)])
        await world.cycle()
        for key, patches in world.writer.patches.items():
            self.decisions += 1
            if any("admission" in patch["status"] for patch in patches):
                self._running.append(key)
        world.writer.patches.clear()


async def _latest(seconds: float) -> float:
    """How late a timer of a millisecond was at most in these seconds."""
    latest, until = 0.0, time.perf_counter() + seconds
    while (now := time.perf_counter()) < until:
        await asyncio.sleep(0.001)
        latest = max(latest, time.perf_counter() - now - 0.001)
    return latest


async def _run(path: Path | None, hooks: HooksByProfile) -> tuple[_Stage, list[float]]:
    stage, late = _Stage(path, hooks), list[float]()
    for _ in stage.world.cache.ledger.build_steps():
        pass
    gc.collect()
    freeze_after_sync()
    for _ in range(CYCLES):
        await stage.cycle()
        late.append(await _latest(PAUSE))
    await stage.world.close()
    gc.unfreeze()
    return stage, late


def _check_record(path: Path, cycles: int) -> None:
    """Check that the record has all cycles, and that some of them are replayed as they were."""
    number = behind = 0
    for found in Record(path).cycles():
        number += 1
        if number > cycles - REPLAYED:
            recorded = found.recorded()
            behind = max(behind, sum(map(len, recorded.lines.values())))
            answer = replay(recorded)
            check(answer.equal and not answer.remarks, f"cycle {found.name} is not replayed: {answer}")
    check(number == cycles, f"{number} of {cycles} cycles are in the record")
    check(behind > 500, f"{behind} workloads are known behind heads")


def held(hooks: HooksByProfile) -> Iterator[Figure]:
    """The world with the record, and the same one without."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record"
        stage, late = asyncio.run(_run(path, hooks))
        assert stage.recorder is not None
        assert stage.timed is not None
        stage.recorder.stop(timeout=60)
        check(stage.counts.cycles == {"written": CYCLES}, f"cycles are {dict(stage.counts.cycles)}")
        check(len(list(path.iterdir())) > 2, "no file was ended")
        _check_record(path, CYCLES)
    _, without = asyncio.run(_run(None, hooks))
    spent = [busy * 1e3 for busy, _ in stage.timed.spent]
    yield Figure("decisions_per_s", [stage.decisions / CYCLES / PAUSE])
    yield Figure("hold_ms", [max(spent)], at_most(20))
    yield Figure("hold_wall_ms", [max(whole for _, whole in stage.timed.spent) * 1e3])
    yield Figure("calls_ms", [statistics.median(spent)])
    begins = [beat * 1e3 for beat, stored in zip(late, stage.counts.stored, strict=True) if stored > WHOLE_BYTES]
    check(len(begins) >= CYCLES // 20, f"{len(begins)} cycles began a file")
    yield Figure("begin_late_ms", begins, at_most(20))
    yield Figure("late_ms", [max(late) * 1e3])
    yield Figure("late_without_ms", [max(without) * 1e3])
    yield Figure("thread_ms", [statistics.median(stage.counts.thread) * 1e3])
    yield Figure("kb", [statistics.median(stage.counts.stored) / 1e3])


def _judged() -> HooksByProfile:
    judge: Any = _Judge()
    return {"default": ProfileHooks(screens=(judge,), filters=(judge,), scores=(judge,))}


ROWS = (
    Row("record/hold", partial(held, {}), alone=True),
    Row("record/plugins", lambda: held(_judged()), alone=True),
)
