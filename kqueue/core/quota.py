"""The quota tree: ClusterQueues are leaves, Cohorts are inner nodes, and borrowing walks up the path.

All amounts are integers per (flavor, resource), cpu in milli, everything else in base units.  `UNLIMITED` is a value:
it stays the same when amounts are added to it or taken from it.

    subtree quota    the quota of a node and all nodes below it: its nominal quota plus the quota that children lend
    local quota      the part of it that a lending limit hides from the rest of the tree
    usage            of a ClusterQueue: all its usage; of a Cohort: the usage of its children beyond their local quota

Source: the compatible system's hierarchical cohorts (KEP-79, KEP-1224).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from kqueue.core.quantity import INT64_MAX

UNLIMITED = INT64_MAX
NOTHING = -INT64_MAX - 1


class FlavorResource(NamedTuple):
    """One column of quota: a resource in a flavor.  A tuple, because it is hashed very often."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource} in flavor {self.flavor}"


Usage = dict[FlavorResource, int]
"""Amounts by column."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a node in one column.  A limit of None: there is no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


NO_QUOTA = Quota(0)


_FAR = 1 << 61
"""Between -_FAR and _FAR, sums and differences of two amounts need no check: no amount is UNLIMITED or saturates."""


def plus(a: int, b: int) -> int:
    """Return a + b; UNLIMITED plus any amount is UNLIMITED, other sums saturate at 64 bits."""
    if -_FAR < a < _FAR and -_FAR < b < _FAR:
        return a + b
    if UNLIMITED in (a, b):
        return UNLIMITED
    return max(NOTHING, min(UNLIMITED, a + b))


def minus(a: int, b: int) -> int:
    """Return a - b; UNLIMITED - n = UNLIMITED, n - UNLIMITED = NOTHING, UNLIMITED - UNLIMITED = 0."""
    if -_FAR < a < _FAR and -_FAR < b < _FAR:
        return a - b
    if a == UNLIMITED:
        return 0 if b == UNLIMITED else UNLIMITED
    if b == UNLIMITED:
        return NOTHING
    return max(NOTHING, min(UNLIMITED, a - b))


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Values of one column at one node that depend only on quotas.  All copies of a tree share them."""

    up: Cell | None
    """The cell of the same column at the parent; None at the root."""
    nominal: int
    subtree: int
    local: int
    ceiling: int | None
    """The most that may be used beyond the local quota; None: no borrowing limit."""
    potential: int
    """The amount that the node could use if no other node used any."""
    is_open: bool
    """Whether no lending or borrowing limit applies at this node or above it, below the root."""


@dataclass(slots=True, eq=False)
class QuotaNode:
    """A ClusterQueue or a Cohort (which may share a name).  Mutable; changed only by this module's functions.

    A tree that was created or changed directly, in shape, quotas or usage, needs `rebuild` before it is used.
    """

    name: str
    is_cohort: bool = False
    parent: QuotaNode | None = None
    children: list[QuotaNode] = field(default_factory=list)
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    weight: int = 1_000_000_000
    """The weight of the fair share against siblings, in billionths."""
    subtree: Usage = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    height: int = 0
    """The longest path down to a leaf: 0 for a ClusterQueue or an empty Cohort."""
    cells: dict[FlavorResource, Cell] = field(default_factory=dict)
    """The columns that were used since the last rebuild."""
    lendable: dict[str, int] = field(default_factory=dict)
    """The most that children could get of a resource in all flavors; filled by `fair_share.lendable`."""
    changes: list[int] = field(default_factory=lambda: [0])
    """The number of changes of usage: one number, shared by all nodes of the tree."""

    def quota(self, column: FlavorResource) -> Quota:
        """Return the node's own quota; zero without limits if it lists no quota of the column."""
        return self.quotas.get(column, NO_QUOTA)

    @property
    def root(self) -> QuotaNode:
        """The topmost ancestor; the node itself if it has no parent."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def path_to_root(self) -> Iterator[QuotaNode]:
        """Yield the node, its parent, and so on."""
        node: QuotaNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[QuotaNode]:
        """Yield the node and all nodes below it, parents first."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            if node.children:
                todo.extend(reversed(node.children))


# --- values of quotas alone -------------------------------------------------------------------------------------------


def rebuild(root: QuotaNode) -> None:
    """Compute the derived values of every node from quotas, and every Cohort's `usage` from the usage of the
    ClusterQueues.

    Copies of the tree keep the former values.
    """
    for _ in rebuild_steps(root):
        pass


_STEP = 500
"""Nodes between two pieces of work on a tree."""


