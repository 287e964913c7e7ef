"""Gangs with a group object: their Workload belongs to the object, and members outlive an object that is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kqueue.api.wire import kueue as wire
from kqueue.controllers.gang_clock import GangClock
from kqueue.controllers.resources import PODS, WORKLOADS, group_object_resources
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Promise
from kqueue.jobs.gang import podgroup_k8s
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.podgroup_x_k8s import FRAMEWORK, KIND
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.kind import GroupVersionKind
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name
from tests.unit.controllers.builders import status_of
from tests.unit.controllers.pod_world import Pods
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import at, condition, make_pod

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
KEY = gang_key(FRAMEWORK, "team", "g")
[GROUPS] = group_object_resources(dialect_of(FRAMEWORK))


def pod_group(uid: str = "u1", *, minimum: int = 2, **metadata: Any) -> JSON:
    """A PodGroup `g`."""
    meta = {"name": "g", "namespace": "team", "uid": uid, "creationTimestamp": at(-900), "generation": 1, **metadata}
    return {"metadata": meta, "spec": {"minMember": minimum}}


def of_group(name: str, **more: Any) -> JSON:
    """A gated member of PodGroup `g`."""
    pod: JSON = make_pod(name, role="r", **more)
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "g"
    return pod


def name_of(uid: str = "u1") -> str:
    """The name of the Workload of the PodGroup with this UID."""
    return workload_name(KIND, "g", uid)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build(*pods: JSON, group: JSON | None = None) -> Pods:
        worlds.append(Pods(*pods, switches=ON))
        if group is not None:
            worlds[-1].client.put(GROUPS, group)
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def rest(world: Pods) -> None:
    """All reconcilers have nothing left to do."""
    for _ in range(4):
        await world.rest(KEY)
        for name in world.names():
            await world.rest(f"team/{name}")


async def started(make: Callable[..., Pods], *more: JSON) -> Pods:
    """A world in which the quorum of the PodGroup runs."""
    world = make(of_group("a"), of_group("b"), *more, group=pod_group())
    await rest(world)
    world.admit(name_of())
    await rest(world)
    world.runs("a", "b")
    await rest(world)
    return world


def workloads(world: Pods) -> list[str]:
    return sorted(key.partition("/")[2] for key in world.client.keys(WORKLOADS))


def gated(world: Pods) -> list[bool]:
    return [world.gated(name) for name in world.names()]


def collect(world: Pods, uid: str = "u1") -> None:
    """The garbage collector deletes the Workload of a PodGroup that is gone; its finalizer keeps it for now."""
    world.client.change(WORKLOADS, f"team/{name_of(uid)}", {"metadata": {"deletionTimestamp": at(0)}})


@pytest.mark.mechanism("4.1")
async def test_the_group_object_is_the_one_owner_of_its_workload(make: Callable[..., Pods]) -> None:
    """g1_11, g1_12: the name has the UID of the object, and no pod owns the Workload."""
    world = await started(make, of_group("c", born=1))
    made = world.workload_named(name_of())
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["apiVersion"], owner["uid"]) == ("PodGroup", "scheduling.x-k8s.io/v1alpha1", "u1")
    assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)
    assert made["metadata"]["annotations"]["kqueue.dev/gang"] == f"{FRAMEWORK}:g"
    assert [p["count"] for p in made["spec"]["podSets"]] == [2]
    assert gated(world) == [False, False, True]
    extra = world.workload_named(workload_name(GroupVersionKind("", "v1", "Pod"), "c", "uid-c"))
    assert extra["metadata"]["annotations"]["kqueue.dev/extra-of"] == name_of()


@pytest.mark.parametrize("order", ["object-first", "pods-first"])
async def test_object_and_pods_come_in_any_order(make: Callable[..., Pods], order: str) -> None:
    """g7_2: the end is the same; without the object the pods are told to make it."""
    world = make()
    if order == "object-first":
        world.client.put(GROUPS, pod_group())
        await rest(world)
    world.add(of_group("a"), of_group("b"))
    await rest(world)
    if order == "pods-first":
        world.client.put(GROUPS, pod_group())
        await rest(world)
    assert workloads(world) == [name_of()]
    told = ["ErrWorkloadCompose"] if order == "pods-first" else []
    assert world.told("a")[: len(told)] == told


async def test_members_run_on_when_the_object_is_deleted(make: Callable[..., Pods]) -> None:
    """g3_62: no pod is stopped, the quota stays until the last one has ended, and gated members are told."""
    world = await started(make)
    world.client.drop(GROUPS, "team/g")
    collect(world)
    world.add(of_group("c", born=1))
    await rest(world)
    assert world.names() == ["a", "b", "c"]
    assert gated(world) == [False, False, True]
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in map(world.pod, "abc"))
    assert world.told("c") == ["GangGone"]
    assert workloads(world) == [name_of()]

    world.runs("a", phase="Succeeded")
    await rest(world)
    assert workloads(world) == [name_of()]
    assert not world.finalizer("a")
    world.runs("b", phase="Failed")
    await rest(world)
    assert workloads(world) == []


async def test_a_new_object_of_the_name_has_its_own_gang(make: Callable[..., Pods]) -> None:
    """g7_3: gated members join it, and members that run stay with the object that started them."""
    world = await started(make)
    world.client.drop(GROUPS, "team/g")
    collect(world)
    world.client.put(GROUPS, pod_group("u2"))
    world.add(of_group("c", born=1), of_group("d", born=2))
    await rest(world)
    assert workloads(world) == sorted([name_of(), name_of("u2")])
    assert gated(world) == [False, False, True, True]
    world.admit(name_of("u2"))
    await rest(world)
    assert gated(world) == [False, False, False, False]
    assert world.pod("c")["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == name_of("u2")
    world.runs("a", "b", phase="Succeeded")
    await rest(world)
    assert workloads(world) == [name_of("u2")]


async def test_members_of_an_earlier_object_count_for_no_new_one(make: Callable[..., Pods]) -> None:
    """g7_3: neither after the end of their Workload, nor beyond its quorum while they run."""
    world = await started(make, of_group("x", born=1))
    extra = workload_name(GroupVersionKind("", "v1", "Pod"), "x", "uid-x")
    world.admit(extra)
    await rest(world)
    world.runs("x")
    world.runs("a", "b", phase="Succeeded")
    world.client.drop(GROUPS, "team/g")
    collect(world)
    await rest(world)
    assert workloads(world) == [extra]
    world.client.put(GROUPS, pod_group("u2"))
    await rest(world)
    assert (world.names(), world.records.members(KEY)) == (["a", "b", "x"], ())
    world.add(of_group("c", born=2), of_group("d", born=2))
    await rest(world)
    made = world.workload_named(name_of("u2"))
    assert [p["count"] for p in made["spec"]["podSets"]] == [2]
    assert [pod.name for pod in world.records.members(KEY)] == ["c", "d"]
    assert not world.pod("x")["metadata"].get("deletionTimestamp")


async def test_a_workload_whose_object_is_gone_unseen_stops_no_pod(make: Callable[..., Pods]) -> None:
    """The watch of Workloads may be faster than that of group objects: the API server is asked before a stop."""
    world = await started(make)
    collect(world)
    world.sync()
    world.client.drop(GROUPS, "team/g")
    await world.reconcile(KEY)
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in map(world.pod, "ab"))


async def test_members_are_stopped_with_a_workload_that_is_deleted_alone(make: Callable[..., Pods]) -> None:
    """g3_63: the object lives, so the deletion stops its pods, and others of the group start anew."""
    world = await started(make)
    collect(world)
    await world.look(KEY)
    assert world.names() == []
    await rest(world)
    world.add(of_group("c"), of_group("d"))
    await rest(world)
    assert workloads(world) == [name_of()]
    assert "deletionTimestamp" not in world.workload_named(name_of())["metadata"]


async def test_a_gang_without_members_holds_nothing(make: Callable[..., Pods]) -> None:
    """g1_4: the object lives on, and its Workload is on hold without quota until others are there."""
    world = await started(make)
    for name in "ab":
        world.client.drop(PODS, f"team/{name}")
    await rest(world)
    assert reserved(world) == ("False", "OnHold", "2 pods are needed, 0 are there")
    assert world.workload_named(name_of())["status"].get("admission") is None
    world.add(of_group("c"), of_group("d"))
    await rest(world)
    assert reserved(world)[1] == "PendingEvaluation"


def reserved(world: Pods) -> tuple[str, str, str]:
    """Status, reason and message of the Workload's condition QuotaReserved, without the command for more."""
    conditions = world.workload_named(name_of())["status"]["conditions"]
    found = next(c for c in conditions if c["type"] == "QuotaReserved")
    return found["status"], found["reason"], found["message"].partition(";")[0]


