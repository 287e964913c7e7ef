"""BatchProcesses, end to end: process types that start together, their pods, Service, status and end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.polling import next_second
from tests.integration.road import KUEUE, Object, condition, has, make_road
from tests.integration.test_pods import PARTS, Pods, gates

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [kqueue.dev/batchprocess]}
resources: {excludeResourcePrefixes: [memory]}
"""
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "batch-process.md"
RUN = "sandbox.kqueue.dev/run-seconds"


def a_process(name: str, replicas: int, minimum: int | None = None, *, gpus: int = 8, seconds: int = 600) -> Object:
    """A process type whose pods take a node each."""
    found: Object = {
        "name": name,
        "replicas": replicas,
        "command": ["sh", "-c", "sleep 1"],
        "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": str(gpus)}},
        "template": {"metadata": {"annotations": {RUN: str(seconds)}}},
    }
    return found if minimum is None else {**found, "minAvailable": minimum}


class BatchRoad(Pods):
    """One tenant with BatchProcesses."""

    @property
    def batches(self) -> str:
        return f"/apis/kqueue.dev/v1alpha1/namespaces/{self.namespace}/batchprocesses"

    async def create_batch(self, name: str, *processes: Object, queue: str = "main", **spec: Any) -> Object:
        labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        obj = {
            "apiVersion": "kqueue.dev/v1alpha1",
            "kind": "BatchProcess",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "spec": {"image": "example.com/train:1", "simpleProcesses": [*processes], **spec},
        }
        return await self.cluster.request("POST", self.batches, obj)

    async def until_batch(self, name: str, wanted: Callable[[Object], bool], *, what: str) -> Object:
        return await self.cluster.until(f"{self.batches}/{name}", wanted, what=f"BatchProcess {name} {what}")

    async def until_phase(self, name: str, phase: str) -> Object:
        return await self.until_batch(name, lambda o: o.get("status", {}).get("phase") == phase, what=f"is {phase}")

    async def until_condition(self, name: str, kind: str, status: str = "True") -> Object:
        """Wait for a condition; returns it."""

        def reached(obj: Object) -> bool:
            found = obj.get("status", {}).get("conditions", [])
            return any((c["type"], c["status"]) == (kind, status) for c in found)

        return condition(await self.until_batch(name, reached, what=f"has {kind}={status}"), kind)

    async def until_running_pods(self, **processes: int) -> list[Object]:
        """Wait until so many pods of each process type run, and return all pods that run."""

        def by_process(listed: Object) -> dict[str, int]:
            found: dict[str, int] = {}
            for pod in _that_run(listed):
                process = pod["metadata"]["labels"]["kqueue.dev/process"]
                found[process] = found.get(process, 0) + 1
            return found

        listed = await self.cluster.until(self.pods, lambda now: by_process(now) == processes, what=f"{processes} run")
        return _that_run(listed)

    async def change(self, name: str, spec: Object) -> None:
        path = f"{self.batches}/{name}"
        await self.cluster.request("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)

    async def workload_of_batch(self, name: str) -> Object:
        """The Workload that the BatchProcess controls."""
        found = await self.until_condition(name, "Queued")
        assert found["reason"] == "WorkloadCreated"
        return await self.workload_of(name)


def _that_run(listed: Object) -> list[Object]:
    return [
        pod
        for pod in listed["items"]
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]


@asynccontextmanager
async def controller(plane: Plane) -> AsyncIterator[None]:
    """One process of kqueue, with its webhooks."""
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configuration = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    timings = Timings(queue_flush_window=0.1, status_refresh_window=0.2)
    async with running(configuration, flags, timings=timings) as process:
        await process.operator.ready.wait()
        yield


async def make_batches(plane: Plane, *, gpus: int) -> BatchRoad:
    """Nodes, and a tenant with quota for so many GPUs."""
    road = await make_road(plane.cluster, gpus=gpus)
    return BatchRoad(plane.cluster, road.namespace)


@asynccontextmanager
async def world(plane: Plane, *, gpus: int) -> AsyncIterator[BatchRoad]:
    road = await make_batches(plane, gpus=gpus)
    async with controller(plane):
        yield road


PUBLISHED: Object = {
    "podGroup": {"replicas": 4, "minAvailable": 2, "timeoutSeconds": 30},
    "simpleProcesses": [
        {
            "command": ["bash", "-c", "tail -f /etc/hosts"],
            "replicas": 2,
            "minAvailable": 1,
            "resources": {"limits": {"cpu": 2, "memory": 2048}},
            "template": {"metadata": {"annotations": {RUN: "600"}}},
        }
    ]
    * 2,
}
"""Two types of two pods each, of which one each is needed, as the published example has it."""


@pytest.mark.proves("BatchProcess", "queueing")
@pytest.mark.proves("BatchProcess", "pods beyond the quorum")
@pytest.mark.mechanism("3.28", "3.34")
async def test_two_types_run_as_one_gang(either_plane: Plane) -> None:
    """Rows 3.28, 3.34: one Workload, both types start together, and the rest follows; the last bind is reported."""
    async with world(either_plane, gpus=8) as road:
        obj = {
            "apiVersion": "kqueue.dev/v1alpha1",
            "kind": "BatchProcess",
            "metadata": {
                "name": "podgroup1", "namespace": road.namespace, "labels": {"kueue.x-k8s.io/queue-name": "main"},
            },
            "spec": {**PUBLISHED, "image": "example.com/train:1"},
        }  # fmt: skip
        await road.cluster.request("POST", road.batches, obj)
        workload = await road.workload_of_batch("podgroup1")
        scheduled = await road.until_condition("podgroup1", "Scheduled")
        pods = await road.until_running_pods(**{"process-0": 2, "process-1": 2})
        found = await road.until_batch("podgroup1", lambda o: o["status"].get("running") == 4, what="runs")
        service = await road.cluster.get(f"/api/v1/namespaces/{road.namespace}/services/podgroup1")

    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("process-0", 1), ("process-1", 1)]
    assert scheduled["message"] == "the quorum of 2 pods is scheduled"
    assert found["status"]["phase"] == "Running"
    assert (found["status"]["quorum"], found["status"]["scheduled"]) == ("2/4", 4)
    assert sorted(p["metadata"]["labels"]["kqueue.dev/rank"] for p in pods) == ["0", "1", "2", "3"]
    assert all(gates(pod) == [] for pod in pods)
    assert service["spec"]["clusterIP"] == "None"


