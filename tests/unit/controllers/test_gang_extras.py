"""Extras of a gang live as single pods, between the start of their quorum and its eviction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.jobs.gang.coscheduling_labels import FRAMEWORK
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.naming import workload_key_of_gang
from kqueue.jobs.kind import GroupVersionKind
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name
from kqueue.runtime.store import split_key
from tests.unit.controllers.builders import condition
from tests.unit.controllers.pod_world import Pods
from tests.unit.jobs.pods import make_pod

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
KEY = gang_key(FRAMEWORK, "team", "g")
BASE = split_key(workload_key_of_gang(KEY, ON))[1]
EXTRA = workload_name(GroupVersionKind("", "v1", "Pod"), "x0", "uid-x0")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build(*pods: Any, **more: Any) -> Pods:
        worlds.append(Pods(*pods, switches=ON, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def of_gang(name: str, **more: Any) -> dict[str, Any]:
    """A gated member of gang `g` with quorum 2."""
    pod: dict[str, Any] = make_pod(name, role="r", **more)
    pod["metadata"]["labels"] |= {NAME: "g", QUORUM: "2"}
    return pod


async def rest(world: Pods) -> None:
    """Both reconcilers have nothing left to do."""
    for _ in range(4):
        await world.rest(KEY)
        for name in world.names():
            await world.rest(f"team/{name}")


async def started(make: Callable[..., Pods], *more: Any, **settings: Any) -> Pods:
    """A world in which the quorum runs, and `x0` is an extra."""
    world = make(of_gang("a"), of_gang("b"), of_gang("x0", born=1), *more, **settings)
    await rest(world)
    world.admit(BASE)
    await rest(world)
    world.runs("a", "b")
    await rest(world)
    return world


def workloads(world: Pods) -> list[str]:
    return sorted(split_key(key)[1] for key in world.client.keys(WORKLOADS))


def is_extra(world: Pods, name: str) -> bool:
    return bool(world.pod(name)["metadata"]["annotations"].get("kqueue.dev/extra") == "true")


async def test_no_extra_waits_before_the_quorum_is_scheduled(make: Callable[..., Pods]) -> None:
    """G3.22: not while the gang waits, nor when it was released; nobody is deleted."""
    world = make(of_gang("a"), of_gang("b"), of_gang("x0", born=1))
    await rest(world)
    assert workloads(world) == [BASE]
    world.admit(BASE)
    await rest(world)
    assert [world.gated(name) for name in world.names()] == [False, False, True]
    assert (workloads(world), is_extra(world, "x0")) == ([BASE], False)


async def test_an_extra_has_a_workload_of_its_own(make: Callable[..., Pods]) -> None:
    """G1.3, G3.21: owned by the pod, naming the base's; the base counts its quorum and is owned by it alone."""
    world = await started(make)
    assert workloads(world) == sorted([BASE, EXTRA])
    own, base = world.workload_named(EXTRA), world.workload_named(BASE)
    assert own["metadata"]["annotations"]["kqueue.dev/extra-of"] == BASE
    assert [(o["name"], o["controller"]) for o in own["metadata"]["ownerReferences"]] == [("x0", True)]
    assert [p["count"] for p in base["spec"]["podSets"]] == [2]
    assert [o["name"] for o in base["metadata"]["ownerReferences"]] == ["a", "b"]
    assert world.gated("x0")
    world.admit(EXTRA)
    await rest(world)
    assert not world.gated("x0")
    assert "QueuedBeyondQuorum" in world.told("x0")


# --- early extras


async def admitted_early(make: Callable[..., Pods], *more: Any) -> Pods:
    """A world in which the quorum is admitted and released, no member has a node, and `x0` is an early extra."""
    world = make(of_gang("a"), of_gang("b"), of_gang("x0", born=1), *more)
    world.back_to_back = {"team"}
    await rest(world)
    world.admit(BASE)
    await rest(world)
    return world


