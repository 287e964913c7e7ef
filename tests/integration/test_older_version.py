"""Manifests, clients and stored objects of v1beta1, on both control planes."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.config import parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import CRDS, SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import CRDS as DEFINITIONS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import HOST, Object, Road, condition, hosts_of, job

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
OLD, NEW = "/apis/kueue.x-k8s.io/v1beta1", "/apis/kueue.x-k8s.io/v1beta2"
NOT_CONVERTED = (429, 500)
"""A list that the API server cannot convert, with and without a cache."""
UNREACHABLE = "conversion webhook", "storage is (re)initializing"
"""What the API server says then: without a cache, and as long as its cache cannot be filled."""
QUEUES = "clusterqueues.kueue.x-k8s.io"
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
"""
MANIFESTS = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: dc}
spec:
  levels: [{nodeLabel: cloud.provider.com/topology-block}, {nodeLabel: cloud.provider.com/topology-rack},
           {nodeLabel: kubernetes.io/hostname}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: gpu}
spec: {nodeLabels: {pool: gpu}, topologyName: dc}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
description: Before all others
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: all}
spec: {fairSharing: {weight: 1}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team}
spec:
  cohort: all
  namespaceSelector: {}
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: TryNextFlavor}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  resourceGroups:
    - coveredResources: [cpu, nvidia.com/gpu]
      flavors:
        - name: gpu
          resources:
            - {name: cpu, nominalQuota: 100, borrowingLimit: 10}
            - {name: nvidia.com/gpu, nominalQuota: 16}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main, namespace: NAMESPACE}
