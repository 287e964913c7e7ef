"""The cycle's shell: take the heads, plan on a snapshot, charge what is admitted, write, bring the rest back.

Writes run beside the loop: what is admitted is charged to the cache at once, so the next cycle need not wait for the
API server.  A write that fails gives the charge back and the workload its place in the queue.

Beside the heads a cycle takes admitted workloads that lost hosts, and mends them first: what they need is less than a
whole gang, and they hold the rest of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import structlog
from cachetools import LRUCache

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.cycle import plan
from kqueue.core.decision import Admit, Decision, Outcome, Phase, Preempt, Retargeted, Wait
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.plan_cache import PlanCache
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource
from kqueue.core.scan import Attempt, ScanMemory, goes_round, remembered
from kqueue.core.workload import Claim, Head, PodSet, Snapshot
from kqueue.errors import InvalidObjectError
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.turns import Turns
from kqueue.scheduling.admissions import AdmissionObserver, Admissions
from kqueue.scheduling.evictions import EvictionObserver, Evictions
from kqueue.scheduling.pace import Pace
from kqueue.scheduling.repairs import Patient, RepairObserver, Repairs
from kqueue.scheduling.settings import LoopSettings
from kqueue.scheduling.stopwatch import Stopwatch
from kqueue.scheduling.trouble import Trouble, TroubleObserver
from kqueue.scheduling.victims import Victims
from kqueue.scheduling.waits import WaitObserver, Waits, Why
from kqueue.scheduling.writes import Writes
from kqueue.state import from_api
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage
from kqueue.state.heads import Heads
from kqueue.state.namespaces import namespace_problem
from kqueue.state.preemptions import Preemptions
from kqueue.state.quarantine import Quarantine
from kqueue.state.queues import NO_VERDICT, Pending, Queues, RequeueReason, SecondPass, Verdict
from kqueue.state.queues import Strategy as QueueingStrategy
from kqueue.state.tries import Tries, Try

_log = structlog.get_logger(__name__)

_REQUEUE = {
    Outcome.NO_FIT: RequeueReason.NO_FIT,
    Outcome.NO_CANDIDATES: RequeueReason.PREEMPTION_NO_CANDIDATES,
    Outcome.SKIPPED: RequeueReason.FAILED_AFTER_NOMINATION,
    Outcome.DEFERRED: RequeueReason.PENDING_PREEMPTION,
    Outcome.YIELDS: RequeueReason.GENERIC,
    Outcome.GATED: RequeueReason.PREEMPTION_GATED,
    Outcome.AFTER_LOWER_SHARE: RequeueReason.FAILED_AFTER_NOMINATION,
    Outcome.HELD: RequeueReason.FAILED_AFTER_NOMINATION,
    Outcome.REFUSED: RequeueReason.GENERIC,
}

_GATED = Outcome.GATED
"""By name, because looking a member up in its class takes 0.1 us, and every head that waits comes to it."""

_GOES_ON_WAITING = frozenset({Outcome.DEFERRED, Outcome.SKIPPED, Outcome.HELD})
"""Outcomes after which a preemptor keeps what it claims."""

_PASSING = frozenset({Outcome.SKIPPED, Outcome.DEFERRED, Outcome.AFTER_LOWER_SHARE})
"""Outcomes whose words are others from cycle to cycle: who took the room, who is to leave for whom."""

_MOST_SCANS = 100_000
"""Workloads of which it is remembered where their scan of flavors ended; of the oldest it is forgotten."""

_FAILURE_REST = 0.01
"""Seconds after a cycle that failed as a whole; doubles."""
_FAILURES_REST = 30.0
"""Seconds of rest at most, where one cycle after the other fails as a whole."""

_EXCUSES = 3
"""How often it is looked for somebody else on whom the plan of a workload fails, before it is blamed itself."""

_UNSOUND_FOR = timedelta(seconds=10)
"""For how long a ClusterQueue rests of which no snapshot could be made."""

_SOON = timedelta(seconds=1)
"""Until what could not be known, or written, is looked at again."""

_Tries = frozenset[tuple[object, ...]]
"""The heads of one cycle, each with where its scan of flavors began."""


class _Read(NamedTuple):
    """What a try is made on: the workload, what the queues know of it, and the generation of its queue's room."""

    obj: wire.Workload
    item: Pending
    room: int

    def attempt(self, queue: str, cycle: int) -> Attempt:
        """The same for those who compare tries."""
        return Attempt(
            uid=self.obj.metadata.uid,
            queue=queue,
            shape=self.item.shape,
            version=self.item.version,
            generation=self.room,
            cycle=cycle,
        )


