"""Our CRDs on the real API server: accepted, defaulted, enforced, shown and explained."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE
from tests.unit.api.test_reservation import ACCEPTED as RESERVATIONS_ACCEPTED
from tests.unit.api.test_reservation import REFUSED as RESERVATIONS_REFUSED
from tests.unit.api.test_reservation import reservation

pytestmark = pytest.mark.controlplane

Object = dict[str, Any]
VERSION = "kueue.x-k8s.io/v1beta2"


def queue(**spec: Any) -> Object:
    return {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": spec}


def group(**changes: Any) -> Object:
    resource = {"name": "cpu", "nominalQuota": "10"} | changes.pop("resource", {})
    return {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [resource]}]} | changes


def topology(*labels: str) -> Object:
    levels = [{"nodeLabel": label} for label in labels]
    return {"apiVersion": VERSION, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}


def flavor(**spec: Any) -> Object:
    return {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "gpu"}, "spec": spec}


def workload(*pod_sets: Object, **spec: Any) -> Object:
    sets: list[dict[str, Any]] = [{"template": {"spec": {"containers": []}}} | p for p in pod_sets]
    return {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"podSets": sets, **spec},
    }


REFUSED = [
    pytest.param("clusterqueues", queue(queueingStrategy="Random"), "queueingStrategy", id="an-unknown-strategy"),
    pytest.param(
        "clusterqueues",
        queue(resourceGroups=[group(resource={"nominalQuota": "ten"})]),
        "nominalQuota",
        id="a-malformed-quantity",
    ),
    pytest.param(
        "clusterqueues",
        queue(resourceGroups=[group(resource={"borrowingLimit": "1"})]),
        "borrowingLimit needs a cohortName",
        id="a-borrowing-limit-without-cohort",
    ),
    pytest.param(
        "clusterqueues",
        queue(resourceGroups=[group(coveredResources=["cpu", "memory"])]),
        "as many resources as coveredResources",
        id="a-flavor-that-lacks-a-resource",
    ),
    pytest.param("clusterqueues", queue(cohortName="Not_A_Name"), "cohortName", id="a-cohort-name-that-is-not-allowed"),
    pytest.param(
        "clusterqueues",
        queue(preemption={"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}),
        "reclaimWithinCohort",
        id="borrowing-preemption-without-reclaim",
    ),
    pytest.param("topologies", topology("rack", "rack"), "node label of its own", id="a-level-twice"),
    pytest.param("topologies", topology("kubernetes.io/hostname", "rack"), "last level", id="hosts-above-racks"),
    pytest.param("topologies", topology(), "levels", id="no-level"),
    pytest.param("resourceflavors", flavor(topologyName="dc"), "node label", id="a-topology-without-node-labels"),
    pytest.param(
        "resourceflavors", flavor(tolerations=[{"operator": "Equal"}]), "toleration", id="a-toleration-without-key"
    ),
    pytest.param(
        "namespaces/default/workloads",
        workload({"count": 2, "minCount": 3}),
        "minCount",
        id="more-at-least-than-at-all",
    ),
    pytest.param("namespaces/default/workloads", workload({}, {}), "podSets", id="two-unnamed-pod-sets"),
    pytest.param("namespaces/default/workloads", workload(), "podSets", id="an-empty-list-of-pod-sets"),
    pytest.param(
        "namespaces/default/workloads",
        workload({}, priorityClassRef={"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}),
        "priority must be set",
        id="a-priority-class-without-value",
    ),
]


@pytest.mark.parametrize(("collection", "obj", "fact"), REFUSED)
async def test_the_api_server_refuses(plane: ControlPlane, collection: str, obj: Object, fact: str) -> None:
    """Each broken rule is answered with 422, and the answer names the field or the rule."""
    with pytest.raises(RequestError) as refused:
        await plane.cluster.request("POST", f"{KUEUE}/{collection}", obj)

    assert refused.value.status == 422
    assert fact in str(refused.value)


async def test_defaults_are_filled_in(plane: ControlPlane) -> None:
    """A ClusterQueue and a Workload that say little are stored with everything that has a default."""
    stored = await plane.cluster.request("POST", f"{KUEUE}/clusterqueues", queue(resourceGroups=[group()]))
    made = await plane.cluster.request("POST", f"{KUEUE}/namespaces/default/workloads", workload({}))

    assert stored["spec"]["queueingStrategy"] == "BestEffortFIFO"
    assert stored["spec"]["stopPolicy"] == "None"
    assert stored["spec"]["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    assert stored["spec"]["preemption"]["borrowWithinCohort"] == {"policy": "Never"}
    assert made["spec"]["active"] is True
    assert (made["spec"]["podSets"][0]["name"], made["spec"]["podSets"][0]["count"]) == ("main", 1)


@pytest.mark.parametrize(
    ("collection", "obj", "change", "fact"),
    [
        pytest.param(
            "topologies",
            topology("block", "rack"),
            {"spec": {"levels": [{"nodeLabel": "block"}]}},
            "levels can be changed only",
            id="levels-without-hosts",
        ),
        pytest.param(
            "resourceflavors",
            flavor(topologyName="dc", nodeLabels={"pool": "gpu"}),
            {"spec": {"topologyName": "other"}},
            "topologyName",
            id="the-topology-of-a-flavor",
        ),
    ],
)
async def test_what_cannot_change_does_not(
    plane: ControlPlane, collection: str, obj: Object, change: Object, fact: str
) -> None:
    """A change of a fixed field is refused, and the answer says so."""
    await plane.cluster.request("POST", f"{KUEUE}/{collection}", copy.deepcopy(obj))
    with pytest.raises(RequestError) as refused:
        await plane.cluster.request(
            "PATCH",
            f"{KUEUE}/{collection}/{obj['metadata']['name']}",
            change,
            content_type="application/merge-patch+json",
        )

    assert refused.value.status == 422
    assert fact in str(refused.value)


async def test_every_field_of_a_workloads_status_is_explained(plane: ControlPlane) -> None:
    """`kubectl explain` shows a sentence for every field, and none is empty."""
    text = await plane.kubectl("explain", "workload.status", "--recursive=false")
    deep = json.loads(await plane.kubectl("get", "crd", "workloads.kueue.x-k8s.io", "-o", "json"))
    schema = deep["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]

    assert "<no description>" not in text
    assert "Where the workload is and why" in text
    assert list(_undescribed(schema, "status")) == []


def _undescribed(schema: Object, path: str) -> Any:
    for name, child in schema.get("properties", {}).items():
        if not child.get("description"):
            yield f"{path}.{name}"
        yield from _undescribed(child, f"{path}.{name}")
    if "items" in schema:
        yield from _undescribed(schema["items"], f"{path}[]")


async def test_kubectl_shows_the_columns(plane: ControlPlane) -> None:
    """`kubectl get` of a Workload shows queue, reservation, admission and end."""
    await plane.cluster.request("POST", f"{KUEUE}/namespaces/default/workloads", workload({}, queueName="main"))
    head = (await plane.kubectl("get", "kwl", "-n", "default")).splitlines()[0]

    assert head.split() == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE"]


async def test_only_the_moves_that_were_shown_can_be_approved(plane: ControlPlane) -> None:
    """J6.20: another hash than that of the status is refused, and goal and budget are fixed."""
    path = "/apis/kqueue.dev/v1alpha1/defragmentationplans"
    goal = {"workload": {"namespace": "team", "name": "big"}}
    digest, other = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    plan = {"apiVersion": "kqueue.dev/v1alpha1", "kind": "DefragmentationPlan", "metadata": {"name": "p"}}

    async def refused(method: str, where: str, body: Object, fact: str) -> None:
        more = {"content_type": "application/merge-patch+json"} if method == "PATCH" else {}
        with pytest.raises(RequestError) as caught:
            await plane.cluster.request(method, where, body, **more)
        assert caught.value.status == 422
        assert fact in str(caught.value)

    await refused("POST", path, {**plan, "spec": {"goal": goal, "approved": digest}}, "hash in status.hash")
    await refused("POST", path, {**plan, "spec": {"goal": {**goal, "nodes": 3}}}, "set either workload")
    stored = await plane.cluster.request("POST", path, {**plan, "spec": {"goal": goal}})
    assert stored["spec"]["budget"] == {"maxMoves": 4, "maxPodMinutes": 120}
    await refused("PATCH", f"{path}/p", {"spec": {"approved": digest}}, "hash in status.hash")
    merge = "application/merge-patch+json"
    status = {"status": {"phase": "Proposed", "hash": digest}}
    await plane.cluster.request("PATCH", f"{path}/p/status", status, content_type=merge)
    await refused("PATCH", f"{path}/p", {"spec": {"approved": other}}, "hash in status.hash")
    await refused("PATCH", f"{path}/p", {"spec": {"budget": {"maxMoves": 9}}}, "budget cannot change")
    await refused("PATCH", f"{path}/p", {"spec": {"goal": {"workload": {"name": "x"}}}}, "goal cannot change")
    await plane.cluster.request("PATCH", f"{path}/p", {"spec": {"approved": digest}}, content_type=merge)
    await refused("PATCH", f"{path}/p/status", {"status": {"hash": other}}, "hash in status.hash")


async def test_the_rules_of_reservations_hold_on_the_server(plane: ControlPlane) -> None:
    """The server refuses what the model refuses, and changes of the domain."""
    path, merge = "/apis/kqueue.dev/v1alpha1/reservations", "application/merge-patch+json"
    for case in RESERVATIONS_REFUSED:
        obj, _ = case.values
        with pytest.raises(RequestError) as caught:
            await plane.cluster.request("POST", path, obj)
        assert caught.value.status == 422, case.id
    for case in RESERVATIONS_ACCEPTED:
        await plane.cluster.request("POST", path, case.values[0])
        await plane.cluster.request("DELETE", f"{path}/r")
    await plane.cluster.request("POST", path, reservation())
    for change, fact in (
        ({"domain": ["b0", "r2"]}, "the domain cannot change"),
        ({"domain": None, "level": "rack", "count": 1}, "domain cannot be replaced"),
        ({"topology": "other"}, "the topology cannot change"),
        ({"to": "2026-01-01T06:00:00Z"}, "to must be after from"),
    ):
        with pytest.raises(RequestError, match=fact):
            await plane.cluster.request("PATCH", f"{path}/r", {"spec": change}, content_type=merge)
    later = {"spec": {"to": "2026-01-03T06:00:00Z"}}
    await plane.cluster.request("PATCH", f"{path}/r", later, content_type=merge)
    await plane.cluster.request("DELETE", f"{path}/r")