async def test_a_waiting_gang_that_loses_a_member_is_on_hold(make: Callable[..., Pods]) -> None:
    """g3_3: one patch takes it out of the queue, and it returns with its next member."""
    world = make(of_group("a"), of_group("b"), group=pod_group())
    await rest(world)
    world.client.drop(PODS, "team/b")
    written = await world.look(KEY)
    assert written == [f"patch workloads team/{name_of()}/status"]
    assert reserved(world) == ("False", "OnHold", "2 pods are needed, 1 are there")
    await rest(world)
    world.add(of_group("c"))
    await rest(world)
    assert reserved(world)[1] == "PendingEvaluation"


@pytest.mark.parametrize("quorum", [1, 3])
async def test_another_quorum_counts_at_once_while_the_gang_waits(make: Callable[..., Pods], quorum: int) -> None:
    """g3_64."""
    world = make(of_group("a"), of_group("b"), of_group("c"), group=pod_group())
    await rest(world)
    world.client.change(GROUPS, "team/g", {"spec": {"minMember": quorum}})
    await rest(world)
    assert [p["count"] for p in world.workload_named(name_of())["spec"]["podSets"]] == [quorum]


async def test_another_quorum_waits_for_the_next_admission_while_the_gang_runs(make: Callable[..., Pods]) -> None:
    """g3_64."""
    world = await started(make)
    world.client.change(GROUPS, "team/g", {"spec": {"minMember": 1}})
    await rest(world)
    await world.status.reconcile(KEY)
    assert [p["count"] for p in world.workload_named(name_of())["spec"]["podSets"]] == [2]
    assert "spec.minMember 1 counts from the next admission on" in world.recorder.messages
    assert gated(world) == [False, False]


