"""Preemption over several cycles: victims are told once, what they leave is kept, and it always comes to an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from kqueue.errors import ServerError
from kqueue.model.pending import RequeueReason
from kqueue.scheduling.settings import LoopSettings
from kqueue.state import status
from tests.unit.controllers.builders import (
    JSON,
    condition,
    make_cluster_queue,
    make_local_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]
DOWN = ServerError("down", status=500)
NOW = "2026-01-01T00:00:00Z"
LOWER = {"withinClusterQueue": "LowerPriority"}
GATED = "kueue.x-k8s.io/admission-gated-by"


def by_priority(**metadata: Any) -> list[Any]:
    """ClusterQueue `team` of 10 cpu in which higher priority preempts, behind LocalQueues `main` and `urgent`."""
    queue = make_cluster_queue(preemption=LOWER)
    queue["metadata"] |= metadata
    return [(CLUSTER_QUEUES, queue), (LOCAL_QUEUES, make_local_queue("urgent"))]


def cohort(**spec: Any) -> list[Any]:
    """`team` with 6 cpu, which it takes back from whoever borrowed them, and `other` with 4, behind a LocalQueue."""
    return [
        (
            CLUSTER_QUEUES,
            make_cluster_queue(cpus=6, cohortName="all", preemption={"reclaimWithinCohort": "Any"}, **spec),
        ),
        (CLUSTER_QUEUES, make_cluster_queue("other", cpus=4, cohortName="all")),
        (LOCAL_QUEUES, make_local_queue("other", cluster_queue="other")),
    ]


def running(name: str, *, cpus: int, cluster_queue: str = "team", since: str = "", **more: Any) -> JSON:
    """A workload that runs, since a day ago unless told otherwise."""
    admitted = condition("Admitted", reason="Admitted")
    if since:
        admitted["lastTransitionTime"] = since
    return make_workload(name, cpus=cpus, status=reserved(admitted, cpus=cpus, queue=cluster_queue), **more)


def evictions_of(world: Scheduled, name: str) -> int:
    """How often the workload was told to leave."""
    return sum(
        call.key == f"ns/{name}"
        and any(c["type"] == "Evicted" and c["status"] == "True" for c in call.body["status"].get("conditions", ()))
        and "admission" not in call.body["status"]
        for call in world.client.writes(subresource="status")
    )


async def leave(world: Scheduled, *workloads: str) -> None:
    """Their pods are gone: they give their quota back and are queued again."""
    stamp = status.Stamp(world.clock.now())
    for name in workloads:
        await world.writer.write(
            f"ns/{name}",
            lambda w: status.unreserve(w, reason="PendingEvaluation", message="", stamp=stamp, requeued=True),
        )
    world.sync()


def take(world: Scheduled, queue: str) -> list[str]:
    """Keep the head of a ClusterQueue from coming to its turn."""
    return [item.key for _, item in world.queues.pop_heads(lambda name: name == queue)]


def is_admitted(world: Scheduled, name: str) -> bool:
    return status_of(world.workload(name), "Admitted")[0] == "True"


# --- gates -----------------------------------------------------------------------------------------------------------

GATES: JSON = {"preemptionGates": [{"name": "budget"}]}
OPEN = [{"name": "budget", "position": "Open", "lastTransitionTime": NOW}]


async def test_a_closed_gate_keeps_a_workload_from_preempting_until_it_is_opened(make: Make) -> None:
    """What it waits for is one patch; the gate's opening alone has it tried again; its reservation ends the block."""
    world = make(*by_priority(), settings=LoopSettings(preemption_gates=True))
    world.add(running("a", cpus=5), running("b", cpus=5), make_workload("high", cpus=8, priority=1, **GATES))

    assert not await world.cycle()
    assert status_of(world.workload("high"), "QuotaReserved") == ("False", "AdmissionGated")
    assert status_of(world.workload("high"), "BlockedOnPreemptionGates") == ("True", "PreemptionGated")
    assert "budget" in message_of(world.workload("high"), "BlockedOnPreemptionGates")
    assert len([call for call in world.client.writes() if call.key == "ns/high"]) == 1
    world.sync()
    assert world.queues.counts("team") == (0, 1)

    world.client.change(WORKLOADS, "ns/high", {"status": {"preemptionGates": OPEN}})
    world.sync()
    assert not await world.cycle()
    assert sorted(world.observed.preemptions) == [("a", "high"), ("b", "high")]

    await leave(world, "a", "b")
    await world.cycle()
    world.sync()
    assert is_admitted(world, "high")
    assert status_of(world.workload("high"), "BlockedOnPreemptionGates") == ("False", "QuotaReserved")


