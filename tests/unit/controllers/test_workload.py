"""A Workload's conditions and its queues: what blocks it is said, who must leave leaves, who may come back comes back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.controllers.life_cycle import LifeRules
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from kqueue.errors import ServerError
from kqueue.model.pending import LastTry, RequeueReason
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.turns import Turns
from kqueue.state.holding import Holding
from kqueue.state.readiness import ReadyRules
from tests.unit.controllers.builders import (
    JSON,
    OWNED,
    condition,
    make_cluster_queue,
    make_local_queue,
    make_workload,
    message_of,
    read,
    reserved,
    status_of,
)
from tests.unit.controllers.workload_world import Workloads

GATED = {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}}
NOT_YET = condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "Waiting for admission checks budget")
CHECKED = {"admissionChecks": [{"name": "budget"}]}
LISTED: Any = {
    "admissionChecks": [
        {"name": "budget", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
}


# --- what blocks it --------------------------------------------------------------------------------------------------


async def test_one_that_no_cycle_tries_is_told_so_in_time(make_world: Callable[..., Workloads]) -> None:
    """At first nothing is written, for most are tried at once; then, as behind a StrictFIFO head, why it waits."""
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    world = make_world(make_workload(metadata=created))
    world.sync()
    waits = await world.reconciler.reconcile("ns/a")
    assert (waits.requeue_after, "conditions" in world.found.get("status", {})) == (10, False)
    await world.clock.advance(10)

    assert await world.step() == 1

    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")
    assert message_of(world.found, "QuotaReserved") == "It is the next workload that ClusterQueue team tries"
    assert await world.step() == 0


async def test_where_conditions_are_wanted_at_once_the_first_look_writes_them(
    make_world: Callable[..., Workloads],
) -> None:
    """That it waits, and that it is not admitted."""
    world = make_world(make_workload(metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}), at_once=True)

    assert await world.step() == 1

    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")
    assert status_of(world.found, "Admitted") == ("False", "NoReservation")
    assert await world.step() == 0


async def test_words_do_not_share_the_lane_of_decisions(make_world: Callable[..., Workloads]) -> None:
    """Why a Workload waits is written in a lane of its own, its eviction in that of decisions."""
    waits, leaves = make_world(at_once=True), make_world(make_workload(status=reserved(), active=False))
    for world in (waits, leaves):
        await world.step()

    assert [call.lane for call in waits.client.writes()] == [Lane.WORDS]
    assert status_of(leaves.found, "Evicted")[0] == "True"
    assert [call.lane for call in leaves.client.writes()] == [Lane.STATUS]


FIRST = "2026-01-01T00:00:00Z"


def lined(make_world: Callable[..., Workloads], *before: JSON, **spec: Any) -> Workloads:
    """Workload `a` behind others, all just created."""
    world = make_world(
        make_workload(metadata={"creationTimestamp": FIRST}), (CLUSTER_QUEUES, make_cluster_queue(**spec))
    )
    world.add(*before)
    return world


@pytest.mark.parametrize(
    ("strategy", "cause"),
    [
        ("BestEffortFIFO", "Other workloads of ClusterQueue team come first, ns/high next"),
        ("StrictFIFO", "ClusterQueue team is StrictFIFO, and ns/high comes first"),
    ],
)
async def test_one_that_no_cycle_tries_names_the_workload_ahead(
    make_world: Callable[..., Workloads], strategy: str, cause: str
) -> None:
    """By one write: it is not written again when another one is ahead, so it has the time."""
    others = make_workload("b"), make_workload("high", priority=9), make_workload("low", priority=-1)
    world = lined(make_world, *others, queueingStrategy=strategy)
    await world.clock.advance(10)
    await world.step()
    assert said_of_quota(world) == f"{cause} (2026-01-01 00:00Z); see kqueue explain a -n ns"

    world.client.drop(WORKLOADS, "ns/high")
    await world.clock.advance(3600)
    assert await world.step() == 0
    assert (await world.reconciler.reconcile("ns/a")).requeue_after is None
    assert [reason for _, reason in world.recorder.events] == ["PendingEvaluation"]


async def test_a_workload_ahead_in_another_namespace_is_not_named(make_world: Callable[..., Workloads]) -> None:
    """Readers of the waiting Workload may not know it."""
    world, queue = lined(make_world, queueingStrategy="StrictFIFO"), make_local_queue()
    secret = make_workload("secret", priority=9)
    secret["metadata"]["namespace"] = queue["metadata"]["namespace"] = "other"
    world.client.put(LOCAL_QUEUES, queue)
    world.add(secret)
    await world.clock.advance(10)
    await world.step()

    assert "secret" not in said_of_quota(world)
    assert "a workload of ClusterQueue team comes first" in said_of_quota(world)


async def test_one_that_is_tried_just_now_says_so(make_world: Callable[..., Workloads]) -> None:
    world = lined(make_world)
    world.sync()
    assert len(world.queues.pop_heads(lambda _: True)) == 1
    await world.clock.advance(10)

    assert await world.step() == 1

    assert message_of(world.found, "QuotaReserved") == "It is the next workload that ClusterQueue team tries"


def said_of_quota(world: Workloads) -> str:
    """The whole message of condition QuotaReserved."""
    assert world.found is not None
    return next(str(c["message"]) for c in world.found["status"]["conditions"] if c["type"] == "QuotaReserved")


async def test_a_controller_that_comes_back_lets_the_old_ones_be_tried_first(
    make_world: Callable[..., Workloads],
) -> None:
    """Their age says nothing: nobody was there to try them."""
    world = make_world(make_workload(metadata={"creationTimestamp": "2025-01-01T00:00:00Z"}))

    assert await world.step() == 0


@pytest.mark.parametrize(
    ("workload", "setting", "reason", "says"),
    [
        pytest.param({"queue": ""}, None, "Misconfigured", "set the label kueue.x-k8s.io/queue-name", id="no queue is named"),
        pytest.param({"queue": "no"}, None, "Misconfigured", "LocalQueue no does not exist in namespace ns", id="no such LocalQueue"),
        pytest.param({}, (LOCAL_QUEUES, make_local_queue(stopPolicy="Hold")), "Suspended", "LocalQueue main is stopped", id="the LocalQueue is stopped"),
        pytest.param({}, (LOCAL_QUEUES, make_local_queue(cluster_queue="no")), "Misconfigured", "ClusterQueue no of LocalQueue main does not exist", id="no such ClusterQueue"),
        pytest.param({}, (CLUSTER_QUEUES, make_cluster_queue(stopPolicy="Hold")), "Suspended", "ClusterQueue team is stopped", id="the ClusterQueue is stopped"),
        pytest.param({}, (CLUSTER_QUEUES, make_cluster_queue(cpus={"no": 1})), "Suspended", "ResourceFlavor no not found", id="the ClusterQueue is not active"),
        pytest.param({}, (CLUSTER_QUEUES, make_cluster_queue(namespaceSelector={"matchLabels": {"a": "b"}})), "Misconfigured", "label it to match", id="the namespace does not match"),
        pytest.param({"cpus": "lots"}, None, "Misconfigured", "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]", id="its requests cannot be read"),
        pytest.param({"metadata": GATED}, None, "AdmissionGated", "example.com/budget", id="another controller holds it back"),
    ],
)  # fmt: skip
async def test_what_blocks_a_waiting_workload_is_said_once(
    make_world: Callable[..., Workloads], workload: JSON, setting: Any, reason: str, says: str
) -> None:
    """Reason and remedy by one write and one event, a warning unless it is wanted; the next look writes nothing."""
    world = make_world(make_workload(**workload), *([setting] if setting is not None else []))

    assert await world.step() == 1

    assert status_of(world.found, "QuotaReserved") == ("False", reason)
    assert status_of(world.found, "Admitted") == ("False", "NoReservation")
    assert says in message_of(world.found, "QuotaReserved")
    warnings = [] if reason == "AdmissionGated" else [reason]
    assert (world.recorder.events, world.recorder.warnings) == ([("Workload a", reason)], warnings)
    assert await world.step() == 0


@pytest.mark.parametrize(
    ("workload", "namespaces"),
    [
        pytest.param(make_workload(), {"ns": {}}, id="nothing blocks it"),
        pytest.param(make_workload(metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": ""}}), {"ns": {}}, id="an empty gate is none"),
        pytest.param(make_workload(status={"conditions": [condition("QuotaReserved", "False", "WaitingForQuota", "free 3")]}), {"ns": {}}, id="the scheduler has said why"),
        pytest.param(make_workload(status={"conditions": [condition("QuotaReserved", "False", "OnHold")]}, queue="no"), {"ns": {}}, id="its job keeps it on hold"),
        pytest.param(make_workload(status=reserved()), {"ns": {}}, id="it runs"),
        pytest.param(make_workload(status=reserved()), {}, id="it runs and its namespace is going"),
        pytest.param(make_workload(status={"conditions": [condition("Finished")]}, queue="no"), {"ns": {}}, id="it has finished"),
        pytest.param(make_workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}, queue="no"), {"ns": {}}, id="it is going"),
    ],
)  # fmt: skip
async def test_what_needs_no_word_gets_none(
    make_world: Callable[..., Workloads], workload: JSON, namespaces: dict[str, dict[str, str]]
) -> None:
    """No write and no event."""
    world = make_world(workload)
    world.namespaces.clear()
    world.namespaces.update(namespaces)

    assert (await world.step(), world.recorder.events) == (0, [])


async def test_a_workload_that_is_gone_is_nobodys(make_world: Callable[..., Workloads]) -> None:
    """A late reconcile of a deleted Workload does nothing."""
    world = make_world()
    world.client.drop(WORKLOADS, "ns/a")

    assert await world.step() == 0


async def test_a_reason_that_nobody_gives_is_taken_back(make_world: Callable[..., Workloads]) -> None:
    """Whoever wrote it: the workload waits for its try, and says so."""
    theirs = condition("QuotaReserved", "False", "ByHand")
    world = make_world(make_workload(status={"conditions": [theirs]}))
    await world.rest()

    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")


async def test_a_missing_namespace_is_said(make_world: Callable[..., Workloads]) -> None:
    """It may be deleted while its objects are still there."""
    world = make_world()
    world.namespaces.clear()

    await world.step()

    assert message_of(world.found, "QuotaReserved") == "Namespace ns does not exist"


async def test_a_reason_is_taken_back_when_its_cause_is_gone(make_world: Callable[..., Workloads]) -> None:
    """The workload is to be evaluated; a scheduler's reason after that is not touched."""
    world = make_world(make_workload(), (LOCAL_QUEUES, make_local_queue(stopPolicy="Hold")))
    await world.step()
    world.client.put(LOCAL_QUEUES, make_local_queue())

    assert await world.step() == 1

    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")
    assert await world.step() == 0


