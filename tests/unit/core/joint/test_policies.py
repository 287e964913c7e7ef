"""Policies: the hosts and domains that they choose, what that costs, and for what they wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from kqueue.core.joint import registry
from kqueue.core.joint.graph import Arc, Graph
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import JointPlan
from kqueue.core.joint.policy import BasePolicy, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.joint.registry import POLICIES, PolicySpec, looks_at_use
from kqueue.core.joint.round_policies import PolicyInput
from kqueue.core.joint.statistics import NodeStatistics
from kqueue.core.joint.traits import Traits
from kqueue.core.topology import PODS, DomainUsage
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Admitted, Head, TopologyView
from tests.builders import GPU, START, make_head, make_queue, make_snapshot
from tests.unit.core.joint.worlds import admitted, anywhere, places, racks, round_of, world_of
from tests.unit.toys.toy_policy import ToyPolicy

HOSTS = ["r0-h000", "r0-h001", "r0-h002"]


def by(name: str, weight: int = 1000, **parameters: Any) -> PolicySpec:
    return PolicySpec(name=name, weight=weight, parameters=parameters)


def small(name: str, pods: int, *, age: int = 0, priority: int = 0, **requests: int) -> Head:
    """A workload with pods of one GPU that may be anywhere."""
    asked = requests or {GPU: 1}
    return anywhere(make_head(name, pods=pods, required=None, requests=asked, age=age, priority=priority))


def filled(view: TopologyView, used: Mapping[str, int], requests: Mapping[str, int]) -> TopologyView:
    """The view with so many pods on each host."""
    view.capacity.charge([DomainUsage((host,), requests, pods) for host, pods in used.items()])
    return view


def plan_of(view: TopologyView, heads: list[Head], *specs: PolicySpec, quota: int = 100_000, **more: Any) -> JointPlan:
    given = {name: more.pop(name) for name in ("traits", "statistics") if name in more}
    snapshot = more.pop("snapshot", None) or world_of(view, quota=quota)
    return round_of(snapshot, heads, policies=PolicyInput(specs=specs, **given), **more)


# --- hosts


@pytest.mark.mechanism("2.12")
def test_spreading_fills_hosts_evenly() -> None:
    """E10."""
    view = filled(racks(3), {HOSTS[0]: 1}, {GPU: 1})
    plan = plan_of(view, [small("a", 4)], by("spreading"))
    assert places(plan) == {"a": {HOSTS[0]: 1, HOSTS[1]: 2, HOSTS[2]: 1}}
    assert plan.cost == 60


@pytest.mark.mechanism("2.12")
@pytest.mark.parametrize("seed", range(20))
def test_spreading_differs_by_at_most_one_pod_on_equal_hosts(seed: int) -> None:
    pods = np.random.default_rng(seed).integers(1, 9, size=4).tolist()
    plan = plan_of(racks(5), [small(f"w{i}", n, age=9 - i) for i, n in enumerate(pods)], by("spreading"))
    on_hosts = dict.fromkeys([f"r0-h{i:03}" for i in range(5)], 0)
    for where in places(plan).values():
        for host, count in where.items():
            on_hosts[host] += count
    assert sum(on_hosts.values()) == sum(pods)
    assert max(on_hosts.values()) - min(on_hosts.values()) <= 1


@pytest.mark.mechanism("2.12")
def test_packing_takes_the_fuller_host() -> None:
    view = filled(racks(3), {HOSTS[1]: 3}, {GPU: 1})
    plan = plan_of(view, [small("a", 4)], by("packing"))
    assert places(plan) == {"a": {HOSTS[1]: 4}}


def test_packing_takes_the_fuller_rack_of_those_with_room() -> None:
    """The profile would take the tightest rack, too; a dearer place beside it must not change that."""
    view = filled(racks(4, 4), {"r1-h000": 8}, {GPU: 1})
    plan = plan_of(view, [make_head("a", pods=2)], by("packing"))
    assert {host[:2] for host in places(plan)["a"]} == {"r1"}


NET = "kqueue.dev/bandwidth"


def with_network(hosts: int) -> TopologyView:
    """One rack of hosts with network bandwidth."""
    network: dict[str, Any] = {NET: 10}
    return racks(hosts, **network)


@pytest.mark.mechanism("2.13")
@pytest.mark.parametrize(("pods", "counts", "cost"), [(3, [0, 1, 2], 1400), (4, [0, 2, 2], 2200), (5, [1, 2, 2], 3100)])
def test_network_takes_the_least_loaded_hosts(pods: int, counts: list[int], cost: int) -> None:
    """E11: the fifth pod costs as much on the first host as on the third."""
    view = with_network(3)
    filled(view, {HOSTS[0]: 3, HOSTS[1]: 1}, {NET: 2})
    plan = plan_of(view, [small("a", pods, **{NET: 3, GPU: 1})], by("network"), snapshot=_two(view))
    found = places(plan)["a"]
    assert [found.get(host, 0) for host in HOSTS] == counts
    assert plan.cost == cost


def _two(view: TopologyView) -> Any:
    """A state in which bandwidth needs no quota."""
    queue = make_queue("team", ignores_undeclared=True)
    return make_snapshot({"team": {"gpu": 100_000}}, specs=[queue], topologies={"gpu": view})


@pytest.mark.mechanism("2.13")
def test_no_host_gets_more_than_its_bandwidth() -> None:
    view = with_network(2)
    plan = plan_of(view, [small("a", 7, **{NET: 3, GPU: 1})], by("network"), snapshot=_two(view))
    assert admitted(plan) == []


# --- utilisation


def test_utilisation_goes_by_what_is_measured() -> None:
    """E15."""
    statistics = NodeStatistics.of({"r0-h000": [{"cpu": 9_000}], "r0-h001": [{"cpu": 2_000}]})
    for given, host in ((statistics, "r0-h001"), (NodeStatistics(), "r0-h000")):
        view = filled(racks(2, cpu=10_000), dict.fromkeys(HOSTS[:2], 1), {"cpu": 5_000})
        plan = plan_of(
            view,
            [small("a", 1, **{"cpu": 1_000, GPU: 1})],
            by("utilisation"),
            statistics=given,
            snapshot=_two(view),
        )
        assert places(plan) == {"a": {host: 1}}


@pytest.mark.parametrize(
    ("measured", "name", "static"),
    [
        pytest.param({HOSTS[0]: [{"cpu": 1}], HOSTS[1]: [{"cpu": 1}]}, "utilisation", 0, id="all"),
        pytest.param({HOSTS[0]: [{"cpu": 1}]}, "utilisation", 1, id="one node"),
        pytest.param({HOSTS[0]: [{"memory": 1}], HOSTS[1]: [{"cpu": 1}]}, "utilisation", 1, id="another resource"),
        pytest.param({"other": [{"cpu": 1}]}, "utilisation", 2, id="unknown node"),
        pytest.param({}, "packing", 0, id="no policy looks"),
    ],
)
def test_a_plan_says_on_how_many_nodes_reservations_counted(
    measured: dict[str, list[dict[str, int]]], name: str, static: int
) -> None:
    view = racks(2, cpu=10_000)
    given = NodeStatistics.of(measured)
    plan = plan_of(view, [small("a", 1, **{"cpu": 1_000, GPU: 1})], by(name), statistics=given, snapshot=_two(view))
    assert plan.static_nodes == static


def test_policies_say_that_they_look_at_measured_use() -> None:
    found = {name for name in POLICIES if looks_at_use([PolicySpec(name=name)])}
    assert found & {"utilisation", "network", "packing", "topology"} == {"utilisation", "network"}
    assert not looks_at_use([PolicySpec(name="unknown")])


def test_measured_use_makes_no_room() -> None:
    view = filled(racks(1, cpu=10_000), {HOSTS[0]: 1}, {"cpu": 9_500})
    idle = NodeStatistics.of({"r0-h000": [{"cpu": 0}]})
    plan = plan_of(
        view, [small("a", 1, **{"cpu": 1_000, GPU: 1})], by("utilisation"), statistics=idle, snapshot=_two(view)
    )
    assert admitted(plan) == []


def test_the_percentile_of_samples_counts() -> None:
    samples = NodeStatistics.of({"n": [{"cpu": n} for n in range(1, 11)]})
    assert [samples.measured("cpu", percentile)[0].tolist() for percentile in (90, 100, 0)] == [[9], [10], [1]]
    assert not samples.measured("memory", 90)[1].any()
    assert not samples.measured("nvidia.com/gpu", 90)[1].any()


# --- interference


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies of this file are known in it alone."""
    monkeypatch.setattr(registry, "POLICIES", dict(registry.POLICIES))
    registry.register("dear", ToyPolicy, host=("host", registry.text), points=("points", registry.number(0, 100_000)))