async def test_gates_that_nobody_asks_about_do_not_count(make: Make) -> None:
    """Without a feature that opens them they would hold workloads back for ever."""
    world = make(*by_priority())
    world.add(running("a", cpus=5), running("b", cpus=5), make_workload("high", cpus=8, priority=1, **GATES))

    assert not await world.cycle()
    assert sorted(world.observed.preemptions) == [("a", "high"), ("b", "high")]


# --- victims ---------------------------------------------------------------------------------------------------------


async def test_each_victim_is_told_once_by_one_patch(make: Make) -> None:
    """By whom and why; cycles before and after the watch's echo write nothing more."""
    world = make(*by_priority())
    world.add(running("a", cpus=5), running("b", cpus=5), make_workload("high", cpus=8, priority=1))

    for _ in range(3):
        assert not await world.cycle()
    world.sync()
    for _ in range(3):
        assert not await world.cycle()

    assert sorted(world.observed.preemptions) == [("a", "high"), ("b", "high")]
    assert [evictions_of(world, name) for name in ("a", "b")] == [1, 1]
    for name in ("a", "b"):
        assert status_of(world.workload(name), "Evicted") == ("True", "Preempted")
        assert status_of(world.workload(name), "Preempted") == ("True", "InClusterQueue")
        told = message_of(world.workload(name), "Evicted")
        assert all(fact in told for fact in ("ns/high", "uid-of-high", "from /team to /team"))
    assert status_of(world.workload("high"), "QuotaReserved") == ("False", "WaitingForPreemptedWorkloads")


async def test_who_waits_for_its_victims_is_told_once(make: Make) -> None:
    """Whom it waits for stands in the first message; the cycles until they have left write no other one."""
    world = make(*by_priority())
    world.add(running("a", cpus=5), running("b", cpus=5), make_workload("high", cpus=8, priority=1))
    assert not await world.cycle()
    told = message_of(world.workload("high"), "QuotaReserved")
    assert "ns/a" in told
    written = len(world.client.calls)

    await world.settle()
    for _ in range(3):
        assert not await world.cycle()

    assert message_of(world.workload("high"), "QuotaReserved") == told
    assert len(world.client.calls) == written


async def test_a_victim_holds_its_quota_until_it_has_left_and_is_queued_by_its_age(make: Make) -> None:
    """Told to leave it still counts; afterwards it waits at the place that its creation gives it."""
    world = make(*by_priority())
    world.add(
        running("old", cpus=6), make_workload("young", cpus=6, minute=9), make_workload("high", cpus=6, priority=1)
    )
    await world.cycle()
    world.sync()
    assert (world.free(), world.queues.is_known("ns/old")) == (4, False)

    await leave(world, "old")

    assert world.free() == 10
    assert status_of(world.workload("old"), "Requeued") == ("True", "Preempted")
    places = {name: world.queues.position(f"ns/{name}") for name in ("high", "old", "young")}
    assert places == {"high": (1, 3), "old": (2, 3), "young": (3, 3)}


@pytest.mark.parametrize("times", [1, 3])
async def test_a_preemption_that_could_not_be_written_is_tried_again(make: Make, times: int) -> None:
    """By itself, after a pause; an eviction that never was is no part of a loop."""
    world = make(*by_priority())
    world.client.fail(DOWN, key="ns/low", times=times)
    world.add(running("low", cpus=6), make_workload("high", cpus=6, priority=1))
    world.start()

    await world.until_quiet()

    assert world.observed.preemptions == [("low", "high")]
    assert world.observed.loops == []
    assert status_of(world.workload("low"), "Evicted") == ("True", "Preempted")


