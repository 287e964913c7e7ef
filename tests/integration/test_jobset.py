"""JobSets on both control planes: placed together, started whole, stopped cleanly, restored exactly."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from kqueue.config import Configuration, parse
from kqueue.core.topology import decode
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import BLOCK_LABEL, RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.jobset_double import JOBSETS, jobsets_run
from tests.integration.road import KUEUE, SHAPE, Road, has, make_road, shown

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Object = dict[str, Any]
Plane = ControlPlane | SandboxPlane
PREFIX = "kueue.x-k8s.io/"
REQUIRED, GROUP = f"{PREFIX}podset-required-topology", f"{PREFIX}podset-group-name"
INDEX, JOB_INDEX = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
PARTS = frozenset({"core", "scheduler", "jobs", "topology"})
LONG = 600
IN_ONE_RACK = {REQUIRED: RACK_LABEL, GROUP: "all"}


def flags(plane: Plane) -> Flags:
    return Flags(kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0")


def with_webhooks(plane: Plane) -> Flags:
    return dataclasses.replace(
        flags(plane),
        parts=PARTS | {"webhooks"},
        webhook_host="127.0.0.1",
        webhook_port=0,
        webhook_url="https://127.0.0.1:{port}",
    )


def configuration() -> Configuration:
    return parse(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nleaderElection: {leaderElect: false}\n"
        "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}\n",
        source="test",
    )


def replicated(
    name: str,
    *,
    replicas: int = 1,
    pods: int = 1,
    asked: Mapping[str, str] | None = None,
    run_seconds: int = 1,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Equal child Jobs, each of whose pods takes a whole node's GPUs unless told otherwise."""
    amounts = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": amounts, "limits": amounts}}
    annotations = {"sandbox.kqueue.dev/run-seconds": str(run_seconds), **(asked or {})}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {
            "metadata": {"annotations": annotations, "labels": {"app": name}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    }
    return {"name": name, "replicas": replicas, "template": {"metadata": {"labels": dict(labels or {})}, "spec": spec}}


def jobset(name: str, namespace: str, *jobs: Object, labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A suspended JobSet on the queue `main`."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {f"{PREFIX}queue-name": "main", **(labels or {})}},
        "spec": {"suspend": True, "replicatedJobs": list(jobs), **spec},
    }


class SetRoad:
    """A tenant and JobSets."""

    def __init__(self, road: Road) -> None:
        self.road, self.cluster = road, road.cluster
        self.jobsets = f"{JOBSETS}/namespaces/{road.namespace}/jobsets"

    async def submit(self, name: str, *jobs: Object, **spec: Any) -> Object:
        return await self.cluster.request("POST", self.jobsets, jobset(name, self.road.namespace, *jobs, **spec))

    async def get(self, name: str) -> Object:
        return await self.cluster.get(f"{self.jobsets}/{name}")

    async def until(self, name: str, kind: str, *, status: str = "True") -> Object:
        """Wait for a condition of the JobSet."""

        def reached(found: Object) -> bool:
            conditions = found.get("status", {}).get("conditions", [])
            return any((c["type"], c["status"]) == (kind, status) for c in conditions)

        return await self.cluster.until(f"{self.jobsets}/{name}", reached, what=f"JobSet {name}: {kind}={status}")

    async def until_running(self, name: str, pods: int) -> list[Object]:
        """Wait until so many pods of the JobSet run; they come in the order of replicated job, Job and index."""

        def found(listed: Object) -> list[Object]:
            return [
                pod
                for pod in listed["items"]
                if pod["metadata"].get("labels", {}).get("jobset.sigs.k8s.io/jobset-name") == name
                and pod["status"].get("phase") == "Running"
                and not pod["metadata"].get("deletionTimestamp")
            ]

        listed = await self.cluster.until(
            self.road.pods, lambda got: len(found(got)) == pods, what=f"{pods} running pods of {name}"
        )
        return sorted(found(listed), key=place)

    async def pods_of(self, name: str) -> list[Object]:
        """All pods of the JobSet that have not ended."""
        selector = f"labelSelector=jobset.sigs.k8s.io/jobset-name={name}"
        listed = (await self.cluster.get(f"{self.road.pods}?{selector}"))["items"]
        return [pod for pod in listed if pod["status"].get("phase") not in ("Succeeded", "Failed")]

    async def racks(self, pods: list[Object]) -> list[str]:
        nodes = {
            n["metadata"]["name"]: n["metadata"]["labels"] for n in (await self.cluster.get("/api/v1/nodes"))["items"]
        }
        return [nodes[pod["spec"]["nodeName"]][RACK_LABEL] for pod in pods]

    async def patch(self, path: str, patch: Object) -> Object:
        return await self.cluster.request("PATCH", path, patch, content_type=MERGE_PATCH)

    async def until_unused(self) -> None:
        def unused(queue: Object) -> bool:
            used = queue.get("status", {}).get("flavorsUsage", [])
            return bool(used) and all(resource["total"] == "0" for flavor in used for resource in flavor["resources"])

        await self.cluster.until(f"{KUEUE}/clusterqueues/team", unused, what="no quota in use")


def place(pod: Object) -> tuple[str, int, int]:
    labels = pod["metadata"]["labels"]
    return labels[REPLICATED], int(labels[JOB_INDEX]), int(labels[INDEX])


def templates(obj: Object) -> list[Object]:
    return [r["template"]["spec"]["template"] for r in obj["spec"]["replicatedJobs"]]


async def make_set_road(plane: Plane, shape: tuple[int, ...] = SHAPE, *, gpus: int = 512) -> SetRoad:
    return SetRoad(await make_road(plane.cluster, shape=shape, gpus=gpus))


async def add_priorities(road: SetRoad) -> None:
    """Classes `low` and `high`; who is higher takes the place of who is lower."""
    for name, value in (("low", 1), ("high", 9)):
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        await road.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", body)
    preemption = {"withinClusterQueue": "LowerPriority"}
    await road.patch(f"{KUEUE}/clusterqueues/team", {"spec": {"preemption": preemption}})


@pytest.mark.proves("JobSet", "queueing")
@pytest.mark.proves("JobSet", "start with topology")
@pytest.mark.proves("JobSet", "finished")
async def test_a_leader_and_its_workers_run_in_one_rack_and_give_everything_back(either_plane: Plane) -> None:
    """They are one group of pod sets: no rack with room for the workers alone will do."""
    road = await make_set_road(either_plane, (1, 3, 5))
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.road.submit("filler", pods=1, run_seconds=LONG)
        await road.road.until_workload("filler", "PodsReady")
        await road.submit(
            "train",
            replicated("leader", asked=IN_ONE_RACK, run_seconds=6),
            replicated("workers", replicas=2, pods=2, asked=IN_ONE_RACK, run_seconds=6),
        )
        placed = await road.until_running("train", 5)
        racks = await road.racks(placed)
        filler = await road.road.racks_of("filler")
        await road.until("train", "Completed")
        finished = await road.road.until_workload("train", "Finished")
        workload = await road.road.workload_of("train")
        await road.road.submit("again", pods=5)
        await road.road.until_complete("again")

    assert len(set(racks)) == 1
    assert racks[0] not in {rack for _, rack in filler}
    assert [place(pod)[0] for pod in placed] == ["leader", *["workers"] * 4]
    assert finished["reason"] == "Succeeded"
    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("leader", 1), ("workers", 4)]


