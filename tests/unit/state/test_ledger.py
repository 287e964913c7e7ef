"""The node ledger: what is believed after every event equals what would be made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kqueue.core.topology import (
    HOSTNAME,
    PODS,
    Domain,
    NodeFacts,
    Placement,
    PodFacts,
    PodSetRequest,
    Taint,
    TopologyAssignment,
    TopologyRequest,
    place,
)
from kqueue.core.topology.tree import Edit, Leaf, Tree
from kqueue.core.workload import Flavor
from kqueue.state.audit import Drift
from kqueue.state.flavor_room import LeftOut
from kqueue.state.ledger import AssignedUsage, NodeLedger
from tests.readings import free_by_node

BLOCK, RACK = "block", "rack"
BY_HOST, BY_RACK = (BLOCK, RACK, HOSTNAME), (BLOCK, RACK)


def make_node(name: str, cores: int = 8, *, rack: str = "r1", host: str | None = None, **facts: Any) -> NodeFacts:
    """A node of pool a whose host name label is its name."""
    labels = {BLOCK: "b1", RACK: rack, HOSTNAME: host or name, "pool": "a", **facts.pop("labels", {})}
    return NodeFacts(name=name, labels=labels, allocatable={"cpu": cores * 1000, PODS: 110}, **facts)


def make_flavor(name: str, topology: str = "hosts", pool: str = "a") -> Flavor:
    return Flavor(name=name, topology=topology, node_labels={"pool": pool})


def make_ledger(*nodes: NodeFacts, **options: Any) -> NodeLedger:
    """Flavor `main` by host over these nodes."""
    ledger = NodeLedger(**options)
    ledger.on_topology("hosts", BY_HOST)
    ledger.on_topology("racks", BY_RACK)
    ledger.on_flavor("main", make_flavor("main"))
    for node in nodes:
        ledger.on_node(node.name, node)
    return ledger


def on_hosts(flavor: str = "main", cores: int = 1, **pods: int) -> AssignedUsage:
    domains = tuple(Domain((host,), count) for host, count in pods.items())
    return AssignedUsage(
        flavor=flavor, assignment=TopologyAssignment((HOSTNAME,), domains), requests={"cpu": cores * 1000}
    )


def free(ledger: NodeLedger, flavor: str = "main") -> dict[str, int]:
    """Free milli cpu by the leaf's last value."""
    capacity = ledger.snapshot()[flavor]
    return {path[-1]: capacity.free(leaf).get("cpu", 0) for leaf, path in enumerate(capacity.tree.paths)}


def test_a_flavor_has_room_once_its_topology_is_known() -> None:
    """Flavor, Topology and nodes may come in any order."""
    ledger = NodeLedger()
    ledger.on_node("a", make_node("a"))
    ledger.on_flavor("main", make_flavor("main"))
    assert ledger.snapshot() == {}
    assert ledger.tree("main") is None
    ledger.on_topology("hosts", BY_HOST)
    assert free(ledger) == {"a": 8000}
    ledger.on_topology("hosts", None)
    assert ledger.snapshot() == {}


def test_nodes_count_while_they_are_ready_and_schedulable() -> None:
    """A cordoned or broken node leaves the tree, and comes back."""
    ledger = make_ledger(make_node("a"), make_node("b"))
    ledger.on_node("a", make_node("a", ready=False))
    assert (free(ledger), ledger.unusable("main")) == ({"b": 8000}, ("a",))
    ledger.on_node("b", make_node("b", unschedulable=True))
    assert (free(ledger), ledger.unusable("main")) == ({}, ("a", "b"))
    ledger.on_node("a", make_node("a"))
    assert (free(ledger), ledger.unusable("main")) == ({"a": 8000}, ("b",))
    ledger.on_node("b", None)
    assert (free(ledger), ledger.unusable("main"), ledger.unusable("unknown")) == ({"a": 8000}, (), ())


def test_heartbeats_change_nothing() -> None:
    """Equal facts keep the generation and the tree."""
    ledger = make_ledger(make_node("a"))
    tree, generation = ledger.tree("main"), ledger.generation
    assert ledger.on_node("a", make_node("a")) is False
    assert ledger.on_node("unknown", None) is False
    assert (ledger.tree("main"), ledger.generation) == (tree, generation)


def test_a_change_of_amounts_keeps_the_tree_and_a_change_of_taints_does_not() -> None:
    """Only what the tree says can make a new tree necessary."""
    ledger = make_ledger(make_node("a"))
    tree = ledger.tree("main")
    assert ledger.on_node("a", make_node("a", 6)) is True
    assert ledger.tree("main") is tree
    assert free(ledger) == {"a": 6000}
    ledger.on_node("a", make_node("a", 6, taints=(Taint("burning"),)))
    assert ledger.tree("main") is not tree


