"""Reports what the operator does as metrics and events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from kqueue import model
from kqueue.api import backfill_names, gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.config.selector import SelectorSettings
from kqueue.controllers.record import ObjectReference, Reporter, record_waiting, workload_reference
from kqueue.core.backfill.plans import MoveCause
from kqueue.core.decision import Admit, Phase, Retargeted
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.preemption import PreemptionReason, Target
from kqueue.core.topology import HOSTNAME
from kqueue.core.workload import Admission
from kqueue.observe import EventRecorder, Kind, LocalQueueMetrics, Metrics, Traces
from kqueue.runtime.reflector import Reflector


class Described(Protocol):
    """The watches of objects whose labels metrics show."""

    @property
    def cluster_queues(self) -> Reflector[wire.ClusterQueue, wire.ClusterQueue]:
        """All ClusterQueues."""
        ...

    @property
    def local_queues(self) -> Reflector[wire.LocalQueue, wire.LocalQueue]:
        """All LocalQueues."""
        ...

    @property
    def cohorts(self) -> Reflector[wire.Cohort, wire.Cohort]:
        """All Cohorts."""
        ...


def describe_objects(
    metrics: Metrics, watches: Described, shown: SelectorSettings | None, *, has_members: Callable[[str], bool]
) -> None:
    """Give metrics the labels of queues and cohorts, and say which LocalQueues are `shown` (None: all).

    The series of an object disappear with the object.  `has_members(cohort)`: queues or cohorts name the cohort, so
    that the cohort exists without its object.
    """

    def forget(kind: Kind, key: tuple[str, ...]) -> None:
        if kind == "ClusterQueue":
            metrics.forget_cluster_queue(key[0])
        elif kind == "LocalQueue":
            metrics.forget_local_queue(namespace=key[0], name=key[1])
        elif not has_members(key[0]):
            metrics.forget_cohort(key[0])

    def describes(kind: Kind) -> Callable[[Any, Any], None]:
        def on_object(old: Any, new: Any) -> None:
            meta = (new if new is not None else old).metadata
            key = (meta.namespace, meta.name) if meta.namespace else (meta.name,)
            if new is None:
                metrics.undescribe(kind, key)
                forget(kind, key)
            else:
                metrics.describe(kind, key, meta.labels, meta.annotations)

        return on_object

    def on_local_queue(_old: wire.LocalQueue | None, new: wire.LocalQueue | None) -> None:
        if new is not None and shown is not None:
            meta = new.metadata
            metrics.show_local_queue(namespace=meta.namespace, name=meta.name, shown=shown.matches(dict(meta.labels)))

    watches.cluster_queues.subscribe(describes("ClusterQueue"))
    watches.cohorts.subscribe(describes("Cohort"))
    watches.local_queues.subscribe(describes("LocalQueue"))
    watches.local_queues.subscribe(on_local_queue)


class Events:
    """Records events of one reporting controller through the event recorder of `observe`."""

    def __init__(self, recorder: EventRecorder, controller: str = Reporter.SCHEDULER) -> None:
        """`controller`: the reportingController of the events."""
        self._recorder, self._controller = recorder, controller

    def by(self, controller: str) -> Events:
        """Return a recorder for another reporting controller."""
        return Events(self._recorder, controller)

    def record(
        self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False, once: bool = False
    ) -> None:
        """Record one event.  With `once` none is written where the cluster has an equal event."""
        steps, controller = ((reason, message),), self._controller
        self._recorder.record(
            regarding, steps, controller=controller, type="Warning" if warning else "Normal", once=once
        )

    def record_steps(self, regarding: ObjectReference, steps: Iterable[tuple[str, str]]) -> None:
        """Record one event for each (reason, message) of an object."""
        self._recorder.record(regarding, steps, controller=self._controller)


class CycleObserver:
    """Reports what the scheduling loop did as metrics and events."""

    def __init__(
        self, metrics: Metrics, events: Events, clock: Clock, order: model.QueueOrder = model.DEFAULT_ORDER
    ) -> None:
        """`order` says how the priority of a workload is calculated."""
        self._metrics, self._events, self._clock, self._order = metrics, events, clock, order
        self.traces: Traces | None = None
        """Receives a span for each cycle; None: spans are off."""
        self.position: Callable[[str], tuple[int, int] | None] = lambda _key: None
        """Returns the position of a workload in its ClusterQueue, and the number of all; None: unknown."""

    def cycle_ended(
        self, *, seconds: float, success: bool, robbed: Mapping[str, int], phases: Mapping[Phase, float]
    ) -> None:
        """Count the cycle, and the preemptions that it skipped by ClusterQueue (`robbed`)."""
        self._metrics.attempt(success=success, seconds=seconds)
        self._metrics.phases({phase.value: seconds for phase, seconds in phases.items()})
        self._metrics.preemption_skips(robbed)
        if self.traces is not None:
            told = {f"kqueue.{phase.value}_ms": round(took * 1e3, 3) for phase, took in phases.items()}
            now = self._clock.now().timestamp()
            attributes = {"kqueue.heads": len(robbed), "kqueue.admitted": success, **told}
            self.traces.cycle(began=now - seconds, ended=now, attributes=attributes)

    def retargeted(self, queue: str, result: Retargeted) -> None:
        """Count a second search for preemption targets."""
        self._metrics.cluster_queue(queue).retargeted(result=result)

    def planned_start_kept(self, queue: str, *, in_time: bool) -> None:
        """Count a workload of this ClusterQueue that has started as it was planned first, or later."""
        self._metrics.cluster_queue(queue).planned_start_kept(result="in_time" if in_time else "later")

    def planned_start_moved(self, queue: str, cause: MoveCause) -> None:
        """Count a planned start that became later."""
        self._metrics.cluster_queue(queue).planned_start_moved(cause=cause.value)

    def reserved(self, workload: wire.Workload, admission: Admission, *, decision: Admit) -> None:
        """Record a reservation: waiting time, placement quality, and events for the user."""
        waited = _waited(workload, self._clock.now())
        admitted = model.condition_true(workload, names.CONDITION_ADMITTED)
        priority_class = _priority_class(workload)
        cluster = self._metrics.cluster_queue(admission.queue)
        local = self._metrics.local_queue(namespace=workload.metadata.namespace, name=workload.spec.queue_name or "")
        values = self._metrics.values_of(workload.metadata.labels, workload.metadata.annotations)
        cluster.quota_reserved(priority_class=priority_class, waited=waited, admitted=admitted)
        local.quota_reserved(priority_class=priority_class, waited=waited, admitted=admitted, values=values)
        if decision.joins:
            cluster.backfilled()
        for found in decision.quality:
            cluster.placed(algorithm=str(found.algorithm), proven=found.proven, levels=found.levels)
        flavors = sorted({flavor for held in admission.pod_sets for flavor in held.flavors.values()})
        reserved = f"Quota reserved in ClusterQueue {admission.queue} after {int(waited)} s"
        if flavors:
            reserved += f", in flavor{'s' if len(flavors) > 1 else ''} {', '.join(flavors)}"
        avoided = decision.head.avoided
        again = sorted(avoided & _hosts(admission)) if avoided else ()
        if again:
            reserved += f"; it failed repeatedly on {', '.join(again)}, but fits nowhere else"
        steps = [(names.REASON_QUOTA_RESERVED, reserved)]
        if admitted:
            steps.append(
                (names.REASON_ADMITTED, f"Admitted by ClusterQueue {admission.queue}, 0 s after the reservation")
            )
        self._events.record_steps(workload_reference(workload), steps)

    def waits(self, workload: wire.Workload, *, reason: str, message: str) -> None:
        """Record why a workload waits, on the workload, its job and its first pod.

        The event of a gang has its position in the queue, so that `kubectl describe` of its group object shows it.
        """
        if gang_names.GANG_ANNOTATION in workload.metadata.annotations:
            place = self.position(model.workload_key(workload))
            message += f"; position {place[0]} of {place[1]} in the queue" if place is not None else ""
        record_waiting(self._events, workload, reason=reason, message=message, warning=True)

    def quarantined(self, workload: wire.Workload, *, queue: str, message: str) -> None:
        """Count a quarantined workload, and record the reason."""
        self._metrics.cluster_queue(queue).quarantines()
        self._record(workload, reason=names.REASON_QUARANTINED, message=message, warning=True)

    def replaced(self, workload: wire.Workload, *, by: str) -> None:
        """Record that a newer slice replaces this one."""
        self._record(workload, reason=names.EVENT_WORKLOAD_SLICE_REPLACED, message=f"Replaced by {by}")

    def hosts_not_replaced(self, workload: wire.Workload, *, message: str) -> None:
        """Record that failed hosts were not replaced, and whether the workload was evicted for it."""
        if model.condition_true(workload, names.CONDITION_EVICTED):
            self._record(workload, reason=f"EvictedDueTo{names.REASON_NODE_FAILURES}", message=message)
        else:
            self._record(workload, reason=names.EVENT_SECOND_PASS_FAILED, message=message, warning=True)

    def no_domains(self, workload: wire.Workload, *, message: str) -> None:
        """Record why no domains were found for a workload whose checks are ready."""
        self._record(workload, reason=names.EVENT_SECOND_PASS_FAILED, message=message, warning=True)

    def preempted(
        self, workload: wire.Workload, *, target: Target, queue: str, preemptor: wire.Workload, message: str
    ) -> None:
        """Count a preemption for the preemptor's queue, and record it on both workloads.

        A variant that leaves for its sibling is evicted, not preempted: that is recorded on it alone.
        """
        if target.reason is PreemptionReason.FLAVOR_MIGRATION:
            self._record(workload, reason=f"{names.EVENT_EVICTED_DUE_TO_PREFIX}{target.reason}", message=message)
            return
        self._metrics.cluster_queue(queue).preempts(reason=target.reason)
        evicted = f"EvictedDueTo{names.REASON_PREEMPTED}"
        self._record(workload, reason=evicted, message=message)
        victim, own = target.admitted, model.priority(preemptor, self._order)
        priorities = f"priority {victim.priority}, {own}"
        self._record(
            workload, reason=names.EVENT_PREEMPTED, message=f"{message}; {priorities} of the one that it leaves for"
        )
        who = mentioned((Mention(victim.key),), readers_of(model.workload_key(preemptor)))
        who = f"{who} (UID {victim.uid}) of ClusterQueue {victim.queue}"
        self._record(
            preemptor,
            reason=names.EVENT_PREEMPTED_WORKLOAD,
            message=f"{who} makes room: {target.reason}; {priorities} of this one",
        )

    def made_way(self, workload: wire.Workload, *, message: str) -> None:
        """Record that a gang made way for a workload of higher priority."""
        self._record(workload, reason=f"EvictedDueTo{gang_names.REASON_GANG_MADE_WAY}", message=message)

    def overran(self, workload: wire.Workload, *, message: str) -> None:
        """Record that a workload ran longer than expected and held up a planned start."""
        self._record(workload, reason=f"EvictedDueTo{backfill_names.REASON_BACKFILL_OVERRUN}", message=message)

    def preemption_loop(self, preemptor: wire.Workload, *, queue: str, victims: Sequence[Mention]) -> None:
        """Count a preemption loop, and record that these victims are protected from this preemptor."""
        self._metrics.cluster_queue(queue).preemption_loop()
        who = mentioned(victims, readers_of(model.workload_key(preemptor)))
        message = f"Preempted {who} before without being admitted; they are safe from it from now on"
        self._record(preemptor, reason=names.EVENT_PREEMPTION_LOOP, message=message, warning=True)

    def _record(self, workload: wire.Workload, *, reason: str, message: str, warning: bool = False) -> None:
        self._events.record(workload_reference(workload), reason=reason, message=message, warning=warning)


class WorkloadCounter:
    """Counts steps of Workloads at their watch events: admitted after their checks, pods ready, finished, evicted, and
    quota released.
    """

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        counts: Callable[[], bool],
        *,
        cluster_queue_of: Callable[[str], str | None] = lambda _local_queue: None,
    ) -> None:
        """`counts`: whether this replica counts.  Only the leader does.

        `cluster_queue_of(namespace/name)` is the ClusterQueue of a LocalQueue; None where it has none.
        """
        self._metrics, self._clock, self._counts = metrics, clock, counts
        self._cluster_queue_of = cluster_queue_of

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Count the steps of one change.  Objects that the watch begins with, and deletions, are no steps.

        The pods and the end of a job are counted on its parent, and not on its variants, too.
        """
        if old is None and new is not None:
            self.expect(new)
        if old is None or new is None or not self._counts():
            return
        admission, is_variant = new.status.admission or old.status.admission, model.parent_key(new) is not None
        if admission is None:
            if not is_variant:
                self._finished_unadmitted(old, new)
            return
        cluster = self._metrics.cluster_queue(admission.cluster_queue)
        if _rose(old, new, names.CONDITION_ADMITTED) and not _rose(old, new, names.CONDITION_QUOTA_RESERVED):
            waited = _waited(new, self._clock.now())  # an admission together with its reservation is counted there
            reserved = self._since(new, names.CONDITION_QUOTA_RESERVED) or 0.0
            values = self._metrics.values_of(new.metadata.labels, new.metadata.annotations)
            for queue in (cluster, self._local(new)):
                queue.admitted(
                    priority_class=_priority_class(new), waited=waited, since_reserved=reserved, values=values
                )
        if _rose(old, new, names.CONDITION_FINISHED) and not is_variant:
            ran = self._since(new, names.CONDITION_ADMITTED)
            for queue in (cluster, self._local(new)):
                queue.finished(priority_class=_priority_class(new), ran=ran)
        since_admitted = self._since(new, names.CONDITION_ADMITTED)
        if _rose(old, new, names.CONDITION_PODS_READY) and since_admitted is not None and not is_variant:
            waited = _waited(new, self._clock.now())
            for queue in (cluster, self._local(new)):
                queue.ready(priority_class=_priority_class(new), waited=waited, since_admitted=since_admitted)
        if _rose(old, new, names.CONDITION_EVICTED):
            self._evicted(old, new, admission.cluster_queue)
        took = self._since(new, names.CONDITION_EVICTED)
        if took is not None and old.status.admission is not None and new.status.admission is None:
            reason = _reason(new, names.CONDITION_EVICTED)
            cluster.eviction_ended(reason=reason, took=took)

    def expect(self, workload: wire.Workload) -> None:
        """Create the metric series of an admission in advance, so that the first cycle takes no longer than others.

        Without a known LocalQueue nothing is created.
        """
        name = self._cluster_queue_of(model.local_queue_key(workload))
        if name is None or not model.is_queueable(workload):
            return
        values = self._metrics.values_of(workload.metadata.labels, workload.metadata.annotations)
        for queue in (self._metrics.cluster_queue(name), self._local(workload)):
            queue.expect(priority_class=_priority_class(workload), values=values)

    def _finished_unadmitted(self, old: wire.Workload, new: wire.Workload) -> None:
        """Count a Workload that finished without an admission in the queues that it waited in.

        A queue that does not exist gets no series: any user may name one.
        """
        name = self._cluster_queue_of(model.local_queue_key(new))
        if name is not None and _rose(old, new, names.CONDITION_FINISHED):
            for queue in (self._metrics.cluster_queue(name), self._local(new)):
                queue.finished(priority_class=_priority_class(new), ran=None)

    def on_released(self, workload: wire.Workload, in_order: bool | None) -> None:
        """Count a pod that the topology ungater released.  `in_order`: by its rank; None for a pod without a rank."""
        admission, since = workload.status.admission, self._since(workload, names.CONDITION_ADMITTED)
        if admission is None:
            return
        queue = self._metrics.cluster_queue(admission.cluster_queue)
        queue.ungated(1, in_order=in_order)
        if since is not None:
            is_group = workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"
            queue.gate_removed(gate=names.TOPOLOGY_GATE, is_group=is_group, since_admitted=since)

    def on_elastic_released(self, workload: wire.Workload, pods: int) -> None:
        """Count pods of an admitted slice from which the gate of elastic jobs was removed."""
        admission, since = workload.status.admission, self._since(workload, names.CONDITION_ADMITTED)
        if admission is None or since is None:
            return
        queue = self._metrics.cluster_queue(admission.cluster_queue)
        for _ in range(pods):
            queue.gate_removed(gate=names.ELASTIC_JOB_GATE, is_group=False, since_admitted=since)

    def on_started(self, workload: wire.Workload, pods: int) -> None:
        """Count pods of an admitted Workload from which the admission gate was removed."""
        admission, since = workload.status.admission, self._since(workload, names.CONDITION_ADMITTED)
        if admission is None or since is None:
            return
        queue = self._metrics.cluster_queue(admission.cluster_queue)
        is_group = workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"
        for _ in range(pods):
            queue.gate_removed(gate=names.ADMISSION_GATE, is_group=is_group, since_admitted=since)

    def _evicted(self, old: wire.Workload, new: wire.Workload, cluster_queue: str) -> None:
        """Count each kind of eviction whose number in the status has grown."""
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
        """Return the seconds since the condition became True; None when it is not True."""
        found = model.condition(workload.status.conditions, kind)
        if found is None or found.status != "True" or found.last_transition_time is None:
            return None
        return max(0.0, (self._clock.now() - found.last_transition_time).total_seconds())


