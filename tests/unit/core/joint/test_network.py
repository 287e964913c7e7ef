"""Networks: quota upstream, topology downstream, and no more than whole gangs use."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kqueue.core import quota
from kqueue.core.joint.batch import ranked
from kqueue.core.joint.classes import ClassInput, classes_of
from kqueue.core.joint.costs import RankCosts
from kqueue.core.joint.graph import Arc, Graph, problem_with
from kqueue.core.joint.network import build
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.ports import most_used
from kqueue.core.joint.quota_arcs import quota_arcs
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit, unit_of
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.workload import Head, Snapshot
from tests.builders import GPU, make_head, make_queue, make_snapshot
from tests.unit.core.joint.worlds import admitted, anywhere, racks, round_of, world_of

COLUMN = FlavorResource("gpu", GPU)


def test_the_step_between_ranks() -> None:
    """E0."""
    assert RankCosts.of(ranks=2, classes=2, levels=3, nodes=10).step == 5_592_001


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 10), (1_000, 15_000), (4_096, 15_000), (100_000, 15_000)])
def test_the_last_ranks_are_merged_where_numbers_would_be_too_large(ranks: int, nodes: int) -> None:
    costs = RankCosts.of(ranks=ranks, classes=ranks, levels=3, nodes=nodes)
    assert (nodes + 1) * costs.unscheduled < 1 << 62
    assert costs.ranks == ranks or (nodes + 1) * (costs.unscheduled + 2 * costs.step) >= 1 << 62
    rewards = [costs.reward(rank, 0) for rank in range(1, ranks + 1)]
    assert rewards == sorted(rewards, reverse=True)
    assert 0 < rewards[-1] <= rewards[0] < costs.unscheduled


FIGURE = {"P0": {"N0": 0}, "P1": {"N2": 0}, "P2": {}, "P3": {}, "P4": {"R1": 5}}
WAITING = {"P0": 100, "P1": 110, "P2": 90, "P3": 80, "P4": 120}
RACKS = {"R0": ("N0", "N1"), "R1": ("N2", "N3")}


def cheapest(slots: int = 1, *, without: str = "") -> tuple[int, dict[str, str]]:
    """The cost of the published figure, and the first arc of each pod."""
    names = ["sink", "unscheduled", "cluster", *RACKS, *(n for some in RACKS.values() for n in some), *FIGURE]
    number = {name: i for i, name in enumerate(names)}
    arcs, first = [], []

    def add(tail: str, head: str, capacity: int, cost: int = 0) -> None:
        arcs.append(Arc(number[tail], number[head], capacity, cost))
        first.append((tail, head))

    for pod, wishes in FIGURE.items():
        for place, cost in wishes.items():
            add(pod, place, 1, cost)
        add(pod, "cluster", 1, 20)
        add(pod, "unscheduled", 1, WAITING[pod])
    for rack, machines in RACKS.items():
        there = [machine for machine in machines if machine != without]
        add("cluster", rack, slots * len(there))
        for machine in there:
            add(rack, machine, slots)
    for machine in (m for some in RACKS.values() for m in some):
        add(machine, "sink", 0 if machine == without else slots)
    add("unscheduled", "sink", len(FIGURE))
    supplies = [0] * len(names)
    for pod in FIGURE:
        supplies[number[pod]] = 1
    supplies[number["sink"]] = -len(FIGURE)
    graph = Graph.of(supplies, arcs)
    solve = solver()
    assert solve is not None
    flow = solve(graph)
    assert problem_with(graph, flow) is None
    used = {tail: head for (tail, head), units in zip(first, flow.units.tolist(), strict=True) if units}
    return flow.cost, {pod: used[pod] for pod in FIGURE}


@pytest.mark.mechanism("2.1", "2.2", "2.3", "2.4")
def test_the_published_figure() -> None:
    """E1: P3 waits, because it costs least to let it wait."""
    cost, places = cheapest()
    assert cost == 105
    assert places == {"P0": "N0", "P1": "N2", "P2": "cluster", "P3": "unscheduled", "P4": "R1"}


@pytest.mark.mechanism("2.5")
def test_the_published_figure_without_a_machine_and_with_more_slots() -> None:
    """E1."""
    cost, places = cheapest(without="N2")
    assert cost == 195
    assert [pod for pod, place in places.items() if place == "unscheduled"] == ["P2", "P3"]
    cost, places = cheapest(2)
    assert cost == 45
    assert "unscheduled" not in places.values()


def test_quota_is_upstream() -> None:
    """E4: the arcs of a cohort of two ClusterQueues with limits."""
    root = QuotaNode("c", is_cohort=True)
    for name, limits, used in (("a", {"borrowing_limit": 2}, 6), ("b", {"lending_limit": 4}, 1)):
        node = QuotaNode(name, parent=root, quotas={COLUMN: Quota(8, **limits)}, usage={COLUMN: used})
        root.children.append(node)
    quota.rebuild(root)
    numbers = iter(range(3, 100))
    arcs, nodes = quota_arcs(
        ["a", "b"],
        {node.name: node for node in root.children},
        COLUMN,
        Fraction(1),
        source=0,
        new_node=lambda: next(numbers),
        most=1_000,
    )
    from_source = {arc.head: arc.capacity for arc in arcs if arc.tail == 0}
    top = next(number for number in from_source if number not in nodes.values())
    assert from_source == {top: 6, nodes["a"]: 0, nodes["b"]: 3}
    assert {arc.head: arc.capacity for arc in arcs if arc.tail == top} == {nodes["a"]: 4, nodes["b"]: 1_000}


def test_a_unit_may_come_from_own_and_from_lent_quota() -> None:
    """Of 8, 3 are lent: a queue that borrows nothing has two units of 4, one of them in two parts."""
    root = QuotaNode("c", is_cohort=True)
    root.children.append(
        QuotaNode("a", parent=root, quotas={COLUMN: Quota(8, borrowing_limit=0, lending_limit=3)}, usage={})
    )
    quota.rebuild(root)
    numbers = iter(range(3, 100))
    arcs, nodes = quota_arcs(
        ["a"],
        {"a": root.children[0]},
        COLUMN,
        Fraction(4),
        source=0,
        new_node=lambda: next(numbers),
        most=1_000,
    )
    assert sum(arc.capacity for arc in arcs if arc.head == nodes["a"]) >= 2


@pytest.mark.parametrize(
    ("free", "sizes", "used"),
    [(7, [3], 6), (7, [3, 4], 7), (5, [3, 4], 4), (2, [3], 0), (0, [3], 0), (11, [4, 6], 10), (100, [7, 11], 100)],
)
def test_ports_count_whole_gangs(free: int, sizes: list[int], used: int) -> None:
    """E7 is the first one."""
    assert most_used(free, sizes) == used


def test_a_rack_that_whole_gangs_cannot_fill_leaves_no_gap() -> None:
    """E7: the bound is 6 of 7 hosts."""
    plan = round_of(world_of(racks(7)), [make_head(f"g{i}", pods=3, age=9 - i) for i in range(3)])
    assert (plan.units, plan.bound, plan.gap) == (6, 6, 0)
    assert [one.is_proven for one in plan.workloads] == [False, False, True]


def two_resources() -> tuple[Snapshot, list[Head]]:
    """E6: a host with 8 GPUs and 64 CPUs, one pod of 4 and 4, and four pods of 1 and 32."""
    heads = [make_head("y", pods=1, age=9, requests={GPU: 4, "cpu": 4})]
    heads += [make_head(f"x{i}", pods=1, age=8 - i, requests={GPU: 1, "cpu": 32}) for i in range(4)]
    heads = [anywhere(head) for head in heads]
    queue = make_queue("team", ignores_undeclared=True)
    return make_snapshot({"team": {"gpu": 100}}, specs=[queue], topologies={"gpu": racks(1, cpu=64)}), heads


def test_other_resources_are_relaxed_between_classes() -> None:
    """E6 in GPUs: the network schedules all pods of each class that fit alone."""
    snapshot, heads = two_resources()
    inputs = [
        ClassInput(ranked=one, requests=[p.request for p in one.head.pod_sets], quota={"main": 1})
        for one in ranked(heads, JointOrder.STRICT, {})
    ]
    unit = Unit(GPU, 1)
    classes = classes_of(inputs, racks(1).tree.levels, unit, JointOrder.STRICT)
    assert [len(one.members) for one in classes] == [1, 4]
    solve = solver()
    assert solve is not None
    network = build("gpu", snapshot, classes, unit)
    assert network.scheduled(solve(network.graph)) == [4, 2]


def test_a_workload_that_asks_for_what_is_nowhere_free_takes_no_units_from_others() -> None:
    snapshot, heads = two_resources()
    absent = anywhere(make_head("z", pods=1, age=10, requests={GPU: 1, "absent": 1}))
    plan = round_of(snapshot, [absent, *heads])
    assert admitted(plan) == ["y", "x0"]
    assert (plan.units, plan.bound) == (1 + 8, 1 + 15)
    alone = make_head("z", pods=1, requests={"absent": 2, "also": 3})
    assert unit_of([pod_set.request for pod_set in alone.pod_sets], racks(1).capacity) == Unit("absent", 2)


def test_the_unit_is_the_resource_of_which_most_is_requested() -> None:
    """E6 as a round: the batch requests twice the free CPUs, and only as many GPUs as are free."""
    snapshot, heads = two_resources()
    plan = round_of(snapshot, heads)
    assert admitted(plan) == ["y", "x0"]
    assert (plan.units, plan.bound) == (1 + 8, 1 + 15)  # of 4 CPUs each
