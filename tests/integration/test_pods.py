"""Plain pods and groups of pods, end to end, with the webhooks: queued, started whole, stopped, replaced, finished."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, RunningOperator, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, condition, controller, has, make_road

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
PREFIX = "kueue.x-k8s.io/"
PARTS = frozenset({"core", "scheduler", "jobs", "topology", "webhooks"})
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [batch/job, pod]}
"""


class Pods(Road):
    """One tenant whose pods are queued themselves."""

    def made(
        self,
        name: str,
        *,
        group: str = "",
        total: int = 0,
        seconds: int | None = 600,
        gpus: int = 8,
        queue: str | None = "main",
        fails: bool = False,
        stop_seconds: int | None = None,
        index: int | None = None,
        labels: dict[str, str] | None = None,
        **annotations: str,
    ) -> Object:
        """A pod as a user writes it."""
        marks = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
        if seconds is not None:
            marks["sandbox.kqueue.dev/run-seconds"] = str(seconds)
        if fails:
            marks["sandbox.kqueue.dev/fail"] = "true"
        if stop_seconds is not None:
            marks["sandbox.kqueue.dev/stop-seconds"] = str(stop_seconds)
        if group:
            marks |= {f"{PREFIX}pod-group-name": group, f"{PREFIX}pod-group-total-count": str(total)}
        own = {} if queue is None else {f"{PREFIX}queue-name": queue}
        if index is not None:
            own["rank"] = str(index)
            marks[f"{PREFIX}pod-group-pod-index-label"] = "rank"
        amounts = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
        container = {"name": "c", "image": "example.com/i:1", "resources": {"requests": amounts, "limits": amounts}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": own | (labels or {}),
                "annotations": marks,
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "terminationGracePeriodSeconds": max(1, 2 * (stop_seconds or 0)),
            },
        }

    async def create(self, name: str, **settings: Any) -> Object:
        """Make a pod."""
        return await self.cluster.request("POST", self.pods, self.made(name, **settings))

    async def create_group(self, group: str, total: int, **settings: Any) -> None:
        """Make all pods of a group, ranked."""
        for i in range(total):
            await self.create(f"{group}-{i}", group=group, total=total, index=i, **settings)

    async def pod(self, name: str) -> Object:
        return await self.cluster.get(f"{self.pods}/{name}")

    async def until_pod(self, name: str, wanted: Any, *, what: str) -> Object:
        return await self.cluster.until(f"{self.pods}/{name}", wanted, what=f"pod {name} {what}")

    async def until_running(self, *names: str) -> None:
        """Wait until these pods run."""

        def reached(listed: Object) -> bool:
            phases = {p["metadata"]["name"]: p["status"].get("phase") for p in listed["items"]}
            return all(phases.get(name) == "Running" for name in names)

        await self.cluster.until(self.pods, reached, what=f"{names} run")

    async def until_gone(self, *names: str) -> None:
        """Wait until these pods are gone, finalizers and all."""

        def reached(listed: Object) -> bool:
            return not {p["metadata"]["name"] for p in listed["items"]} & set(names)

        await self.cluster.until(self.pods, reached, what=f"{names} are gone")

    async def until_group(self, group: str, kind: str, *, status: str = "True", reason: str = "") -> Object:
        """Wait for a condition of a group's Workload."""

        def reached(workload: Object) -> bool:
            return any(
                c["type"] == kind and c["status"] == status and reason in ("", c["reason"])
                for c in workload.get("status", {}).get("conditions", [])
            )

        found = await self.cluster.until(
            f"{self.workloads}/{group}", reached, what=f"{group}: {kind}={status} {reason}"
        )
        return condition(found, kind)

    async def until_event(self, name: str, reason: str) -> str:
        """Wait for an event on a pod; returns its message."""

        def of(listed: Object) -> list[str]:
            return [
                e.get("note") or e.get("message", "")
                for e in listed["items"]
                if e["reason"] == reason and e["regarding"]["name"] == name
            ]

        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        return of(await self.cluster.until(path, lambda listed: bool(of(listed)), what=f"event {reason} on {name}"))[0]

    async def delete(self, name: str) -> None:
        await self.cluster.request("DELETE", f"{self.pods}/{name}")

    async def patch(self, path: str, patch: Object) -> Object:
        return await self.cluster.request("PATCH", path, patch, content_type="application/merge-patch+json")

    async def racks(self, *names: str) -> set[tuple[str, str]]:
        """(block, rack) of the nodes of these pods."""
        nodes = {
            n["metadata"]["name"]: n["metadata"]["labels"] for n in (await self.cluster.get("/api/v1/nodes"))["items"]
        }
        hosts = [nodes[(await self.pod(name))["spec"]["nodeName"]] for name in names]
        return {(labels["cloud.provider.com/topology-block"], labels[RACK_LABEL]) for labels in hosts}


