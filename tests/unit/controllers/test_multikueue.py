"""The controllers of MultiKueue: what a manager writes on its own cluster and on worker clusters, also after faults.

Ids such as `17.2.8` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.config.dispatchers import DISPATCHER_INCREMENTAL
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import ApiError, ForbiddenError, InvalidError, NotFoundError, UnreachableError
from kqueue.runtime.resources import ResourceType
from tests.readings import page_of
from tests.unit.controllers.builders import JSON, condition, make_workload, status_of
from tests.unit.controllers.multikueue_world import APPLICATIONS, JOBS, SERVICES, MultiKueueWorld, Worker, make_job

ADMITTED = (condition("QuotaReserved"), condition("Admitted"))
ORIGIN = "kueue.x-k8s.io/multikueue-origin"


async def running(**options: Any) -> MultiKueueWorld:
    """A world in which `a` has admitted the workload and runs its job."""
    world = MultiKueueWorld(**options)
    await world.settled()
    world.workers["a"].tell(*ADMITTED)
    await world.settled()
    return world


async def test_all_clusters_get_a_copy_and_nothing_else() -> None:
    """17.2.9: copies appear after the nomination is written, with the mark of the manager and without a job."""
    world = MultiKueueWorld()

    await world.settled()

    assert world.status["nominatedClusterNames"] == ["a", "b"]
    for worker in world.workers.values():
        assert worker.names == ["ns/w"]
        assert worker.workload is not None
        assert worker.workload["metadata"]["labels"][ORIGIN] == "west"
    assert world.entry["state"] == "Pending"
    assert "a, b" in world.entry["message"]


async def test_the_first_cluster_that_admits_gets_the_job() -> None:
    """17.2.8: the others lose their copies, the check is ready, clusterName is set, an event tells it."""
    world = await running()

    assert world.workers["a"].names == ["ns/w", "ns/j"]
    assert world.workers["b"].names == []
    assert (world.entry["state"], world.status["clusterName"]) == ("Ready", "a")
    assert "nominatedClusterNames" not in world.status
    assert world.recorder.reasons == ["MultiKueue"]
    assert world.recorder.warnings == []
    job = world.workers["a"].job
    assert job is not None
    assert job["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] == "w"
    assert "managedBy" not in job["spec"]


async def test_copies_and_admissions_are_counted_by_cluster() -> None:
    """Each copy counts once, however often the steps are decided; steps that are only tried count nothing."""
    world = await running()
    world.lead()
    await world.settled()
    page = page_of(world.metrics).decode().splitlines()

    assert {line for line in page if line.startswith("multikueue_workloads")} == {
        f'multikueue_workloads_{kind}_total{{cluster_queue="team",cluster="{cluster}"}} 1.0'
        for kind, cluster in (("dispatched", "a"), ("dispatched", "b"), ("admitted", "a"))
    }


async def test_domains_are_chosen_by_the_worker_alone() -> None:
    """8.3 of the topology: the manager's request for domains is settled with the check, in the same write."""
    world = MultiKueueWorld()
    held = world.status["admission"]["podSetAssignments"][0] | {"delayedTopologyRequest": "Pending"}
    world.client.change(WORKLOADS, "ns/w", {"status": {"admission": {"podSetAssignments": [held]}}})
    await world.settled()
    world.workers["a"].tell(*ADMITTED)
    seen: list[tuple[str, str]] = []

    def look(_old: object, new: wire.Workload | None) -> None:
        assert new is not None
        assert new.status.admission is not None
        asked = new.status.admission.pod_set_assignments[0].delayed_topology_request
        seen.append((new.status.admission_checks[0].state, asked or ""))

    world.workloads.subscribe(look)
    await world.settled()

    assert seen[-1] == ("Ready", "Ready")
    assert ("Ready", "Pending") not in seen
    assert world.status["admission"]["podSetAssignments"] == [held | {"delayedTopologyRequest": "Ready"}]


