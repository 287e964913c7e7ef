"""PodGroups of other projects, end to end: a quorum that starts together, the status of the object, and its life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kqueue.config import Timings
from kqueue.manager.process import Flags, running
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.gang_dialects import VOLCANO, X_K8S, Dialect, Groups, Plane, configuration, serve
from tests.integration.road import Object, make_road
from tests.integration.test_pods import PARTS, gates

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

either_form = pytest.mark.parametrize("form", [X_K8S, VOLCANO], ids=["coscheduling", "volcano"])


@asynccontextmanager
async def controller(plane: Plane, form: Dialect, *, gangs: str = "{}", **more: Any) -> AsyncIterator[None]:
    """A controller with its webhooks that takes PodGroups of one form; `gangs` is that section, `more` are flags."""
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}", **more,
    )  # fmt: skip
    timings = Timings(queue_flush_window=0.1, status_refresh_window=0.2)
    async with running(configuration(form, gangs=gangs), flags, timings=timings) as process:
        await process.operator.ready.wait()
        yield


async def prepared(plane: Plane, form: Dialect, *, gpus: int) -> Groups:
    """A tenant with quota for so many GPUs, on a cluster that serves the kind."""
    await serve(plane, form.api_version)
    road = await make_road(plane.cluster, gpus=gpus)
    return Groups(plane.cluster, road.namespace, form)


@pytest.mark.proves("PodGroup", "queueing")
@pytest.mark.proves("Volcano PodGroup", "queueing")
@pytest.mark.proves("PodGroup", "pods beyond the quorum")
@pytest.mark.proves("Volcano PodGroup", "pods beyond the quorum")
@pytest.mark.mechanism("4.1", "3.31")
@either_form
async def test_all_of_a_quorum_run_or_none(either_plane: Plane, form: Dialect) -> None:
    """Row 4.1: with room for three of four no pod runs; with room for four all run, and a further pod is an extra."""
    groups = await prepared(either_plane, form, gpus=24)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=4)
        await groups.add("g", "g-0", "g-1", "g-2", "g-3")
        waits = await groups.until_phase("g", form.phases[0])
        workload = await groups.workload_of_group("g")
        held_back = [gates(await groups.pod(f"g-{i}")) for i in range(4)]
        await groups.set_quota("nvidia.com/gpu", 40)
        await groups.until_running("g-0", "g-1", "g-2", "g-3")
        runs = await groups.until_phase("g", form.phases[1], running=4)
        await groups.add("g", "g-4")
        await groups.until_running("g-4")
        more = await groups.until_phase("g", form.phases[1], running=5)

    [owner] = workload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["apiVersion"], owner["controller"]) == ("PodGroup", form.api_version, True)
    assert [pod_set["count"] for pod_set in workload["spec"]["podSets"]] == [4]
    assert held_back == [["admission", "topology"]] * 4
    assert waits.get("running", 0) == 0
    scheduled = [next(c for c in s["conditions"] if c["type"] == "Scheduled")["status"] for s in (waits, runs, more)]
    assert scheduled == ["False", "True", "True"]


@pytest.mark.proves("Volcano PodGroup", "start with topology")
async def test_a_waiting_group_follows_its_topology(either_plane: Plane) -> None:
    """The level is added to Volcano's PodGroup when its Workload waits; the pods then run in one rack."""
    groups = await prepared(either_plane, VOLCANO, gpus=8)
    async with controller(either_plane, VOLCANO):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0", "g-1")
        before = await groups.workload_of_group("g")
        level = {"spec": {"networkTopology": {"mode": "hard", "highestTierName": RACK_LABEL}}}
        await groups.cluster.request("PATCH", f"{groups.groups}/g", level, content_type=MERGE_PATCH)

        def asks(workload: Object) -> bool:
            return bool(workload["spec"]["podSets"][0].get("topologyRequest", {}).get("required") == RACK_LABEL)

        path = f"{groups.workloads}/{before['metadata']['name']}"
        after = await groups.cluster.until(path, asks, what="the Workload asks for a rack")
        await groups.set_quota("nvidia.com/gpu", 16)
        await groups.until_running("g-0", "g-1")
        racks = await groups.racks("g-0", "g-1")

    assert not asks(before)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"]["kqueue.dev/gang-topology"] == "together"
    assert len(racks) == 1


