"""Whose turn it is: the classical order, and the tournament of fair sharing against one that remembers nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core import quota
from kqueue.core.fair_share import borrows, dominant_share
from kqueue.core.ordering import DEFAULT_RULES, OrderRules, classical, tournament
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.workload import Head

START = datetime(2026, 1, 1, tzinfo=UTC)
WEIGHT_ONE = 10**9
CPU = FlavorResource("default", "cpu")
GPU = FlavorResource("default", "gpu")
BY_AGE = OrderRules(priority=False)
PREEMPTORS = OrderRules(preemptors_first=True)
SHARES_ONLY = OrderRules(non_borrowing_first=False)


@dataclass(frozen=True)
class Waiting:
    """What ordering sees of a nominated workload."""

    head: Head
    usage: Mapping[FlavorResource, int] = field(default_factory=dict)
    level: int = 0
    holds_reservation: bool = False
    is_preemptor: bool = False


def make_entry(
    uid: str,
    *,
    queue: str = "team",
    cpu: int = 0,
    gpu: int | None = None,
    priority: int = 0,
    second: int = 0,
    level: int = 0,
    reserved: bool = False,
    preemptor: bool = False,
) -> Waiting:
    head = Head(
        key=f"ns/{uid}",
        uid=uid,
        queue=queue,
        priority=priority,
        timestamp=START + timedelta(seconds=second),
        pod_sets=(),
    )
    usage = {CPU: cpu} | ({} if gpu is None else {GPU: gpu})
    return Waiting(head, usage, level, reserved, preemptor)


def uids(entries: Iterator[Waiting]) -> list[str]:
    return [entry.head.uid for entry in entries]


def make_node(
    name: str,
    *children: QuotaNode,
    cpu: int = 0,
    used: int = 0,
    weight: int = WEIGHT_ONE,
    lending: int | None = None,
    gpu: tuple[int, int] | None = None,
) -> QuotaNode:
    """A cohort of these children, or a queue; `gpu` is quota and usage of another resource."""
    node = QuotaNode(name, bool(children), quotas={CPU: Quota(cpu, None, lending)}, weight=weight, usage={CPU: used})
    if gpu is not None:
        node.quotas, node.usage[GPU] = {**node.quotas, GPU: Quota(gpu[0])}, gpu[1]
    for child in children:
        child.parent = node
        node.children.append(child)
    return node


def queues_of(*roots: QuotaNode) -> dict[str, QuotaNode]:
    for root in roots:
        quota.rebuild(root)
    return {node.name: node for root in roots for node in root.walk() if not node.is_cohort}


def charge(entry: Waiting, nodes: Mapping[str, QuotaNode]) -> None:
    for column, amount in entry.usage.items():
        quota.add_usage(nodes[entry.head.queue], column, amount)


# --- classical -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        pytest.param({"reserved": True, "level": 2}, {}, DEFAULT_RULES, id="a-reservation-before-all-others"),
        pytest.param({"reserved": True}, {"preemptor": True}, PREEMPTORS, id="a-reservation-before-a-preemptor"),
        pytest.param({"preemptor": True, "level": 2}, {}, PREEMPTORS, id="a-preemptor-before-less-borrowing"),
        pytest.param({"level": 0}, {"preemptor": True, "level": 1}, DEFAULT_RULES, id="preemptors-count-only-by-rule"),
        pytest.param({"level": 1}, {"level": 2, "priority": 9}, DEFAULT_RULES, id="less-borrowing-before-priority"),
        pytest.param({"priority": 9, "second": 5}, {}, DEFAULT_RULES, id="priority-before-age"),
        pytest.param({}, {"priority": 9, "second": 5}, BY_AGE, id="age-before-priority-by-rule"),
        pytest.param({"second": 1}, {"second": 2}, DEFAULT_RULES, id="the-older-one"),
    ],
)
def test_classical_order(first: dict[str, Any], second: dict[str, Any], rules: OrderRules) -> None:
    """The first difference decides, whichever way they were given; the UID would say the opposite."""
    one, other = make_entry("z", **first), make_entry("a", **second)
    assert uids(classical([one, other], rules)) == uids(classical([other, one], rules)) == ["z", "a"]


def test_entries_equal_in_all_go_by_uid() -> None:
    """The same entries always come in the same order."""
    entries = [make_entry(uid) for uid in "bca"]
    assert uids(classical(entries)) == ["a", "b", "c"]
    assert uids(tournament(entries, queues_of(make_node("team")))) == ["a", "b", "c"]


# --- tournament ------------------------------------------------------------------------------------------------------


def test_tournament_of_the_worked_example() -> None:
    """At the root only the state of the child cohort counts, so a borrower of a cohort that does not borrow is early."""
    left = make_node("left", make_node("la", cpu=4, used=4), make_node("lb"), weight=2 * WEIGHT_ONE)
    right = make_node("right", make_node("ra", cpu=2, used=2), make_node("rb", cpu=6))
    nodes = queues_of(make_node("root", left, right))
    wants = {"la": 2, "lb": 1, "ra": 1, "rb": 2}
    turns = []
    for entry in tournament([make_entry(queue, queue=queue, cpu=cpu) for queue, cpu in wants.items()], nodes):
        turns.append(entry.head.queue)
        charge(entry, nodes)
    assert turns == ["rb", "ra", "lb", "la"]


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        pytest.param(
            (make_node("one", used=5), {"preemptor": True}), (make_node("two", cpu=9), {}),
            PREEMPTORS, id="a-preemptor-before-who-does-not-borrow",
        ),
        pytest.param(
            (make_node("one", cpu=9), {}), (make_node("two", used=5), {"preemptor": True}),
            DEFAULT_RULES, id="preemptors-count-only-by-rule",
        ),
        pytest.param(
            (make_node("one", cpu=9, gpu=(0, 9)), {}), (make_node("two"), {}),
            DEFAULT_RULES, id="borrowing-what-is-not-requested-does-not-matter",
        ),
        pytest.param(
            (make_node("two", gpu=(0, 1)), {}), (make_node("one", cpu=9, gpu=(0, 9)), {}),
            SHARES_ONLY, id="the-lower-share-although-it-borrows-by-rule",
        ),
        pytest.param(
            (make_node("one", cpu=9, gpu=(0, 9)), {"gpu": 0}), (make_node("two", gpu=(0, 9)), {"priority": -9}),
            DEFAULT_RULES, id="equal-shares-by-priority",
        ),
        pytest.param(
            (make_node("one", used=2, weight=4 * WEIGHT_ONE), {}), (make_node("two", used=1), {"priority": 9}),
            DEFAULT_RULES, id="the-lower-share-before-priority",
        ),
        pytest.param(
            (make_node("one", used=50), {}), (make_node("two", weight=0), {"priority": 9}),
            DEFAULT_RULES, id="who-has-no-weight-borrows-last",
        ),
        pytest.param(
            (make_node("one", cpu=9), {"second": 9, "priority": 1}), (make_node("two", cpu=9), {}),
            DEFAULT_RULES, id="priority-before-age",
        ),
        pytest.param(
            (make_node("one", cpu=9), {}), (make_node("two", cpu=9), {"second": 9, "priority": 1}),
            BY_AGE, id="age-before-priority-by-rule",
        ),
        pytest.param((make_node("one", cpu=9), {}), (make_node("two"), {}), DEFAULT_RULES, id="the-own-workload-counts"),
    ],
)  # fmt: skip
def test_tournament_in_one_cohort(
    first: tuple[QuotaNode, dict[str, Any]], second: tuple[QuotaNode, dict[str, Any]], rules: OrderRules
) -> None:
    """Both want one cpu; the first difference decides, whichever way they were given."""
    one = make_entry("z", queue=first[0].name, **{"cpu": 1} | first[1])
    other = make_entry("a", queue=second[0].name, **{"cpu": 1} | second[1])
    nodes = queues_of(make_node("cohort", first[0], second[0], make_node("lender", cpu=100, gpu=(100, 0))))
    assert uids(tournament([one, other], nodes, rules)) == uids(tournament([other, one], nodes, rules)) == ["z", "a"]


def test_what_was_charged_meanwhile_counts() -> None:
    """Without charges b goes twice before c; when b's first one is charged, c is next."""

    def entries() -> list[Waiting]:
        return [
            make_entry("b1", queue="b", cpu=4),
            make_entry("b2", queue="b", cpu=4),
            make_entry("c", queue="c", cpu=5),
        ]

    nodes = queues_of(make_node("cohort", make_node("b"), make_node("c"), cpu=20))
    assert uids(tournament(entries(), nodes)) == ["b1", "b2", "c"]

    turns = tournament(entries(), nodes)
    charge(next(turns), nodes)
    assert uids(turns) == ["c", "b2"]


