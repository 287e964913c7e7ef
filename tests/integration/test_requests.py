"""Requests on the whole road: bounded and filled in by the namespace, counted as something else, or met in part."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.config import Configuration, Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import Object, Road, job, make_road

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
FAST = Timings(queue_flush_window=0.1)
GPU = "nvidia.com/gpu"
MIN = "kueue.x-k8s.io/job-min-parallelism"
LONG = 600


def configuration(text: str = "") -> Configuration:
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    return parse(f"{head}leaderElection: {{leaderElect: false}}\n{text}", source="test")


def flags(plane: Plane) -> Flags:
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    return Flags(kubeconfig=plane.kubeconfig, parts=parts, health_address="0", metrics_address="0")


async def bound(road: Road, **limits: Any) -> str:
    """Create a LimitRange on containers; its path."""
    path = f"/api/v1/namespaces/{road.namespace}/limitranges"
    spec = {"limits": [{"type": "Container", **limits}]}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds"}, "spec": spec}
    await road.cluster.request("POST", path, body)
    return f"{path}/bounds"


async def submit(road: Road, obj: Object) -> None:
    await road.cluster.request("POST", road.jobs, obj)


async def usage_of(road: Road, name: str) -> tuple[Object, int]:
    """What a Job is charged, and for how many pods."""
    [assigned] = (await road.workload_of(name))["status"]["admission"]["podSetAssignments"]
    return assigned["resourceUsage"], assigned["count"]


async def test_a_job_that_its_namespace_forbids_waits_until_it_is_allowed(either_plane: Plane) -> None:
    """The sentence names container, resource, both numbers and the remedy; without the LimitRange the Job runs."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 4))
    path = await bound(road, max={GPU: "4"})
    async with running(configuration(), flags(either_plane), timings=FAST):
        await road.submit("large", pods=2)
        waiting = await road.until_workload("large", "QuotaReserved", status="False", reason="Misconfigured")
        workload = (await road.workload_of("large"))["metadata"]["name"]
        told = await seconds_to_reason(road, "large", "Misconfigured")
        await road.submit("small", pods=2, gpus=4)
        await road.until_complete("small")
        await road.cluster.request("DELETE", path)
        await road.until_complete("large")

    assert waiting["message"] == (
        f"Pod set main: Container main asks for 8 {GPU}, and LimitRange bounds allows a container at most 4: "
        f"ask for less or change the LimitRange; see kqueue explain {workload} -n {road.namespace}"
    )
    assert told == waiting["message"]


async def seconds_to_reason(road: Road, name: str, reason: str) -> str:
    """The newest note of the events with this reason about a Job: what `kubectl describe job` shows."""

    def of(listed: Object) -> list[str]:
        return [
            event["note"]
            for event in sorted(listed["items"], key=lambda event: str(event["metadata"]["creationTimestamp"]))
            if (event["regarding"]["kind"], event["regarding"]["name"], event["reason"]) == ("Job", name, reason)
        ]

    path = f"/apis/events.k8s.io/v1/namespaces/{road.namespace}/events"
    return of(await road.cluster.until(path, lambda listed: bool(of(listed)), what=f"{reason} about job {name}"))[-1]


async def test_a_full_rack_is_one_short_sentence_on_the_workload_and_the_job(either_plane: Plane) -> None:
    """It begins with what is there, names the best rack and the time, and is not written again for other figures."""
    road = await make_road(either_plane.cluster, shape=(1, 2, 2), gpus=64)
    async with running(configuration(), flags(either_plane), timings=FAST):
        await road.submit("first", pods=1, gpus=8, run_seconds=600)
        await road.until_workload("first", "Admitted")
        await road.submit("second", pods=2, gpus=8, run_seconds=600)
        await road.until_workload("second", "Admitted")
        await road.submit("late", pods=2, gpus=8)
        waiting = await road.until_workload("late", "QuotaReserved", status="False", reason="WaitingForQuota")
        told = await seconds_to_reason(road, "late", "WaitingForQuota")
        before = (await road.workload_of("late"))["metadata"]["resourceVersion"]
        await road.submit("third", pods=1, gpus=8, run_seconds=600)
        await road.until_workload("third", "Admitted")
        await road.submit("fourth", pods=1, gpus=9)
        await road.until_workload("fourth", "QuotaReserved", status="False", reason="TopologyPlacementFailed")
        after = (await road.workload_of("late"))["metadata"]["resourceVersion"]

    message = waiting["message"]
    assert message.startswith("Quota is there; no room in the topology: the best topology-rack ")
    assert " has room for 1 of 2 pods (20" in message
    assert message.endswith(f" -n {road.namespace}")
    assert len(message) <= 200
    assert (told, after) == (message, before)


