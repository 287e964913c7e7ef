"""Policy `packing`: full hosts and domains first, so that whole ones stay whole."""

from __future__ import annotations

import numpy as np

from kqueue.core.joint.policy import BasePolicy, Depth, JudgedPlace
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.tree import Ints

EACH = 10


class PackingPolicy(BasePolicy):
    """Full hosts and domains first: a place costs `each` times the pods that still fit there, for every pod alike."""

    depth = Depth.HOST

    def __init__(self, each: int = EACH) -> None:
        self._each = each

    def domains(self, pods: JudgedPods, level: int, view: WorldView) -> Ints:
        """Return the pods that fit into each domain, times `each`."""
        return view.fitting(pods.request)[level] * self._each

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints:
        """Return the pods that fit on each leaf, times `each`."""
        return self.domains(pods, view.tree.lowest, view)

    def real_cost(self, place: JudgedPlace, view: WorldView) -> int:
        """Count the hosts of pods that may be anywhere, and the domains of others."""
        pods = place.pods
        if pods.level < 0:
            return super().real_cost(place, view)
        domains = view.tree.domain_of(pods.level)[place.leaves]
        return pods.units * int(np.dot(self.domains(pods, pods.level, view)[domains], place.counts))
