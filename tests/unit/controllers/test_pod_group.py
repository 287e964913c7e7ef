"""A group of pods and its Workload in step: whatever is seen, and wherever a write was cut off, the gang is whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.clock import utc_text
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import ConflictError, InvalidError, ServerError
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.switches import JobFeatures
from tests.unit.controllers.builders import condition, status_of
from tests.unit.controllers.pod_world import GROUP, Pods, grouped
from tests.unit.jobs.builders import prefixed


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build(*pods: Any, **more: Any) -> Pods:
        worlds.append(Pods(*pods, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def queued(world: Pods) -> Pods:
    """Up to the Workload."""
    await world.rest(GROUP)
    assert world.client.keys(WORKLOADS) == [GROUP]
    return world


async def started(world: Pods) -> Pods:
    """Up to pods that run."""
    await queued(world)
    world.admit("g")
    await world.rest(GROUP)
    for name in world.names():
        assert not world.gated(name)
    world.runs(*world.names())
    await world.rest(GROUP)
    return world


PAIR = [grouped("a"), grouped("b")]


async def test_a_complete_group_gets_one_workload(make: Callable[..., Pods]) -> None:
    """One write, owned by all members; told on the first."""
    world = make(*PAIR)
    assert await world.look(GROUP) == ["create workloads team/g"]
    assert await world.look(GROUP) == []
    assert [o["name"] for o in world.workload_named("g")["metadata"]["ownerReferences"]] == ["a", "b"]
    assert world.told("a") == ["CreatedWorkload"]


async def test_a_workload_that_the_watch_owes_is_not_made_twice(make: Callable[..., Pods]) -> None:
    """Reconciled again on an old picture."""
    world = make(*PAIR)
    await world.look(GROUP)
    assert await world.look(GROUP, late=True) == []


async def test_an_incomplete_group_is_told_after_a_moment(make: Callable[..., Pods]) -> None:
    """No Workload, no write; the event names the numbers, and comes once."""
    world = make(grouped("a", born=1000))
    assert (await world.group.reconcile(GROUP)).requeue_after == pytest.approx(2.0)
    await world.clock.advance(2)
    assert await world.look(GROUP) == []
    assert await world.look(GROUP) == []
    assert world.told("a") == ["ErrWorkloadCompose"]
    assert "1 of 2 pods; it waits for 1 more, since 2026-01-01" in world.recorder.messages[0]


async def test_members_that_disagree_are_told_on_the_one_and_on_the_group(make: Callable[..., Pods]) -> None:
    """The pod in whose way it stands, and the first."""
    world = make(grouped("a"), grouped("b", queue="other", born=1))
    assert await world.look(GROUP) == []
    assert (world.told("a"), world.told("b")) == (["ErrWorkloadCompose"], ["ErrWorkloadCompose"])


async def test_nothing_is_started_before_the_admission_and_then_all(make: Callable[..., Pods]) -> None:
    """Reserved is not admitted."""
    world = await queued(make(*PAIR))
    world.client.change(WORKLOADS, GROUP, {"status": {"conditions": [condition("QuotaReserved")]}})
    assert await world.look(GROUP) == []
    world.admit("g")
    assert await world.look(GROUP) == ["patch pods team/a", "patch pods team/b"]
    assert world.pod("a")["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert world.started == [1, 1]
    assert await world.look(GROUP, late=True) == []  # the answers count until the watch brings them


async def test_a_start_that_was_cut_off_goes_on(make: Callable[..., Pods]) -> None:
    """One patch fails: the others are made, and the next reconcile makes up for it."""
    world = await queued(make(*PAIR))
    world.admit("g")
    world.sync()
    world.client.fail(ServerError("boom", status=500), key="team/a")
    with pytest.raises(ServerError):
        await world.group.reconcile(GROUP)
    assert (world.gated("a"), world.gated("b")) == (True, False)
    assert await world.look(GROUP) == ["patch pods team/a"]


async def test_a_start_stops_where_the_workload_is_evicted_meanwhile(make: Callable[..., Pods]) -> None:
    """The eviction arrives while the first patches are held up: nobody else is started."""
    world = await queued(make(*(grouped(f"p{i:02}", total=40) for i in range(40))))
    world.admit("g")
    world.sync()
    world.client.open.clear()
    running = asyncio.create_task(world.group.reconcile(GROUP))
    await world.clock.advance(0)
    await asyncio.sleep(0)
    world.evict("g")
    world.sync()
    world.client.open.set()
    await running
    assert sum(not world.gated(name) for name in world.names()) == 32


async def test_a_workload_of_that_name_that_is_no_groups_is_left_alone(make: Callable[..., Pods]) -> None:
    """WorkloadNameConflict, and nothing is written; with the gate off it is taken."""
    stranger = {"metadata": {"name": "g", "namespace": "team", "uid": "u"}, "spec": {"active": True}}
    world = make(*PAIR)
    world.client.put(WORKLOADS, stranger)
    assert await world.look(GROUP) == []
    assert world.told("a") == ["WorkloadNameConflict"]
    taking = make(*PAIR, group={"checks_owner": False})
    taking.client.put(WORKLOADS, stranger)
    assert await taking.look(GROUP) != []


async def test_a_group_that_succeeds_is_finished_and_let_go(make: Callable[..., Pods]) -> None:
    """Finished first, then the finalizers of pods and Workload."""
    world = await started(make(*PAIR))
    world.runs("a", "b", phase="Succeeded")
    assert "patch workloads team/g/status" in await world.look(GROUP)
    assert status_of(world.workload_named("g"), "Finished") == ("True", "Succeeded")
    assert world.finalizer("a")
    await world.rest(GROUP)
    assert not any(world.finalizer(name) for name in world.names())
    assert "finalizers" not in world.workload_named("g")["metadata"]


async def test_an_evicted_group_is_deleted_and_waits_for_others(make: Callable[..., Pods]) -> None:
    """Quota is given back when the pods have ended; the same Workload is admitted again with new pods, and the old ones
    are let go one for one.
    """
    world = await started(make(*PAIR))
    world.evict("g")
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "QuotaReserved")[0] == "True"
    targets = [c for c in world.pod("a")["status"]["conditions"] if c["type"] == "TerminationTarget"]
    assert [(c["status"], c["reason"]) for c in targets] == [("True", "WorkloadEvictedDueToPreempted")]
    world.runs("a", "b", phase="Failed")
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "WaitingForReplacementPods") == ("True", "Preempted")
    assert status_of(world.workload_named("g"), "QuotaReserved")[0] == "False"
    assert status_of(world.workload_named("g"), "Requeued") == ("True", "Preempted")
    assert (world.finalizer("a"), world.finalizer("b")) == (True, True)
    world.add(grouped("c"))
    await world.rest(GROUP)
    assert world.names() == ["b", "c"] or world.names() == ["a", "c"]
    world.add(grouped("d"))
    await world.rest(GROUP)
    assert world.names() == ["c", "d"]
    assert status_of(world.workload_named("g"), "WaitingForReplacementPods") == ("False", "PodsReady")
    uid = world.workload_named("g")["metadata"]["uid"]
    world.admit("g")
    await world.rest(GROUP)
    assert (world.gated("c"), world.gated("d")) == (False, False)
    assert world.workload_named("g")["metadata"]["uid"] == uid
    assert "OwnerReferencesAdded" in world.recorder.reasons


async def test_pods_that_end_well_when_they_are_stopped_do_not_finish_the_group(make: Callable[..., Pods]) -> None:
    """A container that exits with 0 on SIGTERM has not done its work."""
    world = await started(make(*PAIR))
    world.evict("g")
    await world.rest(GROUP)
    for name in ("a", "b"):
        world.client.change(PODS, f"team/{name}", {"status": {"phase": "Succeeded"}})
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "Finished") == ("", "")
    assert status_of(world.workload_named("g"), "WaitingForReplacementPods")[0] == "True"


@pytest.mark.parametrize("fast", [False, True])
async def test_quota_waits_for_pods_in_their_grace_period(make: Callable[..., Pods], fast: bool) -> None:
    """7.5 Active, and the gate FastQuotaReleaseInPodIntegration."""
    world = await started(make(*PAIR, group={"fast_release": fast}))
    world.evict("g")
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "QuotaReserved")[0] == ("False" if fast else "True")


async def test_a_failed_member_is_replaced_without_a_new_admission(make: Callable[..., Pods]) -> None:
    """It keeps its finalizer until then; the newcomer is started at once."""
    world = await started(make(*PAIR))
    world.runs("b", phase="Failed")
    await world.rest(GROUP)
    assert world.finalizer("b")
    assert status_of(world.workload_named("g"), "WaitingForReplacementPods") == ("True", "PodsFailed")
    world.add(grouped("c", born=9))
    await world.rest(GROUP)
    assert not world.gated("c")
    assert not world.finalizer("b")


async def test_a_pod_too_many_is_deleted_and_told(make: Callable[..., Pods]) -> None:
    """While the group runs, and before it has a Workload."""
    world = await started(make(*PAIR))
    world.add(grouped("c", born=9))
    await world.rest(GROUP)
    assert world.names() == ["a", "b"]
    assert world.told("c") == ["ExcessPodDeleted"]
    other = make(*PAIR, grouped("c", born=9))
    await queued(other)
    assert other.names() == ["a", "b"]


async def test_a_deleted_workload_takes_all_pods_along(make: Callable[..., Pods]) -> None:
    """Gated or not; nothing keeps a finalizer."""
    world = await started(make(*PAIR))
    world.client.change(WORKLOADS, GROUP, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await world.rest(GROUP)
    assert (world.names(), world.client.keys(WORKLOADS)) == ([], [])


async def test_the_quota_of_a_deleted_workload_goes_with_the_last_pod(make: Callable[..., Pods]) -> None:
    """Pods that take their time to end are waited for; that they have ended brings the group back."""
    world = await started(make(*PAIR))
    for name in ("a", "b"):
        own = {"finalizers": ["kueue.x-k8s.io/managed", "example.com/slow"]}
        world.client.change(PODS, f"team/{name}", {"metadata": own})
    world.client.change(WORKLOADS, GROUP, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await world.rest(GROUP)
    assert [world.finalizer(name) for name in world.names()] == [False, False]
    assert world.client.keys(WORKLOADS) == [GROUP]
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    await world.rest(GROUP)
    assert world.client.keys(WORKLOADS) == []


async def test_a_group_whose_pods_are_all_gone_leaves_its_workload_unheld(make: Callable[..., Pods]) -> None:
    """It is not finished; its owners' end takes it along."""
    world = await started(make(*PAIR))
    for name in world.names():
        world.client.drop(PODS, f"team/{name}")
    await world.rest(GROUP)
    workload = world.workload_named("g")
    assert "finalizers" not in workload["metadata"]
    assert status_of(workload, "Finished") == ("", "")


