"""Policy `shortest`: short workloads first."""

from __future__ import annotations

from collections.abc import Hashable

from kqueue.core.joint.costs import WAIT_MAX
from kqueue.core.joint.policy import BasePolicy
from kqueue.core.joint.policy_view import JudgedPods

HOUR = 3600


class ShortestPolicy(BasePolicy):
    """Short workloads first, among those of one priority; a workload that does not say how long it runs counts as one
    of an hour.
    """

    by_value = True

    def key(self, pods: JudgedPods) -> Hashable:
        """See the expected time."""
        return pods.traits.expected_seconds

    def waiting(self, pods: JudgedPods) -> int:
        """Return more seconds the shorter the workload is, and the longer it has waited."""
        expected = pods.traits.expected_seconds
        return min(WAIT_MAX, max(0, WAIT_MAX // 2 - (HOUR if expected is None else expected) + pods.waited))
