"""Random graphs and networks: flows are flows, no flow is cheaper, and earlier ranks go first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest

from kqueue.core.joint.batch import ranked
from kqueue.core.joint.classes import ClassInput, PodClass, classes_of
from kqueue.core.joint.graph import Arc, Flow, Graph, InfeasibleError, problem_with
from kqueue.core.joint.network import SINK, SOURCE, UNSCHEDULED, Network, build
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.quota import UNLIMITED, FlavorResource, Quota, QuotaNode, rebuild
from kqueue.core.topology import HOSTNAME, TopologyRequest
from kqueue.core.workload import Head, Snapshot
from tests.builders import GPU, make_head, make_snapshot
from tests.unit.core.joint.worlds import racks

SOLVE = solver()
PARTS = 4
NETWORKS = 400
REQUESTS = (TopologyRequest(required="rack"), TopologyRequest(preferred="rack"), TopologyRequest(unconstrained=True))


# --- graphs ---------------------------------------------------------------------------------------------------------


def random_graph(seed: int) -> tuple[list[int], list[Arc]]:
    """Supplies and arcs, some of them parallel, in no order; not all supplies can always be served."""
    chance = random.Random(seed)
    nodes = chance.randint(2, 14)
    supplies = [0] * nodes
    for _ in range(chance.randint(1, 6)):
        units, source, sink = chance.randint(1, 9), chance.randrange(nodes), chance.randrange(nodes)
        supplies[source] += units
        supplies[sink] -= units
    dearest = chance.choice([0, 3, 1_000, 10**12])
    arcs = [
        Arc(tail, head, chance.choice([0, 1, 2, 5, 40]), chance.randint(0, dearest))
        for _ in range(chance.randint(nodes, 5 * nodes))
        if (tail := chance.randrange(nodes)) != (head := chance.randrange(nodes))
    ]
    return supplies, arcs


def reference_cost(supplies: Sequence[int], arcs: Sequence[Arc]) -> int | None:
    """The cost of a cheapest flow by another implementation, in whole numbers; None: there is no flow."""
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((node, {"demand": -units}) for node, units in enumerate(supplies))
    for arc in arcs:
        graph.add_edge(arc.tail, arc.head, capacity=arc.capacity, weight=arc.cost)
    try:
        cost, _ = nx.network_simplex(graph)
    except nx.NetworkXUnfeasible:
        return None
    return int(cost)


@pytest.mark.mechanism("2.1", "2.7")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_flow_of_a_random_graph_is_cheaper(part: int) -> None:
    """Row 2.7: 1,000 graphs.  Row 2.1: units are conserved, and capacities kept."""
    assert SOLVE is not None
    served = 0
    for seed in range(part, 1_000, PARTS):
        supplies, arcs = random_graph(seed)
        wanted = reference_cost(supplies, arcs)
        graph = Graph.of(supplies, arcs)
        if wanted is None:
            with pytest.raises(InfeasibleError):
                SOLVE(graph)
            continue
        flow = SOLVE(graph)
        assert problem_with(graph, flow) is None, seed
        assert flow.cost == wanted, seed
        assert sum(units * arc.cost for units, arc in zip(flow.units.tolist(), arcs, strict=True)) == wanted, seed
        served += 1
    assert 50 < served < 1_000 // PARTS


def test_a_flow_with_a_fault_is_none() -> None:
    graph = Graph.of([2, 0, -2], [Arc(0, 1, 2, 1), Arc(1, 2, 2, 0), Arc(0, 2, 1, 5)])
    assert SOLVE is not None
    flow = SOLVE(graph)
    assert problem_with(graph, flow) is None
    for change in ([0, 0, 1], [1, 0, 0], [-1, -1, 0], [1, 1, 0]):
        assert problem_with(graph, replace(flow, units=flow.units + change)) is not None, change


@pytest.mark.mechanism("2.1")
@pytest.mark.parametrize("part", range(PARTS))
def test_the_form_with_a_source_for_each_pod_has_the_same_cheapest_flows(part: int) -> None:
    """Each pod a source with an arc to `unscheduled`, or classes with a reward: costs differ by a constant."""
    assert SOLVE is not None
    for seed in range(part, 200, PARTS):
        chance = random.Random(seed)
        hosts = chance.randint(1, 5)
        free = [chance.randint(0, 3) for _ in range(hosts)]
        classes = [
            (chance.randint(1, 4), chance.randint(50, 99), [chance.randint(0, 40) for _ in range(hosts)])
            for _ in range(chance.randint(1, 5))
        ]
        pods = [(wait, costs) for members, wait, costs in classes for _ in range(members)]
        sink, unscheduled = hosts, hosts + 1
        below = [Arc(host, sink, free[host], 0) for host in range(hosts)] + [Arc(unscheduled, sink, len(pods), 0)]
        single = [Arc(hosts + 2 + pod, unscheduled, 1, wait) for pod, (wait, _) in enumerate(pods)]
        single += [
            Arc(hosts + 2 + pod, host, 1, cost)
            for pod, (_, costs) in enumerate(pods)
            for host, cost in enumerate(costs)
        ]
        supplies = [0] * hosts + [-len(pods), 0] + [1] * len(pods)
        by_pod = SOLVE(Graph.of(supplies, [*below, *single])).cost

        most, source = 100, hosts + 2
        first = source + 1
        merged = [Arc(source, unscheduled, len(pods), most)]
        merged += [Arc(source, first + n, members, most - wait) for n, (members, wait, _) in enumerate(classes)]
        merged += [
            Arc(first + n, host, members, cost)
            for n, (members, _, costs) in enumerate(classes)
            for host, cost in enumerate(costs)
        ]
        supplies = [0] * hosts + [-len(pods), 0, len(pods)] + [0] * len(classes)
        by_class = SOLVE(Graph.of(supplies, [*below, *merged])).cost
        assert by_class - by_pod == sum(most - wait for wait, _ in pods), seed


# --- networks -------------------------------------------------------------------------------------------------------


def random_network(seed: int, *, sizes: Sequence[int] = (1, 2, 3, 4, 5, 7), merged: bool = True) -> Network:
    """A network of a few racks, with classes of two ClusterQueues under limits."""
    chance = random.Random(seed)
    snapshot = random_snapshot(chance)
    heads = [random_head(chance, number, sizes) for number in range(chance.randint(2, 8))]
    how = chance.choice(list(JointOrder))
    classes = classes_of(inputs_of(heads, how), snapshot.topologies["gpu"].tree.levels, Unit(GPU, 1), how)
    return build("gpu", snapshot, classes if merged else apart(classes), Unit(GPU, 1))


def random_snapshot(chance: random.Random) -> Snapshot:
    """Racks of up to six hosts, and a cohort of two ClusterQueues."""
    column = FlavorResource("gpu", GPU)
    view = racks(*(chance.randint(0, 6) or 1 for _ in range(chance.randint(1, 5))), levels=("block", "rack", HOSTNAME))
    for leaf in range(len(view.tree)):
        view.capacity.add(leaf, {GPU: -chance.choice([0, 0, 0, 8, 4])})
    root = QuotaNode("c", is_cohort=True)
    for name in ("a", "b"):
        quota = Quota(chance.choice([UNLIMITED, 30, 60]), borrowing_limit=chance.choice([None, 0, 20]))
        root.children.append(QuotaNode(name, parent=root, quotas={column: quota}))
    rebuild(root)
    snapshot = make_snapshot({"a": {"gpu": 0}, "b": {"gpu": 0}}, topologies={"gpu": view})
    return replace(snapshot, nodes={node.name: node for node in root.children})


def random_head(chance: random.Random, number: int, sizes: Sequence[int]) -> Head:
    """A gang of pods with 8 GPUs; some are equal to the one before."""
    pods, topology = chance.choice(sizes), chance.choice(REQUESTS)
    head = make_head(f"g{number}", queue=chance.choice("ab"), pods=pods, requests={GPU: 8}, age=20 - number)
    pod_sets = [replace(p, request=replace(p.request, topology=topology), asks_topology=True) for p in head.pod_sets]
    return replace(head, pod_sets=tuple(pod_sets), priority=chance.randint(0, 2))


def inputs_of(heads: Sequence[Head], how: JointOrder) -> list[ClassInput]:
    return [
        ClassInput(ranked=one, requests=[p.request for p in one.head.pod_sets], quota={"main": 8})
        for one in ranked(heads, how, {})
    ]


def apart(classes: Sequence[PodClass]) -> list[PodClass]:
    """One class for each workload, of the same rank."""
    return [replace(one, members=[member]) for one in classes for member in one.members]


def most_by_rank(network: Network) -> list[int]:
    """The units of each rank in the flow that has the most of the first rank, then of the second, and so on.

    Places cost nothing here, and a unit of a rank counts more than all units behind it, in numbers without a limit.
    """
    graph, ranks = network.graph, max(one.rank for one in network.classes)
    demand = int(graph.supplies[SOURCE])
    rank_of = {arc: one.rank for arc, one in zip(network.into, network.classes, strict=True)}
    exact = nx.MultiDiGraph()
    exact.add_nodes_from(range(graph.nodes))
    exact.nodes[SOURCE]["demand"], exact.nodes[SINK]["demand"] = -demand, demand
    rows = zip(graph.order.tolist(), graph.tails.tolist(), graph.heads.tolist(), graph.capacities.tolist(), strict=True)
    for arc, tail, head, capacity in rows:
        worth = (demand + 1) ** (ranks - rank_of[arc]) if arc in rank_of else 0
        exact.add_edge(tail, head, key=arc, capacity=capacity, weight=-worth)
    _, flows = nx.network_simplex(exact)
    by_rank = [0] * ranks
    carried = {arc: n for heads in flows.values() for arcs in heads.values() for arc, n in arcs.items()}
    for arc, rank in rank_of.items():
        by_rank[rank - 1] += carried[arc]
    assert sum(flows[SOURCE][UNSCHEDULED].values()) == demand - sum(by_rank)
    return by_rank


def solved(graph: Graph) -> Flow:
    """A cheapest flow."""
    assert SOLVE is not None
    flow = SOLVE(graph)
    assert problem_with(graph, flow) is None
    return flow


def most_units(network: Network) -> int:
    """The most units of all ranks together."""
    return int(network.graph.supplies[SOURCE]) - solved(network.for_most()).cost


def scheduled_by_rank(network: Network) -> list[int]:
    """The units of each rank in the cheapest flow."""
    by_rank = [0] * max(one.rank for one in network.classes)
    flow = solved(network.graph)
    for one, units in zip(network.classes, network.scheduled(flow), strict=True):
        by_rank[one.rank - 1] += units
    return by_rank


@pytest.mark.mechanism("2.5")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_place_keeps_an_earlier_rank_waiting(part: int) -> None:
    """J2.11: the units of random networks are the lexicographic maximum by rank, wherever the network says so."""
    waited = known = 0
    for seed in range(part, NETWORKS, PARTS):
        network = random_network(seed)
        by_rank, best = scheduled_by_rank(network), most_by_rank(network)
        assert by_rank <= best, seed
        if not network.is_by_rank(solved(network.graph)):
            continue
        assert by_rank == best, seed
        assert sum(by_rank) == most_units(network), seed
        known += 1
        waited += sum(by_rank) < sum(one.demand for one in network.classes)
    assert known > NETWORKS // PARTS // 2
    assert waited > known // 8


def test_quota_and_domains_together_let_one_unit_take_the_place_of_two() -> None:
    """The first gang has neither quota of the second nor the rack of the third, and both are needed for it."""
    network = random_network(264)
    flow = solved(network.graph)
    assert not network.is_by_rank(flow)
    assert (scheduled_by_rank(network), most_by_rank(network)) == ([14, 26], [24, 6])
    assert most_units(network) == 54


@pytest.mark.mechanism("2.9")
@pytest.mark.parametrize("part", range(PARTS))
def test_classes_of_gangs_of_one_size_schedule_what_single_workloads_do(part: int) -> None:
    """J4.4 where classes only merge equal workloads: units by rank, and the cost of places, are equal."""
    merged = 0
    for seed in range(part, 120, PARTS):
        classes, single = (random_network(seed, sizes=(2,), merged=merged) for merged in (True, False))
        assert scheduled_by_rank(classes) == scheduled_by_rank(single), seed
        merged += len(classes.classes) < len(single.classes)
    assert merged > 5


@pytest.mark.parametrize("part", range(PARTS))
def test_a_class_is_never_bound_less_than_its_members(part: int) -> None:
    """J4.4 in general: what a domain holds of all members together is less than what it holds of each alone."""
    for seed in range(part, 120, PARTS):
        classes, single = (scheduled_by_rank(random_network(seed, merged=merged)) for merged in (True, False))
        assert classes <= single, seed


@pytest.mark.mechanism("2.9")
def test_equal_workloads_are_one_class_however_many_they_are() -> None:
    snapshot = random_snapshot(random.Random(1))
    sizes = []
    for copies in (10, 200):
        heads = [make_head(f"g{n}", queue="a", pods=3, requests={GPU: 8}, age=9_000 - n) for n in range(copies)]
        heads = [replace(head, queue="a") for head in heads]
        classes = classes_of(
            inputs_of(heads, JointOrder.STRICT), snapshot.topologies["gpu"].tree.levels, Unit(GPU, 1), JointOrder.STRICT
        )
        network = build("gpu", snapshot, classes, Unit(GPU, 1))
        sizes.append((len(classes), network.graph.nodes, len(network.graph.tails)))
    assert sizes[0] == sizes[1]
    assert sizes[0][0] == 1


def test_arcs_are_in_canonical_order() -> None:
    graph = random_network(7).graph
    keys = list(zip(graph.tails.tolist(), graph.heads.tolist(), graph.costs.tolist(), strict=True))
    assert all(before <= after for before, after in pairwise(keys))