MATRICES = [{"x": {"y": 100}}, {"y": {"x": 100}}]


@pytest.mark.mechanism("2.15")
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize(("points", "host"), [(99, "r0-h001"), (150, "r0-h000")])
def test_a_pod_keeps_away_from_one_that_disturbs_it(matrix: dict[str, Any], points: int, host: str) -> None:
    """E13: x runs on the first host."""
    view = filled(racks(2), {HOSTS[0]: 1}, {GPU: 1})
    snapshot = world_of(view)
    running = Admitted(
        key="default/x",
        uid="x",
        queue="team",
        local_queue="q",
        priority=0,
        timestamp=START,
        reserved_at=START,
        evicted=False,
        usage={},
        domains={"gpu": (DomainUsage((HOSTS[0],), {GPU: 1}, 1),)},
    )
    snapshot.admitted = {"team": {"default/x": running}}
    traits = {"x": Traits(interference="x"), "y": Traits(interference="y")}
    specs = by("interference", matrix=matrix), by("dear", host="r0-h001", points=points)
    plan = plan_of(view, [small("y", 1)], *specs, traits=traits, snapshot=snapshot)
    assert places(plan) == {"y": {host: 1}}


@pytest.mark.mechanism("2.15")
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("first", ["x", "y"])
def test_two_waiting_pods_that_disturb_each_other_get_two_hosts(matrix: dict[str, Any], first: str) -> None:
    """E13: both orders of arrival."""
    traits = {"x": Traits(interference="x"), "y": Traits(interference="y")}
    heads = [small(name, 1, age=age) for name, age in ((first, 9), ("y" if first == "x" else "x", 1))]
    plan = plan_of(racks(2), heads, by("interference", matrix=matrix), traits=traits)
    assert places(plan)[first] == {HOSTS[0]: 1}
    assert {host for where in places(plan).values() for host in where} == set(HOSTS[:2])
    assert plan.cost == 0


