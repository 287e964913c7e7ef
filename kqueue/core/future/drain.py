"""The planner over a simulated future: workloads end by their run times, and waiting ones are planned at each end.

    ends        all ends within a second are one event: their usage is released
    wake        the ClusterQueues that may use it try their workloads again, except those that it cannot help
    cycles      the planner of the scheduling loop decides, until no workload starts or is preempted any more

A started workload gets an end of its own.  A preempted one ends at once, and waits again.  A workload without a known
run time never ends here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from kqueue.core import cycle
from kqueue.core.decision import KEEPS_CLAIM, Admit, Decision, Preempt, Wait
from kqueue.core.future.lines import Lines
from kqueue.core.future.planned_starts import FutureStarts
from kqueue.core.future.question import StartQuestion, WaitingWorkload, WorkloadRun
from kqueue.core.future.remaining import Quantile, remaining
from kqueue.core.future.world import FutureWorld
from kqueue.core.mention import Mention
from kqueue.core.plan_cache import PlanCache
from kqueue.core.preemption import Findings
from kqueue.core.topology.result import Path
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Head

_LEAVING_SECONDS = 1
"""The time after which a workload is taken to have ended that is evicted already."""
_NAMED = 20
"""The largest number of workloads, or domains, that are named for one start."""


class NoStart(StrEnum):
    """The reasons why a workload has no start time."""

    UNKNOWN_RUN_TIMES = "UnknownRunTimes"
    """Workloads without a known run time hold what it needs, or are ahead of it."""
    BEYOND_HORIZON = "BeyondHorizon"
    """It starts after the horizon, or never."""
    NOT_IN_SIGHT = "NotInSight"
    """It does not start although all running workloads have ended."""
    ON_HOLD = "OnHold"
    """It is not tried before somebody changes it."""
    NOT_COMPUTED = "NotComputed"
    """The drain has reached a bound before."""


@value(kw_only=True)
class PlannedStart:
    """The start of a workload.

    Args:
        seconds: from now.
        flavors: by pod set, the flavors that it gets.
        domains: topology domains above the hosts, with pods; at most 20.
        domain_count: the number of all of these.
        after: the workloads that ended last before it, and released what it may use; at most 20.
        after_count: the number of all of these.
    """

    seconds: int
    flavors: Mapping[str, tuple[str, ...]]
    domains: tuple[tuple[Path, int], ...] = ()
    domain_count: int = 0
    after: tuple[Mention, ...] = ()
    after_count: int = 0


@value(kw_only=True)
class NotPlanned:
    """Why a workload has no start.

    Args:
        workloads: workloads without a known run time that are in its way; at most 20.
        count: the number of all of these.
    """

    reason: NoStart
    workloads: tuple[Mention, ...] = ()
    count: int = 0


Planned = PlannedStart | NotPlanned
_NOT_COMPUTED = NotPlanned(reason=NoStart.NOT_COMPUTED)


@dataclass(slots=True)
class _Ended:
    """Workloads that have ended."""

    workloads: list[Admitted] = field(default_factory=list)
    beside: list[set[str]] = field(default_factory=list)
    """By workload, the ClusterQueues that may use what it released."""


class Drain:
    """One drain, with one of the two run times of each workload."""

    def __init__(self, question: StartQuestion, quantile: Quantile, *, goes_on: Callable[[], bool]) -> None:
        """`goes_on` is asked before each cycle; the drain stops when it says no."""
        self._question, self._quantile, self._goes_on = question, quantile, goes_on
        self._now0: datetime = question.state.rules.now
        self._world = FutureWorld(question.state, [line.queue for line in question.lines])
        self._lines = Lines(
            question.lines, question.bounds.workloads, self._world.freed, self._world.scans_several_flavors
        )
        self._running: dict[str, WorkloadRun] = dict(question.running)
        self._cache = PlanCache()
        self._second = 0
        self._ends: list[tuple[int, str, int]] = []
        """Second, UID and the number of the start: an end of an earlier start does not count."""
        self._starts_of: dict[str, int] = {}
        self._wakes: list[tuple[int, str, str]] = []
        """Second, ClusterQueue, and UID of a workload that may be tried from then on; empty: all of the queue."""
        self._wakes_of_queues: set[tuple[int, str]] = set()
        self._ended = _Ended()
        """The workloads that have ended in the present event."""
        self._planned_starts = FutureStarts(question, self._world, self._lines.wake)
        self.tries = 0
        """The number of heads that were planned."""
        self.is_complete = True
        """Whether no bound has stopped the drain."""
        self.asked: dict[str, None] = dict.fromkeys(one.head.uid for line in question.lines for one in line.workloads)
        """UIDs of the workloads that wait now, or will as soon as they have left."""
        self.starts: dict[str, Planned] = {}

    def run(self) -> dict[str, Planned]:
        """Return the first start of each workload that waits, or leaves to wait again, by UID."""
        self._begin()
        self._cycles()
        while self.is_complete and (at := self._next_event()) is not None and at <= self._question.bounds.horizon:
            self._second, self._ended = at, _Ended()
            self._release(self._due(at))
            self._cycles()
        self._explain_others()
        return {uid: self.starts.get(uid, _NOT_COMPUTED) for uid in self.asked}

    # --- events

    def _begin(self) -> None:
        for uid, holder in self._world.holders.items():
            running = self._running.get(uid, WorkloadRun())
            rest = remaining(running.run_time, running.elapsed, self._quantile)
            if holder.evicted:
                if running.waits_as is not None:
                    self.asked[uid] = None
                rest = _LEAVING_SECONDS if rest is None else min(rest, _LEAVING_SECONDS)
            if rest is not None:
                heapq.heappush(self._ends, (rest, uid, 0))
        for waiting in self._lines:
            self._admit_to_line(waiting)
        for at, queues in self._planned_starts.changes():
            for queue in queues:
                heapq.heappush(self._wakes, (max(1, self._seconds_to(at)), queue, ""))

    def _admit_to_line(self, waiting: WaitingWorkload) -> None:
        if waiting.on_hold:
            return
        rest = self._seconds_to(waiting.not_before) if waiting.not_before is not None else 0
        if rest > 0:
            heapq.heappush(self._wakes, (rest, waiting.head.queue, waiting.head.uid))
        else:
            self._lines.activate(waiting.head.uid)

    def _seconds_to(self, at: datetime) -> int:
        """Return the whole seconds from the begin of the drain to this time, rounded up."""
        return -((self._now0 - at) // timedelta(seconds=1))

    def _next_event(self) -> int | None:
        while self._ends and self._starts_of.get(self._ends[0][1], 0) != self._ends[0][2]:
            heapq.heappop(self._ends)
        firsts = [line[0][0] for line in (self._ends, self._wakes) if line]
        return min(firsts, default=None)

    def _due(self, at: int) -> list[str]:
        """Take all ends up to this second, and let workloads be tried whose pause is over; return the ended ones."""
        ended: list[str] = []
        while self._ends and self._ends[0][0] <= at:
            _, uid, start = heapq.heappop(self._ends)
            if self._starts_of.get(uid, 0) == start:
                ended.append(uid)
        while self._wakes and self._wakes[0][0] <= at:
            _, queue, uid = heapq.heappop(self._wakes)
            if uid:
                self._lines.activate(uid)
            else:
                self._lines.wake([queue])
        return ended

    def _release(self, uids: Iterable[str]) -> None:
        """Release the usage of workloads, and let those be tried again that it may help."""
        queues = set[str]()
        for uid in uids:
            workload = self._world.release(uid)
            if workload is None:
                continue
            beside = self._world.beside(workload)
            self._ended.workloads.append(workload)
            self._ended.beside.append(beside)
            queues |= beside
            if workload.evicted:
                self._wait_again(uid)
        self._lines.wake(queues)

    @property
    def _now(self) -> datetime:
        return self._now0 + timedelta(seconds=self._second)

    def _wait_again(self, uid: str) -> None:
        """Put a workload that was preempted into its line, if it is known how it waits."""
        waiting = self._running[uid].waits_as if uid in self._running else None
        if waiting is not None and uid not in self._lines:
            self._lines.come_back(replace(waiting, head=replace(waiting.head, timestamp=self._now)))

    # --- cycles

    def _cycles(self) -> None:
        """Run cycles until nothing starts and nothing new is tried."""
        goes_on = True
        while goes_on:
            findings = Findings(self._world.rules(self._now, ()), self._cache.lowest)
            heads = self._lines.heads(partial(self._may_start, findings=findings))
            if not heads:
                return
            self.tries += len(heads)
            if self.tries > self._question.bounds.tries or not self._goes_on():
                self.is_complete = False
                return
            goes_on = self._one_cycle(heads)

    def _may_start(self, head: Head, refused: Wait | None, findings: Findings) -> bool:
        return self._world.may_start(head, refused, findings) or self._planned_starts.asks_for(head, self._now)

    def _one_cycle(self, heads: list[Head]) -> bool:
        """Plan these heads; return whether another cycle may have another result."""
        goes_on, victims = False, list[Admitted]()
        for decision in list(self._planned(heads)):
            self._planned_starts.decided(decision)
            match decision:
                case Admit():
                    self._start(decision)
                    victims += [w for w in map(self._world.holder, (g.uid for g in decision.made_way)) if w is not None]
                    goes_on = True
                case Preempt():
                    victims += self._world.preempt(decision)
                    self._lines.prefer(decision.head)
                    goes_on = True
                case Wait():
                    goes_on |= self._follow(decision)
        self._end_early(victims)
        if self._question.line_of:
            self._planned_starts.plan(self._question.state, self._now, self._end_times())
        return goes_on

    def _end_times(self) -> dict[str, datetime]:
        """Return the times at which workloads end, by UID."""
        return {
            uid: self._now0 + timedelta(seconds=at)
            for at, uid, start in self._ends
            if self._starts_of.get(uid, 0) == start
        }

    def _planned(self, heads: list[Head]) -> Iterable[Decision]:
        question = self._question
        return cycle.plan(
            self._world.snapshot({head.queue for head in heads}, self._planned_starts.claims(self._now)),
            heads,
            rules=self._world.rules(self._now, heads),
            order=question.order,
            looks=question.looks,
            cache=self._cache,
            next_head=self._lines.next_head,
            hooks=question.state.hooks,
            explains=False,
        )

    def _start(self, decision: Admit) -> None:
        head = decision.head
        waiting = self._lines.take(head.uid)
        assert waiting is not None, "only waiting workloads are planned"
        self._world.admit(decision, self._now)
        number = self._starts_of[head.uid] = self._starts_of.get(head.uid, 0) + 1
        self._running[head.uid] = WorkloadRun(run_time=waiting.run_time, waits_as=waiting)
        rest = remaining(waiting.run_time, 0, self._quantile)
        if rest is not None:
            heapq.heappush(self._ends, (self._second + rest, head.uid, number))
        if head.uid in self.asked and head.uid not in self.starts:
            self.starts[head.uid] = self._first_start(decision)

    def _first_start(self, decision: Admit) -> PlannedStart:
        queue, pod_sets = decision.head.queue, decision.admission.pod_sets
        of_use = zip(self._ended.workloads, self._ended.beside, strict=True)
        after = [Mention(w.key, w.queue) for w, beside in of_use if queue in beside]
        domains = self._world.domains_of(pod_sets)
        return PlannedStart(
            seconds=self._second,
            flavors={one.name: tuple(sorted(set(one.flavors.values()))) for one in pod_sets},
            domains=tuple(domains[:_NAMED]),
            domain_count=len(domains),
            after=tuple(after[:_NAMED]),
            after_count=len(after),
        )

    def _follow(self, wait: Wait) -> bool:
        if wait.retry_at is not None:
            at = self._seconds_to(wait.retry_at)
            if at > self._second and (at, wait.head.queue) not in self._wakes_of_queues:
                self._wakes_of_queues.add((at, wait.head.queue))
                heapq.heappush(self._wakes, (at, wait.head.queue, ""))
        if wait.outcome not in KEEPS_CLAIM and self._world.end_claim(wait.head.uid):
            self._lines.wake(self._world.trees[wait.head.queue])
        return self._lines.refuse(wait)

    def _end_early(self, victims: Iterable[Admitted]) -> None:
        """End preempted workloads at once, and put them back into their lines."""
        gone = {victim.uid: victim for victim in victims if self._world.holder(victim.uid) is not None}
        for uid in gone:
            self._starts_of[uid] = self._starts_of.get(uid, 0) + 1
        self._release(gone)
        for uid, victim in gone.items():
            if not victim.evicted:
                self._wait_again(uid)

    # --- workloads without a start

    def _explain_others(self) -> None:
        unknown: list[tuple[Admitted, set[str]]] = []
        with_end = {uid for _, uid, start in self._ends if self._starts_of.get(uid, 0) == start}
        for uid, holder in self._world.holders.items():
            if uid not in with_end:
                unknown.append((holder, self._world.beside(holder)))
        for waiting in self._lines:
            if waiting.head.uid not in self.starts:
                self.starts[waiting.head.uid] = self._reason(waiting, unknown)

    def _reason(self, waiting: WaitingWorkload, unknown: Collection[tuple[Admitted, set[str]]]) -> NotPlanned:
        if waiting.on_hold:
            return NotPlanned(reason=NoStart.ON_HOLD)
        if not self.is_complete:
            return _NOT_COMPUTED
        in_the_way = [Mention(w.key, w.queue) for w, beside in unknown if waiting.head.queue in beside]
        if in_the_way:
            return NotPlanned(
                reason=NoStart.UNKNOWN_RUN_TIMES, workloads=tuple(in_the_way[:_NAMED]), count=len(in_the_way)
            )
        later = self._next_event() is not None
        return NotPlanned(reason=NoStart.BEYOND_HORIZON if later else NoStart.NOT_IN_SIGHT)
