"""The engine against the plain reference: same answer on random trees."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    Domain,
    DomainUsage,
    GangDomains,
    Misfit,
    NodeFacts,
    NodeRules,
    NodeTerm,
    Placement,
    PodSetRequest,
    Profile,
    Requirement,
    SliceLayer,
    Taint,
    Toleration,
    TopologyAssignment,
    TopologyRequest,
    Tree,
    WeightedTerm,
    find_replacement,
    membership,
    place,
    place_workload,
)
from tests.unit.core.reference_placement import (
    Domains,
    RefEngine,
    RefFailure,
    RefNode,
    RefRequest,
    leaves_of,
    place_flavors,
)

SSD_OR_ZEAL: tuple[dict[str, tuple[str, ...]], ...] = (
    {},
    {"disk": ("ssd", "nvme")},
    {"disk": ("hdd",), "zeal": ("high", "low")},
)
ALL_LEVELS = ("zone", "block", "rack", HOSTNAME)
TAINTS = (("burning", "", "NoSchedule"), ("draining", "soon", "NoExecute"), ("spot", "", "PreferNoSchedule"))
CASES = int(os.environ.get("KQUEUE_REFERENCE_CASES", "1000"))


@dataclass
class Question:
    """A flavor and what is to be placed in it.

    `usage`: written domain, requests of a pod, pods, of workloads placed by topology.  `tolerated`: taint keys that the
    flavor puts up with.  `within`: the only domains that may be used.
    """

    levels: tuple[str, ...]
    nodes: list[RefNode]
    wanted: list[RefRequest]
    profile: Profile
    merge: bool = False
    usage: list[tuple[tuple[str, ...], dict[str, int], int]] = field(default_factory=list)
    tolerated: frozenset[str] = frozenset()
    empty: bool = False
    within: tuple[tuple[str, ...], ...] | None = None


class Chooser(Protocol):
    """Where chance comes from: hypothesis, which shrinks, or a seeded generator, which is fast and even."""

    def number(self, low: int, high: int) -> int: ...
    def one_of(self, items: Sequence[Any]) -> Any: ...


class Drawn:
    """Chance from hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def one_of(self, items: Sequence[Any]) -> Any:
        return self._data.draw(st.sampled_from(items))


class Seeded:
    """Chance from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def one_of(self, items: Sequence[Any]) -> Any:
        return self._random.choice(items)


def some_nodes(chance: Chooser, levels: tuple[str, ...]) -> list[RefNode]:
    """Up to a score of nodes with uneven rooms, some tainted, some with foreign pods, some with another one's host."""
    found = []
    twins = chance.number(0, 5) == 0
    for i in range(chance.number(1, 20)):
        inner = [f"{level[0]}{chance.number(0, 2)}" for level in levels[:-1]]
        host = i if not twins else chance.number(0, i)
        path = (*inner, f"h{host:02}" if levels[-1] == HOSTNAME else f"x{chance.number(0, 2)}")
        room = {"cpu": chance.number(0, 12), "pods": chance.one_of([110, 110, 110, 110, 5, 2, 0])}
        if chance.one_of([True, False]):
            room["gpu"] = chance.number(0, 8)
        foreign = {"cpu": chance.number(0, 2), "pods": 1} if chance.number(0, 3) == 0 else {}
        labels = {"disk": chance.one_of(["ssd", "hdd"]), "zeal": chance.one_of(["low", "high"])}
        taints = tuple(chance.one_of(TAINTS) for _ in range(chance.one_of([0, 0, 0, 1, 1, 2])))
        found.append(RefNode(f"node-{i * 7 % 20:02}", path, room, foreign, labels, taints))
    return found


def some_wish(chance: Chooser, levels: tuple[str, ...]) -> dict[str, Any]:
    """A main level or none, and slices or none; one in eight is thrown together and mostly impossible."""
    messy = chance.number(0, 7) == 0
    wish: dict[str, Any] = {}
    sliced = chance.one_of([True, False])
    top = len(levels)
    if sliced:
        inner = chance.one_of([1, 1, 2, 3])
        sizes = [inner * chance.number(1, 3), inner, 1][: chance.number(1, min(3, len(levels)))]
        names = [chance.one_of(levels) for _ in sizes]
        if not messy:
            at = sorted({levels.index(name) for name in names})
            names, sizes = [levels[i] for i in at], sizes[: len(at)]
            top = at[0] + 1
        wish["slices"] = tuple(zip(names, sizes, strict=True))
    level = chance.one_of([*levels, "unknown"] if messy else levels[:top])
    kind = chance.one_of(["required", "preferred", "preferred", "unconstrained", "implied", "none"])
    wish |= {
        "required": {"required": level},
        "preferred": {"preferred": level if sliced else chance.one_of([level, level, "auto"])},
        "unconstrained": {"unconstrained": not messy or chance.one_of([True, False])},
        "implied": {"implied": True},
        "none": {} if sliced or messy else {"required": levels[0]},
    }[kind]
    if kind in ("required", "preferred") and chance.number(0, 7) == 0:
        wish[chance.one_of(["unconstrained", "implied"])] = True  # no webhook lets this pass
    if not messy and kind in ("unconstrained", "implied") and top < len(levels):
        del wish["slices"]  # such a request starts at the lowest level, below these slices
    return wish