# --- locality


def preferring(
    waited: int, factor: int = 1000, *, required: str | None = None, wish: tuple[str, str] = ("rack", "r0")
) -> JointPlan:
    """A gang that prefers a full rack."""
    view = filled(racks(2, 2), dict.fromkeys(HOSTS[:2], 8), {GPU: 1})
    head = make_head("a", pods=2, required=required)
    head = head if required is not None else anywhere(head)
    return plan_of(
        view,
        [head],
        by("locality", waitFactor=factor),
        traits={"a": Traits(prefers=(wish,))},
        waited={"a": waited},
    )


@pytest.mark.mechanism("2.14")
@pytest.mark.parametrize("required", [None, "rack"])
@pytest.mark.parametrize(("factor", "opens"), [(1000, 300), (500, 600)])
def test_a_gang_waits_for_its_data_as_long_as_that_is_worth(required: str | None, factor: int, opens: int) -> None:
    """E12."""
    early, late = preferring(opens - 1, factor, required=required), preferring(opens, factor, required=required)
    (waits,) = early.workloads
    assert (waits.admitted, waits.is_deferred, waits.opens, waits.is_proven) == (None, True, 1, False)
    assert set(places(late)["a"]) == {"r1-h000", "r1-h001"}
    assert late.cost == 2 * 300


