"""A Workload's life step by step, on a fake clock: checks, pods that are late, pauses, limits, switches, the end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kqueue.controllers.life_cycle import LifeRules
from kqueue.controllers.resources import CLUSTER_QUEUES, WORKLOADS
from kqueue.state.readiness import ReadyRules
from kqueue.state.requeueing import RequeueBackoff
from tests.unit.controllers.builders import (
    JSON,
    OWNED,
    condition,
    make_cluster_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.controllers.workload_world import Workloads

Make = Callable[..., Workloads]
NOW = "2026-01-01T00:00:00Z"
READY = ReadyRules(start=timedelta(seconds=300), recovery=timedelta(seconds=60))
RULES = LifeRules(ready=READY, backoff=RequeueBackoff(60, 3600, 2))


def since_now(kind: str, status: str = "True", reason: str = "", message: str = "") -> JSON:
    return {**condition(kind, status, reason, message), "lastTransitionTime": NOW}


def check(state: str, name: str = "budget", **fields: Any) -> JSON:
    return {"name": name, "state": state, "message": "", "lastTransitionTime": NOW, **fields}


def admitted(*conditions: JSON, **status: Any) -> JSON:
    """The status of one that was admitted just now."""
    return reserved(since_now("Admitted", reason="Admitted"), *conditions, **status)


def with_checks(*names: str) -> Any:
    rules = [{"name": name} for name in names]
    return CLUSTER_QUEUES, make_cluster_queue(admissionChecksStrategy={"admissionChecks": rules})


def answer(world: Workloads, **fields: Any) -> None:
    """The check's controller answers."""
    world.client.change(WORKLOADS, "ns/a", {"status": {"admissionChecks": [check(**fields)]}})


def states(world: Workloads) -> list[tuple[str, str]]:
    return [(c["name"], c["state"]) for c in world.found["status"].get("admissionChecks", ())]


# --- checks ----------------------------------------------------------------------------------------------------------


async def test_checks_are_listed_and_followed(make_world: Make) -> None:
    """Before there is quota, when the queue wants another one, and when it wants none."""
    world = make_world(make_workload(), with_checks("budget", "licence"))
    world.check("budget")
    world.check("licence")
    await world.rest()
    assert states(world) == [("budget", "Pending"), ("licence", "Pending")]

    answer(world, name="budget", state="Ready")
    world.client.put(*with_checks("budget", "third"))
    world.check("third")
    await world.rest()
    assert states(world) == [("budget", "Ready"), ("third", "Pending")]

    world.client.put(*with_checks())
    await world.rest()
    assert states(world) == []


async def test_who_is_admitted_late_is_told_how_long_its_checks_took(make_world: Make) -> None:
    """In the event that says so."""
    waiting = [since_now("QuotaReserved", reason="QuotaReserved"), condition("Admitted", "False")]
    status = {**reserved(), "conditions": waiting, "admissionChecks": [check("Ready")]}
    world = make_world(make_workload(status=status), with_checks("budget"))
    world.check()
    await world.clock.advance(75)
    await world.rest()

    assert world.recorder.messages == ["Admitted by ClusterQueue team, 75 s after the reservation"]


async def test_a_check_that_comes_later_does_not_take_an_admission_away(make_world: Make) -> None:
    """It is listed; what runs goes on."""
    world = make_world(make_workload(status=admitted()), with_checks("budget"))
    world.check()
    await world.rest()

    assert states(world) == [("budget", "Pending")]
    assert status_of(world.found, "Admitted") == ("True", "Admitted")


