"""Our own kinds, as far as the controller reads them.  The models in `kqueue.api` describe the fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kqueue.api.wire.core import PodTemplate, Taint, Toleration
from kqueue.api.wire.meta import Condition, Labels, LabelSelector, ObjectMeta, Quantity, ResourceList, Struct

# ---- Workload --------------------------------------------------------------------------------------------------------


class TopologyConstraint(Struct, frozen=True, kw_only=True):
    """One slice layer: groups of `size` pods inside one domain of level `topology`."""

    topology: str
    size: int


class TopologyRequest(Struct, frozen=True, kw_only=True):
    """How close the pods of a pod set must be to each other."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: tuple[TopologyConstraint, ...] = ()


class PodSet(Struct, frozen=True, kw_only=True):
    """Equal pods of one workload."""

    name: str = "main"
    template: PodTemplate
    count: int = 1
    min_count: int | None = None
    topology_request: TopologyRequest | None = None


class PriorityClassRef(Struct, frozen=True, kw_only=True):
    """Where the priority comes from."""

    group: str
    kind: str
    name: str


class PreemptionGate(Struct, frozen=True, kw_only=True):
    """A gate by name that holds preemption back."""

    name: str


class WorkloadSpec(Struct, frozen=True, kw_only=True):
    """Requested resources and rules."""

    pod_sets: tuple[PodSet, ...] = ()
    queue_name: str | None = None
    priority_class_ref: PriorityClassRef | None = None
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    preemption_gates: tuple[PreemptionGate, ...] = ()


class IndividualValues(Struct, frozen=True, kw_only=True):
    """One value per domain: prefix + root + suffix."""

    prefix: str | None = None
    suffix: str | None = None
    roots: tuple[str, ...]


class LevelValues(Struct, frozen=True, kw_only=True):
    """Values of one level: one for all domains, or one each."""

    universal: str | None = None
    individual: IndividualValues | None = None


class PodCounts(Struct, frozen=True, kw_only=True):
    """Pods per domain: one count for all domains, or one each."""

    universal: int | None = None
    individual: tuple[int, ...] = ()


class TopologySlice(Struct, frozen=True, kw_only=True):
    """Some domains of an assignment, stored by column."""

    domain_count: int
    values_per_level: tuple[LevelValues, ...]
    pod_counts: PodCounts


class TopologyAssignment(Struct, frozen=True, kw_only=True):
    """Which domains hold the pods, compressed.  The assignment is the union of the slices, in order."""

    levels: tuple[str, ...]
    slices: tuple[TopologySlice, ...]


class PodSetAssignment(Struct, frozen=True, kw_only=True):
    """Assignment of one pod set."""

    name: str = "main"
    flavors: Mapping[str, str] = msgspec.field(default_factory=dict)
    resource_usage: ResourceList = msgspec.field(default_factory=dict)
    count: int | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: str | None = None


class Admission(Struct, frozen=True, kw_only=True):
    """The ClusterQueue whose quota is reserved, and the assignment of each pod set."""

    cluster_queue: str = ""
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class RequeueState(Struct, frozen=True, kw_only=True):
    """How often and until when the workload waits."""

    count: int | None = None
    requeue_at: datetime | None = None


class ReclaimablePod(Struct, frozen=True, kw_only=True):
    """Number of finished pods whose quota is released."""

    name: str
    count: int


class FinishedPods(Struct, frozen=True, kw_only=True):
    """Places of one pod set in which no pod will run any more."""

    name: str
    topology_assignment: TopologyAssignment


class PodSetUpdate(Struct, frozen=True, kw_only=True):
    """Additions of an admission check to the pods of one pod set."""

    name: str
    labels: Labels = msgspec.field(default_factory=dict)
    annotations: Labels = msgspec.field(default_factory=dict)
    node_selector: Labels = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class AdmissionCheckState(Struct, frozen=True, kw_only=True):
    """Answer of one check for one workload."""

    name: str
    state: str
    last_transition_time: datetime
    message: str
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class PodSetRequest(Struct, frozen=True, kw_only=True):
    """Requests of one pod set, after all transformations."""

    name: str
    resources: ResourceList = msgspec.field(default_factory=dict)


class EvictionCount(Struct, frozen=True, kw_only=True):
    """How often the workload was evicted for one reason and cause."""

    reason: str
    underlying_cause: str
    count: int


