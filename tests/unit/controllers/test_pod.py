"""A pod that is queued alone and its Workload in step, and pods that are held although nobody will start them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.controllers.workload_steps import MissingPriorityClassError
from kqueue.errors import InvalidObjectError
from tests.unit.controllers.builders import condition, read, status_of
from tests.unit.controllers.pod_world import GROUP, Pods, grouped
from tests.unit.jobs.builders import JSON, prefixed
from tests.unit.jobs.pods import make_pod

KEY = "team/p"


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build(*pods: Any, **more: Any) -> Pods:
        worlds.append(Pods(*(pods or (make_pod(),)), **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def name_of(world: Pods) -> str:
    """The one Workload that there is."""
    (key,) = world.client.keys(WORKLOADS)
    return str(key).partition("/")[2]


async def queued(world: Pods) -> Pods:
    await world.rest(KEY)
    assert name_of(world).startswith("pod-p-")
    return world


async def started(world: Pods) -> Pods:
    await queued(world)
    world.admit(name_of(world))
    await world.rest(KEY)
    assert not world.gated("p")
    world.runs("p")
    await world.rest(KEY)
    return world


async def test_a_pod_gets_its_workload_once(make: Callable[..., Pods]) -> None:
    """Controlled by the pod, labelled with its UID; not twice on an old picture."""
    world = make()
    assert len(await world.look(KEY)) == 1
    assert await world.look(KEY, late=True) == []
    assert await world.look(KEY) == []
    workload = world.workload_named(name_of(world))
    assert workload["metadata"]["labels"] == prefixed(job_uid="uid-p")
    assert workload["metadata"]["ownerReferences"][0]["controller"] is True
    assert world.told("p") == ["CreatedWorkload"]


async def test_a_pod_is_started_with_what_its_admission_adds(make: Callable[..., Pods]) -> None:
    """One patch, when it is admitted and not before."""
    world = await queued(make())
    assert await world.look(KEY) == []
    world.admit(name_of(world))
    assert await world.look(KEY) == ["patch pods team/p"]
    assert world.pod("p")["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert await world.look(KEY, late=True) == []
    assert world.told("p")[-1] == "Started"


@pytest.mark.parametrize(("phase", "reason"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
async def test_a_pod_that_has_ended_finishes_its_workload(make: Callable[..., Pods], phase: str, reason: str) -> None:
    """And is let go."""
    world = await started(make())
    world.runs("p", phase=phase)
    await world.rest(KEY)
    assert status_of(world.workload_named(name_of(world)), "Finished") == ("True", reason)
    assert not world.finalizer("p")
    assert "finalizers" not in world.workload_named(name_of(world))["metadata"]


@pytest.mark.parametrize(("requeues", "requeued"), [(False, "False"), (True, "True")])
async def test_an_evicted_pod_is_deleted_and_its_workload_ends(
    make: Callable[..., Pods], requeues: bool, requeued: str
) -> None:
    """Quota is held while the pod ends; then it is given back, and the Workload is finished, because its pod is gone."""
    world = await started(make(single={"requeues": requeues}))
    world.runs("p", phase="Running")
    world.evict(name_of(world))
    await world.look(KEY)
    assert status_of(world.workload_named(name_of(world)), "QuotaReserved")[0] == "True"
    await world.rest(KEY)
    assert world.names() == []
    workload = world.workload_named(name_of(world))
    assert status_of(workload, "QuotaReserved")[0] == "False"
    assert status_of(workload, "Requeued") == (requeued, "Preempted")
    assert status_of(workload, "Finished") == ("True", "OwnerNotFound")
    assert world.told("p")[-1] == "Stopped"


async def test_a_pod_that_was_not_started_yet_survives_an_eviction(make: Callable[..., Pods]) -> None:
    """It is gated still, so it is queued again like any other."""
    world = await queued(make())
    held = {"conditions": [condition("QuotaReserved"), condition("Evicted", reason="Preempted")]}
    world.client.change(WORKLOADS, f"team/{name_of(world)}", {"status": held})
    await world.rest(KEY)
    assert status_of(world.workload_named(name_of(world)), "Requeued") == ("True", "Preempted")
    assert world.names() == ["p"]


async def test_a_pod_that_its_user_deletes_gives_everything_back(make: Callable[..., Pods]) -> None:
    """Running or not, it is not held back; with the gate off the Workload is only let go of."""
    for finishes in (True, False):
        world = await started(make(single={"finishes_orphans": finishes}))
        deleted = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        world.client.change(PODS, KEY, deleted)
        await world.rest(KEY)
        workload = world.workload_named(name_of(world))
        assert world.names() == []
        assert status_of(workload, "Finished")[1] == ("OwnerNotFound" if finishes else "")
        assert "finalizers" not in workload["metadata"]


async def test_a_pod_that_succeeded_before_it_was_deleted_has_succeeded(make: Callable[..., Pods]) -> None:
    """The end that was seen too late still counts."""
    world = await started(make())
    world.client.change(PODS, KEY, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.client.change(PODS, KEY, {"status": {"phase": "Succeeded"}})
    await world.rest(KEY)
    assert status_of(world.workload_named(name_of(world)), "Finished") == ("True", "Succeeded")


async def test_a_deleted_workload_takes_its_pod_along(make: Callable[..., Pods]) -> None:
    """Also one that is gated."""
    world = await queued(make())
    deleted = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    world.client.change(WORKLOADS, f"team/{name_of(world)}", deleted)
    await world.rest(KEY)
    assert (world.names(), world.client.keys(WORKLOADS)) == ([], [])


@pytest.mark.parametrize("write", ["patch", "delete", "stop"])
async def test_a_pod_that_the_server_does_not_know_is_as_good_as_gone(make: Callable[..., Pods], write: str) -> None:
    """Our watch has it still; nothing more is made for it, or a Workload would come and go as fast as we can write."""
    world = await queued(make())
    pod = world.writes.newest(KEY)
    assert pod is not None
    world.client.drop(PODS, KEY)
    match write:
        case "patch":
            assert not await world.writes.patch(pod, {"metadata": {"labels": {"a": "b"}}})
        case "delete":
            await world.writes.delete(pod)
        case _:
            await world.writes.stop(pod, reason="WorkloadDeleted", message="it was deleted")
    newest = world.writes.newest(KEY)
    assert newest is not None
    assert newest.deleting
    world.client.drop(WORKLOADS, f"team/{name_of(world)}")
    assert [call for call in await world.look(KEY, late=True) if call.startswith("POST")] == []


# --- without leave


async def test_a_pod_that_somebody_let_out_is_stopped(make: Callable[..., Pods]) -> None:
    """Its Workload waits; asked anew, it is not admitted."""
    world = await queued(make())
    world.refuse(name_of(world))
    world.client.change(PODS, KEY, {"spec": {"schedulingGates": None}})
    await world.rest(KEY)
    assert world.names() == []
    assert world.told("p")[-1] == "Stopped"


async def test_a_pod_outlives_a_status_that_somebody_wipes(make: Callable[..., Pods]) -> None:
    """It is about to be put back, and a pod that was deleted would not be."""
    world = await started(make())
    world.client.change(WORKLOADS, f"team/{name_of(world)}", {"status": None})
    await world.rest(KEY)
    assert "deletionTimestamp" not in world.pod("p")["metadata"]


async def test_nobody_is_stopped_because_our_watch_is_behind(make: Callable[..., Pods]) -> None:
    """The API server has the admission, and our watch not yet."""
    world = await queued(make())
    world.client.change(PODS, KEY, {"spec": {"schedulingGates": None}})
    world.sync()
    world.admit(name_of(world))
    assert await world.look(KEY, late=True) == []


async def test_a_pod_that_runs_without_a_workload_is_stopped(make: Callable[..., Pods]) -> None:
    """Ours by its label, with a queue, ungated."""
    world = make(make_pod(gated=False, phase="Running", node="n"))
    await world.rest(KEY)
    assert world.names() == []


@pytest.mark.proves("Pod", "eviction and requeue")
async def test_a_label_that_is_taken_away_comes_back(make: Callable[..., Pods]) -> None:
    """Of a single pod and of a member: the pod runs on, and is counted; the Workload is not finished."""
    world = await started(make())
    world.lose_label(KEY)
    assert await world.look(KEY, late=True) == ["patch pods team/p"]
    assert world.pod("p")["metadata"]["labels"] == world.pod("p")["metadata"]["labels"] | prefixed(managed="true")
    assert status_of(world.workload_named(name_of(world)), "Finished") == ("", "")
    assert world.told("p")[-1] == "ManagedLabelRestored"


async def test_a_pod_that_lost_its_label_and_is_deleted_is_let_go(make: Callable[..., Pods]) -> None:
    """Nobody else would take our finalizer off."""
    world = await started(make())
    world.lose_label(KEY)
    world.client.change(PODS, KEY, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await world.look(KEY, late=True)
    assert world.names() == []
    await world.look(KEY, late=True)
    assert status_of(world.workload_named(name_of(world)), "Finished") == ("True", "OwnerNotFound")


# --- whose it is


def of_stateful_set(**settings: Any) -> JSON:
    pod = make_pod(annotations=prefixed(pod_suspending_parent="statefulset"), **settings)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("pod", "single"),
    [
        (make_pod(queue=None), {}),
        (make_pod(), {"explicit": False}),
        (of_stateful_set(), {}),
        (make_pod(queue=None, gated=False, phase="Running"), {}),
    ],
    ids=["no-queue", "only-for-parents", "a-group-to-be", "labelled-by-hand"],
)
async def test_pods_that_are_left_alone(make: Callable[..., Pods], pod: JSON, single: dict[str, Any]) -> None:
    """No write."""
    assert await make(pod, single=single).look(KEY) == []


@pytest.mark.parametrize("said", ["statefulset", "anything", ""])
async def test_a_pod_that_only_says_that_a_parent_suspends_it_is_queued_alone(
    make: Callable[..., Pods], said: str
) -> None:
    """No StatefulSet controls it, so nobody else would ever queue it, nor stop it when its gates are taken away."""
    await queued(make(make_pod(annotations=prefixed(pod_suspending_parent=said))))


async def test_a_pod_of_a_deployment_is_queued_alone(make: Callable[..., Pods]) -> None:
    """Also where only its parent's framework is on."""
    pod = make_pod(annotations=prefixed(pod_suspending_parent="deployment"), finalizer=False)
    await queued(make(pod, single={"explicit": False}))