async def test_a_retry_at_once_gives_the_quota_back_and_waits_in_line(make_world: Make) -> None:
    """Evicted, its check asked anew, and queued again when its quota is back."""
    world = make_world(make_workload(status=admitted(admissionChecks=[check("Ready")])), with_checks("budget"))
    world.check()
    answer(world, state="Retry", message="no nodes")

    assert await world.step() == 1

    assert status_of(world.found, "Evicted") == ("True", "AdmissionCheck")
    assert message_of(world.found, "Evicted") == "To be tried again, as admission checks ask for: budget: no nodes"
    [after] = world.found["status"]["admissionChecks"]
    assert (after["state"], after["retryCount"], after["message"]) == (
        "Pending",
        1,
        "Reset by an eviction; it was Retry: no nodes",
    )
    assert world.recorder.reasons == ["EvictedDueToAdmissionCheck"]
    await world.give_back()
    assert status_of(world.found, "Requeued") == ("False", "AdmissionCheck")
    await world.rest()

    assert status_of(world.found, "Requeued") == ("True", "BackoffFinished")
    assert world.heads() == ["ns/a"]


async def test_a_retry_with_a_delay_leaves_all_as_it_is_until_then(make_world: Make) -> None:
    """The delay comes before the eviction: nothing happens to it in between, whatever else is asked for."""
    world = make_world(make_workload(status=admitted(admissionChecks=[check("Ready")])), with_checks("budget"))
    world.check()
    answer(world, state="Retry", requeueAfterSeconds=60)
    assert await world.step() == 1
    assert world.found["status"]["requeueState"] == {"requeueAt": "2026-01-01T00:01:00Z"}
    assert world.recorder.events == [("Workload a", "AdmissionCheckRetry")]
    answer(world, state="Rejected")
    assert await world.step() == 0
    answer(world, state="Retry", requeueAfterSeconds=60)

    assert await world.wake() == 60
    assert await world.step() == 1

    assert status_of(world.found, "Evicted") == ("True", "AdmissionCheck")
    await world.give_back()
    await world.rest()
    assert "requeueState" not in world.found["status"]
    assert status_of(world.found, "Requeued") == ("True", "BackoffFinished")
    assert world.heads() == ["ns/a"]


async def test_a_refusal_switches_it_off_and_says_why(make_world: Make) -> None:
    """A warning, the eviction, and the way back: active again, it is queued."""
    runs = make_workload(metadata=OWNED, status=admitted(admissionChecks=[check("Ready")]))
    world = make_world(runs, with_checks("budget"))
    world.check()
    answer(world, state="Rejected", message="over the limit")
    await world.rest()

    assert world.found["spec"]["active"] is False
    assert status_of(world.found, "Evicted") == ("True", "DeactivatedDueToAdmissionCheck")
    said = "Refused by admission checks budget: over the limit"
    assert message_of(world.found, "Evicted") == f"The workload was deactivated: {said}"
    assert status_of(world.found, "DeactivationTarget") == ("", "")
    assert states(world) == [("budget", "Pending")]
    assert world.recorder.reasons == ["AdmissionCheckRejected", "EvictedDueToDeactivatedDueToAdmissionCheck"]
    assert world.recorder.warnings == ["AdmissionCheckRejected"]
    [count] = world.found["status"]["schedulingStats"]["evictions"]
    assert count == {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1}
    await world.give_back()
    await world.rest()
    assert (status_of(world.found, "QuotaReserved"), world.heads()) == (("False", "Deactivated"), [])

    world.client.change(WORKLOADS, "ns/a", {"spec": {"active": True}})
    await world.rest()
    assert status_of(world.found, "Requeued") == ("True", "Reactivated")
    assert world.heads() == ["ns/a"]


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
async def test_one_that_holds_nothing_is_kept_out_while_a_check_refuses_it(make_world: Make, state: str) -> None:
    """It is not evicted; it is told, and comes back with another answer."""
    world = make_world(make_workload(status={"admissionChecks": [check(state, message="no")]}), with_checks("budget"))
    world.check()
    await world.rest()

    assert status_of(world.found, "Evicted") == ("", "")
    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")
    assert "budget: no" in message_of(world.found, "QuotaReserved")
    assert world.heads() == []

    answer(world, state="Pending")
    await world.rest()
    assert message_of(world.found, "QuotaReserved").startswith("It is the next workload that ClusterQueue team tries")
    assert world.heads() == ["ns/a"]


