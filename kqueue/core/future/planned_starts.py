"""Planned starts of a simulated future: backfill by time, as the scheduling loop has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from kqueue.core.backfill.ends import UNKNOWN_RUN, lasting
from kqueue.core.backfill.plans import StartPlans
from kqueue.core.backfill.refusals import Refusals
from kqueue.core.backfill.search import RENEWED, ExpectedEnd, earliest
from kqueue.core.decision import Decision
from kqueue.core.future.question import StartQuestion
from kqueue.core.future.world import FutureWorld
from kqueue.core.planned_state import PlannedState
from kqueue.core.workload import Admitted, Claim, Head


class FutureStarts:
    """Plans starts in one drain."""

    def __init__(self, question: StartQuestion, world: FutureWorld, wake: Callable[[Iterable[str]], None]) -> None:
        """`wake` is called with ClusterQueues that a planned start has bound, and that may use its room now."""
        self._world, self._line_of = world, question.line_of
        timed = {claim.uid: claim for claim in question.state.snapshot.claims if claim.is_timed}
        self._reservations = [claim for claim in timed.values() if claim.rank is None]
        self._plans = StartPlans()
        for line, uid in question.planned.items():
            if uid in timed:
                self._plans.put(line, timed[uid])
        self._plans.on_ended = lambda claim: wake(world.beside(claim))
        self._refusals = Refusals(self._plans, question.line_of.get)
        self._searched: dict[str, tuple[str, datetime]] = {}

    def claims(self, now: datetime) -> tuple[Claim, ...]:
        """Return the claims with a time."""
        reservations = [c for c in self._reservations if c.until is None or c.until > now]
        return (*self._plans.claims(lambda _: True), *reservations) if self._plans or reservations else ()

    def changes(self) -> list[tuple[datetime, frozenset[str]]]:
        """Return the begin and the end of each Reservation, with the ClusterQueues that may use its hosts from then on.

        A Reservation without a ClusterQueue has no begin here: nothing may use its hosts then.
        """
        begins = [(c.at, c.open_to) for c in self._reservations if c.at is not None and c.open_to]
        ends = [(c.until, frozenset(self._world.beside(c))) for c in self._reservations if c.until is not None]
        return begins + ends

    def asks_for(self, head: Head, now: datetime) -> bool:
        """Whether a head must be tried although it cannot start, because its line needs a plan."""
        rule = self._line_of.get(head.queue)
        if rule is None or not self._plans.is_first(rule.name, head):
            return False
        claim = self._plans.of(rule.name)
        return claim is None or claim.uid != head.uid or (claim.at is not None and claim.at <= now)

    def decided(self, decision: Decision) -> None:
        """Follow a decision of the present cycle."""
        if self._line_of or self._plans:
            self._refusals.decided(decision)

    def plan(self, state: PlannedState, now: datetime, end_of: Mapping[str, datetime]) -> None:
        """Plan the starts of workloads that the last cycle refused; `end_of` has the ends of workloads by UID."""
        for rule, refusal in self._refusals.take():
            head = refusal.head
            former = self._plans.of(rule.name)
            uid, at = self._searched.get(rule.name, ("", now))
            is_due = former is not None and former.uid == head.uid and former.at is not None and former.at <= now
            if uid == head.uid and now - at < RENEWED and not is_due:
                continue
            self._searched[rule.name] = head.uid, now
            found = self._search(head, state, now, end_of, guesses=rule.guesses)
            if found is None or found.at is None:
                self._plans.end(head.uid)
                continue
            is_later = former is not None and former.uid == head.uid and former.at is not None and found.at > former.at
            if not is_later or is_due:
                self._plans.put(rule.name, found)

    def _search(
        self, head: Head, state: PlannedState, now: datetime, end_of: Mapping[str, datetime], *, guesses: bool
    ) -> Claim | None:
        endings = [ExpectedEnd(at=_end(w, now, end_of), workload=w) for w in self._world.holders.values()]
        present = PlannedState(
            snapshot=self._world.snapshot([head.queue], self.claims(now)),
            rules=self._world.rules(now, [head]),
            holders=tuple(self._world.holders.values()),
            hooks=state.hooks,
        )
        steps = earliest(present, head, endings, now=now, guesses=guesses)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: Claim | None = end.value
                return found


def _end(workload: Admitted, now: datetime, end_of: Mapping[str, datetime]) -> datetime:
    """Return when a workload ends; without a known end as the scheduling loop takes it to."""
    return end_of.get(workload.uid) or lasting(min(workload.admitted_at or now, now), UNKNOWN_RUN, now)