async def test_a_prebuilt_workload_without_pods_yet_keeps_its_finalizer(make: Callable[..., Pods]) -> None:
    """Its pods are still to come."""
    world = make(*PAIR)
    await queued(world)
    for name in world.names():
        world.client.drop(PODS, f"team/{name}")
    world.client.change(WORKLOADS, GROUP, {"metadata": {"ownerReferences": None}})
    assert await world.look(GROUP) == []


# --- without leave


async def test_a_member_that_somebody_let_out_is_stopped(make: Callable[..., Pods]) -> None:
    """Its gate was removed by hand while the group waits: it would run on quota of others."""
    world = await queued(make(*PAIR))
    world.refuse("g")
    world.client.change(PODS, "team/a", {"spec": {"schedulingGates": None}})
    await world.look(GROUP)
    assert world.pod("a")["metadata"]["deletionTimestamp"]
    assert "Stopped" in world.told("a")
    assert world.gated("b")


async def test_a_group_outlives_a_status_that_somebody_wipes(make: Callable[..., Pods]) -> None:
    """It is about to be put back, and pods that were deleted would not be."""
    world = await started(make(*PAIR))
    world.client.change(WORKLOADS, GROUP, {"status": None})
    await world.rest(GROUP)
    assert not any("deletionTimestamp" in world.pod(name)["metadata"] for name in world.names())


