"""AppWrappers and SparkApplications go the whole road, on both control planes; doubles play their controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import parse
from kqueue.kinds import Kind
from kqueue.manager.process import Flags, running
from tests.integration import appwrapper_double, spark_double
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.doubles import collection, define
from tests.integration.road import HOST, KUEUE, Object, Road, job, make_road

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
manageJobsWithoutQueueName: true
featureGates: {{SparkApplicationIntegration: true}}
integrations: {{frameworks: [batch/job, pod, {framework}]}}
"""
QUEUE = f"{KUEUE}/clusterqueues/team"
INDEX = "batch.kubernetes.io/job-completion-index"
DRAIN, OPEN = ({"spec": {"stopPolicy": policy}} for policy in ("HoldAndDrain", "None"))


@asynccontextmanager
async def world(plane: Plane, folder: Path, row: Kind) -> AsyncIterator[Road]:
    """Nodes, a tenant with quota of memory, too, the definition of a kind, and kqueue, which manages all pods."""
    road = await make_road(plane.cluster)
    (group,) = (await plane.cluster.get(QUEUE))["spec"]["resourceGroups"]
    group["coveredResources"].append("memory")
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "1Ti"})
    await road.change_queue(resourceGroups=[group])
    await define(plane.cluster, folder, [row])
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    config = parse(CONFIGURATION.format(framework=row.framework), source="test", own_namespace="kqueue-system")
    async with running(config, flags) as process:
        await process.operator.ready.wait()
        yield road


@asynccontextmanager
async def wrapped_world(plane: Plane, folder: Path) -> AsyncIterator[Road]:
    async with (
        world(plane, folder, appwrapper_double.ROW) as road,
        appwrapper_double.appwrappers_run(plane.cluster),
    ):
        yield road


@asynccontextmanager
async def spark_world(plane: Plane, folder: Path) -> AsyncIterator[Road]:
    async with world(plane, folder, spark_double.ROW) as road:
        await spark_double.let_drivers_make_pods(plane.cluster, road.namespace)
        async with spark_double.spark_runs(plane):
            yield road


async def submit(road: Road, row: Kind, name: str, spec: Object) -> Object:
    """An object that its user does not suspend."""
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    made = {"apiVersion": f"{row.group}/{row.version}", "kind": row.kind, "metadata": metadata, "spec": spec}
    return await road.cluster.request("POST", collection(row, road.namespace), made)


async def drained(road: Road, row: Kind, name: str) -> tuple[Object, Object]:
    """The object while it runs and after its queue was drained; it runs again at the end."""
    path = f"{collection(row, road.namespace)}/{name}"
    await road.until_workload(name, "PodsReady")
    started = await road.cluster.get(path)
    await road.cluster.request("PATCH", QUEUE, DRAIN, content_type=MERGE_PATCH)
    await road.until_workload(name, "QuotaReserved", status="False")
    await road.cluster.until(road.pods, lambda found: not found["items"], what="no pod is left")
    stopped = await road.cluster.get(path)
    await road.cluster.request("PATCH", QUEUE, OPEN, content_type=MERGE_PATCH)
    await road.until_workload(name, "PodsReady")
    return started, stopped


async def places(road: Road, pods: list[Object]) -> tuple[set[str], list[str]]:
    """The racks of pods, and their hosts in the order of the pods."""
    nodes = {n["metadata"]["name"]: n["metadata"]["labels"] for n in (await road.cluster.get("/api/v1/nodes"))["items"]}
    labels = [nodes[pod["spec"]["nodeName"]] for pod in pods]
    return {found[RACK_LABEL] for found in labels}, [found[HOST] for found in labels]


async def pods_of(road: Road, label: str, name: str) -> list[Object]:
    """The pods of an object that runs, by the label with its name."""
    await road.until_workload(name, "PodsReady")
    found: list[Object] = (await road.cluster.get(f"{road.pods}?labelSelector={label}={name}"))["items"]
    return found


async def owners_of_workloads(road: Road) -> list[str]:
    """The name of the owner of each Workload."""
    workloads = (await road.cluster.get(road.workloads))["items"]
    return sorted(workload["metadata"]["ownerReferences"][0]["name"] for workload in workloads)


# --- AppWrapper -------------------------------------------------------------------------------------------------------


def components(road: Road, name: str, *, run_seconds: int) -> list[Object]:
    """A ConfigMap, and a Job of four pods in one rack, which names a queue itself."""
    child = job(f"{name}-job", road.namespace, run_seconds=run_seconds)
    child["spec"]["suspend"] = False
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-settings"}, "data": {"a": "1"}}
    return [{"template": settings}, {"template": child}]