async def test_who_leaves_for_another_reason_is_waited_for_and_not_told(make: Make) -> None:
    """The watch has not told yet that it was evicted: nothing is written over that, now or later."""
    world = make(*by_priority())
    world.add(running("low", cpus=6), make_workload("high", cpus=6, priority=1))
    evicted = [*reserved(cpus=6)["conditions"], condition("Evicted", reason="Deactivated")]
    await world.writer.write("ns/low", lambda _: {"status": {"conditions": evicted}})

    for _ in range(3):
        await world.cycle()

    assert world.observed.preemptions == []
    assert status_of(world.workload("low"), "Evicted") == ("True", "Deactivated")


# --- what is kept ----------------------------------------------------------------------------------------------------


async def test_what_is_free_and_what_gets_free_is_kept_for_the_preemptor(make: Make) -> None:
    """In every cycle until it is admitted; what it does not need goes to others at once."""
    world = make(*cohort())
    world.add(running("low", cpus=5, queue="other", cluster_queue="other"), make_workload("high", cpus=6))
    await world.cycle()
    world.add(make_workload("large", queue="other", cpus=5), make_workload("small", queue="other", cpus=4, minute=1))
    assert [await world.cycle() for _ in range(3)] == [False, True, False]  # 5 of 10 are free, 1 is kept

    await leave(world, "low")
    assert await world.cycle()

    assert {name: is_admitted(world, name) for name in ("large", "small", "high")} == {
        "large": False,
        "small": True,
        "high": True,
    }


@pytest.mark.parametrize(
    "newcomer",
    [
        pytest.param({}, id="an equal one with a smaller uid"),
        pytest.param({"minute": 0}, id="an older one"),
        pytest.param({"priority": 2}, id="a higher one"),
    ],
)
async def test_who_waits_for_its_victims_gets_other_room_before_those_who_came_later(
    make: Make, newcomer: dict[str, Any]
) -> None:
    """It needs its victims' room no more: that goes to the next one, and nobody else has to leave."""
    world = make(*by_priority())
    world.add(running("low", cpus=5), running("top", cpus=5, priority=3))
    world.add(make_workload("b", cpus=5, priority=1, minute=1))
    await world.cycle()
    world.add(make_workload("a", **{"cpus": 5, "priority": 1, "minute": 1, **newcomer}))
    world.client.change(WORKLOADS, "ns/top", {"status": {"conditions": [condition("Finished")]}})
    world.sync()

    assert await world.cycle()
    assert not await world.cycle()
    assert [is_admitted(world, name) for name in ("a", "b")] == [False, True]

    await leave(world, "low")
    assert await world.cycle()
    assert [is_admitted(world, name) for name in ("a", "b")] == [True, True]
    assert world.observed.preemptions == [("low", "b")]


async def test_a_victim_comes_back_after_the_one_that_it_left_for(make: Make) -> None:
    """Though there is room for it before: it says for whom it waits, and is tried when that one is in."""
    world = make(*cohort())
    world.add(running("low", cpus=6, queue="other", cluster_queue="other"), make_workload("high", cpus=6))
    await world.cycle()
    world.client.change(WORKLOADS, "ns/low", {"spec": {"podSets": make_workload(cpus=2)["spec"]["podSets"]}})
    await leave(world, "low")
    assert take(world, "team") == ["ns/high"]

    assert not await world.cycle()

    assert status_of(world.workload("low"), "QuotaReserved") == ("False", "WaitingForQuota")
    assert "It was preempted for ns/high" in message_of(world.workload("low"), "QuotaReserved")