# --- pods that are late ----------------------------------------------------------------------------------------------


async def test_pods_that_are_late_cost_a_pause_then_another_then_the_place(make_world: Make) -> None:
    """Two times it comes back, after 60 s and 120 s; the third time it is switched off."""
    world = make_world(make_workload(status=admitted()), rules=RULES)
    for count, pause in ((1, 60), (2, 120)):
        assert await world.wake() == 300
        assert await world.step() == 1
        assert status_of(world.found, "Evicted") == ("True", "PodsReadyTimeout")
        assert f"(requeue {count} of 2)" in message_of(world.found, "Evicted")
        assert world.found["status"]["requeueState"]["count"] == count
        await world.give_back()
        assert (await world.step(), world.heads()) == (0, [])
        assert await world.wake() == pause
        assert (await world.step(), await world.step()) == (1, 0)  # the pause ends and it is requeued by one write
        assert status_of(world.found, "Requeued") == ("True", "BackoffFinished")
        assert world.found["status"]["requeueState"] == {"count": count}
        assert world.heads() == ["ns/a"]
        again = admitted()
        for entry in again["conditions"]:
            entry["lastTransitionTime"] = world.clock.now().isoformat()
        again["conditions"].append(condition("Evicted", "False", "QuotaReserved"))
        world.client.change(WORKLOADS, "ns/a", {"status": again})
    await world.wake()
    await world.rest()

    assert world.found["spec"]["active"] is False
    assert status_of(world.found, "Evicted") == ("True", "DeactivatedDueToRequeuingLimitExceeded")
    assert "for the 3rd time (backoffLimitCount 2)" in message_of(world.found, "Evicted")
    assert "requeueState" not in world.found["status"]
    counts = {
        (e["reason"], e["underlyingCause"]): e["count"] for e in world.found["status"]["schedulingStats"]["evictions"]
    }
    assert counts == {("PodsReadyTimeout", "WaitForStart"): 2, ("Deactivated", "RequeuingLimitExceeded"): 1}


async def test_a_pod_that_is_lost_has_a_time_of_its_own(make_world: Make) -> None:
    """From when it was lost; it counts with those that came too late at the start."""
    lost = since_now("PodsReady", "False", "WaitForRecovery")
    world = make_world(make_workload(status=admitted(lost, requeueState={"count": 1})), rules=RULES)

    assert await world.wake() == 60
    await world.step()

    assert status_of(world.found, "Evicted") == ("True", "PodsReadyTimeout")
    assert world.found["status"]["schedulingStats"]["evictions"][0]["underlyingCause"] == "WaitForRecovery"
    assert world.found["status"]["requeueState"]["count"] == 2


@pytest.mark.parametrize(
    ("status", "rules"),
    [
        pytest.param(admitted(since_now("PodsReady", reason="Started")), RULES, id="its pods are ready"),
        pytest.param(admitted(), LifeRules(), id="nobody asks for it"),
    ],
)
async def test_who_is_not_waited_for_has_no_time(make_world: Make, status: JSON, rules: LifeRules) -> None:
    """No deadline of anybody's, and nothing is written."""
    world = make_world(make_workload(status=status), rules=rules)
    world.sync()
    assert (await world.reconciler.reconcile("ns/a")).requeue_after is None
    await world.clock.advance(86_400)
    assert await world.step() == 0


