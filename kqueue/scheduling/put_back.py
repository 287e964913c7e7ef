"""Puts workloads that were not admitted back into their queues, with the reason for waiting."""

from __future__ import annotations

from kqueue.api.wire import kueue as wire
from kqueue.core.quota import FlavorResource
from kqueue.model.pending import NO_VERDICT, LastTry, RequeueReason
from kqueue.scheduling.context import Context
from kqueue.scheduling.cycle_state import CycleState
from kqueue.scheduling.waits import PendingReasons, Why
from kqueue.state.tries import Try


class PutBack:
    """Puts workloads back."""

    def __init__(self, context: Context, waits: PendingReasons) -> None:
        self._cache, self._queues, self._tries = context.state.cache, context.state.queues, context.state.tries
        self._clock, self._waits = context.clock, waits

    def requeue(
        self,
        cycle: CycleState,
        key: str,
        reason: RequeueReason,
        *,
        verdict: LastTry = NO_VERDICT,
        has_more: bool = False,
    ) -> None:
        """Queue a workload (namespace/name) again without a reason; the other parameters are as in `Queues.requeue`."""
        if self._queues.requeue(key, reason, verdict=verdict, has_more=has_more):
            cycle.came_back.add(key)

    def put_back(
        self,
        cycle: CycleState,
        obj: wire.Workload,
        requeue: RequeueReason,
        why: Why,
        *,
        has_more: bool = False,
        briefly: bool = False,
        lacks: tuple[tuple[FlavorResource, int], ...] = (),
    ) -> None:
        """Queue a workload again, remember the try, and write the reason for waiting.

        `briefly` is as in `PendingReasons.report`, `lacks` as in `LastTry`.
        """
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        self._note(cycle, key, why.reason)
        verdict = LastTry(why.reason, why.message, lacks)
        self.requeue(cycle, key, requeue, verdict=verdict, has_more=has_more)
        self._waits.report(key, obj, why, briefly=briefly)

    def _note(self, cycle: CycleState, key: str, reason: str) -> None:
        read, queue = cycle.reads.get(key), self._queues.home(key)
        if read is None or queue is None:
            return
        tried = Try(
            key=key,
            at=self._clock.now(),
            cycle=cycle.number,
            generation=self._cache.generation,
            nodes=self._cache.ledger.generation,
            reason=reason,
        )
        self._tries.note(tried, queue, read.item.shape)