@pytest.mark.proves("JobSet", "ranks")
async def test_pods_stand_in_the_order_of_their_jobs_and_indexes(either_plane: Plane) -> None:
    """Each replicated job has its own request; within one, consecutive ranks are on consecutive hosts of its place."""
    road = await make_set_road(either_plane, (2, 2, 3))
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.submit(
            "train",
            replicated("a", replicas=2, asked={REQUIRED: RACK_LABEL}, run_seconds=LONG),
            replicated("b", replicas=2, pods=2, asked={REQUIRED: BLOCK_LABEL}, run_seconds=LONG),
        )
        placed = await road.until_running("train", 6)
        workload = await road.road.workload_of("train")

    assigned = {
        a["name"]: [
            domain.values[-1] for domain in decode(a["topologyAssignment"]).domains for _ in range(domain.count)
        ]
        for a in workload["status"]["admission"]["podSetAssignments"]
    }
    hosts: dict[str, list[str]] = {}
    for pod in placed:
        hosts.setdefault(place(pod)[0], []).append(pod["spec"]["nodeName"])
    assert hosts == assigned
    assert len({host.rpartition("-")[0] for host in hosts["a"]}) == 1


@pytest.mark.proves("JobSet", "eviction and requeue")
@pytest.mark.proves("JobSet", "stop and restore")
@pytest.mark.proves("JobSet", "priority class")
async def test_who_is_evicted_goes_whole_comes_back_whole_and_is_what_it_was(either_plane: Plane) -> None:
    """The higher one starts only when no pod of the lower one is left; its templates are then as its user wrote them;
    and when the higher one has ended it runs again.
    """
    road = await make_set_road(either_plane, (1, 1, 4))
    await add_priorities(road)
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        written = await road.submit(
            "low",
            replicated("leader", asked=IN_ONE_RACK, run_seconds=LONG),
            replicated("workers", pods=3, asked=IN_ONE_RACK, run_seconds=LONG),
            labels={f"{PREFIX}priority-class": "low"},
        )
        before = await road.until_running("low", 4)
        await road.submit(
            "high",
            replicated("all", pods=4, asked={REQUIRED: RACK_LABEL}, run_seconds=3),
            labels={f"{PREFIX}priority-class": "high"},
        )
        evicted = await road.road.until_workload("low", "Evicted")
        await road.road.until_workload("high", "Admitted")
        left = await road.pods_of("low")
        stopped = await road.get("low")
        requeued = await road.road.until_workload("low", "Requeued")
        await road.until("high", "Completed")
        after = await road.until_running("low", 4)

    assert evicted["reason"] == "Preempted"
    assert left == []
    assert stopped["spec"]["suspend"] is True
    assert templates(stopped) == templates(written), shown(stopped)
    assert requeued["reason"] == "Preempted"
    assert not {p["metadata"]["uid"] for p in before} & {p["metadata"]["uid"] for p in after}
    assert {p["spec"]["nodeName"] for p in before} == {p["spec"]["nodeName"] for p in after}


