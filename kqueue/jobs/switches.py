"""Feature switches that change how jobs are read and checked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The feature gates that this room and the webhooks know, as read once at start.

    Each field names its gate; the defaults are those of the compatible version, except for what is not built yet.
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
    """PartialAdmission: `minCount` is kept."""
    elastic_jobs: bool = False
    """ElasticJobsViaWorkloadSlices: the elastic-job annotation has a meaning."""
    admission_gated_by: bool = True
    """AdmissionGatedBy: the annotation holds a workload back."""
    priority_boost: bool = False
    """PriorityBoost: the annotation shifts a workload's priority."""
    identifier_annotations: bool = True
    """WorkloadIdentifierAnnotations: names of prebuilt workloads stand in annotations first, then in labels."""
    default_priority_class: bool = True
    """WorkloadPriorityClassDefaulting: unlabelled jobs get the class named `default` where it exists."""
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
    concurrent_admission: bool = False
    """ConcurrentAdmission: a ClusterQueue may try several flavors at once."""