async def test_in_its_pause_it_is_told_of_a_queue_that_is_gone(make_world: Make) -> None:
    """Nothing else is done with it; what it was told is taken back, and it still waits for its time."""
    evicted = [
        condition("Evicted", "True", "PodsReadyTimeout", "late"),
        condition("Requeued", "False", "PodsReadyTimeout"),
    ]
    waits = [condition("QuotaReserved", "False", "PendingEvaluation", "late"), *evicted]
    status = {"conditions": waits, "requeueState": {"count": 1, "requeueAt": "2026-01-01T00:10:00Z"}}
    world = make_world(make_workload(status=status), rules=RULES)
    world.client.put(CLUSTER_QUEUES, make_cluster_queue(stopPolicy="Hold"))
    await world.rest()
    assert status_of(world.found, "QuotaReserved") == ("False", "Suspended")

    world.client.put(CLUSTER_QUEUES, make_cluster_queue())
    await world.rest()
    told = message_of(world.found, "QuotaReserved")
    assert told == "The workload was evicted and is not queued again before 2026-01-01T00:10:00Z"
    assert world.heads() == []


async def test_a_time_that_somebody_sets_on_a_waiting_one_is_kept(make_world: Make) -> None:
    """Until then it is not tried; then the field is cleared and it is."""
    world = make_world(make_workload(status={"requeueState": {"requeueAt": "2026-01-01T00:00:30Z"}}))
    assert world.heads() == []
    await world.rest()
    assert message_of(world.found, "QuotaReserved") == "The workload is not queued before 2026-01-01T00:00:30Z"

    assert await world.wake() == 30
    await world.rest()

    assert "requeueState" not in world.found["status"]
    assert world.heads() == ["ns/a"]


# --- time limits -----------------------------------------------------------------------------------------------------


async def test_it_runs_for_as_long_as_it_may_in_all(make_world: Make) -> None:
    """What it ran before counts; then it is switched off, and what it ran this time is remembered."""
    status = admitted(accumulatedPastExecutionTimeSeconds=10)
    world = make_world(make_workload(metadata=OWNED, status=status, maximumExecutionTimeSeconds=25), rules=RULES)

    assert await world.wake() == 15
    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "DeactivatedDueToMaximumExecutionTimeExceeded")
    assert world.recorder.reasons == [
        "MaximumExecutionTimeExceeded",
        "EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded",
    ]
    await world.give_back()
    assert world.found["status"]["accumulatedPastExecutionTimeSeconds"] == 15


async def test_the_nearer_limit_wakes_first(make_world: Make) -> None:
    """One deadline for all clocks."""
    world = make_world(make_workload(status=admitted(), maximumExecutionTimeSeconds=299), rules=RULES)
    assert await world.wake() == 299


# --- switched off ----------------------------------------------------------------------------------------------------


async def test_what_an_evicted_one_was_to_wait_for_ends_with_its_deactivation(make_world: Make) -> None:
    """It keeps the reason of its eviction; a wish to switch it off does not outlive the switch."""
    conditions = [
        condition("Evicted", "True", "PodsReadyTimeout"),
        condition("DeactivationTarget", "True", "EvictedOnManagerCluster"),
    ]
    waiting = {"requeueState": {"count": 1, "requeueAt": "2026-01-01T01:00:00Z"}}
    world = make_world(make_workload(active=False, status=admitted(*conditions, **waiting)))
    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "PodsReadyTimeout")
    assert status_of(world.found, "DeactivationTarget") == ("", "")
    assert "requeueState" not in world.found["status"]


async def test_a_user_may_switch_it_off_in_its_pause(make_world: Make) -> None:
    """Active again it is queued at once, and counts from the start."""
    evicted = [condition("Evicted", "True", "PodsReadyTimeout"), condition("Requeued", "False", "PodsReadyTimeout")]
    waiting = {"requeueState": {"count": 1, "requeueAt": "2026-01-01T01:00:00Z"}}
    world = make_world(make_workload(active=False, status={"conditions": evicted, **waiting}))
    await world.rest()
    world.client.change(WORKLOADS, "ns/a", {"spec": {"active": True}})
    await world.rest()

    assert status_of(world.found, "Requeued") == ("True", "BackoffFinished")
    assert world.heads() == ["ns/a"]