def _waited(workload: wire.Workload, now: datetime) -> float:
    """Return the seconds since a workload was queued, or requeued after its last eviction."""
    since = _when_true(workload, names.CONDITION_REQUEUED) or workload.metadata.creation_timestamp or now
    return max(0.0, (now - since).total_seconds())


def _evictions(workload: wire.Workload) -> dict[tuple[str, str], int]:
    """Return the number of evictions by reason and underlying cause."""
    stats = workload.status.scheduling_stats
    return {(e.reason, e.underlying_cause): e.count for e in stats.evictions} if stats is not None else {}


def _hosts(admission: Admission) -> set[str]:
    """Return the hosts that an admission assigns."""
    held = (pod_set.topology for pod_set in admission.pod_sets if pod_set.topology is not None)
    return {domain.values[-1] for topology in held for domain in topology.domains if topology.levels[-1] == HOSTNAME}


def _priority_class(workload: wire.Workload) -> str:
    reference = workload.spec.priority_class_ref
    return reference.name if reference is not None else ""


def _reason(workload: wire.Workload, kind: str) -> str:
    found = model.condition(workload.status.conditions, kind)
    return found.reason if found is not None else ""


def _when_true(workload: wire.Workload, kind: str) -> datetime | None:
    found = model.condition(workload.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None


def _rose(old: wire.Workload, new: wire.Workload, kind: str) -> bool:
    """Whether the condition became True, for the first time or again."""
    return model.condition_true(new, kind) and _when_true(old, kind) != _when_true(new, kind)
