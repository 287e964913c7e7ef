"""Admissions: charged to the cache at once, written beside the loop, and taken back if the write fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from cachetools import LRUCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.decision import Admit
from kqueue.core.hooks import NO_HOOKS, ProfileHooks, Reservation
from kqueue.core.workload import Admission
from kqueue.errors import KqueueError
from kqueue.scheduling.context import Context
from kqueue.scheduling.gang_runs import GangRuns
from kqueue.state import checks, status
from kqueue.state.charge import Charge
from kqueue.state.holding import Holding

_log = structlog.get_logger(__name__)

_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(seconds=30)
"""Before the same write is tried again; doubles."""


@dataclass(slots=True)
class _Attempt:
    """An admission whose write has begun or will begin."""

    decision: Admit
    charge: Charge
    generation: int
    """The generation of the workload on which the decision was made."""
    reservation: Reservation
    tried: int = 0
    """The resource version of the Workload at the last attempt to write; 0 before the first attempt."""
    is_written: bool = False


class Admissions:
    """Admits workloads."""

    def __init__(
        self,
        context: Context,
        *,
        paused: Callable[[str, datetime], None],
        broke: Callable[[str, Exception], None],
        runs: GangRuns,
    ) -> None:
        """`paused` is called with a ClusterQueue and the time until which one of its workloads stays parked because its
        admission could not be written. `broke` is called with a workload and the error of a bug that its write raised.
        """
        state, settings = context.state, context.settings
        self._cache, self._queues, self._preemptions = state.cache, state.queues, state.preemptions
        self._fair_usage, self._quarantine = state.fair_usage, state.quarantine
        self._writer, self._writes = context.writer, context.writes
        self._observer, self._clock, self._order = context.observer, context.clock, settings.queue_order
        self._waits_for_ready, self._paused, self._broke = settings.waits_for_ready, paused, broke
        self._hooks, self._gangs, self._runs = settings.hooks, state.cache.gangs, runs
        self._failures: LRUCache[str, int] = LRUCache(maxsize=10_000)
        """By workload, the number of writes of its admission that failed in a row."""

    def begin(self, decision: Admit, obj: wire.Workload) -> str:
        """Charge the decision to the cache, and start a task that writes it to the Workload.

        Returns why a plugin refuses the decision, which then changes nothing; empty: no plugin does.
        """
        reservation = self._hooks_of(decision.admission.queue).reserved(decision)
        if reservation.refusal:
            reservation.undo()
            return reservation.refusal
        with reservation:
            self._begin(decision, obj, reservation)
        return ""

    def _hooks_of(self, queue: str) -> ProfileHooks:
        return self._hooks.get(self._cache.quota.plugin_profile(queue), NO_HOOKS) if self._hooks else NO_HOOKS

    def _begin(self, decision: Admit, obj: wire.Workload, reservation: Reservation) -> None:
        head = decision.head
        holding = Holding(
            key=head.key,
            uid=head.uid,
            local_queue=model.local_queue_key(obj),
            admission=decision.admission,
            requests={p.name: p.request.requests for p in head.pod_sets},
            admitted=False,
            assumed=True,
            priority=head.priority,
            timestamp=head.timestamp,
            takes_over=head.replaces.key if head.replaces is not None else model.parent_key(obj),
            job=model.controller_of(obj.metadata),
            pods_of=model.pods_key(obj),
            facts=model.run_facts(obj.metadata.annotations),
        )
        charge = self._cache.held.assumed(holding)
        with charge:
            self._queues.settle(head.key)
            self._runs.begin(decision.admission, obj, is_checked=bool(self._wanted_checks(decision.admission)))
            self._preemptions.admitted(head.uid)
            if self._fair_usage is not None:
                self._fair_usage.enter(holding)
            self._gangs.promise(decision.promise)
            self._gangs.note_extra(head.key, head.extra_of)
            attempt = _Attempt(decision, charge, obj.metadata.generation, reservation)
            self._writes.spawn(self._write(attempt), ended=partial(self._settle, attempt))

    async def _write(self, attempt: _Attempt) -> None:
        """Write the decision, unless the Workload has another UID or generation by now."""
        decision = attempt.decision
        key = decision.head.key
        wanted = self._wanted_checks(decision.admission)

        def change(obj: wire.Workload) -> status.Patch | None:
            attempt.tried = int(obj.metadata.resource_version or 0)
            if obj.metadata.uid != decision.head.uid or obj.metadata.generation != attempt.generation:
                return None  # another workload, or another request than the one decided on
            stamp, waits = status.Stamp(self._clock.now()), self._waits_for_ready
            patch = status.reserve(
                obj, decision.admission, wanted=wanted, stamp=stamp, waits_for_ready=waits, plan=decision.plan
            )
            reserved = patch is None and model.condition_true(obj, names.CONDITION_QUOTA_RESERVED)
            if reserved and self._writer.newest(key) is not None:
                # an earlier write of this process had reserved the quota, and its answer was lost
                self._cache.held.on_answer(key, obj)
            return patch

        written = await self._writes.commit(key, change, doing="it was being admitted")
        attempt.charge.confirm(written)
        attempt.is_written = True
        self._quarantine.forget_failures(key)
        self._failures.pop(key, None)
        _log.info(
            "quota reserved",
            workload=key,
            cluster_queue=decision.admission.queue,
            domains={p.name: len(p.topology.domains) for p in decision.admission.pod_sets if p.topology is not None},
        )
        self._observer.reserved(written, decision.admission, decision=decision)
        if decision.head.replaces is not None:
            await self._end_older(decision.head.replaces.key, by=f"{key} (UID {decision.head.uid})")

    def _settle(self, attempt: _Attempt, error: BaseException | None) -> None:
        """Finish an attempt: unless the decision was written, release the charge and queue the workload again."""
        attempt.charge.settle()
        key = attempt.decision.head.key
        self._queues.note_end_of_write(attempt.decision.admission.queue, key)
        if attempt.is_written:
            if isinstance(error, Exception):
                _log.error("what follows an admission failed on a bug", workload=key, exc_info=error)
            return
        attempt.reservation.undo()
        self._gangs.end_promise(key)
        self._runs.end(key)
        if self._fair_usage is not None:
            self._fair_usage.withdraw(key)
        if isinstance(error, KqueueError):
            _log.info("admission was not written, the workload is queued again", workload=key, error=str(error))
            self._push_again(key, attempt.tried)
        elif isinstance(error, Exception):
            self._broke(key, error)  # the workload has left its queue, and no event would bring it back
        else:
            self._push_again(key, 0)

    async def _end_older(self, key: str, *, by: str) -> None:
        """Finish the replaced workload slice; its pods go on and belong to the newer slice."""

        def change(obj: wire.Workload) -> status.Patch | None:
            stamp = status.Stamp(self._clock.now())
            reason, message = names.REASON_WORKLOAD_SLICE_REPLACED, f"Replaced by {by}"
            return status.finish(obj, reason=reason, message=message, stamp=stamp)

        written = await self._writes.try_write(key, change, what="the end of a slice that was replaced")
        if written is not None:
            _log.info("workload replaced", workload=key, by=by)
            self._observer.replaced(written, by=by)

    def _wanted_checks(self, admission: Admission) -> tuple[str, ...]:
        obj = self._cache.quota.queue_object(admission.queue)
        return checks.wanted_checks(obj.spec, checks.flavors_of(admission)) if obj is not None else ()

    def _push_again(self, key: str, tried: int) -> None:
        """Queue a workload again: at once if a newer version of it is known, else after a pause, because the same write
        would fail again.

        `tried` is the resource version for which the last write was made.
        """
        obj = self._writer.newest(key)
        if obj is None or not model.is_queueable(obj) or self._cache.held.holding(key) is not None:
            return
        item = self._cache.requests.pending(obj, self._order)
        queue = self._queues.cluster_queue_of(item.local_queue)
        if queue is not None and int(obj.metadata.resource_version or 0) <= tried:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            until = self._clock.now() + min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
            item = replace(item, not_before=max(until, item.not_before or until))
            self._paused(queue, until)
        self._queues.push(item)
