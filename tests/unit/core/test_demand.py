"""What is kept of workloads' forms is used only while all that it follows from is as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kqueue.core import flavors, quota
from kqueue.core.demand import Demands
from kqueue.core.explain import BlockerKind, message
from kqueue.core.flavors import Assignment, Mode
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import Capacity, Leaf, NodeRules, PodSetRequest, Taint, TopologyRequest, Tree
from kqueue.core.workload import Flavor, Head, PodSet, QueueSpec, ResourceGroup, Snapshot, TopologyView
from tests.builders import LEVELS, START, make_node, make_snapshot

CPU = "cpu"
LABELLED = Flavor(name="f", node_labels={"pool": "a"})
PLACED = Flavor(name="f", topology="dc")
POOL_A = NodeRules(selector=(("pool", "a"),))


def make_pod_sets(*pods: int, topology: TopologyRequest | None = None, **request: Any) -> tuple[PodSet, ...]:
    """Pod sets `a`, `b` and so on, each of so many pods of one cpu."""
    return tuple(
        PodSet(
            request=PodSetRequest(
                name=name, count=count, requests={CPU: 1}, topology=topology or TopologyRequest(), **request
            ),
            quota_requests={CPU: 1},
            asks_topology=topology is not None,
        )
        for name, count in zip("abc", pods, strict=False)
    )


def make_view(levels: Sequence[str]) -> TopologyView:
    """One domain of topology `dc`."""
    node = make_node("n", block="b", rack="r")
    tree = Tree(topology="dc", levels=levels, leaves=[Leaf(tuple(node.labels[level] for level in levels), (node,))])
    return TopologyView("dc", tree, Capacity.of(tree))


def make_world(
    listed: Sequence[Flavor] = (Flavor(name="f"),),
    *,
    free: int = 9,
    levels: Sequence[str] = LEVELS,
    queues: Sequence[str] = ("team",),
    **settings: Any,
) -> Snapshot:
    """Queues that list `f` and `g`, each with so much cpu in both; `settings` are their policies."""
    groups = settings.pop("groups", (ResourceGroup((CPU,), ("f", "g")),))
    return make_snapshot(
        {name: {"f": free, "g": free} for name in queues},
        specs=[QueueSpec(name=name, groups=groups, **settings) for name in queues],
        flavors=[*listed, Flavor(name="g")],
        topologies={"f": make_view(levels)},
        resource=CPU,
    )


def assign(snapshot: Snapshot, pod_sets: tuple[PodSet, ...], demands: Demands, queue: str = "team") -> Assignment:
    """Flavors for a workload of these pod sets."""
    head = Head(key="ns/w", uid="w", queue=queue, priority=0, timestamp=START, pod_sets=pod_sets)
    return flavors.assign(head, snapshot, demands=demands)


def chosen(assignment: Assignment) -> dict[str, Mapping[str, str]]:
    return dict(assignment.flavors)


@pytest.mark.parametrize(
    ("before", "after", "request_", "want"),
    [
        pytest.param(
            {},
            {"listed": [replace(LABELLED, node_labels={"pool": "b"})]},
            {"rules": POOL_A},
            {"a": {CPU: "g"}},
            id="the flavor has other labels",
        ),
        pytest.param(
            {}, {"listed": [replace(LABELLED, taints=(Taint("spot"),))]}, {}, {"a": {CPU: "g"}}, id="it has a taint"
        ),
        pytest.param({}, {"listed": []}, {}, {"a": {CPU: "g"}}, id="it is gone"),
        pytest.param({"listed": []}, {}, {}, {"a": {CPU: "f"}}, id="it is there again"),
        pytest.param({}, {"listed": [PLACED]}, {}, {"a": {CPU: "g"}}, id="it places by topology"),
        pytest.param(
            {}, {"groups": (ResourceGroup((CPU,), ("g", "f")),)}, {}, {"a": {CPU: "g"}}, id="the queue has them in turn"
        ),
        pytest.param(
            {}, {"groups": (ResourceGroup((CPU,), ("g",)),)}, {}, {"a": {CPU: "g"}}, id="the queue lists one less"
        ),
        pytest.param({}, {"groups": ()}, {}, {}, id="the queue covers nothing of it"),
        pytest.param(
            {"groups": ()}, {"groups": (), "ignores_undeclared": True}, {}, {"a": {}}, id="what it lacks is ignored"
        ),
        pytest.param({}, {"free": 1}, {}, {}, id="quota is less"),
        pytest.param({"free": 1}, {}, {}, {"a": {CPU: "f"}}, id="quota is more"),
    ],
)
def test_a_kept_answer_is_good_for_what_it_was_found_with(
    before: Mapping[str, Any], after: Mapping[str, Any], request_: Mapping[str, Any], want: Mapping[str, Any]
) -> None:
    """The second cycle sees the same pod sets, and something else has changed."""
    world, pod_sets = {"listed": [LABELLED]}, make_pod_sets(2, **request_)
    demands = Demands()
    first = assign(make_world(**{**world, **before}), pod_sets, demands)
    second = assign(make_world(**{**world, **after}), pod_sets, demands)

    assert chosen(second) == want != chosen(first)


def test_a_topology_that_loses_a_level_serves_nobody_any_more_who_names_it() -> None:
    """The flavor is the same object all the time."""
    wish, demands = TopologyRequest(required="rack"), Demands()
    pod_sets = make_pod_sets(2, topology=wish)

    served = assign(make_world([PLACED]), pod_sets, demands)
    refused = assign(make_world([PLACED], levels=(LEVELS[0], LEVELS[2])), pod_sets, demands)
    again = assign(make_world([PLACED]), pod_sets, demands)

    assert (chosen(served), chosen(again)) == ({"a": {CPU: "f"}}, {"a": {CPU: "f"}})
    assert refused.mode is Mode.NO_FIT
    assert f"Topology dc has no level rack; it has {LEVELS[0]}, {LEVELS[2]}" in message(refused.blockers)


def test_a_flavor_without_its_topology_is_refused_and_places_nothing() -> None:
    """What was to be placed is not what was to be placed before."""
    demands, pod_sets = Demands(), make_pod_sets(2, topology=TopologyRequest(required="rack"))
    world = make_world([PLACED])

    assert assign(world, pod_sets, demands).places == {"f": [pod_sets[0].request]}
    without = assign(replace(world, topologies={}), pod_sets, demands)

    assert without.places == {}
    assert "Topology dc is not known" in message(without.blockers)


def test_what_is_handed_out_goes_with_the_flavor_that_it_was_worked_out_for() -> None:
    """A pod set that requests nothing stands where its group is placed, as long as its flavor places."""
    demands = Demands()
    leader = PodSet(
        request=PodSetRequest(name="leader", count=1, requests={}, topology=TopologyRequest(implied=True), group="g"),
        quota_requests={},
    )
    (workers,) = make_pod_sets(2, topology=TopologyRequest(implied=True), group="g")
    both = (leader, workers)

    placed = assign(make_world([PLACED]), both, demands)
    assert placed.places == {"f": [leader.request, workers.request]}
    renamed = assign(make_world([replace(PLACED, node_labels={"pool": "b"})]), both, demands)

    assert renamed.places == placed.places
    assert renamed.pod_sets is not placed.pod_sets


def test_usage_of_now_decides() -> None:
    """Of who uses how much nothing is kept."""
    world, demands, pod_sets = make_world(), Demands(), make_pod_sets(5)
    node, column = world.nodes["team"], FlavorResource("f", CPU)
    found = [chosen(assign(world, pod_sets, demands))]
    quota.add_usage(node, column, 5)
    found.append(chosen(assign(world, pod_sets, demands)))
    quota.remove_usage(node, column, 5)
    found.append(chosen(assign(world, pod_sets, demands)))

    assert found == [{"a": {CPU: "f"}}, {"a": {CPU: "g"}}, {"a": {CPU: "f"}}]


def test_queues_that_list_the_same_share_what_they_hand_out() -> None:
    """Blockers name their own queue all the same."""
    demands, pod_sets = Demands(), make_pod_sets(5)
    world = make_world(queues=("one", "two"))

    first, second = (assign(world, pod_sets, demands, queue) for queue in ("one", "two"))
    assert first.pod_sets is second.pod_sets
    assert first.usage is second.usage
    refused = [assign(make_world(queues=("one", "two"), free=1), pod_sets, demands, q) for q in ("one", "two")]

    assert [{b.queue for b in each.blockers} for each in refused] == [{"one"}, {"two"}]
    assert {b.kind for each in refused for b in each.blockers} == {BlockerKind.EXCEEDS_MAX_QUOTA}


def test_several_groups_add_up_each_time() -> None:
    """What one group gets is not changed by what is added for the next one."""
    demands, pod_sets, world = Demands(), make_pod_sets(2, 3), make_world()
    column = FlavorResource("f", CPU)

    found = [assign(world, pod_sets, demands) for _ in range(3)]

    assert [each.usage for each in found] == [{column: 5}] * 3
    assert [[p.usage for p in each.pod_sets] for each in found] == [[{CPU: 2}, {CPU: 3}]] * 3
    assert [each.last_tried for each in found] == [{("a", CPU): 0, ("b", CPU): 0}] * 3


def test_pod_sets_of_two_groups_are_placed_together() -> None:
    """Each in the flavor of its own group."""
    pod_sets = make_pod_sets(2, 3, topology=TopologyRequest(required="rack"))
    found = assign(make_world([PLACED]), pod_sets, Demands())

    assert found.places == {"f": [p.request for p in pod_sets]}


def test_forms_beyond_the_most_are_not_kept() -> None:
    """Somebody who makes all workloads different gets no memory of ours."""
    world, demands = make_world(), Demands(most=3)
    for pods in range(1, 9):
        assert assign(world, make_pod_sets(pods), demands).usage == {FlavorResource("f", CPU): pods}
        assert len(demands) <= 3


def test_pod_sets_that_come_after_others_have_gone_are_not_taken_for_them() -> None:
    """What is made next takes the memory of what has gone."""
    world, demands = make_world(), Demands()
    gone = [make_pod_sets(1) for _ in range(99)]
    for pod_sets in gone:
        assign(world, pod_sets, demands)
    where = {id(pod_sets) for pod_sets in gone}
    del gone, pod_sets
    new = [make_pod_sets(2) for _ in range(9999)]

    assert where.isdisjoint(map(id, new))
    assert all(assign(world, pod_sets, demands).usage == {FlavorResource("f", CPU): 2} for pod_sets in new[:99])
