"""Labels of many nodes, for requirements that are evaluated on all nodes at once.

This is the compiled form of `kqueue.kube.requirement.holds`: a requirement is evaluated once per value of its label,
not once per node.  So thousands of requirements on many thousand nodes cost a few array operations each, and labels
that no node has cost nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kqueue.core.topology.node import NodeFacts, NodeTerm
from kqueue.kube.requirement import INTEGER, Requirement

_NAME_FIELD = "metadata.name"
_SPARE_VALUES = 1024
"""The number of unused label values that is tolerated before all nodes are read again."""

Mask = NDArray[np.bool_]
_Codes = NDArray[np.int64]
_Edit = Callable[[_Codes, _Codes], _Codes]


class _Values:
    """The values of one label, numbered from 1; 0 means that a node does not have the label.  Numbers are never
    reused.
    """

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._ordered: tuple[int, list[int], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, values: Iterable[str | None], count: int) -> _Codes:
        """Return the number of each value; a new value gets the next number."""
        known = self._codes
        numbers = (0 if value is None else known.setdefault(value, len(known) + 1) for value in values)
        return np.fromiter(numbers, dtype=np.int64, count=count)

    def holds(self, requirement: Requirement) -> Mask:
        """Return, per number, whether the requirement holds."""
        holds = np.zeros(len(self._codes) + 1, dtype=np.bool_)
        match requirement.operator:
            case "In" | "NotIn":
                holds[[self._codes[value] for value in requirement.values if value in self._codes]] = True
            case "Exists" | "DoesNotExist":
                holds[1:] = True
            case "Gt" | "Lt":
                self._compare(holds, requirement)
        return ~holds if requirement.operator in ("NotIn", "DoesNotExist") else holds

    def _compare(self, holds: Mask, requirement: Requirement) -> None:
        if len(requirement.values) != 1 or not INTEGER.fullmatch(requirement.values[0]):
            return
        bound = int(requirement.values[0])
        _, integers, codes = self._in_order()
        if requirement.operator == "Gt":
            holds[codes[bisect_right(integers, bound) :]] = True
        else:
            holds[codes[: bisect_left(integers, bound)]] = True

    def _in_order(self) -> tuple[int, list[int], NDArray[np.int64]]:
        """Return the number of known values, the integer values in order, and their numbers."""
        if self._ordered is None or self._ordered[0] != len(self._codes):
            pairs = sorted((int(value), code) for value, code in self._codes.items() if INTEGER.fullmatch(value))
            numbers = np.array([code for _, code in pairs], dtype=np.int64)
            self._ordered = len(self._codes), [integer for integer, _ in pairs], numbers
        return self._ordered


class LabelTable:
    """The labels and names of some nodes, in their order.  A label is read at its first use."""

    def __init__(self, nodes: Callable[[], Sequence[NodeFacts]], size: int) -> None:
        """Take the function that lists the nodes, called when needed, and their number."""
        self._list_nodes, self._size = nodes, size
        self._listed: Sequence[NodeFacts] | None = None
        self._keys: frozenset[str] | None = None
        self._columns: dict[tuple[str, bool], tuple[_Values, _Codes]] = {}

    def edited(
        self, edit: _Edit, added: Sequence[NodeFacts], nodes: Callable[[], Sequence[NodeFacts]], size: int
    ) -> LabelTable:
        """Return the table after `edit` of the nodes, with the `added` ones; numbers of values stay."""
        table = LabelTable(nodes, size)
        for column, (values, codes) in self._columns.items():
            if len(values) <= 2 * size + _SPARE_VALUES:  # else most values are unused
                new = values.codes((_value(node, *column) for node in added), len(added))
                table._columns[column] = values, edit(codes, new)
        if self._keys is not None:
            table._keys = self._keys.union(*(node.labels for node in added))
        return table

    def matches(self, term: NodeTerm) -> Mask:
        """Return, per node, whether all expressions and fields of a term hold.  An empty term matches nothing."""
        every = [(requirement, False) for requirement in term.expressions]
        every += [(requirement, True) for requirement in term.fields]
        found = np.full(self._size, bool(every), dtype=np.bool_)
        for requirement, is_field in every:
            holds, codes = self._holds(requirement, is_field)
            if codes is not None:
                found &= holds[codes]
            elif not holds[0]:
                return np.zeros(self._size, dtype=np.bool_)
        return found

    def _holds(self, requirement: Requirement, is_field: bool) -> tuple[Mask, _Codes | None]:
        """Return, per value of a label, whether a requirement holds, and the values of the nodes; None: no node has the
        label.
        """
        column = requirement.key, is_field
        if column not in self._columns:
            known = requirement.key == _NAME_FIELD if is_field else requirement.key in self._all_keys()
            if not known:
                return _NOBODY.holds(requirement), None
            values = _Values()
            self._columns[column] = values, values.codes((_value(n, *column) for n in self._nodes()), self._size)
        values, codes = self._columns[column]
        return values.holds(requirement), codes

    def _all_keys(self) -> frozenset[str]:
        """Return the labels that any node has, or had."""
        if self._keys is None:
            self._keys = frozenset().union(*(node.labels for node in self._nodes()))
        return self._keys

    def _nodes(self) -> Sequence[NodeFacts]:
        if self._listed is None:
            self._listed = self._list_nodes()
        return self._listed


def _value(node: NodeFacts, key: str, is_field: bool) -> str | None:
    return node.name if is_field else node.labels.get(key)


_NOBODY = _Values()
