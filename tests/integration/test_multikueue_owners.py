"""Owners of pods that another cluster runs: LeaderWorkerSets, StatefulSets and Deployments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.doubles import collection
from tests.integration.lws_double import ROW, sets_run
from tests.integration.road import Object, Road, has
from tests.integration.teams import Plane
from tests.integration.test_multikueue import GATES, two_clusters, until_empty

pytestmark = pytest.mark.slow

PREFIX = "kueue.x-k8s.io/"
FRAMEWORKS = f"integrations: {{frameworks: [pod, deployment, statefulset, {ROW.framework}]}}\n"
MANAGER = f"""{FRAMEWORKS}
admissionChecks: {{controllers: [kueue.x-k8s.io/multikueue]}}
multiKueue: {{origin: west, workerLostTimeout: 2s}}
"""
SET = ROW.framework


def template_of(name: str, parent: str) -> Object:
    """A pod template as the webhook leaves it."""
    amounts = {"cpu": "1", "nvidia.com/gpu": "1"}
    marks = {f"{PREFIX}pod-suspending-parent": parent, f"{PREFIX}role-hash": "main"}
    labels = {"app": name, f"{PREFIX}managed": "true", f"{PREFIX}queue-name": "main"}
    container = {"name": "c", "image": "example.com/i:1", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"containers": [container], "schedulingGates": GATES, "terminationGracePeriodSeconds": 1}
    return {"metadata": {"labels": labels, "annotations": marks}, "spec": spec}


async def create(road: Road, kind: str, name: str, *, framework: str, replicas: int) -> str:
    """An owner of pods with a queue; returns its path."""
    template = template_of(name, framework)
    spec: Object = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    api, folder = "apps/v1", f"/apis/apps/v1/namespaces/{road.namespace}/{kind.lower()}s"
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    if framework == SET:
        api, folder = f"{ROW.group}/{ROW.version}", collection(ROW, road.namespace)
        spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    labels = {f"{PREFIX}queue-name": "main"}
    body = {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}
    await road.cluster.request("POST", folder, body)
    return f"{folder}/{name}"


async def until_running(road: Road, name: str, number: int) -> list[Object]:
    """Wait until just so many pods of an owner run."""

    def reached(listed: Object) -> bool:
        pods = [p for p in listed["items"] if p["metadata"]["labels"].get("app") == name]
        return [has(p, "Ready") for p in pods] == [True] * number

    found = await road.cluster.until(road.pods, reached, what=f"{number} pods of {name} run")
    return [p for p in found["items"] if p["metadata"]["labels"].get("app") == name]


async def until_ready(road: Road, number: int) -> list[Object]:
    """Wait until just so many Workloads are ready; returns them."""
    found = await road.cluster.until(
        road.workloads,
        lambda listed: [has(w, "PodsReady") for w in listed["items"]] == [True] * number,
        what=f"{number} workloads are ready",
    )
    items: list[Object] = found["items"]
    return items


async def story(plane: Plane, folder: Path) -> dict[str, Any]:
    """A LeaderWorkerSet and a StatefulSet run on the worker, one is scaled, and all are deleted."""
    told: dict[str, Any] = {}
    own = folder / "own"
    own.mkdir()
    async with (
        sets_run(plane.cluster, own),
        two_clusters(plane, folder, manager=MANAGER, worker=FRAMEWORKS, kinds=sets_run) as (road, worker, _),
    ):
        paths = [
            await create(road, "LeaderWorkerSet", "lead", framework=SET, replicas=2),
            await create(road, "StatefulSet", "db", framework="statefulset", replicas=2),
            await create(road, "Deployment", "web", framework="deployment", replicas=1),
        ]
        await until_running(worker, "lead", 4)
        await until_running(worker, "db", 2)
        await until_running(worker, "web", 1)
        told["workloads"] = await until_ready(road, 4)
        told["here"] = (await road.cluster.get(road.pods))["items"]
        told["copy"] = await worker.cluster.get(paths[0])
        change = {"spec": {"replicas": 1}}
        await road.cluster.request("PATCH", paths[0], change, content_type=MERGE_PATCH)
        await until_running(worker, "lead", 2)
        await until_ready(road, 3)
        told["web"] = await road.cluster.until(
            paths[2], lambda found: found["status"].get("readyReplicas") == 1, what="the Deployment counts its pod"
        )
        for path in paths:
            await road.cluster.request("DELETE", path, {"propagationPolicy": "Background"})
        await until_empty(worker)
    return told


def judge(told: dict[str, Any]) -> None:
    """All went to one cluster, and nothing ran here."""
    assert {w["status"]["clusterName"] for w in told["workloads"]} == {"west"}
    assert told["here"]
    assert not [p for p in told["here"] if p["spec"].get("nodeName") or not p["spec"].get("schedulingGates")]
    assert told["copy"]["metadata"]["labels"][f"{PREFIX}multikueue-origin"] == "west"


async def test_owners_of_pods_run_on_a_worker(sandbox_plane: Plane, tmp_path: Path) -> None:
    """Each group of a LeaderWorkerSet, a StatefulSet, and the pod of a Deployment, whose status comes back."""
    judge(await story(sandbox_plane, tmp_path))


@pytest.mark.seldom
@pytest.mark.controlplane
async def test_owners_of_pods_run_on_a_worker_of_a_real_manager(plane: ControlPlane, tmp_path: Path) -> None:
    """The same with the controllers of Kubernetes on the manager."""
    judge(await story(plane, tmp_path))