async def test_nobody_is_stopped_because_our_watch_is_behind(make: Callable[..., Pods]) -> None:
    """The API server says that the Workload is admitted, and started pods are seen before that."""
    world = await queued(make(*PAIR))
    world.sync()
    world.admit("g")
    world.client.change(PODS, "team/a", {"spec": {"schedulingGates": None}})
    world.pods.put("team/a", _view(world, "a"))
    assert await world.look(GROUP, late=True) == []


def _view(world: Pods, name: str) -> Any:
    return managed_pod(world.pod(name), JobFeatures())


async def test_a_running_pod_without_a_workload_is_stopped(make: Callable[..., Pods]) -> None:
    """And the group is queued when it is complete again."""
    world = make(grouped("a", gated=False, phase="Running", node="n"), grouped("b"))
    await world.look(GROUP)
    assert world.pod("a")["metadata"]["deletionTimestamp"]
    assert world.client.keys(WORKLOADS) == []


async def test_who_is_let_out_after_the_end_of_its_group_is_stopped(make: Callable[..., Pods]) -> None:
    """Its group has given its quota back; one that is still gated is left to its user."""
    world = await started(make(*PAIR))
    world.runs("a", "b", phase="Succeeded")
    await world.rest(GROUP)
    world.add(grouped("c", born=9), grouped("d", born=9, gated=False))
    await world.rest(GROUP)
    assert world.names() == ["a", "b", "c"]
    assert world.told("d") == ["Stopped"]


