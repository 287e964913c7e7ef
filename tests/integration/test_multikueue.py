"""Jobs that another cluster runs, on both control planes: the worker is a sandbox of its own, with its own kqueue."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.config import Timings
from kqueue.manager.process import running
from kqueue.sandbox import Sandbox, SandboxOptions
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import Cluster
from tests.integration.jobset_double import JOBSETS
from tests.integration.road import KUEUE, Object, Road, condition, has, job, queue_objects
from tests.integration.teams import Plane, configuration, flags, post, resource_groups

pytestmark = pytest.mark.slow

CONTROLLER = "kueue.x-k8s.io/multikueue"
OWN_NAMESPACE = "kueue-system"
QUICK = Timings(queue_flush_window=0.1, worker_probe=0.3, worker_retry_base=0.3)
FRAMEWORKS = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, pod]}\n"
GATES = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]
MANAGER = f"""{FRAMEWORKS}
admissionChecks: {{controllers: [kueue.x-k8s.io/multikueue]}}
multiKueue: {{origin: west, workerLostTimeout: 2s}}
"""


Kinds = Callable[[Cluster, Path], AbstractAsyncContextManager[None]]
"""Defines kinds of objects, and plays their controllers."""


def without_kinds(_cluster: Cluster, _folder: Path) -> AbstractAsyncContextManager[None]:
    """No further kinds."""
    return nullcontext()


def ours(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def worker_in(
    folder: Path, namespace: str, settings: str = FRAMEWORKS, *, kinds: Kinds = without_kinds
) -> AsyncIterator[tuple[Road, Sandbox]]:
    """A sandbox with nodes, a tenant in the same namespace, and kqueue."""
    sandbox = Sandbox(SandboxOptions(crds=(crd_folder(),)))
    await sandbox.start()
    sandbox.write_kubeconfig(folder / "worker")
    plane = SandboxPlane(folder / "worker")
    try:
        await plane.cluster.add_nodes((1, 1, 4), labels={"pool": "gpu"})
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await plane.cluster.request("POST", "/api/v1/namespaces", body)
        for collection, obj in queue_objects(namespace):
            await plane.cluster.request("POST", collection, obj)
        async with (
            kinds(plane.cluster, folder),
            running(configuration(settings), flags(plane), timings=QUICK) as process,
        ):
            await process.operator.ready.wait()
            yield Road(plane.cluster, namespace), sandbox
    finally:
        await sandbox.stop()


async def name_cluster(road: Road, name: str, kubeconfig: str) -> None:
    """A MultiKueueCluster with its Secret."""
    secrets = f"/api/v1/namespaces/{OWN_NAMESPACE}/secrets"
    data = {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}
    await road.cluster.request(
        "POST", secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    )
    source = {"clusterSource": {"kubeConfig": {"location": name}}}
    await road.cluster.request("POST", f"{KUEUE}/multikueueclusters", ours("MultiKueueCluster", name, source))


@asynccontextmanager
async def two_clusters(
    plane: Plane,
    folder: Path,
    *,
    manager: str = MANAGER,
    worker: str = FRAMEWORKS,
    named: Callable[[Road, str, str], Awaitable[None]] | None = None,
    kinds: Kinds = without_kinds,
) -> AsyncIterator[tuple[Road, Road, Sandbox]]:
    """A manager without nodes, whose queue has the check, and a worker named `west`; `gone` does not exist.

    `named` names the worker by its kubeconfig, by default in a Secret; `kinds` plays further kinds on the worker.
    """
    cluster = plane.cluster
    namespace = await cluster.create_namespace("multi")
    road = Road(cluster, namespace)
    if not await cluster.exists(f"/api/v1/namespaces/{OWN_NAMESPACE}"):
        own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}
        await cluster.request("POST", "/api/v1/namespaces", own)
    await post(plane, "resourceflavors", "plain", {})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    await post(plane, "admissionchecks", "multi", {"controllerName": CONTROLLER, "parameters": parameters})
    await cluster.request(
        "POST", f"{KUEUE}/multikueueconfigs", ours("MultiKueueConfig", "all", {"clusters": ["gone", "west"]})
    )
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "multi"}]}}
    queue = {"namespaceSelector": {}, "resourceGroups": resource_groups(64), **checks}
    await post(plane, "clusterqueues", "team", queue)
    await post(plane, "localqueues", "main", {"clusterQueue": "team"}, namespace=namespace)
    async with worker_in(folder, namespace, worker, kinds=kinds) as (other, sandbox):
        await (named or name_cluster)(road, "west", sandbox.kubeconfig())
        async with running(configuration(manager), flags(plane), timings=QUICK) as process:
            await process.operator.ready.wait()
            await until_active(road, "admissionchecks/multi", "True", "SomeActiveClusters")
            try:
                yield road, other, sandbox
            finally:
                await cluster.request("DELETE", f"/api/v1/namespaces/{OWN_NAMESPACE}/secrets")


async def until_active(road: Road, path: str, status: str, reason: str) -> Object:
    def reached(obj: Object) -> bool:
        found = [c for c in obj.get("status", {}).get("conditions", []) if c["type"] == "Active"]
        return [(c["status"], c["reason"]) for c in found] == [(status, reason)]

    return await road.cluster.until(f"{KUEUE}/{path}", reached, what=f"{path} is Active={status} {reason}")


async def submit(road: Road, name: str, run_seconds: int) -> None:
    """A Job of two pods that MultiKueue is to send away."""
    body = job(name, road.namespace, pods=2, required=None, run_seconds=run_seconds)
    body["spec"]["managedBy"] = CONTROLLER
    await road.cluster.request("POST", road.jobs, body)


async def submit_set(road: Road, name: str, run_seconds: int) -> str:
    """A JobSet of the same pods; returns its path."""
    template = job(name, road.namespace, pods=2, required=None, run_seconds=run_seconds)["spec"]
    del template["suspend"]
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "suspend": True,
            "managedBy": CONTROLLER,
            "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": template}}],
        },
    }
    collection = f"{JOBSETS}/namespaces/{road.namespace}/jobsets"
    await road.cluster.request("POST", collection, body)
    return f"{collection}/{name}"


async def submit_group(road: Road, name: str, run_seconds: int) -> list[str]:
    """A group of two pods as the webhook leaves them; returns their paths."""
    template = job(name, road.namespace, required=None, run_seconds=run_seconds)["spec"]["template"]
    own = {"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/role-hash": "worker"}
    annotations = template["metadata"]["annotations"] | own
    labels = {"queue-name": "main", "managed": "true", "pod-group-name": name}
    for index in range(2):
        meta = {
            "name": f"{name}-{index}",
            "labels": {f"kueue.x-k8s.io/{key}": value for key, value in labels.items()},
            "annotations": annotations,
            "finalizers": ["kueue.x-k8s.io/managed"],
        }
        spec = {**template["spec"], "schedulingGates": GATES}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await road.cluster.request("POST", road.pods, body)
    return [f"{road.pods}/{name}-{index}" for index in range(2)]


async def until_phase(road: Road, paths: Sequence[str], phase: str) -> list[Object]:
    """The pods in this phase."""
    return [
        await road.cluster.until(path, lambda pod: pod["status"].get("phase") == phase, what=f"{path} {phase}")
        for path in paths
    ]


async def until_empty(worker: Road) -> None:
    for collection in (worker.workloads, worker.jobs, worker.pods):
        await worker.cluster.until(collection, lambda found: not found["items"], what="the worker has no copies")


async def test_a_job_runs_on_a_worker_and_its_status_comes_back(either_plane: Plane, tmp_path: Path) -> None:
    """Nothing runs on the manager; the worker, which places the pods, has nothing left in the end.  A JobSet goes the
    same way.
    """
    async with two_clusters(either_plane, tmp_path) as (road, worker, _):
        await submit(road, "train", 2)
        await road.until_workload("train", "PodsReady")
        ours_now = await road.workload_of("train")
        theirs = (await worker.cluster.get(worker.jobs))["items"]
        pods = (await worker.cluster.get(worker.pods))["items"]
        own_pods = (await road.cluster.get(road.pods))["items"]
        await road.until_complete("train")
        await road.until_workload("train", "Finished")
        path = await submit_set(road, "set", 1)
        await road.until_workload("set", "Finished", reason="Succeeded")
        job_set = await road.cluster.get(path)
        await until_empty(worker)

    assert ours_now["status"]["clusterName"] == "west"
    assert own_pods == []
    assert job_set["status"]["terminalState"] == "Completed"
    assert [pod["metadata"]["labels"]["kueue.x-k8s.io/multikueue-worker-workload-pod"] for pod in pods] == ["true"] * 2
    assert theirs[0]["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "west"
    assert theirs[0]["spec"].get("managedBy") in (None, "kubernetes.io/job-controller")


@pytest.mark.seldom_on_sandbox
async def test_a_group_of_pods_runs_on_a_worker_and_keeps_its_gates_here(either_plane: Plane, tmp_path: Path) -> None:
    """Both pods run there; an eviction here brings them back to the queue, and another admission to their end."""
    queue = f"{KUEUE}/clusterqueues/team"
    async with two_clusters(either_plane, tmp_path) as (road, worker, _):
        paths = await submit_group(road, "gang", 3)
        running_here = await until_phase(road, paths, "Running")
        drain = {"spec": {"stopPolicy": "HoldAndDrain"}}
        await road.cluster.request("PATCH", queue, drain, content_type=MERGE_PATCH)
        await until_phase(road, paths, "Pending")
        await until_empty(worker)
        await road.cluster.request("PATCH", queue, {"spec": {"stopPolicy": "None"}}, content_type=MERGE_PATCH)
        await until_phase(road, paths, "Succeeded")
        await road.cluster.until(
            f"{road.workloads}/gang", lambda found: has(found, "Finished"), what="the group has finished"
        )
        await until_empty(worker)

    for pod in running_here:
        assert pod["spec"]["schedulingGates"] == GATES
        assert "nodeName" not in pod["spec"]
        assert "podIP" not in pod["status"]


@pytest.mark.seldom
async def test_an_elastic_job_grows_and_shrinks_on_its_worker(either_plane: Plane, tmp_path: Path) -> None:
    """The pods that run are never stopped for it; both clusters charge its present size, and nothing in the end."""
    async with two_clusters(either_plane, tmp_path) as (road, worker, _):
        body = job("grows", road.namespace, pods=2, required=None, run_seconds=600, gpus=1)
        body["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
        body["spec"]["managedBy"] = CONTROLLER
        await road.cluster.request("POST", road.jobs, body)
        first = await until_running(worker, 2)
        await scale(road, 4)
        grown = await until_running(worker, 4)
        await until_used(road, 4)
        await until_used(worker, 4)
        slices = [w for w in (await road.cluster.get(road.workloads))["items"] if not has(w, "Finished")]
        await scale(road, 1)
        await until_running(worker, 1)
        await until_used(worker, 1)
        await until_used(road, 1)
        await road.cluster.request("DELETE", f"{road.jobs}/grows?propagationPolicy=Background")
        await until_empty(worker)
        await until_used(road, 0)
        await until_used(worker, 0)

    assert first < grown
    assert [w["status"]["clusterName"] for w in slices] == ["west"]


async def scale(road: Road, pods: int) -> None:
    """Give the Job another number of pods, as the user does."""
    change = {"spec": {"parallelism": pods, "completions": pods}}
    await road.cluster.request("PATCH", f"{road.jobs}/grows", change, content_type=MERGE_PATCH)


async def until_running(worker: Road, pods: int) -> set[str]:
    """Wait until exactly so many pods run; returns their UIDs."""

    def uids(listed: Object) -> set[str]:
        alive = (p for p in listed["items"] if not p["metadata"].get("deletionTimestamp"))
        return {p["metadata"]["uid"] for p in alive if p["status"].get("phase") == "Running"}

    listed = await worker.cluster.until(worker.pods, lambda found: len(uids(found)) == pods, what=f"{pods} pods run")
    return uids(listed)


async def until_used(road: Road, gpus: int) -> None:
    """Wait until the ClusterQueue charges so many GPUs."""

    def used(queue: Object) -> int:
        usage = queue.get("status", {}).get("flavorsUsage", [])
        return sum(int(r["total"]) for f in usage for r in f["resources"] if r["name"] == "nvidia.com/gpu")

    path = f"{KUEUE}/clusterqueues/team"
    await road.cluster.until(path, lambda queue: used(queue) == gpus, what=f"{gpus} GPUs in use")


async def test_an_eviction_reaches_the_worker_and_a_lost_worker_costs_only_its_job(
    either_plane: Plane, tmp_path: Path
) -> None:
    """A drained queue takes the job from the worker, and gives it back; when the worker is lost, the job waits here."""
    queue = f"{KUEUE}/clusterqueues/team"
    async with two_clusters(either_plane, tmp_path) as (road, worker, sandbox):
        await submit(road, "train", 600)
        await road.until_workload("train", "PodsReady")
        drain = {"spec": {"stopPolicy": "HoldAndDrain"}}
        await road.cluster.request("PATCH", queue, drain, content_type=MERGE_PATCH)
        await road.until_workload("train", "QuotaReserved", status="False")
        await until_empty(worker)
        await road.cluster.request("PATCH", queue, {"spec": {"stopPolicy": "None"}}, content_type=MERGE_PATCH)
        await road.until_workload("train", "PodsReady")

        await sandbox.stop()
        await until_active(road, "multikueueclusters/west", "False", "ClientConnectionFailed")
        await road.until_workload("train", "Evicted")
        await road.until_workload("train", "QuotaReserved", status="False")
        evicted = condition(await road.workload_of("train"), "Evicted")

    assert evicted["reason"] == "AdmissionCheck"


async def test_a_kubeconfig_of_the_manager_itself_is_refused(either_plane: Plane, tmp_path: Path) -> None:
    """The manager's queue would take copies for workloads of its own; a Secret that is put right is read again.  A
    second object for one cluster has to wait until the first is gone.
    """
    async with two_clusters(either_plane, tmp_path) as (road, _, sandbox):
        await name_cluster(road, "self", either_plane.kubeconfig.read_text())
        refused = await until_active(road, "multikueueclusters/self", "False", "BadKubeConfig")
        data = {"data": {"kubeconfig": base64.b64encode(sandbox.kubeconfig().encode()).decode()}}
        secret = f"/api/v1/namespaces/{OWN_NAMESPACE}/secrets/self"
        await road.cluster.request("PATCH", secret, data, content_type=MERGE_PATCH)

        def is_second(obj: Object) -> bool:
            return "leads to the same cluster" in condition(obj, "Active")["message"]

        await road.cluster.until(f"{KUEUE}/multikueueclusters/self", is_second, what="the second name is refused")
        await road.cluster.request("DELETE", f"{KUEUE}/multikueueclusters/west")
        await until_active(road, "multikueueclusters/self", "True", "Active")

    assert "own cluster" in condition(refused, "Active")["message"]
