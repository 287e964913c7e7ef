from __future__ import annotations

from typing import Any

import pytest

from kqueue.errors import ConflictError
from kqueue.sandbox.api import DAEMONSETS, NODES, PODS, GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from tests.unit.sandbox.simulated_world import NAMESPACE, RUN, condition_of, make_pod, simulated

LONG = {RUN: "100000"}
PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")


async def test_a_gated_pod_waits_until_its_gate_goes() -> None:
    """While gated it says so and has no node; the selector that comes with the removal decides where it runs."""
    async with simulated("2x2x2") as world:
        await world.add(PODS, make_pod(schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]))
        await world.pass_time(60)
        assert "nodeName" not in world.pod("p")["spec"]
        assert condition_of(world.pod("p"), "PodScheduled") == ("False", "SchedulingGated")

        rack = {"cloud.provider.com/topology-rack": "b1-r0"}
        await world.patch_pod("p", {"spec": {"schedulingGates": None, "nodeSelector": rack}})
        assert world.pod("p")["spec"]["nodeName"].startswith("b1-r0-")
        assert world.pod("p")["status"]["phase"] == "Running"
        assert condition_of(world.pod("p"), "PodScheduled") == ("True", "")


async def test_a_scheduler_leaves_the_status_of_a_gated_pod_to_others() -> None:
    """The API server says at the creation that a pod is gated; a controller may show the status of a run elsewhere."""
    async with simulated("1x1x1") as world:
        await world.add(PODS, make_pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))
        elsewhere = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        await world.api.patch(PODS, "p", {"status": elsewhere}, namespace=NAMESPACE, subresource="status")
        await world.pass_time(60)
        assert condition_of(world.pod("p"), "PodScheduled") == ("True", "")


async def test_nodes_are_never_filled_beyond_what_they_have() -> None:
    """What does not fit says which resource is short, and runs when room appears."""
    async with simulated("1x1x2") as world:
        for i in range(5):
            await world.add(PODS, make_pod(f"p{i}", annotations={RUN: str(10 + i)}, gpus=4))

        assert world.phases() == {"Pending": 1, "Running": 4}
        message = next(c for c in world.pod("p4")["status"]["conditions"] if c["type"] == "PodScheduled")["message"]
        assert message == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        nodes = [pod["spec"].get("nodeName") for pod in world.pods()]
        assert sorted(nodes.count(node) for node in set(nodes) - {None}) == [2, 2]
        await world.pass_time(10)
        assert world.pod("p4")["status"]["phase"] == "Running"


async def test_the_highest_priority_goes_first() -> None:
    """Of pods that wait for the same room the one with the higher priority gets it, then the older one."""
    async with simulated("1x1x1") as world:
        await world.add(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 100})
        await world.add(PODS, make_pod("holder", annotations={RUN: "10"}, gpus=8))
        await world.add(PODS, make_pod("first", annotations=LONG, gpus=8))
        await world.pass_time(1)
        await world.add(PODS, make_pod("urgent", annotations={RUN: "20"}, gpus=8, priorityClassName="urgent"))
        await world.pass_time(1)
        await world.add(PODS, make_pod("last", annotations=LONG, gpus=8))

        await world.pass_time(10)
        assert [pod["metadata"]["name"] for pod in world.pods(is_running)] == ["urgent"]
        await world.pass_time(20)
        assert [pod["metadata"]["name"] for pod in world.pods(is_running)] == ["first"]


def is_running(pod: Object) -> bool:
    """The pod's phase is Running."""
    return bool(pod["status"]["phase"] == "Running")