def rebuild_steps(root: QuotaNode) -> Iterator[None]:
    """Do as `rebuild`, with yields between pieces of the work; the tree must not be used before the end."""
    root.changes[0] += 1
    nodes = list(root.walk())
    for number, node in enumerate(reversed(nodes)):
        if number and number % _STEP == 0:
            yield
        node.changes = root.changes
        _derive(node)


def rebuild_above(changed: Iterable[QuotaNode]) -> list[QuotaNode]:
    """Compute the values that follow from changed nodes, and return the new roots of their trees.

    A node counts as changed if its quotas, children or parent differ from those of the last rebuild.  Only changed
    nodes and nodes above them are derived; the others lose their cells.  A new object takes the place of each root, so
    that no copy of a tree before the change counts as a copy of the changed one.
    """
    roots: list[QuotaNode] = []
    stale = _with_ancestors(changed)
    while stale:
        node = stale.pop()
        if node.parent is None:
            node = replace(node, changes=[0])
            for child in node.children:
                child.parent = node
            roots.append(node)
        if node.is_cohort and not node.children:
            node.usage = {}
        _derive(node)
    for root in roots:
        for node in root.walk():
            node.changes, node.cells, node.lendable = root.changes, {}, {}
    return roots


def _with_ancestors(nodes: Iterable[QuotaNode]) -> list[QuotaNode]:
    """Return nodes and all nodes above them, each once, parents before children."""
    depths: dict[int, int] = {}
    found: list[tuple[int, QuotaNode]] = []
    for node in nodes:
        path: list[QuotaNode] = []
        for above in node.path_to_root():
            if id(above) in depths:
                break
            path.append(above)
        top = path[-1].parent if path else None
        depth = depths[id(top)] + 1 if top is not None else 0
        for below, each in enumerate(reversed(path)):
            depths[id(each)] = depth + below
            found.append((depth + below, each))
    return [node for _, node in sorted(found, key=itemgetter(0))]


def _derive(node: QuotaNode) -> None:
    """Compute the derived values of a node whose children have theirs."""
    node.subtree = {column: quota.nominal for column, quota in node.quotas.items()}
    node.cells, node.lendable = {}, {}
    if not node.children:
        node.height = 0
        return
    node.height = 1 + max(child.height for child in node.children)
    node.usage = {}
    for child in node.children:
        limited = {column for column, quota in child.quotas.items() if quota.lending_limit is not None}
        for column, amount in child.subtree.items():
            lent = minus(amount, _local(child, column)) if column in limited else amount
            node.subtree[column] = plus(node.subtree.get(column, 0), lent)
        for column, amount in child.usage.items():
            taken = max(0, minus(amount, _local(child, column)) if column in limited else amount)
            node.usage[column] = plus(node.usage.get(column, 0), taken)


def _local(node: QuotaNode, column: FlavorResource) -> int:
    quota = node.quotas.get(column)
    if quota is None or quota.lending_limit is None:
        return 0
    return max(0, minus(node.subtree.get(column, 0), quota.lending_limit))


def _cell(node: QuotaNode, column: FlavorResource) -> Cell:
    """Return the node's cell of a column, which is computed at its first use."""
    known = node.cells.get(column)
    if known is not None:
        return known
    quota, subtree, local = node.quota(column), node.subtree.get(column, 0), _local(node, column)
    up, ceiling, potential, is_open = None, None, subtree, True
    if node.parent is not None:
        up = _cell(node.parent, column)
        potential = plus(local, up.potential)
        is_open = local == 0 and up.is_open
        if quota.borrowing_limit is not None:
            ceiling = plus(minus(subtree, local), quota.borrowing_limit)
            potential = min(potential, plus(subtree, quota.borrowing_limit))
            is_open = False
    cell = node.cells[column] = Cell(up, quota.nominal, subtree, local, ceiling, potential, is_open)
    return cell


def local_quota(node: QuotaNode, column: FlavorResource) -> int:
    """Return the part of the node's subtree quota that no other node can borrow."""
    return _cell(node, column).local


def borrowing_ceiling(node: QuotaNode, column: FlavorResource) -> int | None:
    """Return the most that the node may use beyond its local quota; None: no borrowing limit."""
    return _cell(node, column).ceiling


def is_open(node: QuotaNode, column: FlavorResource) -> bool:
    """Whether no limit between the node and its root applies, so that the node can use all free quota of the root."""
    return (node.cells.get(column) or _cell(node, column)).is_open


def potential_available(node: QuotaNode, column: FlavorResource) -> int:
    """Return the amount that the node could use if no other node used any."""
    return _cell(node, column).potential


