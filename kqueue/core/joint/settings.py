"""Settings of joint placement, in the form of planning."""

from __future__ import annotations

from enum import StrEnum

from kqueue.core.topology.request import Algorithm
from kqueue.core.value import value


class JointOrder(StrEnum):
    """How far the order of workloads binds a plan."""

    STRICT = "Strict"
    """No plan leaves a workload out in order to admit a later one."""
    PRIORITY = "Priority"
    """Among workloads of one priority, the plan with the larger value is better."""


@value(kw_only=True)
class JointSettings:
    """Settings of a round.

    Args:
        within: the placer that chooses the domains inside one workload.
        steps: the largest number of steps of one candidate's repairs; a step is one search for domains.
    """

    order: JointOrder = JointOrder.STRICT
    within: str = Algorithm.BEST_FIT
    steps: int = 16_384
