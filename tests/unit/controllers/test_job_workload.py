"""Which Workload a job has: one made beforehand, one kept true to the job, and quota that goes after the last pod."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import RESOURCE_FLAVORS, WORKLOADS
from tests.unit.controllers.builders import condition, make_flavor, message_of, read, reserved, status_of
from tests.unit.controllers.test_job import JOBS, KEY, NAME, OURS, Jobs
from tests.unit.jobs.builders import JSON, UID, make_job, make_workload, prefixed, pruned

MADE = "team/made"


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Jobs]]:
    worlds: list[Jobs] = []

    def build(*args: Any, **more: Any) -> Jobs:
        worlds.append(Jobs(*args, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


# --- made beforehand --------------------------------------------------------------------------------------------------


def wanting(**spec: Any) -> JSON:
    """A Job that uses Workload `made`."""
    return make_job(annotations=prefixed(prebuilt_workload_name="made"), **spec)


def made(world: Jobs, *, count: int = 4, owners: list[JSON] | None = None, **status: Any) -> None:
    workload = make_workload(make_job())
    workload["metadata"] = {"name": "made", "namespace": "team", "uid": "made", "ownerReferences": owners or []}
    workload["spec"]["podSets"][0]["count"] = count
    world.client.put(WORKLOADS, {**workload, "status": status})


def the_made(world: Jobs) -> JSON:
    found = world.client.object(WORKLOADS, MADE)
    assert found is not None
    return found


@pytest.mark.proves("Job", "prebuilt workload")
async def test_a_job_takes_the_workload_that_was_made_for_it(make: Callable[..., Jobs]) -> None:
    """It becomes its controller and holds it; no other Workload is made; admitted, the job starts."""
    world = make(wanting())
    made(world)

    await world.rest()

    meta = the_made(world)["metadata"]
    assert [(o["kind"], o["uid"], o["controller"]) for o in meta["ownerReferences"]] == [("Job", UID, True)]
    assert (meta["labels"], meta["finalizers"]) == (prefixed(job_uid=UID), [OURS])
    assert world.client.keys(WORKLOADS) == [MADE]

    world.client.change(WORKLOADS, MADE, {"status": reserved(pods=4)})
    await world.rest()
    assert world.job["spec"]["suspend"] is False


async def test_other_owners_of_a_prebuilt_workload_stay_as_they_are(make: Callable[..., Jobs]) -> None:
    """Also what a watch does not keep of them."""
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "blockOwnerDeletion": True}
    world = make(wanting())
    made(world, owners=[theirs])

    await world.rest()

    owners = the_made(world)["metadata"]["ownerReferences"]
    assert (owners[0], len(owners)) == (theirs, 2)


async def test_a_job_waits_for_a_prebuilt_workload_that_is_missing(make: Callable[..., Jobs]) -> None:
    """It is told so, and looked at again; a running one is stopped, its template left as it is."""
    world = make(wanting(suspend=False))

    await world.step()
    assert (world.job["spec"]["suspend"], world.recorder.reasons) == (True, ["WorkloadNotFound", "Stopped"])
    world.sync()
    result = await world.reconciler.reconcile(KEY)

    assert result.requeue_after == 60.0
    assert (set(world.recorder.warnings), world.client.keys(WORKLOADS)) == ({"WorkloadNotFound"}, [])


async def test_a_prebuilt_workload_of_another_job_is_not_touched(make: Callable[..., Jobs]) -> None:
    """Its controller stays; the job waits."""
    other = {"apiVersion": "batch/v1", "kind": "Job", "name": "other", "uid": "other", "controller": True}
    world = make(wanting())
    made(world, owners=[other])
    before = the_made(world)

    await world.step()

    assert the_made(world) == before
    assert world.recorder.warnings == ["WorkloadNotFound"]


async def test_a_prebuilt_workload_that_says_something_else_is_over(make: Callable[..., Jobs]) -> None:
    """OutOfSync: told on the job; the job stays suspended, and no other Workload is made for it."""
    world = make(wanting())
    made(world, count=3)

    for _ in range(4):
        await world.step()

    assert status_of(the_made(world), "Finished") == ("True", "OutOfSync")
    assert "does not describe the job" in message_of(the_made(world), "Finished")
    assert (world.job["spec"]["suspend"], world.client.keys(WORKLOADS)) == (True, [MADE])
    assert world.recorder.warnings == ["OutOfSync"]


async def test_the_end_of_a_job_is_the_end_of_its_prebuilt_workload(make: Callable[..., Jobs]) -> None:
    """As of one that was made for it."""
    world = make(wanting())
    made(world)
    await world.rest()
    world.client.change(WORKLOADS, MADE, {"status": reserved(pods=4)})
    await world.rest()
    world.client.change(JOBS, KEY, {"status": {"conditions": [condition("Complete")]}})

    await world.rest()

    assert status_of(the_made(world), "Finished") == ("True", "Succeeded")
    assert the_made(world)["metadata"].get("finalizers") is None


# --- kept true --------------------------------------------------------------------------------------------------------


def with_classes(world: Jobs, **values: int) -> Jobs:
    for name, value in values.items():
        found = read(wire.WorkloadPriorityClass, {"metadata": {"name": name}, "value": value})
        world.workload_priorities.put(name, found)
    return world


def classed(name: str | None) -> JSON:
    return {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": name}}}


@pytest.mark.proves("Job", "priority class")
@pytest.mark.parametrize("state", ["waiting", "reserved", "running"])
async def test_another_priority_class_is_handed_on(make: Callable[..., Jobs], state: str) -> None:
    """One write of class and value, also while the job runs; told once."""
    world = with_classes(make(make_job(labels=prefixed(queue_name="main", priority_class="low"))), low=1, high=9)
    await (world.running() if state == "running" else world.queued())
    if state == "reserved":
        status = reserved(condition("Admitted", "False", "UnsatisfiedAdmissionChecks"), pods=4)
        world.client.change(WORKLOADS, f"team/{NAME}", {"status": status})
    world.recorder.events.clear()
    world.client.change(JOBS, KEY, classed("high"))

    assert await world.step() == [f"patch workloads team/{NAME}"]

    spec = world.found["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (9, "high")
    assert (world.recorder.reasons, await world.step()) == (["UpdatedWorkload"], [])


@pytest.mark.parametrize(
    ("before", "after", "reserves", "want"),
    [
        pytest.param(None, "high", False, 9, id="a waiting one gets its first class"),
        pytest.param(None, "high", True, 0, id="one that holds quota does not: the API refuses it"),
        pytest.param("low", None, False, 0, id="without a class any more: what else it has, here nothing"),
        pytest.param("low", None, True, 1, id="not while it holds quota"),
        pytest.param("low", "low", False, 1, id="the same"),
    ],
)
async def test_when_a_priority_class_is_handed_on(
    make: Callable[..., Jobs], before: str | None, after: str | None, reserves: bool, want: int
) -> None:
    """As the API allows it."""
    labels = prefixed(queue_name="main", **({"priority_class": before} if before else {}))
    world = with_classes(make(make_job(labels=labels)), low=1, high=9)
    await world.queued()
    if reserves:
        world.admit()
    world.client.change(JOBS, KEY, classed(after))

    await world.rest()

    assert world.found["spec"]["priority"] == want
    assert ("priorityClassRef" in world.found["spec"]) is (want > 0)


async def test_a_class_that_is_missing_leaves_the_workload_as_it_is(make: Callable[..., Jobs]) -> None:
    """The job is told; an eviction is followed all the same."""
    world = with_classes(make(make_job(labels=prefixed(queue_name="main", priority_class="low"))), low=1)
    await world.running()
    world.client.change(JOBS, KEY, classed("no"))

    assert await world.step() == []
    assert (world.found["spec"]["priority"], world.recorder.warnings) == (1, ["WorkloadPriorityClassNotFound"])

    world.evict()
    await world.step()
    assert world.job["spec"]["suspend"] is True


async def test_admission_gates_are_handed_on(make: Callable[..., Jobs]) -> None:
    """When one is opened, and when the last one is."""
    gates = "kueue.x-k8s.io/admission-gated-by"
    world = make(make_job(annotations={gates: "example.com/a,example.com/b"}))
    await world.queued()
    assert world.found["metadata"]["annotations"][gates] == "example.com/a,example.com/b"
    for wanted in ("example.com/b", None):
        world.client.change(JOBS, KEY, {"metadata": {"annotations": {gates: wanted}}})
        await world.rest()
        assert (world.found["metadata"].get("annotations") or {}).get(gates) == wanted
    assert world.recorder.reasons == ["CreatedWorkload", "UpdatedWorkload", "UpdatedWorkload"]


async def test_a_job_that_moves_with_a_reservation_gives_it_back_first(make: Callable[..., Jobs]) -> None:
    """The API takes no other queue while quota is reserved in the old one."""
    world = make()
    await world.queued()
    status = reserved(condition("Admitted", "False", "UnsatisfiedAdmissionChecks"), pods=4)
    world.client.change(WORKLOADS, f"team/{NAME}", {"status": status})
    world.client.change(JOBS, KEY, {"metadata": {"labels": prefixed(queue_name="other")}})

    await world.rest()

    assert world.found["spec"]["queueName"] == "other"
    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")


async def test_an_evicted_job_may_move_to_another_queue(make: Callable[..., Jobs]) -> None:
    """It waits there then, though the word of its eviction still stands."""
    world = make()
    await world.running()
    world.evict()
    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    await world.rest()
    world.client.change(JOBS, KEY, {"metadata": {"labels": prefixed(queue_name="other")}})

    await world.rest()

    assert world.found["spec"]["queueName"] == "other"


async def test_what_admission_checks_say_is_told_once(make: Callable[..., Jobs]) -> None:
    """On the job, in the order of their names; again when it changes."""
    world = make()
    await world.queued()
    checks = [{"name": n, "state": "Pending", "message": m, "lastTransitionTime": "2026-01-01T00:00:00Z"} for n, m in (("b", "no nodes yet"), ("a", "in 5 m"), ("c", ""))]  # fmt: skip
    waits = condition("Admitted", "False", "UnsatisfiedAdmissionChecks")
    world.client.change(WORKLOADS, f"team/{NAME}", {"status": reserved(waits, pods=4, admissionChecks=checks)})

    for _ in range(3):
        await world.step()
    assert world.recorder.reasons == ["CreatedWorkload", "UpdatedAdmissionCheck"]
    assert world.recorder.messages[-1] == "a: in 5 m; b: no nodes yet"

    later = [{**checks[0], "message": "soon"}, *checks[1:]]
    world.client.change(WORKLOADS, f"team/{NAME}", {"status": {"admissionChecks": later}})
    await world.step()
    assert world.recorder.messages[-1] == "a: in 5 m; b: soon"


# --- quota goes after the last pod ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "pods", "held"),
    [
        pytest.param({"active": 0, "terminating": 2}, 0, True, id="the Job counts pods that are ending"),
        pytest.param({"active": 0}, 1, True, id="a pod is seen that nobody counts"),
        pytest.param({"active": 0, "terminating": 0}, 0, False, id="no pod is left"),
    ],
)
async def test_an_evicted_job_holds_its_quota_while_a_pod_is_there(
    make: Callable[..., Jobs], status: JSON, pods: int, held: bool
) -> None:
    """To be told to go is not to be gone."""
    world = make()
    await world.running()
    world.evict()
    world.pods[f"team/{NAME}"] = pods
    world.client.change(JOBS, KEY, {"status": status})

    await world.rest()

    assert ("admission" in world.found["status"]) is held


async def test_a_job_that_is_gone_holds_its_quota_while_a_pod_is_there(make: Callable[..., Jobs]) -> None:
    """Its pods are collected later than itself, or not at all."""
    world = make()
    await world.running()
    world.client.drop(JOBS, KEY)
    world.pods[f"team/{NAME}"] = 1
    await world.rest()
    assert (status_of(world.found, "Finished"), world.found["metadata"]["finalizers"]) == (("", ""), [OURS])

    world.pods.clear()
    await world.rest()

    assert status_of(world.found, "Finished") == ("True", "OwnerNotFound")
    assert world.found["metadata"].get("finalizers") is None


@pytest.mark.parametrize("labelled", [True, False], ids=["queued", "not queued any more"])
async def test_a_job_that_says_that_it_has_ended_holds_its_quota_while_a_pod_is_there(
    make: Callable[..., Jobs], labelled: bool
) -> None:
    """Some kinds fail first and end their pods then."""
    world = make()
    await world.running()
    if not labelled:
        world.client.change(JOBS, KEY, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
    world.pods[f"team/{NAME}"] = 1
    world.client.change(JOBS, KEY, {"status": {"active": 0, "conditions": [condition("Failed")]}})
    await world.rest()
    assert status_of(world.found, "Finished") == ("", "")

    world.pods.clear()
    await world.rest()

    assert status_of(world.found, "Finished") == ("True", "Failed")


# --- a template that was not restored ---------------------------------------------------------------------------------


async def test_a_job_that_was_stopped_without_its_workload_is_started_again(make: Callable[..., Jobs]) -> None:
    """Its template still says what an earlier start put there: that is no word of its user."""
    world = make()
    await world.running()
    world.client.drop(WORKLOADS, f"team/{NAME}")  # somebody took it away, finalizer and all
    await world.rest()
    assert world.job["spec"]["suspend"] is True
    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    await world.rest()
    world.admit()

    await world.rest()

    assert (world.job["spec"]["suspend"], world.found["spec"]["active"]) == (False, True)


async def test_fewer_pods_than_admitted_before_find_the_written_parallelism_again(make: Callable[..., Jobs]) -> None:
    """A parallelism above the completions is the user's: started with fewer pods, it comes back as it was written."""
    annotations = prefixed(job_min_parallelism="2")
    world = make(make_job(parallelism=10, completions=4, annotations=annotations))
    before = pruned(world.job["spec"])
    await world.queued()
    world.client.change(WORKLOADS, f"team/{NAME}", {"status": reserved(pods=2)})
    await world.rest()
    assert world.job["spec"]["parallelism"] == 2
    world.evict()

    await world.rest()

    assert pruned(world.job["spec"]) == before
    assert pruned(world.job["metadata"]["annotations"]) == annotations


