"""Policy `utilisation`: hosts that are used least first, by measured use where it is known."""

from __future__ import annotations

import numpy as np

from kqueue.core.joint.policy import BasePolicy, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.joint.shares import thousandths
from kqueue.core.topology.tree import Ints

PERCENTILE = 90
_RESOURCES = ("cpu", "memory")


class UtilisationPolicy(BasePolicy):
    """Hosts that are used least first: the larger load of cpu and memory counts.

    The load of a host is what was measured there, and each further pod adds what pods of its kind use; where nothing
    was measured, reservations and requests count.
    """

    depth = Depth.HOST
    looks_at_use = True

    def __init__(self, percentile: int = PERCENTILE) -> None:
        self._percentile = percentile

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints:
        """Return the load of each leaf with the n-th pod, in thousandths."""
        loads = [
            thousandths(
                view.load(resource, self._percentile) + nth * view.use_of_one(pods, resource),
                view.allocatable(resource),
            )
            for resource in _RESOURCES
            if view.allocatable(resource).any()
        ]
        return np.maximum.reduce(loads) if loads else np.zeros(len(view.tree), dtype=np.int64)
