"""Feature gates: names, stages, defaults and dependencies.

Names, stages and defaults are Kueue's (0.20 development), so that Kueue's files keep their meaning.  Only
TASValidateSliceDivisibility is kqueue's own.  It depends on no other gate, so that files that disable other gates need
not name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kqueue.config.names import nearest


class Stage(Enum):
    """Maturity of a feature."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "GA"
    DEPRECATED = "deprecated"


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate.  `needs` are the gates that must be on when this one is; a locked gate keeps its default."""

    stage: Stage
    on: bool
    needs: tuple[str, ...] = ()
    locked: bool = False


def _beta(*needs: str, on: bool = True) -> Gate:
    return Gate(Stage.BETA, on, needs)


def _alpha(*needs: str) -> Gate:
    return Gate(Stage.ALPHA, False, needs)


_TAS = "TopologyAwareScheduling"
_REPLACE = "TASFailedNodeReplacement"
_DRA = "KueueDRAIntegration"

GATES: Mapping[str, Gate] = {
    "PartialAdmission": _beta(),
    "FlavorFungibility": _beta(),
    "VisibilityOnDemand": _beta(),
    "PrioritySortingWithinCohort": _beta(),
    "MultiKueue": _beta(),
    "TopologyAwareScheduling": _beta(),
    "LocalQueueMetrics": _beta(),
    "TASProfileMixed": _beta(_TAS),
    "AdmissionFairSharing": _beta(),
    "TASFailedNodeReplacement": _beta(_TAS),
    "TASFailedNodeReplacementFailFast": _beta(_TAS, _REPLACE),
    "TASReplaceNodeOnPodTermination": _beta(_TAS, _REPLACE),
    "TASReplaceNodeOnNodeTaints": _beta(_TAS),
    "TASReplaceNodeDueToNotReadyOverFixedTime": Gate(Stage.DEPRECATED, False, (_TAS, _REPLACE)),
    "SkipReassignmentForPodOwnedWorkloads": _beta(),
    "TASBalancedPlacement": _alpha(_TAS),
    "TASAssignmentsEncodingByHostnamePrefix": _beta(),
    "TASMultiLayerTopology": _beta(_TAS),
    "TASRespectNodeAffinityPreferred": _alpha(_TAS),
    "TASHandleOverlappingFlavors": _beta(_TAS),
    "TASRecomputeAssignmentWithinSchedulingCycle": _beta(_TAS),
    "TASCacheNodeMatchResults": _beta(),
    "TASCachingRemainingResources": _beta(),
    "VectorizedResourceRequests": _beta(),
    "TASCacheTopologyTree": _beta(),
    "TASValidateWorkloadSliceSize": _beta(),
    "TASValidateSliceDivisibility": _beta(),
    "ElasticJobsViaWorkloadSlices": _beta(),
    "ElasticJobsViaWorkloadSlicesWithTAS": _alpha("ElasticJobsViaWorkloadSlices", _TAS),
    "ManagedJobsNamespaceSelectorAlwaysRespected": Gate(Stage.GA, True, locked=True),
    "KueueDRAIntegration": _beta(),
    "KueueDRAIntegrationExtendedResource": _beta(_DRA),
    "KueueDRAIntegrationPartitionableDevices": _beta(_DRA),
    "KueueDRAIntegrationConsumableCapacity": _alpha(_DRA),
    "KueueDRARejectWorkloadsWhenDRADisabled": _beta(),
    "MultiKueueAdaptersForCustomJobs": _beta(),
    "MultiKueueClusterProfile": _alpha(),
    "MultiKueueKubeConfigPathValidation": _beta(),
    "MultiKueueOrchestratedPreemption": _alpha(),
    "MultiKueueIncrementalDispatcherConfig": _beta(),
    "MultiKueueIncrementalDispatcherRespectConfigOrder": _beta(),
    "MultiKueueManagerQuotaAutomation": _alpha(),
    "MultiKueueRemoteSpecSync": _beta(),
    "WorkloadRequestUseMergePatch": _alpha(),
    "ReclaimablePods": _beta(),
    "FailureRecoveryPolicy": _alpha(),
    "TLSOptions": Gate(Stage.GA, True, locked=True),
    "FairSharingPreemptWithinNominal": _beta(),
    "FairSharingPrioritizeNonBorrowing": _beta(),
    "RemoveFinalizersWithStrictPatch": _beta(),
    "AssignQueueLabelsForPods": _beta(),
    "SchedulingEquivalenceHashing": _beta(),
    "CustomMetricLabels": _alpha(),
    "SparkApplicationIntegration": _alpha(),
    "PriorityBoost": _alpha(),
    "AdmissionGatedBy": _beta(),
    "ShortWorkloadNames": _alpha(),
    "FastQuotaReleaseInPodIntegration": _alpha(),
    "RejectUpdatesToCQWithInvalidOnFlavors": _alpha(),
    "FinishOrphanedWorkloads": _beta(),
    "ConcurrentAdmission": _alpha(),
    "QuotaCheckStrategy": _beta(),
    "MetricForWorkloadCreationLatency": _beta(),
    "WorkloadIdentifierAnnotations": _beta(),
    "WorkloadPriorityClassDefaulting": _beta(),
    "MetricsForCohorts": _beta(),
    "PodIntegrationValidateGroupOwner": _beta(),
    "ValidateRayAndSparkJobUpdates": _beta(),
    "CleanupProvisioningRequestsOnEviction": _beta(),
    "UnadmittedWorkloadsObservability": _beta(),
    "UnadmittedWorkloadsExplicitStatus": _beta("UnadmittedWorkloadsObservability", on=False),
    "DeferRayServiceFinalizationForRedisCleanup": _beta(),
    "SchedulerLibraryIntegration": _alpha(),
    "DisableWaitForPodsReady": _alpha(),
    "WorkloadValidateResourcesAreNonNegative": _beta(),
    "WorkloadValidationForPodSetMetadata": _beta(),
    "PrioritizePreemptorWorkloads": _alpha(),
    "LWSImmutableGroupSize": _beta(),
    "FlavorFungibilityPreserveScanProgress": _beta("FlavorFungibility"),
    "SkipAncestorCheckForDeletedWorkloads": _beta(),
    "RecomputeAssignmentUponPreemptionTargetsOverlap": _beta(),
    "JointPlacement": _alpha(_TAS),
}

GROUPS = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
"""Names that set all gates of a stage."""


def resolve_gates(wanted: Mapping[str, bool]) -> dict[str, bool]:
    """Return every gate's value: the default, then AllAlpha and AllBeta, then the gates named in the file."""
    values = {name: gate.on for name, gate in GATES.items()}
    for group, stage in GROUPS.items():
        if group in wanted:
            values |= {name: wanted[group] for name, gate in GATES.items() if gate.stage is stage}
    return values | {name: on for name, on in wanted.items() if name in GATES}


