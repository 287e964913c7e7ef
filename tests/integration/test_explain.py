"""Why a gang waits, asked through the API server: the answer is true, and what it says would help does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.config import Configuration, Timings
from kqueue.manager.process import RunningOperator, running
from kqueue.operations.checkup.queues import Tenants
from kqueue.operations.checkup.values import StepStatus
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.polling import eventually
from tests.integration.road import Road, job, make_road
from tests.integration.teams import FAST, configuration, flags, make_teams
from tests.readings import page_of

Plane = ControlPlane | SandboxPlane
Object = dict[str, Any]
VISIBILITY = "/apis/visibility.kqueue.dev/v1alpha1"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.kqueue.dev"
LONG = 600
HOSTNAME = "kubernetes.io/hostname"

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]


@asynccontextmanager
async def explaining(
    plane: Plane, timings: Timings = FAST, config: Configuration | None = None
) -> AsyncIterator[RunningOperator]:
    """A controller whose explanations are reached through the API server."""
    chosen = replace(
        flags(plane),
        visibility=True,
        visibility_host="127.0.0.1",
        visibility_port=0,
        visibility_url="https://localhost:{port}",
    )
    async with running(config or configuration(), chosen, timings=timings) as process:
        await plane.cluster.until(
            API_SERVICE,
            lambda found: any(
                (each["type"], each["status"]) == ("Available", "True")
                for each in found.get("status", {}).get("conditions", [])
            ),
            what="explanations are available",
        )
        yield process


async def command(plane: Plane, *words: str) -> tuple[int, str, str]:
    """`kqueue explain` as its user calls it: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "explain", *words, "--kubeconfig", str(plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "200"},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


async def submit(road: Road, name: str, pods: int) -> None:
    await road.cluster.request("POST", road.jobs, job(name, road.namespace, pods=pods, run_seconds=LONG))


async def explanation(road: Road, name: str) -> Object:
    """Of a Job's Workload."""
    workload = (await road.workload_of(name))["metadata"]["name"]
    path = f"{VISIBILITY}/namespaces/{road.namespace}/workloads/{workload}/explanation"
    return dict(await road.cluster.get(path))


async def cordon(road: Road, node: str, *, on: bool) -> None:
    patch = {"spec": {"unschedulable": on}}
    await road.cluster.request("PATCH", f"/api/v1/nodes/{node}", patch, content_type="application/merge-patch+json")


async def test_what_would_let_a_gang_start_does(either_plane: Plane) -> None:
    """One rack of three hosts: one is taken, one cordoned, and a gang wants two."""
    cluster = either_plane.cluster
    road = await make_road(cluster, shape=(1, 1, 3))
    nodes = sorted(node["metadata"]["name"] for node in (await cluster.get("/api/v1/nodes"))["items"])
    async with explaining(either_plane):
        await submit(road, "first", 1)
        await road.until_workload("first", "Admitted")
        taken = (await explanation(road, "first"))["running"]["podSets"][0]["placement"]
        pods = await cluster.until(
            road.pods,
            lambda listed: any(pod["status"].get("phase") == "Running" for pod in listed["items"]),
            what="the first runs",
        )
        busy = pods["items"][0]["spec"]["nodeName"]
        cordoned = next(node for node in nodes if node != busy)
        await cordon(road, cordoned, on=True)
        await submit(road, "late", 2)
        await road.until_workload("late", "QuotaReserved", status="False")
        workload = (await road.workload_of("late"))["metadata"]["name"]
        path = f"{VISIBILITY}/namespaces/{road.namespace}/workloads/{workload}/explanation"
        answer = await cluster.until(
            path,
            lambda found: (
                bool(found["pending"].get("lastTried", {}).get("known"))
                and bool(found["pending"]["wouldStartIf"])
                and found["pending"]["wouldStartIf"][0]["change"]["kind"] == "NodesReturn"
                and found["pending"]["search"]["complete"]  # a busy machine reaches the search's time limit
            ),
            what="it was tried, the cordoned node is known, and all changes were looked at",
        )
        code, page, _ = await command(either_plane, "job/late", "-n", road.namespace)
        _, machine, _ = await command(either_plane, "workload", workload, "-n", road.namespace, "-o", "json")
        nobody = await command(either_plane, "job/nobody", "-n", road.namespace)
        listed = await either_plane.kubectl("get", "workloads", "-n", road.namespace, "-o", "name")
        questions = f"{VISIBILITY}/namespaces/{road.namespace}/placements"
        question = {"spec": (await road.workload_of("late"))["spec"]}
        full = await cluster.request("POST", questions, question)
        await cordon(road, cordoned, on=False)
        await road.until_workload("late", "Admitted")
        runs = await explanation(road, "late")
    alone_code, alone, told = await command(either_plane, "job/late", "-n", road.namespace)

    assert [level["domains"] for level in taken["levels"]] == [1, 1, 1]
    ifs = [what_if["if"] for what_if in answer["pending"]["wouldStartIf"]]
    first = (await road.workload_of("first"))["metadata"]["name"]
    assert ifs[0] == f"node {cordoned} was uncordoned"
    assert set(ifs[1:]) >= {"pod set main had 1 pods instead of 2", f"workload {road.namespace}/{first} ended"}
    assert answer["pending"]["position"]["place"] == 1
    assert answer["pending"]["blockers"][0]["kind"] == "Topology"
    assert code == 0
    assert f"1. node {cordoned} was uncordoned" in page
    assert json.loads(machine)["kind"] == "Explanation"
    assert (full["kind"], full["start"], full["waitingAhead"]) == ("Placement", "Later", 1)
    assert nobody[0] == 1
    assert "nobody" in nobody[2]
    assert f"workload.kueue.x-k8s.io/{workload}" in listed
    assert runs["state"] == "Running"
    assert sum(domain["pods"] for domain in runs["running"]["podSets"][0]["placement"]["domains"]) == 2
    assert alone_code == 0
    assert "admitted by ClusterQueue team" in alone
    assert "did not answer" in told