@pytest.mark.mechanism("3.9")
def test_foreign_pods_take_room_and_say_where_they_give_it_back() -> None:
    """First sight frees nothing; leaving, moving and shrinking free the old node."""
    ledger = make_ledger(make_node("a"), make_node("b"))
    assert ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 3000),))) == set()
    assert free(ledger) == {"a": 5000, "b": 8000}
    assert ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 4000),))) == set()
    assert ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 2000),))) == {"a"}
    assert ledger.on_pod("p", PodFacts(node="b", requests=(("cpu", 2000),))) == {"a"}
    assert free(ledger) == {"a": 8000, "b": 6000}
    assert ledger.on_pod("p", None) == {"b"}
    assert ledger.on_pod("p", None) == set()
    assert free(ledger) == {"a": 8000, "b": 8000}


def test_foreign_pods_are_remembered_for_nodes_that_are_not_known_yet() -> None:
    """A pod event may overtake its node's."""
    ledger = make_ledger()
    ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 3000),)))
    ledger.on_node("a", make_node("a"))
    assert free(ledger) == {"a": 5000}


def test_foreign_pods_count_on_the_empty_cluster_and_workloads_do_not() -> None:
    """What cannot be evicted by us is never free."""
    ledger = make_ledger(make_node("a"))
    ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 3000),)))
    ledger.add_usage("w", [on_hosts(a=2)])
    capacity = ledger.snapshot()["main"]
    assert (capacity.free(0)["cpu"], capacity.empty().free(0)["cpu"]) == (3000, 5000)
    assert (capacity.free(0)[PODS], capacity.empty().free(0)[PODS]) == (107, 109)


def on_racks(**pods: int) -> AssignedUsage:
    domains = tuple(Domain(("b1", rack), count) for rack, count in pods.items())
    return AssignedUsage(flavor="main", assignment=TopologyAssignment(BY_RACK, domains), requests={"cpu": 1000})


W = "ns/w"
COVERED = [
    pytest.param({}, {"p": ("a", 2)}, {"a": 2}, id="a pod that names a workload which holds nothing"),
    pytest.param({"b": 1}, {"p": ("a", 2)}, {"a": 2}, id="the workload holds another host"),
    pytest.param({"a": 1}, {"p": ("a", 1)}, {}, id="the workload holds the host"),
    pytest.param({"a": 2}, {"p": ("a", 1)}, {}, id="more pods of it are to come"),
    pytest.param({"a": 1}, {"p": ("a", 1), "q": ("a", 1)}, {"a": 1}, id="more pods than it holds there"),
    pytest.param({"a": 1}, {"p": ("a", 8)}, {"a": 7}, id="a pod that asks for more than its template"),
    pytest.param({"a": 1, "b": 1}, {"p": ("a", 1), "q": ("a", 1)}, {"a": 1}, id="places elsewhere do not cover it"),
]


