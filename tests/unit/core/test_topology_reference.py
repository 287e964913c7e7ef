"""The engine against the plain reference: same answer on random trees."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    Domain,
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
    WeightedTerm,
    place,
)
from tests.unit.core.reference_placement import RefEngine, RefFailure, RefLeaf, RefRequest
from tests.unit.core.topology_cases import make_tree

ALL_LEVELS = ("zone", "block", "rack", HOSTNAME)
TAINTS = (("burning", "", "NoSchedule"), ("draining", "soon", "NoExecute"), ("spot", "", "PreferNoSchedule"))
Question = tuple[tuple[str, ...], list[RefLeaf], list[RefRequest], Profile]
"""Levels, leaves, pod sets, and how they are to be placed."""
CASES = int(os.environ.get("KQUEUE_REFERENCE_CASES", "2000"))


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


def some_leaves(chance: Chooser, levels: tuple[str, ...]) -> list[RefLeaf]:
    """Up to a score of leaves with uneven rooms, some of them tainted."""
    found: dict[tuple[str, ...], RefLeaf] = {}
    for i in range(chance.number(1, 20)):
        inner = [f"{level[0]}{chance.number(0, 2)}" for level in levels[:-1]]
        path = (*inner, f"h{i:02}" if levels[-1] == HOSTNAME else f"x{chance.number(0, 2)}")
        free = {"cpu": chance.number(-1, 12), "pods": chance.one_of([110, 110, 110, 110, 5, 2, 0])}
        if chance.one_of([True, False]):
            free["gpu"] = chance.number(0, 8)
        labels = {"disk": chance.one_of(["ssd", "hdd"])}
        taints = (chance.one_of(TAINTS),) if chance.number(0, 3) == 0 else ()
        found[path] = RefLeaf(path, free, labels, taints)
    return list(found.values())


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
    if not messy and kind in ("unconstrained", "implied") and top < len(levels):
        del wish["slices"]  # such a request starts at the lowest level, below these slices
    return wish


def some_pod_sets(chance: Chooser, levels: tuple[str, ...]) -> list[RefRequest]:
    """One to three pod sets, the first two sometimes a group."""
    result = []
    grouped = chance.one_of([True, False])
    wish: dict[str, Any] = {}
    for i in range(chance.number(2 if grouped else 1, 3)):
        if not (grouped and i == 1):
            wish = some_wish(chance, levels)
        requests = {"cpu": chance.one_of([1, 1, 2, 3, 0])}
        if chance.number(0, 3) == 0:
            requests["gpu"] = chance.number(0, 2)
        in_group = grouped and i < 2
        result.append(
            RefRequest(
                name=f"set-{i}",
                count=1 if in_group and i == 0 else chance.number(chance.one_of([0, 1, 1]), chance.one_of([8, 24])),
                requests=requests,
                group="pair" if in_group else None,
                selector=chance.one_of([{}, {}, {"disk": "ssd"}]),
                tolerated=chance.one_of([frozenset(), frozenset({"burning"})]),
                weights=chance.one_of([{}, {("disk", "hdd"): 3}]),
                **wish,
            )
        )
    return result


def some_previous(chance: Chooser, levels: tuple[str, ...], leaves: list[RefLeaf], wanted: list[RefRequest]) -> None:
    """Give pod sets places of an earlier slice, one in eight of them gone."""
    for pod_set in wanted:
        if chance.number(0, 4) == 0:
            continue
        left = chance.number(1, pod_set.count + 3)
        held: dict[tuple[str, ...], int] = {}
        for leaf in sorted(leaves, key=lambda leaf: leaf.path):
            taken = min(left, chance.number(0, 3))
            if taken:
                held[leaf.path[-1:] if levels[-1] == HOSTNAME else leaf.path] = taken
            left -= taken
        if chance.number(0, 7) == 0:
            held[("gone",) if levels[-1] == HOSTNAME else ("gone",) * len(levels)] = 1
        if held:
            pod_set.previous = list(held.items())


def to_previous(levels: tuple[str, ...], wanted: list[RefRequest]) -> dict[str, TopologyAssignment]:
    """What those pod sets hold, in the engine's form."""
    written = levels[-1:] if levels[-1] == HOSTNAME else levels
    return {
        pod_set.name: TopologyAssignment(written, tuple(Domain(values, n) for values, n in pod_set.previous))
        for pod_set in wanted
        if pod_set.previous is not None
    }


def to_capacity(levels: tuple[str, ...], ref_leaves: list[RefLeaf]) -> Capacity:
    nodes, foreign = [], {}
    for leaf in ref_leaves:
        name = "/".join(leaf.path)
        nodes.append(
            NodeFacts(
                name=name,
                labels={**dict(zip(levels, leaf.path, strict=True)), **leaf.labels},
                allocatable={resource: max(0, amount) for resource, amount in leaf.free.items()},
                taints=tuple(Taint(*taint) for taint in leaf.taints),
            )
        )
        foreign[name] = {resource: -amount for resource, amount in leaf.free.items() if amount < 0}
    return Capacity.of(make_tree(nodes, levels), foreign=foreign)


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
            tolerations=tuple(Toleration(key=key, operator="Exists") for key in sorted(pod_set.tolerated)),
            preferred=tuple(
                WeightedTerm(weight, NodeTerm(expressions=(Requirement(key, "In", (value,)),)))
                for (key, value), weight in pod_set.weights.items()
            ),
        ),
    )


