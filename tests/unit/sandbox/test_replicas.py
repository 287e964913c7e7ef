"""Deployments and StatefulSets on the simulated cluster: pods made, counted, scaled, replaced and taken along."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.sandbox import stateful_plan
from kqueue.sandbox.api import DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS, GroupVersionResource, Object
from kqueue.sandbox.cluster import PARTS, Sandbox, SandboxOptions
from kqueue.sandbox.deployment import bounds, shares
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.replica_set import surplus
from kqueue.sandbox.topology_spec import parse_topology
from tests.unit.sandbox.simulated_world import NAMESPACE, World, condition_of

READY = {"type": "Ready", "status": "True"}


def made(kind: str, *, replicas: int = 3, image: str = "i:1", gated: bool = False, **spec: Any) -> Object:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "1"}}}
    gates = {"schedulingGates": [{"name": "example.com/gate"}]} if gated else {}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container], **gates}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "x", "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": template, **spec},
    }


@asynccontextmanager
async def cluster() -> AsyncIterator[World]:
    """The whole sandbox without a server."""
    clock = FakeClock()
    options = SandboxOptions(
        topology=parse_topology("1x2x2"), parts=PARTS - {"server"}, nodes=NodeOptions(heartbeat_seconds=0)
    )
    sandbox = Sandbox(options, clock=clock)
    await sandbox.start()
    await sandbox.settle()
    try:
        yield World(sandbox.api, clock, sandbox)
    finally:
        await sandbox.stop()


def names(world: World) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.pods())


def images(world: World) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in sorted(world.pods(), key=lambda p: p["metadata"]["name"])]


def found(world: World, resource: GroupVersionResource) -> Object:
    return world.api.get(resource, "x", namespace=NAMESPACE)


async def patch(world: World, resource: GroupVersionResource, spec: Object, *, seconds: float = 60) -> None:
    await world.api.patch(resource, "x", {"spec": spec}, namespace=NAMESPACE)
    await world.pass_time(seconds)


def with_image(image: str) -> Object:
    return {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}


# --- Deployments


async def test_a_deployment_runs_scales_and_goes_with_its_pods() -> None:
    """As many pods as asked for, all ready; fewer or more after scaling; none after deletion."""
    async with cluster() as world:
        await world.add(DEPLOYMENTS, made("Deployment"))
        await world.pass_time(30)
        running = found(world, DEPLOYMENTS)["status"]
        await patch(world, DEPLOYMENTS, {"replicas": 1})
        fewer = len(world.pods())
        await patch(world, DEPLOYMENTS, {"replicas": 2})
        more = len(world.pods())
        await world.api.delete(DEPLOYMENTS, "x", namespace=NAMESPACE)
        await world.pass_time(60)
        left = (len(world.pods()), len(world.api.list(REPLICA_SETS)))

    assert {k: running[k] for k in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")} == {
        "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
    }  # fmt: skip
    assert condition_of({"status": running}, "Available") == ("True", "MinimumReplicasAvailable")
    assert (fewer, more, left) == (1, 2, (0, 0))


async def test_a_deleted_pod_of_a_deployment_is_made_anew() -> None:
    """Under another name."""
    async with cluster() as world:
        await world.add(DEPLOYMENTS, made("Deployment", replicas=1))
        await world.pass_time(30)
        before = names(world)
        await world.api.delete(PODS, before[0], namespace=NAMESPACE)
        await world.pass_time(60)
        after = names(world)

    assert len(after) == 1
    assert after != before


async def test_a_deployment_replaces_its_pods_and_keeps_serving() -> None:
    """A changed template reaches all pods; those of a template that never gets ready do not push the others out."""
    async with cluster() as world:
        await world.add(DEPLOYMENTS, made("Deployment"))
        await world.pass_time(30)
        await patch(world, DEPLOYMENTS, with_image("i:2"), seconds=200)
        replaced = images(world)
        gate = {"template": {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}}
        await patch(world, DEPLOYMENTS, gate, seconds=200)
        held = [pod for pod in world.pods() if pod["spec"].get("schedulingGates")]
        status = found(world, DEPLOYMENTS)["status"]

    assert replaced == ["i:2"] * 3
    assert len(held) == 1
    assert (status["readyReplicas"], status["updatedReplicas"], status["unavailableReplicas"]) == (3, 1, 1)


async def test_a_deployment_that_recreates_has_never_two_templates_at_once() -> None:
    """All old pods are gone before the first new one is there."""
    async with cluster() as world:
        await world.add(DEPLOYMENTS, made("Deployment", strategy={"type": "Recreate"}))
        await world.pass_time(30)
        await world.api.patch(DEPLOYMENTS, "x", {"spec": with_image("i:2")}, namespace=NAMESPACE)
        seen = set()
        for _ in range(120):
            await world.pass_time(1)
            seen.add(frozenset(images(world)))
        end = images(world)

    assert frozenset({"i:1", "i:2"}) not in seen
    assert end == ["i:2"] * 3


def test_percentages_of_bounds_round_for_progress() -> None:
    """Surge up, unavailable down, and one of the two is always above 0."""
    quarter = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    none = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}

    assert bounds(made("Deployment", replicas=3, strategy=quarter)) == (1, 0)
    assert bounds(made("Deployment", replicas=8, strategy=quarter)) == (2, 2)
    assert bounds(made("Deployment", replicas=8, strategy=none)) == (0, 1)


def set_of(name: str, replicas: int, ready: int) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas},
        "status": {"readyReplicas": ready, "replicas": replicas},
    }


@pytest.mark.parametrize(
    ("sets", "wanted"),
    [
        pytest.param([("new", 0, 0), ("old", 4, 4)], [1, 3], id="one more and one less"),
        pytest.param([("new", 1, 0), ("old", 3, 3)], [2, 3], id="those that serve stay while the new ones do not"),
        pytest.param([("new", 2, 0), ("old", 3, 1)], [2, 3], id="nobody goes while too few are available"),
        pytest.param([("new", 4, 4), ("old", 1, 1)], [4, 0], id="the last old one goes"),
        pytest.param([("new", 6, 6)], [4], id="scaled down"),
    ],
)
def test_replicas_are_shared_out_within_the_bounds(sets: list[tuple[str, int, int]], wanted: list[int]) -> None:
    """The newest grows, the others shrink."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    deployment = made("Deployment", replicas=4, strategy=strategy)

    assert shares(deployment, [set_of(*entry) for entry in sets], "new") == wanted