def mark_of(world: Pods, name: str) -> str:
    return str(world.pod(name)["metadata"]["annotations"].get("kqueue.dev/extra", ""))


async def test_an_early_extra_reserves_quota_and_starts_after_its_quorum(make: Callable[..., Pods]) -> None:
    """G3.69, G3.22: the Workload comes with the admission of the quorum, the release after its start."""
    world = await admitted_early(make)
    assert (mark_of(world, "x0"), workloads(world)) == ("early", sorted([BASE, EXTRA]))
    world.admit(EXTRA)
    await rest(world)
    assert (world.gated("x0"), world.gated("a")) == (True, False)
    world.runs("a")
    await rest(world)
    assert world.gated("x0")
    world.runs("b")
    await rest(world)
    assert (mark_of(world, "x0"), world.gated("x0")) == ("true", False)


async def test_another_controller_goes_on_with_early_extras(make: Callable[..., Pods]) -> None:
    """All is on the objects: also when the profile has changed meanwhile."""
    pods = [of_gang(name, gated=False, phase="Running", node="n") for name in ("a", "b")]
    early = of_gang("x0", born=1)
    early["metadata"]["annotations"]["kqueue.dev/extra"] = "early"
    first = await admitted_early(make)
    stored = {name: first.workload_named(name) for name in (BASE, EXTRA)}
    world = make(*pods, early)
    for name, workload in stored.items():
        world.client.put(WORKLOADS, workload)
        world.sync()
        world.admit(name)
    await rest(world)
    assert (mark_of(world, "x0"), world.gated("x0")) == ("true", False)


async def test_early_extras_go_back_with_the_admission_of_their_base(make: Callable[..., Pods]) -> None:
    """G3.25: with their reservation."""
    world = await admitted_early(make)
    world.admit(EXTRA)
    await rest(world)
    world.evict(BASE)
    await rest(world)
    assert (mark_of(world, "x0"), world.gated("x0")) == ("", True)
    assert EXTRA not in workloads(world)


async def test_an_early_extra_starts_with_the_quorum_in_place_of_a_lost_member(make: Callable[..., Pods]) -> None:
    """G3.29: although it has a reservation, which is given back; otherwise the quorum would wait for a new pod."""
    world = await admitted_early(make)
    world.admit(EXTRA)
    await rest(world)
    world.client.drop(PODS, "team/b")
    await rest(world)
    assert (mark_of(world, "x0"), world.gated("x0"), workloads(world)) == ("", False, [BASE])


async def test_an_early_extra_of_a_gang_without_quorum_waits_for_it_again(make: Callable[..., Pods]) -> None:
    """Its users have deleted the members of the quorum: nothing would release the extra."""
    world = await admitted_early(make)
    world.admit(EXTRA)
    await rest(world)
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    world.client.drop(WORKLOADS, f"team/{BASE}")
    await rest(world)
    assert (mark_of(world, "x0"), world.gated("x0"), workloads(world)) == ("", True, [])


async def test_early_extras_are_released_although_the_quorum_has_ended(make: Callable[..., Pods]) -> None:
    """G3.26: the controller was away while the quorum ran."""
    world = await admitted_early(make)
    world.admit(EXTRA)
    await world.rest("team/x0")
    world.runs("a", "b", phase="Succeeded")
    await rest(world)
    assert (mark_of(world, "x0"), world.gated("x0")) == ("true", False)


@pytest.mark.parametrize(("profile", "marks"), [({"team"}, "early"), ({"other"}, ""), (set(), "")])
async def test_the_profile_of_the_admitting_cluster_queue_decides(
    make: Callable[..., Pods], profile: set[str], marks: str
) -> None:
    """G3.22 elsewhere."""
    world = make(of_gang("a"), of_gang("b"), of_gang("x0", born=1))
    world.back_to_back = profile
    await rest(world)
    world.admit(BASE)
    await rest(world)
    assert mark_of(world, "x0") == marks


