"""Reads the question for start times from the state of this process, in short steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.backfill.plans import LineRule
from kqueue.core.decision import ALL_LOOKS, SecondLooks
from kqueue.core.future.question import (
    DEFAULT_BOUNDS,
    DrainBounds,
    Line,
    StartQuestion,
    WaitingWorkload,
    WorkloadRun,
)
from kqueue.core.future.run_time import RunTime
from kqueue.core.ordering import DEFAULT_RULES, OrderRules
from kqueue.core.planned_state import PlannedState
from kqueue.core.workload import Admitted, Head, Preempts
from kqueue.errors import InvalidObjectError
from kqueue.model.pending import Pending
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.sources import Known, PlanningSource
from kqueue.visibility.workload_state import Hindrance


def with_added(question: StartQuestion, added: Sequence[WaitingWorkload]) -> StartQuestion:
    """Return the question with further workloads, each behind those of its ClusterQueue with no lower priority.

    Workloads of a ClusterQueue without a line, which admits nothing now, are left out.
    """
    lines: list[Line] = []
    for line in question.lines:
        workloads = list(line.workloads)
        for one in (one for one in added if one.head.queue == line.queue):
            behind = (n for n, other in enumerate(workloads) if other.head.priority < one.head.priority)
            workloads.insert(next(behind, len(workloads)), one)
        lines.append(replace(line, workloads=tuple(workloads)))
    return replace(question, lines=tuple(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRules:
    """The settings of the scheduling loop that a drain follows.

    Args:
        one_by_one: whether a workload is admitted only when the pods of all admitted ones are ready, which a drain does
            not follow.
    """

    order: OrderRules = DEFAULT_RULES
    looks: SecondLooks = ALL_LOOKS
    bounds: DrainBounds = DEFAULT_BOUNDS
    line_of: Callable[[str], LineRule | None] = lambda _queue: None
    one_by_one: bool = False


class KnownRunTimes(Protocol):
    """Run times of Workloads."""

    def of(self, obj: wire.Workload) -> RunTime:
        """Return the run time of a Workload from its next admission."""
        ...

    def of_running(self, obj: wire.Workload, elapsed: int) -> tuple[RunTime, bool]:
        """Return the run time of a Workload that has run for `elapsed` seconds, from its admission, and whether it has
        run for longer than half of its kind.
        """
        ...


class StartQuestions:
    """Reads questions."""

    def __init__(
        self,
        *,
        known: Known,
        planning: PlanningSource,
        pending: PendingWorkloads,
        held_back: Callable[[wire.Workload], Iterable[Hindrance]],
        run_times: KnownRunTimes,
        rules: DrainRules,
    ) -> None:
        """`held_back` returns the reasons that keep a Workload out of its queue."""
        self._known, self._planning, self._pending = known, planning, pending
        self._held_back, self._run_times, self._rules = held_back, run_times, rules
        self._before: dict[str, Head] = {}
        self._read: dict[str, Head] = {}
        """The heads of the last question, and of this one, by UID."""

    def left_out(self, queue: str) -> tuple[str, ...]:
        """Return what delays starts in a ClusterQueue and takes no time in a drain: `AdmissionChecks`, `PodsReady`."""
        found = self._known.cache.quota.queue_object(queue)
        strategy = found.spec.admission_checks_strategy if found is not None else None
        has_checks = strategy is not None and bool(strategy.admission_checks)
        return ("AdmissionChecks",) * has_checks + ("PodsReady",) * self._rules.one_by_one

    async def read(self, now: datetime, pace: RequestPace) -> tuple[StartQuestion, dict[str, str]]:
        """Return the question for all waiting workloads, and the keys of all workloads by UID.

        Workloads that are admitted while others are read count as running.
        """
        cache = self._known.cache
        self._before, self._read = self._read, {}
        lines = [line async for line in self._lines(now, pace)]
        preempting = self._with_preemption([queue for queue, _ in lines])
        for steps in (cache.ledger.build_steps(), cache.held.view_steps()):
            for _ in steps:
                await pace.step()
        known: dict[str, WorkloadRun] = {}
        for workload in cache.held.views():
            known[workload.uid] = self._running(workload, now, can_wait=workload.queue in preempting)
            await pace.step()
        # no event is handled from here on
        holders = cache.held.views()
        running = {w.uid: known.get(w.uid) or self._running(w, now, can_wait=False) for w in holders}
        queues = [queue for queue, _ in lines if cache.quota.queue_spec(queue) is not None]
        waiting = {queue: tuple(w for w in some if w.head.uid not in running) for queue, some in lines}
        uids = [one.head.uid for some in waiting.values() for one in some]
        question = StartQuestion(
            state=PlannedState(
                snapshot=cache.snapshot(queues, self._planning.claims()),
                rules=self._planning.rules(now, uids),
                holders=holders,
            ),
            lines=tuple(
                Line(queue=queue, is_strict=self._known.queues.is_strict(queue), workloads=waiting[queue])
                for queue in queues
            ),
            running=running,
            order=self._rules.order,
            looks=self._rules.looks,
            bounds=self._rules.bounds,
            line_of=self._lines_of(queues),
            planned=self._planned(),
        )
        keys = {one.head.uid: one.head.key for some in waiting.values() for one in some}
        again = {uid: one.waits_as.head.key for uid, one in running.items() if one.waits_as is not None}
        return question, {**again, **keys}

    async def of_state(
        self,
        state: PlannedState,
        lines: Iterable[tuple[str, bool, Sequence[tuple[Pending, wire.Workload]]]],
        head_of: Callable[[str, Pending, wire.Workload], Head],
        pace: RequestPace,
    ) -> StartQuestion:
        """Return the question for a state that need not be the present one.

        `lines` are the ClusterQueues, whether each is strict, and the workloads that they try in their order; `head_of`
        makes their heads.
        """
        made, left = list[Line](), self._rules.bounds.workloads
        for queue, is_strict, items in lines:
            found: list[WaitingWorkload] = []
            for item, obj in items[:left]:
                await pace.step()
                try:
                    head = head_of(queue, item, obj)
                except InvalidObjectError:
                    continue
                run_time, held = self._run_times.of(obj), item.on_hold or self._planning.is_parent(obj)
                found.append(
                    WaitingWorkload(
                        head=head, run_time=run_time, shape=item.shape, not_before=item.not_before, on_hold=held
                    )
                )
            made.append(Line(queue=queue, is_strict=is_strict, workloads=tuple(found)))
        running: dict[str, WorkloadRun] = {}
        for workload in state.holders:
            running[workload.uid] = self._running(workload, state.rules.now, can_wait=True)
            await pace.step()
        return StartQuestion(
            state=state,
            lines=tuple(made),
            running=running,
            order=self._rules.order,
            looks=self._rules.looks,
            bounds=self._rules.bounds,
            line_of=self._lines_of(line.queue for line in made),
            planned=self._planned(),
        )

    def _lines_of(self, queues: Iterable[str]) -> dict[str, LineRule]:
        return {queue: rule for queue in queues if (rule := self._rules.line_of(queue)) is not None}

    def _planned(self) -> dict[str, str]:
        """Return the UIDs of workloads with a planned start, by line."""
        return {line: claim.uid for line, claim in self._planning.starts.all().items()}

    async def _lines(self, now: datetime, pace: RequestPace) -> AsyncIterator[tuple[str, list[WaitingWorkload]]]:
        queues, quota = self._known.queues, self._known.cache.quota
        left = self._rules.bounds.workloads
        for queue in queues.names():
            if quota.queue_spec(queue) is None or quota.inactive(queue) is not None:
                continue
            found: list[WaitingWorkload] = []
            for place in (await self._pending.places(queue))[:left]:
                await pace.step()
                waiting = self._waiting(place.item, queue, now)
                if waiting is not None:
                    found.append(waiting)
            yield queue, found

    def _waiting(self, item: Pending, queue: str, now: datetime) -> WaitingWorkload | None:
        """Return a waiting workload; None: it is gone, or its requests cannot be read."""
        obj = self._known.workloads.get(item.key)
        if obj is None or obj.metadata.uid != item.uid:
            return None
        try:
            head = self._planning.heads.make(obj, item, queue=queue, now=now)
        except InvalidObjectError:
            return None
        held = item.on_hold or self._planning.is_parent(obj) or any(True for _ in self._held_back(obj))
        return WaitingWorkload(
            head=self._as_before(head),
            run_time=self._run_times.of(obj),
            shape=item.shape,
            not_before=item.not_before,
            on_hold=held,
        )

    def _waits_again(self, workload: Admitted, obj: wire.Workload, now: datetime) -> WaitingWorkload | None:
        """Return a running workload as it waits after a preemption; None: it does not wait then."""
        if not obj.spec.active or model.is_over(obj):
            return None
        try:
            head = self._planning.heads.make(obj, None, queue=workload.queue, now=now)
        except InvalidObjectError:
            return None
        head = self._as_before(replace(head, replaces=None))
        return WaitingWorkload(head=head, run_time=self._run_times.of(obj), shape=f"again/{head.uid}")

    def _running(self, workload: Admitted, now: datetime, *, can_wait: bool) -> WorkloadRun:
        """Return what is known of a workload with quota; with `can_wait` as it waits after a preemption, too."""
        obj = self._known.workloads.get(workload.key)
        if obj is None or obj.metadata.uid != workload.uid:
            return WorkloadRun()
        since = model.since(obj, names.CONDITION_ADMITTED)
        elapsed = max(0, int((now - since).total_seconds())) if since is not None else 0
        waits_as = self._waits_again(workload, obj, now) if can_wait or workload.evicted else None
        run_time, outlived = self._run_times.of_running(obj, elapsed)
        return WorkloadRun(run_time=run_time, elapsed=elapsed, outlived=outlived, waits_as=waits_as)

    def _as_before(self, head: Head) -> Head:
        """Return the equal head of the last question, if there is one: unchanged objects are not sent again, and are
        compared here in short steps.
        """
        before = self._before.get(head.uid)
        found = self._read[head.uid] = before if before is not None and before == head else head
        return found

    def _with_preemption(self, queues: Iterable[str]) -> set[str]:
        """Return the ClusterQueues in whose trees workloads may be preempted."""
        quota, found = self._known.cache.quota, set[str]()
        for queue in queues:
            spec = quota.queue_spec(queue)
            if spec is not None and (spec.preempts_own, spec.reclaims) != (Preempts.NEVER, Preempts.NEVER):
                found.add(queue)
        return found | quota.in_trees(found, ())
