"""Taints of node classes: which nodes need them, one patch per change, and the event where kqueue may not write."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.node_classes import (
    NodeTaints,
    OpenNodes,
    closed_flavors,
    taint_patch,
    wanted_taints,
)
from kqueue.controllers.resources import NODES, RESOURCE_FLAVORS
from kqueue.controllers.taint_tolerance import TaintTolerance, Tolerance
from kqueue.core.topology import NodeFacts
from kqueue.core.workload import PodSetAssignment
from kqueue.errors import ConflictError
from kqueue.kube.taints import Taint
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, read
from tests.unit.controllers.fakes import FakeClient, FakeRecorder

CARD, GROUP = "kqueue.dev/card-type", "kqueue.dev/private-group"
OTHER = {"key": "spot", "value": "true", "effect": "PreferNoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


def taint_of(key: str, value: str) -> JSON:
    return {"key": key, "value": value, "effect": "NoSchedule"}


def node(name: str, *taints: JSON, **labels: str) -> JSON:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)} if taints else {}}


def flavor(name: str, labels: dict[str, str], **annotations: str) -> JSON:
    """Annotations with dashes for underscores."""
    keys = {f"kqueue.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": keys}, "spec": {"nodeLabels": labels}}


SCARCE = flavor("h100", {"card": "h100"}, card_type="h100", scarce="true")
PRIVATE = flavor("lab", {"owner": "lab"}, private_group="lab")
OPEN = flavor("v100", {"card": "v100"}, card_type="v100")


class Cluster:
    """Nodes and flavors behind a server; `sync` brings them to the stores."""

    def __init__(self, flavors: list[JSON], nodes: list[JSON]) -> None:
        self.client, self.recorder = FakeClient(), FakeRecorder()
        self.nodes: Store[NodeFacts] = Store()
        self.flavors: Store[wire.ResourceFlavor] = Store()
        self.client.watch(NODES, self.nodes, lambda obj: model.node_facts(read(wire_core.Node, obj)))
        self.client.watch(RESOURCE_FLAVORS, self.flavors, lambda obj: read(wire.ResourceFlavor, obj))
        for resource, objects in ((RESOURCE_FLAVORS, flavors), (NODES, nodes)):
            for obj in objects:
                self.client.put(resource, obj)
        self.client.sync()
        self.taints = NodeTaints(client=self.client, nodes=self.nodes, flavors=self.flavors)
        self.report = OpenNodes(nodes=self.nodes, flavors=self.flavors, recorder=self.recorder)

    async def settle(self) -> None:
        """Reconcile all nodes whose taints are wrong."""
        for name in list(self.taints.wrong_nodes()):
            await self.taints.reconcile(name)
        self.client.sync()

    def taints_on(self, name: str) -> list[JSON]:
        obj = self.client.object(NODES, name)
        assert obj is not None
        found: list[JSON] = obj["spec"].get("taints", [])
        return found


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"card": "h100"}, {Taint(CARD, "h100")}),
        ({"card": "h100", "owner": "lab"}, {Taint(CARD, "h100"), Taint(GROUP, "lab")}),
        ({"card": "v100"}, set()),
        ({}, set()),
    ],
    ids=["scarce", "scarce-and-private", "open", "no-class"],
)
def test_nodes_of_scarce_and_private_flavors_need_a_taint_g4_14(labels: dict[str, str], wanted: set[Taint]) -> None:
    facts = model.node_facts(read(wire_core.Node, node("n", **labels)))
    flavors = closed_flavors([read(wire.ResourceFlavor, each) for each in (SCARCE, PRIVATE, OPEN)])

    assert wanted_taints(facts, flavors) == wanted


def test_a_node_of_two_scarce_types_has_one_taint_of_the_key() -> None:
    """The API server refuses two taints of one key and effect."""
    facts = model.node_facts(read(wire_core.Node, node("n", card="h100")))
    other = flavor("b", {"card": "h100"}, card_type="a100", scarce="true")
    both = [read(wire.ResourceFlavor, each) for each in (SCARCE, other)]

    assert wanted_taints(facts, closed_flavors(both)) == wanted_taints(facts, closed_flavors(both[::-1]))
    assert len(wanted_taints(facts, closed_flavors(both))) == 1


def test_a_flavor_without_labels_closes_no_node() -> None:
    """Else it would close every node of the cluster."""
    assert closed_flavors([read(wire.ResourceFlavor, flavor("f", {}, card_type="x", scarce="true"))]) == []


async def test_the_taint_comes_and_goes_with_one_patch_each_g4_15() -> None:
    """Other taints keep all their fields."""
    cluster = Cluster([SCARCE, OPEN], [node("a", OTHER, card="h100"), node("b", card="v100")])
    await cluster.settle()
    assert cluster.taints_on("a") == [OTHER, taint_of(CARD, "h100")]
    cluster.client.change(RESOURCE_FLAVORS, "h100", {"metadata": {"annotations": {"kqueue.dev/scarce": None}}})
    cluster.client.sync()
    await cluster.settle()

    assert cluster.taints_on("a") == [OTHER]
    assert [(call.verb, call.key) for call in cluster.client.writes()] == [("patch", "a")] * 2


async def test_the_last_taint_goes_when_the_flavor_is_gone_g4_15() -> None:
    cluster = Cluster([SCARCE], [node("a", card="h100")])
    await cluster.settle()
    cluster.client.drop(RESOURCE_FLAVORS, "h100")
    cluster.client.sync()
    await cluster.settle()

    assert cluster.taints_on("a") == []


async def test_nodes_that_are_right_cost_no_request_g4_14() -> None:
    """With classes and without."""
    for flavors in ([], [SCARCE]):
        cluster = Cluster(flavors, [node("a", *([taint_of(CARD, "h100")] if flavors else []), card="h100")])
        await cluster.taints.reconcile("a")
        await cluster.taints.reconcile("gone")
        assert (list(cluster.taints.wrong_nodes()), cluster.client.calls) == ([], [])


async def test_a_node_that_changes_meanwhile_is_not_overwritten() -> None:
    """Its new version is read by the next try."""
    cluster = Cluster([SCARCE], [node("a", card="h100")])
    stale = cluster.client.object(NODES, "a")
    assert stale is not None
    patch = taint_patch(stale, frozenset({Taint(CARD, "h100")}))
    cluster.client.change(NODES, "a", {"spec": {"taints": [OTHER]}})
    with pytest.raises(ConflictError):
        await cluster.client.patch(NODES, "a", patch)
    await cluster.settle()

    assert cluster.taints_on("a") == [OTHER, taint_of(CARD, "h100")]


async def test_a_node_that_is_right_by_now_is_not_patched() -> None:
    """The watch is late."""
    cluster = Cluster([SCARCE], [node("a", card="h100")])
    cluster.client.change(NODES, "a", {"spec": {"taints": [taint_of(CARD, "h100")]}})
    await cluster.settle()

    assert cluster.client.writes() == []


async def test_open_nodes_are_reported_once_per_change_g4_15() -> None:
    cluster = Cluster([SCARCE, OPEN], [node(name, card="h100") for name in "abc"] + [node("v", card="v100")])
    for _ in range(2):
        for name in ("h100", "v100"):
            await cluster.report.reconcile(name)
    cluster.client.change(NODES, "a", {"spec": {"taints": [taint_of(CARD, "h100")]}})
    cluster.client.sync()
    await cluster.report.reconcile("h100")

    said = "of 3 nodes lack the taint kqueue.dev/card-type=h100:NoSchedule; others may use them; first:"
    assert cluster.recorder.messages == [f"3 {said} a", f"2 {said} b"]
    assert set(cluster.recorder.events) == {("ResourceFlavor h100", "NodesOpen")}
    assert cluster.client.writes() == []


async def test_nodes_with_their_taint_are_not_reported_g4_15() -> None:
    cluster = Cluster([SCARCE], [node("a", taint_of(CARD, "h100"), card="h100")])
    await cluster.report.reconcile("h100")

    assert cluster.recorder.events == []


def test_only_flavors_of_a_node_that_changed_are_counted_again() -> None:
    cluster = Cluster([SCARCE, PRIVATE], [node("a", card="h100")])
    facts = cluster.nodes.get("a")

    assert (cluster.report.flavors_of(facts, None), cluster.report.flavors_of(None)) == (["h100"], [])


def test_pods_of_the_flavor_tolerate_its_taint_when_nodes_are_judged_g4_16() -> None:
    """A host is not replaced because its class got a taint."""
    cluster = Cluster([SCARCE, OPEN], [node("a", taint_of(CARD, "h100"), card="h100")])
    facts, template = cluster.nodes.get("a"), {"template": {"spec": {}}, "name": "main"}
    workload: Any = read(wire.Workload, {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"podSets": [template]}})
    assert facts is not None

    def of(name: str) -> Tolerance:
        assigned = PodSetAssignment(name="main", flavors={"cpu": name}, usage={}, count=1)
        return TaintTolerance(cluster.flavors.get).of(workload, [assigned], facts)

    assert (of("h100"), of("v100")) == (Tolerance.FOREVER, Tolerance.NONE)