def test_entries_of_one_queue_come_by_reservation_priority_and_age() -> None:
    """All get their turn, and none overtakes within its queue."""
    entries = [make_entry("old"), make_entry("high", priority=1), make_entry("held", reserved=True)]
    assert uids(tournament(entries, queues_of(make_node("team")))) == ["held", "high", "old"]


def test_between_trees_the_better_head_goes_first() -> None:
    """Trees share no quota, so borrowing in one is nothing to the other; but they may share hosts."""
    nodes = queues_of(make_node("cohort", make_node("borrower")), make_node("alone", cpu=9))
    low, high = make_entry("a", queue="alone", cpu=1), make_entry("b", queue="borrower", cpu=1, priority=1)
    assert uids(tournament([low, high], nodes)) == ["b", "a"]


# --- against one that remembers nothing ------------------------------------------------------------------------------


def plain_tournament(
    entries: Sequence[Waiting], nodes: Mapping[str, QuotaNode], rules: OrderRules
) -> Iterator[Waiting]:
    """Everything anew for each turn; a workload is added by charging it."""
    left = list(entries)

    def alone(entry: Waiting) -> tuple[object, ...]:
        return not entry.holds_reservation, *by_head(entry)

    def by_head(entry: Waiting) -> tuple[object, ...]:
        head, is_late = entry.head, rules.preemptors_first and not entry.is_preemptor
        return is_late, -head.priority if rules.priority else 0, head.timestamp, head.uid

    def beside(node: QuotaNode, entry: Waiting) -> tuple[object, ...]:
        charge(entry, nodes)
        share = dominant_share(node)
        borrowing = rules.non_borrowing_first and borrows(node, entry.usage)
        for column, amount in entry.usage.items():
            quota.remove_usage(nodes[entry.head.queue], column, amount)
        late, *rest = by_head(entry)
        return late, borrowing, share, *rest

    def winner(node: QuotaNode) -> Waiting | None:
        if not node.is_cohort:
            return min((e for e in left if e.head.queue == node.name), key=alone, default=None)
        won = [(child, entry) for child in node.children if (entry := winner(child)) is not None]
        return min(won, key=lambda pair: beside(*pair))[1] if won else None

    while left:
        roots = {id(node.root): node.root for node in nodes.values()}
        entry = min((e for root in roots.values() if (e := winner(root)) is not None), key=alone)
        left.remove(entry)
        yield entry


