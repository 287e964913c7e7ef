"""Whatever one workload asks for, its placement takes a bounded number of calls, and what is kept of it stays small.

Calls are counted, not seconds: of Python functions and of built-in ones, so that a loop over nodes x demands shows.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import numpy.ma  # noqa: F401 - numpy imports it within the first call of some functions, and calls are counted here
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    Misfit,
    MisfitCode,
    NodeFacts,
    NodeRules,
    NodeTerm,
    Placement,
    PodSetRequest,
    Profile,
    Requirement,
    Toleration,
    Tree,
    WeightedTerm,
    place,
)
from kqueue.core.topology import tree as tree_module
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.knapsack import KnapsackProblem
from kqueue.core.topology.matching import NodeFilter, rules_problem
from tests.unit.core.topology_cases import BLOCK, LEVELS, RACK, make_node, make_pod_set, make_tree

COUNT_MAX = 2**31 - 1
LEAVES = 1024
PROFILES = [pytest.param(Profile(constrained=algorithm), id=algorithm) for algorithm in Algorithm]
CALLS = 60 * LEAVES
"""A few calls per leaf, and besides as many as the steps of a search allow."""


def calls_of(act: Callable[[], object]) -> int:
    """How many functions are called."""
    calls = 0

    def count(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # what a collection calls is no part of it
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return calls


def cluster(*, cores: int, in_rack: int = 16, racks: int = 8, pods: int = 10**9) -> Capacity:
    """Hosts with 0 to `cores` cores free."""
    chance = random.Random(cores)
    nodes = [
        make_node(
            f"h{i:04}",
            chance.randint(0, cores),
            rack=f"r{i // in_rack:04}",
            block=f"b{i // in_rack // racks:04}",
            pods=pods,
            labels={"slot": str(i), "disk": "ssd"},
        )
        for i in range(LEAVES)
    ]
    return Capacity.of(make_tree(nodes))


SMALL, LARGE, PAIRS = cluster(cores=8), cluster(cores=10**6), cluster(cores=9, in_rack=2, racks=LEAVES)


def demands(number: int, operator: str = "In", key: str = "k{i}", value: str = "v") -> tuple[NodeTerm, ...]:
    return tuple(
        NodeTerm(expressions=(Requirement(key.format(i=i), operator, (value.format(i=i),)),)) for i in range(number)
    )


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("capacity", [pytest.param(c, id=n) for n, c in [("s", SMALL), ("l", LARGE), ("p", PAIRS)]])
@pytest.mark.parametrize(
    "pod_set",
    [
        pytest.param(make_pod_set(COUNT_MAX, preferred=RACK), id="as many pods as can be counted"),
        pytest.param(make_pod_set(COUNT_MAX, preferred=BLOCK, requests={}), id="pods that need nothing"),
        pytest.param(make_pod_set(1, preferred=RACK, requests={"cpu": 2**63 - 1}), id="the largest request"),
        pytest.param(make_pod_set(10**6, preferred=HOSTNAME, requests={"cpu": 1}), id="a million pods of a unit"),
        pytest.param(make_pod_set(LEAVES * 3, preferred=BLOCK), id="most of what is free in blocks"),
        pytest.param(make_pod_set(LEAVES * 3, preferred=HOSTNAME), id="most of what is free on hosts"),
        pytest.param(
            make_pod_set(LEAVES * 2, preferred=BLOCK, slices=[(HOSTNAME, 1)]), id="thousands of slices of one"
        ),
        pytest.param(
            make_pod_set(2**30, preferred=BLOCK, slices=[(BLOCK, 2**20), (RACK, 2**10), (HOSTNAME, 2)], requests={}),
            id="deep slices",
        ),
        pytest.param(make_pod_set(LEAVES, preferred=BLOCK, slices=[(RACK, 4), (HOSTNAME, 2)]), id="many deep slices"),
        pytest.param(
            make_pod_set(4, preferred=RACK, requests={f"example.com/r{i}": 1 for i in range(1000)}),
            id="a thousand resources",
        ),
    ],
)
def test_no_request_takes_more_than_a_few_calls_per_leaf(
    pod_set: PodSetRequest, capacity: Capacity, profile: Profile
) -> None:
    """Placed or not, with any profile."""
    limited = replace(profile, search_limit=1000)
    assert calls_of(lambda: place(capacity, [pod_set], profile=limited)) < CALLS


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(NodeRules(selector=tuple((f"k{i:04}", "v") for i in range(1000))), id="a thousand labels"),
        pytest.param(NodeRules(required=demands(500)), id="hundreds of terms"),
        pytest.param(NodeRules(required=demands(500, "Gt", "slot", "{i}")), id="hundreds of comparisons"),
        pytest.param(NodeRules(required=demands(500, "NotIn", "slot", "{i}")), id="hundreds of exceptions"),
        pytest.param(
            NodeRules(required=(NodeTerm(expressions=(Requirement("slot", "In", tuple(map(str, range(50_000)))),)),)),
            id="as many values as may be",
        ),
        pytest.param(NodeRules(preferred=tuple(WeightedTerm(1, term) for term in demands(500))), id="wishes"),
        pytest.param(
            NodeRules(tolerations=tuple(Toleration(f"k{i}", "Gt", "1", "NoSchedule") for i in range(10_000))),
            id="thousands of tolerations",
        ),
    ],
)
def test_node_demands_are_not_looked_at_node_by_node(rules: NodeRules) -> None:
    """Demands and nodes add up in calls; they do not multiply."""
    profile, pod_set = Profile(preferred_affinity=True), make_pod_set(4, preferred=RACK, rules=rules)
    values = sum(len(r.values) for term in rules.required or () for r in term.expressions)
    assert calls_of(lambda: place(cluster(cores=8), [pod_set], profile=profile)) < CALLS * 2 + 10 * values


@pytest.mark.parametrize(
    ("rules", "code", "said"),
    [
        pytest.param(
            NodeRules(selector=tuple((f"k{i:04}", "v") for i in range(1001))),
            MisfitCode.INVALID_NODE_SELECTOR,
            "1001 labels are too many: ask for at most 1000",
            id="labels",
        ),
        pytest.param(
            NodeRules(required=demands(501)),
            MisfitCode.INVALID_NODE_AFFINITY,
            "1002 terms and expressions are too many: write at most 1000",
            id="terms",
        ),
        pytest.param(
            NodeRules(preferred=tuple(WeightedTerm(1, term) for term in demands(501))),
            MisfitCode.INVALID_NODE_AFFINITY,
            "1002 terms and expressions are too many: write at most 1000",
            id="wishes",
        ),
        pytest.param(
            NodeRules(required=(NodeTerm(expressions=(Requirement("a", "In", ("v",) * 50_001),)),)),
            MisfitCode.INVALID_NODE_AFFINITY,
            "50001 values are too many: write at most 50000",
            id="values",
        ),
    ],
)
def test_more_demands_than_anybody_needs_are_refused(rules: NodeRules, code: MisfitCode, said: str) -> None:
    """Before any node is looked at, with the number and the limit."""
    assert rules_problem(rules, is_hostname=True, preferred=True) == (code, said)
    found = place(SMALL, [make_pod_set(1, preferred=RACK, rules=rules)], profile=Profile(preferred_affinity=True))
    assert isinstance(found, Misfit)
    assert (found.code, found.detail) == (code, said)


# -- the optimal search ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 300, 3000, 30_000])
def test_a_search_makes_no_more_steps_than_allowed_and_calls_follow_its_steps(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that grows with tree or request is counted: calls stay near what the steps and best fit take."""
    steps = 0
    look = KnapsackProblem.look

    def watched(problem: KnapsackProblem, more: int) -> None:
        nonlocal steps
        look(problem, more)
        steps += more

    monkeypatch.setattr(KnapsackProblem, "look", watched)
    for capacity in (SMALL, LARGE, PAIRS):
        for wish in ({"preferred": BLOCK}, {"preferred": BLOCK, "slices": [(RACK, 4), (HOSTNAME, 2)]}):
            for count in (64, LEAVES, 3 * LEAVES):
                workers = make_pod_set(count, name="w", group="g", **wish)
                for group in ([replace(workers, group=None)], [workers, replace(workers, name="l", count=1)]):
                    best_fit = calls_of(partial(place, capacity, group))
                    profile = Profile(constrained=Algorithm.OPTIMAL, search_limit=limit)
                    steps = 0
                    calls = calls_of(partial(place, capacity, group, profile=profile))
                    assert steps <= limit
                    assert calls < best_fit + 10_000 + 4 * limit


