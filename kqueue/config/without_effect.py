"""Settings that are checked and have no effect.  kqueue logs a warning for each given one.

A commit that implements a feature removes its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic.alias_generators import to_camel

from kqueue.config.gates import GATES, GROUPS

if TYPE_CHECKING:
    from pydantic import BaseModel

    from kqueue.config.model import Configuration

_PATHS = (
    "controller.cache_sync_timeout",
    "pprof_bind_address",
    "tls.curve_preferences",
)
"""Sections and fields, in Python's names."""

_GATES = frozenset(
    {
        "AdmissionFairSharing",
        "AdmissionGatedBy",
        "AssignQueueLabelsForPods",
        "CleanupProvisioningRequestsOnEviction",
        "ConcurrentAdmission",
        "CustomMetricLabels",
        "DisableWaitForPodsReady",
        "DeferRayServiceFinalizationForRedisCleanup",
        "ElasticJobsViaWorkloadSlices",
        "ElasticJobsViaWorkloadSlicesWithTAS",
        "FairSharingPreemptWithinNominal",
        "FairSharingPrioritizeNonBorrowing",
        "FastQuotaReleaseInPodIntegration",
        "FinishOrphanedWorkloads",
        "FlavorFungibility",
        "FlavorFungibilityPreserveScanProgress",
        "JointPlacement",
        "KueueDRAIntegration",
        "KueueDRAIntegrationConsumableCapacity",
        "KueueDRAIntegrationExtendedResource",
        "KueueDRAIntegrationPartitionableDevices",
        "KueueDRARejectWorkloadsWhenDRADisabled",
        "LWSImmutableGroupSize",
        "LocalQueueMetrics",
        "MetricForWorkloadCreationLatency",
        "MetricsForCohorts",
        "MultiKueue",
        "MultiKueueAdaptersForCustomJobs",
        "MultiKueueClusterProfile",
        "MultiKueueIncrementalDispatcherConfig",
        "MultiKueueIncrementalDispatcherRespectConfigOrder",
        "MultiKueueKubeConfigPathValidation",
        "MultiKueueManagerQuotaAutomation",
        "MultiKueueOrchestratedPreemption",
        "MultiKueueRemoteSpecSync",
        "PartialAdmission",
        "PodIntegrationValidateGroupOwner",
        "PriorityBoost",
        "PrioritizePreemptorWorkloads",
        "PrioritySortingWithinCohort",
        "QuotaCheckStrategy",
        "ReclaimablePods",
        "RecomputeAssignmentUponPreemptionTargetsOverlap",
        "RejectUpdatesToCQWithInvalidOnFlavors",
        "RemoveFinalizersWithStrictPatch",
        "SchedulingEquivalenceHashing",
        "ShortWorkloadNames",
        "SparkApplicationIntegration",
        "SkipReassignmentForPodOwnedWorkloads",
        "TASBalancedPlacement",
        "TASFailedNodeReplacement",
        "TASFailedNodeReplacementFailFast",
        "TASMultiLayerTopology",
        "TASProfileMixed",
        "TASRecomputeAssignmentWithinSchedulingCycle",
        "TASReplaceNodeDueToNotReadyOverFixedTime",
        "TASReplaceNodeOnNodeTaints",
        "TASReplaceNodeOnPodTermination",
        "TASRespectNodeAffinityPreferred",
        "TASValidateSliceDivisibility",
        "TASValidateWorkloadSliceSize",
        "TopologyAwareScheduling",
        "UnadmittedWorkloadsExplicitStatus",
        "ValidateRayAndSparkJobUpdates",
        "VisibilityOnDemand",
        "WorkloadIdentifierAnnotations",
        "WorkloadPriorityClassDefaulting",
        "WorkloadValidateResourcesAreNonNegative",
        "WorkloadValidationForPodSetMetadata",
    }
)
"""Gates that some code reads, or that a kind of job needs."""

