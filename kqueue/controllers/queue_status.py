"""Status of ClusterQueues and LocalQueues, and the finalizers that keep things alive while they are in use.

Never on the critical path: counts are refreshed at a bounded rate, in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core import quota
from kqueue.core.quantity import format_quantity
from kqueue.core.quota import FlavorResource, Usage
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state import status
from kqueue.state.cache import Cache, Holding
from kqueue.state.queues import Queues

Patch = dict[str, Any]


class ClusterQueueReconciler:
    """One ClusterQueue: its finalizer, its condition Active, its counts."""

    def __init__(
        self,
        *,
        cluster_queues: Store[wire.ClusterQueue],
        writer: StatusWriter[wire.ClusterQueue],
        cache: Cache,
        queues: Queues,
        clock: Clock,
    ) -> None:
        self._cluster_queues, self._writer = cluster_queues, writer
        self._cache, self._queues, self._clock = cache, queues, clock

    async def reconcile(self, key: str) -> Result:
        """Bring finalizer and status in line."""
        if self._cluster_queues.get(key) is None:
            return Result()
        in_use = bool(self._cache.holdings(key))
        await self._writer.write(key, lambda q: finalizer_patch(q.metadata, in_use=in_use), subresource=None)
        await self._writer.write(key, self._status)
        return Result()

    def _status(self, obj: wire.ClusterQueue) -> Patch | None:
        name = obj.metadata.name
        holdings = self._cache.holdings(name)
        active, parked = self._queues.counts(name)
        conditions = status.Conditions(
            obj.status.conditions,
            generation=obj.metadata.generation,
            stamp=status.Stamp(self._clock.now()),
        )
        inactive = self._cache.inactive(name)
        conditions.set(
            names.CONDITION_ACTIVE,
            status=inactive is None,
            reason=names.REASON_READY if inactive is None else inactive.reason,
            message="Can admit new workloads" if inactive is None else f"Cannot admit workloads: {inactive.message}",
        )
        wanted: Patch = {
            "pendingWorkloads": active + parked,
            "reservingWorkloads": len(holdings),
            "admittedWorkloads": sum(h.admitted for h in holdings),
            "flavorsReservation": self._flavor_usage(obj, holdings),
            "flavorsUsage": self._flavor_usage(obj, [h for h in holdings if h.admitted]),
        }
        changes = {k: v for k, v in wanted.items() if v != _present(obj.status)[k]}
        if conditions.changed:
            changes["conditions"] = conditions.list()
        return {"status": changes} if changes else None

    def _flavor_usage(self, obj: wire.ClusterQueue, holdings: Iterable[Holding]) -> list[Patch]:
        node = self._cache.node_of(obj.metadata.name)

        def entry(column: FlavorResource, total: int) -> Patch:
            nominal = node.quota(column).nominal if node is not None else total
            return {**_total(column, total), "borrowed": format_quantity(max(0, total - nominal), column.resource)}

        return _usage_of(obj, holdings, entry)


class LocalQueueReconciler:
    """One LocalQueue: its condition Active and its counts."""

    def __init__(
        self,
        *,
        local_queues: Store[wire.LocalQueue],
        writer: StatusWriter[wire.LocalQueue],
        cache: Cache,
        queues: Queues,
        clock: Clock,
    ) -> None:
        self._local_queues, self._writer = local_queues, writer
        self._cache, self._queues, self._clock = cache, queues, clock

    async def reconcile(self, key: str) -> Result:
        """Bring the status in line."""
        if self._local_queues.get(key) is not None:
            await self._writer.write(key, self._status)
        return Result()

    def _status(self, obj: wire.LocalQueue) -> Patch | None:
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        holdings = [h for h in self._cache.holdings() if h.local_queue == key]
        conditions = status.Conditions(
            obj.status.conditions,
            generation=obj.metadata.generation,
            stamp=status.Stamp(self._clock.now()),
        )
        reason, message = self._problem(obj)
        conditions.set(names.CONDITION_ACTIVE, status=reason == names.REASON_READY, reason=reason, message=message)
        cluster_queue = self._cache.queue_object(obj.spec.cluster_queue or "")
        wanted: Patch = {
            "pendingWorkloads": self._queues.local_count(key),
            "reservingWorkloads": len(holdings),
            "admittedWorkloads": sum(h.admitted for h in holdings),
            "flavorsReservation": _usage_of(cluster_queue, holdings, _total),
            "flavorsUsage": _usage_of(cluster_queue, [h for h in holdings if h.admitted], _total),
        }
        changes = {k: v for k, v in wanted.items() if v != _present(obj.status)[k]}
        if conditions.changed:
            changes["conditions"] = conditions.list()
        return {"status": changes} if changes else None

    def _problem(self, obj: wire.LocalQueue) -> tuple[str, str]:
        queue = obj.spec.cluster_queue
        if obj.spec.stop_policy != "None":
            return names.REASON_STOPPED, f"The LocalQueue is stopped (stopPolicy {obj.spec.stop_policy})"
        if not queue or self._cache.queue_object(queue) is None:
            return (
                names.REASON_CLUSTER_QUEUE_DOES_NOT_EXIST,
                f"ClusterQueue {queue or '(none)'} does not exist; create it or correct spec.clusterQueue",
            )
        inactive = self._cache.inactive(queue)
        if inactive is not None:
            return names.REASON_CLUSTER_QUEUE_IS_INACTIVE, f"ClusterQueue {queue} is not active: {inactive.message}"
        return names.REASON_READY, "Can submit new workloads to the ClusterQueue"


def finalizer_patch(metadata: Any, *, in_use: bool) -> Patch | None:
    """Add our finalizer to what lives; take it off what is being deleted and no longer in use; None: as it is."""
    ours = names.RESOURCE_IN_USE_FINALIZER
    has = ours in metadata.finalizers
    if metadata.deletion_timestamp is None:
        return None if has else {"metadata": {"finalizers": [*metadata.finalizers, ours]}}
    if not has or in_use:
        return None
    return {"metadata": {"finalizers": [f for f in metadata.finalizers if f != ours] or None}}


def _usage_of(
    queue: wire.ClusterQueue | None, holdings: Iterable[Holding], entry: Callable[[FlavorResource, int], Patch]
) -> list[Patch]:
    """What is held of each flavor and resource of the ClusterQueue, in its order; empty without one."""
    usage: Usage = quota.total(h.admission.usage() for h in holdings)
    return [
        {
            "name": flavor.name,
            "resources": [
                entry(column, usage.get(column, 0))
                for column in (FlavorResource(flavor.name, resource.name) for resource in flavor.resources)
            ],
        }
        for group in (queue.spec.resource_groups if queue is not None else ())
        for flavor in group.flavors
    ]


def _total(column: FlavorResource, total: int) -> Patch:
    return {"name": column.resource, "total": format_quantity(total, column.resource)}


def _present(current: wire.ClusterQueueStatus | wire.LocalQueueStatus) -> Mapping[str, Any]:
    return {
        "pendingWorkloads": current.pending_workloads,
        "reservingWorkloads": current.reserving_workloads,
        "admittedWorkloads": current.admitted_workloads,
        "flavorsReservation": [_shown(flavor) for flavor in current.flavors_reservation],
        "flavorsUsage": [_shown(flavor) for flavor in current.flavors_usage],
    }


def _shown(flavor: wire.FlavorUsage | wire.LocalFlavorUsage) -> Patch:
    resources: list[Patch] = []
    for resource in flavor.resources:
        shown = {"name": resource.name, "total": str(resource.total)}
        if isinstance(resource, wire.ResourceUsage):
            shown["borrowed"] = str(resource.borrowed)
        resources.append(shown)
    return {"name": flavor.name, "resources": resources}