def gates(pod: Object) -> list[str]:
    return [gate["name"].removeprefix(PREFIX) for gate in pod["spec"].get("schedulingGates", [])]


def held(pod: Object) -> bool:
    return f"{PREFIX}managed" in pod["metadata"].get("finalizers", [])


@asynccontextmanager
async def world(plane: Plane, **settings: Any) -> AsyncIterator[Pods]:
    """Nodes, a tenant and a controller with its webhooks."""
    road = await make_road(plane.cluster, **settings)
    pods = Pods(plane.cluster, road.namespace)
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configuration = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    async with running(configuration, flags, timings=Timings(queue_flush_window=0.1)) as process:
        await _ready(process)
        try:
            yield pods
        finally:
            await _emptied(pods)


async def _ready(process: RunningOperator) -> None:
    async with asyncio.timeout(60):
        await process.operator.ready.wait()


async def _emptied(pods: Pods) -> None:
    """Whatever a test leaves behind goes while there is a controller that lets go of it."""
    with contextlib.suppress(RequestError, TimeoutError):
        for pod in (await pods.cluster.get(pods.pods))["items"]:
            await pods.cluster.request("DELETE", f"{pods.pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        for workload in (await pods.cluster.get(pods.workloads))["items"]:
            await pods.cluster.request("DELETE", f"{pods.workloads}/{workload['metadata']['name']}")
        await pods.cluster.until(pods.pods, lambda listed: not listed["items"], what="no pods", seconds=15)


async def workload_of(pods: Pods, pod: str) -> Object:
    """The Workload that a pod controls."""

    def of(listed: Object) -> list[Object]:
        return [
            w
            for w in listed["items"]
            if any(o["name"] == pod and o.get("controller") for o in w["metadata"].get("ownerReferences", []))
        ]

    return of(await pods.cluster.until(pods.workloads, lambda listed: bool(of(listed)), what=f"workload of {pod}"))[0]


# --- single pods


@pytest.mark.proves("Pod", "queueing")
@pytest.mark.proves("Pod", "start with topology")
@pytest.mark.proves("Pod", "webhook defaults")
@pytest.mark.proves("Pod", "webhook validation")
@pytest.mark.proves("Pod", "finished")
async def test_a_pod_is_held_started_and_let_go(either_plane: Plane) -> None:
    """A queued pod is gated, admitted, run and let go of; a stranger's pod is not touched; a contradiction is refused."""
    async with world(either_plane) as pods:
        made = await pods.create("one", seconds=1)
        stranger = await pods.create("stranger", queue=None, seconds=1)
        with pytest.raises(RequestError, match="pod-group-total-count"):
            await pods.create("bad", pod_group_name="g")
        workload = await workload_of(pods, "one")
        done = await pods.until_pod("one", lambda p: p["status"].get("phase") == "Succeeded", what="succeeds")
        path = f"{pods.workloads}/{workload['metadata']['name']}"
        finished = await pods.cluster.until(path, lambda w: has(w, "Finished"), what="finished")
        await pods.until_pod("one", lambda p: not held(p), what="is let go")
        queue = await pods.cluster.until(
            f"{KUEUE}/clusterqueues/team",
            lambda q: q.get("status", {}).get("reservingWorkloads") == 0,
            what="quota is back",
        )

    assert gates(made) == ["admission", "topology"]
    assert held(made)
    assert gates(stranger) == []
    assert gates(done) == []
    assert workload["spec"]["podSets"][0]["name"] == "main"
    assert condition(finished, "Finished")["reason"] == "Succeeded"
    assert done["metadata"]["labels"][f"{PREFIX}podset"] == "main"
    assert done["spec"]["nodeSelector"]["kubernetes.io/hostname"] == done["spec"]["nodeName"]
    assert queue["status"]["pendingWorkloads"] == 0


@pytest.mark.proves("Pod", "eviction and requeue")
@pytest.mark.proves("Pod", "pods ready")
@pytest.mark.proves("Pod", "stop and restore")
async def test_an_evicted_pod_is_deleted_and_its_workload_ends_with_it(either_plane: Plane) -> None:
    """Deactivating its Workload deletes the pod, which says why; nothing is left behind."""
    async with world(either_plane) as pods:
        await pods.create("one")
        await pods.until_running("one")
        workload = await workload_of(pods, "one")
        path = f"{pods.workloads}/{workload['metadata']['name']}"
        await pods.cluster.until(path, lambda w: has(w, "PodsReady"), what="pods ready")
        await pods.patch(path, {"spec": {"active": False}})
        await pods.until_gone("one")
        await pods.cluster.until(pods.workloads, lambda listed: not listed["items"], what="no workload")
        told = await pods.until_event("one", "Stopped")

    assert told


async def test_a_pod_that_is_deleted_gives_its_quota_back(either_plane: Plane) -> None:
    """A running pod deleted by its user is not held back; the next one gets its quota when it is gone, not before."""
    async with world(either_plane, shape=(1, 1, 1)) as pods:
        await pods.create("one", stop_seconds=4)
        await pods.until_running("one")
        await pods.create("two")
        waiting = await workload_of(pods, "two")
        await pods.delete("one")
        going = await pods.until_pod("one", lambda p: "deletionTimestamp" in p["metadata"], what="is on its way")
        await pods.until_gone("one")
        await pods.until_running("two")
        admitted = await workload_of(pods, "two")

    asked = datetime.fromisoformat(going["metadata"]["deletionTimestamp"])
    asked -= timedelta(seconds=going["metadata"]["deletionGracePeriodSeconds"])
    since = next(c for c in admitted["status"]["conditions"] if c["type"] == "QuotaReserved")["lastTransitionTime"]
    assert not has(waiting, "Admitted")
    assert datetime.fromisoformat(since) >= asked + timedelta(seconds=4)


# --- groups


@pytest.mark.proves("Pod group", "queueing")
@pytest.mark.proves("Pod group", "start with topology")
@pytest.mark.proves("Pod group", "ranks")
@pytest.mark.proves("Pod group", "pods ready")
@pytest.mark.proves("Pod group", "webhook defaults")
@pytest.mark.proves("Pod group", "finished")
async def test_a_group_runs_whole_in_one_rack_in_the_order_of_its_ranks(either_plane: Plane) -> None:
    """Nothing starts before the last pod is there; then all run in one rack, by rank; in the end all are let go."""
    async with world(either_plane) as pods:
        for i in (3, 1, 0):
            await pods.create(f"g-{i}", group="g", total=4, index=i, seconds=6, podset_required_topology=RACK_LABEL)
        incomplete = (await pods.cluster.get(pods.workloads))["items"]
        held_then = [gates(await pods.pod(f"g-{i}")) for i in (0, 1, 3)]
        await pods.create("g-2", group="g", total=4, index=2, seconds=6, podset_required_topology=RACK_LABEL)
        names = [f"g-{i}" for i in range(4)]
        await pods.until_running(*names)
        hosts = [(await pods.pod(name))["spec"]["nodeName"] for name in names]
        racks = await pods.racks(*names)
        await pods.until_group("g", "PodsReady")
        workload = await pods.cluster.get(f"{pods.workloads}/g")
        end = await pods.until_group("g", "Finished")
        for name in names:
            await pods.until_pod(name, lambda p: not held(p), what="is let go")

    assert incomplete == []
    assert held_then == [["admission", "topology"]] * 3
    assert len(racks) == 1
    assert hosts == sorted(hosts)
    assert sorted(owner["name"] for owner in workload["metadata"]["ownerReferences"]) == names
    assert [pod_set["count"] for pod_set in workload["spec"]["podSets"]] == [4]
    assert end["reason"] == "Succeeded"
    assert "4 of 4" in end["message"]


@pytest.mark.proves("Pod group", "queueing")
async def test_an_incomplete_group_says_how_many_are_missing(either_plane: Plane) -> None:
    """An event on a pod of the group, after the others had a moment to come; members that disagree are told, too."""
    async with world(either_plane) as pods:
        await pods.create("g-0", group="g", total=3)
        await pods.create("g-1", group="g", total=3)
        missing = await pods.until_event("g-0", "ErrWorkloadCompose")
        await pods.create("h-0", group="h", total=2)
        await pods.create("h-1", group="h", total=2, role_hash="x", gpus=4)
        await pods.create("k-0", group="k", total=2)
        await pods.create("k-1", group="k", total=2, queue="other")
        other = await pods.until_event("k-1", "ErrWorkloadCompose")
        workloads = [w["metadata"]["name"] for w in (await pods.cluster.get(pods.workloads))["items"]]

    assert "2 of 3 pods; it waits for 1 more" in missing
    assert "queue-name is 'other'" in other
    assert "g" not in workloads
    assert "k" not in workloads


@pytest.mark.proves("Pod group", "eviction and requeue")
@pytest.mark.proves("Pod group", "priority class")
@pytest.mark.proves("Pod", "priority class")
@pytest.mark.proves("Pod group", "replacement pods")
async def test_a_preempted_group_waits_for_its_replacements(either_plane: Plane) -> None:
    """Eviction by priority deletes all pods of the group; when new ones are there, the same Workload is admitted again."""
    async with world(either_plane, shape=(1, 1, 2), gpus=16) as pods:
        await pods.patch(
            f"{KUEUE}/clusterqueues/team", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        )
        for name, value in (("low", 1), ("high", 10)):
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name},
                    "value": value}  # fmt: skip
            await pods.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", body)
        low, high = ({f"{PREFIX}priority-class": name} for name in ("low", "high"))
        await pods.create_group("g", 2, labels=low)
        await pods.until_running("g-0", "g-1")
        before = (await pods.cluster.get(f"{pods.workloads}/g"))["metadata"]["uid"]
        await pods.create("urgent", labels=high, gpus=8, seconds=3)
        evicted = await pods.until_group("g", "Evicted")
        waits = await pods.until_group("g", "WaitingForReplacementPods")
        await pods.until_group("g", "QuotaReserved", status="False")
        await pods.until_running("urgent")
        for i in range(2):
            await pods.create(f"new-{i}", group="g", total=2, labels=low)
        await pods.until_running("new-0", "new-1")
        after = await pods.cluster.get(f"{pods.workloads}/g")
        await pods.until_gone("g-0", "g-1")

    assert (evicted["reason"], waits["reason"]) == ("Preempted", "Preempted")
    assert after["metadata"]["uid"] == before
    assert condition(after, "WaitingForReplacementPods")["status"] == "False"


