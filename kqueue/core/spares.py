"""Nodes that a flavor could have again: the state lists them, `why` asks what they would change."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.core.topology.tree import Leaf
from kqueue.core.value import value


@value(kw_only=True)
class Spare:
    """A node with a flavor's labels that is no part of its tree now and could come back.

    Args:
        flavor: whose tree it would be part of.
        reason: `notReady` or `unschedulable`, the first that applies.
        leaf: what it would be in the tree.
        free, idle: what would be free on it, and what without workloads placed by topology.
    """

    node: str
    flavor: str
    reason: str
    leaf: Leaf
    free: Mapping[str, int]
    idle: Mapping[str, int]