@pytest.mark.parametrize("pods_first", [True, False], ids=["pods first", "the workload first"])
@pytest.mark.parametrize(("held", "stand", "charged"), COVERED)
def test_bound_pods_are_charged_as_far_as_no_workload_accounts_for_them(
    held: dict[str, int], stand: dict[str, tuple[str, int]], charged: dict[str, int], pods_first: bool
) -> None:
    """A name alone covers nothing; and the charge does not hang on the order of events."""
    ledger = make_ledger(make_node("a"), make_node("b"))
    calls: list[Callable[[], object]] = [
        lambda: ledger.add_usage(W, [on_hosts(**dict[str, Any](held))] if held else [])
    ]
    for name, (node, cores) in stand.items():
        facts = PodFacts(node=node, requests=(("cpu", cores * 1000),), workload=W)
        calls.append(partial(ledger.on_pod, name, facts))
    for call in reversed(calls) if pods_first else calls:
        call()

    assert {node: ledger.foreign_on(node).get("cpu", 0) // 1000 for node in charged} == charged
    assert free(ledger) == {node: 1000 * (8 - held.get(node, 0) - charged.get(node, 0)) for node in ("a", "b")}
    ledger.remove_usage(W)
    taken = {node: sum(cores for at, cores in stand.values() if at == node) for node in ("a", "b")}
    assert free(ledger) == {node: 1000 * (8 - cores) for node, cores in taken.items()}
    assert list(chain(*ledger.audit_steps())) == []
    for name in stand:
        ledger.on_pod(name, None)
    assert free(ledger) == {"a": 8000, "b": 8000}


def test_a_covered_pod_frees_nothing_and_one_beyond_does() -> None:
    """Who waits for room is tried again only where some came."""
    ledger = make_ledger(make_node("a"))
    ledger.add_usage(W, [on_hosts(a=1)])
    facts = PodFacts(node="a", requests=(("cpu", 1000),), workload=W)
    assert [ledger.on_pod(name, facts) for name in "pq"] == [set(), set()]
    assert ledger.on_pod("p", None) == {"a"}
    assert ledger.on_pod("q", None) == set()


def test_slices_of_one_job_account_for_the_pods_that_they_share() -> None:
    """The pods are found by the first slice; what both hold covers them."""
    ledger = make_ledger(make_node("a"))
    for name in "pqr":
        ledger.on_pod(name, PodFacts(node="a", requests=(("cpu", 1000),), workload="ns/first"))
    ledger.add_usage("ns/first", [on_hosts(a=1)])
    ledger.add_usage("ns/second", [on_hosts(a=1)], pods_of="ns/first")
    assert free(ledger) == {"a": 5000}
    ledger.remove_usage("ns/second")
    assert free(ledger) == {"a": 5000}
    assert ledger.foreign_on("a") == {"cpu": 2000, PODS: 2}


def test_places_in_a_rack_cover_pods_on_any_of_its_nodes() -> None:
    """What goes beyond is charged to nodes that the pods stand on; a node that moves takes its pods along."""
    nodes = [make_node("a"), make_node("b"), make_node("c", rack="r2")]
    ledger = make_ledger(*nodes)
    ledger.on_flavor("main", make_flavor("main", "racks"))
    ledger.add_usage(W, [on_racks(r1=2)])
    for name, node in zip("pqrs", "abbc", strict=True):
        ledger.on_pod(name, PodFacts(node=node, requests=(("cpu", 1000),), workload=W))
    assert free(ledger) == {"r1": 13000, "r2": 7000}
    assert [ledger.foreign_on(node).get("cpu", 0) for node in "abc"] == [0, 1000, 1000]
    ledger.on_node("b", make_node("b", rack="r2"))
    assert free(ledger) == {"r1": 6000, "r2": 13000}
    assert list(chain(*ledger.audit_steps())) == []


def test_usage_is_added_and_removed_once() -> None:
    """Adding again replaces; removing twice is harmless."""
    ledger = make_ledger(make_node("a"), make_node("b"))
    ledger.add_usage("w", [on_hosts(a=2), on_hosts(b=1, cores=2)])
    ledger.add_usage("w", [on_hosts(a=3)])
    assert free(ledger) == {"a": 5000, "b": 8000}
    assert ledger.remove_usage("w") is True
    assert ledger.remove_usage("w") is False
    assert free(ledger) == {"a": 8000, "b": 8000}


def test_usage_waits_for_its_flavor_and_its_node() -> None:
    """A workload read before its flavor counts once that is there; on a node that is gone it takes nothing."""
    ledger = make_ledger(make_node("a"))
    ledger.add_usage("w", [on_hosts("late", a=2), on_hosts("late", gone=4)])
    assert free(ledger) == {"a": 8000}
    ledger.on_flavor("late", make_flavor("late"))
    assert free(ledger, "late") == {"a": 6000}
    ledger.on_node("gone", make_node("gone"))
    assert free(ledger, "late") == {"a": 6000, "gone": 4000}


def test_flavors_on_one_host_see_each_others_usage() -> None:
    """Hosts are shared by all flavors with host names; racks are accounted apart; sharing can be switched off."""
    for share, other in ((True, {"a": 6000}), (False, {"a": 8000})):
        ledger = make_ledger(make_node("a"), share_hosts=share)
        ledger.on_flavor("twin", make_flavor("twin"))
        ledger.on_flavor("coarse", make_flavor("coarse", "racks"))
        ledger.add_usage("w", [on_hosts("twin", a=2)])
        assert free(ledger, "twin") == {"a": 6000}
        assert free(ledger, "main") == other
        assert free(ledger, "coarse") == {"r1": 8000}


def test_a_removed_flavor_takes_its_usage_along() -> None:
    """What counted on shared hosts through it counts no more, and again when it is back."""
    ledger = make_ledger(make_node("a"))
    ledger.on_flavor("twin", make_flavor("twin"))
    ledger.add_usage("w", [on_hosts("twin", a=2)])
    ledger.on_flavor("twin", None)
    assert free(ledger) == {"a": 8000}
    ledger.on_flavor("twin", make_flavor("twin"))
    assert free(ledger) == {"a": 6000}


def test_nodes_of_one_rack_make_one_leaf_where_racks_are_lowest() -> None:
    """Capacities, foreign pods and usage of all its nodes add up."""
    ledger = make_ledger(make_node("a"), make_node("b"), make_node("c", rack="r2"))
    ledger.on_flavor("coarse", make_flavor("coarse", "racks"))
    ledger.on_pod("p", PodFacts(node="b", requests=(("cpu", 1000),)))
    assignment = TopologyAssignment(BY_RACK, (Domain(("b1", "r1"), 3),))
    ledger.add_usage("w", [AssignedUsage(flavor="coarse", assignment=assignment, requests={"cpu": 2000})])
    assert free(ledger, "coarse") == {"r1": 9000, "r2": 8000}


def test_usage_by_host_survives_new_levels() -> None:
    """Host names stay the key when a level is put in; nodes without its label leave the tree and are named."""
    ledger = make_ledger(make_node("a", labels={"row": "x"}), make_node("b"))
    ledger.add_usage("w", [on_hosts(a=2)])
    ledger.on_topology("hosts", (BLOCK, "row", RACK, HOSTNAME))
    assert free(ledger) == {"a": 6000}
    assert ledger.left_out("main") == {"b": LeftOut("missingLevel", ("row",))}


def test_two_nodes_of_one_host_name_are_loud_or_merged() -> None:
    """The smaller node name makes the leaf and the other is named; merging adds them up."""
    nodes = [make_node("n2", 4, host="same"), make_node("n1", 8, host="same")]
    apart, merged = make_ledger(*nodes), make_ledger(*nodes, merge_duplicate_hostnames=True)
    assert free(apart) == {"same": 8000}
    assert apart.left_out("main") == {"n2": LeftOut("duplicateHostname", ("n1",))}
    assert free(merged) == {"same": 12_000}
    apart.on_node("n1", None)
    assert free(apart) == {"same": 4000}


def test_a_host_without_nodes_leaves_nobody_out() -> None:
    """Both nodes of one host name go, one after the other."""
    ledger = make_ledger(make_node("n1", host="same"), make_node("n2", host="same"))
    ledger.on_node("n1", None)
    assert ledger.left_out("main") == {}
    ledger.on_node("n2", None)
    assert ledger.left_out("main") == {}
    assert free(ledger) == {}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        pytest.param(make_node("n"), None, id="a node with all labels is in"),
        pytest.param(make_node("n", rack=""), None, id="an empty level is a level"),
        pytest.param(make_node("n", taints=(Taint("burning"),)), None, id="a taint keeps pods off, not the node out"),
        pytest.param(make_node("n", ready=False), LeftOut("notReady"), id="not ready"),
        pytest.param(make_node("n", unschedulable=True), LeftOut("unschedulable"), id="cordoned"),
        pytest.param(
            make_node("n", ready=False, unschedulable=True), LeftOut("notReady"), id="the first reason that applies"
        ),
        pytest.param(
            NodeFacts(name="n", labels={"pool": "a", RACK: "r1"}, allocatable={}),
            LeftOut("missingLevel", (BLOCK, HOSTNAME)),
            id="level labels that are missing are named, widest first",
        ),
        pytest.param(
            NodeFacts(name="n", labels={"pool": "a"}, allocatable={}, ready=False),
            LeftOut("notReady"),
            id="what is not ready need not have levels",
        ),
        pytest.param(make_node("n", labels={"pool": "b"}), None, id="a node of another flavor is not left out"),
        pytest.param(
            make_node("n", labels={"pool": "b"}, ready=False), None, id="nor is one of another flavor that is not ready"
        ),
        pytest.param(
            make_node("n", host="first"), LeftOut("duplicateHostname", ("first",)), id="a host name that is taken"
        ),
        pytest.param(make_node("n", host="first", ready=False), LeftOut("notReady"), id="taken, but not even usable"),
    ],
)
def test_a_node_that_is_left_out_is_known_by_name_and_reason(node: NodeFacts, why: LeftOut | None) -> None:
    """For every flavor whose labels it has; it is known no more when it is gone."""
    ledger = make_ledger(make_node("first"))
    ledger.on_node("n", node)
    assert ledger.left_out("main").get("n") == why
    ledger.on_node("n", None)
    assert ledger.left_out("main") == {}
    assert ledger.left_out("unknown") == {}


