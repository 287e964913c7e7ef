"""The free capacity of each leaf of a topology, which is changed in place and can be rolled back.

Free amounts are one C-contiguous `int64 [resources, leaves]` table.  Every change is written into a log of touched
leaves, so that cached counts per request shape (`counting.py`) are updated for these leaves only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from kqueue.core.quantity import clamp
from kqueue.core.topology.node import PODS
from kqueue.core.topology.result import DomainUsage, Path
from kqueue.core.topology.tree import Edit, Ints, Tree

_SHORTEST_LOG = 4096


class Capacity:
    """The free capacity of the leaves of one tree. Mutable; an amount below zero counts as zero.

    The companion `empty()` is the same capacity without the usage of workloads placed by topology: it answers whether a
    request could fit if all of them ended. `charge` and `release` do not change it.

    `counted` belongs to `counting.py`: pods per domain for the request shapes used recently.
    """

    __slots__ = (
        "_empty",
        "_free",
        "_log",
        "_log_limit",
        "_log_start",
        "_origin",
        "_origin_position",
        "_rows",
        "_shared",
        "_trials",
        "_undo",
        "counted",
        "tree",
    )

    def __init__(self, tree: Tree, resources: Sequence[str], free: Ints, *, idle: Ints | None = None) -> None:
        """Create a capacity that owns `free` and `idle` [resources, leaves].

        `idle` are the free amounts without workloads placed by topology; None: there are no such workloads.
        """
        self.tree = tree
        self._rows = {resource: row for row, resource in enumerate(resources)}
        self._free = np.ascontiguousarray(free, dtype=np.int64).reshape(len(self._rows), len(tree))
        self._shared = False
        self._log: list[int] = []
        self._log_limit = max(_SHORTEST_LOG, 2 * len(tree))
        self._log_start = 0
        self._trials = 0
        self._undo: list[tuple[int, list[int]] | tuple[Ints, Ints]] = []
        self._origin: Capacity | None = None
        self._origin_position = 0
        self.counted: dict[object, object] = {}
        self._empty: Capacity | None = Capacity(tree, resources, idle) if idle is not None else None

    @classmethod
    def of(
        cls,
        tree: Tree,
        *,
        foreign: Mapping[str, Mapping[str, int]] | None = None,
        usage: Iterable[DomainUsage] = (),
    ) -> Capacity:
        """Return the capacity computed from the tree's nodes.

        Args:
            tree: its nodes' allocatable amounts are summed per leaf.
            foreign: per node name, the usage of pods that are not placed by topology (`pods` included).
            usage: the usage of workloads placed by topology; domains that the tree does not have are ignored.
        """
        foreign = foreign or {}
        columns: list[dict[str, int]] = []
        for leaf in tree.leaves:
            column: dict[str, int] = {}
            for node in leaf.nodes:
                for resource, amount in node.allocatable.items():
                    column[resource] = column.get(resource, 0) + amount
                for resource, amount in foreign.get(node.name, {}).items():
                    column[resource] = column.get(resource, 0) - amount
            columns.append(column)
        capacity = cls.of_columns(tree, columns, idle=columns)
        capacity.charge(usage)
        return capacity

    @classmethod
    def of_columns(
        cls, tree: Tree, free: Sequence[Mapping[str, int]], *, idle: Sequence[Mapping[str, int]]
    ) -> Capacity:
        """Return the capacity with these free amounts on each leaf; `idle` are the amounts without workloads placed by
        topology.

        Resources that a column does not contain are 0 there.  Amounts are cut to 64 bits.
        """
        resources = sorted({PODS}.union(*free, *idle))
        return cls(tree, resources, _table(resources, free), idle=_table(resources, idle))

    def edited(
        self, tree: Tree, edit: Edit, free: Sequence[Mapping[str, int]], *, idle: Sequence[Mapping[str, int]]
    ) -> Capacity:
        """Return the capacity of the edited tree, with these columns for its new leaves, in their order; this capacity
        is not changed.
        """
        for resource in sorted(set().union(*free)):
            self._row_for_writing(resource)
        twin = Capacity(tree, self.resources, edit.apply(self._free, _table(self.resources, free)))
        twin._empty = self._empty.edited(tree, edit, idle, idle=idle) if self._empty is not None else None
        return twin

    def tables(self) -> tuple[tuple[str, ...], Ints]:
        """Return the resources and a copy of the free amounts [resources, leaves]."""
        return self.resources, self._free.copy()

    @classmethod
    def of_tables(
        cls, tree: Tree, free: tuple[Sequence[str], Ints], idle: tuple[Sequence[str], Ints] | None
    ) -> Capacity:
        """Return the capacity with the `tables` of another one, and with those of its companion (None: it has none)."""
        twin = cls(tree, *free)
        twin._empty = cls(tree, *idle) if idle is not None else None
        return twin

    def empty(self) -> Capacity:
        """Return the capacity without workloads placed by topology; this object itself if it was made without such
        usage.
        """
        return self._empty if self._empty is not None else self

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources of the rows."""
        return tuple(self._rows)

    @property
    def generation(self) -> int:
        """A number that grows with every change."""
        return self._log_start + len(self._log)

    def row(self, resource: str) -> Ints | None:
        """Return the free amount of a resource per leaf; None: no leaf ever had any. Callers must not change
        the array.
        """
        row = self._rows.get(resource)
        return None if row is None else self._free[row]

    def free(self, leaf: int) -> dict[str, int]:
        """Return the free amounts of one leaf."""
        return dict(zip(self._rows, self._free[:, leaf].tolist(), strict=True))

    def times(self, leaf: int, amounts: Iterable[tuple[str, int]], most: int) -> int:
        """Return how many times a leaf has room for all of these amounts (> 0), at most `most`."""
        rows, table, fewest = self._rows, self._free, most
        for resource, amount in amounts:
            row = rows.get(resource)
            held = table.item(row, leaf) // amount if row is not None else 0
            if held < fewest:
                fewest = held
        return max(0, fewest)

    def charge(self, usage: Iterable[DomainUsage]) -> None:
        """Subtract the requests of these pods, `pods` included.  Domains that the tree does not have are ignored."""
        self._shift(usage, -1)

    def release(self, usage: Iterable[DomainUsage]) -> None:
        """Add back the amounts that `charge` subtracted."""
        self._shift(usage, 1)

    def _shift(self, usage: Iterable[DomainUsage], sign: int) -> None:
        leaf_of, add = self.tree.leaf_of, self._add
        for item in usage:
            leaf = leaf_of(item.values)
            if leaf is not None:
                count = sign * item.count
                add(leaf, item.requests, count, count)

    def add(self, leaf: int, amounts: Mapping[str, int]) -> None:
        """Add amounts (negative: subtract) to the free capacity of a leaf."""
        self._add(leaf, amounts, 1, 0)

    def _add(self, leaf: int, amounts: Mapping[str, int], factor: int, pods: int) -> None:
        """Add factor x amounts, and this number to `pods`."""
        if PODS not in self._rows:
            self._row_for_writing(PODS)
        self._touch(leaf, amounts)
        rows, table = self._rows, self._free
        for resource, amount in amounts.items():
            row = rows[resource]
            _set(table, row, leaf, table.item(row, leaf) + amount * factor)
        if pods:
            row = rows[PODS]
            _set(table, row, leaf, table.item(row, leaf) + pods)

    def add_many(self, leaves: Ints, amounts: Mapping[str, Ints]) -> None:
        """Apply `add` to many leaves at once.

        Args:
            leaves: no leaf occurs twice.
            amounts: per resource, one amount for each leaf, in their order; negative: subtract.
        """
        for resource in amounts:
            if resource not in self._rows:
                self._row_for_writing(resource)
        rows = [self._rows[resource] for resource in amounts]
        if any(map(_is_far, (*amounts.values(), *(self._free[row, leaves] for row in rows)))):
            for i, leaf in enumerate(leaves.tolist()):  # sums are cut to 64 bits one by one
                self.add(leaf, {resource: more.item(i) for resource, more in amounts.items()})
            return
        if self._shared:
            self._own()
        if self._trials:
            self._undo.append((leaves, self._free[:, leaves]))
        self._note(leaves.tolist())
        for row, more in zip(rows, amounts.values(), strict=True):
            self._free[row, leaves] += more

    def put(self, leaf: int, amounts: Mapping[str, int]) -> None:
        """Set the free amounts of these resources on a leaf; other resources stay."""
        self._touch(leaf, amounts)
        rows, table = self._rows, self._free
        for resource, amount in amounts.items():
            _set(table, rows[resource], leaf, amount)

    def replace(self, leaf: int, amounts: Mapping[str, int]) -> None:
        """Set the free amounts of a leaf; resources that are not mentioned become 0."""
        self.put(leaf, {**dict.fromkeys(self._rows, 0), **amounts})

    def _row_for_writing(self, resource: str) -> int:
        row = self._rows.get(resource)
        if row is None:
            row = len(self._rows)
            self._rows = {**self._rows, resource: row}  # forks may use the old mapping
            self._free = np.vstack([self._free, np.zeros((1, len(self.tree)), dtype=np.int64)])
            self._shared = False
        return row

    def _own(self) -> None:
        """Copy the table before a write, if forks or the origin share it."""
        if self._shared:
            self._free = self._free.copy()
            self._shared = False

    def _touch(self, leaf: int, resources: Iterable[str]) -> None:
        """Prepare a write to a leaf: create missing rows, log the leaf, and save its amounts in a trial."""
        for resource in resources:
            if resource not in self._rows:
                self._row_for_writing(resource)
        if self._shared:
            self._own()
        if self._trials:
            self._undo.append((leaf, self._free[:, leaf].tolist()))
        elif len(self._log) > self._log_limit:
            self._forget_half()
        self._log.append(leaf)

    def _note(self, leaves: list[int]) -> None:
        """Prepare writes to many leaves, as `_touch` does for one."""
        if not self._trials and len(self._log) > self._log_limit:
            self._forget_half()
        self._log.extend(leaves)

    def _forget_half(self) -> None:
        dropped = len(self._log) // 2
        self._log_start += dropped
        del self._log[:dropped]

    def trial(self) -> AbstractContextManager[None]:
        """Roll back all changes of the block at its end. Trials may be nested."""
        return _Trial(self._begin, self._roll_back)

    def _begin(self) -> int:
        """Begin to log changes; return the state that `_roll_back` needs."""
        self._trials += 1
        return len(self._undo)

    def _roll_back(self, mark: int) -> None:
        if len(self._undo) > mark:
            self._own()  # a fork may have been made inside the trial
        while len(self._undo) > mark:
            leaf, before = self._undo.pop()
            if not isinstance(leaf, int):
                self._free[: len(before), leaf] = before
                self._log.extend(leaf.tolist())
                continue
            column = self._free[:, leaf]
            for row, amount in enumerate(before):
                column[row] = amount
            self._log.append(leaf)
        self._trials -= 1

    def fork(self) -> Capacity:
        """Return an independent capacity with the same state.  Cheap until either of them changes."""
        fork = object.__new__(Capacity)
        fork.tree = self.tree
        fork._rows = self._rows
        fork._free = self._free
        self._shared = fork._shared = True
        fork._log, fork._log_limit, fork._log_start = [], self._log_limit, 0
        fork._trials, fork._undo = 0, []
        fork._origin, fork._origin_position = self, self.generation
        fork.counted = {}
        fork._empty = self._empty.fork() if self._empty is not None else None
        return fork

    @property
    def origin(self) -> Capacity | None:
        """The capacity from which this one was forked; None: it is no fork."""
        return self._origin

    def touched_since(self, generation: int) -> set[int] | None:
        """Return leaves that may have changed since `generation`; None: the log does not reach back that far."""
        first = generation - self._log_start
        return None if first < 0 else set(self._log[first:])

    def differs_from_origin(self) -> set[int] | None:
        """Return leaves where this fork and the present state of its origin may differ; None: the difference is no
        longer known.
        """
        assert self._origin is not None
        theirs = self._origin.touched_since(self._origin_position)
        mine = self.touched_since(0)
        return None if theirs is None or mine is None else theirs | mine

    def fits(self, usage: Iterable[DomainUsage]) -> bool:
        """Whether there is room for all of this usage at once."""
        return self.overdrawn_by(usage) is None

    def overdrawn_by(self, usage: Iterable[DomainUsage]) -> Path | None:
        """Return the first domain without room for all of this usage, `pods` included; None: everything fits.

        Usage of several pod sets on one domain is summed.  A domain that the tree does not have has no room.
        """
        wanted: dict[Path, dict[str, int]] = {}
        for item in usage:
            amounts, count = wanted.setdefault(item.values, {}), item.count
            for resource, amount in item.requests.items():
                amounts[resource] = amounts.get(resource, 0) + amount * count
            amounts[PODS] = amounts.get(PODS, 0) + count
        for values, amounts in wanted.items():
            leaf = self.tree.leaf_of(values)
            if leaf is None or self._lacks(leaf, amounts):
                return values
        return None

    def _lacks(self, leaf: int, amounts: Mapping[str, int]) -> bool:
        rows, table = self._rows, self._free
        for resource, amount in amounts.items():
            row = rows.get(resource)
            if amount > (max(0, table.item(row, leaf)) if row is not None else 0):
                return True
        return False


