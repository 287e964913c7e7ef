"""Nodes are made for a gang by a ProvisioningRequest, on both control planes; a double plays the autoscaler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.manager.process import running
from tests.integration.autoscaler_double import (
    CLASS,
    NODE_GROUP,
    autoscaling,
    collection,
    define,
    tell,
    undefine,
)
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.road import KUEUE, Object, Road, condition, job, make_road
from tests.integration.teams import FAST, Plane, configuration, flags

pytestmark = pytest.mark.slow

CHECK = f"{KUEUE}/admissionchecks/nodes"
CONFIGS = f"{KUEUE}/provisioningrequestconfigs"
SELECTOR = {"podSetUpdates": {"nodeSelector": [{"key": NODE_GROUP, "valueFromProvisioningClassDetail": "NodeGroup"}]}}


def ours(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def configure(road: Road, **spec: Any) -> None:
    """The config that the check names."""
    body = ours("ProvisioningRequestConfig", "racks", {"provisioningClassName": CLASS, **spec})
    await road.cluster.request("POST", CONFIGS, body)


@asynccontextmanager
async def tenancy(plane: Plane) -> AsyncIterator[Road]:
    """A tenant without a node, whose queue has a provisioning check, and kqueue."""
    road = await make_road(plane.cluster, shape=(1, 1, 0))
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "racks"}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    await road.cluster.request("POST", f"{KUEUE}/admissionchecks", ours("AdmissionCheck", "nodes", spec))
    await road.change_queue(admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]})
    async with running(configuration(), flags(plane), timings=FAST) as process:
        await process.operator.ready.wait()
        yield road


async def until_requests(road: Road, *attempts: int, there: bool = True) -> list[Object]:
    """Wait until exactly the requests of these attempts exist."""

    def reached(listed: Object) -> bool:
        names = [each["metadata"]["name"].rpartition("-")[2] for each in listed["items"]]
        return sorted(names) == sorted(map(str, attempts))

    found = await road.cluster.until(collection(road.namespace), reached, what=f"requests of attempts {attempts}")
    items: list[Object] = found["items"]
    return items


async def until_active(road: Road, status: str, reason: str) -> None:
    def reached(check: Object) -> bool:
        found = [c for c in check.get("status", {}).get("conditions", []) if c["type"] == "Active"]
        return [(c["status"], c["reason"]) for c in found] == [(status, reason)]

    await road.cluster.until(CHECK, reached, what=f"check is Active={status} {reason}")


async def test_nodes_are_made_for_a_gang_that_needs_one_rack(either_plane: Plane, tmp_path: Path) -> None:
    """Quota first, then the request, then the nodes, then their rack as domain; the request goes with the workload."""
    await define(either_plane.cluster, tmp_path)
    async with tenancy(either_plane) as road:
        await configure(road, **SELECTOR, managedResources=["nvidia.com/gpu"])
        await road.submit("train", pods=4, run_seconds=2)
        await road.until_workload("train", "QuotaReserved")
        (request,) = await until_requests(road, 1)
        waiting = await road.workload_of("train")
        async with autoscaling(road.cluster):
            await road.until_workload("train", "Admitted")
            admitted = await road.workload_of("train")
            await road.until_complete("train")
        racks = await road.racks_of("train")
        nodes = {n["metadata"]["name"] for n in (await road.cluster.get("/api/v1/nodes"))["items"]}
        pods = (await road.cluster.get(road.pods))["items"]
        await until_requests(road)

    (before,) = waiting["status"]["admission"]["podSetAssignments"]
    assert before["delayedTopologyRequest"] == "Pending"
    assert "topologyAssignment" not in before
    assert request["spec"]["podSets"][0]["count"] == 4
    (after,) = admitted["status"]["admission"]["podSetAssignments"]
    assert after["delayedTopologyRequest"] == "Ready"
    assert len(racks) == 1
    assert {pod["spec"]["nodeName"] for pod in pods} == nodes
    name = request["metadata"]["name"]
    for pod in pods:
        assert pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] == name
        assert pod["spec"]["nodeSelector"][NODE_GROUP] == name


async def test_a_failed_request_is_repeated_and_revoked_nodes_end_the_workload(
    either_plane: Plane, tmp_path: Path
) -> None:
    """Retry after the pause of the config, under the name of the next attempt; CapacityRevoked deactivates."""
    await define(either_plane.cluster, tmp_path)
    async with tenancy(either_plane) as road, autoscaling(road.cluster):
        await configure(road, parameters={"fail": "1"}, retryStrategy={"backoffBaseSeconds": 1})
        await road.submit("train", pods=2, run_seconds=600)
        (request,) = await until_requests(road, 2)
        await road.until_workload("train", "PodsReady")
        running_workload = await road.workload_of("train")
        (request,) = await until_requests(road, 2)
        await tell(road.cluster, request, "CapacityRevoked", "the rack is needed elsewhere")
        await road.until_workload("train", "QuotaReserved", status="False")
        await road.cluster.until(road.pods, lambda found: not found["items"], what="no pod is left")
        ended = await road.workload_of("train")
        await until_requests(road)

    (entry,) = running_workload["status"]["admissionChecks"]
    assert (entry["state"], entry["retryCount"]) == ("Ready", 1)
    evicted = condition(ended, "Evicted")
    assert evicted["reason"] == "DeactivatedDueToAdmissionCheck"
    assert "the rack is needed elsewhere" in evicted["message"]
    assert ended["spec"]["active"] is False


async def test_config_and_definition_come_later_and_requests_are_put_right(either_plane: Plane, tmp_path: Path) -> None:
    """The check tells what is missing; a request that is edited or deleted by hand is made again."""
    await undefine(either_plane.cluster)
    async with tenancy(either_plane) as road:
        await until_active(road, "False", "BadParametersRef")
        await configure(road)
        await until_active(road, "False", "KindNotServed")
        await road.cluster.request("POST", road.jobs, job("train", road.namespace, pods=1, run_seconds=600))
        await define(road.cluster, tmp_path)
        await until_active(road, "True", "Active")
        (first,) = await until_requests(road, 1)
        path = f"{collection(road.namespace)}/{first['metadata']['name']}"
        edit = {"spec": {"provisioningClassName": "mine"}}
        await road.cluster.request("PATCH", path, edit, content_type=MERGE_PATCH)
        second = await until_replaced(road, path, first)
        await road.cluster.request("DELETE", path)
        third = await until_replaced(road, path, second)
        async with autoscaling(road.cluster):
            await road.until_workload("train", "PodsReady")
            await road.cluster.request("DELETE", path)
            await until_requests(road)
            await road.cluster.request("DELETE", f"{CONFIGS}/racks")
            await until_active(road, "False", "BadParametersRef")
            runs = await road.workload_of("train")

    assert third["spec"] == second["spec"] == first["spec"]
    assert condition(runs, "Admitted")["status"] == "True"


async def until_replaced(road: Road, path: str, old: Object) -> Object:
    """Wait until another request of the same name exists."""

    def replaced(found: Object) -> bool:
        return bool(found["metadata"]["uid"] != old["metadata"]["uid"])

    return await road.cluster.until(path, replaced, what=f"another request at {path}")
