"""Jobs on three real control planes: a manager, and two workers with nodes and with kqueue of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kqueue.manager.process import running
from kqueue.sandbox.simulated_kinds import SIMULATED
from tests.integration.conftest import of_one_version
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.jobset_double import jobsets_run
from tests.integration.road import KUEUE, Object, Road, queue_objects
from tests.integration.teams import configuration, flags, post, resource_groups
from tests.integration.test_multikueue import (
    CONTROLLER,
    FRAMEWORKS,
    MANAGER,
    OWN_NAMESPACE,
    QUICK,
    name_cluster,
    ours,
    submit,
    submit_set,
    until_active,
    until_empty,
)

pytestmark = [pytest.mark.slow, pytest.mark.seldom, pytest.mark.controlplane]

WORKERS = ("east", "west")
NAMESPACE = "multi"


@dataclass(frozen=True, slots=True)
class Three:
    """The clusters."""

    manager: Road
    workers: dict[str, Road]
    planes: dict[str, ControlPlane]
    """Of the workers."""

    def other(self, name: str) -> str:
        """Return the name of the other worker."""
        return next(each for each in WORKERS if each != name)


async def make_namespace(plane: ControlPlane, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await plane.cluster.request("POST", "/api/v1/namespaces", body)


@asynccontextmanager
async def worker(folder: Path, crds: tuple[Path, ...]) -> AsyncIterator[ControlPlane]:
    """A worker with four nodes, a tenant, and kqueue."""
    folder.mkdir()
    async with ControlPlane.start(folder, parts=ALL_PARTS, crds=crds) as plane:
        await plane.cluster.add_nodes((1, 1, 4), labels={"pool": "gpu"})
        await make_namespace(plane, NAMESPACE)
        for collection, obj in queue_objects(NAMESPACE):
            await plane.cluster.request("POST", collection, obj)
        async with running(configuration(FRAMEWORKS), flags(plane), timings=QUICK) as process:
            await process.operator.ready.wait()
            yield plane


async def fill_manager(plane: ControlPlane) -> None:
    """The queue `team` with the check, and the namespaces."""
    for name in (NAMESPACE, OWN_NAMESPACE):
        await make_namespace(plane, name)
    await post(plane, "resourceflavors", "plain", {})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    await post(plane, "admissionchecks", "multi", {"controllerName": CONTROLLER, "parameters": parameters})
    config = ours("MultiKueueConfig", "all", {"clusters": list(WORKERS)})
    await plane.cluster.request("POST", f"{KUEUE}/multikueueconfigs", config)
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "multi"}]}}
    queue = {"namespaceSelector": {}, "resourceGroups": resource_groups(64), **checks}
    await post(plane, "clusterqueues", "team", queue)
    await post(plane, "localqueues", "main", {"clusterQueue": "team"}, namespace=NAMESPACE)


@asynccontextmanager
async def three_clusters(folder: Path) -> AsyncIterator[Three]:
    """A manager, of which an API server is enough, connected to two workers."""
    crds = (of_one_version(folder / "crds"), SIMULATED)
    async with AsyncExitStack() as stack:
        planes = {name: await stack.enter_async_context(worker(folder / name, crds)) for name in WORKERS}
        (folder / "manager").mkdir()
        plane = await stack.enter_async_context(ControlPlane.start(folder / "manager", crds=crds))
        await fill_manager(plane)
        road = Road(plane.cluster, NAMESPACE)
        for name, each in planes.items():
            await name_cluster(road, name, each.kubeconfig.read_text())
        process = await stack.enter_async_context(running(configuration(MANAGER), flags(plane), timings=QUICK))
        await process.operator.ready.wait()
        await until_active(road, "admissionchecks/multi", "True", "Active")
        yield Three(road, {name: Road(each.cluster, NAMESPACE) for name, each in planes.items()}, planes)


async def until_on(road: Road, name: str, cluster: str) -> None:
    """Wait until a worker runs the job, as the manager tells."""

    def there(found: Object) -> bool:
        mine = [w for w in found["items"] if w["metadata"]["ownerReferences"][0]["name"] == name]
        ready = {c["type"] for w in mine for c in w["status"].get("conditions", ()) if c["status"] == "True"}
        return "PodsReady" in ready and [w["status"].get("clusterName") for w in mine] == [cluster]

    await road.cluster.until(road.workloads, there, what=f"{cluster} runs {name}")


async def test_a_job_runs_on_the_first_worker_and_moves_when_that_is_lost(tmp_path: Path) -> None:
    """A JobSet comes to its end, too.  A worker that is back gives up what the other has taken over; a deleted job leaves
    nothing.
    """
    async with three_clusters(tmp_path) as three:
        road = three.manager
        await submit(road, "train", 600)
        await road.until_workload("train", "PodsReady")
        first = (await road.workload_of("train"))["status"]["clusterName"]
        second = three.other(first)
        await until_empty(three.workers[second])
        async with jobsets_run(three.planes["east"]), jobsets_run(three.planes["west"]):
            path = await submit_set(road, "set", 1)
            await road.until_workload("set", "Finished", reason="Succeeded")
            job_set = await road.cluster.get(path)

        server = next(process for process in three.planes[first].processes if process.name == "kube-apiserver")
        await asyncio.to_thread(server.stop)
        await until_on(road, "train", second)
        jobs = (await three.workers[second].cluster.get(three.workers[second].jobs))["items"]
        await three.planes[first].restart_api_server()
        await until_empty(three.workers[first])

        await road.cluster.request("DELETE", f"{road.jobs}/train")
        await until_empty(three.workers[second])

    assert job_set["status"]["terminalState"] == "Completed"
    assert [job["metadata"]["name"] for job in jobs] == ["train"]
