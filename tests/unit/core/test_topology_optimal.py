"""The optimal profile: tables made by hand, and the same answer as trying every set of leaves."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    Misfit,
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
    BLOCK,
    RACK,
    hosts,
    make_pod_set,
    make_tree,
    place_one,
    racks,
)

OPTIMAL = Profile(constrained=Algorithm.OPTIMAL)
ALL_LEVELS = ("zone", BLOCK, RACK, HOSTNAME)
CASES = int(os.environ.get("KQUEUE_OPTIMAL_CASES", "800"))


@pytest.mark.parametrize(
    ("hosts_per_rack", "pods", "wish", "want"),
    [
        pytest.param(
            [{"a": 19, "b": 10, "c": 10}], 20, {"required": RACK}, {"b": 10, "c": 10}, id="two-that-fit-exactly"
        ),
        pytest.param(
            [{"a1": 3, "a2": 3, "a3": 3, "a4": 3}, {"b1": 9}, {"c1": 8}],
            11,
            {"preferred": RACK},
            {"a1": 3, "a2": 3, "a3": 3, "a4": 2},
            id="fewer-racks-count-more-than-fewer-hosts",
        ),
        pytest.param(
            [{"a": 9, "b": 4, "c": 4}], 8, {"required": RACK}, {"a": 8}, id="fewer-hosts-count-more-than-less-surplus"
        ),
        pytest.param([{"a": 5, "b": 4}], 4, {"preferred": RACK}, {"b": 4}, id="less-surplus-counts-more-than-names"),
        pytest.param(
            [{"a": 4, "b": 4, "c": 4}], 8, {"required": RACK}, {"a": 4, "b": 4}, id="of-equals-those-with-first-names"
        ),
        pytest.param(
            [{"a1": 6, "a2": 1}, {"b1": 4, "b2": 3}, {"c1": 5, "c2": 2}],
            13,
            {"preferred": RACK},
            {"a1": 6, "b1": 4, "b2": 3},
            id="of-two-racks-out-of-three-the-first-exact-fit",
        ),
        pytest.param(
            [{"a1": 9, "a2": 3}, {"b1": 6, "b2": 5}],
            22,
            {"preferred": RACK},
            {"a1": 9, "a2": 3, "b1": 6, "b2": 4},
            id="the-last-host-of-the-last-rack-takes-the-rest",
        ),
        pytest.param([{"a": 4}, {"b": 3}], 3, {"required": HOSTNAME}, {"b": 3}, id="one-host-the-tightest"),
        pytest.param(
            [{"a": 5, "b": 6, "c": 4, "d": 4}],
            8,
            {"required": RACK, "slices": [(HOSTNAME, 4)]},
            {"c": 4, "d": 4},
            id="hosts-with-whole-slices-and-no-waste",
        ),
        pytest.param(
            [{"a": 5, "b": 2}, {"c": 3, "d": 3}],
            6,
            {"preferred": BLOCK, "slices": [(RACK, 6)]},
            {"c": 3, "d": 3},
            id="a-slice-fills-the-rack-that-it-fits-exactly",
        ),
        pytest.param(
            [{"a": 3, "b": 3, "c": 2}],
            4,
            {"required": RACK, "slices": [(RACK, 4), (HOSTNAME, 2)]},
            {"a": 2, "c": 2},
            id="inner-groups-stay-whole",
        ),
        pytest.param(
            [{"a": 3, "b": 5}, {"c": 3, "d": 5}],
            4,
            {"preferred": RACK, "slices": [(HOSTNAME, 2)]},
            {"b": 4},
            id="a-host-with-two-slices-is-one-host",
        ),
        pytest.param(
            [{"a": 3, "b": 2}, {"c": 3, "d": 2}],
            4,
            {"preferred": RACK, "slices": [(HOSTNAME, 2)]},
            {"a": 2, "b": 2},
            id="of-equal-racks-the-first-though-both-waste",
        ),
    ],
)
def test_the_best_hosts_are_chosen(
    hosts_per_rack: Sequence[Mapping[str, int]], pods: int, wish: dict[str, Any], want: dict[str, int]
) -> None:
    """Fewest domains from the widest level down, then least surplus, then first names."""
    found = place_one(racks(*hosts_per_rack), make_pod_set(pods, **wish), profile=OPTIMAL)
    assert hosts(found) == want
    assert isinstance(found, Placement)
    assert found["main"].proven is True


@pytest.mark.parametrize(
    ("rooms", "workers", "cores", "want", "leader"),
    [
        pytest.param({"a": 7, "b": 6}, 4, 1, {"b": 4}, "b", id="on-the-host-that-is-full-then"),
        pytest.param({"a": 4, "b": 4}, 6, 1, {"a": 2, "b": 4}, "a", id="of-equals-on-the-first"),
        pytest.param({"a": 1, "b": 4, "c": 5}, 7, 1, {"b": 2, "c": 5}, "b", id="where-it-fits-beside-the-workers"),
        pytest.param({"a": 6, "b": 2}, 2, 3, {"a": 2}, "b", id="alone-on-a-host-that-holds-no-worker"),
    ],
)
def test_the_leader_counts(rooms: dict[str, int], workers: int, cores: int, want: dict[str, int], leader: str) -> None:
    """A leader of two cores, and its workers, all in one rack."""
    group = [
        make_pod_set(1, name="leader", cores=2, group="ring", required=RACK),
        make_pod_set(workers, name="workers", cores=cores, group="ring", required=RACK),
    ]
    found = place(racks(rooms), group, profile=OPTIMAL)
    assert hosts(found, "workers") == want
    assert hosts(found, "leader") == {leader: 1}
    assert isinstance(found, Placement)
    assert [pod_set.proven for pod_set in found.pod_sets] == [True, True]


def test_unconstrained_requests_have_their_own_profile() -> None:
    """Four pods that may go anywhere fill small hosts first, and nothing is proven."""
    found = place_one(racks({"a": 1, "b": 3, "c": 2}), make_pod_set(4, unconstrained=True), profile=OPTIMAL)
    assert hosts(found) == {"a": 1, "b": 1, "c": 2}
    assert isinstance(found, Placement)
    assert found["main"].proven is None


def test_best_fit_proves_nothing() -> None:
    """Only the optimal profile says whether its answer is proven."""
    found = place_one(racks({"a": 4}), make_pod_set(4, required=RACK))
    assert isinstance(found, Placement)
    assert found["main"].proven is None


def test_what_does_not_fit_is_told_as_by_best_fit() -> None:
    """The same misfit with the same numbers."""
    capacity, pod_set = racks({"a": 3, "b": 2}), make_pod_set(6, required=RACK)
    found = place_one(capacity, pod_set, profile=OPTIMAL)
    assert isinstance(found, Misfit)
    assert found == place_one(capacity, pod_set)


def test_preferred_affinity_does_not_count() -> None:
    """Best fit would follow the preference to the larger host."""
    wanted = NodeRules(preferred=(WeightedTerm(5, NodeTerm(expressions=(Requirement(HOSTNAME, "In", ("a",)),))),))
    pod_set = make_pod_set(4, required=RACK, rules=wanted)
    assert hosts(place_one(racks({"a": 5, "b": 4}), pod_set, profile=replace(OPTIMAL, preferred_affinity=True))) == {
        "b": 4
    }


def test_a_search_that_may_look_at_nothing_answers_as_best_fit() -> None:
    """The limit is respected, and the answer says that it is not proven."""
    found = place_one(
        racks({"a": 19, "b": 10, "c": 10}), make_pod_set(20, required=RACK), profile=replace(OPTIMAL, search_limit=0)
    )
    assert hosts(found) == {"a": 19, "b": 1}
    assert isinstance(found, Placement)
    assert found["main"].proven is False


def test_a_search_that_may_look_at_nothing_knows_roomy_domains() -> None:
    """Best fit would end on the rack r3, which fits exactly, and use eight hosts."""
    capacity = racks({f"a{i}": 2 for i in range(4)}, {"b": 5}, {f"c{i}": 1 for i in range(4)})
    pod_set = make_pod_set(12, preferred=RACK)
    found = place_one(capacity, pod_set, profile=replace(OPTIMAL, search_limit=0))
    assert len(hosts(place_one(capacity, pod_set))) == 8
    assert hosts(found) == {"a0": 2, "a1": 2, "a2": 2, "a3": 2, "b": 4}
    assert isinstance(found, Placement)
    assert found["main"].proven is False


def test_a_search_of_few_steps_knows_roomy_domains_for_a_leader() -> None:
    """The same with a leader, which takes a core of the first host."""
    capacity = racks({f"a{i}": 2 for i in range(4)}, {"b": 5}, {f"c{i}": 1 for i in range(4)})
    group = [
        make_pod_set(11, name="workers", group="ring", preferred=RACK),
        make_pod_set(1, name="leader", group="ring", preferred=RACK),
    ]
    found = place(capacity, group, profile=replace(OPTIMAL, search_limit=100))
    assert hosts(found, "workers") == {"a0": 1, "a1": 2, "a2": 2, "a3": 2, "b": 4}
    assert hosts(found, "leader") == {"a0": 1}
    assert len(hosts(place(capacity, group), "workers")) > 5


def test_first_hosts_without_surplus_need_no_search() -> None:
    """In an empty cluster best fit is optimal, and that is known from its sums, without combining hosts."""
    capacity = racks(*({f"h{rack}{i}": 8 for i in range(4)} for rack in range(3)))
    found = place_one(capacity, make_pod_set(37, preferred=RACK), profile=replace(OPTIMAL, search_limit=100))
    assert hosts(found) == {"h00": 8, "h01": 8, "h02": 8, "h03": 8, "h10": 5}
    assert isinstance(found, Placement)
    assert found["main"].proven is True


# -- a second way to the same answer: every set of leaves ------------------------------------------------------------


@dataclass(frozen=True)
class Host:
    """Cores and pods that are free on it, and what it says to pods."""

    path: tuple[str, ...]
    cores: int
    pods: int = 110
    disk: str = "ssd"


@dataclass(frozen=True)
class Wish:
    """Pods of `cores` each; a leader of `leader_cores` with them; slices by level number; the required level."""

    count: int
    cores: int = 1
    required: int | None = None
    slices: tuple[tuple[int, int], ...] = ()
    leader_cores: int | None = None
    disk: str | None = None
    leader_disk: str | None = None


class EverySet:
    """All sets of hosts, with every host of the set for the leader."""

    def __init__(self, hosts: Sequence[Host], wish: Wish) -> None:
        self.hosts = sorted(hosts, key=lambda host: host.path)
        self.wish = wish
        self.depth = len(self.hosts[0].path)
        size = wish.slices[0][1] if wish.slices else 1
        self.need = wish.count // size * size
        self.units = [1] * self.depth
        for i, (level, layer_size) in enumerate(wish.slices):
            first = level if i == 0 else wish.slices[i - 1][0] + 1
            self.units[first : level + 1] = [layer_size] * (level + 1 - first)

    def holds(self, host: Host, leader: Host | None) -> int:
        cores, pods = host.cores, host.pods
        if host is leader:
            cores, pods = cores - (self.wish.leader_cores or 0), pods - 1
        if self.wish.disk not in (None, host.disk):
            return 0
        return max(0, min(cores // self.wish.cores, pods))

    def can_lead(self, host: Host) -> bool:
        wish = self.wish
        accepted = wish.disk in (None, host.disk) and wish.leader_disk in (None, host.disk)
        return accepted and wish.leader_cores is not None and host.cores >= wish.leader_cores and host.pods >= 1

    def room(self, used: Sequence[Host], leader: Host | None, prefix: tuple[str, ...]) -> int:
        """Pods in whole groups that fit under a domain, on the used hosts alone."""
        inside = [host for host in used if host.path[: len(prefix)] == prefix]
        if len(prefix) == self.depth:
            fits = self.holds(inside[0], leader)
        else:
            children = sorted({host.path[: len(prefix) + 1] for host in inside})
            fits = sum(self.room(inside, leader, child) for child in children)
        return fits // self.units[len(prefix) - 1] * self.units[len(prefix) - 1] if prefix else fits

    def amounts(
        self, used: Sequence[Host], leader: Host | None, prefix: tuple[str, ...], pods: int
    ) -> dict[tuple[str, ...], int]:
        if len(prefix) == self.depth:
            return {prefix: pods}
        inside = [host for host in used if host.path[: len(prefix)] == prefix]
        children = sorted({host.path[: len(prefix) + 1] for host in inside})
        result: dict[tuple[str, ...], int] = {}
        for child in sorted(children, key=lambda child: (-self.room(inside, leader, child), child)):
            share = min(pods, self.room(inside, leader, child))
            result |= self.amounts(inside, leader, child, share)
            pods -= share
        return result

    def key(self, used: Sequence[Host], leader: Host | None) -> tuple[Any, ...]:
        domains = tuple(len({host.path[: level + 1] for host in used}) for level in range(self.depth))
        surplus = sum(self.holds(host, leader) for host in used) - self.need
        return domains, surplus, [host.path for host in used], leader.path if leader else None

    def best(self) -> tuple[dict[tuple[str, ...], int], tuple[str, ...] | None, tuple[Any, ...]] | None:
        """Workers by path, the leader's path, and the key; None when nothing holds all."""
        able = [host for host in self.hosts if self.holds(host, None) or self.can_lead(host)]
        best: tuple[tuple[Any, ...], tuple[Host, ...], Host | None] | None = None
        for number in range(1, len(able) + 1):
            for used in itertools.combinations(able, number):
                if self.wish.required is not None and len({host.path[: self.wish.required + 1] for host in used}) > 1:
                    continue
                for leader in filter(self.can_lead, used) if self.wish.leader_cores is not None else (None,):
                    key = self.key(used, leader)
                    if (best is None or key < best[0]) and self.room(used, leader, ()) >= self.need:
                        best = key, used, leader
        if best is None:
            return None
        key, used, leader = best
        workers = {path: pods for path, pods in self.amounts(used, leader, (), self.need).items() if pods}
        return workers, leader.path if leader else None, key

    def key_of(self, found: Placement) -> tuple[Any, ...]:
        """How good a placement of the engine is."""
        by_path = {host.path: host for host in self.hosts}
        leader = by_path[found["leader"].paths[0]] if self.wish.leader_cores is not None else None
        used = sorted({*found["workers"].paths, *([leader.path] if leader else [])})
        return self.key([by_path[path] for path in used], leader)


