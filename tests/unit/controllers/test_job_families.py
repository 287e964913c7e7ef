"""Jobs that belong to others, jobs of namespaces that opted in, and jobs that are not queued any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import InvalidObjectError
from kqueue.jobs.kind import GroupVersionKind
from kqueue.runtime.resources import ResourceType
from tests.unit.controllers.builders import condition, status_of
from tests.unit.controllers.test_job import JOBS, KEY, NAME, Jobs
from tests.unit.jobs.builders import JSON, make_job, prefixed

JOB_SETS = ResourceType("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
WRAPPER = GroupVersionKind("workload.codeflare.dev", "v1beta2", "AppWrapper")
WRAPPERS = ResourceType(WRAPPER.group, WRAPPER.version, "appwrappers", WRAPPER.kind)
GVK = GroupVersionKind("jobset.x-k8s.io", "v1alpha2", "JobSet")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Jobs]]:
    worlds: list[Jobs] = []

    def build(*args: Any, **more: Any) -> Jobs:
        worlds.append(Jobs(*args, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def owned_by(kind: str, api: str, name: str, uid: str) -> list[JSON]:
    return [{"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}]


def child(*, labels: dict[str, str] | None = None, **spec: Any) -> JSON:
    """A Job that a JobSet runs."""
    job = make_job(labels=labels or {}, **spec)
    job["metadata"]["ownerReferences"] = owned_by("JobSet", GVK.api_version, "set", "set-uid")
    return job


def with_parent(world: Jobs, *, queue: str = "main") -> Jobs:
    labels = prefixed(queue_name=queue) if queue else {}
    meta = {"name": "set", "namespace": "team", "uid": "set-uid", "labels": labels}
    world.client.put(JOB_SETS, {"metadata": meta, "spec": {}})
    return world


def parent_workload(world: Jobs, *conditions: JSON, name: str = "jobset-set-1", uid: str = "set-uid") -> None:
    meta = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
        "ownerReferences": owned_by("JobSet", GVK.api_version, "set", uid),
    }
    world.client.put(WORKLOADS, {"metadata": meta, "spec": {"podSets": []}, "status": {"conditions": list(conditions)}})


# --- children ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("Job", "child jobs")
@pytest.mark.parametrize(
    ("conditions", "suspended"),
    [
        pytest.param(None, True, id="its parent has no Workload"),
        pytest.param([condition("QuotaReserved")], True, id="its parent's Workload has only reserved"),
        pytest.param([condition("Admitted")], False, id="its parent's Workload is admitted"),
        pytest.param([condition("Admitted"), condition("Finished")], True, id="its parent's Workload is finished"),
    ],
)
async def test_a_child_runs_only_while_its_parent_is_admitted(
    make: Callable[..., Jobs], conditions: list[JSON] | None, suspended: bool
) -> None:
    """One patch of `suspend` alone, without our mark; told as an event; no Workload is ever made for it."""
    world = with_parent(make(child(suspend=False)))
    if conditions is not None:
        parent_workload(world, *conditions)

    await world.rest()

    assert world.job["spec"]["suspend"] is suspended
    assert [key for key in world.client.keys(WORKLOADS) if NAME in key] == []
    assert world.recorder.reasons == (["Suspended"] if suspended else [])
    assert "annotations" not in world.job["metadata"] or not world.job["metadata"]["annotations"]


async def test_the_newest_workload_of_the_parent_counts(make: Callable[..., Jobs]) -> None:
    """An older one that was admitted lets nothing run."""
    world = with_parent(make(child(suspend=False)))
    parent_workload(world, condition("Admitted"), name="a-1")
    parent_workload(world, name="a-2")

    await world.rest()

    assert world.job["spec"]["suspend"] is True


async def test_a_workload_of_an_earlier_parent_of_that_name_lets_nothing_run(make: Callable[..., Jobs]) -> None:
    """Its owner has another UID."""
    world = with_parent(make(child(suspend=False)))
    parent_workload(world, condition("Admitted"), uid="before")

    await world.rest()

    assert world.job["spec"]["suspend"] is True


@pytest.mark.parametrize(
    "labels", [{}, prefixed(queue_name="main")], ids=["without a queue", "with a queue of its own"]
)
async def test_a_suspended_child_is_left_to_its_parent(make: Callable[..., Jobs], labels: dict[str, str]) -> None:
    """It is not started, and gets no Workload, even when it names a queue itself."""
    world = with_parent(make(child(labels=labels)))
    parent_workload(world, condition("Admitted"))

    assert await world.step() == []


async def test_a_job_of_an_owner_that_is_not_queued_stands_for_itself(make: Callable[..., Jobs]) -> None:
    """The JobSet names no queue, the Job does."""
    world = with_parent(make(child(labels=prefixed(queue_name="main"))), queue="")

    assert await world.step() == [f"create workloads team/{NAME}"]


async def test_owners_are_asked_for_once(make: Callable[..., Jobs]) -> None:
    """Many children ask for the same owner; its labels are remembered for a few seconds."""
    world = with_parent(make(child()))
    for _ in range(5):
        await world.step()
    assert [call.verb for call in world.client.calls] == ["get"]

    await world.clock.advance(11)
    await world.step()

    assert [call.verb for call in world.client.calls] == ["get", "get"]


async def test_a_job_that_is_nested_too_deep_is_told_so(make: Callable[..., Jobs]) -> None:
    """A warning, and nothing else is done."""
    job = make_job()
    job["metadata"]["ownerReferences"] = owned_by("AppWrapper", WRAPPER.api_version, "level-0", "0")
    world = make(job)
    for level in range(11):
        owners = owned_by("AppWrapper", WRAPPER.api_version, f"level-{level + 1}", str(level + 1))
        meta = {"name": f"level-{level}", "namespace": "team", "uid": str(level), "ownerReferences": owners}
        world.client.put(WRAPPERS, {"metadata": meta, "spec": {}})

    with pytest.raises(InvalidObjectError, match="more than 10 levels"):
        await world.step()

    assert (world.recorder.warnings, world.client.writes()) == (["JobNestingTooDeep"], [])


async def test_a_job_that_is_larger_than_the_job_it_names_is_queued_for_itself(make: Callable[..., Jobs]) -> None:
    """The parent's quota cannot be meant for it; it runs, without quota of its own, and is stopped."""
    job = make_job(suspend=False)
    job["spec"]["parallelism"] = job["spec"]["completions"] = 50
    job["metadata"]["ownerReferences"] = owned_by("Job", "batch/v1", "small", "small")
    world = make(job)
    small = make_job("small")
    small["metadata"]["uid"] = "small"
    world.jobs.put("team/small", small)
    await world.step()

    assert world.client.object(JOBS, KEY)["spec"]["suspend"] is True  # type: ignore[index]
    assert world.recorder.warnings == ["OwnerNotBelieved"]


