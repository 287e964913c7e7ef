"""Manifests for Kueue, one for each kind that it builds in, run as they are; doubles play the kinds' controllers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml

from kqueue.config import parse
from kqueue.kinds import FRAMEWORKS
from kqueue.manager.process import Flags, running
from tests.integration.appwrapper_double import appwrappers_run
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.cluster import Cluster
from tests.integration.doubles import define
from tests.integration.lws_double import sets_run
from tests.integration.ray_double import kuberay_runs
from tests.integration.road import KUEUE, Object, condition, has
from tests.integration.spark_double import let_drivers_make_pods, spark_runs
from tests.integration.training_double import KINDS as TRAINING
from tests.integration.training_double import training_runs
from tests.integration.trainjob_double import define_trainjobs, trainjobs_run

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kueue"
PAGE = FOLDER.parents[1] / "docs" / "how-to" / "migrate-from-kueue.md"
NAMESPACE = "default"
QUEUE = f"{KUEUE}/clusterqueues/cluster-queue"
CONFIGURATION = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
featureGates: {{SparkApplicationIntegration: true}}
integrations: {{frameworks: [{", ".join(FRAMEWORKS)}]}}
"""
PODS = {
    "appwrapper": 2, "deployment": 3, "jaxjob": 2, "job": 3, "jobset": 5, "leaderworkerset": 6, "mpijob": 3,
    "paddlejob": 2, "pod": 1, "pod-group": 2, "pytorchjob": 3, "raycluster": 3, "rayjob": 4, "rayservice": 3,
    "sparkapplication": 3, "statefulset": 3, "tfjob": 3, "trainjob": 2, "xgboostjob": 3,
}  # fmt: skip
"""Pods by manifest; those of a RayJob include the one that submits it."""
NUMBERS = dict.fromkeys(PODS, 1) | {"deployment": 3, "leaderworkerset": 2}
"""Workloads by manifest."""


@asynccontextmanager
async def world(plane: SandboxPlane, folder: Path) -> AsyncIterator[Cluster]:
    """Nodes, all kinds with their controllers, and kqueue with its webhooks."""
    cluster = plane.cluster
    await cluster.add_nodes((1, 1, 4))
    others = ("JobSet", "LeaderWorkerSet", "TrainJob")
    await define(cluster, folder, [r for r in FRAMEWORKS.values() if "." in r.group and r.kind not in others])
    await define_trainjobs(cluster, folder)
    await let_drivers_make_pods(cluster, NAMESPACE)
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=frozenset({"core", "scheduler", "jobs", "topology", "webhooks"}),
        health_address="0", metrics_address="0", webhook_host="127.0.0.1", webhook_port=0,
        webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    config = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    async with AsyncExitStack() as stack:
        for double in (
            sets_run(cluster, folder), training_runs(cluster, list(TRAINING)), kuberay_runs(cluster),
            appwrappers_run(cluster), spark_runs(plane), trainjobs_run(cluster),
        ):  # fmt: skip
            await stack.enter_async_context(double)
        process = await stack.enter_async_context(running(config, flags))
        await process.operator.ready.wait()
        yield cluster


async def create(cluster: Cluster, manifest: Path) -> None:
    """Create what a file has."""
    plurals = {row.kind: row.plural for row in FRAMEWORKS.values()}
    for obj in yaml.safe_load_all(manifest.read_text()):
        group = obj["apiVersion"] if "/" in obj["apiVersion"] else ""
        base = f"/apis/{group}" if group else f"/api/{obj['apiVersion']}"
        inside = f"/namespaces/{obj['metadata']['namespace']}" if "namespace" in obj["metadata"] else ""
        plural = plurals.get(obj["kind"], f"{obj['kind'].lower()}s")
        await cluster.request("POST", f"{base}{inside}/{plural}", obj)


def manifest_of(name: str) -> str:
    """The manifest that an object comes from; all names begin alike."""
    found = [each for each in PODS if f"{name}-".startswith(f"sample-{each}-") or f"-sample-{each}-" in f"{name}-"]
    return max(found, key=len, default=name)


async def test_manifests_for_kueue_run_as_they_are(sandbox_plane: SandboxPlane, tmp_path: Path) -> None:
    """Each starts whole with quota, and what the kinds' controllers create is not queued a second time."""
    manifests = sorted(file for file in FOLDER.glob("*.yaml") if file.stem != "queues")
    async with world(sandbox_plane, tmp_path) as cluster:
        await create(cluster, FOLDER / "queues.yaml")
        await cluster.until(QUEUE, lambda queue: has(queue, "Active"), what="the queue is active")
        for manifest in manifests:
            await create(cluster, manifest)

        path, found = f"{KUEUE}/namespaces/{NAMESPACE}/workloads", list[Object]()

        def have_run(listed: Object) -> bool:
            found[:] = listed["items"]
            return numbers_of(found) == NUMBERS and all(runs(workload) for workload in found)

        try:
            await cluster.until(path, have_run, what="all manifests run")
        except TimeoutError:
            assert numbers_of(found) == NUMBERS
            assert [each["metadata"]["name"] for each in found if not runs(each)] == []
        pods = Counter[str]()
        for workload in found:
            pods[manifest_of(workload["metadata"]["name"])] += sum(
                each["count"] for each in workload["spec"]["podSets"]
            )

    assert pods == PODS


def runs(workload: Object) -> bool:
    """Whether all pods of a Workload run, or have run to their end."""
    return has(workload, "PodsReady") or (
        has(workload, "Finished") and condition(workload, "Finished")["reason"] == "Succeeded"
    )


def numbers_of(workloads: list[Object]) -> dict[str, int]:
    """How many Workloads each manifest has."""
    return Counter(manifest_of(workload["metadata"]["name"]) for workload in workloads)


def test_the_migration_page_lists_all_manifests() -> None:
    page = PAGE.read_text()
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {*PODS, "queues"}
    assert [file.name for file in FOLDER.glob("*.yaml") if f"`{file.name}`" not in page] == []
