"""Gangs whose members find no nodes, end to end: deadlines, rejections, the flavor that is kept, and places in line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from kqueue.runtime.client import PatchType
from tests.integration.conftest import CRDS, SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.polling import eventually, next_second
from tests.integration.road import KUEUE, Object, condition, has, queue_objects
from tests.integration.test_gangs import NAME, QUORUM, LabelledGangs
from tests.integration.test_pods import PARTS

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [pod, kqueue.dev/coscheduling-labels, scheduling.x-k8s.io/podgroup]}}
gangs:
  rejectPercentage: {percentage}
  rejectAfter: 4s
  backoff: {{base: 60s, maximum: 60s}}
"""
GROUP = "scheduling.x-k8s.io/pod-group"
NODES, ROOM = "/api/v1/nodes", "example.com/room"
QUEUE = f"{KUEUE}/clusterqueues/team"


class Starts(LabelledGangs):
    """A tenant whose flavor has no topology; members may ask for a node with room, which no node is at first."""

    leaders: Callable[[], Mapping[str, object]]
    """Returns the gangs for which the controller keeps flavors."""

    async def gang(
        self, name: str, members: int, *, stuck: int = 0, room: str = "yes", timeout: int = 600, priority: str = ""
    ) -> None:
        """Create a gang of these members, the last of which find no node."""
        marks = {NAME: name, QUORUM: str(members)}
        if priority:
            marks["kueue.x-k8s.io/priority-class"] = priority
        await self.members(name, members, marks, stuck=stuck, room=room, timeout=str(timeout))

    async def group(self, name: str, members: int, *, stuck: int, timeout: int) -> None:
        """Create a PodGroup with a deadline, and its members."""
        api = "scheduling.x-k8s.io/v1alpha1"
        metadata = {"name": name, "namespace": self.namespace}
        spec = {"minMember": members, "scheduleTimeoutSeconds": timeout}
        made = {"apiVersion": api, "kind": "PodGroup", "metadata": metadata, "spec": spec}
        await self.cluster.request("POST", f"/apis/{api}/namespaces/{self.namespace}/podgroups", made)
        await self.members(name, members, {GROUP: name}, stuck=stuck)

    async def members(
        self, name: str, count: int, marks: dict[str, str], *, stuck: int, room: str = "yes", timeout: str = ""
    ) -> None:
        """Create pods with these labels, the last of which find no node."""
        for number in range(count):
            pod = self.made(f"{name}-{number}", labels=marks)
            if timeout:
                pod["metadata"]["annotations"]["kqueue.dev/schedule-timeout-seconds"] = timeout
            if number >= count - stuck:
                pod["spec"]["nodeSelector"] = {ROOM: room}
            await self.cluster.request("POST", self.pods, pod)

    async def make_room(self) -> None:
        """All nodes have room from now on; some of them are free."""
        for node in (await self.cluster.get(NODES))["items"]:
            await self.change(f"{NODES}/{node['metadata']['name']}", {"metadata": {"labels": {ROOM: "yes"}}})

    async def hold(self, *, off: bool = False) -> None:
        """The ClusterQueue admits nobody, or again."""
        await self.change(QUEUE, {"spec": {"stopPolicy": "None" if off else "Hold"}})

    async def change(self, path: str, change: Object) -> None:
        """Change an object that is no pod."""
        await self.cluster.request("PATCH", path, change, content_type=PatchType.MERGE)

    async def until(self, gang: str, kind: str, *, status: str = "True", reason: str = "") -> Object:
        """Wait for a condition of the Workload of a gang; returns the condition."""

        def found(listed: Object) -> list[Object]:
            return [
                c
                for w in listed["items"]
                if w["metadata"].get("annotations", {}).get("kqueue.dev/gang", "").endswith(f":{gang}")
                for c in w.get("status", {}).get("conditions", [])
                if (c["type"], c["status"]) == (kind, status) and reason in ("", c["reason"])
            ]

        what = f"{gang}: {kind}={status} {reason}"
        listed = await self.cluster.until(self.workloads, lambda now: bool(found(now)), what=what)
        return found(listed)[0]

    async def until_kept(self) -> None:
        """Wait until the controller keeps a flavor for a gang."""
        await eventually(lambda: bool(self.leaders()))

    async def until_unused(self) -> None:
        """Wait until nothing is reserved in the ClusterQueue."""

        def unused(queue: Object) -> bool:
            flavors = queue.get("status", {}).get("flavorsReservation", [])
            return bool(flavors) and all(r.get("total", "0") == "0" for f in flavors for r in f["resources"])

        await self.cluster.until(QUEUE, unused, what="nothing is reserved")

    async def left(self, gang: str) -> list[str]:
        """Members that go on."""
        pods = (await self.cluster.get(self.pods))["items"]
        return [
            pod["metadata"]["name"]
            for pod in pods
            if gang in (pod["metadata"]["labels"].get(NAME), pod["metadata"]["labels"].get(GROUP))
            and not pod["metadata"].get("deletionTimestamp")
        ]


