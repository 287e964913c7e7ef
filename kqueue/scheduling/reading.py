"""The heads of ClusterQueues, read for one cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from kqueue import model
from kqueue.api import names, quota_names
from kqueue.api.wire import kueue as wire
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.workload import Head
from kqueue.errors import InvalidObjectError
from kqueue.model.pending import Pending, RequeueReason
from kqueue.scheduling.context import Context
from kqueue.scheduling.cycle_state import CycleState, Read
from kqueue.scheduling.put_back import PutBack
from kqueue.scheduling.scan_memories import ScanMemories
from kqueue.scheduling.victims import Victims
from kqueue.scheduling.waits import PendingReasons, Why
from kqueue.state.heads import Heads
from kqueue.state.namespaces import namespace_problem


class HeadReader:
    """Makes heads of the workloads that leave the queues; refuses workloads that cannot be tried."""

    def __init__(
        self,
        context: Context,
        heads: Heads,
        namespace_labels: Callable[[str], Mapping[str, str] | None],
        *,
        scans: ScanMemories,
        victims: Victims,
        put_back: PutBack,
        waits: PendingReasons,
    ) -> None:
        self._heads, self._namespace_labels = heads, namespace_labels
        self._cache, self._queues = context.state.cache, context.state.queues
        self._preemptions, self._newest = context.state.preemptions, context.writer.newest
        self._start_plans = context.state.start_plans
        self._scans, self._victims, self._put_back, self._waits = scans, victims, put_back, waits

    def read(self, cycle: CycleState, queue: str, item: Pending, now: datetime) -> Head | None:
        """Return the workload as the planner's input; None when it is not tried in this cycle."""
        if self._preemptions.has_claims:
            self._pass_by(queue, item)
            if self._victims.are_as_before(queue, item):
                self._put_back.requeue(cycle, item.key, RequeueReason.PENDING_PREEMPTION)
                return None
        return self._head(cycle, queue, item, now)

    def _pass_by(self, queue: str, item: Pending) -> None:
        """End the claims of workloads behind the first one of a StrictFIFO queue.

        They are not tried before the first one, so their claims would never end; the first one may use the claimed
        resources.
        """
        if not self._queues.is_strict(queue):
            return
        for claim in self._preemptions.passed(queue, by=item.uid):
            passed = self._newest(claim.key)
            if passed is not None and passed.metadata.uid == claim.uid:
                first = mentioned((Mention(item.key, queue),), readers_of(claim.key))
                message = f"{first} goes first in ClusterQueue {queue}, and gets what others were made to leave for"
                self._waits.report(claim.key, passed, Why(names.REASON_WAITING_FOR_QUOTA, message))

    def _head(self, cycle: CycleState, queue: str, item: Pending, now: datetime) -> Head | None:
        obj = self._newest(item.key)
        if obj is None or not model.is_queueable(obj) or self._cache.held.holding(item.key) is not None:
            self._queues.delete(item.key)
            return None
        namespace = obj.metadata.namespace
        problem = namespace_problem(namespace, self._namespace_labels(namespace), self._cache.quota.queue_object(queue))
        if problem is not None:
            self._refuse(cycle, obj, RequeueReason.NAMESPACE_MISMATCH, problem)
            return None
        over = self._cache.budgets.refusal(queue, model.local_queue_key(obj))
        if over is not None:  # as for a namespace that the queue does not select, a StrictFIFO queue goes on
            why = over.sentence(queue)
            self._refuse(cycle, obj, RequeueReason.NAMESPACE_MISMATCH, why, reason=quota_names.REASON_BUDGET_EXHAUSTED)
            return None
        kept_out = self._heads.variants.kept_out(obj, queue) if self._heads.variants is not None else None
        if kept_out is not None:
            self._refuse(cycle, obj, RequeueReason.GENERIC, kept_out.message, reason=kept_out.reason)
            return None
        read = cycle.reads[item.key] = Read(obj, item, self._cache.quota.room_generation(queue))
        last_tried = self._scans.last_tried(item.key, read.attempt(queue, cycle.number))
        try:
            head = self._heads.make(obj, item, queue=queue, now=now, last_tried=last_tried)
            problem = self._queues.unplaced(queue)
            return replace(head, plugin_problem=problem) if problem else head
        except InvalidObjectError as e:
            self._refuse(cycle, obj, RequeueReason.GENERIC, str(e))
            return None

    def _refuse(
        self,
        cycle: CycleState,
        obj: wire.Workload,
        requeue: RequeueReason,
        problem: str,
        *,
        reason: str = names.REASON_MISCONFIGURED,
    ) -> None:
        self._preemptions.end(obj.metadata.uid)
        self._start_plans.end(obj.metadata.uid)
        self._put_back.put_back(cycle, obj, requeue, Why(reason, problem))
