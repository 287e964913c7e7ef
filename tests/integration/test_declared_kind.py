"""A kind that is only declared in the configuration file goes the whole road, on both control planes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.config import Configuration, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.declared_double import CRD, DECLARED, GROUP, define, trains_run
from tests.integration.road import KUEUE, Road, condition, job, make_road
from tests.readings import failing

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Object = dict[str, Any]
Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology"})


def flags(plane: Plane) -> Flags:
    return Flags(kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0")


def configuration(**integrations: Any) -> Configuration:
    return parse(
        yaml.safe_dump(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "leaderElection": {"leaderElect": False},
                "integrations": integrations or {"declaredKinds": [DECLARED]},
            }
        ),
        source="test",
    )


def wagon(name: str, count: int, run_seconds: int) -> Object:
    """Pods that take a whole node's GPUs each, in one rack."""
    amounts = {"cpu": "1", "nvidia.com/gpu": "8"}
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": amounts, "limits": amounts}}
    annotations = {
        "sandbox.kqueue.dev/run-seconds": str(run_seconds),
        "kueue.x-k8s.io/podset-required-topology": RACK_LABEL,
    }
    template = {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"name": name, "count": count, "template": template}


async def submit(
    road: Road,
    name: str,
    *wagons: Object,
    hold: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    train = {
        "apiVersion": "trains.example.com/v1",
        "kind": "Train",
        "metadata": {
            "name": name,
            "namespace": road.namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "main", **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {"hold": hold, "wagons": list(wagons)},
    }
    return await road.cluster.request("POST", f"{GROUP}/namespaces/{road.namespace}/trains", train)


@pytest.mark.proves("declared kind", "start with topology")
@pytest.mark.proves("declared kind", "finished")
@pytest.mark.proves("declared kind", "pods ready")
async def test_a_declared_kind_starts_whole_and_ends(either_plane: Plane, tmp_path: Path) -> None:
    """Queued, admitted, each pod set in one rack; ready; its end is the end of its Workload."""
    road = await make_road(either_plane.cluster)
    await define(road.cluster, tmp_path)
    async with running(configuration(), flags(either_plane)), trains_run(road.cluster):
        await submit(road, "ice", wagon("first", 2, 3), wagon("second", 4, 3))
        await road.until_workload("ice", "PodsReady")
        pods = (await road.cluster.get(road.pods))["items"]
        finished = await road.until_workload("ice", "Finished", reason="Succeeded")
        nodes = {n["metadata"]["name"]: n for n in (await road.cluster.get("/api/v1/nodes"))["items"]}

    assert finished["message"] == "on time"
    assert len(pods) == 6
    for name in ("first", "second"):
        of_it = [p for p in pods if p["metadata"]["labels"]["kueue.x-k8s.io/podset"] == name]
        assert len({nodes[p["spec"]["nodeName"]]["metadata"]["labels"][RACK_LABEL] for p in of_it}) == 1


@pytest.mark.proves("declared kind", "eviction and requeue")
@pytest.mark.proves("declared kind", "stop and restore")
async def test_a_declared_kind_is_stopped_restored_and_started_again(either_plane: Plane, tmp_path: Path) -> None:
    """A drained queue holds it, its templates are what its user wrote; without the drain it runs again."""
    road = await make_road(either_plane.cluster)
    await define(road.cluster, tmp_path)
    queue = f"{KUEUE}/clusterqueues/team"
    async with running(configuration(), flags(either_plane)), trains_run(road.cluster):
        train = await submit(road, "ice", wagon("all", 4, 600))
        path = f"{GROUP}/namespaces/{road.namespace}/trains/ice"
        await road.until_workload("ice", "PodsReady")
        await _patch(road, queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await road.until_workload("ice", "QuotaReserved", status="False")
        pods = (await road.cluster.get(road.pods))["items"]
        stopped = await road.cluster.get(path)
        await _patch(road, queue, {"spec": {"stopPolicy": "None"}})
        await road.cluster.until(path, lambda t: not t["spec"]["hold"], what="a train that goes on")
        again = await road.until_workload("ice", "Admitted")

    assert [p for p in pods if p["status"].get("phase") not in ("Succeeded", "Failed")] == []
    assert stopped["spec"] == train["spec"]
    assert again["status"] == "True"


async def test_a_declared_kind_that_cannot_be_read_is_told_so(either_plane: Plane, tmp_path: Path) -> None:
    """An event on the object names the mistake; others go on."""
    road = await make_road(either_plane.cluster)
    await define(road.cluster, tmp_path)
    async with running(configuration(), flags(either_plane)), trains_run(road.cluster):
        await submit(road, "broken", wagon("UPPER CASE", 1, 1))
        await submit(road, "ice", wagon("all", 1, 1))
        await road.until_workload("ice", "Finished")
        told = await road.cluster.until(
            f"/apis/events.k8s.io/v1/namespaces/{road.namespace}/events",
            lambda listed: any(e["reason"] == "InvalidJob" for e in listed["items"]),
            what="an event about the broken one",
        )

    event = next(e for e in told["items"] if e["reason"] == "InvalidJob")
    assert (event["regarding"]["name"], event["type"]) == ("broken", "Warning")
    assert "spec.wagons[0].template (name)" in event["note"]
    assert condition(await road.workload_of("ice"), "Finished")["reason"] == "Succeeded"


@pytest.mark.proves("declared kind", "webhook defaults")
@pytest.mark.proves("declared kind", "webhook validation")
async def test_a_declared_kind_is_reviewed(either_plane: Plane, tmp_path: Path) -> None:
    """It is held where it is created, and one that could never be queued is refused with the path of the mistake."""
    road = await make_road(either_plane.cluster)
    await define(road.cluster, tmp_path)
    await _patch(road, f"{KUEUE}/clusterqueues/team", {"spec": {"stopPolicy": "Hold"}})
    with_webhooks = dataclasses.replace(
        flags(either_plane),
        parts=PARTS | {"webhooks"},
        webhook_host="127.0.0.1",
        webhook_port=0,
        webhook_url="https://127.0.0.1:{port}",
    )
    async with running(configuration(), with_webhooks) as process, trains_run(road.cluster):
        await process.operator.ready.wait()
        held = await submit(road, "ice", wagon("all", 2, 600), hold=False)
        with pytest.raises(RequestError) as refused:
            await submit(road, "broken", wagon("all", -1, 600))

    assert held["spec"]["hold"] is True
    assert "spec.wagons[0].template: needs 0 to" in str(refused.value)


async def _patch(road: Road, path: str, change: Object) -> None:
    await road.cluster.request("PATCH", path, change, content_type=MERGE_PATCH)


@pytest.mark.proves("declared kind", "queueing")
async def test_a_kind_that_is_defined_later_is_queued_from_then_on(either_plane: Plane, tmp_path: Path) -> None:
    """Without its definition the process is ready and other kinds run; with it, without a restart, so does this one."""

    def late(obj: Object) -> Object:
        return dict(json.loads(json.dumps(obj).replace("trains.example.com", "late.example.com")))

    road = await make_road(either_plane.cluster)
    kinds = {"frameworks": ["batch/job"], "declaredKinds": [late(DECLARED)]}
    train = {
        "apiVersion": "late.example.com/v1",
        "kind": "Train",
        "metadata": {"name": "ice", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"hold": True, "wagons": [wagon("first", 2, 3)]},
    }
    (tmp_path / "late.yaml").write_text(yaml.safe_dump(late(CRD)))
    async with running(configuration(**kinds), flags(either_plane)) as process:
        await asyncio.wait_for(process.operator.ready.wait(), 30)
        checks = failing(process.operator.checks)
        await road.submit("job", pods=2)
        await road.until_complete("job")
        await road.cluster.apply_crds(tmp_path)
        await road.cluster.request("POST", f"/apis/late.example.com/v1/namespaces/{road.namespace}/trains", train)
        admitted = await road.until_workload("ice", "Admitted")

    assert checks == {}
    assert admitted["reason"] == "Admitted"


@pytest.mark.proves("declared kind", "priority class")
async def test_a_declared_kind_makes_room_for_a_more_important_one(either_plane: Plane, tmp_path: Path) -> None:
    """By the class of its label; its quota goes with its last pod."""
    road = await make_road(either_plane.cluster, gpus=16)
    await define(road.cluster, tmp_path)
    for name, value in (("low", 1), ("high", 100)):
        obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
        await road.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", {**obj, "value": value})
    await _patch(road, f"{KUEUE}/clusterqueues/team", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    async with running(configuration(), flags(either_plane)), trains_run(road.cluster):
        await submit(road, "slow", wagon("all", 2, 600), labels={"kueue.x-k8s.io/priority-class": "low"})
        await road.until_workload("slow", "PodsReady")
        await submit(road, "ice", wagon("all", 2, 3), labels={"kueue.x-k8s.io/priority-class": "high"})
        await road.until_workload("slow", "Evicted", reason="Preempted")
        await road.until_workload("ice", "Finished", reason="Succeeded")
        await road.until_workload("slow", "Admitted")


@pytest.mark.proves("declared kind", "prebuilt workload")
@pytest.mark.proves("declared kind", "maximum execution time")
async def test_a_declared_kind_runs_for_as_long_as_its_prebuilt_workload_says(
    either_plane: Plane, tmp_path: Path
) -> None:
    """It takes the Workload over that was made for it, and is stopped when its time is over."""
    road = await make_road(either_plane.cluster)
    await define(road.cluster, tmp_path)
    prebuilt = {"kueue.x-k8s.io/prebuilt-workload-name": "made"}
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": "3"}
    async with running(configuration(), flags(either_plane)), trains_run(road.cluster):
        one = wagon("all", 2, 600)
        await submit(road, "ice", one, labels=limit, annotations=prebuilt)
        made = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": "made", "namespace": road.namespace},
            "spec": {
                "queueName": "main",
                "maximumExecutionTimeSeconds": 3,
                "podSets": [{"name": "all", "count": 2, "template": one["template"]}],
            },
        }
        await road.cluster.request("POST", road.workloads, made)
        await road.until_workload("ice", "Admitted")
        await road.until_workload("ice", "Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
        await road.until_workload("ice", "QuotaReserved", status="False")
        train = await road.cluster.get(f"{GROUP}/namespaces/{road.namespace}/trains/ice")
        workload = await road.workload_of("ice")

    assert train["spec"]["hold"] is True
    assert workload["metadata"]["name"] == "made"


@pytest.mark.proves("declared kind", "child jobs")
async def test_a_job_of_a_declared_kind_waits_for_it(either_plane: Plane, tmp_path: Path) -> None:
    """It belongs to what is queued, so it is not queued itself; started too early it is suspended."""
    road = await make_road(either_plane.cluster)
    await define(road.cluster, tmp_path)
    queue = f"{KUEUE}/clusterqueues/team"
    await _patch(road, queue, {"spec": {"stopPolicy": "Hold"}})
    async with running(configuration(), flags(either_plane)), trains_run(road.cluster):
        train = await submit(road, "ice", wagon("all", 1, 600))
        child = job("child", road.namespace, pods=1, required=None)
        reference = {key: train[key] for key in ("apiVersion", "kind")} | {"name": "ice", "controller": True}
        child["metadata"]["ownerReferences"] = [{**reference, "uid": train["metadata"]["uid"]}]
        child["spec"]["suspend"] = False
        await road.cluster.request("POST", road.jobs, child)
        await road.cluster.until(f"{road.jobs}/child", lambda j: j["spec"]["suspend"], what="a suspended child")
        await _patch(road, queue, {"spec": {"stopPolicy": "None"}})
        await road.until_workload("ice", "PodsReady")
        await _patch(road, f"{road.jobs}/child", {"spec": {"suspend": False}})
        await road.until_complete("child")
        workloads = (await road.cluster.get(road.workloads))["items"]

    assert [w["metadata"]["ownerReferences"][0]["name"] for w in workloads] == ["ice"]
