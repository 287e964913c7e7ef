"""Workload: one job as the queue sees it, and what was decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from kqueue.api.fields import (
    DNS_SUBDOMAIN_PATTERN,
    Bool,
    CheckName,
    Conditions,
    Count,
    Int32,
    LevelName,
    ObjectName,
    PodSetName,
    PositiveCount,
    Quantity,
    Time,
    Tolerations,
)
from kqueue.api.model import ATOMIC, ApiModel, Column, Resource, Rule, Served, keyed

PodSetKey = PodSetName
NodeLevel = Annotated[str, Field(max_length=317)]
LevelValue = Annotated[str, Field(max_length=63)]


class PodTemplate(ApiModel):
    """Pods to be made.  The API server checks pods where they are made, so any field is kept as written here."""

    model_config = ConfigDict(extra="allow")


class TopologyConstraint(ApiModel):
    """One slice layer."""

    topology: Annotated[str, Field(min_length=1, max_length=63)]
    """Level whose domain holds each group of this size."""
    size: PositiveCount
    """Pods per group."""


class TopologyRequest(ApiModel):
    """How close the pods of a pod set must be to each other."""

    required: LevelName | None = None
    """Level of which one domain must hold all pods; the workload waits until one can."""
    preferred: LevelName | None = None
    """Level of which one domain should hold all pods; wider levels, and then several domains, are tried after it."""
    unconstrained: Bool | None = None
    """Any nodes will do; capacity is still counted exactly."""
    pod_index_label: NodeLevel | None = None
    """Label that numbers the pods."""
    sub_group_index_label: NodeLevel | None = None
    """Label that numbers the groups of pods inside the pod set."""
    sub_group_count: Count | None = None
    """Number of such groups."""
    pod_set_group_name: Annotated[str, Field(max_length=256)] | None = None
    """Pod sets of one name get the same flavor and one domain together."""
    pod_set_slice_required_topology: LevelName | None = None
    """Level of which one domain must hold each slice."""
    pod_set_slice_size: PositiveCount | None = None
    """Pods per slice."""
    podset_slice_required_topology_constraints: Annotated[
        tuple[TopologyConstraint, ...], Field(max_length=3), ATOMIC
    ] = ()
    """Slice layers, the widest first; used instead of the two slice fields."""


class PodSet(ApiModel):
    """Equal pods of one workload."""

    rules = (
        Rule(
            cel="!has(self.minCount) || self.minCount <= self.count",
            message="minCount must not be above count",
            holds=lambda p: p.min_count is None or p.min_count <= p.count,
        ),
    )
    name: PodSetName = "main"
    """Name of the pod set, unique in the workload."""
    template: PodTemplate
    """Pods to be made."""
    count: Count = 1
    """Number of pods."""
    min_count: PositiveCount | None = None
    """Fewest pods that the job can start with; absent means all of them."""
    topology_request: TopologyRequest | None = None
    """How close the pods must be to each other."""


class PriorityClassRef(ApiModel):
    """Where the priority comes from."""

    rules = (
        Rule(
            cel="(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",
            message="group kueue.x-k8s.io goes with kind WorkloadPriorityClass, scheduling.k8s.io with PriorityClass",
            holds=lambda r: (r.group == "kueue.x-k8s.io") == (r.kind == "WorkloadPriorityClass"),
        ),
    )
    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """API group of the class."""
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """Kind of the class."""
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN_PATTERN)]
    """Name of the class."""


class PreemptionGate(ApiModel):
    """A gate that holds preemption for this workload back."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the gate."""


class WorkloadSpec(ApiModel):
    """Requested resources and rules."""

    rules = (
        Rule(
            cel="!has(self.priorityClassRef) || has(self.priority)",
            message="priority must be set together with priorityClassRef",
            holds=lambda s: s.priority_class_ref is None or s.priority is not None,
        ),
    )
    pod_sets: Annotated[tuple[PodSet, ...], Field(min_length=1, max_length=18), keyed("name")] | None = None
    """Pods of the workload, 1 to 18 sets.  They start together or not at all."""
    queue_name: ObjectName | None = None
    """LocalQueue, in the same namespace.  Cannot be changed while quota is reserved."""
    priority_class_ref: PriorityClassRef | None = None
    """Class that the priority comes from."""
    priority: Int32 | None = None
    """Higher goes first; absent means 0."""
    active: Bool = True
    """False takes the workload out of the queue, and stops it if it runs."""
    maximum_execution_time_seconds: PositiveCount | None = None
    """How long it may run, over all its starts; it is deactivated then.  Absent means no limit."""
    preemption_gates: Annotated[tuple[PreemptionGate, ...], Field(max_length=8), keyed("name")] = ()
    """Gates that must be open before others are preempted for this workload."""


