"""Cheapest flows by OR-tools, which is the optional dependency `kqueue[flow]`.

This module and `exact.py` import OR-tools, and no others do; both only when a solver is asked for.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from kqueue.core.joint.graph import CostRangeError, Flow, FlowSolver, Graph, InfeasibleError


def solver() -> FlowSolver | None:
    """Return the solver; None: OR-tools is not installed."""
    try:
        from ortools.graph.python import min_cost_flow
    except ImportError:
        return None
    maker = min_cost_flow.SimpleMinCostFlow

    def solve(graph: Graph) -> Flow:
        network = maker()
        arcs = network.add_arcs_with_capacity_and_unit_cost(graph.tails, graph.heads, graph.capacities, graph.costs)
        network.set_nodes_supplies(range(graph.nodes), graph.supplies)
        status = network.solve()
        if status == network.OPTIMAL:
            return Flow.of(graph, network.flows(arcs))
        if status == network.BAD_COST_RANGE:
            raise CostRangeError(f"{graph.nodes} nodes with costs up to {graph.costs.max(initial=0)}")
        raise InfeasibleError(f"the solver says {status.name}")

    return solve


def ortools_version() -> str | None:
    """Return the version of OR-tools without importing it; None: it is not installed."""
    try:
        return version("ortools")
    except PackageNotFoundError:
        return None