def test_a_flavor_that_changes_leaves_the_trees_of_others_alone() -> None:
    """Also of those with which it shares hosts, where its usage leaves and comes."""
    ledger = make_ledger(make_node("a"), make_node("b"))
    ledger.on_flavor("twin", make_flavor("twin"))
    ledger.add_usage("w", [on_hosts("twin", a=2), on_hosts("main", b=1)])
    tree = ledger.tree("main")
    ledger.on_flavor("twin", make_flavor("twin", pool="b"))
    assert free(ledger) == {"a": 6000, "b": 7000}
    ledger.on_flavor("twin", make_flavor("twin", "racks"))
    assert free(ledger) == {"a": 8000, "b": 7000}
    ledger.on_flavor("twin", None)
    assert ledger.tree("main") is tree


def test_room_below_zero_is_a_state_and_comes_back() -> None:
    """More is asked of a node than it has: nothing fits, and each end gives back what it took."""
    ledger = make_ledger(make_node("a"))
    ledger.add_usage("w", [on_hosts(a=7)])
    ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 3000),)))
    assert free(ledger) == {"a": -2000}
    ledger.on_node("a", make_node("a", 1))
    assert free(ledger) == {"a": -9000}
    ledger.remove_usage("w")
    assert free(ledger) == {"a": -2000}
    ledger.on_pod("p", None)
    assert free(ledger) == {"a": 1000}


