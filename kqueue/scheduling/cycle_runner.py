"""Runs one cycle: takes the heads of the queues, plans them on a snapshot, and has each decision carried out.

A cycle tries workloads in their second pass before the heads, because they have quota: an admitted workload that lost
hosts holds most of its hosts already, and a workload whose checks are ready has nodes that were made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kqueue.core.decision import Phase
from kqueue.core.hints import NO_HINTS, Hints
from kqueue.core.workload import Head
from kqueue.isolation import isolated
from kqueue.model.pending import Pending, RequeueReason
from kqueue.scheduling.applying import DecisionApplier
from kqueue.scheduling.context import Context
from kqueue.scheduling.cycle_state import CycleState
from kqueue.scheduling.failing_workloads import FailingWorkloads
from kqueue.scheduling.fault_isolation import FaultIsolation
from kqueue.scheduling.joint.rounds import NoRounds, Rounds
from kqueue.scheduling.planning import PlanMaker
from kqueue.scheduling.put_back import PutBack
from kqueue.scheduling.reading import HeadReader
from kqueue.scheduling.repeated_tries import Tries
from kqueue.scheduling.scan_memories import ScanMemories
from kqueue.scheduling.second_passes import SecondPasses, SecondTry
from kqueue.scheduling.start_plans import StartPlanner
from kqueue.scheduling.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleParts:
    """The parts of scheduling that a cycle uses."""

    planning: PlanMaker
    faults: FaultIsolation
    trouble: FailingWorkloads
    second_passes: SecondPasses
    reader: HeadReader
    applier: DecisionApplier
    put_back: PutBack
    scans: ScanMemories
    starts: StartPlanner


class CycleEnd(NamedTuple):
    """The result of one cycle."""

    success: bool
    """Whether a workload was admitted or got hosts."""
    stuck: Tries | None = None
    """The tries of the cycle, if all heads are heads of their queues again; None: other workloads are the heads now."""


class CycleRunner:
    """Runs cycles one after the other."""

    def __init__(self, context: Context, parts: CycleParts) -> None:
        self._cache, self._queues = context.state.cache, context.state.queues
        self._observer, self._clock, self._settings = context.observer, context.clock, context.settings
        self._parts, self._moves = parts, context.state.moves
        self._hints: Hints = NO_HINTS
        self.rounds: Rounds = NoRounds(context)
        """Offers the workloads of each cycle."""
        self.state = CycleState(0, Stopwatch(context.clock.monotonic, Phase.SNAPSHOT))
        """The state of the last cycle."""
        self.cycles = 0
        """The number of cycles so far."""
        self.busy = 0.0
        """The seconds that all cycles took."""

    async def run(self) -> CycleEnd | None:
        """Try the head of every ClusterQueue that may admit; None: there is nothing to try."""
        parts = self._parts
        parts.trouble.report()
        for _ in self._cache.ledger.build_steps():  # of a flavor that is new, or of which much has changed
            await self._clock.sleep(0)
        parts.planning.end_claims()  # there may be no head left to try, and claims that are over must end
        popped = self._pop(parts.planning.may_admit)
        again = parts.second_passes.take()
        if not popped and not again:
            return None
        begun = {item.key: parts.scans.known(item.key) for _, item in popped}
        cycle = self.state = CycleState(self.cycles + 1, Stopwatch(self._clock.monotonic, Phase.SNAPSHOT))
        try:
            success = await self._try(cycle, popped, again)
        finally:
            for queue, item in popped:  # a cycle that is cut off half-way loses no workload
                if self._queues.in_flight(queue) is item:
                    parts.put_back.requeue(cycle, item.key, RequeueReason.FAILED_AFTER_NOMINATION)
            for due in again:  # the cycle ended before it reached these
                parts.second_passes.try_again(due.key)
        await parts.starts.plan()
        if len(cycle.came_back) < len(popped):
            return CycleEnd(success)
        return CycleEnd(success, frozenset((key, *sorted(begun.get(key, {}).items())) for key in cycle.came_back))

    def _pop(self, may_admit: Callable[[str], bool]) -> list[tuple[str, Pending]]:
        """Take the workloads of the next cycle: those for which a plan keeps their places go first, and alone."""
        due = self._moves.due() if self._moves is not None else {}
        moved = self._queues.pop_these({q: key for q, key in due.items() if may_admit(q)}) if due else []
        popped = moved or self.rounds.pop(may_admit)
        self._hints = self.rounds.hints
        if self._moves is not None and self._moves.has_plans:
            self._hints = {**self._hints, **self._moves.hints()}
        return popped

    async def _try(self, cycle: CycleState, popped: Iterable[tuple[str, Pending]], again: list[SecondTry]) -> bool:
        heads = self._read(cycle, popped)
        if not heads and not again:
            return False
        self.cycles += 1
        cycle.gave_way = False
        started = self._clock.monotonic()
        cycle.watch = Stopwatch(self._clock.monotonic, Phase.SNAPSHOT)

        async def plan(some: list[Head]) -> bool:
            return await self._plan(cycle, some, again)

        success = await self._parts.faults.plan_in_parts(cycle, heads, plan)
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
            with isolated(partial(self._parts.faults.failed, cycle, item.key, doing="reading it")):
                head = self._parts.reader.read(cycle, queue, item, now)
                if head is not None:
                    heads.append(head)
        return heads

    async def _plan(self, cycle: CycleState, heads: list[Head], again: list[SecondTry]) -> bool:
        """Try second passes, plan the heads, and carry out each decision; True when a workload was admitted or got
        new hosts.
        """
        parts = self._parts
        snapshot = parts.planning.snapshot({head.queue for head in heads})
        since, success = self._clock.monotonic(), False
        while again:
            success |= parts.second_passes.begin(snapshot, again.pop(0))
            since = await self._give_way(cycle, since)
        for decision in parts.planning.decisions(snapshot, heads, cycle.watch, self._hints):
            cycle.watch.enter(Phase.APPLY)
            doing = "carrying out what was decided on it"
            with isolated(partial(parts.faults.failed, cycle, decision.head.key, doing=doing)):
                success |= parts.applier.apply(cycle, decision)
            self.rounds.decided(decision)
            parts.starts.decided(decision)
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
