"""Quota on the whole road: borrowed, taken back, fought over by priority and by share, queued for, and stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqueue.config import Timings
from kqueue.manager.process import running
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.road import KUEUE, Object, condition, controller, has, make_road
from tests.integration.teams import (
    FAIR,
    FAST,
    Plane,
    Teams,
    configuration,
    flags,
    make_priorities,
    make_teams,
    patch,
    post,
)
from tests.readings import page_of

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]


# --- cohorts ---------------------------------------------------------------------------------------------------------


async def test_what_one_queue_leaves_another_borrows_until_it_ends(either_plane: Plane) -> None:
    """A queue that may not take its quota back waits for the guest's end."""
    road = await make_teams(either_plane, {"a": 4, "b": 4})
    async with running(configuration(), flags(either_plane), timings=FAST):
        await road.submit("guest", queue="a", pods=3, gpus=2)
        await road.until_running(guest=3)
        await road.submit("owner", queue="b", pods=2, gpus=2)
        waiting = await road.until_workload("owner", "QuotaReserved", status="False", reason="WaitingForQuota")
        await road.cluster.request("DELETE", f"{road.jobs}/guest?propagationPolicy=Background")
        await road.until_running(owner=2)

    assert "nvidia.com/gpu" in waiting["message"]


async def test_a_queue_takes_back_what_it_lent(either_plane: Plane) -> None:
    """The guest's Job is suspended and its pods go, then the owner starts; when that is done the guest comes back."""
    road = await make_teams(either_plane, {"a": 4, "b": 4}, preemption={"reclaimWithinCohort": "Any"})
    async with running(configuration(), flags(either_plane), timings=FAST) as process:
        before = (await road.submit("guest", queue="a", pods=3, gpus=2))["spec"]["template"]["spec"]
        await road.until_running(guest=3)
        await road.submit("owner", queue="b", pods=2, gpus=2)
        await road.until_running(owner=2)
        left = await road.conditions_of("guest")
        stopped = (await road.cluster.get(f"{road.jobs}/guest"))["spec"]
        told = await road.events_of("guest", "Preempted")
        victims = await road.events_of("owner", "PreemptedWorkload")
        guest, owner = await road.workload_of("guest"), await road.workload_of("owner")
        counted = page_of(process.operator.metrics).decode()
        await road.cluster.request("DELETE", f"{road.jobs}/owner?propagationPolicy=Background")
        await road.until_running(guest=3)
        back = await road.conditions_of("guest")

    assert left["Evicted"] == ("True", "Preempted")
    assert left["Preempted"] == ("True", "InCohortReclamation")
    assert left["Requeued"] == ("True", "Preempted")
    assert stopped["suspend"] is True
    assert "nodeSelector" not in before
    assert "nodeSelector" not in stopped["template"]["spec"]
    assert (len(told), len(victims)) == (1, 1)
    job_uid = owner["metadata"]["ownerReferences"][0]["uid"]
    assert all(fact in told[0] for fact in (owner["metadata"]["uid"], job_uid, "/all/a", "/all/b"))
    assert all(fact in victims[0] for fact in (guest["metadata"]["name"], guest["metadata"]["uid"], "ClusterQueue a"))
    reclaimed = 'kueue_preempted_workloads_total{preempting_cluster_queue="b",reason="InCohortReclamation"'
    assert value_of(counted, reclaimed) == 1
    assert value_of(counted, 'kueue_evicted_workloads_total{cluster_queue="a"') == 1
    assert (back["Evicted"][0], back["Preempted"][0]) == ("False", "False")


def value_of(text: str, start: str) -> float:
    """The value of the one series that begins so."""
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return float(line.rsplit(" ", 1)[1])


async def test_shares_even_out(either_plane: Plane) -> None:
    """One queue has taken all that the cohort has; another one gets its half, and there it ends."""
    road = await make_teams(either_plane, {"a": 0, "b": 0, "pool": 8}, preemption={"reclaimWithinCohort": "Any"})
    async with running(configuration(FAIR), flags(either_plane), timings=FAST):
        for name in ("a1", "a2", "a3", "a4"):
            await road.submit(name, queue="a", pods=1, gpus=2)
        await road.until_running(a1=1, a2=1, a3=1, a4=1)
        for name in ("b1", "b2", "b3"):
            await road.submit(name, queue="b", pods=1, gpus=2)

        def evened_out(listed: Object) -> bool:
            held = [w["status"]["admission"]["clusterQueue"] for w in listed["items"] if has(w, "PodsReady")]
            return sorted(held) == ["a", "a", "b", "b"]

        await road.cluster.until(road.workloads, evened_out, what="two of each queue are ready")
        workloads = (await road.cluster.get(road.workloads))["items"]

    reasons = [condition(w, "Preempted")["reason"] for w in workloads if has(w, "Preempted")]
    assert reasons == ["InCohortFairSharing"] * 2


