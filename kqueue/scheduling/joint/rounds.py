"""Rounds: the waiting workloads of joint queues are planned together, and ordinary cycles carry the plan out.

    idle ──► a joint queue has something to try ──► planning ──► a plan ──► applying ──► idle
                                                       └── it failed, or took too long: ordinary cycles try the batch

While a round is planned its queues offer no workload to cycles; all other queues go on.  A plan is a list of workloads:
those that it admits, with hints, then the others.  Cycles take one workload of each ClusterQueue from it at a time, and
check each hint on the present state.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from kqueue.api.wire.core import PodDisruptionBudget
from kqueue.core.decision import Admit, Decision
from kqueue.core.hints import NO_HINTS, Hints
from kqueue.core.joint.answer import PlanAnswer, PlannedEntry
from kqueue.core.joint.batch import Batch
from kqueue.core.joint.host_room import HostRoom
from kqueue.core.joint.migration import MigrationAnswer
from kqueue.core.joint.movable import MoveHistory, MoveLimits, MovePolicy
from kqueue.core.joint.registry import DEFAULT_POLICIES, PolicySpec
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.running import NOTHING_RUNS, RunningInput
from kqueue.core.joint.settings import JointSettings, VictimChoice
from kqueue.core.joint.statistics import NodeStatistics
from kqueue.core.planned_state import PlannedState
from kqueue.core.workload import Head
from kqueue.isolation import isolated
from kqueue.model.pending import Pending
from kqueue.runtime.deadline import within
from kqueue.scheduling.context import Context
from kqueue.scheduling.joint.batches import BatchLimits, BatchReader
from kqueue.scheduling.joint.process import RoundFailedError, RoundPlanner
from kqueue.scheduling.joint.running import RunningReader, RunningSource, RunningWishes, nothing_runs
from kqueue.scheduling.planning import PlanMaker
from kqueue.state.joint_history import JointHistory, RoundRecord
from kqueue.state.statistics import UseSummary

_log = structlog.get_logger(__name__)

_CHECKED = 100
"""Workloads of a plan that are checked before the event loop gets a turn."""
_FAILURES, _WITHIN, _PAUSE = 3, 600.0, 600.0
"""So many failures within so many seconds pause joint placement for so many seconds."""


class RoundResult(StrEnum):
    """How a round ended.  The value is the label of a metric."""

    APPLIED = "applied"
    """The plan is better than one by one, and was carried out."""
    GREEDY = "greedy"
    """Nothing better than one by one was found, which was carried out."""
    ABANDONED = "abandoned"
    """There was no plan within the time limit."""
    FAILED = "failed"
    """The planner failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """Settings of rounds.  `time_limit`: seconds that a plan may take."""

    joint: JointSettings = field(default_factory=JointSettings)
    limits: BatchLimits = field(default_factory=BatchLimits)
    time_limit: float = 5.0
    policies: tuple[PolicySpec, ...] = DEFAULT_POLICIES
    moves: MoveLimits = field(default_factory=lambda: MoveLimits(migration=MovePolicy.NEVER))
    """Whether and how far running workloads may be moved: rounds say what that would gain."""


class FutileRound:
    """The last round: it is not repeated on the state on which it was planned.

    Heads of StrictFIFO queues come back at once, and workloads with further flavors do, too.  When their round has
    admitted no workload, and capacity, quota and they themselves are as before, another round would end as this one.
    """

    def __init__(self, context: Context) -> None:
        self._cache, self._newest = context.state.cache, context.writer.newest
        self._state = (-1, -1)
        self._planned: dict[str, tuple[str, int]] = {}

    def begin(self) -> None:
        """Note the state on which a round is planned."""
        self._state, self._planned = self._generation(), {}

    def end(self, plan: PlanAnswer) -> None:
        """Note the workloads of a plan, without those that wait for a better place: they are tried when it is time."""
        self._planned = {entry.key: self._version(entry.key) for entry in plan.entries if not entry.is_deferred}

    def was(self, key: str) -> bool:
        """Whether the round had this workload, and nothing has changed since."""
        known = self._planned.get(key)
        return known is not None and self._state == self._generation() and known == self._version(key)

    def _generation(self) -> tuple[int, int]:
        return self._cache.generation, self._cache.ledger.generation

    def _version(self, key: str) -> tuple[str, int]:
        obj = self._newest(key)
        return (obj.metadata.uid, obj.metadata.generation) if obj is not None else ("", 0)


@dataclass(slots=True)
class _Read:
    """The input of a round, as far as it was read."""

    batch: dict[str, tuple[Head, ...]] = field(default_factory=dict)
    running: RunningInput = NOTHING_RUNS