@pytest.mark.parametrize(
    ("before", "want"),
    [
        pytest.param(None, ("False", "WaitingForQuota"), id="nothing has been said of it"),
        pytest.param("PendingEvaluation", ("False", "WaitingForQuota"), id="it has not been tried"),
        pytest.param("TopologyPlacementFailed", ("False", "TopologyPlacementFailed"), id="it has been tried itself"),
    ],
)
async def test_an_equal_that_was_parked_untried_says_what_the_tried_one_says(
    make_world: Callable[..., Workloads], before: str | None, want: tuple[str, str]
) -> None:
    """A workload that waits for the same says why, though no cycle has looked at it."""
    conditions = [condition("QuotaReserved", "False", before)] if before is not None else []
    world = make_world(make_workload(minute=1, status={"conditions": conditions}))
    world.add(make_workload("tried"))
    [(_, head)] = world.queues.pop_heads(lambda _: True)
    assert head.key == "ns/tried"
    world.queues.requeue(head.key, RequeueReason.NO_FIT, verdict=LastTry("WaitingForQuota", "free 3"))
    assert list(world.reconciler.explainer.pending_notifications.among(["ns/a"])) == (
        ["ns/a"] if want[1] != before else []
    )

    await world.rest()

    assert status_of(world.found, "QuotaReserved") == want
    assert (message_of(world.found, "QuotaReserved") == "free 3") is (want[1] != before)
    world.sync()
    assert list(world.reconciler.explainer.pending_notifications.among(["ns/a"])) == []