def test_free_by_node_subtracts_everybody() -> None:
    """Allocatable less foreign pods less workloads; unusable nodes are left out."""
    ledger = make_ledger(make_node("a"), make_node("b", ready=False))
    ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 3000),)))
    ledger.add_usage("w", [on_hosts(a=2)])
    assert free_by_node(ledger) == {"a": {"cpu": 3000, PODS: 107}}


def test_flavors_and_holders_can_be_asked_for() -> None:
    """Which flavors a node serves, and who sits below a domain."""
    ledger = make_ledger(make_node("a"), make_node("b", rack="r2"))
    ledger.on_flavor("other", make_flavor("other", pool="z"))
    ledger.add_usage("w", [on_hosts(a=2, b=1)])
    ledger.add_usage("v", [on_hosts(b=4)])
    assert ledger.flavors_of("a") == ["main"]
    assert ledger.holders("main", ("b1", "r2")) == {"w": 1, "v": 4}
    assert ledger.holders("main", ("b1",)) == {"w": 3, "v": 4}
    assert ledger.holders("unknown", ("b1",)) == {}


def test_tables_can_be_made_before_they_are_asked_for() -> None:
    """The snapshot finds them; those of a flavor that went meanwhile are not there."""
    ledger = make_ledger(make_node("a"))
    for name in ("twin", "gone"):
        ledger.on_flavor(name, make_flavor(name))
    steps = ledger.build_steps()
    next(steps)
    ledger.on_flavor("gone", None)
    list(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kqueue.state.flavor_room.Tree", None)  # none is made any more
        assert ledger.snapshot().keys() == {"main", "twin"}
        assert list(ledger.build_steps()) == []


def test_many_leaves_that_changed_are_edited_a_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step edits more than its share, and what is left is few enough for whoever asks next."""
    monkeypatch.setattr("kqueue.state.flavor_room.STEP", 4)
    ledger = make_ledger(*(make_node(f"n{i:02}") for i in range(40)))
    ledger.snapshot()
    for i in range(0, 40, 2):
        ledger.on_node(f"n{i:02}", make_node(f"n{i:02}", rack="r9") if i % 4 else None)
    edited = Tree.edited
    sizes = []

    def watched(tree: Tree, removed: Iterable[int], added: Iterable[Leaf]) -> tuple[Tree, Edit]:
        gone, new = list(removed), list(added)
        sizes.append(max(len(gone), len(new)))
        return edited(tree, gone, new)

    monkeypatch.setattr(Tree, "edited", watched)
    assert sum(1 for _ in ledger.build_steps()) == 4
    tree = ledger.snapshot()["main"].tree
    assert sizes == [4] * 5
    assert (len(tree), sum(path[-2] == "r9" for path in tree.paths)) == (30, 10)
    assert list(ledger.build_steps()) == []


def test_a_snapshot_stands_still() -> None:
    """Events after it do not reach it, and what a cycle charges does not reach the ledger."""
    ledger = make_ledger(make_node("a"))
    snapshot = ledger.snapshot()["main"]
    ledger.add_usage("w", [on_hosts(a=2)])
    assert snapshot.free(0)["cpu"] == 8000
    found = place(
        snapshot, [PodSetRequest(name="p", count=8, requests={"cpu": 1000}, topology=TopologyRequest(required=RACK))]
    )
    assert isinstance(found, Placement)
    assert free(ledger) == {"a": 6000}


def test_an_audit_against_the_truth_names_what_drifted() -> None:
    """A missed pod shows as the pod, the node's sum and the leaf's room."""
    believed, truth = make_ledger(make_node("a")), make_ledger(make_node("a"))
    assert believed.audit(truth) == []
    pod = PodFacts(node="a", requests=(("cpu", 1000),))
    truth.on_pod("p", pod)
    drifts = believed.audit(truth)
    assert Drift("foreign-pod", "p", None, pod) in drifts
    assert Drift("foreign-pod", "on a", None, {"cpu": 1000, PODS: 1}) in drifts
    assert {drift.cause for drift in drifts} == {"foreign-pod", "capacity"}


# --- any history -----------------------------------------------------------------------------------------------------

NAMES = ["n0", "n1", "n2", "n3", "n4"]
a_name = st.sampled_from(NAMES)
named_nodes = st.builds(
    make_node,
    a_name,
    st.integers(0, 3),
    rack=st.sampled_from(["r1", "r2"]),
    host=st.sampled_from([None, None, None, "shared"]),
    ready=st.sampled_from([True, True, True, False]),
    unschedulable=st.sampled_from([False, False, False, True]),
    taints=st.sampled_from([(), (), (Taint("burning"),)]),
    labels=st.sampled_from([{}, {}, {"pool": "b"}, {"row": "x"}]),
).map(lambda node: ("on_node", node.name, node))
pods = st.builds(
    PodFacts,
    node=a_name,
    requests=st.sampled_from([(), (("cpu", 1000),), (("cpu", 2**62), ("gpu", 1)), (("cpu", 0),)]),
    workload=st.sampled_from(["", "w0", "w1"]),
)
flavor_names = st.sampled_from(["main", "twin", "coarse"])
usages = st.one_of(
    st.builds(lambda flavor, host, n: on_hosts(flavor, **{host: n}), flavor_names, a_name, st.integers(1, 3)),
    st.builds(
        lambda flavor, rack: AssignedUsage(
            flavor=flavor, assignment=TopologyAssignment(BY_RACK, (Domain(("b1", rack), 2),)), requests={"gpu": 1}
        ),
        flavor_names,
        st.sampled_from(["r1", "r2"]),
    ),
)
flavors = st.builds(
    lambda name, topology, pool: ("on_flavor", name, make_flavor(name, topology, pool)),
    flavor_names,
    st.sampled_from(["hosts", "racks", "unknown"]),
    st.sampled_from(["a", "a", "b"]),
)
events = st.one_of(
    named_nodes,
    named_nodes,
    st.tuples(st.just("on_node"), a_name, st.none()),
    st.tuples(st.just("on_pod"), st.sampled_from(["p0", "p1", "p2", "p3"]), st.one_of(pods, st.none())),
    st.tuples(st.just("add_usage"), st.sampled_from(["w0", "w1"]), st.lists(usages, max_size=3).map(tuple)),
    flavors,
    st.tuples(st.just("on_flavor"), flavor_names, st.none()),
    st.tuples(st.just("on_topology"), st.just("hosts"), st.sampled_from([BY_HOST, (BLOCK, "row", HOSTNAME), None])),
    st.tuples(st.just("on_topology"), st.just("racks"), st.sampled_from([BY_RACK, (RACK,), None])),
)
histories = st.lists(events, max_size=30)


class Told:
    """What a ledger was told last of each thing: enough to make another one that must believe the same."""

    def __init__(self, **options: Any) -> None:
        self._options, self.last = options, dict[tuple[str, str], Any]()
        self.ledger = NodeLedger(**options)
        for topology, levels in (("hosts", BY_HOST), ("racks", BY_RACK)):
            self.tell("on_topology", topology, levels)
        self.tell("on_flavor", "main", make_flavor("main"))
        for name in NAMES:
            self.tell("on_node", name, make_node(name))

    def tell(self, call: str, key: str, value: Any) -> None:
        self.last[call, key] = value
        getattr(self.ledger, call)(key, value)

    def anew(self) -> NodeLedger:
        """Made from what is true now, each thing told once: pods and usage before nodes, nodes before flavors."""
        ledger = NodeLedger(**self._options)
        for (call, key), value in sorted(self.last.items(), key=lambda item: item[0][0] == "on_flavor"):
            if value:
                getattr(ledger, call)(key, value)
        return ledger


@settings(max_examples=200, deadline=None)
@given(history=histories, merge=st.booleans(), share=st.booleans())
def test_after_every_event_the_ledger_equals_one_made_anew(
    history: list[tuple[str, str, Any]], merge: bool, share: bool
) -> None:
    """Sums, trees, nodes left out and free amounts never depend on the order of events."""
    told = Told(merge_duplicate_hostnames=merge, share_hosts=share)
    for event in history:
        told.tell(*event)
        assert told.ledger.audit(told.anew()) == []


@settings(max_examples=100, deadline=None)
@given(history=histories, merge=st.booleans())
def test_several_events_between_two_questions_end_where_one_made_anew_does(
    history: list[tuple[str, str, Any]], merge: bool
) -> None:
    """Trees are edited only when somebody asks; what happens to an edited tree before it is asked for is not lost."""
    told = Told(merge_duplicate_hostnames=merge)
    told.ledger.snapshot()
    for event in history:
        told.tell(*event)
    assert told.ledger.audit(told.anew()) == []


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step looks at one thing, so that events can come between any two."""
    monkeypatch.setattr("kqueue.state.audit.STEP", 1)
    monkeypatch.setattr("kqueue.state.flavor_room.STEP", 1)
    monkeypatch.setattr("kqueue.state.flavor_room._SOUNDNESS_STEP", 1)


@pytest.mark.usefixtures("short_steps")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=histories, during=st.lists(st.tuples(st.integers(0, 8), events, st.booleans()), max_size=12))
def test_tables_made_in_steps_are_right_whatever_happens_meanwhile(
    before: list[tuple[str, str, Any]], during: list[tuple[int, tuple[str, str, Any], bool]]
) -> None:
    """Nodes, pods, workloads and flavors come and go between the steps, and somebody may ask."""
    told = Told()
    for event in before:
        told.tell(*event)
    build = told.ledger.build_steps()
    for steps, event, ask in during:
        list(islice(build, steps))
        told.tell(*event)
        if ask:
            told.ledger.snapshot()
    list(build)
    assert told.ledger.audit(told.anew()) == []