async def test_both_start_when_there_is_room_for_both(make: Make) -> None:
    """The whole circle: the victim leaves, the preemptor starts, ends, and the victim starts again."""
    world = make(*cohort())
    world.add(running("low", cpus=6, queue="other", cluster_queue="other"), make_workload("high", cpus=6))
    world.start()
    await world.until_quiet()
    await leave(world, "low")
    await world.until_quiet()
    assert (is_admitted(world, "high"), is_admitted(world, "low")) == (True, False)

    world.client.change(WORKLOADS, "ns/high", {"status": {"conditions": [condition("Finished")]}})
    world.sync()
    await world.until_quiet()

    assert is_admitted(world, "low")
    assert status_of(world.workload("low"), "Evicted") == ("False", "QuotaReserved")
    assert world.observed.loops == []


# --- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("echo", [False, True], ids=["before the watch told", "after the watch told"])
async def test_after_a_restart_the_claim_is_formed_anew_and_nobody_is_told_twice(make: Make, echo: bool) -> None:
    """What is kept lives in memory only; the victims on their way out show what it was."""
    world = make(*cohort())
    world.add(running("low", cpus=5, queue="other", cluster_queue="other"), make_workload("high", cpus=6))
    await world.cycle()
    if echo:
        world.sync()

    world.begin()
    world.add(make_workload("large", queue="other", cpus=5))
    for _ in range(2):
        assert not await world.cycle()
    await leave(world, "low")
    assert await world.cycle()

    assert (evictions_of(world, "low"), world.observed.preemptions) == (1, [("low", "high")])
    assert {name: is_admitted(world, name) for name in ("high", "large", "low")} == {
        "high": True,
        "large": False,
        "low": False,
    }


# --- loops -----------------------------------------------------------------------------------------------------------


async def test_preemption_that_goes_round_is_counted_and_broken(make: Make) -> None:
    """Its queue is stopped whenever the victim has left, so the victim starts again.  The second time is a loop, and
    there is no third.
    """
    world = make(*by_priority())
    world.add(running("low", cpus=6), make_workload("high", queue="urgent", cpus=6, priority=1))
    loops = []
    for _ in range(3):
        await world.cycle()
        world.sync()
        loops.append(list(world.observed.loops))
        world.client.put(LOCAL_QUEUES, make_local_queue("urgent", stopPolicy="Hold"))
        world.sync()
        if status_of(world.workload("low"), "Evicted")[0] == "True":
            await leave(world, "low")
            await world.cycle()
            world.sync()
        assert is_admitted(world, "low")
        world.client.put(LOCAL_QUEUES, make_local_queue("urgent"))
        world.sync()

    assert loops == [[], [("high", ("ns/low",))], [("high", ("ns/low",))]]
    assert (world.preemptions.loops, evictions_of(world, "low")) == (1, 2)
    assert status_of(world.workload("high"), "QuotaReserved") == ("False", "WaitingForQuota")


async def test_an_admission_of_the_preemptor_ends_the_count(make: Make) -> None:
    """Who got in twice by the same victim did not go round in circles."""
    world = make(*by_priority())
    world.add(running("low", cpus=6), make_workload("high", queue="urgent", cpus=6, priority=1))
    for _ in range(3):
        await world.cycle()
        world.sync()
        await leave(world, "low")
        assert await world.cycle()
        world.sync()
        assert is_admitted(world, "high")
        await world.writer.write(
            "ns/high",
            lambda w: status.evict(w, reason="NodeFailures", message="", stamp=status.Stamp(world.clock.now())),
        )
        world.client.put(LOCAL_QUEUES, make_local_queue("urgent", stopPolicy="Hold"))
        await leave(world, "high")
        await world.settle()
        assert await world.cycle()
        world.sync()
        world.client.put(LOCAL_QUEUES, make_local_queue("urgent"))
        world.sync()

    assert (world.observed.loops, world.preemptions.loops) == ([], 0)
    assert len(world.observed.preemptions) == 3


# --- a time to run ---------------------------------------------------------------------------------------------------