class _Trial(AbstractContextManager[None]):
    """One use of `Capacity.trial`, without the cost of a generator: a search for victims makes thousands of trials."""

    __slots__ = ("_begin", "_mark", "_roll_back")

    def __init__(self, begin: Callable[[], int], roll_back: Callable[[int], None]) -> None:
        self._begin, self._roll_back = begin, roll_back

    def __enter__(self) -> None:
        self._mark = self._begin()

    def __exit__(self, *_: object) -> None:
        self._roll_back(self._mark)


_FAR = 1 << 61
"""Sums of two amounts between -_FAR and _FAR cannot overflow."""


def _is_far(amounts: Ints) -> bool:
    return bool(len(amounts)) and not (amounts.min() > -_FAR and amounts.max() < _FAR)


def _set(table: Ints, row: int, leaf: int, amount: int) -> None:
    """Write an amount, cut to 64 bits."""
    try:
        table[row, leaf] = amount
    except OverflowError:
        table[row, leaf] = clamp(amount)


def _table(resources: Sequence[str], columns: Sequence[Mapping[str, int]]) -> Ints:
    table = np.empty((len(resources), len(columns)), dtype=np.int64)
    for row, resource in enumerate(resources):
        amounts = [column.get(resource, 0) for column in columns]
        try:
            table[row] = amounts
        except OverflowError:
            table[row] = [clamp(amount) for amount in amounts]
    return table
