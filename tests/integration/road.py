"""Queues, jobs and readers of pods' nodes, for tests from submission to placement."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import BLOCK_LABEL, RACK_LABEL, Cluster

Object = dict[str, Any]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
HOST = "kubernetes.io/hostname"
SHAPE = (1, 2, 8)
"""Two racks of eight hosts.  Each further host costs 60 ms of processor time on the real control plane."""


def queue_objects(namespace: str, *, gpus: int = 512, cpus: str = "6000") -> list[tuple[str, Object]]:
    """(collection, object) of one tenant: Topology, flavor, ClusterQueue `team`, LocalQueue `main`."""
    version = "kueue.x-k8s.io/v1beta2"
    quotas = [{"name": "cpu", "nominalQuota": cpus}, {"name": "nvidia.com/gpu", "nominalQuota": str(gpus)}]
    levels = [{"nodeLabel": label} for label in (BLOCK_LABEL, RACK_LABEL, HOST)]
    groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "gpu", "resources": quotas}]}]
    return [
        (f"{KUEUE}/topologies", _object(version, "Topology", "dc", {"levels": levels})),
        (
            f"{KUEUE}/resourceflavors",
            _object(version, "ResourceFlavor", "gpu", {"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"}),
        ),
        (
            f"{KUEUE}/clusterqueues",
            _object(version, "ClusterQueue", "team", {"namespaceSelector": {}, "resourceGroups": groups}),
        ),
        (
            f"{KUEUE}/namespaces/{namespace}/localqueues",
            _object(version, "LocalQueue", "main", {"clusterQueue": "team"}, namespace=namespace),
        ),
    ]


def _object(version: str, kind: str, name: str, spec: Mapping[str, Any], *, namespace: str = "") -> Object:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def job(
    name: str,
    namespace: str,
    *,
    pods: int = 4,
    required: str | None = RACK_LABEL,
    run_seconds: int = 1,
    queue: str = "main",
    gpus: int = 8,
) -> Object:
    """A suspended, indexed Job; each pod takes a whole node's GPUs unless told otherwise."""
    annotations = {"sandbox.kqueue.dev/run-seconds": str(run_seconds)}
    if required is not None:
        annotations["kueue.x-k8s.io/podset-required-topology"] = required
    amounts = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