@pytest.mark.proves("JobSet", "pods ready")
@pytest.mark.proves("JobSet", "reclaimable pods")
async def test_child_jobs_that_have_succeeded_make_room_while_others_run(either_plane: Plane) -> None:
    """Quota and hosts of the ended ones are the next one's."""
    road = await make_set_road(either_plane, (1, 1, 4), gpus=32)
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.submit(
            "first",
            replicated("short", replicas=2, asked={REQUIRED: RACK_LABEL}, run_seconds=3),
            replicated("long", pods=2, asked={REQUIRED: RACK_LABEL}, run_seconds=LONG),
        )
        await road.road.until_workload("first", "PodsReady")
        await road.submit("second", replicated("all", pods=2, asked={REQUIRED: RACK_LABEL}, run_seconds=LONG))
        await road.until_running("second", 2)
        workload = await road.road.workload_of("first")

    assert workload["status"]["reclaimablePods"] == [{"name": "short", "count": 2}]
    assert has(workload, "Admitted")


@pytest.mark.proves("JobSet", "replacement pods")
async def test_a_jobset_that_restarts_runs_on_in_its_place(either_plane: Plane) -> None:
    """A pod fails, and with it its Job and the JobSet's first attempt: all pods come again on the same hosts, also those
    of Jobs that had succeeded, and nobody is evicted.
    """
    road = await make_set_road(either_plane, (1, 1, 4), gpus=32)
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.submit(
            "train",
            replicated("early", asked=IN_ONE_RACK, run_seconds=2),
            replicated("workers", replicas=3, asked=IN_ONE_RACK, run_seconds=LONG),
            failurePolicy={"maxRestarts": 1},
        )
        await road.road.until_workload("train", "PodsReady")
        before = {place(pod): pod for pod in await road.until_running("train", 3)}
        failed = before["workers", 1, 0]["metadata"]["name"]
        await road.patch(f"{road.road.pods}/{failed}/status", {"status": {"phase": "Failed"}})
        await road.cluster.until(
            f"{road.jobsets}/train", lambda found: found["status"].get("restarts") == 1, what="a restart"
        )
        await road.cluster.until(
            f"{road.jobsets}/train",
            lambda found: sum(s["succeeded"] for s in found["status"]["replicatedJobsStatus"]) == 1,
            what="the early Job has succeeded again",
        )
        after = {place(pod): pod for pod in await road.until_running("train", 3)}
        workload = await road.road.workload_of("train")

    assert after.keys() == before.keys()
    assert all(after[key]["spec"]["nodeName"] == before[key]["spec"]["nodeName"] for key in before)
    assert not {p["metadata"]["uid"] for p in before.values()} & {p["metadata"]["uid"] for p in after.values()}
    assert "schedulingStats" not in workload["status"]  # nobody was evicted


