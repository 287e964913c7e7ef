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


class VictimChoice(StrEnum):
    """How the victims of preemption are chosen; the value is that of the configuration."""

    CYCLE = "Cycle"
    """As without joint placement."""
    JOINT = "Joint"
    """A round proposes others for workloads that it leaves out; they are taken if they lose less work."""


@value(kw_only=True)
class JointSettings:
    """Settings of a round.

    Args:
        within: the placer that chooses the domains inside one workload.
        steps: the largest number of steps of one candidate's repairs; a step is one search for domains.
        least_gain: the least gain of moves, in thousandths of their cost.
    """

    order: JointOrder = JointOrder.STRICT
    within: str = Algorithm.BEST_FIT
    steps: int = 16_384
    victims: VictimChoice = VictimChoice.CYCLE
    least_gain: int = 2_000