async def test_a_released_pod_that_no_node_takes_is_seen(either_plane: Plane) -> None:
    """Five pods that each need a whole node are admitted by quota alone, and there are four nodes."""
    road = await make_teams(either_plane, {"team": 100})
    timings = replace(FAST, pods_not_running_after=0.5, metrics_cache=0.5)
    counted = re.compile(r'kqueue_released_pods_not_running{cluster_queue="team"[^}]*} 1\b')

    def scheduled(pod: Object, status: str) -> bool:
        conditions = pod.get("status", {}).get("conditions", ())
        return any((c["type"], c["status"]) == ("PodScheduled", status) and c.get("message") for c in conditions)

    async with explaining(either_plane, timings) as process:
        await road.submit("wide", queue="team", pods=5, gpus=8)
        listed = await road.cluster.until(
            road.pods,
            lambda found: any(
                scheduled(pod, "False") and not pod["spec"].get("schedulingGates") for pod in found["items"]
            ),
            what="the scheduler refuses a pod",
        )
        await eventually(lambda: counted.search(page_of(process.operator.metrics).decode()) is not None)
        answer = await explanation(road, "wide")
        code, page, _ = await command(either_plane, "job/wide", "-n", road.namespace)
        in_two_minutes = FakeClock(datetime.now(UTC) + timedelta(minutes=2))
        verdict = await Tenants(process.operator.manager.client, in_two_minutes).pods()

    (refused,) = [pod for pod in listed["items"] if scheduled(pod, "False")]
    name = refused["metadata"]["name"]
    (said,) = [c["message"] for c in refused["status"]["conditions"] if c["type"] == "PodScheduled"]
    shown = answer["running"]["podsNotRunning"]
    assert (shown["count"], shown["pods"]) == (1, [name])
    assert shown["sentences"] == [{"message": said, "pods": 1}]
    assert code == 0
    assert said in page
    assert verdict.status is StepStatus.WARNING
    assert any(f"{road.namespace}/{name}" in line and said in line for line in verdict.details)


async def test_a_field_that_is_not_judged_is_named(either_plane: Plane) -> None:
    """Two pods get one node, and kube-scheduler spreads them over two; the sandbox's scheduler does not."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 2))
    wanted = job("even", road.namespace, pods=2, gpus=1, run_seconds=LONG)
    template = wanted["spec"]["template"]
    template["metadata"].setdefault("labels", {})["app"] = "even"
    template["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeAffinityPolicy": "Ignore",  # the host that kqueue writes into the pod is not the only one that counts
            "labelSelector": {"matchLabels": {"app": "even"}},
        }
    ]
    refuses = isinstance(either_plane, ControlPlane)
    async with explaining(either_plane, replace(FAST, pods_not_running_after=0.5)):
        await road.cluster.request("POST", road.jobs, wanted)
        await road.until_workload("even", "Admitted")
        workload = (await road.workload_of("even"))["metadata"]["name"]
        path = f"{VISIBILITY}/namespaces/{road.namespace}/workloads/{workload}/explanation"
        await road.cluster.until(
            path,
            lambda found: not refuses or "spread constraints" in str(found["running"].get("podsNotRunning")),
            what="the refused pod is shown",
        )
        _, page, _ = await command(either_plane, "job/even", "-n", road.namespace)

    assert "pod set main: kqueue does not judge topologySpreadConstraints" in page
    assert not refuses or "1 pod does not run since" in page


PORT = {"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]}
AWAY = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "gang"}}}
            ]
        }
    }
}


@pytest.mark.parametrize("rule", [pytest.param(PORT, id="host-port"), pytest.param(AWAY, id="anti-affinity")])
async def test_pods_that_may_not_share_a_host_run_on_hosts_of_their_own(either_plane: Plane, rule: Object) -> None:
    """Each host has room for all of them; a gang that is larger than its rack waits, and is told why."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 2))

    def gang(name: str, pods: int) -> Object:
        wanted = job(name, road.namespace, pods=pods, gpus=1, run_seconds=LONG)
        template = wanted["spec"]["template"]
        template["metadata"]["labels"] = {"app": "gang"}
        template["spec"] |= {key: value for key, value in rule.items() if key != "containers"}
        for container, more in zip(template["spec"]["containers"], rule.get("containers", ()), strict=False):
            container |= more
        return wanted

    def bound(found: Object) -> set[str]:
        return {pod["spec"]["nodeName"] for pod in found["items"] if pod["spec"].get("nodeName")}

    async with explaining(either_plane):
        await road.cluster.request("POST", road.jobs, gang("pair", 2))
        await road.cluster.until(road.pods, lambda found: len(bound(found)) == 2, what="the pair runs on two hosts")
        await road.cluster.request("POST", road.jobs, gang("large", 3))
        waits = await road.until_workload("large", "QuotaReserved", status="False", reason="TopologyPlacementFailed")

    assert "has room for 2 of 3 pods, one a host" in waits["message"]