def some_pod_sets(chance: Chooser, levels: tuple[str, ...]) -> list[RefRequest]:
    """One to three pod sets, two of them sometimes a group: leader and workers, or hardly ever no possible one."""
    result = []
    grouped, single = chance.one_of([True, False]), chance.number(0, 1)
    odd = grouped and chance.number(0, 15) == 0
    wish: dict[str, Any] = {}
    for i in range(chance.number(2 if grouped else 1, 3)):
        if odd or not (grouped and i == 1):
            wish = some_wish(chance, levels)
        requests = {"cpu": chance.one_of([1, 1, 2, 3, 0])}
        if chance.number(0, 3) == 0:
            requests[chance.one_of(["gpu", "gpu", "pods"])] = chance.number(0, 2)
        in_group = grouped and (i < 2 or odd)
        result.append(
            RefRequest(
                name=f"set-{i}",
                count=1
                if in_group and not odd and i == single
                else chance.number(chance.one_of([0, 1, 1]), chance.one_of([8, 24])),
                requests=requests,
                group="pair" if in_group else None,
                selector=chance.one_of([{}, {}, {"disk": "ssd"}]),
                terms=chance.one_of([None, None, None, (), ({"zeal": ("high",)},), SSD_OR_ZEAL]),
                tolerated=chance.one_of([frozenset(), frozenset({"burning"})]),
                weights=chance.one_of([{}, {("disk", "hdd"): 3}]),
                **wish,
            )
        )
    return result


def some_previous(chance: Chooser, levels: tuple[str, ...], nodes: list[RefNode], wanted: list[RefRequest]) -> None:
    """Give pod sets places of an earlier slice, one in eight of them gone."""
    for pod_set in wanted:
        if chance.number(0, 4) == 0:
            continue
        left = chance.number(1, pod_set.count + 3)
        held: dict[tuple[str, ...], int] = {}
        for path in sorted(leaf.path for leaf in leaves_of(levels, nodes, merge=False)):
            taken = min(left, chance.number(0, 3))
            if taken:
                held[written(levels, path)] = taken
            left -= taken
        if chance.number(0, 7) == 0:
            held[written(levels, ("gone",) * len(levels))] = 1
        if held:
            pod_set.previous = list(held.items())


def some_usage(
    chance: Chooser, levels: tuple[str, ...], nodes: list[RefNode]
) -> list[tuple[tuple[str, ...], dict[str, int], int]]:
    """What other workloads hold, more than there is here and there, and something where no node is any more."""
    places = [chance.one_of(nodes).path for _ in range(chance.one_of([0, 0, 1, 4]))]
    if places:
        places.append(("gone",) * len(levels))
    return [(written(levels, path), {"cpu": chance.number(0, 3)}, chance.number(1, 3)) for path in places]


def written(levels: tuple[str, ...], path: tuple[str, ...]) -> tuple[str, ...]:
    return path[-1:] if levels[-1] == HOSTNAME else path


def to_previous(levels: tuple[str, ...], wanted: list[RefRequest]) -> dict[str, TopologyAssignment]:
    """What those pod sets hold, in the engine's form."""
    written = levels[-1:] if levels[-1] == HOSTNAME else levels
    return {
        pod_set.name: TopologyAssignment(written, tuple(Domain(values, n) for values, n in pod_set.previous))
        for pod_set in wanted
        if pod_set.previous is not None
    }


