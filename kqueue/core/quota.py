"""The quota tree: ClusterQueues are leaves, Cohorts are inner nodes, and borrowing walks up the path.

All amounts are integers per (flavor, resource), cpu in milli, everything else in base units.  `UNLIMITED` is a value:
it swallows what is added to it and survives what is taken from it.

    subtree quota    what a node and everything below it brings along: own nominal plus what children lend
    local quota      the part of it that a lending limit hides from the rest of the tree
    usage            of a ClusterQueue: all it holds; of a Cohort: what its children took beyond their local quota

Source: the compatible system's hierarchical cohorts (KEP-79, KEP-1224).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kqueue.core.quantity import INT64_MAX

UNLIMITED = INT64_MAX
NOTHING = -INT64_MAX - 1


class FlavorResource(NamedTuple):
    """One column of quota: a resource in a flavor.  A tuple, because it is hashed more often than anything else."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource} in flavor {self.flavor}"


Usage = dict[FlavorResource, int]
"""Amounts per column."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a node may use of one column.  None as a limit: no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


NO_QUOTA = Quota(0)


def plus(a: int, b: int) -> int:
    """a + b, where UNLIMITED swallows and everything else saturates at 64 bits."""
    if UNLIMITED in (a, b):
        return UNLIMITED
    return max(NOTHING, min(UNLIMITED, a + b))


def minus(a: int, b: int) -> int:
    """a - b; UNLIMITED - n = UNLIMITED, n - UNLIMITED = NOTHING, UNLIMITED - UNLIMITED = 0."""
    if a == UNLIMITED:
        return 0 if b == UNLIMITED else UNLIMITED
    if b == UNLIMITED:
        return NOTHING
    return max(NOTHING, min(UNLIMITED, a - b))


@dataclass(slots=True, eq=False)
class QuotaNode:
    """A ClusterQueue or a Cohort (which may share a name).  Mutable; changed only by this module's functions."""

    name: str
    is_cohort: bool = False
    parent: QuotaNode | None = None
    children: list[QuotaNode] = field(default_factory=list)
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    weight: int = 1_000_000_000
    """Of the fair share against its siblings, in billionths."""
    subtree: Usage = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)

    def quota(self, column: FlavorResource) -> Quota:
        """The node's own quota; zero without limits where it mentions none."""
        return self.quotas.get(column, NO_QUOTA)

    @property
    def root(self) -> QuotaNode:
        """The topmost ancestor; the node itself when it stands alone."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def path_to_root(self) -> Iterator[QuotaNode]:
        """The node, its parent, and so on."""
        node: QuotaNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[QuotaNode]:
        """The node and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def rebuild(root: QuotaNode) -> None:
    """Compute `subtree` of every node, and every Cohort's `usage`, from quotas and the ClusterQueues' usage."""
    for child in root.children:
        rebuild(child)
    root.subtree = {column: quota.nominal for column, quota in root.quotas.items()}
    if not root.children:
        return
    root.usage = {}
    for child in root.children:
        for column, amount in child.subtree.items():
            lent = minus(amount, local_quota(child, column))
            root.subtree[column] = plus(root.subtree.get(column, 0), lent)
        for column, amount in child.usage.items():
            taken = max(0, minus(amount, local_quota(child, column)))
            root.usage[column] = plus(root.usage.get(column, 0), taken)


def local_quota(node: QuotaNode, column: FlavorResource) -> int:
    """The part of the node's subtree quota that nobody else can borrow."""
    lending_limit = node.quota(column).lending_limit
    if lending_limit is None:
        return 0
    return max(0, minus(node.subtree.get(column, 0), lending_limit))


def local_available(node: QuotaNode, column: FlavorResource) -> int:
    """What is left of the local quota, never negative."""
    return max(0, minus(local_quota(node, column), node.usage.get(column, 0)))