def test_a_gang_goes_to_its_data_where_there_is_room() -> None:
    plan = plan_of(
        racks(2, 3), [make_head("a", pods=2)], by("locality"), traits={"a": Traits(prefers=(("rack", "r1"),))}
    )
    assert {host[:2] for host in places(plan)["a"]} == {"r1"}
    assert plan.cost == 0


@pytest.mark.parametrize("wish", [("rack", "r9"), ("zone", "r0")])
def test_an_unknown_place_is_no_preference(wish: tuple[str, str]) -> None:
    plan = preferring(0, wish=wish)
    assert admitted(plan) == ["a"]
    assert not plan.workloads[0].is_deferred


def test_a_gang_that_waits_in_a_strict_queue_blocks_those_behind_it() -> None:
    view = filled(racks(2, 2), dict.fromkeys(HOSTS[:2], 8), {GPU: 1})
    heads = [make_head("a", pods=2, age=9), make_head("b", pods=2, age=1)]
    traits = {"a": Traits(prefers=(("rack", "r0"),))}
    for strict, found in ((["team"], []), ([], ["b"])):
        plan = plan_of(view, heads, by("locality"), traits=traits, strict=strict)
        assert admitted(plan) == found
        assert plan.workloads[0].is_deferred


# --- order


def test_shortest_admits_the_short_one_first() -> None:
    traits = {"a": Traits(expected_seconds=7200), "b": Traits(expected_seconds=60)}
    heads = [make_head("a", pods=4, age=9), make_head("b", pods=4, age=1)]
    plan = plan_of(racks(4), heads, by("shortest"), traits=traits, waited={"a": 8, "b": 0})
    assert admitted(plan) == ["b"]
    plan = plan_of(racks(4), heads, by("shortest"), waited={"a": 8, "b": 0})  # both an hour
    assert admitted(plan) == ["a"]


# --- preemption in the graph


@pytest.mark.parametrize(("waiting", "cost"), [(40, 40), (50, 50), (51, 50)])
def test_the_cheaper_one_waits(waiting: int, cost: int) -> None:
    """E16: one slot; the running one costs 50 when it leaves."""
    sink, slot, unscheduled, runs, waits = range(5)
    arcs = [
        Arc(runs, slot, 1, 0),
        Arc(runs, unscheduled, 1, 50),
        Arc(waits, slot, 1, 0),
        Arc(waits, unscheduled, 1, waiting),
        Arc(slot, sink, 1, 0),
        Arc(unscheduled, sink, 2, 0),
    ]
    solve = solver()
    assert solve is not None
    flow = solve(Graph.of([-2, 0, 0, 1, 1], arcs))
    assert flow.cost == cost
    if waiting != 50:
        assert flow.units[1] == (waiting > 50)


# --- a stranger's policy, and one that fails


@pytest.mark.mechanism("2.11")
def test_a_new_policy_is_one_class_and_one_line() -> None:
    """Row 2.11: the toy."""
    specs = [by("dear", host=HOSTS[0], points=5)]
    assert places(plan_of(racks(2), [small("a", 1)])) == {"a": {HOSTS[0]: 1}}
    assert places(plan_of(racks(2), [small("a", 1)], *specs)) == {"a": {HOSTS[1]: 1}}


class Bad(BasePolicy):
    """A policy that answers with what it is given."""

    depth = Depth.HOST
    answer: Any = None

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints:
        found: Ints = Bad.answer(view)
        return found