async def test_under_load_the_first_word_of_an_equal_waits_for_its_turn(make_world: Callable[..., Workloads]) -> None:
    """It is written when its turn comes, and not before, however often the workload is looked at."""
    world = make_world(make_workload(minute=1))
    world.reconciler.explainer._turns = turns = Turns(world.clock, lambda: 0.0)
    while turns.take() == 0:
        pass
    world.add(make_workload("tried"))
    [(_, head)] = world.queues.pop_heads(lambda _: True)
    world.queues.requeue(head.key, RequeueReason.NO_FIT, verdict=LastTry("WaitingForQuota", "free 3"))

    waits = []
    for _ in range(3):
        world.sync()
        waits.append((await world.reconciler.reconcile("ns/a")).requeue_after)
    assert status_of(world.found, "QuotaReserved") == ("", "")
    assert 0 < (waits[0] or 0) <= 0.2
    assert waits == [waits[0]] * 3

    await world.clock.advance(0.2)
    await world.rest()
    assert status_of(world.found, "QuotaReserved") == ("False", "WaitingForQuota")


async def test_nobody_waits_for_a_turn_when_the_load_has_ended(make_world: Callable[..., Workloads]) -> None:
    """Turns of thousands lie minutes apart.  When no decisions are written any more, the reason is written within half
    a minute, and not only at the turn.
    """
    world, quiet_for = make_world(make_workload(minute=1), tell_after=60.0), 0.0
    world.reconciler.explainer._turns = turns = Turns(world.clock, lambda: quiet_for, apart=100.0)
    while turns.take() == 0:
        pass
    world.add(make_workload("tried"))
    [(_, head)] = world.queues.pop_heads(lambda _: True)
    world.queues.requeue(head.key, RequeueReason.NO_FIT, verdict=LastTry("WaitingForQuota", "free 3"))

    world.sync()
    first = (await world.reconciler.reconcile("ns/a")).requeue_after
    assert status_of(world.found, "QuotaReserved") == ("", "")
    assert first == 30.0

    quiet_for = 5.0
    await world.reconciler.reconcile("ns/a")
    assert status_of(world.found, "QuotaReserved") == ("False", "WaitingForQuota")


