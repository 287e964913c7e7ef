"""Translates the configuration file and the feature gates into the rules of core, queues and controllers."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.api import names
from kqueue.config import Configuration, Timings
from kqueue.config.joint import JointPlacementSettings, ReschedulingSettings
from kqueue.config.policy import DeviceSource
from kqueue.controllers.gang_clock import gang_clock_rules
from kqueue.controllers.owner_context import OwnerPolicy
from kqueue.core.decision import SecondLooks
from kqueue.core.devices.counting import UNREADABLE_REMEDY, DeviceRules
from kqueue.core.devices.selectors import problem_of
from kqueue.core.devices.values import AmountSource, DeviceMapping, Selector
from kqueue.core.joint.movable import MoveLimits, MovePolicy
from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.settings import JointOrder, JointSettings, VictimChoice
from kqueue.core.ordering import OrderRules
from kqueue.core.preemption import SharingStrategy
from kqueue.core.quantity import parse_exactly
from kqueue.core.quota_requests import Counting, Transformation
from kqueue.core.scan import ScanRules
from kqueue.core.topology import Algorithm, Profile
from kqueue.errors import ConfigError
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.registry import features_for, timeouts_for
from kqueue.kube.owned_names import LONG_NAME, SHORT_NAME
from kqueue.model import QueueOrder, policy_specs
from kqueue.observe import CustomLabel, Kind
from kqueue.scheduling.joint.batches import BatchLimits
from kqueue.scheduling.joint.rounds import RoundSettings
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairRules, FairUsage
from kqueue.state.requests import Requests
from kqueue.state.variants import VariantRules


def profile(enabled: Callable[[str], bool]) -> Profile:
    """Return the default placement profile; a ClusterQueue may name another one."""
    return Profile(
        constrained=Algorithm.BALANCED if enabled("TASBalancedPlacement") else Algorithm.BEST_FIT,
        unconstrained=Algorithm.LEAST_FREE_CAPACITY if enabled("TASProfileMixed") else Algorithm.BEST_FIT,
        preferred_affinity=enabled("TASRespectNodeAffinityPreferred"),
    )


def loop_settings(config: Configuration, timings: Timings) -> LoopSettings:
    """Return the settings of the scheduling loop."""
    fair = config.fair_sharing
    return LoopSettings(
        window_min=timings.cycle_window_min,
        window_max=timings.cycle_window_max,
        yield_after=timings.cycle_yield_after,
        details_after=timings.details_told_after,
        elastic=config.enabled("ElasticJobsViaWorkloadSlices"),
        fail_fast=config.enabled("TASFailedNodeReplacementFailFast"),
        skips_pod_owned=config.enabled("SkipReassignmentForPodOwnedWorkloads"),
        fair=None if fair is None else tuple(SharingStrategy(name) for name in fair.preemption_strategies),
        within_nominal=config.enabled("FairSharingPreemptWithinNominal"),
        order=OrderRules(
            preemptors_first=config.enabled("PrioritizePreemptorWorkloads"),
            non_borrowing_first=config.enabled("FairSharingPrioritizeNonBorrowing"),
            priority=config.enabled("PrioritySortingWithinCohort"),
        ),
        queue_order=queue_order(config),
        gang_backoff=gang_clock_rules(config).backoff,
        block_admission=blocks_admission(config),
        waits_for_ready=config.wait_for_pods_ready is not None,
        scan=ScanRules(
            keeps_progress=config.enabled("FlavorFungibilityPreserveScanProgress"),
            by_shape=config.enabled("SchedulingEquivalenceHashing"),
        ),
        preemption_gates=config.enabled("ConcurrentAdmission") or config.enabled("MultiKueueOrchestratedPreemption"),
        variants=variant_rules(config),
        looks=SecondLooks(
            for_targets=config.enabled("RecomputeAssignmentUponPreemptionTargetsOverlap"),
            for_domains=config.enabled("TASRecomputeAssignmentWithinSchedulingCycle"),
        ),
    )


def variant_rules(config: Configuration) -> VariantRules | None:
    """Return the rules of concurrent admission; None: its gate is off."""
    if not config.enabled("ConcurrentAdmission"):
        return None
    return VariantRules(limit=SHORT_NAME if config.enabled("ShortWorkloadNames") else LONG_NAME)


def policies_of(joint: JointPlacementSettings) -> tuple[tuple[PolicySpec, ...], str]:
    """Return the policies of joint placement, and the first problem (empty: there is none)."""
    return policy_specs([{"name": p.name, "weight": p.weight, "parameters": p.parameters} for p in joint.policies])


def round_settings(joint: JointPlacementSettings) -> RoundSettings:
    """Return the settings of rounds of joint placement.  Raises ConfigError: a policy is unknown or wrong."""
    specs, problem = policies_of(joint)
    if problem:
        raise ConfigError(f"joint.policies: {problem}")
    return RoundSettings(
        joint=JointSettings(
            order=JointOrder(joint.order),
            within=joint.within,
            steps=joint.steps,
            victims=VictimChoice(joint.rescheduling.preemption),
            least_gain=joint.rescheduling.min_gain,
        ),
        limits=BatchLimits(workloads=joint.max_workloads, per_queue=joint.max_per_queue),
        time_limit=joint.time_limit.total_seconds(),
        policies=specs,
        moves=move_limits(joint.rescheduling),
    )


def move_limits(rescheduling: ReschedulingSettings) -> MoveLimits:
    """Return the limits of moves of running workloads.

    Plans that approve themselves (`Auto`) are proposed as all others are.
    """
    return MoveLimits(
        migration=MovePolicy.NEVER if rescheduling.migration == "Never" else MovePolicy.PROPOSE,
        checkpoint_age=int(rescheduling.max_checkpoint_age.total_seconds()),
        cooldown=int(rescheduling.cooldown.total_seconds()),
        moves=rescheduling.max_moves_per_hour,
        pods=rescheduling.max_pods_per_hour,
    )


def refuses_claims(config: Configuration) -> bool:
    """Whether Workloads with device claims are refused where kqueue does not count the devices."""
    return config.enabled("KueueDRAIntegration") or config.enabled("KueueDRARejectWorkloadsWhenDRADisabled")


def device_rules(config: Configuration) -> DeviceRules | None:
    """Return how claimed devices are counted; None: the gate is off, or no class of devices is mapped.

    Raises ConfigError: the selector of a source cannot be evaluated.
    """
    if not config.counts_devices():
        return None
    return DeviceRules(
        mappings=tuple(
            DeviceMapping(
                resource=mapping.name,
                classes=mapping.device_class_names,
                sources=tuple(
                    _amount_source(source, f"resources.deviceClassMappings[{i}].sources[{j}]")
                    for j, source in enumerate(mapping.sources)
                ),
            )
            for i, mapping in enumerate(config.resources.device_class_mappings)
        ),
        extended=config.enabled("KueueDRAIntegrationExtendedResource"),
    )


def _amount_source(source: DeviceSource, path: str) -> AmountSource:
    given = source.counter or source.capacity
    assert given is not None  # the configuration has one of them
    selects = Selector(given.device_selector.cel.expression)
    if problem := problem_of(selects):
        where = f"{path}.{'counter' if source.counter is not None else 'capacity'}.deviceSelector.cel.expression"
        raise ConfigError(f"{where}: {problem}; {UNREADABLE_REMEDY}")
    return AmountSource(name=given.name, driver=given.driver, selector=selects, is_counter=source.counter is not None)


def counting(config: Configuration) -> Counting:
    """Return how requests count in quota."""
    return Counting(
        excluded_prefixes=config.resources.exclude_resource_prefixes,
        transformations={
            rule.input: Transformation(
                input=rule.input,
                outputs={resource: parse_exactly(amount) for resource, amount in rule.outputs.items()},
                keeps_input=rule.strategy == "Retain",
                multiply_by=rule.multiply_by,
            )
            for rule in config.resources.transformations
        },
    )


def ignores_undeclared(config: Configuration) -> bool:
    """Whether a workload may request resources that its ClusterQueue does not list."""
    return config.resources.quota_check_strategy == "IgnoreUndeclared" and config.enabled("QuotaCheckStrategy")


def fair_usage(config: Configuration) -> FairUsage | None:
    """Return an empty record of the recent usage of LocalQueues; None where usage does not count."""
    rules = config.admission_fair_sharing
    if rules is None or not config.enabled("AdmissionFairSharing"):
        return None
    return FairUsage(
        FairRules(
            half_life=rules.usage_half_life_time.total_seconds(),
            interval=rules.usage_sampling_interval.total_seconds(),
            weights=rules.resource_weights,
        )
    )


def blocks_admission(config: Configuration) -> bool:
    """Whether no workload is admitted while the pods of an admitted workload are not ready."""
    return config.wait_for_pods_ready is not None and config.wait_for_pods_ready.block_admission


def queue_order(config: Configuration) -> QueueOrder:
    """Return what besides the creation time orders the workloads of a queue."""
    ready = config.wait_for_pods_ready
    return QueueOrder(
        by_timeout=ready is None or ready.requeuing_strategy.timestamp == "Eviction",
        by_reclaim=not config.enabled("PrioritySortingWithinCohort"),
        boosts=config.enabled("PriorityBoost"),
    )


def custom_labels(config: Configuration) -> dict[Kind, list[CustomLabel]]:
    """Return the custom labels of metrics by the kind whose labels give their values; empty while their gate is off."""
    found: dict[Kind, list[CustomLabel]] = {}
    for label in config.metrics.custom_labels if config.enabled("CustomMetricLabels") else ():
        found.setdefault(label.source_kind, []).append(
            CustomLabel(
                name=label.name,
                key=label.source_annotation_key or label.source_label_key or label.name,
                is_annotation=bool(label.source_annotation_key),
                tracked=frozenset(label.tracked_values),
            )
        )
    return found


def copied_keys(config: Configuration) -> CopiedKeys:
    """Return the keys of labels and annotations that Workloads get from their jobs."""
    read = custom_labels(config).get("Workload", ())
    return CopiedKeys(
        labels=config.integrations.label_keys_to_copy,
        metric_labels=tuple(label.key for label in read if not label.is_annotation),
        metric_annotations=tuple(label.key for label in read if label.is_annotation),
    )


def make_cache(config: Configuration, order: QueueOrder, plugin_profiles: tuple[str, ...]) -> Cache:
    """Return an empty cache that counts as the configuration says; ClusterQueues may name these profiles."""
    return Cache(
        profile(config.enabled),
        merge_duplicate_hostnames=config.tas.merge_duplicate_hostnames,
        order=order,
        requests=Requests(
            counting(config),
            partial_admission=config.enabled("PartialAdmission"),
            reclaims=config.enabled("ReclaimablePods"),
            refuses_claims=refuses_claims(config),
            devices=device_rules(config),
        ),
        ignores_undeclared=ignores_undeclared(config),
        fungible=config.enabled("FlavorFungibility"),
        plugin_profiles=plugin_profiles,
    )


def owner_policy(config: Configuration, timings: Timings) -> OwnerPolicy:
    """Return how owners of Workloads are managed."""
    kept = config.object_retention_policies.workloads
    return OwnerPolicy(
        switches=features_for(config),
        copied=copied_keys(config),
        explicit="pod" in config.integrations.frameworks,
        without_queue=config.manage_jobs_without_queue_name,
        requeues=not config.enabled("SkipReassignmentForPodOwnedWorkloads"),
        fast_release=config.enabled("FastQuotaReleaseInPodIntegration"),
        finishes_orphans=config.enabled("FinishOrphanedWorkloads"),
        checks_owner=config.enabled("PodIntegrationValidateGroupOwner"),
        keep_deactivated=kept.after_deactivated_by_kueue if kept is not None else None,
        echo_timeout=timings.expectation_timeout,
        dispatches=names.MULTIKUEUE_CONTROLLER in config.check_controllers(),
        timeouts=timeouts_for(config),
    )
