"""Quota arithmetic: the worked vectors of the compatible system, and conservation as a law."""

from __future__ import annotations

import random
from collections.abc import Callable

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
    ("name", "amount", "reach"),
    [
        pytest.param("a", 6, (1, True), id="fits-in-the-near-cohort"),
        pytest.param("a", 8, (2, False), id="reaches-the-root"),
        pytest.param("b", 6, (0, True), id="does-not-borrow"),
        pytest.param("b", 8, (2, False), id="the-near-cohort-is-full"),
        pytest.param("c", 12, (2, False), id="child-of-the-root"),
        pytest.param("a", 99, (2, False), id="fits-nowhere-counts-as-root"),
    ],
)
def test_the_lowest_subtree_is_the_nearest_cohort_that_holds_the_amount(
    name: str, amount: int, reach: tuple[int, bool]
) -> None:
    """How far up a request borrows, and whether quota below the root suffices."""
    assert quota.lowest_subtree(make_tree()[name], CPU, amount) == reach


@pytest.mark.parametrize("amount", [pytest.param(3, id="within-nominal"), pytest.param(30, id="more-than-there-is")])
def test_without_a_cohort_there_is_nothing_to_reclaim(amount: int) -> None:
    """A ClusterQueue that stands alone never borrows."""
    alone = make_node("alone", nominal=10)
    quota.rebuild(alone)
    assert quota.lowest_subtree(alone, CPU, amount) == (0, False)
    assert quota.available(alone, CPU) == quota.potential_available(alone, CPU) == 10


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


# --- laws over random trees ------------------------------------------------------------------------------------------

SEEDS = st.integers(0, 2**32)
COLUMNS = (CPU, FlavorResource("spot", "cpu"), FlavorResource("default", "memory"))


def small(chance: random.Random) -> int:
    return chance.randrange(10)


def any_size(chance: random.Random) -> int:
    return chance.choice([small(chance), chance.randrange(UNLIMITED), UNLIMITED - small(chance)])


def make_random_tree(chance: random.Random, amount: Callable[[random.Random], int] = small) -> list[QuotaNode]:
    """Nodes, parents first: up to three cohorts below a root, ClusterQueues anywhere; not every node has each column."""

    def some() -> list[FlavorResource]:
        return [column for column in COLUMNS if chance.random() < 0.7]

    def limit() -> int | None:
        return amount(chance) if chance.random() < 0.4 else None

    def quotas() -> dict[FlavorResource, Quota]:
        return {column: Quota(amount(chance), limit(), limit()) for column in some()}

    nodes = [QuotaNode("root", is_cohort=True, quotas=quotas())]
    for index in range(chance.randrange(4)):
        _hang(QuotaNode(f"cohort-{index}", is_cohort=True, quotas=quotas()), chance.choice(nodes), nodes)
    cohorts = list(nodes)
    for index in range(1 + chance.randrange(5)):
        queue = QuotaNode(f"queue-{index}", quotas=quotas(), usage={column: amount(chance) for column in some()})
        _hang(queue, chance.choice(cohorts), nodes)
    quota.rebuild(nodes[0])
    return nodes


def _hang(node: QuotaNode, parent: QuotaNode, nodes: list[QuotaNode]) -> None:
    node.parent = parent
    parent.children.append(node)
    nodes.append(node)


class Plain:
    """The definitions, word for word, for one column: nothing is remembered."""

    def __init__(self, column: FlavorResource) -> None:
        self.column = column

    def subtree(self, node: QuotaNode) -> int:
        amount = node.quota(self.column).nominal
        for child in node.children:
            amount = quota.plus(amount, quota.minus(self.subtree(child), self.local(child)))
        return amount

    def local(self, node: QuotaNode) -> int:
        limit = node.quota(self.column).lending_limit
        return 0 if limit is None else max(0, quota.minus(self.subtree(node), limit))

    def usage(self, node: QuotaNode) -> int:
        if not node.is_cohort:
            return node.usage.get(self.column, 0)
        amount = 0
        for child in node.children:
            amount = quota.plus(amount, max(0, quota.minus(self.usage(child), self.local(child))))
        return amount

    def local_free(self, node: QuotaNode) -> int:
        return max(0, quota.minus(self.local(node), self.usage(node)))

    def available(self, node: QuotaNode) -> int:
        if node.parent is None:
            return quota.minus(self.subtree(node), self.usage(node))
        above, limit = self.available(node.parent), node.quota(self.column).borrowing_limit
        if limit is not None:
            lent = quota.minus(self.subtree(node), self.local(node))
            taken = max(0, quota.minus(self.usage(node), self.local(node)))
            above = min(above, quota.minus(quota.plus(lent, limit), taken))
        return quota.plus(self.local_free(node), above)

    def potential(self, node: QuotaNode) -> int:
        if node.parent is None:
            return self.subtree(node)
        most, limit = quota.plus(self.local(node), self.potential(node.parent)), node.quota(self.column).borrowing_limit
        return most if limit is None else min(most, quota.plus(self.subtree(node), limit))

    def height(self, node: QuotaNode) -> int:
        return 1 + max(map(self.height, node.children)) if node.children else 0

    def lowest_subtree(self, node: QuotaNode, amount: int) -> tuple[int, bool]:
        within = quota.plus(self.usage(node), amount) <= node.quota(self.column).nominal
        if within or node.parent is None:
            return 0, node.parent is not None
        remaining = quota.minus(amount, self.local_free(node))
        *_, root = ancestors = list(node.path_to_root())[1:]
        for ancestor in ancestors:
            if quota.plus(self.usage(ancestor), remaining) <= self.subtree(ancestor):
                return self.height(ancestor), ancestor.parent is not None
            remaining = quota.minus(remaining, self.local_free(ancestor))
        return self.height(root), False


