"""Choice of the families of metrics that a process shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGroups:
    """Groups of families on pages.

    Args:
        local_queues: families of LocalQueues.
        cluster_queue_resources: quota per ClusterQueue.
        cohorts: places of queues and cohorts in their tree.
        creation_latency: latency of creation.
        unadmitted: Workloads by the reason for which they are not admitted.
        hashes: shapes of Workloads.
        dashboard: the page that is served to many people; no other process has them.
    """

    local_queues: bool = True
    cluster_queue_resources: bool = False
    cohorts: bool = True
    creation_latency: bool = True
    unadmitted: bool = True
    hashes: bool = True
    dashboard: bool = False


DEFAULT_GROUPS = MetricGroups()