async def test_a_wish_to_switch_off_is_heeded_in_a_pause_too(make_world: Make) -> None:
    """The manager cluster's, for instance."""
    wish = condition("DeactivationTarget", "True", "EvictedOnManagerCluster", "it runs elsewhere")
    status = admitted(wish, requeueState={"requeueAt": "2026-01-01T01:00:00Z"})
    world = make_world(make_workload(status=status))
    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "DeactivatedDueToEvictedOnManagerCluster")


async def test_a_gate_that_is_opened_is_told(make_world: Make) -> None:
    """Held back and let go, quietly."""
    gate = {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
    world = make_world(make_workload(metadata={"annotations": gate}))
    await world.rest()
    world.client.change(WORKLOADS, "ns/a", {"metadata": {"annotations": None}})
    await world.rest()

    assert (world.recorder.reasons, world.recorder.warnings) == (["AdmissionGated", "AdmissionGateCleared"], [])


async def test_a_gate_takes_back_what_is_only_reserved(make_world: Make) -> None:
    """Who is not admitted yet gives its quota back."""
    gate = {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}}
    status = reserved(condition("Admitted", "False", "UnsatisfiedAdmissionChecks"), admissionChecks=[check("Pending")])
    world = make_world(make_workload(metadata=gate, status=status), with_checks("budget"))
    world.check()
    await world.rest()

    assert status_of(world.found, "QuotaReserved") == ("False", "AdmissionGated")


# --- the end ---------------------------------------------------------------------------------------------------------

FINISHED = {"conditions": [since_now("Finished", reason="Succeeded")]}
HELD_BY_US = {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}


async def test_a_finished_one_is_kept_for_as_long_as_is_said(make_world: Make) -> None:
    """Then it is deleted, our finalizer first, and that is told."""
    rules = LifeRules(keep_finished=timedelta(hours=1))
    world = make_world(make_workload(status=FINISHED, metadata=HELD_BY_US), rules=rules)

    assert await world.wake() == 3600
    await world.step()

    assert world.workload() is None
    assert world.recorder.reasons == ["Deleted"]


@pytest.mark.parametrize("rules", [LifeRules(), RULES], ids=["as it comes", "with other limits"])
async def test_a_finished_one_is_kept_for_ever_otherwise(make_world: Make, rules: LifeRules) -> None:
    """Nothing is to be looked at."""
    world = make_world(make_workload(status=FINISHED), rules=rules)
    world.sync()
    assert (await world.reconciler.reconcile("ns/a")).requeue_after is None


JOBLESS = {"labels": {"kueue.x-k8s.io/job-uid": "gone"}, **HELD_BY_US}
GOING = {"deletionTimestamp": NOW}


@pytest.mark.parametrize(
    ("metadata", "rules", "finished", "held"),
    [
        pytest.param(JOBLESS, LifeRules(), True, False, id="its job is gone"),
        pytest.param(JOBLESS, LifeRules(finish_orphans=False), False, True, id="the gate is off"),
        pytest.param(HELD_BY_US, LifeRules(), False, True, id="made by hand"),
        pytest.param({**JOBLESS, **OWNED}, LifeRules(), False, True, id="its job is there"),
    ],
)
async def test_orphans_are_ended(
    make_world: Make, metadata: JSON, rules: LifeRules, finished: bool, held: bool
) -> None:
    """Finished, so that they hold no quota, and held by nobody."""
    world = make_world(make_workload(metadata=metadata, status=admitted()), rules=rules)
    await world.rest()

    assert status_of(world.found, "Finished") == (("True", "OwnerNotFound") if finished else ("", ""))
    assert bool(world.found["metadata"].get("finalizers")) is held
    world.sync()
    assert world.free() == (10 if finished else 9)


ABANDONED = LifeRules(abandoned=frozenset({("batch", "Job")}))


@pytest.mark.parametrize(
    ("metadata", "gone"),
    [
        pytest.param({**HELD_BY_US, **GOING}, True, id="made by hand"),
        pytest.param({**JOBLESS, **GOING}, True, id="its job is gone"),
        pytest.param({**HELD_BY_US, **OWNED, **GOING}, False, id="its job's controller lets it go"),
    ],
)
async def test_a_deleted_one_without_owner_is_let_go(make_world: Make, metadata: JSON, gone: bool) -> None:
    """Nobody else would."""
    world = make_world(make_workload(metadata=metadata, status=admitted()))
    await world.rest()

    assert (world.workload() is None) is gone