@pytest.mark.proves("Pod group", "replacement pods")
async def test_a_failed_member_is_replaced_while_the_others_run(either_plane: Plane) -> None:
    """The failed pod stays held until its replacement is there, which runs without a new admission."""
    async with world(either_plane) as pods:
        await pods.create("g-0", group="g", total=2)
        await pods.create("g-1", group="g", total=2, seconds=1, fails=True)
        await pods.until_pod("g-1", lambda p: p["status"].get("phase") == "Failed", what="fails")
        waits = await pods.until_group("g", "WaitingForReplacementPods")
        kept = await pods.pod("g-1")
        before = condition(await pods.cluster.get(f"{pods.workloads}/g"), "Admitted")["lastTransitionTime"]
        await pods.create("g-2", group="g", total=2)
        await pods.until_running("g-0", "g-2")
        await pods.until_pod("g-1", lambda p: not held(p), what="is let go")
        after = await pods.until_group("g", "WaitingForReplacementPods", status="False")
        admitted = condition(await pods.cluster.get(f"{pods.workloads}/g"), "Admitted")["lastTransitionTime"]

    assert waits["reason"] == "PodsFailed"
    assert held(kept)
    assert after["reason"] == "PodsReady"
    assert admitted == before


@pytest.mark.proves("Pod group", "replacement pods")
async def test_a_group_that_is_not_to_be_retried_ends(either_plane: Plane) -> None:
    """A failed member that says so ends the group when no other runs."""
    async with world(either_plane) as pods:
        await pods.create("g-0", group="g", total=2, seconds=1)
        await pods.create("g-1", group="g", total=2, seconds=1, fails=True, retriable_in_group="false")
        end = await pods.until_group("g", "Finished")
        for name in ("g-0", "g-1"):
            await pods.until_pod(name, lambda p: not held(p), what="is let go")

    assert end["reason"] == "Succeeded"
    assert "1 of 2" in end["message"]


