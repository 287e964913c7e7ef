"""The cycle's shell: take the heads, plan on a snapshot, charge what is admitted, write, bring the rest back.

Writes run beside the loop: an admission is charged to the cache at once, so the next cycle need not wait for the API
server.  When the write fails, the charge is released and the workload returns to its place in the queue.

A cycle also replaces the failed hosts of admitted workloads, before it tries the heads: such a workload holds most of
its hosts already and needs less than a whole gang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.decision import Admit, Decision, Phase, Preempt, refused_by_plugin
from kqueue.core.workload import Head
from kqueue.isolation import isolated
from kqueue.model.pending import Pending, RequeueReason
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.turns import Turns
from kqueue.scheduling.admissions import Admissions
from kqueue.scheduling.alarm import Alarm
from kqueue.scheduling.context import Context, Lookups, SchedulingState
from kqueue.scheduling.cycle_state import CycleState
from kqueue.scheduling.evictions import Evictions
from kqueue.scheduling.failing_workloads import FailingWorkloads
from kqueue.scheduling.fault_isolation import FaultIsolation
from kqueue.scheduling.observers import Observer
from kqueue.scheduling.pace import WritePace
from kqueue.scheduling.planning import PlanMaker
from kqueue.scheduling.put_back import PutBack
from kqueue.scheduling.reading import HeadReader
from kqueue.scheduling.repairs import DamagedWorkload, Repairs
from kqueue.scheduling.scan_memories import ScanMemories
from kqueue.scheduling.settings import LoopSettings
from kqueue.scheduling.stopwatch import Stopwatch
from kqueue.scheduling.victims import Victims
from kqueue.scheduling.waiting import Waiting
from kqueue.scheduling.waits import PendingReasons, Why
from kqueue.scheduling.writes import Writes

_log = structlog.get_logger(__name__)

_FAILURE_REST = 0.01
"""Seconds of pause after a cycle that failed as a whole; doubles with each further failure."""
_FAILURES_REST = 30.0
"""The longest pause in seconds."""

_SOON = timedelta(seconds=1)
"""The pause after a failed write before the next try."""

_Tries = frozenset[tuple[object, ...]]
"""The heads of one cycle, each with the start of its scan of flavors."""


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
        self._cache, self._queues = state.cache, state.queues
        self._observer, self._clock, self._settings = observer, clock, settings
        self._look_at_parked = lookups.look_at_parked
        self._work = asyncio.Event()
        self._pace = WritePace(clock, shortest=settings.window_min, longest=settings.window_max)
        self._writes = Writes(writer, in_flight=settings.in_flight, begins=self._pace.write_begins)
        self._context = Context(
            state=state, writer=writer, writes=self._writes, observer=observer, clock=clock, settings=settings
        )
        self._alarm = Alarm(state.queues, lookup=state.cache.quota, clock=clock, wake=self.wake)
        self.planning = PlanMaker(self._context, self._alarm)
        self._make_parts(lookups, turns or Turns(clock, lambda: self.quiet_for))
        self._cycle = CycleState(0, Stopwatch(clock.monotonic))
        self._goes_on = False
        """Whether workloads behind the heads of the last cycle can be tried without a further event."""
        self._descended_at = 0
        """From this cycle on parked workloads may be brought back within a round: by then each ClusterQueue has tried
        all that were brought back last, and one workload behind them at least."""
        self._refused: tuple[tuple[int, int], set[_Tries]] = ((0, 0), set())
        """A generation of the cache, and the tries that admitted nothing at that generation."""
        self.drain_for: Callable[[], float | None] = lambda: None
        """Called when `run` is cancelled; returns the seconds that writes under way may still take, None for no limit.
        """
        self.cycles = 0
        """The number of cycles so far."""
        self.busy = 0.0
        """The seconds that all cycles took."""

    def _make_parts(self, lookups: Lookups, turns: Turns) -> None:
        context, alarm = self._context, self._alarm
        self._waits = _make_waits(context, turns)
        self._put_back = PutBack(context, self._waits)
        self._scans = ScanMemories(context.settings.scan)
        self._trouble = FailingWorkloads(context, paused=alarm.pause)
        self._faults = FaultIsolation(
            context,
            planning=self.planning,
            alarm=alarm,
            trouble=self._trouble,
            scans=self._scans,
            put_back=self._put_back,
        )
        self._repairs = Repairs(context, lookups.host_of)
        self._evictions = Evictions(context, failed=lambda: alarm.look_again(context.clock.now() + _SOON))
        self._admissions = Admissions(context, paused=alarm.pause, broke=self._write_failed)
        victims = Victims(context.state.cache, context.state.preemptions)
        self._reader = HeadReader(
            context,
            self.planning.heads,
            lookups.namespace_labels,
            scans=self._scans,
            victims=victims,
            put_back=self._put_back,
            waits=self._waits,
        )
        self._waiting = Waiting(
            context, alarm=alarm, scans=self._scans, victims=victims, put_back=self._put_back, faults=self._faults
        )

    def _write_failed(self, key: str, error: Exception) -> None:
        self._faults.failed(self._cycle, key, error, doing="writing its admission")

    # --- running

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
        self._trouble.resume()
        self._alarm.resume()
        self.wake()  # workloads that the end of the last run queued again are tried
        failures = 0
        try:
            while True:
                await self._work.wait()
                await self._pace.turn(goes_on=self._goes_on)
                failures = await self._run_cycle(failures)
        finally:
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
        self._trouble.pause()
        await self._writes.drain(clock=self._clock, limit=limit)
        self._waits.pause()
        self._trouble.pause()
        await self._alarm.stop()

    # --- one cycle

    async def cycle(self) -> bool:
        """Try the head of every ClusterQueue that may admit; True when at least one was admitted."""
        self._trouble.report()
        for _ in self._cache.ledger.build_steps():  # of a flavor that is new, or of which much has changed
            await self._clock.sleep(0)
        self.planning.end_claims()  # there may be no head left to try, and claims that are over must end
        popped = self._queues.pop_heads(self.planning.may_admit)
        damaged = self._repairs.take()
        if not popped and not damaged:
            return False
        begun = {item.key: self._scans.known(item.key) for _, item in popped}
        cycle = self._cycle = CycleState(self.cycles + 1, Stopwatch(self._clock.monotonic))
        try:
            success = await self._try(cycle, popped, damaged)
        finally:
            for queue, item in popped:  # a cycle that is cut off half-way loses no workload
                if self._queues.in_flight(queue) is item:
                    self._put_back.requeue(cycle, item.key, RequeueReason.FAILED_AFTER_NOMINATION)
            for lost in damaged:  # the cycle ended before it reached these
                self._repairs.try_again(lost.damaged.key)
        if len(cycle.came_back) < len(popped):
            self._go_on()
        else:
            self._wake_unless_stuck(frozenset((key, *sorted(begun.get(key, {}).items())) for key in cycle.came_back))
        return success

    async def _try(
        self, cycle: CycleState, popped: Iterable[tuple[str, Pending]], damaged: list[DamagedWorkload]
    ) -> bool:
        heads = self._read(cycle, popped)
        if not heads and not damaged:
            return False
        self.cycles += 1
        cycle.gave_way = False
        started = self._clock.monotonic()
        cycle.watch = Stopwatch(self._clock.monotonic)

        async def plan(some: list[Head]) -> bool:
            return await self._plan(cycle, some, damaged)

        success = await self._faults.plan_in_parts(cycle, heads, plan)
        cycle.watch.stop()
        robbed = {**dict.fromkeys([head.queue for head in heads], 0), **cycle.robbed}
        took = self._clock.monotonic() - started
        self.busy += took
        self._observer.cycle_ended(seconds=took, success=success, robbed=robbed, phases=cycle.watch.seconds)
        return success

    def _read(self, cycle: CycleState, popped: Iterable[tuple[str, Pending]]) -> list[Head]:
        heads: list[Head] = []
        now = self._clock.now()
        for queue, item in popped:
            with isolated(partial(self._faults.failed, cycle, item.key, doing="reading it")):
                head = self._reader.read(cycle, queue, item, now)
                if head is not None:
                    heads.append(head)
        return heads

    async def _plan(self, cycle: CycleState, heads: list[Head], damaged: list[DamagedWorkload]) -> bool:
        """Replace failed hosts, plan the heads, and carry out each decision; True when a workload was admitted or got
        new hosts.
        """
        snapshot = self.planning.snapshot({head.queue for head in heads})
        since, success = self._clock.monotonic(), False
        while damaged:
            success |= self._repairs.replace_hosts(snapshot, damaged.pop(0))
            since = await self._give_way(cycle, since)
        for decision in self.planning.decisions(snapshot, heads, cycle.watch):
            cycle.watch.enter(Phase.APPLY)
            doing = "carrying out what was decided on it"
            with isolated(partial(self._faults.failed, cycle, decision.head.key, doing=doing)):
                success |= self._apply(cycle, decision)
            since = await self._give_way(cycle, since)
        return success

    async def _give_way(self, cycle: CycleState, since: float) -> float:
        """Give the event loop a turn if the plan has run for `yield_after` seconds; return the time of its turn."""
        if self._clock.monotonic() - since <= self._settings.yield_after:
            return since
        cycle.gave_way = True
        cycle.watch.stop()
        await self._clock.sleep(0)
        cycle.watch.go_on()
        return self._clock.monotonic()

    def _go_on(self) -> None:
        """Run another cycle without waiting for an event."""
        self._goes_on = True
        self.wake()

    def _wake_unless_stuck(self, tries: _Tries) -> None:
        """Run another cycle after one whose heads all came back, unless the same tries have failed on the same state
        before.

        A cycle that admits or parks a workload lets the next workload become the head, so the series of cycles ends.
        Heads of StrictFIFO queues come back at once: they are tried again while their scan of flavors advances.
        """
        state = (self._cache.generation, self._cache.ledger.generation)
        if self._refused[0] != state:
            self._refused = (state, set())
        refused = self._refused[1]
        if tries not in refused:
            self._go_on()
        refused.add(tries)

    # --- decisions

    def _apply(self, cycle: CycleState, decision: Decision) -> bool:
        """Carry out a decision; True when the workload is admitted."""
        if isinstance(decision, Admit):
            return self._admit(cycle, decision)
        if decision.retargeted is not None:
            self._observer.retargeted(decision.head.queue, decision.retargeted)
        if isinstance(decision, Preempt):
            self._preempt(cycle, decision)
        else:
            self._waiting.carry_out(cycle, decision)
        return False

    def _admit(self, cycle: CycleState, decision: Admit) -> bool:
        head = decision.head
        obj = cycle.as_decided(head.key, head.uid, self._context.writer.newest)
        older = head.replaces.key if head.replaces is not None else None
        if obj is None or (cycle.gave_way and not self._cache.fits(decision.admission, instead_of=older)):
            return False
        refusal = self._admissions.begin(decision, obj)
        if refusal:
            self._waiting.carry_out(cycle, refused_by_plugin(head, refusal))
            return False
        self._scans.forget(head.key)
        return True

    def _preempt(self, cycle: CycleState, decision: Preempt) -> None:
        """Evict the targets; the preemptor waits at the head of its queue, and freed resources are reserved for it."""
        head = decision.head
        obj = cycle.as_decided(head.key, head.uid, self._context.writer.newest)
        if obj is None:
            return
        self._context.state.quarantine.forget_failures(head.key)
        self._context.state.preemptions.begin(decision.claim)
        self._evictions.begin(decision, obj)
        self._scans.forget(head.key)
        why = Why(names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS, decision.message, head.pod_sets)
        self._put_back.put_back(cycle, obj, RequeueReason.PENDING_PREEMPTION, why)


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
