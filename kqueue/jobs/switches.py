"""Feature switches that change how jobs are read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFeatures:
    """The feature gates that job adapters and webhooks use, read once at start.

    Each field names its gate; the defaults are those of the compatible version.
    """

    topology: bool = True
    """TopologyAwareScheduling: annotations become topology requests, pods are gated."""
    multi_layer: bool = True
    """TASMultiLayerTopology: up to three slice layers."""
    slice_divisibility: bool = True
    """TASValidateSliceDivisibility (ours): a pod count must be a multiple of the outer slice size."""
    slice_size: bool = True
    """TASValidateWorkloadSliceSize: the Workload webhook checks slice sizes."""
    partial_admission: bool = True
    """PartialAdmission: `minCount` is used."""
    reclaimable_pods: bool = True
    """ReclaimablePods: the quota of finished pods is released before the whole job has ended."""
    elastic_jobs: bool = True
    """ElasticJobsViaWorkloadSlices: the elastic-job annotation has a meaning."""
    elastic_topology: bool = False
    """ElasticJobsViaWorkloadSlicesWithTAS: elastic jobs may request an unconstrained topology."""
    admission_gated_by: bool = True
    """AdmissionGatedBy: the annotation gates the admission of a workload."""
    priority_boost: bool = False
    """PriorityBoost: the annotation shifts a workload's priority."""
    identifier_annotations: bool = True
    """WorkloadIdentifierAnnotations: names of prebuilt workloads are read from annotations first, then from labels."""
    default_priority_class: bool = True
    """WorkloadPriorityClassDefaulting: unlabelled jobs get the class named `default` if it exists."""
    short_names: bool = False
    """ShortWorkloadNames: names of workloads have at most 63 characters."""
    queue_labels: bool = True
    """AssignQueueLabelsForPods: pods carry the names of their queues."""
    pod_set_metadata: bool = True
    """WorkloadValidationForPodSetMetadata: labels and annotations of templates are checked in Workloads."""
    non_negative: bool = True
    """WorkloadValidateResourcesAreNonNegative: negative requests are refused in Workloads."""
    strict_on_flavors: bool = False
    """RejectUpdatesToCQWithInvalidOnFlavors: an unknown flavor of a check is refused on every update."""
    strict_finalizers: bool = True
    """RemoveFinalizersWithStrictPatch: a finalizer is removed only from the version of the pod that was read."""
    leaving_validated: bool = True
    """ValidateRayAndSparkJobUpdates: updates of Ray and Spark objects are checked if the old object names a queue."""
    concurrent_admission: bool = False
    """ConcurrentAdmission: a ClusterQueue may try several flavors at once."""
    immutable_group_size: bool = True
    """LWSImmutableGroupSize: the size of the groups of a queued LeaderWorkerSet cannot change."""
    ray_redis_cleanup: bool = True
    """DeferRayServiceFinalizationForRedisCleanup: a deleted RayCluster keeps its quota until Redis is cleared."""
    gangs: tuple[str, ...] = ("pod",)
    """The dialects of gangs that are on, by framework, in the order in which they count for a pod of several groups;
    not a feature gate.
    """
    take_over_schedulers: frozenset[str] = frozenset()
    """`gangs.takeOverSchedulers`: schedulers that the webhook replaces on pods of gangs; not a feature gate."""
    longest_schedule_seconds: float = 1800.0
    """`gangs.scheduleTimeout.maximum`: the longest deadline of a gang; not a feature gate."""


GATES: Mapping[str, str] = MappingProxyType(
    {
        "topology": "TopologyAwareScheduling",
        "multi_layer": "TASMultiLayerTopology",
        "slice_divisibility": "TASValidateSliceDivisibility",
        "slice_size": "TASValidateWorkloadSliceSize",
        "partial_admission": "PartialAdmission",
        "reclaimable_pods": "ReclaimablePods",
        "elastic_jobs": "ElasticJobsViaWorkloadSlices",
        "elastic_topology": "ElasticJobsViaWorkloadSlicesWithTAS",
        "admission_gated_by": "AdmissionGatedBy",
        "priority_boost": "PriorityBoost",
        "identifier_annotations": "WorkloadIdentifierAnnotations",
        "default_priority_class": "WorkloadPriorityClassDefaulting",
        "short_names": "ShortWorkloadNames",
        "queue_labels": "AssignQueueLabelsForPods",
        "pod_set_metadata": "WorkloadValidationForPodSetMetadata",
        "non_negative": "WorkloadValidateResourcesAreNonNegative",
        "strict_on_flavors": "RejectUpdatesToCQWithInvalidOnFlavors",
        "strict_finalizers": "RemoveFinalizersWithStrictPatch",
        "leaving_validated": "ValidateRayAndSparkJobUpdates",
        "concurrent_admission": "ConcurrentAdmission",
        "immutable_group_size": "LWSImmutableGroupSize",
        "ray_redis_cleanup": "DeferRayServiceFinalizationForRedisCleanup",
    }
)
"""Names of the fields and their feature gates."""


def switches_from(enabled: Callable[[str], bool]) -> JobFeatures:
    """Return the features by the configuration's gates; `enabled` returns whether a gate is on."""
    flags: dict[str, Any] = {switch: enabled(gate) for switch, gate in GATES.items()}
    return JobFeatures(**flags)
