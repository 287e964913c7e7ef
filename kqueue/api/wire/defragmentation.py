"""DefragmentationPlans, as far as the controller reads them.  The models in `kqueue.api` describe the fields."""

from __future__ import annotations

from datetime import datetime

import msgspec

from kqueue.api.wire.kueue import PodSetAssignment
from kqueue.api.wire.meta import Condition, ObjectMeta, Struct


class GoalWorkload(Struct, frozen=True, kw_only=True):
    """A waiting Workload."""

    namespace: str = ""
    name: str = ""


class DefragmentationGoal(Struct, frozen=True, kw_only=True):
    """The gang that is to have room in one domain: a waiting Workload, or a number of empty nodes."""

    workload: GoalWorkload | None = None
    flavor: str | None = None
    level: str | None = None
    nodes: int | None = None


class DefragmentationBudget(Struct, frozen=True, kw_only=True):
    """The most that the moves may cost."""

    max_moves: int = 4
    max_pod_minutes: int = 120


class DefragmentationPlanSpec(Struct, frozen=True, kw_only=True):
    """The goal of the plan, and its approval."""

    goal: DefragmentationGoal = DefragmentationGoal()
    budget: DefragmentationBudget = DefragmentationBudget()
    approved: str = ""


class PlannedMove(Struct, frozen=True, kw_only=True):
    """A workload that moves."""

    workload: str
    pods: int = 0
    source: tuple[str, ...] = msgspec.field(default=(), name="from")
    to: tuple[str, ...] = ()
    cost: int = 0
    checkpoint_age_seconds: int | None = None
    uid: str = ""
    assignments: tuple[PodSetAssignment, ...] = ()
    state: str = "Planned"
    since: datetime | None = None
    begun: datetime | None = None
    message: str = ""


class PlanCost(Struct, frozen=True, kw_only=True):
    """The work that the moves lose."""

    pod_seconds: int = 0


class PlanGain(Struct, frozen=True, kw_only=True):
    """The room before and after the moves."""

    slots_before: int = 0
    slots_after: int = 0
    fragmentation_before: int = 0
    fragmentation_after: int = 0
    starts: str | None = None


class DefragmentationPlanStatus(Struct, frozen=True, kw_only=True):
    """The moves and their state."""

    phase: str | None = None
    hash: str = ""
    valid_until: datetime | None = None
    flavor: str | None = None
    domain: tuple[str, ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    cost: PlanCost | None = None
    gain: PlanGain | None = None
    conditions: tuple[Condition, ...] = ()


class DefragmentationPlan(Struct, frozen=True, kw_only=True):
    """Moves of running workloads after which a gang has room in one domain."""

    metadata: ObjectMeta
    spec: DefragmentationPlanSpec = DefragmentationPlanSpec()
    status: DefragmentationPlanStatus = DefragmentationPlanStatus()