async def test_a_jobset_without_restarts_left_fails_and_releases_its_quota(either_plane: Plane) -> None:
    """Its end is told with the reason that the JobSet gives."""
    road = await make_set_road(either_plane, (1, 1, 2))
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.submit("train", replicated("workers", replicas=2, run_seconds=LONG))
        pod, _ = await road.until_running("train", 2)
        await road.patch(f"{road.road.pods}/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
        await road.until("train", "Failed")
        finished = await road.road.until_workload("train", "Finished")
        await road.until_unused()

    assert finished["reason"] == "Failed"
    assert "first failed job: train-workers-0" in finished["message"]


@pytest.mark.proves("JobSet", "webhook defaults")
@pytest.mark.proves("JobSet", "webhook validation")
async def test_mistakes_are_told_at_submission_all_together(either_plane: Plane) -> None:
    """And what is right is held from its first moment on; a stranger's JobSet runs at once."""
    road = await make_set_road(either_plane)
    wrong = jobset(
        "wrong",
        road.road.namespace,
        replicated("a", asked={REQUIRED: "not a label"}),
        replicated("b", pods=3, asked={f"{PREFIX}podset-slice-required-topology": RACK_LABEL,
                                       f"{PREFIX}podset-slice-size": "4"}),
        replicated("c", asked={**IN_ONE_RACK, GROUP: "alone"}),
    )  # fmt: skip
    exclusive = jobset("exclusive", road.road.namespace, replicated("a", asked={REQUIRED: RACK_LABEL}))
    exclusive["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK_LABEL}
    right, stranger = (jobset(name, road.road.namespace, replicated("a")) for name in ("right", "stranger"))
    del right["spec"]["suspend"], stranger["spec"]["suspend"], stranger["metadata"]["labels"]
    async with running(configuration(), with_webhooks(either_plane)) as process, jobsets_run(either_plane):
        await process.operator.ready.wait()
        refusals = []
        for obj in (wrong, exclusive):
            with pytest.raises(RequestError) as refused:
                await road.cluster.request("POST", road.jobsets, obj)
            refusals.append(str(refused.value))
        held = await road.cluster.request("POST", road.jobsets, right)
        free = await road.cluster.request("POST", road.jobsets, stranger)
        await road.until("right", "Completed")
        await road.until("stranger", "Completed")

    path = "spec.replicatedJobs[{}].template.spec.template.metadata.annotations[kueue.x-k8s.io/podset-{}]"
    for number, name in enumerate(("required-topology", "slice-size", "group-name")):
        assert path.format(number, name) in refusals[0]
    assert "metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]" in refusals[1]
    assert (held["spec"]["suspend"], free["spec"].get("suspend", False)) == (True, False)


async def test_a_jobset_deleted_while_it_runs_leaves_nothing(either_plane: Plane) -> None:
    """Workload, Jobs and pods go, and quota and hosts are the next one's."""
    road = await make_set_road(either_plane, (1, 1, 2), gpus=16)
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.submit("first", replicated("workers", pods=2, run_seconds=LONG))
        await road.until_running("first", 2)
        await road.cluster.request("DELETE", f"{road.jobsets}/first?propagationPolicy=Background")
        await road.submit("second", replicated("workers", pods=2))
        await road.until("second", "Completed")
        await road.cluster.until(road.road.workloads, lambda w: len(w["items"]) == 1, what="only the second's workload")
        left = (await road.cluster.get(road.road.jobs))["items"]

    assert {job["metadata"]["name"] for job in left} == {"second-workers-0"}


@pytest.mark.proves("JobSet", "scale")
async def test_replicas_may_be_none(either_plane: Plane) -> None:
    """Such a replicated job is a pod set without pods, and the others run."""
    road = await make_set_road(either_plane, (1, 1, 2))
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.submit(
            "train",
            replicated("none", replicas=0, asked={REQUIRED: RACK_LABEL}),
            replicated("some", pods=2, asked={REQUIRED: RACK_LABEL}),
        )
        await road.until("train", "Completed")
        await road.road.until_workload("train", "Finished")
        workload = await road.road.workload_of("train")

    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("none", 0), ("some", 2)]


@pytest.mark.proves("JobSet", "child jobs")
async def test_child_jobs_are_not_queued_themselves(either_plane: Plane) -> None:
    """Not even those whose labels name a queue: the JobSet has the only Workload."""
    road = await make_set_road(either_plane, (1, 1, 2), gpus=16)
    labelled = {f"{PREFIX}queue-name": "main"}
    async with running(configuration(), with_webhooks(either_plane)) as process, jobsets_run(either_plane):
        await process.operator.ready.wait()
        await road.submit("train", replicated("workers", pods=2, run_seconds=3, labels=labelled))
        await road.until("train", "Completed")
        workloads = (await road.cluster.get(road.road.workloads))["items"]

    assert [w["metadata"]["ownerReferences"][0]["kind"] for w in workloads] == ["JobSet"]


@pytest.mark.proves("JobSet", "stop and restore")
async def test_a_jobset_suspended_by_its_user_stays_stopped_until_it_is_wanted_again(either_plane: Plane) -> None:
    """Its quota goes back, its templates are what they were, and an active Workload starts it once more."""
    road = await make_set_road(either_plane, (1, 1, 4))
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        written = await road.submit(
            "train", replicated("workers", pods=2, asked={REQUIRED: RACK_LABEL}, run_seconds=LONG)
        )
        await road.until_running("train", 2)
        await road.patch(f"{road.jobsets}/train", {"spec": {"suspend": True}})
        await road.road.until_workload("train", "QuotaReserved", status="False")
        await road.until("train", "Suspended")
        stopped = copy.deepcopy(await road.get("train"))
        workload = (await road.road.workload_of("train"))["metadata"]["name"]
        await road.patch(f"{road.road.workloads}/{workload}", {"spec": {"active": True}})
        await road.until_running("train", 2)

    assert stopped["spec"]["suspend"] is True
    assert templates(stopped) == templates(written), shown(stopped)


@pytest.mark.proves("JobSet", "maximum execution time")
async def test_a_jobset_that_runs_for_too_long_is_stopped_for_good(either_plane: Plane) -> None:
    """Its time over all starts is up: nothing of it runs, its quota is free, and it says so."""
    road = await make_set_road(either_plane, (1, 1, 2), gpus=16)
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        short = {f"{PREFIX}max-exec-time-seconds": "2"}
        await road.submit("train", replicated("workers", pods=2, run_seconds=LONG), labels=short)
        evicted = await road.road.until_workload("train", "Evicted")
        await road.road.until_workload("train", "QuotaReserved", status="False")
        stopped, left = await road.get("train"), await road.pods_of("train")
        await road.submit("next", replicated("workers", pods=2))
        await road.until("next", "Completed")

    assert "2 s of spec.maximumExecutionTimeSeconds" in evicted["message"]
    assert stopped["spec"]["suspend"] is True
    assert left == []


@pytest.mark.proves("JobSet", "prebuilt workload")
async def test_a_jobset_may_bring_its_own_workload(either_plane: Plane) -> None:
    """The one that it names is used, owned and finished, and no other is made."""
    road = await make_set_road(either_plane, (1, 1, 2))
    replicas = [replicated("leader"), replicated("workers", pods=1)]
    named = jobset("train", road.road.namespace, *replicas)
    named["metadata"]["annotations"] = {f"{PREFIX}prebuilt-workload-name": "own"}
    pod_sets = [
        {"name": each["name"], "count": 1, "template": each["template"]["spec"]["template"]} for each in replicas
    ]
    own = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "own", "namespace": road.road.namespace},
        "spec": {"queueName": "main", "podSets": pod_sets},
    }
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.cluster.request("POST", road.road.workloads, own)
        await road.cluster.request("POST", road.jobsets, named)
        await road.until("train", "Completed")
        await road.road.until_workload("train", "Finished")
        workloads = (await road.cluster.get(road.road.workloads))["items"]

    assert [w["metadata"]["name"] for w in workloads] == ["own"]


