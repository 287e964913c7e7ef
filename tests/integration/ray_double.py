"""Ray's kinds, and a double of KubeRay.

A RayCluster that is not suspended has a head pod and the pods of its worker groups.  A RayJob has a RayCluster, with its
labels and annotations, and then a Job that submits it; both end with it and while it is suspended.  A RayService has a
RayCluster that follows its spec, but for the numbers of workers that an autoscaler sets.  A cluster with fault
tolerance clears Redis by a Job after its pods, before it is gone.  Source: KubeRay's documentation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kqueue.kinds import FRAMEWORKS, Kind
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import CustomDouble, collection, playing

Object = dict[str, Any]
ROWS = {row.kind: row for row in FRAMEWORKS.values() if row.group == "ray.io"}
IN_ORDER = tuple(ROWS[kind] for kind in ("RayService", "RayJob", "RayCluster"))
"""The kinds, those that have clusters first."""
FINALIZER = "ray.io/gcs-ft-redis-cleanup-finalizer"
_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
_CLEANUP = {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}}


@asynccontextmanager
async def kuberay_runs(cluster: Cluster) -> AsyncIterator[None]:
    """KubeRay acts while the block runs."""
    async with playing(KubeRay(cluster.access, IN_ORDER).run()):
        yield


class KubeRay(CustomDouble):
    """Runs clusters, and the jobs and services that have them."""

    async def look(self, row: Kind, obj: Object) -> None:
        looks = {"RayService": self._service, "RayJob": self._job, "RayCluster": self._ray_cluster}
        await looks[row.kind](obj)

    # --- clusters -------------------------------------------------------------------------------------------------

    async def _ray_cluster(self, obj: Object) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        core = f"/api/v1/namespaces/{meta['namespace']}/pods"
        pods = (await self.ask("GET", f"{core}?labelSelector=ray.io/cluster={meta['name']}"))["items"]
        pods = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] != "redis-cleanup"]
        leaves = bool(meta.get("deletionTimestamp"))
        wanted = {} if leaves or spec.get("suspend") else {pod["metadata"]["name"]: pod for pod in pods_of(obj)}
        for pod in pods:
            if pod["metadata"]["name"] not in wanted and not pod["metadata"].get("deletionTimestamp"):
                await self.ask("DELETE", f"{core}/{pod['metadata']['name']}")
        for name in wanted.keys() - {pod["metadata"]["name"] for pod in pods}:
            await self.ask("POST", core, wanted[name])
        if leaves:
            if not pods and FINALIZER in meta.get("finalizers", ()):
                await self._clear_redis(obj)
            return
        if spec.get("gcsFaultToleranceOptions") and FINALIZER not in meta.get("finalizers", ()):
            await self.patch(
                ROWS["RayCluster"], obj, {"metadata": {"finalizers": [*meta.get("finalizers", ()), FINALIZER]}}
            )
            return
        phases = [pod["status"].get("phase") for pod in pods]
        runs = bool(wanted) and len(pods) == len(wanted) and set(phases) == {"Running"}
        await self.tell(
            ROWS["RayCluster"], obj, {"state": "ready" if runs else "suspended" if not wanted and not pods else ""}
        )

    async def _clear_redis(self, obj: Object) -> None:
        """A Job from the template of the head; after its end the cluster may go."""
        meta, template = obj["metadata"], obj["spec"]["headGroupSpec"]["template"]
        labels = {**template["metadata"].get("labels", {}), **_labels(obj, "redis-cleanup", "headgroup")}
        annotations = {**template["metadata"].get("annotations", {}), "sandbox.kqueue.dev/run-seconds": "1"}
        head = template["spec"]["containers"][0]
        pod = {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {**template["spec"], "containers": [{**head, "resources": _CLEANUP}], "restartPolicy": "Never"},
        }
        job = await self._ensure_job("RayCluster", obj, f"{meta['name']}-redis-cleanup", pod)
        if _has(job, "Complete"):
            kept = [name for name in meta["finalizers"] if name != FINALIZER]
            await self.patch(ROWS["RayCluster"], obj, {"metadata": {"finalizers": kept}})

    # --- what has a cluster ---------------------------------------------------------------------------------------

    async def _job(self, obj: Object) -> None:
        meta, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
        stage, name = status.get("jobDeploymentStatus", ""), f"{meta['name']}-cluster"
        if meta.get("deletionTimestamp"):
            return
        if not spec.get("entrypoint"):
            refused = {"jobDeploymentStatus": "ValidationFailed", "message": "the job has no entrypoint"}
            await self.tell(ROWS["RayJob"], obj, refused)
            return
        if spec.get("suspend") or stage in ("Complete", "Failed"):
            gone = await self._remove(obj, name)
            if spec.get("suspend") and gone and stage not in ("Complete", "Failed"):
                await self.tell(ROWS["RayJob"], obj, {"jobDeploymentStatus": "Suspended", "rayClusterName": None})
            return
        cluster = await self._ensure_cluster("RayJob", obj, name, spec["rayClusterSpec"])
        state = cluster.get("status", {}).get("state", "")
        told: Object = {
            "jobDeploymentStatus": "Initializing",
            "rayClusterName": name,
            "rayClusterStatus": {"state": state},
        }
        if state == "ready" or stage == "Running":
            job = await self._ensure_job("RayJob", obj, f"{meta['name']}-submitter", submitter_of(obj))
            told |= {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
            if _has(job, "Complete"):
                told |= {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "job finished"}
        await self.tell(ROWS["RayJob"], obj, told)

    async def _service(self, obj: Object) -> None:
        meta, spec = obj["metadata"], obj["spec"]["rayClusterConfig"]
        if meta.get("deletionTimestamp"):
            return
        name = f"{meta['name']}-cluster"
        cluster = await self._ensure_cluster("RayService", obj, name, spec)
        if _followed(cluster["spec"]) != _followed(spec):
            path = f"{collection(ROWS['RayCluster'], meta['namespace'])}/{name}"
            cluster = await self.ask("PUT", path, {**cluster, "spec": spec})
        ready = cluster.get("status", {}).get("state") == "ready" and not spec.get("suspend")
        condition = {"type": "Ready", "status": str(ready), "reason": "Told", "message": ""}
        await self.tell(
            ROWS["RayService"], obj, {"conditions": [condition], "activeServiceStatus": {"rayClusterName": name}}
        )

    async def _ensure_cluster(self, kind: str, obj: Object, name: str, spec: Object) -> Object:
        path = collection(ROWS["RayCluster"], obj["metadata"]["namespace"])
        if (there := await self.one(f"{path}/{name}")) is not None:
            return there
        meta = {key: obj["metadata"].get(key, {}) for key in ("labels", "annotations")}
        made = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {**meta, **_below(kind, obj, name)}}
        return await self.ask("POST", path, {**made, "spec": spec})

    async def _ensure_job(self, kind: str, obj: Object, name: str, pod: Object) -> Object:
        path = f"/apis/batch/v1/namespaces/{obj['metadata']['namespace']}/jobs"
        if (there := await self.one(f"{path}/{name}")) is not None:
            return there
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": _below(kind, obj, name)}
        return await self.ask("POST", path, {**made, "spec": {"template": pod, "backoffLimit": 0}})

    async def _remove(self, obj: Object, cluster: str) -> bool:
        """Delete the cluster of a job, and while it is suspended its submitter; True once both are gone."""
        namespace, gone = obj["metadata"]["namespace"], True
        paths = [f"{collection(ROWS['RayCluster'], namespace)}/{cluster}"]
        if obj["spec"].get("suspend"):
            paths.append(f"/apis/batch/v1/namespaces/{namespace}/jobs/{obj['metadata']['name']}-submitter")
        for path in paths:
            try:
                await self.ask("DELETE", f"{path}?propagationPolicy=Background")
                gone = False
            except RequestError as error:
                if error.status != 404:
                    raise
        return gone


def _followed(spec: Object) -> Object:
    """The spec of a cluster without what its service leaves to an autoscaler."""
    if not spec.get("enableInTreeAutoscaling"):
        return spec
    groups = [{k: v for k, v in group.items() if k != "replicas"} for group in spec.get("workerGroupSpecs") or ()]
    return {**spec, "workerGroupSpecs": groups}


def pods_of(obj: Object) -> Iterator[Object]:
    """The pods that KubeRay makes for a cluster that runs."""
    name, spec = obj["metadata"]["name"], obj["spec"]
    head = spec["headGroupSpec"]["template"]
    if spec.get("enableInTreeAutoscaling"):
        resources = {"requests": {"cpu": "500m", "memory": "512Mi"}}
        autoscaler = {"name": "autoscaler", "image": "example.com/ray:1", "resources": resources}
        head = {**head, "spec": {**head["spec"], "containers": [*head["spec"]["containers"], autoscaler]}}
    yield _pod(obj, f"{name}-head", head, _labels(obj, "head", "headgroup"))
    for group in spec.get("workerGroupSpecs", ()):
        for number in range(group.get("replicas", 1) * group.get("numOfHosts", 1)):
            labels = _labels(obj, "worker", group["groupName"])
            yield _pod(obj, f"{name}-{group['groupName'].lower()}-{number}", group["template"], labels)


def submitter_of(obj: Object) -> Object:
    """The template of the pod that submits a RayJob."""
    image = obj["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    container = {"name": "ray-job-submitter", "image": image, "resources": _SUBMITTER}
    default: Object = {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    template = obj["spec"].get("submitterPodTemplate", default)
    metadata = template.get("metadata", {})
    run = {"sandbox.kqueue.dev/run-seconds": obj["spec"]["entrypoint"]}
    return {**template, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **run}}}


def _pod(obj: Object, name: str, template: Object, labels: Mapping[str, str]) -> Object:
    own = template.get("metadata", {})
    metadata = {"labels": {**own.get("labels", {}), **labels}, "annotations": own.get("annotations", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **_below("RayCluster", obj, name)},
        "spec": template["spec"],
    }


def _labels(obj: Object, node_type: str, group: str) -> dict[str, str]:
    return {"ray.io/cluster": obj["metadata"]["name"], "ray.io/node-type": node_type, "ray.io/group": group}


def _below(kind: str, obj: Object, name: str) -> Object:
    """Name, namespace and owner of an object below another."""
    meta = obj["metadata"]
    owner = {"apiVersion": "ray.io/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    flags = {"controller": True, "blockOwnerDeletion": True}
    return {"name": name, "namespace": meta["namespace"], "ownerReferences": [{**owner, **flags}]}


def _has(obj: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in obj.get("status", {}).get("conditions", []))