@given(SEEDS)
def test_what_is_derived_equals_the_definitions(seed: int) -> None:
    """In any tree, with amounts of any size, every quantity is the one that the definitions give."""
    chance = random.Random(seed)
    sizes = chance.choice([small, any_size])
    nodes, amount = make_random_tree(chance, sizes), sizes(chance)
    for node in nodes:
        for column in COLUMNS:
            plain = Plain(column)
            assert node.subtree.get(column, 0) == plain.subtree(node)
            assert node.usage.get(column, 0) == plain.usage(node)
            assert quota.local_quota(node, column) == plain.local(node)
            assert quota.local_available(node, column) == plain.local_free(node)
            assert quota.available(node, column) == plain.available(node)
            assert quota.potential_available(node, column) == plain.potential(node)
            assert node.height == plain.height(node)
            if not node.is_cohort:
                assert quota.lowest_subtree(node, column, amount) == plain.lowest_subtree(node, amount)


def _state(nodes: list[QuotaNode]) -> list[tuple[int, ...]]:
    """What is used, what is left and what there could be, everywhere."""
    return [
        (node.usage.get(column, 0), quota.available(node, column), quota.potential_available(node, column))
        for node in nodes
        for column in COLUMNS
    ]


@given(SEEDS)
def test_no_sequence_of_charges_creates_or_loses_quota(seed: int) -> None:
    """After each step the sums are those of the ClusterQueues; when all is given back, all is as it was."""
    chance = random.Random(seed)
    nodes, held = make_random_tree(chance), list[tuple[QuotaNode, FlavorResource, int]]()
    queues, before = [node for node in nodes if not node.is_cohort], _state(nodes)
    for _ in range(15):
        if held and chance.random() < 0.5:
            quota.remove_usage(*held.pop(chance.randrange(len(held))))
        else:
            held.append((chance.choice(queues), chance.choice(COLUMNS), small(chance)))
            quota.add_usage(*held[-1])
        charged = _state(nodes)
        quota.rebuild(nodes[0])
        assert _state(nodes) == charged
    for holding in held:
        quota.remove_usage(*holding)
    assert _state(nodes) == before


@given(SEEDS)
def test_what_would_rise_is_what_charging_adds(seed: int) -> None:
    """A preview changes nothing, and tells what each node on the path to the root would get."""
    chance = random.Random(seed)
    nodes = make_random_tree(chance)
    queue = chance.choice([node for node in nodes if not node.is_cohort])
    usage = {column: small(chance) for column in COLUMNS[: 1 + chance.randrange(3)]}
    path, before = list(queue.path_to_root()), _state(nodes)
    preview = [quota.rising(usage, queue, node) for node in path]
    assert _state(nodes) == before

    was = [dict(node.usage) for node in path]
    for column, amount in usage.items():
        quota.add_usage(queue, column, amount)

    assert preview == [
        {c: node.usage.get(c, 0) - used.get(c, 0) for c in usage} for node, used in zip(path, was, strict=True)
    ]


@given(SEEDS)
def test_a_copy_and_its_original_do_not_touch_each_other(seed: int) -> None:
    """A copy says the same as the original until one of them is charged; then only that one changes."""
    chance = random.Random(seed)
    root = make_random_tree(chance)[0]
    queues = quota.copy_tree(root)
    copies = list(next(iter(queues.values())).root.walk())
    assert [(n.name, n.is_cohort) for n in copies] == [(n.name, n.is_cohort) for n in root.walk()]
    originals = list(root.walk())
    before = _state(originals)
    assert _state(copies) == before

    quota.add_usage(queues[chance.choice(sorted(queues))], CPU, 5)
    assert _state(originals) == before
    root.quotas = {CPU: Quota(1_000)}
    charged = _state(copies)
    quota.rebuild(root)

    assert _state(copies) == charged
    assert quota.potential_available(root, CPU) == root.subtree[CPU] >= 1_000


