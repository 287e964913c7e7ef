"""Names of Kubernetes itself and of JobSet, exactly as they are written in objects.

The suffix says what a constant names: `_LABEL`, `_ANNOTATION`, `_TAINT`, `_RESOURCE`, `_CONTROLLER`, `_GROUP`, `_KIND`;
the prefix `CONDITION_` marks condition types.
"""

from __future__ import annotations

from typing import Final

# ---- Kubernetes: labels ----------------------------------------------------------------------------------------------

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""On nodes: host name; the narrowest level that a topology can have."""
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""On namespaces: their own name."""
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
"""On pods of a batch Job: its name."""
CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
"""On pods of a batch Job: its UID."""
LEGACY_JOB_NAME_LABEL: Final = "job-name"
"""On pods of a batch Job: its name, older key."""
LEGACY_CONTROLLER_UID_LABEL: Final = "controller-uid"
"""On pods of a batch Job: its UID, older key."""
JOB_COMPLETION_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
"""On pods of an indexed Job: their index (also an annotation)."""
STATEFUL_SET_POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
"""On pods of a StatefulSet: their index."""

# ---- Kubernetes: taints ----------------------------------------------------------------------------------------------

NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
"""Taint of nodes that are not ready."""
UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
"""Taint of nodes that do not answer."""
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
"""Taint of cordoned nodes."""

# ---- Kubernetes: condition types -------------------------------------------------------------------------------------

CONDITION_READY: Final = "Ready"
"""Node, Pod: Kubernetes' own condition."""
CONDITION_JOB_COMPLETE: Final = "Complete"
"""Job: it has succeeded."""
CONDITION_JOB_FAILED: Final = "Failed"
"""Job: it has failed."""
CONDITION_JOB_SUSPENDED: Final = "Suspended"
"""Job: it is suspended."""

# ---- Kubernetes: resources, groups, kinds, controllers ---------------------------------------------------------------

PODS_RESOURCE: Final = "pods"
"""Resource name that counts pods; reserved, users cannot request it."""
SCHEDULING_GROUP: Final = "scheduling.k8s.io"
"""API group of PriorityClass."""
PRIORITY_CLASS_KIND: Final = "PriorityClass"
"""Kind of a named pod priority (group `scheduling.k8s.io`)."""
JOB_CONTROLLER: Final = "kubernetes.io/job-controller"
"""`managedBy` of batch Jobs that Kubernetes itself runs."""

# ---- JobSet ----------------------------------------------------------------------------------------------------------

JOBSET_NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
"""On child Jobs and pods of a JobSet: its name."""
JOBSET_JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
"""On pods of a JobSet: index of their replicated job."""
JOBSET_EXCLUSIVE_TOPOLOGY_ANNOTATION: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""On a JobSet or one of its templates: node label in whose domains each child Job is to be alone."""
LWS_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
"""Prefix of the labels and annotations that the controller of LeaderWorkerSets writes."""
LWS_NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
"""On pods of a LeaderWorkerSet: its name."""
LWS_GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
"""On pods of a LeaderWorkerSet: index of their group."""
LWS_WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
"""On pods of a LeaderWorkerSet: index in their group; the leader has 0."""
LWS_LEADER_NAME_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/leader-name"
"""On workers of a LeaderWorkerSet: name of their leader."""
TRAINING_JOB_NAME_LABEL: Final = "training.kubeflow.org/job-name"
"""On pods of Kubeflow's training kinds and of MPIJob: name of the job."""
TRAINING_REPLICA_INDEX_LABEL: Final = "training.kubeflow.org/replica-index"
"""On pods of Kubeflow's training kinds and of MPIJob: index among the pods of their replica type."""
TRAINING_OPERATOR_LABEL: Final = "training.kubeflow.org/operator-name"
"""On pods of Kubeflow's training kinds and of MPIJob: name of the operator that made them."""
MPI_OPERATOR: Final = "mpi-operator"
"""Value of the label with the operator's name on pods of an MPIJob."""
TRAINING_CONTROLLER: Final = "kubeflow.org/training-operator"
"""`managedBy` of training jobs that Kubeflow's own controller runs."""
MPI_CONTROLLER: Final = "kubeflow.org/mpi-operator"
"""`managedBy` of MPIJobs that Kubeflow's own controller runs."""
TRAINER_STEP_LABEL: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On the replicated jobs of a training runtime: the step of a TrainJob that they run."""
TRAINJOB_CONTROLLER: Final = "trainer.kubeflow.org/trainjob-controller"
"""`managedBy` of TrainJobs that Kubeflow's own controller runs."""
RAY_CLUSTER_LABEL: Final = "ray.io/cluster"
"""On pods of a RayCluster: its name."""
RAY_FAULT_TOLERANCE_ANNOTATION: Final = "ray.io/ft-enabled"
"""On a Ray object: `true` lets the head store its state in Redis, as `gcsFaultToleranceOptions` does."""
RAY_CLEANUP_FINALIZER: Final = "ray.io/gcs-ft-redis-cleanup-finalizer"
"""On a RayCluster with fault tolerance: KubeRay removes it once Redis is cleared."""
RAY_CONTROLLER: Final = "ray.io/kuberay-operator"
"""`managedBy` of Ray objects that KubeRay's own operator runs."""
JOBSET_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
"""`managedBy` of JobSets that the JobSet project's own controller runs."""
APPWRAPPER_CONTROLLER: Final = "workload.codeflare.dev/appwrapper-controller"
"""`managedBy` of AppWrappers that the AppWrapper project's own controller runs."""
APPWRAPPER_LABEL: Final = "workload.codeflare.dev/appwrapper"
"""On objects of an AppWrapper and on their pods: its name."""
APPWRAPPER_POD_INDEX_ANNOTATION: Final = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
"""On a pod set of an AppWrapper: the label that numbers its pods."""
APPWRAPPER_SUB_GROUP_INDEX_ANNOTATION: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
"""On a pod set of an AppWrapper: the label that numbers groups of its pods."""
APPWRAPPER_SUB_GROUP_COUNT_ANNOTATION: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-count"
"""On a pod set of an AppWrapper: the number of these groups."""
SPARK_APP_NAME_LABEL: Final = "sparkoperator.k8s.io/app-name"
"""On pods of a SparkApplication: its name."""