@asynccontextmanager
async def world(plane: Plane, *, gpus: int = 64, percentage: int = 100) -> AsyncIterator[Starts]:
    """Eight nodes of 8 GPUs in a flavor without topology, a tenant, and a controller with its webhooks."""
    await plane.cluster.apply_crds(CRDS / "optional")
    await plane.cluster.add_nodes((1, 1, 8), labels={"pool": "gpu"})
    namespace = await plane.cluster.create_namespace("gangs")
    for collection, obj in queue_objects(namespace, gpus=gpus):
        obj["spec"].pop("topologyName", None)
        if obj["kind"] != "Topology":
            await plane.cluster.request("POST", collection, obj)
    high = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}}
    await plane.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", {**high, "value": 10})
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    text = CONFIGURATION.format(percentage=percentage)
    configuration = parse(text, source="test", own_namespace="kqueue-system")
    async with running(configuration, flags, timings=Timings(queue_flush_window=0.1)) as process:
        await process.operator.ready.wait()
        gangs = Starts(plane.cluster, namespace)
        gangs.leaders = lambda: process.operator.cache.gangs.leaders
        yield gangs


@pytest.mark.mechanism("0.14", "4.19")
async def test_the_deadline_of_one_member_stops_all_and_frees_everything(either_plane: Plane) -> None:
    """Rows 0.14, 4.19: two members run, the third finds no node within 6 s of the admission."""
    async with world(either_plane) as gangs:
        await gangs.gang("g", 3, stuck=1, timeout=6)
        await gangs.until_running("g-0", "g-1")
        evicted = await gangs.until("g", "Evicted", reason="GangScheduleTimeout")
        await gangs.until("g", "QuotaReserved", status="False")
        await gangs.until_unused()
        left = await gangs.left("g")

    assert evicted["message"].startswith("2 of 3 pods were scheduled within 6 s of the admission; all are stopped;")
    assert evicted["message"].endswith("(time 1)")
    assert left == []


@pytest.mark.mechanism("4.3")
async def test_the_deadline_of_a_pod_group_counts_from_its_admission(either_plane: Plane) -> None:
    """Row 4.3: one of three members finds no node within 10 s; all are stopped then, and not before."""
    async with world(either_plane) as gangs:
        await gangs.group("g", 3, stuck=1, timeout=10)
        await gangs.until_running("g-0", "g-1")
        admitted = await gangs.until("g", "Admitted")
        evicted = await gangs.until("g", "Evicted", reason="GangScheduleTimeout")
        await gangs.until("g", "QuotaReserved", status="False")
        await gangs.until_unused()
        left = await gangs.left("g")

    first, last = (datetime.fromisoformat(each["lastTransitionTime"]) for each in (admitted, evicted))
    assert last - first >= timedelta(seconds=10)
    assert evicted["message"].startswith("2 of 3 pods were scheduled within 10 s of the admission; all are stopped;")
    assert left == []


@pytest.mark.mechanism("4.11")
async def test_a_single_pod_passes_gangs_that_wait_and_a_kept_flavor_at_its_deadline(either_plane: Plane) -> None:
    """Row 4.11: one gang gathers and one waits for quota; a leading gang holds the pod until its deadline."""
    async with world(either_plane) as gangs:
        await gangs.create("first")
        await gangs.until_running("first")
        await gangs.create_labelled("half", "half-0", quorum="2")
        await gangs.gang("large", 8)
        await gangs.until("large", "QuotaReserved", status="False")
        await gangs.create("single")
        await gangs.until_running("single")
        await gangs.until("large", "QuotaReserved", status="False")

        await gangs.gang("lead", 3, stuck=1, timeout=10)
        await gangs.until_kept()
        await gangs.create("late")
        await gangs.until_told("late", "is kept for gang")
        await gangs.until_running("late")
        await gangs.until("lead", "Evicted", reason="GangScheduleTimeout")


