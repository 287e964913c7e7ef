"""RayJobs, RayClusters and RayServices go the whole road, on both control planes; a double plays KubeRay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.doubles import collection, define
from tests.integration.ray_double import ROWS, kuberay_runs
from tests.integration.road import KUEUE, Object, Road, condition, make_road

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [batch/job, ray.io/rayjob, ray.io/raycluster, ray.io/rayservice]}
resources: {excludeResourcePrefixes: [memory]}
"""
QUEUE = f"{KUEUE}/clusterqueues/team"
LONG = 600
GATE = "kueue.x-k8s.io/elastic-job"


@asynccontextmanager
async def world(plane: Plane, folder: Path) -> AsyncIterator[Road]:
    """Nodes, a tenant, the definitions of Ray's kinds, KubeRay, and kqueue with its webhooks."""
    road = await make_road(plane.cluster)
    await define(plane.cluster, folder, ROWS.values())
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    config = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    async with running(config, flags) as process, kuberay_runs(plane.cluster):
        await process.operator.ready.wait()
        yield road


def template(*, gpus: int = 0, required: bool = False) -> Object:
    """Pods of one container; `required`: in one rack."""
    amounts = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "ray", "image": "example.com/ray:1", "resources": {"requests": amounts, "limits": amounts}}
    annotations = {"sandbox.kqueue.dev/run-seconds": str(LONG)}
    level = {"kueue.x-k8s.io/podset-required-topology": RACK_LABEL} if required else {}
    return {"metadata": {"annotations": {**annotations, **level}}, "spec": {"containers": [container]}}


def cluster_of(workers: int, **more: Any) -> Object:
    """A head without GPUs, and workers of a node's GPUs in one rack."""
    group = {"groupName": "Workers", "replicas": workers, "template": template(gpus=8, required=True)}
    return {"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": [group], **more}


