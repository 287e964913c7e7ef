"""Jobs that claim devices go the whole road, on both control planes.

Their schedulers allocate the devices.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import Object, Road, hosts_of, job, make_road

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
FAST = Timings(
    queue_flush_window=0.1, node_event_window=0.1, foreign_pod_drain=0.1, watch_retry_max=0.5, details_told_after=0.1
)
CLASS, DRIVER, QUOTA = "kqueue-test", "gpu.example.com", "example.com/gpus"
DEVICES = "/apis/resource.k8s.io/v1"
CONFIGURATION = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
resources: {{deviceClassMappings: [{{name: {QUOTA}, deviceClassNames: [{CLASS}]}}]}}
"""
LONG = 600


def typed(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def begin(cluster: Cluster) -> None:
    """A class of devices."""
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    await cluster.request("POST", f"{DEVICES}/deviceclasses", typed("DeviceClass", CLASS, {"selectors": selectors}))


async def offer(cluster: Cluster, nodes: list[str], *, each: int = 2, first: int = 0) -> None:
    """Devices of the class on each of these nodes, with indexes from `first` on."""
    for node in nodes:
        spec = {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}", "attributes": {"index": {"int": first + i}}} for i in range(each)],
        }
        await cluster.request("POST", f"{DEVICES}/resourceslices", typed("ResourceSlice", f"of-{node}", spec))


def requests(count: int) -> Object:
    exactly = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].index >= 0"}}],
    }
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


async def hold(road: Road, node: str) -> str:
    """A claim of nobody has both devices of the node; its path."""
    path = f"{DEVICES}/namespaces/{road.namespace}/resourceclaims"
    await road.cluster.request("POST", path, typed("ResourceClaim", "held", requests(2)))
    results = [{"request": "gpus", "driver": DRIVER, "pool": node, "device": f"gpu-{i}"} for i in range(2)]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    await road.cluster.request("PATCH", f"{path}/held/status", status, content_type=MERGE_PATCH)
    return f"{path}/held"


def claiming(road: Road, name: str, *, pods: int) -> Object:
    """A Job in one rack, with one container that claims devices by template `two`."""
    made = job(name, road.namespace, pods=pods, run_seconds=LONG)
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "claims": [{"name": "gpus"}]}
    return made


@asynccontextmanager
async def world(plane: Plane, *, quota: int) -> AsyncIterator[Road]:
    """Three racks of two hosts, a tenant with quota for devices, and kqueue."""
    road = await make_road(plane.cluster, shape=(1, 3, 2))
    quotas = [{"name": "cpu", "nominalQuota": "100"}, {"name": QUOTA, "nominalQuota": str(quota)}]
    flavor = {"name": "gpu", "resources": quotas}
    await road.change_queue(resourceGroups=[{"coveredResources": ["cpu", QUOTA], "flavors": [flavor]}])
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    flags = Flags(kubeconfig=plane.kubeconfig, parts=parts, health_address="0", metrics_address="0")
    try:
        async with running(parse(CONFIGURATION, source="test"), flags, timings=FAST) as process:
            await process.operator.ready.wait()
            yield road
    finally:
        for collection in ("resourceslices", "deviceclasses"):
            await road.cluster.request("DELETE", f"{DEVICES}/{collection}")


async def until_message(road: Road, name: str, words: str) -> str:
    """Wait until the message of the Job's waiting Workload has these words; return it."""

    def has_message(listed: Object) -> bool:
        return any(words in message for message in messages(listed))

    def messages(listed: Object) -> list[str]:
        return [
            each["message"]
            for workload in listed["items"]
            if any(owner["name"] == name for owner in workload["metadata"].get("ownerReferences", ()))
            for each in workload.get("status", {}).get("conditions", ())
            if (each["type"], each["status"]) == ("QuotaReserved", "False")
        ]

    [message] = messages(
        await road.cluster.until(road.workloads, has_message, what=f"the status of {name} says {words!r}")
    )
    return message


async def until_bound(road: Road, name: str, hosts: set[str]) -> None:
    """Wait until nodes run the Job's pods, one on each of these hosts."""

    def is_bound(listed: Object) -> bool:
        mine = [p for p in listed["items"] if p["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name]
        return sorted(str(p["spec"].get("nodeName")) for p in mine) == sorted(hosts)

    await road.cluster.until(road.pods, is_bound, what=f"pods of {name} on {sorted(hosts)}")


async def test_a_gang_gets_the_rack_with_free_devices(either_plane: Plane) -> None:
    """It waits for its template, then gets quota and hosts by its devices; the next one waits for devices, then quota.

    All hosts have room for the other requests of the pods, and the third rack has devices that do not match.
    """
    async with world(either_plane, quota=8) as road:
        first, second = [f"node-0-{rack}-{host}" for rack in (0,) for host in (0, 1)], ["node-0-1-0", "node-0-1-1"]
        await begin(road.cluster)
        await offer(road.cluster, [*first, *second])
        await offer(road.cluster, ["node-0-2-0", "node-0-2-1"], first=-2)
        held = await hold(road, first[0])
        await road.cluster.request("POST", road.jobs, claiming(road, "early", pods=2))
        waiting = await road.until_workload("early", "QuotaReserved", status="False", reason="Misconfigured")
        templates = f"{DEVICES}/namespaces/{road.namespace}/resourceclaimtemplates"
        two: dict[str, Any] = {"spec": requests(2)}
        await road.cluster.request("POST", templates, typed("ResourceClaimTemplate", "two", two))
        await road.until_workload("early", "Admitted")
        early = await road.workload_of("early")
        await until_bound(road, "early", set(second))

        await road.cluster.request("POST", road.jobs, claiming(road, "late", pods=2))
        lacking = await road.until_workload("late", "QuotaReserved", status="False", reason="WaitingForQuota")
        await road.cluster.request("DELETE", held)
        await road.until_workload("late", "Admitted")
        late = await road.workload_of("late")
        await until_bound(road, "late", set(first))
        await road.cluster.request("POST", road.jobs, claiming(road, "poor", pods=1))
        poor = await road.until_workload("poor", "QuotaReserved", status="False")

    assert "ResourceClaimTemplate two does not exist" in waiting["message"]
    [assigned] = early["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"] == {"cpu": "2", QUOTA: "4"}
    assert hosts_of(early) == dict.fromkeys(second, 1)
    assert "no room in the topology" in lacking["message"]
    assert hosts_of(late) == dict.fromkeys(first, 1)
    assert QUOTA in poor["message"]


async def test_claims_that_cannot_be_counted_are_told(either_plane: Plane) -> None:
    """With the field and the remedy; a corrected template lets the Job run."""
    async with world(either_plane, quota=8) as road:
        await begin(road.cluster)
        await offer(road.cluster, ["node-0-0-0"])
        templates = f"{DEVICES}/namespaces/{road.namespace}/resourceclaimtemplates"
        every: Object = {
            "devices": {"requests": [{"name": "all", "exactly": {"deviceClassName": CLASS, "allocationMode": "All"}}]}
        }
        await road.cluster.request("POST", templates, typed("ResourceClaimTemplate", "two", {"spec": every}))
        await road.cluster.request("POST", road.jobs, claiming(road, "all", pods=1))
        refused = await until_message(road, "all", "requests[0].exactly.allocationMode")
        await road.cluster.request("DELETE", f"{templates}/two")
        two: dict[str, Any] = {"spec": requests(2)}
        await road.cluster.request("POST", templates, typed("ResourceClaimTemplate", "two", two))
        await road.until_workload("all", "Admitted")
        await until_bound(road, "all", {"node-0-0-0"})

    assert "write ExactCount" in refused