@given(SEEDS)
def test_a_copy_can_be_made_true_again(seed: int) -> None:
    """Whichever of the two was charged, and after a rebuild; who compares numbers of changes sees that there was one."""
    chance = random.Random(seed)
    root = make_random_tree(chance)[0]
    copy = quota.TreeCopy(root)
    twin = next(iter(copy.queues.values())).root
    mine = [node for node in root.walk() if not node.is_cohort]
    for _ in range(4):
        before, changes = _state(list(twin.walk())), twin.changes[0]
        match chance.randrange(4):
            case 0:
                quota.add_usage(chance.choice(mine), CPU, 5)
            case 1:
                quota.add_usage(copy.queues[chance.choice(mine).name], CPU, 5)
            case 2:
                root.quotas = {CPU: Quota(1_000)}
                quota.rebuild(root)
            case _:
                pass
        copy.refresh()
        assert _state(list(twin.walk())) == _state(list(root.walk()))
        assert _state(list(twin.walk())) == before or twin.changes[0] > changes


def test_a_negative_charge_stays_where_it_is() -> None:
    """A reservation above the quota lowers what its own node counts, and nobody gains by it."""
    tree = make_tree()
    quota.add_usage(tree["a"], CPU, -3)
    assert [tree[n].usage[CPU] for n in ("a", "left", "root")] == [10, 13, 12]


def test_every_change_of_usage_is_counted_in_its_tree_and_in_no_other() -> None:
    """What was found out between two changes holds for as long as their number stays."""
    nodes = make_tree()
    a, c = nodes["a"], nodes["c"]
    twin = quota.copy_tree(a.root)["a"]
    seen, before = [a.changes[0]], dict(a.usage)
    changes: list[Callable[[], None]] = [
        lambda: quota.add_usage(a, CPU, 1),
        lambda: quota.remove_usage(c, CPU, 1),
        lambda: quota.shift_usage(a, CPU, 1),
        lambda: quota.set_usage(a, before),
        lambda: quota.rebuild(a.root),
    ]
    for change in changes:
        change()
        seen.append(c.changes[0])
    assert seen == sorted(set(seen))
    assert twin.changes == twin.root.changes == [0]


@pytest.mark.parametrize(
    ("lending", "local"),
    [
        pytest.param(9, 1, id="one-is-not-lent"),
        pytest.param(10, 0, id="all-is-lent"),
        pytest.param(11, 0, id="more-may-be-lent-than-there-is"),
    ],
)
def test_the_last_unit_is_local_or_lent(lending: int, local: int) -> None:
    """Quota of 10: what is local stays in the ClusterQueue, and the first unit beyond it is the Cohort's."""
    root = make_node("root", is_cohort=True)
    queue = make_node("a", parent=root, nominal=10, lending=lending)
    quota.rebuild(root)

    assert quota.local_quota(queue, CPU) == local
    quota.add_usage(queue, CPU, local + 1)
    assert root.usage[CPU] == 1
    quota.remove_usage(queue, CPU, 1)
    assert root.usage[CPU] == 0


@pytest.mark.parametrize(
    ("used", "free", "borrowed"),
    [
        pytest.param(9, 1, 0, id="one-is-left"),
        pytest.param(10, 0, 0, id="all-is-used"),
        pytest.param(11, -1, 1, id="one-too-much"),
    ],
)
def test_the_last_unit_of_quota_is_free_or_borrowed(used: int, free: int, borrowed: int) -> None:
    """Of a ClusterQueue alone, with quota of 10."""
    queue = make_node("a", nominal=10, usage=used)
    quota.rebuild(queue)

    assert quota.available(queue, CPU) == free
    assert quota.borrowed(queue, CPU) == borrowed


def test_a_queue_that_is_overdrawn_has_room_for_nothing_and_no_more() -> None:
    """Who asks for nothing of a column is not refused for it."""
    queue = make_node("a", nominal=10, usage=11)
    quota.rebuild(queue)

    assert quota.has_room(queue, {CPU: 0})
    assert not quota.has_room(queue, {CPU: 1})


def test_usages_are_summed_by_column() -> None:
    other = FlavorResource("default", "memory")

    assert quota.total([{CPU: 1}, {CPU: 2, other: 5}]) == {CPU: 3, other: 5}