def capacity_of(hosts: Sequence[Host]) -> Capacity:
    levels = ALL_LEVELS[4 - len(hosts[0].path) :]
    nodes = [
        NodeFacts(
            name="/".join(host.path),
            labels={**dict(zip(levels, host.path, strict=True)), "disk": host.disk},
            allocatable={"cpu": host.cores * 1000, "pods": host.pods},
        )
        for host in hosts
    ]
    return Capacity.of(make_tree(nodes, levels))


def pod_sets_of(wish: Wish, levels: Sequence[str]) -> list[PodSetRequest]:
    slices = tuple(SliceLayer(levels[at], size) for at, size in wish.slices)
    level = levels[wish.slices[0][0] if wish.slices else 0]
    topology = TopologyRequest(preferred=level, slices=slices)
    if wish.required is not None:
        topology = TopologyRequest(required=levels[wish.required], slices=slices)

    def pod_set(name: str, count: int, cores: int, disk: str | None) -> PodSetRequest:
        return PodSetRequest(
            name=name,
            count=count,
            requests={"cpu": cores * 1000},
            topology=topology,
            group=None if wish.leader_cores is None else "ring",
            rules=NodeRules(selector=(("disk", disk),) if disk else ()),
        )

    workers = pod_set("workers", wish.count, wish.cores, wish.disk)
    if wish.leader_cores is None:
        return [workers]
    return [workers, pod_set("leader", 1, wish.leader_cores, wish.leader_disk)]


