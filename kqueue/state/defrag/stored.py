"""Stored DefragmentationPlans before they are carried out: which of them count, and how they end.

Proposed ──► Approved: by a person, or within the budget of the configuration
   ├──► Expired: its time is over
   └──► Superseded: its workload does not wait any more
every plan that is over is deleted an hour later
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.core.joint.move_steps import PlanPhase
from kqueue.core.value import value
from kqueue.state.defrag.document import VALID_FOR, hash_of

MOST_PLANS = 16
"""Plans that may exist at a time."""
KEPT_FOR = timedelta(hours=1)
"""The time for which a plan is kept after its end."""
_LONGEST_VALID = timedelta(hours=1)
"""A plan is never valid for longer, whatever its status says."""
BY_CONTROLLER = "ByController"
"""The reason of the condition `Proposed` of a plan that the controller has made."""
AUTO_BUDGET = "AutoBudget"
"""The reason of the condition `Approved` of a plan that nobody had to approve."""


class PlanStep(StrEnum):
    """The next change of a stored plan.  The value is a word for logs."""

    NONE = "none"
    EXPIRE = "expire"
    SUPERSEDE = "supersede"
    APPROVE = "approve"
    DELETE = "delete"


@value(kw_only=True)
class AutoBudget:
    """The most that a plan may cost that is approved without a person."""

    moves: int
    pod_seconds: int

    def has_room_for(self, plan: DefragmentationPlan) -> bool:
        """Whether a plan is within the budget; a plan without a cost is not."""
        cost = plan.status.cost
        return cost is not None and len(plan.status.moves) <= self.moves and 0 <= cost.pod_seconds <= self.pod_seconds


def goal_key(plan: DefragmentationPlan) -> str:
    """Return the waiting Workload of a plan as namespace/name; empty: it is for empty nodes."""
    goal = plan.spec.goal.workload
    return f"{goal.namespace}/{goal.name}" if goal is not None else ""


def phase_of(plan: DefragmentationPlan) -> str:
    """Return the phase as it is written; a plan without one is proposed."""
    return plan.status.phase or PlanPhase.PROPOSED


def is_approved(plan: DefragmentationPlan) -> bool:
    """Whether a plan has the hash of its moves as its approval, whatever its phase is."""
    return bool(plan.status.hash) and plan.spec.approved == plan.status.hash


def is_sound(plan: DefragmentationPlan) -> bool:
    """Whether the hash of a plan is that of what the plan says."""
    return plan.status.hash == hash_of(plan)


def valid_until(plan: DefragmentationPlan, now: datetime) -> datetime:
    """Return the end of a proposal's validity; a proposal without one is valid for as long as a new one."""
    created = plan.metadata.creation_timestamp or now
    return min(plan.status.valid_until or created + VALID_FOR, created + _LONGEST_VALID)


def is_open(plan: DefragmentationPlan, now: datetime) -> bool:
    """Whether a plan stands: it can be approved, or is being carried out."""
    if phase_of(plan) == PlanPhase.PROPOSED:
        return is_sound(plan) and (is_approved(plan) or now < valid_until(plan, now))
    return phase_of(plan) in (PlanPhase.APPROVED, PlanPhase.RUNNING)


def open_plan_for(plans: Iterable[DefragmentationPlan], workload: str, now: datetime) -> DefragmentationPlan | None:
    """Return the plan that stands for a waiting Workload (namespace/name), the newest one; None: there is none."""
    found = [plan for plan in plans if goal_key(plan) == workload and is_open(plan, now)]
    return max(found, key=lambda plan: (plan.metadata.creation_timestamp or now, plan.metadata.name), default=None)


def ended_at(plan: DefragmentationPlan, now: datetime) -> datetime:
    """Return the time at which a plan that is over has ended; without a record of it, the time of its creation."""
    times = [c.last_transition_time for c in plan.status.conditions if c.type == phase_of(plan)]
    known = [at for at in times if at is not None]
    return max(known, default=plan.metadata.creation_timestamp or now)


def is_of_controller(plan: DefragmentationPlan) -> bool:
    """Whether the controller has made the plan."""
    return any(c.type == PlanPhase.PROPOSED and c.reason == BY_CONTROLLER for c in plan.status.conditions)


def next_step(
    plan: DefragmentationPlan, now: datetime, *, waits: bool, budget: AutoBudget | None
) -> tuple[PlanStep, datetime | None]:
    """Return the change that is due now, and the time at which another one may be due (None: after an event).

    Args:
        waits: whether the Workload of the plan waits; True for empty nodes.
        budget: the most that is approved without a person; None: nothing is.

    A plan that is approved, or being carried out, is not changed.
    """
    if phase_of(plan) in (PlanPhase.APPROVED, PlanPhase.RUNNING) or (
        phase_of(plan) == PlanPhase.PROPOSED and is_approved(plan)
    ):
        return PlanStep.NONE, None
    if phase_of(plan) != PlanPhase.PROPOSED:
        delete_at = ended_at(plan, now) + KEPT_FOR
        return (PlanStep.DELETE, None) if delete_at <= now else (PlanStep.NONE, delete_at)
    until = valid_until(plan, now)
    if until <= now:
        return PlanStep.EXPIRE, None
    if not waits:
        return PlanStep.SUPERSEDE, None
    if budget is not None and is_of_controller(plan) and budget.has_room_for(plan) and is_sound(plan):
        return PlanStep.APPROVE, until
    return PlanStep.NONE, until


def dispensable(plans: Iterable[DefragmentationPlan], now: datetime) -> DefragmentationPlan | None:
    """Return the plan that is deleted first to make room for another: the oldest one that ended unapproved; None: there
    is none.
    """
    found = [plan for plan in plans if phase_of(plan) in (PlanPhase.EXPIRED, PlanPhase.SUPERSEDED)]
    return min(found, key=lambda plan: (ended_at(plan, now), plan.metadata.name), default=None)
