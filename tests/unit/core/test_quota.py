"""Quota arithmetic: the worked vectors of the compatible system, and conservation as a law."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core import quota
from kqueue.core.quota import NOTHING, UNLIMITED, FlavorResource, Quota, QuotaNode

CPU = FlavorResource("default", "cpu")


def make_node(
    name: str,
    *,
    parent: QuotaNode | None = None,
    nominal: int = 0,
    borrowing: int | None = None,
    lending: int | None = None,
    usage: int = 0,
    is_cohort: bool = False,
) -> QuotaNode:
    node = QuotaNode(name=name, parent=parent, is_cohort=is_cohort, quotas={CPU: Quota(nominal, borrowing, lending)})
    node.usage = {CPU: usage}
    if parent is not None:
        parent.children.append(node)
    return node


def make_tree() -> dict[str, QuotaNode]:
    """root has cohort left (a, b) and ClusterQueue c."""
    root = make_node("root", is_cohort=True)
    left = make_node("left", parent=root, nominal=4, lending=6, is_cohort=True)
    a = make_node("a", parent=left, nominal=10, usage=13)
    b = make_node("b", parent=left, nominal=10, borrowing=2, lending=5, usage=4)
    c = make_node("c", parent=root, nominal=20, borrowing=0, usage=12)
    quota.rebuild(root)
    return {"root": root, "left": left, "a": a, "b": b, "c": c}


@pytest.mark.parametrize(
    ("name", "subtree", "local", "usage", "local_free", "free", "potential"),
    [
        pytest.param("root", 26, 0, 12, 0, 14, 26, id="root-holds-what-children-lend"),
        pytest.param("left", 19, 13, 13, 0, 14, 39, id="lending-limit-hides-the-rest"),
        pytest.param("a", 10, 0, 13, 0, 14, 39, id="borrower-without-limits"),
        pytest.param("b", 10, 5, 4, 1, 8, 12, id="borrowing-limit-caps"),
        pytest.param("c", 20, 0, 12, 0, 8, 20, id="zero-borrowing-limit"),
    ],
)
def test_quantities_of_the_worked_example(
    name: str, subtree: int, local: int, usage: int, local_free: int, free: int, potential: int
) -> None:
    """Every derived quantity equals the worked example."""
    node = make_tree()[name]
    assert (
        node.subtree[CPU],
        quota.local_quota(node, CPU),
        node.usage[CPU],
        quota.local_available(node, CPU),
        quota.available(node, CPU),
        quota.potential_available(node, CPU),
    ) == (subtree, local, usage, local_free, free, potential)


@pytest.mark.parametrize(
    ("name", "amount", "level"),
    [
        pytest.param("a", 6, 1, id="fits-in-the-near-cohort"),
        pytest.param("a", 8, 2, id="reaches-the-root"),
        pytest.param("b", 6, 0, id="does-not-borrow"),
        pytest.param("b", 8, 2, id="fits-nowhere-counts-as-root"),
        pytest.param("c", 12, 1 + 1, id="child-of-the-root"),
    ],
)
def test_borrowing_level_is_the_height_of_the_lowest_subtree_that_fits(name: str, amount: int, level: int) -> None:
    """How far up a request borrows."""
    assert quota.borrowing_level(make_tree()[name], CPU, amount) == level


def test_usage_bubbles_up_and_down_the_path() -> None:
    """Adding 3 to b and removing 13 from a gives the availabilities of the worked example."""
    tree = make_tree()
    quota.add_usage(tree["b"], CPU, 3)
    assert [tree[n].usage[CPU] for n in ("b", "left", "root")] == [7, 15, 14]
    assert [quota.available(tree[n], CPU) for n in ("root", "a", "b", "c")] == [12, 12, 5, 8]

    quota.remove_usage(tree["a"], CPU, 13)

    assert [tree[n].usage[CPU] for n in ("a", "left", "root")] == [0, 2, 12]
    assert [quota.available(tree[n], CPU) for n in ("root", "left", "a", "b", "c")] == [14, 25, 25, 5, 8]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(quota.plus(UNLIMITED, 5), UNLIMITED, id="unlimited-swallows"),
        pytest.param(quota.minus(UNLIMITED, 5), UNLIMITED, id="unlimited-survives"),
        pytest.param(quota.minus(5, UNLIMITED), NOTHING, id="nothing-is-left-of-a-number"),
        pytest.param(quota.minus(UNLIMITED, UNLIMITED), 0, id="unlimited-cancels"),
        pytest.param(quota.plus(UNLIMITED - 1, UNLIMITED - 1), UNLIMITED, id="sums-saturate"),
        pytest.param(quota.minus(NOTHING, 1), NOTHING, id="differences-saturate"),
    ],
)
def test_arithmetic_saturates(result: int, expected: int) -> None:
    """No amount ever wraps."""
    assert result == expected


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_no_sequence_of_admissions_and_finishes_creates_or_loses_quota(seed: int, steps: int) -> None:
    """Charging and giving back in any order leaves usage equal to a rebuild, and all free at the end."""
    chance = random.Random(seed)
    tree = make_tree()
    root = tree["root"]
    leaves = [tree[n] for n in "abc"]
    for leaf in leaves:
        leaf.usage = {CPU: 0}
    quota.rebuild(root)
    held: list[tuple[QuotaNode, int]] = []
    for _ in range(steps):
        leaf, amount = chance.choice(leaves), chance.randrange(1, 9)
        if amount <= quota.available(leaf, CPU):
            quota.add_usage(leaf, CPU, amount)
            held.append((leaf, amount))
        elif held:
            quota.remove_usage(*_with_column(held.pop(chance.randrange(len(held)))))
        before = {n: dict(node.usage) for n, node in tree.items()}
        quota.rebuild(root)
        assert {n: dict(node.usage) for n, node in tree.items()} == before
        assert sum(leaf.usage[CPU] for leaf in leaves) == sum(a for _, a in held)
    for leaf, amount in held:
        quota.remove_usage(leaf, CPU, amount)
    assert all(node.usage.get(CPU, 0) == 0 for node in tree.values())


def _with_column(holding: tuple[QuotaNode, int]) -> tuple[QuotaNode, FlavorResource, int]:
    return (holding[0], CPU, holding[1])
