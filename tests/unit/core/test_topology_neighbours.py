"""Rules of a workload's pods about each other: which may not share a host, and which have to share a domain."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    Domain,
    Misfit,
    MisfitCode,
    Placement,
    PodSetRequest,
    Profile,
    TopologyAssignment,
    find_replacement,
    place,
    place_workload,
    repair,
    usage_of,
)
from tests.unit.core.topology_cases import (
    BLOCK,
    LEVELS,
    RACK,
    hosts,
    make_node,
    make_pod_set,
    make_tree,
    place_one,
    racks,
)

ALONE = "example.com/alone"
"""A resource of which each host has one: who asks for one shares its host with nobody else who does."""
PROFILES = (
    Profile(),
    Profile(constrained=Algorithm.LEAST_FREE_CAPACITY),
    Profile(constrained=Algorithm.OPTIMAL),
    Profile(constrained=Algorithm.BALANCED),
)


def apart(pod_set: PodSetRequest, *names: str) -> PodSetRequest:
    """The pod set, kept off hosts with pods of these (none named: its own)."""
    return replace(pod_set, apart=frozenset(names or (pod_set.name,)))


# --- pods that may not share a host ----------------------------------------------------------------------------------


def test_each_pod_has_a_host_of_its_own() -> None:
    """Also in the rack that has most room by its resources, but too few hosts."""
    capacity = racks({"a": 8, "b": 8}, {"c": 2, "d": 2, "e": 2})

    assert hosts(place_one(capacity, apart(make_pod_set(3, required=RACK)))) == {"c": 1, "d": 1, "e": 1}


def test_too_few_hosts_are_told_as_such() -> None:
    """There is no shortage of any resource, and none is named."""
    found = place_one(racks({"a": 8, "b": 8}), apart(make_pod_set(3, required=RACK)))

    assert isinstance(found, Misfit)
    assert (found.code, found.fit, found.total, found.alone, found.shortage) == (MisfitCode.NO_FIT, 2, 3, True, None)


def test_a_resource_that_is_short_as_well_is_named() -> None:
    """Hosts without room are no hosts for it."""
    found = place_one(racks({"a": 8, "b": 1}), apart(make_pod_set(2, cores=2, required=RACK)))

    assert isinstance(found, Misfit)
    assert dict(found.excluded.resources) == {"cpu": 1}


def test_leaves_that_are_no_hosts_take_several() -> None:
    """A rack as the lowest level says nothing of hosts."""
    nodes = [make_node(host, 4) for host in "ab"]
    capacity = Capacity.of(make_tree(nodes, (BLOCK, RACK)))

    assert hosts(place_one(capacity, apart(make_pod_set(4, required=RACK)))) == {"r1": 4}


def test_pod_sets_that_exclude_each_other_may_share_hosts_with_themselves() -> None:
    """Two pod sets with one port each, of which only the other one is a hindrance."""
    capacity = racks({"a": 2, "b": 4})
    pod_sets = [
        apart(make_pod_set(2, name="one", unconstrained=True), "other"),
        apart(make_pod_set(4, name="other", unconstrained=True), "one"),
    ]

    found = place(capacity, pod_sets)

    assert (hosts(found, "one"), hosts(found, "other")) == ({"a": 2}, {"b": 4})


def test_a_pod_set_without_a_host_left_is_told_what_is_there() -> None:
    """The hosts with pods of the other one are counted."""
    pod_sets = [
        apart(make_pod_set(2, name="one", unconstrained=True), "one", "other"),
        apart(make_pod_set(1, name="other", unconstrained=True), "one"),
    ]

    found = place(racks({"a": 2, "b": 4}), pod_sets)

    assert isinstance(found, Misfit)
    assert (found.pod_set, found.excluded.others) == ("other", 2)


def test_flavors_stand_on_the_same_hosts() -> None:
    """What one flavor was given keeps pods of the other one off."""
    nodes = [make_node(host, 4) for host in "ab"]
    capacities = {flavor: Capacity.of(make_tree(nodes)) for flavor in ("first", "second")}
    one, other = (
        apart(make_pod_set(1, name="one", unconstrained=True), "other"),
        apart(make_pod_set(1, name="other", unconstrained=True), "one"),
    )

    found = place_workload(capacities, {"first": [one], "second": [other]})

    assert hosts(found["first"], "one") != hosts(found["second"], "other")


def _random_case(chance: random.Random) -> tuple[Capacity, Capacity, list[PodSetRequest], list[PodSetRequest]]:
    """A cluster and pod sets that exclude each other and themselves: by rule, and by the resource of which hosts have one."""
    facts: list[dict[str, Any]] = [
        {"host": f"h{i}", "cores": chance.randint(0, 6), "rack": f"r{chance.randint(1, 4)}", "block": "b1"}
        for i in range(chance.randint(1, 12))
    ]
    for fact in facts:
        fact["block"] = f"b{1 + (fact['rack'] in ('r3', 'r4'))}"
    plain = Capacity.of(make_tree([make_node(**fact) for fact in facts]))
    ones = Capacity.of(make_tree([make_node(**fact, allocatable={ALONE: 1}) for fact in facts]))
    names = ["one", "other"][: chance.randint(1, 2)]
    grouped = "together" if len(names) == 2 and chance.random() < 0.5 else None
    level: dict[str, Any] = chance.choice(
        [{"required": RACK}, {"required": BLOCK}, {"preferred": RACK}, {"preferred": HOSTNAME}, {"unconstrained": True}]
    )
    slices = chance.choice([(), (), ((RACK, 2),)]) if grouped is None and RACK not in level.values() else ()
    by_rule, by_resource = [], []
    for number, name in enumerate(names):
        count = 1 if grouped and number else chance.randint(1, 5)
        cores = chance.randint(1, 3)
        layers = slices if count % 2 == 0 else ()
        pod_set = make_pod_set(count, name=name, cores=cores, group=grouped, slices=layers, **level)
        by_rule.append(apart(pod_set, *names))
        by_resource.append(replace(pod_set, requests={**pod_set.requests, ALONE: 1}))
    return plain, ones, by_rule, by_resource


@settings(max_examples=600)
@given(st.integers(0, 2**32), st.sampled_from(PROFILES))
def test_the_rule_is_a_resource_of_which_each_host_has_one(seed: int, profile: Profile) -> None:
    """Whatever is placed where, and whatever is not: both ways to say it have the same answer."""
    plain, ones, by_rule, by_resource = _random_case(random.Random(seed))

    found, wanted = place(plain, by_rule, profile=profile), place(ones, by_resource, profile=profile)

    assert isinstance(found, Placement) == isinstance(wanted, Placement)
    if isinstance(found, Placement) and isinstance(wanted, Placement):
        assert [p.assignment for p in found.pod_sets] == [p.assignment for p in wanted.pod_sets]


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_counts_that_are_repaired_keep_the_rule(seed: int) -> None:
    """What is asked again after few or many hosts changed is what a new capacity answers."""
    chance = random.Random(seed)
    plain, _, (pod_set, *_), _ = _random_case(chance)
    place(plain, [pod_set])
    for leaf in chance.sample(range(len(plain.tree)), chance.randint(1, len(plain.tree))):
        plain.put(leaf, {"cpu": chance.randint(0, 6) * 1000})

    columns = [plain.free(leaf) for leaf in range(len(plain.tree))]
    anew = Capacity.of_columns(plain.tree, columns, idle=columns)

    assert place(plain, [pod_set], explain=False) == place(anew, [pod_set], explain=False)


# --- repair, and elastic jobs ----------------------------------------------------------------------------------------


def assigned(**pods: int) -> TopologyAssignment:
    """Pods of each host."""
    return TopologyAssignment((HOSTNAME,), tuple(Domain((host,), count) for host, count in pods.items()))


def test_a_replacement_is_no_host_with_a_pod_of_the_gang() -> None:
    """The hosts that stay have room for a second pod, and must not take it."""
    capacity = racks({"a": 8, "c": 1})
    pod_set = apart(make_pod_set(2, required=RACK))
    holds = assigned(a=1, gone=1)

    found = find_replacement(capacity, pod_set, holds, {"gone"})

    assert not isinstance(found, Misfit)
    assert [domain.values for domain in found.added.assignment.domains] == [("c",)]
    assert isinstance(find_replacement(racks({"a": 8}), pod_set, holds, {"gone"}), Misfit)


def test_a_replacement_is_no_host_with_a_pod_of_another_pod_set() -> None:
    """Neither one that stays nor one that was replaced before it."""
    one = (apart(make_pod_set(1, name="one", unconstrained=True), "other"), assigned(x=1))
    other = (apart(make_pod_set(1, name="other", unconstrained=True), "one"), assigned(y=1))

    found = repair(racks({"a": 1, "b": 8}), [one, other], {"x", "y"})

    assert not isinstance(found, Misfit)
    assert [r.added.assignment.domains[0].values for r in found] == [("a",), ("b",)]


def test_pods_that_a_larger_slice_adds_have_hosts_of_their_own() -> None:
    """What an elastic job has already stays, and nothing new comes beside it."""
    capacity = racks({"a": 8, "b": 8, "c": 1})
    pod_set = apart(make_pod_set(3, unconstrained=True))

    found = place_one(capacity, pod_set, previous={"main": assigned(a=1, b=1)})

    assert hosts(found) == {"a": 1, "b": 1, "c": 1}


def test_leader_and_workers_that_exclude_each_other() -> None:
    """The leader takes a host of their rack away from the workers."""
    workers = apart(make_pod_set(2, name="workers", group="g", required=RACK), "workers", "leader")
    leader = apart(make_pod_set(1, name="leader", group="g", required=RACK), "workers")

    found = place(racks({"a": 8, "b": 8}, {"c": 8, "d": 8, "e": 8}), [workers, leader])

    assert sorted([*hosts(found, "workers"), *hosts(found, "leader")]) == ["c", "d", "e"]


# --- pods that have to share a domain --------------------------------------------------------------------------------


ONE_RACK = (RACK,)
CLUSTER = ({"a": 2, "b": 2}, {"c": 3, "d": 3})


@pytest.mark.parametrize(
    ("topology", "labels", "wanted"),
    [
        pytest.param({"unconstrained": True}, (), {"a": 2, "b": 2, "c": 1}, id="nothing asked"),
        pytest.param({"unconstrained": True}, ONE_RACK, {"c": 3, "d": 2}, id="any nodes, of one rack"),
        pytest.param({"implied": True}, ONE_RACK, {"c": 3, "d": 2}, id="nothing said, of one rack"),
        pytest.param({"required": BLOCK}, ONE_RACK, {"c": 3, "d": 2}, id="one block, and one rack in it"),
        pytest.param({"required": RACK}, (BLOCK,), {"c": 3, "d": 2}, id="one rack, which is in one block"),
        pytest.param({"preferred": HOSTNAME}, ONE_RACK, {"c": 3, "d": 2}, id="a host if it goes, one rack if not"),
        pytest.param({"preferred": BLOCK}, ONE_RACK, {"c": 3, "d": 2}, id="a wider level than the rack"),
        pytest.param({"required": BLOCK}, ("zone",), {"c": 3, "d": 2}, id="a label that is no level"),
        pytest.param({"required": BLOCK}, (RACK, BLOCK), {"c": 3, "d": 2}, id="the narrower of two"),
    ],
)
def test_all_pods_find_one_value_of_the_label(
    topology: dict[str, Any], labels: tuple[str, ...], wanted: dict[str, int]
) -> None:
    """Whatever level is asked for, if any."""
    pod_set = replace(make_pod_set(5, **topology), one_domain=labels)

    assert hosts(place_one(racks(*CLUSTER), pod_set)) == wanted


@pytest.mark.parametrize("level", [{"unconstrained": True}, {"required": BLOCK}, {"preferred": HOSTNAME}])
@pytest.mark.parametrize("profile", PROFILES)
def test_no_domain_is_large_enough(level: dict[str, Any], profile: Profile) -> None:
    """The misfit is of the level of the label, and nothing is spread."""
    found = place_one(racks(*CLUSTER), replace(make_pod_set(7, **level), one_domain=ONE_RACK), profile=profile)

    assert isinstance(found, Misfit)
    assert (found.code, found.level, found.fit, found.spread) == (MisfitCode.NO_FIT, RACK, 6, False)


def test_the_tightest_domain_goes_first_on_the_way_to_the_widest() -> None:
    """A preferred level is kept where it can be."""
    pod_set = replace(make_pod_set(3, preferred=HOSTNAME), one_domain=ONE_RACK)

    assert hosts(place_one(racks(*CLUSTER), pod_set)) == {"c": 3}


def test_slices_of_a_wider_level_lie_in_the_one_domain() -> None:
    """Slices are asked for blocks; all pods have to be in one rack of them."""
    pod_set = replace(make_pod_set(4, slices=[(BLOCK, 2)]), one_domain=ONE_RACK)

    assert sum(hosts(place_one(racks(*CLUSTER), pod_set)).values()) == 4
    assert set(hosts(place_one(racks(*CLUSTER), pod_set))) in ({"a", "b"}, {"c", "d"})


@pytest.mark.parametrize("level", [{"unconstrained": True}, {"preferred": HOSTNAME}])
def test_a_replacement_stays_in_the_one_domain(level: dict[str, Any]) -> None:
    """The rest of the gang decides which."""
    pod_set = replace(make_pod_set(2, **level), one_domain=ONE_RACK)
    capacity = racks({"a": 1, "b": 2}, {"c": 8})

    found = find_replacement(capacity, pod_set, assigned(a=1, gone=1), {"gone"})
    none = find_replacement(racks({"a": 0}, {"c": 8}), pod_set, assigned(a=1, gone=1), {"gone"})

    assert not isinstance(found, Misfit)
    assert [domain.values for domain in found.added.assignment.domains] in ([("a",)], [("b",)])
    assert isinstance(none, Misfit)


def test_what_is_charged_is_what_the_pods_ask_for() -> None:
    """Rules take nothing from other workloads."""
    found = place_one(racks({"a": 8, "b": 8}), apart(make_pod_set(2, required=RACK)))

    assert isinstance(found, Placement)
    assert [dict(usage.requests) for usage in usage_of(found)] == [{"cpu": 1000}] * 2
    assert LEVELS[-1] == HOSTNAME
