"""LeaderWorkerSet, and a double of its controller.

All leaders are pods of one StatefulSet with the set's name.  Each leader controls a StatefulSet of its workers, which
begins with ordinal 1 and goes with the leader.  Pods have the name of their set, the index of their group, and their
own index in it; workers also name their leader.  Kubernetes makes the pods.  Source: the documentation and the
controllers of LWS.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from kqueue.kinds import FRAMEWORKS, Kind
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import CustomDouble, define, playing

Object = dict[str, Any]
ROW = FRAMEWORKS["leaderworkerset.x-k8s.io/leaderworkerset"]
PREFIX = "leaderworkerset.sigs.k8s.io/"


@asynccontextmanager
async def sets_run(cluster: Cluster, folder: Path) -> AsyncIterator[None]:
    """The kind is defined, and has a controller while the block runs."""
    await define(cluster, folder, [ROW])
    async with playing(LeaderWorkerSetDouble(cluster.access, [ROW]).run()):
        yield


class LeaderWorkerSetDouble(CustomDouble):
    """Makes the StatefulSets of leaders and workers, and tells what is ready."""

    async def look(self, row: Kind, obj: Object) -> None:
        if not obj["metadata"].get("deletionTimestamp"):
            await self._look(obj)

    async def _look(self, found: Object) -> None:
        name, namespace = found["metadata"]["name"], found["metadata"]["namespace"]
        sets, core = f"/apis/apps/v1/namespaces/{namespace}/statefulsets", f"/api/v1/namespaces/{namespace}/pods"
        selected = f"?labelSelector={PREFIX}name={name}"
        there = {s["metadata"]["name"]: s for s in (await self.ask("GET", sets + selected))["items"]}
        await self._keep(sets, there.get(name), leaders_of(found))
        pods = (await self.ask("GET", core + selected))["items"]
        for pod in pods:
            missing = {k: v for k, v in places(pod).items() if pod["metadata"]["labels"].get(k) != v}
            if missing:
                path = f"{core}/{pod['metadata']['name']}"
                await self.ask("PATCH", path, {"metadata": {"labels": missing}}, content_type=MERGE_PATCH)
        for leader in pods:
            leaves = leader["metadata"].get("deletionTimestamp")
            if is_leader(leader) and not leaves and leader["metadata"]["name"] not in there and size_of(found) > 1:
                await self.ask("POST", sets, workers_of(found, leader))
        await self._count(found, pods)

    async def _keep(self, path: str, there: Object | None, wanted: Object) -> None:
        """Write the StatefulSet of all leaders, unless it is there as wanted."""
        mark = f"{PREFIX}double-of"
        wanted["metadata"]["annotations"] = {mark: sha256(json.dumps(wanted["spec"]).encode()).hexdigest()}
        if there is None:
            await self.ask("POST", path, wanted)
        elif there["metadata"].get("annotations", {}).get(mark) != wanted["metadata"]["annotations"][mark]:
            name = wanted["metadata"]["name"]
            await self.ask("PATCH", f"{path}/{name}", wanted, content_type=MERGE_PATCH)

    async def _count(self, found: Object, pods: Sequence[Object]) -> None:
        groups: dict[str, list[Object]] = {}
        for pod in pods:
            groups.setdefault(places(pod)[f"{PREFIX}group-index"], []).append(pod)
        ready = [len(group) == size_of(found) and all(map(_is_ready, group)) for group in groups.values()]
        leaders = sum(map(is_leader, pods))
        status = {"replicas": leaders, "updatedReplicas": leaders, "readyReplicas": sum(ready)}
        await self.tell(ROW, found, status)


def size_of(found: Object) -> int:
    """The number of pods of a group."""
    size: int = found["spec"]["leaderWorkerTemplate"].get("size", 1)
    return size


def is_leader(pod: Object) -> bool:
    """Whether the pod is no worker."""
    return f"{PREFIX}leader-name" not in pod["metadata"].get("annotations", {})


def places(pod: Object) -> dict[str, str]:
    """The labels that the webhook of LWS gives a pod: its places among groups and in its own."""
    name, _, ordinal = pod["metadata"]["name"].rpartition("-")
    if is_leader(pod):
        return {f"{PREFIX}group-index": ordinal, f"{PREFIX}worker-index": "0"}
    return {f"{PREFIX}group-index": name.rpartition("-")[2], f"{PREFIX}worker-index": ordinal}


def leaders_of(found: Object) -> Object:
    """The StatefulSet of all leaders."""
    own = found["spec"]["leaderWorkerTemplate"]
    template = own.get("leaderTemplate") or own["workerTemplate"]
    labels = {f"{PREFIX}name": found["metadata"]["name"], f"{PREFIX}worker-index": "0"}
    owner = {"apiVersion": found["apiVersion"], "kind": found["kind"]}
    spec = {"replicas": found["spec"].get("replicas", 1)}
    return _set(found["metadata"]["name"], found, owner=found, kind=owner, labels=labels, template=template, spec=spec)


def workers_of(found: Object, leader: Object) -> Object:
    """The StatefulSet of the workers of a leader."""
    template = found["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    name = leader["metadata"]["name"]
    labels = {f"{PREFIX}name": found["metadata"]["name"], f"{PREFIX}group-index": name.rpartition("-")[2]}
    owner = {"apiVersion": "v1", "kind": "Pod"}
    spec = {"replicas": size_of(found) - 1, "ordinals": {"start": 1}}
    marks = {f"{PREFIX}leader-name": name}
    return _set(name, found, owner=leader, kind=owner, labels=labels, template=template, spec=spec, marks=marks)


def _set(
    name: str,
    found: Object,
    *,
    owner: Object,
    kind: Object,
    labels: Object,
    template: Object,
    spec: Object,
    marks: Object | None = None,
) -> Object:
    metadata = template.get("metadata", {})
    annotations = {**metadata.get("annotations", {}), f"{PREFIX}size": str(size_of(found)), **(marks or {})}
    pod = {"metadata": {"labels": {**metadata.get("labels", {}), **labels}, "annotations": annotations}}
    reference = {**kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": found["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "serviceName": found["metadata"]["name"],
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": pod | {"spec": template["spec"]},
            **spec,
        },
    }


def _is_ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))
