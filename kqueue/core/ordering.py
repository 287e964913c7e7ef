"""The order in which the entries of a cycle are processed.

    classical      less borrowing first, then higher priority, then older
    tournament     fair sharing: at every cohort the child with the lower share wins, from the queues up to the root

Both yield one entry at a time, so that the caller may charge it before the next entry is chosen.

Source: the compatible system's classical and fair-sharing iterators (KEP-1714).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from kqueue.core.fair_share import borrows, dominant_share
from kqueue.core.quota import FlavorResource, QuotaNode, Usage, rising, total
from kqueue.core.workload import Head


class OrderedEntry(Protocol):
    """A nominated workload, with the facts that order it."""

    @property
    def head(self) -> Head:
        """The head: priority, age, UID, and the ClusterQueue."""

    @property
    def usage(self) -> Mapping[FlavorResource, int]:
        """The quota that would be charged for the entry: none if it has a reservation already."""

    @property
    def level(self) -> int:
        """Levels of the cohort tree through which the entry borrows; 0: no borrowing."""

    @property
    def holds_reservation(self) -> bool:
        """Whether the workload has quota already, and is in its second pass."""

    @property
    def is_preemptor(self) -> bool:
        """Whether workloads were evicted for this entry."""


E = TypeVar("E", bound=OrderedEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRules:
    """The comparisons that decide the order."""

    preemptors_first: bool = False
    non_borrowing_first: bool = True
    """In a tournament, an entry that does not borrow the requested resources comes before an entry that does."""
    priority: bool = True
    """Higher priority comes first; otherwise only age decides among equal entries."""


DEFAULT_RULES = OrderRules()
_NOTHING_UNDER_WAY: Mapping[QuotaNode, Usage] = MappingProxyType({})


def classical(entries: Iterable[E], rules: OrderRules = DEFAULT_RULES) -> Iterator[E]:
    """Yield entries in order: reservations, then preemptors (by rule), less borrowing, higher priority (by rule),
    older, UID.
    """

    preemptors_first, by_priority = rules.preemptors_first, rules.priority

    def key(entry: E) -> tuple[bool, bool, int, int, datetime, str]:
        head = entry.head
        waits = preemptors_first and not entry.is_preemptor
        priority = -head.priority if by_priority else 0
        return not entry.holds_reservation, waits, entry.level, priority, head.timestamp, head.uid

    yield from sorted(entries, key=key)


def tournament(
    entries: Iterable[E],
    nodes: Mapping[str, QuotaNode],
    rules: OrderRules = DEFAULT_RULES,
    under_way: Mapping[QuotaNode, Usage] = _NOTHING_UNDER_WAY,
) -> Iterator[E]:
    """Yield, by fair sharing, the entry that wins in every cohort on its path to the root, until no entry is left.

    At a cohort the winners of its children are compared.  First come preemptors (by rule), then children
    that do not borrow what their workload requests (by rule), lower share of the child, higher priority (by rule),
    older, UID.  The usage of a child includes the workload.  Trees share no quota: between them, and between
    several entries of one queue, the order is by reservation, preemptor, priority and age.

    Args:
        entries: any number; entries of one queue come in the order above.
        nodes: the quota nodes of their ClusterQueues.  Between two entries usage may change on the path from the queue
            of the entry that was handed out last to its root, and nowhere else: only that path is looked at again.
        rules: which comparisons take part.
        under_way: further usage of nodes (negative: less) by decisions of earlier cycles; shares count it.
    """
    rankings = _Rankings[E](nodes, rules, under_way)
    rankings.seat(entries)
    while rankings.of_trees:
        entry = rankings.of_trees[0][2]
        yield entry
        rankings.replay(nodes[entry.head.queue])


_Seniority = tuple[int, datetime, str]
_Key = tuple[bool, bool, bool, bool, int, _Seniority]
"""No reservation, no preemptor, borrows, endless share, share, seniority: the smaller one wins."""


def _seniority(head: Head, rules: OrderRules) -> _Seniority:
    return (-head.priority if rules.priority else 0), head.timestamp, head.uid


def _waits(entry: OrderedEntry, rules: OrderRules) -> bool:
    return rules.preemptors_first and not entry.is_preemptor


class _Rankings(Generic[E]):
    """A heap at every node, with the first entries of its children or of its queue.

    The winner of a tree is the first entry of every heap on its path.  So its removal changes only the first place of
    each of these heaps.
    """

    def __init__(self, nodes: Mapping[str, QuotaNode], rules: OrderRules, under_way: Mapping[QuotaNode, Usage]) -> None:
        self._nodes = nodes
        self._rules = rules
        self._under_way = under_way
        self._at: dict[QuotaNode, list[tuple[_Key, int, E]]] = {}
        self.of_trees: list[tuple[_Key, int, E]] = []
        """The winners of all trees."""

    def seat(self, entries: Iterable[E]) -> None:
        """Start with these entries."""
        for position, entry in enumerate(entries):
            queue = self._nodes[entry.head.queue]
            for node in queue.path_to_root():
                if node in self._at:
                    break
                self._at[node] = []
            self._at[queue].append((self._alone(entry), position, entry))
        for node in sorted(self._at, key=lambda node: node.height):  # children before parents
            ranking = self._at[node]
            heapify(ranking)
            self._above(node).append(self._candidate(node, ranking))
        heapify(self.of_trees)

    def replay(self, queue: QuotaNode) -> None:
        """Remove the first entry, which belongs to this queue, and rank the rest with the present usage."""
        heappop(self._at[queue])
        for node in queue.path_to_root():
            ranking, above = self._at[node], self._above(node)
            if ranking:
                heapreplace(above, self._candidate(node, ranking))
            else:
                heappop(above)

    def _above(self, node: QuotaNode) -> list[tuple[_Key, int, E]]:
        return self.of_trees if node.parent is None else self._at[node.parent]

    def _candidate(self, node: QuotaNode, ranking: list[tuple[_Key, int, E]]) -> tuple[_Key, int, E]:
        """Return the first entry of the node, with the key by which entries of siblings are compared."""
        (_, waits, _, _, _, seniority), position, entry = ranking[0]
        if node.parent is None:
            return self._alone(entry), position, entry
        added = asked = rising(entry.usage, self._nodes[entry.head.queue], node)
        if node in self._under_way:
            added = total((asked, self._under_way[node]))
        share = dominant_share(node, added)
        is_borrower = self._rules.non_borrowing_first and share.is_borrowing and borrows(node, asked, added)
        return (False, waits, is_borrower, share.is_endless, share.scaled, seniority), position, entry

    def _alone(self, entry: E) -> _Key:
        """Return the key that compares an entry with entries of other trees, and with entries of its own queue."""
        rules = self._rules
        return not entry.holds_reservation, _waits(entry, rules), False, False, 0, _seniority(entry.head, rules)
