"""Policy `topology`: few domains, and the tightest one of a level first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kqueue.core.joint.policy import BasePolicy, widest_difference
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.tree import Ints

TIGHTEST = 50
"""The most points by which a domain with more room than a gang needs is dearer than one that it fills."""
SPREAD = (300, 60, 1)
"""Points per unit for each domain beyond the fewest possible, by level, the widest one first."""


class TopologyPolicy(BasePolicy):
    """Few domains, and the tightest one of a level first."""

    in_search = False

    def __init__(self, spread: Sequence[int] = SPREAD) -> None:
        self._spread = tuple(spread)

    def domains(self, pods: JudgedPods, level: int, view: WorldView) -> Ints:
        """Return the units that stay free beside all pods, at most `TIGHTEST`."""
        return np.clip(view.free_units(level) - pods.units * pods.request.count, 0, TIGHTEST)

    def spread(self, level: int) -> int:
        """Return the points per unit for each domain of a level beyond the fewest possible."""
        return widest_difference(self._spread, level)