async def test_a_group_whose_controller_waits_for_room_gets_pods(either_plane: Plane) -> None:
    """Volcano's Inqueue comes with the room, before any pod; the pods that are created then start together."""
    groups = await prepared(either_plane, VOLCANO, gpus=8)
    async with controller(either_plane, VOLCANO):
        least = {"nvidia.com/gpu": "16"}
        await groups.create_group_object("g", minimum=2, queue="main", minResources=least)
        await groups.until_phase("g", "Pending")
        await groups.set_quota("nvidia.com/gpu", 16)
        await groups.until_phase("g", "Inqueue")
        listed = await groups.cluster.get(groups.workloads)
        await groups.add("g", "g-0", queue=None)
        await groups.until_event("g-0", "ErrWorkloadCompose")
        still = (await groups.cluster.get(f"{groups.groups}/g"))["status"]["phase"]
        await groups.add("g", "g-1", queue=None)
        await groups.until_running("g-0", "g-1")
        await groups.until_phase("g", "Running", running=2)

    assert listed["items"] == []
    assert still == "Inqueue"


@pytest.mark.proves("PodGroup", "replacement pods")
@pytest.mark.proves("Volcano PodGroup", "replacement pods")
@pytest.mark.mechanism("4.7")
@either_form
async def test_a_failed_member_makes_the_gang_fail_until_it_is_replaced(either_plane: Plane, form: Dialect) -> None:
    """Row 4.7: the phase follows a failed member of the quorum and its replacement, and no pod beyond the quorum."""
    groups = await prepared(either_plane, form, gpus=40)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0")
        await groups.add("g", "g-1", seconds=2, fails=True)
        failed = await groups.until_phase("g", "Failed" if form is X_K8S else "Unknown", running=1, failed=1)
        await groups.add("g", "g-2")
        again = await groups.until_phase("g", form.phases[1], running=2)
        await groups.add("g", "g-3", seconds=2, fails=True)
        await groups.until_pod("g-3", lambda p: p["status"].get("phase") == "Failed", what="fails beyond the quorum")
        beyond = await groups.until_phase("g", form.phases[1], running=2, failed=again.get("failed", 0) + 1)

    scheduled = [
        next(c for c in s["conditions"] if c["type"] == "Scheduled")["status"] for s in (failed, again, beyond)
    ]
    assert scheduled == ["False", "True", "True"]


@either_form
async def test_pods_outlive_their_group_object(either_plane: Plane, form: Dialect) -> None:
    """A deleted PodGroup ends no pod: the pods run to their end, and its Workload holds the quota until then."""
    groups = await prepared(either_plane, form, gpus=16)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0", "g-1", seconds=4)
        await groups.until_running("g-0", "g-1")
        name = (await groups.workload_of_group("g"))["metadata"]["name"]
        await groups.cluster.request("DELETE", f"{groups.groups}/g")
        await groups.add("g", "g-2")
        told = await groups.until_event("g-2", "GangGone")
        still = await groups.cluster.get(f"{groups.workloads}/{name}")
        for pod in ("g-0", "g-1"):
            await groups.until_pod(pod, lambda p: p["status"].get("phase") == "Succeeded", what="runs to its end")
        await groups.cluster.until(
            groups.workloads,
            lambda listed: name not in {w["metadata"]["name"] for w in listed["items"]},
            what="the Workload is gone with the last pod",
        )

    assert told == "PodGroup g was deleted; make it anew, or delete this pod"
    assert still["status"]["admission"]


@pytest.mark.mechanism("4.2")
async def test_a_group_waits_until_its_least_resources_are_free(either_plane: Plane) -> None:
    """Row 4.2: 10 cpu are asked and 9 are free; one more, and the group is released."""
    groups = await prepared(either_plane, X_K8S, gpus=40)
    await groups.set_quota("cpu", 10)
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("holder", minimum=1)
        await groups.add("holder", "h")
        await groups.until_running("h")
        await groups.create_group_object("driver", minimum=1, minResources={"cpu": "10"})
        await groups.add("driver", "d")
        told = await groups.until_waits("driver", "MinResources")
        held_back = gates(await groups.pod("d"))
        await groups.deactivate("holder")
        await groups.until_running("d")

    assert told.startswith(
        "MinResources asks for 10 cpu, 9 cpu is free of flavor gpu in ClusterQueue team, 1 cpu more needed"
    )
    assert "admission" in held_back


