"""What the operator does, told to metrics and events.  Nothing here decides or writes objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.record import ObjectReference, workload_reference
from kqueue.core.cycle import Admit, Retargeted
from kqueue.core.fair_share import dominant_share
from kqueue.core.preemption import Target
from kqueue.core.quota import QuotaNode
from kqueue.core.topology import HOSTNAME
from kqueue.core.workload import Admission
from kqueue.observe import EventRecorder, LocalQueueMetrics, Metrics, ResourceFigures
from kqueue.state import from_api
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage
from kqueue.state.held import Held
from kqueue.state.queues import Queues

_CONTROLLER = "kueue-admission"
"""Who events are from (reportingController)."""


class Events:
    """Recorder over the event recorder of `observe`."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def record(self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False) -> None:
        """One event."""
        told = ((reason, message),)
        self._recorder.record(regarding, told, controller=_CONTROLLER, type="Warning" if warning else "Normal")

    def record_steps(self, regarding: ObjectReference, steps: Iterable[tuple[str, str]]) -> None:
        """What an object has gone through just now, one event for each (reason, message)."""
        self._recorder.record(regarding, steps, controller=_CONTROLLER)


class CycleObserver:
    """Turns what the scheduling loop did into metrics and events."""

    def __init__(
        self, metrics: Metrics, events: Events, clock: Clock, order: from_api.QueueOrder = from_api.DEFAULT_ORDER
    ) -> None:
        """`order` says what makes up a priority."""
        self._metrics, self._events, self._clock, self._order = metrics, events, clock, order

    def cycle_ended(self, *, seconds: float, success: bool, robbed: Mapping[str, int]) -> None:
        """Count the cycle, and show who got nothing in it."""
        self._metrics.attempt(success=success, seconds=seconds)
        self._metrics.preemption_skips(robbed)

    def retargeted(self, queue: str, result: Retargeted) -> None:
        """Count it."""
        self._metrics.cluster_queue(queue).retargeted(result=result)

    def reserved(self, workload: wire.Workload, admission: Admission, *, decision: Admit) -> None:
        """Count the wait and the domains, tell the user."""
        waited = _waited(workload, self._clock.now())
        admitted = from_api.condition_true(workload, names.CONDITION_ADMITTED)
        priority_class = _priority_class(workload)
        cluster = self._metrics.cluster_queue(admission.queue)
        local = self._metrics.local_queue(namespace=workload.metadata.namespace, name=workload.spec.queue_name or "")
        for queue in (cluster, local):
            queue.quota_reserved(priority_class=priority_class, waited=waited, admitted=admitted)
        for found in decision.quality:
            cluster.placed(algorithm=found.algorithm.value, proven=found.proven, levels=found.levels)
        reserved = f"Quota reserved in ClusterQueue {admission.queue} after {int(waited)} s"
        avoided = decision.head.avoided
        again = sorted(avoided & _hosts(admission)) if avoided else ()
        if again:
            reserved += f"; it failed repeatedly on {', '.join(again)}, but fits nowhere else"
        steps = [(names.REASON_QUOTA_RESERVED, reserved)]
        if admitted:
            steps.append((names.REASON_ADMITTED, f"Admitted by ClusterQueue {admission.queue}"))
        self._events.record_steps(workload_reference(workload), steps)

    def waits(self, workload: wire.Workload, *, reason: str, message: str) -> None:
        """Tell the user why."""
        self._events.record(workload_reference(workload), reason=reason, message=message, warning=True)

    def quarantined(self, workload: wire.Workload, *, queue: str, message: str) -> None:
        """Count it, and tell the user."""
        self._metrics.cluster_queue(queue).quarantines()
        self._record(workload, reason=names.REASON_QUARANTINED, message=message, warning=True)

    def replaced(self, workload: wire.Workload, *, by: str) -> None:
        """Tell the user that a newer slice took over."""
        self._record(workload, reason=names.EVENT_WORKLOAD_SLICE_REPLACED, message=f"Replaced by {by}")

    def not_mended(self, workload: wire.Workload, *, message: str) -> None:
        """Tell the user that failed hosts were not replaced, and whether that was the end."""
        if from_api.condition_true(workload, names.CONDITION_EVICTED):
            self._record(workload, reason=f"EvictedDueTo{names.REASON_NODE_FAILURES}", message=message)
        else:
            self._record(workload, reason=names.EVENT_SECOND_PASS_FAILED, message=message, warning=True)

    def preempted(
        self, workload: wire.Workload, *, target: Target, queue: str, preemptor: wire.Workload, message: str
    ) -> None:
        """Count it for the queue that gains, tell the users on both sides."""
        self._metrics.cluster_queue(queue).preempts(reason=target.reason)
        evicted = f"EvictedDueTo{names.REASON_PREEMPTED}"
        self._record(workload, reason=evicted, message=message)
        victim, own = target.admitted, from_api.priority(preemptor, self._order)
        priorities = f"priority {victim.priority}, {own}"
        self._record(
            workload, reason=names.EVENT_PREEMPTED, message=f"{message}; {priorities} of the one that it leaves for"
        )
        who = f"{victim.key} (UID {victim.uid}) of ClusterQueue {victim.queue}"
        self._record(
            preemptor,
            reason=names.EVENT_PREEMPTED_WORKLOAD,
            message=f"{who} makes room: {target.reason}; {priorities} of this one",
        )

    def preemption_loop(self, preemptor: wire.Workload, *, queue: str, victims: Sequence[str]) -> None:
        """Count it, and say that it comes to an end."""
        self._metrics.cluster_queue(queue).preemption_loop()
        message = f"Preempted {', '.join(victims)} before without being admitted; they are safe from it from now on"
        self._record(preemptor, reason=names.EVENT_PREEMPTION_LOOP, message=message, warning=True)

    def _record(self, workload: wire.Workload, *, reason: str, message: str, warning: bool = False) -> None:
        self._events.record(workload_reference(workload), reason=reason, message=message, warning=warning)


