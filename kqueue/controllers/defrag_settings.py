"""The settings of proposals of moves, from the configuration."""

from __future__ import annotations

from kqueue.config import Configuration
from kqueue.config.joint import JointPlacementSettings
from kqueue.core.joint.defrag import DefragSettings
from kqueue.core.joint.movable import MoveLimits, MovePolicy
from kqueue.core.value import value
from kqueue.state.defrag.stored import AutoBudget

_GATE = "JointPlacement"


@value(kw_only=True)
class ProposalSettings:
    """The settings of proposals.

    Args:
        interval: seconds between two looks.
        auto: the most that is approved without a person; None: nothing is.
    """

    interval: float
    search: DefragSettings
    limits: MoveLimits
    auto: AutoBudget | None = None


def why_no_proposals(config: Configuration) -> str:
    """Return why the controller proposes no plans, with the setting that decides; empty: it does."""
    rescheduling, budget = config.joint.rescheduling, config.joint.defrag.budget
    if not config.enabled(_GATE):
        return f"the feature gate {_GATE} is off"
    if rescheduling.migration == "Never":
        return "joint.rescheduling.migration is Never"
    for setting, most in (
        ("joint.defrag.budget.maxMoves", budget.max_moves),
        ("joint.rescheduling.maxMovesPerHour", rescheduling.max_moves_per_hour),
        ("joint.rescheduling.maxPodsPerHour", rescheduling.max_pods_per_hour),
    ):
        if most <= 0:
            return f"{setting} is 0"
    return ""


def move_limits(joint: JointPlacementSettings) -> MoveLimits:
    """Return the limits of moves."""
    rescheduling = joint.rescheduling
    return MoveLimits(
        migration=MovePolicy(rescheduling.migration),
        checkpoint_age=int(rescheduling.max_checkpoint_age.total_seconds()),
        cooldown=int(rescheduling.cooldown.total_seconds()),
        moves=rescheduling.max_moves_per_hour,
        pods=rescheduling.max_pods_per_hour,
    )


def proposal_settings(joint: JointPlacementSettings) -> ProposalSettings:
    """Return the settings of proposals; a plan never exceeds what may be moved within an hour."""
    rescheduling, budget = joint.rescheduling, joint.defrag.budget
    pod_seconds = 60 * budget.max_pod_minutes
    return ProposalSettings(
        interval=joint.defrag.interval.total_seconds(),
        search=DefragSettings(
            moves=min(budget.max_moves, rescheduling.max_moves_per_hour),
            pods=rescheduling.max_pods_per_hour,
            pod_seconds=pod_seconds,
            least_gain=rescheduling.min_gain,
        ),
        limits=move_limits(joint),
        auto=AutoBudget(moves=budget.max_moves, pod_seconds=pod_seconds) if rescheduling.migration == "Auto" else None,
    )