@pytest.mark.proves("JobSet", "managed by")
async def test_a_jobset_for_another_cluster_is_left_to_it(either_plane: Plane) -> None:
    """One whose user names the JobSet controller is queued as any other."""
    road = await make_set_road(either_plane, (1, 1, 2))
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.submit("own", replicated("workers"), managedBy="jobset.sigs.k8s.io/jobset-controller")
        await road.submit("far", replicated("workers"), managedBy="kueue.x-k8s.io/multikueue")
        await road.until("own", "Completed")
        workloads = (await road.cluster.get(road.road.workloads))["items"]
        far = await road.get("far")

    assert [w["metadata"]["ownerReferences"][0]["name"] for w in workloads] == ["own"]
    assert far["spec"]["suspend"] is True


async def test_exclusive_placement_does_not_start_where_kqueue_chooses_the_hosts(either_plane: Plane) -> None:
    """Its quota goes back at once, and the Workload and an event on the JobSet say why."""
    road = await make_set_road(either_plane, (1, 1, 2))
    alone = jobset("alone", road.road.namespace, replicated("workers", run_seconds=LONG))
    alone["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK_LABEL}
    async with running(configuration(), flags(either_plane)), jobsets_run(either_plane):
        await road.cluster.request("POST", road.jobsets, alone)
        finished = await road.road.until_workload("alone", "Finished")
        await road.until_unused()
        stopped, pods = await road.get("alone"), await road.pods_of("alone")

    assert finished["reason"] == "FailedToStart"
    assert "places pods on its own" in finished["message"]
    assert (stopped["spec"]["suspend"], pods) == (True, [])