@pytest.mark.mechanism("4.17")
async def test_a_gang_is_rejected_above_the_share_and_waits_at_it(either_plane: Plane) -> None:
    """Row 4.17: at 25 percent one of four waits, and two of four are too many."""
    async with world(either_plane, percentage=25) as gangs:
        await gangs.gang("few", 4, stuck=1)
        await gangs.until_running("few-0", "few-1", "few-2")
        admitted = datetime.fromisoformat((await gangs.until("few", "Admitted"))["lastTransitionTime"])
        late = admitted + timedelta(seconds=7)
        await gangs.cluster.until(gangs.pods, lambda _: datetime.now(UTC) > late, what="a rejection would be due")
        await gangs.make_room()
        await gangs.until_running("few-3")
        await gangs.gang("many", 3, stuck=1, room="elsewhere")
        evicted = await gangs.until("many", "Evicted", reason="GangRejected")
        await gangs.until("many", "QuotaReserved", status="False")

    assert evicted["message"].startswith("1 of 3 pods cannot be scheduled (33.3 %, more than 25 %): ")


@pytest.mark.mechanism("4.13")
async def test_of_two_gangs_the_one_further_from_its_quorum_is_rejected(either_plane: Plane) -> None:
    """Row 4.13: both start at once; the nearer one has time again and completes."""
    async with world(either_plane, percentage=0) as gangs:
        await gangs.hold()
        await gangs.gang("near", 3, stuck=1)
        await gangs.gang("far", 3, stuck=2)
        for gang in ("near", "far"):
            await gangs.until(gang, "QuotaReserved", status="False")
        await gangs.hold(off=True)
        evicted = await gangs.until("far", "Evicted", reason="GangRejected")
        await gangs.make_room()
        await gangs.until_running("near-0", "near-1", "near-2")

    assert evicted["message"].startswith("2 of 3 pods cannot be scheduled (66.7 %, more than 0 %): ")


@pytest.mark.mechanism("4.14")
async def test_a_late_gang_waits_until_the_leader_has_its_quorum(either_plane: Plane) -> None:
    """Row 4.14: there are quota and nodes for it."""
    async with world(either_plane) as gangs:
        await gangs.gang("lead", 3, stuck=1)
        await gangs.until_running("lead-0", "lead-1")
        await gangs.until_kept()
        await gangs.until("lead", "Admitted")
        await gangs.gang("small", 1)
        waits = await gangs.until("small", "QuotaReserved", status="False", reason="WaitingForPodsReady")
        await gangs.make_room()
        await gangs.until_running("lead-2", "small-0")

    assert waits["message"].startswith("Flavor gpu is kept for gang ")
    assert "of which 2 of 3 pods are scheduled" in waits["message"]


@pytest.mark.mechanism("4.15")
async def test_a_newcomer_of_higher_priority_is_admitted_and_the_leader_leaves(either_plane: Plane) -> None:
    """Row 4.15."""
    async with world(either_plane) as gangs:
        await gangs.gang("lead", 3, stuck=1)
        await gangs.until_running("lead-0", "lead-1")
        await gangs.until_kept()
        await gangs.gang("small", 1)
        await gangs.until("small", "QuotaReserved", status="False", reason="WaitingForPodsReady")
        await gangs.gang("urgent", 1, priority="high")
        await gangs.until_running("urgent-0")
        evicted = await gangs.until("lead", "Evicted", reason="GangMadeWay")
        await gangs.until("lead", "QuotaReserved", status="False")
        await gangs.until_running("small-0")

    assert evicted["message"].startswith("made way for ")
    assert evicted["message"].endswith(", which has a higher priority")


@pytest.mark.mechanism("0.7", "4.21")
async def test_a_late_member_of_an_early_gang_goes_before_a_newer_pod(either_plane: Plane) -> None:
    """Rows 0.7, 4.21: there is quota for three pods; what becomes free is for the gang's further member."""
    async with world(either_plane, gpus=24) as gangs:
        await gangs.gang("g", 2)
        await gangs.create("filler")
        await gangs.until_running("g-0", "g-1", "filler")
        await next_second()
        await gangs.create("newer")
        await next_second()
        await gangs.create_labelled("g", "g-2", quorum="2")
        extra = await gangs.workload_named(extra=True)
        await gangs.cluster.until(
            f"{gangs.workloads}/{extra['metadata']['name']}",
            lambda w: bool(w.get("status", {}).get("conditions")) and not has(w, "QuotaReserved"),
            what="the further member waits",
        )
        await gangs.delete("filler")
        await gangs.until_running("g-2")
        newer = await gangs.pod("newer")

    assert condition(newer, "PodScheduled")["reason"] == "SchedulingGated"
