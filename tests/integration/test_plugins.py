"""Plugins in a whole cluster: the order of their calls, releases by a plugin, permits, and orders of queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from kqueue.config import Configuration
from kqueue.core.decision import Admit
from kqueue.core.plugins import Approve, Deny, Permission, PodRef, ReleasePatch, WaitFor
from kqueue.manager import plugins as loading
from kqueue.manager.process import Flags, RunningOperator, running
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import Cluster
from tests.integration.polling import next_second
from tests.integration.road import KUEUE, Object, condition, make_road, queue_objects
from tests.integration.teams import (
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
from tests.integration.test_attacks import with_webhooks
from tests.integration.test_gangs import NAME, QUORUM, LabelledGangs
from tests.unit.toys.toy_plugin import ToyPlugin

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

MADE: dict[str, Any] = {}
"""The plugins of the test that runs, by name; the entry points of the tests return them."""
PROFILE = "kqueue.dev/profile"


def first(_args: Mapping[str, Any]) -> Any:
    return MADE["first"]


def second(_args: Mapping[str, Any]) -> Any:
    return MADE["second"]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with two plugins is installed."""

    def found(group: str) -> list[EntryPoint]:
        return [EntryPoint(name, f"{__name__}:{name}", group) for name in ("first", "second")]

    monkeypatch.setattr(loading, "entry_points", found)


def with_plugins(**plugins: Any) -> Callable[[str], Configuration]:
    """The configuration that enables these plugins, and has this profile `night`."""
    MADE.clear()
    MADE.update(plugins)
    enabled = ", ".join(f"{{name: {name}}}" for name in plugins)
    return lambda profile: configuration(f"plugins:\n  enabled: [{enabled}]\n  profiles: [{profile}]\n")


@asynccontextmanager
async def lead(plane: Plane, config: Configuration, where: Flags | None = None) -> AsyncIterator[RunningOperator]:
    async with running(config, where or flags(plane), timings=FAST) as process:
        await process.operator.ready.wait()
        yield process


async def use_profile(cluster: Cluster, queue: str, profile: str) -> None:
    change = {"metadata": {"annotations": {PROFILE: profile}}}
    await cluster.request("PATCH", f"{KUEUE}/clusterqueues/{queue}", change, content_type=MERGE_PATCH)


async def hold(cluster: Cluster, *queues: str, policy: str | None = "Hold") -> None:
    """Stop queues, each with its own quota only; without a policy they go on."""
    for queue in queues:
        change = {"spec": {"stopPolicy": policy, "cohortName": None}}
        await cluster.request("PATCH", f"{KUEUE}/clusterqueues/{queue}", change, content_type=MERGE_PATCH)


# --- every point -----------------------------------------------------------------------------------------------------

ALL_POINTS = """
{name: night, order: [first, timestamp], screen: [first], filter: [first], victims: [first], score: [first],
   reserve: [first], beforeRelease: [first], release: [first], afterRelease: [first]}
"""


@pytest.mark.mechanism("3.17")
async def test_the_points_are_reached_in_order_g5_12(either_plane: Plane) -> None:
    """Row 3.17: one workload that fits, in a flavor with a topology, with a check; each point is asked in its turn."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 2))
    await use_profile(road.cluster, "team", "night")
    await post(either_plane, "admissionchecks", "ask", {"controllerName": "kqueue.dev/plugin.first"})
    change = {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "ask"}]}}}
    await patch(either_plane, f"{KUEUE}/clusterqueues/team", change)
    calls: list[str] = []
    config = with_plugins(first=ToyPlugin({"name": "first", "calls": calls}))(ALL_POINTS)
    async with lead(either_plane, config):
        await road.submit("train", pods=2)
        await road.until_complete("train")

    steps = [
        "key", "screen", "allows_flavor", "allows_node", "prepare", "score", "normalise", "reserve", "permit",
        "before_release", "release", "after_release",
    ]  # fmt: skip
    assert list(dict.fromkeys(calls)) == steps
    assert [calls.count(step) for step in ("reserve", "permit", "before_release", "release")] == [1, 1, 1, 2]


# --- releases --------------------------------------------------------------------------------------------------------


class Binder:
    """A plugin that releases pods by a request of its own, with a label that kqueue never writes."""

    name = "first"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def release(self, pod: PodRef, patch: ReleasePatch) -> bool:
        body = {**patch, "metadata": {**patch["metadata"], "labels": {"released-by": "first"}}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        await self._cluster.request("PATCH", path, body, content_type=MERGE_PATCH)
        return True


class Late:
    """A plugin that notes the pods that it is asked about."""

    name = "second"

    def __init__(self) -> None:
        self.pods: list[str] = []

    async def release(self, pod: PodRef, patch: ReleasePatch) -> bool:
        self.pods.append(pod.name)
        return False


@pytest.mark.mechanism("3.19")
async def test_a_plugin_releases_the_pods_of_a_gang_g5_9(either_plane: Plane) -> None:
    """Row 3.19: the second plugin is not asked, and no pod gets its place by a patch of kqueue."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 4))
    await use_profile(road.cluster, "team", "night")
    late = Late()
    config = with_plugins(first=Binder(road.cluster), second=late)("{name: night, release: [first, second]}")
    async with lead(either_plane, config):
        await road.submit("train", pods=4)
        await road.until_complete("train")
        racks = await road.racks_of("train")
        pods = (await road.cluster.get(road.pods))["items"]

    assert len(racks) == 1
    assert [p["metadata"]["labels"].get("released-by") for p in pods] == ["first"] * 4
    assert late.pods == []


