"""A Workload's life on the whole road: checks, pods that are late, time limits, switched off and on, and its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.manager.process import running
from tests.integration.controlplane.access import APPLY_PATCH, MERGE_PATCH
from tests.integration.road import KUEUE, Object, has, job
from tests.integration.teams import FAST, Plane, Teams, configuration, flags, make_priorities, make_teams

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]}}
READY = "waitForPodsReady: {timeout: 2s, requeuingStrategy: {backoffBaseSeconds: 1, backoffLimitCount: 1}}\n"


class Checker:
    """Plays the controller of the AdmissionCheck `nodes`: it answers when it is told to."""

    def __init__(self, plane: Plane, teams: Teams) -> None:
        self._cluster, self._teams = plane.cluster, teams

    async def begin(self) -> None:
        """The check is there, and can be used."""
        checks = f"{KUEUE}/admissionchecks"
        meta = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "nodes"}}
        await self._cluster.request("POST", checks, {**meta, "spec": {"controllerName": "example.com/nodes"}})
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": _now()}
        change = {"status": {"conditions": [active]}}
        await self._cluster.request("PATCH", f"{checks}/nodes/status", change, content_type=MERGE_PATCH)

    async def answer(self, job_name: str, state: str, *, message: str = "", **more: Any) -> None:
        """Write the state of the check for the Workload of a Job that holds quota and waits, or runs."""
        await self._teams.until_workload(job_name, "QuotaReserved")
        workload = await self._teams.workload_of(job_name)
        entry = {"name": "nodes", "state": state, "message": message, "lastTransitionTime": _now(), **more}
        name = workload["metadata"]["name"]
        applied = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name},
            "status": {"admissionChecks": [entry]},
        }
        path = f"{self._teams.workloads}/{name}/status?fieldManager=example.com-nodes&force=true"
        await self._cluster.request("PATCH", path, applied, content_type=APPLY_PATCH)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def until_job(teams: Teams, name: str, wanted: Callable[[Object], bool], what: str) -> Object:
    return await teams.cluster.until(f"{teams.jobs}/{name}", wanted, what=f"job {name} {what}")


async def switch(teams: Teams, name: str, *, active: bool) -> None:
    workload = (await teams.workload_of(name))["metadata"]["name"]
    change = {"spec": {"active": active}}
    await teams.cluster.request("PATCH", f"{teams.workloads}/{workload}", change, content_type=MERGE_PATCH)


def evictions(workload: Object) -> dict[tuple[str, str], int]:
    stats = workload["status"].get("schedulingStats", {}).get("evictions", [])
    return {(e["reason"], e["underlyingCause"]): e["count"] for e in stats}


@pytest.mark.proves("Job", "eviction and requeue")
async def test_a_check_lets_in_sends_back_and_refuses(either_plane: Plane) -> None:
    """Ready: the job starts with what the check adds.  Retry: it stops, restored, and comes back.  Rejected: for good."""
    plane = either_plane
    teams = await make_teams(plane, {"team": 32}, **CHECKED)
    checker = Checker(plane, teams)
    await checker.begin()
    added = {"name": "main", "annotations": {"example.com/order": "7"}, "nodeSelector": {"pool": "gpu"}}
    async with running(configuration(), flags(plane), timings=FAST):
        submitted = await teams.submit("train", queue="team", pods=2)
        await teams.until_workload("train", "Admitted", status="False", reason="UnsatisfiedAdmissionChecks")
        await checker.answer("train", "Ready", podSetUpdates=[added])
        await teams.until_running(train=2)
        started = await plane.cluster.get(f"{teams.jobs}/train")

        await checker.answer("train", "Retry", message="no nodes", requeueAfterSeconds=1)
        await teams.until_workload("train", "Requeued", reason="BackoffFinished")
        waiting = await until_job(teams, "train", lambda j: j["spec"]["suspend"] is True, "is stopped")
        await checker.answer("train", "Ready")
        await teams.until_running(train=2)

        await checker.answer("train", "Rejected", message="over the budget")
        refused = await teams.until_workload("train", "Evicted", reason="DeactivatedDueToAdmissionCheck")
        await teams.until_workload("train", "QuotaReserved", status="False", reason="Deactivated")
        await teams.until_running()
        stopped = await plane.cluster.get(f"{teams.jobs}/train")
        told = await teams.events_of("train", "AdmissionCheckRejected")
        workload = await teams.workload_of("train")

    template = started["spec"]["template"]
    assert template["metadata"]["annotations"]["example.com/order"] == "7"
    assert template["spec"]["nodeSelector"] == {"pool": "gpu"}
    for obj in (waiting, stopped):
        assert "nodeSelector" not in obj["spec"]["template"]["spec"]
        assert (
            obj["spec"]["template"]["metadata"]["annotations"]
            == submitted["spec"]["template"]["metadata"]["annotations"]
        )
    assert "over the budget" in refused["message"]
    assert told == ["Refused by admission checks nodes: over the budget"]
    assert workload["spec"]["active"] is False
    assert evictions(workload) == {("AdmissionCheck", ""): 1, ("Deactivated", "AdmissionCheck"): 1}


@pytest.mark.proves("Job", "pods ready")
async def test_pods_that_never_get_ready_cost_their_place(either_plane: Plane) -> None:
    """Evicted, queued again after the pause, evicted for good; whoever waits behind gets the quota in between."""
    plane = either_plane
    teams = await make_teams(plane, {"team": 16})
    stuck = job("stuck", teams.namespace, pods=2, required=None, queue="team")
    stuck["spec"]["template"]["spec"]["nodeSelector"] = {"no-node": "has-this"}
    async with running(configuration(READY), flags(plane), timings=FAST):
        await plane.cluster.request("POST", teams.jobs, stuck)
        await teams.until_workload("stuck", "Evicted", reason="PodsReadyTimeout")
        await teams.until_workload("stuck", "Requeued", reason="BackoffFinished")
        await teams.until_workload("stuck", "Evicted", reason="DeactivatedDueToRequeuingLimitExceeded")
        await teams.until_workload("stuck", "QuotaReserved", status="False", reason="Deactivated")
        stopped = await until_job(teams, "stuck", lambda j: j["spec"]["suspend"] is True, "is stopped")
        await teams.submit("next", queue="team", pods=2)
        await teams.until_running(next=2)
        workload = await teams.workload_of("stuck")

    assert stopped["spec"]["template"]["spec"]["nodeSelector"] == {"no-node": "has-this"}
    assert evictions(workload) == {
        ("PodsReadyTimeout", "WaitForStart"): 1,
        ("Deactivated", "RequeuingLimitExceeded"): 1,
    }
    assert "requeueState" not in workload["status"]


@pytest.mark.proves("Job", "maximum execution time")
@pytest.mark.proves("Job", "stop and restore")
async def test_a_job_runs_for_as_long_as_it_may_and_again_when_it_is_let(either_plane: Plane) -> None:
    """It is stopped at its limit; switched on without a limit in sight it runs anew, and off and on by its user."""
    plane = either_plane
    teams = await make_teams(plane, {"team": 16})
    short = job("short", teams.namespace, pods=2, required=None, queue="team", run_seconds=600)
    short["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "2"
    async with running(configuration(), flags(plane), timings=FAST):
        await plane.cluster.request("POST", teams.jobs, short)
        over = await teams.until_workload("short", "Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
        await teams.submit("plain", queue="team", pods=2)
        await teams.until_running(plain=2)
        workload = await teams.workload_of("short")

        await switch(teams, "plain", active=False)
        await teams.until_workload("plain", "Evicted", reason="Deactivated")
        await teams.until_running()
        await switch(teams, "plain", active=True)
        await teams.until_workload("plain", "Requeued", reason="Reactivated")
        await teams.until_running(plain=2)

    assert "2 s of spec.maximumExecutionTimeSeconds" in over["message"]
    assert workload["spec"]["active"] is False
    assert workload["status"]["accumulatedPastExecutionTimeSeconds"] >= 2


@pytest.mark.proves("Job", "finished")
async def test_finished_workloads_are_kept_for_as_long_as_is_said(either_plane: Plane) -> None:
    """The Workload goes, the Job stays, and none is made for it again."""
    plane = either_plane
    teams = await make_teams(plane, {"team": 16})
    kept = "objectRetentionPolicies: {workloads: {afterFinished: 1s}}\n"
    async with running(configuration(kept), flags(plane), timings=FAST):
        await teams.submit("done", queue="team", pods=1, run_seconds=1)
        await teams.until_complete("done")
        await plane.cluster.until(teams.workloads, lambda listed: not listed["items"], what="no Workload")
        await teams.submit("after", queue="team", pods=1, run_seconds=1)
        await teams.until_complete("after")
        await plane.cluster.until(teams.workloads, lambda listed: not listed["items"], what="no Workload")

    assert has(await plane.cluster.get(f"{teams.jobs}/done"), "Complete")


@pytest.mark.proves("Job", "priority class")
async def test_a_class_that_gets_another_value_moves_who_waits(either_plane: Plane) -> None:
    """The one that waited behind goes first when there is room, and the one that runs has the new value, too."""
    plane = either_plane
    teams = await make_teams(plane, {"team": 16}, queueingStrategy="StrictFIFO")
    await make_priorities(plane, low=1, middle=10)
    async with running(configuration(), flags(plane), timings=dataclasses.replace(FAST, untried_told_after=0.5)):
        await teams.submit("runs", queue="team", pods=2, priority="low")
        await teams.until_running(runs=2)
        for name, priority in (("before", "middle"), ("behind", "low")):
            await teams.submit(name, queue="team", pods=2, priority=priority)
            await teams.until_workload(name, "QuotaReserved", status="False")
        path = f"{KUEUE}/workloadpriorityclasses/low"
        await plane.cluster.request("PATCH", path, {"value": 100}, content_type=MERGE_PATCH)
        for name in ("behind", "runs"):

            def raised(listed: Object, name: str = name) -> bool:
                found = [w for w in listed["items"] if w["metadata"]["ownerReferences"][0]["name"] == name]
                return [w["spec"]["priority"] for w in found] == [100]

            await plane.cluster.until(teams.workloads, raised, what=f"priority 100 for {name}")
        await switch(teams, "runs", active=False)
        await teams.until_running(behind=2)

    assert (await teams.conditions_of("before"))["QuotaReserved"][0] == "False"


async def test_a_hand_in_the_status_undoes_nothing(either_plane: Plane) -> None:
    """Conditions flipped, counts made up, a status wiped: what runs goes on or comes back, and nobody gets its quota."""
    plane = either_plane
    teams = await make_teams(plane, {"team": 16})
    async with running(configuration(), flags(plane), timings=FAST):
        await teams.submit("first", queue="team", pods=2)
        await teams.until_running(first=2)
        await teams.submit("second", queue="team", pods=2)
        await teams.until_workload("second", "QuotaReserved", status="False")
        name = (await teams.workload_of("first"))["metadata"]["name"]
        path = f"{teams.workloads}/{name}/status"
        for change in (
            {"conditions": None, "admission": None},
            {"admission": None},
            {"requeueState": {"count": 2**31 - 1}, "accumulatedPastExecutionTimeSeconds": 2**31 - 1},
        ):
            await plane.cluster.request("PATCH", path, {"status": change}, content_type=MERGE_PATCH)
            await teams.until_workload("first", "Admitted")
            await teams.until_running(first=2)
        assert await teams.events_of("first", "StatusRestored")
        second = (await teams.workload_of("second"))["metadata"]["name"]
        forged = {
            "type": "Admitted",
            "status": "True",
            "reason": "Admitted",
            "message": "",
            "lastTransitionTime": _now(),
        }
        forgery = {"status": {"conditions": [forged]}}
        path = f"{teams.workloads}/{second}/status"
        await plane.cluster.request("PATCH", path, forgery, content_type=MERGE_PATCH)
        await teams.until_workload("second", "Admitted", status="False")

    assert "Finished" not in await teams.conditions_of("second")
    assert (await teams.conditions_of("second"))["QuotaReserved"][0] == "False"