async def test_all_pods_admitted_leave_the_written_parallelism(make: Callable[..., Jobs]) -> None:
    """Four of four completions: nothing to change about a parallelism of ten."""
    world = make(make_job(parallelism=10, completions=4, annotations=prefixed(job_min_parallelism="2")))
    await world.queued()
    world.admit()

    await world.rest()

    assert (world.job["spec"]["suspend"], world.job["spec"]["parallelism"]) == (False, 10)


async def test_a_missing_flavor_does_not_stop_a_running_job(make: Callable[..., Jobs]) -> None:
    """What it injected is unknown while it is away, so the job is compared again when it is back."""
    world = make()
    await world.running()
    world.client.put(RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "gpu"}))

    assert await world.step() == []


# --- what is not kept -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "goes"),
    [
        pytest.param("DeactivatedDueToRequeuingLimitExceeded", True, id="kqueue gave up on it"),
        pytest.param("Deactivated", False, id="its user has deactivated it"),
    ],
)
async def test_a_job_that_was_given_up_is_deleted_when_its_time_has_come(
    make: Callable[..., Jobs], reason: str, goes: bool
) -> None:
    """afterDeactivatedByKueue counts from the eviction, and not before the last pod is gone."""
    world = make(keep_deactivated=timedelta(days=2))
    await world.running()
    world.evict(reason)
    world.client.change(WORKLOADS, f"team/{NAME}", {"spec": {"active": False}})
    await world.rest()
    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    await world.rest()
    world.sync()
    result = await world.reconciler.reconcile(KEY)
    assert (result.requeue_after is not None) is goes

    await world.clock.advance(result.requeue_after or 3 * 86400)
    written = await world.step()

    assert written == ([f"delete jobs {KEY}"] if goes else [])
    assert ("Deleted" in world.recorder.reasons) is goes