CHANGES = [
    pytest.param([("on_node", "n0", make_node("n0", 4))], id="a node's amounts"),
    pytest.param([("on_node", "n0", make_node("n0", taints=(Taint("burning"),)))], id="a node's taints"),
    pytest.param([("on_node", "n0", make_node("n0", rack="r2"))], id="a node's place"),
    pytest.param([("on_node", "n0", None)], id="a node that goes"),
    pytest.param([("on_node", "new", make_node("new"))], id="a node that comes"),
    pytest.param([("on_pod", "q", PodFacts(node="n0", requests=(("cpu", 500),)))], id="a foreign pod that comes"),
    pytest.param([("on_pod", "p", None)], id="a foreign pod that goes"),
    pytest.param([("add_usage", "v", (on_hosts(n0=1, n3=1),))], id="a workload that comes"),
    pytest.param([("add_usage", "w", ())], id="a workload that goes"),
    pytest.param(
        [
            ("on_flavor", "coarse", make_flavor("coarse", "racks", "b")),
            ("on_flavor", "coarse", make_flavor("coarse", "racks")),
            ("on_pod", "p", None),
        ],
        id="a flavor that is made anew, and a foreign pod",
    ),
]


def make_told() -> Told:
    """With a foreign pod, a workload on hosts and in a rack, a pod of it that asks for more, and a flavor by rack."""
    told = Told()
    told.tell("on_flavor", "coarse", make_flavor("coarse", "racks"))
    told.tell("on_node", "n3", make_node("n3", rack="r2"))
    told.tell("on_node", "n4", make_node("n4", ready=False))
    told.tell("on_pod", "p", PodFacts(node="n1", requests=(("cpu", 1000),)))
    told.tell("on_pod", "q", PodFacts(node="n0", requests=(("cpu", 3000),), workload="w"))
    in_rack = TopologyAssignment(BY_RACK, (Domain(("b1", "r1"), 2),))
    told.tell(
        "add_usage", "w", (on_hosts(n0=2), AssignedUsage(flavor="coarse", assignment=in_rack, requests={"gpu": 1}))
    )
    return told


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize("events", CHANGES)
@pytest.mark.parametrize("steps", [pytest.param("build_steps", id="build"), pytest.param("audit_steps", id="audit")])
def test_a_change_between_any_two_steps_is_not_lost(steps: str, events: list[tuple[str, str, Any]]) -> None:
    """Wherever it falls, tables are right in the end, and no audit takes it for a drift."""
    wait, over = 0, False
    while not over:
        told = make_told()
        going = getattr(told.ledger, steps)()
        over = len(list(islice(going, wait))) < wait
        for event in events:
            told.tell(*event)
        assert [found for found in going if found] == []
        assert told.ledger.audit(told.anew()) == []
        wait += 1
    assert wait > 10


