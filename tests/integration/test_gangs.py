"""Gangs of other dialects than Kueue's, end to end, with the webhooks: a quorum that starts together, and extras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import CRDS, SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, SHAPE, Object, condition, has, make_road
from tests.integration.test_pods import PARTS, Pods, gates, held

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: [kqueue.dev/coscheduling-labels, scheduling.x-k8s.io/podgroup]}
"""
QUEUE = "kueue.x-k8s.io/queue-name"


class LabelledGangs(Pods):
    """One tenant whose pods say their gang by labels."""

    async def create_labelled(
        self, group: str, *names: str, quorum: str, seconds: int = 600, **annotations: str
    ) -> None:
        """Make pods of a gang, one by one."""
        for name in names:
            await self.create(name, seconds=seconds, labels={NAME: group, QUORUM: quorum}, **annotations)

    async def racks_by_pod(self, *names: str) -> list[str]:
        """The rack of each of these pods, once it has a node."""
        nodes = (await self.cluster.get("/api/v1/nodes"))["items"]
        racks = {n["metadata"]["name"]: n["metadata"]["labels"][RACK_LABEL] for n in nodes}
        bound = [await self.until_pod(n, lambda p: "nodeName" in p["spec"], what="has a node") for n in names]
        return [racks[pod["spec"]["nodeName"]] for pod in bound]

    async def until_told(self, name: str, words: str) -> None:
        """Wait until the Workload of a pod says so of its wait."""

        def told(listed: Object) -> bool:
            mine = [w for w in listed["items"] if any(o["name"] == name for o in w["metadata"]["ownerReferences"])]
            conditions = [c for w in mine for c in w.get("status", {}).get("conditions", [])]
            return any(c["type"] == "QuotaReserved" and words in c["message"] for c in conditions)

        await self.cluster.until(self.workloads, told, what=f"Workload of {name} says: {words}")

    async def workload_named(self, *, extra: bool) -> Object:
        """The Workload of the quorum, or the oldest one of an extra."""
        key = "kqueue.dev/extra-of" if extra else "kqueue.dev/gang"

        def of(listed: Object) -> list[Object]:
            return [w for w in listed["items"] if key in w["metadata"].get("annotations", {})]

        listed = await self.cluster.until(self.workloads, lambda found: bool(of(found)), what=f"Workload with {key}")
        return of(listed)[0]

    async def create_of_class(self, gang: str, count: int, priority: str) -> None:
        """Make a whole gang with a WorkloadPriorityClass."""
        labels = {NAME: gang, QUORUM: str(count)}
        if priority:
            labels["kueue.x-k8s.io/priority-class"] = priority
        for name in named(gang, count):
            await self.create(name, labels=labels)

    async def base_of(self, gang: str) -> Object:
        """The Workload of a gang's quorum."""

        def of(listed: Object) -> list[Object]:
            marked = f"kqueue.dev/coscheduling-labels:{gang}"
            return [w for w in listed["items"] if w["metadata"]["annotations"].get("kqueue.dev/gang") == marked]

        return of(await self.cluster.until(self.workloads, lambda got: bool(of(got)), what=f"Workload of {gang}"))[0]

    async def until_base(self, gang: str, kind: str, *, status: str = "True") -> Object:
        """Wait for a condition of the Workload of a gang's quorum; returns the Workload."""
        path = f"{self.workloads}/{(await self.base_of(gang))['metadata']['name']}"

        def reached(workload: Object) -> bool:
            return any(
                c["type"] == kind and c["status"] == status for c in workload.get("status", {}).get("conditions", [])
            )

        return await self.cluster.until(path, reached, what=f"gang {gang}: {kind}={status}")

    async def running(self) -> set[str]:
        """The pods that run and are not being deleted."""
        listed = (await self.cluster.get(self.pods))["items"]
        alive = [p for p in listed if "deletionTimestamp" not in p["metadata"]]
        return {p["metadata"]["name"] for p in alive if p["status"].get("phase") == "Running"}


@asynccontextmanager
async def world(plane: Plane, *, gpus: int, shape: tuple[int, ...] = SHAPE) -> AsyncIterator[LabelledGangs]:
    """Nodes, a tenant with quota for so many GPUs, and a controller with its webhooks."""
    await plane.cluster.apply_crds(CRDS / "optional")
    road = await make_road(plane.cluster, gpus=gpus, shape=shape)
    pods = LabelledGangs(plane.cluster, road.namespace)
    async with controlled(plane):
        yield pods


