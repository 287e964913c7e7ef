"""Measured use of simulated nodes and pods: the API metrics.k8s.io, as a metrics server beside a cluster serves it.

A running pod uses half of what it requests, or what its annotation says; a node uses what its pods use, or what its
annotation says.  The API has `get` and `list`, with label selectors, and no watch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kqueue.sandbox import failure, selectors
from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import NODES, PODS, GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.discovery import Others
from kqueue.sandbox.matching import pod_requests
from kqueue.sandbox.names import USE_ANNOTATION
from kqueue.sandbox.route import ResourcePath

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_NANOS_PER_MILLI = 1_000_000
_WINDOW = "15s"
_VERBS = ["get", "list"]

Use = Mapping[str, int]
"""Cpu in milli and memory in bytes."""


@dataclass(frozen=True, slots=True)
class SimulatedUse:
    """The measured use of all nodes and pods of one API."""

    api: ClusterApi

    def groups(self) -> dict[str, list[str]]:
        """Return the group with its version."""
        return {GROUP: [VERSION]}

    def resources(self, group: str, version: str) -> Object | None:
        """Return the discovery document; None for other groups and versions."""
        if (group, version) != (GROUP, VERSION):
            return None
        resources = [
            {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": _VERBS},
            {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": _VERBS},
        ]
        api_version = f"{GROUP}/{VERSION}"
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}

    def answer(self, found: ResourcePath, query: Mapping[str, str]) -> Object:
        """Return one object, or the list of those that a label selector selects.

        Raises:
            NotFoundError: there is no such resource, object, or use of it yet.
            InvalidError: the selector is malformed (400).
        """
        plural = found.resource.plural
        if found.subresource or plural not in ("nodes", "pods") or (plural == "nodes" and found.namespace):
            raise failure.unknown_path()
        if found.name:
            return self._one(plural, found.name, found.namespace)
        chosen = selectors.parse_labels(query.get("labelSelector", ""))
        resource, namespace = (NODES, None) if plural == "nodes" else (PODS, found.namespace or None)
        objects = [obj for obj in self.api.every(resource, namespace) if chosen.selects(obj["metadata"].get("labels"))]
        items = self._nodes(objects) if plural == "nodes" else [self._pod(pod) for pod in objects if _runs(pod)]
        kind = "NodeMetricsList" if plural == "nodes" else "PodMetricsList"
        return {"kind": kind, "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}

    def _one(self, plural: str, name: str, namespace: str) -> Object:
        obj = self.api.find(NODES if plural == "nodes" else PODS, name, namespace)
        if obj is None or (plural == "pods" and not _runs(obj)):
            raise failure.not_found(GroupVersionResource(GROUP, VERSION, plural), name)
        (item,) = self._nodes([obj]) if plural == "nodes" else [self._pod(obj)]
        return {
            "kind": "NodeMetrics" if plural == "nodes" else "PodMetrics",
            "apiVersion": f"{GROUP}/{VERSION}",
            **item,
        }

    def _nodes(self, nodes: Iterable[Object]) -> list[Object]:
        of_pods: dict[str, dict[str, int]] = {}
        for pod in self.api.every(PODS):
            if _runs(pod):
                sums = of_pods.setdefault(pod["spec"]["nodeName"], {"cpu": 0, "memory": 0})
                for resource, used in use_of_pod(pod).items():
                    sums[resource] += used
        nothing = {"cpu": 0, "memory": 0}
        return [
            self._item(
                node, {"usage": _written({**of_pods.get(node["metadata"]["name"], nothing), **_annotated(node)})}
            )
            for node in nodes
        ]

    def _pod(self, pod: Object) -> Object:
        names = [container["name"] for container in pod["spec"]["containers"]]
        nothing = {"cpu": 0, "memory": 0}
        uses = [use_of_pod(pod), *(nothing for _ in names[1:])]
        containers = [{"name": name, "usage": _written(use)} for name, use in zip(names, uses, strict=True)]
        return self._item(pod, {"containers": containers})

    def _item(self, obj: Object, use: Object) -> Object:
        now, meta = self.api.now_text(), obj["metadata"]
        kept = {key: meta[key] for key in ("name", "namespace", "labels") if key in meta}
        return {"metadata": {**kept, "creationTimestamp": now}, "timestamp": now, "window": _WINDOW, **use}


@dataclass(frozen=True, slots=True)
class OtherGroups:
    """The groups of several servers behind this one; the first server with a group and version serves it."""

    servers: tuple[Others, ...]

    def groups(self) -> dict[str, list[str]]:
        """Return all groups with their versions."""
        found: dict[str, list[str]] = {}
        for server in self.servers:
            for group, versions in server.groups().items():
                found[group] = list(dict.fromkeys([*found.get(group, []), *versions]))
        return found

    def resources(self, group: str, version: str) -> Object | None:
        """Return the discovery document of the first server that has it; None: none has."""
        return next((found for each in self.servers if (found := each.resources(group, version)) is not None), None)


def use_of_pod(pod: Object) -> Use:
    """Return the simulated use of a running pod."""
    try:
        requests = pod_requests(pod)
    except ValueError:
        requests = {}
    return {**{resource: requests.get(resource, 0) // 2 for resource in ("cpu", "memory")}, **_annotated(pod)}


def _annotated(obj: Object) -> dict[str, int]:
    """Return the use that an annotation names, as `cpu=500m,memory=1Gi`; parts that are malformed do not count."""
    found: dict[str, int] = {}
    for part in ((obj["metadata"].get("annotations") or {}).get(USE_ANNOTATION) or "").split(","):
        resource, _, text = part.strip().partition("=")
        if resource in ("cpu", "memory"):
            try:
                found[resource] = amount(text, resource)
            except ValueError:
                continue
    return found


def _runs(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and (pod.get("status") or {}).get("phase") == "Running"


def _written(use: Use) -> dict[str, str]:
    """Write an amount as metrics servers do: cpu in billionths, memory in Ki."""
    return {"cpu": f"{use['cpu'] * _NANOS_PER_MILLI}n", "memory": f"{-(-use['memory'] // 1024)}Ki"}