async def test_the_object_of_a_workspace_runs_as_it_is(either_plane: Plane) -> None:
    """Under its own apiVersion, without queue and image: the namespace says both.  It is deleted with all its pods."""
    await either_plane.cluster.apply_crds(PAGE.parents[2] / "config" / "crd" / "optional")
    async with world(either_plane, gpus=8) as road:
        batches = f"/apis/workspace.brainpp.cn/v1alpha1/namespaces/{road.namespace}/batchprocesses"
        marks = {
            "labels": {"kqueue.dev/gang-queue": "main"},
            "annotations": {"kqueue.dev/batch-image": "example.com/train:1"},
        }
        namespace = f"/api/v1/namespaces/{road.namespace}"
        await road.cluster.request("PATCH", namespace, {"metadata": marks}, content_type=MERGE_PATCH)
        obj = {
            "apiVersion": "workspace.brainpp.cn/v1alpha1",
            "kind": "BatchProcess",
            "metadata": {"name": "podgroup1", "namespace": road.namespace},
            "spec": PUBLISHED,
        }
        await road.cluster.request("POST", batches, obj)
        pods = await road.until_running_pods(**{"process-0": 2, "process-1": 2})
        path = f"{batches}/podgroup1"
        runs = await road.cluster.until(path, lambda o: o.get("status", {}).get("running") == 4, what="all run")
        await road.cluster.request("DELETE", path)
        await road.cluster.until(road.pods, lambda listed: not listed["items"], what="its pods are gone")
        await road.cluster.until(road.workloads, lambda listed: not listed["items"], what="its Workloads are gone")

    assert (runs["status"]["phase"], runs["status"]["quorum"]) == ("Running", "2/4")
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"example.com/train:1"}


