"""Balanced placement: the worked examples, when it steps back, and the program that picks domains."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    Misfit,
    NodeRules,
    NodeTerm,
    Profile,
    Requirement,
    WeightedTerm,
    balanced,
    place,
)
from kqueue.core.topology.balanced import entropy, fewest_surplus
from tests.unit.core.topology_cases import BLOCK, RACK, hosts, make_node, make_pod_set, make_tree, place_one

BALANCED = Profile(constrained=Algorithm.BALANCED)


def blocks(*racks_per_block: Sequence[Sequence[int]]) -> Capacity:
    """Blocks of racks of hosts; host `a1-2` is the second of the first rack of block a."""
    return Capacity.of(
        make_tree(
            [
                make_node(f"{block}{r}-{h}", cores, block=block, rack=f"r{r}")
                for block, racks in zip("abcdefgh", racks_per_block, strict=False)
                for r, rack in enumerate(racks, start=1)
                for h, cores in enumerate(rack, start=1)
            ]
        )
    )


@pytest.mark.parametrize(
    ("capacity", "pods", "wish", "want"),
    [
        pytest.param(blocks([[15], [15]]), 25, {}, {"a1-1": 13, "a2-1": 12}, id="two-hosts-share-evenly"),
        pytest.param(blocks([[10], [10]]), 12, {}, {"a1-1": 6, "a2-1": 6}, id="where-best-fit-would-fill-one"),
        pytest.param(blocks([[15, 13, 10]]), 23, {}, {"a1-1": 12, "a1-2": 11}, id="the-threshold-prunes-a-small-host"),
        pytest.param(
            blocks([[20, 10], [15, 15]]), 22, {}, {"a2-1": 11, "a2-2": 11}, id="pruning-leaves-one-rack-that-holds-all"
        ),
        pytest.param(blocks([[20, 10], [15, 15]]), 20, {}, {"a1-1": 20}, id="one-host-that-holds-all-is-best"),
        pytest.param(
            blocks([[10, 5], [5, 5, 5]]), 15, {}, {"a2-1": 5, "a2-2": 5, "a2-3": 5}, id="the-more-even-rack-is-taken"
        ),
        pytest.param(
            blocks([[15], [15]], [[15, 15]]), 25, {}, {"b1-1": 13, "b1-2": 12}, id="the-block-that-needs-fewer-racks"
        ),
        pytest.param(
            blocks([[15], [15], [15, 15]]),
            25,
            {"slices": [(HOSTNAME, 5)]},
            {"a3-1": 15, "a3-2": 10},
            id="whole-slices-are-balanced",
        ),
        pytest.param(
            blocks([[15], [15]]),
            20,
            {"slices": [(RACK, 5)]},
            {"a1-1": 15, "a2-1": 5},
            id="slices-as-wide-as-the-level-are-placed-by-best-fit",
        ),
        pytest.param(blocks([[10], [10]]), 25, {}, None, id="what-does-not-fit-is-a-misfit-as-ever"),
    ],
)
def test_preferred_pods_are_spread_evenly_over_few_domains(
    capacity: Capacity, pods: int, wish: dict[str, Any], want: dict[str, int] | None
) -> None:
    """Preferred rack with the balanced profile."""
    found = place_one(capacity, make_pod_set(pods, preferred=RACK, **wish), profile=BALANCED)
    if want is None:
        assert isinstance(found, Misfit)
    else:
        assert hosts(found) == want


@pytest.mark.parametrize(
    ("wish", "want"),
    [
        pytest.param({"required": BLOCK}, {"a1-1": 10, "a2-1": 2}, id="required"),
        pytest.param({"unconstrained": True}, {"a1-1": 10, "a2-1": 2}, id="unconstrained"),
        pytest.param({"implied": True, "preferred": RACK}, {"a1-1": 10, "a2-1": 2}, id="preferred-but-implied"),
        pytest.param({"preferred": BLOCK}, {"a1-1": 6, "a2-1": 6}, id="preferred"),
    ],
)
def test_only_preferred_requests_are_balanced(wish: dict[str, Any], want: dict[str, int]) -> None:
    """Twelve pods on two hosts of ten."""
    assert hosts(place_one(blocks([[10], [10]]), make_pod_set(12, **wish), profile=BALANCED)) == want


def test_a_balanced_group_has_its_leader_where_it_was_counted() -> None:
    """Leader of two cores and ten workers on hosts of eight: threshold five, the leader takes its share of the first."""
    members = [
        make_pod_set(1, name="leader", cores=2, group="ring", preferred=RACK),
        make_pod_set(10, name="workers", group="ring", preferred=RACK),
    ]
    found = place(blocks([[8, 8]]), members, profile=BALANCED)
    assert hosts(found, "leader") == {"a1-1": 1}
    assert hosts(found, "workers") == {"a1-1": 5, "a1-2": 5}


def test_a_lower_threshold_is_tried_when_the_leader_would_cost_too_much() -> None:
    """With 13 on each host, the leader belongs into rack two, where it takes the place of 8, and 64 of 65 pods fit.

    Host d is pruned then; it is what makes room for the last one with a threshold of 3, what c holds beside a leader.
    """
    rooms = {"a": ("r2", 22, 30, 0), "e": ("r2", 22, 24, 1), "b": ("r1", 15, 30, 1), "c": ("r1", 13, 13, 1)}
    rooms["d"] = ("r1", 5, 5, 1)
    nodes = [
        make_node(name, 0, rack=rack, allocatable={"memory": memory, "slots": slots, "keys": keys})
        for name, (rack, memory, slots, keys) in rooms.items()
    ]
    members = [
        make_pod_set(1, name="leader", requests={"slots": 10, "keys": 1}, group="ring", preferred=RACK),
        make_pod_set(65, name="workers", requests={"memory": 1, "slots": 1}, group="ring", preferred=RACK),
    ]
    found = place(Capacity.of(make_tree(nodes)), members, profile=BALANCED)
    assert hosts(found, "leader") == {"b": 1}
    assert hosts(found, "workers") == {"a": 15, "e": 22, "b": 15, "c": 13}


def test_pods_that_run_out_on_the_way_down_are_placed_by_best_fit() -> None:
    """Pruning counts without inner layers: rack a1 seems to hold two whole slices, its hosts three of four parts."""
    wish: dict[str, Any] = {"preferred": BLOCK, "slices": [(RACK, 4), (HOSTNAME, 2)]}
    capacity = blocks([[3, 3, 2], [4]], [[8]])
    found = place_one(capacity, make_pod_set(16, **wish), profile=BALANCED)
    assert hosts(found) == hosts(place_one(capacity, make_pod_set(16, **wish)))


def test_affinity_comes_before_capacity_in_balanced_placement_too() -> None:
    """Two racks of equal room: the one with the preferred disk gets the pod more."""
    likes = NodeRules(preferred=(WeightedTerm(5, NodeTerm(expressions=(Requirement("disk", "In", ("ssd",)),))),))
    nodes = [make_node("a", 10, rack="r1"), make_node("b", 10, rack="r2", labels={"disk": "ssd"})]
    profile = Profile(constrained=Algorithm.BALANCED, preferred_affinity=True)
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(13, preferred=BLOCK, rules=likes), profile=profile)
    assert hosts(found) == {"a": 6, "b": 7}


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        pytest.param((), 0.0, id="nothing"),
        pytest.param((0, 0), 0.0, id="only-zeros"),
        pytest.param((0, 7), 0.0, id="all-in-one"),
        pytest.param((5, 5), 1.0, id="two-halves-are-one-bit"),
        pytest.param((2, 2, 4), 1.5, id="a-half-and-two-quarters"),
    ],
)
def test_entropy_is_how_evenly_pods_are_spread(counts: Sequence[int], want: float) -> None:
    """Bits, for counts that give exact ones."""
    assert entropy(counts) == want


@pytest.mark.parametrize(
    ("sizes", "used", "need", "leaders", "want"),
    [
        pytest.param([(5, None), (4, None), (3, None)], 2, 7, 0, [1, 2], id="no-surplus-at-all"),
        pytest.param([(5, None), (5, None), (5, None)], 2, 7, 0, [0, 1], id="of-equals-the-first-found"),
        pytest.param([(5, None), (None, None), (5, None)], 2, 7, 0, [0, 2], id="what-has-no-room-is-passed-over"),
        pytest.param([(5, None), (5, None)], 2, 11, 0, None, id="too-much"),
        pytest.param([(5, None), (5, 3)], 2, 8, 1, [0, 1], id="the-leader-costs-room"),
        pytest.param([(9, None), (5, 3)], 2, 8, 1, [0, 1], id="the-leader-comes-after-all-pods"),
        pytest.param([(9, None), (5, None)], 2, 8, 1, None, id="nobody-carries-the-leader"),
        pytest.param([(9, None), (8, None), (5, 0)], 2, 8, 1, [1, 2], id="the-smaller-surplus-waits-for-the-leader"),
    ],
)
def test_the_least_surplus_is_found(
    sizes: list[tuple[int | None, int | None]], used: int, need: int, leaders: int, want: list[int] | None
) -> None:
    """Exactly `used` domains."""
    found = fewest_surplus(sizes, used=used, need=need, leaders=leaders)
    assert (sorted(found) if found is not None else None) == want


AMOUNT = st.integers(1, 9)
DOMAIN = st.tuples(st.none() | AMOUNT, st.none() | AMOUNT)


@given(
    sizes=st.lists(DOMAIN, min_size=1, max_size=7),
    used=st.integers(1, 4),
    need=st.integers(1, 30),
    leaders=st.integers(0, 1),
)
def test_no_other_set_has_less_surplus(
    sizes: list[tuple[int | None, int | None]], used: int, need: int, leaders: int
) -> None:
    """All sets are tried, each with every domain as the carrier.  A set that is complete takes no more domains."""

    def surpluses(chosen: Sequence[int]) -> list[int]:
        result = []
        for carrier in chosen if leaders else [None]:
            amounts = [n for d in chosen if (n := sizes[d][int(d == carrier)]) is not None]
            complete = sum(amounts[:-1]) >= need and carrier != chosen[-1]
            if len(amounts) == used and sum(amounts) >= need and not complete:
                result.append(sum(amounts) - need)
        return result

    possible = [surplus for chosen in combinations(range(len(sizes)), used) for surplus in surpluses(chosen)]
    found = fewest_surplus(sizes, used=used, need=need, leaders=leaders)
    assert (min(surpluses(sorted(found))) if found is not None else None) == min(possible, default=None)


@pytest.mark.parametrize("leaders", [pytest.param(0, id="without a leader"), pytest.param(1, id="with a leader")])
@pytest.mark.parametrize(
    ("number", "used", "size"),
    [
        pytest.param(3000, 2000, 9, id="thousands of domains"),
        pytest.param(4, 2, 2**30, id="billions of pods"),
        pytest.param(200, 100, 2**20, id="hundreds of domains with millions of pods"),
    ],
)
def test_where_the_least_surplus_would_take_too_long_the_roomiest_domains_do(
    number: int, used: int, size: int, leaders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the sums that are moved nor those that are kept grow beyond a fixed amount."""
    moved = 0
    move = balanced._Program._move

    def watched(program: balanced._Program, left: int, domain: int, room: int, leads: int, counts: range) -> bool:
        nonlocal moved
        moved += sum(program._reached[left][chosen - 1].bit_length() // 64 for chosen in counts)
        return move(program, left, domain, room, leads, counts)

    monkeypatch.setattr(balanced._Program, "_move", watched)
    rooms = [(size + place % 7, size + place % 7 - 1 if leaders else None) for place in range(number)]
    found = balanced.fewest_surplus(rooms, used=used, need=used * size - leaders, leaders=leaders)
    assert found is not None
    assert len(set(found)) == used
    assert sum(rooms[place][0] for place in found) - leaders >= used * size - leaders
    assert moved < 8_000_000


def test_very_roomy_domains_take_no_room_in_memory() -> None:
    """Sums are as long as what is to be placed, not as what would fit."""
    tracemalloc.start()
    try:
        assert fewest_surplus([(2**28 - place, None) for place in range(20)], used=1, need=1000, leaders=0) == [19]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