# --- audits ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_steps")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=histories, during=st.lists(st.tuples(st.integers(0, 12), events), max_size=12), share=st.booleans())
def test_an_audit_finds_nothing_whatever_happens_between_its_steps(
    before: list[tuple[str, str, Any]], during: list[tuple[int, tuple[str, str, Any]]], share: bool
) -> None:
    """It compares the present with the present, and its sums follow what changes."""
    told = Told(share_hosts=share)
    for event in before:
        told.tell(*event)
    audit = told.ledger.audit_steps()
    for steps, event in during:
        assert [drift for found in islice(audit, steps) for drift in found] == []
        told.tell(*event)
    assert [drift for found in audit for drift in found] == []
    assert told.ledger.audit(told.anew()) == []


def spoil_foreign_sum(told: Told) -> None:
    told.ledger._foreign["n1"]["cpu"] += 1


def lose_foreign_sum(told: Told) -> None:
    del told.ledger._foreign["n1"]


def leave_foreign_sum_behind(told: Told) -> None:
    told.ledger._foreign["n2"] = {"cpu": 1}


def spoil_claim(told: Told) -> None:
    told.ledger._bound._claims["w"].taken["n0"]["cpu"] += 1


def lose_claim(told: Told) -> None:
    told.ledger._bound._claims["w"].held.clear()


def spoil_usage(told: Told) -> None:
    told.ledger._host_usage["n0",]["cpu"] -= 1


def leave_usage_behind(told: Told) -> None:
    told.ledger._host_usage["n2",] = {"cpu": 1}


def spoil_usage_by_rack(told: Told) -> None:
    told.ledger._rooms["coarse"].usage["b1", "r1"]["gpu"] += 1


def lose_member(told: Told) -> None:
    del told.ledger._rooms["main"].members["n1"]


def keep_member(told: Told) -> None:
    del told.ledger._nodes["n1"], told.last["on_node", "n1"]


def lose_group(told: Told) -> None:
    del told.ledger._rooms["coarse"]._groups["b1", "r2"]


