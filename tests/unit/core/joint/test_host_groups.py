"""Groups of hosts in networks, and plans on the hosts that the flow chooses."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from kqueue.core.joint import network, registry
from kqueue.core.joint.batch import ranked
from kqueue.core.joint.candidate import CandidateName
from kqueue.core.joint.classes import ClassInput, classes_of
from kqueue.core.joint.graph import Flow
from kqueue.core.joint.host_groups import HostGroups, Seats
from kqueue.core.joint.network import Network, build
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import JointPlan
from kqueue.core.joint.policy import NEVER, BasePolicy, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.round_policies import PolicyInput, RoundPolicies
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import unit_of
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Head, TopologyView
from tests.builders import GPU, make_head
from tests.unit.core.joint.worlds import anywhere, places, racks, round_of, world_of


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def small(name: str, pods: int, *, gpus: int = 1, queue: str = "team", age: int = 0) -> Head:
    """A workload whose pods may be anywhere."""
    return anywhere(make_head(name, queue=queue, pods=pods, required=None, requests={GPU: gpus}, age=age))


# --- groups


def test_leaves_that_no_class_tells_apart_are_one_group() -> None:
    """J2.7: one parent, equal free units, and equal values of all that classes see."""
    groups = HostGroups.of(ints(0, 0, 0, 0, 1, 1), ints(8, 4, 8, 8, 8, 8), [ints(5, 5, 5, 7, 5, 5)])
    assert [groups.leaves(group) for group in range(len(groups))] == [[0, 2], [1], [3], [4, 5]]
    assert groups.parents.tolist() == [0, 0, 0, 1]
    assert groups.free.tolist() == [16, 4, 8, 16]
    assert not any(groups.grows(group) for group in range(len(groups)))


def test_costs_that_grow_are_steps_with_room_for_a_pod_on_each_host() -> None:
    """J3.3: the last step has room for all that is left; a sequence that falls is cut."""
    growing = [ints(10, 10), ints(30, 30), ints(20, 20)]
    groups = HostGroups.of(ints(0, 0), ints(8, 8), growing, growing, size=2)
    assert [(c.tolist(), p.tolist()) for c, p in groups.steps] == [([4], [0]), ([4], [20]), ([8], [20])]
    closed = HostGroups.of(ints(0, 1), ints(8, 8), (), [ints(0, NEVER), ints(5, NEVER)], size=8)
    assert [(c.tolist(), p.tolist()) for c, p in closed.steps] == [([8, 8], [0, 0]), ([0, 0], [5, 0])]


def test_pods_go_to_the_emptiest_host_where_further_ones_cost_more() -> None:
    growing = [ints(0, 0, 0), ints(1, 1, 1)]
    groups = HostGroups.of(ints(0, 0, 0), ints(8, 8, 8), (), growing)
    seats = Seats(groups, ints(8, 8, 8))
    assert seats.take(0, 4, 2, ints(4, 4, 4)) == {0: 2, 1: 1, 2: 1}
    assert seats.take(0, 2, 4, ints(2, 2, 0)) == {1: 1, 0: 1}
    assert seats.take(0, 9, 2, ints(9, 9, 9)) == {1: 1, 2: 3}, "no host has more pods than it has room for"


def test_hosts_are_filled_in_path_order_where_all_pods_cost_the_same() -> None:
    groups = HostGroups.of(ints(0, 0, 0), ints(8, 8, 8), ())
    seats = Seats(groups, ints(8, 8, 8))
    assert seats.take(0, 5, 2, ints(3, 4, 4)) == {0: 3, 1: 2}
    assert seats.take(0, 2, 4, ints(2, 2, 2)) == {1: 1, 2: 1}


# --- networks


class ByQueue(BasePolicy):
    """Hosts have a cost for each ClusterQueue."""

    depth = Depth.HOST

    def __init__(self, costs: dict[str, dict[str, int]]) -> None:
        self._costs = costs

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints:
        of_queue = self._costs.get(pods.queue, {})
        return ints(*(of_queue.get(path[-1], 0) for path in view.tree.paths))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "POLICIES", dict(registry.POLICIES))
    registry.register_foreign("by-queue", ByQueue)


def by_queue(**costs: dict[str, int]) -> PolicySpec:
    return PolicySpec(name="by-queue", parameters={"costs": costs})


H0, H1, H2 = "r0-h000", "r0-h001", "r0-h002"
CROSSED = by_queue(a={H1: 1}, b={H1: 100})
"""ClusterQueue a takes the first host, though the second one is as good for it, and much worse for b."""


def crossed(*, solved: bool = True) -> JointPlan:
    view = racks(2, gpus=1)
    heads = [small("first", 1, queue="a", age=9), small("second", 1, queue="b")]
    policies = PolicyInput(specs=(CROSSED,))
    return round_of(world_of(view, queues=("a", "b")), heads, policies=policies, solved=solved)


def test_a_gang_leaves_the_host_that_another_one_needs() -> None:
    """J2.32: the flow gives each gang its host; one after the other costs 100 points, together they cost 1."""
    plan = crossed()
    assert plan.chosen is CandidateName.GUIDED
    assert places(plan) == {"first": {H1: 1}, "second": {H0: 1}}
    assert (plan.cost, plan.greedy_cost) == (1, 100)


def test_without_a_solver_each_gang_takes_its_cheapest_host() -> None:
    plan = crossed(solved=False)
    assert places(plan) == {"first": {H0: 1}, "second": {H1: 1}}
    assert plan.cost == 100


def network_of(view: TopologyView, heads: list[Head], *specs: PolicySpec) -> tuple[Network, Flow]:
    """The network of these workloads, and its cheapest flow."""
    queues = {head.queue for head in heads}
    snapshot = world_of(view, queues=sorted(queues))
    requests = {head.uid: [p.request for p in head.pod_sets] for head in heads}
    unit = unit_of([r for some in requests.values() for r in some], view.capacity)
    assert unit is not None
    policies = RoundPolicies(PolicyInput(specs=specs), snapshot, {"gpu": frozenset(queues)}, unit_of={"gpu": unit})
    inputs = [
        ClassInput(
            ranked=one,
            requests=requests[one.head.uid],
            quota={p.name: p.quota_requests.get(GPU, 0) for p in one.head.pod_sets},
            key=one.head.queue,
        )
        for one in ranked(heads, JointOrder.STRICT, {})
    ]
    classes = classes_of(inputs, view.tree.levels, unit, JointOrder.STRICT)
    built = build("gpu", snapshot, classes, unit, policies if specs else None)
    solve = solver()
    assert solve is not None
    return built, solve(built.graph)


@pytest.mark.parametrize("seed", range(40))
def test_costs_of_hosts_change_no_number_of_units(seed: int) -> None:
    """J2.12: the flow with groups schedules as much of each class as the flow without; and no host has more pods than
    fit, over all classes.
    """
    chance = random.Random(seed)
    view = racks(*(chance.randint(1, 4) for _ in range(chance.randint(1, 4))), gpus=8)
    heads = []
    for number in range(chance.randint(1, 6)):
        pods, gpus = chance.randint(1, 9), chance.choice([1, 2, 4, 8])
        queue = chance.choice("ab")
        if chance.random() < 0.7:
            heads.append(small(f"w{number}", pods, gpus=gpus, queue=queue, age=9 - number))
        else:
            heads.append(make_head(f"w{number}", queue=queue, pods=pods, requests={GPU: gpus}, age=9 - number))
    costs = {queue: {path[-1]: chance.choice([0, 3, 50, NEVER]) for path in view.tree.paths} for queue in "ab"}
    specs = [PolicySpec(name="spreading"), by_queue(**costs)][: chance.randint(1, 2)]
    plain, flow = network_of(view, heads)
    built, guided = network_of(view, heads, *specs)
    assert built.scheduled(guided) == plain.scheduled(flow)
    on_hosts, used = built.on_hosts(guided), np.zeros(len(view.tree), dtype=np.int64)
    for number, one in enumerate(built.classes):
        there = on_hosts.get(number, {})
        size = built.hosts.size_of(one) if built.hosts is not None else 1
        assert sum(there.values()) * size <= built.scheduled(guided)[number]
        for leaf, n in there.items():
            assert costs[one.queue][view.tree.paths[leaf][-1]] != NEVER or len(specs) == 1
            used[leaf] += n * one.form.workers.requests[GPU]
    assert (used <= 8).all()


def test_spreading_of_several_gangs_counts_pods_of_each_other() -> None:
    """Three gangs of different form share four equal hosts: no flow sends two gangs to one host while another is empty."""
    heads = [small("x", 2, age=3), small("y", 1, gpus=2, age=2), small("z", 1, gpus=1, age=1)]
    built, flow = network_of(racks(4), heads, PolicySpec(name="spreading"))
    hosts = [leaf for pods in built.on_hosts(flow).values() for leaf in pods]
    assert sorted(hosts) == [0, 1, 2, 3]


def test_equal_hosts_are_one_node_of_each_rack() -> None:
    """400 hosts of four racks are four groups, however many classes there are."""
    heads = [small(f"w{n}", 1 + n, age=9 - n) for n in range(5)]
    built, _ = network_of(racks(100, 100, 100, 100), heads, PolicySpec(name="spreading"))
    assert built.hosts is not None
    assert len(built.hosts.groups) == 4


def test_classes_with_further_costs_are_left_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_MOST_COSTS", 1)
    heads = [small("x", 2, queue="a", age=3), small("y", 1, queue="b")]
    built, flow = network_of(racks(2), heads, CROSSED)
    assert list(built.on_hosts(flow)) == [0]
    assert built.scheduled(flow) == [2, 1]


def test_a_gang_with_a_level_keeps_the_hosts_of_its_profile() -> None:
    """J2.32: inside a required domain the policy chooses the domain alone."""
    head = make_head("a", queue="a", pods=2, requests={GPU: 8})
    plan = round_of(
        world_of(racks(3, 3), queues=("a",)), [head], policies=PolicyInput(specs=(by_queue(a={H0: 9, H1: 9, H2: 9}),))
    )
    assert set(places(plan)["a"]) == {"r1-h000", "r1-h001"}


def test_other_resources_of_a_host_are_looked_at_again() -> None:
    """The flow counts GPUs; a host without memory for the pod is not used, whatever it costs."""
    view = racks(2, gpus=8, memory=100)
    heads = [
        replace(small("big", 1, queue="a", age=9), uid="big"),
        small("other", 1, queue="a", age=1),
    ]
    heads = [
        replace(
            head,
            pod_sets=tuple(
                replace(p, request=replace(p.request, requests={GPU: 1, "memory": 80}), asks_topology=True)
                for p in head.pod_sets
            ),
        )
        for head in heads
    ]
    plan = round_of(world_of(view, queues=("a",)), heads, policies=PolicyInput(specs=(by_queue(a={H1: 7}),)))
    assert places(plan) == {"big": {H0: 1}, "other": {H1: 1}}