@asynccontextmanager
async def controlled(plane: Plane) -> AsyncIterator[None]:
    """A controller with its webhooks."""
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configuration = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    async with running(configuration, flags, timings=Timings(queue_flush_window=0.1)) as process:
        await process.operator.ready.wait()
        yield


@pytest.mark.proves("gang by labels", "queueing")
@pytest.mark.proves("gang by labels", "pods beyond the quorum")
@pytest.mark.proves("gang by labels", "replacement pods")
@pytest.mark.proves("gang by labels", "webhook validation")
@pytest.mark.mechanism("0.1", "0.2")
async def test_a_quorum_runs_and_the_third_pod_waits(either_plane: Plane) -> None:
    """Rows 0.1, 0.2: one Workload of two; the third pod waits alone until there is quota; a pod in no gang is left
    alone; a wrong number is refused."""
    async with world(either_plane, gpus=16) as pods:
        single = await pods.create("single", gpus=1, seconds=1)
        with pytest.raises(RequestError, match="must be a whole number of pods, 1 or more"):
            await pods.create_labelled("bad", "bad-0", quorum="two")
        await pods.create_labelled("g", "g-0", "g-1", "g-2", quorum="2")
        base = await pods.workload_named(extra=False)
        await pods.until_running("g-0", "g-1")
        extra = await pods.workload_named(extra=True)
        waits = await pods.pod("g-2")
        await pods.delete("g-0")
        await pods.until_gone("g-0")
        replaced = await pods.until_pod("g-2", lambda p: p["status"].get("phase") == "Running", what="takes the place")

    assert gates(single) == []
    assert [pod_set["count"] for pod_set in base["spec"]["podSets"]] == [2]
    assert extra["metadata"]["annotations"]["kqueue.dev/extra-of"] == base["metadata"]["name"]
    assert gates(waits) == ["admission", "topology"]
    assert "kqueue.dev/extra" not in replaced["metadata"]["annotations"]


@pytest.mark.proves("gang by labels", "finished")
@pytest.mark.proves("gang by labels", "pods beyond the quorum")
async def test_an_extra_runs_beside_its_quorum_and_beyond_its_end(either_plane: Plane) -> None:
    """The Workload of the quorum finishes when the quorum has succeeded, and the extra runs on to its own end."""
    async with world(either_plane, gpus=24) as pods:
        await pods.create_labelled("g", "g-0", "g-1", quorum="2", seconds=3)
        await pods.until_running("g-0", "g-1")
        await pods.create_labelled("g", "g-2", quorum="2", seconds=6)
        await pods.until_running("g-2")
        extra, base = await pods.workload_named(extra=True), await pods.workload_named(extra=False)
        path = f"{pods.workloads}/{base['metadata']['name']}"
        finished = await pods.cluster.until(path, lambda w: has(w, "Finished"), what="the quorum has finished")
        end = await pods.until_pod("g-2", lambda p: p["status"].get("phase") == "Succeeded", what="succeeds")
        await pods.until_pod("g-2", lambda p: not held(p), what="is let go")

    assert condition(finished, "Finished")["message"] == "2 of 2 pods of the group succeeded"
    assert [pod_set["count"] for pod_set in extra["spec"]["podSets"]] == [1]
    assert end["metadata"]["annotations"]["kqueue.dev/extra"] == "true"


async def test_the_next_run_of_a_gang_needs_a_quorum_of_its_own(either_plane: Plane) -> None:
    """A user deletes the Workload of a finished gang and keeps its pods: two new pods make the next run, not one."""
    async with world(either_plane, gpus=16) as pods:
        await pods.create_labelled("g", "g-0", "g-1", quorum="2", seconds=1)
        first = await pods.until_base("g", "Finished")
        path = f"{pods.workloads}/{first['metadata']['name']}"
        await pods.cluster.request("DELETE", path)
        await pods.cluster.until(pods.workloads, lambda listed: not listed["items"], what="the Workload is gone")
        await pods.create_labelled("g", "g-2", quorum="2")
        told = await pods.until_event("g-2", "ErrWorkloadCompose")
        await pods.create_labelled("g", "g-3", quorum="2")
        await pods.until_running("g-2", "g-3")
        second = await pods.base_of("g")

    assert "the group has 1 of 2 pods; it waits for 1 more" in told
    assert {owner["name"] for owner in second["metadata"]["ownerReferences"]} == {"g-2", "g-3"}