GATE: JSON = {"preemptionGates": [{"name": "g"}]}
BLOCKED_ON_GATE = [
    condition("QuotaReserved", "False", "AdmissionGated", "g is closed"),
    condition("BlockedOnPreemptionGates", reason="PreemptionGated"),
]


def gate_state(position: str) -> JSON:
    return {"name": "g", "position": position, "lastTransitionTime": FIRST}


@pytest.mark.parametrize(
    ("position", "want"),
    [
        pytest.param("Closed", "AdmissionGated", id="while it is closed"),
        pytest.param("Open", "PendingEvaluation", id="until it is opened, and a try is to come"),
    ],
)
async def test_what_a_try_has_said_of_a_closed_gate_stands(
    make_world: Callable[..., Workloads], position: str, want: str
) -> None:
    """It is not taken for the word of a user who holds the workload back."""
    world = make_world(
        make_workload(status={"conditions": BLOCKED_ON_GATE, "preemptionGates": [gate_state(position)]}, **GATE)
    )
    await world.rest()

    assert status_of(world.found, "QuotaReserved") == ("False", want)


@pytest.mark.parametrize(
    ("keeps_gates", "positions"),
    [pytest.param(True, {"g": "Closed"}, id="they count"), pytest.param(False, {}, id="nobody asks about them")],
)
async def test_gates_have_a_state_where_they_count(
    make_world: Callable[..., Workloads], keeps_gates: bool, positions: dict[str, str]
) -> None:
    """A new one is closed, quietly."""
    world = make_world(make_workload(**GATE), rules=LifeRules(keeps_gates=keeps_gates))
    await world.rest()

    assert {gate["name"]: gate["position"] for gate in world.found["status"].get("preemptionGates", ())} == positions
    assert world.recorder.events == []