async def test_the_status_of_the_job_comes_back() -> None:
    """17.2: the status comes while the job runs, and at its end, which is the end of the workload (17.2.4)."""
    world = await running()
    world.client.change(JOBS, "ns/j", {"spec": {"suspend": False}})
    world.workers["a"].client.change(JOBS, "ns/j", {"spec": {"suspend": False}, "status": {"active": 1}})
    await world.settled()
    ours = world.client.object(JOBS, "ns/j")
    assert ours is not None
    assert ours["status"] == {"active": 1}

    world.workers["a"].client.change(JOBS, "ns/j", {"status": {"active": None, "succeeded": 1}})
    world.workers["a"].tell(*ADMITTED, condition("Finished", reason="Succeeded", message="all pods ended"))
    await world.settled()

    ours = world.client.object(JOBS, "ns/j")
    assert ours is not None
    assert ours["status"] == {"succeeded": 1}
    assert status_of(world.workload("w"), "Finished") == ("True", "Succeeded")
    assert world.workers["a"].names == []


async def test_the_end_of_a_job_that_its_watch_brings_late_is_not_lost() -> None:
    """The copies, which alone tell how the job has ended, stay until the manager's job says it."""
    world = await running()
    world.client.change(JOBS, "ns/j", {"spec": {"suspend": False}})
    world.workers["a"].client.change(JOBS, "ns/j", {"spec": {"suspend": False}, "status": {"active": 1}})
    now = f"{world.clock.now():%Y-%m-%dT%H:%M:%SZ}"
    world.workers["a"].tell(*ADMITTED, condition("Finished", reason="Succeeded") | {"lastTransitionTime": now})
    await world.settled()
    ended = [{"type": "Complete", "status": "True"}]
    world.workers["a"].client.change(JOBS, "ns/j", {"status": {"active": None, "conditions": ended}})
    await world.settled()

    ours = world.client.object(JOBS, "ns/j")
    assert ours is not None
    assert ours["status"] == {"conditions": ended}
    assert status_of(world.workload("w"), "Finished")[0] == "True"
    assert world.workers["a"].names == []


async def test_a_status_that_the_api_server_refuses_holds_nothing_up() -> None:
    """The workload finishes although its job keeps its old status; a warning tells it."""
    world = await running()
    world.client.change(JOBS, "ns/j", {"spec": {"suspend": False}})
    world.workers["a"].client.change(JOBS, "ns/j", {"spec": {"suspend": False}, "status": {"active": 1}})
    world.client.fail(InvalidError("no", status=422), verb="patch", key="ns/j", times=9)
    world.workers["a"].tell(*ADMITTED, condition("Finished", reason="Succeeded"))

    await world.settled()

    assert status_of(world.workload("w"), "Finished")[0] == "True"
    assert "MultiKueue" in world.recorder.warnings


def of_another_manager(obj: JSON) -> JSON:
    """A copy that another manager with the same origin has made."""
    marks = {"labels": {ORIGIN: "west"}, "annotations": {"kqueue.dev/multikueue-manager-uid": "uid-of-another"}}
    return {**obj, "metadata": {**obj["metadata"], **marks}}


@pytest.mark.parametrize(
    ("resource", "foreign"),
    [
        pytest.param(WORKLOADS, make_workload("w"), id="a workload"),
        pytest.param(JOBS, make_job(), id="a job"),
        pytest.param(WORKLOADS, of_another_manager(make_workload("w")), id="the copy of another manager"),
        pytest.param(JOBS, of_another_manager(make_job()), id="the copy of another manager's job"),
    ],
)
async def test_a_foreign_object_is_never_touched(resource: ResourceType, foreign: JSON) -> None:
    """17.2: a user of `a` has taken the name; the other cluster runs the job."""
    world = MultiKueueWorld()
    taken, free = world.workers["a"], world.workers["b"]
    taken.client.put(resource, foreign)
    before = taken.client.object(resource, "ns/" + foreign["metadata"]["name"])
    await world.settled()
    if resource == JOBS:
        taken.tell(*ADMITTED)
        await world.settled()
    free.tell(*ADMITTED)
    await world.settled()
    world.reconciler.collect_garbage()
    await world.settled()

    assert (world.entry["state"], world.status["clusterName"]) == ("Ready", "b")
    assert free.names == ["ns/w", "ns/j"]
    assert taken.names == ["ns/" + foreign["metadata"]["name"]]
    assert taken.client.object(resource, taken.names[0]) == before


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(NotFoundError("namespaces ns not found", status=404), id="no namespace"),
        pytest.param(ForbiddenError("may not create", status=403), id="no right"),
        pytest.param(InvalidError("spec is invalid", status=422), id="another schema"),
    ],
)
async def test_what_a_cluster_refuses_is_told_and_tried_again(refusal: ApiError) -> None:
    """Users see it on the Workload of the manager; the other cluster is not held up."""
    world = MultiKueueWorld()
    world.workers["a"].client.fail(refusal, verb="create", times=99)

    for _ in range(3):
        await world.step()

    assert [w.names for w in world.workers.values()] == [[], ["ns/w"]]
    assert set(world.recorder.warnings) == {"MultiKueue"}
    assert any(f"Cluster a refused a step (create): {refusal}" in message for message in world.recorder.messages)
    assert (await world.steps.reconcile(world.workers["a"].link, "ns/w")).requeue_after == 30