def named(gang: str, count: int) -> list[str]:
    """The names of so many members."""
    return [f"{gang}-{number}" for number in range(count)]


@pytest.mark.proves("gang by labels", "queueing")
@pytest.mark.proves("gang by labels", "replacement pods")
@pytest.mark.mechanism("0.10", "0.11")
async def test_the_last_member_of_the_quorum_lets_all_go(either_plane: Plane) -> None:
    """Rows 0.10, 0.11: 4 of 5 hold nothing and say so; the fifth lets all go.  With 3 running two replacements start."""
    async with world(either_plane, gpus=40) as pods:
        await pods.create_labelled("g", *named("g", 4), quorum="5")
        said = await pods.until_event("g-0", "ErrWorkloadCompose")
        workloads = (await pods.cluster.get(pods.workloads))["items"]
        queue = await pods.cluster.get(f"{KUEUE}/clusterqueues/team")
        held_then = [gates(await pods.pod(name)) for name in named("g", 4)]
        await pods.create_labelled("g", "g-4", quorum="5")
        await pods.until_running(*named("g", 5))
        await pods.delete("g-1")
        await pods.delete("g-3")
        await pods.create_labelled("g", "g-5", "g-6", quorum="5")
        await pods.until_running("g-0", "g-2", "g-4", "g-5", "g-6")
        await pods.until_gone("g-1", "g-3")
        base = await pods.base_of("g")

    assert "the group has 4 of 5 pods; it waits for 1 more, since " in said
    assert workloads == []
    assert queue["status"].get("reservingWorkloads", 0) == 0
    assert held_then == [["admission", "topology"]] * 4
    assert [pod_set["count"] for pod_set in base["spec"]["podSets"]] == [5]


@pytest.mark.mechanism("0.12")
async def test_what_a_starting_gang_has_reserved_is_given_to_nobody(either_plane: Plane) -> None:
    """Row 0.12: the members have no node yet, for a scheduler that is not there has to bind them; another gang waits."""
    async with world(either_plane, gpus=16) as pods:
        for name in named("first", 2):
            labels = {NAME: "first", QUORUM: "2"}
            made = pods.made(name, labels=labels)
            made["spec"]["schedulerName"] = "nobody"
            await pods.cluster.request("POST", pods.pods, made)
        await pods.until_base("first", "Admitted")
        await pods.create_labelled("second", *named("second", 2), quorum="2")
        waits = condition(await pods.until_base("second", "QuotaReserved", status="False"), "QuotaReserved")
        unbound = [await pods.until_pod(n, lambda p: not gates(p), what="is released") for n in named("first", 2)]

    assert "16 nvidia.com/gpu of flavor gpu asked, ClusterQueue team has 0 free" in waits["message"]
    assert [pod["spec"].get("nodeName") for pod in unbound] == [None, None]


def _one_runs_whole(listed: Object) -> bool:
    """Whether all pods of one gang, `a` or `b`, run; which of them is complete first is a matter of milliseconds."""
    running = [p["metadata"]["name"][0] for p in listed["items"] if p["status"].get("phase") == "Running"]
    return 8 in (running.count("a"), running.count("b"))


@pytest.mark.mechanism("0.15")
async def test_two_gangs_run_one_after_the_other(either_plane: Plane) -> None:
    """Row 0.15: room for one of two gangs of eight, whose pods come in turns: one runs whole, and then the other."""
    async with world(either_plane, gpus=64) as pods:
        for first, second in zip(named("a", 8), named("b", 8), strict=True):
            await pods.create_labelled("a", first, quorum="8", seconds=5)
            await pods.create_labelled("b", second, quorum="8", seconds=5)
        listed = await pods.cluster.until(pods.pods, _one_runs_whole, what="one of the gangs runs")
        states = {pod["metadata"]["name"]: (pod["status"].get("phase"), gates(pod)) for pod in listed["items"]}
        await pods.until_base("a", "Finished")
        await pods.until_base("b", "Finished")

    waiting = [state for state in states.values() if state[0] != "Running"]
    assert waiting == [("Pending", ["admission", "topology"])] * 8


