"""Nodes that could return to a flavor: the state lists them, and `why` tries them as changes."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.core.topology.tree import Leaf
from kqueue.core.value import value


@value(kw_only=True)
class Spare:
    """A node with a flavor's labels that is left out of its tree now and could return.

    Args:
        flavor: the flavor of the tree.
        reason: `notReady` or `unschedulable`, the first that applies.
        leaf: its leaf in the tree.
        free, idle: its free amounts, and its free amounts without workloads placed by topology.
    """

    node: str
    flavor: str
    reason: str
    leaf: Leaf
    free: Mapping[str, int]
    idle: Mapping[str, int]
