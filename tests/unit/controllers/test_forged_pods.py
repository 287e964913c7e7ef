"""Pods that name a queued object as their controller are stopped where they are certain to run without quota."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kqueue.api.wire import core as wire_core
from kqueue.controllers.forged_pods import ForgedPods
from kqueue.controllers.job_workload import OWNER_INDEX, owner_keys
from kqueue.controllers.owner_workloads import OwnerWorkloads
from kqueue.controllers.owners import Owners
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.controllers.short_stop import PodStop
from kqueue.jobs.ancestry import OwnerKind, owner_kinds
from kqueue.jobs.kind import GroupVersionKind
from kqueue.model import PodView, pod_view
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, World, condition, make_workload, reserved

DAY, START = "2025-12-31", "2026-01-01"
NOON, LATER = f"{DAY}T12:00:00Z", f"{DAY}T13:00:00Z"
API = {
    "Train": "example.com/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "SparkApplication": "sparkoperator.k8s.io/v1beta2",
}
FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "sparkoperator.k8s.io/sparkapplication",
)
TRAIN = OwnerKind(gvk=GroupVersionKind("example.com", "v1", "Train"), resource="trains", queued=True)


def reference(kind: str, **more: Any) -> JSON:
    return {"apiVersion": API[kind], "kind": kind, "name": "o", "uid": "uid-o", "controller": True} | more


class Forged(World):
    """An owner `ns/o`, and one pod that names it as its controller."""

    def __init__(self, kind: str = "Train", *, queue: str = "main", manages: bool = True) -> None:
        super().__init__()
        self.pods: Store[PodView] = Store("pods")
        self.client.watch(PODS, self.pods, lambda obj: pod_view(msgspec.convert(obj, wire_core.Pod)))
        self.workloads.add_index(OWNER_INDEX, owner_keys)
        known = owner_kinds(FRAMEWORKS, more=[TRAIN])
        owners = Owners(client=self.client, known=known, stores={}, manages_all=False, clock=self.clock)
        self.reconciler = ForgedPods(
            pods=self.pods,
            owners=owners,
            workloads=OwnerWorkloads(self.client, self.workloads),
            manages=lambda _namespace: manages,
            clock=self.clock,
            stop=PodStop(self.client, self.recorder),
        )
        group, version = API[kind].split("/")
        found = known[group, kind]
        labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        meta = {"name": "o", "namespace": "ns", "uid": "uid-o", "labels": labels}
        self.kind = kind
        self.client.put(ResourceType(group, version, found.resource, kind), {"metadata": meta})

    def pod(self, *, created: str = LATER, **more: Any) -> None:
        meta: JSON = {"name": "p", "namespace": "ns", "uid": "uid-p", "creationTimestamp": created}
        meta |= {"ownerReferences": [reference(self.kind)], **more.pop("metadata", {})}
        status = {"phase": more.pop("phase", "Running")}
        self.client.put(PODS, {"metadata": meta, "spec": {"nodeName": "n"} | more, "status": status})

    def put_workload(self, status: JSON | None = None, *, created: str = NOON, name: str = "w") -> None:
        metadata = {"creationTimestamp": created, "ownerReferences": [reference(self.kind)]}
        metadata["labels"] = {"kueue.x-k8s.io/job-uid": "uid-o"}  # type: ignore[assignment]
        self.client.put(WORKLOADS, make_workload(name, metadata=metadata, status=status))

    async def stopped(self) -> bool:
        """Whether one look stops the pod, with 5 s."""
        self.sync()
        await self.reconciler.reconcile("ns/p")
        deleted = [c for c in self.client.writes() if c.verb == "delete"]
        assert all(c.body == {"gracePeriodSeconds": 5} for c in deleted)
        assert self.recorder.reasons == ["Stopped"] * len(deleted)
        return [c.key for c in deleted] == ["ns/p"]


@pytest.mark.parametrize("status", [{}, reserved()], ids=["owner-without-quota", "owner-with-quota"])
@pytest.mark.parametrize("kind", ["Deployment", "JobSet", "LeaderWorkerSet"])
async def test_a_pod_of_an_owner_that_makes_no_pods_is_stopped(kind: str, status: JSON) -> None:
    """None of these makes pods itself, so no pod that names one as its controller is honest."""
    world = Forged(kind)
    world.pod()
    world.put_workload(status)

    assert await world.stopped()


def evicted(at: str) -> JSON:
    lost = condition("QuotaReserved", "False", "Pending") | {"lastTransitionTime": at}
    return {"conditions": [lost, condition("Evicted", reason="Preempted")]}


@pytest.mark.parametrize(
    ("status", "created", "stopped"),
    [
        pytest.param({}, LATER, True, id="it-waits"),
        pytest.param({}, NOON, True, id="it-waits-and-the-pod-came-in-the-same-second"),
        pytest.param({"conditions": [condition("QuotaReserved", "False")]}, LATER, True, id="it-was-found-not-to-fit"),
        pytest.param({}, f"{DAY}T11:00:00Z", False, id="the-pod-may-be-of-an-earlier-workload"),
        pytest.param(reserved(), LATER, False, id="it-is-admitted"),
        pytest.param(reserved(condition("Evicted")), LATER, False, id="it-is-being-evicted-and-still-charged"),
        pytest.param(evicted(f"{DAY}T12:30:00Z"), LATER, True, id="the-pod-came-after-the-eviction"),
        pytest.param(evicted(f"{DAY}T14:00:00Z"), LATER, False, id="the-pod-was-paid-for-until-the-eviction"),
        pytest.param({"conditions": [condition("Finished")]}, LATER, False, id="it-has-finished"),
    ],
)
async def test_a_pod_that_came_while_its_owner_held_no_quota_is_stopped(
    status: JSON, created: str, stopped: bool
) -> None:
    """Pods that may have been paid for keep the time that they ask for."""
    world = Forged()
    world.pod(created=created)
    world.put_workload(status)

    assert await world.stopped() is stopped


@pytest.mark.parametrize(
    ("owner", "pod"),
    [
        pytest.param({"queue": ""}, {}, id="the-owner-is-not-queued"),
        pytest.param({"manages": False}, {}, id="the-namespace-is-not-managed"),
        pytest.param({}, {"nodeName": ""}, id="the-pod-is-not-bound"),
        pytest.param({}, {"phase": "Succeeded"}, id="the-pod-has-ended"),
        pytest.param({}, {"metadata": {"deletionTimestamp": LATER, "finalizers": ["f"]}}, id="the-pod-is-ending"),
        pytest.param({}, {"metadata": {"ownerReferences": [reference("Train", controller=False)]}}, id="no-controller"),
        pytest.param({}, {"metadata": {"ownerReferences": [reference("Train", uid="old")]}}, id="another-uid"),
        pytest.param({}, {"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}}, id="queued-itself"),
        pytest.param({"kind": "Job"}, {}, id="a-job-looks-after-its-pods"),
        pytest.param({"kind": "ReplicaSet"}, {}, id="a-replica-set-looks-after-its-pods"),
        pytest.param({"kind": "StatefulSet"}, {}, id="a-stateful-set-looks-after-its-pods"),
    ],
)
async def test_other_pods_are_left_alone(owner: JSON, pod: JSON) -> None:
    """Nobody owes quota for them, or another controller sees to them."""
    world = Forged(**owner)
    world.pod(**pod)
    world.put_workload()

    assert not await world.stopped()


@pytest.mark.parametrize(
    ("status", "stopped"), [({}, True), (reserved(), False)], ids=["owner-without-quota", "owner-with-quota"]
)
async def test_executors_count_for_the_application_of_their_driver(status: JSON, stopped: bool) -> None:
    """Their controller is a pod, so they are followed to what made that pod."""
    world = Forged("SparkApplication")
    driver = {"name": "driver", "namespace": "ns", "uid": "uid-d", "ownerReferences": [reference("SparkApplication")]}
    world.client.put(PODS, {"metadata": driver, "spec": {}})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "uid-d", "controller": True}
    world.pod(metadata={"ownerReferences": [owner]})
    world.put_workload(status)

    assert await world.stopped() is stopped


async def test_an_admission_that_the_watch_has_not_brought_counts() -> None:
    """The Workloads are read before a pod is stopped: ours, and one that we have never seen."""
    world = Forged()
    world.pod()
    world.put_workload()
    world.sync()
    world.put_workload(reserved(), name="newer")
    await world.reconciler.reconcile("ns/p")

    assert world.client.writes() == []


async def test_a_pod_that_is_seen_before_its_owners_workload_is_looked_at_again() -> None:
    """For half a minute: pods and Workloads come by different watches."""
    world = Forged()
    world.pod(created=f"{START}T00:00:00Z")
    world.sync()
    again = await world.reconciler.reconcile("ns/p")
    await world.clock.advance(31.0)
    late = await world.reconciler.reconcile("ns/p")

    assert (again.requeue_after, late.requeue_after) == (1.0, None)