@pytest.mark.mechanism("3.29")
async def test_no_type_runs_without_the_other(either_plane: Plane) -> None:
    """Row 3.29: the quorum of three is two teachers and a student; there is room for two pods, so there is none."""
    async with world(either_plane, gpus=16) as road:
        await road.create_batch(
            "distill", a_process("teacher", 2, 1), a_process("student", 2, 1), podGroup={"minAvailable": 3}
        )
        waits = await road.until_condition("distill", "Admitted", "False")
        before = await road.cluster.get(road.pods)
        quota = [{"name": "cpu", "nominalQuota": "6000"}, {"name": "nvidia.com/gpu", "nominalQuota": "24"}]
        flavors = [{"name": "gpu", "resources": quota}]
        groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": flavors}]
        await road.cluster.request(
            "PATCH", f"{KUEUE}/clusterqueues/team", {"spec": {"resourceGroups": groups}}, content_type=MERGE_PATCH
        )
        await road.until_running_pods(teacher=2, student=1)

    assert before["items"] == []
    assert "nvidia.com/gpu" in waits["message"]


@pytest.mark.mechanism("3.32")
async def test_the_wait_for_the_quorum_ends_with_a_reason(either_plane: Plane) -> None:
    """Row 3.32: there is no room within the time; also over a restart of the controller nothing comes back."""
    road = await make_batches(either_plane, gpus=8)
    async with controller(either_plane):
        await road.create_batch("distill", a_process("teacher", 2), podGroup={"timeoutSeconds": 3})
        failed = await road.until_condition("distill", "Failed")
        workload = (await road.workload_of("distill"))["metadata"]["name"]
        await road.cluster.until(
            f"{road.workloads}/{workload}", lambda w: has(w, "Finished"), what="Workload is finished"
        )
    async with controller(either_plane):
        await road.create_batch("other", a_process("teacher", 1))
        await road.until_phase("other", "Running")
        found = await road.cluster.get(f"{road.batches}/distill")
        pods = await road.cluster.get(road.pods)

    assert failed["reason"] == "TimedOut"
    assert failed["message"].startswith("0 of 2 pods were scheduled within 3 s of the creation; all pods were removed")
    assert (found["status"]["phase"], condition(found, "Failed")["reason"]) == ("Failed", "TimedOut")
    assert {p["metadata"]["labels"]["kqueue.dev/batch-process"] for p in pods["items"]} == {"other"}


@pytest.mark.proves("BatchProcess", "replacement pods")
@pytest.mark.mechanism("3.33")
async def test_a_killed_member_comes_back_alone(either_plane: Plane) -> None:
    """Row 3.33: the other three are not touched, whichever controller sees it."""
    road = await make_batches(either_plane, gpus=32)
    async with controller(either_plane):
        await road.create_batch("distill", a_process("teacher", 2), a_process("student", 2))
        first = await road.until_running_pods(teacher=2, student=2)
        await road.until_phase("distill", "Running")
    victim = next(p for p in first if p["metadata"]["labels"]["kqueue.dev/process"] == "teacher")
    await road.cluster.request("DELETE", f"{road.pods}/{victim['metadata']['name']}")
    async with controller(either_plane):
        place = {key: victim["metadata"]["labels"][f"kqueue.dev/{key}"] for key in ("process", "process-index")}

        def is_back(listed: Object) -> bool:
            others = [p for p in _that_run(listed) if p["metadata"]["uid"] != victim["metadata"]["uid"]]
            return len(others) == 4

        listed = await road.cluster.until(road.pods, is_back, what="four pods run again")
        status = (await road.until_batch("distill", lambda o: o["status"].get("failures") == 1, what="counts"))[
            "status"
        ]

    pods = {p["metadata"]["uid"]: p for p in _that_run(listed)}
    new = [pod for uid, pod in pods.items() if uid not in {p["metadata"]["uid"] for p in first}]
    assert len(new) == 1
    assert {key: new[0]["metadata"]["labels"][f"kqueue.dev/{key}"] for key in place} == place
    assert new[0]["metadata"]["annotations"]["kqueue.dev/attempt"] == "1"
    assert status["failures"] == 1


@pytest.mark.proves("BatchProcess", "finished")
async def test_the_example_of_the_page_runs(either_plane: Plane) -> None:
    """As it stands there, in another namespace, on pods that end."""
    texts = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    found = [yaml.safe_load(text.partition("```")[0]) for text in texts]
    obj = next(document for document in found if document.get("kind") == "BatchProcess")
    async with world(either_plane, gpus=4) as road:
        obj["metadata"]["namespace"] = road.namespace
        for process in obj["spec"]["simpleProcesses"]:
            process["template"] = {"metadata": {"annotations": {RUN: "4"}}}
        await road.cluster.request("POST", road.batches, obj)
        complete = await road.until_condition("distill", "Complete")
        found_status = (await road.cluster.get(f"{road.batches}/distill"))["status"]

    assert complete["reason"] == "SuccessPolicyMet"
    assert (found_status["phase"], found_status["quorum"]) == ("Finished", "2/4")