@pytest.mark.proves("Pod group", "excess pods")
async def test_a_pod_too_many_is_deleted(either_plane: Plane) -> None:
    """The youngest goes; the others run on."""
    async with world(either_plane) as pods:
        await pods.create_group("g", 2)
        await pods.until_running("g-0", "g-1")
        await pods.create("g-9", group="g", total=2)
        await pods.until_gone("g-9")
        told = await pods.until_event("g-9", "ExcessPodDeleted")
        phases = {(await pods.pod(name))["status"]["phase"] for name in ("g-0", "g-1")}

    assert told
    assert phases == {"Running"}


@pytest.mark.proves("Pod group", "fast admission")
async def test_a_fast_group_starts_with_the_pods_that_are_there(either_plane: Plane) -> None:
    """Quota for all is taken when the first pod comes; each is started as it appears."""
    async with world(either_plane) as pods:
        await pods.create("g-0", group="g", total=3, pod_group_fast_admission="true")
        await pods.until_running("g-0")
        counts = [p["count"] for p in (await pods.cluster.get(f"{pods.workloads}/g"))["spec"]["podSets"]]
        await pods.create("g-1", group="g", total=3, pod_group_fast_admission="true")
        await pods.until_running("g-0", "g-1")

    assert counts == [3]


@pytest.mark.proves("Pod group", "reclaimable pods")
async def test_a_member_that_has_succeeded_gives_its_quota_back(either_plane: Plane) -> None:
    """The quota of one pod of the group is free for another pod before the group has ended."""
    async with world(either_plane, shape=(1, 1, 2), gpus=16) as pods:
        await pods.create("g-0", group="g", total=2, seconds=1)
        await pods.create("g-1", group="g", total=2)
        await pods.until_group("g", "Admitted")
        await pods.create("next")
        await pods.until_running("g-1", "next")
        found = (await pods.cluster.get(f"{pods.workloads}/g"))["status"]["reclaimablePods"]

    assert [entry["count"] for entry in found] == [1]