# --- never alike ------------------------------------------------------------------------------------------------------


async def test_a_workload_that_never_matches_is_made_anew_five_times(
    make: Callable[..., Jobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is switched off, which is told once; when the job changes, it is made anew again."""
    given_up: list[None] = []
    world = make()
    world.steps.on_given_up = lambda: given_up.append(None)
    await world.queued()
    monkeypatch.setattr(world.workload_of, "matches", lambda *_, **__: False)

    async def admitted_again_and_again() -> set[str]:
        uids = set[str]()
        for _ in range(10):
            if not status_of(world.found, "DeactivationTarget")[0]:
                world.admit()
            uids.add(world.found["metadata"]["uid"])
            for _ in range(4):
                await world.step()
        return uids

    assert len(await admitted_again_and_again()) == 1 + 5
    assert status_of(world.found, "DeactivationTarget") == ("True", "RecreatedTooOften")
    assert "never says what its job says" in message_of(world.found, "DeactivationTarget")
    assert world.recorder.reasons.count("RecreatedTooOften") == 1
    assert len(given_up) == 1

    evicted = condition("Evicted", reason="DeactivatedDueToRecreatedTooOften")
    world.client.change(WORKLOADS, f"team/{NAME}", {"spec": {"active": False}, "status": {"conditions": [evicted]}})
    before = world.found["metadata"]["uid"]
    await world.step()
    assert world.found["metadata"]["uid"] == before

    world.client.change(JOBS, KEY, {"spec": {"parallelism": 3}})
    for _ in range(3):
        await world.step()
    assert world.found["metadata"]["uid"] != before
    assert world.found["spec"].get("active") is not False
