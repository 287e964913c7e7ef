"""TrainJob and its runtimes, and a double of Trainer's controller.

A TrainJob has a JobSet of its name, whose template is that of the runtime with the job's number of nodes, resources and
patches.  The JobSet is written anew only while one of the two is suspended.  The job's status repeats the JobSet's.
Source: the documentation and the API of Kubeflow Trainer 2.2.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kqueue.kinds import FRAMEWORKS, TRAINING_RUNTIMES, Kind
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import CustomDouble, Front, define, playing
from tests.integration.jobset_double import JOBSETS

Object = dict[str, Any]
GROUP = "trainer.kubeflow.org"
API = f"/apis/{GROUP}/v1alpha1"
STEP = f"{GROUP}/trainjob-ancestor-step"
ROW = FRAMEWORKS[f"{GROUP}/trainjob"]
RUNTIMES = f"{API}/clustertrainingruntimes"


async def define_trainjobs(cluster: Cluster, folder: Path) -> None:
    """The API server serves these kinds from here on, with any fields."""
    await define(cluster, folder, [ROW, *TRAINING_RUNTIMES])


def trainjobs(namespace: str) -> str:
    """The path of all TrainJobs in a namespace."""
    return f"{API}/namespaces/{namespace}/trainjobs"


@asynccontextmanager
async def trainjobs_run(cluster: Cluster) -> AsyncIterator[list[str]]:
    """TrainJobs have a controller while the block runs; yields what its webhook would have refused."""
    double = TrainJobDouble(cluster.access)
    async with playing(double.run()):
        yield double.refused


class TrainJobDouble(CustomDouble):
    """Keeps the JobSet of each TrainJob, and tells its state."""

    def __init__(self, front: Front) -> None:
        super().__init__(front, [ROW])
        self._patches: dict[str, Object] = {}
        """By UID: the patches of a job when it was seen last."""
        self.refused: list[str] = []

    async def look(self, row: Kind, obj: Object) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        runtime = await self.one(_path_of_runtime(obj))
        path = f"{JOBSETS}/namespaces/{meta['namespace']}/jobsets"
        job_set = await self.one(f"{path}/{meta['name']}")
        self._check(obj, job_set)
        if job_set is None and runtime is not None and not meta.get("deletionTimestamp"):
            job_set = await self.ask("POST", path, wanted(obj, runtime))
        elif job_set is not None and runtime is not None:
            new = wanted(obj, runtime)["spec"]
            if (spec.get("suspend") or job_set["spec"].get("suspend")) and differs(new, job_set["spec"]):
                patch = {"metadata": {"resourceVersion": job_set["metadata"]["resourceVersion"]}, "spec": new}
                await self.ask("PATCH", f"{path}/{meta['name']}", patch, content_type=MERGE_PATCH)
        if job_set is not None:
            await self._repeat(obj, job_set)

    def _check(self, job: Object, job_set: Object | None) -> None:
        """Trainer's webhook lets patches change only while the job is suspended and no Job of it is active."""
        patches, uid = job["spec"].get("runtimePatches", []), job["metadata"]["uid"]
        statuses = job_set.get("status", {}).get("replicatedJobsStatus", []) if job_set is not None else []
        runs = not job["spec"].get("suspend") or any(status.get("active") for status in statuses)
        seen = self._patches.get(uid)
        if seen is not None and seen["runs"] and runs and seen["patches"] != patches:
            self.refused.append(f"{job['metadata']['name']}: patches were changed while it ran")
        self._patches[uid] = {"patches": patches, "runs": runs}

    async def _repeat(self, job: Object, job_set: Object) -> None:
        found = job_set.get("status", {})
        conditions = [
            {**one, "type": {"Completed": "Complete"}.get(one["type"], one["type"])}
            for one in found.get("conditions", [])
            if one["type"] in ("Completed", "Failed", "Suspended")
        ]
        status = {"conditions": conditions, "jobsStatus": found.get("replicatedJobsStatus", [])}
        await self.tell(ROW, job, status)


def _path_of_runtime(job: Object) -> str:
    reference = job["spec"]["runtimeRef"]
    if reference.get("kind") == "TrainingRuntime":
        return f"{API}/namespaces/{job['metadata']['namespace']}/trainingruntimes/{reference['name']}"
    return f"{RUNTIMES}/{reference['name']}"


def differs(wanted: Object, found: Object) -> bool:
    """Whether a JobSet has not what its TrainJob wants; fields that the API server adds do not matter."""
    if wanted.get("suspend") != found.get("suspend"):
        return True
    return [_pod(one) for one in wanted["replicatedJobs"]] != [_pod(one) for one in found["replicatedJobs"]]


def _pod(replicated: Object) -> Object:
    template: Object = replicated["template"]["spec"]["template"]
    return template


def wanted(job: Object, runtime: Object) -> Object:
    """The JobSet of a TrainJob."""
    meta, spec = job["metadata"], job["spec"]
    trainer = spec.get("trainer", {})
    replicated = copy.deepcopy(runtime["spec"]["template"]["spec"]["replicatedJobs"])
    for one in replicated:
        if one["template"]["metadata"]["labels"][STEP] == "trainer":
            nodes = trainer.get("numNodes", runtime["spec"]["mlPolicy"].get("numNodes", 1))
            one["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
            if "resourcesPerNode" in trainer:
                _pod(one)["spec"]["containers"][0]["resources"] = trainer["resourcesPerNode"]
        one["replicas"] = 1
        for entry in spec.get("runtimePatches", []):
            found = entry.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", [])
            for patch in found:
                if patch["name"] == one["name"]:
                    _merge(_pod(one), patch["template"]["spec"]["template"])
    owner = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "TrainJob", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"suspend": bool(spec.get("suspend")), "replicatedJobs": replicated},
    }


def _merge(template: Object, patch: Object) -> None:
    """Merge maps; gates are united, other lists replaced."""
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(template.setdefault(key, {}), value)
        elif key == "schedulingGates":
            template[key] = [*template.get(key, []), *value]
        else:
            template[key] = value