# --- priority --------------------------------------------------------------------------------------------------------


async def test_a_gang_that_needs_a_rack_makes_exactly_one_rack_leave(either_plane: Plane) -> None:
    """There is quota, but no free rack: the two small gangs that share one go, the large one in the other stays."""
    plane = either_plane
    made = await make_road(plane.cluster, shape=(1, 2, 4))
    road = Teams(made.cluster, made.namespace)
    await patch(plane, f"{KUEUE}/clusterqueues/team", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    await make_priorities(plane, low=1, middle=2, high=3)
    rack = {"queue": "main", "required": RACK_LABEL}
    async with running(configuration(), flags(plane), timings=FAST):
        await road.submit("large", pods=4, priority="middle", **rack)
        await road.until_running(large=4)
        for name in ("small-1", "small-2"):
            await road.submit(name, pods=2, priority="low", **rack)
        await road.until_running(**{"large": 4, "small-1": 2, "small-2": 2})
        await road.submit("urgent", pods=4, priority="high", **rack)
        await road.until_running(large=4, urgent=4)
        evicted = {name: await road.conditions_of(name) for name in ("small-1", "small-2", "large")}
        racks = [await road.racks_of(name) for name in ("large", "urgent")]

    assert [evicted[name].get("Preempted") for name in ("small-1", "small-2")] == [("True", "InClusterQueue")] * 2
    assert "Evicted" not in evicted["large"]
    assert len(racks[0] | racks[1]) == 2


GATED = "featureGates: {MultiKueueOrchestratedPreemption: true}\n"


async def test_nobody_is_preempted_through_a_closed_gate(either_plane: Plane) -> None:
    """It is told what it waits for, and soon where it stands; somebody opens the gate, and then others leave for it."""
    road = await make_teams(either_plane, {"a": 4}, preemption={"withinClusterQueue": "LowerPriority"})
    pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "2"}}}]}
    spec = {
        "queueName": "a",
        "priority": 9,
        "preemptionGates": [{"name": "budget"}],
        "podSets": [{"name": "main", "count": 2, "template": {"spec": {**pod, "restartPolicy": "Never"}}}],
    }
    high = f"{road.workloads}/high"
    timings = Timings(queue_flush_window=0.1, untried_told_after=0.5)
    async with running(configuration(GATED), flags(either_plane), timings=timings):
        await road.submit("low", queue="a", pods=2, gpus=2)
        await road.until_running(low=2)
        await post(either_plane, "workloads", "high", spec, namespace=road.namespace)
        blocked = await road.cluster.until(
            high,
            lambda w: has(w, "BlockedOnPreemptionGates") and "preemptionGates" in w["status"],
            what="a closed gate",
        )
        before = await road.conditions_of("low")
        now = blocked["status"]["preemptionGates"][0]
        await patch(either_plane, f"{high}/status", {"status": {"preemptionGates": [now | {"position": "Open"}]}})
        after = await road.cluster.until(high, lambda w: has(w, "QuotaReserved"), what="quota")
        left = await road.conditions_of("low")

    waits = condition(blocked, "QuotaReserved")
    assert (now["name"], now["position"]) == ("budget", "Closed")
    assert (waits["status"], waits["reason"]) == ("False", "AdmissionGated")
    assert "once these gates of it are open: budget" in waits["message"]
    assert "; see kqueue explain high -n " in waits["message"]
    assert "Evicted" not in before
    assert left["Preempted"] == ("True", "InClusterQueue")
    unblocked = condition(after, "BlockedOnPreemptionGates")
    assert (unblocked["status"], unblocked["reason"]) == ("False", "QuotaReserved")


# --- queues ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "overtaken"),
    [
        pytest.param("StrictFIFO", False, id="a-strict-head-blocks"),
        pytest.param("BestEffortFIFO", True, id="a-best-effort-head-is-passed"),
    ],
)
async def test_who_stands_behind_a_head_that_does_not_fit(either_plane: Plane, strategy: str, overtaken: bool) -> None:
    """The queue says; a workload of another queue, which came later still, is admitted in both cases."""
    road = await make_teams(either_plane, {"a": 8, "b": 2}, cohortName=None, queueingStrategy=strategy)
    await make_priorities(either_plane, high=1)  # two that are created within a second have no order but this
    async with running(configuration(), flags(either_plane), timings=FAST):
        await road.submit("first", queue="a", pods=3, gpus=2)
        await road.until_workload("first", "Admitted")
        await road.submit("head", queue="a", pods=2, gpus=2, priority="high")
        await road.until_workload("head", "QuotaReserved", status="False", reason="WaitingForQuota")
        await road.submit("behind", queue="a", pods=1, gpus=2)
        if overtaken:
            await road.until_workload("behind", "Admitted")
        await road.submit("elsewhere", queue="b", pods=1, gpus=2)
        await road.until_workload("elsewhere", "Admitted")
        admitted = (await road.conditions_of("behind")).get("Admitted", ("", ""))[0] == "True"
        await road.cluster.request("DELETE", f"{road.jobs}/first?propagationPolicy=Background")
        await road.until_running(head=2, behind=1, elsewhere=1)

    assert admitted is overtaken