async def submit(road: Road, kind: str, spec: Object, **annotations: str) -> Object:
    """A queued object that its user does not suspend."""
    metadata = {
        "name": "ray",
        "labels": {"kueue.x-k8s.io/queue-name": "main"},
        "annotations": {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in annotations.items()},
    }
    made: Object = {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    return await road.cluster.request("POST", collection(ROWS[kind], road.namespace), made)


def spec_of(kind: str, cluster: Object, **more: Any) -> Object:
    """The spec of an object with this cluster."""
    if kind == "RayJob":
        return {"entrypoint": "2", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster, **more}
    return {"rayClusterConfig": cluster, **more} if kind == "RayService" else {**cluster, **more}


def pods_by_set(pods: list[Object]) -> dict[str, list[Object]]:
    """Pods by pod set, by the label that kqueue has them get."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        found.setdefault(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], []).append(pod)
    return found


@pytest.mark.proves("Ray", "queueing")
@pytest.mark.proves("Ray", "start with topology")
@pytest.mark.proves("Ray", "pods ready")
@pytest.mark.proves("Ray", "finished")
@pytest.mark.proves("Ray", "child jobs")
@pytest.mark.proves("Ray", "webhook defaults")
@pytest.mark.proves("Ray", "webhook validation")
async def test_a_ray_job_is_corrected_and_then_starts_whole_and_ends(either_plane: Plane, tmp_path: Path) -> None:
    """Webhooks refuse what kqueue cannot queue; what KubeRay refuses waits without quota.  Then one Workload has the
    head, the workers in a rack and the submitter; neither the RayCluster, which has the queue label, too, nor the Job
    that submits is queued.
    """
    async with world(either_plane, tmp_path) as road:
        wrong = {"RayJob": spec_of("RayJob", cluster_of(1), shutdownAfterJobFinishes=False)}
        for kind in ("RayCluster", "RayService"):
            wrong[kind] = spec_of(kind, cluster_of(1, enableInTreeAutoscaling=True))
        for kind, spec in wrong.items():
            with pytest.raises(RequestError, match=r"shutdownAfterJobFinishes|enableInTreeAutoscaling"):
                await submit(road, kind, spec)
        queued = await submit(road, "RayJob", spec_of("RayJob", cluster_of(3), entrypoint=""))
        await road.until_workload("ray", "QuotaReserved", status="False", reason="OnHold")
        path = f"{collection(ROWS['RayJob'], road.namespace)}/ray"
        await road.cluster.request("PATCH", path, {"spec": {"entrypoint": "2"}}, content_type=MERGE_PATCH)
        await road.until_workload("ray", "PodsReady")
        pods = await road.cluster.until(
            road.pods, lambda found: len(found["items"]) == 5, what="the submitter has a pod, too"
        )
        child = await road.cluster.get(f"{collection(ROWS['RayCluster'], road.namespace)}/ray-cluster")
        submitter = await road.cluster.get(f"{road.jobs}/ray-submitter")
        workloads = (await road.cluster.get(road.workloads))["items"]
        await road.until_workload("ray", "Finished", reason="Succeeded")
        nodes = {n["metadata"]["name"]: n for n in (await road.cluster.get("/api/v1/nodes"))["items"]}

    assert queued["spec"]["suspend"] is True
    (workload,) = workloads
    sets = [(p["name"], p["count"]) for p in workload["spec"]["podSets"]]
    assert sets == [("head", 1), ("workers", 3), ("submitter", 1)]
    assert child["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
    assert not child["spec"].get("suspend")
    assert not submitter["spec"].get("suspend")
    by_set = pods_by_set(pods["items"])
    assert {name: len(found) for name, found in by_set.items()} == {"head": 1, "workers": 3, "submitter": 1}
    on = [nodes[pod["spec"]["nodeName"]]["metadata"]["labels"] for pod in by_set["workers"]]
    assert len({labels[RACK_LABEL] for labels in on}) == 1
    assert by_set["submitter"][0]["spec"]["nodeSelector"]["pool"] == "gpu"


async def drained_and_resumed(road: Road, kind: str) -> tuple[Object, Object]:
    """The object as it ran, and as it was stopped by its drained queue; then it runs again."""
    path = f"{collection(ROWS[kind], road.namespace)}/ray"
    await road.until_workload("ray", "PodsReady")
    started = await road.cluster.get(path)
    await road.cluster.request("PATCH", QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}}, content_type=MERGE_PATCH)
    await road.until_workload("ray", "QuotaReserved", status="False")
    await road.cluster.until(road.pods, lambda found: not found["items"], what="no pod is left")
    stopped = await road.cluster.get(path)
    await road.cluster.request("PATCH", QUEUE, {"spec": {"stopPolicy": "None"}}, content_type=MERGE_PATCH)
    await road.until_workload("ray", "PodsReady")
    return started, stopped


async def test_a_ray_job_is_stopped_restored_and_started_again(sandbox_plane: Plane, tmp_path: Path) -> None:
    """A drained queue stops it, its templates are what its user wrote; without the drain it runs again."""
    async with world(sandbox_plane, tmp_path) as road:
        cluster = cluster_of(2)
        await submit(road, "RayJob", spec_of("RayJob", cluster, entrypoint=str(LONG)))
        started, stopped = await drained_and_resumed(road, "RayJob")

    assert started["spec"]["submitterPodTemplate"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert "submitterPodTemplate" not in stopped["spec"]
    assert stopped["spec"]["rayClusterSpec"] == cluster


@pytest.mark.proves("Ray", "stop and restore")
@pytest.mark.proves("Ray", "eviction and requeue")
async def test_a_ray_service_is_stopped_and_started_and_clears_redis_at_its_end(
    either_plane: Plane, tmp_path: Path
) -> None:
    """It is given back as its user wrote it.  At its end the pod that clears Redis gets the place of the head, because
    the Workload keeps its quota; then all is gone.
    """
    async with world(either_plane, tmp_path) as road:
        cluster = cluster_of(1, gcsFaultToleranceOptions={"redisAddress": "redis:6379"})
        cluster["headGroupSpec"]["template"] = template(required=True)
        await submit(road, "RayService", spec_of("RayService", cluster))
        started, stopped = await drained_and_resumed(road, "RayService")
        services = collection(ROWS["RayService"], road.namespace)
        await road.cluster.request("DELETE", f"{services}/ray?propagationPolicy=Foreground")
        clears = await road.cluster.until(
            road.pods,
            lambda found: (
                [p["metadata"]["labels"].get("ray.io/node-type") for p in found["items"]] == ["redis-cleanup"]
                and bool(found["items"][0]["spec"].get("nodeName"))
            ),
            what="only the clean-up runs",
        )
        held = await road.workload_of("ray")
        await road.cluster.until(services, lambda found: not found["items"], what="the service is gone")
        await road.cluster.until(road.workloads, lambda found: not found["items"], what="its Workload is gone")

    assert started["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"] == {
        "pool": "gpu"
    }
    assert stopped["spec"]["rayClusterConfig"] == {**cluster, "suspend": True}
    assert pods_by_set(clears["items"]).keys() == {"head"}
    assert condition(held, "QuotaReserved")["status"] == "True"
    assert not any(c["type"] == "Finished" for c in held["status"]["conditions"])


@pytest.mark.proves("Ray", "workload slices")
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", pytest.param("RayService", marks=pytest.mark.seldom)])
async def test_an_elastic_cluster_grows_and_shrinks(either_plane: Plane, tmp_path: Path, kind: str) -> None:
    """As its autoscaler has it, also below a RayJob or RayService: added workers wait for their quota, and no other pod is
    touched.
    """
    others = {"RayCluster": 1, "RayJob": 2, "RayService": 1}[kind]  # the head, and what submits the job

    def running_pods(found: Object) -> set[str]:
        return {p["metadata"]["uid"] for p in found["items"] if p["status"].get("phase") == "Running"}

    async with world(either_plane, tmp_path) as road:

        async def until_running(number: int) -> Object:
            def reached(found: Object) -> bool:
                return len(running_pods(found)) == number == len(found["items"])

            return await road.cluster.until(road.pods, reached, what=f"{number} pods run")

        group = {"groupName": "workers", "replicas": 1, "template": template(gpus=8)}
        cluster = cluster_of(0, workerGroupSpecs=[group], enableInTreeAutoscaling=True)
        more = {"entrypoint": str(LONG)} if kind == "RayJob" else {}
        await submit(road, kind, spec_of(kind, cluster, **more), elastic_job="true")
        path = f"{collection(ROWS['RayCluster'], road.namespace)}/{'ray' if kind == 'RayCluster' else 'ray-cluster'}"
        await road.until_workload("ray", "PodsReady")
        before = running_pods(await until_running(1 + others))
        made = await road.cluster.get(path)
        for number in (3, 2):
            groups = (await road.cluster.get(path))["spec"]["workerGroupSpecs"]
            change = {"spec": {"workerGroupSpecs": [{**groups[0], "replicas": number}]}}
            await road.cluster.request("PATCH", path, change, content_type=MERGE_PATCH)
            after = await until_running(number + others)
        shrunk = await road.cluster.until(
            road.workloads,
            lambda found: any(w["spec"]["podSets"][1]["count"] == 2 for w in found["items"]),
            what="the Workload shrinks, too",
        )

    assert GATE in [g["name"] for g in made["spec"]["workerGroupSpecs"][0]["template"]["spec"]["schedulingGates"]]
    assert len(before) == 1 + others
    assert before <= running_pods(after), "older pods run on"
    ends = [w for w in shrunk["items"] if any(c["type"] == "Finished" for c in w["status"]["conditions"])]
    assert [condition(w, "Finished")["reason"] for w in ends] == ["WorkloadSliceReplaced"]
    (now,) = [w for w in shrunk["items"] if w not in ends]
    assert [(p["name"], p["count"]) for p in now["spec"]["podSets"]][:2] == [("head", 1), ("workers", 2)]