async def test_a_stranger_that_runs_is_stopped(make: Callable[..., Pods]) -> None:
    """A role that the Workload does not have, ungated beside an admitted group."""
    world = await started(make(*PAIR))
    world.add(grouped("x", role="other", gated=False, phase="Running", node="n"))
    await world.rest(GROUP)
    assert "Stopped" in world.told("x")
    assert world.told("a")[-1] != "Stopped"


async def test_a_forged_role_gets_no_quota_of_others(make: Callable[..., Pods]) -> None:
    """A replacement that says the same role and asks for ten times as much stays where it is, and hears why."""
    world = await started(make(*PAIR))
    world.runs("b", phase="Failed")
    world.add(grouped("c", cpu="10", born=9))
    await world.rest(GROUP)
    assert world.gated("c")
    assert "PodNotStarted" in world.told("c")


async def test_a_workload_that_says_something_else_is_rewritten_or_made_anew(make: Callable[..., Pods]) -> None:
    """While it holds nothing it is rewritten in place; with quota it goes, and another one is made."""
    world = await queued(make(*PAIR))
    uid = world.workload_named("g")["metadata"]["uid"]
    for name in ("a", "b"):
        labels = {"metadata": {"labels": prefixed(max_exec_time_seconds="60")}}
        world.client.change(PODS, f"team/{name}", labels)
    await world.rest(GROUP)
    assert world.workload_named("g")["spec"]["maximumExecutionTimeSeconds"] == 60
    assert world.workload_named("g")["metadata"]["uid"] == uid
    world.client.change(WORKLOADS, GROUP, {"status": {"conditions": [condition("QuotaReserved")]}})
    for name in ("a", "b"):
        labels = {"metadata": {"labels": prefixed(max_exec_time_seconds="90")}}
        world.client.change(PODS, f"team/{name}", labels)
    await world.rest(GROUP)
    assert world.workload_named("g")["spec"]["maximumExecutionTimeSeconds"] == 90
    assert world.workload_named("g")["metadata"]["uid"] != uid


async def test_another_queue_is_handed_on_while_the_group_waits(make: Callable[..., Pods]) -> None:
    """Of the first member; not of a group that serves."""
    world = await queued(make(*PAIR))
    world.client.change(PODS, "team/a", {"metadata": {"labels": prefixed(queue_name="other")}})
    await world.rest(GROUP)
    assert world.workload_named("g")["spec"]["queueName"] == "other"