def test_pods_that_serve_longest_stay() -> None:
    """Without a node first, then not ready, then the youngest."""

    def pod(name: str, created: str, *, node: str = "n", ready: bool = True) -> Object:
        return {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"nodeName": node},
                "status": {"conditions": [READY] if ready else []}}  # fmt: skip

    pods = [pod("old", "1"), pod("young", "3"), pod("late", "2", ready=False), pod("waits", "0", node="")]

    assert [p["metadata"]["name"] for p in surplus(pods, 3)] == ["waits", "late", "young"]
    assert surplus(pods, -1) == []


# --- StatefulSets


async def test_a_stateful_set_numbers_its_pods() -> None:
    """Each with its number in name and labels; scaled from the end."""
    async with cluster() as world:
        await world.add(STATEFUL_SETS, made("StatefulSet", serviceName="s"))
        await world.pass_time(60)
        all_there = names(world)
        labels = world.pod("x-2")["metadata"]["labels"]
        status = found(world, STATEFUL_SETS)["status"]
        await patch(world, STATEFUL_SETS, {"replicas": 1}, seconds=120)
        fewer = names(world)
        await world.api.delete(STATEFUL_SETS, "x", namespace=NAMESPACE)
        await world.pass_time(60)
        left = names(world)

    assert (all_there, fewer, left) == (["x-0", "x-1", "x-2"], ["x-0"], [])
    assert labels["apps.kubernetes.io/pod-index"] == "2"
    assert labels["statefulset.kubernetes.io/pod-name"] == "x-2"
    assert labels["controller-revision-hash"] == status["updateRevision"] == status["currentRevision"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)


async def test_a_parallel_stateful_set_waits_for_nobody() -> None:
    """All pods are there at once; in order, a pod that never gets ready is the only one."""
    async with cluster() as world:
        await world.add(STATEFUL_SETS, made("StatefulSet", gated=True, podManagementPolicy="Parallel"))
        together = names(world)
        other = made("StatefulSet", gated=True)
        other["metadata"]["name"] = "y"
        await world.add(STATEFUL_SETS, other)
        await world.pass_time(60)
        alone = [name for name in names(world) if name.startswith("y")]
        await patch(world, STATEFUL_SETS, {"replicas": 0})
        gone = [name for name in names(world) if name.startswith("x")]

    assert (together, alone, gone) == (["x-0", "x-1", "x-2"], ["y-0"], [])