async def test_a_lost_cluster_is_waited_for_and_then_given_up() -> None:
    """17.2.7: Retry after workerLostTimeout; until then the work there goes on."""
    world = await running()
    world.workers["a"].lose()
    assert await world.settled() == 900
    await world.clock.advance(899)
    assert await world.settled() == 1
    assert world.entry["state"] == "Ready"

    await world.clock.advance(1)
    await world.settled()

    assert world.entry["state"] == "Retry"
    assert world.recorder.warnings == ["MultiKueue"]


async def test_a_cluster_that_is_back_in_time_goes_on() -> None:
    world = await running()
    world.workers["a"].lose()
    await world.settled()
    await world.clock.advance(600)
    world.workers["a"].connect()

    await world.settled()

    assert (world.entry["state"], world.workers["a"].names) == ("Ready", ["ns/w", "ns/j"])


async def test_copies_on_a_cluster_that_comes_back_late_are_deleted() -> None:
    """17.2.3: the workload has finished meanwhile; the manager looks again until the cluster is back."""
    world = await running()
    world.workers["a"].lose()
    world.client.change(WORKLOADS, "ns/w", {"status": {"conditions": [condition("Finished", reason="Failed")]}})
    assert await world.settled() == 900

    world.workers["a"].connect()
    assert await world.settled() is None

    assert world.workers["a"].names == []


async def test_garbage_of_another_manager_is_left_alone() -> None:
    """The copy has the same origin, and a Workload that this manager does not have: it is no orphan of ours."""
    world = MultiKueueWorld()
    await world.settled()
    a = world.workers["a"]
    a.client.put(WORKLOADS, of_another_manager(make_workload("theirs")))
    a.client.put(WORKLOADS, of_this_manager(make_workload("ours")))
    world._bring()
    world.reconciler.collect_garbage()
    assert set(a.cluster.queue) == {"ns/theirs", "ns/ours"}
    await world.settled()
    assert a.client.keys(WORKLOADS) == ["ns/w", "ns/theirs"]


def of_this_manager(obj: JSON) -> JSON:
    """A copy that this manager has made."""
    marks = {"labels": {ORIGIN: "west"}, "annotations": {"kqueue.dev/multikueue-manager-uid": "uid-of-manager"}}
    return {**obj, "metadata": {**obj["metadata"], **marks}}


async def test_a_workload_that_is_gone_takes_its_copies_with_it() -> None:
    """17.2.2: also after the manager's restart, by the collection of garbage."""
    world = await running()
    world.client.drop(WORKLOADS, "ns/w")
    world.sync()
    world.lead()
    world.reconciler.collect_garbage()

    assert [list(w.cluster.queue) for w in world.workers.values()] == [["ns/w"], []]
    await world.settled()
    assert world.workers["a"].names == []


async def test_a_check_that_is_missing_ends_no_work() -> None:
    """An administrator deletes the AdmissionCheck; the jobs on all clusters run on."""
    world = await running()
    world.checks.clear()
    await world.settled()
    assert world.workers["a"].names == ["ns/w", "ns/j"]