def some_hosts(chance: random.Random, number: int, depth: int, *, width: int = 2) -> list[Host]:
    top = chance.choice([3, 6, 12])
    found = {}
    for i in range(number):
        inner = tuple(f"{level}{chance.randint(0, width)}" for level in range(depth - 1))
        path = (*inner, f"h{i:02}")
        disk = chance.choice(["ssd", "ssd", "ssd", "hdd"])
        found[path] = Host(path, chance.randint(0, top), chance.choice([110, 110, 110, 4]), disk)
    return list(found.values())


def some_wish(chance: random.Random, depth: int, room: int) -> Wish:
    slices: list[tuple[int, int]] = []
    if chance.random() < 0.5:
        sizes = [chance.choice([1, 2, 3, 4, 6])]
        levels = sorted(chance.sample(range(depth), chance.randint(1, min(3, depth))))
        while len(sizes) < len(levels):
            sizes.append(chance.choice([size for size in range(1, sizes[-1] + 1) if sizes[-1] % size == 0]))
        slices = list(zip(levels, sizes, strict=True))
    highest = slices[0][0] if slices else depth - 1
    size = slices[0][1] if slices else 1
    return Wish(
        count=chance.randint(size, max(size, int(room * chance.choice([0.3, 0.6, 1.0])))),
        cores=chance.choice([1, 1, 2]),
        required=chance.choice([None, None, chance.randint(0, highest)]),
        slices=tuple(slices),
        leader_cores=chance.choice([None, None, 1, 2, 5]),
        disk=chance.choice([None, None, "ssd"]),
        leader_disk=chance.choice([None, None, "hdd"]),
    )


