"""Dominant resource share: the borrowed part of the quota that siblings lend to a node, for the resource with the
largest part.

    borrowed    per resource: the usage of the node beyond its subtree quota, over all flavors
    lendable    per resource: the most that the node's parent could get, over all flavors
    ratio       1000 x borrowed / lendable, of the resource with the highest value
    share       ratio / weight; with weight 0, infinite if the ratio is above 0

Shares are exact: two shares are equal exactly if they are equal as fractions.

Source: the compatible system's fair sharing (KEP-1714).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kqueue.core.quantity import INT64_MAX
from kqueue.core.quota import FlavorResource, QuotaNode, minus, plus, potential_available

_ONE = 1_000_000_000
"""A weight of 1, in billionths."""
_FRACTION_BITS = 252
"""Denominators are below 2^126 (lendable times weight), so two unequal shares are at least 2^-252 apart."""

Added = Mapping[FlavorResource, int]
"""Additional amounts, counted as if the node used them."""
_NOTHING: Added = MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """The value by which children of one node are compared: the child with the smaller share goes first.

    A borrowing node of weight 0 has an infinite share: it comes after all other nodes.  Such nodes are compared by
    ratio.
    """

    is_endless: bool = False
    scaled: int = 0
    """The share, or the ratio of an infinite share, in units of 2^-252, rounded down: in the order of the fractions."""
    resource: str | None = field(default=None, compare=False)
    """The dominant resource; None: the node borrows no resource that any node lends."""
    is_borrowing: bool = field(default=False, compare=False)
    """Whether the node borrows, even a resource that no node lends."""

    def weighted_share(self) -> int:
        """Return the share as in a status: rounded up; 2^63 - 1 for an infinite share."""
        return INT64_MAX if self.is_endless else min(INT64_MAX, -(-self.scaled >> _FRACTION_BITS))

    def precise(self) -> float:
        """Return the share as in a metric: not rounded up; infinity for an infinite share."""
        return math.inf if self.is_endless else self.scaled / (1 << _FRACTION_BITS)


NO_SHARE = Share()


def dominant_share(node: QuotaNode, added: Added = _NOTHING) -> Share:
    """Return the share of a node, with `added` on top of its usage (see `quota.rising` for nodes above a ClusterQueue).

    The share of a root, and of a ClusterQueue without cohort, is zero.
    """
    if node.parent is None:
        return NO_SHARE
    borrowed = _borrowed(node, added)
    if not borrowed:
        return NO_SHARE
    most, of, dominant = 0, 1, None
    for resource, amount in borrowed.items():
        there = lendable(node.parent, resource)
        if there <= 0:
            continue
        ahead = amount * of - most * there
        if ahead > 0 or (ahead == 0 and dominant is not None and resource < dominant):
            most, of, dominant = amount, there, resource
    if dominant is None:
        return Share(is_borrowing=True)
    if node.weight == 0:
        return Share(True, (1000 * most << _FRACTION_BITS) // of, dominant, True)
    return Share(False, (1000 * _ONE * most << _FRACTION_BITS) // (of * node.weight), dominant, True)


def _borrowed(node: QuotaNode, added: Added) -> dict[str, int]:
    """Return, per resource, the usage beyond the subtree quota, in columns that the node or a node below it lists."""
    usage, borrowed = node.usage, dict[str, int]()
    for column, quota in node.subtree.items():
        if usage.get(column, 0) + added.get(column, 0) > quota:
            over = minus(plus(usage.get(column, 0), added.get(column, 0)), quota)  # 0 where both are unlimited
            if over > 0:
                borrowed[column.resource] = plus(borrowed.get(column.resource, 0), over)
    return borrowed


def borrows(node: QuotaNode, columns: Iterable[FlavorResource], added: Added = _NOTHING) -> bool:
    """Whether the usage of the node, `added` included, is above its subtree quota in one of the columns.

    A root does not borrow.
    """
    if node.parent is None:
        return False
    for column in columns:
        quota = node.subtree.get(column)
        if quota is not None and plus(node.usage.get(column, 0), added.get(column, 0)) > quota:
            return True
    return False


def lendable(parent: QuotaNode, resource: str) -> int:
    """Return the most that one child of the node could get of a resource, over all flavors of its tree."""
    known = parent.lendable
    if not known:
        for column in parent.root.subtree:
            known[column.resource] = plus(known.get(column.resource, 0), potential_available(parent, column))
    return known.get(resource, 0)
