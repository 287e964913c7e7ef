"""BatchProcesses with all reconcilers that act on them, on a server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import BATCH_PROCESSES, PODS, SERVICES, WORKLOADS
from kqueue.errors import ForbiddenError, InvalidError
from tests.unit.controllers.batch_world import BP, GANG, KEY, Batches, batch
from tests.unit.controllers.builders import status_of
from tests.unit.jobs.gang.test_batch_process import process

JSON = dict[str, Any]
Make = Callable[..., Batches]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    worlds: list[Batches] = []

    def build(*objects: JSON, **more: Any) -> Batches:
        worlds.append(Batches(*objects, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def admitted(make: Make, obj: JSON | None = None) -> Batches:
    """A world whose BatchProcess is admitted, and whose base was released."""
    world = make(obj or batch())
    await world.settle_all()
    world.admit(world.load)
    await world.settle_all()
    return world


async def running(make: Make, obj: JSON | None = None) -> Batches:
    """The same with pods on nodes."""
    world = await admitted(make, obj)
    world.end_pods("Running")
    await world.settle_all()
    return world


# --- its life ---------------------------------------------------------------------------------------------------------


async def test_it_waits_as_two_objects(make: Make) -> None:
    """G3.B20, G3.B21."""
    world = make(batch())
    await world.settle_all()

    assert world.client.keys(WORKLOADS) == [f"team/{world.load}"]
    assert (world.names(), world.service()) == ([], None)
    assert world.condition_of("Queued") == ("True", "WorkloadCreated")
    assert (world.told_status["phase"], world.told_status["workload"], world.told_status["quorum"]) == (
        "Pending",
        world.load,
        "2/4",
    )


@pytest.mark.mechanism("3.28")
async def test_the_base_starts_together_and_then_the_others_come(make: Make) -> None:
    """G3.B21, G3.22."""
    world = await admitted(make)
    assert world.places() == ["student-0", "teacher-0"]
    assert world.pods_held() == []
    assert world.told_status["phase"] == "Scheduling"
    assert world.service() is not None

    world.end_pods("Running")
    await world.settle_all()

    assert world.places() == ["student-0", "student-1", "teacher-0", "teacher-1"]
    assert world.pods_held() == ["student-1", "teacher-1"]
    assert world.condition_of("Scheduled") == ("True", "QuorumScheduled")
    assert world.told_status["phase"] == "Running"
    assert len(world.client.keys(WORKLOADS)) == 3, "those beyond the quorum are queued alone"


@pytest.mark.mechanism("3.29")
async def test_no_part_of_the_base_is_released(make: Make) -> None:
    """Rows 3.9, 3.29."""
    world = make(batch())
    await world.settle_all()
    world.client.fail(ForbiddenError("quota", status=403), verb="create", key=None, times=1)
    world.admit(world.load)
    world.sync()
    with pytest.raises(ForbiddenError):
        await world.batches.reconcile(KEY)
    await world.rest(GANG)

    assert len(world.pods_held()) == len(world.places())
    await world.settle_all()
    assert world.pods_held() == []


async def test_it_is_complete_when_all_have_succeeded(make: Make) -> None:
    """G3.B27."""
    world = await running(make, batch(group={"minAvailable": 4}))
    world.end_pods("Succeeded")
    await world.settle_all()

    assert world.condition_of("Complete") == ("True", "SuccessPolicyMet")
    assert world.told_status["phase"] == "Finished"
    assert status_of(world.workload_named(world.load), "Finished") == ("True", "Succeeded")
    assert not any(world.finalizer(name) for name in world.names())


async def test_the_others_are_removed_when_the_named_processes_have_succeeded(make: Make) -> None:
    """G3.B27; quota goes with the last pod."""
    world = await running(make, batch(successPolicy={"processes": ["student"]}))
    world.end_pods("Succeeded", "student-0")
    await world.settle_all()

    assert world.condition_of("Complete") == ("True", "SuccessPolicyMet")
    assert world.places() == ["student-0"], "the one that ran is stopped, and those that wait are dropped"
    assert status_of(world.workload_named(world.load), "Finished") == ("True", "Succeeded")


@pytest.mark.mechanism("3.33")
async def test_a_failed_member_is_made_anew_in_its_place(make: Make) -> None:
    """G3.B28: on the quota of the base."""
    world = await running(make, batch(group={"minAvailable": 4}))
    world.end_pods("Failed", "teacher-1")
    await world.settle_all()

    assert world.pods_held() == []
    assert "teacher-1/1" in world.places()
    assert world.told_status["failures"] == 1
    assert status_of(world.workload_named(world.load), "Admitted")[0] == "True"
    assert len(world.client.keys(WORKLOADS)) == 1


async def test_a_member_that_a_user_deletes_is_made_anew(make: Make) -> None:
    """G3.B28."""
    world = await running(make, batch(group={"minAvailable": 4}))
    name = world.name_of("student-0")
    world.client.change(PODS, f"team/{name}", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.runs(name, phase="Failed")
    await world.settle_all()

    assert "student-0/1" in world.places()
    assert world.told_status["failures"] == 1


async def test_too_many_failures_end_it(make: Make) -> None:
    """G3.B28."""
    world = await running(make, batch(group={"minAvailable": 4}, failurePolicy={"backoffLimit": 1}))
    for place in ("teacher-1", "teacher-1/1"):
        world.end_pods("Failed", place)
        await world.settle_all()
        if world.told_status["phase"] != "Failed":
            world.end_pods("Running", "teacher-1/1")
            await world.settle_all()

    assert world.condition_of("Failed") == ("True", "BackoffLimitExceeded")
    assert "the 2nd failure; backoffLimit is 1" in world.told_status["message"]


async def test_the_gang_restarts_as_a_whole(make: Make) -> None:
    """G3.B28: quota and places are kept."""
    world = await running(make, batch(group={"minAvailable": 4}, failurePolicy={"restart": "Gang"}))
    world.end_pods("Failed", "teacher-1")
    await world.settle_all()
    world.end_pods("Failed", "teacher-0", "student-0", "student-1")
    await world.settle_all()

    assert {"teacher-0/1", "teacher-1/1", "student-0/1", "student-1/1"} <= set(world.places())
    assert world.pods_held() == []
    assert status_of(world.workload_named(world.load), "QuotaReserved")[0] == "True"


@pytest.mark.proves("BatchProcess", "eviction and requeue")
async def test_an_eviction_leaves_no_pods_and_it_comes_back(make: Make) -> None:
    """Row 3.30."""
    world = await running(make)
    world.evict(world.load)
    await world.settle_all()
    world.end_pods("Failed", *[p for p in world.places() if world.pod(world.name_of(p))["spec"].get("nodeName")])
    await world.settle_all()

    assert world.names() == []
    assert status_of(world.workload_named(world.load), "QuotaReserved")[0] == "False"
    assert (world.told_status["phase"], world.told_status["failures"]) == ("Pending", 0)

    world.admit(world.load)
    await world.settle_all()
    assert world.places() == ["student-0", "teacher-0"]
    assert world.pods_held() == []


async def test_an_evicted_one_waits_for_no_pods_of_users(make: Make) -> None:
    """Its pods end one after the other; condition WaitingForReplacementPods would keep it out of its queue for ever."""
    world = await running(make, batch(group={"minAvailable": 4}))
    world.end_pods("Failed", "teacher-0")
    await world.rest(GANG)
    before = status_of(world.workload_named(world.load), "WaitingForReplacementPods")[0]
    world.evict(world.load)
    await world.settle_all()
    ended = [p for p in world.places() if world.pod(world.name_of(p))["spec"].get("nodeName")]
    for place in ended:
        world.end_pods("Failed", place)
        await world.settle_all()

    assert before == "True"
    assert world.alive() == []
    assert status_of(world.workload_named(world.load), "WaitingForReplacementPods")[0] == "False"


async def test_a_wait_for_pods_ends_with_the_last_pod(make: Make) -> None:
    """No controller lived between the loss of a member and the end of the others."""
    world = await running(make, batch(group={"minAvailable": 4}))
    world.end_pods("Failed", "teacher-0")
    await world.rest(GANG)
    world.evict(world.load)
    for name in world.names():
        world.client.drop(PODS, f"team/{name}")
    world.sync()
    await world.settle_all()

    assert status_of(world.workload_named(world.load), "WaitingForReplacementPods")[0] == "False"


async def test_it_is_suspended_and_resumed(make: Make) -> None:
    """G3.B12."""
    world = await running(make, batch(group={"minAvailable": 4, "timeoutSeconds": 500}))
    world.change(suspend=True)
    await world.settle_all()
    assert world.workload_named(world.load)["spec"]["active"] is False
    world.evict(world.load, reason="Deactivated")
    await world.settle_all()
    world.end_pods("Failed")
    await world.settle_all()
    assert (world.names(), world.told_status["phase"]) == ([], "Suspended")

    await world.clock.advance(1000)
    world.change(suspend=False)
    await world.settle_all()

    assert world.workload_named(world.load)["spec"]["active"] is True
    assert world.condition_of("Suspended") == ("False", "Resumed")
    assert world.condition_of("Failed") is None


async def test_a_workload_that_another_actor_deactivated_stays_so(make: Make) -> None:
    world = make(batch())
    await world.settle_all()
    world.client.change(WORKLOADS, f"team/{world.load}", {"spec": {"active": False}})
    await world.settle_all()

    assert world.workload_named(world.load)["spec"]["active"] is False


@pytest.mark.mechanism("3.32")
async def test_it_fails_when_the_quorum_was_not_scheduled_in_time(make: Make) -> None:
    """G3.B19: pods are removed and the Workload is finished, and nothing comes back."""
    world = await admitted(make, batch(group={"minAvailable": 2, "timeoutSeconds": 600}))
    world.end_pods("Running", "teacher-0")
    await world.settle_all()
    assert world.condition_of("Failed") is None

    await world.clock.advance(600)
    await world.settle_all()
    assert world.condition_of("Failed") == ("True", "TimedOut")
    assert world.told_status["message"].startswith("1 of 2 pods were scheduled within 600 s")
    world.end_pods("Failed", *world.places())
    await world.settle_all()

    assert status_of(world.workload_named(world.load), "Finished") == ("True", "Failed")
    assert all(world.pod(name)["metadata"].get("finalizers") is None for name in world.names())


async def test_the_timeout_ends_one_that_waits_for_quota(make: Make) -> None:
    """G3.B19: also while no controller runs."""
    world = make(batch(group={"minAvailable": 2, "timeoutSeconds": 60}))
    await world.clock.advance(3600)
    await world.settle_all()

    assert world.condition_of("Failed") == ("True", "TimedOut")
    assert world.names() == []


async def test_it_is_deleted_after_its_time(make: Make) -> None:
    """G3.B16."""
    obj = batch(process("a", 1), group={}, ttlSecondsAfterFinished=100)
    world = await running(make, obj)
    world.end_pods("Succeeded")
    await world.settle_all()
    await world.clock.advance(50)
    await world.settle_all()
    assert world.told_status["phase"] == "Finished"

    await world.clock.advance(60)
    await world.look(BP)
    assert world.client.keys(BATCH_PROCESSES) == []


async def test_pods_and_workload_of_a_deleted_one_are_let_go(make: Make) -> None:
    """G3.B31: the garbage collector deletes them."""
    world = await running(make)
    load = world.load
    world.client.drop(BATCH_PROCESSES, KEY)
    for key in [*world.client.keys(PODS), *world.client.keys(WORKLOADS)]:
        resource = PODS if key in world.client.keys(PODS) else WORKLOADS
        world.client.change(resource, key, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    for name in world.names():
        if not world.gated(name):
            world.runs(name, phase="Failed")
    await world.settle_all()

    assert world.names() == []
    assert f"team/{load}" not in world.client.keys(WORKLOADS)


async def test_no_second_workload_is_made_for_an_object_that_is_gone(make: Make) -> None:
    """The watch of BatchProcesses is behind, and the garbage collector has deleted the Workload already."""
    world = make(batch())
    await world.settle_all()
    load = f"team/{world.load}"
    world.client.drop(BATCH_PROCESSES, KEY)
    world.client.drop(WORKLOADS, load)
    world.workloads.remove(load)
    await world.look(BP, late=True)

    assert world.client.keys(WORKLOADS) == []


async def test_a_deleted_workload_is_made_again_without_the_old_pods(make: Make) -> None:
    """G3.63."""
    world = await running(make)
    uid = world.workload_named(world.load)["metadata"]["uid"]
    world.client.change(WORKLOADS, f"team/{world.load}", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await world.settle_all()
    for name in world.names():
        world.client.drop(PODS, f"team/{name}")
    await world.settle_all()

    assert world.workload_named(world.load)["metadata"]["uid"] != uid
    assert world.names() == []


async def test_a_deleted_workload_without_pods_is_let_go(make: Make) -> None:
    world = make(batch())
    await world.settle_all()
    uid = world.workload_named(world.load)["metadata"]["uid"]
    world.client.change(WORKLOADS, f"team/{world.load}", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await world.settle_all()

    assert world.workload_named(world.load)["metadata"]["uid"] != uid


async def test_an_eviction_before_the_first_pod_gives_the_quota_back(make: Make) -> None:
    world = make(batch())
    await world.settle_all()
    world.admit(world.load)
    world.evict(world.load)
    await world.settle_all()

    assert status_of(world.workload_named(world.load), "QuotaReserved")[0] == "False"
    assert world.names() == []


async def test_numbers_may_change_while_no_quota_is_held(make: Make) -> None:
    """G3.B30."""
    world = make(batch())
    await world.settle_all()
    world.change(podGroup={"minAvailable": 3})
    await world.settle_all()

    counts = {p["name"]: p["count"] for p in world.workload_named(world.load)["spec"]["podSets"]}
    assert counts == {"teacher": 2, "student": 1}
    assert world.told_status["quorum"] == "3/4"


async def test_another_queue_moves_the_waiting_workload(make: Make) -> None:
    """G2.6."""
    world = make(batch())
    await world.settle_all()
    world.client.change(BATCH_PROCESSES, KEY, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "side"}}})
    await world.settle_all()

    assert world.workload_named(world.load)["spec"]["queueName"] == "side"


# --- what stands in its way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default_queue", "queue"), [(("", False), None), (("", True), "default"), (("side", True), "side")]
)
async def test_without_a_queue_nothing_is_started(
    make: Make, default_queue: tuple[str, bool], queue: str | None
) -> None:
    """G3.B18, G2.4."""
    obj = batch()
    obj["metadata"]["labels"] = {}
    world = make(obj, default_queue=default_queue)
    await world.settle_all()

    if queue is None:
        assert world.client.keys(WORKLOADS) == []
        assert world.condition_of("Queued") == ("False", "NoQueue")
        assert world.told_status["message"] == "no queue: label the BatchProcess with kueue.x-k8s.io/queue-name"
    else:
        assert world.workload_named(world.load)["spec"]["queueName"] == queue


async def test_nothing_is_written_in_a_namespace_that_is_not_managed(make: Make) -> None:
    """G2.8."""
    world = make(batch())
    world.managed.clear()
    await world.settle_all()

    assert world.client.writes() == []


async def test_an_invalid_one_says_why(make: Make) -> None:
    """Part 7.3."""
    world = make(batch(group={"replicas": 5}))
    await world.settle_all()

    assert world.condition_of("Queued") == ("False", "Invalid")
    assert world.told_status["message"] == (
        "spec.podGroup.replicas: the processes have 4 replicas together; make them equal, or leave it out (found 5)"
    )
    assert world.client.keys(WORKLOADS) == []


async def test_pods_are_shown_to_the_server_before_the_workload_is_made(make: Make) -> None:
    """G3.B10: one of each process, once for each generation."""
    world = make(batch())
    world.client.fail(InvalidError("spec.volumes: required", status=422), verb="dry-run", times=99)
    await world.settle_all()

    assert world.condition_of("Queued") == ("False", "Invalid")
    assert "does not take the pods of process teacher: spec.volumes: required" in world.told_status["message"]
    assert (world.client.keys(WORKLOADS), world.dry_runs()) == ([], 1)

    accepted = make(batch())
    await accepted.settle_all()
    assert accepted.dry_runs() == 2


async def test_a_quota_that_refuses_the_dry_run_holds_nothing_up(make: Make) -> None:
    world = make(batch())
    world.client.fail(ForbiddenError("exceeded quota", status=403), verb="dry-run", times=99)
    await world.settle_all()

    assert world.condition_of("Queued") == ("True", "WorkloadCreated")


async def test_a_refused_pod_ends_it(make: Make) -> None:
    """G3.B28."""
    world = make(batch())
    await world.settle_all()
    world.admit(world.load)
    world.client.fail(InvalidError("spec.containers: wrong", status=422), verb="create", times=1)
    world.client.put(SERVICES, {"metadata": {"name": "distill", "namespace": "team", "uid": "s"}})
    world.made._services["u-1"] = True
    await world.settle_all()

    assert world.condition_of("Failed") == ("True", "PodRefused")
    assert "spec.containers: wrong" in world.told_status["message"]
    assert status_of(world.workload_named(world.load), "Finished") == ("True", "Failed")


async def test_a_service_of_another_owner_is_left_alone(make: Make) -> None:
    """G3.B26: pods are made all the same."""
    world = make(batch())
    world.client.put(SERVICES, {"metadata": {"name": "distill", "namespace": "team", "uid": "s"}, "spec": {"a": 1}})
    await world.settle_all()
    world.admit(world.load)
    await world.settle_all()

    assert world.condition_of("Network") == ("False", "ServiceExists")
    assert world.pods_held() == []
    assert len(world.places()) == 2


async def test_a_new_process_reads_the_service_of_running_pods(make: Make) -> None:
    """G7.22: the Service is created once; one that its user has deleted is created again."""
    world = await running(make)
    before = len(world.client.writes())
    world.made._services.clear()
    await world.settle_all()
    quiet = world.client.writes()[before:]
    world.client.drop(SERVICES, KEY)
    world.made._services.clear()
    await world.settle_all()

    assert quiet == []
    assert world.service() is not None


async def test_a_late_watch_makes_no_second_pod(make: Make) -> None:
    """G3.B22."""
    world = make(batch())
    await world.settle_all()
    world.admit(world.load)
    world.sync()
    await world.batches.reconcile(KEY)
    before = len(world.client.writes(subresource=""))
    await world.batches.reconcile(KEY)

    assert len(world.client.writes(subresource="")) == before


async def test_a_creation_whose_answer_was_lost_is_a_success(make: Make) -> None:
    """G3.B22: the second creation answers AlreadyExists, of a pod that is ours."""
    world = make(batch())
    await world.settle_all()
    world.admit(world.load)
    world.client.fail(ForbiddenError("lost", status=403), verb="create", times=3, done=True)
    for _ in ("the Service", "both pods"):
        world.sync()
        with pytest.raises(ForbiddenError):
            await world.batches.reconcile(KEY)
    await world.settle_all()

    assert world.places() == ["student-0", "teacher-0"]


async def test_a_quiet_world_has_no_writes(make: Make) -> None:
    """G7.22."""
    world = await running(make)
    before = len(world.client.writes())
    await world.clock.advance(10)
    await world.settle_all()

    assert len(world.client.writes()) == before
