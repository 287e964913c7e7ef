"""Writes the status of ClusterQueues, LocalQueues and Cohorts, and the finalizer that protects a queue in use.

It is never on the critical path: counts are written in the background at a bounded rate, and only if they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers import resources as kinds
from kqueue.controllers.manager import Manager
from kqueue.core.fair_share import dominant_share
from kqueue.core.quantity import clamp, format_quantity
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state import status
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage, as_texts
from kqueue.state.held import QueueHoldings
from kqueue.state.queues import Queues

Patch = dict[str, Any]

_FLAVORS_MAX = 64
"""The largest number of flavors in the status schemas.  Of a ClusterQueue with more flavors the first ones are
written.
"""


class ClusterQueueReconciler:
    """Writes the finalizer, condition Active and the counts of one ClusterQueue."""

    def __init__(
        self,
        *,
        cluster_queues: Store[wire.ClusterQueue],
        writer: StatusWriter[wire.ClusterQueue],
        cache: Cache,
        queues: Queues,
        clock: Clock,
        fair_sharing: bool = False,
    ) -> None:
        """Take the stores; `fair_sharing`: shares affect order and preemption, so the status has them."""
        self._cluster_queues, self._writer = cluster_queues, writer
        self._cache, self._queues, self._clock = cache, queues, clock
        self._fair_sharing = fair_sharing

    async def reconcile(self, key: str) -> Result:
        """Write finalizer and status if they differ."""
        if self._cluster_queues.get(key) is None:
            return Result()
        in_use = self._cache.held.held_in(key).reserving > 0
        await self._writer.write(key, lambda q: finalizer_patch(q.metadata, in_use=in_use), subresource=None)
        await self._writer.write(key, self._status)
        return Result()

    def _status(self, obj: wire.ClusterQueue) -> Patch | None:
        name = obj.metadata.name
        held, node = self._cache.held.held_in(name), self._cache.quota.node_of(name)
        active, parked = self._queues.counts(name)
        conditions = status.Conditions(
            obj.status.conditions,
            generation=obj.metadata.generation,
            stamp=status.Stamp(self._clock.now()),
        )
        inactive = self._cache.quota.inactive(name)
        conditions.set(
            names.CONDITION_ACTIVE,
            status=inactive is None,
            reason=names.REASON_READY if inactive is None else inactive.reason,
            message="Can admit new workloads" if inactive is None else f"Cannot admit workloads: {inactive.message}",
        )
        wanted: Patch = {
            "pendingWorkloads": active + parked,
            "reservingWorkloads": held.reserving,
            "admittedWorkloads": held.admitted,
            "flavorsReservation": _flavor_usage(obj, node, held.reserved) or None,
            "flavorsUsage": _flavor_usage(obj, node, held.used) or None,
            "fairSharing": _share(node) if self._fair_sharing else None,
        }
        present = _present(obj.status) | {"fairSharing": _shown_share(obj.status.fair_sharing)}
        changes = {k: v for k, v in wanted.items() if v != present[k]}
        if conditions.changed:
            changes["conditions"] = conditions.list()
        return {"status": changes} if changes else None


class CohortReconciler:
    """Writes the share of one Cohort, if fair sharing is on."""

    def __init__(
        self,
        *,
        cohorts: Store[wire.Cohort],
        writer: StatusWriter[wire.Cohort],
        cache: Cache,
        fair_sharing: bool = False,
    ) -> None:
        self._cohorts, self._writer, self._cache, self._fair_sharing = cohorts, writer, cache, fair_sharing

    async def reconcile(self, key: str) -> Result:
        """Write the status if it differs."""
        if self._cohorts.get(key) is not None:
            await self._writer.write(key, self._status)
        return Result()

    def _status(self, obj: wire.Cohort) -> Patch | None:
        wanted = _share(self._cache.quota.cohort_node(obj.metadata.name)) if self._fair_sharing else None
        return None if wanted == _shown_share(obj.status.fair_sharing) else {"status": {"fairSharing": wanted}}


class LocalQueueReconciler:
    """Writes condition Active, the counts and the recent usage of one LocalQueue."""

    def __init__(
        self,
        *,
        local_queues: Store[wire.LocalQueue],
        writer: StatusWriter[wire.LocalQueue],
        cache: Cache,
        queues: Queues,
        clock: Clock,
        fair_usage: FairUsage | None = None,
    ) -> None:
        """Take the stores; `fair_usage` None: the order by usage is off, and usage is not recorded."""
        self._local_queues, self._writer = local_queues, writer
        self._cache, self._queues, self._clock = cache, queues, clock
        self._fair_usage = fair_usage

    async def reconcile(self, key: str) -> Result:
        """Write the status if it differs."""
        obj = self._local_queues.get(key)
        if obj is None:
            return Result()
        again = self._sample(key, obj)
        await self._writer.write(key, self._status)
        return Result(requeue_after=again)

    def _sample(self, key: str, obj: wire.LocalQueue) -> float | None:
        """Sample the recent usage if that is due; return the seconds until the next sample, None: there is none.

        A closed queue is not sampled; the event that opens it enqueues it.
        """
        fair = self._fair_usage
        if fair is None or self._problem(obj)[0] != names.REASON_READY:
            return None
        now = self._clock.now()
        if fair.due(key, now) <= 0:
            fair.sample(key, self._cache.held.held_through(key, obj.spec.cluster_queue or "").used, now)
        left = fair.due(key, now)
        return left if left > 0 else fair.rules.interval

    def _status(self, obj: wire.LocalQueue) -> Patch | None:
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        name = obj.spec.cluster_queue or ""
        cluster_queue = self._cache.quota.queue_object(name)
        held = self._cache.held.held_through(key, name) if cluster_queue is not None else QueueHoldings()
        conditions = status.Conditions(
            obj.status.conditions,
            generation=obj.metadata.generation,
            stamp=status.Stamp(self._clock.now()),
        )
        reason, message = self._problem(obj)
        conditions.set(names.CONDITION_ACTIVE, status=reason == names.REASON_READY, reason=reason, message=message)
        wanted: Patch = {
            "pendingWorkloads": self._queues.local_count(key) if obj.spec.stop_policy == "None" else 0,
            "reservingWorkloads": held.reserving,
            "admittedWorkloads": held.admitted,
            "flavorsReservation": _usage_of(cluster_queue, held.reserved, _total) or None,
            "flavorsUsage": _usage_of(cluster_queue, held.used, _total) or None,
        }
        changes = {k: v for k, v in wanted.items() if v != _present(obj.status)[k]}
        changes |= self._usage_changes(key, obj)
        if conditions.changed:
            changes["conditions"] = conditions.list()
        return {"status": changes} if changes else None

    def _usage_changes(self, key: str, obj: wire.LocalQueue) -> Patch:
        """Return the change of the recent usage, without penalties of workloads that are being admitted.

        Usage that has only decayed with time is not written.
        """
        current = obj.status.fair_sharing
        if self._fair_usage is None:
            return {"fairSharing": None} if current is not None else {}
        record = self._fair_usage.record(key)
        if record is None:
            return {}
        stored = current.admission_fair_sharing_status if current is not None else None
        wanted = self._nothing_of_each(obj) | as_texts(record.consumed)
        told = {r: str(text) for r, text in stored.consumed_resources.items()} if stored is not None else {}
        if stored is not None and wanted == told:
            return {}
        gone = dict.fromkeys(told.keys() - wanted.keys())
        updated = max(record.updated, stored.last_update) if stored is not None else record.updated
        usage = {"consumedResources": {**gone, **wanted}, "lastUpdate": status.Stamp(updated).text}
        return {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": usage}}

    def _nothing_of_each(self, obj: wire.LocalQueue) -> dict[str, str]:
        """Return `0` for each resource of the ClusterQueue; empty: there is no ClusterQueue, or usage is not
        remembered.
        """
        queue = self._cache.quota.queue_object(obj.spec.cluster_queue or "")
        if queue is None or self._fair_usage is None or self._fair_usage.rules.half_life <= 0:
            return {}
        flavors = (flavor for group in queue.spec.resource_groups for flavor in group.flavors)
        return {resource.name: "0" for flavor in flavors for resource in flavor.resources}

    def _problem(self, obj: wire.LocalQueue) -> tuple[str, str]:
        queue = obj.spec.cluster_queue
        if obj.spec.stop_policy != "None":
            return names.REASON_STOPPED, f"The LocalQueue is stopped (stopPolicy {obj.spec.stop_policy})"
        if not queue or self._cache.quota.queue_object(queue) is None:
            return (
                names.REASON_CLUSTER_QUEUE_DOES_NOT_EXIST,
                f"ClusterQueue {queue or '(none)'} does not exist; create it or correct spec.clusterQueue",
            )
        inactive = self._cache.quota.inactive(queue)
        if inactive is not None:
            return names.REASON_CLUSTER_QUEUE_IS_INACTIVE, f"ClusterQueue {queue} is not active: {inactive.message}"
        return names.REASON_READY, "Can submit new workloads to the ClusterQueue"


def finalizer_patch(metadata: Any, *, in_use: bool) -> Patch | None:
    """Return the patch that adds kqueue's finalizer to an object, or removes it from a deleted object that is no longer
    in use.

    None: the finalizer is correct.
    """
    ours = names.RESOURCE_IN_USE_FINALIZER
    has = ours in metadata.finalizers
    if metadata.deletion_timestamp is None:
        return None if has else {"metadata": {"finalizers": [*metadata.finalizers, ours]}}
    if not has or in_use:
        return None
    return {"metadata": {"finalizers": [f for f in metadata.finalizers if f != ours] or None}}


def _share(node: QuotaNode | None) -> Patch | None:
    return None if node is None else {"weightedShare": dominant_share(node).weighted_share()}


def _shown_share(current: wire.FairSharingStatus | None) -> Patch | None:
    return None if current is None else {"weightedShare": current.weighted_share}


def _flavor_usage(obj: wire.ClusterQueue, node: QuotaNode | None, usage: Usage) -> list[Patch]:
    def entry(column: FlavorResource, total: int) -> Patch:
        nominal = node.quota(column).nominal if node is not None else total
        return {**_total(column, total), "borrowed": format_quantity(max(0, total - nominal), column.resource)}

    return _usage_of(obj, usage, entry)


def _usage_of(
    queue: wire.ClusterQueue | None, usage: Usage, entry: Callable[[FlavorResource, int], Patch]
) -> list[Patch]:
    """Return the usage of each flavor and resource of the ClusterQueue, in its order; empty: there is no
    ClusterQueue.
    """
    return [
        {
            "name": flavor.name,
            "resources": [
                entry(column, clamp(usage.get(column, 0)))
                for column in (FlavorResource(flavor.name, resource.name) for resource in flavor.resources)
            ],
        }
        for group in (queue.spec.resource_groups if queue is not None else ())
        for flavor in group.flavors
    ][:_FLAVORS_MAX]


def _total(column: FlavorResource, total: int) -> Patch:
    return {"name": column.resource, "total": format_quantity(total, column.resource)}


def _present(current: wire.ClusterQueueStatus | wire.LocalQueueStatus) -> Patch:
    """Return the present values of the status; None for an empty list, which the status omits."""
    return {
        "pendingWorkloads": current.pending_workloads,
        "reservingWorkloads": current.reserving_workloads,
        "admittedWorkloads": current.admitted_workloads,
        "flavorsReservation": [_shown(flavor) for flavor in current.flavors_reservation] or None,
        "flavorsUsage": [_shown(flavor) for flavor in current.flavors_usage] or None,
    }


def _shown(flavor: wire.FlavorUsage | wire.LocalFlavorUsage) -> Patch:
    resources: list[Patch] = []
    for resource in flavor.resources:
        shown = {"name": resource.name, "total": str(resource.total)}
        if isinstance(resource, wire.ResourceUsage):
            shown["borrowed"] = str(resource.borrowed)
        resources.append(shown)
    return {"name": flavor.name, "resources": resources}


class _Counts:
    """Enqueues queues and cohorts whose counts may have changed, once per window."""

    def __init__(
        self, manager: Manager, *, cluster_queues: Controller, cohorts: Controller, local_queues: Controller
    ) -> None:
        self._manager, self._queues, self._cache = manager, manager.queues, manager.cache
        self._cluster_queues, self._cohorts, self._local_queues = cluster_queues, cohorts, local_queues

    async def refresh_all(self) -> None:
        """Refresh all counts."""
        watches, after = self._manager.watches, self._window()
        for name in self._cache.quota.queue_names():
            self._cluster_queues.enqueue(name, after=after)
        for name in watches.cohorts.store:
            self._cohorts.enqueue(name, after=after)
        for key in watches.local_queues.store:
            self._local_queues.enqueue(key, after=after)

    def refresh(self, local_queue: str, *cluster_queues: str | None) -> None:
        """Refresh the counts of a LocalQueue, of these ClusterQueues (None is skipped), and of their cohorts."""
        after = self._window()
        self._local_queues.enqueue(local_queue, after=after)
        for name in {name for name in cluster_queues if name is not None}:
            self._cluster_queues.enqueue(name, after=after)
            for cohort in self._cohorts_above(name):
                self._cohorts.enqueue(cohort, after=after)

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Refresh the counts of the queues in which a Workload waits or has quota, before and now."""
        for workload in filter(None, (old, new)):
            local, admission = model.local_queue_key(workload), workload.status.admission
            held_in = admission.cluster_queue if admission is not None else None
            self.refresh(local, self._queues.cluster_queue_of(local), held_in)

    def _window(self) -> float:
        """Return the seconds between a change of a queue's counts and their write."""
        timings = self._manager.timings
        return timings.status_refresh_loaded if self._manager.is_loaded() else timings.status_refresh_window

    def _cohorts_above(self, cluster_queue: str) -> list[str]:
        """Return the Cohorts whose share depends on the usage of a ClusterQueue; empty: shares do not count."""
        fair = self._manager.config.fair_sharing is not None
        node = self._cache.quota.node_of(cluster_queue) if fair else None
        above = [n.name for n in node.path_to_root() if n.is_cohort] if node is not None else []
        return [name for name in above if name in self._manager.watches.cohorts.store]