@pytest.mark.proves("BatchProcess", "stop and restore")
@pytest.mark.proves("BatchProcess", "finished")
async def test_it_is_suspended_resumed_and_completes(either_plane: Plane) -> None:
    """Suspended, it has no pods and no quota; its end removes what still runs, and it is deleted in time."""
    async with world(either_plane, gpus=16) as road:
        await road.create_batch(
            "distill",
            a_process("teacher", 1),
            a_process("student", 1, seconds=4),
            successPolicy={"processes": ["student"]},
            ttlSecondsAfterFinished=3,
        )
        await road.until_running_pods(teacher=1, student=1)
        await road.change("distill", {"suspend": True})
        await road.until_phase("distill", "Suspended")
        await road.cluster.until(road.pods, lambda listed: not listed["items"], what="no pods")
        await road.change("distill", {"suspend": False})
        await road.until_running_pods(teacher=1, student=1)
        complete = await road.until_condition("distill", "Complete")
        await road.cluster.until(road.batches, lambda listed: not listed["items"], what="deleted after its time")
        await road.cluster.until(road.pods, lambda listed: not listed["items"], what="its pods are gone")
        await road.cluster.until(road.workloads, lambda listed: not listed["items"], what="its Workload is gone")

    assert complete["message"] == "1 pods succeeded"


async def test_a_form_that_the_server_refuses_is_told_before_anything_is_queued(either_plane: Plane) -> None:
    """Condition Queued has the API server's message about the pods, and there is no Workload; a missing queue is a condition, too."""
    async with world(either_plane, gpus=16) as road:
        wrong = a_process("teacher", 1)
        wrong["template"]["spec"] = {"containers": [{"name": "Not A Name"}]}
        await road.create_batch("wrong", wrong)
        refused = await road.until_condition("wrong", "Queued", "False")
        await road.create_batch("nowhere", a_process("teacher", 1), queue="")
        homeless = await road.until_condition("nowhere", "Queued", "False")
        workloads = await road.cluster.get(road.workloads)

    assert refused["reason"] == "Invalid"
    assert "process teacher" in refused["message"]
    assert homeless["reason"] == "NoQueue"
    assert workloads["items"] == []


@pytest.mark.proves("BatchProcess", "queueing")
@pytest.mark.proves("BatchProcess", "webhook validation")
@pytest.mark.mechanism("3.30")
async def test_the_older_one_goes_first_and_mixed_priorities_are_refused(either_plane: Plane) -> None:
    """Row 3.30: of two that wait the one that was created first is admitted first."""
    async with world(either_plane, gpus=16) as road:
        mixed = [a_process("teacher", 1), a_process("student", 1)]
        mixed[1]["template"]["spec"] = {"priorityClassName": "system-cluster-critical"}
        with pytest.raises(RequestError, match="all processes need the same"):
            await road.create_batch("mixed", *mixed)
        await road.create_batch("first", a_process("teacher", 2, seconds=5))
        await road.until_phase("first", "Running")
        await road.create_batch("older", a_process("teacher", 2, seconds=3))
        await road.until_condition("older", "Admitted", "False")
        await next_second()
        await road.create_batch("newer", a_process("teacher", 2, seconds=1))
        older = await road.until_condition("older", "Complete")
        newer = await road.until_condition("newer", "Complete")

    assert older["lastTransitionTime"] < newer["lastTransitionTime"]


async def test_a_service_of_the_same_name_is_left_alone(either_plane: Plane) -> None:
    """The pods run without addresses, and a condition says so."""
    async with world(either_plane, gpus=16) as road:
        services = f"/api/v1/namespaces/{road.namespace}/services"
        own = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "distill"},
            "spec": {"ports": [{"port": 80}]},
        }
        await road.cluster.request("POST", services, own)
        await road.create_batch("distill", a_process("teacher", 2))
        await road.until_running_pods(teacher=2)
        network = await road.until_condition("distill", "Network", "False")
        service = await road.cluster.get(f"{services}/distill")

    assert network["reason"] == "ServiceExists"
    assert "ownerReferences" not in service["metadata"]
