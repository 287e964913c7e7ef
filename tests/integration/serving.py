"""A tenant with Deployments and StatefulSets, and readers of its pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, has, make_road

Plane = ControlPlane | SandboxPlane
PREFIX = "kueue.x-k8s.io/"
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [{framework}]}}
"""
MERGE = "application/merge-patch+json"


class Serving(Road):
    """One tenant."""

    def __init__(self, cluster: Any, namespace: str, *, kind: str) -> None:
        super().__init__(cluster, namespace)
        self.kind = kind
        self.collection = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"

    def made(
        self,
        name: str,
        *,
        replicas: int = 2,
        gpus: int = 8,
        queue: str | None = "main",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        template: dict[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """As a user writes it; `template` are annotations of its pods."""
        amounts = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
        container = {"name": "c", "image": "example.com/i:1", "resources": {"requests": amounts, "limits": amounts}}
        own = {} if queue is None else {f"{PREFIX}queue-name": queue}
        pod = {
            "metadata": {"labels": {"app": name}, "annotations": template or {}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }
        if self.kind == "StatefulSet":
            spec = {"serviceName": name, "podManagementPolicy": "Parallel", **spec}
        return {
            "apiVersion": "apps/v1",
            "kind": self.kind,
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": own | (labels or {}),
                "annotations": annotations or {},
            },
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod, **spec},
        }  # fmt: skip

    async def create(self, name: str, **settings: Any) -> Object:
        return await self.cluster.request("POST", self.collection, self.made(name, **settings))

    async def get(self, name: str) -> Object:
        return await self.cluster.get(f"{self.collection}/{name}")

    async def patch(self, name: str, patch: Object) -> Object:
        return await self.cluster.request("PATCH", f"{self.collection}/{name}", patch, content_type=MERGE)

    async def scale(self, name: str, replicas: int) -> None:
        """As kubectl edit does; kubectl scale takes another door."""
        await self.patch(name, {"spec": {"replicas": replicas}})

    async def delete(self, name: str) -> None:
        await self.cluster.request("DELETE", f"{self.collection}/{name}", {"propagationPolicy": "Background"})

    async def until_pods(self, name: str, *, running: int, held: int = 0) -> list[Object]:
        """Wait until just so many pods of it run, and so many are gated, and no others are there."""

        def reached(listed: Object) -> bool:
            pods = [p for p in listed["items"] if p["metadata"]["labels"].get("app") == name]
            ready = [p for p in pods if has(p, "Ready") and not p["metadata"].get("deletionTimestamp")]
            return (len(pods), len(ready), len([p for p in pods if gates(p)])) == (running + held, running, held)

        found = await self.cluster.until(self.pods, reached, what=f"{running} pods of {name} run, {held} are held")
        return [p for p in found["items"] if p["metadata"]["labels"].get("app") == name]

    async def until_reserved(self, gpus: int) -> None:
        """Wait until just so many GPUs are reserved in the ClusterQueue."""

        def reached(queue: Object) -> bool:
            flavors = queue.get("status", {}).get("flavorsReservation", [])
            found = [r for flavor in flavors for r in flavor["resources"] if r["name"] == "nvidia.com/gpu"]
            return [int(r["total"]) for r in found] == [gpus]

        await self.cluster.until(f"{KUEUE}/clusterqueues/team", reached, what=f"{gpus} GPUs are reserved")

    async def until_workloads(self, number: int) -> list[Object]:
        """Wait until there are so many."""
        found = await self.cluster.until(
            self.workloads, lambda listed: len(listed["items"]) == number, what=f"{number} workloads"
        )
        items: list[Object] = found["items"]
        return items

    async def until_workload_is(self, name: str, kind: str, *, status: str = "True", reason: str = "") -> Object:
        """Wait for a condition of one Workload, by its name."""

        def reached(workload: Object) -> bool:
            return any(
                c["type"] == kind and c["status"] == status and reason in ("", c["reason"])
                for c in workload.get("status", {}).get("conditions", [])
            )

        return await self.cluster.until(f"{self.workloads}/{name}", reached, what=f"{name}: {kind}={status} {reason}")

    async def until_event(self, name: str, reason: str) -> str:
        """Wait for an event; returns its message."""

        def of(listed: Object) -> list[str]:
            events = [e for e in listed["items"] if e["reason"] == reason and e["regarding"]["name"] == name]
            return [e.get("note") or e.get("message", "") for e in events]

        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        return of(await self.cluster.until(path, lambda listed: bool(of(listed)), what=f"event {reason} on {name}"))[0]

    async def racks(self, pods: list[Object]) -> set[tuple[str, str]]:
        """(block, rack) of the nodes of these pods."""
        nodes = {
            n["metadata"]["name"]: n["metadata"]["labels"] for n in (await self.cluster.get("/api/v1/nodes"))["items"]
        }
        hosts = [nodes[pod["spec"]["nodeName"]] for pod in pods]
        return {(labels["cloud.provider.com/topology-block"], labels[RACK_LABEL]) for labels in hosts}


def gates(pod: Object) -> list[str]:
    return [gate["name"].removeprefix(PREFIX) for gate in pod["spec"].get("schedulingGates", [])]


@asynccontextmanager
async def world(plane: Plane, kind: str, **settings: Any) -> AsyncIterator[Serving]:
    """Nodes, a tenant and a controller with its webhooks, in which this kind alone is on."""
    road = await make_road(plane.cluster, **settings)
    tenant = Serving(plane.cluster, road.namespace, kind=kind)
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configuration = parse(CONFIGURATION.format(framework=kind.lower()), source="test", own_namespace="kqueue-system")
    async with running(configuration, flags, timings=Timings(queue_flush_window=0.1)) as process:
        async with asyncio.timeout(60):
            await process.operator.ready.wait()
        try:
            yield tenant
        finally:
            await _emptied(tenant)


async def _emptied(tenant: Serving) -> None:
    """Whatever a test leaves behind goes while there is a controller that lets go of it."""
    with contextlib.suppress(RequestError, TimeoutError):
        for obj in (await tenant.cluster.get(tenant.collection))["items"]:
            await tenant.delete(obj["metadata"]["name"])
        await tenant.cluster.until(tenant.pods, lambda listed: not listed["items"], what="no pods", seconds=15)
        await tenant.cluster.until(
            tenant.workloads, lambda listed: not listed["items"], what="no workloads", seconds=15
        )
