"""Finds the blocks of a Workload: the queues, requests and gates that prevent a try, or the keeping of a reservation.

It reads only the state of the watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from kqueue import model
from kqueue.api import names, quota_names
from kqueue.api.wire import kueue as wire
from kqueue.state import checks
from kqueue.state.cache import Cache
from kqueue.state.namespaces import namespace_problem
from kqueue.state.quota_cache import QuotaCache

REFUSED = "Admission checks keep the workload from being tried: "


@dataclass(frozen=True, slots=True)
class Blocked:
    """The reason and the message of QuotaReserved=False.

    `command` is the command that ends the block; empty: there is none.
    """

    reason: str
    message: str
    command: str = ""


_DEACTIVATED = "The workload is deactivated; set spec.active to true to queue it"


@dataclass(frozen=True, slots=True)
class QueueStop:
    """A stopped queue, and the reason of evictions that it causes."""

    reason: str
    kind: str
    name: str
    policy: str
    namespace: str = ""

    @property
    def drains(self) -> bool:
        """Whether admitted workloads are evicted, too."""
        return self.policy == names.STOP_HOLD_AND_DRAIN

    @property
    def message(self) -> str:
        """The message for users."""
        return f"{self.kind} {self.name} is stopped (stopPolicy {self.policy})"

    @property
    def command(self) -> str:
        """The command that ends the stop."""
        where = f" -n {self.namespace}" if self.namespace else ""
        return f"kqueue resume {self.kind.lower()} {self.name}{where}"

    @property
    def blocked(self) -> Blocked:
        """The block of a workload by this stop."""
        return Blocked(names.REASON_SUSPENDED, self.message, self.command)


class LocalQueueSource(Protocol):
    """LocalQueues by namespace/name."""

    def get(self, key: str, /) -> wire.LocalQueue | None:
        """Return the LocalQueue; None: there is none."""
        ...


class Blockers:
    """Finds the blocks of a Workload."""

    def __init__(
        self,
        *,
        local_queues: LocalQueueSource,
        cache: Cache,
        namespace_labels: Callable[[str], Mapping[str, str] | None],
        quota: QuotaCache | None = None,
    ) -> None:
        """`quota` is the configuration that counts; None: that of `cache`."""
        self._local_queues, self._cache, self._namespace_labels = local_queues, cache, namespace_labels
        self._quota = cache.quota if quota is None else quota

    def under(self, local_queues: LocalQueueSource, quota: QuotaCache) -> Blockers:
        """Return the same for other LocalQueues and another configuration."""
        return Blockers(
            local_queues=local_queues, cache=self._cache, namespace_labels=self._namespace_labels, quota=quota
        )

    def stops(self, workload: wire.Workload) -> Iterator[QueueStop]:
        """Yield the stopped queues of the workload, the LocalQueue first."""
        local = self._local_queues.get(model.local_queue_key(workload))
        if local is not None and local.spec.stop_policy != names.STOP_NONE:
            meta, policy = local.metadata, local.spec.stop_policy
            yield QueueStop(names.REASON_LOCAL_QUEUE_STOPPED, "LocalQueue", meta.name, policy, meta.namespace)
        name = _cluster_queue(workload, local)
        queue = self._quota.queue_object(name) if name is not None else None
        if queue is not None and queue.spec.stop_policy != names.STOP_NONE:
            yield QueueStop(
                names.REASON_CLUSTER_QUEUE_STOPPED, "ClusterQueue", queue.metadata.name, queue.spec.stop_policy
            )

    def cluster_queue(self, workload: wire.Workload) -> wire.ClusterQueue | None:
        """Return the ClusterQueue that admitted the workload, else that of its LocalQueue; None: there is none."""
        name = _cluster_queue(workload, self._local_queues.get(model.local_queue_key(workload)))
        return self._quota.queue_object(name) if name is not None else None

    def withdrawn(self, workload: wire.Workload) -> Blocked | None:
        """Return why a reservation that is not admitted yet cannot be kept; None: it can.

        Problems of the LocalQueue come before those of the ClusterQueue.  A reservation in a ClusterQueue that no watch
        has reported was written by another client, which may create that queue later; until then only the Workload's
        own gates count.
        """
        gated = self._gate_blocker(workload)
        if gated is not None:
            return gated
        held = workload.status.admission
        if held is not None and self._quota.is_unknown(held.cluster_queue):
            return None
        local = self._local_queues.get(model.local_queue_key(workload))
        if local is None:
            return self._queue_blocker(workload)
        if local.metadata.deletion_timestamp is not None:
            return Blocked(names.REASON_MISCONFIGURED, f"LocalQueue {local.metadata.name} is being deleted")
        name = _cluster_queue(workload, local)
        queue = self._quota.queue_object(name) if name is not None else None
        stopped = next(self.stops(workload), None)
        if local.spec.stop_policy == names.STOP_NONE and (
            queue is None or queue.metadata.deletion_timestamp is not None
        ):
            gone = "does not exist" if queue is None else "is being deleted"
            return Blocked(names.REASON_MISCONFIGURED, f"ClusterQueue {name or '(none)'} {gone}")
        return stopped.blocked if stopped is not None else None

    def blocker(self, workload: wire.Workload) -> Blocked | None:
        """Return the first block of the workload; None: it may be tried."""
        if not workload.spec.active:
            return _deactivated(workload)
        return (
            self._queue_blocker(workload)
            or self._budget_blocker(workload)
            or self._request_blocker(workload)
            or self._gate_blocker(workload)
            or _check_blocker(workload)
        )

    def all(self, workload: wire.Workload) -> Iterator[Blocked]:
        """Yield all blocks of the workload: stops of its queues (without stops, the first problem of its queues), then
        others.
        """
        stops = [stop.blocked for stop in self.stops(workload)]
        yield from stops
        if not workload.spec.active:
            yield _deactivated(workload)
        looks = (
            *(() if stops else (self._queue_blocker,)),
            *(self._budget_blocker, self._request_blocker, self._gate_blocker, _check_blocker),
        )
        yield from (found for look in looks if (found := look(workload)) is not None)

    def _queue_blocker(self, workload: wire.Workload) -> Blocked | None:
        name, namespace = workload.spec.queue_name, workload.metadata.namespace
        if not name:
            return Blocked(
                names.REASON_MISCONFIGURED, f"No queue is named; set the label {names.QUEUE_NAME_LABEL} of the job"
            )
        local = self._local_queues.get(f"{namespace}/{name}")
        if local is None:
            return Blocked(
                names.REASON_MISCONFIGURED,
                f"LocalQueue {name} does not exist in namespace {namespace}; create it or correct the label "
                f"{names.QUEUE_NAME_LABEL}",
            )
        stopped = next(self.stops(workload), None)
        if stopped is not None:
            return stopped.blocked
        queue = local.spec.cluster_queue
        if not queue or self._quota.queue_object(queue) is None:
            return Blocked(
                names.REASON_MISCONFIGURED,
                f"ClusterQueue {queue or '(none)'} of LocalQueue {name} does not exist; create it or correct "
                f"spec.clusterQueue",
            )
        inactive = self._quota.inactive(queue)
        if inactive is not None:
            return Blocked(names.REASON_SUSPENDED, f"ClusterQueue {queue} is not active: {inactive.message}")
        problem = namespace_problem(namespace, self._namespace_labels(namespace), self._quota.queue_object(queue))
        return Blocked(names.REASON_MISCONFIGURED, problem) if problem is not None else None

    def _budget_blocker(self, workload: wire.Workload) -> Blocked | None:
        key = model.local_queue_key(workload)
        local = self._local_queues.get(key)
        queue = (local.spec.cluster_queue or "") if local is not None else ""
        over = self._cache.budgets.exhausted(queue, key)
        return Blocked(quota_names.REASON_BUDGET_EXHAUSTED, over.sentence(queue)) if over is not None else None

    def _request_blocker(self, workload: wire.Workload) -> Blocked | None:
        problem = self._cache.requests.problem(workload)
        return Blocked(names.REASON_MISCONFIGURED, problem) if problem else None

    @staticmethod
    def _gate_blocker(workload: wire.Workload) -> Blocked | None:
        gates = workload.metadata.annotations.get(names.ADMISSION_GATED_BY_ANNOTATION)
        return Blocked(names.REASON_ADMISSION_GATED, f"Held back by {gates}") if gates else None


def _deactivated(workload: wire.Workload) -> Blocked:
    meta = workload.metadata
    command = f"kqueue resume workload {meta.name} -n {meta.namespace}"
    return Blocked(names.REASON_DEACTIVATED, _DEACTIVATED, command)


def _cluster_queue(workload: wire.Workload, local: wire.LocalQueue | None) -> str | None:
    if workload.status.admission is not None:
        return workload.status.admission.cluster_queue
    return local.spec.cluster_queue if local is not None else None


def _check_blocker(workload: wire.Workload) -> Blocked | None:
    refusing = checks.refusing(workload)
    return Blocked(names.REASON_PENDING_EVALUATION, REFUSED + checks.messages_of(refusing)) if refusing else None
