"""Elastic jobs: what a larger or smaller workload slice takes over from the one that it replaces."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    Domain,
    Misfit,
    MisfitCode,
    Placement,
    PodSetRequest,
    TopologyAssignment,
    place,
    place_workload,
    usage_of,
)
from tests.unit.core.topology_cases import LEVELS, RACK, hosts, make_node, make_pod_set, make_tree, racks


def held(places: Mapping[str, int]) -> TopologyAssignment:
    """An assignment to these hosts."""
    return TopologyAssignment((HOSTNAME,), tuple(Domain((host,), pods) for host, pods in places.items()))


@pytest.mark.parametrize(
    ("previous", "pods", "want"),
    [
        pytest.param({"b": 2}, 5, {"a": 3, "b": 2}, id="new-pods-go-where-they-fit-best-beside-those-that-stay"),
        pytest.param({"b": 2}, 4, {"b": 4}, id="and-may-join-them"),
        pytest.param({"a": 2, "b": 4}, 4, {"a": 2, "b": 2}, id="the-last-places-are-given-up"),
        pytest.param({"a": 2, "b": 4}, 2, {"a": 2}, id="whole-domains-too"),
        pytest.param({"a": 2, "b": 4}, 6, {"a": 2, "b": 4}, id="the-same-number-stays"),
        pytest.param({"a": 9, "b": 9}, 17, {"a": 9, "b": 8}, id="what-stays-needs-no-room"),
        pytest.param({"gone": 2}, 2, {"a": 2}, id="a-place-that-is-gone-means-a-new-start"),
    ],
)
def test_pods_of_the_replaced_slice_stay_where_they_are(
    previous: Mapping[str, int], pods: int, want: Mapping[str, int]
) -> None:
    """Unconstrained pods on hosts a:3 and b:4, which are free but for the replaced slice."""
    capacity = racks({"a": 3, "b": 4})
    found = place(capacity, [make_pod_set(pods, unconstrained=True)], previous={"main": held(previous)})
    assert hosts(found) == want
    assert (capacity.free(0)["cpu"], capacity.free(1)["cpu"]) == (3000, 4000)


def test_what_stays_is_subtracted_once() -> None:
    """A host of four with three pods has room for one more, and not for two."""
    grown = [make_pod_set(n, unconstrained=True) for n in (4, 5)]
    fits, misfit = (place(racks({"a": 4}), [pod_set], previous={"main": held({"a": 3})}) for pod_set in grown)
    assert hosts(fits) == {"a": 4}
    assert isinstance(misfit, Misfit)
    assert (misfit.code, misfit.fit, misfit.total) == (MisfitCode.NO_FIT, 1, 2)


def test_only_new_pods_are_counted_in_slices() -> None:
    """One pod more is less than a slice of two."""
    found = place(
        racks({"a": 8}),
        [make_pod_set(3, unconstrained=True, slices=[(HOSTNAME, 2)])],
        previous={"main": held({"a": 2})},
    )
    assert isinstance(found, Misfit)
    assert (found.code, found.count, found.size) == (MisfitCode.COUNT_BELOW_SLICE_SIZE, 1, 2)


@pytest.mark.parametrize(
    "pods", [pytest.param(2, id="smaller"), pytest.param(3, id="equal"), pytest.param(4, id="larger")]
)
def test_later_pod_sets_see_what_was_taken_over(pods: int) -> None:
    """Whatever stays on host a is not free for the next pod set."""
    pod_sets = [make_pod_set(pods, unconstrained=True), make_pod_set(8 - pods, name="next", unconstrained=True)]
    found = place(racks({"a": 4, "b": 4}), pod_sets, previous={"main": held({"a": 3})})
    assert hosts(found) == {"a": pods}
    assert hosts(found, "next") == ({"a": 4 - pods, "b": 4} if pods < 4 else {"b": 4})


def test_a_failing_slice_keeps_nothing_charged() -> None:
    """The capacity is as before, and the misfit is about the new pods."""
    capacity = racks({"a": 4})
    assert isinstance(place(capacity, [make_pod_set(9, implied=True)], previous={"main": held({"a": 3})}), Misfit)
    assert capacity.free(0)["cpu"] == 4000


def ring(workers: int) -> list[PodSetRequest]:
    """A leader of two cores and workers of one, as a group."""
    return [
        make_pod_set(1, name="leader", cores=2, group="ring", preferred=RACK),
        make_pod_set(workers, name="workers", group="ring", preferred=RACK),
    ]


@pytest.mark.parametrize(
    ("workers", "previous", "want_leader", "want_workers"),
    [
        pytest.param(
            5, {"leader": {"b": 1}, "workers": {"a": 2}}, {"b": 1}, {"a": 4, "b": 1}, id="the-leader-keeps-its-place"
        ),
        pytest.param(5, {"workers": {"a": 4}}, {"b": 1}, {"a": 4, "b": 1}, id="a-new-leader-comes-with-new-workers"),
        pytest.param(2, {"leader": {"b": 1}, "workers": {"b": 4}}, {"b": 1}, {"b": 2}, id="fewer-workers"),
        pytest.param(2, {"workers": {"b": 4}}, {"a": 1}, {"a": 2}, id="a-new-leader-without-new-workers-starts-anew"),
        pytest.param(2, {"leader": {"b": 1}}, {"a": 1}, {"a": 2}, id="new-workers-start-anew-with-their-leader"),
        pytest.param(
            3,
            {"leader": {"gone": 1}, "workers": {"b": 2}},
            {"a": 1},
            {"a": 2, "b": 1},
            id="a-lost-leader-starts-all-anew",
        ),
    ],
)
def test_a_leader_stays_with_its_workers(
    workers: int,
    previous: Mapping[str, Mapping[str, int]],
    want_leader: Mapping[str, int],
    want_workers: Mapping[str, int],
) -> None:
    """Hosts a:4 and b:4 in one rack."""
    found = place(
        racks({"a": 4, "b": 4}), ring(workers), previous={name: held(places) for name, places in previous.items()}
    )
    assert hosts(found, "leader") == want_leader
    assert hosts(found, "workers") == want_workers


def test_a_group_that_cannot_grow_fails_as_one() -> None:
    """The first member in request order is named, though its own place is kept."""
    found = place(
        racks({"a": 4, "b": 4}), ring(7), previous={"leader": held({"a": 1}), "workers": held({"a": 2, "b": 2})}
    )
    assert isinstance(found, Misfit)
    assert (found.pod_set, found.group, found.fit, found.total) == ("leader", "ring", 2, 3)


@pytest.mark.parametrize(
    ("levels", "previous", "want"),
    [
        pytest.param(LEVELS[:2], held({"b": 2}), ("b1", "r1"), id="the-host-level-was-removed"),
        pytest.param(
            LEVELS, TopologyAssignment(LEVELS, (Domain(("b1", "r1", "b"), 2),)), ("a",), id="whole-paths-were-written"
        ),
    ],
)
def test_an_assignment_of_other_levels_is_not_taken_over(
    levels: tuple[str, ...], previous: TopologyAssignment, want: tuple[str, ...]
) -> None:
    """The topology was another one then: its places mean nothing any more."""
    full = [make_node(f"full-{i:02}", 0) for i in range(70)]
    capacity = Capacity.of(make_tree([make_node("a", 3), make_node("b", 4), *full], levels))
    found = place(capacity, [make_pod_set(2, implied=True)], previous={"main": previous})
    assert isinstance(found, Placement)
    assert found["main"].assignment.domains == (Domain(want, 2),)


def test_topologies_without_host_names_keep_whole_paths() -> None:
    """Places are compared by every level."""
    nodes = [make_node(f"{b}{r}", 4, block=b, rack=r) for b in ("b1", "b2") for r in ("r1", "r2")]
    capacity = Capacity.of(make_tree(nodes, LEVELS[:2]))
    previous = TopologyAssignment(LEVELS[:2], (Domain(("b2", "r1"), 3),))
    found = place(capacity, [make_pod_set(6, implied=True)], previous={"main": previous})
    assert isinstance(found, Placement)
    assert [(d.values, d.count) for d in found["main"].assignment.domains] == [(("b1", "r1"), 3), (("b2", "r1"), 3)]


def test_usage_of_a_grown_slice_is_all_of_it() -> None:
    """What the caller charges holds the pods that stay and those that are new; there is no quality to be measured."""
    found = place(
        racks({"a": 4, "b": 4}), [make_pod_set(6, implied=True)], previous={"main": held({"a": 3})}, measure=True
    )
    assert isinstance(found, Placement)
    assert [(usage.values, usage.count) for usage in usage_of(found)] == [(("a",), 3), (("b",), 3)]
    assert found["main"].quality == ()


def test_every_flavor_takes_over_its_own_pod_sets() -> None:
    """Previous assignments are given once for all flavors of a workload."""
    results = place_workload(
        {"blue": racks({"a": 4}), "green": racks({"c": 4, "d": 4})},
        {
            "blue": [make_pod_set(3, name="one", implied=True)],
            "green": [make_pod_set(3, name="two", implied=True)],
        },
        previous={"one": held({"a": 2}), "two": held({"d": 2})},
    )
    assert hosts(results["blue"], "one") == {"a": 3}
    assert hosts(results["green"], "two") == {"d": 3}
