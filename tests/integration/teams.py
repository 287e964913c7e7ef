"""Teams that share nodes: ClusterQueues of one cohort, each behind a LocalQueue of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kqueue.config import Configuration, Timings, parse
from kqueue.manager.process import Flags
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, job

Plane = ControlPlane | SandboxPlane

FAST = Timings(queue_flush_window=0.1)
FAIR = "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}\n"
LONG = 600


def configuration(text: str = "") -> Configuration:
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    return parse(f"{head}leaderElection: {{leaderElect: false}}\n{text}", source="test")


def flags(plane: Plane) -> Flags:
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    return Flags(kubeconfig=plane.kubeconfig, parts=parts, health_address="0", metrics_address="0")


class Teams(Road):
    """ClusterQueues of one cohort on the same nodes, each behind a LocalQueue of its name."""

    async def submit(self, name: str, *, priority: str = "", **settings: Any) -> Object:
        """Create a Job of pods that may stand anywhere, which runs for long unless told otherwise."""
        obj = job(name, self.namespace, **{"required": None, "run_seconds": LONG, **settings})
        if priority:
            obj["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
        return await self.cluster.request("POST", self.jobs, obj)

    async def until_running(self, **pods: int) -> None:
        """Wait until exactly these pods of these Jobs run, and no others are there."""

        def counts(listed: Object) -> dict[str, int]:
            found: dict[str, int] = {}
            for pod in listed["items"]:
                if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                    name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
                    is_running = pod["status"].get("phase") == "Running" and not pod["metadata"].get(
                        "deletionTimestamp"
                    )
                    found[name] = found.get(name, 0) + (1 if is_running else -LONG)
            return found

        await self.cluster.until(self.pods, lambda listed: counts(listed) == pods, what=f"running pods {pods}")

    async def conditions_of(self, name: str) -> dict[str, tuple[str, str]]:
        """Kind -> (status, reason)."""
        found = (await self.workload_of(name)).get("status", {}).get("conditions", [])
        return {c["type"]: (c["status"], c["reason"]) for c in found}

    async def events_of(self, name: str, reason: str) -> list[str]:
        """Notes of a Job's Workload's events."""
        workload = (await self.workload_of(name))["metadata"]["name"]
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

        def found(listed: Object) -> list[str]:
            return [e["note"] for e in listed["items"] if (e["regarding"]["name"], e["reason"]) == (workload, reason)]

        return found(await self.cluster.until(path, lambda listed: bool(found(listed)), what=f"an event {reason}"))


async def make_teams(plane: Plane, queues: Mapping[str, int], **spec: Any) -> Teams:
    """Four nodes of 8 GPUs; `queues` are the GPUs that each ClusterQueue has, `spec` what else they say."""
    cluster = plane.cluster
    await cluster.add_nodes((1, 1, 4), labels={"pool": "gpu"})
    namespace = await cluster.create_namespace("teams")
    await post(plane, "resourceflavors", "plain", {"nodeLabels": {"pool": "gpu"}})
    for name, gpus in queues.items():
        queue = {"namespaceSelector": {}, "resourceGroups": resource_groups(gpus), "cohortName": "all", **spec}
        await post(plane, "clusterqueues", name, queue)
        await post(plane, "localqueues", name, {"clusterQueue": name}, namespace=namespace)
    return Teams(cluster, namespace)


def resource_groups(gpus: int, *, cpus: int = 1000) -> list[Object]:
    """Quota of the flavor `plain`, of a ClusterQueue or of a Cohort."""
    quotas = [{"name": "cpu", "nominalQuota": cpus}, {"name": "nvidia.com/gpu", "nominalQuota": gpus}]
    return [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "plain", "resources": quotas}]}]


async def patch(plane: Plane, path: str, change: Object) -> None:
    """Change fields of an object by a merge patch."""
    await plane.cluster.request("PATCH", path, change, content_type=MERGE_PATCH)


async def post(plane: Plane, collection: str, name: str, spec: Any, *, namespace: str = "", **fields: Any) -> None:
    """Create an object of ours."""
    kinds = {
        "resourceflavors": "ResourceFlavor",
        "clusterqueues": "ClusterQueue",
        "cohorts": "Cohort",
        "localqueues": "LocalQueue",
        "workloadpriorityclasses": "WorkloadPriorityClass",
        "workloads": "Workload",
        "admissionchecks": "AdmissionCheck",
    }
    where = f"{KUEUE}/namespaces/{namespace}" if namespace else KUEUE
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kinds[collection], "metadata": metadata, **fields}
    await plane.cluster.request("POST", f"{where}/{collection}", body if spec is None else {**body, "spec": spec})


async def make_priorities(plane: Plane, **values: int) -> None:
    for name, value in values.items():
        await post(plane, "workloadpriorityclasses", name, None, value=value)
