"""The names of Kueue's API, and kqueue's own, that users and other programs depend on, exactly as they are on the wire.

`kqueue.kube.names` has the names of Kubernetes itself and of JobSet.

The suffix says what a constant names: `_LABEL`, `_ANNOTATION`, `_GATE` (scheduling gate of a pod), `_FINALIZER`,
`_FIELD_MANAGER`, `_CONTROLLER`; the prefix `CONDITION_` marks condition types, `REASON_` the reasons of conditions (one
constant per text, whatever conditions use it), and `EVENT_` the reasons of events.
"""

from __future__ import annotations

from typing import Final

# ---- Groups, versions, kinds -----------------------------------------------------------------------------------------

GROUP: Final = "kueue.x-k8s.io"
"""API group of our kinds, and the prefix of most labels and annotations."""
VERSION: Final = "v1beta2"
"""The one version that is stored and served."""
API_VERSION: Final = "kueue.x-k8s.io/v1beta2"
"""`apiVersion` of our objects."""
VISIBILITY_GROUP: Final = "visibility.kueue.x-k8s.io"
"""Aggregated API group that lists pending workloads."""
KQUEUE_GROUP: Final = "kqueue.dev"
"""API group of kinds without a counterpart in the compatible API."""
KQUEUE_VISIBILITY_GROUP: Final = "visibility.kqueue.dev"
"""Aggregated API group that explains and sums up."""

WORKLOAD_KIND: Final = "Workload"
"""Kind of the queued unit of work."""
CLUSTER_QUEUE_KIND: Final = "ClusterQueue"
"""Kind of a tenant's quota and rules."""
LOCAL_QUEUE_KIND: Final = "LocalQueue"
"""Kind of the door to a ClusterQueue in one namespace."""
COHORT_KIND: Final = "Cohort"
"""Kind of a group of ClusterQueues that lend to each other."""
RESOURCE_FLAVOR_KIND: Final = "ResourceFlavor"
"""Kind of a class of nodes."""
TOPOLOGY_KIND: Final = "Topology"
"""Kind of a hierarchy of node labels."""
ADMISSION_CHECK_KIND: Final = "AdmissionCheck"
"""Kind of a condition that another controller must confirm."""
WORKLOAD_PRIORITY_CLASS_KIND: Final = "WorkloadPriorityClass"
"""Kind of a named queueing priority."""
PROVISIONING_REQUEST_CONFIG_KIND: Final = "ProvisioningRequestConfig"
"""Kind that tunes the provisioning check."""
MULTIKUEUE_CONFIG_KIND: Final = "MultiKueueConfig"
"""Kind that lists worker clusters."""
MULTIKUEUE_CLUSTER_KIND: Final = "MultiKueueCluster"
"""Kind that says how to reach one worker cluster."""

# ---- Labels ----------------------------------------------------------------------------------------------------------

QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""On jobs and pods: LocalQueue to use."""
PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
"""On jobs and pods: WorkloadPriorityClass to use."""
MAX_EXEC_TIME_SECONDS_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""On jobs: limit of the time spent admitted, in seconds."""
PREBUILT_WORKLOAD_NAME_LABEL: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""On jobs and pods: existing Workload to use (the annotation of the same key wins)."""
JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
"""On Workloads: UID of the owning job."""
MANAGED_LABEL: Final = "kueue.x-k8s.io/managed"
"""On pods, ProvisioningRequests and PodTemplates: "true" where we manage the object."""
PODSET_LABEL: Final = "kueue.x-k8s.io/podset"
"""On pods: name of the pod set that they belong to."""
CLUSTER_QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/cluster-queue-name"
"""On pods: ClusterQueue that admitted them."""
LOCAL_QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/local-queue-name"
"""On pods: LocalQueue that they came through."""
POD_GROUP_NAME_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
"""On pods: group that they form (the annotation of the same key wins)."""
POD_GROUP_POD_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index"
"""On pods: rank inside the pod group."""
MULTIKUEUE_ORIGIN_LABEL: Final = "kueue.x-k8s.io/multikueue-origin"
"""On remote objects: the manager that created them."""
MULTIKUEUE_WORKER_WORKLOAD_POD_LABEL: Final = "kueue.x-k8s.io/multikueue-worker-workload-pod"
"""On pods of worker clusters: "true" where they run for a manager."""

# ---- Annotations -----------------------------------------------------------------------------------------------------

WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/workload"
"""On pods: name of their Workload."""
PREBUILT_WORKLOAD_NAME_ANNOTATION: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""On jobs and pods: existing Workload to use."""
ADMISSION_GATED_BY_ANNOTATION: Final = "kueue.x-k8s.io/admission-gated-by"
"""On jobs and Workloads: comma separated gates that block queueing."""
PRIORITY_BOOST_ANNOTATION: Final = "kueue.x-k8s.io/priority-boost"
"""On Workloads: signed 32-bit integer added to the priority."""
ELASTIC_JOB_ANNOTATION: Final = "kueue.x-k8s.io/elastic-job"
"""On jobs and Workloads: "true" switches workload slices on."""
WORKLOAD_SLICE_NAME_ANNOTATION: Final = "kueue.x-k8s.io/workload-slice-name"
"""On Workloads and pods: first slice of the chain."""
WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
"""On Workloads: namespace/name of the slice that this one replaces."""
JOB_MIN_PARALLELISM_ANNOTATION: Final = "kueue.x-k8s.io/job-min-parallelism"
"""On batch Jobs: smallest parallelism that partial admission may choose."""
JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""On batch Jobs: keep completions equal to parallelism when it is reduced."""
STOPPING_ANNOTATION: Final = "kueue.x-k8s.io/stopping"
"""On batch Jobs: a stop is in progress."""
JOB_OWNER_GVK_ANNOTATION: Final = "kueue.x-k8s.io/job-owner-gvk"
"""On Workloads of composed owners: group, version and kind of the owner."""
JOB_OWNER_NAME_ANNOTATION: Final = "kueue.x-k8s.io/job-owner-name"
"""On Workloads of composed owners: name of the owner."""
IS_GROUP_WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/is-group-workload"
"""On Workloads: "true" for a pod group."""
POD_GROUP_NAME_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-name"
"""On pods: group that they form."""
POD_GROUP_TOTAL_COUNT_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-total-count"
"""On pods: number of pods in their group."""
POD_GROUP_FAST_ADMISSION_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
"""On pods: "true" queues the group before all of its pods exist."""
POD_GROUP_SERVING_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-serving"
"""On pods: "true" for a group that never finishes."""
POD_GROUP_POD_INDEX_LABEL_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
"""On pods: name of the label that holds the rank inside the group."""
RETRIABLE_IN_GROUP_ANNOTATION: Final = "kueue.x-k8s.io/retriable-in-group"
"""On pods: "false" lets the group end although not all of its pods succeeded."""
ROLE_HASH_ANNOTATION: Final = "kueue.x-k8s.io/role-hash"
"""On pods of a group: which pod set they belong to."""
POD_SUSPENDING_PARENT_ANNOTATION: Final = "kueue.x-k8s.io/pod-suspending-parent"
"""On pods: framework name of the parent that asks for the gate."""
CONSUME_PROVISIONING_REQUEST_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
"""On pods: the ProvisioningRequest whose capacity they take."""
PROVISIONING_CLASS_NAME_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""On pods: the class of that ProvisioningRequest."""
CHECKED_POD_ANNOTATIONS: Final = (CONSUME_PROVISIONING_REQUEST_ANNOTATION, PROVISIONING_CLASS_NAME_ANNOTATION)
"""Fields that admission checks may set on existing pods."""
PROVISIONING_REQUEST_ANNOTATION_PREFIX: Final = "provreq.kueue.x-k8s.io/"
"""On jobs and Workloads: the rest of the key is a ProvisioningRequest parameter."""

# Topology request, on pod templates.

REQUIRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-required-topology"
"""All pods inside one domain of this level."""
PREFERRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-preferred-topology"
"""All pods inside one domain of this level, else as close as possible."""
UNCONSTRAINED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
"""Boolean text: any nodes, but counted exactly."""
SLICE_REQUIRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-required-topology"
"""Every slice inside one domain of this level."""
SLICE_SIZE_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-size"
"""Pods per slice."""
SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
"""JSON list of slice layers, coarse to fine."""
PODSET_GROUP_NAME_ANNOTATION: Final = "kueue.x-k8s.io/podset-group-name"
"""Pod sets of the same name get one flavor and one domain."""
POD_INDEX_OFFSET_ANNOTATION: Final = "kueue.x-k8s.io/pod-index-offset"
"""First rank of the template's pods."""
TOPOLOGY_MARKER_ANNOTATIONS: Final = frozenset(
    {
        REQUIRED_TOPOLOGY_ANNOTATION,
        PREFERRED_TOPOLOGY_ANNOTATION,
        UNCONSTRAINED_TOPOLOGY_ANNOTATION,
        SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
        SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION,
    }
)
"""A pod that carries any of these, whatever its value, is placed by topology."""

