"""Kubeflow's training kinds and MPIJob, and a double of their controllers.

A job that is not suspended has a pod for each index of each replica type, with labels for its name, type and index; the
launcher of an MPIJob is a Job.  `Running` is true while all pods run, and the job has ended when its first replica type
has ended.  A suspended job has no pods.  Source: the documentation of the training operator and of the MPI operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kqueue.jobs.catalog import BY_GROUP_KIND
from kqueue.kinds import FRAMEWORKS
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import define_rows, playing

Object = dict[str, Any]
GROUP = "kubeflow.org"
KINDS = {row.kind: row for row in FRAMEWORKS.values() if row.group == GROUP}
SPECS = {
    "PyTorchJob": ("pytorchReplicaSpecs", ("Master", "Worker")),
    "TFJob": ("tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master", "Worker")),
    "PaddleJob": ("paddleReplicaSpecs", ("Master", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", ("Worker",)),
    "MPIJob": ("mpiReplicaSpecs", ("Launcher", "Worker")),
}
"""The field with the replica types, and the types."""
LOOK_SECONDS = 0.1
_ENDED = ("Succeeded", "Failed")


async def define(cluster: Cluster, folder: Path, kinds: Sequence[str]) -> None:
    """The API server serves these kinds from here on."""
    await define_rows(cluster, folder, [KINDS[kind] for kind in kinds])


def collection(kind: str, namespace: str = "") -> str:
    """The path of all jobs of a kind, or of those in a namespace."""
    row = KINDS[kind]
    inside = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{GROUP}/{row.version}/{inside}{row.plural}"


@asynccontextmanager
async def training_runs(cluster: Cluster, kinds: Sequence[str]) -> AsyncIterator[None]:
    """These kinds have a controller while the block runs."""
    async with playing(_Double(cluster, kinds).run()):
        yield


class _Double:
    """Looks at all jobs again and again.  What meets a newer object is done by the next look."""

    def __init__(self, cluster: Cluster, kinds: Sequence[str]) -> None:
        self._cluster, self._kinds = cluster, kinds
        self._session: aiohttp.ClientSession | None = None

    async def run(self) -> None:
        async with self._cluster.access.session() as self._session:
            while True:
                for kind in self._kinds:
                    try:
                        for job in (await self._ask("GET", collection(kind)))["items"]:
                            await self._look(kind, job)
                    except RequestError as error:
                        if error.status not in (403, 404, 409, 429):  # 403: its namespace ends; 429: the kind is new
                            raise
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, kind: str, job: Object) -> None:
        adapter = BY_GROUP_KIND[GROUP, kind]
        if adapter.managed_by(job) != adapter.own_controller:
            return
        namespace = job["metadata"]["namespace"]
        core, batch = f"/api/v1/namespaces/{namespace}", f"/apis/batch/v1/namespaces/{namespace}"
        label = f"training.kubeflow.org/job-name={job['metadata']['name']}"
        pods = (await self._ask("GET", f"{core}/pods?labelSelector={label}"))["items"]
        jobs = (await self._ask("GET", f"{batch}/jobs?labelSelector={label}"))["items"]
        there = {made["metadata"]["name"] for made in (*pods, *jobs)}
        if job["spec"]["runPolicy"].get("suspend"):
            running = [pod for pod in pods if pod["status"].get("phase") not in _ENDED]
            for path, made in (*((f"{core}/pods", p) for p in running), *((f"{batch}/jobs", j) for j in jobs)):
                if not made["metadata"].get("deletionTimestamp"):
                    await self._ask("DELETE", f"{path}/{made['metadata']['name']}?propagationPolicy=Background")
        else:
            for made in wanted(kind, job):
                if made["metadata"]["name"] not in there:
                    path = f"{batch}/jobs" if made["kind"] == "Job" else f"{core}/pods"
                    await self._ask("POST", path, made)
        await self._tell(kind, job, pods)

    async def _tell(self, kind: str, job: Object, pods: Sequence[Object]) -> None:
        status = status_of(kind, job, pods)
        if any(job.get("status", {}).get(key) != value for key, value in status.items()):
            path = f"{collection(kind, job['metadata']['namespace'])}/{job['metadata']['name']}/status"
            await self._ask("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    async def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> Object:
        return await self._cluster.access.request(method, path, body, session=self._session, **more)


def wanted(kind: str, job: Object) -> Iterator[Object]:
    """The pods and Jobs that a controller makes for a job that runs."""
    field, types = SPECS[kind]
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    for name in types:
        spec = job["spec"].get(field, {}).get(name)
        if spec is None:
            continue
        for index in range(spec.get("replicas", 1)):
            template = spec["template"]
            own = template.get("metadata", {})
            labels = {
                **own.get("labels", {}),
                "training.kubeflow.org/job-name": meta["name"],
                "training.kubeflow.org/replica-type": name.lower(),
                "training.kubeflow.org/replica-index": str(index),
                "training.kubeflow.org/operator-name": "mpi-operator"
                if kind == "MPIJob"
                else f"{kind.lower()}-controller",
            }
            pod = {"metadata": {"labels": labels, "annotations": own.get("annotations", {})}, "spec": template["spec"]}
            made: Object = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **pod["metadata"],
                    "name": f"{meta['name']}-{name.lower()}-{index}",
                    "namespace": meta["namespace"],
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": pod["spec"],
            }
            if (kind, name) == ("MPIJob", "Launcher"):
                made |= {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod, "backoffLimit": 0}}
                made["metadata"] = {**made["metadata"], "name": f"{meta['name']}-launcher", "annotations": {}}
            yield made


def status_of(kind: str, job: Object, pods: Sequence[Object]) -> Object:
    """The status that a controller writes for a job with these pods."""
    field, types = SPECS[kind]
    specs = job["spec"].get(field, {})
    of_type: dict[str, list[str]] = {name: [] for name in types if name in specs}
    for pod in pods:
        named = pod["metadata"]["labels"].get("training.kubeflow.org/replica-type", "")
        phases = next((found for name, found in of_type.items() if name.lower() == named), None)
        if phases is not None:
            phases.append(pod["status"].get("phase", "Pending"))
    counts = {
        name: {
            "active": sum(phase not in _ENDED for phase in phases),
            "succeeded": phases.count("Succeeded"),
            "failed": phases.count("Failed"),
        }
        for name, phases in of_type.items()
    }
    first = next(iter(of_type))
    number = specs[first].get("replicas", 1)
    all_pods = sum(specs[name].get("replicas", 1) for name in of_type)
    suspended = bool(job["spec"]["runPolicy"].get("suspend"))
    runs = not suspended and sum(phases.count("Running") for phases in of_type.values()) == all_pods
    done, lost = counts[first]["succeeded"] == number, any(count["failed"] for count in counts.values())
    told = [("Running", runs), ("Suspended", suspended)]
    if not suspended and (done or lost):
        told = [("Running", False), ("Succeeded", True) if done else ("Failed", True)]
    conditions = [
        {"type": name, "status": str(holds), "reason": f"{kind}{name}", "message": f"{kind} {name}"}
        for name, holds in told
    ]
    return {"replicaStatuses": counts, "conditions": conditions}