def setup(manager: Manager) -> None:
    """Add the reconcilers of ClusterQueues, Cohorts and LocalQueues."""
    watches, fair_sharing = manager.watches, manager.config.fair_sharing is not None
    cluster_queue = ClusterQueueReconciler(
        cluster_queues=watches.cluster_queues.store,
        writer=manager.writer(kinds.CLUSTER_QUEUES, watches.cluster_queues, wire.ClusterQueue),
        cache=manager.cache,
        queues=manager.queues,
        clock=manager.clock,
        fair_sharing=fair_sharing,
    )
    cohort = CohortReconciler(
        cohorts=watches.cohorts.store,
        writer=manager.writer(kinds.COHORTS, watches.cohorts, wire.Cohort),
        cache=manager.cache,
        fair_sharing=fair_sharing,
    )
    local_queue = LocalQueueReconciler(
        local_queues=watches.local_queues.store,
        writer=manager.writer(kinds.LOCAL_QUEUES, watches.local_queues, wire.LocalQueue),
        cache=manager.cache,
        queues=manager.queues,
        clock=manager.clock,
        fair_usage=manager.fair_usage,
    )
    counts = _Counts(
        manager,
        cluster_queues=manager.controller(
            "cluster_queue", cluster_queue.reconcile, group_kind="ClusterQueue.kueue.x-k8s.io"
        ),
        cohorts=manager.controller("cohort", cohort.reconcile, group_kind="Cohort.kueue.x-k8s.io"),
        local_queues=manager.controller("local_queue", local_queue.reconcile, group_kind="LocalQueue.kueue.x-k8s.io"),
    )
    manager.on_lead.append(lambda: _read_former_usage(manager))
    manager.on_configuration.append(counts.refresh_all)
    manager.cache.held.on_unpaid = counts.refresh
    watches.workloads.subscribe(counts.on_workload)


def _read_former_usage(manager: Manager) -> None:
    """Start with the usage of LocalQueues that the previous leader has written."""
    if manager.fair_usage is not None:
        manager.fair_usage.begin(manager.watches.local_queues.store.values(), manager.clock.now())
