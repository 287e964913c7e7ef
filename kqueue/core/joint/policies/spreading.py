"""Policy `spreading`: few pods on each host."""

from __future__ import annotations

from kqueue.core.joint.policy import BasePolicy, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.tree import Ints

EACH = 10


class SpreadingPolicy(BasePolicy):
    """Few pods on each host: the n-th pod costs n times `each`, whatever it requests."""

    depth = Depth.HOST

    def __init__(self, each: int = EACH) -> None:
        self._each = each

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints:
        """Return the pods on the leaf, the new one included, times `each`."""
        return (view.pods() + nth) * self._each