def facts_of(misfit: Misfit) -> dict[str, Any]:
    """The excluded leaves and the fit of slice layers in the reference's words."""
    excluded: dict[str, int] = {f"taint {name}": n for name, n in misfit.excluded.taints.items()}
    excluded |= {f"resource {name}": n for name, n in misfit.excluded.resources.items()}
    if misfit.excluded.node_selector:
        excluded["selector"] = misfit.excluded.node_selector
    layers = [(layer.level, layer.fit, layer.total) for layer in misfit.layers]
    return {
        "excluded": excluded,
        "layers": layers,
        **{f: getattr(misfit, f) for f in ("level", "fit", "total", "unit", "other_level")},
    }


def domains_of(found: Placement) -> dict[str, list[tuple[tuple[str, ...], int]]]:
    return {
        p.name: [(path, d.count) for path, d in zip(p.paths, p.assignment.domains, strict=True)] for p in found.pod_sets
    }


def some_question(chance: Chooser) -> Question:
    """Anything at all."""
    levels = ALL_LEVELS[chance.number(0, 3) :] if chance.one_of([True, False]) else ALL_LEVELS[:3]
    leaves, wanted = some_leaves(chance, levels), some_pod_sets(chance, levels)
    if chance.number(0, 4) == 0:
        some_previous(chance, levels, leaves, wanted)
    profile = Profile(
        constrained=chance.one_of([Algorithm.BEST_FIT, Algorithm.BALANCED, Algorithm.LEAST_FREE_CAPACITY]),
        unconstrained=chance.one_of([Algorithm.LEAST_FREE_CAPACITY, Algorithm.LEAST_FREE_CAPACITY, Algorithm.BEST_FIT]),
        preferred_affinity=chance.number(0, 2) == 0,
    )
    return levels, leaves, wanted, profile


def some_balance(chance: Chooser) -> Question:
    """What balanced placement serves: preferred pods that fill a good part of narrow trees, some with a leader."""
    levels = ALL_LEVELS[chance.number(0, 2) :] if chance.number(0, 4) else ALL_LEVELS[:3]
    width = chance.number(0, 2)
    leaves: dict[tuple[str, ...], RefLeaf] = {}
    room = chance.one_of([3, 6, 12, 20])
    for i in range(chance.number(2, 16)):
        inner = [f"{level[0]}{chance.number(0, width)}" for level in levels[:-1]]
        path = (*inner, f"h{i:02}" if levels[-1] == HOSTNAME else f"x{chance.number(0, 3)}")
        free = {"cpu": chance.number(0, room), "gpu": chance.one_of([0, 1, 1])}
        free["pods"] = chance.one_of([110, 110, chance.number(1, 8)])  # there a leader costs less
        leaves[path] = RefLeaf(path, free, {"disk": chance.one_of(["ssd", "hdd"])})
    at = chance.number(0, len(levels) - 1)
    wish: dict[str, Any] = {"preferred": levels[at]}
    if chance.one_of([True, False]):
        slice_at = chance.number(chance.number(at, len(levels) - 1), len(levels) - 1)
        inner_size = chance.one_of([1, 1, 2])
        wish["slices"] = ((levels[slice_at], inner_size * chance.number(1, 3)),)
        if inner_size > 1 and slice_at + 1 < len(levels):
            wish["slices"] += ((levels[chance.number(slice_at + 1, len(levels) - 1)], inner_size),)
    total = sum(leaf.free["cpu"] for leaf in leaves.values())
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
    return levels, list(leaves.values()), [workers, leader] if led else [workers], profile


def compare(levels: tuple[str, ...], ref_leaves: list[RefLeaf], wanted: list[RefRequest], profile: Profile) -> None:
    """Ask both, twice the engine, so that remembered counts answer, too."""
    capacity = to_capacity(levels, ref_leaves)
    requests = [to_request(pod_set) for pod_set in wanted]
    previous = to_previous(levels, wanted)
    expected = RefEngine(
        levels,
        ref_leaves,
        least_unconstrained=profile.unconstrained is Algorithm.LEAST_FREE_CAPACITY,
        least_always=profile.constrained is Algorithm.LEAST_FREE_CAPACITY,
        affinity=profile.preferred_affinity,
        balanced=profile.constrained is Algorithm.BALANCED,
    ).outcome(wanted)
    for _ in range(2):
        found = place(capacity, requests, profile=profile, previous=previous)
        if isinstance(expected, RefFailure):
            assert isinstance(found, Misfit), found
            facts = facts_of(found)
            assert found.code == expected.code
            assert {f: facts.get(f, getattr(found, f, None)) for f in expected.facts} == expected.facts
        else:
            assert not isinstance(found, Misfit), found
            assert domains_of(found) == expected


@pytest.mark.parametrize("question", [some_question, some_balance])
@pytest.mark.parametrize("block", range(8))
def test_engine_and_reference_agree_on_seeded_cases(block: int, question: Callable[[Chooser], Question]) -> None:
    """Same placement, or same failure with the same numbers, for every option, cold and again on known shapes."""
    for seed in range(block * CASES // 8, (block + 1) * CASES // 8):
        try:
            compare(*question(Seeded(seed)))
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}: {difference}") from difference


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), question=st.sampled_from([some_question, some_balance]))
def test_engine_and_reference_agree_on_drawn_cases(
    data: st.DataObject, question: Callable[[Chooser], Question]
) -> None:
    """The same on cases that are made smaller when they fail."""
    compare(*question(Drawn(data)))