# Names of the first design, accepted where they can be read.

REQUIRE_TOPOLOGY_ALIAS_ANNOTATION: Final = "kueue.x-k8s.io/require-topology"
"""Alias of the required topology, on the template or the job."""
PREFER_TOPOLOGY_ALIAS_ANNOTATION: Final = "kueue.x-k8s.io/prefer-topology"
"""Alias of the preferred topology, on the template or the job."""
TOPOLOGY_WORKLOAD_ALIAS_ANNOTATION: Final = "kueue.x-k8s.io/topology-workload"
"""Alias of the workload annotation of pods."""
TOPOLOGY_PODSET_ALIAS_ANNOTATION: Final = "kueue.x-k8s.io/topology-podset"
"""Alias of the pod set label of pods, as an annotation."""
TOPOLOGY_ANNOTATIONS: Final = TOPOLOGY_MARKER_ANNOTATIONS | {
    SLICE_SIZE_ANNOTATION,
    PODSET_GROUP_NAME_ANNOTATION,
    REQUIRE_TOPOLOGY_ALIAS_ANNOTATION,
    PREFER_TOPOLOGY_ALIAS_ANNOTATION,
}
"""All annotations of a topology request; a template without any of them has no request."""
AUTO_TOPOLOGY: Final = "auto"
"""Value of a preferred topology that means the narrowest level."""

# ---- Scheduling gates, preemption gates, finalizers ------------------------------------------------------------------

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
"""The pod waits for its Workload's admission."""
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
"""The pod waits for the node selector of its domain."""
ELASTIC_JOB_GATE: Final = "kueue.x-k8s.io/elastic-job"
"""The pod waits for the admission of its slice."""
RESOURCE_IN_USE_FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
"""On Workloads, ClusterQueues, flavors, checks and Topologies while something depends on them."""
MANAGED_POD_FINALIZER: Final = "kueue.x-k8s.io/managed"
"""On pods that are queued one by one or as a group."""

# ---- Names of ours alone ---------------------------------------------------------------------------------------------

JOB_PARALLELISM_ANNOTATION: Final = "kqueue.dev/parallelism"
"""On a Job that was started with fewer pods: the parallelism that its user wrote, where it is above the completions."""
PLACEMENT_PROFILE_ANNOTATION: Final = "kqueue.dev/placement-profile"
"""On ClusterQueues, and on jobs and Workloads, where it wins: how domains are chosen, BestFit (as it comes),
LeastFreeCapacity, balanced, optimal, or the name of an installed placer."""
PLACEMENT_PROFILES: Final = ("BestFit", "LeastFreeCapacity", "optimal", "balanced")
"""Allowed values of that annotation."""
GANG_ANNOTATION: Final = "kqueue.dev/gang"
"""On Workloads of gangs in other dialects than Kueue's: FRAMEWORK:NAME, the dialect and the gang's name."""
EXTRA_ANNOTATION: Final = "kqueue.dev/extra"
"""On pods of gangs, written by kqueue: "true" where the pod is beyond the quorum and is queued alone."""
MINIMUM_RUNTIME_ANNOTATION: Final = "kqueue.dev/minimum-runtime"
"""On ClusterQueues: for how long an admitted workload is safe from preemption, a duration such as 10m."""
TRY_AGAIN_ANNOTATION: Final = "kqueue.dev/try-again"
"""On Workloads in quarantine: any value that it did not have before lets kqueue try them again."""


# ---- Default names ---------------------------------------------------------------------------------------------------

DEFAULT_LOCAL_QUEUE: Final = "default"
"""LocalQueue that unlabelled jobs get where it exists."""
DEFAULT_WORKLOAD_PRIORITY_CLASS: Final = "default"
"""WorkloadPriorityClass that unlabelled jobs get where it exists."""
DEFAULT_PODSET: Final = "main"
"""Pod set of jobs that have only one."""
MAX_PODSETS: Final = 18
"""Pod sets that one Workload may have."""

# ---- Controllers, dispatchers, field managers ------------------------------------------------------------------------

MULTIKUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""Check controller, and `managedBy`, of jobs that run in worker clusters."""
PROVISIONING_REQUEST_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
"""Check controller that asks for new nodes."""

KUEUE_FIELD_MANAGER: Final = "kueue"
"""Field manager of writes to jobs and pods."""
WORKLOAD_EVENT_CONTROLLER: Final = "kueue-workload-controller"
"""`reportingController` of the workload reconciler's events."""
JOB_EVENT_CONTROLLER_SUFFIX: Final = "-kueue-controller"
"""`reportingController` of a job reconciler's events, after the framework's name."""

# ---- Condition types -------------------------------------------------------------------------------------------------

CONDITION_QUOTA_RESERVED: Final = "QuotaReserved"
"""Workload: quota is set aside for it."""
CONDITION_ADMITTED: Final = "Admitted"
"""Workload: quota is reserved, all checks are ready, all pods are placed; it may start."""
CONDITION_FINISHED: Final = "Finished"
"""Workload: its job has ended."""
CONDITION_PODS_READY: Final = "PodsReady"
"""Workload: all pods are ready or have succeeded."""
CONDITION_EVICTED: Final = "Evicted"
"""Workload: it must stop and give its quota back."""
CONDITION_PREEMPTED: Final = "Preempted"
"""Workload: it was evicted to make room."""
CONDITION_REQUEUED: Final = "Requeued"
"""Workload: after an eviction, whether it is back in its queue."""
CONDITION_DEACTIVATION_TARGET: Final = "DeactivationTarget"
"""Workload: we are about to deactivate it, and why."""
CONDITION_BLOCKED_ON_PREEMPTION_GATES: Final = "BlockedOnPreemptionGates"
"""Workload: it needs preemption, and a gate is closed."""
CONDITION_WAITING_FOR_REPLACEMENT_PODS: Final = "WaitingForReplacementPods"
"""Workload of a pod group: pods have failed and wait to be replaced."""
CONDITION_ACTIVE: Final = "Active"
"""ClusterQueue, LocalQueue, AdmissionCheck, MultiKueueCluster: it can be used."""
CONDITION_CONTROLLER_MISSING: Final = "ControllerMissing"
"""AdmissionCheck: its controller has not set Active, so ClusterQueues with this check admit nothing; kqueue's own."""
CONDITION_POD_TERMINATION_TARGET: Final = "TerminationTarget"
"""Pod: we are about to delete it, and why."""


# ---- Reasons of conditions -------------------------------------------------------------------------------------------
# QuotaReserved

REASON_QUOTA_RESERVED: Final = "QuotaReserved"
"""Quota was reserved; on Evicted, Preempted and others: the next reservation ended that state."""
REASON_NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
"""No flavor suits the pods: taints, node rules, or a missing resource."""
REASON_WAITING_FOR_QUOTA: Final = "WaitingForQuota"
"""It would fit if others used less."""
REASON_EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
"""It asks for more than its queue can ever have."""
REASON_TOPOLOGY_PLACEMENT_FAILED: Final = "TopologyPlacementFailed"
"""No set of domains can hold it, even on an empty cluster."""
REASON_WAITING_FOR_PREEMPTED_WORKLOADS: Final = "WaitingForPreemptedWorkloads"
"""It waits until its victims have stopped."""
REASON_MISCONFIGURED: Final = "Misconfigured"
"""Its queue, namespace, limits or requests are wrong; a user must change them."""
REASON_SUSPENDED: Final = "Suspended"
"""Its queue is stopped or inactive."""
REASON_PENDING_EVALUATION: Final = "PendingEvaluation"
"""It was not tried yet, or will be tried again."""
REASON_WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"
"""Admission is held back until the pods of earlier workloads are ready."""
REASON_ADMISSION_GATED: Final = "AdmissionGated"
"""An annotation or a preemption gate holds it back."""
REASON_QUARANTINED: Final = "Quarantined"
"""Planning it failed twice on a bug of ours; it is left alone until it changes."""
REASON_ON_HOLD: Final = "OnHold"
"""Its quota was released on purpose; its owner will ask for it again."""
REASON_DEACTIVATED: Final = "Deactivated"
"""Its `spec.active` is false; on Evicted: a user did it."""
REASON_PENDING: Final = "Pending"
"""Catch-all while detailed reasons are switched off."""
REASON_INADMISSIBLE: Final = "Inadmissible"
"""Queue problems while detailed reasons are switched off; on Requeued: its device claims are refused."""
REASON_WAITING: Final = "Waiting"
"""Waiting for pods of earlier workloads while detailed reasons are switched off."""

