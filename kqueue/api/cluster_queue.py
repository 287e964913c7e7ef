"""ClusterQueue: a tenant's quota and rules."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kqueue.api.fields import CheckName, Conditions, Int32, LabelSelector, ObjectName
from kqueue.api.model import UNIQUE, ApiModel, Column, Resource, Rule, Served, keyed
from kqueue.api.quota import FairSharing, FairSharingStatus, FlavorUsages, ResourceGroups


class FlavorFungibility(ApiModel):
    """When to settle for a flavor and when to look at the next one."""

    rules = (
        Rule(
            cel="!has(self.preference) || "
            "(self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            message="preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
            holds=lambda f: f.preference is None or f.when_can_borrow == f.when_can_preempt == "TryNextFlavor",
        ),
    )
    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """The choice when the workload fits by borrowing: take the flavor, or try the later flavors first."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """The choice when the workload fits by preemption: take the flavor, or try the later flavors first."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which is the lesser evil when every flavor needs one of the two.  Absent means BorrowingOverPreemption."""


class BorrowWithinCohort(ApiModel):
    """Whether a workload that must borrow may preempt as well."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """LowerPriority lets it preempt workloads of lower priority in other queues of the cohort."""
    max_priority_threshold: Int32 | None = None
    """Only workloads up to this priority may be preempted by a borrower.  Absent means any lower priority."""


class Preemption(ApiModel):
    """Rules that select the workloads that a pending workload of this queue may preempt."""

    rules = (
        Rule(
            cel="self.reclaimWithinCohort != 'Never' || "
            "!has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never'",
            message="borrowWithinCohort needs reclaimWithinCohort to be LowerPriority or Any",
            holds=lambda p: p.reclaim_within_cohort != "Never" or p.borrow_within_cohort.policy == "Never",
        ),
    )
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Which workloads of other queues may be preempted to take lent quota back."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Which workloads of this queue may be preempted."""
    borrow_within_cohort: BorrowWithinCohort = Field(default_factory=BorrowWithinCohort)
    """Whether preemption and borrowing may be combined."""


class AdmissionCheckRule(ApiModel):
    """A check and the flavors that it is for."""

    name: CheckName
    """AdmissionCheck that must be ready before a workload starts."""
    on_flavors: Annotated[tuple[ObjectName, ...], Field(max_length=64), UNIQUE] = ()
    """Flavors that the check is for; empty means all flavors of the queue."""


class AdmissionChecksStrategy(ApiModel):
    """All checks of a queue."""

    admission_checks: Annotated[tuple[AdmissionCheckRule, ...], Field(min_length=1, max_length=64), keyed("name")]
    """Checks that must be ready before a workload starts."""


class AdmissionScope(ApiModel):
    """How the order inside the queue is found."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """Whether LocalQueues that used little lately come before those that used much."""


class MigrationConstraints(ApiModel):
    """Bounds of a migration."""

    last_acceptable_flavor_name: ObjectName | None = None
    """Last flavor that a workload may run on while it waits for a better one; needs mode TryPreferredFlavors."""


class Migration(ApiModel):
    """How a workload moves between flavors."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """Whether a running workload moves to a better flavor when that becomes free, or stays where it started."""
    constraints: MigrationConstraints | None = None
    """Bounds of the migration."""


class ConcurrentAdmissionPolicy(ApiModel):
    """Whether a workload tries several flavors at the same time."""

    migration: Migration
    """How a workload moves between flavors."""


StopPolicy = Literal["None", "Hold", "HoldAndDrain"]


class ClusterQueueSpec(ApiModel):
    """Cluster-wide quota of one tenant."""

    rules = (
        Rule(
            cel="has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g, "
            "g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
            message="borrowingLimit needs a cohortName: without a cohort there is no quota to borrow",
            holds=lambda s: (
                s.cohort_name is not None
                or all(r.borrowing_limit is None for g in s.resource_groups for f in g.flavors for r in f.resources)
            ),
            field=".resourceGroups",
        ),
    )
    resource_groups: ResourceGroups = ()
    """Quota.  Each group names its resources and the flavors that can serve them."""
    cohort_name: ObjectName | None = None
    """Cohort to lend to and borrow from; absent: the queue is in no cohort.
    The Cohort object may be missing."""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """BestEffortFIFO lets a workload that fits pass an older one that does not; StrictFIFO never does.  Both order by
    priority first, then by age."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose workloads may use this queue.  Absent selects none, an empty selector all."""
    flavor_fungibility: FlavorFungibility = Field(default_factory=FlavorFungibility)
    """When to settle for a flavor and when to look at the next one."""
    preemption: Preemption = Field(default_factory=Preemption)
    """Rules that select the workloads that a pending workload of this queue may preempt."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Checks that must be ready before a workload starts."""
    stop_policy: StopPolicy = "None"
    """None runs the queue, Hold admits nothing new, HoldAndDrain also evicts what runs."""
    fair_sharing: FairSharing | None = None
    """Weight against the other members of the cohort, where fair sharing is on."""
    admission_scope: AdmissionScope | None = None
    """How the order inside the queue is found."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Whether a workload tries several flavors at the same time.  Cannot be changed."""


class ClusterQueueStatus(ApiModel):
    """Usage, number of workloads, and whether the queue can be used."""

    conditions: Conditions = ()
    """Condition Active: whether the queue admits workloads, and what is missing if not."""
    flavors_reservation: FlavorUsages = ()
    """Quota reserved by all workloads, running or about to."""
    flavors_usage: FlavorUsages = ()
    """Quota used by admitted workloads."""
    pending_workloads: Int32 = 0
    """Workloads that wait."""
    reserving_workloads: Int32 = 0
    """Workloads that hold quota and have not finished."""
    admitted_workloads: Int32 = 0
    """Workloads that were admitted and have not finished."""
    fair_sharing: FairSharingStatus | None = None
    """How fair sharing sees this queue; absent while fair sharing is off."""


class ClusterQueue(Resource):
    """A tenant's quota and rules: which resources, which nodes, which namespaces, and what to do in a squeeze."""

    served: ClassVar = Served(
        plural="clusterqueues",
        short_names=("cq",),
        columns=(
            Column(name="Cohort", path=".spec.cohortName", description="Cohort that it lends to and borrows from"),
            Column(
                name="Strategy",
                path=".spec.queueingStrategy",
                description="Whether the head blocks the rest",
                wide=True,
            ),
            Column(
                name="Pending Workloads",
                path=".status.pendingWorkloads",
                type="integer",
                description="Workloads that wait",
            ),
            Column(
                name="Admitted Workloads",
                path=".status.admittedWorkloads",
                type="integer",
                description="Workloads that were admitted and have not finished",
                wide=True,
            ),
        ),
    )
    kind: str = "ClusterQueue"
    """Kind of the object."""
    spec: ClusterQueueSpec = ClusterQueueSpec()
    """Quota and rules of the queue."""
    status: ClusterQueueStatus = ClusterQueueStatus()
    """Usage and state of the queue."""