async def test_a_minimum_runtime_protects_and_ends(make: Make) -> None:
    """To the second, and nothing else has to happen then."""
    world = make(*by_priority(annotations={"kqueue.dev/minimum-runtime": "10m"}))
    world.add(running("low", cpus=6, since=NOW), make_workload("high", cpus=6, priority=1))
    world.start()

    await world.clock.advance(599)
    assert world.observed.preemptions == []
    assert status_of(world.workload("high"), "QuotaReserved") == ("False", "WaitingForQuota")

    await world.clock.advance(2)
    assert world.observed.preemptions == [("low", "high")]


async def test_who_is_being_admitted_has_its_minimum_runtime_before_it(make: Make) -> None:
    """Since when it runs is not written yet."""
    world = make(*by_priority(annotations={"kqueue.dev/minimum-runtime": "10m"}))
    world.client.open.clear()
    world.add(make_workload("low", cpus=6))
    assert await world.loop.cycle()
    world.add(make_workload("high", cpus=6, priority=1))
    assert not await world.loop.cycle()

    world.client.open.set()
    await world.loop.drain()

    assert (world.observed.preemptions, is_admitted(world, "low")) == ([], True)


async def test_who_is_on_its_way_out_anyway_is_not_protected(make: Make) -> None:
    """Waiting for it costs it nothing: what it leaves is kept for the preemptor."""
    world = make(*by_priority(annotations={"kqueue.dev/minimum-runtime": "10m"}))
    low = running("low", cpus=6, since=NOW)
    low["status"]["conditions"].append(condition("Evicted", reason="NodeFailures"))
    world.add(low, make_workload("high", cpus=6, priority=1))

    await world.cycle()

    assert status_of(world.workload("high"), "QuotaReserved") == ("False", "WaitingForPreemptedWorkloads")


# --- claims that end -------------------------------------------------------------------------------------------------


def changed(patch: JSON) -> Callable[[Scheduled], object]:
    return lambda world: world.client.change(WORKLOADS, "ns/high", patch)


def local_queue(**spec: Any) -> Callable[[Scheduled], object]:
    return lambda world: world.client.put(LOCAL_QUEUES, make_local_queue(**spec))


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda world: world.client.drop(WORKLOADS, "ns/high"), id="it is deleted"),
        pytest.param(changed({"spec": {"active": False}}), id="it is deactivated"),
        pytest.param(changed({"spec": {"queueName": "nowhere"}}), id="it is moved"),
        pytest.param(changed({"metadata": {"annotations": {GATED: "x"}}}), id="it is held back"),
        pytest.param(changed({"status": {"conditions": [condition("Finished")]}}), id="it has finished"),
        pytest.param(local_queue(stopPolicy="Hold"), id="its LocalQueue stops"),
        pytest.param(lambda world: world.client.drop(LOCAL_QUEUES, "ns/main"), id="its LocalQueue is gone"),
        pytest.param(
            lambda world: world.client.put(CLUSTER_QUEUES, cohort(stopPolicy="Hold")[0][1]), id="its ClusterQueue stops"
        ),
        pytest.param(
            lambda world: world.client.put(
                CLUSTER_QUEUES, cohort(namespaceSelector={"matchLabels": {"team": "a"}})[0][1]
            ),
            id="its ClusterQueue does not take its namespace any more",
        ),
    ],
)
async def test_a_preemptor_that_gives_up_frees_its_victims(make: Make, happens: Callable[[Scheduled], object]) -> None:
    """What was kept for it is free, and the victim, which has left, starts again by itself."""
    world = make(*cohort())
    world.add(running("low", cpus=6, queue="other", cluster_queue="other"), make_workload("high", cpus=6))
    await world.cycle()
    world.sync()
    assert take(world, "team") == ["ns/high"]
    world.start()
    await leave(world, "low")
    await world.until_quiet()
    assert not is_admitted(world, "low")

    world.queues.requeue("ns/high", RequeueReason.PENDING_PREEMPTION)  # which wakes nobody
    happens(world)
    world.sync()
    await world.until_quiet()

    assert is_admitted(world, "low")
    assert world.preemptions.claims(lambda _claim: True) == ()


