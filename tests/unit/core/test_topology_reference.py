"""The engine against the plain reference: same answer on random trees."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    Taint,
    Toleration,
    TopologyRequest,
    WeightedTerm,
    place,
)
from tests.unit.core.reference_placement import RefEngine, RefFailure, RefLeaf, RefRequest
from tests.unit.core.topology_cases import make_tree

ALL_LEVELS = ("zone", "block", "rack", HOSTNAME)
TAINTS = (("burning", "", "NoSchedule"), ("draining", "soon", "NoExecute"), ("spot", "", "PreferNoSchedule"))
CASES = int(os.environ.get("KQUEUE_REFERENCE_CASES", "600"))


@st.composite
def leaves(draw: st.DrawFn, levels: tuple[str, ...]) -> list[RefLeaf]:
    """Up to a dozen and a half leaves with uneven rooms, some of them tainted."""
    small = st.integers(0, 2)
    found: dict[tuple[str, ...], RefLeaf] = {}
    for i in range(draw(st.integers(1, 20))):
        inner = [f"{level[0]}{draw(small)}" for level in levels[:-1]]
        path = (*inner, f"h{i:02}" if levels[-1] == HOSTNAME else f"x{draw(small)}")
        free = {"cpu": draw(st.integers(-1, 12)), "pods": draw(st.sampled_from([110, 110, 110, 110, 5, 2, 0]))}
        if draw(st.booleans()):
            free["gpu"] = draw(st.integers(0, 8))
        labels = {"disk": draw(st.sampled_from(["ssd", "hdd"]))}
        taints = tuple(draw(st.lists(st.sampled_from(TAINTS), max_size=1)))
        found[path] = RefLeaf(path, free, labels, taints)
    return list(found.values())


@st.composite
def topology_wish(draw: st.DrawFn, levels: tuple[str, ...]) -> dict[str, Any]:
    """A main level or none, and slices or none; one in eight is thrown together and mostly impossible."""
    messy = draw(st.integers(0, 7)) == 0
    wish: dict[str, Any] = {}
    sliced = draw(st.booleans())
    top = len(levels)
    if sliced:
        inner = draw(st.sampled_from([1, 1, 2, 3]))
        sizes = [inner * draw(st.sampled_from([1, 2, 3])), inner, 1][: draw(st.integers(1, min(3, len(levels))))]
        names = draw(st.permutations(levels))[: len(sizes)]
        if not messy:
            names = sorted(names, key=levels.index)
            top = levels.index(names[0]) + 1
        wish["slices"] = tuple(zip(names, sizes, strict=True))
    level = st.sampled_from([*levels, "unknown"] if messy else levels[:top])
    kind = draw(st.sampled_from(["required", "preferred", "preferred", "unconstrained", "implied", "none"]))
    wish |= {
        "required": {"required": draw(level)},
        "preferred": {"preferred": draw(level if sliced else st.one_of(level, st.just("auto")))},
        "unconstrained": {"unconstrained": not messy or draw(st.booleans())},
        "implied": {"implied": True},
        "none": {} if sliced or messy else {"required": levels[0]},
    }[kind]
    if wish.get("unconstrained") and not messy and sliced and top < len(levels):
        del wish["slices"]  # it starts at the lowest level, below these slices
    return wish


@st.composite
def pod_sets(draw: st.DrawFn, levels: tuple[str, ...]) -> list[RefRequest]:
    """One to three pod sets, the first two sometimes a group."""
    result = []
    grouped = draw(st.booleans())
    wish: dict[str, Any] = {}
    for i in range(draw(st.integers(2 if grouped else 1, 3))):
        if not (grouped and i == 1):
            wish = draw(topology_wish(levels))
        requests = {"cpu": draw(st.sampled_from([1, 1, 2, 3, 0]))}
        if draw(st.integers(0, 3)) == 0:
            requests["gpu"] = draw(st.integers(0, 2))
        in_group = grouped and i < 2
        result.append(
            RefRequest(
                name=f"set-{i}",
                count=1 if in_group and i == 0 else draw(st.one_of(st.integers(1, 24), st.integers(0, 24))),
                requests=requests,
                group="pair" if in_group else None,
                selector=draw(st.sampled_from([{}, {}, {"disk": "ssd"}])),
                tolerated=draw(st.sampled_from([frozenset(), frozenset({"burning"})])),
                weights=draw(st.sampled_from([{}, {("disk", "hdd"): 3}])),
                **wish,
            )
        )
    return result


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
    """The excluded leaves in the reference's words."""
    excluded: dict[str, int] = {f"taint {name}": n for name, n in misfit.excluded.taints.items()}
    excluded |= {f"resource {name}": n for name, n in misfit.excluded.resources.items()}
    if misfit.excluded.node_selector:
        excluded["selector"] = misfit.excluded.node_selector
    return {"excluded": excluded, **{f: getattr(misfit, f) for f in ("level", "fit", "total", "unit", "other_level")}}


def domains_of(found: Placement) -> dict[str, list[tuple[tuple[str, ...], int]]]:
    return {
        p.name: [(path, d.count) for path, d in zip(p.paths, p.assignment.domains, strict=True)] for p in found.pod_sets
    }


@settings(max_examples=CASES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_engine_and_reference_agree(data: st.DataObject) -> None:
    """Same placement, or same failure with the same numbers, for every option, cold and again on known shapes."""
    levels = ALL_LEVELS[data.draw(st.integers(0, 3)) :] if data.draw(st.booleans()) else ALL_LEVELS[:3]
    ref_leaves, wanted = data.draw(leaves(levels)), data.draw(pod_sets(levels))
    options = data.draw(
        st.fixed_dictionaries(
            {"least_unconstrained": st.booleans(), "least_always": st.booleans(), "affinity": st.booleans()}
        )
    )
    least, best = Algorithm.LEAST_FREE_CAPACITY, Algorithm.BEST_FIT
    profile = Profile(
        constrained=least if options["least_always"] else best,
        unconstrained=least if options["least_unconstrained"] else best,
        preferred_affinity=options["affinity"],
    )
    capacity = to_capacity(levels, ref_leaves)
    requests = [to_request(pod_set) for pod_set in wanted]
    expected = RefEngine(levels, ref_leaves, **options).outcome(wanted)
    for _ in range(2):
        found = place(capacity, requests, profile=profile)
        if isinstance(expected, RefFailure):
            assert isinstance(found, Misfit), found
            facts = facts_of(found)
            assert found.code == expected.code
            assert {f: facts.get(f, getattr(found, f, None)) for f in expected.facts} == expected.facts
        else:
            assert not isinstance(found, Misfit), found
            assert domains_of(found) == expected
