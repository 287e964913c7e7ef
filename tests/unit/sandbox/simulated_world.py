"""A small simulated cluster on a fake clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kqueue.clock import FakeClock
from kqueue.sandbox.api import JOBS, NODES, PODS, Api, Object
from kqueue.sandbox.cluster import Sandbox
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.kubelet import KubeletOptions
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.simulation import PARTS, ClusterSimulation, SimulationOptions
from kqueue.sandbox.topology_spec import parse_topology

RUN, FAIL = "sandbox.kqueue.dev/run-seconds", "sandbox.kqueue.dev/fail"
NAMESPACE = "default"
FOR_EVER = "1000000"


class World:
    """The API server, the clock, and short ways to look and act."""

    def __init__(self, api: Api, clock: FakeClock, simulation: ClusterSimulation | Sandbox) -> None:
        self.api, self.clock, self.simulation = api, clock, simulation

    async def pass_time(self, seconds: float) -> None:
        """Everything that happens within `seconds` has happened."""
        end = self.clock.monotonic() + seconds
        await self.simulation.settle()
        while (left := end - self.clock.monotonic()) > 0:
            wait = self.clock.next_wake()
            await self.clock.advance(left if wait is None else min(left, max(wait, 0.0)))
            await self.simulation.settle()

    async def add(self, resource: Any, obj: Object) -> Object:
        """Create and let it take effect."""
        created = await self.api.create(resource, obj, namespace=obj["metadata"].get("namespace"))
        await self.simulation.settle()
        return created

    async def patch_job(self, name: str, patch: Object) -> None:
        """Patch and let it take effect."""
        await self.api.patch(JOBS, name, patch, namespace=NAMESPACE)
        await self.simulation.settle()

    async def patch_pod(self, name: str, patch: Object) -> None:
        """Patch and let it take effect."""
        await self.api.patch(PODS, name, patch, namespace=NAMESPACE)
        await self.simulation.settle()

    async def patch_node(self, name: str, patch: Object, *, subresource: str | None = None) -> None:
        """Patch and let it take effect."""
        await self.api.patch(NODES, name, patch, subresource=subresource)
        await self.simulation.settle()

    def job(self, name: str) -> Object:
        """The Job as it stands."""
        return self.api.get(JOBS, name, namespace=NAMESPACE)

    def status(self, name: str) -> Object:
        """The Job's status as it stands."""
        found: Object = self.job(name)["status"]
        return found

    def pod(self, name: str) -> Object:
        """The pod as it stands."""
        return self.api.get(PODS, name, namespace=NAMESPACE)

    def node(self, name: str) -> Object:
        """The node as it stands."""
        return self.api.get(NODES, name)

    def pods(self, where: Callable[[Object], bool] = lambda _: True) -> list[Object]:
        """All pods that are as asked."""
        return [pod for pod in self.api.list(PODS) if where(pod)]

    def phases(self) -> dict[str, int]:
        """How many pods are in which phase."""
        phases = [pod["status"]["phase"] for pod in self.pods()]
        return {phase: phases.count(phase) for phase in sorted(set(phases))}


@asynccontextmanager
async def simulated(
    topology: str = "1x2x2", *, kubelet: KubeletOptions | None = None, parts: frozenset[str] = PARTS
) -> AsyncIterator[World]:
    """A running simulation; stopped at the end, with what it died of raised."""
    clock = FakeClock()
    api = ClusterApi(clock)
    options = SimulationOptions(
        topology=parse_topology(topology),
        parts=parts,
        kubelet=kubelet or KubeletOptions(),
        nodes=NodeOptions(heartbeat_seconds=0),
    )
    simulation = ClusterSimulation(api, clock=clock, options=options)
    await simulation.start()
    await simulation.settle()
    try:
        yield World(api, clock, simulation)
    finally:
        await simulation.stop()


def condition_of(obj: Object, kind: str) -> tuple[str, str] | None:
    """Status and reason of a condition; None when it is not there."""
    for entry in obj.get("status", {}).get("conditions") or ():
        if entry["type"] == kind:
            return entry["status"], entry.get("reason", "")
    return None


def make_pod(name: str = "p", *, annotations: Mapping[str, str] | None = None, gpus: int = 0, **spec: Any) -> Object:
    """A pod of one container."""
    requests = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    resources = {"requests": requests, "limits": {k: v for k, v in requests.items() if k != "cpu"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations or {})},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "resources": resources}],
            **spec,
        },
    }


def make_job(
    name: str = "j",
    *,
    run: str = "10",
    fail: bool = False,
    gpus: int = 0,
    pod: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A Job whose pods run for `run` seconds."""
    notes = {RUN: run, **({FAIL: "true"} if fail else {})}
    template = make_pod(gpus=gpus, **(pod or {}))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": {"metadata": {"annotations": notes}, "spec": template["spec"]}, **spec},
    }