class WorkloadCounter:
    """Counts Workloads as their watch tells it: admitted when their checks are ready, pods ready, finished, evicted,
    and giving back what they held.
    """

    def __init__(self, metrics: Metrics, clock: Clock, counts: Callable[[], bool]) -> None:
        """`counts`: whether this replica is the one that counts; what a follower sees, the leader counts."""
        self._metrics, self._clock, self._counts = metrics, clock, counts

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """A change; what was there when the watch began, or is gone, is not a step."""
        if old is None or new is None or not self._counts():
            return
        admission = new.status.admission or old.status.admission
        if admission is None:
            return
        cluster = self._metrics.cluster_queue(admission.cluster_queue)
        if _rose(old, new, names.CONDITION_ADMITTED) and not _rose(old, new, names.CONDITION_QUOTA_RESERVED):
            waited = _waited(new, self._clock.now())  # those admitted with their reservation are counted with it
            reserved = self._since(new, names.CONDITION_QUOTA_RESERVED) or 0.0
            for queue in (cluster, self._local(new)):
                queue.admitted(priority_class=_priority_class(new), waited=waited, since_reserved=reserved)
        if _rose(old, new, names.CONDITION_FINISHED):
            ran = self._since(new, names.CONDITION_ADMITTED)
            for queue in (cluster, self._local(new)):
                queue.finished(priority_class=_priority_class(new), ran=ran)
        since_admitted = self._since(new, names.CONDITION_ADMITTED)
        if _rose(old, new, names.CONDITION_PODS_READY) and since_admitted is not None:
            waited = _waited(new, self._clock.now())
            for queue in (cluster, self._local(new)):
                queue.ready(priority_class=_priority_class(new), waited=waited, since_admitted=since_admitted)
        if _rose(old, new, names.CONDITION_EVICTED):
            self._evicted(old, new, admission.cluster_queue)
        took = self._since(new, names.CONDITION_EVICTED)
        if took is not None and old.status.admission is not None and new.status.admission is None:
            reason = _reason(new, names.CONDITION_EVICTED)
            cluster.eviction_ended(reason=reason, took=took)

    def on_released(self, workload: wire.Workload, pods: int) -> None:
        """Pods of an admitted Workload were sent to their domains."""
        admission, since = workload.status.admission, self._since(workload, names.CONDITION_ADMITTED)
        if admission is None:
            return
        queue = self._metrics.cluster_queue(admission.cluster_queue)
        queue.ungated(pods)
        if since is not None:
            is_group = workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"
            for _ in range(pods):
                queue.gate_removed(gate=names.TOPOLOGY_GATE, is_group=is_group, since_admitted=since)

    def on_elastic_released(self, workload: wire.Workload, pods: int) -> None:
        """The gate of elastic jobs was removed from pods of an admitted slice."""
        admission, since = workload.status.admission, self._since(workload, names.CONDITION_ADMITTED)
        if admission is None or since is None:
            return
        queue = self._metrics.cluster_queue(admission.cluster_queue)
        for _ in range(pods):
            queue.gate_removed(gate=names.ELASTIC_JOB_GATE, is_group=False, since_admitted=since)

    def on_started(self, workload: wire.Workload, pods: int) -> None:
        """The admission gate of pods of an admitted Workload was removed."""
        admission, since = workload.status.admission, self._since(workload, names.CONDITION_ADMITTED)
        if admission is None or since is None:
            return
        queue = self._metrics.cluster_queue(admission.cluster_queue)
        is_group = workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"
        for _ in range(pods):
            queue.gate_removed(gate=names.ADMISSION_GATE, is_group=is_group, since_admitted=since)

    def _evicted(self, old: wire.Workload, new: wire.Workload, cluster_queue: str) -> None:
        """What is counted is what the status counts more of than before."""
        priority_class, before = _priority_class(new), _evictions(old)
        for (reason, cause), count in _evictions(new).items():
            if count <= before.get((reason, cause), 0):
                continue
            self._metrics.cluster_queue(cluster_queue).evicted(
                reason=reason,
                underlying_cause=cause,
                priority_class=priority_class,
                first=count == 1,
                since_ready=self._since(new, names.CONDITION_PODS_READY),
            )
            self._local(new).evicted(reason=reason, underlying_cause=cause, priority_class=priority_class)

    def _local(self, workload: wire.Workload) -> LocalQueueMetrics:
        return self._metrics.local_queue(namespace=workload.metadata.namespace, name=workload.spec.queue_name or "")

    def _since(self, workload: wire.Workload, kind: str) -> float | None:
        """Seconds since the condition became True; None when it is not."""
        found = from_api.condition(workload.status.conditions, kind)
        if found is None or found.status != "True" or found.last_transition_time is None:
            return None
        return max(0.0, (self._clock.now() - found.last_transition_time).total_seconds())


