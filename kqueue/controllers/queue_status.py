"""Status of ClusterQueues and LocalQueues, and the finalizers that keep things alive while they are in use.

Never on the critical path: counts are refreshed at a bounded rate, in the background.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        usage: Usage = quota.total(h.admission.usage() for h in holdings)
        node = self._cache.node_of(obj.metadata.name)
        out: list[Patch] = []
        for group in obj.spec.resource_groups:
            for flavor in group.flavors:
                resources = []
                for resource in flavor.resources:
                    column = FlavorResource(flavor.name, resource.name)
                    total = usage.get(column, 0)
                    nominal = node.quota(column).nominal if node is not None else total
                    resources.append(
                        {
                            "name": resource.name,
                            "total": format_quantity(total, resource.name),
                            "borrowed": format_quantity(max(0, total - nominal), resource.name),
                        }
                    )
                out.append({"name": flavor.name, "resources": resources})
        return out


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
        wanted: Patch = {
            "pendingWorkloads": self._queues.local_count(key),
            "reservingWorkloads": len(holdings),
            "admittedWorkloads": sum(h.admitted for h in holdings),
        }
        now = {
            "pendingWorkloads": obj.status.pending_workloads,
            "reservingWorkloads": obj.status.reserving_workloads,
            "admittedWorkloads": obj.status.admitted_workloads,
        }
        changes = {k: v for k, v in wanted.items() if v != now[k]}
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


def _present(current: wire.ClusterQueueStatus) -> Mapping[str, Any]:
    return {
        "pendingWorkloads": current.pending_workloads,
        "reservingWorkloads": current.reserving_workloads,
        "admittedWorkloads": current.admitted_workloads,
        "flavorsReservation": _usage_json(current.flavors_reservation),
        "flavorsUsage": _usage_json(current.flavors_usage),
    }


def _usage_json(usage: Iterable[wire.FlavorUsage]) -> list[Patch]:
    return [
        {
            "name": flavor.name,
            "resources": [
                {"name": r.name, "total": str(r.total), "borrowed": str(r.borrowed)} for r in flavor.resources
            ],
        }
        for flavor in usage
    ]
