"""Reading the objects of the cluster that an import needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kqueue.api import names
from kqueue.controllers import resources
from kqueue.errors import NotFoundError
from kqueue.jobs.fields import JSON
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.kind import JobKind
from kqueue.jobs.others import Reference, completed, references
from kqueue.kube import names as kube_names
from kqueue.operations.devices import NO_CLUSTER_DEVICES, ClusterDevices, read_devices
from kqueue.operations.importing.units import Job, controller_of
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType

Object = Mapping[str, Any]

_DRAINS = "HoldAndDrain"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWorld:
    """The objects of the cluster by name."""

    local_queues: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """ClusterQueue of each LocalQueue, by namespace and name."""
    drained: frozenset[tuple[str, str]] = frozenset()
    """LocalQueues that stop their workloads; ClusterQueues say it themselves."""
    cluster_queues: Mapping[str, Object] = field(default_factory=dict)
    flavors: Mapping[str, Object] = field(default_factory=dict)
    topologies: Mapping[str, Object] = field(default_factory=dict)
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priorities: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Values of priority classes, by kind and name."""
    workloads: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """Workloads by the UID of their controller, and those of groups of pods by namespace/name."""
    checks: Mapping[str, Object] = field(default_factory=dict)
    devices: ClusterDevices = NO_CLUSTER_DEVICES
    limit_ranges: Sequence[Object] = ()
    runtime_classes: Sequence[Object] = ()


async def pods_in(client: Client, namespaces: Sequence[str]) -> list[Object]:
    """Return the pods of these namespaces."""
    return [pod for namespace in namespaces for pod in await client.list_json(resources.PODS, namespace)]


async def jobs_in(client: Client, namespaces: Sequence[str], kinds: Iterable[JobKind]) -> list[Job]:
    """Return the objects of these kinds, completed by the others that their kind reads; kinds that the cluster does not
    have are left out.
    """
    found: list[Job] = []
    for kind in kinds:
        for namespace in namespaces:
            try:
                listed = await client.list_json(resources.resource_of(kind), namespace)
            except NotFoundError:
                break
            found += [(kind, await _completed(client, kind, job)) for job in listed]
    return found


async def group_objects_in(client: Client, namespaces: Sequence[str], frameworks: Iterable[str]) -> dict[str, Object]:
    """Return the objects of groups by the key of the group; of each kind in the newest version that the cluster has."""
    found: dict[str, Object] = {}
    for framework in frameworks:
        dialect = dialect_of(framework)
        for kind in dialect.kinds:
            resource = ResourceType(kind.group, kind.version, dialect.plural, kind.kind)
            named = {"apiVersion": kind.api_version, "kind": kind.kind}
            try:
                listed = [obj for namespace in namespaces for obj in await client.list_json(resource, namespace)]
            except NotFoundError:
                continue
            for obj in listed:
                meta = obj["metadata"]
                found[gang_key(framework, meta["namespace"], meta["name"])] = {**obj, **named}
            break
    return found


async def _completed(client: Client, kind: JobKind, job: JSON) -> JSON:
    """Return the job with the other objects from which its pods follow, as its adapter expects it."""
    needed = references(kind, job)
    return completed(job, {one: await _other(client, one) for one in needed}) if needed else job


async def _other(client: Client, reference: Reference) -> JSON | None:
    kind = reference.kind
    resource = ResourceType(kind.group, kind.version, kind.plural, kind.kind, namespaced=kind.namespaced)
    try:
        return await client.get_json(resource, reference.name, reference.namespace or None)
    except NotFoundError:
        return None


async def read_world(client: Client, namespaces: Sequence[str], *, devices: bool = False) -> ImportWorld:
    """Read all objects that an import needs, except the pods and jobs; `devices`: those of claimed devices, too."""
    queues: dict[tuple[str, str], str] = {}
    drained: set[tuple[str, str]] = set()
    workloads: dict[str, list[Object]] = defaultdict(list)
    limit_ranges: list[Object] = []
    for namespace in namespaces:
        for each in await client.list_json(resources.LOCAL_QUEUES, namespace):
            key = namespace, str(each["metadata"]["name"])
            queues[key] = str((each.get("spec") or {}).get("clusterQueue") or "")
            if (each.get("spec") or {}).get("stopPolicy") == _DRAINS:
                drained.add(key)
        for each in await client.list_json(resources.WORKLOADS, namespace):
            uid = controller_of(each).get("uid") or f"{namespace}/{each['metadata']['name']}"
            workloads[uid].append(each)
        limit_ranges += await client.list_json(resources.LIMIT_RANGES, namespace)
    return ImportWorld(
        local_queues=queues,
        drained=frozenset(drained),
        cluster_queues=_by_name(await client.list_json(resources.CLUSTER_QUEUES)),
        flavors=_by_name(await client.list_json(resources.RESOURCE_FLAVORS)),
        checks=_by_name(await client.list_json(resources.ADMISSION_CHECKS)),
        devices=await read_devices(client) if devices else NO_CLUSTER_DEVICES,
        topologies=_by_name(await client.list_json(resources.TOPOLOGIES)),
        node_labels={
            name: node["metadata"].get("labels") or {}
            for name, node in _by_name(await client.list_json(resources.NODES)).items()
        },
        priorities={
            **_values(kube_names.PRIORITY_CLASS_KIND, await client.list_json(resources.PRIORITY_CLASSES)),
            **_values(names.WORKLOAD_PRIORITY_CLASS_KIND, await client.list_json(resources.WORKLOAD_PRIORITY_CLASSES)),
        },
        workloads=workloads,
        limit_ranges=limit_ranges,
        runtime_classes=await client.list_json(resources.RUNTIME_CLASSES),
    )


def drains(queue: Object) -> bool:
    """Whether a ClusterQueue stops its workloads."""
    return bool((queue.get("spec") or {}).get("stopPolicy") == _DRAINS)


def _by_name(objects: Sequence[Object]) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects}


def _values(kind: str, classes: Sequence[Object]) -> dict[tuple[str, str], int]:
    return {(kind, each["metadata"]["name"]): int(each.get("value") or 0) for each in classes}
