"""What queues and cohorts show of shares and of past use, on servers that check every field of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from kqueue.manager.process import RunningOperator, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import APPLY_PATCH
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.other_writers import now
from tests.integration.polling import eventually
from tests.integration.road import KUEUE, Object, condition
from tests.integration.teams import FAIR, FAST, configuration, flags, make_teams, patch, post
from tests.readings import page_of

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
KIND_OF_CHECK = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck"}
BY_USE = "admissionFairSharing: {usageHalfLifeTime: 10s, usageSamplingInterval: 1s}\n"


async def until_status(plane: Plane, path: str, **wanted: Any) -> Object:
    """Wait until an object shows this; returns all that it shows."""

    def shows(obj: Object) -> bool:
        return {key: obj.get("status", {}).get(key) for key in wanted} == wanted

    await plane.cluster.until(path, shows, what=f"{path} shows {wanted}")
    status: Object = (await plane.cluster.get(path))["status"]
    return status


async def test_shares_are_shown_while_they_count(either_plane: Plane) -> None:
    """Of the queue that borrows, of the one that does not, and of the cohort; a restart without them clears them."""
    road = await make_teams(either_plane, {"a": 4, "b": 4})
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "all"}, "spec": {}}
    await either_plane.cluster.request("POST", f"{KUEUE}/cohorts", cohort)
    queue_a, queue_b = f"{KUEUE}/clusterqueues/a", f"{KUEUE}/clusterqueues/b"
    async with running(configuration(FAIR), flags(either_plane), timings=FAST):
        await road.submit("guest", queue="a", pods=3, gpus=2)
        await road.until_running(guest=3)
        shown = await until_status(either_plane, queue_a, fairSharing={"weightedShare": 250}, admittedWorkloads=1)
        await until_status(either_plane, queue_b, fairSharing={"weightedShare": 0})
        await until_status(either_plane, f"{KUEUE}/cohorts/all", fairSharing={"weightedShare": 0})
    async with running(configuration(), flags(either_plane), timings=FAST):
        await until_status(either_plane, queue_a, fairSharing=None)
        await until_status(either_plane, f"{KUEUE}/cohorts/all", fairSharing=None)

    assert shown["flavorsUsage"][0]["resources"][1] == {"name": "nvidia.com/gpu", "total": "6", "borrowed": "2"}


async def test_who_used_less_lately_goes_first_and_what_was_used_outlives_a_restart(either_plane: Plane) -> None:
    """Of two Jobs that wait for the same GPUs, the younger one starts: its LocalQueue has used nothing."""
    road = await make_teams(either_plane, {"team": 4})
    by_use = {"spec": {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}}
    await patch(either_plane, f"{KUEUE}/clusterqueues/team", by_use)
    await post(either_plane, "localqueues", "lean", {"clusterQueue": "team"}, namespace=road.namespace)
    greedy = f"{KUEUE}/namespaces/{road.namespace}/localqueues/team"

    def used(queue: Object) -> bool:
        sharing = queue.get("status", {}).get("fairSharing", {}).get("admissionFairSharingStatus", {})
        return bool(sharing.get("consumedResources", {}).get("nvidia.com/gpu", "0") != "0")

    async with running(configuration(BY_USE), flags(either_plane), timings=FAST):
        await road.submit("first", queue="team", pods=2, gpus=2)
        await road.until_running(first=2)
        await either_plane.cluster.until(greedy, used, what="what was used is written")
    async with running(configuration(BY_USE), flags(either_plane), timings=FAST):
        await road.submit("second", queue="team", pods=2, gpus=2)
        await road.until_workload("second", "QuotaReserved", status="False")
        await road.submit("other", queue="lean", pods=2, gpus=2)
        await road.until_workload("other", "QuotaReserved", status="False")
        await road.cluster.request("DELETE", f"{road.jobs}/first?propagationPolicy=Background")
        await road.until_running(other=2)
        second = await road.conditions_of("second")

    assert second["QuotaReserved"][0] == "False"


async def test_a_check_without_its_controller_and_a_job_without_its_queue_are_seen(either_plane: Plane) -> None:
    """The check and its ClusterQueue name the controller until that applies condition Active; the Job is counted."""
    check, queue = f"{KUEUE}/admissionchecks/budget", f"{KUEUE}/clusterqueues/team"
    await post(either_plane, "admissionchecks", "budget", {"controllerName": "example.com/budget"})
    checks = {"admissionChecks": [{"name": "budget"}]}
    road = await make_teams(either_plane, {"team": 4}, admissionChecksStrategy=checks)
    sentence = "controller example.com/budget has not set condition Active: start it"
    timings = replace(FAST, check_controller_missing_after=0.5, metrics_cache=0.5)
    async with running(configuration(), flags(either_plane), timings=timings) as process:
        await road.submit("lost", queue="nowhere", pods=1)
        missing = await until_condition(either_plane, check, "ControllerMissing", "True")
        inactive = await until_condition(either_plane, queue, "Active", "False")
        counted = re.compile(rf'kqueue_workloads_without_local_queue{{namespace="{road.namespace}"[^}}]*}} 1\b')
        await eventually(lambda: counted.search(shown_metrics(process)) is not None, within=10)
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now()}
        applied = {**KIND_OF_CHECK, "metadata": {"name": "budget"}, "status": {"conditions": [active]}}
        path = f"{check}/status?fieldManager=budget&force=false"
        await either_plane.cluster.request("PATCH", path, applied, content_type=APPLY_PATCH)
        await until_condition(either_plane, queue, "Active", "True")
        await either_plane.cluster.until(
            check,
            lambda obj: [c["type"] for c in obj["status"]["conditions"]] == ["Active"],
            what="only condition Active is left",
        )

    assert missing["message"] == sentence
    assert f"AdmissionCheck budget: {sentence}" in inactive["message"]


async def until_condition(plane: Plane, path: str, kind: str, status: str) -> Object:
    """Wait until an object has this condition; returns the condition."""

    def reached(obj: Object) -> bool:
        return any((c["type"], c["status"]) == (kind, status) for c in obj.get("status", {}).get("conditions", ()))

    return condition(await plane.cluster.until(path, reached, what=f"{path}: {kind}={status}"), kind)


def shown_metrics(process: RunningOperator) -> str:
    """All series as a scrape gets them."""
    return page_of(process.operator.metrics).decode()
