"""Owners of groups of pods that another cluster runs: StatefulSets, and LeaderWorkerSets with all their groups.

Ids such as `17.2.8` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS, resource_of
from kqueue.jobs.catalog import COMPOSED
from kqueue.jobs.composed import ComposedKind, GroupPlan
from kqueue.jobs.multikueue.owners import SentOwner
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority
from tests.unit.controllers.builders import JSON, condition
from tests.unit.controllers.multikueue_world import Crash, MultiKueueWorld, Worker
from tests.unit.jobs.pods import make_pod

ON = JobFeatures()
STATEFUL_SET, SET = COMPOSED
ADMITTED = (condition("QuotaReserved"), condition("Admitted"))
EVICTED = (condition("QuotaReserved", "False"), condition("Admitted", "False"), condition("Evicted"))
UID, ORIGIN = "kueue.x-k8s.io/multikueue-origin-uid", "kueue.x-k8s.io/multikueue-origin"
TEMPLATE: JSON = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def make_owner(kind: ComposedKind, replicas: int) -> JSON:
    meta = {"name": "o", "namespace": "ns", "uid": "uid-of-o", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    spec: JSON = {"template": TEMPLATE} if kind is STATEFUL_SET else {}
    if kind is SET:
        spec = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}
    return {"metadata": meta, "spec": {"replicas": replicas, **spec}, "status": {"replicas": replicas}}


class OwnerWorld(MultiKueueWorld):
    """An owner `o`, whose groups have Workloads with quota."""

    def __init__(self, kind: ComposedKind = SET, replicas: int = 2, **more: Any) -> None:
        super().__init__(pods=True, **more)
        self.kind, self.resource = kind, resource_of(kind)
        self.client.put(self.resource, make_owner(kind, replicas))
        self.keys = []
        self.grow()

    def grow(self) -> None:
        """The reconciler of the owner makes the Workloads that are missing, and they get quota."""
        owner = self.client.object(self.resource, "ns/o")
        assert owner is not None
        for group in self.kind.groups(owner, ON):
            made = GroupPlan(self.kind, owner, group, ON).workload(Priority(value=0))
            key = f"ns/{made['metadata']['name']}"
            if key not in self.keys:
                made["metadata"]["uid"] = f"uid-of-{made['metadata']['name']}"
                self.client.put(WORKLOADS, made)
                self.keys.append(key)
                self._reserve(key)

    def drop(self, key: str) -> None:
        """A Workload is deleted on the manager."""
        self.client.drop(WORKLOADS, key)

    def copy(self, worker: str) -> JSON | None:
        """The copy of the owner on a cluster."""
        return self.workers[worker].client.object(self.resource, "ns/o")

    def groups_on(self, worker: str) -> list[int]:
        """The numbers of the groups whose Workloads a cluster has."""
        has = self.workers[worker].client.keys(WORKLOADS)
        return [number for number, key in enumerate(self.keys) if key in has]

    def told(self, group: int) -> tuple[str, str | None]:
        """State of the check, and cluster, of a group."""
        found = self.client.object(WORKLOADS, self.keys[group])
        assert found is not None
        return found["status"]["admissionChecks"][0]["state"], found["status"].get("clusterName")

    def runs(self, group: int = 0) -> bool:
        for worker in self.workers.values():
            worker.client.sync()
        workload = self.workloads.get(self.keys[group])
        assert workload is not None
        return self.view.runs_elsewhere(workload)

    async def ran(self) -> Worker:
        """Cluster `a` admits all groups."""
        await self.settled()
        for key in self.keys:
            if key in self.workers["a"].client.keys(WORKLOADS):
                self.workers["a"].say(key, *ADMITTED)
                await self.settled()
        for key in self.keys[1:]:
            self.workers["a"].say(key, *ADMITTED)
        await self.settled()
        return self.workers["a"]


@pytest.mark.parametrize("kind", COMPOSED, ids=lambda kind: kind.gvk.kind)
async def test_the_owner_goes_to_the_cluster_that_admits_its_first_group(kind: ComposedKind) -> None:
    """17.2.8, 17.2: its copy has the origin and the UID of the original, and no Workload of its own."""
    world = OwnerWorld(kind, replicas=1)
    await world.settled()
    assert (world.groups_on("a"), world.groups_on("b"), world.copy("a")) == ([0], [0], None)
    await world.ran()

    made = world.copy("a")
    assert made is not None
    assert (made["metadata"]["labels"][ORIGIN], made["metadata"]["annotations"][UID]) == ("west", "uid-of-o")
    assert made["spec"] == make_owner(kind, 1)["spec"]
    assert not [key for key in made["metadata"]["annotations"] if "prebuilt" in key]
    assert world.told(0) == ("Ready", "a")
    assert (world.copy("b"), world.groups_on("b")) == (None, [])


async def test_all_groups_follow_the_first_one_that_gets_a_cluster() -> None:
    """17.2.9: until then the others have no copies; afterwards they wait in that cluster alone."""
    world = OwnerWorld(replicas=3)
    await world.settled()
    assert (world.groups_on("a"), world.groups_on("b")) == ([0], [0])
    assert (
        "all groups of an owner go to one cluster"
        in (world.client.object(WORKLOADS, world.keys[2]) or {})["status"]["admissionChecks"][0]["message"]
    )
    world.workers["b"].say(world.keys[0], *ADMITTED)
    await world.settled()

    assert (world.groups_on("a"), world.groups_on("b")) == ([], [0, 1, 2])
    assert [world.told(group) for group in range(3)] == [("Ready", "b"), ("Pending", None), ("Pending", None)]
    for key in world.keys:
        world.workers["b"].say(key, *ADMITTED)
    await world.settled()
    assert {world.told(group) for group in range(3)} == {("Ready", "b")}
    assert world.copy("a") is None


async def test_a_group_that_waits_for_quota_keeps_no_other_waiting() -> None:
    """17.2.9: the first group with quota leads, so that its quota is not kept for nothing."""
    world = OwnerWorld(replicas=2)
    world.client.change(WORKLOADS, world.keys[0], {"status": {"conditions": [condition("QuotaReserved", "False")]}})
    await world.settled()
    assert (world.groups_on("a"), world.groups_on("b")) == ([1], [1])
    world._reserve(world.keys[0])
    await world.settled()
    assert (world.groups_on("a"), world.groups_on("b")) == ([1], [1])
    world.workers["b"].say(world.keys[1], *ADMITTED)
    await world.settled()

    assert (world.groups_on("a"), world.groups_on("b")) == ([], [0, 1])
    assert world.copy("b") is not None


async def test_groups_in_two_clusters_come_together() -> None:
    """17.2.7: two groups were decided at the same moment; the one with the higher number is dispatched anew."""
    world = OwnerWorld(replicas=2)
    for number, worker in ((0, "a"), (1, "b")):
        world._reserve(world.keys[number], state="Ready")
        world.client.change(WORKLOADS, world.keys[number], {"status": {"clusterName": worker}})
        link = world.workers[worker].link
        original = world.client.object(WORKLOADS, world.keys[number])
        assert original is not None
        copy = link.origin.workload_copy(original)
        world.workers[worker].client.put(WORKLOADS, {**copy, "metadata": {**copy["metadata"], "uid": "copy"}})
        world.workers[worker].say(world.keys[number], *ADMITTED)
    await world.settled()

    assert (world.told(0), world.told(1)[0]) == (("Ready", "a"), "Retry")
    assert (world.groups_on("b"), world.copy("b")) == ([], None)


async def test_the_last_group_takes_the_copy_of_the_owner_along() -> None:
    """17.2.2: a group that goes leaves the owner to the others, whichever goes first."""
    for order in ((0, 1), (1, 0)):
        world = OwnerWorld(replicas=2)
        worker = await world.ran()
        world.drop(world.keys[order[0]])
        await swept(world)
        assert (world.groups_on("a"), world.copy("a") is not None) == ([order[1]], True)
        world.drop(world.keys[order[1]])
        await swept(world)
        assert worker.names == []


async def swept(world: OwnerWorld) -> None:
    """Events and the collector of garbage have done what they do."""
    for _ in range(3):
        world.reconciler.collect_garbage()
        await world.settled()


async def test_groups_are_added_and_removed_where_the_owner_runs() -> None:
    """17.2: the copy of the owner has as many replicas as the original."""
    world = OwnerWorld(replicas=1)
    await world.ran()
    world.client.change(world.resource, "ns/o", {"spec": {"replicas": 2}})
    world.grow()
    await world.settled()
    assert ((world.copy("a") or {})["spec"]["replicas"], world.groups_on("a")) == (2, [0, 1])
    world.client.change(world.resource, "ns/o", {"spec": {"replicas": 1}})
    world.drop(world.keys[1])
    await swept(world)

    assert ((world.copy("a") or {})["spec"]["replicas"], world.groups_on("a")) == (1, [0])


async def test_quota_is_charged_until_the_worker_has_given_its_own_back() -> None:
    """17.2.5: the owner stays on the worker for the other group, and tells nothing about this one."""
    world = OwnerWorld(replicas=2)
    worker = await world.ran()
    assert (world.runs(0), world.runs(1)) == (True, True)
    worker.say(world.keys[1], condition("QuotaReserved"), condition("Evicted"))
    assert world.runs(1)
    worker.say(world.keys[1], *EVICTED)
    await world.settled()
    assert (world.runs(0), world.runs(1), world.told(1)[0]) == (True, False, "Retry")
    assert world.copy("a") is not None
    worker.client.drop(WORKLOADS, world.keys[1])
    assert not world.runs(1)


async def test_readiness_comes_from_the_copy_of_the_workload() -> None:
    """15: the pods on the manager are never ready, and the status of the owner is that of the manager."""
    world = OwnerWorld(replicas=1)
    worker = await world.ran()
    worker.say(world.keys[0], *ADMITTED, condition("PodsReady"))
    world.client.change(
        WORKLOADS,
        world.keys[0],
        {"status": {"conditions": [condition("QuotaReserved"), condition("Admitted")]}},
    )
    await world.settled()

    found = world.client.object(WORKLOADS, world.keys[0]) or {}
    assert [c["status"] for c in found["status"]["conditions"] if c["type"] == "PodsReady"] == ["True"]
    assert (world.client.object(world.resource, "ns/o") or {})["status"] == {"replicas": 1}


async def test_a_lost_cluster_holds_the_whole_set() -> None:
    """17.2.7: no group goes elsewhere while another one may still run there."""
    world = OwnerWorld(replicas=2)
    await world.ran()
    world.workers["a"].lose()
    world._reserve(world.keys[1])  # it was evicted for another cause, and has quota again
    world.client.change(WORKLOADS, world.keys[1], {"status": {"clusterName": None}})
    await world.settled()

    assert (world.told(0), world.groups_on("b")) == (("Ready", "a"), [])


async def test_a_set_leaves_a_cluster_that_is_lost_as_a_whole() -> None:
    """17.2.7: all groups are dispatched anew, and what the lost cluster still has is deleted when it is back."""
    world = OwnerWorld(replicas=2)
    await world.ran()
    world.workers["a"].lose()
    await world.settled()
    await world.clock.advance(16 * 60)
    await world.settled()
    assert [world.told(group) for group in range(2)] == [("Retry", "a")] * 2
    for key in world.keys:  # both were evicted, and have quota again
        world.client.change(WORKLOADS, key, {"status": {"clusterName": None, "nominatedClusterNames": None}})
        world._reserve(key)
    await world.settled()
    for key in world.keys:
        world.workers["b"].say(world.keys[0], *ADMITTED)
        await world.settled()
        world.workers["b"].say(key, *ADMITTED)
    await world.settled()
    assert [world.told(group) for group in range(2)] == [("Ready", "b")] * 2
    assert world.workers["a"].client.object(world.resource, "ns/o") is not None
    world.workers["a"].connect()
    await swept(world)

    assert world.workers["a"].names == []
    assert (world.groups_on("b"), world.copy("b") is not None) == ([0, 1], True)


async def test_the_manager_takes_one_group_back() -> None:
    """17.2.8: the worker evicts it, and its Workload goes; the set stays there for the other group."""
    world = OwnerWorld(replicas=2)
    worker = await world.ran()
    world._reserve(world.keys[1], condition("Admitted"), condition("Evicted"), state="Ready")
    await world.settled()
    told = (worker.client.object(WORKLOADS, world.keys[1]) or {})["status"]["conditions"]
    assert [c["status"] for c in told if c["type"] == "DeactivationTarget"] == ["True"]
    assert world.runs(1)
    worker.say(world.keys[1], *EVICTED)
    await world.settled()
    assert not world.runs(1)
    gone = {"clusterName": None, "conditions": [condition("QuotaReserved", "False")]}
    world.client.change(WORKLOADS, world.keys[1], {"status": gone})
    await swept(world)

    assert (world.groups_on("a"), world.copy("a") is not None) == ([0], True)


@pytest.mark.parametrize("done", [False, True], ids=["before the write", "after the write"])
async def test_a_killed_manager_runs_no_set_in_two_clusters(done: bool) -> None:
    """17.2: killed at any step, with each write done or not: one cluster gets all groups, and the other keeps nothing."""
    steps = 1
    at = 0
    while at < steps:
        at += 1
        crash, world = Crash(at, done), OwnerWorld(replicas=2)

        def check(world: OwnerWorld = world) -> None:
            assert [worker for worker in "ab" if world.copy(worker) is not None] in ([], ["a"])

        await world.live(crash, check)
        for worker in ("a", "b"):
            world.workers[worker].say(world.keys[0], *ADMITTED)
        await world.live(crash, check)
        world.workers["a"].say(world.keys[1], *ADMITTED)
        await world.live(crash, check)
        steps = max(steps, crash.steps)

        assert [world.told(group) for group in range(2)] == [("Ready", "a")] * 2
        assert (world.groups_on("a"), world.groups_on("b")) == ([0, 1], [])
    assert steps > 5


async def test_an_owner_whose_pods_run_here_already_is_rejected() -> None:
    """17.2.1: its queue got the check after they had started; a copy would run in a second cluster."""
    world = OwnerWorld(STATEFUL_SET, replicas=1)
    pod = make_pod("o-0", group=world.keys[0].partition("/")[2], total=1, gated=False, phase="Running", node="n")
    pod["metadata"]["namespace"] = "ns"
    world.client.put(PODS, pod)
    await world.settled()

    assert (world.told(0), world.groups_on("a")) == (("Rejected", None), [])


def test_a_name_is_that_of_the_first_workload() -> None:
    """17.2: for a copy it follows from the UID of the original."""
    for kind in COMPOSED:
        owner = make_owner(kind, 1)
        first = next(iter(kind.groups(owner, ON)))
        name = GroupPlan(kind, owner, first, ON).names[0]
        meta = {**owner["metadata"], "uid": "other", "labels": {ORIGIN: "west"}, "annotations": {UID: "uid-of-o"}}
        assert SentOwner(kind).workload_name({**owner, "metadata": meta}, ON) == name
        assert SentOwner(kind).workload_name(owner, ON) == name
