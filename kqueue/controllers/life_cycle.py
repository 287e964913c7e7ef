"""The steps of a Workload's life that its owner and the scheduling loop do not take.

They react to checks, end waits, and deactivate and reactivate Workloads.  Each step is a pure function of the newest
Workload that returns one patch or none.  The order is that of the compatible system; the reconciler ends at the first
step that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, moment_after
from kqueue.controllers.blockers import Blockers
from kqueue.model.conditions import NO_TIME
from kqueue.model.variants import is_parent
from kqueue.runtime.lane import Lane
from kqueue.state import checks, execution_time, pauses, readiness, requeueing, retention, status
from kqueue.state.readiness import ReadyRules
from kqueue.state.requeueing import RequeueBackoff

Look = Callable[[wire.Workload], status.Patch | None]


class Warned(NamedTuple):
    """A warning event."""

    reason: str
    message: str


class LifeCycleStep(NamedTuple):
    """A function of a Workload that returns a patch, and the patched subresource: status, or (None) the main object."""

    look: Look
    subresource: str | None = "status"
    warned: Warned | None = None
    """The event of the write in addition to the events of changed conditions; None: there is none."""
    lane: Lane = Lane.STATUS


_BACKOFF = RequeueBackoff(60, 3600)
_EVICTION_ENDED_AFTER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRules:
    """Times and limits of Workloads, read from the configuration."""

    ready: ReadyRules | None = None
    """The time for which pods may be not ready; None: readiness is not checked."""
    backoff: RequeueBackoff = _BACKOFF
    """The pauses of workloads that were evicted because their pods were not ready."""
    keep_finished: timedelta | None = None
    """The time for which finished Workloads are kept; None: forever."""
    finish_orphans: bool = True
    """Whether Workloads of jobs that are gone are finished."""
    abandoned: frozenset[tuple[str, str]] = frozenset()
    """API group and kind of known jobs that are not managed: no other reconciler releases their Workloads."""
    managed: frozenset[tuple[str, str]] | None = None
    """API group and kind of owners whose controllers end evictions; None: all that are not abandoned."""
    eviction_ended_after: timedelta = _EVICTION_ENDED_AFTER
    """The time in which other clients may end the eviction of a Workload without a managed owner."""
    concurrent: bool = False
    """Whether Workloads that other Workloads control are variants (concurrent admission): their parents have the clocks
    and end the evictions, and no checks.
    """
    keeps_gates: bool = False
    """Whether the status has the state of preemption gates, whatever client opens them."""


class LifeCycle:
    """Decides the steps of one Workload at a time from the Workload, its queues and the time."""

    def __init__(
        self,
        *,
        blockers: Blockers,
        clock: Clock,
        rules: LifeRules,
        pods_left: Callable[[str], bool] = lambda _key: False,
    ) -> None:
        """Take the parts; `pods_left` returns for a `siblings_key` whether pods that were started with a Workload have
        not ended.
        """
        self._blockers, self._clock, self._rules, self._pods_left = blockers, clock, rules, pods_left

    def steps(self, workload: wire.Workload) -> Iterator[LifeCycleStep]:
        """Yield the steps that come before the reason of a pending Workload is written, in this order.

        A Workload that waits for a time takes no step after `_give_back`.
        """
        if self._rules.keeps_gates:
            yield self.match_gates
        yield LifeCycleStep(self._delay_retry)
        yield LifeCycleStep(self._switch_off, None)
        yield LifeCycleStep(self._clear_leftovers)
        yield LifeCycleStep(self._end_group)
        yield LifeCycleStep(self._give_back, warned=self._eviction_timeout)
        if self.rests(workload):
            return
        yield LifeCycleStep(self._end_backoff)
        yield LifeCycleStep(self._requeue)
        yield LifeCycleStep(self._deactivate)
        yield LifeCycleStep(self._list_checks)

    def late_steps(self, workload: wire.Workload) -> Iterator[LifeCycleStep]:
        """Yield the steps that come after the reason of a pending Workload was written."""
        if self.rests(workload):
            return
        yield LifeCycleStep(self._complete)
        clocks = () if self._is_variant(workload) else (self._leave_late, self._end_of_time)
        for look in (self._heed_checks, self._leave, *clocks):
            yield LifeCycleStep(look)

    @property
    def match_gates(self) -> LifeCycleStep:
        """The step that keeps the states of preemption gates; its write makes no event."""
        return LifeCycleStep(self._match_gates)

    def rests(self, workload: wire.Workload) -> bool:
        """Whether the Workload takes no step before a time in its status."""
        return workload.spec.active and requeueing.waits_until(workload, self._clock.now()) is not None

    def next_time(self, workload: wire.Workload) -> datetime | None:
        """Return the time at which the Workload must be reconciled again without an event; None: never."""
        times = [self._gives_back_at(workload)]
        if self.rests(workload):
            times.append(requeueing.requeue_at(workload))
        else:
            late = readiness.ready_by(workload, self._rules.ready) if self._rules.ready is not None else None
            times += [late.due if late is not None else None, execution_time.ends_at(workload)]
        return min((time for time in times if time is not None), default=None)

    def expires(self, workload: wire.Workload) -> datetime | None:
        """Return the time at which a finished Workload must be deleted; None: never."""
        return retention.finished_expires(workload, self._rules.keep_finished)

    def is_orphan(self, workload: wire.Workload) -> bool:
        """Whether the job of the Workload is gone, and no other reconciler ends the Workload.

        A Workload that a user created by hand never had a job; it is released when it is being deleted.  The same
        applies to a Workload of a job whose kind is no longer managed.
        """
        if workload.metadata.deletion_timestamp is not None:
            return self._is_nobodys(workload)
        owners = workload.metadata.owner_references
        return not owners and self._rules.finish_orphans and names.JOB_UID_LABEL in workload.metadata.labels

    def _is_nobodys(self, workload: wire.Workload) -> bool:
        """Whether no owner of the Workload has a controller that would end it."""
        owners = [(o.api_version.rpartition("/")[0], o.kind) for o in workload.metadata.owner_references]
        return all(owner in self._rules.abandoned for owner in owners)

    def _is_managed(self, workload: wire.Workload) -> bool:
        """Whether the controller of one of its owners ends the Workload's evictions."""
        if self._is_variant(workload):
            return True
        if self._rules.managed is None:
            return not self._is_nobodys(workload)
        return any(
            (owner.api_version.rpartition("/")[0], owner.kind) in self._rules.managed
            for owner in workload.metadata.owner_references
        )

    def _is_variant(self, workload: wire.Workload) -> bool:
        return self._rules.concurrent and model.parent_key(workload) is not None

    # --- steps ---------------------------------------------------------------------------------------------------

    def _stamp(self) -> status.Stamp:
        return status.Stamp(self._clock.now())

    def _match_gates(self, workload: wire.Workload) -> status.Patch | None:
        return status.match_gates(workload, stamp=self._stamp())

    def _delay_retry(self, workload: wire.Workload) -> status.Patch | None:
        """Return a patch with the time before which a check must not be asked again; until then the workload keeps its
        quota.
        """
        until = checks.delayed_until(workload, self._clock.now())
        return status.postpone(workload, until) if until is not None else None

    def _switch_off(self, workload: wire.Workload) -> status.Patch | None:
        """Deactivate a Workload that kqueue has decided to deactivate; its user may set the same field."""
        wanted = model.condition_true(workload, names.CONDITION_DEACTIVATION_TARGET)
        return {"spec": {"active": False}} if workload.spec.active and wanted else None

    def _clear_leftovers(self, workload: wire.Workload) -> status.Patch | None:
        """Clear the remaining fields of an admission after another client has ended the eviction; its conditions stay.

        The other client wrote the reason why the workload has no quota; Admitted and PodsReady follow from it.
        """
        if not model.is_eviction_ended(workload):
            return None
        told = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        assert told is not None
        return status.unreserve(workload, reason=told.reason, message=told.message, stamp=self._stamp(), requeued=None)

    @property
    def _eviction_timeout(self) -> Warned:
        seconds = self._rules.eviction_ended_after.total_seconds()
        message = f"No client ended the eviction within {seconds:g} s, and no pod is left; kqueue ended it"
        return Warned(names.EVENT_EVICTION_ENDED, message)

    def _gives_back_at(self, workload: wire.Workload) -> datetime | None:
        """Return the time from which kqueue may end the eviction of a Workload without a managed owner; None: there is
        nothing to end.
        """
        holds = workload.status.admission is not None or model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        evicted = model.condition(workload.status.conditions, names.CONDITION_EVICTED)
        if not holds or evicted is None or evicted.status != "True" or self._is_managed(workload):
            return None
        return moment_after(evicted.last_transition_time or NO_TIME, self._rules.eviction_ended_after)

    def _end_group(self, workload: wire.Workload) -> status.Patch | None:
        """End the eviction of a group of pods that has no pod left: pods own such a Workload, so no other step does."""
        if self._gives_back_at(workload) is None or not model.is_ownerless_group(workload):
            return None
        return self._end_eviction(workload)

    def _give_back(self, workload: wire.Workload) -> status.Patch | None:
        """End an eviction that the owner of the Workload has not ended in time."""
        due = self._gives_back_at(workload)
        return self._end_eviction(workload) if due is not None and due <= self._clock.now() else None

    def _end_eviction(self, workload: wire.Workload) -> status.Patch | None:
        """Release the quota of an evicted Workload; None while a pod that needs the quota exists."""
        if self._pods_left(model.siblings_key(workload)):
            return None
        evicted = model.condition(workload.status.conditions, names.CONDITION_EVICTED)
        assert evicted is not None
        return status.unreserve(
            workload,
            reason=names.REASON_PENDING_EVALUATION,
            message=evicted.message,
            stamp=self._stamp(),
            requeued=requeueing.returns_at_once(evicted.reason),
        )

    def _end_backoff(self, workload: wire.Workload) -> status.Patch | None:
        """End a pause whose time is over, if the workload has no usage."""
        at, held = requeueing.requeue_at(workload), workload.status.admission is not None
        if at is None or held or not workload.spec.active:
            return None
        return self._requeue(workload) or status.end_backoff(workload)

    def _requeue(self, workload: wire.Workload) -> status.Patch | None:
        """Set Requeued of a workload when the cause of its eviction is gone."""
        stopped = {stop.kind for stop in self._blockers.stops(workload)}
        reason = requeueing.reason_to_return(
            workload, local_stopped="LocalQueue" in stopped, cluster_stopped="ClusterQueue" in stopped
        )
        if reason is None:
            return None
        return status.requeue(workload, reason=reason, message=_BACK[reason], stamp=self._stamp())

    def _deactivate(self, workload: wire.Workload) -> status.Patch | None:
        """Evict an inactive workload, whether its user or kqueue deactivated it, and settle its conditions."""
        if workload.spec.active:
            return None
        target = model.condition(workload.status.conditions, names.CONDITION_DEACTIVATION_TARGET)
        ours = target is not None and target.status == "True"
        said = f": {target.message}" if target is not None and ours and target.message else ""
        by_user = "The workload was deactivated by its user (spec.active: false)"
        if self._is_variant(workload):
            by_user = "The variant is not to be tried now (spec.active: false)"
        message = f"The workload was deactivated{said}" if ours else by_user
        cause = target.reason if target is not None and ours else ""
        evicted = status.evict(
            workload, reason=names.REASON_DEACTIVATED, message=message, stamp=self._stamp(), cause=cause
        )
        return evicted or status.settle_deactivated(workload, stamp=self._stamp())

    def _list_checks(self, workload: wire.Workload) -> status.Patch | None:
        """List the checks that the workload needs, in any state, because its ClusterQueue may change them at
        any time.

        A parent of variants never waits for checks.  Its list stays as it is: a tenant who writes the label must not
        take the checks off a Workload by it.
        """
        if self._rules.concurrent and is_parent(workload):
            return None
        queue = self._blockers.cluster_queue(workload)
        if queue is None:
            return None
        wanted = checks.wanted_checks(queue.spec, checks.assigned_flavors(workload))
        return status.sync_checks(workload, wanted, stamp=self._stamp())

    def _complete(self, workload: wire.Workload) -> status.Patch | None:
        """Keep condition Admitted consistent with the reservation and its checks.

        An admitted workload stays admitted when checks are added.  A status that contradicts itself, for example after
        a write of another client, is not a reservation.
        """
        reserved = model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        if reserved is (workload.status.admission is None):
            message = "QuotaReserved and status.admission contradicted each other; the workload is to be tried again"
            reason, stamp = names.REASON_PENDING_EVALUATION, self._stamp()
            return status.unreserve(workload, reason=reason, message=message, stamp=stamp, requeued=None)
        admitted = model.condition_true(workload, names.CONDITION_ADMITTED)
        if reserved is admitted or (reserved and self._blockers.cluster_queue(workload) is None):
            return None  # the checks of a missing queue are not known
        return status.sync_admitted(workload, stamp=self._stamp(), waits_for_ready=self._rules.ready is not None)

    def _heed_checks(self, workload: wire.Workload) -> status.Patch | None:
        """Deactivate a workload that a check has rejected; evict a workload whose check asks for a retry."""
        if not checks.must_answer(workload):
            return None
        rejected = checks.in_state(workload, names.CHECK_REJECTED)
        if rejected:
            message = f"Refused by admission checks {checks.messages_of(rejected)}"
            return status.request_deactivation(
                workload, reason=names.REASON_ADMISSION_CHECK, message=message, stamp=self._stamp()
            )
        retried = checks.in_state(workload, names.CHECK_RETRY)
        if not retried:
            return None
        message = f"To be tried again, as admission checks ask for: {checks.messages_of(retried)}"
        return status.evict(workload, reason=names.REASON_ADMISSION_CHECK, message=message, stamp=self._stamp())

    def _leave(self, workload: wire.Workload) -> status.Patch | None:
        """Follow stops and deletions of queues: withdraw reservations, and evict admitted Workloads if the stop
        drains.
        """
        if not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return None
        if model.condition_true(workload, names.CONDITION_ADMITTED):
            drain = next((stop for stop in self._blockers.stops(workload) if stop.drains), None)
            if drain is None:
                return None
            return status.evict(workload, reason=drain.reason, message=drain.message, stamp=self._stamp())
        blocked = self._blockers.withdrawn(workload)
        if blocked is None:
            return None
        return status.unreserve(
            workload, reason=blocked.reason, message=blocked.message, stamp=self._stamp(), requeued=None
        )

    def _leave_late(self, workload: wire.Workload) -> status.Patch | None:
        """Evict a workload whose pods are not ready in time; it is queued again after a pause, or deactivated."""
        late = readiness.ready_by(workload, self._rules.ready) if self._rules.ready is not None else None
        backoff = self._rules.backoff
        if late is None or late.due > self._clock.now():
            return None
        return pauses.leave(
            workload,
            pauses.PausedLeave(
                reason=names.REASON_PODS_READY_TIMEOUT,
                cause=late.cause,
                problem=late.message(),
                limit_field="backoffLimitCount",
                message=lambda at, times: _comes_back(workload, late, at, times, backoff),
            ),
            backoff,
            stamp=self._stamp(),
        )

    def _end_of_time(self, workload: wire.Workload) -> status.Patch | None:
        """Deactivate a workload that has run for its maximum execution time."""
        ends = execution_time.ends_at(workload)
        if ends is None or ends > self._clock.now():
            return None
        limit = workload.spec.maximum_execution_time_seconds
        message = f"It ran for longer than the {limit} s of spec.maximumExecutionTimeSeconds"
        reason, stamp = names.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED, self._stamp()
        return status.request_deactivation(workload, reason=reason, message=message, stamp=stamp, spent=True)


_BACK = {
    names.REASON_REACTIVATED: "The workload is active again and may be queued",
    names.REASON_LOCAL_QUEUE_RESTARTED: "The LocalQueue runs again; the workload may be queued",
    names.REASON_CLUSTER_QUEUE_RESTARTED: "The ClusterQueue runs again; the workload may be queued",
    names.REASON_BACKOFF_FINISHED: "The pause after the eviction is over; the workload may be queued",
}


def _comes_back(workload: wire.Workload, late: readiness.Late, at: str, times: int, backoff: RequeueBackoff) -> str:
    often = f"{times}" if backoff.limit is None else f"{times} of {backoff.limit}"
    return f"{model.workload_key(workload)}: {late.message()}; it is queued again at {at} (requeue {often})"