def _raise(view: WorldView) -> Ints:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (_raise, "RuntimeError: no"),
        (lambda view: np.full(len(view.tree), np.nan), "no array of whole numbers"),
        (lambda view: np.ones(len(view.tree)), "no array of whole numbers"),
        (lambda view: [1, 2], "no array of whole numbers"),
        (lambda view: np.zeros(len(view.tree) + 1, dtype=np.int64), "of the form (3,) for 2 domains"),
    ],
)
def test_a_policy_that_fails_is_off_for_the_round(monkeypatch: pytest.MonkeyPatch, answer: Any, problem: str) -> None:
    registry.register("bad", Bad)
    monkeypatch.setattr(Bad, "answer", staticmethod(answer))
    specs = by("bad"), by("dear", host=HOSTS[0], points=5)
    plan = plan_of(racks(2), [small("a", 1)], *specs)
    assert places(plan) == {"a": {HOSTS[1]: 1}}
    assert list(plan.failed_policies) == ["bad"]
    assert problem in plan.failed_policies["bad"]


@pytest.mark.parametrize("cost", [-5, -(2**63), 2**63 - 2])
def test_costs_outside_of_the_range_are_cut(monkeypatch: pytest.MonkeyPatch, cost: int) -> None:
    registry.register("bad", Bad)
    monkeypatch.setattr(Bad, "answer", staticmethod(lambda view: np.full(len(view.tree), cost, dtype=np.int64)))
    plan = plan_of(racks(2), [small("a", 3)], by("bad", weight=1_000_000))
    assert admitted(plan) == ["a"]
    assert plan.failed_policies == {}
    assert plan.cost == (0 if cost < 0 else 3 * 100_000)


def test_all_policies_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register("bad", Bad)
    monkeypatch.setattr(Bad, "answer", staticmethod(_raise))
    plan = plan_of(racks(2), [small("a", 3)], by("bad"))
    assert admitted(plan) == ["a"]


# --- lists of policies


def test_weights_are_thousandths() -> None:
    """Twice 99 is more than 150, once 99 is not."""
    for weight, host in ((1000, HOSTS[0]), (2000, HOSTS[1])):
        specs = by("dear", weight=weight, host=HOSTS[0], points=99), by("spreading", each=150)
        view = filled(racks(2), {HOSTS[1]: 1}, {GPU: 1})
        plan = plan_of(view, [small("a", 1)], *specs)
        assert places(plan) == {"a": {host: 1}}


def test_queues_of_a_flavor_must_agree() -> None:
    dear = by("dear", host=HOSTS[0], points=5)
    given = PolicyInput(of_queue={"one": (dear,), "two": (dear,)})
    assert given.of(["one", "two"]) == (dear,)
    assert given.of(["one", "three"]) == given.specs
    assert given.of([]) == given.specs


@pytest.mark.parametrize(
    ("specs", "paths"),
    [
        ([by("topology"), by("spreading", each=3)], []),
        ([by("nothing")], ["0/name"]),
        ([by("topology"), by("topology")], ["1/name"]),
        ([by("topology", weight=0), by("packing", weight=1_000_001)], ["0/weight", "1/weight"]),
        ([by("spreading", each=-1)], ["0/parameters/each"]),
        ([by("spreading", each=True)], ["0/parameters/each"]),
        ([by("spreading", some=1)], ["0/parameters/some"]),
        ([by("topology", spread=[])], ["0/parameters/spread"]),
        ([by("locality", perLevel=[1, "a"])], ["0/parameters/perLevel"]),
        ([by("network", resource="")], ["0/parameters/resource"]),
        ([by("interference", matrix=[1])], ["0/parameters/matrix"]),
        ([by("interference", matrix={f"c{i}": {} for i in range(17)})], ["0/parameters"]),
        ([by(n) for n in ("topology", "packing", "spreading", "network", "locality")], [""]),
    ],
)
def test_mistakes_in_lists_of_policies_are_named(specs: list[PolicySpec], paths: list[str]) -> None:
    assert [mistake.path for mistake in registry.mistakes_in(specs)] == paths


def test_pods_count_however_large_they_are() -> None:
    """Spreading is by pods, not by requests."""
    view = filled(filled(racks(2), {HOSTS[0]: 1}, {GPU: 6}), {HOSTS[1]: 2}, {GPU: 1})
    plan = plan_of(view, [small("a", 1)], by("spreading"))
    assert places(plan) == {"a": {HOSTS[0]: 1}}
    assert view.capacity.row(PODS) is not None
