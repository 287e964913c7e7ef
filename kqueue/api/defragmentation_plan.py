"""DefragmentationPlan: moves of running workloads after which a gang has room in one domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kqueue.api.bounds import INT64_MAX
from kqueue.api.fields import Conditions, Count, ObjectName, PodSetName, PositiveCount, Time
from kqueue.api.model import ATOMIC, ApiModel, Column, Resource, Rule, Served
from kqueue.api.names import KQUEUE_API_VERSION, KQUEUE_GROUP, KQUEUE_VERSION
from kqueue.api.workload import LevelValues, NodeLevel, PodCounts, TopologyAssignment, TopologySlice

Phase = Literal["Proposed", "Approved", "Running", "Done", "Aborted", "Failed", "Expired", "Superseded"]
MoveState = Literal["Planned", "Reserved", "Evicting", "Replacing", "Running", "Done", "Aborted", "Failed"]
PlanHash = Annotated[str, Field(max_length=71, pattern=r"^(sha256:[0-9a-f]{64})?$")]
Seconds = Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)]
DomainPath = Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=16), ATOMIC]
WorkloadKey = Annotated[str, Field(max_length=317)]


class GoalWorkload(ApiModel):
    """A waiting Workload."""

    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    """Namespace of the Workload."""
    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Workload."""


class DefragmentationGoal(ApiModel):
    """The gang that is to have room in one domain: a waiting Workload, or a number of empty nodes."""

    rules = (
        Rule(
            cel="has(self.workload) ? !has(self.flavor) && !has(self.level) && !has(self.nodes) : "
            "has(self.flavor) && has(self.level) && has(self.nodes)",
            message="set either workload, or flavor, level and nodes",
            holds=lambda goal: (
                (goal.workload is not None) is (goal.flavor is None and goal.level is None and goal.nodes is None)
                and (goal.workload is not None or None not in (goal.flavor, goal.level, goal.nodes))
            ),
        ),
    )
    workload: GoalWorkload | None = None
    """Waiting Workload that starts after the moves."""
    flavor: ObjectName | None = None
    """ResourceFlavor of the empty nodes."""
    level: Annotated[str, Field(max_length=316)] | None = None
    """Topology level, one domain of which has the empty nodes."""
    nodes: PositiveCount | None = None
    """Number of empty nodes."""


class DefragmentationBudget(ApiModel):
    """The most that the moves may cost."""

    max_moves: Count = 4
    """Number of workloads that move."""
    max_pod_minutes: Seconds = 120
    """Work that is lost: pods times minutes."""


class DefragmentationPlanSpec(ApiModel):
    """The goal of the plan, and its approval."""

    goal: Annotated[
        DefragmentationGoal,
        Rule(cel="self == oldSelf", message="the goal cannot change; create another DefragmentationPlan instead"),
    ]
    """Gang that is to have room in one domain.  It cannot change."""
    budget: Annotated[
        DefragmentationBudget,
        Rule(cel="self == oldSelf", message="the budget cannot change; create another DefragmentationPlan instead"),
    ] = Field(default_factory=DefragmentationBudget)
    """Limits of the moves.  They cannot change."""
    approved: PlanHash = ""
    """Hash of the approved moves, which is status.hash; empty: the plan is not approved."""


class PlannedLevelValues(LevelValues):
    """Values of one level: exactly one of the two."""

    rules = ()


class PlannedPodCounts(PodCounts):
    """Pods per domain: exactly one of the two."""

    rules = ()


class PlannedSlice(TopologySlice):
    """Some domains of an assignment, stored by column."""

    rules = ()
    values_per_level: Annotated[tuple[PlannedLevelValues, ...], Field(min_length=1, max_length=16), ATOMIC]
    """Values of the domains, one entry per level."""
    pod_counts: PlannedPodCounts
    """Pods in the domains."""


class PlannedTopology(TopologyAssignment):
    """Which domains are to hold the pods, in the form of an admission.

    The API server allows expressions on so many values no cost that rules need, so the controller checks them.
    """

    rules = ()
    levels: Annotated[tuple[NodeLevel, ...], Field(min_length=1, max_length=16), ATOMIC]
    """Node label keys, the widest first; the host name alone where the topology reaches down to hosts."""
    slices: Annotated[tuple[PlannedSlice, ...], Field(max_length=1000), ATOMIC]
    """Domains with their pods."""