async def test_one_that_is_being_admitted_is_not_told_that_it_waits(make_world: Callable[..., Workloads]) -> None:
    """Between the decision and the watch's word on it nothing is written over it."""
    world = make_world(make_workload(), (LOCAL_QUEUES, make_local_queue(stopPolicy="Hold")))
    world.sync()
    obj: wire.Workload = read(wire.Workload, make_workload(status=reserved()))
    admission = model.admission(obj)
    assert admission is not None
    holding = Holding(
        key="ns/a",
        uid="uid-of-a",
        local_queue="ns/main",
        admission=admission,
        requests={},
        admitted=False,
        assumed=True,
    )
    with world.cache.held.assumed(holding):
        assert await world.step() == 0


async def test_a_write_that_fails_is_made_by_the_next_look(make_world: Callable[..., Workloads]) -> None:
    """The failure is the controller's, which comes again; no event tells what did not happen."""
    world = make_world(make_workload(queue="no"))
    world.client.fail(ServerError("down", status=500))
    with pytest.raises(ServerError):
        await world.step()
    assert world.recorder.events == []

    assert await world.step() == 1


# --- who must leave --------------------------------------------------------------------------------------------------


def stopped(which: str, policy: str) -> tuple[ResourceType, JSON]:
    if which == "LocalQueue":
        return LOCAL_QUEUES, make_local_queue(stopPolicy=policy)
    return CLUSTER_QUEUES, make_cluster_queue(stopPolicy=policy, admissionChecksStrategy=CHECKED)


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
@pytest.mark.parametrize("which", ["LocalQueue", "ClusterQueue"])
async def test_a_stopped_queue_takes_reservations_back(
    make_world: Callable[..., Workloads], which: str, policy: str
) -> None:
    """What is reserved and not admitted gives its quota back at once; it is not an eviction."""
    world = make_world(
        make_workload(status=reserved(NOT_YET, **LISTED)), stopped("ClusterQueue", "None"), stopped(which, policy)
    )
    world.check()

    await world.rest()

    assert "admission" not in world.found["status"]
    assert status_of(world.found, "QuotaReserved") == ("False", "Suspended")
    assert f"{which} {'main' if which == 'LocalQueue' else 'team'} is stopped" in message_of(
        world.found, "QuotaReserved"
    )
    assert (status_of(world.found, "Evicted"), status_of(world.found, "Requeued")) == (("", ""), ("", ""))
    world.sync()
    assert world.free() == 10


@pytest.mark.parametrize("which", ["LocalQueue", "ClusterQueue"])
async def test_hold_and_drain_evicts_what_runs(make_world: Callable[..., Workloads], which: str) -> None:
    """Evicted once, counted, told; the quota is held until its job has stopped."""
    world = make_world(make_workload(metadata=OWNED, status=reserved()), stopped(which, "HoldAndDrain"))

    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", f"{which}Stopped")
    assert world.found["status"]["schedulingStats"]["evictions"][0]["count"] == 1
    assert status_of(world.found, "QuotaReserved")[0] == "True"
    assert (world.recorder.reasons, world.recorder.warnings) == ([f"EvictedDueTo{which}Stopped"], [])
    assert world.free() == 9


@pytest.mark.parametrize("which", ["LocalQueue", "ClusterQueue"])
async def test_hold_leaves_alone_what_runs(make_world: Callable[..., Workloads], which: str) -> None:
    """No new admissions, that is all."""
    world = make_world(
        make_workload(status=reserved(**LISTED)), stopped("ClusterQueue", "None"), stopped(which, "Hold")
    )

    assert await world.step() == 0


