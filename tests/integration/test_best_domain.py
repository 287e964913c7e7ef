"""Gangs that go to the worker cluster on which they stand best, with two sandboxes as workers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.sandbox import Sandbox, SandboxOptions
from tests.integration.conftest import SandboxPlane
from tests.integration.road import KUEUE, Object, Road, job, queue_objects
from tests.integration.teams import configuration, post, resource_groups
from tests.integration.test_explain import command, explaining
from tests.integration.test_multikueue import (
    CONTROLLER,
    FRAMEWORKS,
    MANAGER,
    OWN_NAMESPACE,
    QUICK,
    name_cluster,
    ours,
    until_active,
)

pytestmark = pytest.mark.slow
SETTINGS = "dispatcherName: kqueue.dev/best-domain, bestDomainConfig: {patience: 1h}"
"""With so much patience a gang that was sent to a full cluster stays there."""
BEST = MANAGER.replace("multiKueue: {", f"multiKueue: {{{SETTINGS}, ")


@asynccontextmanager
async def worker(folder: Path, name: str, namespace: str) -> AsyncIterator[tuple[Road, Sandbox]]:
    """A sandbox with one rack of two nodes, and kqueue with its views."""
    sandbox = Sandbox(SandboxOptions(crds=(crd_folder(),)))
    await sandbox.start()
    try:
        sandbox.write_kubeconfig(folder / name)
        plane = SandboxPlane(folder / name)
        await plane.cluster.add_nodes((1, 1, 2), labels={"pool": "gpu"})
        for own in (namespace, OWN_NAMESPACE):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}}
            if not await plane.cluster.exists(f"/api/v1/namespaces/{own}"):
                await plane.cluster.request("POST", "/api/v1/namespaces", body)
        for collection, obj in queue_objects(namespace):
            await plane.cluster.request("POST", collection, obj)
        async with explaining(plane, QUICK, configuration(FRAMEWORKS)):
            yield Road(plane.cluster, namespace), sandbox
    finally:
        await sandbox.stop()


async def submit(road: Road, name: str) -> None:
    """A gang that needs a whole rack."""
    body: Object = job(name, road.namespace, pods=2, run_seconds=600)
    body["spec"]["managedBy"] = CONTROLLER
    await road.cluster.request("POST", road.jobs, body)


def nominated(workloads: Object) -> bool:
    """Whether a workload waits for clusters."""
    return any(each.get("status", {}).get("nominatedClusterNames") for each in workloads["items"])


async def test_two_gangs_and_one_free_rack_in_each_cluster(sandbox_plane: SandboxPlane, tmp_path: Path) -> None:
    """Each gang goes to a cluster of its own, one alone, and nothing is preempted; `kqueue explain` of the third gang names both clusters."""
    plane = sandbox_plane
    namespace = await plane.cluster.create_namespace("best")
    road = Road(plane.cluster, namespace)
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}
    if not await plane.cluster.exists(f"/api/v1/namespaces/{OWN_NAMESPACE}"):
        await plane.cluster.request("POST", "/api/v1/namespaces", own)
    await plane.cluster.request("POST", *queue_objects(namespace)[0])
    await post(plane, "resourceflavors", "plain", {"nodeLabels": {"pool": "gpu"}, "topologyName": "dc"})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    await post(plane, "admissionchecks", "multi", {"controllerName": CONTROLLER, "parameters": parameters})
    config = ours("MultiKueueConfig", "all", {"clusters": ["west", "east"]})
    await plane.cluster.request("POST", f"{KUEUE}/multikueueconfigs", config)
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "multi"}]}}
    queue = {"namespaceSelector": {}, "resourceGroups": resource_groups(64), **checks}
    await post(plane, "clusterqueues", "team", queue)
    await post(plane, "localqueues", "main", {"clusterQueue": "team"}, namespace=namespace)
    async with AsyncExitStack() as stack:
        workers: dict[str, Road] = {}
        for name in ("west", "east"):
            workers[name], sandbox = await stack.enter_async_context(worker(tmp_path, name, namespace))
            await name_cluster(road, name, sandbox.kubeconfig())
        await stack.enter_async_context(explaining(plane, QUICK, configuration(BEST)))
        await until_active(road, "admissionchecks/multi", "True", "Active")
        for name in ("one", "two"):
            await submit(road, name)
        for name in ("one", "two"):
            await road.until_workload(name, "PodsReady")
        sent = {name: (await road.workload_of(name))["status"]["clusterName"] for name in ("one", "two")}
        copies = {name: (await each.cluster.get(each.workloads))["items"] for name, each in workers.items()}
        await submit(road, "three")
        await plane.cluster.until(road.workloads, nominated, what="job three is sent to a cluster")
        code, out, err = await command(plane, "job/three", "-n", namespace, "-o", "json")

    assert sorted(sent.values()) == ["east", "west"]
    assert {name: len(found) for name, found in copies.items()} == {"west": 1, "east": 1}
    ended = [c["type"] for found in copies.values() for one in found for c in one["status"]["conditions"]]
    assert not {"Evicted", "Preempted"} & set(ended)
    assert code == 0, err
    clusters = json.loads(out)["clusters"]
    assert [one["sent"] for one in clusters].count(True) == 1
    assert {one["cluster"]: one["start"] for one in clusters} == {"west": "Later", "east": "Later"}
    assert all(one["message"] for one in clusters), clusters
