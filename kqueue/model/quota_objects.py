"""Flavors, ClusterQueues and cohorts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kqueue.api import backfill_names, names, quota_names, run_names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core.order_keys import DEFAULT_PROFILE_NAME
from kqueue.core.quantity import parse_billionths
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.topology import DEFAULT_PROFILE, Profile
from kqueue.core.workload import Flavor, Preempts, QueueSpec, ResourceGroup
from kqueue.errors import InvalidObjectError
from kqueue.model import run_limits
from kqueue.model.backfill import backfill_problem
from kqueue.model.budgets import budgets
from kqueue.model.joint import joint_policies
from kqueue.model.node_classes import class_tolerations, node_class
from kqueue.model.nodes import taint, toleration
from kqueue.model.profiles import chosen_algorithm
from kqueue.model.quota_shares import quota_shares, with_shares
from kqueue.model.resources import amounts


def flavor(obj: wire.ResourceFlavor) -> Flavor:
    """Return a ResourceFlavor as a value."""
    spec = obj.spec
    own = node_class(obj.metadata.annotations)
    return Flavor(
        name=obj.metadata.name,
        node_labels=dict(spec.node_labels),
        taints=tuple(taint(t) for t in spec.node_taints),
        tolerations=(*(toleration(t) for t in spec.tolerations), *class_tolerations(own)),
        topology=spec.topology_name or (inline_topology(obj.metadata.name) if spec.topology is not None else None),
        node_class=own,
    )


def inline_topology(flavor_name: str) -> str:
    """Return the name of the levels that a flavor lists itself; no Topology object can have this name."""
    return f"{flavor_name} (inline)"


def quotas(groups: Iterable[wire.ResourceGroup]) -> tuple[dict[FlavorResource, Quota], str]:
    """Return the quota per column, and the values that cannot be parsed as text (empty: all can)."""
    out: dict[FlavorResource, Quota] = {}
    problems: list[str] = []
    for g, group in enumerate(groups):
        for f, flavor_quotas in enumerate(group.flavors):
            for r, resource in enumerate(flavor_quotas.resources):
                path = f"spec.resourceGroups[{g}].flavors[{f}].resources[{r}]"
                try:
                    out[FlavorResource(flavor_quotas.name, resource.name)] = _quota(resource, path)
                except InvalidObjectError as e:
                    problems += [str(error) for error in e.errors]
    return out, "; ".join(problems)


def _quota(resource: wire.ResourceQuota, path: str) -> Quota:
    def read(value: str | int | None, field: str) -> int | None:
        return None if value is None else amounts({resource.name: value}, f"{path}.{field}")[resource.name]

    nominal = read(resource.nominal_quota, "nominalQuota")
    return Quota(
        nominal or 0,
        read(resource.borrowing_limit, "borrowingLimit"),
        read(resource.lending_limit, "lendingLimit"),
    )


_WEIGHT_ONE = 1_000_000_000


def weight(sharing: wire.FairSharing | None) -> tuple[int, str]:
    """Return the weight in billionths (1 if it cannot be parsed), and the problem (empty: none)."""
    if sharing is None:
        return _WEIGHT_ONE, ""
    try:
        billionths = parse_billionths(sharing.weight)
    except ValueError as e:
        return _WEIGHT_ONE, f"spec.fairSharing.weight: {e}"
    if billionths < 0:
        return _WEIGHT_ONE, "spec.fairSharing.weight: must not be negative; write 0 or more"
    return billionths, ""


def queue_spec(
    obj: wire.ClusterQueue,
    profile: Profile = DEFAULT_PROFILE,
    *,
    ignores_undeclared: bool = False,
    fungible: bool = True,
) -> tuple[QueueSpec, Mapping[FlavorResource, Quota], str]:
    """Return a ClusterQueue in the form of planning, its quotas, and the values that cannot be parsed as text (empty:
    all can).

    `profile` serves ClusterQueues that do not choose one by annotation; `ignores_undeclared` and `fungible` are as in
    `QueueSpec`.
    """
    spec = obj.spec
    configured, problem = quotas(spec.resource_groups)
    algorithm, unknown = chosen_algorithm(obj.metadata)
    notes = obj.metadata.annotations
    columns, unresolved = with_shares(configured, notes)
    wrong = dict(annotation_problems(notes)) | ({quota_names.QUOTA_SHARES_ANNOTATION: unresolved} if unresolved else {})
    unreadable = [f"metadata.annotations[{key}]: {problem}" for key, problem in wrong.items()]
    unfit = joint_policies(obj.metadata)[1]
    problem = "; ".join(filter(None, (problem, weight(spec.fair_sharing)[1], unknown, *unreadable, unfit)))
    fungibility, preemption = spec.flavor_fungibility, spec.preemption
    return (
        QueueSpec(
            name=obj.metadata.name,
            groups=tuple(
                ResourceGroup(tuple(g.covered_resources), tuple(f.name for f in g.flavors))
                for g in spec.resource_groups
            ),
            borrow_before_next_flavor=fungibility.when_can_borrow == "MayStopSearch",
            preempt_before_next_flavor=fungibility.when_can_preempt == "MayStopSearch",
            prefers_preemption=fungibility.preference == "PreemptionOverBorrowing",
            fungible=fungible,
            preempts_own=Preempts(preemption.within_cluster_queue),
            reclaims=Preempts(preemption.reclaim_within_cohort),
            borrow_preempts=preemption.borrow_within_cohort.policy != "Never",
            borrow_preempts_up_to=preemption.borrow_within_cohort.max_priority_threshold,
            profile=profile.with_algorithm(algorithm),
            ignores_undeclared=ignores_undeclared,
            minimum_runtime=run_limits.minimum_runtime(notes)[0],
            longest_runtime=run_limits.longest_runtime(notes)[0],
            most_lost=run_limits.most_lost(notes)[0],
            plugin_profile=plugin_profile(obj.metadata),
        ),
        columns,
        problem,
    )


def annotation_problems(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the annotations of a ClusterQueue about limits, shares and budgets that are wrong by themselves, each with
    its problem.
    """
    found = {
        quota_names.QUOTA_SHARES_ANNOTATION: quota_shares(annotations)[1],
        quota_names.BUDGETS_ANNOTATION: budgets(annotations)[1],
        backfill_names.BACKFILL_ANNOTATION: backfill_problem(annotations),
    }
    return [*run_limits.queue_problems(annotations), *((key, problem) for key, problem in found.items() if problem)]