class Observer(AdmissionObserver, RepairObserver, EvictionObserver, WaitObserver, TroubleObserver, Protocol):
    """Who wants to know what the loop did: metrics and events.  Calls must return at once and must not raise."""

    def cycle_ended(
        self, *, seconds: float, success: bool, robbed: Mapping[str, int], phases: Mapping[Phase, float]
    ) -> None:
        """One cycle with at least one head has ended; `success`: something was admitted.

        `robbed`: per ClusterQueue that had a head, how many of those had found whom to preempt and got nothing.
        `phases`: seconds spent in each, without those in which the event loop had its turn.
        """
        ...

    def retargeted(self, queue: str, result: Retargeted) -> None:
        """Earlier entries had taken some of the targets of a preemptor of this ClusterQueue."""
        ...


class LookAtParked(Protocol):
    """Brings parked workloads back that may be helped by what became free."""

    def __call__(self, *, fitting: bool) -> int:
        """`fitting`: only workloads that seem to fit now.

        Returns how many shapes of workloads the ClusterQueue got back that got the most; 0: none did.
        """
        ...


class SchedulingLoop:
    """Runs cycles while there is something to try.  Only the leader runs it."""

    def __init__(
        self,
        *,
        cache: Cache,
        queues: Queues,
        writer: StatusWriter[wire.Workload],
        namespace_labels: Callable[[str], Mapping[str, str] | None],
        observer: Observer,
        clock: Clock,
        settings: LoopSettings | None = None,
        second_pass: SecondPass | None = None,
        preemptions: Preemptions | None = None,
        fair_usage: FairUsage | None = None,
        host_of: Callable[[str], str | None] = lambda _node: None,
        quarantine: Quarantine | None = None,
        tries: Tries | None = None,
        look_at_parked: LookAtParked = lambda *, fitting: 0,
        turns: Turns | None = None,
    ) -> None:
        """`look_at_parked` is called before a round of cycles for all parked workloads, and within a round for parked
        workloads that seem to fit: a workload of lower priority must not take what became free before they are tried.
        `turns` is as in `Waits`; None: the loop has its own.

        `namespace_labels` gives a namespace's labels, `host_of` a node's host name; None when it does not exist.

        `fair_usage` is what LocalQueues used lately; None: it counts nowhere.  `quarantine` is where those come on whom
        scheduling fails; whoever queues workloads shares it.  `tries` is told of every try.
        """
        self._cache, self._queues, self._writer = cache, queues, writer
        self._namespace_labels, self._observer, self._clock = namespace_labels, observer, clock
        self._settings = settings or LoopSettings()
        self._work = asyncio.Event()
        self._pace = Pace(clock, shortest=self._settings.window_min, longest=self._settings.window_max)
        self._turns = turns or Turns(clock, lambda: self.quiet_for)
        self._writes = Writes(writer, in_flight=self._settings.in_flight, begins=self._pace.write_begins)
        self._quarantine = quarantine or Quarantine()
        self._preemptions = preemptions or Preemptions()
        self._fair_usage = fair_usage
        self._waits = self._make_waits()
        self._repairs = self._make_repairs(second_pass or SecondPass(), host_of)
        self._trouble = self._make_trouble()
        self._evictions = self._make_evictions()
        self._admissions = self._make_admissions()
        self._heads = Heads(
            cache,
            writer.newest,
            elastic=self._settings.elastic,
            preemption_gates=self._settings.preemption_gates,
            order=self._settings.queue_order,
        )
        self._tries = tries or Tries()
        self._scans: OrderedDict[str, ScanMemory] = OrderedDict()
        self._goes_on = False
        """Workloads stand behind the heads of the last cycle, and no event is needed to try them."""
        self._look_at_parked = look_at_parked
        self._descended_at = 0
        """From this cycle on parked workloads may be brought back within a round: by then each ClusterQueue has tried
        all that were brought back last, and one workload behind them at least."""
        self._came_back: set[str] = set()
        """Workloads of this cycle that are heads of their queues again."""
        self._plan_cache = PlanCache()
        self._refused: tuple[tuple[int, int], set[_Tries]] = ((0, 0), set())
        """What was tried in vain on one state."""
        self._robbed = Counter[str]()
        """Preemptors of this cycle that got nothing, by ClusterQueue."""
        self._read: dict[str, _Read] = {}
        """Of each head, what this cycle decides on."""
        self._victims = Victims(cache, self._preemptions)
        self._watch = Stopwatch(clock.monotonic)
        self._gave_way = False
        """Since the snapshot of this cycle was taken there may have been events."""
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = clock.now()
        self._safe_until: datetime | None = None
        """When the first of those that were to be preempted, and may not yet, has run for long enough."""
        self._held_up: set[str] = set()
        """ClusterQueues of those who wait for that."""
        self._paused: dict[str, datetime] = {}
        """ClusterQueues of those whose admission could not be written, and until when these are left alone."""
        self._excused: LRUCache[str, int] = LRUCache(maxsize=1000)
        """Workloads (uid) whose plan failed on somebody else, and how often."""
        self._unsound: dict[str, datetime] = {}
        """ClusterQueues of which no snapshot could be made, and until when nobody of theirs is tried."""
        self.drain_for: Callable[[], float | None] = lambda: None
        """Asked when `run` is cancelled: seconds for the writes under way; None: however long they take."""
        self.cycles = 0
        """Cycles run so far."""
        self.busy = 0.0
        """Seconds that they took."""

    # --- its parts

    def _make_waits(self) -> Waits:
        return Waits(
            writes=self._writes,
            is_held=lambda key: self._cache.holding(key) is not None or key in self._quarantine,
            observer=self._observer,
            clock=self._clock,
            at_once=self._settings.told_at_once,
            details_after=self._settings.details_told_after,
            turns=self._turns,
        )

    def _make_repairs(self, second_pass: SecondPass, host_of: Callable[[str], str | None]) -> Repairs:
        return Repairs(
            cache=self._cache,
            second_pass=second_pass,
            writer=self._writer,
            writes=self._writes,
            observer=self._observer,
            clock=self._clock,
            host_of=host_of,
            fail_fast=self._settings.fail_fast,
            skips_pod_owned=self._settings.skips_pod_owned,
        )

    def _make_trouble(self) -> Trouble:
        return Trouble(
            quarantine=self._quarantine,
            cache=self._cache,
            queues=self._queues,
            preemptions=self._preemptions,
            writer=self._writer,
            writes=self._writes,
            observer=self._observer,
            clock=self._clock,
            order=self._settings.queue_order,
            paused=self._pause,
        )

    def _make_evictions(self) -> Evictions:
        return Evictions(
            cache=self._cache,
            preemptions=self._preemptions,
            writes=self._writes,
            observer=self._observer,
            clock=self._clock,
            failed=lambda: self._look_again(self._clock.now() + _SOON),
        )

    def _make_admissions(self) -> Admissions:
        return Admissions(
            cache=self._cache,
            queues=self._queues,
            writer=self._writer,
            writes=self._writes,
            observer=self._observer,
            clock=self._clock,
            order=self._settings.queue_order,
            preemptions=self._preemptions,
            fair_usage=self._fair_usage,
            waits_for_ready=self._settings.waits_for_ready,
            paused=self._pause,
            broke=lambda key, error: self._failed(key, error, doing="writing its admission"),
            sound=self._quarantine.sound,
        )

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
        """Something may have become possible."""
        self._work.set()

    async def run(self) -> None:
        """Run cycles until cancelled; then wait for the writes that are under way."""
        self._waits.resume()
        self._trouble.resume()
        self._resume_alarm()
        self.wake()  # what the end of the last run took back is to be tried again
        failures = 0
        try:
            while True:
                await self._work.wait()
                await self._pace.turn(goes_on=self._goes_on)
                if not self._goes_on:
                    self._look_at_parked(fitting=False)
                elif self.cycles >= self._descended_at:
                    self._descended_at = self.cycles + 1 + self._look_at_parked(fitting=True)
                self._work.clear()
                self._goes_on = False
                begun, before = self._clock.monotonic(), self.cycles
                try:
                    success = await self.cycle()
                    failures = 0
                except Exception:  # noqa: BLE001 - a bug in one cycle must not end scheduling
                    failures += 1
                    rest = min(_FAILURES_REST, _FAILURE_REST * 2.0 ** min(failures - 1, 20))
                    _log.exception("scheduling cycle failed, the next one goes on", failures=failures, seconds=rest)
                    self.wake()
                    await self._clock.sleep(rest)
                    continue
                if self.cycles != before:
                    self._pace.cycle_ended(begun=begun, admitted=success)
                await self._clock.sleep(0)
        finally:
            await self.drain(self.drain_for())

    async def drain(self, limit: float | None = None) -> None:
        """Wait until every write under way has ended, so many seconds at most; then cut them off.

        What is to be told later waits for the next run.
        """
        self._waits.pause()
        self._trouble.pause()
        await self._writes.drain(clock=self._clock, limit=limit)
        self._waits.pause()
        self._trouble.pause()
        if self._alarm is not None:
            self._alarm.cancel()
            await asyncio.gather(self._alarm, return_exceptions=True)
            self._alarm = None

    async def cycle(self) -> bool:
        """Try the head of every ClusterQueue that may admit; True when at least one was admitted."""
        self._trouble.tell()
        for _ in self._cache.ledger.build_steps():  # of a flavor that is new, or of which much has changed
            await self._clock.sleep(0)
        self._preemptions.claims(self._still_waits)  # nobody may be left to try, and what is over must be told
        popped = self._queues.pop_heads(self._may_admit)
        damaged = self._repairs.take()
        if not popped and not damaged:
            return False
        begun = {item.key: self._scans[item.key].last_tried for _, item in popped if item.key in self._scans}
        self._came_back.clear()
        self._read.clear()
        self._robbed.clear()
        try:
            success = await self._try(popped, damaged)
        finally:
            for queue, item in popped:  # a cycle that is cut off half-way loses nobody
                if self._queues.in_flight(queue) is item:
                    self._requeue(item.key, RequeueReason.FAILED_AFTER_NOMINATION)
            for patient in damaged:  # as many as were not come to
                self._repairs.ask_again(patient.damaged.key)
        if len(self._came_back) < len(popped):
            self._go_on()
        else:
            self._wake_unless_stuck(frozenset((key, *sorted(begun.get(key, {}).items())) for key in self._came_back))
        return success

    async def _try(self, popped: list[tuple[str, Pending]], damaged: list[Patient]) -> bool:
        heads: list[Head] = []
        now = self._clock.now()
        for queue, item in popped:
            try:
                if self._preemptions.has_claims:
                    self._pass_by(queue, item)
                    if self._victims.are_as_before(queue, item):
                        self._requeue(item.key, RequeueReason.PENDING_PREEMPTION)
                        continue
                head = self._head(queue, item, now)
            except Exception as e:  # noqa: BLE001 - the boundary that keeps one workload from stopping the others
                self._failed(item.key, e, doing="reading it")
                continue
            if head is not None:
                heads.append(head)
        if not heads and not damaged:
            return False
        self.cycles += 1
        self._gave_way = False
        started = self._clock.monotonic()
        self._watch = Stopwatch(self._clock.monotonic)
        success = await self._plan_in_parts(heads, damaged)
        self._watch.stop()
        robbed = {**dict.fromkeys([head.queue for head in heads], 0), **self._robbed}
        took = self._clock.monotonic() - started
        self.busy += took
        self._observer.cycle_ended(seconds=took, success=success, robbed=robbed, phases=self._watch.seconds)
        return success

    def _pass_by(self, queue: str, item: Pending) -> None:
        """Whoever comes first in a StrictFIFO queue gets what is free, though others left for one behind it: that one
        is not tried before, and what nobody may take would be kept for ever.
        """
        obj = self._cache.queue_object(queue)
        if obj is None or obj.spec.queueing_strategy != QueueingStrategy.STRICT_FIFO:
            return
        for claim in self._preemptions.passed(queue, by=item.uid):
            passed = self._writer.newest(claim.key)
            if passed is not None and passed.metadata.uid == claim.uid:
                first = mentioned((Mention(item.key, queue),), readers_of(claim.key))
                message = f"{first} goes first in ClusterQueue {queue}, and gets what others were made to leave for"
                self._waits.tell(claim.key, passed, Why(names.REASON_WAITING_FOR_QUOTA, message))

    def _wake_unless_stuck(self, tries: _Tries) -> None:
        """Go on after a cycle whose heads all came back, unless the same tries were in vain before.

        A cycle that admits or parks a workload makes way for the next one, so going on comes to an end by itself.
        Heads of StrictFIFO queues come back at once: they are tried again while their scan of flavors moves on.
        """
        state = (self._cache.generation, self._cache.ledger.generation)
        if self._refused[0] != state:
            self._refused = (state, set())
        refused = self._refused[1]
        if tries not in refused:
            self._go_on()
        refused.add(tries)

    def _go_on(self) -> None:
        """Try the heads that are left, though nothing else happens."""
        self._goes_on = True
        self.wake()

    def _may_admit(self, queue: str) -> bool:
        if self._unsound and self._unsound.get(queue, self._clock.now()) > self._clock.now():
            return False
        return self._cache.queue_spec(queue) is not None and self._cache.inactive(queue) is None

    # --- plans, and those on whom they fail as a whole

    async def _plan_in_parts(self, heads: list[Head], damaged: list[Patient]) -> bool:
        """Plan all together.  Where that fails, and not on one head alone, plan halves until it is known on whom.

        What was decided before it failed stands; who was not come to is in one of the halves.
        """
        try:
            return await self._plan(heads, damaged)
        except Exception as e:
            self._forget_what_is_kept()
            left = [head for head in heads if self._is_in_flight(head)]
            if not left:
                raise
            if len(left) > 1:
                _log.error("a plan failed as a whole, it is made in halves", heads=len(left), exc_info=e)
            error = e
        if self._end_broken_claims():
            return await self._plan_in_parts([head for head in left if self._is_in_flight(head)], [])
        if len(left) == 1:
            self._blame(left[0], error)
            return False
        middle = len(left) // 2
        success = await self._plan_in_parts(left[:middle], [])
        return await self._plan_in_parts(left[middle:], []) or success

    def _is_in_flight(self, head: Head) -> bool:
        item = self._queues.in_flight(head.queue)
        return item is not None and item.key == head.key

    def _blame(self, head: Head, error: Exception) -> None:
        """A plan for this head alone has failed: on the head, or on what its whole queue stands on."""
        trouble = self._trouble_with({head.queue})
        if trouble is None:
            self._failed(head.key, error, doing="planning it")
            return
        if self._trouble_with(()) is not None:
            raise error  # no queue is to blame
        _log.error("a ClusterQueue rests, no snapshot of it can be made", cluster_queue=head.queue, exc_info=trouble)
        until = self._unsound[head.queue] = self._clock.now() + _UNSOUND_FOR
        self._requeue(head.key, RequeueReason.GENERIC)
        self._pause(head.queue, until)

    # --- a plan that fails on who runs, and not on who waits

    def _excuse_or_blame(self, head: Head, error: Exception) -> None:
        """Planning a head has failed: on the head, or on one of those that it might have preempted."""
        holder = self._holder_that_breaks(head) if self._excused.get(head.uid, 0) < _EXCUSES else None
        if holder is None:
            self._failed(head.key, error, doing="planning it")
            return
        self._excused[head.uid] = self._excused.get(head.uid, 0) + 1
        self._gave_way = True
        self._forget_what_is_kept()
        self._cache.hide(holder)
        _log.error("plans that look at a workload fail on a bug, it is not preempted", workload=holder, exc_info=error)
        self._requeue(head.key, RequeueReason.FAILED_AFTER_NOMINATION)

    def _holder_that_breaks(self, head: Head) -> str | None:
        """The one workload that runs (namespace/name) without which the head can be planned; None: there is none."""
        try:
            views = self._cache.snapshot({head.queue}).admitted
            every = [key for queue in views for key in views[queue]]
        except Exception:  # noqa: BLE001 - then it is none of them
            return None
        if not every or self._breaks(head, frozenset()):
            return None
        suspects = every
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            suspects = half if self._breaks(head, frozenset(half)) else suspects[len(half) :]
        return suspects[0] if self._breaks(head, frozenset(suspects)) else None

    def _breaks(self, head: Head, seen: frozenset[str]) -> bool:
        """Whether planning the head alone fails, where of all that run only these are seen."""
        try:
            snapshot = self._cache.snapshot({head.queue})
            admitted = {
                queue: {key: view for key, view in views.items() if key in seen}
                for queue, views in snapshot.admitted.items()
            }
            decided = list(self._decisions(replace(snapshot, admitted=admitted), [head]))
        except Exception:  # noqa: BLE001 - that is what was asked
            return True
        return any(isinstance(decision, Wait) and decision.error is not None for decision in decided)

    def _end_broken_claims(self) -> bool:
        """End claims on which every plan fails, and blame their preemptors; whether there were any."""
        broken = False
        for claim in self._preemptions.claims(self._still_waits):
            trouble = self._trouble_with((), claim)
            if trouble is not None and self._trouble_with({claim.queue}) is None:
                self._preemptions.end(claim.uid)
                self._failed(claim.key, trouble, doing="keeping room for it")
                broken = True
        return broken

    def _trouble_with(self, queues: Iterable[str], *claims: Claim) -> Exception | None:
        """Why no plan can be made of these, even for nobody; None when one can."""
        try:
            for _ in self._decisions(self._cache.snapshot(queues, claims), []):
                pass
        except Exception as e:  # noqa: BLE001 - that is what was asked
            return e
        return None

    def _forget_what_is_kept(self) -> None:
        """After a failure nothing is relied on that was worked out with it."""
        self._plan_cache = PlanCache()

    async def _plan(self, heads: list[Head], damaged: list[Patient]) -> bool:
        snapshot = self._cache.snapshot({head.queue for head in heads}, self._preemptions.claims(self._still_waits))
        self._safe_until = None
        since, success = self._clock.monotonic(), False
        while damaged:
            success |= self._repairs.mend(snapshot, damaged.pop(0))
            if self._clock.monotonic() - since > self._settings.yield_after:
                since = await self._give_way()
        for decision in self._decisions(snapshot, heads):
            self._watch.enter(Phase.APPLY)
            try:
                success |= self._apply(decision)
            except Exception as e:  # noqa: BLE001 - the boundary that keeps one workload from stopping the others
                self._failed(decision.head.key, e, doing="carrying out what was decided on it")
            if self._clock.monotonic() - since > self._settings.yield_after:
                since = await self._give_way()
        self._set_alarm()
        return success

    async def _give_way(self) -> float:
        """Let events come in; the time afterwards."""
        self._gave_way = True
        self._watch.stop()
        await self._clock.sleep(0)
        self._watch.go_on()
        return self._clock.monotonic()

    def _set_alarm(self) -> None:
        if self._safe_until is not None:
            self._look_again(self._safe_until)

    def _look_again(self, at: datetime) -> None:
        """Try again at that time: somebody may be preempted then who may not, or could not be told, now."""
        if self._alarm is not None and not self._alarm.done():
            if self._alarm_at <= at:
                return
            self._alarm.cancel()
        self._alarm_at, self._alarm = at, asyncio.create_task(self._ring(at))

    def _resume_alarm(self) -> None:
        """Set the alarm again that the end of the last run cut off: ClusterQueues wait for it."""
        times = [*self._paused.values(), *([self._clock.now()] if self._held_up else [])]
        if times:
            self._look_again(min(times))

    async def _ring(self, at: datetime) -> None:
        await self._clock.sleep(max(0.0, (at - self._clock.now()).total_seconds()))
        try:
            self._come_back()
        except Exception:  # noqa: BLE001 - a bug here must not keep the others from being tried
            _log.exception("who was set aside for a while could not be brought back")
        self.wake()

    def _come_back(self) -> None:
        now, queues = self._clock.now(), self._held_up
        queues |= {queue for queue, until in self._paused.items() if until <= now}
        self._held_up = set()
        self._paused = {queue: until for queue, until in self._paused.items() if until > now}
        self._unsound = {queue: until for queue, until in self._unsound.items() if until > now}
        self._queues.flush(queues)
        if self._paused:
            self._alarm = None
            self._look_again(min(self._paused.values()))

    def _decisions(self, snapshot: Snapshot, heads: list[Head]) -> Iterator[Decision]:
        settings = self._settings
        yield from plan(
            snapshot,
            heads,
            rules=self.rules(self._clock.now(), [head.uid for head in heads]),
            order=settings.order,
            held_by=self.held_by(),
            one_at_a_time=settings.block_admission,
            looks=settings.looks,
            cache=self._plan_cache,
            enter=self._watch.enter,
            next_head=self._next_head,
        )

    def _next_head(self, queue: str, without: Collection[str]) -> Head | None:
        """The workload of a ClusterQueue that is tried next when these are left out; None: there is none to be read."""
        keys, _ = self._queues.front(queue, len(without) + 1)
        for key in keys:
            obj = self._writer.newest(key) if key not in without else None
            if obj is None:
                continue
            try:
                return self._heads.make(obj, None, queue=queue, now=self._clock.now())
            except InvalidObjectError:
                return None
        return None

    def rules(self, now: datetime, preemptors: Iterable[str]) -> Rules:
        """How preemption chooses at that time for these workloads (uids)."""
        return Rules(
            now=now,
            fair=self._settings.fair,
            within_nominal=self._settings.within_nominal,
            local_queue_usage=self._fair_usage.usages() if self._fair_usage is not None else None,
            minimum_runtime=self._cache.minimum_runtimes(),
            spared=self._preemptions.spared(preemptors),
        )

    def claims(self) -> tuple[Claim, ...]:
        """What is kept for preemptors; none is ended by asking."""
        return tuple(claim for claim in self._preemptions.claims(lambda _: True) if self._still_waits(claim))

    def held_by(self) -> str:
        """A workload whose pods must be ready before anybody else is admitted; empty: there is none."""
        return (self._cache.unready() or "") if self._settings.block_admission else ""

    def _still_waits(self, claim: Claim) -> bool:
        """Whether a preemptor may still get what is kept for it."""
        try:
            return self._still_waits_for(claim)
        except Exception:  # noqa: BLE001 - the boundary that keeps one workload from stopping the others
            _log.exception("whether room is still kept for a workload is unknown, so it is not", workload=claim.key)
            return False

    def _still_waits_for(self, claim: Claim) -> bool:
        obj = self._writer.newest(claim.key)
        return (
            obj is not None
            and obj.metadata.uid == claim.uid
            and self._queues.is_known(claim.key)
            and self._queues.cluster_queue_of(from_api.local_queue_key(obj)) == claim.queue
            and self._may_admit(claim.queue)
        )

    def _failed(self, key: str, error: Exception, *, doing: str) -> None:
        """A bug on one workload is its own: the others of the cycle go on, and rely on nothing that came of it."""
        self._gave_way = True  # whoever is admitted after it is measured by the cache, too
        self._forget_what_is_kept()
        self._scans.pop(key, None)
        self._trouble.failed(key, error, doing=doing)

    def _requeue(
        self, key: str, reason: RequeueReason, *, verdict: Verdict = NO_VERDICT, has_more: bool = False
    ) -> None:
        if self._queues.requeue(key, reason, verdict=verdict, has_more=has_more):
            self._came_back.add(key)

    # --- heads -------------------------------------------------------------------------------------------------

    def _head(self, queue: str, item: Pending, now: datetime) -> Head | None:
        """The popped workload as the planner sees it; None when it was dealt with here."""
        obj = self._writer.newest(item.key)
        if obj is None or not from_api.is_queueable(obj) or self._cache.holding(item.key) is not None:
            self._queues.delete(item.key)
            return None
        namespace = obj.metadata.namespace
        problem = namespace_problem(namespace, self._namespace_labels(namespace), self._cache.queue_object(queue))
        if problem is not None:
            self._preemptions.end(obj.metadata.uid)
            self._put_back(item.key, obj, RequeueReason.NAMESPACE_MISMATCH, names.REASON_MISCONFIGURED, problem)
            return None
        memory = self._memory(queue, item, obj)
        last_tried = memory.last_tried if memory is not None else {}
        try:
            return self._heads.make(obj, item, queue=queue, now=now, last_tried=last_tried)
        except InvalidObjectError as e:
            self._preemptions.end(obj.metadata.uid)
            self._put_back(item.key, obj, RequeueReason.GENERIC, names.REASON_MISCONFIGURED, str(e))
            return None

    def _memory(self, queue: str, item: Pending, obj: wire.Workload) -> ScanMemory | None:
        """What is remembered of its last scan of flavors, and still of use; notes what this try is made on."""
        read = self._read[item.key] = _Read(obj, item, self._cache.room_generation(queue))
        memory = self._scans.get(item.key)
        if memory is not None and memory.is_outdated(read.attempt(queue, self.cycles + 1), self._settings.scan):
            del self._scans[item.key]
            return None
        return memory

    # --- decisions ---------------------------------------------------------------------------------------------

    def _apply(self, decision: Decision) -> bool:
        if isinstance(decision, Admit):
            return self._admit(decision)
        if decision.retargeted is not None:
            self._observer.retargeted(decision.head.queue, decision.retargeted)
        if isinstance(decision, Preempt):
            return self._preempt(decision)
        self._wait(decision)
        return False

    def _preempt(self, decision: Preempt) -> bool:
        """Make its targets leave; it waits first in its queue, and what is freed is kept for it."""
        head = decision.head
        obj = self._as_decided(head)
        if obj is None:
            return False
        self._quarantine.sound(head.key)
        self._preemptions.begin(decision.claim)
        self._evictions.begin(decision, obj)
        self._scans.pop(head.key, None)
        self._put_back(
            head.key,
            obj,
            RequeueReason.PENDING_PREEMPTION,
            names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS,
            decision.message,
            pod_sets=head.pod_sets,
        )
        return False

    def _as_decided(self, head: Head) -> wire.Workload | None:
        """The workload, if it still is the one and asks for what was decided on; None leaves it to the next cycle."""
        read = self._read[head.key].obj
        if not self._gave_way:
            return read
        obj = self._writer.newest(head.key)
        if obj is None or (obj.metadata.uid, obj.metadata.generation) != (head.uid, read.metadata.generation):
            return None
        return obj

    def _wait(self, decision: Wait) -> None:
        head = decision.head
        if decision.retry_at is not None:
            self._held_up.add(head.queue)
            self._safe_until = min(self._safe_until or decision.retry_at, decision.retry_at)
        if decision.is_robbed:
            self._robbed[head.queue] += 1
        if decision.error is not None:
            self._excuse_or_blame(head, decision.error)
            return
        self._quarantine.sound(head.key)
        obj = self._as_decided(head)
        if decision.outcome not in _GOES_ON_WAITING:
            self._preemptions.end(head.uid)
        elif decision.outcome is Outcome.DEFERRED:
            self._victims.wait(head.uid)
        if obj is None:
            return
        before = self._scans.pop(head.key, None)
        has_more = decision.has_more_flavors
        if before is not None or has_more:
            attempt = self._read[head.key].attempt(head.queue, self.cycles)
            memory = remembered(decision, attempt, before, self._settings.scan)
            if memory is not None:
                if len(self._scans) >= _MOST_SCANS:
                    self._scans.popitem(last=False)
                self._scans[head.key] = memory
        self._put_back(
            head.key,
            obj,
            _REQUEUE[decision.outcome],
            decision.reason,
            decision.message,
            has_more=has_more and not goes_round(decision, before),
            pod_sets=head.pod_sets,
            briefly=decision.outcome in _PASSING,
            gated=decision.outcome is _GATED,
            lacks=decision.lacks,
        )

    def _put_back(
        self,
        key: str,
        obj: wire.Workload,
        requeue: RequeueReason,
        reason: str,
        message: str,
        *,
        has_more: bool = False,
        pod_sets: tuple[PodSet, ...] | None = None,
        briefly: bool = False,
        gated: bool = False,
        lacks: tuple[tuple[FlavorResource, int], ...] = (),
    ) -> None:
        """`briefly` is as in `Waits.tell`, `gated` as in `Why`, `lacks` as in `Verdict`."""
        self._note(key, reason)
        self._requeue(key, requeue, verdict=Verdict(reason, message, lacks), has_more=has_more)
        self._waits.tell(key, obj, Why(reason, message, pod_sets, gated), briefly=briefly)

    def _note(self, key: str, reason: str) -> None:
        """Remember the try, for those who ask."""
        read, queue = self._read.get(key), self._queues.home(key)
        if read is None or queue is None:
            return
        nodes = self._cache.ledger.generation
        tried = Try(
            key=key,
            at=self._clock.now(),
            cycle=self.cycles,
            generation=self._cache.generation,
            nodes=nodes,
            reason=reason,
        )
        self._tries.note(tried, queue, read.item.shape)

    def _admit(self, decision: Admit) -> bool:
        head = decision.head
        obj = self._as_decided(head)
        older = head.replaces.key if head.replaces is not None else None
        if obj is None or (self._gave_way and not self._cache.fits(decision.admission, instead_of=older)):
            return False
        self._admissions.begin(decision, obj)
        self._scans.pop(head.key, None)
        return True

    def _pause(self, queue: str, until: datetime) -> None:
        """Somebody in this ClusterQueue is parked until then."""
        self._paused[queue] = max(until, self._paused.get(queue, until))
        self._look_again(until)
