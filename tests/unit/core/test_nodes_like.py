"""Nodes that a what-if adds, in every topology that has the node they are like."""

from __future__ import annotations

import pytest

from kqueue.core.topology import Leaf, NodeFacts, Tree
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import HOSTNAME
from kqueue.core.topology.result import Path
from kqueue.core.why import nodes_like
from kqueue.core.workload import Snapshot, TopologyView
from tests.builders import make_snapshot

LEVELS = {"gpu": ("block", "rack", HOSTNAME), "spot": ("rack", HOSTNAME), "blocks": ("block",)}


def node(name: str, block: str, rack: str) -> NodeFacts:
    labels = {"block": block, "rack": rack, HOSTNAME: name}
    return NodeFacts(name=name, labels=labels, allocatable={"nvidia.com/gpu": 8, "pods": 110})


def three() -> Snapshot:
    """Three topologies of the same two nodes."""
    nodes = [node("a", "b0", "r0"), node("b", "b1", "r1")]
    views: dict[str, TopologyView] = {}
    for name, levels in LEVELS.items():
        tree = Tree(
            topology=name, levels=levels, leaves=[Leaf(tuple(n.labels[lv] for lv in levels), (n,)) for n in nodes]
        )
        views[name] = TopologyView(name, tree, Capacity.of(tree))
    return make_snapshot({"team": {"gpu": 8}}, topologies=views)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        pytest.param(
            ("b1", "r1"), {"gpu": ("b1", "r1", "new"), "spot": ("r1", "new"), "blocks": ("b1",)}, id="of all levels"
        ),
        pytest.param(
            ("r1",), {"gpu": ("b0", "r1", "new"), "spot": ("r1", "new"), "blocks": ("b0",)}, id="of some levels"
        ),
        pytest.param((), {}, id="of no level"),
    ],
)
def test_a_node_is_in_all_topologies(domain: Path, expected: dict[str, Path]) -> None:
    """Like node a, whose labels count for the levels that the domain does not name."""
    assert {one.flavor: one.leaf.path for one in nodes_like(three(), "a", domain, ["new"])} == expected


def test_no_topology_has_the_node() -> None:
    assert nodes_like(three(), "c", ("b1", "r1"), ["new"]) == []
