"""Reading the objects of the cluster that an import needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.controllers import resources
from kqueue.jobs import pod_view
from kqueue.kube import names as kube_names
from kqueue.operations.importing.plan import ImportWorld
from kqueue.runtime.client import Client

Object = Mapping[str, Any]


async def pods_in(client: Client, namespaces: Sequence[str]) -> list[Object]:
    """Return the pods of these namespaces, without ended and terminating ones."""
    found: list[Object] = []
    for namespace in namespaces:
        found += await client.list_json(resources.PODS, namespace)
    return [pod for pod in found if not pod_view.is_terminated(pod) and not pod_view.is_deleting(pod)]


async def read_world(client: Client, namespaces: Sequence[str]) -> ImportWorld:
    """Read all objects that an import needs, except the pods."""
    queues: dict[tuple[str, str], str] = {}
    workloads: dict[str, Object] = {}
    for namespace in namespaces:
        for each in await client.list_json(resources.LOCAL_QUEUES, namespace):
            queues[namespace, each["metadata"]["name"]] = str((each.get("spec") or {}).get("clusterQueue") or "")
        for each in await client.list_json(resources.WORKLOADS, namespace):
            for owner in each["metadata"].get("ownerReferences") or ():
                if owner.get("kind") == "Pod" and owner.get("controller"):
                    workloads[owner["uid"]] = each
    return ImportWorld(
        local_queues=queues,
        cluster_queues=_by_name(await client.list_json(resources.CLUSTER_QUEUES)),
        flavors=_by_name(await client.list_json(resources.RESOURCE_FLAVORS)),
        node_labels={
            name: node["metadata"].get("labels") or {}
            for name, node in _by_name(await client.list_json(resources.NODES)).items()
        },
        priorities={
            **_values(kube_names.PRIORITY_CLASS_KIND, await client.list_json(resources.PRIORITY_CLASSES)),
            **_values(names.WORKLOAD_PRIORITY_CLASS_KIND, await client.list_json(resources.WORKLOAD_PRIORITY_CLASSES)),
        },
        workloads=workloads,
    )


def _by_name(objects: Sequence[Object]) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects}


def _values(kind: str, classes: Sequence[Object]) -> dict[tuple[str, str], int]:
    return {(kind, each["metadata"]["name"]): int(each.get("value") or 0) for each in classes}
