"""Carries out decisions to wait."""

from __future__ import annotations

from datetime import timedelta

from kqueue.core.decision import KEEPS_CLAIM, Outcome, Wait
from kqueue.core.scan import is_round
from kqueue.model.pending import RequeueReason
from kqueue.scheduling.alarm import Alarm
from kqueue.scheduling.context import Context
from kqueue.scheduling.cycle_state import CycleState
from kqueue.scheduling.fault_isolation import FaultIsolation
from kqueue.scheduling.put_back import PutBack
from kqueue.scheduling.scan_memories import ScanMemories
from kqueue.scheduling.victims import Victims
from kqueue.scheduling.waits import Why

_REQUEUE = {
    Outcome.NO_FIT: RequeueReason.NO_FIT,
    Outcome.NO_CANDIDATES: RequeueReason.PREEMPTION_NO_CANDIDATES,
    Outcome.SKIPPED: RequeueReason.FAILED_AFTER_NOMINATION,
    Outcome.DEFERRED: RequeueReason.PENDING_PREEMPTION,
    Outcome.YIELDS: RequeueReason.GENERIC,
    Outcome.GATED: RequeueReason.PREEMPTION_GATED,
    Outcome.AFTER_LOWER_SHARE: RequeueReason.FAILED_AFTER_NOMINATION,
    Outcome.HELD: RequeueReason.FAILED_AFTER_NOMINATION,
    Outcome.LEADER: RequeueReason.GENERIC,
    Outcome.LEAST: RequeueReason.PREEMPTION_NO_CANDIDATES,
    Outcome.LOCALITY: RequeueReason.GENERIC,
    Outcome.PLANNED: RequeueReason.GENERIC,
    Outcome.SIBLING: RequeueReason.GENERIC,
    Outcome.REFUSED: RequeueReason.GENERIC,
    Outcome.PLUGIN: RequeueReason.GENERIC,
}

_GATED = Outcome.GATED
"""By name, because looking a member up in its class takes 0.1 us, and every head that waits comes to it."""

_ASK_AGAIN = timedelta(seconds=30)
"""After this pause a plugin that refused a workload is called again, even without a change in the cluster."""

_VOLATILE_OUTCOMES = frozenset({Outcome.SKIPPED, Outcome.DEFERRED, Outcome.AFTER_LOWER_SHARE})
"""Outcomes whose message changes every cycle, because it names the workloads that took the resources."""


class Waiting:
    """Carries out decisions to wait."""

    def __init__(
        self,
        context: Context,
        *,
        alarm: Alarm,
        scans: ScanMemories,
        victims: Victims,
        put_back: PutBack,
        faults: FaultIsolation,
    ) -> None:
        self._newest, self._preemptions, self._clock = context.writer.newest, context.state.preemptions, context.clock
        self._plans = context.state.start_plans
        self._quarantine, self._alarm, self._scans = context.state.quarantine, alarm, scans
        self._victims, self._put_back, self._faults = victims, put_back, faults

    def carry_out(self, cycle: CycleState, decision: Wait) -> None:
        """Put the workload back, and write the reason for waiting."""
        head = decision.head
        if decision.is_robbed:
            cycle.robbed[head.queue] += 1
        if decision.outcome is Outcome.PLUGIN:
            self._alarm.hold_up(head.queue, self._clock.now() + _ASK_AGAIN)
        if decision.retry_at is not None:
            self._alarm.hold_up(head.queue, decision.retry_at)
        if decision.error is not None:
            self._faults.find_cause(cycle, head, decision.error)
            return
        self._quarantine.forget_failures(head.key)
        obj = cycle.as_decided(head.key, head.uid, self._newest)
        self._follow_claim(decision)
        if obj is None:
            return
        before = self._scans.note(decision, cycle.reads[head.key].attempt(head.queue, cycle.number))
        message = decision.message + self._plans.told(head.uid)
        self._put_back.put_back(
            cycle,
            obj,
            _REQUEUE[decision.outcome],
            Why(decision.reason, message, head.pod_sets, decision.outcome is _GATED),
            has_more=decision.has_more_flavors and not is_round(decision, before),
            briefly=decision.outcome in _VOLATILE_OUTCOMES,
            lacks=decision.lacks,
        )

    def _follow_claim(self, decision: Wait) -> None:
        if decision.outcome not in KEEPS_CLAIM:
            self._preemptions.end(decision.head.uid)
        elif decision.outcome is Outcome.DEFERRED:
            self._victims.wait(decision.head.uid)