class IndividualValues(ApiModel):
    """One value per domain: prefix, root and suffix put together."""

    prefix: LevelValue | None = None
    """Start of every value."""
    suffix: LevelValue | None = None
    """End of every value."""
    roots: Annotated[tuple[LevelValue, ...], Field(min_length=1, max_length=100_000), ATOMIC]
    """Middle of each value, one per domain."""


class LevelValues(ApiModel):
    """Values of one level: exactly one of the two."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.universal) != has(self.individual)",
            message="exactly one of universal and individual must be set",
            holds=lambda v: (v.universal is None) != (v.individual is None),
        ),
    )
    universal: LevelValue | None = None
    """Value of all domains of the slice."""
    individual: IndividualValues | None = None
    """Value of each domain."""


class PodCounts(ApiModel):
    """Pods per domain: exactly one of the two."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.universal) != has(self.individual)",
            message="exactly one of universal and individual must be set",
            holds=lambda c: (c.universal is None) != (c.individual is None),
        ),
    )
    universal: PositiveCount | None = None
    """Pods in every domain of the slice."""
    individual: Annotated[tuple[PositiveCount, ...], Field(min_length=1, max_length=100_000), ATOMIC] | None = None
    """Pods in each domain."""


class TopologySlice(ApiModel):
    """Some domains of an assignment, stored by column."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            message="individual.roots must have domainCount entries",
            holds=lambda s: all(
                v.individual is None or len(v.individual.roots) == s.domain_count for v in s.values_per_level
            ),
        ),
        Rule(
            cel="!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            message="podCounts.individual must have domainCount entries",
            holds=lambda s: s.pod_counts.individual is None or len(s.pod_counts.individual) == s.domain_count,
        ),
    )
    domain_count: PositiveCount
    """Number of domains in this slice."""
    values_per_level: Annotated[tuple[LevelValues, ...], Field(min_length=1, max_length=16), ATOMIC]
    """Values of the domains, one entry per level."""
    pod_counts: PodCounts
    """Pods in the domains."""


class TopologyAssignment(ApiModel):
    """Which domains hold the pods, in a compressed form.  The whole is the union of the slices, in order."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            message="every slice needs one entry of valuesPerLevel per level",
            holds=lambda a: all(len(s.values_per_level) == len(a.levels) for s in a.slices),
        ),
    )
    levels: Annotated[tuple[NodeLevel, ...], Field(min_length=1, max_length=16), ATOMIC]
    """Node label keys, the widest first; the host name alone where the topology reaches down to hosts."""
    slices: Annotated[tuple[TopologySlice, ...], Field(max_length=1000), ATOMIC]
    """Domains with their pods."""


