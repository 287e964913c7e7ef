"""Jobs of all forms and groups of pods that run come under management whole, and run on to their end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.doubles import collection, define
from tests.integration.jobset_double import JOBSETS, jobsets_run
from tests.integration.road import KUEUE, Object, Road, has, hosts_of, job, make_road
from tests.integration.test_import import import_pods
from tests.integration.test_jobset import IN_ONE_RACK, jobset, replicated
from tests.integration.test_pods import Pods
from tests.integration.test_training_jobs import replicas
from tests.integration.training_double import KINDS, training_runs

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [{}]}}
"""
LONG = 600
QUEUE = f"{KUEUE}/clusterqueues/team"


class Tenant(Pods):
    """One tenant with four racks of two hosts; a job of each form and a group run on one rack each, without a queue."""

    @property
    def jobsets(self) -> str:
        return f"{JOBSETS}/namespaces/{self.namespace}/jobsets"

    async def begin(self) -> None:
        """Start all four and wait until their eight pods run."""
        made = job("train", self.namespace, pods=2, run_seconds=LONG)
        parts = [replicated(name, run_seconds=LONG, asked=IN_ONE_RACK) for name in ("leader", "workers")]
        sets = jobset("set", self.namespace, *parts)
        templates = [one["template"]["spec"]["template"] for one in sets["spec"]["replicatedJobs"]]
        types = {name: replicas(1, LONG) for name in ("Master", "Worker")}
        torch: Object = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "torch"}}
        torch["spec"] = {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": types}
        for obj, path, some, rack in (
            (made, self.jobs, [made["spec"]["template"]], "rack-0-0"),
            (sets, self.jobsets, templates, "rack-0-1"),
            (
                torch,
                collection(KINDS["PyTorchJob"], self.namespace),
                [t["template"] for t in types.values()],
                "rack-0-3",
            ),
        ):
            obj["metadata"]["labels"] = {"app": "train"}
            obj["spec"].pop("suspend", None)
            for template in some:
                template["spec"]["nodeSelector"] = {RACK_LABEL: rack}
            await self.cluster.request("POST", path, obj)
        for number in range(2):
            pod = self.made(f"g-{number}", group="g", total=2, queue=None, index=number)
            pod["metadata"]["labels"]["app"] = "train"
            pod["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = RACK_LABEL
            pod["spec"]["nodeSelector"] = {RACK_LABEL: "rack-0-2"}
            await self.cluster.request("POST", self.pods, pod)

        def run(listed: Object) -> bool:
            return [pod["status"].get("phase") for pod in listed["items"]] == ["Running"] * 8

        await self.cluster.until(self.pods, run, what="eight pods run")

    async def places(self) -> dict[str, str]:
        """The node of each pod by its UID."""
        listed = (await self.cluster.get(self.pods))["items"]
        return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in listed}

    async def named(self) -> dict[str, Object]:
        """The Workloads by the name of their object."""
        listed = (await self.cluster.get(self.workloads))["items"]
        return {w["metadata"]["ownerReferences"][0]["name"].partition("-")[0]: w for w in listed}

    async def write(self, path: str, patch: Object) -> None:
        await self.cluster.request("PATCH", path, patch, content_type=MERGE_PATCH)

    async def succeed(self, begin: str) -> None:
        """End the pods whose names begin so, as their kubelets would."""
        for pod in (await self.cluster.get(self.pods))["items"]:
            if (name := pod["metadata"]["name"]).startswith(begin):
                await self.write(f"{self.pods}/{name}/status", {"status": {"phase": "Succeeded"}})

    async def until_finished(self, name: str) -> None:
        def finished(listed: Object) -> bool:
            return any(
                has(w, "Finished") for w in listed["items"]
                if w["metadata"]["ownerReferences"][0]["name"].partition("-")[0] == name
            )  # fmt: skip

        await self.cluster.until(self.workloads, finished, what=f"the Workload of {name} is finished")


def gpus(queue: Object) -> str:
    """The GPUs that a ClusterQueue has given."""
    usage = queue.get("status", {}).get("flavorsUsage") or [{"resources": []}]
    return next((r["total"] for flavor in usage for r in flavor["resources"] if r["name"] == "nvidia.com/gpu"), "")


@asynccontextmanager
async def working(plane: Plane, frameworks: str) -> AsyncIterator[None]:
    """A controller with its webhooks, which looks after these kinds."""
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    timings = Timings(queue_flush_window=0.1, status_refresh_window=0.2)
    async with running(parse(CONFIGURATION.format(frameworks), source="test"), flags, timings=timings) as process:
        await process.operator.ready.wait()
        yield


async def test_what_runs_is_imported_whole_and_runs_to_its_end(
    either_plane: Plane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quota and racks are charged for them meanwhile, nothing is restarted, and a gang waits for the first free rack.

    An imported job that is evicted stops, and starts again as any other.
    """
    road: Road = await make_road(either_plane.cluster, shape=(1, 4, 2), gpus=96)
    await define(road.cluster, tmp_path, [KINDS["PyTorchJob"], KINDS["XGBoostJob"]])
    tenant, cluster = Tenant(road.cluster, road.namespace), road.cluster
    rules = ("-n", road.namespace, "--queuelabel", "app", "--queuemapping", "train=main")
    async with jobsets_run(either_plane), training_runs(road.cluster, ["PyTorchJob"]):
        await tenant.begin()
        before = await tenant.places()
        checked = await import_pods(either_plane, capsys, *rules, "-o", "json")
        nothing = (await cluster.get(road.workloads))["items"]
        done = await import_pods(either_plane, capsys, *rules, "--dry-run=false")
        first = await tenant.named()
        unlabelled: dict[str, Any] = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}}
        await tenant.write(f"{road.jobs}/train", unlabelled)  # as if the import had been killed here
        await tenant.write(f"{tenant.jobsets}/set", unlabelled)  # or here
        wiped: dict[str, Any] = {"status": {"admission": None, "conditions": []}}
        await tenant.write(f"{road.workloads}/{first['set']['metadata']['name']}/status", wiped)
        async with working(either_plane, "kubeflow.org/xgboostjob"):  # the kinds are off, and no cycle interferes
            again = await import_pods(either_plane, capsys, *rules, "--dry-run=false")
        stored = await tenant.named()

        async with working(either_plane, "batch/job, jobset.x-k8s.io/jobset, kubeflow.org/pytorchjob, pod"):
            charged = await cluster.until(QUEUE, lambda q: gpus(q) == "64", what="the quota of eight hosts is given")
            await road.submit("late", pods=2, run_seconds=LONG)
            await road.until_workload("late", "QuotaReserved", status="False")
            meanwhile = await tenant.places()
            extra = job("extra", road.namespace, pods=1, run_seconds=LONG, gpus=0, required=None)
            extra["metadata"]["labels"], extra["spec"]["suspend"] = {"app": "train"}, False
            await cluster.request("POST", road.jobs, extra)
            await cluster.until(f"{road.jobs}/extra", lambda j: j["status"].get("active"), what="another job runs")
            late = await import_pods(either_plane, capsys, *rules, "--dry-run=false")
            await tenant.succeed("train-")
            await road.until_complete("train")
            await road.until_workload("late", "PodsReady")
            racks = await road.racks_of("late")
            torch = f"{road.workloads}/{stored['torch']['metadata']['name']}"
            await tenant.write(torch, {"spec": {"active": False}})
            await cluster.until(QUEUE, lambda q: gpus(q) == "48", what="the evicted job has given its quota back")
            await tenant.write(torch, {"spec": {"active": True}})
            await tenant.until_running("torch-master-0", "torch-worker-0")
            restarted = await cluster.get(torch)
            await tenant.succeed("set-")
            await tenant.succeed("g-")
            await tenant.succeed("torch-")
            for name in ("train", "set", "g", "torch"):
                await tenant.until_finished(name)
            await cluster.until(QUEUE, lambda q: gpus(q) == "16", what="the quota of the others is free")
            at_the_end = await tenant.places()
            ended = await cluster.get(f"{tenant.jobsets}/set")

    report = json.loads(checked[1])
    assert (checked[0], report["kinds"]) == (
        0, {kind: {"importable": 1, "skipped": 0, "refused": 0} for kind in ("Job", "JobSet", "Pod group", "PyTorchJob")}
    )  # fmt: skip
    assert nothing == []
    assert (done[0], "4 imported" in done[1]) == (0, True)
    assert (again[0], "2 imported" in again[1], "2 are skipped or managed" in again[1]) == (0, True, True)
    assert {name: w["metadata"]["uid"] for name, w in stored.items()} == {
        name: w["metadata"]["uid"] for name, w in first.items()
    }
    assert {name: sorted(hosts_of(w)) for name, w in stored.items()} == {
        "train": ["node-0-0-0", "node-0-0-1"], "set": ["node-0-1-0", "node-0-1-1"], "g": ["node-0-2-0", "node-0-2-1"],
        "torch": ["node-0-3-0", "node-0-3-1"],
    }  # fmt: skip
    assert late[0] == 2
    assert "webhooks of batch/job are registered" in late[1]
    assert charged["status"]["admittedWorkloads"] == 4
    assert meanwhile == before, "nothing was restarted"
    assert racks == {("block-0", "rack-0-0")}
    kept = {uid for uid, node in before.items() if not node.startswith("node-0-3-")}
    assert kept < at_the_end.keys()
    assert sorted(hosts_of(restarted)) == ["node-0-3-0", "node-0-3-1"]
    assert has(ended, "Completed")
    assert ended["status"].get("restarts", 0) == 0
