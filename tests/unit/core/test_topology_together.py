"""Pod sets of a gang that share a level: one domain has all of them, or there is none that could."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.core.explain import brief, message
from kqueue.core.topology import (
    Algorithm,
    Capacity,
    Misfit,
    MisfitCode,
    NodeFacts,
    Placement,
    PodSetRequest,
    Profile,
    SliceLayer,
    TopologyRequest,
    place_workload,
    usage_of,
)
from kqueue.core.topology_blockers import topology_blocker
from tests.unit.core.topology_cases import BLOCK, LEVELS, RACK, hosts, make_node, make_pod_set, make_tree, racks

Free = Mapping[tuple[str, ...], Mapping[str, int]]
GPU = "gpu"


def role(count: int, name: str, cores: int = 1, **topology: Any) -> PodSetRequest:
    """Pods of one role of a gang whose group object names the level."""
    return replace(make_pod_set(count, name=name, cores=cores, **(topology or {"required": RACK})), together=True)


def place_gang(capacity: Capacity, *roles: PodSetRequest, **options: Any) -> Placement | Misfit:
    """Place all roles in one flavor."""
    return place_workload({"tas": capacity}, {"tas": list(roles)}, **options)["tas"]


def racks_of(found: Placement) -> set[tuple[str, ...]]:
    """Block and rack of all pods."""
    return {path[:2] for pod_set in found.pod_sets for path in pod_set.paths}


# --- examples


def test_a_rack_with_room_for_each_role_alone_is_too_small_for_both() -> None:
    """The tightest rack for the workers has no room for the servers besides; a wider one has both."""
    capacity = racks({"a": 4}, {"b": 5}, {"d": 9})

    found = place_gang(capacity, role(4, "workers"), role(1, "servers", cores=2))

    assert isinstance(found, Placement)
    assert [pod_set.name for pod_set in found.pod_sets] == ["workers", "servers"]
    assert racks_of(found) == {("b1", "r3")}


def test_the_domain_with_least_free_capacity_is_taken() -> None:
    """Of racks with room for both roles."""
    capacity = racks({"a": 9}, {"b": 4, "c": 2}, {"d": 7})

    found = place_gang(capacity, role(4, "workers"), role(1, "servers", cores=2))

    assert hosts(found, "servers") == {"c": 1}
    assert hosts(found, "workers") == {"b": 4}


def test_a_role_with_a_level_of_its_own_is_placed_for_itself() -> None:
    """It stands beside the gang wherever there is room."""
    capacity = racks({"a": 4}, {"b": 2})

    found = place_gang(
        capacity, role(2, "workers"), role(2, "servers"), role(2, "logs", required="kubernetes.io/hostname")
    )

    assert isinstance(found, Placement)
    assert {path[:2] for p in found.pod_sets if p.name != "logs" for path in p.paths} == {("b1", "r1")}
    assert hosts(found, "logs") == {"b": 2}


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (({"a": 2}, {"b": 4}, {"c": 1}), {("b1", "r2")}),
        (({"a": 3}, {"b": 1}, {"c": 0}), {("b1", "r1"), ("b1", "r2")}),
    ],
    ids=["one rack", "one block"],
)
def test_a_preferred_level_is_followed_by_wider_ones(
    free: Sequence[dict[str, int]], expected: set[tuple[str, ...]]
) -> None:
    """A rack, else a block."""
    found = place_gang(racks(*free), role(3, "workers", preferred=RACK), role(1, "servers", preferred=RACK))

    assert isinstance(found, Placement)
    assert racks_of(found) == expected


def test_without_a_common_domain_a_preferred_level_is_each_roles_own() -> None:
    """Two blocks, none of which has room for both roles."""
    nodes = [make_node("a", 3, block="b1", rack="r1"), make_node("b", 3, block="b2", rack="r2")]
    capacity = Capacity.of(make_tree(nodes))

    found = place_gang(capacity, role(3, "workers", preferred=RACK), role(3, "servers", preferred=RACK))

    assert (hosts(found, "workers"), hosts(found, "servers")) == ({"a": 3}, {"b": 3})


def test_roles_in_two_flavors_share_a_rack() -> None:
    """The nodes of both flavors stand in the same racks."""
    cpu = Capacity.of(
        make_tree([make_node("a", 8, rack="r1"), make_node("b", 2, rack="r2"), make_node("c", 9, rack="r3")])
    )
    gpu = Capacity.of(make_tree([make_node("d", 1, rack="r1"), make_node("e", 4, rack="r2")]))

    requests = {"cpu": [role(2, "servers")], "gpu": [role(3, "workers")]}
    found = place_workload({"cpu": cpu, "gpu": gpu}, requests)

    assert hosts(found["cpu"], "servers") == {"b": 2}
    assert hosts(found["gpu"], "workers") == {"e": 3}


def test_flavors_of_other_levels_have_no_common_domain() -> None:
    """A rack of that name in another topology is another rack."""
    one = racks({"a": 8})
    other = Capacity.of(make_tree([make_node("b", 8)], levels=(RACK, "kubernetes.io/hostname")))

    found = place_workload({"one": one, "other": other}, {"one": [role(1, "a")], "other": [role(1, "b")]})

    misfit = found["one"]
    assert isinstance(misfit, Misfit)
    assert (misfit.code, misfit.detail) == (
        MisfitCode.INVALID_GROUP,
        "pod sets that share level rack are in flavors whose topologies have not the same levels",
    )


def test_pods_that_fit_in_one_way_only_get_it() -> None:
    """Larger pods first would waste the hosts: 4 + 3 + 3 and 5 + 5, and no other way."""
    capacity = racks({"a": 10, "b": 10})

    found = place_gang(capacity, role(2, "fives", cores=5), role(1, "fours", cores=4), role(2, "threes", cores=3))

    assert isinstance(found, Placement)
    assert sum(domain.count for p in found.pod_sets for domain in p.assignment.domains) == 5


def test_more_domains_than_can_be_tried_are_tried_from_both_ends() -> None:
    """The sums of a thousand racks suffice, and only the roomiest has a host for the large pod."""
    split = [{f"h{i}-{j}": 2 for j in range(3)} for i in range(1000)]
    capacity = racks(*split, {"big": 9})

    found = place_gang(capacity, role(1, "large", cores=3), role(3, "small"), profile=Profile(search_limit=500))

    assert hosts(found, "large") == {"big": 1}


def test_a_planners_proposal_counts_if_it_is_one_rack() -> None:
    """Otherwise the search decides."""
    capacity = racks({"a": 4}, {"b": 9}, {"c": 9})
    roles = role(2, "workers"), role(2, "servers")

    here = {"workers": [(("b1", "r3", "c"), 2)], "servers": [(("b1", "r3", "c"), 2)]}
    apart = {"workers": [(("b1", "r3", "c"), 2)], "servers": [(("b1", "r2", "b"), 2)]}

    assert hosts(place_gang(capacity, *roles, hint=here), "workers") == {"c": 2}
    assert hosts(place_gang(capacity, *roles, hint=apart), "workers") == {"a": 2}


# --- why not


def test_a_misfit_names_the_rack_that_came_closest() -> None:
    """How many pods of all roles fit there, and what is short."""
    capacity = racks({"a": 3}, {"b": 4, "c": 1})

    found = place_gang(capacity, role(4, "workers"), role(2, "servers", cores=2))

    assert isinstance(found, Misfit)
    assert (found.together, found.best_domain, found.fit, found.total) == (("workers", "servers"), ("b1", "r2"), 3, 6)
    blocker = topology_blocker("tas", found)
    assert brief([blocker]) == (
        "Quota is there; no room in the topology: "
        "no rack has room for all roles together: the best, b1/r2, has room for 3 of 6 pods"
    )
    assert message([blocker]) == (
        "no rack has room for all roles together (topology default, flavor tas): the best, b1/r2, has room for 3 of 6 pods; "
        "short of cpu: asked 8, free 5"
    )
    never = topology_blocker("tas", found, never=True)
    assert "even with no workload running" in brief([never])
    assert message([never]).endswith("; ask for fewer pods, smaller pods or a wider level")


def test_a_level_without_domains_has_a_misfit() -> None:
    """No node is left."""
    found = place_gang(Capacity.of(make_tree([])), role(1, "a"), role(1, "b"))

    assert isinstance(found, Misfit)
    assert brief([topology_blocker("tas", found)]).endswith("no rack has room for all roles together")


# --- properties


def drawn(chance: random.Random, **topology: Any) -> tuple[list[NodeFacts], list[PodSetRequest]]:
    """Up to 2 blocks of up to 3 racks of up to 3 hosts; two or three roles."""
    nodes = [
        make_node(
            f"b{block}-r{rack}-h{number}",
            chance.randint(0, 6),
            block=f"b{block}",
            rack=f"r{rack}",
            allocatable={GPU: chance.randint(0, 3)},
        )
        for block in range(chance.randint(1, 2))
        for rack in range(chance.randint(1, 3))
        for number in range(chance.randint(1, 3))
    ]
    roles = []
    for i in range(chance.randint(2, 3)):
        requests = {"cpu": 1000 * chance.randint(1, 3), GPU: chance.choice([0, 0, 1])}
        roles.append(replace(role(chance.randint(1, 4), f"r{i}", **topology), requests=requests))
    return nodes, roles


def packs(free: Free, roles: Sequence[PodSetRequest]) -> bool:
    """Whether there is any way to put all pods on these hosts."""
    left = {path: dict(amounts) for path, amounts in free.items()}
    pods = [request.requests for request in roles for _ in range(request.count)]

    def put(number: int, seen: tuple[str, ...] | None) -> bool:
        if number == len(pods):
            return True
        same = number > 0 and pods[number] == pods[number - 1]
        for path in sorted(left):
            if same and seen is not None and path < seen:
                continue  # equal pods are put in one order only
            if all(left[path].get(resource, 0) >= amount for resource, amount in pods[number].items()):
                for resource, amount in pods[number].items():
                    left[path][resource] = left[path].get(resource, 0) - amount
                if put(number + 1, path):
                    return True
                for resource, amount in pods[number].items():
                    left[path][resource] += amount
        return False

    return put(0, None)


def by_domain(nodes: Sequence[NodeFacts], level: int) -> dict[tuple[str, ...], Free]:
    """The free amounts of the hosts of each domain."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], Mapping[str, int]]] = {}
    for node in nodes:
        path = tuple(node.labels[label] for label in LEVELS)
        found.setdefault(path[: level + 1], {})[path] = node.allocatable
    return dict(found)