class SchedulingStats(Struct, frozen=True, kw_only=True):
    """Statistics of the workload."""

    evictions: tuple[EvictionCount, ...] = ()


class UnhealthyNode(Struct, frozen=True, kw_only=True):
    """A failed node under replacement."""

    name: str


class NodeFailures(Struct, frozen=True, kw_only=True):
    """How often the workload failed on one node lately."""

    name: str
    count: int
    last_failure_time: datetime


class PreemptionGateState(Struct, frozen=True, kw_only=True):
    """Whether a gate is open."""

    name: str
    position: str
    last_transition_time: datetime


class WorkloadStatus(Struct, frozen=True, kw_only=True):
    """Decisions on the workload, and its progress."""

    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    finished_pods: tuple[FinishedPods, ...] = ()
    admission_checks: tuple[AdmissionCheckState, ...] = ()
    resource_requests: tuple[PodSetRequest, ...] = ()
    accumulated_past_execution_time_seconds: int | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: tuple[str, ...] = ()
    cluster_name: str | None = None
    unhealthy_nodes: tuple[UnhealthyNode, ...] = ()
    node_failures: tuple[NodeFailures, ...] = ()
    preemption_gates: tuple[PreemptionGateState, ...] = ()


class Workload(Struct, frozen=True, kw_only=True):
    """A unit of work that is admitted as a whole or not at all."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


# ---- Quota -----------------------------------------------------------------------------------------------------------


class ResourceQuota(Struct, frozen=True, kw_only=True):
    """Quota of one resource in one flavor; absent limits mean no limit."""

    name: str
    nominal_quota: Quantity
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Struct, frozen=True, kw_only=True):
    """Quota of all covered resources in one flavor."""

    name: str
    resources: tuple[ResourceQuota, ...]


class ResourceGroup(Struct, frozen=True, kw_only=True):
    """Resources that always come from the same flavor, and the flavors in the order to try."""

    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class FlavorFungibility(Struct, frozen=True, kw_only=True):
    """When to stop looking for a better flavor."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str | None = None


class BorrowWithinCohort(Struct, frozen=True, kw_only=True):
    """Whether a borrower may preempt."""

    policy: str = "Never"
    max_priority_threshold: int | None = None


class Preemption(Struct, frozen=True, kw_only=True):
    """Rules that select the workloads that a workload of the queue may preempt."""

    reclaim_within_cohort: str = "Never"
    within_cluster_queue: str = "Never"
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()


class AdmissionCheckRule(Struct, frozen=True, kw_only=True):
    """A check and the flavors that it is for; no flavor means all."""

    name: str
    on_flavors: tuple[str, ...] = ()


class AdmissionChecksStrategy(Struct, frozen=True, kw_only=True):
    """All checks of a queue."""

    admission_checks: tuple[AdmissionCheckRule, ...] = ()


class FairSharing(Struct, frozen=True, kw_only=True):
    """Weight of a queue or cohort against its siblings."""

    weight: Quantity = 1


class AdmissionScope(Struct, frozen=True, kw_only=True):
    """Whether the order inside the queue follows past usage."""

    admission_mode: str


class MigrationConstraints(Struct, frozen=True, kw_only=True):
    """Bounds of a migration."""

    last_acceptable_flavor_name: str | None = None


class Migration(Struct, frozen=True, kw_only=True):
    """How a workload moves between flavors."""

    mode: str
    constraints: MigrationConstraints | None = None


class ConcurrentAdmissionPolicy(Struct, frozen=True, kw_only=True):
    """Whether a workload tries several flavors at once."""

    migration: Migration


class ClusterQueueSpec(Struct, frozen=True, kw_only=True):
    """Cluster-wide quota of one tenant.  An absent namespace selector selects nothing."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    cohort_name: str | None = None
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class ResourceUsage(Struct, frozen=True, kw_only=True):
    """Usage of one resource; `borrowed` is the part above nominal."""

    name: str
    total: Quantity = 0
    borrowed: Quantity = 0


class FlavorUsage(Struct, frozen=True, kw_only=True):
    """Usage of one flavor."""

    name: str
    resources: tuple[ResourceUsage, ...]


class FairSharingStatus(Struct, frozen=True, kw_only=True):
    """Share that is compared with the siblings' shares."""

    weighted_share: int


