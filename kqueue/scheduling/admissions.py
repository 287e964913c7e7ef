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
from kqueue.core.workload import Admission
from kqueue.errors import KqueueError
from kqueue.scheduling.context import Context
from kqueue.state import checks, status
from kqueue.state.charge import Charge
from kqueue.state.holding import Holding

_log = structlog.get_logger(__name__)

_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(seconds=30)
"""Before the same write is tried again; doubles."""


@dataclass(slots=True)
class _Attempt:
    """One admission on its way to the API server."""

    decision: Admit
    charge: Charge
    generation: int
    """Of the workload that was decided on."""
    tried: int = 0
    """The resource version for which the write was made last; 0: for none yet."""
    is_written: bool = False


class Admissions:
    """Admits workloads."""

    def __init__(
        self,
        context: Context,
        *,
        paused: Callable[[str, datetime], None],
        broke: Callable[[str, Exception], None],
    ) -> None:
        """`paused` is called with a ClusterQueue in which a workload stays parked until then, because it could not be
        written; `broke` with a workload on whose write a bug showed.
        """
        state, settings = context.state, context.settings
        self._cache, self._queues, self._preemptions = state.cache, state.queues, state.preemptions
        self._fair_usage, self._quarantine = state.fair_usage, state.quarantine
        self._writer, self._writes = context.writer, context.writes
        self._observer, self._clock, self._order = context.observer, context.clock, settings.queue_order
        self._waits_for_ready, self._paused, self._broke = settings.waits_for_ready, paused, broke
        self._failures: LRUCache[str, int] = LRUCache(maxsize=10_000)
        """How often in a row an admission could not be written."""

    def begin(self, decision: Admit, obj: wire.Workload) -> None:
        """Hold what was decided for the workload as it is, and write it beside the loop."""
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
            takes_over=head.replaces.key if head.replaces is not None else None,
            job=model.controller_of(obj.metadata),
            pods_of=model.siblings_key(obj),
        )
        charge = self._cache.held.assumed(holding)
        with charge:
            self._queues.settle(head.key)
            self._preemptions.admitted(head.uid)
            if self._fair_usage is not None:
                self._fair_usage.enter(holding)
            attempt = _Attempt(decision, charge, obj.metadata.generation)
            self._writes.spawn(self._write(attempt), ended=partial(self._settle, attempt))

    async def _write(self, attempt: _Attempt) -> None:
        """Write what was decided for the workload as it was then."""
        decision = attempt.decision
        key = decision.head.key
        wanted = self._wanted_checks(decision.admission)

        def change(obj: wire.Workload) -> status.Patch | None:
            attempt.tried = int(obj.metadata.resource_version or 0)
            if obj.metadata.uid != decision.head.uid or obj.metadata.generation != attempt.generation:
                return None  # another workload, or another request than the one decided on
            stamp, waits = status.Stamp(self._clock.now()), self._waits_for_ready
            patch = status.reserve(obj, decision.admission, wanted=wanted, stamp=stamp, waits_for_ready=waits)
            reserved = patch is None and model.condition_true(obj, names.CONDITION_QUOTA_RESERVED)
            if reserved and self._writer.newest(key) is not None:
                # an earlier write of ours whose answer was lost: it holds its quota
                self._cache.held.on_answer(key, obj)
            return patch

        written = await self._writes.commit(key, change, doing="it was being admitted")
        attempt.charge.confirm(written)
        attempt.is_written = True
        self._quarantine.sound(key)
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
        """The write has ended: where the decision does not stand, give back the charge and the place in the queue."""
        attempt.charge.settle()
        key = attempt.decision.head.key
        if attempt.is_written:
            if isinstance(error, Exception):
                _log.error("what follows an admission failed on a bug", workload=key, exc_info=error)
            return
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
        """The slice that was taken over from is finished: its pods go on, and count for the newer one."""

        def change(obj: wire.Workload) -> status.Patch | None:
            stamp = status.Stamp(self._clock.now())
            reason, message = names.REASON_WORKLOAD_SLICE_REPLACED, f"Replaced by {by}"
            return status.finish(obj, reason=reason, message=message, stamp=stamp)

        written = await self._writes.tell(key, change, what="the end of a slice that was replaced")
        if written is not None:
            _log.info("workload replaced", workload=key, by=by)
            self._observer.replaced(written, by=by)

    def _wanted_checks(self, admission: Admission) -> tuple[str, ...]:
        obj = self._cache.quota.queue_object(admission.queue)
        return checks.wanted_checks(obj.spec, checks.flavors_of(admission)) if obj is not None else ()

    def _push_again(self, key: str, tried: int) -> None:
        """Queue it again: at once if there is news of it, else after a pause, because the same write would fail again.

        `tried` is the version for which the write was made.
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