def test_a_deep_topology_does_not_multiply_the_search() -> None:
    """Prices of many levels depend on each other: looking for them is counted, too."""
    levels = [*(f"l{i}" for i in range(9)), HOSTNAME]
    chance = random.Random(9)
    nodes = []
    for i in range(512):
        labels = {level: f"{level}-{i >> (8 - depth)}" for depth, level in enumerate(levels[:-1])}
        nodes.append(
            NodeFacts(
                name=f"h{i:03}",
                labels={**labels, HOSTNAME: f"h{i:03}"},
                allocatable={"cpu": chance.randint(0, 10**6), "pods": 10**7},
            )
        )
    capacity = Capacity.of(make_tree(nodes, levels))
    pod_set = make_pod_set(10**7, requests={"cpu": 1}, preferred="l0")
    profile = Profile(constrained=Algorithm.OPTIMAL)
    assert calls_of(lambda: place(capacity, [pod_set], profile=profile)) < 400_000
    found = place(capacity, [pod_set], profile=profile)
    assert isinstance(found, Placement)
    assert found["main"].proven is False


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_pods_of_many_shapes_do_not_fill_the_memory() -> None:
    """The latest shapes are kept, as many as a fixed number of bytes holds."""
    capacity = SMALL.fork()
    for cpu in range(1, 3000):
        pods_per_domain(capacity, make_pod_set(1, requests={"cpu": cpu}).shape)
    kept = len(capacity.counted) * sum(level.nbytes for level in pods_per_domain(SMALL, make_pod_set(1).shape))
    assert kept < 64 << 20
    assert make_pod_set(1, requests={"cpu": 2999}).shape in capacity.counted