async def test_a_contradiction_between_pod_and_flavor_finishes_the_group(make: Callable[..., Pods]) -> None:
    """Nobody was started."""
    world = await queued(make(grouped("a", nodeSelector={"pool": "cpu"}), grouped("b", nodeSelector={"pool": "cpu"})))
    world.admit("g")
    await world.look(GROUP)
    assert status_of(world.workload_named("g"), "Finished") == ("True", "FailedToStart")
    assert world.gated("a")
    assert world.gated("b")


# --- prebuilt


PREBUILT = prefixed(prebuilt_workload_name="g", pod_group_fast_admission="true")


def prebuilt_workload(count: int = 2) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    return {
        "metadata": {"name": "g", "namespace": "team", "uid": "u", "annotations": prefixed(is_group_workload="true")},
        "spec": {"queueName": "main", "active": True, "podSets": [{"name": "r", "count": count, "template": template}]},
    }


async def test_pods_of_a_prebuilt_workload_start_as_they_come(make: Callable[..., Pods]) -> None:
    """They own it, nobody is too many, and nothing is said of missing ones."""
    world = make(grouped("a", annotations=PREBUILT))
    assert (await world.group.reconcile(GROUP)).requeue_after
    world.client.put(WORKLOADS, prebuilt_workload())
    world.sync()
    world.admit("g")
    await world.rest(GROUP)
    assert not world.gated("a")
    world.add(grouped("b", annotations=PREBUILT))
    await world.rest(GROUP)
    assert not world.gated("b")
    assert [o["name"] for o in world.workload_named("g")["metadata"]["ownerReferences"]] == ["a", "b"]
    world.client.drop(PODS, "team/b")
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "WaitingForReplacementPods") == ("", "")


async def test_a_prebuilt_workload_of_other_pods_is_out_of_sync(make: Callable[..., Pods]) -> None:
    """Its roles are others."""
    world = make(grouped("a", role="x", annotations=PREBUILT))
    world.client.put(WORKLOADS, prebuilt_workload())
    await world.look(GROUP)
    assert status_of(world.workload_named("g"), "Finished") == ("True", "OutOfSync")


