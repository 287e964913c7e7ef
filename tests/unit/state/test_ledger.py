"""The node ledger: what is believed after every event equals what would be made anew."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
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
from kqueue.core.workload import Flavor
from kqueue.state.ledger import AssignedUsage, Drift, NodeLedger

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
    assert free(ledger) == {"b": 8000}
    ledger.on_node("a", make_node("a", unschedulable=True))
    assert free(ledger) == {"b": 8000}
    ledger.on_node("a", make_node("a"))
    ledger.on_node("b", None)
    assert free(ledger) == {"a": 8000}


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
    found = ledger.membership("main")
    assert found is not None
    assert found.missing_levels == {"b": ("row",)}
    assert found.ignored == {"missingLevel": 1}


def test_two_nodes_of_one_host_name_are_loud_or_merged() -> None:
    """The smaller node name makes the leaf and the other is named; merging adds them up."""
    nodes = [make_node("n2", 4, host="same"), make_node("n1", 8, host="same")]
    apart, merged = make_ledger(*nodes), make_ledger(*nodes, merge_duplicate_hostnames=True)
    assert free(apart) == {"same": 8000}
    found = apart.membership("main")
    assert found is not None
    assert found.duplicates == {"n2": "n1"}
    assert free(merged) == {"same": 12_000}
    apart.on_node("n1", None)
    assert free(apart) == {"same": 4000}


def test_free_by_node_subtracts_everybody() -> None:
    """Allocatable less foreign pods less workloads; unusable nodes are left out."""
    ledger = make_ledger(make_node("a"), make_node("b", ready=False))
    ledger.on_pod("p", PodFacts(node="a", requests=(("cpu", 3000),)))
    ledger.add_usage("w", [on_hosts(a=2)])
    assert ledger.free_by_node() == {"a": {"cpu": 3000, PODS: 107}}


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
    assert Drift("pod", "p", None, pod) in drifts
    assert Drift("foreign", "a", None, {"cpu": 1000, PODS: 1}) in drifts
    assert {drift.cause for drift in drifts} == {"pod", "foreign", "capacity"}


NAMES = ["n0", "n1", "n2", "n3", "n4"]
nodes = st.builds(
    make_node,
    st.sampled_from(NAMES),
    st.integers(0, 3),
    rack=st.sampled_from(["r1", "r2"]),
    host=st.sampled_from([None, None, None, "shared"]),
    ready=st.sampled_from([True, True, True, False]),
    unschedulable=st.sampled_from([False, False, False, True]),
    taints=st.sampled_from([(), (), (Taint("burning"),)]),
    labels=st.sampled_from([{}, {}, {"pool": "b"}, {"row": "x"}]),
)
pods = st.builds(
    PodFacts,
    node=st.sampled_from(NAMES),
    requests=st.sampled_from([(), (("cpu", 1000),), (("cpu", 2**62), ("gpu", 1)), (("cpu", 0),)]),
)
flavor_names = st.sampled_from(["main", "twin", "coarse"])
usages = st.one_of(
    st.builds(
        lambda flavor, host, n: on_hosts(flavor, **{host: n}), flavor_names, st.sampled_from(NAMES), st.integers(1, 3)
    ),
    st.builds(
        lambda flavor, rack: AssignedUsage(
            flavor=flavor, assignment=TopologyAssignment(BY_RACK, (Domain(("b1", rack), 2),)), requests={"gpu": 1}
        ),
        flavor_names,
        st.sampled_from(["r1", "r2"]),
    ),
)
events = st.one_of(
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("node-gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("pod"), st.sampled_from(["p0", "p1"]), st.one_of(pods, st.none())),
    st.tuples(st.just("usage"), st.sampled_from(["w0", "w1"]), st.lists(usages, max_size=3)),
    st.tuples(st.just("usage-gone"), st.sampled_from(["w0", "w1"])),
    st.tuples(st.just("flavor"), flavor_names, st.sampled_from(["hosts", "racks", None, "unknown"]), st.booleans()),
    st.tuples(st.just("levels"), st.sampled_from([BY_HOST, (BLOCK, "row", HOSTNAME), None])),
    st.tuples(st.just("ask")),
)


def tell(ledger: NodeLedger, event: tuple[Any, ...]) -> None:
    match event:
        case ("node", node):
            ledger.on_node(node.name, node)
        case ("node-gone", name):
            ledger.on_node(name, None)
        case ("pod", key, pod):
            ledger.on_pod(key, pod)
        case ("usage", workload, held):
            ledger.add_usage(workload, held)
        case ("usage-gone", workload):
            ledger.remove_usage(workload)
        case ("flavor", name, None, _):
            ledger.on_flavor(name, None)
        case ("flavor", name, topology, first_pool):
            ledger.on_flavor(name, make_flavor(name, topology, "a" if first_pool else "b"))
        case ("levels", levels):
            ledger.on_topology("hosts", levels)
        case _:
            ledger.snapshot()


@settings(max_examples=200, deadline=None)
@given(history=st.lists(events, max_size=30), merge=st.booleans(), share=st.booleans())
def test_after_every_event_the_ledger_equals_one_made_anew(
    history: list[tuple[Any, ...]], merge: bool, share: bool
) -> None:
    """Sums, trees and free amounts never depend on the order of events."""
    ledger = make_ledger(merge_duplicate_hostnames=merge, share_hosts=share)
    for event in history:
        tell(ledger, event)
        assert ledger.audit() == []