async def test_defaults_of_the_namespace_and_transformed_resources_cost_quota(either_plane: Plane) -> None:
    """What a container does not name is charged as the LimitRange says; GPUs are charged as cores, too."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 4))
    await bound(road, defaultRequest={"cpu": "500m"})
    text = f"resources: {{transformations: [{{input: {GPU}, outputs: {{cpu: 250m}}}}]}}\n"
    async with running(configuration(text), flags(either_plane), timings=FAST):
        obj = job("gang", road.namespace, pods=2, run_seconds=LONG)
        amounts = {GPU: "8"}
        obj["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        await submit(road, obj)
        await road.until_workload("gang", "Admitted")
        charged = await usage_of(road, "gang")

    assert charged == ({"cpu": "5", GPU: "16"}, 2)


async def test_a_job_runs_in_part_and_gets_all_its_pods_back(either_plane: Plane) -> None:
    """Two pods of four fit; the Job runs with two, and asks for four again when it is stopped."""
    road = await make_road(either_plane.cluster, gpus=16, shape=(1, 1, 4))
    async with running(configuration(), flags(either_plane), timings=FAST):
        obj = job("gang", road.namespace, pods=4, run_seconds=LONG)
        obj["metadata"]["annotations"] = {MIN: "1"}
        await submit(road, obj)
        path = f"{road.jobs}/gang"
        await road.cluster.until(path, lambda j: j.get("status", {}).get("active") == 2, what="two pods")
        charged = await usage_of(road, "gang")
        running_with = (await road.cluster.get(path))["spec"]["parallelism"]
        workload = (await road.workload_of("gang"))["metadata"]["name"]
        off = {"spec": {"active": False}}
        await road.cluster.request(
            "PATCH", f"{road.workloads}/{workload}", off, content_type="application/merge-patch+json"
        )
        stopped = await road.cluster.until(
            path, lambda j: j["spec"]["suspend"] and j["spec"]["parallelism"] == 4, what="the Job is as it was"
        )

    assert charged == ({"cpu": "2", GPU: "16"}, 2)
    assert running_with == 2
    assert stopped["spec"]["completions"] == 4


UNCOUNTED = """
featureGates:
  KueueDRAIntegration: false
  KueueDRAIntegrationExtendedResource: false
  KueueDRAIntegrationPartitionableDevices: false
  KueueDRARejectWorkloadsWhenDRADisabled: false
"""


async def test_a_job_that_claims_devices_is_refused_and_keeps_its_workload(either_plane: Plane) -> None:
    """It is told why it waits.  With the gates off it is admitted; no Workload is deleted and made anew meanwhile."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 4))
    obj = job("claims", road.namespace, pods=2, run_seconds=LONG)
    spec = obj["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "large"}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    async with running(configuration(), flags(either_plane), timings=FAST):
        await submit(road, obj)
        waiting = await road.until_workload("claims", "QuotaReserved", status="False", reason="Misconfigured")
        refused = await road.workload_of("claims")
    async with running(configuration(UNCOUNTED), flags(either_plane), timings=FAST):
        await road.until_workload("claims", "Admitted")
        await road.submit("later", pods=1)
        await road.until_workload("later", "Admitted")
        admitted = await road.workload_of("claims")

    assert "spec.resourceClaims claims devices" in waiting["message"]
    assert admitted["metadata"]["uid"] == refused["metadata"]["uid"]
    assert admitted["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "gpus"}
    ]