# --- permits ---------------------------------------------------------------------------------------------------------


class Budget:
    """A plugin that answers what the test says."""

    name = "first"

    def __init__(self, answer: Permission) -> None:
        self.answer, self.asked = answer, 0

    async def permit(self, admit: Admit) -> Permission:
        self.asked += 1
        return self.answer


async def checked(plane: Plane) -> Teams:
    """A queue whose workloads need the plugin's consent."""
    teams = await make_teams(plane, {"team": 32}, admissionChecksStrategy={"admissionChecks": [{"name": "money"}]})
    await post(plane, "admissionchecks", "money", {"controllerName": "kqueue.dev/plugin.first"})
    return teams


def money(workload: Object) -> Object:
    """The answer of the check."""
    found: Object = next(c for c in workload["status"]["admissionChecks"] if c["name"] == "money")
    return found


@pytest.mark.mechanism("3.22")
async def test_a_plugin_approves_and_denies_g5_7(either_plane: Plane) -> None:
    """Row 3.22: denied workloads return their quota and come back after the pause; approved ones run."""
    teams = await checked(either_plane)
    budget = Budget(Deny("the month's money is spent", seconds=1))
    async with lead(either_plane, with_plugins(first=budget)("")):
        await teams.submit("train", queue="team", pods=2)
        evicted = await teams.until_workload("train", "Evicted", reason="AdmissionCheck")
        budget.answer = Approve()
        await teams.until_running(train=2)
        workload = await teams.workload_of("train")

    assert "plugin first: the month's money is spent" in evicted["message"]
    assert (money(workload)["state"], money(workload)["message"]) == ("Ready", "plugin first approves")


@pytest.mark.mechanism("3.22")
async def test_a_wait_for_a_plugin_ends_although_the_controller_restarts_g5_7(either_plane: Plane) -> None:
    """Row 3.22: five seconds after the reservation the workload returns its quota, whichever controller leads then."""
    teams = await checked(either_plane)
    budget = Budget(WaitFor(5, "asks the office"))
    async with lead(either_plane, with_plugins(first=budget)("")):
        await teams.submit("train", queue="team", pods=2)

        def waits(listed: Object) -> bool:
            checks = [c for w in listed["items"] for c in w.get("status", {}).get("admissionChecks", ())]
            return any("asks the office" in c["message"] for c in checks)

        await teams.cluster.until(teams.workloads, waits, what="the plugin waits")
        waiting = await teams.workload_of("train")
    async with lead(either_plane, with_plugins(first=Budget(WaitFor(3600)))("")):

        def evicted(listed: Object) -> bool:
            return any("evictions" in w["status"].get("schedulingStats", {}) for w in listed["items"])

        await teams.cluster.until(teams.workloads, evicted, what="the wait ends")
        after = await teams.workload_of("train")

    reserved = condition(waiting, "QuotaReserved")["lastTransitionTime"]
    assert (money(waiting)["state"], money(waiting)["lastTransitionTime"]) == ("Pending", reserved)
    assert "plugin first did not approve within 5 s of the reservation" in condition(after, "Evicted")["message"]
    assert 5 <= _seconds(reserved, condition(after, "Evicted")["lastTransitionTime"]) <= 10


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


# --- orders ----------------------------------------------------------------------------------------------------------


def in_order(workloads: list[Object], queue: str) -> list[str]:
    """Names of the owners of a queue's Workloads, in the order of their reservations."""
    mine = [w for w in workloads if w["spec"]["queueName"] == queue]
    mine.sort(key=lambda w: str(condition(w, "QuotaReserved")["lastTransitionTime"]))
    return [w["metadata"].get("ownerReferences", [{}])[0].get("name", "") for w in mine]


class Deadlines:
    """A plugin that orders workloads by the label of their jobs: here, by name, the last one first."""

    name = "first"

    def key(self, item: Any) -> int:
        return -int(item.key.rpartition("job-")[2][0])