@pytest.mark.parametrize(
    ("phase", "goes"),
    [
        pytest.param("Succeeded", True, id="it has ended"),
        pytest.param("", True, id="it never started"),
        pytest.param("Running", False, id="it runs"),
    ],
)
async def test_deleted_pods_need_no_prebuilt_workload_to_go(make: Callable[..., Pods], phase: str, goes: bool) -> None:
    """A manager deletes the copies of a group's pods and of its Workload together."""
    world = make(grouped("a", annotations=PREBUILT))
    if phase:
        world.client.change(PODS, "team/a", {"spec": {"schedulingGates": None}})
        world.runs("a", phase=phase)
    world.client.change(PODS, "team/a", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await world.look(GROUP)
    assert (world.names() == []) == goes


@pytest.mark.parametrize("is_copy", [True, False])
async def test_a_deleted_copy_gives_its_name_back(make: Callable[..., Pods], is_copy: bool) -> None:
    """A manager makes it again under the same name; other pods stay until their user has replaced them by others."""
    world = make(*(grouped(name, annotations=PREBUILT) for name in "ab"))
    workload = prebuilt_workload()
    workload["metadata"]["labels"] = {"kueue.x-k8s.io/multikueue-origin": "m"} if is_copy else {}
    world.client.put(WORKLOADS, workload)
    world.sync()
    world.admit("g")
    await world.rest(GROUP)
    world.runs("a", "b")
    world.client.change(PODS, "team/a", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await world.look(GROUP)
    before = world.names()
    world.runs("a", phase="Failed")
    await world.look(GROUP)

    assert (before, world.names()) == (["a", "b"], ["b"] if is_copy else ["a", "b"])
    assert status_of(world.workload_named("g"), "Finished") == ("", "")


# --- hostile


async def test_a_workload_that_the_server_refuses_is_told(make: Callable[..., Pods]) -> None:
    """The group hears the server's words, and is tried again."""
    world = make(*PAIR)
    world.client.fail(InvalidError("too large", status=422), verb="create")
    with pytest.raises(InvalidError):
        await world.group.reconcile(GROUP)
    assert world.told("a") == ["ErrWorkloadCompose"]
    await queued(world)


async def test_a_latecomer_that_lies_about_the_total_does_not_end_the_group(make: Callable[..., Pods]) -> None:
    """Total 1, one succeeded: the group goes on, and the liar is one too many."""
    world = await started(make(*PAIR))
    world.runs("a", phase="Succeeded")
    world.add(grouped("0", total=1, born=9))
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "Finished") == ("", "")
    assert world.names() == ["a", "b"]


async def test_a_new_process_writes_nothing_where_nothing_has_changed(make: Callable[..., Pods]) -> None:
    """A group that runs, seen for the first time."""
    world = await started(make(*PAIR))
    again = make()
    again.client._objects = world.client._objects
    assert await again.look(GROUP) == []


async def test_pods_that_are_not_ours_any_more_are_not_held(make: Callable[..., Pods]) -> None:
    """The namespace was left out since, or there is no queue: whoever is deleted or has ended goes."""
    for change in ("namespace", "queue"):
        world = make(grouped("a", queue=None if change == "queue" else "main"))
        if change == "namespace":
            world.managed.clear()
        world.client.change(PODS, "team/a", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await world.rest(GROUP)
        assert world.names() == []


async def test_pods_of_a_namespace_that_is_left_out_are_left_alone(make: Callable[..., Pods]) -> None:
    """Like pods of no queue, and those that only their parents' frameworks ask for."""
    world = make(*PAIR)
    world.managed.clear()
    assert await world.look(GROUP) == []
    assert await make(*PAIR, group={"explicit": False}).look(GROUP) == []
    assert await make(grouped("a", queue=None), grouped("b", queue=None)).look(GROUP) == []


async def test_a_conflict_on_one_pod_does_not_hold_up_the_others(make: Callable[..., Pods]) -> None:
    """It is tried again with the newer pod."""
    world = await queued(make(*PAIR))
    world.admit("g")
    world.sync()
    world.client.change(PODS, "team/a", {"metadata": {"labels": {"new": "1"}}})
    with pytest.raises(ConflictError):
        await world.group.reconcile(GROUP)
    assert not world.gated("b")
    await world.rest(GROUP)
    assert not world.gated("a")


@pytest.mark.parametrize("advance", [queued, started])
async def test_a_deleted_namespace_waits_for_no_replacements(
    make: Callable[..., Pods], advance: Callable[[Pods], Any]
) -> None:
    """The namespace is not gone before its pods are, and no pod can be created in it."""
    world = await advance(make(*PAIR))
    for name in world.names():
        gone = {"metadata": {"deletionTimestamp": utc_text(world.clock.now())}, "status": {"phase": "Failed"}}
        world.client.change(PODS, f"team/{name}", gone)
    await world.rest(GROUP)
    held = [name for name in world.names() if world.pod(name)["metadata"]["finalizers"]]
    assert held == ["a", "b"], "elsewhere they wait for their replacements"

    world.ending.add("team")
    await world.rest(GROUP)
    assert [name for name in world.names() if world.pod(name)["metadata"]["finalizers"]] == []


async def test_quota_is_kept_for_a_pod_that_is_bound_while_it_is_stopped(make: Callable[..., Pods]) -> None:
    """The watch has not brought the binding when the eviction is carried out, and the pod runs for its grace period."""
    world = await queued(make(*PAIR))
    world.admit("g")
    await world.rest(GROUP)
    world.evict("g")
    world.sync()
    world.client.change(PODS, "team/a", {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    for late in (True, True, False, False):
        await world.look(GROUP, late=late)
        assert status_of(world.workload_named("g"), "QuotaReserved")[0] == "True"

    world.runs("a", phase="Failed")
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "QuotaReserved")[0] == "False"