def keep_stranger(told: Told) -> None:
    told.ledger._rooms["coarse"]._groups["b9", "r9"] = make_node("n9")


def forget_stale_leaf(told: Told) -> None:
    told.tell("on_node", "n1", make_node("n1", taints=(Taint("burning"),)))
    told.ledger._rooms["main"]._stale.clear()


def forget_who_is_left_out(told: Told) -> None:
    told.ledger._rooms["main"]._outsiders.clear()


def swap_leaves(told: Told) -> None:
    tree = told.ledger._rooms["main"].capacity().tree
    tree.paths = (tree.paths[1], tree.paths[0], *tree.paths[2:])


def spoil_free(told: Told) -> None:
    told.ledger._rooms["main"].capacity().add(0, {"cpu": 1})


def spoil_idle(told: Told) -> None:
    told.ledger._rooms["coarse"].capacity().empty().add(0, {"cpu": 1})


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize(
    ("spoil", "cause", "key"),
    [
        pytest.param(spoil_foreign_sum, "foreign-pod", "on n1", id="a wrong sum of foreign pods"),
        pytest.param(lose_foreign_sum, "foreign-pod", "on n1", id="a lost sum of foreign pods"),
        pytest.param(leave_foreign_sum_behind, "foreign-pod", "on n2", id="foreign usage where there is no pod"),
        pytest.param(spoil_claim, "foreign-pod", "of w on n0", id="a wrong sum of a workload's pods"),
        pytest.param(lose_claim, "foreign-pod", "of w", id="a workload that covers its pods no more"),
        pytest.param(spoil_usage, "tas-usage", "n0", id="a wrong sum of usage on a host"),
        pytest.param(leave_usage_behind, "tas-usage", "n2", id="usage where there is no workload"),
        pytest.param(spoil_usage_by_rack, "tas-usage", "coarse/b1,r1", id="a wrong sum of usage in a rack"),
        pytest.param(lose_member, "tree", "main/n1", id="a node that its flavor does not know"),
        pytest.param(keep_member, "tree", "/n1", id="a node that is gone and still a member"),
        pytest.param(lose_group, "tree", "coarse/n3", id="a rack without its nodes"),
        pytest.param(keep_stranger, "tree", "coarse/b9,r9", id="a leaf of a node that is no member"),
        pytest.param(forget_stale_leaf, "tree", "main/n1", id="a leaf of a node as it was"),
        pytest.param(forget_who_is_left_out, "tree", "main/n4", id="a node that is left out unnoticed"),
        pytest.param(swap_leaves, "tree", "main", id="leaves in a wrong order"),
        pytest.param(spoil_free, "capacity", "main/n0", id="a wrong free amount"),
        pytest.param(spoil_idle, "capacity", "coarse/b1,r1", id="a wrong amount without workloads"),
    ],
)
def test_an_audit_names_what_is_wrong_and_heals_it(spoil: Callable[[Told], None], cause: str, key: str) -> None:
    """One look finds the cause; the next finds nothing, and the ledger is what one made anew would be."""
    told = make_told()
    told.ledger.snapshot()
    generation = told.ledger.generation
    spoil(told)

    found = [drift for drifts in told.ledger.audit_steps() for drift in drifts]
    assert {drift.cause for drift in found} == {cause}
    assert key in " ".join(drift.key for drift in found)
    assert told.ledger.generation > generation
    assert list(chain(*told.ledger.audit_steps())) == []
    assert told.ledger.audit(told.anew()) == []


def test_nodes_that_could_come_back_are_known_with_what_would_be_free_on_them() -> None:
    """Cordoned or broken, members otherwise: what strangers and workloads hold there is off."""
    ledger = make_ledger(
        make_node("h1"),
        make_node("h2", unschedulable=True, taints=(Taint("node.kubernetes.io/unschedulable"), Taint("own"))),
        make_node("h3", ready=False),
        make_node("h4", unschedulable=True, labels={"pool": "b"}),
        make_node("h5", unschedulable=True, host="h1"),
        NodeFacts(name="h6", labels={HOSTNAME: "h6", "pool": "a"}, allocatable={}, ready=False),
    )
    ledger.on_pod("ns/p", PodFacts(node="h2", requests=(("cpu", 3000),)))
    ledger.add_usage("ns/w", [on_hosts(cores=2, h2=1)])

    one, two = ledger.spares("main", most=10)
    assert [(s.node, s.reason, s.leaf.path) for s in (one, two)] == [
        ("h2", "unschedulable", ("b1", "r1", "h2")),
        ("h3", "notReady", ("b1", "r1", "h3")),
    ]
    assert (one.free["cpu"], one.idle["cpu"], two.free["cpu"]) == (3000, 5000, 8000)
    assert [taint.key for taint in one.leaf.nodes[0].taints] == ["own"]
    assert [s.node for s in ledger.spares("main", most=1)] == ["h2"]
    assert ledger.spares("unknown", most=10) == []