@pytest.mark.proves("gang by labels", "priority class")
@pytest.mark.mechanism("4.20")
async def test_a_gang_is_preempted_whole_and_preempts_what_it_needs_or_nobody(either_plane: Plane) -> None:
    """Row 4.20: a gang that never fits preempts nobody; one that needs a part of another's room takes all of it."""
    async with world(either_plane, gpus=32) as pods:
        rules = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        await pods.patch(f"{KUEUE}/clusterqueues/team", {"spec": rules})
        for name, value in (("gang-low", -10), ("gang-high", 10)):
            await pods.cluster.request(
                "POST",
                f"{KUEUE}/workloadpriorityclasses",
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "WorkloadPriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                },
            )
        await pods.create_of_class("low", 3, "gang-low")
        await pods.create_of_class("middle", 1, "")
        await pods.until_running(*named("low", 3), "middle-0")
        await pods.create_of_class("huge", 5, "gang-high")
        await pods.until_base("huge", "QuotaReserved", status="False")
        untouched = await pods.running()
        await pods.create_of_class("high", 2, "gang-high")
        await pods.until_running(*named("high", 2))
        finally_ = await pods.running()

    assert untouched == {*named("low", 3), "middle-0"}
    assert finally_ == {*named("high", 2), "middle-0"}


@pytest.mark.proves("gang by labels", "start with topology")
@pytest.mark.proves("gang by labels", "pods beyond the quorum")
async def test_an_extra_waits_for_the_rack_of_its_gang(either_plane: Plane) -> None:
    """A free rack is no place for a pod beyond the quorum; it starts when its gang's rack has room again."""
    async with world(either_plane, gpus=512, shape=(1, 2, 3)) as pods:
        await pods.create_labelled("g", "g-0", "g-1", quorum="2", podset_required_topology=RACK_LABEL)
        await pods.until_running("g-0", "g-1")
        await pods.create_labelled("g", "g-2", quorum="2", podset_required_topology=RACK_LABEL)
        await pods.until_running("g-2")
        await pods.create_labelled("g", "g-3", quorum="2", podset_required_topology=RACK_LABEL)
        await pods.until_told("g-3", "rack of its gang, block-0/rack-0-0, has room for 0 of 1 pods")
        before = await pods.racks_by_pod("g-0", "g-1", "g-2")
        waits = await pods.pod("g-3")
        await pods.delete("g-2")
        (after,) = await pods.racks_by_pod("g-3")

    assert gates(waits) == ["admission", "topology"]
    assert {*before, after} == {"rack-0-0"}


async def test_an_extra_may_leave_a_preferred_rack(either_plane: Plane) -> None:
    """It goes into the rack of its gang while there is room, and then into another one."""
    async with world(either_plane, gpus=512, shape=(1, 2, 3)) as pods:
        for number in range(4):
            await pods.create_labelled("g", f"g-{number}", quorum="2", podset_preferred_topology=RACK_LABEL)
            if number:
                await pods.until_running(f"g-{number}")
        racks = await pods.racks_by_pod("g-0", "g-1", "g-2", "g-3")

    assert racks == ["rack-0-0", "rack-0-0", "rack-0-0", "rack-0-1"]


@pytest.mark.proves("PodGroup", "start with topology")
@pytest.mark.proves("PodGroup", "pods beyond the quorum")
async def test_all_roles_of_a_group_object_run_in_one_rack(either_plane: Plane) -> None:
    """The smaller rack has room for each role alone, so only the larger one has room for both (G3.59); a pod beyond the
    quorum waits for that rack, too.
    """
    rack = {"kueue.x-k8s.io/podset-required-topology": RACK_LABEL}
    async with world(either_plane, gpus=512, shape=(1, 2, 3)) as pods:
        change = {"spec": {"unschedulable": True}}
        await pods.cluster.request("PATCH", "/api/v1/nodes/node-0-0-0", change, content_type=MERGE_PATCH)
        groups = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{pods.namespace}/podgroups"
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": pods.namespace, "annotations": rack},
            "spec": {"minMember": 3},
        }
        await pods.cluster.request("POST", groups, group)
        for name, cpus in (("server", "2"), ("worker-0", "1"), ("worker-1", "1")):
            made = pods.made(name, labels={"scheduling.x-k8s.io/pod-group": "g"})
            made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpus
            made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = cpus
            await pods.cluster.request("POST", pods.pods, made)
        await pods.until_running("server", "worker-0", "worker-1")
        racks = await pods.racks_by_pod("server", "worker-0", "worker-1")
        further = pods.made("further", labels={"scheduling.x-k8s.io/pod-group": "g"})
        await pods.cluster.request("POST", pods.pods, further)
        await pods.until_told("further", "rack of its gang, block-0/rack-0-1, has room for 0 of 1 pods")
        base = await pods.workload_named(extra=False)

    assert [pod_set["count"] for pod_set in base["spec"]["podSets"]] in ([1, 2], [2, 1])
    assert set(racks) == {"rack-0-1"}


