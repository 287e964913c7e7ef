"""Training jobs of Kubeflow and MPIJobs go the whole road, on both control planes; doubles play their controllers."""

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
from tests.integration.road import HOST, KUEUE, Object, Road, make_road
from tests.integration.training_double import KINDS, SPECS, training_runs

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [batch/job, {frameworks}]}}
"""
PAIRS = {"PyTorchJob": ("Master", "Worker"), "MPIJob": ("Launcher", "Worker")}
QUEUE = f"{KUEUE}/clusterqueues/team"


@asynccontextmanager
async def world(plane: Plane, folder: Path, *kinds: str) -> AsyncIterator[Road]:
    """Nodes, a tenant, the definitions of kinds, their controllers, and kqueue with its webhooks."""
    road = await make_road(plane.cluster)
    await define(plane.cluster, folder, [KINDS[kind] for kind in kinds])
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    frameworks = ", ".join(KINDS[kind].framework for kind in kinds)
    config = parse(CONFIGURATION.format(frameworks=frameworks), source="test", own_namespace="kqueue-system")
    async with running(config, flags) as process, training_runs(plane.cluster, kinds):
        await process.operator.ready.wait()
        yield road


def replicas(number: int, run_seconds: int, *, gpus: int = 8) -> Object:
    """Pods of one type, in one rack."""
    amounts = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": amounts, "limits": amounts}}
    annotations = {
        "sandbox.kqueue.dev/run-seconds": str(run_seconds),
        "kueue.x-k8s.io/podset-required-topology": RACK_LABEL,
    }
    template = {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"replicas": number, "template": template}


async def submit(road: Road, kind: str, name: str, types: Object, *, queue: str = "main") -> Object:
    """A job that its user does not suspend."""
    made: Object = {
        "apiVersion": f"kubeflow.org/{KINDS[kind].version}",
        "kind": kind,
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {}},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, SPECS[kind][0]: types},
    }
    return await road.cluster.request("POST", collection(KINDS[kind], road.namespace), made)


def labels_of(pod: Object) -> dict[str, Any]:
    found: dict[str, Any] = pod["metadata"]["labels"]
    return found


@pytest.mark.proves("Training job", "queueing")
@pytest.mark.proves("Training job", "start with topology")
@pytest.mark.proves("Training job", "ranks")
@pytest.mark.proves("Training job", "pods ready")
@pytest.mark.proves("Training job", "finished")
@pytest.mark.proves("Training job", "child jobs")
@pytest.mark.parametrize("kind", PAIRS)
async def test_a_training_job_starts_whole_in_its_racks_and_ends(
    either_plane: Plane, tmp_path: Path, kind: str
) -> None:
    """One Workload with a pod set for each type, whose pods have hosts in the order of their index; the launcher of an
    MPIJob, which is a Job, is not queued by itself.
    """
    first, second = PAIRS[kind]
    async with world(either_plane, tmp_path, kind) as road:
        await submit(road, kind, "train", {first: replicas(1, 4, gpus=1), second: replicas(4, 4)})
        await road.until_workload("train", "PodsReady")
        pods = (await road.cluster.get(road.pods))["items"]
        workloads = (await road.cluster.get(road.workloads))["items"]
        await road.until_workload("train", "Finished", reason="Succeeded")
        nodes = {n["metadata"]["name"]: n for n in (await road.cluster.get("/api/v1/nodes"))["items"]}

    (workload,) = workloads
    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [(first.lower(), 1), (second.lower(), 4)]
    workers = [pod for pod in pods if labels_of(pod)["kueue.x-k8s.io/podset"] == second.lower()]
    assert len(workers) == 4
    assert len({nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][RACK_LABEL] for pod in workers}) == 1
    workers.sort(key=lambda pod: int(labels_of(pod)["training.kubeflow.org/replica-index"]))
    hosts = [nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][HOST] for pod in workers]
    assert hosts == sorted(hosts)


@pytest.mark.proves("Training job", "stop and restore")
@pytest.mark.proves("Training job", "eviction and requeue")
@pytest.mark.parametrize("kind", PAIRS)
async def test_a_training_job_is_stopped_restored_and_started_again(
    either_plane: Plane, tmp_path: Path, kind: str
) -> None:
    """A drained queue stops it, its templates are what its user wrote; without the drain it runs again."""
    first, second = PAIRS[kind]
    async with world(either_plane, tmp_path, kind) as road:
        types = {first: replicas(1, 600, gpus=1), second: replicas(3, 600)}
        await submit(road, kind, "train", types)
        path = f"{collection(KINDS[kind], road.namespace)}/train"
        await road.until_workload("train", "PodsReady")
        started = await road.cluster.get(path)
        await road.cluster.request("PATCH", QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}}, content_type=MERGE_PATCH)
        await road.until_workload("train", "QuotaReserved", status="False")
        await road.cluster.until(road.pods, lambda found: not found["items"], what="no pod is left")
        stopped = await road.cluster.get(path)
        await road.cluster.request("PATCH", QUEUE, {"spec": {"stopPolicy": "None"}}, content_type=MERGE_PATCH)
        await road.until_workload("train", "PodsReady")

    field = SPECS[kind][0]
    running_worker = started["spec"][field][second]["template"]
    assert running_worker["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert stopped["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "suspend": True}
    assert stopped["spec"][field] == types


@pytest.mark.proves("Training job", "webhook defaults")
@pytest.mark.proves("Training job", "webhook validation")
async def test_webhooks_suspend_and_refuse_training_jobs(either_plane: Plane, tmp_path: Path) -> None:
    async with world(either_plane, tmp_path, "PyTorchJob") as road:
        queued = await submit(road, "PyTorchJob", "queued", {"Worker": replicas(1, 600)})
        free = await submit(road, "PyTorchJob", "free", {"Worker": replicas(1, 600)}, queue="")
        wrong = replicas(1, 600)
        wrong["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] = RACK_LABEL
        with pytest.raises(RequestError, match=r"pytorchReplicaSpecs\.Worker\.template\.metadata\.annotations"):
            await submit(road, "PyTorchJob", "wrong", {"Worker": wrong})
        with pytest.raises(RequestError, match="Helper"):
            await submit(road, "PyTorchJob", "unknown", {"Helper": replicas(1, 600)})

    assert queued["spec"]["runPolicy"]["suspend"] is True
    assert "suspend" not in free["spec"]["runPolicy"]


async def test_all_kinds_of_training_jobs_run(sandbox_plane: Plane, tmp_path: Path) -> None:
    """Beside each other, with the last replica type of each."""
    async with world(sandbox_plane, tmp_path, *KINDS) as road:
        for kind in KINDS:
            types = {name: replicas(1, 2, gpus=1) for name in SPECS[kind][1]}
            await submit(road, kind, kind.lower(), types)
        for kind in KINDS:
            await road.until_workload(kind.lower(), "Finished", reason="Succeeded")
            workload = await road.workload_of(kind.lower())
            assert [p["name"] for p in workload["spec"]["podSets"]] == [name.lower() for name in SPECS[kind][1]]
