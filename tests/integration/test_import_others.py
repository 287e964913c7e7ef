"""A running group of another scheduler, with a pod beyond its quorum, and an elastic job come under management."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, job, make_road
from tests.integration.test_import import admitted, import_pods
from tests.integration.test_import_jobs import Tenant, gpus

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [batch/job, pod, kqueue.dev/coscheduling-labels]}
"""
PARTS = frozenset({"core", "scheduler", "jobs", "topology"})
QUEUE = f"{KUEUE}/clusterqueues/team"
LONG = 600


async def begin(road: Road, tenant: Tenant) -> None:
    """A ClusterQueue with an admission check; an elastic Job of two pods, and a group of two with a third pod, run."""
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "budget"}}
    controller = {"spec": {"controllerName": "example.com/budget"}}
    await road.cluster.request("POST", f"{KUEUE}/admissionchecks", check | controller)
    await road.change_queue(admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]})
    made = job("elastic", road.namespace, pods=2, required=None, run_seconds=LONG)
    made["metadata"] |= {"labels": {"app": "train"}, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    del made["spec"]["suspend"]
    await road.cluster.request("POST", road.jobs, made)
    group = {"name": "g", "min-available": "2"}
    labels = {f"pod-group.scheduling.x-k8s.io/{key}": value for key, value in group.items()}
    for number in range(3):
        pod = tenant.made(f"g-{number}", queue=None, labels={"app": "train", **labels})
        await road.cluster.request("POST", road.pods, pod)

    def run(listed: Object) -> bool:
        return [pod["status"].get("phase") for pod in listed["items"]] == ["Running"] * 5

    await road.cluster.until(road.pods, run, what="five pods run")


async def test_groups_of_others_and_elastic_jobs_are_imported_and_run_on(
    either_plane: Plane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is restarted, their quota counts until they end, and the check counts as passed."""
    road = await make_road(either_plane.cluster, shape=(1, 3, 2), gpus=96)
    cluster, tenant, config = road.cluster, Tenant(road.cluster, road.namespace), tmp_path / "config.yaml"
    config.write_text(CONFIGURATION)
    await begin(road, tenant)
    before = await tenant.places()
    rules = ("-n", road.namespace, "--queuelabel", "app", "--queuemapping", "train=main", "--config", str(config))
    done = await import_pods(either_plane, capsys, *rules, "--dry-run=false")
    workloads = (await cluster.get(road.workloads))["items"]
    states = [one["state"] for w in workloads for one in w["status"]["admissionChecks"]]

    flags = Flags(kubeconfig=either_plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0")
    timings = Timings(queue_flush_window=0.1, status_refresh_window=0.2)
    async with running(parse(CONFIGURATION, source="test"), flags, timings=timings) as process:
        await process.operator.ready.wait()
        charged = await cluster.until(QUEUE, lambda q: gpus(q) == "40", what="the quota of five hosts is given")
        after = await tenant.places()
        await tenant.succeed("g-")
        await cluster.until(QUEUE, lambda q: gpus(q) == "16", what="the group has given its hosts back")
        await tenant.succeed("elastic-")
        await cluster.until(QUEUE, lambda q: gpus(q) in ("", "0"), what="the elastic job has given its hosts back")
        await road.until_complete("elastic")

    assert (done[0], "3 imported" in done[1]) == (0, True), done[1]
    assert states == ["Ready"] * 3
    assert all(map(admitted, workloads))
    assert charged["status"]["admittedWorkloads"] == 3
    assert after == before
