"""The quota tree of a ClusterQueue as arcs of a network.

Quota is upstream of the classes: a tree is laminar, so the flow of each ClusterQueue is known there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor

from kqueue.core import quota
from kqueue.core.joint.graph import Arc
from kqueue.core.quota import UNLIMITED, FlavorResource, QuotaNode


def own_amounts(queues: Iterable[str], nodes: Mapping[str, QuotaNode], column: FlavorResource) -> set[int]:
    """Return the amounts of quota that nodes on the way to the roots have for themselves alone."""
    below_roots = [node for name in queues for node in nodes[name].path_to_root() if node.parent is not None]
    own = {quota.local_available(node, column) for node in below_roots}
    return {max(0, amount) for amount in own if amount != UNLIMITED}


def quota_arcs(
    queues: Sequence[str],
    nodes: Mapping[str, QuotaNode],
    column: FlavorResource,
    per_unit: Fraction,
    *,
    source: int,
    new_node: Callable[[], int],
    most: int,
) -> tuple[list[Arc], dict[str, int]]:
    """Return the arcs from the source to these ClusterQueues, and the node of each.

    Args:
        per_unit: the smallest quota that a unit of any class takes; above 0.
        new_node: returns the number of a new node of the network.
        most: the units of all classes: no arc needs more.

    Amounts are rounded down to units, unless a unit may come from two nodes in parts: then they are rounded up.
    """
    numbers: dict[int, int] = {}
    arcs: list[Arc] = []
    own = own_amounts(queues, nodes, column)
    rounded = floor if all((amount / per_unit).denominator == 1 for amount in own) else ceil

    def units(amount: int) -> int:
        if amount == UNLIMITED:
            return most
        return max(0, min(most, rounded(amount / per_unit)))

    def number(node: QuotaNode) -> int:
        known = numbers.get(id(node))
        if known is not None:
            return known
        mine = numbers[id(node)] = new_node()
        used = node.usage.get(column, 0)
        if node.parent is None:
            arcs.append(Arc(source, mine, units(quota.minus(node.subtree.get(column, 0), used)), 0))
            return mine
        local = quota.local_quota(node, column)
        arcs.append(Arc(source, mine, units(quota.local_available(node, column)), 0))
        ceiling = quota.borrowing_ceiling(node, column)
        beyond = most if ceiling is None else units(quota.minus(ceiling, max(0, quota.minus(used, local))))
        arcs.append(Arc(number(node.parent), mine, beyond, 0))
        return mine

    return arcs, {name: number(nodes[name]) for name in queues}
