"""The section of the configuration file about joint placement; it is kqueue's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kqueue.config.duration import Duration
from kqueue.config.section import Section, outside, refuse_any


class JointPolicy(Section):
    """A policy of joint placement."""

    name: str
    """Its name."""
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Its weight, in thousandths."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Its parameters by name."""


class StatisticsSettings(Section):
    """Measured use of nodes and pods, for policies of joint placement.  It is a cost of places, and never free room."""

    source: Literal["metrics", "none"] = "metrics"
    """`metrics`: the API metrics.k8s.io, read only where a policy looks at measured use; `none`: nothing is measured,
    and what is reserved counts instead."""
    interval: Duration = timedelta(seconds=15)
    """The time between two samples, 5s to 10m; a sample older than ten intervals is not used."""
    samples: Annotated[int, Field(ge=1, le=100)] = 10
    """The number of samples that are kept of each node, and of each kind of pod."""
    bandwidth_metric: str = ""
    """The metric of nodes in custom.metrics.k8s.io that measures bandwidth in use, for `kqueue.dev/bandwidth`.  Empty:
    none, and what is reserved counts."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        refuse_any(outside("interval", self.interval, timedelta(seconds=5), timedelta(minutes=10)))
        return self


class ReschedulingSettings(Section):
    """Moves of running workloads, and the choice of victims of preemption."""

    preemption: Literal["Cycle", "Joint"] = "Cycle"
    """`Cycle`: victims of preemption are found as without joint placement.  `Joint`: for a workload that a round leaves
    out, the workloads that the relaxation sends away are a second choice; the one that loses less work is taken."""
    migration: Literal["Propose", "Auto", "Never"] = "Propose"
    """`Propose`: plans of moves wait for approval.  `Auto`: plans within `joint.defrag.budget` are approved at once.
    `Never`: no workload is moved."""
    min_gain: Annotated[int, Field(ge=0, le=1_000_000)] = 2_000
    """The least gain of moves, in thousandths of their cost."""
    max_moves_per_hour: Annotated[int, Field(ge=0, le=10_000)] = 4
    """The most moves that begin within an hour; 0: no workload is moved."""
    max_pods_per_hour: Annotated[int, Field(ge=0, le=1_000_000)] = 64
    """The most pods whose moves begin within an hour; 0: no workload is moved."""
    cooldown: Duration = timedelta(hours=6)
    """The least time between two moves of one workload, up to 30 days."""
    max_checkpoint_age: Duration = timedelta(minutes=10)
    """The oldest checkpoint after which a workload with the annotation `kqueue.dev/reschedule: AfterCheckpoint` may be
    moved, 1s to 1 day."""
    move_timeout: Duration = timedelta(minutes=10)
    """The time within which the pods of a moved workload must be ready, 10s to 1 day; later the plan fails."""
    parallel_moves: Annotated[int, Field(ge=1, le=4)] = 1
    """The most moves of one plan that are under way at a time."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        day = timedelta(days=1)
        refuse_any(outside("cooldown", self.cooldown, timedelta(0), 30 * day))
        refuse_any(outside("maxCheckpointAge", self.max_checkpoint_age, timedelta(seconds=1), day))
        refuse_any(outside("moveTimeout", self.move_timeout, timedelta(seconds=10), day))
        return self


class DefragBudget(Section):
    """The most that a defragmentation plan of the controller may cost."""

    max_moves: Annotated[int, Field(ge=0, le=64)] = 4
    """The most workloads that move; 0: the controller proposes no plan."""
    max_pod_minutes: Annotated[int, Field(ge=0, le=1_000_000_000)] = 120
    """The most work that is lost: pods times minutes."""


class DefragProposals(Section):
    """Defragmentation plans that the controller proposes for gangs which wait although enough hosts are free."""

    interval: Duration = timedelta(minutes=5)
    """The least time between two searches for a plan, 10s to 1 day."""
    budget: DefragBudget = DefragBudget()
    """The most that a plan may cost."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        refuse_any(outside("interval", self.interval, timedelta(seconds=10), timedelta(days=1)))
        return self


class JointPlacementSettings(Section):
    """Rounds in which all waiting workloads with the placement profile `joint` are planned together.  They need the
    feature gate JointPlacement."""

    default: bool = False
    """Whether workloads are planned jointly where no object names a profile."""
    within: Literal["BestFit", "balanced", "optimal"] = "BestFit"
    """The profile that chooses the domains inside one workload."""
    order: Literal["Strict", "Priority"] = "Strict"
    """`Strict`: no plan leaves a workload out in order to admit a later one.  `Priority`: among workloads of one
    priority, the plan that uses more units is better; a unit counts more the longer its workload has waited."""
    max_workloads: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """The most workloads of a round."""
    max_per_queue: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The most workloads of one ClusterQueue in a round."""
    time_limit: Duration = timedelta(seconds=5)
    """The time after which a round without a plan is given up, 100ms to 60s; ordinary cycles try its workloads then."""
    policies: tuple[JointPolicy, ...] = (JointPolicy(name="topology"),)
    """The costs of places: at most four policies, whose costs are summed with their weights.  ClusterQueues may name
    others with annotation `kqueue.dev/joint-policies`; all ClusterQueues of a flavor must agree on them."""
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 16_384
    """The most searches for domains that the repairs of one candidate make."""

    statistics: StatisticsSettings = StatisticsSettings()
    """Measured use, for policies that look at it."""
    rescheduling: ReschedulingSettings = ReschedulingSettings()
    """Moves of running workloads, and victims of preemption."""
    defrag: DefragProposals = DefragProposals()
    """Defragmentation plans of the controller."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        refuse_any(outside("timeLimit", self.time_limit, timedelta(milliseconds=100), timedelta(seconds=60)))
        return self
