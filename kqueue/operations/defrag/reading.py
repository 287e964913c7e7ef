"""The state of the cluster as the API server has it, in the form in which the controller plans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers import resources
from kqueue.core.devices.counting import DeviceRules
from kqueue.operations.devices import (
    NO_CLUSTER_DEVICES,
    ClusterDevices,
    read_devices,
    tell_hosts,
    tell_objects,
    tell_pods,
)
from kqueue.operations.grants import DEFRAG, needs
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.state.cache import Cache
from kqueue.state.defrag.view import DefragState
from kqueue.state.requests import Requests

JSON = Mapping[str, Any]
T = TypeVar("T")


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
    tell_objects(objects.devices, cache.requests.devices, remarks.append)
    tell_hosts(objects.devices, cache.devices, remarks.append)
    for limits in _read(objects.limit_ranges, wire_core.LimitRange, remarks):
        cache.requests.on_limit_range(None, limits)
    for runtime in _read(objects.runtime_classes, wire_core.RuntimeClass, remarks):
        cache.requests.on_runtime_class(None, runtime)
    for topology in _read(objects.topologies, wire.Topology, remarks):
        cache.quota.on_topology(topology.metadata.name, topology)
    for flavor in _read(objects.flavors, wire.ResourceFlavor, remarks):
        cache.on_flavor(flavor.metadata.name, flavor)
    for check in _read(objects.checks, wire.AdmissionCheck, remarks):
        cache.quota.on_check(check.metadata.name, check)
    for cohort in _read(objects.cohorts, wire.Cohort, remarks):
        cache.quota.on_cohort(cohort.metadata.name, cohort)
    for queue in _read(objects.cluster_queues, wire.ClusterQueue, remarks):
        cache.quota.on_cluster_queue(queue.metadata.name, queue)
    workloads = {model.workload_key(obj): obj for obj in _read(objects.workloads, wire.Workload, remarks)}
    for key, workload in sorted(workloads.items()):
        cache.held.on_workload(key, workload)
    views = [model.pod_view(pod) for pod in _read(objects.pods, wire_core.Pod, remarks)]
    bound = {view.key: view.bound for view in views if view.bound is not None}
    expected = [view.key for view in views if view.bound is None and (view.gang is not None or view.workload)]
    tell_pods(bound, expected, cache.devices, cache.on_pod)
    for node in _read(objects.nodes, wire_core.Node, remarks):
        cache.on_node(node.metadata.name, model.node_facts(node))
    return DefragState(
        cache=cache,
        workloads=workloads,
        queue_of={
            f"{queue.metadata.namespace}/{queue.metadata.name}": queue.spec.cluster_queue or ""
            for queue in _read(objects.local_queues, wire.LocalQueue, remarks)
        },
        budgets=tuple(_read(objects.budgets, wire_core.PodDisruptionBudget, remarks)),
        now=now,
        remarks=remarks,
    )


def _read(objects: Sequence[JSON], form: type[T], remarks: list[str]) -> Iterator[T]:
    for obj in objects:
        try:
            yield msgspec.convert(obj, form, strict=False)
        except msgspec.ValidationError as e:
            meta = obj.get("metadata") or {}
            name = "/".join(filter(None, (meta.get("namespace"), meta.get("name"))))
            remarks.append(f"{obj.get('kind')} {name} cannot be read and is left out: {e}")