_PARTLY = {
    "UnadmittedWorkloadsObservability": "the metrics of Workloads that are not admitted are gone, their conditions"
    " stay",
}
"""Gates with an effect, and the effect."""


def acts(gate: str) -> bool:
    """Whether some code reads a feature gate, or a kind of job needs it."""
    return gate in _GATES or gate in _PARTLY


def idle_fields() -> list[str]:
    """Return the paths in the file of the fields and sections without effect."""
    return [".".join(map(to_camel, path.split("."))) for path in _PATHS]


def warnings(configuration: Configuration) -> list[str]:
    """Return one sentence for every given setting that has no effect, in the order of the fields."""
    found = [
        f"{_in_file(configuration, path)}: accepted, but has no effect yet"
        for path in _PATHS
        if _given(configuration, path)
    ]
    found += _labels_without_effect(configuration) + _devices_without_effect(configuration)
    found += _profiles_without_effect(configuration) + _kinds_without_effect(configuration)
    for name, on in configuration.feature_gates.items():
        if name in _PARTLY and on != GATES[name].on:
            found.append(f"featureGates.{name}: accepted; {_PARTLY[name]}")
        elif name not in _GATES and name in GATES and on != GATES[name].on:
            found.append(f"featureGates.{name}: accepted, but has no effect yet")
        elif name in GROUPS and (idle := _idle_in(name, on, configuration.feature_gates)):
            found.append(f"featureGates.{name}: has no effect yet on {', '.join(idle)}")
    return found


def _labels_without_effect(configuration: Configuration) -> list[str]:
    labels = configuration.metrics.custom_labels
    if labels and not configuration.enabled("CustomMetricLabels"):
        return ["metrics.customLabels: has no effect while feature gate CustomMetricLabels is off; set it to true"]
    return []


def _devices_without_effect(configuration: Configuration) -> list[str]:
    if configuration.resources.device_class_mappings and not configuration.counts_devices():
        remedy = "has no effect while feature gate KueueDRAIntegration is off; set it to true"
        return [f"resources.deviceClassMappings: {remedy}"]
    return []


def _profiles_without_effect(configuration: Configuration) -> list[str]:
    if configuration.multi_kueue.cluster_profile and not configuration.enabled("MultiKueueClusterProfile"):
        remedy = "has no effect while feature gate MultiKueueClusterProfile is off; set it to true"
        return [f"multiKueue.clusterProfile: {remedy}"]
    return []


def _kinds_without_effect(configuration: Configuration) -> list[str]:
    path = "multiKueue.externalFrameworks"
    named = [external.name for external in configuration.multi_kueue.external_frameworks]
    if named and not configuration.enabled("MultiKueueAdaptersForCustomJobs"):
        return [f"{path}: has no effect while feature gate MultiKueueAdaptersForCustomJobs is off; set it to true"]
    declared = {kind.name for kind in configuration.integrations.declared_kinds}
    unknown = [name for name in named if name not in declared]
    remedy = "declare it in integrations.declaredKinds"
    return [f"{path}: has no effect on {name}, of which kqueue queues no objects; {remedy}" for name in unknown]


def _idle_in(group: str, on: bool, given: Mapping[str, bool]) -> list[str]:
    """Return the gates of a group that no code reads."""
    return [
        name
        for name, gate in GATES.items()
        if gate.stage is GROUPS[group] and gate.on != on and name not in given and name not in _GATES | set(_PARTLY)
    ]


def _given(section: BaseModel, path: str) -> bool:
    """Whether the file sets `path` to a value other than the default or empty."""
    name, _, rest = path.partition(".")
    if name not in section.model_fields_set:
        return False
    value = getattr(section, name)
    if rest:
        return value is not None and _given(value, rest)
    return value is not None and bool(value != type(section).model_fields[name].get_default(call_default_factory=True))


def _in_file(section: BaseModel, path: str) -> str:
    name, _, rest = path.partition(".")
    alias = type(section).model_fields[name].alias or name
    return f"{alias}.{_in_file(getattr(section, name), rest)}" if rest else alias