async def test_present_members_beyond_the_quorum_are_counted(make: Callable[..., Pods]) -> None:
    """G3.69: those that really exist and wait, once they are complete; marked ones have their own place."""
    ending = of_gang("gone", born=3, deleted=True, finalizer=True)
    world = make(of_gang("a"), of_gang("b"), of_gang("x0", born=1), of_gang("x1", born=2), ending)
    await rest(world)
    base = world.workloads.get(f"team/{BASE}")
    assert base is not None
    assert world.records.extras_of(base) == 2
    world.admit(BASE)
    world.back_to_back = {"team"}
    await rest(world)
    assert [mark_of(world, name) for name in ("x0", "x1")] == ["early", "early"]
    extra = world.workloads.get(f"team/{EXTRA}")
    assert extra is not None
    assert (world.records.extras_of(base), world.records.extras_of(extra)) == (0, 0)


async def test_extras_are_queued_although_pods_are_off(make: Callable[..., Pods]) -> None:
    """G2.1: single pods of other users are not."""
    world = await started(make, make_pod("other"), single={"explicit": False}, group={"explicit": False})
    assert workloads(world) == sorted([BASE, EXTRA])


FORGED = {"metadata": {"annotations": {"kqueue.dev/extra": "true"}}}


@pytest.mark.parametrize("members", [("a",), ("a", "b"), ("a", "b", "x0")])
async def test_a_forged_mark_starts_no_pod_alone(make: Callable[..., Pods], members: tuple[str, ...]) -> None:
    """G3.22: it is taken off, also where all members have it, and the members go on gathering."""
    world = make(*(of_gang(name) for name in members))
    for name in members:
        world.client.change(PODS, f"team/{name}", FORGED)
    for name in members:
        await world.rest(f"team/{name}")
    assert not any(is_extra(world, name) for name in members)
    assert workloads(world) == []
    assert all("BackInQuorum" in world.told(name) for name in members)
    await rest(world)
    assert workloads(world) == ([BASE] if len(members) > 1 else [])
    assert all(world.gated(name) for name in members)


async def test_a_forged_mark_lasts_no_longer_than_the_eviction_of_the_quorum(make: Callable[..., Pods]) -> None:
    """With an admitted quorum the mark says what kqueue would have said; without one it is taken off."""
    world = make(of_gang("a"), of_gang("b"), of_gang("x0", born=1))
    await rest(world)
    world.admit(BASE)
    world.evict(BASE)
    world.client.change(PODS, "team/x0", FORGED)
    await world.rest("team/x0")
    assert (is_extra(world, "x0"), workloads(world)) == (False, [BASE])
    world.admit(BASE)
    world.client.change(PODS, "team/x0", FORGED)
    await world.rest("team/x0")
    assert (is_extra(world, "x0"), workloads(world)) == (True, sorted([BASE, EXTRA]))


async def test_an_extra_is_evicted_alone(make: Callable[..., Pods]) -> None:
    """G3.25: the base runs on."""
    world = await started(make)
    world.admit(EXTRA)
    await rest(world)
    world.runs("x0")
    world.evict(EXTRA)
    await rest(world)
    assert world.names() == ["a", "b"]
    assert not any("deletionTimestamp" in world.pod(name)["metadata"] for name in ("a", "b"))


@pytest.mark.mechanism("4.20")
async def test_extras_go_with_an_evicted_base(make: Callable[..., Pods]) -> None:
    """G3.25: those that run end, those that wait are members again and have no Workload."""
    world = await started(make, of_gang("x1", born=2))
    world.admit(EXTRA)
    await rest(world)
    world.runs("x0")
    world.evict(BASE)
    await rest(world)
    ending = [n for n in world.names() if "deletionTimestamp" in world.pod(n)["metadata"]]
    assert (ending, "x0" in world.names()) == (["a", "b"], False)
    assert (world.gated("x1"), is_extra(world, "x1")) == (True, False)
    assert workload_name(GroupVersionKind("", "v1", "Pod"), "x1", "uid-x1") not in workloads(world)


