"""Single pods and groups of pods that another cluster runs: the pods of the manager keep their gates.

Ids such as `17.2.8` and `9.1` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.elsewhere import Elsewhere
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import InvalidError
from tests.unit.controllers.builders import JSON, condition, make_workload, read, status_of
from tests.unit.controllers.multikueue_world import Crash, MultiKueueWorld, Worker
from tests.unit.controllers.pod_world import GROUP as GANG
from tests.unit.controllers.pod_world import Pods, grouped
from tests.unit.jobs.pods import make_pod

ADMITTED = (condition("QuotaReserved"), condition("Admitted"))
GROUP = {"kueue.x-k8s.io/is-group-workload": "true"}
UID = "kueue.x-k8s.io/multikueue-origin-uid"


def pod_of(name: str, *, group: str = "", **more: Any) -> JSON:
    made = make_pod(name, group=group, total=2 if group else None, **more)
    made["metadata"]["namespace"] = "ns"
    return made


def owner(name: str, *, controller: bool) -> JSON:
    found: JSON = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
    return {**found, "controller": True} if controller else found


class PodWorld(MultiKueueWorld):
    """A Workload `w` with quota, of a pod `p` alone, or of a group of pods."""

    def __init__(self, *names: str, **more: Any) -> None:
        super().__init__(pods=True)
        group = "w" if len(names) > 1 else ""
        for name in names:
            self.client.put(PODS, pod_of(name, group=group, **more))
        references = [owner(name, controller=not group) for name in names]
        meta = {"ownerReferences": references, **({"annotations": GROUP} if group else {})}
        self.client.put(WORKLOADS, make_workload("w", metadata=meta))
        self.reserve()

    def pod(self, name: str = "p") -> JSON:
        found = self.client.object(PODS, f"ns/{name}")
        assert found is not None
        return found

    def join(self, name: str) -> None:
        """A pod takes its place in the group."""
        self.client.put(PODS, pod_of(name, group="w"))
        known = (self.workload("w") or {})["metadata"]["ownerReferences"]
        self.client.change(
            WORKLOADS, "ns/w", {"metadata": {"ownerReferences": [*known, owner(name, controller=False)]}}
        )

    async def ran(self) -> Worker:
        """Cluster `a` admits the workload and runs its pods."""
        await self.settled()
        found = self.workers["a"]
        found.tell(*ADMITTED)
        await self.settled()
        for key in found.client.keys(PODS):
            running = {
                "phase": "Running",
                "podIP": "10.0.0.7",
                "hostIP": "10.0.0.1",
                "conditions": [condition("Ready")],
            }
            found.client.change(PODS, key, {"spec": {"nodeName": "n", "schedulingGates": None}, "status": running})
        await self.settled()
        return found

    def runs(self) -> bool:
        for worker in self.workers.values():
            worker.client.sync()
        workload = self.workloads.get("ns/w")
        assert workload is not None
        return self.view.runs_elsewhere(workload)


async def test_a_pod_runs_elsewhere_and_keeps_its_gate_here() -> None:
    """9.1, 17.2.8: its copy has gates and no marks of one cluster; only status comes back, and no address."""
    world = PodWorld("p", preemptionPolicy="Never")
    gates = world.pod()["spec"]["schedulingGates"]
    await world.settled()
    assert [worker.names for worker in world.workers.values()] == [["ns/w"], ["ns/w"]]
    world.workers["a"].tell(*ADMITTED)
    await world.settled()
    made = world.workers["a"].client.object(PODS, "ns/p")
    assert made is not None
    assert made["spec"] == {
        key: value for key, value in world.pod()["spec"].items() if key not in ("priority", "preemptionPolicy")
    }
    assert made["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] == "w"
    assert made["metadata"]["annotations"][UID] == "uid-p"
    assert "finalizers" not in made["metadata"]

    worker = await world.ran()

    assert world.pod()["spec"]["schedulingGates"] == gates
    assert world.pod()["status"] == {"phase": "Running", "conditions": [condition("Ready")]}
    assert (world.entry["state"], world.status["clusterName"]) == ("Ready", "a")
    assert (worker.names, world.workers["b"].names) == (["ns/w", "ns/p"], [])


async def test_a_pod_of_a_deployment_runs_elsewhere_without_its_owners() -> None:
    """8, 17.2: its copy is a pod that is queued alone, which no ReplicaSet of the worker takes for its own; the status
    comes back, so that the Deployment counts it.
    """
    world = PodWorld(
        "p",
        labels={"pod-template-hash": "abc", "app": "web"},
        annotations={"kueue.x-k8s.io/pod-suspending-parent": "deployment"},
    )
    worker = await world.ran()
    made = (worker.client.object(PODS, "ns/p") or {})["metadata"]

    assert "kueue.x-k8s.io/pod-suspending-parent" not in made["annotations"]
    assert "ownerReferences" not in made
    assert (made["labels"]["app"], "pod-template-hash" in made["labels"]) == ("web", False)
    assert world.pod()["metadata"]["labels"]["pod-template-hash"] == "abc"
    assert world.pod()["status"]["conditions"] == [condition("Ready")]


async def test_a_pod_ends_as_its_copy_has_ended() -> None:
    """17.2.4: the Workload may be seen first; the pod has its last status before the copies go."""
    world = PodWorld("p")
    worker = await world.ran()
    worker.tell(*ADMITTED, condition("Finished", reason="Failed") | {"lastTransitionTime": "2026-01-01T00:00:00Z"})
    assert await world.settled() == 30
    assert (worker.names, status_of(world.workload("w"), "Finished")[0]) == (["ns/w", "ns/p"], "")

    worker.client.change(PODS, "ns/p", {"status": {"phase": "Failed", "reason": "Error"}})
    await world.settled()

    assert (world.pod()["status"]["phase"], world.pod()["status"]["reason"]) == ("Failed", "Error")
    assert status_of(world.workload("w"), "Finished") == ("True", "Failed")
    assert worker.names == []


async def test_an_end_without_a_last_status_is_waited_for_in_vain_only_once() -> None:
    """A worker that never tells how the pod ended holds no quota of the manager for ever."""
    world = PodWorld("p")
    worker = await world.ran()
    worker.tell(*ADMITTED, condition("Finished", reason="Failed") | {"lastTransitionTime": "2026-01-01T00:00:00Z"})
    await world.settled()
    await world.clock.advance(30)
    await world.settled()
    assert (status_of(world.workload("w"), "Finished")[0], worker.names) == ("True", [])


async def test_a_group_is_ready_when_all_its_pods_have_copies() -> None:
    """17.2.8: one create is refused at first; the check waits, and the copies that are there stay."""
    world = PodWorld("p", "q", "r")
    await world.settled()
    worker = world.workers["a"]
    worker.client.fail(InvalidError("no", status=422), verb="create", key="ns/q", times=1)
    worker.tell(*ADMITTED)
    await world.step()
    assert worker.names == ["ns/w", "ns/p", "ns/r"]
    assert world.entry["state"] == "Pending"

    await world.settled()

    assert worker.names == ["ns/w", "ns/p", "ns/r", "ns/q"]
    assert world.entry["state"] == "Ready"


async def test_a_pod_that_does_not_own_the_workload_is_not_copied() -> None:
    """A tenant adds a pod to the group, beyond its number: nothing was admitted for it."""
    world = PodWorld("p", "q")
    world.client.put(PODS, pod_of("more", group="w"))
    worker = await world.ran()
    assert worker.names == ["ns/w", "ns/p", "ns/q"]


async def test_a_replacement_takes_the_place_of_a_deleted_pod() -> None:
    """The copy of the deleted pod goes, whose finalizer may keep it; that of the other one comes."""
    world = PodWorld("p", "q")
    worker = await world.ran()
    world.client.change(PODS, "ns/q", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.join("r")

    await world.settled()

    assert worker.names == ["ns/w", "ns/p", "ns/r"]
    assert world.entry["state"] == "Ready"


async def test_pods_that_have_ended_are_not_run_again() -> None:
    """Someone deletes the copy of a pod that has succeeded; the others run on."""
    world = PodWorld("p", "q")
    worker = await world.ran()
    worker.client.change(PODS, "ns/q", {"status": {"phase": "Succeeded"}})
    await world.settled()
    worker.client.drop(PODS, "ns/q")
    await world.settled()
    assert worker.names == ["ns/w", "ns/p"]
    assert (world.pod("q")["status"]["phase"], world.pod("p")["status"]["phase"]) == ("Succeeded", "Running")


async def test_an_eviction_leaves_waiting_pods_and_no_quota() -> None:
    """Quota counts until the worker's pods have ended, also while they are being deleted; then the pods wait again."""
    world = PodWorld("p", "q")
    worker = await world.ran()
    assert world.runs()
    world.reserve(condition("Evicted"), condition("Admitted", "False"), state="Ready")
    await world.settled()
    stopped = {
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kueue.x-k8s.io/managed"]},
        "status": {"conditions": [condition("TerminationTarget")]},
    }
    for name in ("ns/p", "ns/q"):
        worker.client.change(PODS, name, stopped)
    assert world.runs()
    for name in ("ns/p", "ns/q"):
        worker.client.change(PODS, name, {"status": {"phase": "Failed"}})
    assert not world.runs()
    await world.settled()
    assert [world.pod(name)["status"]["phase"] for name in ("p", "q")] == ["Running", "Running"], "no failure"

    world.client.change(WORKLOADS, "ns/w", {"status": {"conditions": [condition("QuotaReserved", "False")]}})
    await world.settled()

    assert [world.pod(name)["status"]["phase"] for name in ("p", "q")] == ["Pending", "Pending"]
    assert [c["reason"] for c in world.pod()["status"]["conditions"]] == ["SchedulingGated"]
    assert world.pod()["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]


async def test_a_lost_cluster_holds_no_quota() -> None:
    world = PodWorld("p")
    (await world.ran()).tell(*ADMITTED)
    world.workers["a"].lose()
    workload = world.workloads.get("ns/w")
    assert workload is not None
    assert not world.view.runs_elsewhere(workload)


async def test_a_name_that_is_taken_sends_the_group_elsewhere() -> None:
    """17.2: a pod of a user of `a` has the name of one; it is never touched, and the copies of the others go."""
    world = PodWorld("p", "q")
    taken, free = world.workers["a"], world.workers["b"]
    taken.client.put(PODS, pod_of("q"))
    await world.settled()
    taken.tell(*ADMITTED)
    await world.settled()
    free.tell(*ADMITTED)
    await world.settled()

    assert (world.entry["state"], world.status["clusterName"]) == ("Ready", "b")
    assert free.names == ["ns/w", "ns/p", "ns/q"]
    assert taken.names == ["ns/q"]


async def test_a_taken_name_of_a_replacement_is_no_busy_loop() -> None:
    """The group runs on; the name is tried again when it may be free."""
    world = PodWorld("p", "q")
    worker = await world.ran()
    worker.client.put(PODS, pod_of("r"))
    world.client.change(PODS, "ns/q", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.join("r")
    await world.settled()
    assert (world.entry["state"], worker.names) == ("Ready", ["ns/w", "ns/p", "ns/r"])
    assert UID not in (worker.client.object(PODS, "ns/r") or {})["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({"gated": False, "phase": "Running", "node": "n"}, "runs on this cluster", id="it runs here"),
        pytest.param(
            {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
            "pods of a statefulset cannot",
            id="of a StatefulSet",
        ),
    ],
)
async def test_pods_that_no_worker_can_run_are_rejected(more: JSON, said: str) -> None:
    """17.2.1: a pod whose gate a user has removed by hand would run in two clusters."""
    world = PodWorld("p", **more)
    await world.settled()
    assert world.entry["state"] == "Rejected"
    assert said in world.entry["message"]
    assert [worker.names for worker in world.workers.values()] == [[], []]


@pytest.mark.parametrize("done", [True, False], ids=["answer-lost", "never-done"])
@pytest.mark.parametrize("nth", range(1, 11))
async def test_killed_at_any_write_a_group_runs_once(nth: int, done: bool) -> None:
    """Admission, an eviction by the worker and another admission: pods have copies on one cluster, and end there."""
    world = PodWorld("p", "q")
    crash = Crash(nth, done)

    def check() -> None:
        copies = [w for w in world.workers.values() if len(w.names) > 1]
        assert len(copies) <= 1, "two clusters run the group"

    live = partial(world.live, crash, check)

    await live()
    for worker in world.workers.values():
        worker.tell(*ADMITTED)
    await live()
    assert world.status["clusterName"] == "a"
    world.workers["a"].tell(*ADMITTED, condition("Evicted", reason="Preempted"))
    await live()
    assert world.entry["state"] == "Retry"
    gone = {"clusterName": None, "nominatedClusterNames": None, "conditions": [condition("QuotaReserved", "False")]}
    world.client.change(WORKLOADS, "ns/w", {"status": gone})
    await live()
    assert [worker.names for worker in world.workers.values()] == [[], []]
    world.reserve()
    await live()
    world.workers["b"].tell(*ADMITTED)
    await live()
    assert (world.entry["state"], world.status["clusterName"]) == ("Ready", "b")
    assert (world.workers["a"].names, sorted(world.workers["b"].names)) == ([], ["ns/p", "ns/q", "ns/w"])


# --- the pods of the manager -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "key"),
    [
        pytest.param([make_pod()], "team/p", id="a pod"),
        pytest.param([grouped("a"), grouped("b")], GANG, id="a group"),
    ],
)
async def test_pods_that_are_sent_away_are_not_started_here(pods: list[JSON], key: str) -> None:
    """9.1: an admission removes no gate; an eviction gives the quota back when the pods there have ended, and the
    pods here wait for the next cluster.
    """
    world = Pods(*pods)
    world.sent = world.elsewhere = True
    names = [pod["metadata"]["name"] for pod in pods]
    await world.rest(key)
    (found,) = world.client.keys(WORKLOADS)
    name = found.partition("/")[2]
    world.admit(name)
    await world.rest(key)
    for each in names:
        status = {"phase": "Running", "conditions": [condition("Ready")]}
        world.client.change(PODS, f"team/{each}", {"status": status})
    await world.rest(key)
    assert all(world.gated(each) for each in names)
    assert status_of(world.workload_named(name), "PodsReady")[0] == "True"
    assert world.started == []

    world.evict(name)
    await world.rest(key)
    world.sync()
    assert (await world.reconcile(key)).requeue_after in (5, 10)
    assert status_of(world.workload_named(name), "QuotaReserved")[0] == "True"

    world.elsewhere = False
    await world.rest(key)
    assert status_of(world.workload_named(name), "QuotaReserved")[0] == "False"
    assert status_of(world.workload_named(name), "Requeued")[0] == "True"
    assert all(world.gated(each) for each in names), "they wait, and are not deleted"
    await world.close()


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        pytest.param({}, False, id="no check"),
        pytest.param({"admissionChecks": ["other"]}, False, id="of another controller"),
        pytest.param({"admissionChecks": ["other", "multi"]}, True, id="of this one, in whatever state"),
        pytest.param({"admissionChecks": ["gone"], "clusterName": "a"}, True, id="deleted while a cluster runs it"),
    ],
)
def test_workloads_that_only_other_clusters_run(status: JSON, sent: bool) -> None:
    """9.1: also while MultiKueue's controller does not run here, and when an AdmissionCheck was deleted by mistake."""
    world = MultiKueueWorld()
    at = "2026-01-01T00:00:00Z"
    entries = [
        {"name": name, "state": "Ready", "message": "", "lastTransitionTime": at}
        for name in status.get("admissionChecks", ())
    ]
    workload = read(wire.Workload, make_workload("w", status={**status, "admissionChecks": entries}))
    assert Elsewhere(world.checks.get).is_sent(workload) is sent
