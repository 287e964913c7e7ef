"""The way of pods from submission to their node, and what other parts of the cluster do on it."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest

from kqueue.config import Timings, parse
from kqueue.kube import names as kube_names
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, condition, controller, job, make_road
from tests.integration.test_topology import configuration, flags, occupy

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
PARTS = frozenset({"core", "scheduler", "jobs", "topology"})
MERGE = "application/merge-patch+json"
WITH_READINESS = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
waitForPodsReady: {timeout: 5m}
"""


async def until_pods(road: Road, name: str, count: int, phase: str = "Running") -> list[Object]:
    """Wait until so many pods of a Job have this phase."""

    def found(listed: Object) -> list[Object]:
        mine = [p for p in listed["items"] if p["metadata"].get("labels", {}).get("job-name") == name]
        return [p for p in mine if p["status"].get("phase") == phase]

    listed = await road.cluster.until(road.pods, lambda got: len(found(got)) == count, what=f"{name}: {phase}")
    return found(listed)


@pytest.mark.mechanism("3.1")
async def test_the_phases_of_a_pod_follow_each_other_in_objects_and_spans(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 3.1: submitted, queued, admitted, released, bound, runs; the spans of its Workload have the same times."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter", lambda: spans)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    road = await make_road(either_plane.cluster, shape=(1, 1, 1))
    found = Flags(kubeconfig=either_plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0")
    configured = parse(WITH_READINESS, source="test", own_namespace="kqueue-system")
    async with running(configured, found, timings=Timings(queue_flush_window=0.1)):
        await road.submit("one", pods=1, run_seconds=600)
        (pod,) = await until_pods(road, "one", 1)
        await road.until_workload("one", "PodsReady")
        workload = await road.workload_of("one")
        owner = await road.cluster.get(f"{road.jobs}/one")

    since = [
        owner["metadata"]["creationTimestamp"],
        workload["metadata"]["creationTimestamp"],
        *(condition(workload, kind)["lastTransitionTime"] for kind in ("QuotaReserved", "Admitted")),
        pod["metadata"]["creationTimestamp"],
        condition(pod, "PodScheduled")["lastTransitionTime"],
        pod["status"]["startTime"],
    ]
    assert since == sorted(since)
    mine = [span for span in spans.get_finished_spans() if f"{span.context.trace_id:032x}" == _trace_of(workload)]
    assert [span.name for span in mine] == ["queued", "starting"]
    assert [span.start_time for span in mine] == [_nanoseconds(since[1]), _nanoseconds(since[3])]
    assert mine[0].end_time == _nanoseconds(since[2])


def _trace_of(workload: Object) -> str:
    return str(workload["metadata"]["uid"]).replace("-", "")


def _nanoseconds(written: str) -> int:
    return int(datetime.fromisoformat(written).timestamp()) * 1_000_000_000


@pytest.mark.mechanism("3.9")
async def test_who_waits_for_the_node_of_a_foreign_pod_is_tried_when_the_pod_ends(either_plane: Plane) -> None:
    """Row 3.9: quota is there, and the only node is taken by a pod without a queue; its end starts the Job."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 1))
    await occupy(road, "node-0-0-0")
    timings = Timings(queue_flush_window=0.1, foreign_pod_drain=0.5)
    async with running(configuration(), flags(either_plane), timings=timings):
        await road.submit("waits", pods=1, run_seconds=600)
        waiting = await road.until_workload("waits", "QuotaReserved", status="False")
        ended = f"{road.pods}/stranger-node-0-0-0/status"
        await road.cluster.request("PATCH", ended, {"status": {"phase": "Succeeded"}}, content_type=MERGE)
        (pod,) = await until_pods(road, "waits", 1)

    assert "TopologyPlacementFailed" in waiting["reason"] or "topology" in waiting["message"]
    assert pod["spec"]["nodeName"] == "node-0-0-0"


@pytest.mark.mechanism("3.9")
@pytest.mark.controlplane
async def test_affinity_between_pods_is_left_to_the_scheduler(plane: ControlPlane) -> None:
    """Row 3.9: an admitted pod that wants to stand beside another one is bound when that one has come."""
    road = await road_without_topology(plane, (1, 1, 2))
    async with running(configuration(), flags(plane)):
        await _submit(road, "follower", _affinity({"app": "leader"}), labels={})
        (pending,) = await until_pods(road, "follower", 1, "Pending")
        await _submit(road, "leader", {}, labels={"app": "leader"})
        (leader,) = await until_pods(road, "leader", 1)
        (follower,) = await until_pods(road, "follower", 1)

    assert pending["spec"].get("nodeName") is None
    assert follower["spec"]["nodeName"] == leader["spec"]["nodeName"]


def _affinity(labels: Mapping[str, str]) -> Object:
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": kube_names.HOSTNAME_LABEL}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


async def _submit(
    road: Road, name: str, spec: Object, *, labels: Mapping[str, str], pods: int = 1, cpus: int = 1
) -> None:
    obj = job(name, road.namespace, pods=pods, required=None, run_seconds=600, gpus=1)
    resources = obj["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"] = resources["limits"] = {**resources["requests"], "cpu": str(cpus)}
    obj["spec"]["template"]["spec"] |= spec
    obj["spec"]["template"]["metadata"]["labels"] = dict(labels)
    await road.cluster.request("POST", road.jobs, obj)


async def road_without_topology(plane: ControlPlane, shape: tuple[int, ...]) -> Road:
    """A tenant of a flavor whose nodes kube-scheduler alone chooses."""
    road = await make_road(plane.cluster, shape=shape)
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "open"},
        "spec": {"nodeLabels": {"pool": "gpu"}},
    }
    await road.cluster.request("POST", f"{KUEUE}/resourceflavors", flavor)
    path = f"{KUEUE}/clusterqueues/team"
    groups = (await road.cluster.get(path))["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["name"] = "open"
    await road.cluster.request("PATCH", path, {"spec": {"resourceGroups": groups}}, content_type=MERGE)
    return road


@pytest.mark.mechanism("3.14")
@pytest.mark.controlplane
async def test_pods_without_a_topology_are_spread_over_zones_by_the_scheduler(plane: ControlPlane) -> None:
    """Row 3.14: six pods on three equal nodes in three zones stand two by two, though three fit on each."""
    road = await road_without_topology(plane, (3, 1, 1))
    for number in range(3):
        labels = {"topology.kubernetes.io/zone": f"zone-{number}"}
        patch = {"metadata": {"labels": labels}}
        await road.cluster.request("PATCH", f"/api/v1/nodes/node-{number}-0-0", patch, content_type=MERGE)
    async with running(configuration(), flags(plane)):
        await _submit(road, "six", {}, labels={}, pods=6, cpus=20)
        pods = await until_pods(road, "six", 6)

    assert sorted(Counter(pod["spec"]["nodeName"] for pod in pods).values()) == [2, 2, 2]


@pytest.mark.mechanism("3.16")
async def test_a_signal_makes_a_process_tell_what_it_believes(either_plane: Plane, tmp_path: Path) -> None:
    """Row 3.16: the dump has the queue with who holds and who waits, and the free room of the nodes."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 1), gpus=8)
    log = tmp_path / "log"
    async with controller(either_plane.kubeconfig, log) as process:
        await road.submit("holds", pods=1, run_seconds=600)
        await until_pods(road, "holds", 1)
        await road.submit("waits", pods=1)
        await road.until_workload("waits", "QuotaReserved", status="False")
        process.process.send_signal(signal.SIGUSR2)
        told = await _until_written(log, "dump ends")

    assert "dump: cluster queue" in told
    (queue,) = [line for line in told.splitlines() if "dump: cluster queue" in line]
    assert "gpu/nvidia.com/gpu" in queue
    assert "8/8" in queue
    assert "waits" in queue
    assert "dump: domain" in told


async def _until_written(log: Path, text: str) -> str:
    async with asyncio.timeout(30):
        while text not in (written := log.read_text()):
            await asyncio.sleep(0.05)
    return written
