"""The use of quota over time, between two bounds that follow from the recorded states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kqueue.core.quota import UNLIMITED, FlavorResource, Quota, QuotaNode, Usage
from kqueue.operations.report.figures import ALL_QUEUES, UseFigures, UseSlot

MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000
_FIRST_SLOT, _MOST_SLOTS = 60 * _SECOND, 120


@dataclass(slots=True)
class _Sum:
    """Amounts times microseconds."""

    time: int = 0
    nominal: int = 0
    least: int = 0
    most: int = 0

    def add(self, time: int, nominal: int, least: int, most: int) -> None:
        self.time += time
        self.nominal += nominal * time
        self.least += least * time
        self.most += most * time

    def figures(self) -> UseFigures:
        time = max(1, self.time)
        return UseFigures(
            seconds=self.time // _SECOND,
            nominal=self.nominal // time,
            least=self.least // time,
            most=self.most // time,
            least_percent=100 * self.least // self.nominal if self.nominal else None,
            most_percent=100 * self.most // self.nominal if self.nominal else None,
        )


class Slots:
    """Amounts in slots of equal length; the slots become longer, so that there are never more than a fixed number."""

    def __init__(self, most: int = _MOST_SLOTS) -> None:
        self._most, self.length = most, _FIRST_SLOT
        self._of: dict[FlavorResource, list[_Sum]] = {}

    def add(self, column: FlavorResource, begin: int, end: int, amounts: tuple[int, int, int]) -> None:
        """Add nominal, least and most amount from `begin` to `end`, in microseconds from the begin of the report."""
        while end > self._most * self.length:
            self._fold()
        slots = self._of.setdefault(column, [])
        while begin < end:
            number = begin // self.length
            until = min(end, (number + 1) * self.length)
            slots.extend(_Sum() for _ in range(number + 1 - len(slots)))
            slots[number].add(until - begin, *amounts)
            begin = until

    def _fold(self) -> None:
        self.length *= 2
        for column, slots in self._of.items():
            folded = [_Sum() for _ in range((len(slots) + 1) // 2)]
            for number, one in enumerate(slots):
                into = folded[number // 2]
                into.time += one.time
                into.nominal += one.nominal
                into.least += one.least
                into.most += one.most
            self._of[column] = folded

    def found(self) -> dict[FlavorResource, list[UseSlot]]:
        """Return the slots by column."""
        return {
            column: [UseSlot(one.least, one.most, one.nominal) for one in slots]
            for column, slots in sorted(self._of.items())
        }


@dataclass(slots=True)
class _Node:
    usage: Usage
    quotas: Mapping[FlavorResource, Quota]
    since: datetime


@dataclass(slots=True)
class _QuotaTree:
    last: datetime
    """The last cycle with the tree."""
    nodes: dict[tuple[bool, str], _Node] = field(default_factory=dict)


class UseMeter:
    """Follows the quota trees of cycles in their order.

    After a cycle a ClusterQueue uses what it used in its snapshot, and what was admitted in it.  Until the next cycle
    of its tree workloads only end, so the use is between that and the usage of the next snapshot.
    """

    def __init__(self, since: datetime | None, until: datetime | None) -> None:
        self.begin, self._until = since, until
        """`begin`: not before the first cycle; None until it is known."""
        self._trees: dict[str, _QuotaTree] = {}
        self._sums: dict[tuple[bool, str, FlavorResource], _Sum] = {}
        self.slots = Slots()

    def take(self, at: datetime, nodes: Mapping[str, QuotaNode]) -> None:
        """Take the usage of a snapshot."""
        if not self._trees:
            self.begin = max(self.begin or at, at)
        for root in {id(node.root): node.root for node in nodes.values()}.values():
            self._take_tree(at, root)

    def _take_tree(self, at: datetime, root: QuotaNode) -> None:
        tree = self._trees.setdefault(_key(root), _QuotaTree(at))
        seen = set[tuple[bool, str]]()
        for node in root.walk():
            name = node.is_cohort, node.name
            seen.add(name)
            usage = node.usage if not node.is_cohort else {}
            known = tree.nodes.get(name)
            if known is not None:
                is_same = known.quotas is node.quotas or known.quotas == node.quotas
                if is_same and known.usage == usage:
                    continue
                self._add(name, known, known.since, tree.last, known.usage)
                self._add(name, known, tree.last, at, usage)
            tree.nodes[name] = _Node(dict(usage), node.quotas, at)
        for name in tree.nodes.keys() - seen:
            gone = tree.nodes.pop(name)
            self._add(name, gone, gone.since, tree.last, gone.usage)
        tree.last = at

    def admitted(self, at: datetime, root: QuotaNode, queue: str, usage: Mapping[FlavorResource, int]) -> None:
        """Add what was admitted in the cycle that was taken last."""
        known = self._trees[_key(root)].nodes[False, queue]
        self._add((False, queue), known, known.since, at, known.usage)
        known.since = at
        for column, amount in usage.items():
            known.usage[column] = known.usage.get(column, 0) + amount

    def _add(self, name: tuple[bool, str], node: _Node, begin: datetime, end: datetime, other: Usage) -> None:
        """Add the time in which the usage of a node was between its known one and the other one."""
        begin = max(begin, self.begin or begin)
        end = min(end, self._until or end)
        if begin >= end:
            return
        time, from_begin = (end - begin) // MICROSECOND, (begin - (self.begin or begin)) // MICROSECOND
        is_cohort, queue = name
        for column in {*node.quotas, *node.usage, *other}:
            quota = node.quotas.get(column)
            nominal = quota.nominal if quota is not None and quota.nominal < UNLIMITED else 0
            here, there = node.usage.get(column, 0), other.get(column, 0)
            if not (nominal or here or there):
                continue
            amounts = nominal, min(here, there), max(here, there)
            self._sums.setdefault((is_cohort, queue, column), _Sum()).add(time, *amounts)
            self.slots.add(column, from_begin, from_begin + time, amounts)

    def finish(self) -> None:
        """Count the time up to the last cycle of each tree; what followed is not in the record."""
        for tree in self._trees.values():
            for name, node in tree.nodes.items():
                self._add(name, node, node.since, tree.last, node.usage)
                node.since = tree.last

    def figures(self) -> Iterator[tuple[tuple[str, FlavorResource], UseFigures]]:
        """Yield the use of each column in all ClusterQueues, then that of each ClusterQueue and column.

        The former has the sums of the averages, each over the time in which the record knows the queue or cohort.
        """
        by_column: dict[FlavorResource, list[_Sum]] = {}
        for (_, _, column), one in self._sums.items():
            by_column.setdefault(column, []).append(one)
        for column, some in sorted(by_column.items()):
            yield (ALL_QUEUES, column), _together(some)
        for (is_cohort, queue, column), one in sorted(self._sums.items()):
            if not is_cohort:
                yield (queue, column), one.figures()


def _together(some: Sequence[_Sum]) -> UseFigures:
    whole = _Sum()
    for one in some:
        whole.nominal += one.nominal
        whole.least += one.least
        whole.most += one.most
    each = [one.figures() for one in some]
    return replace(
        whole.figures(),
        seconds=max(one.seconds for one in each),
        nominal=sum(one.nominal for one in each),
        least=sum(one.least for one in each),
        most=sum(one.most for one in each),
    )


def _key(root: QuotaNode) -> str:
    return f"{'cohort' if root.is_cohort else 'queue'}/{root.name}"
