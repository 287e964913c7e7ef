"""Fault isolation: find the workload or ClusterQueue on which a plan fails, and let all others go on.

A bug may show on the workload that is planned, on one that runs and that its plan looks at, on a claim, or on a
ClusterQueue. Plans that leave some of these out find the cause.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import structlog
from cachetools import LRUCache

from kqueue.core.decision import Wait
from kqueue.core.workload import Claim, Head
from kqueue.isolation import isolated
from kqueue.model.pending import RequeueReason
from kqueue.scheduling.alarm import Alarm
from kqueue.scheduling.context import Context
from kqueue.scheduling.cycle_state import CycleState
from kqueue.scheduling.failing_workloads import FailingWorkloads
from kqueue.scheduling.planning import PlanMaker
from kqueue.scheduling.put_back import PutBack
from kqueue.scheduling.scan_memories import ScanMemories

_log = structlog.get_logger(__name__)

MAX_BLAME_SEARCHES = 3
"""The number of searches for another workload that makes the plan of a head fail, before the head itself is blamed."""


class FaultIsolation:
    """Blames workloads and ClusterQueues on which plans fail."""

    def __init__(
        self,
        context: Context,
        *,
        planning: PlanMaker,
        alarm: Alarm,
        trouble: FailingWorkloads,
        scans: ScanMemories,
        put_back: PutBack,
    ) -> None:
        self._start_plans = context.state.start_plans
        self._cache, self._queues, self._preemptions = (
            context.state.cache,
            context.state.queues,
            context.state.preemptions,
        )
        self._planning, self._alarm, self._trouble = planning, alarm, trouble
        self._moves, self._reservations = context.state.moves, context.state.reservations
        self._scans, self._put_back = scans, put_back
        self._searched: LRUCache[str, int] = LRUCache(maxsize=1000)
        """By workload (uid): the number of searches made because its plan failed."""

    def failed(self, cycle: CycleState, key: str, error: Exception, *, doing: str) -> None:
        """Record a bug on one workload; the other workloads of the cycle go on without cached results."""
        cycle.gave_way = True  # workloads that are admitted later in the cycle are checked against the cache, too
        self._planning.forget()
        self._scans.forget(key)
        self._trouble.failed(key, error, doing=doing)

    # --- a plan that fails as a whole

    async def plan_in_parts(
        self, cycle: CycleState, heads: list[Head], plan: Callable[[list[Head]], Awaitable[bool]]
    ) -> bool:
        """Plan all heads together; if that fails, plan each half, and so on until one head or ClusterQueue is found as
        the cause.

        Decisions made before the failure remain in force; heads that had no decision are in one of the halves.
        """
        with isolated() as whole:
            return await plan(heads)
        error = whole.error
        assert error is not None, "the plan has ended by an error"
        self._planning.forget()
        left = [head for head in heads if self._is_in_flight(head)]
        if not left:
            raise error
        if len(left) > 1:
            _log.error("a plan failed as a whole, it is made in halves", heads=len(left), exc_info=error)
        if self._end_broken_claims(cycle):
            return await self.plan_in_parts(cycle, [head for head in left if self._is_in_flight(head)], plan)
        if len(left) == 1:
            self._blame(cycle, left[0], error)
            return False
        middle = len(left) // 2
        success = await self.plan_in_parts(cycle, left[:middle], plan)
        return await self.plan_in_parts(cycle, left[middle:], plan) or success

    def _is_in_flight(self, head: Head) -> bool:
        item = self._queues.in_flight(head.queue)
        return item is not None and item.key == head.key

    def _blame(self, cycle: CycleState, head: Head, error: Exception) -> None:
        """Blame the head or its whole ClusterQueue, after a plan for this head alone has failed."""
        trouble = self._trouble_with({head.queue})
        if trouble is None:
            self.failed(cycle, head.key, error, doing="planning it")
            return
        if self._trouble_with(()) is not None:
            raise error  # no queue is to blame
        _log.error("a ClusterQueue rests, no snapshot of it can be made", cluster_queue=head.queue, exc_info=trouble)
        self._put_back.requeue(cycle, head.key, RequeueReason.GENERIC)
        self._alarm.rest(head.queue)

    # --- a plan that fails on a workload that runs

    def find_cause(self, cycle: CycleState, head: Head, error: Exception) -> None:
        """Blame the head, or a workload that it might have preempted, after planning the head has failed."""
        searches = self._searched.get(head.uid, 0)
        holder = self._holder_that_breaks(head) if searches < MAX_BLAME_SEARCHES else None
        if holder is None:
            self.failed(cycle, head.key, error, doing="planning it")
            return
        self._searched[head.uid] = searches + 1
        cycle.gave_way = True
        self._planning.forget()
        self._cache.held.hide(holder)
        _log.error("plans that look at a workload fail on a bug, it is not preempted", workload=holder, exc_info=error)
        self._put_back.requeue(cycle, head.key, RequeueReason.FAILED_AFTER_NOMINATION)

    def _holder_that_breaks(self, head: Head) -> str | None:
        """Return the running workload (namespace/name) without which the head can be planned, or None."""
        every: list[str] = []
        with isolated():  # where no snapshot can be made, none of them is the cause
            views = self._cache.snapshot({head.queue}).admitted
            every = [key for queue in views for key in views[queue]]
        if not every or self._breaks(head, frozenset()):
            return None
        suspects = every
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            suspects = half if self._breaks(head, frozenset(half)) else suspects[len(half) :]
        return suspects[0] if self._breaks(head, frozenset(suspects)) else None

    def _breaks(self, head: Head, seen: frozenset[str]) -> bool:
        """Whether planning the head alone fails if only these running workloads are in the snapshot."""
        with isolated():
            snapshot = self._cache.snapshot({head.queue})
            admitted = {
                queue: {key: view for key, view in views.items() if key in seen}
                for queue, views in snapshot.admitted.items()
            }
            decided = list(self._planning.decisions(replace(snapshot, admitted=admitted), [head]))
            return any(isinstance(decision, Wait) and decision.error is not None for decision in decided)
        return True

    # --- a plan that fails on a claim, or on a ClusterQueue

    def _end_broken_claims(self, cycle: CycleState) -> bool:
        """End claims on which every plan fails, and blame their preemptors; return whether there were any."""
        broken = False
        for claim in self._planning.end_claims():
            trouble = self._trouble_with((), claim)
            if trouble is not None and self._trouble_with({claim.queue}) is None:
                self._preemptions.end(claim.uid)
                self._start_plans.end(claim.uid)
                if self._moves is not None:
                    self._moves.give_up(claim.uid)
                if self._reservations is not None:
                    self._reservations.give_up(claim.uid)
                self.failed(cycle, claim.key, trouble, doing="keeping room for it")
                broken = True
        return broken

    def _trouble_with(self, queues: Iterable[str], *claims: Claim) -> Exception | None:
        """Return the error of a plan with these ClusterQueues and claims, even without heads; None if it succeeds."""
        with isolated() as trial:
            for _ in self._planning.decisions(self._cache.snapshot(queues, claims), []):
                pass
        return trial.error