class PodSetAssignment(ApiModel):
    """Assignment of one pod set."""

    name: PodSetName = "main"
    """Pod set."""
    flavors: Mapping[str, ObjectName] = {}
    """Flavor of each resource."""
    resource_usage: Mapping[str, Quantity] = {}
    """Quota of all pods of the set together, as charged at admission."""
    count: Count | None = None
    """Pods at admission; absent means the pod set's count."""
    topology_assignment: TopologyAssignment | None = None
    """Domains of the pods; absent without topology."""
    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Whether placement waits for admission checks."""


class Admission(ApiModel):
    """The ClusterQueue whose quota is reserved, and the assignment of each pod set."""

    cluster_queue: ObjectName
    """ClusterQueue that holds the reservation."""
    pod_set_assignments: Annotated[tuple[PodSetAssignment, ...], Field(max_length=18), keyed("name")] = ()
    """Assignment of each pod set."""


class RequeueState(ApiModel):
    """How often the workload was put back, and until when it waits."""

    count: Count | None = None
    """How often it was put back after not becoming ready in time."""
    requeue_at: Time | None = None
    """When it is queued again."""


class ReclaimablePod(ApiModel):
    """Pods that have ended and need no quota any more."""

    name: PodSetName
    """Pod set."""
    count: Count
    """Number of such pods."""


class FinishedPods(ApiModel):
    """Places in which no pod of the present admission will run any more."""

    name: PodSetName
    """Pod set."""
    topology_assignment: TopologyAssignment
    """The part of its assignment that is given back."""


class PodSetUpdate(ApiModel):
    """Additions of an admission check to the pods of one pod set."""

    name: PodSetName
    """Pod set."""
    labels: Mapping[str, str] = {}
    """Labels to add."""
    annotations: Mapping[str, str] = {}
    """Annotations to add."""
    node_selector: Mapping[str, str] = {}
    """Node selector entries to add."""
    tolerations: Tolerations = ()
    """Tolerations to add."""


class AdmissionCheckState(ApiModel):
    """Answer of one check."""

    name: CheckName
    """AdmissionCheck."""
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """Ready lets the workload start; Retry evicts it and tries again; Rejected deactivates it."""
    last_transition_time: Time
    """Since when the state is what it is."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, for people.  May be empty."""
    requeue_after_seconds: Count | None = None
    """How long to wait before the next try, with Retry."""
    retry_count: Count | None = None
    """How often the check asked for another try."""
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], Field(max_length=18), ATOMIC] = ()
    """Additions of the check to the pods."""


class PodSetRequests(ApiModel):
    """Total requests of one pod set."""

    name: PodSetName
    """Pod set."""
    resources: Mapping[str, Quantity] = {}
    """Amount of each resource, after all transformations."""


class EvictionCount(ApiModel):
    """How often the workload was evicted for one reason."""

    reason: Annotated[str, Field(max_length=316)]
    """Reason of the eviction."""
    underlying_cause: Annotated[str, Field(max_length=316)]
    """The underlying cause of the reason; may be empty."""
    count: Count
    """Number of evictions."""


class SchedulingStats(ApiModel):
    """Statistics of the workload."""

    evictions: Annotated[tuple[EvictionCount, ...], Field(max_length=256), keyed("reason", "underlyingCause")] = ()
    """Evictions by reason and cause."""


class UnhealthyNode(ApiModel):
    """A failed node that is being replaced."""

    name: Annotated[str, Field(max_length=63)]
    """Node."""


class NodeFailures(ApiModel):
    """How often the workload failed on one node lately."""

    name: Annotated[str, Field(max_length=63)]
    """Host name label of the node."""
    count: Count
    """Number of failures."""
    last_failure_time: Time
    """When it failed there last."""


class PreemptionGateState(ApiModel):
    """Whether a gate is open."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Gate."""
    position: Literal["Closed", "Open"]
    """Whether others may be preempted."""
    last_transition_time: Time
    """Since when."""


class WorkloadStatus(ApiModel):
    """Decisions on the workload, and its progress."""

    rules = (
        Rule(
            cel="!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
            message="nominatedClusterNames must be empty when clusterName is set",
            holds=lambda s: s.cluster_name is None or not s.nominated_cluster_names,
        ),
        Rule(
            cel="!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
            message="clusterName cannot change once it is set",
        ),
    )
    conditions: Conditions = ()
    """Where the workload is and why: QuotaReserved, Admitted, PodsReady, Evicted, Finished and others."""
    admission: Admission | None = None
    """Quota and domains that the workload holds; absent while it waits."""
    requeue_state: RequeueState | None = None
    """How often the workload was put back, and until when it waits."""
    reclaimable_pods: Annotated[tuple[ReclaimablePod, ...], Field(max_length=18), keyed("name")] = ()
    """Finished pods whose quota is already released."""
    finished_pods: Annotated[tuple[FinishedPods, ...], Field(max_length=18), keyed("name")] = ()
    """Places that were given back early because the pods there have ended."""
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], Field(max_length=8), keyed("name")] = ()
    """Answers of the admission checks."""
    resource_requests: Annotated[tuple[PodSetRequests, ...], Field(max_length=18), keyed("name")] = ()
    """Total requests of the workload; only while it waits."""
    accumulated_past_execution_time_seconds: Int32 | None = None
    """How long the workload ran in earlier admissions."""
    scheduling_stats: SchedulingStats | None = None
    """Statistics of the workload."""
    nominated_cluster_names: Annotated[
        tuple[Annotated[str, Field(max_length=256)], ...], Field(max_length=20), ATOMIC
    ] = ()
    """Clusters that may run the workload, when it is sent to another one."""
    cluster_name: Annotated[str, Field(max_length=256)] | None = None
    """Cluster that runs the workload, when it was sent to another one."""
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], Field(max_length=8), keyed("name")] = ()
    """Failed nodes that are being replaced."""
    node_failures: Annotated[tuple[NodeFailures, ...], Field(max_length=16), keyed("name")] = ()
    """Nodes that it failed on; one on which it did so repeatedly is avoided for it, while that is possible."""
    preemption_gates: Annotated[tuple[PreemptionGateState, ...], Field(max_length=8), keyed("name")] = ()
    """Whether each gate is open; one that is missing here is closed."""