class Road:
    """One tenant on one cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.workloads = f"{KUEUE}/namespaces/{namespace}/workloads"

    async def submit(self, name: str, **settings: Any) -> Object:
        """Create a Job."""
        return await self.cluster.request("POST", self.jobs, job(name, self.namespace, **settings))

    async def workload_of(self, name: str) -> Object:
        """The Workload of a Job; the test fails when there is none or more than one."""
        found: list[Object] = [w for w in (await self.cluster.get(self.workloads))["items"] if _owner(w) == name]
        assert len(found) == 1, f"job {name} has {len(found)} workloads"
        return found[0]

    async def until_workload(self, name: str, kind: str, *, status: str = "True", reason: str = "") -> Object:
        """Wait for a condition of the Job's Workload; returns the condition."""

        def reached(listed: Object) -> bool:
            return any(
                c["status"] == status and (not reason or c["reason"] == reason)
                for w in listed["items"]
                if _owner(w) == name
                for c in w.get("status", {}).get("conditions", [])
                if c["type"] == kind
            )

        await self.cluster.until(self.workloads, reached, what=f"workload of {name}: {kind}={status} {reason}")
        return condition(await self.workload_of(name), kind)

    async def until_complete(self, *jobs: str) -> None:
        """Wait until these Jobs are Complete."""

        def all_complete(listed: Object) -> bool:
            done = {j["metadata"]["name"] for j in listed["items"] if has(j, "Complete")}
            return done.issuperset(jobs)

        await self.cluster.until(self.jobs, all_complete, what=f"{len(jobs)} jobs are Complete")

    async def racks_of(self, name: str) -> set[tuple[str, str]]:
        """(block, rack) of every node that ran a pod of the Job."""
        nodes = {
            n["metadata"]["name"]: n["metadata"]["labels"] for n in (await self.cluster.get("/api/v1/nodes"))["items"]
        }
        pods = [p for p in (await self.cluster.get(self.pods))["items"] if _owner(p) == name]
        assert pods, f"job {name} has no pods"
        unbound = [p["metadata"]["name"] for p in pods if not p["spec"].get("nodeName")]
        assert not unbound, f"pods of {name} without a node: {unbound}"
        labels = [nodes[p["spec"]["nodeName"]] for p in pods]
        return {(x[BLOCK_LABEL], x[RACK_LABEL]) for x in labels}

    async def set_quota(self, name: str, amount: int) -> None:
        """Change the tenant's quota of a resource."""
        for queue in (await self.cluster.get(f"{KUEUE}/clusterqueues"))["items"]:
            groups = queue["spec"]["resourceGroups"]
            for resource in (r for group in groups for flavor in group["flavors"] for r in flavor["resources"]):
                if resource["name"] == name:
                    resource["nominalQuota"] = amount
            await self.change_queue(queue["metadata"]["name"], resourceGroups=groups)

    async def change_queue(self, name: str = "team", **spec: Any) -> None:
        """Change fields of a ClusterQueue's spec."""
        path = f"{KUEUE}/clusterqueues/{name}"
        await self.cluster.request("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)


def _owner(obj: Object) -> str:
    return next((o["name"] for o in obj["metadata"].get("ownerReferences", []) if o.get("controller")), "")


def has(obj: Object, kind: str) -> bool:
    """Whether a condition is True."""
    return any(c["type"] == kind and c["status"] == "True" for c in obj.get("status", {}).get("conditions", []))


def condition(obj: Object, kind: str) -> Object:
    """A condition that must be there."""
    return next(c for c in obj["status"]["conditions"] if c["type"] == kind)


def hosts_of(workload: Object) -> Counter[str]:
    """Pods by host, as the Workload's admission says; empty where it names none."""
    assigned = Counter[str]()
    for pod_set in workload.get("status", {}).get("admission", {}).get("podSetAssignments", ()):
        for part in (pod_set.get("topologyAssignment") or {}).get("slices", ()):
            hosts = part["valuesPerLevel"][-1]
            counts = part["podCounts"]
            for index in range(part["domainCount"]):
                host = hosts["universal"] if "universal" in hosts else _individual(hosts["individual"], index)
                assigned[host] += counts["universal"] if "universal" in counts else counts["individual"][index]
    return assigned


def _individual(values: Object, index: int) -> str:
    return f"{values.get('prefix', '')}{values['roots'][index]}{values.get('suffix', '')}"


async def make_road(cluster: Cluster, *, gpus: int = 512, shape: tuple[int, ...] = SHAPE) -> Road:
    """Nodes, a namespace and a tenant."""
    await cluster.add_nodes(shape, labels={"pool": "gpu"})
    namespace = await cluster.create_namespace("road")
    for collection, obj in queue_objects(namespace, gpus=gpus):
        await cluster.request("POST", collection, obj)
    return Road(cluster, namespace)


class ControllerProcess:
    """`kqueue controller` as a process of its own, which can be killed."""

    def __init__(self, process: asyncio.subprocess.Process, ready_url: str) -> None:
        self.process, self.ready_url = process, ready_url

    async def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def controller(
    kubeconfig: Path,
    logs: Path,
    *,
    config: Path | None = None,
    python: Path = Path(sys.executable),
    more: Sequence[str] = (),
) -> AsyncIterator[ControllerProcess]:
    """A controller process on the cluster, with `more` flags and without leader election; ended with the block."""
    configured = [] if config is None else ["--config", str(config)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with logs.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            str(python),
            *("-m", "kqueue", "controller", "--no-leader-elect", "--kubeconfig", str(kubeconfig), *configured),
            *("--health-address", f"127.0.0.1:{port}", "--metrics-address", "0", "--log-format", "console"),
            *more,
            stdout=out,
            stderr=out,
            env={**os.environ, "KQUEUE_TIMING_QUEUE_FLUSH_WINDOW": "0.1"},
        )
    try:
        yield ControllerProcess(process, f"http://127.0.0.1:{port}/readyz")
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 20)
            if process.returncode is None:
                await ControllerProcess(process, "").kill()


def shown(obj: Object) -> str:
    """An object for a failing test's message."""
    return json.dumps(obj, indent=1)[:4000]