def test_pods_of_many_rules_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks are kept up to a fixed number of bytes."""
    monkeypatch.setattr(tree_module, "_REMEMBERED_BYTES", 100 * 9 * 64)
    tree = make_tree([make_node(f"h{i}", 1) for i in range(64)])
    for i in range(1000):
        tree.eligible(NodeRules(selector=(("disk", f"d{i}"),)))
    assert len(tree._eligible) <= 100


# -- labels of all nodes at once ---------------------------------------------------------------------------------------

KEYS, VALUES = ["a", "b", "n"], ["x", "y", "3", "-4", "+3", "99999999999999999999", ""]
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Unknown"])
some_labels = st.dictionaries(st.sampled_from([*KEYS[:2], "c"]), st.sampled_from(VALUES))
requirements = st.builds(
    Requirement, st.sampled_from(KEYS), operators, st.lists(st.sampled_from(VALUES), max_size=2).map(tuple)
)
fields = st.builds(
    Requirement,
    st.sampled_from(["metadata.name", "metadata.uid"]),
    operators,
    st.sampled_from([(), ("node-h0",), ("node-h1",)]),
)
terms = st.builds(NodeTerm, st.lists(requirements, max_size=3).map(tuple), st.lists(fields, max_size=1).map(tuple))


def holds(requirement: Requirement, value: str | None) -> bool:
    """What Kubernetes says of one label."""
    values = requirement.values
    if requirement.operator in ("Gt", "Lt"):
        if value is None or len(values) != 1:
            return False
        texts = [text.removeprefix("-").removeprefix("+") for text in (value, values[0])]
        if not all(text.isdigit() and len(text) < 20 for text in texts):
            return False
        return int(value) > int(values[0]) if requirement.operator == "Gt" else int(value) < int(values[0])
    return {
        "In": value is not None and value in values,
        "NotIn": value is None or value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(requirement.operator, False)


def accepts(term: NodeTerm, node: NodeFacts) -> bool:
    """What Kubernetes says of one node."""
    every = [holds(r, node.labels.get(r.key)) for r in term.expressions]
    every += [holds(r, node.name if r.key == "metadata.name" else None) for r in term.fields]
    return bool(every) and all(every)


def nodes_with(labels: Sequence[dict[str, str]]) -> list[NodeFacts]:
    return [make_node(f"h{i}", 1, labels=own) for i, own in enumerate(labels)]


def accepted(checked: Any, nodes: Sequence[NodeFacts]) -> list[bool]:
    return [True] * len(nodes) if checked.mask is None else checked.mask.tolist()


@given(
    st.lists(some_labels, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), some_labels), max_size=3),
    st.lists(terms, max_size=3),
)
def test_all_nodes_at_once_are_judged_as_each_alone(
    labels: list[dict[str, str]], changes: list[tuple[int, dict[str, str]]], required: list[NodeTerm]
) -> None:
    """Also after nodes have changed, when what is known of the others is kept."""
    nodes = sorted(nodes_with(labels), key=lambda node: node.name)
    rules = NodeRules(required=tuple(required), preferred=tuple(WeightedTerm(i + 1, t) for i, t in enumerate(required)))
    tree = make_tree(nodes, LEVELS)
    tree.eligible(rules)
    for place_, own in changes:
        number = place_ % len(nodes)
        nodes[number] = make_node(f"h{number}", 1, labels=own)
        (leaf,) = make_tree([nodes[number]], LEVELS).leaves
        tree, _ = tree.edited([number], [leaf])
        checked = tree.eligible(rules)
        assert accepted(checked, nodes) == [any(accepts(term, node) for term in required) for node in nodes]
        scores = [sum(wish.weight for wish in rules.preferred if accepts(wish.term, node)) for node in nodes]
        wanted = [score if passes else 0 for score, passes in zip(scores, accepted(checked, nodes), strict=True)]
        found = [0] * len(nodes) if checked.affinity is None else checked.affinity.tolist()
        assert found == wanted
    assert accepted(NodeFilter.of(lambda: nodes).check(rules, ()), nodes) == [
        any(accepts(term, node) for term in required) for node in nodes
    ]


def test_values_of_nodes_that_are_gone_are_not_kept_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts come and go, and the table of their names stays in proportion to those that are there."""
    monkeypatch.setattr("kqueue.core.topology.labels._SPARE_VALUES", 8)
    tree: Tree = make_tree([make_node("h", 1)])
    for i in range(200):
        rules = NodeRules(required=(NodeTerm(expressions=(Requirement("zone", "In", (str(i),)),)),))
        (leaf,) = make_tree([make_node("h", 1, labels={"zone": str(i)})]).leaves
        tree, _ = tree.edited([0], [leaf])
        assert tree.eligible(rules).mask is None
    assert tree._filter is not None
    assert max(len(values) for values, _ in tree._filter._labels._columns.values()) < 20
