"""The life of a batch Job on both control planes: fewer pods, suspend races, eviction, prebuilt Workloads, priority,
labels that go, requests that nobody can meet.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from kqueue.config import Configuration, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Road, condition, has, job, make_road, shown

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Object = dict[str, Any]
Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology"})
QUEUE = f"{KUEUE}/clusterqueues/team"
LABEL, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
STOP_SECONDS = 4
_OF_THE_CONTROLLER = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)


def flags(plane: Plane) -> Flags:
    return Flags(kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0")


def configuration(more: str = "") -> Configuration:
    return parse(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nleaderElection: {leaderElect: false}\n" + more,
        source="test",
    )


async def _patch(road: Road, path: str, change: Object) -> Object:
    return await road.cluster.request("PATCH", path, change, content_type=MERGE_PATCH)


def _written(spec: Object) -> Object:
    """A Job's spec without what its controller puts into it."""
    template = spec["template"]
    labels = {k: v for k, v in template["metadata"].get("labels", {}).items() if k not in _OF_THE_CONTROLLER}
    metadata = {k: v for k, v in template["metadata"].items() if v not in (None, {})}
    return {**spec, "template": {**template, "metadata": {**metadata, "labels": labels}}}


async def _submit(road: Road, name: str, *, annotations: dict[str, str] | None = None, **settings: Any) -> Object:
    """A Job whose pods may stand anywhere."""
    labels = settings.pop("labels", {})
    spec = settings.pop("spec", {})
    obj = job(name, road.namespace, required=None, **settings)
    obj["metadata"]["annotations"] = annotations or {}
    obj["metadata"]["labels"] |= labels
    obj["spec"] |= spec
    return await road.cluster.request("POST", road.jobs, obj)