async def test_a_local_queue_on_hold_does_not_keep_its_cluster_queue_from_being_drained(
    make_world: Callable[..., Workloads],
) -> None:
    """The LocalQueue lets run what runs, the ClusterQueue does not: it goes."""
    world = make_world(
        make_workload(status=reserved()), stopped("LocalQueue", "Hold"), stopped("ClusterQueue", "HoldAndDrain")
    )

    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "ClusterQueueStopped")


GOING = {"finalizers": ["theirs"], "deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("local", "cluster", "reason", "says"),
    [
        pytest.param("going", "Hold", "Misconfigured", "LocalQueue main is being deleted", id="the LocalQueue goes, the ClusterQueue is stopped"),
        pytest.param("gone", "Hold", "Misconfigured", "LocalQueue main does not exist", id="the LocalQueue is gone, the ClusterQueue is stopped"),
        pytest.param("Hold", "gone", "Suspended", "LocalQueue main is stopped", id="the LocalQueue is stopped, the ClusterQueue is gone"),
        pytest.param("None", "going", "Misconfigured", "ClusterQueue team is being deleted", id="the ClusterQueue goes"),
    ],
)  # fmt: skip
async def test_a_reservation_is_taken_back_for_the_local_queue_first(
    make_world: Callable[..., Workloads], local: str, cluster: str, reason: str, says: str
) -> None:
    """What is wrong with the ClusterQueue is said only when all is well with the LocalQueue."""
    world = make_world(make_workload(status=reserved(NOT_YET, **LISTED)), stopped("ClusterQueue", "None"))
    world.check()
    world.sync()
    for which, key, state in ((LOCAL_QUEUES, "ns/main", local), (CLUSTER_QUEUES, "team", cluster)):
        if state == "gone":
            world.client.drop(which, key)
        else:
            change = {"metadata": GOING} if state == "going" else {"spec": {"stopPolicy": state}}
            world.client.change(which, key, change)

    assert await world.step() == 1

    assert status_of(world.found, "QuotaReserved") == ("False", reason)
    assert says in message_of(world.found, "QuotaReserved")


async def test_the_local_queue_is_looked_at_first(make_world: Callable[..., Workloads]) -> None:
    """Its stop policy counts when both are stopped."""
    world = make_world(
        make_workload(status=reserved()), stopped("LocalQueue", "HoldAndDrain"), stopped("ClusterQueue", "HoldAndDrain")
    )

    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "LocalQueueStopped")


async def test_the_queue_that_admitted_it_counts(make_world: Callable[..., Workloads]) -> None:
    """A LocalQueue that points elsewhere by now does not save its workloads from being drained."""
    world = make_world(
        make_workload(status=reserved()),
        stopped("ClusterQueue", "HoldAndDrain"),
        (CLUSTER_QUEUES, make_cluster_queue("other")),
        (LOCAL_QUEUES, make_local_queue(cluster_queue="other")),
    )

    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "ClusterQueueStopped")


@pytest.mark.parametrize("which", ["LocalQueue", "ClusterQueue", "going"])
@pytest.mark.parametrize("admitted", [True, False], ids=["it runs", "it is reserved"])
async def test_a_reservation_in_a_queue_that_is_gone_is_taken_back(
    make_world: Callable[..., Workloads], admitted: bool, which: str
) -> None:
    """What runs goes on; what is not admitted yet gives its quota back and says what is missing."""
    world = make_world(
        make_workload(status=reserved(**LISTED) if admitted else reserved(NOT_YET, **LISTED)),
        stopped("ClusterQueue", "None"),
    )
    world.check()
    world.sync()
    if which == "LocalQueue":
        world.client.drop(LOCAL_QUEUES, "ns/main")
    elif which == "ClusterQueue":
        world.client.drop(CLUSTER_QUEUES, "team")
    else:
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}
        world.client.change(CLUSTER_QUEUES, "team", {"metadata": leaving})

    assert await world.step() == (0 if admitted else 1)

    want = ("True", "QuotaReserved") if admitted else ("False", "Misconfigured")
    assert status_of(world.found, "QuotaReserved") == want
    assert ("admission" in world.found["status"]) is admitted


