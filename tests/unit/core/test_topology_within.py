"""Placement within the domains of other pods: as if the topology had no other domains, or these domains first."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.core.topology import (
    Algorithm,
    Capacity,
    GangDomains,
    Misfit,
    MisfitCode,
    NodeFacts,
    NodeRules,
    NodeTerm,
    Placement,
    PodSetRequest,
    Profile,
    Requirement,
    SliceLayer,
    TopologyRequest,
    WeightedTerm,
    place,
)
from tests.unit.core.topology_cases import (
    LEVELS,
    RACK,
    hosts,
    make_node,
    make_pod_set,
    make_tree,
    place_one,
    racks,
)

GOLD = WeightedTerm(5, NodeTerm(expressions=(Requirement("disk", "In", ("gold",)),)))


def near(capacity: Capacity, *racks_: str, required: bool = True) -> GangDomains:
    """Racks of block b1."""
    return GangDomains(levels=capacity.tree.levels[:2], paths=tuple(("b1", rack) for rack in racks_), required=required)


def drawn_nodes(chance: random.Random) -> list[NodeFacts]:
    """Up to 3 blocks of up to 3 racks of up to 5 hosts, some with a better disk."""
    return [
        make_node(
            f"b{block}-r{rack}-h{number}",
            chance.randint(0, 6),
            block=f"b{block}",
            rack=f"r{rack}",
            labels={"disk": chance.choice(["gold", "tin"])},
        )
        for block in range(chance.randint(1, 3))
        for rack in range(chance.randint(1, 3))
        for number in range(chance.randint(1, 5))
    ]


def path_of(node: NodeFacts) -> tuple[str, ...]:
    """Block, rack and host of a node."""
    return tuple(node.labels[level] for level in LEVELS)


def drawn_pod_sets(chance: random.Random) -> list[PodSetRequest]:
    """One pod set, or a leader and workers, perhaps with slices."""
    asked: dict[str, Any] = chance.choice(
        [{"required": level} for level in LEVELS]
        + [{"preferred": level} for level in LEVELS]
        + [{"unconstrained": True}]
    )
    size = chance.choice([1, 1, 1, 2, 3])
    slices = () if size == 1 else (SliceLayer(chance.choice(LEVELS), size),)
    group = "g" if chance.random() < 0.3 else None
    rules = NodeRules(preferred=(GOLD,)) if chance.random() < 0.3 else NodeRules()
    workers = make_pod_set(
        size * chance.randint(1, 6), name="workers", cores=chance.randint(1, 3), group=group, rules=rules
    )
    workers = replace(workers, topology=TopologyRequest(slices=slices, **asked))
    if group is None or "unconstrained" in asked:
        return [replace(workers, group=None)]
    return [make_pod_set(1, name="leader", cores=chance.randint(1, 2), group=group, **asked), workers]


@pytest.mark.parametrize("algorithm", Algorithm)
@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_a_placement_within_domains_is_that_of_a_cluster_without_the_others(algorithm: Algorithm, seed: int) -> None:
    """All algorithms, levels, slices, leaders and preferred affinity, in one or two domains of one level."""
    chance = random.Random(seed)
    nodes, pod_sets = drawn_nodes(chance), drawn_pod_sets(chance)
    profile = Profile(constrained=algorithm, preferred_affinity=chance.random() < 0.3)
    depth = chance.randint(1, 3)
    paths = {path_of(node)[:depth] for node in chance.choices(nodes, k=chance.randint(1, 2))}
    within = GangDomains(levels=LEVELS[:depth], paths=tuple(sorted(paths)))

    inside = [node for node in nodes if path_of(node)[:depth] in paths]
    expected = place(Capacity.of(make_tree(inside)), pod_sets, profile=profile)
    found = place(Capacity.of(make_tree(nodes)), [replace(p, within=within) for p in pod_sets], profile=profile)

    if isinstance(expected, Misfit):
        assert isinstance(found, Misfit), (seed, found)
        assert (found.code, found.level, found.fit, found.total) == (
            expected.code, expected.level, expected.fit, expected.total,
        )  # fmt: skip
    else:
        assert found == expected, seed


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_domains_that_are_not_required_only_come_first(seed: int) -> None:
    """There is a placement exactly if there is one without these domains; it is inside if there is one inside."""
    chance = random.Random(seed)
    nodes, pod_sets = drawn_nodes(chance), drawn_pod_sets(chance)
    capacity = Capacity.of(make_tree(nodes))
    within = GangDomains(levels=LEVELS[:2], paths=(path_of(chance.choice(nodes))[:2],))

    inside = place(capacity, [replace(p, within=within) for p in pod_sets])
    anywhere = place(capacity, pod_sets)
    found = place(capacity, [replace(p, within=replace(within, required=False)) for p in pod_sets])

    assert found == (anywhere if isinstance(inside, Misfit) else inside), seed


def test_a_free_rack_elsewhere_is_no_place_for_an_extra() -> None:
    """The rack of the gang is full; the message tells the rack, what it lacks, and that others are out."""
    capacity = racks({"a1": 1}, {"b1": 9})

    found = place_one(capacity, replace(make_pod_set(1, cores=2, required=RACK), within=near(capacity, "r1")))

    assert isinstance(found, Misfit)
    assert (found.code, found.best_domain, found.excluded.topology_domain) == (MisfitCode.NO_FIT, ("b1", "r1"), 1)


def test_domains_of_another_topology_are_nowhere() -> None:
    """Paths are of the levels that they name: a rack of that name in a tree with other levels is another rack."""
    capacity = racks({"a1": 9})
    other = GangDomains(levels=("zone", RACK), paths=(("b1", "r1"),))

    assert isinstance(place_one(capacity, replace(make_pod_set(1, required=RACK), within=other)), Misfit)
    assert isinstance(
        place_one(capacity, replace(make_pod_set(1, required=RACK), within=GangDomains(levels=(RACK,), paths=()))),
        Misfit,
    )


def test_an_elastic_pod_set_grows_within_the_domain() -> None:
    """Its pods keep their places, the new one goes where it may."""
    capacity = racks({"a1": 2, "a2": 1}, {"b1": 9})
    before = place_one(capacity, make_pod_set(2, unconstrained=True), within=("b1", "r1"))
    assert isinstance(before, Placement)

    grown = replace(make_pod_set(3, unconstrained=True), within=near(capacity, "r1"))
    found = place(capacity, [grown], previous={"main": before["main"].assignment})

    assert hosts(found) == {"a1": 2, "a2": 1}
    too_many = place(capacity, [replace(grown, count=4)], previous={"main": before["main"].assignment})
    assert isinstance(too_many, Misfit)