FOREIGN: JSON = {
    "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Crunch", "name": "c", "uid": "u", "controller": True}]
}
MANAGED = LifeRules(managed=frozenset({("batch", "Job")}))


@pytest.mark.parametrize(
    ("metadata", "rules", "ended"),
    [
        pytest.param({}, LifeRules(), True, id="made by hand"),
        pytest.param(OWNED, ABANDONED, True, id="its kind is not managed any more"),
        pytest.param(FOREIGN, MANAGED, True, id="its kind is unknown"),
        pytest.param(OWNED, MANAGED, False, id="its job's controller ends it"),
        pytest.param(OWNED, LifeRules(), False, id="its job's controller ends it, whatever is managed"),
    ],
)
async def test_an_eviction_that_no_client_ends_is_ended_after_ten_minutes(
    make_world: Make, metadata: JSON, rules: LifeRules, ended: bool
) -> None:
    """It stays evicted and charged until then; nothing is written meanwhile, and the end is told."""
    world = make_world(make_workload(metadata=metadata, status=admitted()), rules=rules)
    world.client.change(
        WORKLOADS,
        "ns/a",
        {"status": {"conditions": [*admitted()["conditions"], since_now("Evicted", reason="Preempted")]}},
    )
    await world.rest()
    await world.clock.advance(599)
    await world.rest()
    assert (status_of(world.found, "QuotaReserved")[0], world.free(), len(world.client.writes())) == ("True", 9, 0)
    if ended:
        assert await world.wake() == 1
    await world.clock.advance(1)

    assert [await world.step(), await world.step()] == ([1, 0] if ended else [0, 0])

    assert (world.free(), world.heads()) == ((10, ["ns/a"]) if ended else (9, []))
    assert world.recorder.warnings == (["EvictionEnded"] if ended else [])