async def _until_running(road: Road, name: str, pods: int) -> list[Object]:
    def found(listed: Object) -> list[Object]:
        return [
            p
            for p in listed["items"]
            if p["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == name
            and p["status"].get("phase") == "Running"
            and not p["metadata"].get("deletionTimestamp")
        ]

    listed = await road.cluster.until(road.pods, lambda got: len(found(got)) == pods, what=f"{pods} pods of {name}")
    return found(listed)


async def _until_told(road: Road, name: str, reason: str) -> Object:
    """An event about the Job."""

    def found(listed: Object) -> list[Object]:
        return [e for e in listed["items"] if e["regarding"]["name"] == name and e["reason"] == reason]

    path = f"/apis/events.k8s.io/v1/namespaces/{road.namespace}/events"
    return found(await road.cluster.until(path, lambda got: bool(found(got)), what=f"{reason} about {name}"))[0]


@pytest.mark.proves("Job", "partial admission")
@pytest.mark.proves("Job", "stop and restore")
async def test_a_job_starts_with_fewer_pods_and_gets_its_numbers_back(either_plane: Plane) -> None:
    """Of 6 pods 2 may do, 3 fit.  Its parallelism is above its completions, and comes back as it was written."""
    road = await make_road(either_plane.cluster, gpus=24)
    async with running(configuration(), flags(either_plane)):
        before = await _submit(
            road,
            "gang",
            pods=6,
            run_seconds=600,
            annotations={"kueue.x-k8s.io/job-min-parallelism": "2"},
            spec={"parallelism": 9},
        )
        await _until_running(road, "gang", 3)
        started = await road.cluster.get(f"{road.jobs}/gang")
        await _patch(road, QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await road.until_workload("gang", "QuotaReserved", status="False")
        stopped = await road.cluster.get(f"{road.jobs}/gang")

    assert started["spec"]["parallelism"] == 3
    assert _written(stopped["spec"]) == _written(before["spec"]), shown(stopped)
    assert stopped["metadata"]["annotations"] == before["metadata"]["annotations"]


RESERVED = {
    "kueue.x-k8s.io/workload-slice-name": "anything",
    "kueue.x-k8s.io/topology-workload": "anything",
    "kueue.x-k8s.io/topology-podset": "anything",
}
"""Annotations that only kqueue may write on pods, with values that lead nowhere."""


async def test_a_template_with_names_of_kqueue_runs_and_is_given_back(either_plane: Plane) -> None:
    """Without the webhooks too: the start takes the names out, the stop restores what the user wrote."""
    road = await make_road(either_plane.cluster)
    gates = [{"name": f"kueue.x-k8s.io/{name}"} for name in ("admission", "topology", "elastic-job")]
    obj = job("gang", road.namespace, pods=2, run_seconds=600)
    obj["spec"]["template"]["metadata"]["annotations"] |= RESERVED
    obj["spec"]["template"]["spec"]["schedulingGates"] = gates
    async with running(configuration(), flags(either_plane)):
        before = await road.cluster.request("POST", road.jobs, obj)
        pods = await _until_running(road, "gang", 2)
        await _patch(road, QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await road.until_workload("gang", "QuotaReserved", status="False")
        stopped = await road.cluster.get(f"{road.jobs}/gang")

    assert all(RESERVED.keys().isdisjoint(pod["metadata"]["annotations"]) for pod in pods)
    assert _written(stopped["spec"]) == _written(before["spec"]), shown(stopped)


@pytest.mark.proves("Job", "eviction and requeue")
async def test_an_eviction_costs_no_try_of_the_back_off_limit(either_plane: Plane) -> None:
    """With a limit of 0 a Job is evicted, runs again and completes: pods that our stop deleted have not failed."""
    road = await make_road(either_plane.cluster)
    async with running(configuration(), flags(either_plane)):
        await _submit(road, "gang", pods=3, run_seconds=5, spec={"backoffLimit": 0})
        await _until_running(road, "gang", 3)
        await _patch(road, QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await road.until_workload("gang", "QuotaReserved", status="False")
        await _patch(road, QUEUE, {"spec": {"stopPolicy": "None"}})
        await road.until_complete("gang")
        finished = await road.until_workload("gang", "Finished")
        done = await road.cluster.get(f"{road.jobs}/gang")

    assert finished["reason"] == "Succeeded"
    assert done["status"].get("failed", 0) == 0


@pytest.mark.proves("Job", "eviction and requeue")
async def test_quota_is_not_given_away_while_pods_are_ending(either_plane: Plane) -> None:
    """A Job that preempts waits until the last pod of its victim is gone, however long that takes."""
    road = await make_road(either_plane.cluster, gpus=16)
    for name, value in (("low", 1), ("high", 100)):
        obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
        await road.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", {**obj, "value": value})
    await _patch(road, QUEUE, {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    async with running(configuration(), flags(either_plane)):
        await _submit(road, "victim", pods=2, labels={PRIORITY: "low"}, spec={"template": _slow(road)})
        await _until_running(road, "victim", 2)
        await _submit(road, "urgent", pods=2, run_seconds=600, labels={PRIORITY: "high"})
        await road.cluster.until(
            f"{road.jobs}/victim",
            lambda j: j["spec"]["suspend"] and not j["status"].get("active") and j["status"].get("terminating") == 2,
            what="a victim whose pods are ending",
        )
        ending = (await road.cluster.get(road.pods))["items"]
        waiting = await road.workload_of("urgent")
        victim = await road.workload_of("victim")
        admitted = await road.until_workload("urgent", "Admitted")

    assert not has(waiting, "Admitted")
    assert (has(victim, "Evicted"), has(victim, "QuotaReserved")) == (True, True)
    assert datetime.fromisoformat(admitted["lastTransitionTime"]) >= _ended(ending)


@pytest.mark.proves("Job", "queueing")
async def test_a_job_that_is_started_by_hand_is_stopped_and_goes_the_usual_way(either_plane: Plane) -> None:
    """Nothing runs without admission; the story is told on the Job."""
    road = await make_road(either_plane.cluster)
    await _patch(road, QUEUE, {"spec": {"stopPolicy": "Hold"}})
    async with running(configuration(), flags(either_plane)):
        await _submit(road, "gang", pods=2)
        await _until_told(road, "gang", "CreatedWorkload")
        await _patch(road, f"{road.jobs}/gang", {"spec": {"suspend": False}})
        await _until_told(road, "gang", "Stopped")
        held = await road.cluster.until(
            f"{road.jobs}/gang",
            lambda j: j["spec"]["suspend"] and "kueue.x-k8s.io/stopping" not in j["metadata"].get("annotations", {}),
            what="a Job that is stopped again",
        )
        await _patch(road, QUEUE, {"spec": {"stopPolicy": "None"}})
        await road.until_complete("gang")
        for reason in ("Started", "FinishedWorkload"):
            await _until_told(road, "gang", reason)

    assert "startTime" not in held["status"]


@pytest.mark.proves("Job", "prebuilt workload")
async def test_a_job_runs_with_a_workload_that_was_made_before(either_plane: Plane) -> None:
    """The Job comes first and waits; the Workload comes, is taken over, admitted, and ends with the Job."""
    road = await make_road(either_plane.cluster)
    prebuilt = {"kueue.x-k8s.io/prebuilt-workload-name": "made"}
    async with running(configuration(), flags(either_plane)):
        submitted = await _submit(road, "gang", pods=2, annotations=prebuilt)
        await _until_told(road, "gang", "WorkloadNotFound")
        template = submitted["spec"]["template"]
        pod_set = {"name": "main", "count": 2, "template": {"metadata": template["metadata"], "spec": template["spec"]}}
        made = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": "made", "namespace": road.namespace},
            "spec": {"queueName": "main", "podSets": [pod_set]},
        }
        await road.cluster.request("POST", road.workloads, made)
        await road.until_complete("gang")
        await road.until_workload("gang", "Finished", reason="Succeeded")
        workload = await road.workload_of("gang")

    assert workload["metadata"]["name"] == "made"


@pytest.mark.proves("Job", "priority class")
async def test_a_running_job_that_loses_its_rank_may_be_preempted(either_plane: Plane) -> None:
    """Another class by label reaches the Workload of a running Job, and who waits takes its place."""
    road = await make_road(either_plane.cluster, gpus=16)
    for name, value in (("low", 1), ("middle", 50), ("high", 100)):
        obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
        await road.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", {**obj, "value": value})
    await _patch(road, QUEUE, {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    async with running(configuration(), flags(either_plane)):
        await _submit(road, "first", pods=2, run_seconds=600, labels={PRIORITY: "high"})
        await _until_running(road, "first", 2)
        await _submit(road, "second", pods=2, run_seconds=600, labels={PRIORITY: "middle"})
        await road.until_workload("second", "QuotaReserved", status="False")
        await _patch(road, f"{road.jobs}/first", {"metadata": {"labels": {PRIORITY: "low"}}})
        await road.until_workload("second", "Admitted")
        evicted = condition(await road.workload_of("first"), "Preempted")
        first = await road.workload_of("first")
        await _until_told(road, "first", "UpdatedWorkload")

    assert evicted["status"] == "True"
    assert (first["spec"]["priority"], first["spec"]["priorityClassRef"]["name"]) == (1, "low")


async def test_a_running_job_whose_queue_label_is_taken_off_keeps_its_quota_to_its_end(either_plane: Plane) -> None:
    """Past the webhook: whoever comes next waits, until the Job has ended; then nothing of it is left."""
    road = await make_road(either_plane.cluster, gpus=16)
    async with running(configuration(), flags(either_plane)):
        await _submit(road, "first", pods=2, run_seconds=600)
        await _until_running(road, "first", 2)
        await _patch(road, f"{road.jobs}/first", {"metadata": {"labels": {LABEL: None}}})
        await _submit(road, "second", pods=2, run_seconds=600)
        waiting = await road.until_workload("second", "QuotaReserved", status="False")
        still = await road.workload_of("first")
        await road.cluster.request("DELETE", f"{road.jobs}/first?propagationPolicy=Background")
        await road.until_workload("second", "Admitted")

    assert waiting["reason"] == "WaitingForQuota"
    assert has(still, "Admitted")


async def test_a_waiting_job_whose_queue_label_is_taken_off_is_forgotten(either_plane: Plane) -> None:
    """Its Workload goes, so that nothing is ever admitted for it."""
    road = await make_road(either_plane.cluster)
    await _patch(road, QUEUE, {"spec": {"stopPolicy": "Hold"}})
    async with running(configuration(), flags(either_plane)):
        await _submit(road, "gang", pods=2)
        await _until_told(road, "gang", "CreatedWorkload")
        await _patch(road, f"{road.jobs}/gang", {"metadata": {"labels": {LABEL: None}}})
        await road.cluster.until(road.workloads, lambda listed: not listed["items"], what="no Workload")


async def test_enormous_requests_wait_and_hold_nobody_up(either_plane: Plane) -> None:
    """More than any number can say, times more pods than any cluster has: it waits with a reason."""
    road = await make_road(either_plane.cluster)
    async with running(configuration(), flags(either_plane)):
        enormous = job("enormous", road.namespace, pods=2_000_000_000, required=None)
        resources = {"cpu": "9223372036854775807", "nvidia.com/gpu": "9223372036854775807"}
        enormous["spec"]["template"]["spec"]["containers"][0]["resources"] = {
            "requests": resources,
            "limits": resources,
        }
        enormous["spec"].pop("completionMode")
        await road.cluster.request("POST", road.jobs, enormous)
        waiting = await road.until_workload("enormous", "QuotaReserved", status="False")
        await _submit(road, "gang", pods=2)
        await road.until_complete("gang")

    assert waiting["reason"] in ("ExceedsMaxQuota", "WaitingForQuota")


async def test_a_job_that_is_deleted_holds_its_quota_until_its_pods_are_gone(either_plane: Plane) -> None:
    """The Job's object goes at once, its pods take their time."""
    road = await make_road(either_plane.cluster, gpus=16)
    async with running(configuration(), flags(either_plane)):
        await _submit(road, "first", pods=2, spec={"template": _slow(road)})
        await _until_running(road, "first", 2)
        await _submit(road, "second", pods=2, run_seconds=600)
        await road.until_workload("second", "QuotaReserved", status="False")
        await road.cluster.request("DELETE", f"{road.jobs}/first?propagationPolicy=Background")
        listed = await road.cluster.until(
            road.pods, lambda got: all("deletionTimestamp" in p["metadata"] for p in got["items"]), what="ending pods"
        )
        waiting = await road.workload_of("second")
        admitted = await road.until_workload("second", "Admitted")
        await road.cluster.until(road.workloads, lambda got: len(got["items"]) == 1, what="one Workload left")

    assert len(listed["items"]) == 2
    assert not has(waiting, "Admitted")
    assert datetime.fromisoformat(admitted["lastTransitionTime"]) >= _ended(listed["items"])


def _slow(road: Road) -> Object:
    """A template whose pods take their time to end."""
    template: Object = job("x", road.namespace)["spec"]["template"]
    seconds = {"sandbox.kqueue.dev/run-seconds": "600", "sandbox.kqueue.dev/stop-seconds": str(STOP_SECONDS)}
    template["metadata"] = {"annotations": seconds}
    return template


def _ended(pods: list[Object]) -> datetime:
    """When the last of these pods may have ended at the earliest."""

    def asked(pod: Object) -> datetime:
        meta = pod["metadata"]
        grace = timedelta(seconds=meta["deletionGracePeriodSeconds"])
        return datetime.fromisoformat(meta["deletionTimestamp"]) - grace

    return max(asked(pod) for pod in pods) + timedelta(seconds=STOP_SECONDS)


@pytest.mark.proves("Job", "child jobs")
async def test_a_child_runs_only_while_its_parent_is_admitted(either_plane: Plane) -> None:
    """It gets no Workload, though it names a queue; started too early it is suspended, and later it may run."""
    road = await make_road(either_plane.cluster)
    await _patch(road, QUEUE, {"spec": {"stopPolicy": "Hold"}})
    async with running(configuration(), flags(either_plane)):
        parent = await _submit(road, "parent", pods=1, run_seconds=600)
        child = job("child", road.namespace, pods=1, required=None)
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": parent["metadata"]["uid"]}
        child["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        await road.cluster.request("POST", road.jobs, child)
        await _patch(road, f"{road.jobs}/child", {"spec": {"suspend": False}})
        await road.cluster.until(f"{road.jobs}/child", lambda j: j["spec"]["suspend"], what="a child that is stopped")
        await _patch(road, QUEUE, {"spec": {"stopPolicy": "None"}})
        await _until_running(road, "parent", 1)
        await _patch(road, f"{road.jobs}/child", {"spec": {"suspend": False}})
        await road.until_complete("child")
        workloads = (await road.cluster.get(road.workloads))["items"]

    assert [w["metadata"]["ownerReferences"][0]["name"] for w in workloads] == ["parent"]


@pytest.mark.proves("Job", "queueing")
async def test_a_job_without_a_queue_waits_for_one_where_all_are_managed(either_plane: Plane) -> None:
    """In namespaces that are selected; elsewhere it runs as if kqueue were not there."""
    road = await make_road(either_plane.cluster)
    other = Road(road.cluster, await road.cluster.create_namespace("other"))
    selector = f"{{matchLabels: {{kubernetes.io/metadata.name: {road.namespace}}}}}"
    config = configuration(f"manageJobsWithoutQueueName: true\nmanagedJobsNamespaceSelector: {selector}\n")
    async with running(config, flags(either_plane)) as process:
        await process.operator.ready.wait()
        for place in (road, other):
            obj = job("gang", place.namespace, pods=2, required=None, run_seconds=5)  # longer than a stop takes
            obj["metadata"].pop("labels")
            obj["spec"]["suspend"] = False
            await road.cluster.request("POST", place.jobs, obj)
        await other.until_complete("gang")
        await road.cluster.until(f"{road.jobs}/gang", lambda j: j["spec"]["suspend"], what="a Job that is stopped")
        waiting = await road.until_workload("gang", "QuotaReserved", status="False")
        await _patch(road, f"{road.jobs}/gang", {"metadata": {"labels": {LABEL: "main"}}})
        await road.until_complete("gang")

    assert waiting["reason"] == "Misconfigured"