class QueueGauges:
    """The gauges of queues, set afresh from cache and queues: one pass over Workloads."""

    def __init__(
        self,
        metrics: Metrics,
        cache: Cache,
        queues: Queues,
        *,
        fair_sharing: bool = False,
        fair_usage: FairUsage | None = None,
    ) -> None:
        self._metrics, self._cache, self._queues = metrics, cache, queues
        self._fair_sharing, self._fair_usage = fair_sharing, fair_usage
        self._cluster_queues: set[str] = set()
        self._cohorts: set[str] = set()
        self._local_queues: set[str] = set()

    def refresh(self, local_queues: Iterable[wire.LocalQueue], workloads: Iterable[wire.Workload]) -> None:
        """Set every gauge; series of queues that are gone disappear."""
        tally = _Tally(self._queues)
        for workload in workloads:
            tally.add(workload)
        names_now = set(self._cache.queue_names())
        for name in self._cluster_queues - names_now:
            self._metrics.forget_cluster_queue(name)
        for name in names_now:
            self._cluster_queue(name, self._cache.held_in(name), tally)
        if self._fair_sharing:
            self._shares(names_now)
        locals_now = {f"{q.metadata.namespace}/{q.metadata.name}": q for q in local_queues}
        for key in self._local_queues - locals_now.keys():
            namespace, _, name = key.partition("/")
            self._metrics.forget_local_queue(namespace=namespace, name=name)
        for key, queue in locals_now.items():
            self._local_queue(key, queue, self._cache.held_through(key, queue.spec.cluster_queue or ""), tally)
        self._cluster_queues, self._local_queues = names_now, set(locals_now)

    def _shares(self, cluster_queues: Iterable[str]) -> None:
        for name in cluster_queues:
            node = self._cache.node_of(name)
            if node is not None:
                cohort = node.parent.name if node.parent is not None else ""
                self._metrics.cluster_queue(name).weighted_share(cohort, dominant_share(node).precise())
        cohorts = {name: node for name in self._cache.cohort_names() if (node := self._cache.cohort_node(name))}
        for name in self._cohorts - cohorts.keys():
            self._metrics.forget_cohort(name)
        for name, node in cohorts.items():
            self._metrics.cohort_share(name, dominant_share(node).precise())
        self._cohorts = set(cohorts)

    def _cluster_queue(self, name: str, held: Held, tally: _Tally) -> None:
        queue = self._metrics.cluster_queue(name)
        active, inadmissible = self._queues.counts(name)
        idle = self._cache.inactive(name)
        queue.pending(active=0 if idle else active, inadmissible=inadmissible + (active if idle else 0))
        queue.holding(reserving=held.reserving, admitted=held.admitted)
        queue.finished_kept(tally.finished[name])
        queue.unadmitted(tally.unadmitted.get(name, {}))
        terminating = idle is not None and idle.reason == names.REASON_TERMINATING
        queue.status("terminating" if terminating else "pending" if idle is not None else "active")
        node = self._cache.node_of(name)
        if node is not None:
            parent = node.parent.name if node.parent is not None else ""
            queue.place(parent_cohort=parent, root_cohort=node.root.name if parent else "")
            queue.resources(parent, _figures(node, held))

    def _local_queue(self, key: str, queue: wire.LocalQueue, held: Held, tally: _Tally) -> None:
        metrics = self._metrics.local_queue(namespace=queue.metadata.namespace, name=queue.metadata.name)
        active, inadmissible = tally.waiting.get(key, (0, 0))
        cluster_queue = self._queues.cluster_queue_of(key)
        idle = cluster_queue is None or self._cache.inactive(cluster_queue) is not None
        metrics.pending(active=0 if idle else active, inadmissible=inadmissible + (active if idle else 0))
        metrics.holding(reserving=held.reserving, admitted=held.admitted)
        metrics.finished_kept(tally.finished_local[key])
        found = from_api.condition(queue.status.conditions, names.CONDITION_ACTIVE)
        metrics.status(found.status if found is not None else "Unknown")
        if self._fair_usage is not None and queue.spec.cluster_queue:
            metrics.fair_usage(queue.spec.cluster_queue, self._fair_usage.usage(key))
        reserved, used = held.reserved, held.used
        metrics.resources(
            {
                (column.flavor, column.resource): (
                    as_written(column.resource, amount),
                    as_written(column.resource, used.get(column, 0)),
                )
                for column, amount in reserved.items()
            }
        )


