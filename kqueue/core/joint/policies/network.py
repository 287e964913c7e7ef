"""Policy `network`: hosts with the least loaded network first."""

from __future__ import annotations

from kqueue.core.joint.policy import BasePolicy, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.joint.shares import thousandths
from kqueue.core.joint.statistics import BANDWIDTH
from kqueue.core.topology.tree import Ints

_PERCENTILE = 90


class NetworkPolicy(BasePolicy):
    """Hosts with the least loaded network first; the resource is a hard limit like any other."""

    depth = Depth.HOST
    looks_at_use = True

    def __init__(self, resource: str = BANDWIDTH) -> None:
        self._resource = resource

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints | None:
        """Return the load of each leaf with the n-th pod, in thousandths of its bandwidth."""
        request = pods.request.requests.get(self._resource, 0)
        if not request:
            return None
        load = view.load(self._resource, _PERCENTILE) + nth * request
        return thousandths(load, view.allocatable(self._resource))
