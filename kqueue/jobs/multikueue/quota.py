"""The quota of a manager's ClusterQueue that follows the quotas of its worker clusters.

MultiKueue connects LocalQueues by namespace and name, so the ClusterQueues behind the LocalQueues of the same names on
the workers are those whose nominal quotas are added up, over all their flavors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kqueue.api import multikueue_names as words
from kqueue.api.wire import kueue as wire
from kqueue.core.quantity import clamp, format_quantity, parse_quantity
from kqueue.jobs.fields import JSON

LocalQueueName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQueues:
    """The queues of one worker cluster; `are_known` False: it cannot be reached, and had some a moment ago."""

    local_queues: Sequence[wire.LocalQueue] = ()
    cluster_queues: Sequence[wire.ClusterQueue] = ()
    are_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPlan:
    """The words of a ClusterQueue's condition, and its new nominal quotas by resource, if they follow the workers."""

    reason: str
    message: str
    nominal: Mapping[str, int] | None = None


def quota_plan(
    queue: wire.ClusterQueue,
    names: Iterable[LocalQueueName],
    workers: Sequence[WorkerQueues],
    *,
    is_automated: bool,
    problem: str = "",
) -> QuotaPlan:
    """Return the plan for a ClusterQueue that workers serve.

    While a worker is not known, no quota is lowered: it may be back in a moment, as when the controller starts.

    Args:
        names: its LocalQueues.
        is_automated: the config asks for it.
        problem: why there is no config; empty: there is one.
    """
    if problem:
        return QuotaPlan(reason=words.REASON_UNSUPPORTED_CONFIGURATION, message=problem)
    if not is_automated:
        message = "Quotas are set by hand: quotaManagement of the MultiKueueConfig is not Automated"
        return QuotaPlan(reason=words.REASON_NOT_REQUESTED, message=message)
    groups = queue.spec.resource_groups
    if len(groups) != 1 or len(groups[0].flavors) != 1:
        message = "Quotas of a ClusterQueue with more than one flavor, or none, cannot follow worker clusters"
        return QuotaPlan(reason=words.REASON_UNSUPPORTED_CONFIGURATION, message=message)
    sums: Counter[str] = Counter()
    wanted = set(names)
    try:
        for worker in workers:
            sums.update(_sums(worker, wanted))
    except ValueError as e:
        message = f"A worker cluster has a quota that is no amount: {e}"
        return QuotaPlan(reason=words.REASON_UNSUPPORTED_CONFIGURATION, message=message)
    missing = sorted(sums.keys() - set(groups[0].covered_resources))
    if missing:
        message = f"Worker clusters have quota of resources that are not in coveredResources: {', '.join(missing)}"
        return QuotaPlan(reason=words.REASON_UNSUPPORTED_CONFIGURATION, message=message)
    present = {each.name: parse_quantity(each.nominal_quota, each.name) for each in groups[0].flavors[0].resources}
    keeps = any(not worker.are_known for worker in workers)
    nominal = {name: clamp(max(sums[name], now) if keeps else sums[name]) for name, now in present.items()}
    message = "Quotas are the sums of the worker clusters' quotas"
    return QuotaPlan(reason=words.REASON_QUOTA_AUTOMATED, message=message, nominal=nominal)


def with_nominal(groups: Sequence[JSON], nominal: Mapping[str, int]) -> list[JSON] | None:
    """Return the resource groups of an object with other nominal quotas; None: it has them."""
    present = [each for group in groups for flavor in group["flavors"] for each in flavor["resources"]]
    if all(_has(each, nominal) for each in present):
        return None
    return [
        {
            **group,
            "flavors": [{**flavor, "resources": _written(flavor["resources"], nominal)} for flavor in group["flavors"]],
        }
        for group in groups
    ]


def _has(resource: JSON, nominal: Mapping[str, int]) -> bool:
    """Whether a resource has its quota, however it is written, or gets none."""
    name = resource["name"]
    return name not in nominal or parse_quantity(resource["nominalQuota"], name) == nominal[name]


def _written(resources: Sequence[JSON], nominal: Mapping[str, int]) -> list[JSON]:
    return [
        each if _has(each, nominal) else {**each, "nominalQuota": format_quantity(nominal[each["name"]], each["name"])}
        for each in resources
    ]


def _sums(worker: WorkerQueues, names: set[LocalQueueName]) -> Counter[str]:
    """Return the quotas of a worker by resource; a ClusterQueue behind several LocalQueues counts once."""
    behind = {
        each.spec.cluster_queue
        for each in worker.local_queues
        if (each.metadata.namespace, each.metadata.name) in names
    }
    sums: Counter[str] = Counter()
    for queue in worker.cluster_queues:
        if queue.metadata.name in behind:
            for group in queue.spec.resource_groups:
                for flavor in group.flavors:
                    for each in flavor.resources:
                        sums[each.name] += max(0, parse_quantity(each.nominal_quota, each.name))
    return sums
