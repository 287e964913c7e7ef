"""Carries out the decisions of a cycle: admissions, preemptions, and reasons to wait."""

from __future__ import annotations

from kqueue.api import names
from kqueue.core.decision import Admit, Decision, Preempt, refused_by_plugin
from kqueue.model.pending import RequeueReason
from kqueue.scheduling.admissions import Admissions
from kqueue.scheduling.context import Context
from kqueue.scheduling.cycle_state import CycleState
from kqueue.scheduling.evictions import Evictions
from kqueue.scheduling.put_back import PutBack
from kqueue.scheduling.scan_memories import ScanMemories
from kqueue.scheduling.waiting import Waiting
from kqueue.scheduling.waits import Why


class DecisionApplier:
    """Begins the write that each decision needs."""

    def __init__(
        self,
        context: Context,
        *,
        admissions: Admissions,
        evictions: Evictions,
        waiting: Waiting,
        put_back: PutBack,
        scans: ScanMemories,
    ) -> None:
        self._state, self._newest, self._observer = context.state, context.writer.newest, context.observer
        self._admissions, self._evictions, self._waiting = admissions, evictions, waiting
        self._put_back, self._scans = put_back, scans

    def apply(self, cycle: CycleState, decision: Decision) -> bool:
        """Carry out a decision; True when the workload is admitted."""
        if isinstance(decision, Admit):
            return self._admit(cycle, decision)
        if decision.retargeted is not None:
            self._observer.retargeted(decision.head.queue, decision.retargeted)
        if isinstance(decision, Preempt):
            self._preempt(cycle, decision)
        else:
            self._waiting.carry_out(cycle, decision)
        return False

    def _admit(self, cycle: CycleState, decision: Admit) -> bool:
        head = decision.head
        obj = cycle.as_decided(head.key, head.uid, self._newest)
        older = head.replaces.key if head.replaces is not None else None
        if obj is None or (cycle.gave_way and not self._state.cache.fits(decision.admission, instead_of=older)):
            return False
        refusal = self._admissions.begin(decision, obj)
        if refusal:
            self._waiting.carry_out(cycle, refused_by_plugin(head, refusal))
            return False
        self._evictions.make_way(decision, obj)
        self._scans.forget(head.key)
        return True

    def _preempt(self, cycle: CycleState, decision: Preempt) -> None:
        """Evict the targets; the preemptor waits at the head of its queue, and freed resources are reserved for it."""
        head = decision.head
        obj = cycle.as_decided(head.key, head.uid, self._newest)
        if obj is None:
            return
        self._state.quarantine.forget_failures(head.key)
        self._state.preemptions.begin(decision.claim)
        self._evictions.begin(decision, obj)
        self._scans.forget(head.key)
        why = Why(names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS, decision.message, head.pod_sets)
        self._put_back.put_back(cycle, obj, RequeueReason.PENDING_PREEMPTION, why)