async def test_a_namespace_that_is_left_out(make: Callable[..., Pods]) -> None:
    """managedJobsNamespaceSelector."""
    world = make()
    world.managed.clear()
    assert await world.look(KEY) == []


async def test_a_pod_that_joins_a_group_gives_up_its_own_workload(make: Callable[..., Pods]) -> None:
    """While it is gated."""
    world = await queued(make())
    marks = prefixed(pod_group_name="g", pod_group_total_count="1", role_hash="r")
    world.client.change(PODS, KEY, {"metadata": {"annotations": marks}})
    await world.rest(KEY)
    assert world.client.keys(WORKLOADS) == []
    await world.rest(GROUP)
    assert world.client.keys(WORKLOADS) == [GROUP]


async def test_another_pod_of_the_same_name(make: Callable[..., Pods]) -> None:
    """The Workload of the one before it is finished, and it gets one of its own."""
    world = await started(make())
    old = name_of(world)
    again = make_pod()
    again["metadata"]["uid"] = "another"
    world.client.put(PODS, again)
    await world.rest(KEY)
    assert status_of(world.workload_named(old), "Finished") == ("True", "OwnerNotFound")
    assert len(world.client.keys(WORKLOADS)) == 2


# --- changes


async def test_what_the_pod_says_anew_is_handed_on(make: Callable[..., Pods]) -> None:
    """Queue, admission gates, priority class."""
    world = await queued(make())
    name = name_of(world)
    labels, marks = prefixed(queue_name="other"), prefixed(admission_gated_by="example.com/a")
    world.client.change(PODS, KEY, {"metadata": {"labels": labels, "annotations": marks}})
    await world.rest(KEY)
    assert world.workload_named(name)["spec"]["queueName"] == "other"
    assert world.workload_named(name)["metadata"]["annotations"] == marks