@pytest.mark.proves("Pod group", "stop and restore")
async def test_a_deleted_group_leaves_nothing_behind(either_plane: Plane) -> None:
    """Who deletes its Workload ends it, pods and all; pods that are deleted alone wait until then for replacements."""
    async with world(either_plane) as pods:
        await pods.create_group("g", 2)
        await pods.create_group("h", 2)
        await pods.until_running("g-0", "g-1", "h-0", "h-1")
        for name in ("g-0", "g-1"):
            await pods.delete(name)
        await pods.until_group("g", "WaitingForReplacementPods")
        for name in ("g", "h"):
            await pods.cluster.request("DELETE", f"{pods.workloads}/{name}")
        await pods.until_gone("g-0", "g-1", "h-0", "h-1")
        await pods.cluster.until(pods.workloads, lambda listed: not listed["items"], what="no Workload")


async def test_a_label_that_is_taken_away_comes_back(either_plane: Plane) -> None:
    """The webhook refuses it; without the webhook the controller puts it back, so that the pod stays counted."""
    async with world(either_plane) as pods:
        await pods.create("one")
        await pods.until_running("one")
        gone = {"metadata": {"labels": {f"{PREFIX}managed": None}}}
        with pytest.raises(RequestError, match="cannot be removed"):
            await pods.patch(f"{pods.pods}/one", gone)
        for kind in ("mutating", "validating"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            for obj in (await pods.cluster.get(path))["items"]:
                await pods.cluster.request("DELETE", f"{path}/{obj['metadata']['name']}")

        async def removed() -> None:  # the API server may still ask for a moment
            async with asyncio.timeout(30):
                while True:
                    with contextlib.suppress(RequestError):
                        await pods.patch(f"{pods.pods}/one", gone)
                        return
                    await asyncio.sleep(0.2)

        await removed()
        back = await pods.until_pod(
            "one", lambda p: f"{PREFIX}managed" in p["metadata"]["labels"], what="has its label"
        )
        workload = await workload_of(pods, "one")

    assert back["status"]["phase"] == "Running"
    assert not has(workload, "Finished")


@pytest.mark.proves("Pod", "maximum execution time")
@pytest.mark.proves("Pod group", "maximum execution time")
async def test_pods_that_run_too_long_are_stopped(either_plane: Plane) -> None:
    """A pod and a group whose time is up: deleted, and their Workloads deactivated."""
    async with world(either_plane) as pods:
        timed = {f"{PREFIX}max-exec-time-seconds": "3"}
        await pods.create("one", labels=timed)
        await pods.create_group("g", 2, labels=timed)
        await pods.until_running("one", "g-0", "g-1")
        evicted = await pods.until_group("g", "Evicted")
        workload = await pods.cluster.get(f"{pods.workloads}/g")
        await pods.until_gone("one")
        for name in ("g-0", "g-1"):
            await pods.until_pod(name, lambda p: "deletionTimestamp" in p["metadata"], what="is deleted")

    assert evicted["reason"] == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert workload["spec"]["active"] is False


@pytest.mark.proves("Pod", "prebuilt workload")
@pytest.mark.proves("Pod group", "prebuilt workload")
async def test_pods_use_workloads_that_were_made_for_them(either_plane: Plane) -> None:
    """A pod and a group that name a Workload wait until it is there, become its owners, and are started by it."""
    async with world(either_plane) as pods:
        alone = await pods.create("one", prebuilt_workload_name="mine")
        for i in range(2):
            await pods.create(f"g-{i}", group="g", total=2, role_hash="w", prebuilt_workload_name="g")
        missing = await pods.until_event("one", "ErrWorkloadCompose")
        for name, role, count in (("mine", "main", 1), ("g", "w", 2)):
            template = {"spec": {key: value for key, value in alone["spec"].items() if key != "schedulingGates"}}
            marks = {f"{PREFIX}is-group-workload": "true"} if name == "g" else {}
            body = {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {"name": name, "namespace": pods.namespace, "annotations": marks},
                "spec": {"queueName": "main", "podSets": [{"name": role, "count": count, "template": template}]},
            }
            await pods.cluster.request("POST", pods.workloads, body)
        await pods.until_running("one", "g-0", "g-1")
        owners = {
            name: sorted(
                o["name"] for o in (await pods.cluster.get(f"{pods.workloads}/{name}"))["metadata"]["ownerReferences"]
            )
            for name in ("mine", "g")
        }

    assert "mine" in missing
    assert owners == {"mine": ["one"], "g": ["g-0", "g-1"]}


# --- killed


def as_the_webhook_leaves_it(pod: Object) -> Object:
    """Gated and held, so that no webhook is needed."""
    pod["metadata"]["labels"][f"{PREFIX}managed"] = "true"
    pod["metadata"]["annotations"][f"{PREFIX}role-hash"] = "worker"
    pod["metadata"]["finalizers"] = [f"{PREFIX}managed"]
    pod["spec"]["schedulingGates"] = [{"name": f"{PREFIX}{gate}"} for gate in ("admission", "topology")]
    return pod


@pytest.mark.parametrize(
    "step",
    ["admitted", "started", *(pytest.param(step, marks=pytest.mark.seldom) for step in ("none", "created", "running"))],
)
@pytest.mark.proves("Pod group", "queueing")
async def test_a_controller_killed_anywhere_goes_on_where_it_was(
    either_plane: Plane, step: str, tmp_path: Path
) -> None:
    """SIGKILL at each step, a new process, and every group ends in one rack, admitted once, with nothing held."""
    plane = either_plane
    road = await make_road(plane.cluster, shape=(1, 2, 4))
    pods = Pods(plane.cluster, road.namespace)
    config, logs = tmp_path / "config.yaml", tmp_path / "controller.log"
    config.write_text(CONFIGURATION)
    groups = [f"g{i}" for i in range(3)]
    async with controller(plane.kubeconfig, logs, config=config) as process:
        for group in groups:
            for i in range(4):
                settings: dict[str, Any] = {
                    "group": group,
                    "total": 4,
                    "seconds": 2,
                    "podset_required_topology": RACK_LABEL,
                }
                made = as_the_webhook_leaves_it(pods.made(f"{group}-{i}", **settings))
                await pods.cluster.request("POST", pods.pods, made)
        await _until_step(pods, step)
        await process.kill()
    async with controller(plane.kubeconfig, logs, config=config):
        for group in groups:
            await pods.until_group(group, "Finished")
        await pods.cluster.until(
            pods.pods, lambda listed: not any(held(pod) for pod in listed["items"]), what="no pod is held"
        )
        racks = {group: await pods.racks(*(f"{group}-{i}" for i in range(4))) for group in groups}
        workloads = (await pods.cluster.get(pods.workloads))["items"]

    assert {group: len(used) for group, used in racks.items()} == dict.fromkeys(groups, 1), logs.read_text()[-4000:]
    assert [condition(w, "Finished")["reason"] for w in workloads] == ["Succeeded"] * len(groups)
    assert not any("schedulingStats" in w["status"] for w in workloads)  # nobody was evicted on the way


async def _until_step(pods: Pods, step: str) -> None:
    """Wait until the first group has come so far."""
    looks: dict[str, tuple[str, Any]] = {
        "none": (pods.pods, lambda found: bool(found["items"])),
        "created": (pods.workloads, lambda found: bool(found["items"])),
        "admitted": (pods.workloads, lambda found: any(has(w, "Admitted") for w in found["items"])),
        "started": (pods.pods, lambda found: any("admission" not in gates(p) for p in found["items"])),
        "running": (pods.pods, lambda found: any(p["status"].get("phase") == "Running" for p in found["items"])),
    }
    path, reached = looks[step]
    await pods.cluster.until(path, reached, what=step)


# --- hostile


@pytest.mark.proves("Pod group", "webhook validation")
async def test_nobody_gets_more_than_was_admitted(either_plane: Plane) -> None:
    """A forged role that asks for more is not started; a pod cannot be let out by hand; a total beyond all bounds
    waits, and holds nobody up.
    """
    async with world(either_plane) as pods:
        await pods.create("huge-0", group="huge", total=2**31 - 1, pod_group_fast_admission="true")
        await pods.create("g-0", group="g", total=2, role_hash="w", gpus=1)
        await pods.create("g-1", group="g", total=2, role_hash="w", gpus=1, seconds=1, fails=True)
        await pods.until_pod("g-1", lambda p: p["status"].get("phase") == "Failed", what="fails")
        await pods.create("g-2", group="g", total=2, role_hash="w", gpus=8)
        told = await pods.until_event("g-2", "PodNotStarted")
        forged = await pods.pod("g-2")
        await pods.create("loose", gpus=8, queue="nowhere")
        await workload_of(pods, "loose")
        with pytest.raises(RequestError, match="schedulingGates"):
            await pods.patch(f"{pods.pods}/loose", {"spec": {"schedulingGates": None}})
        waits = await pods.until_group("huge", "QuotaReserved", status="False")

    assert "requests more nvidia.com/gpu" in told
    assert "admission" in gates(forged)
    assert str(2**31 - 1) in waits["message"] or waits["reason"] in ("ExceedsMaxQuota", "WaitingForQuota")