@pytest.mark.mechanism("0.16")
async def test_a_plugins_key_orders_the_queue_that_names_it_g5_18(either_plane: Plane) -> None:
    """Row 0.16: the same jobs in two queues, one with the plugin's key before the time of creation."""
    teams = await make_teams(either_plane, {"day": 8, "night": 8})
    await use_profile(teams.cluster, "night", "night")
    await hold(teams.cluster, "day", "night")
    config = with_plugins(first=Deadlines())("{name: night, order: [priority, first, timestamp]}")
    async with lead(either_plane, config):
        for n in range(3):
            await next_second()
            for queue in ("day", "night"):
                await teams.submit(f"{queue}-job-{n}", queue=queue, pods=1, run_seconds=1)
        await teams.cluster.until(teams.workloads, lambda found: len(found["items"]) == 6, what="six Workloads")
        await hold(teams.cluster, "day", "night", policy=None)
        await teams.until_complete(*(f"{queue}-job-{n}" for n in range(3) for queue in ("day", "night")))
        done = (await teams.cluster.get(teams.workloads))["items"]

    assert in_order(done, "day") == ["day-job-0", "day-job-1", "day-job-2"]
    assert in_order(done, "night") == ["night-job-2", "night-job-1", "night-job-0"]


FRAMEWORKS = "integrations: {frameworks: [batch/job, kqueue.dev/coscheduling-labels]}\n"


@pytest.mark.mechanism("3.2")
async def test_two_queues_have_different_orders_g5_18(either_plane: Plane) -> None:
    """Row 3.2: a gang and then a job in two queues; profile `pod-group` lets the job go first."""
    road = await make_road(either_plane.cluster, gpus=8, shape=(1, 1, 2))
    pods = LabelledGangs(road.cluster, road.namespace)
    queue = next(obj for path, obj in queue_objects(road.namespace, gpus=8) if path.endswith("/clusterqueues"))
    queue["metadata"] = {"name": "groups", "annotations": {PROFILE: "pod-group"}}
    await road.cluster.request("POST", f"{KUEUE}/clusterqueues", queue)
    await post(either_plane, "localqueues", "groups", {"clusterQueue": "groups"}, namespace=road.namespace)
    await hold(road.cluster, "team", "groups")
    async with lead(either_plane, configuration(FRAMEWORKS), with_webhooks(either_plane)):
        for local_queue in ("main", "groups"):
            for n in range(2):
                labels = {NAME: f"gang-{local_queue}", QUORUM: "2"}
                await pods.create(f"{local_queue}-{n}", queue=local_queue, gpus=4, seconds=1, labels=labels)
        await road.cluster.until(road.workloads, lambda found: len(found["items"]) == 2, what="two gangs wait")
        await next_second()
        for local_queue in ("main", "groups"):
            await road.submit(f"job-{local_queue}", queue=local_queue, pods=1, required=None)
        await road.cluster.until(road.workloads, lambda found: len(found["items"]) == 4, what="two jobs wait")
        await hold(road.cluster, "team", "groups", policy=None)

        def all_reserved(listed: Object) -> bool:
            return sum(_has_had_quota(w) for w in listed["items"]) == 4

        listed = await road.cluster.until(road.workloads, all_reserved, what="all have had quota")

    assert in_order(listed["items"], "main") == ["main-0", "job-main"]
    assert in_order(listed["items"], "groups") == ["job-groups", "groups-0"]


def _has_had_quota(workload: Object) -> bool:
    conditions = workload.get("status", {}).get("conditions", ())
    return any(c["type"] == "QuotaReserved" and c["status"] == "True" for c in conditions)


# --- disruption budgets ----------------------------------------------------------------------------------------------


@pytest.mark.mechanism("3.25")
async def test_workloads_under_a_disruption_budget_are_preempted_last_g5_22(either_plane: Plane) -> None:
    """Row 3.25: the later one of two equal jobs would go, but a budget covers its pods."""
    preemption = {"withinClusterQueue": "LowerPriority"}
    teams = await make_teams(either_plane, {"team": 16}, preemption=preemption)
    await make_priorities(either_plane, high=10)
    config = configuration("preemption: {respectDisruptionBudgets: true}\n")
    async with lead(either_plane, config):
        await teams.submit("plain", queue="team", pods=1)
        await teams.until_workload("plain", "Admitted")
        await next_second()
        await teams.submit("covered", queue="team", pods=1)
        await teams.until_running(plain=1, covered=1)
        selector = {"matchLabels": {"batch.kubernetes.io/job-name": "covered"}}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "covered"}}
        path = f"/apis/policy/v1/namespaces/{teams.namespace}/poddisruptionbudgets"
        spec = {"maxUnavailable": 0, "selector": selector}
        await teams.cluster.request("POST", path, {**budget, "spec": spec})
        await teams.submit("urgent", queue="team", pods=1, priority="high")
        await teams.until_running(covered=1, urgent=1)
        conditions = await teams.conditions_of("plain")

    assert conditions["Preempted"] == ("True", "InClusterQueue")