STOPS = [
    pytest.param("clusterqueues/a", "Hold", None, id="a-held-ClusterQueue"),
    pytest.param("clusterqueues/a", "HoldAndDrain", "ClusterQueueStopped", id="a-drained-ClusterQueue"),
    pytest.param("namespaces/{}/localqueues/a", "Hold", None, id="a-held-LocalQueue"),
    pytest.param("namespaces/{}/localqueues/a", "HoldAndDrain", "LocalQueueStopped", id="a-drained-LocalQueue"),
]


@pytest.mark.parametrize(("queue", "policy", "evicts"), STOPS)
async def test_a_stopped_queue_starts_nobody_and_drains_if_told_to(
    either_plane: Plane, queue: str, policy: str, evicts: str | None
) -> None:
    """Who waits says so; who runs goes on, or is stopped and comes back with all others when the queue goes on."""
    road = await make_teams(either_plane, {"a": 8})
    path = f"{KUEUE}/{queue.format(road.namespace)}"
    async with running(configuration(), flags(either_plane), timings=FAST):
        await road.submit("before", queue="a", pods=2, gpus=2)
        await road.until_running(before=2)
        await patch(either_plane, path, {"spec": {"stopPolicy": policy}})
        await road.submit("after", queue="a", pods=1, gpus=2)
        waiting = await road.until_workload("after", "QuotaReserved", status="False", reason="Suspended")
        if evicts is not None:
            await road.until_workload("before", "QuotaReserved", status="False")
            await road.until_running()
        else:
            await road.until_running(before=2)
        stopped = await road.conditions_of("before")
        await patch(either_plane, path, {"spec": {"stopPolicy": "None"}})
        await road.until_running(before=2, after=1)
        back = await road.conditions_of("before")

    assert policy in waiting["message"]
    assert stopped.get("Evicted", (None, None))[1] == evicts
    assert back.get("Requeued", (None, None))[1] == (evicts and evicts.replace("Stopped", "Restarted"))


# --- one at a time, and killed on the way ----------------------------------------------------------------------------


async def test_a_gang_starts_when_the_pods_of_all_others_are_ready(either_plane: Plane) -> None:
    """Two that fit side by side start one after the other, and then run side by side."""
    road = await make_teams(either_plane, {"a": 8})
    blocked = configuration("waitForPodsReady: {blockAdmission: true}\n")
    async with running(blocked, flags(either_plane), timings=FAST):
        names = ["first", "second", "third"]
        for name in names:
            await road.submit(name, queue="a", pods=1, gpus=2)
        for name in names:
            await road.until_workload(name, "PodsReady")
        workloads = [await road.workload_of(name) for name in names]
        waited = await road.cluster.get(f"/apis/events.k8s.io/v1/namespaces/{road.namespace}/events")

    reserved = sorted(condition(w, "QuotaReserved")["lastTransitionTime"] for w in workloads)
    ready = sorted(condition(w, "PodsReady")["lastTransitionTime"] for w in workloads)
    assert all(before <= after for before, after in zip(ready, reserved[1:], strict=False))
    assert "WaitingForPodsReady" in {event["reason"] for event in waited["items"]}


async def test_a_controller_killed_while_victims_leave_tells_nobody_twice(either_plane: Plane, tmp_path: Path) -> None:
    """The next one finds them on their way out, and starts the one that they leave for."""
    road = await make_teams(either_plane, {"a": 4, "b": 4}, preemption={"reclaimWithinCohort": "Any"})
    logs = tmp_path / "controller.log"
    async with controller(either_plane.kubeconfig, logs) as process:
        for name in ("guest-1", "guest-2"):
            await road.submit(name, queue="a", pods=2, gpus=2)
        await road.until_running(**{"guest-1": 2, "guest-2": 2})
        await road.submit("owner", queue="b", pods=2, gpus=2)
        await road.cluster.until(
            road.workloads, lambda listed: any(has(w, "Evicted") for w in listed["items"]), what="a victim"
        )
        await process.kill()
    async with controller(either_plane.kubeconfig, logs):
        await road.until_workload("owner", "PodsReady")
        workloads = (await road.cluster.get(road.workloads))["items"]

    evictions = [w["status"]["schedulingStats"]["evictions"] for w in workloads if "schedulingStats" in w["status"]]
    assert evictions == [[{"reason": "Preempted", "underlyingCause": "", "count": 1}]], logs.read_text()[-4000:]