# --- what the object says for its gang


@pytest.mark.mechanism("0.3")
async def test_the_lowest_priority_counts_and_members_above_are_told(make: Callable[..., Pods]) -> None:
    """g3_36, row 0.3."""
    world = make(of_group("a", priority=10, priorityClassName="high"),
                 of_group("b", priority=5, priorityClassName="low"), group=pod_group())  # fmt: skip
    world.pod_classes(high=10, low=5)
    await rest(world)
    spec = world.workload_named(name_of())["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (5, "low")
    assert "MixedPriorities" in world.told("a")
    assert "MixedPriorities" not in world.told("b")
    message = "priority 10 differs from 5 of pod b; the group counts with 5, the lowest"
    assert world.recorder.messages.count(message) == 2  # on the pod and on the PodGroup


@pytest.mark.proves("PodGroup", "priority class")
async def test_the_class_of_the_object_counts_first(make: Callable[..., Pods]) -> None:
    """g3_35: its label, before the label of the oldest member."""
    label = "kueue.x-k8s.io/priority-class"
    world = make(of_group("a", labels={label: "mine"}), of_group("b"), group=pod_group(labels={label: "ours"}))
    world.workload_classes(mine=1, ours=2)
    await rest(world)
    assert world.workload_named(name_of())["spec"]["priority"] == 2


@pytest.mark.proves("PodGroup", "start with topology")
async def test_topology_of_the_object_is_for_roles_without_their_own(make: Callable[..., Pods]) -> None:
    """g3_59."""
    level, own = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology"
    pods = [of_group("a"), make_other_role("b", {own: "block"})]
    world = make(*pods, group=pod_group(annotations={level: "rack"}))
    await rest(world)
    sets = {p["name"]: p["topologyRequest"] for p in world.workload_named(name_of())["spec"]["podSets"]}
    assert (sets["r"]["required"], sets["s"]["preferred"]) == ("rack", "block")
    assert "required" not in sets["s"]


def make_other_role(name: str, annotations: dict[str, str]) -> JSON:
    """A member of another role."""
    pod: JSON = make_pod(name, role="s", annotations=annotations)
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "g"
    return pod


async def test_annotations_of_the_object_count_as_those_of_a_job(make: Callable[..., Pods]) -> None:
    """g3_60."""
    marks = {
        "kueue.x-k8s.io/admission-gated-by": "example.com/gate",
        "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60",
    }
    world = make(of_group("a"), of_group("b"), group=pod_group(annotations=marks))
    await rest(world)
    assert world.workload_named(name_of())["metadata"]["annotations"].items() >= marks.items()
    world.client.change(GROUPS, "team/g", {"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": None}}})
    await rest(world)
    assert "kueue.x-k8s.io/admission-gated-by" not in world.workload_named(name_of())["metadata"]["annotations"]