def quota_is_reserved(which: str) -> str:
    """Return an expression for rules: `self` or `oldSelf` holds a reservation."""
    return (
        f"has({which}.status) && has({which}.status.conditions) && "
        f"{which}.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
    )


def _admitted(which: str) -> str:
    return (
        f"has({which}.status) && has({which}.status.conditions) && "
        f"{which}.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')"
    )


class Workload(Resource):
    """One job as the queue sees it: what it asks for, and what was decided.  It starts as a whole or not at all."""

    rules = (
        Rule(
            cel=f"!({quota_is_reserved('self')}) || !has(self.status.admission) || !has(self.spec) || "
            "!has(self.spec.podSets) || !has(self.status.admission.podSetAssignments) || "
            "size(self.spec.podSets) == size(self.status.admission.podSetAssignments)",
            message="the admission must have one assignment per pod set",
        ),
        Rule(
            cel=f"!({quota_is_reserved('oldSelf')}) || !({quota_is_reserved('self')}) || "
            "(has(oldSelf.spec.queueName) == has(self.spec.queueName) && "
            "(!has(self.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName))",
            message="queueName cannot change while quota is reserved",
            field=".spec.queueName",
        ),
        Rule(
            cel=f"!({quota_is_reserved('oldSelf')}) || "
            "has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef)",
            message="priorityClassRef cannot be added or removed while quota is reserved",
        ),
        Rule(
            cel=f"!({quota_is_reserved('oldSelf')}) || !has(oldSelf.spec.priorityClassRef) || "
            "!has(self.spec.priorityClassRef) || "
            "(oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group && "
            "oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind && "
            "(oldSelf.spec.priorityClassRef.kind != 'PriorityClass' || "
            "oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name))",
            message="while quota is reserved only the name of a WorkloadPriorityClass may change",
        ),
        Rule(
            cel=f"!({_admitted('oldSelf')}) || !({_admitted('self')}) || "
            "(has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0) == "
            "(has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0)",
            message="maximumExecutionTimeSeconds cannot change while the workload is admitted",
        ),
    )
    served: ClassVar = Served(
        plural="workloads",
        namespaced=True,
        short_names=("kwl", "kueueworkload", "kueueworkloads"),
        columns=(
            Column(name="Queue", path=".spec.queueName", description="LocalQueue"),
            Column(name="Reserved in", path=".status.admission.clusterQueue", description="ClusterQueue that holds it"),
            Column(
                name="Admitted",
                path=".status.conditions[?(@.type=='Admitted')].status",
                description="Whether it may run",
            ),
            Column(
                name="Finished",
                path=".status.conditions[?(@.type=='Finished')].status",
                description="Whether it has ended",
            ),
            Column(name="Age", path=".metadata.creationTimestamp", type="date", description="Since its creation"),
        ),
        selectable_fields=(".status.admission.clusterQueue",),
    )
    kind: str = "Workload"
    """Kind of the object."""
    spec: WorkloadSpec = WorkloadSpec()
    """Requested resources and rules."""
    status: WorkloadStatus = WorkloadStatus()
    """Decisions on the workload, and its progress."""


def template_of(pod_set: PodSet) -> dict[str, Any]:
    """Return a pod set's template as JSON."""
    return dict(pod_set.template.model_extra or {})
