"""A separate implementation of quota arithmetic, from ClusterQueue and Cohort objects of the API server.

offered     quota of a node and all below it: nominal quota, and of each child no more than it lends
kept        the part of it for the node alone, because it does not lend it
taken       usage of a node; of a cohort: usage of its children beyond what they keep
limit       the most that a node may take: the offered quota and the borrowing limit; a root may not borrow
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import Object

Column = tuple[str, str]
"""(flavor, resource)."""
Usage = Mapping[str, Mapping[Column, int]]
"""Usage of Workloads by ClusterQueue."""
_Node = tuple[str, str]
"""("queue" or "cohort", name)."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Quota of a node for one column."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


def grants_of(spec: Object) -> dict[Column, Grant]:
    """Return all quota in a ClusterQueue's or Cohort's spec."""
    return {
        (flavor["name"], quota["name"]): Grant(
            amount(quota["nominalQuota"], quota["name"]),
            *(
                amount(quota[limit], quota["name"]) if quota.get(limit) is not None else None
                for limit in ("borrowingLimit", "lendingLimit")
            ),
        )
        for group in spec.get("resourceGroups") or ()
        for flavor in group["flavors"]
        for quota in flavor["resources"]
    }


class QuotaTree:
    """All ClusterQueues and cohorts of one moment, from their specs by name."""

    def __init__(self, queues: Mapping[str, Object], cohorts: Mapping[str, Object]) -> None:
        """A cohort that is only named by others exists without quota."""
        self._grants: dict[_Node, dict[Column, Grant]] = {}
        self._parent: dict[_Node, _Node | None] = {}
        self._children: dict[_Node, list[_Node]] = {}
        for kind, above, specs in (("queue", "cohortName", queues), ("cohort", "parentName", cohorts)):
            for name, spec in specs.items():
                self._grants[kind, name] = grants_of(spec)
                self._parent[kind, name] = ("cohort", spec[above]) if spec.get(above) else None
        for node, parent in self._parent.items():
            if parent is not None:
                self._children.setdefault(parent, []).append(node)

    def path(self, queue: str) -> list[_Node] | None:
        """Return the path from the ClusterQueue to its root; None if the cohorts form a cycle."""
        path: list[_Node] = []
        node: _Node | None = ("queue", queue)
        while node is not None:
            if node in path:
                return None
            path.append(node)
            node = self._parent.get(node)
        return path

    def tree_of(self, queue: str) -> set[str]:
        """Return the ClusterQueues of the same root, this one included; in a cycle only this one."""
        path = self.path(queue)
        return set(self._queues_below(path[-1])) if path is not None else {queue}

    def _queues_below(self, node: _Node) -> Iterator[str]:
        if node[0] == "queue":
            yield node[1]
        for child in self._children.get(node, ()):
            yield from self._queues_below(child)

    def nominal(self, queue: str, column: Column) -> int:
        """Return the ClusterQueue's nominal quota."""
        return self._grant(("queue", queue), column).nominal

    def reach(self, queue: str, column: Column) -> int:
        """Return the most that the ClusterQueue could use without usage of others."""
        path = self.path(queue)
        if path is None:
            return 0
        most = 0
        for node in reversed(path):
            if node == path[-1]:
                most = self._offered(node, column)
                continue
            most += self._kept(node, column)
            limit = self._limit(node, column)
            most = most if limit is None else min(most, limit)
        return most

    def overrun(self, queue: str, column: Column, amount: int, others: Usage) -> str | None:
        """Return the node that `amount` more usage of the ClusterQueue would take beyond its limit, or None.

        Nodes whose own usage would not grow are not checked: a node may use the quota that it keeps in any case.
        """
        path = self.path(queue)
        if path is None:
            return f"the cohorts above {queue} go round in a circle"
        more = {**others, queue: {**others.get(queue, {}), column: others.get(queue, {}).get(column, 0) + amount}}
        for node in path:
            before, after = self._taken(node, column, others), self._taken(node, column, more)
            limit = self._limit(node, column)
            if after > before and limit is not None and after > limit:
                return f"{node[0]} {node[1]} would have {after} of {column}, and may have {limit}"
        return None

    def fits(self, queue: str, wanted: Mapping[Column, int], others: Usage) -> bool:
        """Whether there is room for all of `wanted`."""
        return all(self.overrun(queue, column, amount, others) is None for column, amount in wanted.items() if amount)

    def _grant(self, node: _Node, column: Column) -> Grant:
        return self._grants.get(node, {}).get(column, Grant())

    def _offered(self, node: _Node, column: Column) -> int:
        return self._grant(node, column).nominal + sum(
            self._lent(child, column) for child in self._children.get(node, ())
        )

    def _lent(self, node: _Node, column: Column) -> int:
        offered, lending = self._offered(node, column), self._grant(node, column).lending
        return offered if lending is None else min(offered, lending)

    def _kept(self, node: _Node, column: Column) -> int:
        return self._offered(node, column) - self._lent(node, column)

    def _taken(self, node: _Node, column: Column, usage: Usage) -> int:
        own = usage.get(node[1], {}).get(column, 0) if node[0] == "queue" else 0
        return own + sum(
            max(0, self._taken(child, column, usage) - self._kept(child, column))
            for child in self._children.get(node, ())
        )

    def _limit(self, node: _Node, column: Column) -> int | None:
        if self._parent.get(node) is None:
            return self._offered(node, column)
        borrowing = self._grant(node, column).borrowing
        return None if borrowing is None else self._offered(node, column) + borrowing
