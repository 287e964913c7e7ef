"""ProvisioningRequest, a kind of the cluster autoscaler, and a double of an autoscaler that answers its requests.

A request is accepted when its pod templates can be read.  Then a rack of its own appears, with a node of eight GPUs for
each pod, and the request is provisioned.  Parameter `fail` names attempts that fail instead, as in `1,2`.  Source: the
autoscaler's documentation of the kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from kqueue.api.wire import provisioning as api
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import CRDS, Cluster
from tests.integration.doubles import playing

Object = dict[str, Any]
DEFINITION = f"{api.PLURAL}.{api.GROUP}"
CLASS = "rack-of-its-own.example.com"
NODE_GROUP = "example.com/node-group"
"""Label of the nodes of one request; its value is detail `NodeGroup` of the request."""
LOOK_SECONDS = 0.1
_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_ANSWERS = (api.PROVISIONED, api.FAILED)


def definition() -> Object:
    """The definition of the kind, with any fields."""
    names = {"kind": api.KIND, "plural": api.PLURAL, "singular": api.KIND.lower(), "listKind": f"{api.KIND}List"}
    version = {"name": api.VERSION, "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _LOOSE, "status": _LOOSE}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {"group": api.GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def define(cluster: Cluster, folder: Path) -> None:
    """The API server serves the kind from here on."""
    (folder / "provisioningrequest.yaml").write_text(yaml.safe_dump(definition()))
    await cluster.apply_crds(folder)


async def undefine(cluster: Cluster) -> None:
    """The API server does not serve the kind."""
    if await cluster.exists(f"{CRDS}/{DEFINITION}"):
        await cluster.request("DELETE", f"{CRDS}/{DEFINITION}")
        async with asyncio.timeout(30):
            while await cluster.exists(f"/apis/{api.API_VERSION}"):
                await asyncio.sleep(LOOK_SECONDS)


def collection(namespace: str = "") -> str:
    """The path of all requests, or of those in a namespace."""
    inside = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{api.API_VERSION}/{inside}{api.PLURAL}"


@asynccontextmanager
async def autoscaling(cluster: Cluster) -> AsyncIterator[None]:
    """Requests are answered while the block runs."""
    async with playing(_Autoscaler(cluster).run()):
        yield


async def tell(cluster: Cluster, request: Object, kind: str, message: str = "", **status: Any) -> None:
    """Set a condition of a request, and other fields of its status."""
    meta = request["metadata"]
    told: Object = {"type": kind, "status": "True", "reason": kind, "message": message}
    told["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [*request.get("status", {}).get("conditions", []), told]
    path = f"{collection(meta['namespace'])}/{meta['name']}/status"
    body = {"status": {"conditions": conditions, **status}}
    await cluster.request("PATCH", path, body, content_type=MERGE_PATCH)


class _Autoscaler:
    """Looks at all requests again and again.  What meets a newer object is done by the next look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def run(self) -> None:
        while True:
            try:
                for request in (await self._cluster.get(collection()))["items"]:
                    await self._look(request)
            except RequestError as error:
                if error.status not in (403, 404, 409, 429):  # 404: the kind is not served yet, or the request is gone
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, request: Object) -> None:
        if any(c["type"] in _ANSWERS for c in request.get("status", {}).get("conditions", [])):
            return
        name, namespace = request["metadata"]["name"], request["metadata"]["namespace"]
        for pods in request["spec"]["podSets"]:
            template = f"/api/v1/namespaces/{namespace}/podtemplates/{pods['podTemplateRef']['name']}"
            if not (await self._cluster.get(template))["template"]["spec"]["containers"]:
                return
        attempt = name.rpartition("-")[2]
        if attempt in _attempts(request):
            await tell(self._cluster, request, api.FAILED, "no rack is free")
            return
        count = sum(pods["count"] for pods in request["spec"]["podSets"])
        try:
            await self._cluster.add_nodes((1, 1, count), labels={"pool": "gpu", NODE_GROUP: name}, prefix=name)
        except RequestError as error:
            if error.status != 409:  # an earlier look has made them
                raise
        details = {"provisioningClassDetails": {"NodeGroup": name}}
        await tell(self._cluster, request, api.PROVISIONED, f"{count} nodes are ready", **details)


def _attempts(request: Object) -> Sequence[str]:
    fail: str = request["spec"].get("parameters", {}).get("fail", "")
    return fail.split(",")