# --- without a queue --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace_managed", [True, False])
async def test_a_job_without_a_queue_is_managed_where_that_is_wanted(
    make: Callable[..., Jobs], namespace_managed: bool
) -> None:
    """manageJobsWithoutQueueName: it waits for a queue, in namespaces that the selector matches."""
    world = make(make_job(labels={}), manages_all=True)
    if not namespace_managed:
        world.managed.clear()

    written = await world.step()

    assert written == ([f"create workloads team/{NAME}"] if namespace_managed else [])
    if namespace_managed:
        assert "queueName" not in world.found["spec"]


async def test_a_running_job_without_a_queue_is_stopped_where_all_are_managed(make: Callable[..., Jobs]) -> None:
    """Nothing runs there without admission."""
    world = make(make_job(labels={}, suspend=False), manages_all=True)

    await world.step()

    assert world.job["spec"]["suspend"] is True


# --- not any more -----------------------------------------------------------------------------------------------------


def unlabelled(world: Jobs) -> None:
    """Its user takes the label off, past the webhook; the watch by label brings its end."""
    world.client.change(JOBS, KEY, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
    world.sync()
    world.jobs.remove(KEY)


async def test_a_running_job_whose_label_is_taken_off_keeps_its_quota_to_its_end(make: Callable[..., Jobs]) -> None:
    """What runs uses what it was given; it is looked at now and then, as no watch tells of it any more."""
    world = make()
    await world.running()
    unlabelled(world)

    result = await world.reconciler.reconcile(KEY)

    assert status_of(world.found, "Admitted")[0] == "True"
    assert (world.job["spec"]["suspend"], result.requeue_after) == (False, 30.0)

    world.client.change(JOBS, KEY, {"status": {"active": 0, "conditions": [condition("Complete")]}})
    await world.reconciler.reconcile(KEY)
    assert status_of(world.found, "Finished") == ("True", "Succeeded")


async def test_an_evicted_job_whose_label_was_taken_off_is_stopped_and_forgotten(make: Callable[..., Jobs]) -> None:
    """It goes as it would with its label; then nothing is queued any more.  Quota stays while pods do."""
    world = make()
    await world.running()
    unlabelled(world)
    world.evict()
    for _ in range(2):
        await world.reconciler.reconcile(KEY)
        world.workloads_only()
    assert world.job["spec"]["suspend"] is True
    assert status_of(world.found, "QuotaReserved")[0] == "True"

    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    await world.reconciler.reconcile(KEY)

    assert world.client.keys(WORKLOADS) == []
    assert "nodeSelector" not in world.job["spec"]["template"]["spec"]


async def test_a_waiting_job_whose_label_is_taken_off_is_forgotten(make: Callable[..., Jobs]) -> None:
    """Its Workload would else be admitted for nobody."""
    world = make()
    await world.queued()
    unlabelled(world)

    await world.reconciler.reconcile(KEY)

    assert world.client.keys(WORKLOADS) == []
    assert world.recorder.reasons[-1] == "DeletedWorkload"


async def test_a_job_of_a_namespace_that_is_not_managed_any_more_ends_well(make: Callable[..., Jobs]) -> None:
    """It runs on, and its end gives its quota back."""
    world = make()
    await world.running()
    world.managed.clear()
    await world.rest()
    assert world.job["spec"]["suspend"] is False

    world.client.change(JOBS, KEY, {"status": {"active": 0, "conditions": [condition("Failed")]}})
    await world.rest()

    assert status_of(world.found, "Finished") == ("True", "Failed")


@pytest.mark.proves("Job", "managed by")
@pytest.mark.parametrize(
    ("manager", "managed"),
    [
        pytest.param("kubernetes.io/job-controller", True, id="the Job controller, by name"),
        pytest.param("example.com/other", True, id="another controller: it obeys `suspend` as well"),
        pytest.param("kueue.x-k8s.io/multikueue", False, id="another cluster, to which nothing here sends it"),
    ],
)
async def test_who_runs_a_job_does_not_matter_to_its_queueing(
    make: Callable[..., Jobs], manager: str, managed: bool
) -> None:
    """Only what nobody here can run is left alone, and told so."""
    world = make(make_job(managedBy=manager))

    written = await world.step()

    assert written == ([f"create workloads team/{NAME}"] if managed else [])
    assert world.recorder.warnings == ([] if managed else ["Unsupported"])


FAR = "kueue.x-k8s.io/multikueue"


async def test_a_job_for_another_cluster_is_queued_where_it_is_dispatched(make: Callable[..., Jobs]) -> None:
    """It is started, too, once it is admitted: its controller here leaves it alone."""
    world = make(make_job(managedBy=FAR), dispatches=True)
    await world.running()
    assert world.recorder.warnings == []
    assert world.job["spec"]["managedBy"] == FAR


async def test_quota_for_another_cluster_is_kept_until_that_cluster_has_stopped_the_job(
    make: Callable[..., Jobs],
) -> None:
    """The status here is what the other cluster has told last; one that is lost tells nothing, and holds no quota."""
    world = make(make_job(managedBy=FAR), dispatches=True)
    await world.running(active=4)
    world.elsewhere = True
    world.evict()
    await world.rest()
    assert status_of(world.found, "QuotaReserved")[0] == "True"
    assert (await world.reconciler.reconcile(KEY)).requeue_after == 10

    world.elsewhere = False
    await world.rest()
    assert status_of(world.found, "QuotaReserved")[0] == "False"


async def test_the_last_status_of_another_cluster_keeps_no_job_waiting(make: Callable[..., Jobs]) -> None:
    """A job whose Workload was deleted is queued again: nothing runs here, whatever its status still says."""
    world = make(make_job(managedBy=FAR), dispatches=True)
    world.client.change(JOBS, KEY, {"status": {"active": 4}})

    assert await world.step() == [f"create workloads team/{NAME}"]


# --- cannot be read any more ------------------------------------------------------------------------------------------


def contradictory(world: Jobs) -> None:
    """Somebody writes what excludes itself into the template, past the webhook."""
    both = prefixed(podset_required_topology="rack", podset_preferred_topology="rack")
    world.client.change(JOBS, KEY, {"spec": {"template": {"metadata": {"annotations": both}}}})


async def step_badly(world: Jobs) -> None:
    world.sync()
    with pytest.raises(InvalidObjectError, match="exclude each other"):
        await world.reconciler.reconcile(KEY)


async def test_a_running_job_that_cannot_be_read_any_more_ends_well(make: Callable[..., Jobs]) -> None:
    """It runs on; evicted it is stopped, and its quota goes with its pods; its user is told what is wrong."""
    world = make()
    await world.running()
    contradictory(world)
    await step_badly(world)
    assert (world.job["spec"]["suspend"], status_of(world.found, "Admitted")[0]) == (False, "True")

    world.evict()
    await step_badly(world)
    assert (world.job["spec"]["suspend"], status_of(world.found, "QuotaReserved")[0]) == (True, "True")

    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    world.sync()
    await world.reconciler.reconcile(KEY)  # the stop has given the template back, so it can be read again
    assert status_of(world.found, "QuotaReserved")[0] == "False"
    assert world.recorder.warnings == ["InvalidJob"] * 2


async def test_a_waiting_job_that_cannot_be_read_any_more_is_not_admitted(make: Callable[..., Jobs]) -> None:
    """Its Workload goes, and comes back when the job is corrected."""
    world = make()
    await world.queued()
    contradictory(world)
    await step_badly(world)
    assert world.client.keys(WORKLOADS) == []

    world.client.change(JOBS, KEY, {"spec": {"template": {"metadata": {"annotations": None}}}})
    assert await world.step() == [f"create workloads team/{NAME}"]