# Admitted

REASON_ADMITTED: Final = "Admitted"
"""It may start."""
REASON_NO_RESERVATION: Final = "NoReservation"
"""It has no quota."""
REASON_UNSATISFIED_ADMISSION_CHECKS: Final = "UnsatisfiedAdmissionChecks"
"""It has quota, and a check is not ready."""

# Finished

REASON_SUCCEEDED: Final = "Succeeded"
"""The job succeeded."""
REASON_FAILED: Final = "Failed"
"""The job failed."""
REASON_OUT_OF_SYNC: Final = "OutOfSync"
"""The job does not match its prebuilt Workload."""
REASON_OWNER_NOT_FOUND: Final = "OwnerNotFound"
"""The job is gone."""
REASON_FAILED_TO_START: Final = "FailedToStart"
"""The job could not be started and never will be."""
REASON_WORKLOAD_SLICE_REPLACED: Final = "WorkloadSliceReplaced"
"""A newer slice took over."""

# PodsReady

REASON_STARTED: Final = "Started"
"""All pods became ready for the first time."""
REASON_RECOVERED: Final = "Recovered"
"""All pods are ready again."""
REASON_WAIT_FOR_START: Final = "WaitForStart"
"""Not all pods have been ready yet."""
REASON_WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
"""A pod stopped being ready."""

# Evicted

REASON_PREEMPTED: Final = "Preempted"
"""It made room for another workload."""
REASON_PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
"""Its pods were not ready in time."""
REASON_ADMISSION_CHECK: Final = "AdmissionCheck"
"""A check asked for a retry or refused; on DeactivationTarget: it refused."""
REASON_CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
"""Its ClusterQueue is drained."""
REASON_LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
"""Its LocalQueue is drained."""
REASON_NODE_FAILURES: Final = "NodeFailures"
"""Nodes failed and could not be replaced."""
DEACTIVATED_DUE_TO_PREFIX: Final = "DeactivatedDueTo"
"""Evicted by a deactivation of ours; the reason of DeactivationTarget follows."""
REASON_DEACTIVATED_DUE_TO_ADMISSION_CHECK: Final = "DeactivatedDueToAdmissionCheck"
"""A check refused it."""
REASON_DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED: Final = "DeactivatedDueToMaximumExecutionTimeExceeded"
"""It used up its execution time."""
REASON_DEACTIVATED_DUE_TO_REQUEUING_LIMIT_EXCEEDED: Final = "DeactivatedDueToRequeuingLimitExceeded"
"""It was requeued too often."""
REASON_DEACTIVATED_DUE_TO_RECREATED_TOO_OFTEN: Final = "DeactivatedDueToRecreatedTooOften"
"""It was deleted and recreated too often; kqueue's own."""

# Preempted

REASON_IN_CLUSTER_QUEUE: Final = "InClusterQueue"
"""For a workload of the same ClusterQueue."""
REASON_IN_COHORT_RECLAMATION: Final = "InCohortReclamation"
"""The cohort took lent quota back."""
REASON_IN_COHORT_FAIR_SHARING: Final = "InCohortFairSharing"
"""Fair sharing moved quota to another queue."""
REASON_IN_COHORT_RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
"""The cohort took lent quota back for a borrower of higher priority."""

# Requeued

REASON_REACTIVATED: Final = "Reactivated"
"""Its `spec.active` is true again."""
REASON_BACKOFF_FINISHED: Final = "BackoffFinished"
"""Its waiting time is over."""
REASON_CLUSTER_QUEUE_RESTARTED: Final = "ClusterQueueRestarted"
"""Its ClusterQueue runs again."""
REASON_LOCAL_QUEUE_RESTARTED: Final = "LocalQueueRestarted"
"""Its LocalQueue runs again."""

# DeactivationTarget (with AdmissionCheck above)

REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED: Final = "MaximumExecutionTimeExceeded"
"""It used up its execution time."""
REASON_REQUEUING_LIMIT_EXCEEDED: Final = "RequeuingLimitExceeded"
"""It was requeued too often."""
REASON_RECREATED_TOO_OFTEN: Final = "RecreatedTooOften"
"""It was deleted and recreated too often, because it never matched its job; kqueue's own."""

