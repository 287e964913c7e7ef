"""What MultiKueue does behind its feature gates: workers by ClusterProfile, preemption when told, quota that follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.road import KUEUE, Object, Road, condition, job
from tests.integration.teams import Plane
from tests.integration.test_multikueue import CONTROLLER, FRAMEWORKS, MANAGER, OWN_NAMESPACE, ours, two_clusters

pytestmark = pytest.mark.slow

GROUP = "/apis/multicluster.x-k8s.io/v1alpha1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = "clusterprofiles.multicluster.x-k8s.io"
V1 = "client.authentication.k8s.io/v1"
GATE = "kueue.x-k8s.io/multikueue"


def definition() -> Object:
    """The kind ClusterProfile, with a schema that keeps everything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"status": anything}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": DEFINITION,
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/4322"},
        },
        "spec": {
            "group": "multicluster.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "ClusterProfile", "plural": "clusterprofiles", "singular": "clusterprofile"},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def name_by_profile(road: Road, name: str, kubeconfig: str) -> None:
    """A MultiKueueCluster with its ClusterProfile."""
    cluster = {"server": yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]["server"]}
    body = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name},
        "status": {"accessProviders": [{"name": "other", "cluster": {}}, {"name": "script", "cluster": cluster}]},
    }
    await road.cluster.request("POST", f"{GROUP}/namespaces/{OWN_NAMESPACE}/clusterprofiles", body)
    source = {"clusterSource": {"clusterProfileRef": {"name": name}}}
    await road.cluster.request("POST", f"{KUEUE}/multikueueclusters", ours("MultiKueueCluster", name, source))


def settings(folder: Path) -> str:
    """The manager's configuration, with a program that prints a token."""
    credential = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t"}}
    (folder / "plugin").write_text(f"#!/bin/sh\ncat <<END\n{json.dumps(credential)}\nEND\n")
    (folder / "plugin").chmod(0o700)
    config: Any = {"apiVersion": V1, "command": str(folder / "plugin"), "interactiveMode": "Never"}
    read = yaml.safe_load(MANAGER)
    read["multiKueue"]["clusterProfile"] = {"accessProviders": [{"name": "script", "execConfig": config}]}
    read["featureGates"] = {"MultiKueueClusterProfile": True, "MultiKueueOrchestratedPreemption": True}
    read["featureGates"]["MultiKueueManagerQuotaAutomation"] = True
    return str(yaml.safe_dump(read))


async def prepare(plane: Plane) -> None:
    """The manager knows ClusterProfiles."""
    await plane.cluster.request("POST", DEFINITIONS, definition())
    await plane.cluster.until(
        f"{DEFINITIONS}/{DEFINITION}",
        lambda obj: any(c["type"] == "Established" for c in (obj.get("status") or {}).get("conditions") or []),
        what="ClusterProfiles are served",
    )


async def test_a_worker_by_profile_preempts_when_its_manager_says_so(either_plane: Plane, tmp_path: Path) -> None:
    """A program of the configuration gives the credentials; the copy is blocked, its gate is opened, and it preempts."""
    await prepare(either_plane)
    gates = FRAMEWORKS + "featureGates: {MultiKueueOrchestratedPreemption: true}\n"
    try:
        async with two_clusters(
            either_plane, tmp_path, manager=settings(tmp_path), worker=gates, named=name_by_profile
        ) as (road, worker, _):
            await raise_priorities(road, worker)
            await until_quota_follows(road)
            await worker.cluster.request(
                "POST", worker.jobs, job("low", worker.namespace, required=None, run_seconds=600)
            )
            await worker.until_workload("low", "PodsReady")
            high = job("high", road.namespace, required=None, run_seconds=600)
            high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
            high["spec"]["managedBy"] = CONTROLLER
            await road.cluster.request("POST", road.jobs, high)
            await road.until_workload("high", "PodsReady")
            copies = (await worker.cluster.get(worker.workloads))["items"]
            preempted = condition(await worker.workload_of("low"), "Preempted")
    finally:
        await either_plane.cluster.request("DELETE", f"{DEFINITIONS}/{DEFINITION}")

    (copy,) = [each for each in copies if each["spec"].get("preemptionGates")]
    assert copy["spec"]["preemptionGates"] == [{"name": GATE}]
    assert [(gate["name"], gate["position"]) for gate in copy["status"]["preemptionGates"]] == [(GATE, "Open")]
    assert condition(copy, "BlockedOnPreemptionGates")["status"] == "False"
    assert preempted["status"] == "True"


async def until_quota_follows(road: Road) -> None:
    """The config asks for the worker's quota, and the manager's ClusterQueue gets it."""
    config = {"spec": {"quotaManagement": "Automated"}}
    await road.cluster.request("PATCH", f"{KUEUE}/multikueueconfigs/all", config, content_type=MERGE_PATCH)

    def follows(obj: Object) -> bool:
        resources = obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
        reasons = [each["reason"] for each in obj.get("status", {}).get("conditions", [])]
        amounts = [each["nominalQuota"] for each in resources]
        return amounts == ["6k", "512"] and "QuotaAutomated" in reasons

    await road.cluster.until(f"{KUEUE}/clusterqueues/team", follows, what="quotas are those of the worker")


async def raise_priorities(road: Road, worker: Road) -> None:
    """A class of priorities on both clusters, and preemption by it on the worker."""
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
    }
    for cluster in (road.cluster, worker.cluster):
        await cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", body)
    preempting = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    await worker.cluster.request("PATCH", f"{KUEUE}/clusterqueues/team", preempting, content_type=MERGE_PATCH)