async def test_in_a_strict_queue_a_claim_ends_when_another_one_comes_first(make: Make) -> None:
    """It would wait for the one before it, and that one for what is kept for it: the first takes what gets free."""
    world = make(*by_priority(), (CLUSTER_QUEUES, make_cluster_queue(queueingStrategy="StrictFIFO", preemption=LOWER)))
    world.add(running("low", cpus=6), make_workload("high", cpus=6, priority=1))
    await world.cycle()
    world.add(make_workload("higher", cpus=6, priority=2))
    await world.cycle()
    told = [status_of(world.workload(name), "QuotaReserved") for name in ("higher", "high")]

    await leave(world, "low")
    assert await world.cycle()

    assert (is_admitted(world, "higher"), is_admitted(world, "high")) == (True, False)
    assert told == [("False", "WaitingForPreemptedWorkloads"), ("False", "WaitingForQuota")]


# --- one at a time ---------------------------------------------------------------------------------------------------


async def test_nobody_is_admitted_before_the_pods_of_all_others_are_ready(make: Make) -> None:
    """Readiness alone has the next one tried, without anything being freed."""
    world = make(*by_priority(), settings=LoopSettings(block_admission=True))
    world.add(make_workload("first"), make_workload("second", minute=1))
    world.start()
    await world.until_quiet()
    world.sync()
    await world.until_quiet()
    assert [is_admitted(world, name) for name in ("first", "second")] == [True, False]
    assert status_of(world.workload("second"), "QuotaReserved") == ("False", "WaitingForPodsReady")

    stamp = status.Stamp(world.clock.now())
    await world.writer.write("ns/first", lambda w: status.pods_ready(w, ready=True, stamp=stamp))
    world.sync()
    await world.until_quiet()

    assert is_admitted(world, "second")


# --- rivals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guests", "result", "robbed"),
    [
        pytest.param([(3, 0), (3, 0)], "new_targets", 0, id="there is another one to preempt"),
        pytest.param([(6, 0)], "deferred_fit", 0, id="the one leaves enough for both"),
        pytest.param([(3, 0), (3, 9)], "skipped", 1, id="there is only one whom it may preempt"),
    ],
)
async def test_two_preemptors_of_a_cycle_want_the_same_victim(
    make: Make, guests: list[tuple[int, int]], result: str, robbed: int
) -> None:
    """The first gets it; what the second finds instead is counted, and nobody is told to leave twice."""
    reclaims: JSON = {"cohortName": "all", "preemption": {"reclaimWithinCohort": "LowerPriority"}}
    world = make(
        *((CLUSTER_QUEUES, make_cluster_queue(name, cpus=3, **reclaims)) for name in ("one", "two")),
        (CLUSTER_QUEUES, make_cluster_queue("guests", cpus=0, cohortName="all")),
        *((LOCAL_QUEUES, make_local_queue(name, cluster_queue=name)) for name in ("one", "two", "guests")),
    )
    for number, (cpus, priority) in enumerate(guests):
        world.add(running(f"v{number}", cpus=cpus, queue="guests", cluster_queue="guests", priority=priority))
    world.add(*(make_workload(name, queue=name, cpus=3, priority=1) for name in ("one", "two")))

    await world.cycle()

    assert world.observed.retargets == [("two", result)]
    assert world.observed.robbed == {"one": 0, "two": robbed}
    assert len(world.observed.preemptions) == len({victim for victim, _ in world.observed.preemptions})


async def test_quota_is_not_lent_that_the_next_workload_of_its_owner_reclaims(make: Make) -> None:
    """All three arrive at once; a borrower that came between the owner's two would have been evicted at once."""
    world = make(*cohort())
    for job in (
        make_workload("first", cpus=3, minute=1),
        make_workload("second", cpus=3, minute=2),
        make_workload("borrows", cpus=6, minute=0, queue="other"),
    ):
        world.client.put(WORKLOADS, job)
    world.sync()
    world.start()
    await world.until_quiet()

    assert world.observed.reservations == ["first", "second"]
    assert world.observed.preemptions == []