class PlannedPodSet(ApiModel):
    """Flavors and domains that one pod set is to have."""

    name: PodSetName = "main"
    """Pod set."""
    flavors: Mapping[str, ObjectName] = {}
    """Flavor of each resource."""
    count: Count | None = None
    """Number of its pods."""
    topology_assignment: PlannedTopology | None = None
    """Domains of the pods; absent without topology."""


class PlannedMove(ApiModel):
    """A workload that moves."""

    workload: WorkloadKey
    """Namespace and name of the Workload, joined by a slash."""
    pods: Count
    """Number of its pods."""
    source: DomainPath = Field(default=(), alias="from")
    """Narrowest domain that has all its pods now, the widest level first; empty: several widest domains have them."""
    to: DomainPath = ()
    """Narrowest domain that is to have all of them."""
    cost: Seconds = 0
    """Pod-seconds that are lost: the work since its last safe point, and its restart."""
    checkpoint_age_seconds: Seconds | None = None
    """Age of its last checkpoint when the plan was made.  Absent: unknown."""
    uid: Annotated[str, Field(max_length=64)] = ""
    """UID of the Workload.  Another Workload of the same name is not moved."""
    assignments: Annotated[tuple[PlannedPodSet, ...], Field(max_length=18), ATOMIC] = ()
    """Flavors and domains that its pod sets are to have, in the form of an admission."""
    state: MoveState = "Planned"
    """State of the move."""
    since: Time | None = None
    """Time at which the state began.  Absent: the move is planned."""
    begun: Time | None = None
    """Time at which its eviction began.  Absent: it was not evicted."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """The last event of the move."""


class PlanCost(ApiModel):
    """The work that the moves lose."""

    pod_seconds: Seconds
    """Sum over all moves, in pod-seconds."""


class PlanGain(ApiModel):
    """The room before and after the moves."""

    slots_before: Count
    """Number of such gangs that have room before the moves."""
    slots_after: Count
    """Number of such gangs that have room after the moves, before the gang starts."""
    fragmentation_before: Count
    """Thousandths of the free room that such gangs cannot use, before the moves."""
    fragmentation_after: Count
    """Thousandths of the free room that such gangs cannot use, after the moves."""
    starts: WorkloadKey | None = None
    """Namespace and name of the Workload that starts, joined by a slash.  Absent: none waits for the room."""


class DefragmentationPlanStatus(ApiModel):
    """The moves and their state."""

    phase: Phase | None = None
    """State of the plan."""
    hash: PlanHash = ""
    """Hash of goal, moves, cost and gain, without the states of the moves."""
    valid_until: Time | None = None
    """Time after which the plan cannot be approved any more."""
    flavor: ObjectName | None = None
    """ResourceFlavor of the domain."""
    domain: DomainPath = ()
    """Domain that gets free, the widest level first."""
    moves: Annotated[tuple[PlannedMove, ...], Field(max_length=64), ATOMIC] = ()
    """Workloads that move, in this order."""
    cost: PlanCost | None = None
    """Work that is lost."""
    gain: PlanGain | None = None
    """Room that is won."""
    conditions: Conditions = ()
    """Changes of the phase, with time and cause."""


class DefragmentationPlan(Resource):
    """Moves of running workloads after which a gang has room in one domain.  Nothing moves before it is approved."""

    rules = (
        Rule(
            cel="!has(self.spec.approved) || self.spec.approved == '' || "
            "(has(self.status) && has(self.status.hash) && self.spec.approved == self.status.hash)",
            message="spec.approved must be the hash in status.hash: look at the plan again, and approve what it is now",
            holds=lambda plan: plan.spec.approved in ("", plan.status.hash),
            field=".spec.approved",
        ),
    )
    served: ClassVar = Served(
        group=KQUEUE_GROUP,
        version=KQUEUE_VERSION,
        plural="defragmentationplans",
        short_names=("defrag",),
        columns=(
            Column(name="Phase", path=".status.phase", description="State of the plan"),
            Column(name="Starts", path=".status.gain.starts", description="Workload that starts after the moves"),
            Column(
                name="Lost", path=".status.cost.podSeconds", type="integer", description="Pod-seconds that are lost"
            ),
            Column(name="Valid Until", path=".status.validUntil", description="End of its validity"),
            Column(name="Age", path=".metadata.creationTimestamp", type="date", description="Time since creation"),
        ),
    )
    api_version: str = KQUEUE_API_VERSION
    """Group and version of this representation of the object."""
    kind: str = "DefragmentationPlan"
    """Kind of the object."""
    spec: DefragmentationPlanSpec
    """The goal of the plan, and its approval."""
    status: DefragmentationPlanStatus = DefragmentationPlanStatus()
    """The moves and their state."""
