"""The smallest policy of joint placement: one host is dear."""

from __future__ import annotations

import numpy as np

from kqueue.core.joint.policy import BasePolicy, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.tree import Ints


class ToyPolicy(BasePolicy):
    """Away from one host."""

    depth = Depth.HOST

    def __init__(self, host: str, points: int = 100) -> None:
        self._host, self._points = host, points

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints:
        """The points on that host, and none on others."""
        return np.array([self._points * (path[-1] == self._host) for path in view.tree.paths], dtype=np.int64)