async def test_a_queue_without_the_check_ends_the_work_elsewhere() -> None:
    world = await running()
    entry = {"name": "other", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    world.client.change(WORKLOADS, "ns/w", {"status": {"admissionChecks": [entry]}})
    await world.settled()
    assert world.workers["a"].names == []


async def test_a_list_of_checks_that_is_lost_ends_no_work() -> None:
    """Another client empties the list in the status; the job runs on."""
    world = await running()
    world.client.change(WORKLOADS, "ns/w", {"status": {"admissionChecks": []}})
    await world.settled()
    assert world.workers["a"].names == ["ns/w", "ns/j"]


async def test_a_job_that_is_made_anew_gets_new_copies() -> None:
    """17.2: the copies of a job that had the name before go first."""
    world = await running()
    world.client.drop(JOBS, "ns/j")
    world.client.drop(WORKLOADS, "ns/w")
    world.client.put(JOBS, make_job() | {"metadata": {"name": "j", "namespace": "ns", "uid": "second"}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "second", "controller": True}
    world.client.put(WORKLOADS, make_workload("w", metadata={"uid": "w2", "ownerReferences": [owner]}))
    world.reserve()

    await world.settled()
    world.workers["a"].tell(*ADMITTED)
    await world.settled()

    job = world.workers["a"].job
    assert job is not None
    assert job["metadata"]["annotations"]["kueue.x-k8s.io/multikueue-origin-uid"] == "second"
    assert (world.entry["state"], world.status["clusterName"]) == ("Ready", "a")


async def test_an_eviction_by_the_manager_reaches_the_worker() -> None:
    """17.2.8: the worker is told to deactivate its copy, once; without quota the copies go (17.2.3)."""
    world = await running()
    world.reserve(condition("Evicted"), condition("Admitted", "False"))

    await world.settled()

    assert status_of(world.workers["a"].workload, "DeactivationTarget") == ("True", "EvictedOnManagerCluster")
    world.client.change(WORKLOADS, "ns/w", {"status": {"conditions": [condition("QuotaReserved", "False")]}})
    await world.settled()
    assert world.workers["a"].names == []


async def test_an_eviction_by_the_worker_is_a_retry() -> None:
    """17.2.5: a normal event, because it is no fault."""
    world = await running()
    world.workers["a"].tell(*ADMITTED, condition("Evicted", reason="Preempted"))

    await world.settled()

    assert (world.entry["state"], world.recorder.warnings) == ("Retry", [])


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        pytest.param({"spec": {"suspend": False}}, True, id="it may start pods"),
        pytest.param({"spec": {"suspend": False}, "status": {"active": 1}}, True, id="it runs"),
        pytest.param({"spec": {"suspend": True}, "status": {"active": 1}}, True, id="its pods are ending"),
        pytest.param({"spec": {"suspend": True}, "status": {"active": 0}}, False, id="its pods have ended"),
        pytest.param(
            {"spec": {"suspend": False}, "status": {"conditions": [condition("Complete")]}}, False, id="it has finished"
        ),
    ],
)
async def test_quota_is_kept_while_a_job_may_run_elsewhere(change: JSON, runs: bool) -> None:
    """Quota is on no account kept for a cluster that is lost."""
    world = await running()
    world.workers["a"].client.change(JOBS, "ns/j", change)
    world.workers["a"].client.sync()
    workload = world.workloads.get("ns/w")
    assert workload is not None
    assert world.view.runs_elsewhere(workload) is runs

    world.workers["a"].lose()
    assert not world.view.runs_elsewhere(workload)


async def test_a_priority_reaches_the_copies() -> None:
    """17.2.6"""
    world = MultiKueueWorld()
    await world.settled()
    world.client.change(WORKLOADS, "ns/w", {"spec": {"priority": 7}})

    await world.settled()

    assert [(w.workload or {})["spec"]["priority"] for w in world.workers.values()] == [7, 7]


@pytest.mark.parametrize("done", [True, False], ids=["answer-lost", "never-done"])
async def test_a_priority_class_reaches_the_copy_of_the_job_too(done: bool) -> None:
    """17.2.6: a worker that reads its label takes the priority back otherwise; also after a write that was cut off."""
    world = await running()
    label = "kueue.x-k8s.io/priority-class"
    world.client.change(JOBS, "ns/j", {"metadata": {"labels": {label: "high"}}})
    world.client.change(WORKLOADS, "ns/w", {"spec": {"priority": 7}})
    world.workers["a"].client.fail(UnreachableError("cut"), key="ns/j", done=done)
    with pytest.raises(UnreachableError):
        await world.step()
    await world.settled()

    worker = world.workers["a"]
    assert (worker.workload or {})["spec"]["priority"] == 7
    assert (worker.job or {})["metadata"]["labels"][label] == "high"
    assert world.entry["state"] == "Ready"