async def test_an_eviction_of_a_group_without_pods_is_ended_at_once(make_world: Make) -> None:
    """Pods own the Workload of their group: when the last one is gone nothing else ends the eviction."""
    evicted = [*admitted()["conditions"], since_now("Evicted", reason="Preempted")]
    group = {"annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
    world = make_world(make_workload(metadata=group, status={**admitted(), "conditions": evicted}))
    await world.rest()

    assert (world.free(), world.heads(), world.recorder.warnings) == (10, ["ns/a"], [])


async def test_an_eviction_is_not_ended_for_its_owner_while_pods_are_left(make_world: Make) -> None:
    """Quota goes with the last pod that names the Workload, however long that takes."""
    left = {"ns/a"}
    world = make_world(make_workload(status=admitted()), pods_left=left.__contains__)
    world.client.change(WORKLOADS, "ns/a", {"spec": {"active": False}})
    await world.rest()
    await world.clock.advance(3600)
    await world.rest()
    assert (status_of(world.found, "QuotaReserved")[0], world.free()) == ("True", 9)
    left.clear()
    await world.rest()
    world.client.change(WORKLOADS, "ns/a", {"spec": {"active": True}})
    await world.rest()

    assert (world.free(), world.heads()) == (10, ["ns/a"])


async def test_an_eviction_is_ended_in_time_although_the_workload_waits_for_a_later_one(make_world: Make) -> None:
    """Its quota does not wait for `requeueAt`."""
    late = [*admitted()["conditions"], since_now("Evicted", reason="PodsReadyTimeout")]
    pause = {"requeueState": {"count": 1, "requeueAt": "2026-01-01T01:00:00Z"}}
    world = make_world(make_workload(status={**admitted(), "conditions": late, **pause}))
    await world.rest()

    assert await world.wake() == 600
    assert [await world.step(), await world.step()] == [1, 0]
    assert await world.wake() == 3000


async def test_a_deleted_one_of_a_kind_that_is_not_managed_any_more_is_let_go(make_world: Make) -> None:
    """Whose controller does not run; one that is not deleted is left alone."""
    world = make_world(make_workload(metadata={**HELD_BY_US, **OWNED}), rules=ABANDONED)
    await world.rest()
    assert world.found["metadata"]["finalizers"]
    world.client.change(WORKLOADS, "ns/a", {"metadata": GOING})
    await world.rest()

    assert world.workload() is None


async def test_an_orphan_is_kept_no_longer_than_others(make_world: Make) -> None:
    """Its end counts as any other."""
    world = make_world(make_workload(metadata=JOBLESS), rules=LifeRules(keep_finished=timedelta(hours=1)))
    await world.step()

    assert await world.wake() == 3600
    await world.step()
    assert world.workload() is None


# --- a hand in the status --------------------------------------------------------------------------------------------

FLIPPED = [condition("QuotaReserved", "False"), condition("Admitted")]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"conditions": None, "admission": None}, id="all wiped"),
        pytest.param({"conditions": None}, id="its conditions wiped"),
        pytest.param({"admission": None}, id="its admission taken out"),
        pytest.param({"admission": None, "conditions": FLIPPED}, id="unreserved, but admitted"),
        pytest.param({"conditions": FLIPPED}, id="its reservation denied"),
    ],
)
async def test_what_runs_keeps_its_quota_whatever_is_done_to_its_status(make_world: Make, change: JSON) -> None:
    """Not for a moment is it free for others; the status is put back, and that is told."""
    world = make_world(make_workload(cpus=7, status=reserved(cpus=7)))
    world.add(make_workload("b", cpus=7))
    before = world.found["status"]
    world.client.change(WORKLOADS, "ns/a", {"status": change})
    world.sync()
    assert (world.free(), world.heads()) == (3, ["ns/b"])

    await world.rest()

    assert world.found["status"] == before
    assert (world.recorder.reasons, world.recorder.warnings) == (["StatusRestored"], ["StatusRestored"])
    world.sync()
    assert world.free() == 3
    assert world.cache.held.lost_status("ns/a") is None


GIVEN_BACK = condition("QuotaReserved", "False", "Pending", "ended by another client")
EVICTED = condition("Evicted", "True", "Preempted", "to make room")


