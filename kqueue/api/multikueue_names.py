"""Names of workloads that run on several clusters, beside those in `names`."""

from __future__ import annotations

from typing import Final

ORIGIN_UID_ANNOTATION: Final = "kueue.x-k8s.io/multikueue-origin-uid"
"""On remote objects: UID of the object of the manager of which they are copies."""
REASON_ACTIVE: Final = "Active"
"""Active, MultiKueueCluster and AdmissionCheck: it can be used."""
MANAGER_UID_ANNOTATION: Final = "kqueue.dev/multikueue-manager-uid"
"""On remote objects: UID of the namespace kube-system of the manager's cluster; kqueue's own."""
PREEMPTION_GATE: Final = "kueue.x-k8s.io/multikueue"
"""Preemption gate of copies: one worker cluster after the other may preempt for a workload."""
KUBECONFIG_KEY: Final = "kubeconfig"
"""Key of the data of a Secret that a MultiKueueCluster names."""
EVENT_MULTIKUEUE: Final = "MultiKueue"
"""On the Workload: the check of MultiKueue has another state; a warning when a fault is the cause."""

REASON_EVICTED_ON_MANAGER_CLUSTER: Final = "EvictedOnManagerCluster"
"""DeactivationTarget of a copy: its manager has evicted the workload."""
REASON_SOME_ACTIVE_CLUSTERS: Final = "SomeActiveClusters"
"""Active, AdmissionCheck: some clusters of the config cannot be used."""
REASON_BAD_CONFIG: Final = "BadConfig"
"""Not active, AdmissionCheck: its parameters name no usable MultiKueueConfig."""
REASON_NO_USABLE_CLUSTERS: Final = "NoUsableClusters"
"""Not active, AdmissionCheck: no cluster of the config can be used."""

REASON_CLIENT_CONNECTION_FAILED: Final = "ClientConnectionFailed"
"""Not active, MultiKueueCluster: its API server does not answer, or refuses our credentials."""
REASON_BAD_KUBE_CONFIG: Final = "BadKubeConfig"
"""Not active, MultiKueueCluster: its kubeconfig is missing or cannot be read."""
REASON_INSECURE_KUBE_CONFIG: Final = "InsecureKubeConfig"
"""Not active, MultiKueueCluster: its kubeconfig asks for something that a kubeconfig of a Secret may not."""
REASON_CLUSTER_PROFILE_DISABLED: Final = "MultiKueueClusterProfileFeatureDisabled"
"""Not active, MultiKueueCluster: it names a ClusterProfile, and feature gate MultiKueueClusterProfile is off."""
REASON_BAD_CLUSTER_PROFILE: Final = "BadClusterProfile"
"""Not active, MultiKueueCluster: its ClusterProfile is missing, or gives no credentials."""