@pytest.mark.parametrize("on", [True, False])
async def test_an_edit_of_a_service_is_forwarded_by_its_gate(on: bool) -> None:
    """14 of the integrations: MultiKueueRemoteSpecSync; the service runs on, and its check stays ready."""
    world = MultiKueueWorld(pods=True, forwards=on)
    spec = {"managedBy": "kueue.x-k8s.io/multikueue", "serveConfigV2": "a", "rayClusterConfig": {"suspend": True}}
    world.client.put(SERVICES, {"metadata": {"name": "s", "namespace": "ns", "uid": "uid-of-s"}, "spec": spec})
    owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "s", "uid": "uid-of-s", "controller": True}
    world.client.put(WORKLOADS, make_workload("w", metadata={"ownerReferences": [owner]}))
    world.reserve()
    await world.settled()
    worker = world.workers["a"]
    worker.tell(*ADMITTED)
    await world.settled()
    worker.client.change(SERVICES, "ns/s", {"spec": {"rayClusterConfig": {"suspend": False}}})
    world.client.change(SERVICES, "ns/s", {"spec": {"serveConfigV2": "b"}})
    await world.settled()

    copy = worker.client.object(SERVICES, "ns/s")
    assert copy is not None
    assert (copy["spec"]["serveConfigV2"], copy["spec"]["rayClusterConfig"]["suspend"]) == ("b" if on else "a", False)
    assert world.entry["state"] == "Ready"


async def test_a_job_that_its_own_controller_runs_is_rejected() -> None:
    """17.2.1"""
    world = MultiKueueWorld(job=make_job(managedBy=None))
    await world.settled()
    assert world.entry["state"] == "Rejected"
    assert "spec.managedBy" in world.entry["message"]
    assert [w.names for w in world.workers.values()] == [[], []]