async def test_a_stateful_set_rolls_from_its_end_to_its_partition() -> None:
    """Pods below the partition keep their template, also when they are made anew; then the update is completed."""
    async with cluster() as world:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await world.add(STATEFUL_SETS, made("StatefulSet", updateStrategy=strategy))
        await world.pass_time(60)
        await patch(world, STATEFUL_SETS, with_image("i:2"), seconds=200)
        partly = images(world)
        status = found(world, STATEFUL_SETS)["status"]
        await world.api.delete(PODS, "x-0", namespace=NAMESPACE)
        await world.pass_time(60)
        remade = images(world)
        await patch(world, STATEFUL_SETS, {"updateStrategy": {"rollingUpdate": {"partition": 0}}}, seconds=120)
        all_new = images(world)
        done = found(world, STATEFUL_SETS)["status"]

    assert partly == remade == ["i:1", "i:2", "i:2"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (1, 2)
    assert status["currentRevision"] != status["updateRevision"]
    assert all_new == ["i:2"] * 3
    assert done["currentRevision"] == done["updateRevision"] == status["updateRevision"]


async def test_a_stateful_set_that_updates_on_deletion_waits_for_it() -> None:
    """A pod gets the new template when somebody deletes it."""
    async with cluster() as world:
        await world.add(STATEFUL_SETS, made("StatefulSet", updateStrategy={"type": "OnDelete"}))
        await world.pass_time(60)
        await patch(world, STATEFUL_SETS, with_image("i:2"))
        before = images(world)
        await world.api.delete(PODS, "x-1", namespace=NAMESPACE)
        await world.pass_time(60)
        after = images(world)

    assert before == ["i:1"] * 3
    assert after == ["i:1", "i:2", "i:1"]


def pod_of(
    ordinal: int, *, revision: str = "new", ready: bool = True, deleting: bool = False, phase: str = "Running"
) -> Object:
    return {
        "metadata": {"name": f"x-{ordinal}", "labels": {"controller-revision-hash": revision},
                     **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})},
        "spec": {},
        "status": {"phase": phase, "conditions": [READY] if ready else []},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "pods", "create", "delete"),
    [
        pytest.param("OrderedReady", [pod_of(0, ready=False)], [], [], id="the next waits until the one before is ready"),
        pytest.param("OrderedReady", [pod_of(0)], [1], [], id="then it is made alone"),
        pytest.param("Parallel", [pod_of(1, ready=False)], [0, 2], [], id="in parallel nobody waits"),
        pytest.param("OrderedReady", [pod_of(0, ready=False, phase="Failed")], [], [0], id="a failed pod is replaced"),
        pytest.param("OrderedReady", [pod_of(i) for i in range(5)], [], [4], id="the highest goes first"),
        pytest.param("OrderedReady", [*map(pod_of, range(4)), pod_of(4, deleting=True)], [], [], id="one after another"),
        pytest.param(
            "OrderedReady", [*map(pod_of, range(3)), pod_of(3, ready=False), pod_of(4, ready=False)], [], [],
            id="a broken one waits for a broken one below it",
        ),
        pytest.param("Parallel", [pod_of(i) for i in range(5)], [], [4, 3], id="in parallel all go"),
        pytest.param("Parallel", [pod_of(i, revision="old") for i in range(3)], [], [2], id="updates go one by one"),
        pytest.param(
            "Parallel", [pod_of(0, revision="old"), pod_of(1, revision="old"), pod_of(2, ready=False)], [], [],
            id="and wait until the new one serves",
        ),
        pytest.param(
            "Parallel", [pod_of(0), pod_of(1), pod_of(2, revision="old", ready=False)], [], [2],
            id="a held pod of the old revision is replaced",
        ),
        pytest.param("OrderedReady", [*map(pod_of, range(3))], [], [], id="at rest"),
    ],
)  # fmt: skip
def test_the_next_step_of_a_stateful_set(policy: str, pods: list[Object], create: list[int], delete: list[int]) -> None:
    """Which pods are made and which deleted."""
    stateful_set = made("StatefulSet", podManagementPolicy=policy)
    by_ordinal = {stateful_plan.ordinal_of(pod) or 0: pod for pod in pods}

    step = stateful_plan.plan(stateful_set, by_ordinal, "new")

    assert list(step.create) == create
    assert [stateful_plan.ordinal_of(pod) for pod in step.delete] == delete
