"""Quota that a queue's own next workloads ask for is not lent to others in the meantime."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kqueue.core.decision import Wait
from kqueue.core.explain import BlockerKind
from kqueue.core.preemption import Rules, SharingStrategy
from kqueue.core.share_order import NextHead
from kqueue.core.workload import Head, Snapshot
from tests.builders import START, make_queue, plan
from tests.unit.core.preemption_cases import ANY, LOWER, NEVER, cohort, leaf
from tests.unit.core.test_cycle_preemption import decide, quotas_of, wants


def behind(*sizes: int) -> NextHead:
    """In `owner` wait workloads of these sizes behind its head; the other queues have none."""
    line = [wants(f"next-{n}", "owner", size) for n, size in enumerate(sizes)]

    def next_head(queue: str, without: Collection[str]) -> Head | None:
        return next((head for head in line if queue == "owner" and head.key not in without), None)

    return next_head


def lending(reclaims: Any = ANY, *, borrower_has: int = 0, free: int = 8) -> Snapshot:
    """`owner` has quota, and `borrower`, in the same cohort, has none unless the test gives it some."""
    roots = [cohort("team", leaf("owner", nominal=free), leaf("borrower", nominal=borrower_has))]
    return quotas_of(roots, specs=[make_queue("owner", reclaims=reclaims), make_queue("borrower")])


@pytest.mark.parametrize(
    ("sizes", "outcome"),
    [
        pytest.param((4,), "Skipped", id="the next one asks for all that is left"),
        pytest.param((1, 2), "Skipped", id="the next two do"),
        pytest.param((99,), "Skipped", id="one that is larger than that asks for no more than nominal quota"),
        pytest.param((1,), "admitted", id="enough is left for both"),
        pytest.param((), "admitted", id="no workload waits behind the head"),
        pytest.param((0, 0, 0, 0, 9), "admitted", id="the fifth is not looked at"),
    ],
)
def test_what_the_next_workloads_of_its_owner_ask_for_is_not_lent(sizes: tuple[int, ...], outcome: str) -> None:
    """The head takes 4 of 8, and the borrower asks for 2; the next cycle would reclaim them."""
    heads = [wants("head", "owner", 4), wants("borrows", "borrower", 2)]

    assert decide(lending(), *heads, next_head=behind(*sizes)) == {"head": "admitted", "borrows": outcome}


def test_the_borrower_hears_why() -> None:
    heads = [wants("head", "owner", 4), wants("borrows", "borrower", 2)]

    _, wait = plan(lending(), heads, next_head=behind(4))
    assert isinstance(wait, Wait)
    assert wait.blockers[0].kind is BlockerKind.LENDERS
    assert wait.blockers[0].queue == "borrower"


@pytest.mark.parametrize(
    ("snapshot", "head", "more"),
    [
        pytest.param(lending(NEVER), 4, {}, id="its owner does not reclaim"),
        pytest.param(lending(LOWER), 4, {}, id="its owner reclaims from lower priorities only"),
        pytest.param(lending(), 9, {}, id="its owner's head waits, and may go on waiting"),
        pytest.param(lending(borrower_has=2), 4, {}, id="it is not borrowed"),
        pytest.param(lending(), 4, {"rules": Rules(now=START, fair=(SharingStrategy.LTE,))}, id="shares decide"),
    ],
)
def test_otherwise_it_is_lent(snapshot: Snapshot, head: int, more: dict[str, Any]) -> None:
    heads = [wants("head", "owner", head), wants("other", "borrower", 2)]

    assert decide(snapshot, *heads, next_head=behind(9), **more)["other"] == "admitted"


def test_another_cohort_does_not_matter() -> None:
    roots = [cohort("team", leaf("owner", nominal=8)), cohort("far", leaf("lender", nominal=4), leaf("borrower"))]
    snapshot = quotas_of(roots, specs=[make_queue("owner", reclaims=ANY), make_queue("lender"), make_queue("borrower")])
    heads = [wants("head", "owner", 4), wants("other", "borrower", 4)]

    assert decide(snapshot, *heads, next_head=behind(4)) == {"head": "admitted", "other": "admitted"}