def compare(seed: int) -> bool:
    """One case, asked and tried out; True when it was possible at all."""
    chance = random.Random(seed)
    depth = chance.randint(1, 4)
    found_hosts = some_hosts(chance, chance.randint(1, 8), depth)
    wish = some_wish(chance, depth, sum(host.cores for host in found_hosts))
    every = EverySet(found_hosts, wish)
    expected = every.best()
    found = place(capacity_of(found_hosts), pod_sets_of(wish, ALL_LEVELS[4 - depth :]), profile=OPTIMAL)
    if expected is None:
        assert isinstance(found, Misfit), found
        return False
    assert isinstance(found, Placement), found
    workers, leader, key = expected
    assert every.key_of(found) == key
    placed = found["workers"]
    assert {p: d.count for p, d in zip(placed.paths, placed.assignment.domains, strict=True)} == workers
    if leader is not None:
        assert found["leader"].paths == (leader,)
    assert {pod_set.proven for pod_set in found.pod_sets} == {True}
    return True


@pytest.mark.parametrize("block", range(8))
def test_the_answer_is_the_best_of_all_sets_of_leaves(block: int) -> None:
    """Small random trees, with and without slices, layers, a leader and hosts that do not accept the pods."""
    possible = 0
    for seed in range(block * CASES // 8, (block + 1) * CASES // 8):
        try:
            possible += compare(seed)
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}: {difference}") from difference
    assert possible > CASES // 8 // 3


