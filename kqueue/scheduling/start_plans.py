"""Plans the start of the first workload in each line that does not fit, after the cycle that refused it.

    refused    of each line, the first workload of the cycle that found no room, unless one ahead of it has a plan
    planned    the earliest time at which it fits, by the ends of running workloads; searched in short steps
    kept       an earlier time replaces the former one; a later one only if the former does not hold any more

The plan is a claim with a time, which the next cycle charges.  A plan is renewed at most every few seconds, and at its
time, so that a busy cluster is not searched after each end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.core.backfill.ends import LEAVING, expected_end, lasting
from kqueue.core.backfill.plans import LaterStart, LineRule, MoveCause, StartPlans
from kqueue.core.backfill.refusals import Refusals
from kqueue.core.backfill.search import RENEWED, ExpectedEnd, earliest, holds
from kqueue.core.decision import Admit, Decision, Wait
from kqueue.core.planned_state import PlannedState
from kqueue.core.workload import Admitted, Claim, Head
from kqueue.isolation import isolated_logged
from kqueue.scheduling.alarm import Alarm
from kqueue.scheduling.context import Context
from kqueue.scheduling.overruns import Overruns
from kqueue.scheduling.planning import PlanMaker
from kqueue.scheduling.waits import PendingReasons, Why

_log = structlog.get_logger(__name__)

_PER_TURN = 500
"""Workloads whose ends are read before the event loop gets a turn."""
_NAMED = 5
"""The most workloads that are named as the cause of a move."""


class StartPlanner:
    """Follows the decisions of cycles, and plans between them."""

    def __init__(self, context: Context, planning: PlanMaker, alarm: Alarm, waits: PendingReasons) -> None:
        self._context, self._planning, self._alarm = context, planning, alarm
        self._waits = waits
        self._plans: StartPlans = context.state.start_plans
        self._overruns = Overruns(context)
        self._refusals = Refusals(self._plans, context.settings.line_of)
        self._searched: dict[str, tuple[str, datetime]] = {}
        """By line: the workload of the last search, and its time."""
        self._believed: dict[str, dict[str, datetime]] = {}
        """By line: the times at which workloads were taken to end when the plan was made, by UID."""

    def decided(self, decision: Decision) -> None:
        """Follow a decision of the present cycle."""
        if isinstance(decision, Admit) and (told := self._plans.of_workload(decision.head.uid)) is not None:
            self._context.observer.planned_start_kept(decision.head.queue, in_time=not told[1].moves)
        self._refusals.decided(decision)
        self._overruns.decided(decision)

    async def plan(self) -> None:
        """Plan the starts of the workloads that the last cycle refused."""
        for rule, refusal in self._refusals.take():
            failed = "the start of a workload could not be planned, it waits without a planned start"
            with isolated_logged(_log, failed, workload=refusal.head.key):
                await self._plan(rule, refusal)

    async def _plan(self, rule: LineRule, refusal: Wait) -> None:
        head = refusal.head
        now, former = self._context.clock.now(), self._plans.of(rule.name)
        former = former if former is not None and former.uid == head.uid else None
        searched, last = self._searched.get(rule.name, ("", now))
        is_due = former is None or (former.at is not None and former.at <= now)
        if searched == head.uid and now - last < RENEWED and (not is_due or former is None):
            return
        self._searched[rule.name] = head.uid, now
        state, endings = await self._present(head, now)
        if rule.evicts:
            endings = self._with_evictions(former, endings, now)
        found = await self._search(rule, head, state, endings, now)
        at = found.at if found is not None else None
        newest, current = self._context.writer.newest(head.key), self._plans.of(rule.name)
        if newest is None or newest.metadata.uid != head.uid:
            return
        if found is None or at is None:
            self._plans.end(head.uid)
            return
        move = None
        if former is not None and former.at is not None and at > former.at:
            late = self._late(rule.name, former, former.at, endings, now)
            if not late and not is_due and holds(state, former):
                return
            move = _move(former.at, at, late)
        if current is not None and former is not None and current.uid == head.uid:
            joined = {uid: one for uid, one in current.ends.items() if uid not in former.ends}
            found = replace(found, ends={**found.ends, **joined})
        self._told(head, self._plans.put(rule.name, found, move))
        self._believed[rule.name] = {e.workload.uid: e.at for e in endings if e.workload.uid in found.ends}
        self._alarm.start_at(rule.name, head.queue, at)
        message = refusal.message + self._plans.told(head.uid)
        self._waits.report(head.key, newest, Why(refusal.reason, message, head.pod_sets))

    def _late(
        self, line: str, former: Claim, planned: datetime, endings: Iterable[ExpectedEnd], now: datetime
    ) -> list[Admitted]:
        """Return the workloads that run longer than a plan took them to: an end that is only estimated anew counts when
        the old one has passed.
        """
        believed = self._believed.get(line, {})
        there = [e for e in endings if e.workload.uid in former.ends and e.at > planned]
        return [e.workload for e in there if believed.get(e.workload.uid, planned) <= now]

    def _told(self, head: Head, move: LaterStart | None) -> None:
        if move is None:
            return
        self._context.observer.planned_start_moved(head.queue, move.cause)
        _log.info(
            "a planned start became later",
            workload=head.key,
            before=move.before.isoformat(),
            after=move.after.isoformat(),
            cause=move.cause.value,
            workloads=list(move.workloads),
        )

    async def _present(self, head: Head, now: datetime) -> tuple[PlannedState, list[ExpectedEnd]]:
        """Return the present state, and the end of each workload with quota."""
        cache, context = self._context.state.cache, self._context
        for steps in (cache.ledger.build_steps(), cache.held.view_steps()):
            for _ in steps:
                await context.clock.sleep(0)
        holders = cache.held.views()
        state = PlannedState(
            snapshot=cache.snapshot([head.queue], self._planning.claims()),
            rules=self._planning.rules(now, [head.uid]),
            holders=holders,
            hooks=context.settings.hooks,
        )
        endings: list[ExpectedEnd] = []
        for number, holder in enumerate(holders, 1):
            endings.append(ExpectedEnd(at=self._end_of(holder, now), workload=holder))
            if number % _PER_TURN == 0:
                await context.clock.sleep(0)
        return state, endings

    def _with_evictions(self, former: Claim | None, endings: Sequence[ExpectedEnd], now: datetime) -> list[ExpectedEnd]:
        """Evict the workloads that overrun a due planned start; return the ends of those that may be evicted at need as
        now.
        """
        over = self._overruns.over((end.workload for end in endings), now)
        begun = {one.uid for one in self._overruns.evict(former, over, now)} if former is not None else ()
        ends = {one.uid: now + LEAVING if one.uid in begun else now for one in over}
        return [replace(end, at=ends.get(end.workload.uid, end.at)) for end in endings] if ends else list(endings)

    async def _search(
        self, rule: LineRule, head: Head, state: PlannedState, endings: Sequence[ExpectedEnd], now: datetime
    ) -> Claim | None:
        steps = earliest(state, head, endings, now=now, guesses=rule.guesses)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: Claim | None = end.value
                return found
            await self._context.clock.sleep(0)

    def _end_of(self, holder: Admitted, now: datetime) -> datetime:
        """Return the time at which a workload with quota is taken to end, later than now."""
        obj = self._context.writer.newest(holder.key)
        if obj is None or obj.metadata.uid != holder.uid:
            return now + LEAVING
        if holder.evicted:
            return lasting(model.since(obj, names.CONDITION_EVICTED) or now, LEAVING, now)
        since = holder.admitted_at or holder.reserved_at
        return expected_end(self._context.settings.run_time_of(obj), since, now)


def _move(before: datetime, after: datetime, late: Sequence[Admitted]) -> LaterStart:
    cause = MoveCause.OVERRUN if late else MoveCause.LESS_ROOM
    return LaterStart(before=before, after=after, cause=cause, workloads=tuple(w.key for w in late[:_NAMED]))
