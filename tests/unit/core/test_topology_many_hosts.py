"""Trees too wide to put all their domains in order: the same answers as the plain reference gives."""

from __future__ import annotations

import random

import pytest

from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    Misfit,
    NodeFacts,
    PodSetRequest,
    Shortage,
    TopologyRequest,
    Tree,
    membership,
    place,
)
from tests.unit.core.reference_placement import RefEngine, RefFailure, RefNode, RefRequest, leaves_of

LEVELS = ("block", HOSTNAME)
WIDTH = 700
SOME = random.Random(5)
ALIKE = [4] * WIDTH
MIXED = [SOME.choice([0, 1, 2, 3, 5]) for _ in range(WIDTH)]
FULL = [0] * WIDTH
FEW_EMPTY = [8 if i in (650, 680) else 3 for i in range(WIDTH)]
ONE_TIGHT = [6 if i % 2 else 3 for i in range(WIDTH)]
FAR = [1 if i > 640 else 9 for i in range(WIDTH)]


@pytest.mark.parametrize("asked", ["required", "preferred", "unconstrained"])
@pytest.mark.parametrize("pods", [1, 3, 8, 10, 63, 400, 3_000])
@pytest.mark.parametrize(
    "rooms",
    [
        pytest.param(ALIKE, id="all hosts alike"),
        pytest.param(MIXED, id="hosts of all kinds"),
        pytest.param(FULL, id="no room anywhere"),
        pytest.param(FEW_EMPTY, id="two far hosts with more room than all others"),
        pytest.param(ONE_TIGHT, id="the rest fits tighter elsewhere"),
        pytest.param(FAR, id="little room is on the last hosts only"),
    ],
)
def test_the_order_of_many_hosts_is_that_of_the_reference(rooms: list[int], pods: int, asked: str) -> None:
    """Hundreds of hosts under one block: as many pods on each of them as the reference says, or the same code."""
    nodes = [RefNode(f"n{i:03}", ("b", f"n{i:03}"), {"cpu": room, "pods": 100}) for i, room in enumerate(rooms)]
    engine = RefEngine(LEVELS, leaves_of(LEVELS, nodes, merge=False))
    level = True if asked == "unconstrained" else "block"
    expected = engine.outcome([RefRequest("main", pods, {"cpu": 1}, **{asked: level})])  # type: ignore[arg-type]

    found = place(capacity_of(nodes), [request(pods, asked)])

    if isinstance(found, Misfit):
        assert isinstance(expected, RefFailure)
        assert found.code == expected.code
    else:
        assert not isinstance(expected, RefFailure)
        assert [(p, d.count) for p, d in zip(found["main"].paths, found["main"].assignment.domains, strict=True)] == (
            expected["main"]
        )


def capacity_of(nodes: list[RefNode]) -> Capacity:
    """The same hosts for the engine."""
    facts = [
        NodeFacts(name=n.name, labels=dict(zip(LEVELS, n.path, strict=True)), allocatable=n.allocatable) for n in nodes
    ]
    leaves = membership(facts, levels=LEVELS, node_labels={}).leaves
    return Capacity.of(Tree(topology="default", levels=LEVELS, leaves=leaves))


def request(pods: int, asked: str) -> PodSetRequest:
    """The same question for the engine."""
    topology = {
        "required": TopologyRequest(required="block"),
        "preferred": TopologyRequest(preferred="block"),
        "unconstrained": TopologyRequest(unconstrained=True),
    }[asked]
    return PodSetRequest(name="main", count=pods, requests={"cpu": 1}, topology=topology)


def test_what_is_free_on_many_hosts_is_summed_past_64_bits() -> None:
    """Three hosts with 2**62 + 1 of a resource and no pod that fits: all of it is said to be free."""
    nodes = [RefNode(f"n{i}", ("b", f"n{i}"), {"cpu": 2**62 + 1, "pods": 100}) for i in range(3)]
    pods = PodSetRequest(name="main", count=1, requests={"cpu": 2**63 - 1}, topology=TopologyRequest(required="block"))

    found = place(capacity_of(nodes), [pods])

    assert isinstance(found, Misfit)
    assert found.shortage == Shortage("cpu", 2**63 - 1, 3 * 2**62 + 3)