# BlockedOnPreemptionGates, WaitingForReplacementPods

REASON_PREEMPTION_GATED: Final = "PreemptionGated"
"""A preemption gate is closed."""
REASON_PODS_FAILED: Final = "PodsFailed"
"""Pods of the group have failed."""
REASON_PODS_READY: Final = "PodsReady"
"""All pods of the group exist again."""

# Active, of queues, checks and clusters

REASON_READY: Final = "Ready"
"""The queue admits workloads."""
REASON_TERMINATING: Final = "Terminating"
"""The ClusterQueue is being deleted."""
REASON_STOPPED: Final = "Stopped"
"""Its stopPolicy is set."""
REASON_FLAVOR_NOT_FOUND: Final = "FlavorNotFound"
"""A flavor that it names does not exist."""
REASON_ADMISSION_CHECK_NOT_FOUND: Final = "AdmissionCheckNotFound"
"""A check that it names does not exist."""
REASON_ADMISSION_CHECK_INACTIVE: Final = "AdmissionCheckInactive"
"""A check that it names is not active."""
REASON_MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS: Final = "MultipleMultiKueueAdmissionChecks"
"""It names more than one MultiKueue check."""
REASON_MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR: Final = "MultiKueueAdmissionCheckAppliedPerFlavor"
"""Its MultiKueue check is restricted to flavors."""
REASON_MULTIKUEUE_WITH_PROVISIONING_REQUEST: Final = "MultiKueueWithProvisioningRequest"
"""It names a MultiKueue check and a provisioning check."""
REASON_TOPOLOGY_NOT_FOUND: Final = "TopologyNotFound"
"""A Topology that one of its flavors names does not exist."""
REASON_UNKNOWN: Final = "Unknown"
"""The ClusterQueue is not usable yet, without a known problem."""
REASON_CLUSTER_QUEUE_DOES_NOT_EXIST: Final = "ClusterQueueDoesNotExist"
"""The LocalQueue's ClusterQueue does not exist."""
REASON_CLUSTER_QUEUE_IS_INACTIVE: Final = "ClusterQueueIsInactive"
"""The LocalQueue's ClusterQueue is not active."""
REASON_NOT_ACTIVATED: Final = "NotActivated"
"""On ControllerMissing: the check's controller has not set Active; kqueue's own."""

# TerminationTarget, of pods

REASON_WORKLOAD_DELETED: Final = "WorkloadDeleted"
"""The job was stopped because its Workload is being deleted."""
REASON_WORKLOAD_EVICTED: Final = "WorkloadEvicted"
"""The job was stopped because its Workload was evicted."""
WORKLOAD_EVICTED_DUE_TO_PREFIX: Final = "WorkloadEvictedDueTo"
"""As WorkloadEvicted, on pods; the eviction's reason follows."""
REASON_NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
"""The job was stopped because no Workload matches it."""
REASON_NOT_ADMITTED: Final = "NotAdmitted"
"""The job was stopped because it ran without admission."""

# ---- Values of fields ------------------------------------------------------------------------------------------------

CHECK_PENDING: Final = "Pending"
"""Admission check state: no answer yet."""
CHECK_READY: Final = "Ready"
"""Admission check state: the workload may go on."""
CHECK_RETRY: Final = "Retry"
"""Admission check state: release the quota and try again later."""
CHECK_REJECTED: Final = "Rejected"
"""Admission check state: never."""
STOP_NONE: Final = "None"
"""stopPolicy: the queue runs."""
STOP_HOLD: Final = "Hold"
"""stopPolicy: nothing new is admitted."""
STOP_HOLD_AND_DRAIN: Final = "HoldAndDrain"
"""stopPolicy: nothing new is admitted, and what runs is evicted."""
STRATEGY_BEST_EFFORT_FIFO: Final = "BestEffortFIFO"
"""queueingStrategy: what cannot start now does not block what can."""
STRATEGY_STRICT_FIFO: Final = "StrictFIFO"
"""queueingStrategy: the head of the queue blocks the rest."""
GATE_CLOSED: Final = "Closed"
"""Preemption gate position: preemption is not allowed."""
GATE_OPEN: Final = "Open"
"""Preemption gate position: preemption is allowed."""


# ---- Reasons of events -----------------------------------------------------------------------------------------------
# On Workloads; a failed attempt uses the reason of QuotaReserved=False.