@pytest.mark.proves("AppWrapper", "queueing")
@pytest.mark.proves("AppWrapper", "start with topology")
@pytest.mark.proves("AppWrapper", "ranks")
@pytest.mark.proves("AppWrapper", "pods ready")
@pytest.mark.proves("AppWrapper", "finished")
@pytest.mark.proves("AppWrapper", "child jobs")
@pytest.mark.proves("AppWrapper", "stop and restore")
@pytest.mark.proves("AppWrapper", "eviction and requeue")
@pytest.mark.proves("AppWrapper", "webhook defaults")
@pytest.mark.proves("AppWrapper", "webhook validation")
async def test_an_appwrapper_starts_whole_ends_and_is_stopped_and_restored(either_plane: Plane, tmp_path: Path) -> None:
    """One Workload for all its objects: the Job in it, which names a queue itself, starts when the AppWrapper does.

    The additions of the admission go with a stop, and what hides pods is refused.
    """
    row = appwrapper_double.ROW
    async with wrapped_world(either_plane, tmp_path) as road:
        wrapped = components(road, "long", run_seconds=600)
        hidden = {**wrapped[1], "podSets": [{"path": "template.spec.template", "replicas": 1}]}
        with pytest.raises(RequestError, match=r"spec\.components\[0\]\.podSets"):
            await submit(road, row, "hidden", {"components": [hidden]})
        made = await submit(road, row, "long", {"components": wrapped})
        await submit(road, row, "short", {"components": components(road, "short", run_seconds=4)})
        pods = await pods_of(road, appwrapper_double.LABEL, "short")
        pods.sort(key=lambda pod: int(pod["metadata"]["labels"][INDEX]))
        racks, hosts = await places(road, pods)
        owners = await owners_of_workloads(road)
        await road.until_workload("short", "Finished", reason="Succeeded")
        await road.cluster.request("DELETE", f"{collection(row, road.namespace)}/short")
        started, stopped = await drained(road, row, "long")

    assert made["spec"]["suspend"] is True
    assert owners == ["long", "short"]
    assert (len(racks), len(hosts)) == (1, 4)
    assert hosts == sorted(hosts)
    (info,) = started["spec"]["components"][1]["podSetInfos"]
    assert info["nodeSelector"] == {"pool": "gpu"}
    assert stopped["spec"] == {"suspend": True, "components": wrapped}


# --- SparkApplication -------------------------------------------------------------------------------------------------


def application(*, run_seconds: int, **more: Any) -> Object:
    """A driver, and four executors in one rack that take its GPUs."""
    seconds = "sandbox.kqueue.dev/run-seconds"
    pod = {"cores": 1, "memory": "640m"}
    rack = {"kueue.x-k8s.io/podset-required-topology": RACK_LABEL, seconds: str(run_seconds)}
    gpu = {"gpu": {"name": "nvidia.com/gpu", "quantity": 8}}
    return {
        "type": "Scala",
        "mode": "cluster",
        "sparkVersion": "4.0.0",
        "image": "example.com/spark:4",
        "driver": {**pod, "annotations": {seconds: "600"}},
        "executor": {**pod, **gpu, "instances": 4, "annotations": rack},
        **more,
    }


@pytest.mark.proves("SparkApplication", "queueing")
@pytest.mark.proves("SparkApplication", "start with topology")
@pytest.mark.proves("SparkApplication", "pods ready")
@pytest.mark.proves("SparkApplication", "finished")
@pytest.mark.proves("SparkApplication", "child jobs")
@pytest.mark.proves("SparkApplication", "stop and restore")
@pytest.mark.proves("SparkApplication", "eviction and requeue")
@pytest.mark.proves("SparkApplication", "webhook defaults")
@pytest.mark.proves("SparkApplication", "webhook validation")
async def test_an_application_runs_in_its_places_ends_and_is_stopped_and_restored(
    either_plane: Plane, tmp_path: Path
) -> None:
    """All pods are managed here: the driver makes the executors, and they are not queued a second time.

    A node selector of the whole application comes back from the driver and the executors.
    """
    row = spark_double.ROW
    async with spark_world(either_plane, tmp_path) as road:
        with pytest.raises(RequestError, match=r"spec\.dynamicAllocation"):
            await submit(road, row, "dynamic", application(run_seconds=600, dynamicAllocation={"enabled": True}))
        before = application(run_seconds=600, nodeSelector={"pool": "gpu"})
        await submit(road, row, "long", before)
        await submit(road, row, "short", application(run_seconds=4))
        pods = await pods_of(road, spark_double.APP, "short")
        executors = [pod for pod in pods if pod["metadata"]["labels"]["spark-role"] == "executor"]
        racks, hosts = await places(road, executors)
        workload, owners = await road.workload_of("short"), await owners_of_workloads(road)
        await road.until_workload("short", "Finished", reason="Succeeded")
        await road.cluster.request("DELETE", f"{collection(row, road.namespace)}/short")
        started, stopped = await drained(road, row, "long")

    assert owners == ["long", "short"]
    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("driver", 1), ("executor", 4)]
    used = {a["name"]: a["resourceUsage"] for a in workload["status"]["admission"]["podSetAssignments"]}
    assert used["driver"] == {"cpu": "1", "memory": "1Gi"}
    assert used["executor"] == {"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "32"}
    assert (len(racks), len(set(hosts))) == (1, 4)
    assert "nodeSelector" not in started["spec"]
    assert started["spec"]["executor"]["nodeSelector"] == {"pool": "gpu"}
    assert stopped["spec"] == {**before, "suspend": True}
    assert not stopped["metadata"].get("annotations")
