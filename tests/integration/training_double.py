"""Kubeflow's training kinds and MPIJob, and a double of their controllers.

A job that is not suspended has a pod for each index of each replica type, with labels for its name, type and index; the
launcher of an MPIJob is a Job.  `Running` is true while all pods run, and the job has ended when its first replica type
has ended.  A suspended job has no pods.  Source: the documentation of the training operator and of the MPI operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kqueue.jobs.catalog import BY_GROUP_KIND
from kqueue.kinds import FRAMEWORKS, Kind
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import ENDED, CustomDouble, owned_by, playing

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


@asynccontextmanager
async def training_runs(cluster: Cluster, kinds: Sequence[str]) -> AsyncIterator[None]:
    """These kinds have a controller while the block runs."""
    async with playing(TrainingDouble(cluster.access, [KINDS[kind] for kind in kinds]).run()):
        yield


class TrainingDouble(CustomDouble):
    async def look(self, row: Kind, obj: Object) -> None:
        kind, adapter = row.kind, BY_GROUP_KIND[GROUP, row.kind]
        if adapter.managed_by(obj) != adapter.own_controller or adapter.finished(obj) is not None:
            return
        namespace = obj["metadata"]["namespace"]
        core, batch = f"/api/v1/namespaces/{namespace}/pods", f"/apis/batch/v1/namespaces/{namespace}/jobs"
        label = f"training.kubeflow.org/job-name={obj['metadata']['name']}"
        pods, jobs = await self.found(core, label), await self.found(batch, label)
        there = {made["metadata"]["name"] for made in (*pods, *jobs)}
        if obj["spec"]["runPolicy"].get("suspend"):
            await self.delete(core, (pod for pod in pods if pod["status"].get("phase") not in ENDED))
            await self.delete(batch, jobs)
        else:
            for made in wanted(kind, obj):
                if made["metadata"]["name"] not in there:
                    await self.ask("POST", batch if made["kind"] == "Job" else core, made)
        await self.tell(row, obj, status_of(kind, obj, pods))


def wanted(kind: str, job: Object) -> Iterator[Object]:
    """The pods and Jobs that a controller makes for a job that runs."""
    field, types = SPECS[kind]
    meta = job["metadata"]
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
            policy = spec.get("restartPolicy") or template["spec"].get("restartPolicy") or "Never"
            pod = {
                "metadata": {"labels": labels, "annotations": own.get("annotations", {})},
                "spec": {**template["spec"], "restartPolicy": "Never" if policy == "ExitCode" else policy},
            }
            made: Object = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **pod["metadata"],
                    **owned_by(job),
                    "name": f"{meta['name']}-{name.lower()}-{index}",
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
            "active": sum(phase not in ENDED for phase in phases),
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