def to_capacity(question: Question) -> Capacity:
    nodes = [
        NodeFacts(
            name=node.name,
            labels={**dict(zip(question.levels, node.path, strict=True)), **node.labels},
            allocatable=node.allocatable,
            taints=tuple(Taint(*taint) for taint in node.taints),
        )
        for node in question.nodes
    ]
    leaves = membership(nodes, levels=question.levels, node_labels={}, merge_duplicate_hostnames=question.merge).leaves
    tolerations = tuple(Toleration(key=key, operator="Exists") for key in question.tolerated)
    tree = Tree(topology="default", levels=question.levels, leaves=leaves, tolerations=tolerations)
    usage = [DomainUsage(values, requests, count) for values, requests, count in question.usage]
    return Capacity.of(tree, foreign={node.name: node.foreign for node in question.nodes}, usage=usage)


def to_reference(question: Question) -> RefEngine:
    profile = question.profile
    leaves = leaves_of(question.levels, question.nodes, merge=question.merge)
    for values, requests, count in question.usage:
        for leaf in leaves:
            if written(question.levels, leaf.path) == values:
                for resource, amount in {**requests, "pods": requests.get("pods", 0) + 1}.items():
                    leaf.used[resource] = leaf.used.get(resource, 0) + amount * count
    return RefEngine(
        question.levels,
        leaves,
        least_unconstrained=profile.unconstrained is Algorithm.LEAST_FREE_CAPACITY,
        least_always=profile.constrained is Algorithm.LEAST_FREE_CAPACITY,
        affinity=profile.preferred_affinity,
        balanced=profile.constrained is Algorithm.BALANCED,
        tolerated=question.tolerated,
        empty=question.empty,
        within=question.within,
    )


def to_request(pod_set: RefRequest) -> PodSetRequest:
    return PodSetRequest(
        name=pod_set.name,
        count=pod_set.count,
        requests=pod_set.requests,
        topology=TopologyRequest(
            required=pod_set.required,
            preferred=pod_set.preferred,
            unconstrained=pod_set.unconstrained,
            implied=pod_set.implied,
            slices=tuple(SliceLayer(*layer) for layer in pod_set.slices),
        ),
        group=pod_set.group,
        rules=NodeRules(
            selector=tuple(sorted(pod_set.selector.items())),
            required=None if pod_set.terms is None else tuple(to_term(term) for term in pod_set.terms),
            tolerations=tuple(Toleration(key=key, operator="Exists") for key in sorted(pod_set.tolerated)),
            preferred=tuple(
                WeightedTerm(weight, NodeTerm(expressions=(Requirement(key, "In", (value,)),)))
                for (key, value), weight in pod_set.weights.items()
            ),
        ),
    )


def inside(request: PodSetRequest, question: Question) -> PodSetRequest:
    """The request within the domains of the question."""
    if question.within is None:
        return request
    levels = question.levels[: len(question.within[0])]
    return replace(request, within=GangDomains(levels=levels, paths=tuple(sorted(question.within))))


def to_term(term: dict[str, tuple[str, ...]]) -> NodeTerm:
    return NodeTerm(expressions=tuple(Requirement(key, "In", values) for key, values in term.items()))


def facts_of(misfit: Misfit) -> dict[str, Any]:
    """All facts in the reference's words."""
    excluded: dict[str, int] = {f"taint {name}": n for name, n in misfit.excluded.taints.items()}
    excluded |= {f"resource {name}": n for name, n in misfit.excluded.resources.items()}
    if misfit.excluded.node_selector:
        excluded["selector"] = misfit.excluded.node_selector
    if misfit.excluded.affinity:
        excluded["affinity"] = misfit.excluded.affinity
    if misfit.excluded.topology_domain:
        excluded["outside"] = misfit.excluded.topology_domain
    short = misfit.shortage
    layers = [(layer.level, layer.fit, layer.total) for layer in misfit.layers]
    return {
        "excluded": excluded,
        "layers": layers,
        "placed": domains_of(Placement(misfit.placed)),
        "shortage": None if short is None else (short.resource, short.asked, short.free),
    }


def domains_of(found: Placement) -> dict[str, Domains]:
    return {
        p.name: [(path, d.count) for path, d in zip(p.paths, p.assignment.domains, strict=True)] for p in found.pod_sets
    }


def some_levels(chance: Chooser) -> tuple[str, ...]:
    return ALL_LEVELS[chance.number(0, 3) :] if chance.one_of([True, False]) else ALL_LEVELS[:3]


def some_profile(chance: Chooser) -> Profile:
    return Profile(
        constrained=chance.one_of([Algorithm.BEST_FIT, Algorithm.BALANCED, Algorithm.LEAST_FREE_CAPACITY]),
        unconstrained=chance.one_of([Algorithm.LEAST_FREE_CAPACITY, Algorithm.LEAST_FREE_CAPACITY, Algorithm.BEST_FIT]),
        preferred_affinity=chance.number(0, 2) == 0,
    )