class JointRounds:
    """Offers the workloads of joint queues to cycles, in the order of plans."""

    def __init__(
        self,
        context: Context,
        planning: PlanMaker,
        reader: BatchReader,
        planner: RoundPlanner,
        *,
        settings: RoundSettings,
        wake: Callable[[], None],
    ) -> None:
        self._context, self._planning, self._reader, self._planner = context, planning, reader, planner
        self._settings, self._wake, self._queues = settings, wake, context.state.queues
        self._task: asyncio.Task[None] | None = None
        self._held: frozenset[str] = frozenset()
        """ClusterQueues that offer no workload until the round is over."""
        self._entries: deque[PlannedEntry] = deque()
        self._hints: Hints = NO_HINTS
        self._alone: set[str] = set()
        """Workloads that an ordinary cycle tries once: they are no batch, or their round has failed."""
        self._futile = FutileRound(context)
        self._failures: list[float] = []
        self._paused_until = 0.0
        self.number = 0
        """The number of the last round."""
        self.last: PlanAnswer | None = None
        """The last plan; None: there was none yet."""
        self.history = JointHistory()
        """The rounds that are remembered."""
        self._applied: tuple[RoundRecord, float] | None = None
        """The round whose plan is being carried out, and the time at which that began."""
        self.use_summary: Callable[[], UseSummary | None] = lambda: None
        """Returns what is known of measured use; None: no policy looks at it."""
        self.on_end: Callable[[RoundRecord], None] = lambda _record: None
        """Called at the end of each round."""
        self.on_gains: Callable[[RoundRecord], None] = lambda _record: None
        """Called when it is known what moves would gain in a round."""
        self.running: RunningSource = nothing_runs
        """Reads what rounds must know of running workloads."""
        planner.on_gains = self._gained
        self._early: MigrationAnswer | None = None
        """Gains that came before the end of their round was noted."""
        self.on_stale: Callable[[], None] = lambda: None
        """Called for each hint that did not hold any more."""

    def read_running(
        self,
        annotated: Callable[[], Iterable[str]],
        *,
        history: Callable[[], MoveHistory] = MoveHistory,
        budgets: Callable[[], Sequence[PodDisruptionBudget]] = tuple,
    ) -> None:
        """Let rounds know running workloads, as far as the settings need them; see `RunningWishes`."""
        settings = self._settings
        wishes = RunningWishes(
            annotated=annotated,
            victims=settings.joint.victims is VictimChoice.JOINT,
            limits=settings.moves,
            history=history,
            budgets=budgets,
        )
        self.running = RunningReader(self._context, wishes).read

    def look_at_use(self, statistics: Callable[[], NodeStatistics], summary: Callable[[], UseSummary | None]) -> None:
        """Let policies see the measured use that `statistics` returns; `summary` says what is known of it."""
        self._reader.policies.statistics, self.use_summary = statistics, summary

    @property
    def hints(self) -> Hints:
        """The hints of the plan that is being carried out."""
        return self._hints

    @property
    def goes_on(self) -> bool:
        """Whether further cycles can be run for the plan without an event."""
        return bool(self._entries)

    @property
    def is_planning(self) -> bool:
        """Whether a round is being planned."""
        return self._task is not None

    @property
    def is_paused(self) -> bool:
        """Whether joint placement rests, because the planner has failed repeatedly."""
        return self._context.clock.monotonic() < self._paused_until

    def pop(self, may_admit: Callable[[str], bool]) -> list[tuple[str, Pending]]:
        """Take the workloads of the next cycle: those of the plan, or else the heads of queues without a round."""
        if self._task is None and not self._entries and not self.is_paused:
            self._begin(may_admit)
        while self._entries:
            popped = self._from_plan(may_admit)
            if popped:
                return popped
        if self._task is None:
            self._hints = NO_HINTS
        popped = self._queues.pop_heads(lambda queue: queue not in self._held and may_admit(queue))
        self._alone.difference_update(item.key for _, item in popped)
        return popped

    def _from_plan(self, may_admit: Callable[[str], bool]) -> list[tuple[str, Pending]]:
        """Take the next workload of each ClusterQueue from the plan."""
        wanted: dict[str, str] = {}
        later: deque[PlannedEntry] = deque()
        for entry in self._entries:
            if entry.queue in wanted:
                later.append(entry)
            else:
                wanted[entry.queue] = entry.key
        self._entries = later
        if not later:
            self._end_applying()
        return self._queues.pop_these({q: key for q, key in wanted.items() if may_admit(q) and self._in_turn(q, key)})

    def _in_turn(self, queue: str, key: str) -> bool:
        """Whether a workload may be tried now: in a strict queue none is tried before the first one."""
        return not self._queues.is_strict(queue) or self._queues.front(queue, 1)[0] == [key]

    def decided(self, decision: Decision) -> None:
        """Note the decision of a cycle."""
        hint = self._hints.get(decision.head.uid) if self._hints else None
        if hint is not None and hint.has_place and not (isinstance(decision, Admit) and decision.plan):
            self.on_stale()

    def _end_applying(self) -> None:
        """Report the round whose plan was carried out."""
        if self._applied is not None:
            (record, since), self._applied = self._applied, None
            record.seconds["apply"] = self._context.clock.monotonic() - since
            self.on_end(record)

    # --- a round

    def _begin(self, may_admit: Callable[[str], bool]) -> None:
        """Begin a round if there is something to plan together, and a cycle may admit workloads."""
        if self._planning.held_by():
            return
        firsts = {queue: key for queue in self._queues.names() if may_admit(queue) and (key := self._first(queue))}
        if all(self._futile.was(key) for key in firsts.values()):
            return
        waiting = sum(len(self._queues.front(queue, 2)[0]) for queue in firsts)
        if waiting < (1 if self._reader.policies.have_say(firsts) else 2):
            return
        self._held = frozenset(firsts)
        self._task = asyncio.get_running_loop().create_task(self._run(self.number + 1, sorted(firsts)))

    def _first(self, queue: str) -> str | None:
        key = self._reader.first(queue)
        return key if key not in self._alone else None

    async def _run(self, number: int, queues: list[str]) -> None:
        clock, plan, read = self._context.clock, None, _Read()
        began, since = clock.now(), clock.monotonic()
        try:
            with isolated() as planning:
                plan = await within(clock, self._settings.time_limit, self._plan(number, queues, read))
            if planning.error is not None:
                self._note_failure(number, planning.error)
            if plan is None:
                self._alone.update(head.key for heads in read.batch.values() for head in heads)
                self._alone.update(key for queue in queues for key in self._queues.front(queue, 1)[0])
        finally:
            self._task, self._held, self.history.planning = None, frozenset(), None
        if plan is not None or planning.error is not None:
            self.number = number
            seconds = dict(plan.seconds) if plan is not None else {}
            seconds["sync"] = max(0.0, clock.monotonic() - since - sum(seconds.values()))
            uids = [head.uid for heads in read.batch.values() for head in heads]
            self._end(
                RoundRecord(
                    number=number,
                    began=began,
                    ended=clock.now(),
                    result=_result(plan, planning.error),
                    workloads=len(uids),
                    batch=hashlib.sha256(" ".join(uids).encode()).hexdigest()[:16],
                    plan=plan,
                    problem=_problem(planning.error),
                    seconds=seconds,
                )
            )
            early, self._early = self._early, None
            if early is not None and early.round == number:
                self._gained(early)
            elif not read.running.movable:
                self._gained(MigrationAnswer(round=number))
        self._wake()

    def _end(self, record: RoundRecord) -> None:
        """Remember a round; its plan is carried out by the next cycles."""
        self.history.end(record)
        plan = record.plan
        if plan is None:
            self.on_end(record)
            return
        self.last = plan
        self._futile.end(plan)
        self._entries = deque(plan.entries)
        self._hints = {entry.uid: entry.hint for entry in plan.entries if entry.hint is not None}
        self._applied = record, self._context.clock.monotonic()
        _log.info(
            "joint round planned",
            round=record.number,
            workloads=record.workloads,
            batch=record.batch,
            chosen=plan.chosen.value,
            status=plan.status.value,
            units=plan.units,
            greedy_units=plan.greedy_units,
            bound=plan.bound,
            cost=plan.cost,
            greedy_cost=plan.greedy_cost,
            seconds={phase: round(spent, 4) for phase, spent in record.seconds.items()},
            **({"static_nodes": plan.static_nodes} if plan.static_nodes else {}),
            **({"faults": plan.faults} if plan.faults else {}),
            **({"failed_policies": dict(plan.failed_policies)} if plan.failed_policies else {}),
            **({"drifts": plan.drifts} if plan.drifts else {}),
        )

    def _gained(self, answer: MigrationAnswer) -> None:
        """Note what moves would gain in a round that has its plan."""
        if answer.problem:
            _log.warning("the gain of moves is unknown", round=answer.round, problem=answer.problem)
        record = self.history.gained(answer.round, answer.gains)
        if record is None:
            self._early = answer
        else:
            self.on_gains(record)

    async def _plan(self, number: int, queues: list[str], read: _Read) -> PlanAnswer | None:
        """Return the plan of a round, whose input is noted in `read`; None: there is nothing to plan together."""
        began = self._context.clock.now()
        await self._planner.get_ready()
        batch = read.batch = await self._reader.read(queues, self._settings.limits)
        if sum(map(len, batch.values())) < 2 and not self._reader.policies.have_say(batch):
            return None
        self.history.begin(number, began, [head.uid for heads in batch.values() for head in heads])
        read.running = await self.running()
        self._futile.begin()
        return await self._planned(number, batch, read.running)

    async def _planned(self, number: int, batch: dict[str, tuple[Head, ...]], running: RunningInput) -> PlanAnswer:
        """Ask for the plan, and check it.  Raises RoundFailedError."""
        now, settings = self._context.clock.now(), self._settings
        uids = [head.uid for heads in batch.values() for head in heads]
        snapshot = self._planning.snapshot(batch)
        given = RoundInput(
            state=PlannedState(snapshot=snapshot, rules=self._planning.rules(now, uids)),
            batch=Batch(queues=batch, strict=frozenset(queue for queue in batch if self._queues.is_strict(queue))),
            waited={
                head.uid: int((now - head.timestamp).total_seconds()) for heads in batch.values() for head in heads
            },
            settings=settings.joint,
            order=self._context.settings.order,
            policies=self._reader.policies.read(batch, snapshot),
            running=running,
        )
        room = HostRoom(snapshot.topologies)
        plan = _checked(await self._planner.plan(number, given), number, batch)
        heads = {head.uid: head for of_queue in batch.values() for head in of_queue}
        for number_of_entry, entry in enumerate(plan.entries, 1):
            fault = room.take(heads[entry.uid], entry.hint) if entry.hint is not None else ""
            if fault:
                raise RoundFailedError(f"the plan is not possible: {fault}")
            if number_of_entry % _CHECKED == 0:
                await self._context.clock.sleep(0)
        return plan

    def _note_failure(self, number: int, error: Exception) -> None:
        now = self._context.clock.monotonic()
        self._failures = [*(at for at in self._failures if now - at < _WITHIN), now]
        paused = len(self._failures) >= _FAILURES
        if paused:
            self._paused_until, self._failures = now + _PAUSE, []
        known = isinstance(error, _NO_PLAN)
        _log.warning(
            "a joint round has no plan, ordinary cycles try its workloads",
            round=number,
            problem=_problem(error),
            paused=_PAUSE if paused else 0,
            exc_info=None if known else error,
        )

    async def stop(self) -> None:
        """Give up the round that is being planned, and end the planner."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._task, self._held = None, frozenset()  # a task that has not begun yet ends without a step
        self._futile = FutileRound(self._context)
        self._entries.clear()
        self._hints, self._applied = NO_HINTS, None
        await self._planner.stop()


_NO_PLAN = (TimeoutError, RoundFailedError)
"""Errors that say why there is no plan; all others are bugs."""


def _checked(plan: PlanAnswer, number: int, batch: Mapping[str, Sequence[Head]]) -> PlanAnswer:
    """Return the plan.  Raises RoundFailedError if it is not one of this round and its workloads."""
    asked = sorted((head.uid, head.key, head.queue) for heads in batch.values() for head in heads)
    if plan.round != number or sorted((entry.uid, entry.key, entry.queue) for entry in plan.entries) != asked:
        raise RoundFailedError("the plan has not the workloads of the round")
    return plan


def _result(plan: PlanAnswer | None, error: Exception | None) -> RoundResult:
    if plan is not None:
        as_good = (plan.units, plan.cost) == (plan.greedy_units, plan.greedy_cost)
        return RoundResult.GREEDY if as_good else RoundResult.APPLIED
    return RoundResult.ABANDONED if isinstance(error, TimeoutError) else RoundResult.FAILED


def _problem(error: Exception | None) -> str:
    """Return why a round has no plan; empty: it has one."""
    if isinstance(error, TimeoutError):
        return f"no plan within the time limit: {error}"
    return str(error) or type(error).__name__ if error is not None else ""


class NoRounds:
    """Offers the heads of queues to cycles: joint placement is off."""

    hints: Hints = NO_HINTS
    goes_on = False

    def __init__(self, context: Context) -> None:
        self._queues = context.state.queues

    def pop(self, may_admit: Callable[[str], bool]) -> list[tuple[str, Pending]]:
        """Take the head of each ClusterQueue that may admit."""
        return self._queues.pop_heads(may_admit)

    def decided(self, decision: Decision) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""


Rounds = JointRounds | NoRounds