@pytest.mark.proves("Pod", "priority class")
@pytest.mark.proves("Pod group", "priority class")
@pytest.mark.parametrize("key", [KEY, GROUP])
async def test_the_class_on_the_label_is_the_workloads_priority(make: Callable[..., Pods], key: str) -> None:
    """A missing class is told, and makes no Workload; another class counts while the pods run, too."""
    named = prefixed(priority_class="high")
    pods = [make_pod(labels=named)] if key == KEY else [grouped("a", labels=named), grouped("b", labels=named)]
    first = "p" if key == KEY else "a"
    world = make(*pods)
    with pytest.raises(MissingPriorityClassError):
        await world.look(key)
    assert world.told(first) == ["WorkloadPriorityClassNotFound"]
    for name, value in (("high", 10), ("higher", 20)):
        found = read(wire.WorkloadPriorityClass, {"metadata": {"name": name}, "value": value})
        world.workload_priorities.put(name, found)
    await world.rest(key)
    name = name_of(world)
    assert world.workload_named(name)["spec"]["priority"] == 10
    world.admit(name)
    await world.rest(key)
    for pod in world.names():
        world.client.change(PODS, f"team/{pod}", {"metadata": {"labels": prefixed(priority_class="higher")}})
    await world.rest(key)
    spec = world.workload_named(name)["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (20, "higher")
    for pod in world.names():
        world.client.change(PODS, f"team/{pod}", {"metadata": {"labels": prefixed(priority_class="missing")}})
    await world.rest(key)  # nothing else is held up
    assert world.workload_named(name)["spec"]["priority"] == 20
    assert world.told(first)[-1] == "WorkloadPriorityClassNotFound"


@pytest.mark.proves("Pod", "maximum execution time")
@pytest.mark.proves("Pod group", "maximum execution time")
@pytest.mark.parametrize("key", [KEY, GROUP])
async def test_the_time_that_pods_may_run_stands_in_their_workload(make: Callable[..., Pods], key: str) -> None:
    """The label is read as for Jobs."""
    timed = prefixed(max_exec_time_seconds="60")
    world = make(*([make_pod(labels=timed)] if key == KEY else [grouped("a", total=1, labels=timed)]))
    await world.rest(key)
    assert world.workload_named(name_of(world))["spec"]["maximumExecutionTimeSeconds"] == 60


async def test_pods_hear_what_checks_have_to_say(make: Callable[..., Pods]) -> None:
    """Each pod that waits for them, once for each message."""
    world = make(grouped("a"), grouped("b"))
    await world.rest(GROUP)
    checks = [{"name": "c", "state": "Pending", "message": "in 5 min", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    status = {"conditions": [condition("QuotaReserved")], "admissionChecks": checks}
    world.client.change(WORKLOADS, GROUP, {"status": status})
    await world.rest(GROUP)
    await world.rest(GROUP)
    assert [world.told(name).count("UpdatedAdmissionCheck") for name in "ab"] == [1, 1]
    assert world.recorder.messages[-1] == "c: in 5 min"


async def test_other_requests_rewrite_a_workload_that_waits(make: Callable[..., Pods]) -> None:
    """In place, as long as it holds nothing."""
    world = await queued(make())
    before = world.workload_named(name_of(world))["metadata"]["uid"]
    world.client.change(PODS, KEY, {"spec": make_pod(cpu="3")["spec"]})
    await world.rest(KEY)
    after = world.workload_named(name_of(world))
    assert after["metadata"]["uid"] == before
    container = after["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "3"}


async def test_a_pod_given_up_on_is_deleted_when_its_time_has_come(make: Callable[..., Pods]) -> None:
    """objectRetentionPolicies: one that was deactivated before it was started."""
    world = await queued(make(single={"keep_deactivated": timedelta(days=2)}))
    told = condition("Evicted", reason="DeactivatedDueToAdmissionCheck")
    change = {"spec": {"active": False}, "status": {"conditions": [told]}}
    world.client.change(WORKLOADS, f"team/{name_of(world)}", change)
    world.sync()
    left = (await world.reconcile(KEY)).requeue_after
    assert left is not None
    await world.clock.advance(left + 1)
    await world.rest(KEY)
    assert world.names() == []
    assert "Deleted" in world.told("p")


async def test_a_pod_that_cannot_be_read_is_told(make: Callable[..., Pods]) -> None:
    """The webhook may be off."""
    world = make(make_pod(annotations=prefixed(podset_required_topology="a b")))
    with pytest.raises(InvalidObjectError):
        await world.look(KEY)
    assert world.told("p") == ["InvalidPod"]


# --- prebuilt


@pytest.mark.proves("Pod", "prebuilt workload")
async def test_a_pod_takes_the_workload_that_was_made_for_it(make: Callable[..., Pods]) -> None:
    """It becomes the pod's; one that says something else is out of sync."""
    for cpu, end in (("1", ""), ("2", "OutOfSync")):
        world = make(make_pod(annotations=prefixed(prebuilt_workload_name="mine"), cpu=cpu))
        assert (await world.reconcile(KEY)).requeue_after
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                             "tolerations": make_pod()["spec"]["tolerations"]}}  # fmt: skip
        spec = {"queueName": "main", "active": True, "podSets": [{"name": "main", "count": 1, "template": template}]}
        world.client.put(WORKLOADS, {"metadata": {"name": "mine", "namespace": "team", "uid": "w"}, "spec": spec})
        for _ in range(3):
            await world.look(KEY)
        assert world.workload_named("mine")["metadata"]["labels"] == prefixed(job_uid="uid-p")
        assert status_of(world.workload_named("mine"), "Finished")[1] == end


# --- held for ever


async def held(world: Pods) -> dict[str, int]:
    """What the sweeper counts after a while."""
    world.sync()
    await world.gates.sweep()
    await world.clock.advance(301)
    await world.gates.sweep()
    await world.gates.sweep()
    return {reason: number for reason, number in world.held.items() if number}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([grouped("a")], {"group_incomplete": 1}),
        ([grouped("a"), grouped("b", queue="other")], {"group_contradicts_itself": 2}),
        ([make_pod()], {"no_workload": 1}),
        ([make_pod(queue=None)], {"no_queue": 1}),
        ([grouped("a", annotations=prefixed(pod_group_fast_admission="true"))], {}),
        ([make_pod(gated=False)], {}),
        ([make_pod(deleted=0)], {}),
    ],
    ids=["incomplete", "at-odds", "no-workload", "no-queue", "fast", "started", "on-its-way"],
)
async def test_who_is_held_and_why(make: Callable[..., Pods], pods: list[JSON], expected: dict[str, int]) -> None:
    """Told once, on each pod, with the time since when."""
    world = make(*pods)
    assert await held(world) == expected
    assert world.recorder.reasons == ["AdmissionGateHeld"] * sum(expected.values())
    assert all("since 2025-12-31T23:43:20Z" in message for message in world.recorder.messages)


async def test_a_held_pod_is_told_only_after_its_deadline(make: Callable[..., Pods]) -> None:
    """Others may still come."""
    world = make(grouped("a"))
    await world.gates.sweep()
    await world.clock.advance(200)
    await world.gates.sweep()
    assert world.recorder.reasons == []


async def test_pods_of_a_workload_that_waits_are_not_held_for_ever(make: Callable[..., Pods]) -> None:
    """It tells itself why; one that has finished, or knows no such role, does not."""
    world = make(grouped("a"), grouped("b"), make_pod())
    await world.rest(GROUP)
    await world.rest(KEY)
    world.recorder.events.clear()
    assert await held(world) == {}
    world.add(grouped("x", role="other"))
    assert await held(world) == {"not_in_workload": 1}
    for key in world.client.keys(WORKLOADS):
        world.client.change(WORKLOADS, key, {"status": {"conditions": [condition("Finished")]}})
    assert await held(world) == {"workload_over": 4}
    world.managed.clear()
    assert await held(world) == {"namespace_left_out": 4}