def assert_holds(nodes: Sequence[NodeFacts], roles: Sequence[PodSetRequest], found: Placement) -> None:
    """Each pod has a place, and each host has the room."""
    assert {p.name: p.assignment.count for p in found.pod_sets} == {request.name: request.count for request in roles}
    assert Capacity.of(make_tree(nodes)).fits(usage_of(found))


@pytest.mark.parametrize("algorithm", Algorithm)
@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_a_required_level_is_met_exactly_if_it_can_be(algorithm: Algorithm, seed: int) -> None:
    """As brute force says, in the domain with least free capacity of those that can; nothing is charged afterwards."""
    nodes, roles = drawn(random.Random(seed), required=RACK)
    capacity = Capacity.of(make_tree(nodes))
    before = [capacity.free(leaf) for leaf in range(len(capacity.tree))]

    found = place_gang(capacity, *roles, profile=Profile(constrained=algorithm))

    racks_ = by_domain(nodes, 1)
    able = {path for path, free in racks_.items() if packs(free, roles)}
    assert isinstance(found, Placement) == bool(able), seed
    assert [capacity.free(leaf) for leaf in range(len(capacity.tree))] == before
    if isinstance(found, Placement):
        assert_holds(nodes, roles, found)
        (chosen,) = racks_of(found)
        asked = {r: sum(p.requests.get(r, 0) * p.count for p in roles) for r in ("cpu", GPU)}

        def times(path: tuple[str, ...]) -> float:
            free = racks_[path].values()
            return min(sum(a.get(r, 0) for a in free) / amount for r, amount in asked.items() if amount)

        assert times(chosen) == pytest.approx(min(map(times, able))), seed
    else:
        assert found.together == tuple(request.name for request in roles)
        assert 0 <= found.fit < found.total


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_a_preferred_level_costs_no_place(seed: int) -> None:
    """One rack if one can, else one block, else exactly what each role gets for itself."""
    nodes, roles = drawn(random.Random(seed), preferred=RACK)
    capacity = Capacity.of(make_tree(nodes))

    found = place_gang(capacity, *roles)
    alone = place_gang(capacity, *[replace(request, together=False) for request in roles])

    for level in (1, 0):
        if any(packs(free, roles) for free in by_domain(nodes, level).values()):
            assert isinstance(found, Placement), seed
            assert_holds(nodes, roles, found)
            assert len({path[: level + 1] for p in found.pod_sets for path in p.paths}) == 1, seed
            return
    assert found == alone, seed


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_slices_and_leaders_are_placed_together_too(seed: int) -> None:
    """Whatever their own rules, all pods are in one block, and each rule holds as for a pod set alone."""
    chance = random.Random(seed)
    nodes, roles = drawn(chance, required=BLOCK)
    sliced = replace(
        roles[0], count=2 * roles[0].count, topology=TopologyRequest(required=BLOCK, slices=(SliceLayer(RACK, 2),))
    )
    led = [replace(roles[1], name="leader", group="g", count=1), replace(roles[1], group="g")]
    capacity = Capacity.of(make_tree(nodes))

    found = place_gang(capacity, sliced, *led)

    if isinstance(found, Placement):
        assert_holds(nodes, [sliced, *led], found)
        assert len({path[:1] for p in found.pod_sets for path in p.paths}) == 1
        for rack in {path[:2] for path in found["r0"].paths}:
            there = zip(found["r0"].paths, found["r0"].assignment.domains, strict=True)
            assert sum(domain.count for path, domain in there if path[:2] == rack) % 2 == 0


def test_the_oracle_of_these_tests_can_say_no() -> None:
    """Product of all ways for two pods on two hosts."""
    hosts_: Free = {("a",): {"cpu": 2000}, ("b",): {"cpu": 1000}}
    for first, second in product((1, 2), (1, 2)):
        roles = [role(1, "x", cores=first), role(1, "y", cores=second)]
        assert packs(hosts_, roles) == (first + second <= 3)
