"""A job that is tried in several flavors at once goes the whole road, on both control planes."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.manager.process import running
from tests.integration.road import KUEUE, Object, condition, has
from tests.integration.teams import FAST, Plane, Teams, configuration, flags, post

pytestmark = pytest.mark.slow

ON = "featureGates: {ConcurrentAdmission: true}\n"
FLAVORS = ("reserved", "spot")
"""The most preferred first; each has a pool of two nodes of 8 GPUs."""
QUEUE = f"{KUEUE}/clusterqueues/team"
ALLOWED = "kueue.x-k8s.io/workload-allowed-resource-flavors"


def groups(**gpus: int) -> list[Object]:
    """The quota of each flavor."""
    quotas = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": 100}, {"name": "nvidia.com/gpu", "nominalQuota": gpus[name]}]}
        for name in FLAVORS
    ]  # fmt: skip
    return [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": quotas}]


async def make_team(plane: Plane, **gpus: int) -> Teams:
    """A tenant with a policy of concurrent admission."""
    namespace = await plane.cluster.create_namespace("teams")
    for name in FLAVORS:
        await plane.cluster.add_nodes((1, 1, 2), labels={"pool": name}, prefix=name)
        await post(plane, "resourceflavors", name, {"nodeLabels": {"pool": name}})
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    spec = {"namespaceSelector": {}, "resourceGroups": groups(**gpus), "concurrentAdmissionPolicy": policy}
    await post(plane, "clusterqueues", "team", spec)
    await post(plane, "localqueues", "main", {"clusterQueue": "team"}, namespace=namespace)
    return Teams(plane.cluster, namespace)


async def pools_of(road: Teams, name: str) -> set[str]:
    """The pools of the nodes that run pods of a Job."""
    label = "batch.kubernetes.io/job-name"
    pods = (await road.cluster.get(road.pods))["items"]
    return {str(p["spec"]["nodeName"]).partition("-")[0] for p in pods if p["metadata"]["labels"][label] == name}


def variants(listed: Object) -> dict[str, Object]:
    """The variants that exist, by flavor."""
    found = {w["metadata"].get("annotations", {}).get(ALLOWED, ""): w for w in listed["items"]}
    return {flavor: workload for flavor, workload in found.items() if flavor}


def used(queue: Object) -> dict[str, Any]:
    """The GPUs that a ClusterQueue says are reserved, by flavor."""
    return {
        flavor["name"]: int(resource["total"])
        for flavor in queue.get("status", {}).get("flavorsReservation", ())
        for resource in flavor["resources"]
        if resource["name"] == "nvidia.com/gpu" and int(resource["total"])
    }


def said(listed: Object) -> str:
    """What the Workloads say of why they wait."""
    conditions = (c for w in listed["items"] for c in w.get("status", {}).get("conditions", ()))
    return "\n".join(c["message"] for c in conditions if c["type"] == "QuotaReserved" and c["status"] == "False")


async def test_a_job_moves_to_the_preferred_flavor_and_is_charged_once(either_plane: Plane) -> None:
    """It starts where there is room, stops and starts again in the flavor that its queue prefers, and ends; who calls
    something small a variant of a large job starts nothing.
    """
    road = await make_team(either_plane, reserved=0, spot=4)
    async with running(configuration(ON), flags(either_plane), timings=FAST):
        await road.submit("train", pods=2, gpus=2)
        await road.until_running(train=2)
        first = await pools_of(road, "train")
        parent = await road.workload_of("train")
        at_first = await road.cluster.until(QUEUE, lambda q: used(q) == {"spot": 4}, what="4 GPUs of spot")

        await road.change_queue(resourceGroups=groups(reserved=4, spot=4))
        await road.cluster.until(
            road.workloads,
            lambda listed: has(variants(listed).get("reserved", {}), "Admitted"),
            what="the variant of the preferred flavor is admitted",
        )
        await road.until_running(train=2)
        then, moved = await pools_of(road, "train"), await road.workload_of("train")
        left = variants(await road.cluster.get(road.workloads))["spot"]
        await road.cluster.until(QUEUE, lambda q: used(q) == {"reserved": 4}, what="4 GPUs of reserved")

        await road.submit("large", pods=2, gpus=8)
        await road.cluster.until(
            road.workloads,
            lambda listed: "Tried by variants; reserved: " in said(listed),
            what="the large job's Workload has the reasons of its variants",
        )
        owner = (await road.workload_of("large"))["metadata"]
        await post_forged(either_plane, road, owner)
        await road.cluster.until(
            road.workloads,
            lambda listed: "forged" not in {w["metadata"]["name"] for w in listed["items"]},
            what="the forged variant is gone",
        )
        waits = await road.workload_of("large")

        await road.cluster.request("DELETE", f"{road.jobs}/train?propagationPolicy=Background")
        await road.cluster.request("DELETE", f"{road.jobs}/large?propagationPolicy=Background")
        await road.cluster.until(road.workloads, lambda listed: not listed["items"], what="all Workloads are gone")
        await road.cluster.until(QUEUE, lambda q: used(q) == {}, what="nothing is reserved")

    assert (first, then) == ({"spot"}, {"reserved"})
    assert parent["metadata"]["labels"]["kueue.x-k8s.io/concurrent-admission-parent"] == "true"
    assert at_first["status"]["reservingWorkloads"] == 1
    assert condition(left, "Evicted")["reason"] in ("FlavorMigration", "Deactivated")
    assert left["spec"]["active"] is False
    assert condition(moved, "Evicted")["message"].startswith("Previously: Makes room")
    assert moved["status"]["admission"]["podSetAssignments"][0]["flavors"]["nvidia.com/gpu"] == "reserved"
    assert not has(waits, "Admitted")


async def post_forged(plane: Plane, road: Teams, owner: Object) -> None:
    """A tenant creates a Workload of one GPU and names a large job's Workload as its controller."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    reference = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": owner["name"], "uid": owner["uid"], "controller": True}  # fmt: skip
    metadata = {
        "name": "forged",
        "namespace": road.namespace,
        "annotations": {ALLOWED: "spot"},
        "ownerReferences": [reference],
    }
    pod_sets = [{"name": "main", "count": 2, "template": template}]
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": {"queueName": "main", "podSets": pod_sets}}  # fmt: skip
    await plane.cluster.request("POST", road.workloads, body)