async def test_a_waiting_extra_takes_the_place_of_a_lost_member(make: Callable[..., Pods]) -> None:
    """G3.29: its own Workload goes, and the base starts it."""
    world = await started(make)
    world.client.drop(PODS, "team/b")
    await rest(world)
    assert (is_extra(world, "x0"), world.gated("x0")) == (False, False)
    assert workloads(world) == [BASE]
    assert "BackInQuorum" in world.told("x0")


async def test_extras_go_on_after_the_base_has_finished(make: Callable[..., Pods]) -> None:
    """G3.26: the one that runs, and the one that waits."""
    world = await started(make, of_gang("x1", born=2))
    world.admit(EXTRA)
    await rest(world)
    world.runs("x0")
    world.runs("a", "b", phase="Succeeded")
    await rest(world)
    finished = {c["type"]: c["status"] for c in world.workload_named(BASE)["status"]["conditions"]}
    assert finished["Finished"] == "True"
    assert "deletionTimestamp" not in world.pod("x0")["metadata"]
    assert is_extra(world, "x1")
    assert (world.finalizer("x0"), world.finalizer("x1"), world.finalizer("a")) == (True, True, False)


async def test_a_running_member_beyond_the_quorum_without_a_mark_is_stopped(make: Callable[..., Pods]) -> None:
    """A gate that was taken off by hand is no admission."""
    world = await started(make)
    world.add({**of_gang("x9", gated=False, born=9, node="n", phase="Running")})
    await rest(world)
    assert "deletionTimestamp" in world.pod("x9")["metadata"]


async def test_the_sweeper_tells_nothing_of_an_extra_that_waits(make: Callable[..., Pods]) -> None:
    """Its own Workload says why it waits; one that is not marked yet waits for the others."""
    world = await started(make, of_gang("x1", born=2))
    world.client.change(WORKLOADS, f"team/{EXTRA}", {"status": {"conditions": [condition("QuotaReserved", "False")]}})
    world.sync()
    await world.clock.advance(600)
    await world.gates.sweep()
    assert not any("Held by scheduling gate" in message for message in world.recorder.messages)


async def test_an_extra_keeps_time_and_uid_of_its_gang(make: Callable[..., Pods]) -> None:
    """G3.23: so it stands right behind its quorum, before younger workloads."""
    world = await started(make)
    base = world.workload_named(BASE)["metadata"]["annotations"]
    extra = world.workload_named(EXTRA)["metadata"]["annotations"]
    assert (base["kqueue.dev/gang-uid"], base["kqueue.dev/gang-since"]) == ("uid-a", "2025-12-31T23:43:20Z")
    assert {key: extra[key] for key in ("kqueue.dev/gang-uid", "kqueue.dev/gang-since")}.items() <= base.items()


async def test_gangs_without_an_object_leave_no_news(make: Callable[..., Pods]) -> None:
    """Events for group objects are collected only where there may be one."""
    world = await started(make)
    world.runs("a", phase="Failed")
    assert world.status._news == {}


@pytest.mark.parametrize("label", ["", "urgent"])
async def test_an_extra_has_the_priority_class_of_its_gang(make: Callable[..., Pods], label: str) -> None:
    """G3.23: not its own, by a class or by a label, so that no member gains by being late."""
    extra = of_gang("x0", born=1, priority=9, priorityClassName="high")
    extra["metadata"]["labels"] |= {"kueue.x-k8s.io/priority-class": label} if label else {}
    quorum = [of_gang(name, priority=3, priorityClassName="low") for name in ("a", "b")]
    world = make(*quorum, extra)
    world.pod_classes(low=3, high=9)
    world.workload_classes(urgent=50)
    await rest(world)
    world.admit(BASE)
    await rest(world)
    world.runs("a", "b")
    await rest(world)
    spec = world.workload_named(EXTRA)["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (3, "low")