@pytest.mark.parametrize("local", [True, False], ids=["behind a LocalQueue", "without a LocalQueue"])
async def test_a_reservation_for_a_queue_that_does_not_exist_yet_is_left_alone(
    make_world: Callable[..., Workloads], local: bool
) -> None:
    """Another client wrote it, and may create the queue later; then the reservation is judged by it."""
    later = make_cluster_queue("later", admissionChecksStrategy=CHECKED)
    world = make_world(make_workload(queue="side", status=reserved(condition("Admitted", "False"), queue="later")))
    if local:
        await world.client.create(LOCAL_QUEUES, make_local_queue("side", cluster_queue="later"))
    assert [await world.step() for _ in range(3)] == [0, 0, 0]
    assert world.found["status"]["admission"]["clusterQueue"] == "later"

    world.check()
    await world.client.create(CLUSTER_QUEUES, later)
    assert await world.step() == 1
    await world.rest()

    if local:
        assert status_of(world.found, "Admitted") == ("False", "UnsatisfiedAdmissionChecks")
        assert [c["name"] for c in world.found["status"]["admissionChecks"]] == ["budget"]
    else:
        assert status_of(world.found, "QuotaReserved") == ("False", "Misconfigured")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"metadata": GATED}, ("False", "AdmissionGated"), id="gated"),
        pytest.param({"status": {"admission": None}}, ("False", "PendingEvaluation"), id="its admission taken out"),
        pytest.param({"status": reserved(condition("Admitted", "False"))}, ("True", "QuotaReserved"), id="moved to another queue"),
    ],
)  # fmt: skip
async def test_such_a_reservation_is_judged_when_the_workload_changes(
    make_world: Callable[..., Workloads], change: JSON, want: tuple[str, str]
) -> None:
    """What another client or its user changes is followed as with any other reservation."""
    world = make_world(make_workload(status=reserved(condition("Admitted", "False"), queue="later")))
    await world.rest()
    world.client.change(WORKLOADS, "ns/a", change)
    await world.rest()

    assert status_of(world.found, "QuotaReserved") == want


# --- its user switches it off and on ---------------------------------------------------------------------------------


async def test_a_deactivated_workload_that_runs_is_evicted(make_world: Callable[..., Workloads]) -> None:
    """Its user hears of it once."""
    world = make_world(make_workload(metadata=OWNED, active=False, status=reserved()))

    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "Deactivated")
    assert status_of(world.found, "QuotaReserved")[0] == "True"
    assert world.recorder.reasons == ["EvictedDueToDeactivated"]


async def test_a_deactivated_workload_that_waits_is_marked_quietly(make_world: Callable[..., Workloads]) -> None:
    """It held nothing, so nobody is told of an eviction; why it waits is said."""
    world = make_world(make_workload(active=False))

    await world.rest()

    assert status_of(world.found, "Evicted") == ("True", "Deactivated")
    assert status_of(world.found, "QuotaReserved") == ("False", "Deactivated")
    assert world.recorder.reasons == ["Deactivated"]


