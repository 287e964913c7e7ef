"""A gang by labels before its quorum, at it, and after members were lost, seen by its reconciler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from tests.unit.controllers.pod_world import Pods
from tests.unit.controllers.test_gang_extras import BASE, EXTRA, KEY, QUORUM, make, of_gang, rest, started, workloads
from tests.unit.jobs.pods import at

__all__ = ["make"]  # the fixture


def of_five(name: str, **more: Any) -> dict[str, Any]:
    """A gated member of gang `g` with quorum 5."""
    pod = of_gang(name, **more)
    pod["metadata"]["labels"][QUORUM] = "5"
    return pod


@pytest.mark.mechanism("0.10")
async def test_a_gang_below_its_quorum_is_in_no_queue(make: Callable[..., Pods]) -> None:
    """G1.4, G3.9: with 4 of 5 members it has no Workload, so no cycle tries it; the oldest member says the numbers."""
    world = make(*(of_five(f"p{i}", born=i) for i in range(4)))
    await rest(world)
    assert workloads(world) == []
    assert [world.told(name) for name in world.names()] == [["ErrWorkloadCompose"], [], [], []]
    assert "the group has 4 of 5 pods; it waits for 1 more, since 2025-12-31T23:43:20Z" in world.recorder.messages[-1]


@pytest.mark.mechanism("0.11")
async def test_the_last_member_of_the_quorum_lets_all_go(make: Callable[..., Pods]) -> None:
    """G3.2: the fifth member makes the Workload, and its admission opens all five gates in one reconcile."""
    world = make(*(of_five(f"p{i}", born=i) for i in range(4)))
    await rest(world)
    world.add(of_five("p4", born=4))
    await rest(world)
    assert [world.gated(name) for name in world.names()] == [True] * 5
    world.admit(BASE)
    writes = await world.look(KEY)
    assert writes == [f"patch pods team/p{i}" for i in range(5)]
    assert [world.gated(name) for name in world.names()] == [False] * 5


@pytest.mark.mechanism("0.11", "3.33")
async def test_replacements_start_while_the_others_run(make: Callable[..., Pods]) -> None:
    """G3.12: with 3 of 5 running the two replacements start, each when it comes; nobody else is written."""
    world = make(*(of_five(f"p{i}", born=i) for i in range(5)))
    await rest(world)
    world.admit(BASE)
    await rest(world)
    world.runs(*(f"p{i}" for i in range(5)))
    await rest(world)
    for name in ("p1", "p3"):
        world.client.drop(PODS, f"team/{name}")
    await rest(world)
    waits = {c["type"]: c["status"] for c in world.workload_named(BASE)["status"]["conditions"]}
    assert waits["WaitingForReplacementPods"] == "True"
    for number in (5, 6):
        before = len(world.client.writes())
        world.add(of_five(f"p{number}", born=number))
        await rest(world)
        written = [str(call) for call in world.client.writes()[before:]]
        assert [call for call in written if " pods " in call] == [f"patch pods team/p{number}"]
    assert not any(world.gated(name) for name in world.names())
    assert world.client.keys(WORKLOADS) == [f"team/{BASE}"]


async def test_a_gang_that_has_succeeded_gets_no_other_workload(make: Callable[..., Pods]) -> None:
    """Its Workload was deleted after the end, perhaps with pods whose deletion the watch does not report yet."""
    world = make(*(of_gang(name) for name in ("a", "b")))
    await rest(world)
    world.admit(BASE)
    await rest(world)
    world.runs("a", "b", phase="Succeeded")
    await rest(world)
    world.client.drop(WORKLOADS, f"team/{BASE}")
    await rest(world)
    assert workloads(world) == []
    assert not any(world.finalizer(name) for name in ("a", "b"))
    world.add(of_gang("c", born=9), of_gang("d", born=9))
    await rest(world)
    assert workloads(world) == [BASE]


async def test_nobody_runs_beyond_a_quorum_whose_members_are_all_gone(make: Callable[..., Pods]) -> None:
    """G3.25: the Workload of the quorum gives its quota back, and the member beyond it is stopped."""
    world = await started(make)
    world.admit(EXTRA)
    await rest(world)
    world.runs("x0")
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    world.client.change(WORKLOADS, f"team/{BASE}", {"status": {"admission": None, "conditions": []}})
    await rest(world)
    assert "x0" not in world.names() or "deletionTimestamp" in world.pod("x0")["metadata"]


def ended(*names: str) -> list[dict[str, Any]]:
    """Members that have succeeded for a Workload that has finished and was deleted."""
    return [of_gang(n, gated=False, phase="Succeeded", node="n", finalizer=False, born=-9) for n in names]


async def test_pods_of_a_finished_run_are_no_members_of_the_next_one(make: Callable[..., Pods]) -> None:
    """One new pod gathers alone; two make a Workload that they own, and a lost one of them is missed."""
    world = make(*ended("old-0", "old-1"), of_gang("a"))
    await rest(world)
    assert workloads(world) == []
    assert "the group has 1 of 2 pods; it waits for 1 more" in world.recorder.messages[-1]
    world.add(of_gang("b"))
    await rest(world)
    owners = world.workload_named(BASE)["metadata"]["ownerReferences"]
    world.admit(BASE)
    await rest(world)
    assert ([o["name"] for o in owners], world.gated("a"), world.gated("b")) == (["a", "b"], False, False)
    world.runs("a", "b")
    world.client.drop(PODS, "team/b")
    await rest(world)
    assert _has(world, "WaitingForReplacementPods")
    assert not _has(world, "Finished")


async def test_pods_of_a_finished_run_keep_no_workload_of_the_next_one(make: Callable[..., Pods]) -> None:
    """A Workload whose own members are all gone is not finished by theirs."""
    world = make(*ended("old-0", "old-1"), of_gang("a"), of_gang("b"))
    await rest(world)
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    await rest(world)
    assert not _has(world, "Finished")
    assert "finalizers" not in world.workload_named(BASE)["metadata"]


def _has(world: Pods, kind: str) -> bool:
    conditions = world.workload_named(BASE).get("status", {}).get("conditions", [])
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


async def test_a_deleted_member_of_a_gang_on_hold_goes_at_once(make: Callable[..., Pods]) -> None:
    """A member was let out by hand and stopped: nothing is reserved, so it need not stay until it is replaced."""
    world = make(of_gang("a"), of_gang("b"))
    await rest(world)
    world.refuse(BASE)
    gone = {"metadata": {"deletionTimestamp": at(-60)}, "spec": {"schedulingGates": None}}
    world.client.change(PODS, "team/b", gone)
    await rest(world)
    conditions = {c["type"]: c["reason"] for c in world.workload_named(BASE)["status"]["conditions"]}
    assert conditions["QuotaReserved"] == "OnHold"
    assert world.names() == ["a"]