# --- free amounts ----------------------------------------------------------------------------------------------------


def local_available(node: QuotaNode, column: FlavorResource) -> int:
    """Return the free amount of the local quota, never negative."""
    return max(0, minus(_cell(node, column).local, node.usage.get(column, 0)))


def available(node: QuotaNode, column: FlavorResource) -> int:
    """Return the amount that the node can still use, borrowing included.  Negative when the tree is over-admitted."""
    cell = node.cells.get(column) or _cell(node, column)
    limited: list[tuple[int, Cell]] | None = None if cell.is_open else []
    while node.parent is not None:
        if limited is not None and not cell.is_open and cell.up is not None:
            limited.append((node.usage.get(column, 0), cell))
            cell = cell.up
        node = node.parent
    free = minus(node.subtree.get(column, 0), node.usage.get(column, 0))
    while limited:
        used, cell = limited.pop()
        if cell.ceiling is not None:
            borrowable = minus(cell.ceiling, minus(used, cell.local)) if used > cell.local else cell.ceiling
            if borrowable < free:
                free = borrowable
        if used < cell.local:
            free = plus(minus(cell.local, used), free)
    return free


def borrowed(node: QuotaNode, column: FlavorResource) -> int:
    """Return the usage of a ClusterQueue beyond its nominal quota, never negative."""
    return max(0, minus(node.usage.get(column, 0), node.quota(column).nominal))


def has_room(node: QuotaNode, usage: Mapping[FlavorResource, int]) -> bool:
    """Whether the node can still use this much of every column.  A request of 0 always fits."""
    return not [column for column, amount in usage.items() if amount > 0 and amount > available(node, column)]


class BorrowReach(NamedTuple):
    """The level of the tree up to which an amount would be borrowed.

    `height`: that of the lowest Cohort that holds the amount; 0 without borrowing, the root's when no Cohort holds it.
    `may_reclaim`: other nodes have borrowed the missing quota from the node, or from a Cohort below the root.
    """

    height: int
    may_reclaim: bool


_OWN = BorrowReach(0, may_reclaim=True)
_ALONE = BorrowReach(0, may_reclaim=False)


def lowest_subtree(node: QuotaNode, column: FlavorResource, amount: int) -> BorrowReach:
    """Return the smallest part of the tree whose quota has room for `amount` more."""
    cell, used = node.cells.get(column) or _cell(node, column), node.usage.get(column, 0)
    above = node.parent
    if above is None or plus(used, amount) <= cell.nominal:
        return _ALONE if above is None else _OWN
    while above is not None:
        if used < cell.local:
            amount = minus(amount, minus(cell.local, used))
        node, cell, used, above = above, cell.up or cell, above.usage.get(column, 0), above.parent
        if plus(used, amount) <= cell.subtree:
            return BorrowReach(node.height, above is not None)
    return BorrowReach(node.height, False)


# --- charging --------------------------------------------------------------------------------------------------------


def add_usage(node: QuotaNode, column: FlavorResource, amount: int) -> None:
    """Charge `amount` to the node; the part beyond its local quota is charged to its ancestors.

    A negative amount, which a reservation above the quota can cause, changes only the node.
    """
    cell = node.cells.get(column) or _cell(node, column)
    node.changes[0] += 1
    while True:
        used = node.usage.get(column, 0)
        charged = used + amount
        is_plain = -_FAR < charged < _FAR and -_FAR < amount < _FAR
        node.usage[column] = charged if is_plain else plus(used, amount)
        above = node.parent
        if above is None:
            return
        if used < cell.local:
            amount = minus(amount, minus(cell.local, used))
        if amount <= 0:
            return
        node, cell = above, cell.up or cell


def remove_usage(node: QuotaNode, column: FlavorResource, amount: int) -> None:
    """Release `amount`; the part that was charged to ancestors is released there first."""
    cell = node.cells.get(column) or _cell(node, column)
    node.changes[0] += 1
    while True:
        used = node.usage.get(column, 0)
        rest = used - amount
        is_plain = -_FAR < rest < _FAR and -_FAR < amount < _FAR
        node.usage[column] = rest if is_plain else minus(used, amount)
        above = node.parent
        if above is None or used <= cell.local:
            return
        stored_above = minus(used, cell.local) if cell.local else used
        if stored_above < amount:
            amount = stored_above
        node, cell = above, cell.up or cell