@pytest.mark.parametrize(
    ("evicted", "fix", "back"),
    [
        pytest.param("Deactivated", {}, "Reactivated", id="its user has activated it"),
        pytest.param("LocalQueueStopped", {}, "LocalQueueRestarted", id="its LocalQueue runs again"),
        pytest.param("ClusterQueueStopped", {}, "ClusterQueueRestarted", id="its ClusterQueue runs again"),
        pytest.param("DeactivatedDueToAdmissionCheck", {}, "Reactivated", id="its user has activated it after us"),
        pytest.param("PodsReadyTimeout", {}, "BackoffFinished", id="its pause is over"),
        pytest.param("SomebodysOwnIdea", {}, "BackoffFinished", id="nobody knows the cause"),
        pytest.param("Inadmissible", {}, None, id="its claims are refused"),
        pytest.param("Deactivated", {"active": False}, None, id="it is still inactive"),
        pytest.param("LocalQueueStopped", {"setting": stopped("LocalQueue", "Hold")}, None, id="its LocalQueue is still stopped"),
        pytest.param("ClusterQueueStopped", {"setting": stopped("ClusterQueue", "HoldAndDrain")}, None, id="its ClusterQueue is still stopped"),
    ],
)  # fmt: skip
async def test_an_evicted_workload_comes_back_when_the_cause_is_gone(
    make_world: Callable[..., Workloads], evicted: str, fix: JSON, back: str | None
) -> None:
    """Requeued turns True, and it stands in its queue again; not before."""
    conditions = [
        condition("QuotaReserved", "False", "PendingEvaluation"),
        condition("Evicted", "True", evicted),
        condition("Requeued", "False", evicted),
    ]
    workload = make_workload(active=fix.get("active", True), status={"conditions": conditions})
    world = make_world(workload, *([fix["setting"]] if "setting" in fix else []))

    await world.rest()

    assert status_of(world.found, "Requeued") == (("True", back) if back else ("False", evicted))
    world.sync()
    heads = [item.key for _, item in world.queues.pop_heads(lambda _: True)]
    assert heads == (["ns/a"] if back else [])


# --- checks ----------------------------------------------------------------------------------------------------------


def state(name: str, state: str) -> JSON:
    return {"name": name, "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("checks", "admitted"),
    [
        pytest.param([state("budget", "Ready")], ("True", "Admitted"), id="all are ready"),
        pytest.param([state("budget", "Ready"), state("other", "Pending")], ("True", "Admitted"), id="the queue does not ask for one that is pending"),
        pytest.param([state("budget", "Pending")], ("False", "UnsatisfiedAdmissionChecks"), id="it is pending"),
        pytest.param([], ("False", "UnsatisfiedAdmissionChecks"), id="it was not listed yet"),
    ],
)  # fmt: skip
async def test_admission_waits_for_every_check(
    make_world: Callable[..., Workloads], checks: list[JSON], admitted: tuple[str, str]
) -> None:
    """Reserved is admitted when every check of the queue is there and ready; said once."""
    status = reserved(condition("PodsReady", "False"), admissionChecks=checks)
    world = make_world(make_workload(status=status), stopped("ClusterQueue", "None"))
    world.check()

    await world.rest()

    assert status_of(world.found, "Admitted") == admitted
    assert world.recorder.reasons == ([admitted[1]] if admitted[1] else [])


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        pytest.param(
            LifeRules(ready=ReadyRules(timedelta(minutes=5), timedelta(0))), ("False", "WaitForStart"), id="on"
        ),
        pytest.param(LifeRules(), None, id="off"),
    ],
)
async def test_an_admission_says_whether_pods_are_waited_for(
    make_world: Callable[..., Workloads], rules: LifeRules, want: tuple[str, str] | None
) -> None:
    """A reservation by another client gets PodsReady in the write that admits it."""
    world = make_world(make_workload(status=reserved(condition("Admitted", "False"))), rules=rules)

    assert [await world.step(), await world.step()] == [1, 0]

    found = {c["type"]: (c["status"], c["reason"]) for c in world.found["status"]["conditions"]}
    assert found.get("PodsReady") == want


async def test_an_admission_without_checks_is_completed(make_world: Callable[..., Workloads]) -> None:
    """The reservation was written while the queue had checks; it has none by now."""
    world = make_world(make_workload(status=reserved(condition("PodsReady", "False"))))

    await world.rest()

    assert status_of(world.found, "Admitted") == ("True", "Admitted")
    assert world.recorder.warnings == []


async def test_a_flavor_that_comes_unblocks(make_world: Callable[..., Workloads]) -> None:
    """Whatever order objects are created in: the reason goes with its cause."""
    world = make_world(make_workload())
    world.client.drop(RESOURCE_FLAVORS, "default")
    await world.rest()
    assert status_of(world.found, "QuotaReserved") == ("False", "Suspended")

    world.client.put(RESOURCE_FLAVORS, {"metadata": {"name": "default"}, "spec": {}})
    await world.rest()

    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")