async def test_problems_are_told_on_the_object_too(make: Callable[..., Pods]) -> None:
    """g3_9: once, on the first member and on its PodGroup."""
    world = make(of_group("a"), group=pod_group())
    await rest(world)
    assert [what for what, reason in world.recorder.events if reason == "ErrWorkloadCompose"] == ["PodGroup g", "Pod a"]
    world.add(of_group("b"))
    await rest(world)
    assert ("PodGroup g", "CreatedWorkload") in world.recorder.events


async def test_a_workload_that_ends_stays_with_its_object(make: Callable[..., Pods]) -> None:
    """Members that have ended are let go, and a finished Workload is no reason to stop pods that it started."""
    world = await started(make)
    world.runs("a", "b", phase="Succeeded")
    await rest(world)
    [end] = [c for c in world.workload_named(name_of())["status"]["conditions"] if c["type"] == "Finished"]
    assert end["message"] == "2 of 2 pods of the group succeeded"
    assert not any(map(world.finalizer, "ab"))


async def test_a_workload_that_another_object_controls_is_a_conflict(make: Callable[..., Pods]) -> None:
    """Its name and its annotation are not enough: a user may write both."""
    world = make(of_group("a"), of_group("b"), group=pod_group())
    await rest(world)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "other", "controller": True}
    world.client.change(WORKLOADS, f"team/{name_of()}", {"metadata": {"ownerReferences": [owner]}})
    world.admit(name_of())
    await rest(world)
    assert gated(world) == [True, True]
    assert "WorkloadNameConflict" in world.told("a")


async def test_an_evicted_gang_without_object_ends(make: Callable[..., Pods]) -> None:
    """A higher priority needs its quota: members that outlive their object are stopped by an eviction."""
    world = await started(make)
    world.client.drop(GROUPS, "team/g")
    collect(world)
    world.evict(name_of())
    await world.look(KEY)
    assert all(pod["metadata"].get("deletionTimestamp") for pod in map(world.pod, "ab"))


async def test_an_orphaned_workload_is_deleted(make: Callable[..., Pods]) -> None:
    """`kubectl delete --cascade=orphan` leaves the Workload without an owner; nobody else would delete it."""
    world = await started(make)
    world.client.drop(GROUPS, "team/g")
    world.client.change(WORKLOADS, f"team/{name_of()}", {"metadata": {"ownerReferences": None}})
    await rest(world)
    assert world.workload_named(name_of())["metadata"]["deletionTimestamp"]
    assert gated(world) == [False, False]


@pytest.mark.proves("PodGroup", "maximum execution time")
async def test_the_maximum_execution_time_of_the_object_counts(make: Callable[..., Pods]) -> None:
    """g3_60: it is that of the Workload, and no reason to make the Workload anew."""
    label = {"kueue.x-k8s.io/max-exec-time-seconds": "60"}
    world = make(of_group("a"), of_group("b"), group=pod_group(labels=label))
    await rest(world)
    assert world.workload_named(name_of())["spec"]["maximumExecutionTimeSeconds"] == 60
    world.admit(name_of(), condition("Evicted", "False"))
    await rest(world)
    assert gated(world) == [False, False]


# --- Kubernetes' own PodGroups


@pytest.mark.parametrize("policy", [{"basic": {}}, None])
async def test_pods_of_a_group_without_a_gang_policy_are_queued_alone(policy: JSON | None) -> None:
    """g3_K2: each has a Workload of its own, with the priority class of the group; none waits for another."""
    on = JobFeatures(gangs=(KUEUE_GROUPS, podgroup_k8s.FRAMEWORK))
    key = gang_key(podgroup_k8s.FRAMEWORK, "team", "g")
    group = group_object_resources(dialect_of(podgroup_k8s.FRAMEWORK))[0]
    pods = [make_pod(name, role="r", schedulingGroup={"podGroupName": "g"}) for name in "ab"]
    world = Pods(*pods, switches=on)
    world.client.put(group, pod_group() | {
        "spec": {"priorityClassName": "gold", **({"schedulingPolicy": policy} if policy else {})}
    })  # fmt: skip
    world.pod_classes(gold=7)
    for _ in range(3):
        await world.rest(key)
        for name in "ab":
            await world.rest(f"team/{name}")
    pod = GroupVersionKind("", "v1", "Pod")
    assert workloads(world) == sorted(workload_name(pod, name, f"uid-{name}") for name in "ab")
    alone = world.workload_named(workload_name(pod, "b", "uid-b"))
    assert "kqueue.dev/extra-of" not in alone["metadata"].get("annotations", {})
    assert alone["spec"]["priority"] == 7
    world.admit(workload_name(pod, "b", "uid-b"))
    await world.rest("team/b")
    await world.rest(key)
    assert gated(world) == [True, False]
    await world.close()


