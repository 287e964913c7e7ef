"""Quota trees that follow their configuration: after any history they are those that are built from nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core import quota
from kqueue.core.fair_share import lendable
from kqueue.core.quota import QuotaNode
from kqueue.state import quota_trees
from kqueue.state.cache import Cache
from kqueue.state.quota_audit import share
from kqueue.state.quota_trees import Trees
from tests.unit.state.test_cache import CPU, in_queue, make_cache, make_workload, on_cohort, on_queue

QUEUES, COHORTS = ("team", "q1", "q2", "q3", "q4"), ("a", "b", "c", "d", "e")
"""All but `e` may be Cohort objects."""
_EMPTY: dict[str, Any] = {"nominalQuota": "0"}


def groups(**amounts: str) -> list[dict[str, Any]]:
    """Quota of cpu in one flavor."""
    flavor = {"name": "gpu", "resources": [{"name": "cpu", **(amounts or _EMPTY)}]}
    return [{"coveredResources": ["cpu"], "flavors": [flavor]}]


def drawn_amounts(chance: random.Random, *, borrows: bool) -> dict[str, str]:
    amounts = {"nominalQuota": str(chance.randrange(5))}
    if chance.random() < 0.4:
        amounts["lendingLimit"] = str(chance.randrange(int(amounts["nominalQuota"]) + 1))
    if borrows and chance.random() < 0.4:
        amounts["borrowingLimit"] = str(chance.randrange(4))
    return amounts


def change(cache: Cache, chance: random.Random) -> None:
    """One event: of a ClusterQueue or Cohort that comes, changes, moves or goes, or of a workload that holds quota."""
    weight = {"fairSharing": {"weight": str(chance.choice([1, 2]))}}
    match chance.randrange(8):
        case 0 | 1 | 2:
            cohort = chance.choice(["", *COHORTS])
            spec = {"resourceGroups": groups(**drawn_amounts(chance, borrows=bool(cohort)))} | weight
            on_queue(cache, chance.choice(QUEUES), **(spec | ({"cohortName": cohort} if cohort else {})))
        case 3:
            cache.quota.on_cluster_queue(chance.choice(QUEUES), None)
        case 4 | 5:
            name, parent = chance.choice(COHORTS[:-1]), chance.choice(["", *COHORTS])
            spec = {"resourceGroups": groups(**drawn_amounts(chance, borrows=bool(parent)))} | weight
            on_cohort(cache, name, **(spec | ({"parentName": parent} if parent else {})))
        case 6:
            cache.quota.on_cohort(chance.choice(COHORTS[:-1]), None)
        case _:
            name = f"w{chance.randrange(4)}"
            held = in_queue(make_workload(name, host="h1"), chance.choice(QUEUES))
            cache.held.on_workload(f"ns/{name}", chance.choice([held, held, None]))


def look(cache: Cache, chance: random.Random) -> None:
    """Read values that are remembered."""
    for node in cache.quota.trees.queues.values():
        if chance.random() < 0.5:
            quota.available(node, CPU)
            if node.parent is not None:
                lendable(node.parent, "cpu")
    cache.snapshot(chance.sample(QUEUES, 2))


def fresh(cache: Cache) -> Trees:
    """The trees, built from nothing."""
    held = [share(fact) for facts in cache.held.facts() for fact in facts.values()]
    cohorts = {n: obj for n in COHORTS if (obj := cache.quota.cohort_object(n)) is not None}
    return quota_trees.build(
        cache.quota.queues, cohorts, lambda name: quota.total(s.usage for s in held if s.queue == name)
    )


def fields(node: QuotaNode) -> dict[str, Any]:
    """All that a node says; amounts of 0 are left out of its usage."""
    return {
        "name": (node.is_cohort, node.name),
        "parent": node.parent and node.parent.name,
        "children": sorted((child.is_cohort, child.name) for child in node.children),
        "quotas": dict(node.quotas),
        "weight": node.weight,
        "subtree": node.subtree,
        "usage": {column: amount for column, amount in node.usage.items() if amount},
        "height": node.height,
        "available": quota.available(node, CPU),
        "cell": (
            quota.local_quota(node, CPU),
            quota.borrowing_ceiling(node, CPU),
            quota.potential_available(node, CPU),
            quota.is_open(node, CPU),
        ),
        "lendable": lendable(node, "cpu"),
        "one count of changes": node.changes is node.root.changes,
    }


def everything(trees: Trees) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    queues = {name: fields(node) for name, node in trees.queues.items()}
    cohorts = {name: fields(node) for name, node in trees.cohorts.items()}
    return queues, cohorts, {name for name in queues if trees.is_in_cycle(name)}


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_after_any_history_the_trees_are_those_built_from_nothing(seed: int, steps: int) -> None:
    """Field by field, whether trees are read after each event or after many, also those of snapshots."""
    chance = random.Random(seed)
    cache, reads = make_cache(), chance.choice([0.1, 0.5, 1.0])
    for _ in range(steps):
        change(cache, chance)
        if chance.random() < reads:
            look(cache, chance)
    wanted = everything(fresh(cache))

    assert everything(cache.quota.trees) == wanted
    copies = cache.snapshot(QUEUES).nodes
    assert {name: fields(node) for name, node in copies.items()} == {name: wanted[0][name] for name in copies}
    assert cache.audits.audit() == []


@pytest.mark.parametrize(
    ("happens", "renewed"),
    [
        pytest.param(lambda c: None, set(), id="nothing"),
        pytest.param(
            lambda c: on_queue(c, "q1", cohortName="a", resourceGroups=groups(nominalQuota="1")),
            {"q1", "q2"},
            id="a ClusterQueue changes",
        ),
        pytest.param(
            lambda c: on_queue(c, "q3", resourceGroups=groups(nominalQuota="1")),
            {"q3"},
            id="a ClusterQueue without cohort changes",
        ),
        pytest.param(lambda c: on_queue(c, "q5", cohortName="b"), {"q4"}, id="a ClusterQueue comes"),
        pytest.param(lambda c: c.quota.on_cohort("a", None), {"q1", "q2"}, id="a Cohort is gone"),
    ],
)
def test_a_change_leaves_other_trees_alone(happens: Callable[[Cache], object], renewed: set[str]) -> None:
    """Copies of trees that have not changed are used by the next snapshot, because their roots are the same."""
    cache = make_cache()
    for name, cohort in (("q1", "a"), ("q2", "a"), ("q3", ""), ("q4", "b")):
        on_queue(cache, name, **({"cohortName": cohort} if cohort else {}))
    before = {name: node.root for name, node in cache.quota.trees.queues.items()}

    happens(cache)

    assert {name for name, root in before.items() if cache.quota.trees.queues[name].root is not root} == renewed


def test_events_without_a_read_between_them_are_applied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A synchronisation of many ClusterQueues, with workloads that come between them."""
    edits: list[object] = []
    rebuild = quota.rebuild_above

    def counted(nodes: Iterable[QuotaNode]) -> list[QuotaNode]:
        edits.append(1)
        return rebuild(nodes)

    monkeypatch.setattr(quota, "rebuild_above", counted)
    cache = make_cache()
    for number in range(50):
        on_queue(cache, f"q{number}", cohortName="a")
        cache.held.on_workload("ns/w", make_workload("w", host="h1"))
        cache.held.on_workload("ns/w", None)
    assert edits == []

    assert len(cache.quota.in_trees(["q0"], [])) == 50
    assert edits == [1]