def larger(seed: int) -> tuple[list[Host], Wish]:
    """Scores of hosts: too many to try every set."""
    chance = random.Random(seed)
    depth = chance.randint(2, 4)
    found = some_hosts(chance, chance.randint(20, 80), depth, width=3)
    return found, some_wish(chance, depth, sum(host.cores for host in found))


def asked(found_hosts: Sequence[Host], wish: Wish, profile: Profile) -> Placement | Misfit:
    return place(
        capacity_of(found_hosts), pod_sets_of(wish, ALL_LEVELS[4 - len(found_hosts[0].path) :]), profile=profile
    )


@pytest.mark.parametrize("limit", [0, 40, 400, 4_000, 40_000])
def test_the_answer_is_never_worse_than_best_fit(limit: int) -> None:
    """Whatever the limit; a proven answer is the one without limit, and a higher limit proves more."""
    proven = []
    for seed in range(60):
        found_hosts, wish = larger(seed)
        every = EverySet(found_hosts, wish)
        best_fit = asked(found_hosts, wish, Profile())
        found = asked(found_hosts, wish, replace(OPTIMAL, search_limit=limit))
        if isinstance(best_fit, Misfit):
            assert found == best_fit
            continue
        assert isinstance(found, Placement), found
        assert every.key_of(found) <= every.key_of(best_fit), f"seed {seed}"
        proven.append(found["workers"].proven)
        if found["workers"].proven:
            assert found == asked(found_hosts, wish, OPTIMAL), f"seed {seed}"
    assert all(proven) == (limit == 40_000)


def test_the_order_of_hosts_does_not_matter() -> None:
    """The same answer for the same hosts, also when the search ends early."""
    for seed in range(20):
        found_hosts, wish = larger(seed)
        for limit in (100, 1_000_000):
            profile = replace(OPTIMAL, search_limit=limit)
            shuffled = random.Random(seed).sample(found_hosts, len(found_hosts))
            assert asked(shuffled, wish, profile) == asked(found_hosts, wish, profile)