class ClusterQueueStatus(Struct, frozen=True, kw_only=True):
    """Usage and number of workloads."""

    conditions: tuple[Condition, ...] = ()
    flavors_reservation: tuple[FlavorUsage, ...] = ()
    flavors_usage: tuple[FlavorUsage, ...] = ()
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(Struct, frozen=True, kw_only=True):
    """A tenant's quota and rules."""

    metadata: ObjectMeta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class CohortSpec(Struct, frozen=True, kw_only=True):
    """Quota that belongs to the cohort itself, and its parent."""

    parent_name: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(Struct, frozen=True, kw_only=True):
    """The cohort's share."""

    fair_sharing: FairSharingStatus | None = None


class Cohort(Struct, frozen=True, kw_only=True):
    """ClusterQueues and cohorts that lend to each other."""

    metadata: ObjectMeta
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class LocalQueueSpec(Struct, frozen=True, kw_only=True):
    """Where the workloads of a namespace go."""

    cluster_queue: str | None = None
    stop_policy: str = "None"
    fair_sharing: FairSharing | None = None


class LocalResourceUsage(Struct, frozen=True, kw_only=True):
    """Usage of one resource through one LocalQueue."""

    name: str
    total: Quantity = 0


class LocalFlavorUsage(Struct, frozen=True, kw_only=True):
    """Usage of one flavor through one LocalQueue."""

    name: str
    resources: tuple[LocalResourceUsage, ...]


class AdmissionFairSharingStatus(Struct, frozen=True, kw_only=True):
    """Past usage with its age taken into account."""

    consumed_resources: ResourceList
    last_update: datetime


class LocalFairSharingStatus(Struct, frozen=True, kw_only=True):
    """Share that is compared with other LocalQueues."""

    weighted_share: int
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class LocalQueueStatus(Struct, frozen=True, kw_only=True):
    """Usage and number of workloads."""

    conditions: tuple[Condition, ...] = ()
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0
    flavors_reservation: tuple[LocalFlavorUsage, ...] = ()
    flavors_usage: tuple[LocalFlavorUsage, ...] = ()
    fair_sharing: LocalFairSharingStatus | None = None


class LocalQueue(Struct, frozen=True, kw_only=True):
    """The door to a ClusterQueue in one namespace."""

    metadata: ObjectMeta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


# ---- Nodes by class and place ----------------------------------------------------------------------------------------


class TopologyLevel(Struct, frozen=True, kw_only=True):
    """One step of a hierarchy, named by a node label."""

    node_label: str


class InlineTopology(Struct, frozen=True, kw_only=True):
    """A hierarchy of the flavor's own."""

    levels: tuple[TopologyLevel, ...]


class ResourceFlavorSpec(Struct, frozen=True, kw_only=True):
    """Which nodes belong to the flavor, and what their taints need."""

    node_labels: Labels = msgspec.field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None
    topology: InlineTopology | None = None


class ResourceFlavor(Struct, frozen=True, kw_only=True):
    """A class of nodes."""

    metadata: ObjectMeta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologySpec(Struct, frozen=True, kw_only=True):
    """Levels, the widest first."""

    levels: tuple[TopologyLevel, ...] = ()


class Topology(Struct, frozen=True, kw_only=True):
    """A hierarchy of node labels."""

    metadata: ObjectMeta
    spec: TopologySpec = TopologySpec()


# ---- Priority and checks ---------------------------------------------------------------------------------------------


class WorkloadPriorityClass(Struct, frozen=True, kw_only=True):
    """A named queueing priority."""

    metadata: ObjectMeta
    value: int


class CheckParameters(Struct, frozen=True, kw_only=True):
    """Object that tunes a check."""

    api_group: str
    kind: str
    name: str


class AdmissionCheckSpec(Struct, frozen=True, kw_only=True):
    """The controller of the check, and its parameters."""

    controller_name: str
    parameters: CheckParameters | None = None


class AdmissionCheckStatus(Struct, frozen=True, kw_only=True):
    """Whether the check can be used."""

    conditions: tuple[Condition, ...] = ()


class AdmissionCheck(Struct, frozen=True, kw_only=True):
    """A condition that another controller must confirm.  `spec` is None only if the object was written without one."""

    metadata: ObjectMeta
    spec: AdmissionCheckSpec | None = None
    status: AdmissionCheckStatus = AdmissionCheckStatus()