def gate_problems(wanted: Mapping[str, bool]) -> list[tuple[str, str]]:
    """Return each problem of the wanted gates as (gate, one sentence); empty when there is none."""
    problems: list[tuple[str, str]] = []
    for name, on in wanted.items():
        gate = GATES.get(name)
        if gate is None and name not in GROUPS:
            problems.append((name, f"unknown feature gate{nearest(name, GATES)}"))
        elif gate is not None and gate.locked and on != gate.on:
            problems.append((name, f"is locked to {str(gate.on).lower()}; remove it"))
    values = resolve_gates(wanted)
    for name, gate in GATES.items():
        missing = [need for need in gate.needs if not values[need]]
        if values[name] and missing:
            remedy = f"switch {name} off too, or {' and '.join(missing)} on"
            problems.append((name, f"is on but needs {' and '.join(missing)}, which is off; {remedy}"))
    return problems


def parse_gates(text: str) -> dict[str, bool]:
    """Parse the value of a flag, `Gate=true,Other=false`; empty text gives no gates.

    Raises:
        ValueError: an entry is not `Gate=bool`.
    """
    gates: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if value.lower() not in {"true", "false"}:
            raise ValueError(f"{entry!r} must have the form Gate=true or Gate=false")
        gates[name.strip()] = value.lower() == "true"
    return gates
