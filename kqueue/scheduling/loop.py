"""The shell of cycles: runs them while there is something to try, and waits for the writes that they began.

Writes run beside the loop: an admission is charged to the cache at once, so the next cycle need not wait for the API
server.  When the write fails, the charge is released and the workload returns to its place in the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import structlog

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.isolation import isolated
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.turns import Turns
from kqueue.scheduling.admissions import Admissions
from kqueue.scheduling.alarm import Alarm
from kqueue.scheduling.applying import DecisionApplier
from kqueue.scheduling.context import Context, Lookups, SchedulingState
from kqueue.scheduling.cycle_runner import CycleEnd, CycleParts, CycleRunner
from kqueue.scheduling.evictions import Evictions
from kqueue.scheduling.failing_workloads import FailingWorkloads
from kqueue.scheduling.fault_isolation import FaultIsolation
from kqueue.scheduling.gang_runs import GangRuns
from kqueue.scheduling.joint.batches import BatchReader, IsJoint
from kqueue.scheduling.joint.process import RoundPlanner
from kqueue.scheduling.joint.rounds import JointRounds, RoundSettings
from kqueue.scheduling.observers import Observer
from kqueue.scheduling.pace import WritePace
from kqueue.scheduling.planning import PlanMaker
from kqueue.scheduling.put_back import PutBack
from kqueue.scheduling.reading import HeadReader
from kqueue.scheduling.repeated_tries import RepeatedTries
from kqueue.scheduling.scan_memories import ScanMemories
from kqueue.scheduling.second_passes import SecondPasses
from kqueue.scheduling.settings import LoopSettings
from kqueue.scheduling.start_plans import StartPlanner
from kqueue.scheduling.victims import Victims
from kqueue.scheduling.waiting import Waiting
from kqueue.scheduling.waits import PendingReasons
from kqueue.scheduling.writes import Writes

_log = structlog.get_logger(__name__)

_FAILURE_REST = 0.01
"""Seconds of pause after a cycle that failed as a whole; doubles with each further failure."""
_FAILURES_REST = 30.0
"""The longest pause in seconds."""

_SOON = timedelta(seconds=1)
"""The pause after a failed write before the next try."""


class SchedulingLoop:
    """Runs cycles while there is something to try.  Only the leader runs it."""

    def __init__(
        self,
        state: SchedulingState,
        lookups: Lookups,
        *,
        writer: StatusWriter[wire.Workload],
        observer: Observer,
        clock: Clock,
        settings: LoopSettings | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`turns` is as in `PendingReasons`; None: the loop has its own."""
        settings = settings or LoopSettings()
        self._clock, self._look_at_parked = clock, lookups.look_at_parked
        self._namespace_labels = lookups.namespace_labels
        self._work = asyncio.Event()
        self._pace = WritePace(clock, shortest=settings.window_min, longest=settings.window_max)
        self._writes = Writes(writer, in_flight=settings.in_flight, begins=self._pace.write_begins)
        context = self._context = Context(
            state=state, writer=writer, writes=self._writes, observer=observer, clock=clock, settings=settings
        )
        self._alarm = Alarm(state.queues, lookup=state.cache.quota, clock=clock, wake=self.wake)
        self.planning = PlanMaker(context, self._alarm)
        self._waits = _make_waits(context, turns or Turns(clock, lambda: self.quiet_for))
        self._parts = self._make_parts(context, lookups)
        self._runner = CycleRunner(context, self._parts)
        self._repeated = RepeatedTries(state.cache)
        self._goes_on = False
        """Whether workloads behind the heads of the last cycle can be tried without a further event."""
        self._descended_at = 0
        """From this cycle on parked workloads may be brought back within a round: by then each ClusterQueue has tried
        all that were brought back last, and one workload behind them at least."""
        self.drain_for: Callable[[], float | None] = lambda: None
        """Called when `run` is cancelled; returns the seconds that writes under way may still take, None for no limit.
        """

    def _make_parts(self, context: Context, lookups: Lookups) -> CycleParts:
        alarm, state, waits = self._alarm, context.state, self._waits
        put_back, scans = PutBack(context, waits), ScanMemories(context.settings.scan)
        victims = Victims(state.cache, state.preemptions)
        trouble = FailingWorkloads(context, paused=alarm.pause)
        faults = FaultIsolation(
            context, planning=self.planning, alarm=alarm, trouble=trouble, scans=scans, put_back=put_back
        )
        reader = HeadReader(
            context,
            self.planning.heads,
            lookups.namespace_labels,
            scans=scans,
            victims=victims,
            put_back=put_back,
            waits=waits,
        )
        waiting = Waiting(context, alarm=alarm, scans=scans, victims=victims, put_back=put_back, faults=faults)
        runs = GangRuns(state.queues, extras_of=lookups.extras_of, wake_at=alarm.ring_at)
        applier = DecisionApplier(
            context,
            admissions=Admissions(context, paused=alarm.pause, broke=self._write_failed, runs=runs),
            evictions=Evictions(context, failed=lambda: alarm.look_again(context.clock.now() + _SOON)),
            waiting=waiting,
            put_back=put_back,
            scans=scans,
        )
        return CycleParts(
            planning=self.planning,
            faults=faults,
            trouble=trouble,
            second_passes=SecondPasses(context, lookups.host_of),
            reader=reader,
            applier=applier,
            put_back=put_back,
            scans=scans,
            starts=StartPlanner(context, self.planning, alarm, waits),
        )

    def plan_jointly(self, planner: RoundPlanner, is_joint: IsJoint, settings: RoundSettings) -> JointRounds:
        """Plan the workloads for which `is_joint` says so in rounds; called before `run`."""
        reader = BatchReader(self._context, self.planning, self._namespace_labels, is_joint, settings.policies)
        rounds = JointRounds(self._context, self.planning, reader, planner, settings=settings, wake=self.wake)
        self._runner.rounds = rounds
        return rounds

    def _write_failed(self, key: str, error: Exception) -> None:
        self._parts.faults.failed(self._runner.state, key, error, doing="writing its admission")

    @property
    def cycles(self) -> int:
        """The number of cycles so far."""
        return self._runner.cycles

    @property
    def busy(self) -> float:
        """The seconds that all cycles took."""
        return self._runner.busy

    @property
    def quiet_for(self) -> float:
        """Seconds since the last write of a decision has ended; 0 while one is under way."""
        return self._pace.quiet_for

    @property
    def is_loaded(self) -> bool:
        """Whether many decisions a second are being written."""
        return self._pace.is_loaded

    def wake(self) -> None:
        """Run a cycle soon, because a workload may be admissible now."""
        self._work.set()

    async def run(self) -> None:
        """Run cycles until cancelled; then wait for the writes that are under way."""
        self._waits.resume()
        self._parts.trouble.resume()
        self._alarm.resume()
        self.wake()  # workloads that the end of the last run queued again are tried
        failures = 0
        try:
            while True:
                await self._work.wait()
                await self._pace.turn(goes_on=self._goes_on)
                failures = await self._run_cycle(failures)
        finally:
            await self._runner.rounds.stop()
            await self.drain(self.drain_for())

    async def _run_cycle(self, failures: int) -> int:
        """Run one cycle, and pause if it fails; return the number of cycles that have failed in a row."""
        self._bring_back_parked()
        self._work.clear()
        self._goes_on = False
        begun, before = self._clock.monotonic(), self.cycles
        success = False
        with isolated() as cycle:
            success = await self.cycle()
        if cycle.error is not None:
            failures += 1
            rest = min(_FAILURES_REST, _FAILURE_REST * 2.0 ** min(failures - 1, 20))
            failed = "scheduling cycle failed, the next one goes on"
            _log.error(failed, failures=failures, seconds=rest, exc_info=cycle.error)
            self.wake()
            await self._clock.sleep(rest)
            return failures
        if self.cycles != before:
            self._pace.cycle_ended(begun=begun, admitted=success)
        await self._clock.sleep(0)
        return 0

    def _bring_back_parked(self) -> None:
        if not self._goes_on:
            self._look_at_parked(fitting=False)
        elif self.cycles >= self._descended_at:
            self._descended_at = self.cycles + 1 + self._look_at_parked(fitting=True)

    async def drain(self, limit: float | None = None) -> None:
        """Wait until every write under way has ended; after `limit` seconds (None: never) cancel the rest.

        Pending reasons that are not written yet wait for the next run.
        """
        self._waits.pause()
        self._parts.trouble.pause()
        await self._writes.drain(clock=self._clock, limit=limit)
        self._waits.pause()
        self._parts.trouble.pause()
        await self._alarm.stop()

    async def cycle(self) -> bool:
        """Run one cycle; True when at least one workload was admitted or got new hosts."""
        end = await self._runner.run()
        if end is None:
            return False
        if self._may_go_on(end) or self._runner.rounds.goes_on:
            self._goes_on = True
            self.wake()
        return end.success

    def _may_go_on(self, end: CycleEnd) -> bool:
        """Whether another cycle may admit a workload without a further event.

        If not, the scans of its heads have ended: the next ones begin at the first flavor, which the next event may
        have freed.
        """
        if end.stuck is None or self._repeated.is_new(end.stuck):
            return True
        for key, *_ in end.stuck:
            self._parts.scans.forget(str(key))
        return False


def _make_waits(context: Context, turns: Turns) -> PendingReasons:
    state, settings = context.state, context.settings
    return PendingReasons(
        writes=context.writes,
        is_held=lambda key: state.cache.held.holding(key) is not None or key in state.quarantine,
        observer=context.observer,
        clock=context.clock,
        at_once=settings.reasons_at_once,
        details_after=settings.details_after,
        turns=turns,
    )