async def group_of_two(pods: Pods, *, queue: str) -> str:
    """Make PodGroup g of two members in a queue, and return its path."""
    groups = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{pods.namespace}/podgroups"
    metadata = {"name": "g", "namespace": pods.namespace, "labels": {QUEUE: queue}}
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata}
    await pods.cluster.request("POST", groups, group | {"spec": {"minMember": 2}})
    return f"{groups}/g"


async def test_a_waiting_gang_moves_with_the_queue_of_its_group_object(either_plane: Plane) -> None:
    """G2.6: the webhook of pods took the first queue over, and lets kqueue write the second one."""
    async with world(either_plane, gpus=512) as pods:
        group = await group_of_two(pods, queue="missing")
        for name in ("g-0", "g-1"):
            made = pods.made(name, queue=None, labels={"scheduling.x-k8s.io/pod-group": "g"})
            await pods.cluster.request("POST", pods.pods, made)
        before = await pods.workload_named(extra=False)
        change = {"metadata": {"labels": {QUEUE: "main"}}}
        await pods.cluster.request("PATCH", group, change, content_type=MERGE_PATCH)
        await pods.until_running("g-0", "g-1")
        after = await pods.workload_named(extra=False)

    assert [workload["spec"]["queueName"] for workload in (before, after)] == ["missing", "main"]
    assert before["metadata"]["uid"] == after["metadata"]["uid"]


async def test_a_gathering_gang_moves_with_the_queue_of_its_group_object(either_plane: Plane) -> None:
    """G2.6: the webhook gave the first queue to the pod, the object gets the second one before the other pod comes."""
    async with world(either_plane, gpus=512) as pods:
        group = await group_of_two(pods, queue="missing")
        member = {"scheduling.x-k8s.io/pod-group": "g"}
        first = await pods.cluster.request("POST", pods.pods, pods.made("g-0", queue=None, labels=member))
        change = {"metadata": {"labels": {QUEUE: "main"}}}
        await pods.cluster.request("PATCH", group, change, content_type=MERGE_PATCH)
        await pods.until_pod("g-0", lambda p: p["metadata"]["labels"][QUEUE] == "main", what="moves")
        await pods.cluster.request("POST", pods.pods, pods.made("g-1", queue="main", labels=member))
        await pods.until_running("g-0", "g-1")

    assert first["metadata"]["labels"][QUEUE] == "missing"
    assert first["metadata"]["annotations"]["kqueue.dev/given-queue"] == "missing"


@pytest.mark.mechanism("0.20")
@pytest.mark.parametrize("gpus", [(0, 8, 8, 8), (1, 1, 8, 8)], ids=["launcher and workers", "servers and workers"])
async def test_a_job_of_several_roles_runs_whole_or_not_at_all(either_plane: Plane, gpus: tuple[int, ...]) -> None:
    """Row 0.20: not one of four pods runs while there is room for three; an eviction stops all of them."""
    async with world(either_plane, gpus=sum(gpus) - 1) as pods:
        for number, amount in enumerate(gpus):
            await pods.create(f"g-{number}", gpus=amount, labels={NAME: "g", QUORUM: "4"})
        await pods.until_base("g", "QuotaReserved", status="False")
        held_then = [gates(await pods.pod(name)) for name in named("g", 4)]
        groups = (await pods.cluster.get(f"{KUEUE}/clusterqueues/team"))["spec"]["resourceGroups"]
        groups[0]["flavors"][0]["resources"][1]["nominalQuota"] = str(sum(gpus))
        await pods.patch(f"{KUEUE}/clusterqueues/team", {"spec": {"resourceGroups": groups}})
        await pods.until_running(*named("g", 4))
        workload = f"{pods.workloads}/{(await pods.base_of('g'))['metadata']['name']}"
        await pods.patch(workload, {"spec": {"active": False}})
        await pods.cluster.until(workload, lambda w: not has(w, "QuotaReserved"), what="quota is back")
        left = await pods.running()

    assert held_then == [["admission", "topology"]] * 4
    assert left == set()
