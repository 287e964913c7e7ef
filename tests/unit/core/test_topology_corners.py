"""What hardly ever happens: counts that do not hold, ties that only the last bit could decide, two groups to mend.

That chosen domains run out on the way down cannot happen with true counts.  What is chosen at a level holds, by the
counts, all that is asked for.  Without a leader what a domain holds is the sum of what its children hold: of slices
above the slice level, of pods below it, there in whole groups of the next slice layer, and every share is a whole
number of them.  So the children of what is chosen hold it as well, in whatever order they are filled, and the last one
is only ever changed for another one that holds the rest.  The leader costs a domain the smallest toll of all children
that can carry it; the first child that leaves enough is taken first, and the one of the smallest toll does.
Only balanced placement counts otherwise on its way, and when that runs out the request is placed in the usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    Domain,
    Misfit,
    MisfitCode,
    Profile,
    Replacement,
    TopologyAssignment,
    find_replacement,
    place,
)
from kqueue.core.topology.counting import pods_per_domain
from tests.unit.core.test_topology_reference import (
    Chooser,
    Question,
    Seeded,
    inside,
    some_balance,
    some_question,
    to_capacity,
    to_previous,
    to_request,
)
from tests.unit.core.topology_cases import BLOCK, RACK, hosts, make_node, make_pod_set, make_tree, place_one, racks

BEST_FIT = Profile(constrained=Algorithm.BEST_FIT, unconstrained=Algorithm.BEST_FIT)
LEAST = Profile(constrained=Algorithm.LEAST_FREE_CAPACITY)
BALANCED = Profile(constrained=Algorithm.BALANCED)


@pytest.mark.parametrize(
    ("pods", "wish", "profile"),
    [
        pytest.param(9, {"required": RACK}, BEST_FIT, id="in one rack"),
        pytest.param(9, {"required": RACK}, LEAST, id="in one rack, the fullest first"),
        pytest.param(9, {"required": BLOCK}, BEST_FIT, id="in several racks of a block"),
        pytest.param(9, {"preferred": RACK}, BALANCED, id="after balanced placement"),
        pytest.param(8, {"required": RACK, "slices": [(RACK, 4)]}, BEST_FIT, id="in slices"),
    ],
)
def test_counts_that_promise_too_much_end_in_a_misfit(pods: int, wish: dict[str, Any], profile: Profile) -> None:
    """Room for four, and remembered counts that say thirteen: never an assignment with too few pods, or none."""
    capacity, request = racks({"a": 2, "b": 2}), make_pod_set(pods, **wish)
    *above, lowest = pods_per_domain(capacity, request.shape)
    assert int(lowest.sum()) == 4
    for level in above:
        level += 9

    found = place(capacity, [request], profile=profile)

    assert isinstance(found, Misfit)
    assert found.code is MisfitCode.INTERNAL_INCONSISTENCY


@pytest.mark.parametrize("question", [some_question, some_balance], ids=["anything", "leaders and slices"])
def test_counts_that_hold_never_end_in_such_a_misfit(question: Callable[[Chooser], Question]) -> None:
    """Random requests on random trees, by every algorithm."""
    outcomes = set()
    for seed in range(100):
        asked = question(Seeded(seed))
        capacity, requests = to_capacity(asked), [inside(to_request(pod_set), asked) for pod_set in asked.wanted]
        previous = to_previous(asked.levels, asked.wanted)
        for profile in (asked.profile, BEST_FIT, LEAST):
            found = place(capacity, requests, profile=profile, previous=previous, explain=False)
            outcomes.add(found.code if isinstance(found, Misfit) else None)

    assert {None, MisfitCode.NO_FIT} <= outcomes
    assert MisfitCode.INTERNAL_INCONSISTENCY not in outcomes


@pytest.mark.parametrize("first", list(permutations((2, 3, 4))), ids=str)
def test_racks_of_equal_rooms_are_told_apart_by_name_alone(first: tuple[int, ...]) -> None:
    """However the rooms stand in them: what they are worth is added up in one order, so it is equal to the last bit."""
    for second in permutations((2, 3, 4)):
        nodes = [
            make_node(f"{rack}-{i}", cores, rack=rack)
            for rack, rooms in (("r1", first), ("r2", second))
            for i, cores in enumerate(rooms)
        ]
        found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(5, preferred=RACK), profile=BALANCED)

        assert {host[:2] for host in hosts(found)} == {"r1"}


@pytest.mark.parametrize("swapped", [False, True], ids=["as written", "the other way round"])
def test_of_two_groups_that_a_replacement_could_complete_it_is_the_first(swapped: bool) -> None:
    """Two racks hold half a slice each, and so did the failed host: its pods go to the rack of the smaller path."""
    held = [("z1", 2), ("a1", 2), ("gone", 2)]
    nodes = [make_node(host, 9, rack=rack) for rack, host in (("r1", "z1"), ("r1", "z2"), ("r2", "a1"), ("r2", "a2"))]
    assignment = TopologyAssignment((HOSTNAME,), tuple(Domain((host,), n) for host, n in held[:: -1 if swapped else 1]))
    pod_set = make_pod_set(6, required=BLOCK, slices=[(RACK, 4)])

    found = find_replacement(Capacity.of(make_tree(nodes)), pod_set, assignment, {"gone"})

    assert isinstance(found, Replacement)
    assert {path[1] for path in found.added.paths} == {"r1"}
