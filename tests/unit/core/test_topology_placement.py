"""Placement: the worked examples of the rules, and each rule that they do not show."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.topology import (
    HOSTNAME,
    PODS,
    Algorithm,
    Capacity,
    DomainUsage,
    Misfit,
    MisfitCode,
    NodeRules,
    NodeTerm,
    Placement,
    PodSetRequest,
    Profile,
    Requirement,
    Shortage,
    Taint,
    TopologyRequest,
    WeightedTerm,
    missing_level,
    place,
    place_workload,
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

ONE_RACK = {"a": 3, "b": 3, "c": 2, "d": 1}
SLICED = {"x6": 6, "x5": 5, "x4": 4, "x3": 3, "x2": 2}
BEST_FIT_ALWAYS = Profile(unconstrained=Algorithm.BEST_FIT)
LEAST_ALWAYS = Profile(constrained=Algorithm.LEAST_FREE_CAPACITY)


@pytest.mark.parametrize(
    ("pods", "wish", "profile", "want"),
    [
        pytest.param(7, {"required": RACK}, Profile(), {"a": 3, "b": 3, "d": 1}, id="required-ends-on-the-exact-fit"),
        pytest.param(
            7, {"unconstrained": True}, Profile(), {"a": 3, "b": 1, "c": 2, "d": 1}, id="unconstrained-fills-upwards"
        ),
        pytest.param(
            7, {"unconstrained": True}, BEST_FIT_ALWAYS, {"a": 3, "b": 3, "d": 1}, id="unconstrained-by-best-fit"
        ),
        pytest.param(
            3, {"unconstrained": True}, Profile(), {"a": 3}, id="unconstrained-takes-the-smallest-single-host-that-fits"
        ),
        pytest.param(3, {"implied": True}, Profile(), {"a": 3}, id="implied-is-like-unconstrained"),
        pytest.param(2, {"required": RACK}, Profile(), {"c": 2}, id="one-tight-host-beats-a-roomy-one"),
        pytest.param(2, {"preferred": "auto"}, Profile(), {"c": 2}, id="auto-prefers-the-lowest-level"),
        pytest.param(3, {"required": RACK}, LEAST_ALWAYS, {"c": 2, "d": 1}, id="least-for-required-starts-small"),
    ],
)
def test_hosts_of_one_rack_are_chosen_by_the_profile(
    pods: int, wish: dict[str, Any], profile: Profile, want: dict[str, int]
) -> None:
    """Hosts a:3 b:3 c:2 d:1 under every algorithm."""
    assert hosts(place_one(racks(ONE_RACK), make_pod_set(pods, **wish), profile=profile)) == want


@pytest.mark.parametrize(
    ("pods", "wish", "want"),
    [
        pytest.param(12, {"required": RACK}, {"x2": 2, "x4": 4, "x6": 6}, id="of-equal-slices-the-one-with-less-waste"),
        pytest.param(10, {}, {"x2": 2, "x3": 2, "x4": 4, "x5": 2}, id="slice-only-fills-upwards"),
        pytest.param(3, {"required": RACK}, {"x2": 2}, id="a-broken-slice-is-not-placed"),
    ],
)
def test_whole_slices_go_to_one_host_each(pods: int, wish: dict[str, Any], want: dict[str, int]) -> None:
    """Slices of two pods at host level."""
    assert hosts(place_one(racks(SLICED), make_pod_set(pods, slices=[(HOSTNAME, 2)], **wish))) == want


@pytest.mark.parametrize(
    ("left", "ended", "slices", "wish", "want"),
    [
        pytest.param(5, 3, [(RACK, 4)], {}, {"a1": 3, "a2": 1, "b1": 1}, id="whole slices, and one with what remains"),
        pytest.param(3, 5, [(RACK, 4)], {}, {"a1": 3}, id="fewer pods than a slice are one that is not whole"),
        pytest.param(8, 8, [(RACK, 4)], {}, {"a1": 3, "a2": 1, "b1": 3, "b2": 1}, id="what is whole slices stays so"),
        pytest.param(
            7, 1, [(BLOCK, 8), (RACK, 4)], {}, {"a1": 3, "a2": 1, "b1": 3}, id="inner groups are whole but one"
        ),
        pytest.param(
            5, 3, [(BLOCK, 8), (RACK, 2)], {}, {"a1": 3, "a2": 1, "b1": 1}, id="and may be left out altogether"
        ),
        pytest.param(
            5, 0, [(RACK, 4)], {}, {"a1": 3, "a2": 1}, id="of a gang that asked for that itself, whole slices only"
        ),
        pytest.param(5, 3, [], {"required": BLOCK}, {"a1": 3, "b1": 2}, id="without slices there is nothing to round"),
    ],
)
def test_every_pod_that_is_left_of_a_gang_gets_a_place(
    left: int, ended: int, slices: list[tuple[str, int]], wish: dict[str, Any], want: dict[str, int]
) -> None:
    """Two racks with hosts of 3 and 1; the gang had `left` + `ended` pods."""
    pod_set = make_pod_set(left, ended=ended, slices=slices, **wish)
    assert hosts(place_one(racks({"a1": 3, "a2": 1}, {"b1": 3, "b2": 1}), pod_set)) == want


def test_what_is_left_of_a_gang_asks_for_room_in_whole_slices() -> None:
    """A host of one core would do for the fifth pod; the gang would not have fit there."""
    capacity = racks({"a": 4}, {"b": 1})
    found = place_one(capacity, make_pod_set(5, ended=3, slices=[(RACK, 4)]))
    assert isinstance(found, Misfit)
    assert (found.code, found.fit, found.total) == (MisfitCode.NO_FIT, 1, 2)


@given(
    rooms=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=5),
    slices=st.sampled_from([[(RACK, 4)], [(RACK, 6), (HOSTNAME, 2)], [(HOSTNAME, 3)], [(BLOCK, 8), (RACK, 4)]]),
    wish=st.sampled_from([{"required": BLOCK}, {"preferred": BLOCK}, {"unconstrained": True}, {}]),
    algorithm=st.sampled_from(Algorithm),
    left=st.integers(1, 12),
    leader=st.booleans(),
)
def test_the_rest_of_a_gang_is_placed_whole_with_one_slice_cut_at_most(
    rooms: list[list[int]],
    slices: list[tuple[str, int]],
    wish: dict[str, Any],
    algorithm: Algorithm,
    left: int,
    leader: bool,
) -> None:
    """It fits where its whole slices fit; then the places are as many as the pods, and room is taken for no more."""
    by_rack = [{f"{rack}{i}": room for i, room in enumerate(r)} for rack, r in zip("abcde", rooms, strict=False)]
    capacity, size = racks(*by_rack), slices[0][1]
    beside = [make_pod_set(1, name="leader", group="ring", slices=slices, **wish)] if leader else []
    group: dict[str, Any] = {"group": "ring"} if leader else {}
    rest = make_pod_set(left, ended=20 - left, slices=slices, **group, **wish)
    rounded = make_pod_set(-(-left // size) * size, ended=20 - left, slices=slices, **group, **wish)
    found, whole = (place(capacity, [*beside, p], profile=Profile(constrained=algorithm)) for p in (rest, rounded))

    assert isinstance(found, Misfit) == isinstance(whole, Misfit)
    if isinstance(found, Misfit):
        return
    assert sum(hosts(found).values()) == left
    assert capacity.fits(usage_of(found))
    for level, group_size in slices:
        depth = LEVELS.index(level) + 1
        groups: Counter[tuple[str, ...]] = Counter()
        for path, domain in zip(found["main"].paths, found["main"].assignment.domains, strict=True):
            groups[path[:depth]] += domain.count
        assert sum(count % group_size > 0 for count in groups.values()) <= 1


@pytest.mark.parametrize(
    ("leaders", "workers", "want"),
    [
        pytest.param(1, 1, {"leader": {"b": 1}, "workers": {"a": 1}}, id="one worker is no second leader"),
        pytest.param(0, 3, {"workers": {"a": 2, "b": 1}}, id="workers without their leader"),
        pytest.param(1, 0, {"leader": {"a": 1}}, id="a leader without its workers"),
    ],
)
def test_what_is_left_of_a_group_is_placed_as_such(leaders: int, workers: int, want: dict[str, dict[str, int]]) -> None:
    """A leader of two cores beside slices of two workers, most of which have ended."""
    found = place(
        racks({"a": 3, "b": 2}),
        [
            make_pod_set(leaders, name="leader", cores=2, ended=1 - leaders, group="ring", required=RACK),
            make_pod_set(
                workers, name="workers", ended=4 - workers, group="ring", required=RACK, slices=[(HOSTNAME, 2)]
            ),
        ],
    )
    assert isinstance(found, Placement)
    assert {p.name: hosts(found, p.name) for p in found.pod_sets} == want


def test_slice_layers_bind_every_level_between_them() -> None:
    """64 pods in slices of 32 a block and 16 a rack: 8 on each of 8 hosts."""
    capacity = racks({f"h{i}": 8 for i in range(4)}, {f"h{i}": 8 for i in range(4, 8)})
    found = place_one(capacity, make_pod_set(64, required=BLOCK, slices=[(BLOCK, 32), (RACK, 16)]))
    assert hosts(found) == {f"h{i}": 8 for i in range(8)}


def test_above_the_slice_level_the_children_of_all_domains_are_one_pool() -> None:
    """Nine preferred pods over racks of 5 and 6: the hosts of both racks are filled together."""
    found = place_one(racks({"a1": 4, "b1": 1}, {"c1": 3, "c2": 3}), make_pod_set(9, preferred=RACK))
    assert hosts(found) == {"a1": 4, "c1": 3, "c2": 2}


@pytest.mark.parametrize(
    ("slices", "want"),
    [
        pytest.param([(RACK, 3)], {"h1": 1, "h2": 2}, id="inside-a-slice-small-hosts-first"),
        pytest.param([], {"h3": 3}, id="without-slices-the-tightest-host"),
    ],
)
def test_below_the_slice_level_hosts_ascend(slices: list[tuple[str, int]], want: dict[str, int]) -> None:
    """Three pods of one rack slice start on the smallest host."""
    found = place_one(racks({"h1": 1, "h2": 2, "h3": 3}), make_pod_set(3, required=RACK, slices=slices))
    assert hosts(found) == want


def leader_and_workers(**wish: Any) -> list[PodSetRequest]:
    return [
        make_pod_set(1, name="leader", cores=2, group="ring", **wish),
        make_pod_set(6, name="workers", group="ring", **wish),
    ]


@pytest.mark.parametrize(
    ("capacity", "wish"),
    [
        pytest.param(racks({"a": 4, "b": 4}), {"required": RACK}, id="required-in-one-rack"),
        pytest.param(racks({"a": 4}, {"b": 4}), {"preferred": RACK}, id="preferred-over-two-racks"),
    ],
)
def test_a_leader_sits_where_the_workers_still_fit(capacity: Capacity, wish: dict[str, Any]) -> None:
    """The leader takes two cores of a; two workers stay beside it."""
    found = place(capacity, leader_and_workers(**wish))
    assert hosts(found, "leader") == {"a": 1}
    assert hosts(found, "workers") == {"a": 2, "b": 4}


def test_a_rack_without_room_for_workers_may_still_carry_the_leader() -> None:
    """Smallest domains first: the emptiest host with a key gets the leader, in whichever of the chosen racks it is."""
    rooms = {"z1": ("r0", 1, 1), "z2": ("r1", 0, 1), "z3": ("r1", 1, 1), "w": ("r2", 4, 0)}
    nodes = [
        make_node(host, cores, rack=rack, allocatable={"key": keys}) for host, (rack, cores, keys) in rooms.items()
    ]
    wish: dict[str, Any] = {"group": "ring", "preferred": RACK, "slices": [(HOSTNAME, 2)]}
    leader = make_pod_set(1, name="leader", requests={"key": 1}, **wish)
    found = place(
        Capacity.of(make_tree(nodes, LEVELS[1:])),
        [leader, make_pod_set(4, name="workers", **wish)],
        profile=LEAST_ALWAYS,
    )
    assert hosts(found, "leader") == {"z2": 1}
    assert hosts(found, "workers") == {"w": 4}


def test_a_group_that_does_not_fit_fails_as_one() -> None:
    """The first pod set in request order is named; fit and total count workers."""
    found = place(racks({"a": 4}, {"b": 4}), leader_and_workers(required=RACK))
    assert isinstance(found, Misfit)
    assert (found.code, found.pod_set, found.group) == (MisfitCode.NO_FIT, "leader", "ring")
    assert (found.fit, found.total, found.unit) == (4, 6, "pod")


def test_a_leader_keeps_to_its_own_node_rules() -> None:
    """The workers fit on a tainted host that the leader must avoid."""
    nodes = [make_node("a", 8, labels={"disk": "hdd"}), make_node("b", 3, labels={"disk": "ssd"})]
    leader, workers = leader_and_workers(required=RACK)
    picky = make_pod_set(
        1, name="leader", cores=2, group="ring", required=RACK, rules=NodeRules(selector=(("disk", "ssd"),))
    )
    assert hosts(place(Capacity.of(make_tree(nodes)), [leader, workers]), "leader") == {"a": 1}
    assert hosts(place(Capacity.of(make_tree(nodes)), [picky, workers]), "leader") == {"b": 1}


@pytest.mark.parametrize(
    ("counts", "wishes", "detail"),
    [
        pytest.param((1, 4, 4), ({"required": RACK},) * 3, "at most 2", id="three-members"),
        pytest.param((2, 3), ({"required": RACK},) * 2, "must have 1 pod", id="no-single-leader"),
        pytest.param((1, 3), ({"required": RACK}, {"required": BLOCK}), "same required", id="different-levels"),
        pytest.param(
            (1, 3),
            ({"preferred": RACK}, {"preferred": BLOCK}),
            "required or preferred",
            id="different-preferred-levels",
        ),
        pytest.param((1, 3), ({"preferred": RACK}, {"required": RACK}), "m0 and m1", id="one-level-in-different-ways"),
    ],
)
def test_an_impossible_group_is_refused_by_the_engine_itself(
    counts: tuple[int, ...], wishes: tuple[dict[str, Any], ...], detail: str
) -> None:
    """The rules of groups hold even where no webhook has checked them."""
    members = [
        make_pod_set(n, name=f"m{i}", group="g", **wish) for i, (n, wish) in enumerate(zip(counts, wishes, strict=True))
    ]
    found = place(racks({"a": 9}), members)
    assert isinstance(found, Misfit)
    assert found.code == MisfitCode.INVALID_GROUP
    assert detail in found.detail


def test_the_tightest_rack_is_chosen_and_ties_go_to_the_first_name() -> None:
    """Racks of 9, 4 and 4 for four pods: the first rack of 4."""
    found = place_one(racks({"z": 9}, {"b": 2, "a": 2}, {"c": 4}), make_pod_set(4, required=RACK))
    assert hosts(found) == {"a": 2, "b": 2}


def test_equal_names_below_different_parents_are_different_domains() -> None:
    """Two racks called r1 in two blocks do not add up."""
    nodes = [make_node("a", 3, block="b1", rack="r1"), make_node("b", 3, block="b2", rack="r1")]
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(4, required=RACK))
    assert isinstance(found, Misfit)
    assert (found.fit, found.total, found.level) == (3, 4, RACK)


@given(rooms=st.lists(st.integers(0, 6), min_size=1, max_size=12), pods=st.integers(1, 30))
def test_preferred_pods_use_the_fewest_hosts(rooms: list[int], pods: int) -> None:
    """As many as the largest rooms that together hold them; a single host whenever one holds them all."""
    found = place_one(racks({f"h{i:02}": room for i, room in enumerate(rooms)}), make_pod_set(pods, preferred="auto"))
    sums = list(accumulate(sorted(rooms, reverse=True)))
    if sums[-1] < pods:
        assert isinstance(found, Misfit)
    else:
        assert len(hosts(found)) == next(k for k, room in enumerate(sums, start=1) if room >= pods)


@given(rooms=st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=5), pods=st.integers(1, 12))
def test_required_pods_find_every_rack_that_holds_them(rooms: list[list[int]], pods: int) -> None:
    """A misfit means that there is none; else it is one of the tightest."""
    by_rack = [
        {f"{rack}-{i}": room for i, room in enumerate(hosts)} for rack, hosts in zip("abcde", rooms, strict=False)
    ]
    found = place_one(racks(*by_rack, {"z": 0}), make_pod_set(pods, required=RACK))
    able = [sum(hosts) for hosts in rooms if sum(hosts) >= pods]
    if not able:
        assert isinstance(found, Misfit)
        assert found.fit == max([sum(hosts) for hosts in rooms])
    else:
        used = {host[0] for host in hosts(found)}
        assert [sum(rooms["abcde".index(rack)]) for rack in used] == [min(able)]


def test_a_preferred_request_climbs_one_level_at_a_time() -> None:
    """Too large for a rack: one block is kept to although both could share."""
    nodes = [make_node(f"{b}{r}", 2, block=b, rack=r) for b in ("b1", "b2") for r in ("r1", "r2")]
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(4, preferred=RACK))
    assert isinstance(found, Placement)
    assert {path[0] for path in found["main"].paths} == {"b1"}


def test_a_misfit_of_what_may_be_spread_counts_over_all_domains() -> None:
    """Preferred: no single domain is at fault, so none is named."""
    nodes = [make_node(f"{b}{r}", 2, block=b, rack=r) for b in ("b1", "b2") for r in ("r1", "r2")]
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(9, preferred=RACK))
    assert isinstance(found, Misfit)
    assert (found.code, found.level, found.fit, found.total, found.spread) == (MisfitCode.NO_FIT, BLOCK, 8, 9, True)
    assert found.best_domain is None
    assert found.shortage == Shortage("cpu", asked=9_000, free=8_000)


@pytest.mark.parametrize(
    ("asked", "rules", "one_pod", "selector"),
    [
        pytest.param({"cpu": 9000}, {}, Shortage("cpu", 9000, 8000), "", id="more-than-any-host-has"),
        pytest.param({"cpu": 8000}, {}, None, "", id="one-host-has-room"),
        pytest.param({"cpu": 4000, "gpu": 1}, {}, None, "", id="hosts-lack-different-resources"),
        pytest.param({"cpu": 9000}, {"selector": (("a", "b"), ("c", "d"))}, None, "a=b,c=d", id="rules-exclude-some"),
    ],
)
def test_a_misfit_names_the_largest_host_or_the_selector(
    asked: dict[str, int], rules: dict[str, Any], one_pod: Shortage | None, selector: str
) -> None:
    """Where no host holds one pod, more pods are not the mistake."""
    nodes = [make_node("a", 8), make_node("b", 2, allocatable={"gpu": 4})]
    pods = make_pod_set(3, requests=asked, rules=NodeRules(**rules), required=RACK)
    found = place_one(Capacity.of(make_tree(nodes)), pods)

    assert isinstance(found, Misfit)
    assert (found.one_pod, found.selector) == (one_pod, selector)


def test_a_misfit_names_level_best_domain_asked_and_free() -> None:
    """The facts of a condition message, and the leaves that cannot hold a single pod by cause."""
    nodes = [
        make_node("a", 8, rack="r1"),
        make_node("b", 1, rack="r1"),
        make_node("c", 8, rack="r2", taints=(Taint("burning"),)),
        make_node("d", 4, rack="r2", pods=0),
    ]
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(5, cores=2, required=RACK))
    assert isinstance(found, Misfit)
    assert (found.code, found.level, found.fit, found.total) == (MisfitCode.NO_FIT, RACK, 4, 5)
    assert found.best_domain == ("b1", "r1")
    assert found.shortage == Shortage("cpu", asked=10_000, free=9_000)
    assert found.leaves == 4
    assert dict(found.excluded.taints) == {"burning:NoSchedule": 1}
    assert dict(found.excluded.resources) == {"cpu": 1, PODS: 1}


@pytest.mark.parametrize(
    ("rooms", "wish", "leader_asks", "facts", "short"),
    [
        pytest.param(
            {"a": 4, "b": 9},
            {"required": RACK},
            {"cpu": 5000},
            {"best_domain": ("b1", "r2"), "fit": 9, "total": 12, "leader": False},
            Shortage("cpu", 17_000, 9_000),
            id="asked-is-the-whole-group",
        ),
        pytest.param(
            {"a": 4, "b": 9, "c": 9},
            {"required": RACK},
            {"cpu": 1000, "key-a": 1},
            {"best_domain": ("b1", "r1"), "fit": 4, "total": 12, "leader": False},
            Shortage("cpu", 13_000, 4_000),
            id="the-domain-is-the-one-that-fit-is-of-though-others-hold-more-workers",
        ),
        pytest.param(
            {"a": 13, "b": 4},
            {"required": RACK},
            {"gpu": 1},
            {"best_domain": ("b1", "r1"), "fit": 13, "total": 12, "leader": True},
            Shortage("gpu", 1, 0),
            id="only-the-leader-finds-no-place",
        ),
        pytest.param(
            {"a": 4, "b": 9},
            {"required": HOSTNAME},
            {"gpu": 1},
            {"best_domain": ("b1", "r2", "b"), "fit": 9, "total": 12, "leader": True},
            Shortage("gpu", 1, 0),
            id="a-host-that-cannot-carry-the-leader-still-counts-its-workers",
        ),
        pytest.param(
            {"a": 4, "b": 9},
            {"required": HOSTNAME},
            {"cpu": 20_000},
            {"best_domain": ("b1", "r2", "b"), "fit": 9, "total": 12, "leader": True},
            Shortage("cpu", 32_000, 9_000),
            id="a-leader-that-is-too-large-takes-nothing-from-any-host",
        ),
        pytest.param(
            {"a": 9, "b": 9},
            {"preferred": RACK},
            {"gpu": 1},
            {"best_domain": None, "fit": 0, "total": 12, "leader": True, "spread": True},
            Shortage("gpu", 1, 0),
            id="no-leader-anywhere",
        ),
    ],
)
def test_a_misfit_of_a_group_names_who_found_no_place_and_what_was_short(
    rooms: dict[str, int],
    wish: dict[str, Any],
    leader_asks: dict[str, int],
    facts: dict[str, Any],
    short: Shortage,
) -> None:
    """Twelve workers of a core each and their leader; every host is a rack."""
    nodes = [
        make_node(host, cores, rack=f"r{i}", allocatable={f"key-{host}": 1})
        for i, (host, cores) in enumerate(rooms.items(), start=1)
    ]
    members = [
        make_pod_set(1, name="leader", requests=leader_asks, group="ring", **wish),
        make_pod_set(12, name="workers", group="ring", **wish),
    ]
    found = place(Capacity.of(make_tree(nodes)), members)
    assert isinstance(found, Misfit)
    assert {fact: getattr(found, fact) for fact in facts} == facts
    assert found.shortage == short


def test_a_host_that_workers_avoid_is_not_the_best_for_them() -> None:
    """No host carries the leader; the roomiest one is tainted for both."""
    wish: dict[str, Any] = {"group": "ring", "required": HOSTNAME}
    nodes = [make_node("a", 2), make_node("b", 9, taints=(Taint("burning"),))]
    leader = make_pod_set(1, name="leader", requests={"gpu": 1}, **wish)
    found = place(Capacity.of(make_tree(nodes)), [leader, make_pod_set(4, name="workers", **wish)])
    assert isinstance(found, Misfit)
    assert (found.best_domain, found.fit, found.leader) == (("b1", "r1", "a"), 2, True)


def test_a_misfit_within_a_domain_counts_what_is_free_in_it() -> None:
    """The block that was asked for has a roomy rack, outside of the one that may be used."""
    found = place_one(racks({"a": 1}, {"b": 9}), make_pod_set(3, required=BLOCK), within=("b1", "r1"))
    assert isinstance(found, Misfit)
    assert (found.best_domain, found.fit, found.shortage) == (("b1",), 1, Shortage("cpu", 3_000, 1_000))


BAD_SELECTOR = NodeRules(selector=(("bad key", "x"),))


@pytest.mark.parametrize(
    ("leader_rules", "worker_rules", "named"),
    [
        pytest.param(NodeRules(), BAD_SELECTOR, "workers", id="the-workers"),
        pytest.param(BAD_SELECTOR, NodeRules(), "leader", id="the-leader"),
        pytest.param(BAD_SELECTOR, BAD_SELECTOR, "workers", id="the-workers-are-looked-at-first"),
    ],
)
def test_an_unusable_template_of_a_group_is_named(leader_rules: NodeRules, worker_rules: NodeRules, named: str) -> None:
    """The template of either member is checked, and the misfit is about the one at fault."""
    wish: dict[str, Any] = {"group": "ring", "required": RACK}
    group = [
        make_pod_set(1, name="leader", rules=leader_rules, **wish),
        make_pod_set(4, name="workers", rules=worker_rules, **wish),
    ]
    for pod_sets in (group, [make_pod_set(1, name="before", required=RACK), *group]):
        found = place(racks({"a": 9}), pod_sets)
        assert isinstance(found, Misfit)
        assert (found.code, found.pod_set, found.group) == (MisfitCode.INVALID_NODE_SELECTOR, named, "ring")


def test_a_later_group_without_room_is_named_by_its_first_member() -> None:
    """Also when that is the leader, and when pod sets before it found their place."""
    found = place(racks({"a": 4}), [make_pod_set(1, name="before", required=RACK), *leader_and_workers(required=RACK)])
    assert isinstance(found, Misfit)
    assert (found.code, found.pod_set, found.group) == (MisfitCode.NO_FIT, "leader", "ring")


def test_what_is_overdrawn_on_one_host_is_not_taken_from_another() -> None:
    """Free counts what hosts have; a host below zero has nothing."""
    tree = make_tree([make_node("a", 5), make_node("b", 1)])
    capacity = Capacity.of(tree, foreign={"node-b": {"cpu": 4000, PODS: 1}})
    found = place_one(capacity, make_pod_set(6, required=RACK))
    assert isinstance(found, Misfit)
    assert (found.fit, found.shortage) == (5, Shortage("cpu", 6_000, 5_000))


def test_of_resources_that_limit_as_many_hosts_the_first_by_name_is_short() -> None:
    """One host lacks cores, the other one devices."""
    nodes = [make_node("a", 1, allocatable={"gpu": 8}), make_node("b", 9, allocatable={"gpu": 1})]
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(3, requests={"gpu": 1, "cpu": 1000}, required=RACK))
    assert isinstance(found, Misfit)
    assert found.shortage == Shortage("cpu", 3_000, 10_000)


def test_a_host_outside_of_the_domain_counts_by_its_first_cause() -> None:
    """A taint comes before lying elsewhere."""
    nodes = [make_node("a", 1), make_node("b", 9, rack="r2"), make_node("c", 9, rack="r2", taints=(Taint("burning"),))]
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(2, required=BLOCK), within=("b1", "r1"))
    assert isinstance(found, Misfit)
    assert (found.excluded.topology_domain, dict(found.excluded.taints)) == (1, {"burning:NoSchedule": 1})


def test_the_shortage_of_a_leader_is_judged_by_the_leaders_own_rules() -> None:
    """Where rules, not resources, keep the leader off every host, no resource is blamed."""
    picky = NodeRules(selector=(("disk", "ssd"),))
    wish: dict[str, Any] = {"group": "ring", "required": RACK}
    leader = make_pod_set(1, name="leader", rules=picky, **wish)
    found = place(racks({"a": 9}), [leader, make_pod_set(4, name="workers", **wish)])
    assert isinstance(found, Misfit)
    assert (found.leader, found.fit, found.total, found.shortage) == (True, 9, 4, None)
    assert not found.excluded


def test_a_misfit_names_the_domain_that_preferred_affinity_put_first() -> None:
    """The preferred host holds less than another one: `fit` and `best_domain` are both its own."""
    likes = NodeRules(preferred=(WeightedTerm(5, NodeTerm(expressions=(Requirement("disk", "In", ("ssd",)),))),))
    nodes = [make_node("a", 2, labels={"disk": "ssd"}), make_node("b", 8)]
    found = place_one(
        Capacity.of(make_tree(nodes)),
        make_pod_set(9, required=HOSTNAME, rules=likes),
        profile=Profile(preferred_affinity=True),
    )
    assert isinstance(found, Misfit)
    assert (found.best_domain, found.fit, found.shortage) == (("b1", "r1", "a"), 2, Shortage("cpu", 9_000, 2_000))


def test_layers_report_what_each_of_them_would_find() -> None:
    """With inner layers every constraint has its own count under the best domain."""
    capacity = racks({"a": 3, "b": 3}, {"c": 4})
    found = place_one(capacity, make_pod_set(12, required=BLOCK, slices=[(RACK, 4), (HOSTNAME, 2)]))
    assert isinstance(found, Misfit)
    assert [(layer.level, layer.fit, layer.total) for layer in found.layers] == [(RACK, 2, 3), (HOSTNAME, 4, 6)]


@pytest.mark.parametrize(
    ("pod_set", "code", "facts"),
    [
        pytest.param(make_pod_set(1), "LevelNotSpecified", {}, id="nothing-asked-and-nothing-implied"),
        pytest.param(make_pod_set(1, unconstrained=False), "LevelNotSpecified", {}, id="unconstrained-false"),
        pytest.param(make_pod_set(1, required="shelf"), "LevelNotFound", {"level": "shelf"}, id="unknown-level"),
        pytest.param(make_pod_set(1, required="auto"), "LevelNotFound", {"level": "auto"}, id="auto-is-for-preferred"),
        pytest.param(
            make_pod_set(4, required=RACK, slices=[("shelf", 2)]),
            "SliceLevelNotFound",
            {"level": "shelf"},
            id="unknown-slice-level",
        ),
        pytest.param(
            make_pod_set(4, required=RACK, slices=[(BLOCK, 2)]),
            "SliceLevelAbovePodSetLevel",
            {"level": RACK, "other_level": BLOCK},
            id="slices-wider-than-the-pod-set",
        ),
        pytest.param(make_pod_set(4, required=RACK, slices=[(RACK, 0)]), "SliceSizeMissing", {}, id="no-slice-size"),
        pytest.param(
            make_pod_set(4, required="shelf", slices=[("shelf", -2)]),
            "SliceSizeMissing",
            {},
            id="a-negative-slice-size-comes-before-unknown-levels",
        ),
        pytest.param(
            make_pod_set(4, required=BLOCK, slices=[(BLOCK, 4), (RACK, 0)]),
            "InnerSizeNotDivisor",
            {"size": 0, "other_size": 4},
            id="an-inner-size-of-nothing",
        ),
        pytest.param(
            make_pod_set(4, required=BLOCK, slices=[(BLOCK, 4), (RACK, 2), (HOSTNAME, 4)]),
            "InnerSizeNotDivisor",
            {"size": 4, "other_size": 2},
            id="every-layer-must-divide-the-one-above",
        ),
        pytest.param(
            make_pod_set(4, required=BLOCK, slices=[(BLOCK, 4), ("shelf", 2)]),
            "InnerLevelNotFound",
            {"level": "shelf"},
            id="unknown-inner-level",
        ),
        pytest.param(
            make_pod_set(4, required=BLOCK, slices=[(RACK, 4), (RACK, 2)]),
            "InnerLevelNotLower",
            {"level": RACK, "other_level": RACK},
            id="inner-level-not-below",
        ),
        pytest.param(
            make_pod_set(4, required=BLOCK, slices=[(BLOCK, 4), (RACK, 3)]),
            "InnerSizeNotDivisor",
            {"size": 3, "other_size": 4},
            id="inner-size-does-not-divide",
        ),
        pytest.param(
            make_pod_set(3, required=RACK, slices=[(RACK, 4)]),
            "CountBelowSliceSize",
            {"count": 3, "size": 4},
            id="fewer-pods-than-a-slice",
        ),
        pytest.param(
            make_pod_set(1, required=RACK, rules=NodeRules(selector=(("bad key", "x"),))),
            "InvalidNodeSelector",
            {"detail": "bad key=x is not a valid label"},
            id="invalid-selector",
        ),
        pytest.param(
            make_pod_set(
                1, required=RACK, rules=NodeRules(required=(NodeTerm(expressions=(Requirement("disk", "In"),)),))
            ),
            "InvalidNodeAffinity",
            {"detail": "disk: operator In needs values"},
            id="invalid-affinity",
        ),
    ],
)
def test_a_request_that_cannot_be_read_says_which_part(
    pod_set: PodSetRequest, code: str, facts: dict[str, Any]
) -> None:
    """Every check has its code and its facts."""
    found = place_one(racks({"a": 9}), pod_set)
    assert isinstance(found, Misfit)
    assert (found.code, found.pod_set) == (code, "main")
    assert {fact: getattr(found, fact) for fact in facts} == facts


def test_an_empty_tree_has_no_domains() -> None:
    """A flavor without nodes is a misfit, not a crash."""
    found = place_one(Capacity.of(make_tree([])), make_pod_set(1, required=RACK))
    assert isinstance(found, Misfit)
    assert (found.code, found.level, found.leaves) == (MisfitCode.NO_DOMAINS_AT_LEVEL, RACK, 0)


def test_pod_sets_of_a_workload_share_the_room() -> None:
    """The second pod set sees what the first took; nothing stays taken afterwards."""
    capacity = racks({"a": 4, "b": 3})
    both = [make_pod_set(4, name="one", required=HOSTNAME), make_pod_set(3, name="two", required=HOSTNAME)]
    for _ in range(2):
        found = place(capacity, both)
        assert hosts(found, "one") == {"a": 4}
        assert hosts(found, "two") == {"b": 3}
    assert capacity.free(0)["cpu"] == 4000


def test_a_later_pod_set_without_room_keeps_what_was_found_before() -> None:
    """The misfit names the failing pod set and carries the earlier ones."""
    found = place(
        racks({"a": 4}), [make_pod_set(3, name="one", required=RACK), make_pod_set(2, name="two", required=RACK)]
    )
    assert isinstance(found, Misfit)
    assert (found.pod_set, found.fit, [p.name for p in found.placed]) == ("two", 1, ["one"])


def test_pod_sets_without_pods_take_no_part() -> None:
    """A count of 0 gets no entry and disturbs nobody."""
    found = place(racks({"a": 1}), [make_pod_set(0, name="none"), make_pod_set(1, name="one", required=RACK)])
    assert isinstance(found, Placement)
    assert [p.name for p in found.pod_sets] == ["one"]


def test_the_number_of_pods_limits_a_host() -> None:
    """Pods are a resource: allocatable pods count even for pods that ask for nothing."""
    nodes = [make_node("a", 8, pods=2), make_node("b", 8, pods=3)]
    found = place_one(Capacity.of(make_tree(nodes)), make_pod_set(5, requests={}, required=RACK))
    assert hosts(found) == {"a": 2, "b": 3}


def test_a_resource_that_no_node_has_excludes_all() -> None:
    """A missing resource counts as 0."""
    found = place_one(racks({"a": 8}), make_pod_set(1, requests={"gpu": 1}, required=RACK))
    assert isinstance(found, Misfit)
    assert dict(found.excluded.resources) == {"gpu": 1}


def test_on_an_empty_cluster_usage_by_topology_does_not_count() -> None:
    """`empty` asks whether the request could ever fit; foreign pods still count."""
    tree = make_tree([make_node("a", 8)])
    capacity = Capacity.of(
        tree, foreign={"node-a": {"cpu": 2000, PODS: 1}}, usage=[DomainUsage(("a",), {"cpu": 1000}, 5)]
    )
    assert isinstance(place_one(capacity, make_pod_set(2, required=RACK)), Misfit)
    assert hosts(place_one(capacity, make_pod_set(6, required=RACK), empty=True)) == {"a": 6}
    assert isinstance(place_one(capacity, make_pod_set(7, required=RACK), empty=True), Misfit)


def test_without_host_names_nodes_of_a_domain_add_up_and_rules_are_ignored() -> None:
    """Racks as lowest level: two nodes make one leaf, taints do not matter, the full path is written."""
    nodes = [make_node("a", 3, taints=(Taint("burning"),)), make_node("b", 3)]
    found = place_one(Capacity.of(make_tree(nodes, LEVELS[:2])), make_pod_set(4, cores=1, required=RACK))
    assert isinstance(found, Placement)
    assert found["main"].assignment.levels == (BLOCK, RACK)
    assert [(d.values, d.count) for d in found["main"].assignment.domains] == [(("b1", "r1"), 4)]


def test_preferred_affinity_comes_before_capacity_where_it_is_asked_for() -> None:
    """The tight host loses against the preferred one; without the switch it wins."""
    nodes = [make_node("a", 8, labels={"disk": "ssd"}), make_node("b", 2)]
    likes = NodeRules(preferred=(WeightedTerm(5, NodeTerm(expressions=(Requirement("disk", "In", ("ssd",)),))),))
    capacity, pod_set = Capacity.of(make_tree(nodes)), make_pod_set(2, required=RACK, rules=likes)
    assert hosts(place_one(capacity, pod_set)) == {"b": 2}
    assert hosts(place_one(capacity, pod_set, profile=Profile(preferred_affinity=True))) == {"a": 2}


def test_where_no_preferred_domain_is_large_enough_the_tightest_of_the_next_best_is_taken() -> None:
    """A required host: the preferred one is too small, two of the others would do."""
    likes = NodeRules(preferred=(WeightedTerm(5, NodeTerm(expressions=(Requirement("disk", "In", ("ssd",)),))),))
    nodes = [make_node("a", 2, labels={"disk": "ssd"}), make_node("b", 8), make_node("c", 5)]
    found = place_one(
        Capacity.of(make_tree(nodes)),
        make_pod_set(4, required=HOSTNAME, rules=likes),
        profile=Profile(preferred_affinity=True),
    )
    assert hosts(found) == {"c": 4}


def test_racks_are_compared_by_whole_parts_of_slices_beside_the_leader() -> None:
    """The leader costs either rack one whole pair of pods, so they are equal, and the first name wins.

    In rack r1 cores are scarce and a leader leaves three pods on its host, in rack r2 memory and it leaves two.
    """
    nodes = [make_node(host, 4, rack="r1", allocatable={"memory": 9}) for host in ("a", "b")]
    nodes += [make_node(host, 9, rack="r2", allocatable={"memory": 4}) for host in ("c", "d")]
    wish: dict[str, Any] = {"group": "ring", "required": RACK, "slices": [(RACK, 4), (HOSTNAME, 2)]}
    group = [
        make_pod_set(1, name="leader", requests={"cpu": 1000, "memory": 2}, **wish),
        make_pod_set(4, name="workers", requests={"cpu": 1000, "memory": 1}, **wish),
    ]
    found = place(Capacity.of(make_tree(nodes)), group)
    assert isinstance(found, Placement)
    assert {path[1] for pod_set in found.pod_sets for path in pod_set.paths} == {"r1"}


def test_flavors_on_the_same_hosts_see_each_other_within_a_workload() -> None:
    """The second flavor, by name, finds what the first left on the host."""
    capacities = {flavor: racks({"a": 4}) for flavor in ("blue", "green")}
    wanted = {
        "green": [make_pod_set(3, name="two", required=RACK)],
        "blue": [make_pod_set(2, name="one", required=RACK)],
    }
    results = place_workload(capacities, wanted)
    assert hosts(results["blue"], "one") == {"a": 2}
    green = results["green"]
    assert isinstance(green, Misfit)
    assert (green.fit, green.total) == (2, 3)


def test_flavors_whose_leaves_are_no_hosts_do_not_see_each_other() -> None:
    """A rack of one flavor is not the same place as a rack of that name in another one, nor a host of that name."""
    nodes = [make_node("r1", 4)]
    capacities = {
        "blue": Capacity.of(make_tree(nodes)),
        "green": Capacity.of(make_tree(nodes, (RACK,))),
        "red": Capacity.of(make_tree(nodes, (RACK,))),
    }
    results = place_workload(
        capacities, {flavor: [make_pod_set(4, name=flavor, required=RACK)] for flavor in capacities}
    )
    assert [hosts(found, flavor) for flavor, found in results.items()] == [{"r1": 4}] * 3


def test_what_a_failing_flavor_placed_before_it_failed_is_taken() -> None:
    """The first pod set of the failing flavor stays on its host; no later flavor gets that room."""
    capacities = {flavor: racks({"a": 4}) for flavor in ("blue", "green")}
    wanted = {
        "blue": [make_pod_set(3, name="one", required=RACK), make_pod_set(3, name="two", required=RACK)],
        "green": [make_pod_set(2, name="three", required=RACK)],
    }
    blue, green = place_workload(capacities, wanted).values()
    assert isinstance(blue, Misfit)
    assert isinstance(green, Misfit)
    assert (blue.fit, [pod_set.name for pod_set in blue.placed], green.fit) == (1, ["one"], 1)


def test_quality_compares_domains_used_with_the_fewest_possible() -> None:
    """Seven pods on 3, 3, 1 use three hosts, and two cannot be enough."""
    found = place_one(racks(ONE_RACK), make_pod_set(7, required=RACK), measure=True)
    assert isinstance(found, Placement)
    assert [(q.used, q.lower_bound) for q in found["main"].quality] == [(1, 1), (1, 1), (3, 3)]
    spread = place_one(racks(ONE_RACK), make_pod_set(7, unconstrained=True), measure=True)
    assert isinstance(spread, Placement)
    assert [(q.used, q.lower_bound) for q in spread["main"].quality] == [(1, 1), (1, 1), (4, 3)]
    for pods, fewest in ((6, 2), (8, 3), (9, 4)):
        exact = place_one(racks(ONE_RACK), make_pod_set(pods, required=RACK), measure=True)
        assert isinstance(exact, Placement)
        assert [(q.used, q.lower_bound) for q in exact["main"].quality] == [(1, 1), (1, 1), (fewest, fewest)]


def test_what_a_placement_takes_is_charged_by_domain() -> None:
    """Usage names the host, the requests of a pod and the number of pods."""
    capacity = racks(ONE_RACK)
    found = place_one(capacity, make_pod_set(7, required=RACK))
    assert isinstance(found, Placement)
    assert usage_of(found) == tuple(DomainUsage((h,), {"cpu": 1000}, n) for h, n in (("a", 3), ("b", 3), ("d", 1)))
    capacity.charge(usage_of(found))
    again = place_one(capacity, make_pod_set(3, required=RACK))
    assert isinstance(again, Misfit)
    assert again.fit == 2


@pytest.mark.parametrize(
    ("wish", "want"),
    [
        pytest.param({"required": RACK}, None, id="known-level"),
        pytest.param({"required": "shelf"}, "shelf", id="unknown-level"),
        pytest.param({"preferred": "auto"}, None, id="auto-counts-as-known"),
        pytest.param({"slices": [(RACK, 2), ("shelf", 1)]}, "shelf", id="unknown-slice-level"),
        pytest.param({}, None, id="nothing-asked"),
    ],
)
def test_the_flavor_check_finds_missing_levels_before_any_search(wish: dict[str, Any], want: str | None) -> None:
    """Only level names are looked at."""
    assert missing_level(make_tree([]), make_pod_set(2, **wish)) == want


def test_a_request_has_no_topology_by_itself_unless_implied() -> None:
    """The default of a pod set is the implied request of a queue whose flavors all have a topology."""
    assert PodSetRequest(name="p", count=1, requests={}).topology == TopologyRequest(implied=True)


def test_a_shortage_says_what_workloads_hold_there_and_not_what_strangers_do() -> None:
    """Of nine cores two are a workload's, three a stranger's."""
    tree = racks({"a": 9}).tree
    stranger = {"node-a": {"cpu": 3000}}
    capacity = Capacity.of(tree, foreign=stranger, usage=[DomainUsage(("a",), {"cpu": 1000}, 2)])
    found = place(capacity, [make_pod_set(5, required=RACK)])

    assert isinstance(found, Misfit)
    assert found.shortage == Shortage("cpu", 5_000, 4_000, held=2_000)


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [
        pytest.param(1, {"tight": 2}, id="both-fill-the-smallest-host"),
        pytest.param(2, {"middle": 3}, id="all-fill-the-next-one"),
        pytest.param(3, {"large": 4}, id="all-fill-the-largest"),
        pytest.param(4, {"large": 4, "tight": 1}, id="the-rest-goes-to-the-smallest-host-that-holds-it"),
        pytest.param(5, {"large": 4, "tight": 2}, id="the-rest-fills-the-smallest-host"),
    ],
)
def test_a_leader_and_its_workers_fill_the_host_that_fits_best(workers: int, wanted: dict[str, int]) -> None:
    """The one with the least room that is enough, exactly enough included."""
    capacity = racks({"large": 4, "middle": 3, "tight": 2})
    pods = [
        make_pod_set(1, name="leader", group="ring", required=RACK),
        make_pod_set(workers, name="workers", group="ring", required=RACK),
    ]
    found = place(capacity, pods)
    assert isinstance(found, Placement)

    together: dict[str, int] = {}
    for name in ("leader", "workers"):
        for host, count in hosts(found, name).items():
            together[host] = together.get(host, 0) + count
    assert together == wanted


@pytest.mark.parametrize(
    ("rooms", "wanted"),
    [
        pytest.param({"a": 2, "b": 2}, {"a": 2, "b": 2}, id="two-pairs-exactly"),
        pytest.param({"a": 3, "b": 3}, {"a": 2, "b": 2}, id="what-is-left-of-a-host-makes-no-pair"),
        pytest.param({"a": 4, "b": 1}, {"a": 4}, id="two-pairs-on-one-host"),
        pytest.param({"a": 3, "b": 1}, None, id="four-pods-and-one-pair"),
        pytest.param({"a": 1, "b": 1, "c": 2}, None, id="single-places-make-no-pair"),
    ],
)
def test_slices_inside_slices_are_whole_pairs_on_hosts(rooms: dict[str, int], wanted: dict[str, int] | None) -> None:
    """A slice of four pods in a rack, in it pairs on hosts."""
    found = place_one(racks(rooms), make_pod_set(4, required=RACK, slices=[(RACK, 4), (HOSTNAME, 2)]))

    if wanted is None:
        assert isinstance(found, Misfit)
    else:
        assert hosts(found) == wanted