async def test_clusters_are_added_by_rounds() -> None:
    """17.2: the incremental dispatcher, over a restart of the controller."""
    world = MultiKueueWorld(clusters="cab", dispatcher=DISPATCHER_INCREMENTAL, step=1)
    world.client.change(WORKLOADS, "ns/w", {"status": {"admissionChecks": [world.entry]}})
    status = world.status
    status["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    world.client.change(WORKLOADS, "ns/w", {"status": status})
    assert await world.settled() == 300
    assert world.status["nominatedClusterNames"] == ["c"]

    world.lead()
    await world.clock.advance(300)
    await world.settled()

    assert world.status["nominatedClusterNames"] == ["c", "a"]
    assert [w.names for w in world.workers.values()] == [["ns/w"], ["ns/w"], []]


async def test_one_worker_after_the_other_may_preempt() -> None:
    """17.2: the gate of the one that is blocked longest is opened, and after a period that of the next, over a restart."""
    world = MultiKueueWorld(orchestrates_preemption=True)
    await world.settled()
    a, b = world.workers["a"], world.workers["b"]
    b.tell(condition("BlockedOnPreemptionGates"))
    await world.settled()
    assert (positions(a), positions(b)) == ([], ["Open"])
    assert "b may preempt" in world.recorder.messages[-1]

    a.tell(condition("BlockedOnPreemptionGates"))
    world.lead()
    assert await world.settled() == 300
    assert positions(a) == []
    await world.clock.advance(300)
    await world.settled()
    assert (positions(a), positions(b)) == (["Open"], ["Open"])


def positions(worker: Worker) -> list[str]:
    """The states of the gates of a copy, which has one gate."""
    copy = worker.workload or {}
    assert copy["spec"]["preemptionGates"] == [{"name": "kueue.x-k8s.io/multikueue"}]
    return [gate["position"] for gate in copy.get("status", {}).get("preemptionGates", [])]


@pytest.mark.parametrize("after", range(1, 9))
async def test_a_manager_that_is_killed_anywhere_goes_on(after: int) -> None:
    """The write at which it dies may have happened or not: in the end one cluster runs the job, and only once."""
    world = MultiKueueWorld()
    for worker in world.workers.values():
        worker.client.fail(UnreachableError("cut"), verb="create", times=after % 2 + 1, done=after % 3 == 0)
        worker.client.fail(UnreachableError("cut"), verb="delete", times=after % 2, done=after % 3 == 1)
    world.client.fail(UnreachableError("cut"), verb="patch", times=after // 3, done=after % 2 == 0)

    async def steps() -> None:
        for _ in range(20):
            try:
                await world.settled()
            except UnreachableError:
                world.lead()
            else:
                return

    await steps()
    for worker in world.workers.values():
        worker.tell(*ADMITTED)
    await steps()

    assert (world.entry["state"], world.status["clusterName"]) == ("Ready", "a")
    assert (world.workers["a"].names, world.workers["b"].names) == (["ns/w", "ns/j"], [])


def activity(world: MultiKueueWorld) -> JSON:
    found = world.view.activity(world.checks["multi"])
    assert found is not None
    return {"active": found.active, "reason": found.reason, "message": found.message}


@pytest.mark.parametrize(
    ("lost", "unknown", "want", "said"),
    [
        pytest.param("", "", (True, "Active"), "", id="all are connected"),
        pytest.param("a", "", (True, "SomeActiveClusters"), "inactive: a", id="one is lost"),
        pytest.param("a", "b", (False, "NoUsableClusters"), "missing: b; inactive: a", id="none is left"),
        pytest.param("", "ab", (False, "NoUsableClusters"), "missing: a, b", id="none exists"),
    ],
)
async def test_a_check_says_which_clusters_can_be_used(
    lost: str, unknown: str, want: tuple[bool, str], said: str
) -> None:
    world = MultiKueueWorld()
    for name in lost:
        world.workers[name].lose()
    for name in unknown:
        del world.clusters[name]

    found = activity(world)

    assert (found["active"], found["reason"]) == want
    assert said in found["message"]


async def test_a_check_without_a_config_is_not_active() -> None:
    world = MultiKueueWorld()
    world.config = None
    found = activity(world)
    assert (found["active"], found["reason"]) == (False, "BadConfig")
    assert "all not found" in found["message"]


# --- a kind whose flag keeps it from running on the manager -----------------------------------------------------------


async def test_an_application_runs_elsewhere_while_it_is_suspended_here() -> None:
    """17.2.8, 17.2.4: the operator here is told nothing before the end, which is that of the copy; readiness is told."""
    world = MultiKueueWorld(pods=True)
    meta = {"name": "s", "namespace": "ns", "uid": "uid-of-s"}
    held = {"metadata": meta, "spec": {"suspend": True}, "status": {"applicationState": {"state": "SUSPENDED"}}}
    world.client.put(APPLICATIONS, held)
    api = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
    owner = {**api, "name": "s", "uid": "uid-of-s", "controller": True}
    world.client.put(WORKLOADS, make_workload("w", metadata={"ownerReferences": [owner]}))
    world.reserve()
    await world.settled()
    worker = world.workers["a"]
    worker.tell(condition("QuotaReserved"), condition("Admitted"), condition("PodsReady"))
    await world.settled()
    running = {"spec": {"suspend": False}, "status": {"applicationState": {"state": "RUNNING"}}}
    worker.client.change(APPLICATIONS, "ns/s", running)
    world.reserve(condition("Admitted"), state="Ready")
    await world.settled()
    before = world.client.object(APPLICATIONS, "ns/s") or {}
    ready = [c["status"] for c in world.status["conditions"] if c["type"] == "PodsReady"]
    worker.client.change(APPLICATIONS, "ns/s", {"status": {"applicationState": {"state": "COMPLETED"}}})
    worker.tell(condition("QuotaReserved"), condition("Finished", reason="Succeeded"))
    await world.settled()
    after = world.client.object(APPLICATIONS, "ns/s") or {}

    assert (before["spec"], before["status"]) == (held["spec"], held["status"])
    assert ready == ["True"]
    assert after["status"]["applicationState"]["state"] == "COMPLETED"
    assert [c["reason"] for c in world.status["conditions"] if c["type"] == "Finished"] == ["Succeeded"]
    assert world.workers["b"].names == []