def available(node: QuotaNode, column: FlavorResource) -> int:
    """What the node can still take, borrowing included.  Negative when the tree is over-admitted."""
    used = node.usage.get(column, 0)
    subtree = node.subtree.get(column, 0)
    if node.parent is None:
        return minus(subtree, used)
    from_parent = available(node.parent, column)
    limit = node.quota(column).borrowing_limit
    if limit is not None:
        local = local_quota(node, column)
        lent_and_borrowable = plus(minus(subtree, local), limit)
        from_parent = min(from_parent, minus(lent_and_borrowable, max(0, minus(used, local))))
    return plus(local_available(node, column), from_parent)


def potential_available(node: QuotaNode, column: FlavorResource) -> int:
    """What the node could take if nobody used anything."""
    subtree = node.subtree.get(column, 0)
    if node.parent is None:
        return subtree
    most = plus(local_quota(node, column), potential_available(node.parent, column))
    limit = node.quota(column).borrowing_limit
    return most if limit is None else min(most, plus(subtree, limit))


def add_usage(node: QuotaNode, column: FlavorResource, amount: int) -> None:
    """Charge `amount` (>= 0) to the node; what its local quota cannot hold goes up the tree."""
    room = local_available(node, column)
    node.usage[column] = plus(node.usage.get(column, 0), amount)
    if node.parent is not None and amount > room:
        add_usage(node.parent, column, minus(amount, room))


def remove_usage(node: QuotaNode, column: FlavorResource, amount: int) -> None:
    """Give `amount` back; what had gone up the tree is given back there first."""
    stored_above = minus(node.usage.get(column, 0), local_quota(node, column))
    node.usage[column] = minus(node.usage.get(column, 0), amount)
    if node.parent is not None and stored_above > 0:
        remove_usage(node.parent, column, min(amount, stored_above))


def borrowed(node: QuotaNode, column: FlavorResource) -> int:
    """What a ClusterQueue uses beyond its nominal quota, never negative."""
    return max(0, minus(node.usage.get(column, 0), node.quota(column).nominal))


def height(node: QuotaNode) -> int:
    """Longest way down to a leaf: 0 for a ClusterQueue or an empty Cohort."""
    return 1 + max(height(child) for child in node.children) if node.children else 0


def borrowing_level(node: QuotaNode, column: FlavorResource, amount: int) -> int:
    """How far up the tree `amount` more would reach: 0 without borrowing, else the height of the lowest Cohort
    whose subtree quota holds it, else the root's height.
    """
    if node.parent is None or plus(node.usage.get(column, 0), amount) <= node.quota(column).nominal:
        return 0
    remaining = minus(amount, local_available(node, column))
    ancestor = node.parent
    while plus(ancestor.usage.get(column, 0), remaining) > ancestor.subtree.get(column, 0):
        if ancestor.parent is None:
            break
        remaining = minus(remaining, local_available(ancestor, column))
        ancestor = ancestor.parent
    return height(ancestor)


def copy_tree(root: QuotaNode) -> dict[str, QuotaNode]:
    """A tree of the same shape whose usage can be changed freely: its ClusterQueues by name.

    Quotas and subtree rows are shared with the original.
    """
    copies: dict[str, QuotaNode] = {}

    def copy(node: QuotaNode, parent: QuotaNode | None) -> QuotaNode:
        twin = QuotaNode(
            name=node.name,
            is_cohort=node.is_cohort,
            parent=parent,
            quotas=node.quotas,
            weight=node.weight,
            subtree=node.subtree,
            usage=dict(node.usage),
        )
        if not node.is_cohort:
            copies[node.name] = twin
        twin.children = [copy(child, twin) for child in node.children]
        return twin

    copy(root, None)
    return copies


def total(usages: Iterable[Mapping[FlavorResource, int]]) -> Usage:
    """The sum per column."""
    out: Usage = {}
    for usage in usages:
        for column, amount in usage.items():
            out[column] = plus(out.get(column, 0), amount)
    return out
