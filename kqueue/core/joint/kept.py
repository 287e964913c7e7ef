"""The tables that a process keeps from round to round.

They save work, and never change a plan: whatever is kept is what would be computed anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.demand import Demands
from kqueue.core.joint.class_book import ClassBook
from kqueue.core.joint.classes import GangShape
from kqueue.core.joint.ports import most_used
from kqueue.core.joint.reach import Reach, Row
from kqueue.core.joint.units import Unit
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import audit_counts
from kqueue.core.topology.tree import Ints

_MOST_ROWS, _MOST_SUMS = 4096, 65_536


@dataclass(slots=True)
class KeptRows:
    """The rows of one flavor, by form of gangs, and the sums of ports."""

    rows: dict[Hashable, Row] = field(default_factory=dict)
    sums: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def reach(self, form: GangShape, gangs: Ints, free: Ints, most: int) -> Reach:
        """Return the arcs of gangs to domains of their level, where the tightest domains are the cheapest."""
        key = form.key()
        row = self.rows.get(key)
        if row is None or not row.counts_for(gangs, free, form.units, most):
            if len(self.rows) >= _MOST_ROWS:
                self.rows.clear()
            row = self.rows[key] = Row.of(gangs, free, form.units, most)
        return row.reach

    def most_used(self, free: int, sizes: tuple[int, ...]) -> int:
        """Return the most units that whole gangs of these sizes use of so many free units."""
        known = self.sums.get((free, sizes))
        if known is None:
            if len(self.sums) >= _MOST_SUMS:
                self.sums.clear()
            known = self.sums[free, sizes] = most_used(free, sizes)
        return known


@dataclass(slots=True)
class Kept:
    """The tables of all flavors."""

    demands: Demands = field(default_factory=Demands)
    books: dict[str, ClassBook] = field(default_factory=dict)
    rows: dict[str, KeptRows] = field(default_factory=dict)

    def book(self, flavor: str, levels: tuple[str, ...], unit: Unit) -> ClassBook:
        """Return the kinds of the workloads of a flavor; they begin anew when levels or unit have changed."""
        book = self.books.get(flavor)
        if book is None or not book.counts_for(levels, unit):
            book = self.books[flavor] = ClassBook(flavor, levels, unit)
            self.rows[flavor] = KeptRows()
        return book

    def rows_of(self, flavor: str) -> KeptRows:
        """Return the rows of a flavor."""
        return self.rows.setdefault(flavor, KeptRows())

    def audit(self, capacities: Mapping[str, Capacity], turn: int) -> list[str]:
        """Compute one shape and one row of each flavor anew, by turns; return what differs, which is forgotten."""
        found: list[str] = []
        for flavor, capacity in sorted(capacities.items()):
            shape = audit_counts(capacity, turn)
            if shape is not None:
                found.append(f"flavor {flavor}: pods per domain that request {dict(shape.requests)}")
            rows = self.rows_of(flavor).rows
            if rows and not list(rows.values())[turn % len(rows)].is_sound():
                found.append(f"flavor {flavor}: domains with arcs")
                rows.clear()
        return found

    def forget_others(self, flavors: Sequence[str]) -> None:
        """Forget all flavors but these."""
        for flavor in [name for name in {**self.books, **self.rows} if name not in flavors]:
            self.books.pop(flavor, None)
            self.rows.pop(flavor, None)
