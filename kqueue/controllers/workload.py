"""Keeps a Workload's conditions true to its queues: what blocks it, whether it must leave, whether it may come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
from cachetools import LRUCache

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import Clock
from kqueue.controllers.lines import Lines
from kqueue.controllers.record import Recorder, workload_reference
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state import from_api, status
from kqueue.state.cache import Cache
from kqueue.state.namespaces import namespace_problem
from kqueue.state.queues import Queues

_log = structlog.get_logger(__name__)

_BLOCKED = (names.REASON_MISCONFIGURED, names.REASON_SUSPENDED, names.REASON_DEACTIVATED, names.REASON_ADMISSION_GATED)
"""Reasons that this reconciler writes, and takes back when the cause is gone."""
_UNTRIED = (names.REASON_DEACTIVATED, names.REASON_PENDING_EVALUATION, names.REASON_SUSPENDED, names.REASON_PENDING)
"""Reasons that say nothing of a try; what a try has said of an equal workload says more."""
_TRIED = (
    names.REASON_NO_MATCHING_FLAVOR,
    names.REASON_EXCEEDS_MAX_QUOTA,
    names.REASON_WAITING_FOR_QUOTA,
    names.REASON_TOPOLOGY_PLACEMENT_FAILED,
    names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS,
    names.REASON_WAITING_FOR_PODS_READY,
)
"""What tries say of those that go on waiting in line."""
_TOLD_AGAIN = 300.0
"""Seconds until where it stands is written again; the next pause is twice as long, and so on."""
_CALM = (names.REASON_DEACTIVATED, names.REASON_ADMISSION_GATED, names.REASON_PENDING_EVALUATION)
"""Reasons to wait that somebody wanted, or that are over: no warnings."""


@dataclass(frozen=True, slots=True)
class _Blocked:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Stop:
    """A queue that is stopped, and the reason of evictions for it."""

    reason: str
    kind: str
    name: str
    policy: str

    @property
    def drains(self) -> bool:
        """Whether what runs must go, too."""
        return self.policy == "HoldAndDrain"

    @property
    def message(self) -> str:
        return f"{self.kind} {self.name} is stopped (stopPolicy {self.policy})"


class WorkloadReconciler:
    """One Workload."""

    def __init__(
        self,
        *,
        workloads: Store[wire.Workload],
        local_queues: Store[wire.LocalQueue],
        writer: StatusWriter[wire.Workload],
        cache: Cache,
        queues: Queues,
        namespace_labels: Callable[[str], Mapping[str, str] | None],
        recorder: Recorder,
        clock: Clock,
        tell_after: float = 10.0,
        keeps_gates: bool = False,
        at_once: bool = False,
    ) -> None:
        """`tell_after`: a Workload that has waited so many seconds for its first try is told so.

        `keeps_gates`: preemption gates have a state in the status, whoever opens them.  `at_once`: whoever waits is
        told so at the first look.
        """
        self._workloads, self._local_queues, self._writer = workloads, local_queues, writer
        self._cache, self._queues, self._namespace_labels = cache, queues, namespace_labels
        self._recorder, self._clock, self._tell_after = recorder, clock, tell_after
        self._started, self._keeps_gates, self._at_once = clock.now(), keeps_gates, at_once
        self._lines = Lines(queues, clock)
        self._again: LRUCache[str, tuple[float, float]] = LRUCache(maxsize=100_000)
        """When those who wait for their try are told anew where they stand, and the pause before that."""

    async def reconcile(self, key: str) -> Result:
        """Take the next step for one Workload; each reconcile ends at the first that writes."""
        workload = self._workloads.get(key)
        if workload is None or workload.metadata.deletion_timestamp is not None:
            return Result()
        if from_api.condition_true(workload, names.CONDITION_FINISHED):
            return Result()
        again = self._until_told_again(key, workload)
        is_due = again is not None and again <= 0
        if is_due or (self._queues.bulk_verdict(key) is not None and self.is_untold(key)):
            await self._lines.look(key)
        explain = partial(self._explain, again=is_due)
        for change in (self._match_gates, self._deactivate, self._come_back, explain, self._complete, self._leave):
            written = await self._writer.write(key, change)
            if written is not None:
                if change != self._match_gates:  # that is nobody's news
                    self._tell(workload, written)
                return Result()
        left = self._until_next_word(key, workload, is_due=is_due)
        return Result(requeue_after=left if left > 0 else None)

    def is_due(self, key: str) -> bool:
        """Whether a Workload that was tried, and told where it stands, is to be told anew."""
        due = self._again.get(key)
        return due is not None and due[0] <= self._clock.monotonic()

    def is_untold(self, key: str) -> bool:
        """Whether the Workload says nothing of a try yet: what the try of an equal one has said is news to it."""
        workload = self._workloads.get(key)
        if workload is None:
            return False
        told = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        return told is None or told.reason in _UNTRIED

    # --- steps: each is a pure look at the newest Workload -------------------------------------------------------

    def _stamp(self) -> status.Stamp:
        return status.Stamp(self._clock.now())

    def _match_gates(self, workload: wire.Workload) -> status.Patch | None:
        return status.match_gates(workload, stamp=self._stamp()) if self._keeps_gates else None

    def _deactivate(self, workload: wire.Workload) -> status.Patch | None:
        if workload.spec.active:
            return None
        return status.evict(
            workload,
            reason=names.REASON_DEACTIVATED,
            message="The workload was deactivated by its user (spec.active: false)",
            stamp=self._stamp(),
        )

    def _come_back(self, workload: wire.Workload) -> status.Patch | None:
        """An eviction's cause is gone: it may be queued again."""
        requeued = from_api.condition(workload.status.conditions, names.CONDITION_REQUEUED)
        if requeued is None or requeued.status != "False" or not workload.spec.active:
            return None
        reason = {
            names.REASON_DEACTIVATED: names.REASON_REACTIVATED,
            names.REASON_LOCAL_QUEUE_STOPPED: names.REASON_LOCAL_QUEUE_RESTARTED,
            names.REASON_CLUSTER_QUEUE_STOPPED: names.REASON_CLUSTER_QUEUE_RESTARTED,
        }.get(requeued.reason)
        if reason is None or self._stopped(workload) is not None:
            return None
        return status.requeue(workload, reason=reason, message="The workload may be queued again", stamp=self._stamp())

    def _explain(self, workload: wire.Workload, *, again: bool) -> status.Patch | None:
        """Write what blocks a pending Workload before any quota is looked at; take it back when it is gone.

        `again`: it is time to say anew where it stands in its line.
        """
        if from_api.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return None
        key = from_api.workload_key(workload)
        if self._cache.holding(key) is not None:
            return None  # being admitted right now
        written = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        if written is not None and written.reason == names.REASON_ON_HOLD:
            return None
        blocked = self._blocker(workload)
        if blocked is not None:
            return status.wait(workload, reason=blocked.reason, message=blocked.message, stamp=self._stamp())
        verdict = self._queues.bulk_verdict(key)
        if verdict is not None and verdict.reason and (written is None or written.reason in _UNTRIED):
            stamp, place = self._stamp(), self._lines.describe(key)
            told = verdict.message if place is None else status.with_place(verdict.message, place, stamp)
            return status.wait(workload, reason=verdict.reason, message=told, stamp=stamp, queued=place is None)
        reason = names.REASON_PENDING_EVALUATION
        if written is None and self._until_told(workload) <= 0 and self._queues.is_known(key):
            opening = "The workload has not been tried since it was created"
        elif written is not None and written.reason in _BLOCKED and not _is_kept_from_preempting(workload):
            opening = "The workload is queued and has not been looked at since its last change"
        elif written is not None and again and self._lines.is_at_front(key):
            reason, opening = written.reason, status.without_place(written.message)
            if _was_tried(reason) and written.message.endswith(f" {self._lines.describe(key)}"):
                return None
        else:
            return None
        stamp, place = self._stamp(), self._lines.describe(key)
        message = status.with_place(opening, place, stamp) if place is not None else opening
        return status.wait(workload, reason=reason, message=message, stamp=stamp)

    def _until_told_again(self, key: str, workload: wire.Workload) -> float | None:
        """Seconds until a workload that waits in line is told anew where it stands; None when it does not.

        The first time comes soon where it has not been told yet; then the pauses double.  A time that has come is taken
        to be used.
        """
        written = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        if written is None or written.status == "True" or not _is_in_line(workload, written.reason):
            self._again.pop(key, None)
            return None
        now = self._clock.monotonic()
        if key not in self._again:
            is_news = _has_no_place(written)
            first = (now + self._tell_after, _TOLD_AGAIN / 2) if is_news else (now + _TOLD_AGAIN, _TOLD_AGAIN)
            self._again[key] = first
        due, pause = self._again[key]
        if due <= now:
            self._again[key] = (now + 2 * pause, 2 * pause)
        return due - now

    def _until_next_word(self, key: str, workload: wire.Workload, *, is_due: bool) -> float:
        """Seconds until something is to be said by and by; 0: only when something happens.

        Whoever was tried and knows its place hears of another one after a further try: where nothing happens nobody is
        tried, and nothing is written.  `is_due`: it was time to say something, and there was nothing to say.
        """
        again = self._until_told_again(key, workload)
        if again is None:
            return self._until_told(workload)
        written = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        assert written is not None
        if not _was_tried(written.reason):
            return again
        if not _has_no_place(written) or self._queues.home(key) is None:
            return 0.0
        if is_due and not self._lines.is_far_behind(key):  # it has just come to where it stands
            self._again[key] = (self._clock.monotonic() + self._tell_after, _TOLD_AGAIN / 2)
            return self._tell_after
        return again

    def _until_told(self, workload: wire.Workload) -> float:
        """Seconds until a workload that no try has said anything of is told so; 0 when there is nothing to tell.

        Most are tried at once, and then what the try says is all that is written.
        """
        told = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED) is not None
        created = workload.metadata.creation_timestamp
        if self._at_once or told or created is None or not from_api.is_queueable(workload):
            return 0.0
        waited = self._clock.now() - max(created, self._started)  # nobody tried while we were away
        return self._tell_after - waited.total_seconds()

    def _complete(self, workload: wire.Workload) -> status.Patch | None:
        """Reserved, and its checks may be ready: keep Admitted in line."""
        if not from_api.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return None
        if from_api.condition_true(workload, names.CONDITION_ADMITTED) or self._checks_missing(workload):
            return None
        return status.sync_admitted(workload, stamp=self._stamp())

    def _checks_missing(self, workload: wire.Workload) -> bool:
        admission = workload.status.admission
        queue = self._cache.queue_object(admission.cluster_queue) if admission is not None else None
        if queue is None:
            return True  # nobody can say which checks it wanted
        strategy = queue.spec.admission_checks_strategy
        wanted = {rule.name for rule in strategy.admission_checks} if strategy is not None else set()
        return not wanted <= {check.name for check in workload.status.admission_checks}

    def _leave(self, workload: wire.Workload) -> status.Patch | None:
        """A queue is stopped or gone: reservations are taken back, admitted Workloads are evicted by HoldAndDrain."""
        if not from_api.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return None
        if from_api.condition_true(workload, names.CONDITION_ADMITTED):
            drain = next((stop for stop in self._stops(workload) if stop.drains), None)
            if drain is None:
                return None
            return status.evict(workload, reason=drain.reason, message=drain.message, stamp=self._stamp())
        blocked = self._withdrawn(workload)
        if blocked is None:
            return None
        return status.unreserve(
            workload, reason=blocked.reason, message=blocked.message, stamp=self._stamp(), requeued=None
        )

    # --- looks --------------------------------------------------------------------------------------------------

    def _stops(self, workload: wire.Workload) -> Iterator[_Stop]:
        """Which of its queues are stopped, the LocalQueue first."""
        local = self._local_queues.get(from_api.local_queue_key(workload))
        if local is not None and local.spec.stop_policy != "None":
            yield _Stop(names.REASON_LOCAL_QUEUE_STOPPED, "LocalQueue", local.metadata.name, local.spec.stop_policy)
        name = self._cluster_queue(workload, local)
        queue = self._cache.queue_object(name) if name is not None else None
        if queue is not None and queue.spec.stop_policy != "None":
            yield _Stop(names.REASON_CLUSTER_QUEUE_STOPPED, "ClusterQueue", queue.metadata.name, queue.spec.stop_policy)

    def _stopped(self, workload: wire.Workload) -> _Stop | None:
        """The first of its queues that is stopped; None when neither is."""
        return next(self._stops(workload), None)

    def _withdrawn(self, workload: wire.Workload) -> _Blocked | None:
        """Why a reservation cannot be kept: a queue is gone, going or stopped; None when both are there and run.

        All of the LocalQueue comes before the ClusterQueue.
        """
        local = self._local_queues.get(from_api.local_queue_key(workload))
        if local is None:
            return self._queue_blocker(workload)
        if local.metadata.deletion_timestamp is not None:
            return _Blocked(names.REASON_MISCONFIGURED, f"LocalQueue {local.metadata.name} is being deleted")
        name = self._cluster_queue(workload, local)
        queue = self._cache.queue_object(name) if name is not None else None
        stopped = self._stopped(workload)
        if local.spec.stop_policy == "None" and (queue is None or queue.metadata.deletion_timestamp is not None):
            gone = "does not exist" if queue is None else "is being deleted"
            return _Blocked(names.REASON_MISCONFIGURED, f"ClusterQueue {name or '(none)'} {gone}")
        return _Blocked(names.REASON_SUSPENDED, stopped.message) if stopped is not None else None

    @staticmethod
    def _cluster_queue(workload: wire.Workload, local: wire.LocalQueue | None) -> str | None:
        if workload.status.admission is not None:
            return workload.status.admission.cluster_queue
        return local.spec.cluster_queue if local is not None else None

    def _blocker(self, workload: wire.Workload) -> _Blocked | None:
        """The first thing that keeps it out of the queue; None when it may be tried."""
        if not workload.spec.active:
            return _Blocked(
                names.REASON_DEACTIVATED, "The workload is deactivated; set spec.active to true to queue it"
            )
        return self._queue_blocker(workload) or self._request_blocker(workload) or self._gate_blocker(workload)

    def _queue_blocker(self, workload: wire.Workload) -> _Blocked | None:
        name, namespace = workload.spec.queue_name, workload.metadata.namespace
        if not name:
            return _Blocked(
                names.REASON_MISCONFIGURED, f"No queue is named; set the label {names.QUEUE_NAME_LABEL} of the job"
            )
        local = self._local_queues.get(f"{namespace}/{name}")
        if local is None:
            return _Blocked(
                names.REASON_MISCONFIGURED,
                f"LocalQueue {name} does not exist in namespace {namespace}; create it or correct the label "
                f"{names.QUEUE_NAME_LABEL}",
            )
        stopped = self._stopped(workload)
        if stopped is not None:
            return _Blocked(names.REASON_SUSPENDED, stopped.message)
        queue = local.spec.cluster_queue
        if not queue or self._cache.queue_object(queue) is None:
            return _Blocked(
                names.REASON_MISCONFIGURED,
                f"ClusterQueue {queue or '(none)'} of LocalQueue {name} does not exist; create it or correct "
                f"spec.clusterQueue",
            )
        inactive = self._cache.inactive(queue)
        if inactive is not None:
            return _Blocked(names.REASON_SUSPENDED, f"ClusterQueue {queue} is not active: {inactive.message}")
        problem = namespace_problem(namespace, self._namespace_labels(namespace), self._cache.queue_object(queue))
        return _Blocked(names.REASON_MISCONFIGURED, problem) if problem is not None else None

    def _request_blocker(self, workload: wire.Workload) -> _Blocked | None:
        problem = self._cache.requests.problem(workload)
        return _Blocked(names.REASON_MISCONFIGURED, problem) if problem else None

    @staticmethod
    def _gate_blocker(workload: wire.Workload) -> _Blocked | None:
        gates = workload.metadata.annotations.get(names.ADMISSION_GATED_BY_ANNOTATION)
        if not gates:
            return None
        return _Blocked(names.REASON_ADMISSION_GATED, f"Held back by {gates}")

    def _tell(self, before: wire.Workload, after: wire.Workload) -> None:
        """An event and a log line for what a user should notice."""
        key = from_api.workload_key(after)
        for kind in (names.CONDITION_EVICTED, names.CONDITION_ADMITTED, names.CONDITION_QUOTA_RESERVED):
            new = from_api.condition(after.status.conditions, kind)
            old = from_api.condition(before.status.conditions, kind)
            if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
                continue
            if kind == names.CONDITION_ADMITTED and new.reason == names.REASON_NO_RESERVATION:
                continue  # why there is none is told instead
            evicted = kind == names.CONDITION_EVICTED and new.status == "True"
            if evicted and before.status.admission is None:
                continue  # it held nothing
            reason = f"EvictedDueTo{new.reason}" if evicted else new.reason
            warning = new.status == "False" and not evicted and new.reason not in _CALM
            self._recorder.record(workload_reference(after), reason=reason, message=new.message, warning=warning)
            _log.info("workload changed", workload=key, condition=kind, status=new.status, reason=new.reason)
            return


def _was_tried(reason: str) -> bool:
    """Whether the reason for which a workload waits in line is of a try."""
    return reason != names.REASON_PENDING_EVALUATION


def _has_no_place(written: Condition) -> bool:
    """Whether a try has said why a workload waits, and nobody where it stands."""
    return _was_tried(written.reason) and status.without_place(written.message) == written.message


def _is_in_line(workload: wire.Workload, reason: str) -> bool:
    """Whether a workload that waits for this reason waits for its turn."""
    return reason == names.REASON_PENDING_EVALUATION or reason in _TRIED or _is_kept_from_preempting(workload)


def _is_kept_from_preempting(workload: wire.Workload) -> bool:
    """Whether a try has said that there is whom to preempt, if only its gates were open, and they are not."""
    blocked = from_api.condition_true(workload, names.CONDITION_BLOCKED_ON_PREEMPTION_GATES)
    return blocked and bool(from_api.closed_gates(workload))