@pytest.mark.mechanism("4.2")
async def test_of_two_drivers_on_room_for_one_one_starts(either_plane: Plane) -> None:
    """Row 4.2: a driver requests 1 of the 10 cpu that it needs free; the second starts when the first has gone."""
    groups = await prepared(either_plane, X_K8S, gpus=40)
    await groups.set_quota("cpu", 12)
    async with controller(either_plane, X_K8S):
        for name in ("a", "b"):
            await groups.create_group_object(name, minimum=1, minResources={"cpu": "10"})
            await groups.add(name, name)

        def runs(listed: Object) -> set[str]:
            return {p["metadata"]["name"] for p in listed["items"] if p["status"].get("phase") == "Running"}

        started = runs(await groups.cluster.until(groups.pods, lambda now: bool(runs(now)), what="one driver runs"))
        [other] = {"a", "b"} - started
        told = await groups.until_waits(other, "MinResources")
        held_back = gates(await groups.pod(other))
        await groups.deactivate(*started)
        await groups.until_running(other)

    assert told.startswith(
        "MinResources asks for 10 cpu, 2 cpu is free of flavor gpu in ClusterQueue team, 8 cpu more needed"
    )
    assert "admission" in held_back


@pytest.mark.mechanism("4.6")
async def test_a_label_joins_a_group_of_its_own_namespace(either_plane: Plane) -> None:
    """A pod of another namespace with the same label is no member; the second pod of the namespace completes the group."""
    groups = await prepared(either_plane, X_K8S, gpus=40)
    foreign = await neighbour(groups)
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0")
        await foreign.add("g", "g-1")
        message = await groups.until_event("g-0", "ErrWorkloadCompose")
        missing = await foreign.until_event("g-1", "ErrWorkloadCompose")
        await groups.add("g", "g-2")
        await groups.until_running("g-0", "g-2")
        left = await foreign.pod("g-1")

    assert "the group has 1 of 2 pods" in message
    assert f"PodGroup g does not exist in namespace {foreign.namespace}" in missing
    assert "admission" in gates(left)


async def neighbour(groups: Groups) -> Groups:
    """Another namespace of the tenant."""
    namespace = await groups.cluster.create_namespace("road")
    api = "/apis/kueue.x-k8s.io/v1beta2"
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": namespace},
        "spec": {"clusterQueue": "team"},
    }
    await groups.cluster.request("POST", f"{api}/namespaces/{namespace}/localqueues", queue)
    return Groups(groups.cluster, namespace, groups.dialect)


@pytest.mark.mechanism("4.9")
async def test_a_group_has_one_owner_at_a_time(either_plane: Plane) -> None:
    """Pods of a second owner wait with a reason until the pods of the first one are gone."""
    groups = await prepared(either_plane, X_K8S, gpus=40)
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("g", minimum=1)
        first, second = [await owner(groups, name) for name in ("first", "second")]
        await groups.add("g", "a", owner=first)
        await groups.until_running("a")
        await groups.add("g", "b", owner=second)
        told = await groups.until_event("b", "PodGroupOccupied")
        status = await groups.until_phase("g", "Running", running=1)
        await groups.delete("a")
        await groups.until_running("b")
        after = await groups.until_phase("g", "Running", running=1)

    assert told == (
        f"PodGroup g is occupied by ConfigMap first ({first['uid']}); this pod belongs to ConfigMap second; "
        "use another PodGroup"
    )
    assert (status["occupiedBy"], after["occupiedBy"]) == (first["uid"], second["uid"])


async def owner(groups: Groups, name: str) -> Object:
    """Make an object that may control pods; returns the reference to it."""
    path = f"/api/v1/namespaces/{groups.namespace}/configmaps"
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": groups.namespace}}
    found = await groups.cluster.request("POST", path, made)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }


@pytest.mark.proves("PodGroup", "priority class")
@pytest.mark.mechanism("0.3")
async def test_of_mixed_priorities_the_lowest_counts(either_plane: Plane) -> None:
    """A user gains nothing by mixing: members above the lowest priority get an event, and the group goes on."""
    groups = await prepared(either_plane, X_K8S, gpus=40)
    for name, value in (("mixed-high", 10), ("mixed-low", 5)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await groups.cluster.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {**made, "value": value})
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "high", priority="mixed-high")
        await groups.add("g", "low", priority="mixed-low")
        await groups.until_running("high", "low")
        told = await groups.until_event("high", "MixedPriorities")
        workload = await groups.workload_of_group("g")

    assert told == "priority 10 differs from 5 of pod low; the group counts with 5, the lowest"
    assert (workload["spec"]["priority"], workload["spec"]["priorityClassRef"]["name"]) == (5, "mixed-low")