def cohort_problem(obj: wire.Cohort) -> str:
    """Return the problem of a Cohort that is not valid; empty: it is valid."""
    backfill = backfill_problem(obj.metadata.annotations)
    wrong = f"metadata.annotations[{backfill_names.BACKFILL_ANNOTATION}]: {backfill}" if backfill else ""
    return "; ".join(filter(None, (quotas(obj.spec.resource_groups)[1], weight(obj.spec.fair_sharing)[1], wrong)))


def same_queue(one: wire.ClusterQueue, other: wire.ClusterQueue) -> bool:
    """Whether both are equal for planning: only status or other metadata differ."""
    return one.spec == other.spec and _annotations(one.metadata) == _annotations(other.metadata)


def _annotations(meta: ObjectMeta) -> list[str | None]:
    """Return the annotations of a ClusterQueue that planning uses, valid or not."""
    return [meta.annotations.get(key) for key in _PLANNED_BY]


_PLANNED_BY = (
    names.PLACEMENT_PROFILE_ANNOTATION,
    names.MINIMUM_RUNTIME_ANNOTATION,
    run_names.LONGEST_RUNTIME_ANNOTATION,
    run_names.MOST_LOST_ANNOTATION,
    quota_names.QUOTA_SHARES_ANNOTATION,
    quota_names.RESOLVED_QUOTA_ANNOTATION,
    quota_names.BUDGETS_ANNOTATION,
    backfill_names.BACKFILL_ANNOTATION,
    names.PROFILE_ANNOTATION,
    names.JOINT_POLICIES_ANNOTATION,
)


def plugin_profile(meta: ObjectMeta) -> str:
    """Return the profile that a ClusterQueue names, known or not; `default` where it names none."""
    return meta.annotations.get(names.PROFILE_ANNOTATION, DEFAULT_PROFILE_NAME)
