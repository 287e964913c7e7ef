"""Graphs with supplies, capacities and costs, and the cheapest flows in them.

A graph knows nothing of workloads.  Arcs are in canonical order, so that equal inputs have equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from kqueue.core.topology.tree import Ints


class InfeasibleError(Exception):
    """The supplies of the graph cannot all reach a demand."""


class CostRangeError(Exception):
    """The costs of the graph are too large for the solver."""


class Arc(NamedTuple):
    """An arc of a graph; `capacity` is in units, `cost` in points for each unit."""

    tail: int
    head: int
    capacity: int
    cost: int


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes 0 .. len(supplies) - 1 and arcs, which are sorted by tail, head and cost.

    Args:
        supplies: per node the units that enter it; negative: units that leave.  The sum is 0.
        tails, heads, capacities, costs: one entry per arc; capacities and costs are 0 or more.
        order: for each arc its place in the sequence that was given to `of`.
    """

    supplies: Ints
    tails: Ints
    heads: Ints
    capacities: Ints
    costs: Ints
    order: Ints

    @classmethod
    def of(cls, supplies: Sequence[int], arcs: Sequence[Arc] | Ints) -> Graph:
        """Return the graph of these arcs, or of a table with a row for each arc.

        Arcs without capacity are kept, so that `order` has all of them.
        """
        table = np.array(arcs, dtype=np.int64).reshape(len(arcs), 4)
        tails, heads, capacities, costs = table.T
        order = _canonical(tails, heads, costs, len(supplies))
        return cls(
            np.array(supplies, dtype=np.int64), tails[order], heads[order], capacities[order], costs[order], order
        )

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.supplies)


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A flow that serves all supplies.

    Args:
        cost: the sum over all arcs of units times cost.
        units: per arc, in the sequence that was given to `Graph.of`.
    """

    cost: int
    units: Ints

    @classmethod
    def of(cls, graph: Graph, on_arcs: Ints) -> Flow:
        """Return the flow with these units on the graph's sorted arcs."""
        units = np.zeros(len(on_arcs), dtype=np.int64)
        units[graph.order] = on_arcs
        used = np.flatnonzero(on_arcs)
        pairs = zip(on_arcs[used].tolist(), graph.costs[used].tolist(), strict=True)
        return cls(sum(carried * cost for carried, cost in pairs), units)  # the sum may need more than 64 bits


def _canonical(tails: Ints, heads: Ints, costs: Ints, nodes: int) -> Ints:
    """Return the order by tail, head and cost."""
    pairs = tails * nodes + heads
    order = np.argsort(pairs, kind="stable")  # arcs come tail by tail, so this is nearly a copy
    if (np.diff(pairs[order]) == 0).any():
        order = np.lexsort((costs, pairs))
    return order


class FlowSolver(Protocol):
    """Finds cheapest flows."""

    def __call__(self, graph: Graph) -> Flow:
        """Return a cheapest flow; equal graphs have equal answers.

        Raises:
            InfeasibleError: there is no flow.
            CostRangeError: the costs are too large.
        """
        ...


def problem_with(graph: Graph, flow: Flow) -> str | None:
    """Return why the flow is none of the graph, as text; None: it is one.  Nothing is said about its cost."""
    on_arcs = flow.units[graph.order]
    if (on_arcs < 0).any() or (on_arcs > graph.capacities).any():
        arc = int(np.flatnonzero((on_arcs < 0) | (on_arcs > graph.capacities))[0])
        return f"arc {arc} carries {on_arcs[arc]} of {graph.capacities[arc]} units"
    net = graph.supplies.copy()
    np.subtract.at(net, graph.tails, on_arcs)
    np.add.at(net, graph.heads, on_arcs)
    if net.any():
        node = int(np.flatnonzero(net)[0])
        return f"node {node} keeps {net[node]} units"
    return None