def some_question(chance: Chooser) -> Question:
    """Anything at all."""
    levels = some_levels(chance)
    nodes, wanted = some_nodes(chance, levels), some_pod_sets(chance, levels)
    question = Question(levels, nodes, wanted, some_profile(chance), usage=some_usage(chance, levels, nodes))
    question.merge = chance.one_of([True, False])
    question.tolerated = chance.one_of([frozenset(), frozenset(), frozenset({"draining"})])
    question.empty = chance.number(0, 5) == 0
    kind = chance.number(0, 5)
    if kind == 0:
        some_previous(chance, levels, nodes, wanted)
    elif kind == 1:
        depth = chance.number(1, len(levels))
        paths = [chance.one_of([*(node.path for node in nodes), ("gone",) * len(levels)])[:depth] for _ in range(2)]
        question.within = tuple(paths[: chance.number(1, 2)])
    return question


def some_flavors(chance: Chooser) -> dict[str, Question]:
    """Two or three flavors on nodes that they partly share, some with wider leaves than hosts; one profile for all."""
    nodes, profile = some_nodes(chance, ALL_LEVELS), some_profile(chance)
    result = {}
    for flavor in ["blue", "red", "green"][: chance.number(2, 3)]:
        first, last = chance.one_of([(0, 4), (1, 4), (2, 4), (3, 4), (0, 3), (1, 3)])
        levels = ALL_LEVELS[first:last]
        members = [replace(node, path=node.path[first:last]) for node in nodes if chance.number(0, 3)]
        result[flavor] = Question(levels, members or [replace(nodes[0], path=nodes[0].path[first:last])], [], profile)
        result[flavor].wanted = [
            replace(pod_set, name=f"{flavor}-{pod_set.name}", count=min(pod_set.count, 8))
            for pod_set in some_pod_sets(chance, levels)
        ]
    return result


