"""What free room is good for."""

from __future__ import annotations

import pytest

from kqueue.core.topology import HOSTNAME
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import NodeFacts
from kqueue.core.topology.result import DomainUsage
from kqueue.core.topology.tree import Tree, make_leaf
from kqueue.state.spare import FreeRoom, room_of

LEVELS = ("rack", HOSTNAME)


def cluster(racks: dict[str, int], used: dict[str, int], foreign: tuple[str, ...] = ()) -> FreeRoom:
    """Racks of so many nodes of 8 GPUs; `used` of them on a host (h-<rack>-<number>)."""
    nodes = [
        NodeFacts(
            name=f"{rack}-{n}", labels={"rack": rack, HOSTNAME: f"h-{rack}-{n}"}, allocatable={"gpu": 8, "pods": 110}
        )
        for rack, number in racks.items()
        for n in range(number)
    ]
    tree = Tree(
        topology="t", levels=LEVELS, leaves=[make_leaf([node], LEVELS, False) for node in nodes], tolerations=()
    )
    usage = [DomainUsage(values=(host,), requests={"gpu": 1}, count=count) for host, count in used.items()]
    return room_of(Capacity.of(tree, usage=usage), foreign, ("gpu", "other"))


@pytest.mark.parametrize(
    ("racks", "used", "foreign", "slots", "broken"),
    [
        pytest.param({"a": 4, "b": 4}, {}, (), {1: 8, 2: 4, 4: 2}, 0, id="an empty cluster"),
        pytest.param({"a": 4, "b": 4}, {"h-a-0": 1}, (), {1: 7, 2: 3, 4: 1}, 31 / 63, id="one GPU of one node"),
        pytest.param({"a": 4, "b": 4}, {"h-a-0": 8}, (), {1: 7, 2: 3, 4: 1}, 24 / 56, id="a whole node"),
        pytest.param({"a": 4, "b": 4}, {"h-a-0": 1, "h-b-3": 1}, (), {1: 6, 2: 2, 4: 0}, 1, id="all racks touched"),
        pytest.param({"a": 2}, {"h-a-0": 8, "h-a-1": 8}, (), {1: 0, 2: 0}, 0, id="nothing is free"),
        pytest.param({"a": 3}, {}, ("a-1",), {1: 2, 2: 1}, 1, id="a stranger holds a device"),
        pytest.param({"a": 5}, {}, (), {1: 5, 2: 2, 4: 1}, 0, id="what is left over is no gang"),
    ],
)
def test_gangs_of_empty_nodes_within_a_rack(
    racks: dict[str, int], used: dict[str, int], foreign: tuple[str, ...], slots: dict[int, int], broken: float
) -> None:
    """Each size that an empty cluster could hold is there; a resource that no node has is not."""
    spare = cluster(racks, used, foreign)

    assert {size: number for (level, size), number in spare.slots.items() if level == "rack"} == slots
    assert {size for level, size in spare.slots if level == HOSTNAME} == {1}
    assert spare.broken["rack", "gpu"] == pytest.approx(broken)
    assert ("rack", "other") not in spare.broken
