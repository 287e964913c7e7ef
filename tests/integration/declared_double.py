"""A custom job kind and the double of its controller, which creates pods and deletes them at suspension."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import playing

Object = dict[str, Any]
GROUP = "/apis/trains.example.com/v1"
LOOK_SECONDS = 0.1
_ENDED = ("Succeeded", "Failed")
_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "trains.trains.example.com"},
    "spec": {
        "group": "trains.example.com",
        "scope": "Namespaced",
        "names": {"kind": "Train", "plural": "trains", "singular": "train", "listKind": "TrainList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _LOOSE, "status": _LOOSE}}},
            }
        ],
    },
}
DECLARED: Object = {
    "apiVersion": "trains.example.com/v1",
    "kind": "Train",
    "suspend": "spec.hold",
    "podSets": [
        {"template": "spec.wagons[*].template", "replicas": "spec.wagons[*].count", "nameFrom": "spec.wagons[*].name"}
    ],
    "succeeded": {"condition": "Arrived"},
    "failed": {"condition": "Derailed"},
    "message": "status.note",
    "ready": {"count": "status.ready"},
    "active": "status.active",
    "podLabels": {"trains.example.com/train": "metadata.name"},
}
"""The entry of `integrations.declaredKinds`."""


async def define(cluster: Cluster, folder: Path) -> None:
    """The API server serves the kind from here on."""
    (folder / "train.yaml").write_text(yaml.safe_dump(CRD))
    await cluster.apply_crds(folder)


@asynccontextmanager
async def trains_run(cluster: Cluster) -> AsyncIterator[None]:
    """Trains have a controller while the block runs."""
    async with playing(_Double(cluster).run()):
        yield


class _Double:
    """Looks at all trains again and again.  What meets a newer object is done by the next look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._session: aiohttp.ClientSession | None = None

    async def run(self) -> None:
        async with self._cluster.access.session() as self._session:
            while True:
                try:
                    for train in (await self._ask("GET", f"{GROUP}/trains"))["items"]:
                        await self._look(train)
                except RequestError as error:
                    if error.status not in (403, 404, 409, 429):  # 403: its namespace ends; 429: the kind is new
                        raise
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, train: Object) -> None:
        meta, spec = train["metadata"], train["spec"]
        pods_path = f"/api/v1/namespaces/{meta['namespace']}/pods"
        listed = (await self._ask("GET", f"{pods_path}?labelSelector=trains.example.com/train={meta['name']}"))["items"]
        wanted = {f"{meta['name']}-{w['name']}-{n}": w for w in spec["wagons"] for n in range(w["count"])}
        there = {pod["metadata"]["name"]: pod for pod in listed}
        ended = {name for name, pod in there.items() if pod["status"].get("phase") in _ENDED}
        if spec["hold"]:
            for name in there.keys() - ended:
                if not there[name]["metadata"].get("deletionTimestamp"):
                    await self._ask("DELETE", f"{pods_path}/{name}")
        else:
            for name in wanted.keys() - there.keys():
                await self._ask("POST", pods_path, _pod(name, wanted[name]["template"], meta))
        ready = sum(pod["status"].get("phase") in ("Running", "Succeeded") for pod in listed)
        status: Object = {"active": len(there.keys() - ended), "ready": 0 if spec["hold"] else ready}
        if wanted.keys() <= ended and not spec["hold"]:
            status |= {"note": "on time", "conditions": [{"type": "Arrived", "status": "True"}]}
        if any(train.get("status", {}).get(key) != value for key, value in status.items()):
            path = f"{GROUP}/namespaces/{meta['namespace']}/trains/{meta['name']}/status"
            await self._ask("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    async def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> Object:
        return await self._cluster.access.request(method, path, body, session=self._session, **more)


def _pod(name: str, template: Object, owner: Object) -> Object:
    meta = template.get("metadata", {})
    reference = {
        "apiVersion": "trains.example.com/v1",
        "kind": "Train",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": owner["namespace"],
            "labels": {**meta.get("labels", {}), "trains.example.com/train": owner["name"]},
            "annotations": meta.get("annotations", {}),
            "ownerReferences": [reference],
        },
        "spec": template["spec"],
    }
