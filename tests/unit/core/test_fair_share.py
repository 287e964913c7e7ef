"""Shares of fair sharing: what is borrowed, of what is lent, by weight; exact in every comparison."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core import quota
from kqueue.core.fair_share import NO_SHARE, Share, borrows, dominant_share, lendable
from kqueue.core.quota import UNLIMITED, FlavorResource, Quota, QuotaNode

WEIGHT_ONE = 10**9
CPU = FlavorResource("default", "cpu")
SPOT = FlavorResource("spot", "cpu")
MEMORY = FlavorResource("default", "memory")
GPU = FlavorResource("default", "gpu")

Columns = Mapping[FlavorResource, int]


def make_node(
    name: str,
    *,
    parent: QuotaNode | None = None,
    quotas: Columns | None = None,
    usage: Columns | None = None,
    weight: int = WEIGHT_ONE,
    is_cohort: bool = False,
) -> QuotaNode:
    node = QuotaNode(name, is_cohort, parent, weight=weight, usage=dict(usage or {}))
    node.quotas = {column: Quota(amount) for column, amount in (quotas or {}).items()}
    if parent is not None:
        parent.children.append(node)
    return node


def make_borrower(
    *, quotas: Columns, usage: Columns, lent: Columns, weight: int = WEIGHT_ONE, root: Columns | None = None
) -> QuotaNode:
    """A queue beside another one, which brings `lent`, in a cohort that brings `root`."""
    cohort = make_node("cohort", quotas=root, is_cohort=True)
    node = make_node("borrower", parent=cohort, quotas=quotas, usage=usage, weight=weight)
    make_node("lender", parent=cohort, quotas=lent)
    quota.rebuild(cohort)
    return node


def test_shares_of_the_worked_example() -> None:
    """In a tree with limits, only the queue above its quota has a share: 3 borrowed of 39."""
    root = make_node("root", is_cohort=True)
    left = make_node("left", parent=root, is_cohort=True)
    a, b = make_node("a", parent=left, usage={CPU: 13}), make_node("b", parent=left, usage={CPU: 4})
    c = make_node("c", parent=root, usage={CPU: 12})
    left.quotas, a.quotas = {CPU: Quota(4, None, 6)}, {CPU: Quota(10)}
    b.quotas, c.quotas = {CPU: Quota(10, 2, 5)}, {CPU: Quota(20, 0)}
    quota.rebuild(root)

    assert dominant_share(a).weighted_share() == 77
    assert (dominant_share(a).resource, dominant_share(a).is_borrowing) == ("cpu", True)
    assert [dominant_share(node) for node in (left, b, c, root)] == [NO_SHARE] * 4


@pytest.mark.parametrize(
    ("node", "weighted", "resource", "borrowing"),
    [
        pytest.param(
            make_borrower(quotas={CPU: 2, SPOT: 5}, usage={CPU: 5, SPOT: 1}, lent={SPOT: 3}),
            300, "cpu", True, id="what-one-flavor-has-left-does-not-pay-for-another",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0, SPOT: 0}, usage={CPU: 1, SPOT: 2}, lent={CPU: 10, SPOT: 20}),
            100, "cpu", True, id="flavors-of-a-resource-add-up",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0}, usage={CPU: 1}, lent={CPU: 3}, root={SPOT: 1}),
            250, "cpu", True, id="flavors-that-only-the-root-knows-are-lent-too",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0, MEMORY: 0}, usage={CPU: 1, MEMORY: 3}, lent={CPU: 10, MEMORY: 10}),
            300, "memory", True, id="the-worst-resource-dominates",
        ),
        pytest.param(
            make_borrower(quotas={MEMORY: 0, CPU: 0}, usage={MEMORY: 30, CPU: 1}, lent={CPU: 10, MEMORY: 300}),
            100, "cpu", True, id="of-two-equal-ones-the-first-by-name-dominates",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0}, usage={CPU: 1, GPU: 9}, lent={CPU: 10, GPU: 10}),
            100, "cpu", True, id="columns-the-node-does-not-list-are-left-out",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0, GPU: 0}, usage={GPU: 5}, lent={CPU: 10}),
            0, None, True, id="borrowing-what-nobody-lends-has-no-ratio",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 5}, usage={CPU: 5}, lent={CPU: 10}),
            0, None, False, id="within-quota-is-no-borrowing",
        ),
        pytest.param(
            make_borrower(quotas={CPU: UNLIMITED}, usage={CPU: UNLIMITED}, lent={CPU: 10}),
            0, None, False, id="unlimited-quota-is-never-exceeded",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0}, usage={CPU: 1}, lent={CPU: UNLIMITED}),
            1, "cpu", True, id="of-unlimited-lenders-a-trace-is-borrowed",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0}, usage={CPU: 1}, lent={CPU: 10}, weight=2 * WEIGHT_ONE),
            50, "cpu", True, id="twice-the-weight-halves-the-share",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0}, usage={CPU: 1}, lent={CPU: 3}, weight=WEIGHT_ONE // 2),
            667, "cpu", True, id="a-status-rounds-up",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0}, usage={CPU: 1}, lent={CPU: 10}, weight=0),
            UNLIMITED, "cpu", True, id="without-weight-the-share-is-endless",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 5}, usage={CPU: 5}, lent={CPU: 10}, weight=0),
            0, None, False, id="without-weight-and-without-borrowing-there-is-no-share",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0, GPU: 0}, usage={GPU: 5}, lent={CPU: 10}, weight=0),
            0, None, True, id="without-weight-what-nobody-lends-makes-no-endless-share",
        ),
        pytest.param(
            make_borrower(quotas={CPU: 0}, usage={CPU: UNLIMITED}, lent={CPU: 1}, weight=2),
            UNLIMITED, "cpu", True, id="shares-saturate",
        ),
    ],
)  # fmt: skip
def test_share_of_a_borrower(node: QuotaNode, weighted: int, resource: str | None, borrowing: bool) -> None:
    """Ratio of the dominant resource by weight, rounded up; which resource that is; whether anything is borrowed."""
    share = dominant_share(node)
    assert (share.weighted_share(), share.resource, share.is_borrowing) == (weighted, resource, borrowing)


def test_what_stands_alone_has_no_share() -> None:
    """A root borrows from nobody, however much it uses."""
    alone = make_node("alone", quotas={CPU: 1}, usage={CPU: 9})
    quota.rebuild(alone)
    assert dominant_share(alone) == NO_SHARE
    assert not dominant_share(alone).is_borrowing
    assert not borrows(alone, [CPU])


def borrower(borrowed: int, of: int, weight: int = WEIGHT_ONE) -> Share:
    return dominant_share(make_borrower(quotas={CPU: 0}, usage={CPU: borrowed}, lent={CPU: of}, weight=weight))


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        pytest.param(borrower(0, 10), borrower(1, 10**18), id="nothing-before-a-trace"),
        pytest.param(borrower(1, 10, 2 * WEIGHT_ONE), borrower(1, 10), id="the-heavier-node-first"),
        pytest.param(borrower(10, 1, 2), borrower(1, 10**18, 0), id="without-weight-after-everybody"),
        pytest.param(borrower(1, 10, 0), borrower(2, 10, 0), id="without-weight-by-ratio"),
        pytest.param(borrower(10**18, 10**18 + 2), borrower(10**18 + 1, 10**18 + 3), id="what-floats-cannot-tell-apart"),
        pytest.param(
            borrower(10**18 - 1, 10**18, 10**18 - 1), borrower(10**18, 10**18 + 1, 10**18 - 1), id="the-closest-fractions"
        ),
    ],
)  # fmt: skip
def test_shares_are_ordered(smaller: Share, larger: Share) -> None:
    """The smaller share has the better claim, be the difference as small as it may."""
    assert smaller < larger
    assert not larger <= smaller
    assert smaller != larger


def test_equal_fractions_are_equal_shares() -> None:
    """Neither the size of the numbers nor the name of the resource tells equal shares apart."""
    other = make_borrower(quotas={MEMORY: 0}, usage={MEMORY: 7}, lent={MEMORY: 49}, weight=3 * WEIGHT_ONE)
    assert borrower(1, 21) == dominant_share(other)
    assert borrower(1, 3, 0) == borrower(10**17, 3 * 10**17, 0)


@given(st.tuples(*[st.integers(1, 2**62)] * 6), st.booleans())
def test_order_is_that_of_the_fractions(numbers: tuple[int, ...], close: bool) -> None:
    """Any two shares compare as exact fractions do."""
    a, b, c, d, v, w = numbers
    if close:
        c, d, w = a + 1, b + 1, v
    one, other = borrower(a, b, v), borrower(c, d, w)
    exact = Fraction(a, b * v), Fraction(c, d * w)
    assert (one < other, one == other) == (exact[0] < exact[1], exact[0] == exact[1])


# --- with a workload on top ------------------------------------------------------------------------------------------


def test_a_share_can_be_asked_for_with_more_usage() -> None:
    """What is added counts like usage, and nothing is changed by the question."""
    node = make_borrower(quotas={CPU: 4, MEMORY: 9}, usage={CPU: 3}, lent={CPU: 6})
    added = {CPU: 2, MEMORY: 5}
    assert dominant_share(node, added).weighted_share() == 100
    assert dominant_share(node) == NO_SHARE
    assert node.usage == {CPU: 3}


@pytest.mark.parametrize(
    ("columns", "added", "expected"),
    [
        pytest.param([CPU], {}, True, id="uses-more-than-its-quota"),
        pytest.param([MEMORY], {}, False, id="another-column-does-not-matter"),
        pytest.param([MEMORY], {MEMORY: 5}, False, id="up-to-its-quota"),
        pytest.param([MEMORY], {MEMORY: 6}, True, id="with-what-is-added"),
        pytest.param([GPU], {GPU: 6}, False, id="a-column-it-does-not-list"),
        pytest.param([MEMORY, CPU], {MEMORY: 0}, True, id="any-of-the-columns"),
    ],
)
def test_borrowing_can_be_asked_for_some_columns(columns: list[FlavorResource], added: Columns, expected: bool) -> None:
    """A node borrows a column when it uses more than its subtree quota of it."""
    node = make_borrower(quotas={CPU: 1, MEMORY: 5}, usage={CPU: 2, GPU: 1}, lent={CPU: 5, GPU: 9})
    assert borrows(node, columns, added) is expected


# --- what is lent ----------------------------------------------------------------------------------------------------


def test_what_is_lent_follows_the_quotas() -> None:
    """A change of quota counts after the rebuild; copies made before keep to the old one."""
    node = make_borrower(quotas={CPU: 0}, usage={CPU: 1}, lent={CPU: 10})
    cohort = node.root
    assert (lendable(cohort, "cpu"), lendable(cohort, "gpu")) == (10, 0)
    copy = quota.copy_tree(cohort)["borrower"]

    cohort.quotas = {CPU: Quota(30)}
    quota.rebuild(cohort)

    assert lendable(cohort, "cpu") == 40
    assert dominant_share(node).weighted_share() == 25
    assert dominant_share(copy).weighted_share() == 100


def test_limits_of_the_parent_bound_what_is_lent() -> None:
    """A cohort that may borrow 2 lends its own 3 and those 2, although its root has 100."""
    root = make_node("root", quotas={CPU: 100}, is_cohort=True)
    cohort = make_node("cohort", parent=root, is_cohort=True)
    cohort.quotas = {CPU: Quota(3, 2)}
    node = make_node("queue", parent=cohort, quotas={CPU: 0}, usage={CPU: 1})
    quota.rebuild(root)
    assert lendable(cohort, "cpu") == 5
    assert dominant_share(node).weighted_share() == 200