@pytest.mark.parametrize(
    ("left", "status", "writes"),
    [
        pytest.param([condition("Admitted", "False", "NoReservation")], {}, 1, id="the admission is left"),
        pytest.param([since_now("Admitted", reason="Admitted")], {}, 1, id="admission and Admitted are left"),
        pytest.param([condition("Admitted")], {"admission": None}, 1, id="only Admitted is left"),
        pytest.param([condition("Admitted", "False", "NoReservation"), condition("PodsReady")], {}, 1, id="PodsReady is left"),
        pytest.param([], {}, 1, id="Admitted was taken away"),
        pytest.param([condition("Admitted", "False", "NoReservation")], {"admission": None}, 0, id="nothing is left"),
        pytest.param([condition("Admitted", "False")], {"requeueState": {"requeueAt": "2026-01-01T01:00:00Z"}}, 1, id="it waits for a time"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("metadata", [pytest.param(OWNED, id="of a job"), pytest.param({}, id="made by hand")])
async def test_an_eviction_that_another_client_ended_is_over_whatever_it_left(
    make_world: Make, metadata: JSON, left: list[JSON], status: JSON, writes: int
) -> None:
    """Quota is free at once.  What is left is cleared in one write, and the reason that the client gave stays."""
    world = make_world(make_workload(cpus=7, metadata=metadata, status=reserved(cpus=7)))
    world.sync()
    world.client.change(WORKLOADS, "ns/a", {"status": {"conditions": [*reserved()["conditions"], EVICTED]}})
    world.sync()
    world.client.change(WORKLOADS, "ns/a", {"status": {"conditions": [GIVEN_BACK, EVICTED, *left], **status}})
    world.sync()
    assert world.free() == 10

    assert [await world.step() for _ in range(4)] == [writes, 0, 0, 0]

    assert "admission" not in world.found["status"]
    assert status_of(world.found, "QuotaReserved") == ("False", "Pending")
    if writes:
        assert status_of(world.found, "Admitted") == ("False", "NoReservation")
    assert world.recorder.reasons == []


async def test_what_does_not_run_yet_keeps_nothing(make_world: Make) -> None:
    """A reservation that waits for its checks and is wiped is gone: there are no pods."""
    waiting = reserved(condition("Admitted", "False", "UnsatisfiedAdmissionChecks"))
    world = make_world(make_workload(status=waiting))
    world.sync()
    world.client.change(WORKLOADS, "ns/a", {"status": {"admission": None, "conditions": None}})
    world.sync()

    assert (world.free(), world.heads()) == (10, ["ns/a"])


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"conditions": [condition("QuotaReserved", "False", "OnHold"), condition("Admitted", "False")]}, id="given back"),
        pytest.param({"conditions": [condition("Finished")]}, id="finished"),
    ],
)  # fmt: skip
async def test_a_sound_word_is_believed(make_world: Make, status: JSON) -> None:
    """Whoever gives a reservation back as it is to be given back has done so."""
    world = make_world(make_workload(status=reserved()))
    world.sync()
    world.client.change(WORKLOADS, "ns/a", {"status": {"admission": None, **status}})
    world.sync()

    assert world.free() == 10


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"conditions": [condition("QuotaReserved"), condition("Admitted")]}, id="reserved without an admission"),
        pytest.param({**reserved(), "conditions": FLIPPED}, id="an admission without a reservation"),
        pytest.param({"conditions": [condition("Admitted")]}, id="admitted without either"),
    ],
)  # fmt: skip
async def test_what_nobody_knows_to_have_run_is_tried_anew(make_world: Make, status: JSON) -> None:
    """A status that contradicts itself from the first look on, as after a restart, is none."""
    world = make_world(make_workload(status=status))
    await world.rest()

    assert status_of(world.found, "Admitted") == ("False", "NoReservation")
    assert "admission" not in world.found["status"]
    assert world.heads() == ["ns/a"]


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        pytest.param({"requeueState": {"count": 2**31 - 1}, "accumulatedPastExecutionTimeSeconds": 2**31 - 1}, {"maximumExecutionTimeSeconds": 1}, id="counts at their end"),
        pytest.param({"requeueState": {"count": 7, "requeueAt": "9999-12-31T23:59:59Z"}}, {}, id="the end of time"),
        pytest.param({"admissionChecks": [{**check("Retry", requeueAfterSeconds=2**31 - 1), "lastTransitionTime": "9999-12-31T00:00:00Z"}]}, {}, id="a retry beyond it"),
        pytest.param({"schedulingStats": {"evictions": [{"reason": f"r{i}", "underlyingCause": "", "count": 2**31 - 1} for i in range(256)]}}, {"maximumExecutionTimeSeconds": 1}, id="more counters than there may be"),
        pytest.param({"admissionChecks": [check("Ready", name=f"c{i}") for i in range(8)]}, {}, id="checks that nobody asked for"),
    ],
)  # fmt: skip
async def test_made_up_figures_stop_nobody(make_world: Make, status: JSON, spec: JSON) -> None:
    """No reconcile fails, and what is written stays within what the schema allows."""
    world = make_world(make_workload(status=reserved(**status), **spec), rules=RULES)
    await world.rest()
    await world.clock.advance(400)
    await world.rest()

    now = world.found["status"]
    assert now.get("requeueState", {}).get("count", 0) < 2**31
    assert now.get("accumulatedPastExecutionTimeSeconds", 0) < 2**31
    assert len(now.get("schedulingStats", {}).get("evictions", ())) <= 256
