"""The whole road on the real control plane: queued, placed, gated, released, run; killed anywhere and gone on."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import Configuration, Timings, load, parse
from kqueue.manager.process import Flags, running
from kqueue.runtime.transport import RequestRecord
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import Road, condition, controller, has, job, make_road, shown

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane

PARTS = frozenset({"core", "scheduler", "jobs", "topology"})


def flags(plane: Plane) -> Flags:
    return Flags(kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0")


def configuration() -> Configuration:
    found = load(None)
    return found.model_copy(
        update={"leader_election": found.leader_election.model_copy(update={"leader_elect": False})}
    )


@pytest.mark.proves("Job", "queueing")
@pytest.mark.proves("Job", "start with topology")
@pytest.mark.proves("Job", "finished")
async def test_twenty_gangs_run_inside_single_racks_and_a_too_large_one_says_why(either_plane: Plane) -> None:
    """20 Jobs with required racks on 64 nodes run in one rack each; one of 9 pods waits and names the numbers."""
    plane = either_plane
    road = await make_road(plane.cluster, shape=(2, 4, 8))
    names = [f"gang-{i}" for i in range(20)]
    async with running(configuration(), flags(plane)):
        await road.submit("too-large", pods=9)
        for name in names:
            await road.submit(name, pods=4)
        await road.until_complete(*names)
        waiting = await road.until_workload("too-large", "QuotaReserved", status="False")
        racks = {name: await road.racks_of(name) for name in names}

    assert {name: len(used) for name, used in racks.items()} == dict.fromkeys(names, 1)
    assert waiting["reason"] == "TopologyPlacementFailed"
    for fact in ("the best topology-rack", "room for 8 of 9 pods", "ask for fewer pods"):
        assert fact in waiting["message"]
    assert (await plane.cluster.get(f"{road.jobs}/too-large"))["spec"]["suspend"] is True


@pytest.mark.proves("Job", "webhook defaults")
async def test_the_webhook_suspends_what_asks_for_a_queue_and_nothing_else(either_plane: Plane) -> None:
    """With the webhooks in the same process a plain Job with a queue label is held, placed and run; a stranger's Job
    runs at once; a contradictory one is refused with the path of the mistake.
    """
    plane = either_plane
    road = await make_road(plane.cluster)
    with_webhooks = dataclasses.replace(
        flags(plane),
        parts=PARTS | {"webhooks"},
        webhook_host="127.0.0.1",
        webhook_port=0,
        webhook_url="https://127.0.0.1:{port}",
    )
    queued, stranger, contradictory = (job(name, road.namespace) for name in ("queued", "stranger", "both"))
    for obj in (queued, stranger, contradictory):
        del obj["spec"]["suspend"]
    stranger["metadata"]["labels"] = {}
    annotations = contradictory["spec"]["template"]["metadata"]["annotations"]
    annotations["kueue.x-k8s.io/podset-preferred-topology"] = RACK_LABEL
    async with running(configuration(), with_webhooks) as process:
        await process.operator.ready.wait()
        held = await plane.cluster.request("POST", road.jobs, queued)
        free = await plane.cluster.request("POST", road.jobs, stranger)
        with pytest.raises(RequestError) as refused:
            await plane.cluster.request("POST", road.jobs, contradictory)
        await road.until_complete("queued", "stranger")
        racks = await road.racks_of("queued")

    assert (held["spec"]["suspend"], free["spec"].get("suspend", False)) == (True, False)
    assert len(racks) == 1
    assert "spec.template.metadata.annotations" in str(refused.value)


async def test_one_admission_costs_the_writes_it_needs_and_no_other(either_plane: Plane) -> None:
    """1 Workload create, 1 Workload status patch, 1 Job patch, P pod patches until all pods run."""
    plane = either_plane
    road = await make_road(plane.cluster)
    writes: Counter[tuple[str, str, str]] = Counter()

    def count(record: RequestRecord) -> None:
        if record.verb not in ("get", "list", "watch") and record.resource != "events":
            writes[record.verb, record.resource, record.subresource] += 1

    async with running(configuration(), flags(plane), on_request=count) as process:
        await process.operator.synced.wait()
        await plane.cluster.until(
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team", lambda q: has(q, "Active"), what="an active queue"
        )
        writes.clear()
        await road.submit("gang", pods=4, run_seconds=600)
        await plane.cluster.until(
            road.pods,
            lambda pods: len(pods["items"]) == 4 and all(p["status"].get("phase") == "Running" for p in pods["items"]),
            what="4 running pods",
        )
        critical = {key: n for key, n in writes.items() if key[1] in ("workloads.kueue.x-k8s.io", "jobs.batch", "pods")}
    ready = critical.pop(("patch", "workloads.kueue.x-k8s.io", "status"))
    assert critical == {
        ("create", "workloads.kueue.x-k8s.io", ""): 1,
        ("patch", "jobs.batch", ""): 1,
        ("patch", "pods", ""): 4,
    }
    assert ready in (1, 2)  # the second one is PodsReady, when the Job's status was faster than our look


@pytest.mark.proves("Job", "finished")
async def test_a_finished_gang_makes_room_for_the_one_that_waits(either_plane: Plane) -> None:
    """A gang that does not fit beside another starts when that has finished."""
    plane = either_plane
    road = await make_road(plane.cluster, shape=(1, 1, 8))
    async with running(configuration(), flags(plane)):
        await road.submit("first", pods=6, run_seconds=3)
        await road.until_workload("first", "Admitted")
        await road.submit("second", pods=6)
        waiting = await road.until_workload("second", "QuotaReserved", status="False")
        await road.until_complete("first", "second")

    assert "room for 2" in waiting["message"]


@pytest.mark.parametrize("policy", ["HoldAndDrain"])
@pytest.mark.proves("Job", "eviction and requeue")
@pytest.mark.proves("Job", "stop and restore")
async def test_a_drained_queue_stops_its_gangs_and_brings_them_back(either_plane: Plane, policy: str) -> None:
    """HoldAndDrain suspends the Job, restores its template and frees the quota; without it the Job starts again."""
    plane = either_plane
    road = await make_road(plane.cluster)
    queue = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team"
    async with running(configuration(), flags(plane)):
        before = (await road.submit("gang", pods=4, run_seconds=600))["spec"]["template"]
        await road.until_workload("gang", "Admitted")
        await _patch(plane, queue, {"spec": {"stopPolicy": policy}})
        await road.until_workload("gang", "QuotaReserved", status="False")
        stopped = await plane.cluster.get(f"{road.jobs}/gang")
        evicted = condition(await road.workload_of("gang"), "Evicted")
        await _patch(plane, queue, {"spec": {"stopPolicy": "None"}})
        await road.until_workload("gang", "Admitted")

    assert evicted["reason"] == "ClusterQueueStopped"
    assert stopped["spec"]["suspend"] is True
    assert _written_by_users(stopped["spec"]["template"]) == _written_by_users(before), shown(stopped)


async def test_a_job_suspended_by_its_user_gives_its_quota_back_and_stays_stopped(either_plane: Plane) -> None:
    """Suspending a running Job deactivates its Workload; making that active again starts the Job once more."""
    plane = either_plane
    road = await make_road(plane.cluster)
    async with running(configuration(), flags(plane)):
        before = (await road.submit("gang", pods=4, run_seconds=600))["spec"]["template"]
        await road.until_workload("gang", "PodsReady")
        await _patch(plane, f"{road.jobs}/gang", {"spec": {"suspend": True}})
        await road.until_workload("gang", "QuotaReserved", status="False", reason="Deactivated")
        stopped = await plane.cluster.get(f"{road.jobs}/gang")
        workload = (await road.workload_of("gang"))["metadata"]["name"]
        await _patch(plane, f"{road.workloads}/{workload}", {"spec": {"active": True}})
        await road.until_workload("gang", "Admitted")

    assert stopped["spec"]["suspend"] is True
    assert _written_by_users(stopped["spec"]["template"]) == _written_by_users(before), shown(stopped)


@pytest.mark.parametrize(
    "failures", [pytest.param(1, id="one-node", marks=pytest.mark.seldom), pytest.param(2, id="two-nodes-at-once")]
)
@pytest.mark.proves("Job", "replacement pods")
async def test_nodes_deleted_under_a_gang_are_replaced_in_place(either_plane: Plane, failures: int) -> None:
    """The pods of the other nodes run on, the lost ones run again on spare nodes of the same rack, and nobody is
    evicted.
    """
    plane = either_plane
    road = await make_road(plane.cluster, shape=(1, 2, 8))
    async with running(configuration(), flags(plane)):
        await road.submit("gang", pods=5, run_seconds=600)
        before = await _until_running(road, 5)
        for node in sorted(before.values())[:failures]:
            await plane.cluster.request("DELETE", f"/api/v1/nodes/{node}")
            lost = next(pod for pod, where in before.items() if where == node)
            await plane.cluster.request("DELETE", f"{road.pods}/{lost}", {"gracePeriodSeconds": 0})
        kept = set(sorted(before.values())[failures:])
        after = await _until_running(road, 5, without=set(before.values()) - kept)
        workload = await road.workload_of("gang")
        racks = await road.racks_of("gang")

    assert {pod: node for pod, node in before.items() if node in kept}.items() <= after.items()
    assert len(set(after.values())) == 5
    assert len(racks) == 1
    assert "unhealthyNodes" not in workload["status"]
    assert "schedulingStats" not in workload["status"]  # nobody was evicted


async def test_a_gang_that_cannot_be_mended_is_evicted_and_waits_for_room(either_plane: Plane) -> None:
    """There is no spare node: the condition names the lost one, the Job is stopped, and the gang is queued again."""
    plane = either_plane
    road = await make_road(plane.cluster, shape=(1, 1, 4))
    async with running(configuration(), flags(plane)):
        await road.submit("gang", pods=4, run_seconds=600)
        before = await _until_running(road, 4)
        pod, node = min(before.items())
        await plane.cluster.request("DELETE", f"/api/v1/nodes/{node}")
        await plane.cluster.request("DELETE", f"{road.pods}/{pod}", {"gracePeriodSeconds": 0})
        evicted = await road.until_workload("gang", "Evicted")
        waiting = await road.until_workload("gang", "QuotaReserved", status="False", reason="TopologyPlacementFailed")
        requeued = await road.until_workload("gang", "Requeued")
        stopped = await plane.cluster.get(f"{road.jobs}/gang")

    assert (evicted["reason"], requeued["reason"]) == ("NodeFailures", "NodeFailures")
    assert node in evicted["message"]
    assert "room for 3" in waiting["message"]
    assert stopped["spec"]["suspend"] is True


async def _until_running(road: Road, pods: int, *, without: Set[str] = frozenset()) -> dict[str, str]:
    """Wait for so many running pods, none of them on these nodes; pod -> node."""

    def where(listed: dict[str, Any]) -> dict[str, str]:
        running = [p for p in listed["items"] if p["status"].get("phase") == "Running"]
        return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in running if p["spec"]["nodeName"] not in without}

    await road.cluster.until(road.pods, lambda listed: len(where(listed)) == pods, what=f"{pods} running pods")
    return where(await road.cluster.get(road.pods))


async def test_a_deleted_job_gives_everything_back(either_plane: Plane) -> None:
    """The Workload of a deleted Job goes, and its domains are free for the next."""
    plane = either_plane
    road = await make_road(plane.cluster, shape=(1, 1, 4))
    async with running(configuration(), flags(plane)):
        await road.submit("first", pods=4, run_seconds=600)
        await road.until_workload("first", "Admitted")
        await plane.cluster.request("DELETE", f"{road.jobs}/first?propagationPolicy=Background")
        await road.submit("second", pods=4)
        await road.until_complete("second")
        await plane.cluster.until(
            road.workloads, lambda found: len(found["items"]) == 1, what="only the second job's workload"
        )


SELDOM = pytest.mark.seldom
STEPS = [
    pytest.param("none", id="before-anything-is-seen", marks=SELDOM),
    pytest.param("created", id="after-the-workload-is-created", marks=SELDOM),
    pytest.param("admitted", id="after-quota-is-reserved"),
    pytest.param("started", id="after-the-job-is-started", marks=SELDOM),
    pytest.param("gated", id="when-pods-wait-at-the-gate"),
    pytest.param("running", id="when-pods-run", marks=SELDOM),
]


@pytest.mark.seldom_on_sandbox
@pytest.mark.parametrize("step", STEPS)
async def test_a_controller_killed_anywhere_goes_on_where_it_was(
    either_plane: Plane, step: str, tmp_path: Path
) -> None:
    """SIGKILL at each step, a new process, and every gang ends in one rack, admitted once and never on shared nodes."""
    plane = either_plane
    road = await make_road(plane.cluster, shape=(1, 2, 4))
    names = [f"gang-{i}" for i in range(4)]
    logs = tmp_path / "controller.log"
    async with controller(plane.kubeconfig, logs) as process:
        for name in names:
            await road.submit(name, pods=4, run_seconds=2)
        await _until_step(road, step)
        await process.kill()
    async with controller(plane.kubeconfig, logs):
        await road.until_complete(*names)
        racks = {name: await road.racks_of(name) for name in names}
        workloads = (await plane.cluster.get(road.workloads))["items"]

    assert {name: len(used) for name, used in racks.items()} == dict.fromkeys(names, 1), logs.read_text()[-4000:]
    assert len(workloads) == len(names)
    assert not any("schedulingStats" in w["status"] for w in workloads)  # nobody was evicted on the way


async def _until_step(road: Road, step: str) -> None:
    """Wait until the first gang has come so far."""
    looks = {
        "none": (road.jobs, lambda found: bool(found["items"])),
        "created": (road.workloads, lambda found: bool(found["items"])),
        "admitted": (road.workloads, lambda found: any(has(w, "Admitted") for w in found["items"])),
        "started": (road.jobs, lambda found: any(not j["spec"]["suspend"] for j in found["items"])),
        "gated": (road.pods, lambda found: bool(found["items"])),
        "running": (road.pods, lambda found: any(p["status"].get("phase") == "Running" for p in found["items"])),
    }
    path, reached = looks[step]
    await road.cluster.until(path, reached, what=step)


async def _patch(plane: Plane, path: str, patch: dict[str, object]) -> None:
    await plane.cluster.request("PATCH", path, patch, content_type="application/merge-patch+json")


def _written_by_users(template: dict[str, object]) -> dict[str, object]:
    """A template without what the Job controller itself puts there."""
    metadata = dict(template["metadata"])  # type: ignore[call-overload]
    labels = {k: v for k, v in metadata.pop("labels", {}).items() if not k.endswith(("job-name", "controller-uid"))}
    metadata.pop("creationTimestamp", None)
    return {"metadata": metadata, "labels": labels, "spec": template["spec"]}


async def test_leaders_hand_over(either_plane: Plane) -> None:
    """With leader election two processes run, one decides, and when it stops the other goes on."""
    plane = either_plane
    road = await make_road(plane.cluster)
    found = parse("", source="defaults", own_namespace=await plane.cluster.create_namespace("kqueue"))
    async with running(found, flags(plane), timings=Timings()) as second:
        async with running(found, flags(plane)) as first:
            await asyncio.gather(first.operator.synced.wait(), second.operator.synced.wait())
            await road.submit("before", pods=4)
            await road.until_complete("before")
        await road.submit("after", pods=4)
        await road.until_complete("after")
