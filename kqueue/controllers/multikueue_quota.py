"""Lets quotas of the manager's ClusterQueues follow those of its worker clusters, where a MultiKueueConfig says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from kqueue.api import multikueue_names as words
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import multikueue as api
from kqueue.clock import Clock
from kqueue.controllers.check_answers import is_of
from kqueue.controllers.multikueue_view import CONTROLLER, MultiKueueView
from kqueue.controllers.worker_cluster import WorkerCluster
from kqueue.jobs.multikueue.quota import QuotaPlan, WorkerQueues, quota_plan, with_nominal
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state.checks import wanted_checks
from kqueue.state.conditions import Conditions, Stamp, status_patch

Patch = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSources:
    """Where quotas follow from; functions return None for objects that do not exist."""

    check: Callable[[str], wire.AdmissionCheck | None]
    config: Callable[[str], api.MultiKueueConfig | None]
    local_queues: Callable[[], Iterable[wire.LocalQueue]]
    clusters: Mapping[str, WorkerCluster]


class QuotaAutomation:
    """The reconciler of the manager's ClusterQueues."""

    def __init__(
        self,
        sources: QuotaSources,
        view: MultiKueueView,
        writer: StatusWriter[wire.ClusterQueue],
        *,
        is_on: bool,
        lost_after: timedelta,
        clock: Clock,
    ) -> None:
        """`is_on`: the feature gate is; if not, conditions of former times are removed."""
        self._sources, self._view, self._writer = sources, view, writer
        self._is_on, self._lost_after, self._clock = is_on, lost_after, clock

    async def reconcile(self, key: str) -> Result:
        """Write quotas and condition of a ClusterQueue; look again while a worker that counts is silent."""
        queue = self._writer.newest(key)
        if queue is None or queue.metadata.deletion_timestamp is not None:
            return Result()
        check = self._check(queue)
        plan = self._plan(queue, check) if check is not None else None
        if plan is not None and plan.nominal is not None:
            nominal = plan.nominal
            await self._writer.write(key, lambda now: _quotas(now, nominal), subresource=None)
        await self._writer.write(key, lambda now: self._condition(now, plan))
        silent = check is not None and any(not each.are_known for each in self._workers(check))
        return Result(requeue_after=self._lost_after.total_seconds() if silent else None)

    def _check(self, queue: wire.ClusterQueue) -> wire.AdmissionCheck | None:
        """Return the check that sends workloads of the ClusterQueue to workers; None: it has none."""
        if not self._is_on:
            return None
        found = (self._sources.check(name) for name in wanted_checks(queue.spec, None))
        return next((check for check in found if is_of(check, CONTROLLER)), None)

    def _plan(self, queue: wire.ClusterQueue, check: wire.AdmissionCheck) -> QuotaPlan:
        clusters = self._view.config_of(check)
        where = check.spec.parameters if check.spec is not None else None
        config = self._sources.config(where.name) if where is not None else None
        name = queue.metadata.name
        mine = [each.metadata for each in self._sources.local_queues() if each.spec.cluster_queue == name]
        return quota_plan(
            queue,
            [(meta.namespace, meta.name) for meta in mine],
            self._workers(check),
            is_automated=config is not None and config.spec.quota_management == "Automated",
            problem=clusters if isinstance(clusters, str) else "",
        )

    def _workers(self, check: wire.AdmissionCheck) -> list[WorkerQueues]:
        """Return the queues of all workers; one that has been silent for long has none."""
        clusters = self._view.config_of(check)
        known = [self._sources.clusters.get(name) for name in clusters] if not isinstance(clusters, str) else []
        return [self._queues(cluster) for cluster in known if cluster is not None]

    def _queues(self, cluster: WorkerCluster) -> WorkerQueues:
        link = cluster.link
        if link is None:
            since = cluster.lost_since
            return WorkerQueues(are_known=since is not None and self._clock.now() - since >= self._lost_after)
        return WorkerQueues(local_queues=link.local_queues(), cluster_queues=link.cluster_queues())

    def _condition(self, queue: wire.ClusterQueue, plan: QuotaPlan | None) -> Patch | None:
        stamp = Stamp(self._clock.now())
        conditions = Conditions(queue.status.conditions, generation=queue.metadata.generation, stamp=stamp)
        if plan is None:
            conditions.remove(words.CONDITION_QUOTA_AUTOMATION)
        else:
            is_followed = plan.nominal is not None
            conditions.set(
                words.CONDITION_QUOTA_AUTOMATION, status=is_followed, reason=plan.reason, message=plan.message
            )
        return status_patch(conditions)


def _quotas(queue: wire.ClusterQueue, nominal: Mapping[str, int]) -> Patch | None:
    groups = with_nominal(msgspec.to_builtins(queue.spec.resource_groups), nominal)
    return {"spec": {"resourceGroups": groups}} if groups is not None else None