def shift_usage(node: QuotaNode, column: FlavorResource, amount: int) -> None:
    """Change the usage of only this node by an amount, which may be negative; nodes above and below do not change.

    This reserves an amount at one level of the tree.  Undo it with the same amount and the other sign.
    """
    node.changes[0] += 1
    node.usage[column] = plus(node.usage.get(column, 0), amount)


def set_usage(node: QuotaNode, usage: Usage) -> None:
    """Set the usage of only this node."""
    node.changes[0] += 1
    node.usage = usage


def rising(usage: Mapping[FlavorResource, int], node: QuotaNode, ancestor: QuotaNode) -> Mapping[FlavorResource, int]:
    """Return what a charge of `usage` to the node would add to an ancestor, or to the node itself, without charging.

    The result has all columns of `usage`, with 0 where nothing would be added.
    """
    for column, amount in usage.items():
        if amount < 0 or not (node.cells.get(column) or _cell(node, column)).is_open:
            break
    else:
        return usage  # no limit on the path applies
    while node is not ancestor and node.parent is not None:
        passed: Usage = {}
        for column, amount in usage.items():
            local = (node.cells.get(column) or _cell(node, column)).local
            if local and (used := node.usage.get(column, 0)) < local:
                amount = minus(amount, minus(local, used))
            passed[column] = max(0, amount)
        usage, node = passed, node.parent
    return usage


def copy_tree(root: QuotaNode) -> dict[str, QuotaNode]:
    """Return the ClusterQueues, by name, of a new copy of the tree."""
    return TreeCopy(root).queues


def copy_steps(root: QuotaNode) -> Generator[None, None, TreeCopy]:
    """Return a copy of a tree, in steps: if the usage of the tree changes before the end, the copy needs a refresh."""
    copy = TreeCopy(root, whole=False)
    yield from copy.steps()
    return copy


class TreeCopy:
    """A copy of a tree whose usage can be changed freely and reset to the original's.

    All values derived from quotas alone are shared with the original.
    """

    def __init__(self, root: QuotaNode, *, whole: bool = True) -> None:
        """Copy the tree; `whole` False: the caller has to make all `steps` before the copy is used."""
        self._original = root
        self.queues: dict[str, QuotaNode] = {}
        """The ClusterQueues of the copy, by name."""
        self._changes = [0]
        self._pairs = [(root, _twin(root, None, self._changes))]
        self._seen = root.changes[0], 0
        for _ in self.steps() if whole else ():
            pass

    def steps(self) -> Iterator[None]:
        """Copy the nodes below the root, with yields between pieces of the work."""
        made = 0
        for node, twin in self._pairs:
            if not node.is_cohort:
                self.queues[node.name] = twin
            if node.children and twin.children is _NO_CHILDREN:  # members came to the original between two steps
                twin.children = []
            for child in node.children:
                made += 1
                if made % _STEP == 0:
                    yield
                below = _twin(child, twin, self._changes)
                twin.children.append(below)
                self._pairs.append((child, below))

    def refresh(self) -> None:
        """Reset the usage to the original's present usage. Free of cost if neither tree has changed."""
        if self._seen == (self._original.changes[0], self._changes[0]):
            return
        for node, twin in self._pairs:
            twin.usage = node.usage.copy()
            if twin.cells is not node.cells or twin.quotas is not node.quotas:
                twin.quotas, twin.subtree = node.quotas, node.subtree
                twin.height, twin.cells, twin.lendable = node.height, node.cells, node.lendable
        self._changes[0] += 1
        self._seen = self._original.changes[0], self._changes[0]


_NO_CHILDREN: list[QuotaNode] = []
"""The children of all copied leaves; nobody adds to it."""


def dissolve_steps(roots: Iterable[QuotaNode]) -> Generator[None, None, None]:
    """Take trees apart that nobody will use again, in steps, so that their memory is free at once.

    Parents and children refer to each other, and a collection of many of them takes hundreds of milliseconds.
    """
    made = 0
    for root in roots:
        for node in root.walk():
            node.parent = None
            made += 1
            if made % _STEP == 0:
                yield


def _twin(node: QuotaNode, parent: QuotaNode | None, changes: list[int]) -> QuotaNode:
    return QuotaNode(
        node.name,
        node.is_cohort,
        parent,
        [] if node.children else _NO_CHILDREN,
        node.quotas,
        node.weight,
        node.subtree,
        node.usage.copy(),
        node.height,
        node.cells,
        node.lendable,
        changes,
    )


def total(usages: Iterable[Mapping[FlavorResource, int]]) -> Usage:
    """Return the sum per column."""
    out: Usage = {}
    for usage in usages:
        for column, amount in usage.items():
            out[column] = plus(out.get(column, 0), amount)
    return out