async def test_a_group_waits_until_its_level_is_one_of_a_topology() -> None:
    """g3_K3: the PodGroup and its oldest pod are told, and a Topology with the level lets the gang be queued."""
    on = JobFeatures(gangs=(KUEUE_GROUPS, podgroup_k8s.FRAMEWORK), topology=True)
    key = gang_key(podgroup_k8s.FRAMEWORK, "team", "g")
    world = Pods(*(make_pod(name, role="r", schedulingGroup={"podGroupName": "g"}) for name in "ab"), switches=on)
    world.levels = frozenset({"rack"})
    constraint = {"schedulingConstraints": {"topology": [{"key": "tier"}]}}
    group = pod_group() | {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **constraint}}
    world.client.put(group_object_resources(dialect_of(podgroup_k8s.FRAMEWORK))[0], group)
    await world.rest(key)
    assert workloads(world) == []
    assert any("names tier, which is a level of no Topology" in message for message in world.recorder.messages)
    world.levels = frozenset({"rack", "tier"})
    await world.rest(key)
    [name] = workloads(world)
    assert [p["topologyRequest"]["required"] for p in world.workload_named(name)["spec"]["podSets"]] == ["tier"]
    world.levels = frozenset({"rack"})
    await world.rest(key)
    assert "OnHold" in [c["reason"] for c in world.workload_named(name)["status"]["conditions"]]
    await world.close()


# --- minResources ----------------------------------------------------------------------------------------------------

LEAST = "kqueue.dev/min-resources"


def needing(**least: str) -> JSON:
    """A PodGroup of two that needs so much free."""
    group = pod_group()
    group["spec"]["minResources"] = least
    return group


def least_of(world: Pods) -> str | None:
    found: str | None = world.workload_named(name_of())["metadata"]["annotations"].get(LEAST)
    return found


async def test_a_workload_says_what_must_be_free_g3_55(make: Callable[..., Pods]) -> None:
    """It follows the object while no quota is held, and not afterwards."""
    world = make(of_group("a"), of_group("b"), group=needing(cpu="10", memory="1Gi"))
    await rest(world)
    first = least_of(world)
    world.client.change(GROUPS, "team/g", {"spec": {"minResources": {"cpu": "12", "memory": None}}})
    await rest(world)
    second = least_of(world)
    world.admit(name_of())
    await rest(world)
    world.client.change(GROUPS, "team/g", {"spec": {"minResources": None}})
    await rest(world)

    assert first == '{"cpu": "10", "memory": "1Gi"}'
    assert second == least_of(world) == '{"cpu": "12"}'


async def test_least_resources_that_are_taken_out_hold_nobody_g3_55(make: Callable[..., Pods]) -> None:
    world = make(of_group("a"), of_group("b"), group=needing(cpu="10"))
    await rest(world)
    world.client.change(GROUPS, "team/g", {"spec": {"minResources": None}})
    await rest(world)
    assert least_of(world) is None


async def test_a_promise_lasts_until_the_deadline_g3_56(make: Callable[..., Pods]) -> None:
    """62 s for two, also after the quorum has nodes, and after a restart that finds the promise again."""
    world = make(of_group("a"), of_group("b"), group=needing(cpu="10"))
    promise = Promise(workload=f"team/{name_of()}", queue="team", amounts={FlavorResource("default", "cpu"): 8000})
    world.group._gang_clock = GangClock(world.context(), gangs=world.starting, promise_of=lambda _: promise)
    ended: list[str] = []
    world.starting.on_promise = ended.append
    await rest(world)
    world.admit(name_of())
    await rest(world)
    promised = dict(world.starting.promises)
    world.runs("a", "b")
    await world.clock.advance(61)
    await rest(world)
    before = dict(world.starting.promises)
    await world.clock.advance(1)
    await rest(world)

    assert promised == before == {promise.workload: promise}
    assert world.starting.promises == {}
    assert ended == ["team"]


