"""TrainJobs go the whole road, on both control planes; doubles play Trainer and, where needed, the JobSet controller."""

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
from tests.integration.jobset_double import jobsets_run
from tests.integration.road import HOST, KUEUE, Object, Road, make_road
from tests.integration.trainjob_double import API, RUNTIMES, STEP, define_trainjobs, trainjobs, trainjobs_run

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob]}
"""
QUEUE = f"{KUEUE}/clusterqueues/team"
INDEX = "batch.kubernetes.io/job-completion-index"
MANAGER = "kueue.x-k8s.io/manager"


@asynccontextmanager
async def world(plane: Plane, folder: Path) -> AsyncIterator[tuple[Road, list[str]]]:
    """Nodes, a tenant, the controllers of all kinds, and kqueue with its webhooks; and what Trainer would refuse."""
    road = await make_road(plane.cluster)
    await define_trainjobs(plane.cluster, folder)
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    config = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    async with running(config, flags) as process, jobsets_run(plane), trainjobs_run(plane.cluster) as refused:
        await process.operator.ready.wait()
        yield road, refused


def runtime(run_seconds: int, *, nodes: int = 1, kind: str = "ClusterTrainingRuntime") -> Object:
    """A runtime whose nodes take all GPUs of a host each, in one rack."""
    amounts = {"cpu": "1", "nvidia.com/gpu": "8"}
    container = {"name": "node", "image": "example.com/train:1", "resources": {"requests": amounts, "limits": amounts}}
    annotations = {
        "sandbox.kqueue.dev/run-seconds": str(run_seconds),
        "kueue.x-k8s.io/podset-required-topology": RACK_LABEL,
    }
    pod = {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"completionMode": "Indexed", "backoffLimit": 0, "template": pod}
    part = {"name": "node", "template": {"metadata": {"labels": {STEP: "trainer"}}, "spec": job}}
    spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [part]}}}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": {"name": "torch"}, "spec": spec}


async def submit(road: Road, *, kind: str = "ClusterTrainingRuntime", runtime: str = "torch", **spec: Any) -> Object:
    """A job that its user does not suspend."""
    made: Object = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"runtimeRef": {"name": runtime, "kind": kind}, **spec},
    }
    return await road.cluster.request("POST", trainjobs(road.namespace), made)


@pytest.mark.proves("TrainJob", "queueing")
@pytest.mark.proves("TrainJob", "start with topology")
@pytest.mark.proves("TrainJob", "ranks")
@pytest.mark.proves("TrainJob", "pods ready")
@pytest.mark.proves("TrainJob", "finished")
@pytest.mark.proves("TrainJob", "child jobs")
async def test_a_trainjob_starts_whole_in_one_rack_and_ends(either_plane: Plane, tmp_path: Path) -> None:
    """Its nodes have hosts in the order of their index; neither its JobSet nor the Job below is queued by itself."""
    async with world(either_plane, tmp_path) as (road, refused):
        await road.cluster.apply(runtime(2), RUNTIMES)
        await submit(road, trainer={"numNodes": 4})
        await road.until_workload("train", "PodsReady")
        pods = (await road.cluster.get(road.pods))["items"]
        workloads = (await road.cluster.get(road.workloads))["items"]
        await road.until_workload("train", "Finished", reason="Succeeded")
        nodes = {n["metadata"]["name"]: n for n in (await road.cluster.get("/api/v1/nodes"))["items"]}

    (workload,) = workloads
    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("node", 4)]
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    assert len(pods) == 4
    assert len({nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][RACK_LABEL] for pod in pods}) == 1
    pods.sort(key=lambda pod: int(pod["metadata"]["labels"][INDEX]))
    hosts = [nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][HOST] for pod in pods]
    assert hosts == sorted(hosts)
    assert refused == []


@pytest.mark.proves("TrainJob", "stop and restore")
@pytest.mark.proves("TrainJob", "eviction and requeue")
@pytest.mark.proves("TrainJob", "webhook defaults")
async def test_a_trainjob_is_stopped_restored_and_started_again(either_plane: Plane, tmp_path: Path) -> None:
    """A drained queue stops it; kqueue's patches are gone after its pods, and those of its user stay.  A runtime
    that was changed meanwhile stops nothing, and counts from the next start on.
    """
    labelled = {"name": "node", "template": {"spec": {"template": {"metadata": {"labels": {"app": "train"}}}}}}
    mine = {"template": {"spec": {"replicatedJobs": [labelled]}}}
    async with world(either_plane, tmp_path) as (road, refused):
        await road.cluster.apply(runtime(600, nodes=3), RUNTIMES)
        made = await submit(road, runtimePatches=[{"manager": "me", "trainingRuntimeSpec": mine}])
        path = f"{trainjobs(road.namespace)}/train"
        await road.until_workload("train", "PodsReady")
        started = await road.cluster.get(path)
        pods = (await road.cluster.get(f"{road.pods}?labelSelector=app=train"))["items"]
        larger = {"spec": {"mlPolicy": {"numNodes": 4}}}
        await road.cluster.request("PATCH", f"{RUNTIMES}/torch", larger, content_type=MERGE_PATCH)
        await road.cluster.request("PATCH", QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}}, content_type=MERGE_PATCH)
        await road.until_workload("train", "QuotaReserved", status="False")
        stopped = await road.cluster.get(path)
        left = (await road.cluster.get(road.pods))["items"]
        await road.cluster.request("PATCH", QUEUE, {"spec": {"stopPolicy": "None"}}, content_type=MERGE_PATCH)
        await road.until_workload("train", "Admitted")
        again = await road.workload_of("train")
        events = (await road.cluster.get(f"/api/v1/namespaces/{road.namespace}/events"))["items"]

    assert made["spec"]["suspend"] is True
    assert [entry["manager"] for entry in made["spec"]["runtimePatches"]] == ["me", MANAGER]
    ours = started["spec"]["runtimePatches"][1]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert ours[0]["template"]["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert "kqueue.dev/starting" not in started["metadata"].get("annotations", {})
    assert len(pods) == 3
    assert stopped["spec"] == made["spec"]
    assert left == []
    assert [pod_set["count"] for pod_set in again["spec"]["podSets"]] == [4]
    assert not [event for event in events if "no Workload matches" in event["message"]]
    assert refused == []


@pytest.mark.proves("TrainJob", "webhook validation")
@pytest.mark.proves("TrainJob", "scale")
async def test_a_waiting_trainjob_follows_its_runtime(either_plane: Plane, tmp_path: Path) -> None:
    """Without a runtime it is refused; a waiting job asks for what its runtime says now, waits outside the queue while
    the runtime is gone, and comes back with it.
    """
    async with world(either_plane, tmp_path) as (road, _):
        here = f"{API}/namespaces/{road.namespace}/trainingruntimes"
        with pytest.raises(RequestError, match=r"spec\.runtimeRef\.name: there is no TrainingRuntime"):
            await submit(road, kind="TrainingRuntime", runtime="missing")
        await road.cluster.request("PATCH", QUEUE, {"spec": {"stopPolicy": "Hold"}}, content_type=MERGE_PATCH)
        await road.cluster.request("POST", here, runtime(600, nodes=2, kind="TrainingRuntime"))
        await submit(road, kind="TrainingRuntime")
        await _until_counts(road, [2])
        change = {"spec": {"mlPolicy": {"numNodes": 5}}}
        await road.cluster.request("PATCH", f"{here}/torch", change, content_type=MERGE_PATCH)
        await _until_counts(road, [5])
        await road.cluster.request("DELETE", f"{here}/torch")
        await _until_counts(road, [])
        await road.cluster.request("POST", here, runtime(600, nodes=3, kind="TrainingRuntime"))
        await _until_counts(road, [3])
        events = (await road.cluster.get(f"/api/v1/namespaces/{road.namespace}/events"))["items"]

    told = [event["message"] for event in events if event["reason"] == "InvalidJob"]
    assert told
    assert "spec.runtimeRef.name: there is no TrainingRuntime" in told[0]


async def _until_counts(road: Road, counts: list[int]) -> None:
    """Wait until there is one Workload with these pods, or none."""

    def reached(listed: Object) -> bool:
        return [p["count"] for w in listed["items"] for p in w["spec"]["podSets"]] == counts

    await road.cluster.until(road.workloads, reached, what=f"Workloads of {counts} pods")
