"""What queues and cohorts show of shares and of past use, on servers that check every field of it."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.cli.process import running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object
from tests.integration.test_quota import FAIR, FAST, configuration, flags, make_teams, patch, post

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
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