spec: {clusterQueue: team}
"""


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.controlplane)])
def wanted_real_plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """A real control plane, or None where the test is to run on the sandbox."""
    return request.getfixturevalue("converting_plane") if request.param == "real" else None


@asynccontextmanager
async def manager(plane: Plane) -> AsyncIterator[None]:
    """kqueue with its webhooks, outside of the cluster."""
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    config = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    async with running(config, flags) as process:
        await process.operator.ready.wait()
        yield


async def answered(plane: Plane, path: str) -> Object:
    """The object or list at a path, as soon as the API server has learnt where the conversion is."""
    async with asyncio.timeout(60):  # it tries again after up to 30 s
        while True:
            try:
                return await plane.cluster.get(path)
            except RequestError as error:
                if error.status not in NOT_CONVERTED:
                    raise
                await asyncio.sleep(0.1)


async def test_an_old_manifest_set_runs_a_job(either_plane: Plane, tmp_path: Path) -> None:
    """kubectl applies it twice, a gang starts, a reader of v1beta1 sees its fields and changes them."""
    plane, cluster = either_plane, either_plane.cluster
    await cluster.add_nodes((1, 2, 2), labels={"pool": "gpu"})
    namespace = await cluster.create_namespace("old")
    road = Road(cluster, namespace)
    manifests = MANIFESTS.replace("NAMESPACE", namespace)
    async with manager(plane):
        await answered(plane, f"{OLD}/clusterqueues")
        applied = await plane.kubectl("apply", "-f", "-", stdin=manifests)
        again = await plane.kubectl("apply", "-f", "-", stdin=manifests)
        submitted = job("train", namespace, pods=2, run_seconds=1)
        submitted["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
        await cluster.request("POST", road.jobs, submitted)
        await road.until_workload("train", "Finished")
        new = await road.workload_of("train")
        old = await cluster.get(f"{OLD}/namespaces/{namespace}/workloads/{new['metadata']['name']}")
        queue = await cluster.get(f"{NEW}/clusterqueues/team")
        patch = {"spec": {"admissionChecks": ["quota-office"], "cohort": None, "resourceGroups": None}}
        await cluster.request("PATCH", f"{OLD}/clusterqueues/team", patch, content_type=MERGE_PATCH)
        changed = await cluster.get(f"{NEW}/clusterqueues/team")
        wrong: Object = {"spec": {"resourceGroups": [wrong_group()]}}
        with pytest.raises(RequestError, match="is not valid") as answer:
            await cluster.request("PATCH", f"{OLD}/clusterqueues/team", wrong, content_type=MERGE_PATCH)
        columns = await plane.kubectl("get", "clusterqueues.v1beta1.kueue.x-k8s.io")

    assert applied.count("created") == again.count("\n") == 6
    assert queue["spec"]["cohortName"] == "all"
    assert queue["spec"]["flavorFungibility"]["whenCanBorrow"] == "MayStopSearch"
    assert old["spec"]["priorityClassSource"] == "kueue.x-k8s.io/workloadpriorityclass"
    assert (old["spec"]["priorityClassName"], old["spec"]["priority"]) == ("high", 1000)
    assignment = old["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    assert assignment["levels"] == [HOST]
    assert {each["values"][0]: each["count"] for each in assignment["domains"]} == hosts_of(new)
    assert condition(old, "Finished")["status"] == "True"
    assert changed["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "quota-office"}]}
    assert "cohortName" not in changed["spec"]
    assert answer.value.status == 403
    assert "COHORT" in columns


def wrong_group() -> Object:
    """A group that the schema allows, and the validating webhook does not."""
    resource = {"name": "invalid-resource/", "nominalQuota": 1}
    return {"coveredResources": ["invalid-resource/"], "flavors": [{"name": "gpu", "resources": [resource]}]}


async def test_objects_that_are_stored_in_v1beta1_are_read_and_written_on(either_plane: Plane, tmp_path: Path) -> None:
    """Also before kqueue has its first list; a write stores them in v1beta2.  Watchers of both versions see them."""
    plane, cluster = either_plane, either_plane.cluster
    definition = yaml.safe_load((CRDS / "clusterqueues.yaml").read_text())
    await stored_as(plane, definition, "v1beta1")
    made = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "team"},
            "spec": {"cohort": "all", "flavorFungibility": {"whenCanBorrow": "Borrow"}}}  # fmt: skip
    await created(plane, f"{OLD}/clusterqueues", made)
    await stored_as(plane, definition, "v1beta2")
    unreachable = await refused(plane, f"{NEW}/clusterqueues")

    async with manager(plane):
        listed = await answered(plane, f"{NEW}/clusterqueues")
        await cluster.until(
            f"{NEW}/clusterqueues/team", lambda q: "conditions" in q.get("status", {}), what="its status is written"
        )
        lines = await plane.kubectl(
            "get", "clusterqueues.v1beta1.kueue.x-k8s.io", "--watch", "-o", "json", "--request-timeout=2s"
        )
        await cluster.request("DELETE", f"{NEW}/clusterqueues/team")
        await cluster.until(f"{NEW}/clusterqueues", lambda found: not found["items"], what="it is gone")

    (found,) = listed["items"]
    assert (found["apiVersion"], found["spec"]["cohortName"]) == ("kueue.x-k8s.io/v1beta2", "all")
    assert any(reason in unreachable for reason in UNREACHABLE)
    first = json.JSONDecoder().raw_decode(lines)[0]
    assert (first["apiVersion"], first["spec"]["cohort"]) == ("kueue.x-k8s.io/v1beta1", "all")


async def created(plane: Plane, collection: str, obj: Object) -> None:
    """Create an object, as soon as the API server stores it without a conversion."""
    async with asyncio.timeout(30):
        while True:
            try:
                await plane.cluster.request("POST", collection, obj)
                return
            except RequestError as error:
                if error.status not in NOT_CONVERTED:
                    raise
                await asyncio.sleep(0.1)


async def refused(plane: Plane, path: str) -> str:
    """Ask until the API server cannot convert the answer; return its message."""
    async with asyncio.timeout(30):
        while True:
            try:
                await plane.cluster.get(path)
            except RequestError as error:
                if error.status in NOT_CONVERTED:
                    return str(error)
                raise
            await asyncio.sleep(0.1)


async def stored_as(plane: Plane, definition: Object, version: str) -> None:
    """Let the API server store new ClusterQueues in a version, and wait until it does."""
    changed: Any = copy.deepcopy(definition)
    for each in changed["spec"]["versions"]:
        each["storage"] = each["name"] == version
    patch = {"spec": {"versions": changed["spec"]["versions"], "conversion": changed["spec"]["conversion"]}}
    patch["spec"]["conversion"]["webhook"]["clientConfig"]["url"] = None
    path = f"{DEFINITIONS}/{QUEUES}"
    await plane.cluster.request("PATCH", path, patch, content_type=MERGE_PATCH)
    await plane.cluster.until(
        path, lambda crd: version in crd["status"]["storedVersions"], what=f"new objects are stored as {version}"
    )