def make_forest(chance: random.Random) -> list[QuotaNode]:
    """One or more trees, with queues at all heights."""

    def node(name: str, *children: QuotaNode) -> QuotaNode:
        return make_node(
            name,
            *children,
            cpu=chance.randrange(7),
            used=chance.randrange(7),
            weight=chance.choice([0, WEIGHT_ONE // 2, WEIGHT_ONE, 2 * WEIGHT_ONE]),
            lending=chance.choice([None, chance.randrange(7)]),
            gpu=chance.choice([None, (chance.randrange(7), chance.randrange(7))]),
        )

    nodes = [node(f"queue-{index}") for index in range(1 + chance.randrange(8))]
    for index in range(chance.randrange(6)):
        size = 1 + chance.randrange(len(nodes))
        nodes = [*nodes[size:], node(f"cohort-{index}", *nodes[:size])]
    return nodes


def make_random_entry(uid: str, queues: Sequence[str], chance: random.Random) -> Waiting:
    return make_entry(
        uid,
        queue=chance.choice(queues),
        cpu=chance.randrange(6),
        gpu=chance.choice([None, chance.randrange(6)]),
        priority=chance.randrange(2),
        second=chance.randrange(2),
        reserved=chance.random() < 0.2,
        preemptor=chance.random() < 0.3,
    )


@given(st.integers(0, 2**32))
def test_the_tournament_equals_one_that_remembers_nothing(seed: int) -> None:
    """Whether entries are charged or not, each turn goes to whom a look at everything would have given it."""
    chance = random.Random(seed)
    roots = make_forest(chance)
    nodes = queues_of(*roots)
    entries = [make_random_entry(f"uid-{index}", sorted(nodes), chance) for index in range(1 + chance.randrange(10))]
    rules = OrderRules(
        preemptors_first=chance.random() < 0.5,
        non_borrowing_first=chance.random() < 0.5,
        priority=chance.random() < 0.5,
    )
    charged = {entry.head.uid for entry in entries if chance.random() < 0.7}

    turns = []
    twins = {name: node for root in roots for name, node in quota.copy_tree(root).items()}
    for entry in tournament(entries, nodes, rules):
        turns.append(entry.head.uid)
        if entry.head.uid in charged:
            charge(entry, nodes)

    expected = []
    for entry in plain_tournament(entries, twins, rules):
        expected.append(entry.head.uid)
        if entry.head.uid in charged:
            charge(entry, twins)
    assert turns == expected