def some_balance(chance: Chooser) -> Question:
    """What balanced placement serves: preferred pods that fill a good part of narrow trees, some with a leader."""
    levels = ALL_LEVELS[chance.number(0, 2) :] if chance.number(0, 4) else ALL_LEVELS[:3]
    width = chance.number(0, 2)
    nodes: dict[tuple[str, ...], RefNode] = {}
    room = chance.one_of([3, 6, 12, 20])
    for i in range(chance.number(2, 16)):
        inner = [f"{level[0]}{chance.number(0, width)}" for level in levels[:-1]]
        path = (*inner, f"h{i:02}" if levels[-1] == HOSTNAME else f"x{chance.number(0, 3)}")
        free = {"cpu": chance.number(0, room), "gpu": chance.one_of([0, 1, 1])}
        free["pods"] = chance.one_of([110, 110, chance.number(1, 8)])  # there a leader costs less
        nodes[path] = RefNode(f"node-{i:02}", path, free, labels={"disk": chance.one_of(["ssd", "hdd"])})
    at = chance.number(0, len(levels) - 1)
    wish: dict[str, Any] = {"preferred": levels[at]}
    if chance.one_of([True, False]):
        slice_at = chance.number(chance.number(at, len(levels) - 1), len(levels) - 1)
        inner_size = chance.one_of([1, 1, 2])
        wish["slices"] = ((levels[slice_at], inner_size * chance.number(1, 3)),)
        if inner_size > 1 and slice_at + 1 < len(levels):
            wish["slices"] += ((levels[chance.number(slice_at + 1, len(levels) - 1)], inner_size),)
    total = sum(node.allocatable["cpu"] for node in nodes.values())
    led = chance.one_of([True, False])
    workers = RefRequest(
        name="workers",
        count=chance.number(1, max(2, total * chance.number(1, 4) // 4)),
        requests={"cpu": 1},
        group="pair" if led else None,
        weights=chance.one_of([{}, {("disk", "hdd"): 3}]),
        **wish,
    )
    leader = RefRequest(
        name="leader",
        count=1,
        requests={"cpu": chance.number(0, 4), "gpu": chance.one_of([0, 1])},
        group="pair",
        preferred=levels[at],
    )
    profile = Profile(constrained=Algorithm.BALANCED, preferred_affinity=chance.number(0, 3) == 0)
    return Question(levels, list(nodes.values()), [workers, leader] if led else [workers], profile)


def compare(question: Question) -> None:
    """Ask both, twice the engine, so that remembered counts answer, too."""
    capacity = to_capacity(question)
    requests = [inside(to_request(pod_set), question) for pod_set in question.wanted]
    previous = to_previous(question.levels, question.wanted)
    expected = to_reference(question).outcome(question.wanted)
    for _ in range(2):
        found = place(
            capacity,
            requests,
            profile=question.profile,
            empty=question.empty,
            previous=previous,
        )
        assert_equal(found, expected)


def compare_flavors(questions: dict[str, Question]) -> None:
    """The same for a workload whose pod sets use several flavors."""
    expected = place_flavors(
        {flavor: to_reference(question) for flavor, question in questions.items()},
        {flavor: question.wanted for flavor, question in questions.items()},
    )
    found = place_workload(
        {flavor: to_capacity(question) for flavor, question in questions.items()},
        {flavor: [to_request(pod_set) for pod_set in question.wanted] for flavor, question in questions.items()},
        profile=questions["blue"].profile,
    )
    assert list(found) == list(expected)
    for flavor, answer in found.items():
        assert_equal(answer, expected[flavor])


def assert_equal(found: Placement | Misfit, expected: dict[str, Domains] | RefFailure) -> None:
    if isinstance(expected, RefFailure):
        assert isinstance(found, Misfit), found
        facts = facts_of(found)
        assert found.code == expected.code
        assert {f: facts.get(f, getattr(found, f, None)) for f in expected.facts} == expected.facts
    else:
        assert not isinstance(found, Misfit), found
        assert domains_of(found) == expected


def ask(question: Callable[[Chooser], Question], chance: Chooser) -> None:
    compare(question(chance))


def ask_flavors(chance: Chooser) -> None:
    compare_flavors(some_flavors(chance))


def ask_repair(chance: Chooser) -> None:
    """A pod set is placed, one of its hosts fails or takes no pods any more, and its pods are placed again."""
    levels = ALL_LEVELS[chance.number(0, 3) :]
    nodes = some_nodes(chance, levels)
    lone = replace(some_pod_sets(chance, levels)[-1], group=None)
    pod_set = replace(lone, count=max(lone.count, *(size for _, size in lone.slices), 1))
    profile = some_profile(chance)
    question = Question(levels, nodes, [pod_set], profile, merge=chance.one_of([True, False]))
    placed = to_reference(question).outcome([pod_set])
    if isinstance(placed, RefFailure):
        return
    held = [(path[-1:], n) for path, n in placed[pod_set.name]]
    failed = chance.one_of(held)[0][0]
    lost = {failed: chance.one_of([True, False])}
    if chance.number(0, 7) == 0:
        lost[chance.one_of(held)[0][0]] = True
    question.nodes = [
        replace(node, taints=(*node.taints, ("broken", "", "NoSchedule"))) if node.path[-1] in lost else node
        for node in nodes
        if not lost.get(node.path[-1], False)
    ]
    question.usage = [(values, pod_set.requests, n) for values, n in held]
    found = find_replacement(
        to_capacity(question),
        to_request(pod_set),
        TopologyAssignment(levels[-1:], tuple(Domain(values, n) for values, n in held)),
        {failed},
        profile=profile,
    )
    expected: dict[str, Domains] | RefFailure
    try:
        expected = {pod_set.name: to_reference(question).repair(pod_set, held, failed)}
    except RefFailure as failure:
        expected = failure
    assert_equal(found if isinstance(found, Misfit) else Placement((found.whole,)), expected)


COMPARISONS = [
    pytest.param(partial(ask, some_question), id="anything"),
    pytest.param(partial(ask, some_balance), id="balance"),
    pytest.param(ask_flavors, id="flavors"),
    pytest.param(ask_repair, id="repair"),
]


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("block", range(8))
def test_engine_and_reference_agree_on_seeded_cases(block: int, comparison: Callable[[Chooser], None]) -> None:
    """Same placement, or same failure with the same facts, for every option, cold and again on known shapes."""
    for seed in range(block * CASES // 8, (block + 1) * CASES // 8):
        try:
            comparison(Seeded(seed))
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}: {difference}") from difference


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), comparison=st.sampled_from([comparison.values[0] for comparison in COMPARISONS]))
def test_engine_and_reference_agree_on_drawn_cases(data: st.DataObject, comparison: Callable[[Chooser], None]) -> None:
    """The same on cases that are made smaller when they fail."""
    comparison(Drawn(data))
