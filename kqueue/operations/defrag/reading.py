"""The state of the cluster as the API server has it, in the form in which the controller plans."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers import resources
from kqueue.core.devices.counting import DeviceRules
from kqueue.operations.devices import (
    NO_CLUSTER_DEVICES,
    ClusterDevices,
    load_hosts,
    load_objects,
    load_pods,
    read_devices,
)
from kqueue.operations.grants import DEFRAG, needs
from kqueue.operations.reading import readable
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.state.cache import Cache
from kqueue.state.defrag.view import DefragState
from kqueue.state.requests import Requests

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """Objects of the API server that decide about room and about moves."""

    topologies: Sequence[JSON] = ()
    flavors: Sequence[JSON] = ()
    cohorts: Sequence[JSON] = ()
    cluster_queues: Sequence[JSON] = ()
    local_queues: Sequence[JSON] = ()
    checks: Sequence[JSON] = ()
    limit_ranges: Sequence[JSON] = ()
    runtime_classes: Sequence[JSON] = ()
    nodes: Sequence[JSON] = ()
    workloads: Sequence[JSON] = ()
    pods: Sequence[JSON] = ()
    budgets: Sequence[JSON] = ()
    devices: ClusterDevices = NO_CLUSTER_DEVICES


READ: tuple[tuple[str, ResourceType], ...] = (
    ("topologies", resources.TOPOLOGIES),
    ("flavors", resources.RESOURCE_FLAVORS),
    ("cohorts", resources.COHORTS),
    ("cluster_queues", resources.CLUSTER_QUEUES),
    ("local_queues", resources.LOCAL_QUEUES),
    ("checks", resources.ADMISSION_CHECKS),
    ("limit_ranges", resources.LIMIT_RANGES),
    ("runtime_classes", resources.RUNTIME_CLASSES),
    ("nodes", resources.NODES),
    ("workloads", resources.WORKLOADS),
    ("pods", resources.PODS),
    ("budgets", resources.POD_DISRUPTION_BUDGETS),
)
"""The kinds of the fields of `ClusterObjects`, except those of devices."""


async def read_objects(client: Client, *, devices: bool = False) -> ClusterObjects:
    """Return all objects that a plan needs, with the rights of the client's user.

    `devices`: those of claimed devices, too.

    Raises:
        ForbiddenError: the user may not list one of the kinds; the message names the missing grant.
        ApiError: another failure.
    """
    with needs(DEFRAG):
        found = await asyncio.gather(*[client.list_json(kind) for _, kind in READ])
    claimed = await read_devices(client) if devices else NO_CLUSTER_DEVICES
    return ClusterObjects(**dict(zip([name for name, _ in READ], found, strict=True)), devices=claimed)


def state_of(objects: ClusterObjects, now: datetime, rules: DeviceRules | None = None) -> DefragState:
    """Return the state that these objects describe; objects that cannot be read are left out, with a remark.

    `rules`: how claimed devices count; None: they do not.  Otherwise it counts as a controller without a configuration
    file does: without transformed or excluded resources.
    """
    cache, remarks = Cache(requests=Requests(devices=rules)), list[str]()
    load_objects(objects.devices, cache.requests.devices, remarks.append)
    load_hosts(objects.devices, cache.devices, remarks.append)
    for limits in readable(objects.limit_ranges, wire_core.LimitRange, remarks.append):
        cache.requests.on_limit_range(None, limits)
    for runtime in readable(objects.runtime_classes, wire_core.RuntimeClass, remarks.append):
        cache.requests.on_runtime_class(None, runtime)
    for topology in readable(objects.topologies, wire.Topology, remarks.append):
        cache.quota.on_topology(topology.metadata.name, topology)
    for flavor in readable(objects.flavors, wire.ResourceFlavor, remarks.append):
        cache.on_flavor(flavor.metadata.name, flavor)
    for check in readable(objects.checks, wire.AdmissionCheck, remarks.append):
        cache.quota.on_check(check.metadata.name, check)
    for cohort in readable(objects.cohorts, wire.Cohort, remarks.append):
        cache.quota.on_cohort(cohort.metadata.name, cohort)
    for queue in readable(objects.cluster_queues, wire.ClusterQueue, remarks.append):
        cache.quota.on_cluster_queue(queue.metadata.name, queue)
    workloads = {model.workload_key(obj): obj for obj in readable(objects.workloads, wire.Workload, remarks.append)}
    for key, workload in sorted(workloads.items()):
        cache.held.on_workload(key, workload)
    views = [model.pod_view(pod) for pod in readable(objects.pods, wire_core.Pod, remarks.append)]
    bound = {view.key: view.bound for view in views if view.bound is not None}
    expected = [view.key for view in views if view.bound is None and (view.gang is not None or view.workload)]
    load_pods(bound, expected, cache.devices, cache.on_pod)
    for node in readable(objects.nodes, wire_core.Node, remarks.append):
        cache.on_node(node.metadata.name, model.node_facts(node))
    return DefragState(
        cache=cache,
        workloads=workloads,
        queue_of={
            f"{queue.metadata.namespace}/{queue.metadata.name}": queue.spec.cluster_queue or ""
            for queue in readable(objects.local_queues, wire.LocalQueue, remarks.append)
        },
        budgets=tuple(readable(objects.budgets, wire_core.PodDisruptionBudget, remarks.append)),
        now=now,
        remarks=remarks,
    )