async def test_a_cordoned_node_takes_no_new_pods() -> None:
    """Running pods stay; the taint of a cordon is there; new pods wait until it is lifted."""
    async with simulated("1x1x1") as world:
        await world.add(PODS, make_pod("old", annotations=LONG))
        name = world.pod("old")["spec"]["nodeName"]
        await world.patch_node(name, {"spec": {"unschedulable": True}})
        await world.add(PODS, make_pod("new", annotations=LONG))

        assert world.phases() == {"Pending": 1, "Running": 1}
        assert [t["key"] for t in world.node(name)["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]
        message = next(c for c in world.pod("new")["status"]["conditions"] if c["type"] == "PodScheduled")["message"]
        assert message == "0/1 nodes are available: 1 node(s) were unschedulable."
        await world.patch_node(name, {"spec": {"unschedulable": None}})
        assert world.phases() == {"Running": 2}


async def test_waiting_pods_are_told_once() -> None:
    """A pod that waits is not written again and again while only numbers change."""
    async with simulated("1x1x2") as world:
        for i in range(2):
            await world.add(PODS, make_pod(f"p{i}", annotations=LONG, gpus=8))
        await world.add(PODS, make_pod("waiting", gpus=8))
        version = world.pod("waiting")["metadata"]["resourceVersion"]
        for i in range(3):
            await world.add(PODS, make_pod(f"small{i}", annotations={RUN: "1"}))
            await world.pass_time(2)

        assert world.pod("waiting")["metadata"]["resourceVersion"] == version


async def test_pods_of_other_schedulers_are_left_alone() -> None:
    """Only pods of the default scheduler are bound."""
    async with simulated() as world:
        await world.add(PODS, make_pod(schedulerName="mine"))
        assert "nodeName" not in world.pod("p")["spec"]


async def test_room_of_a_deleted_node_is_gone_and_that_of_a_new_one_is_used() -> None:
    """Nodes may come and go; a node that returns still holds what runs on it."""
    async with simulated("1x1x1") as world:
        (node,) = world.api.list(NODES)
        await world.api.delete(NODES, node["metadata"]["name"])
        await world.add(PODS, make_pod("a", annotations=LONG, gpus=8))
        await world.add(PODS, make_pod("b", annotations=LONG, gpus=8))
        assert world.phases() == {"Pending": 2}

        fresh = {**node, "metadata": {"name": "fresh", "labels": node["metadata"]["labels"]}}
        await world.add(NODES, fresh)
        assert world.phases() == {"Pending": 1, "Running": 1}


class _BusyApi(ClusterApi):
    """An API server on which the first bindings meet a newer object."""

    conflicts = 2

    async def create(self, resource: GroupVersionResource, obj: Object, **more: Any) -> Object:
        """Refuse a few bindings."""
        if resource.plural == "pods/binding" and self.conflicts:
            self.conflicts -= 1
            raise ConflictError("somebody else wrote first", status=409, reason="Conflict")
        return await super().create(resource, obj, **more)


async def test_a_failed_binding_gives_its_room_back_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After conflicts the pod is bound all the same, and the node is charged once."""
    monkeypatch.setattr("tests.unit.sandbox.simulated_world.ClusterApi", _BusyApi)
    async with simulated("1x1x1") as world:
        await world.add(PODS, make_pod("a", annotations=LONG, gpus=4))
        await world.pass_time(5)
        await world.add(PODS, make_pod("b", annotations=LONG, gpus=4))
        assert world.phases() == {"Running": 2}


def make_daemon_set(**spec: Any) -> Object:
    """A DaemonSet that takes one core everywhere."""
    pod = make_pod(restartPolicy="Always", **spec)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": pod["spec"]},
        },
    }


async def test_a_daemon_set_has_one_pod_on_every_node_it_may_run_on() -> None:
    """Selector and taints choose the nodes; nodes that come later get their pod; a failed pod is replaced."""
    async with simulated("2x1x2") as world:
        await world.patch_node("b0-r0-h0", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
        await world.patch_node("b0-r0-h1", {"spec": {"unschedulable": True}})
        await world.add(DAEMONSETS, make_daemon_set())
        await world.pass_time(1)

        running = world.pods(lambda pod: pod["status"]["phase"] == "Running")
        assert sorted(pod["spec"]["nodeName"] for pod in running) == ["b0-r0-h1", "b1-r0-h0", "b1-r0-h1"]
        status = world.api.get(DAEMONSETS, "agent", namespace=NAMESPACE)["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)

        await world.patch_node("b0-r0-h0", {"spec": {"taints": None}})
        await world.pass_time(1)
        assert len(world.pods()) == 4
        victim = world.pods()[0]["metadata"]
        await world.api.delete(PODS, victim["name"], namespace=NAMESPACE)
        await world.pass_time(1)
        assert len(world.pods()) == 4
        assert victim["uid"] not in [pod["metadata"]["uid"] for pod in world.pods()]


async def test_a_daemon_set_leaves_nodes_that_its_selector_no_longer_means() -> None:
    """A node that loses the label loses the pod."""
    async with simulated("1x1x2") as world:
        await world.patch_node("b0-r0-h0", {"metadata": {"labels": {"gpu": "yes"}}})
        await world.add(DAEMONSETS, make_daemon_set(nodeSelector={"gpu": "yes"}))
        await world.pass_time(1)
        assert [pod["spec"]["nodeName"] for pod in world.pods()] == ["b0-r0-h0"]

        await world.patch_node("b0-r0-h0", {"metadata": {"labels": {"gpu": None}}})
        await world.pass_time(1)
        assert not world.pods()