class _Tally:
    """Waiting, finished and unadmitted Workloads, by queue."""

    def __init__(self, queues: Queues) -> None:
        self._cluster_queue_of = queues.cluster_queue_of
        self.waiting = queues.local_counts()
        self.finished: Counter[str] = Counter()
        self.finished_local: Counter[str] = Counter()
        self.unadmitted: dict[str, Counter[tuple[str, str]]] = {}

    def add(self, workload: wire.Workload) -> None:
        local = from_api.local_queue_key(workload)
        admission = workload.status.admission
        cluster_queue = admission.cluster_queue if admission is not None else self._cluster_queue_of(local)
        if from_api.condition_true(workload, names.CONDITION_FINISHED):
            self.finished_local[local] += 1
            if cluster_queue is not None:
                self.finished[cluster_queue] += 1
            return
        admitted = from_api.condition(workload.status.conditions, names.CONDITION_ADMITTED)
        if cluster_queue is None or workload.metadata.deletion_timestamp is not None:
            return
        if admitted is None or admitted.status != "True":
            reason = admitted.reason if admitted is not None else names.REASON_NO_RESERVATION
            why = (reason, _reason(workload, names.CONDITION_QUOTA_RESERVED))
            self.unadmitted.setdefault(cluster_queue, Counter())[why] += 1


def _figures(node: QuotaNode, held: Held) -> dict[tuple[str, str], ResourceFigures]:
    reserved, used = held.reserved, held.used
    figures = {}
    for column, quota in node.quotas.items():

        def shown(amount: int, resource: str = column.resource) -> float:
            return as_written(resource, amount)

        figures[column.flavor, column.resource] = ResourceFigures(
            nominal=shown(quota.nominal),
            reservation=shown(reserved.get(column, 0)),
            usage=shown(used.get(column, 0)),
            borrowing_limit=None if quota.borrowing_limit is None else shown(quota.borrowing_limit),
            lending_limit=None if quota.lending_limit is None else shown(quota.lending_limit),
        )
    return figures


def _waited(workload: wire.Workload, now: datetime) -> float:
    """Seconds since it was queued, or queued again: what it ran before an eviction was no waiting."""
    since = _when_true(workload, names.CONDITION_REQUEUED) or workload.metadata.creation_timestamp or now
    return max(0.0, (now - since).total_seconds())


def _evictions(workload: wire.Workload) -> dict[tuple[str, str], int]:
    """How often it was evicted, by reason and what that came from."""
    stats = workload.status.scheduling_stats
    return {(e.reason, e.underlying_cause): e.count for e in stats.evictions} if stats is not None else {}


def _hosts(admission: Admission) -> set[str]:
    """Host names that an admission holds."""
    held = (pod_set.topology for pod_set in admission.pod_sets if pod_set.topology is not None)
    return {domain.values[-1] for topology in held for domain in topology.domains if topology.levels[-1] == HOSTNAME}


def as_written(resource: str, amount: int) -> float:
    """In the unit that users write: CPUs, bytes, devices."""
    return amount / 1000 if resource == "cpu" else float(amount)


def _priority_class(workload: wire.Workload) -> str:
    reference = workload.spec.priority_class_ref
    return reference.name if reference is not None else ""


def _reason(workload: wire.Workload, kind: str) -> str:
    found = from_api.condition(workload.status.conditions, kind)
    return found.reason if found is not None else ""


def _when_true(workload: wire.Workload, kind: str) -> datetime | None:
    found = from_api.condition(workload.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None


def _rose(old: wire.Workload, new: wire.Workload, kind: str) -> bool:
    """Whether the condition became True, or did so again."""
    return from_api.condition_true(new, kind) and _when_true(old, kind) != _when_true(new, kind)