async def test_a_new_leader_knows_promises_before_it_looks_at_gangs_g3_56(make: Callable[..., Pods]) -> None:
    """Its first cycle would give them to others; Workloads without quota or least resources have none."""
    world = make(of_group("a"), of_group("b"), group=needing(cpu="10"))
    await rest(world)
    waiting = msgspec.convert(world.workload_named(name_of()), wire.Workload)
    world.admit(name_of())
    held = msgspec.convert(world.workload_named(name_of()), wire.Workload)
    plain = replace(held, metadata=replace(held.metadata, annotations={}))
    asked: list[wire.Workload] = []
    clock = GangClock(world.context(), gangs=world.starting, promise_of=asked.append)
    clock.begin([plain, waiting, held])
    assert asked == [held]


async def test_a_promise_of_a_dialect_that_is_off_ends_with_the_deadline_g3_56(make: Callable[..., Pods]) -> None:
    """No look at the gang ends it; the default deadline of two pods is 62 s."""
    world = make(of_group("a"), of_group("b"), group=needing(cpu="10"))
    await rest(world)
    world.admit(name_of())
    held = msgspec.convert(world.workload_named(name_of()), wire.Workload)
    promise = Promise(workload=f"team/{name_of()}", queue="team", amounts={FlavorResource("default", "cpu"): 1})
    world.switches = JobFeatures()
    clock = GangClock(world.context(), gangs=world.starting, promise_of=lambda _workload: promise)
    await world.clock.advance(10)
    clock.begin([held])
    ending = asyncio.create_task(clock.end_unseen_promises())
    await world.clock.advance(51)
    before = dict(world.starting.promises)
    await world.clock.advance(1)
    await ending

    assert before == {promise.workload: promise}
    assert world.starting.promises == {}


async def test_a_pod_that_never_had_a_node_is_let_go_when_it_is_deleted(make: Callable[..., Pods]) -> None:
    """The object keeps the Workload, so such a pod need not stay until it is replaced; one with a node stays its time."""
    world = make(of_group("a"), of_group("b"), group=pod_group())
    await rest(world)
    world.admit(name_of())
    await rest(world)
    world.runs("b")
    for name in ("a", "b"):
        ending = {"deletionTimestamp": at(30), "deletionGracePeriodSeconds": 30}
        world.client.change(PODS, f"team/{name}", {"metadata": ending})
    await rest(world)
    assert (world.names(), world.finalizer("b")) == (["b"], True)


async def test_a_finished_group_keeps_no_quota_for_a_member_that_failed(make: Callable[..., Pods]) -> None:
    """An extra succeeded in its place, so the PodGroup is Finished and takes no more pods."""
    world = make(of_group("a"), of_group("x", born=1), group=pod_group(minimum=1))
    await rest(world)
    world.admit(name_of())
    await rest(world)
    world.runs("a")
    await rest(world)
    world.admit(workload_name(GroupVersionKind("", "v1", "Pod"), "x", "uid-x"))
    await rest(world)
    world.runs("a", phase="Failed")
    world.runs("x")
    await rest(world)
    before = status_of(world.workload_named(name_of()), "Finished")
    world.runs("x", phase="Succeeded")
    world.client.change(GROUPS, "team/g", {"status": {"phase": "Finished"}})
    await rest(world)
    assert before == ("", "")
    assert status_of(world.workload_named(name_of()), "Finished") == ("True", "Succeeded")


@pytest.mark.parametrize("present", [True, False])
async def test_a_second_workload_is_made_only_for_an_object_that_is_there(
    make: Callable[..., Pods], present: bool
) -> None:
    """The watch of group objects may be behind, and then the garbage collector would delete each Workload."""
    world = make(of_group("a"), of_group("b"), group=pod_group())
    await rest(world)
    load = f"team/{name_of()}"
    world.client.drop(WORKLOADS, load)
    world.workloads.remove(load)
    if not present:
        world.client.drop(GROUPS, "team/g")
    await world.look(KEY, late=True)
    await world.look(KEY, late=True)

    assert world.client.keys(WORKLOADS) == ([load] if present else [])