EVENT_QUOTA_RESERVED: Final = "QuotaReserved"
"""Normal: quota was reserved."""
EVENT_ADMITTED: Final = "Admitted"
"""Normal: it may start."""
EVENT_SECOND_PASS_FAILED: Final = "SecondPassFailed"  # noqa: S105 - an event, not a password
"""Warning: its pods could not be placed, or placed again."""
EVENT_PREEMPTED: Final = "Preempted"
"""Normal, on the victim: it made room."""
EVENT_PREEMPTION_LOOP: Final = "PreemptionLoop"
"""On a preemptor: it made the same workloads leave again, without having been admitted in between."""
EVENT_PREEMPTED_WORKLOAD: Final = "PreemptedWorkload"
"""Normal, on the preemptor: the preempted workload."""
EVENT_EVICTED_DUE_TO_PREFIX: Final = "EvictedDueTo"
"""Normal: it was evicted; the reason follows."""
EVENT_WORKLOAD_SLICE_REPLACED: Final = "WorkloadSliceReplaced"
"""Normal, on the old slice."""
EVENT_ADMISSION_CHECK_REJECTED: Final = "AdmissionCheckRejected"
"""Warning: a check refused."""
EVENT_MAXIMUM_EXECUTION_TIME_EXCEEDED: Final = "MaximumExecutionTimeExceeded"
"""Warning: its time is used up."""
EVENT_ADMISSION_GATED: Final = "AdmissionGated"
"""Normal: an annotation holds it back."""
EVENT_ADMISSION_GATE_CLEARED: Final = "AdmissionGateCleared"
"""Normal: the annotation is gone."""
EVENT_ADMISSION_CHECK_RETRY: Final = "AdmissionCheckRetry"
"""Normal: a check asks to be asked again later; until then all stays as it is."""
EVENT_STATUS_RESTORED: Final = "StatusRestored"
"""Warning: another client removed its reservation from its status while it ran."""
EVENT_EVICTION_ENDED: Final = "EvictionEnded"
"""Warning: no other client ended its eviction, so kqueue did."""
EVENT_REQUEUED: Final = "Requeued"
"""Normal: what kept it out of its queue after an eviction is over."""
EVENT_DELETED: Final = "Deleted"
"""Normal: removed because its retention time is over."""
EVENT_OWNER_REFERENCES_ADDED: Final = "OwnerReferencesAdded"
"""Normal: pods of the group were added as owners."""

# On jobs and pods

EVENT_STARTED: Final = "Started"
"""Normal: the job was started."""
EVENT_SUSPENDED: Final = "Suspended"
"""Normal: a child job was suspended."""
EVENT_STOPPED: Final = "Stopped"
"""Normal: the job was stopped."""
EVENT_CREATED_WORKLOAD: Final = "CreatedWorkload"
"""Normal: its Workload was created."""
EVENT_DELETED_WORKLOAD: Final = "DeletedWorkload"
"""Normal: its Workload was deleted."""
EVENT_FINISHED_WORKLOAD: Final = "FinishedWorkload"
"""Normal: its Workload has ended."""
EVENT_UPDATED_WORKLOAD: Final = "UpdatedWorkload"
"""Normal: its Workload follows a change of the job."""
EVENT_UPDATED_ADMISSION_CHECK: Final = "UpdatedAdmissionCheck"
"""Normal: messages of its checks."""
EVENT_ERR_WORKLOAD_COMPOSE: Final = "ErrWorkloadCompose"
"""Warning: the pod group makes no Workload."""
EVENT_JOB_NESTING_TOO_DEEP: Final = "JobNestingTooDeep"
"""Warning: too many owners above it."""
EVENT_WORKLOAD_NAME_CONFLICT: Final = "WorkloadNameConflict"
"""Warning: the pod group's name is taken."""
EVENT_EXCESS_POD_DELETED: Final = "ExcessPodDeleted"
"""Normal: the group has more pods than it said."""
EVENT_RECREATED_TOO_OFTEN: Final = "RecreatedTooOften"
"""Warning, on Workloads: it was deleted and recreated too often, and is deactivated."""
EVENT_STRAY_POD: Final = "StrayPod"
"""Warning, on Workloads: a pod names it, and no job controls the pod."""
EVENT_POD_TERMINATED_BY_KUEUE: Final = "PodTerminatedByKueue"
"""Normal: it must move to another node."""
