"""Why a workload waits, as data, and the one place where that data becomes a sentence.

Conditions, events, metrics and the command line are renderings of the same list of blockers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from kqueue.core.mention import MayName, Mention, mentioned, nobody_reads
from kqueue.core.quantity import format_quantity
from kqueue.core.topology.result import Misfit, MisfitCode
from kqueue.core.value import value


class WaitReason(StrEnum):
    """Machine-readable reason of the condition QuotaReserved=False."""

    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"


SEVERITY = (
    WaitReason.TOPOLOGY_PLACEMENT_FAILED,
    WaitReason.WAITING_FOR_QUOTA,
    WaitReason.EXCEEDS_MAX_QUOTA,
    WaitReason.NO_MATCHING_FLAVOR,
)
"""From the mildest to the most severe."""


class BlockerKind(StrEnum):
    """What stands in the way."""

    FLAVOR_MISSING = "FlavorMissing"
    FLAVOR_TAINT = "FlavorTaint"
    FLAVOR_LABELS = "FlavorLabels"
    FLAVOR_TOPOLOGY = "FlavorTopology"
    RESOURCE_NOT_COVERED = "ResourceNotCovered"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    QUOTA = "Quota"
    TOPOLOGY = "Topology"
    NO_CANDIDATES = "NoCandidates"
    TAKEN_THIS_CYCLE = "TakenThisCycle"
    LENDERS = "Lenders"
    QUEUE = "Queue"
    NAMESPACE = "Namespace"
    REQUESTS = "Requests"
    YIELDS = "Yields"
    LOWER_SHARE = "LowerShare"
    LEAVING = "Leaving"
    PODS_NOT_READY = "PodsNotReady"
    PREEMPTION_GATED = "PreemptionGated"


@value(kw_only=True)
class Blocker:
    """One reason to wait.

    `asked` and `free` are amounts of `resource` (cpu in milli); `misfit` is the placement's own account of what is
    missing where (topology blockers only); `never` is True when not even an empty cluster, or the whole cohort, could
    hold it; `holders` counts the workloads of lower priority that hold it in the same queue, None where nobody looked;
    `used` is what the queue itself uses of its own `nominal` quota, None where nobody looked; `workloads` are other
    workloads that the sentence speaks of; `detail` is what has no number, and never the name of a workload.
    """

    kind: BlockerKind
    pod_set: str = ""
    queue: str = ""
    flavor: str = ""
    resource: str = ""
    asked: int = 0
    free: int = 0
    never: bool = False
    misfit: Misfit | None = None
    holders: int | None = None
    used: int | None = None
    nominal: int = 0
    detail: str = ""
    workloads: tuple[Mention, ...] = ()


def sentence(blocker: Blocker, may_name: MayName = nobody_reads) -> str:
    """The blocker for a person: what is asked, what is free, where; workloads are named where readers may know them."""
    about = _ABOUT_WORKLOADS.get(blocker.kind)
    text = about(mentioned(blocker.workloads, may_name)) if about is not None else _TEXTS[blocker.kind](blocker)
    return f"pod set {blocker.pod_set}: {text}" if blocker.pod_set else text


def message(blockers: Sequence[Blocker], may_name: MayName = nobody_reads) -> str:
    """All blockers, one sentence each, without repetition, in the order given."""
    return "; ".join(dict.fromkeys([sentence(blocker, may_name) for blocker in blockers]))


def most_severe(reasons: Iterable[WaitReason]) -> WaitReason:
    """The reason that names the workload's problem best; WaitingForQuota for an empty list."""
    known = [r for r in reasons if r in SEVERITY]
    return max(known, key=SEVERITY.index, default=WaitReason.WAITING_FOR_QUOTA)


def mildest(reasons: Iterable[WaitReason]) -> WaitReason:
    """The reason of the flavor that came closest; NoMatchingFlavor for an empty list."""
    known = [r for r in reasons if r in SEVERITY]
    return min(known, key=SEVERITY.index, default=WaitReason.NO_MATCHING_FLAVOR)


def _quota(b: Blocker) -> str:
    short = max(0, b.asked - b.free)
    text = (
        f"asks for {_amount(b.asked, b.resource)} of flavor {b.flavor}, ClusterQueue {b.queue} has "
        f"{_amount(max(0, b.free), b.resource)} free, {_amount(short, b.resource)} more needed"
    )
    return text if b.used is None else f"{text}; {_used(b, b.used)}"


def _used(b: Blocker, used: int) -> str:
    """Who has the rest: the queue itself, or others of its cohort."""
    text = f"the queue uses {format_quantity(used, b.resource)} of its {format_quantity(b.nominal, b.resource)}"
    lent = b.nominal - used - max(0, b.free)
    return f"{text} and others of its cohort {format_quantity(lent, b.resource)} of that" if lent > 0 else text


def _max_quota(b: Blocker) -> str:
    return (
        f"asks for {_amount(b.asked, b.resource)} of flavor {b.flavor}, ClusterQueue {b.queue} can never get more than "
        f"{_amount(b.free, b.resource)}, its cohort included; ask for less or raise the quota"
    )


def _no_candidates(b: Blocker) -> str:
    text = f"nobody may be preempted for it: ClusterQueue {b.queue} has {b.detail}"
    if b.holders == 0:
        return f"{text}, and no workload of lower priority holds any of it there"
    if b.holders:
        return f"{text}, and the {b.holders} of lower priority that hold some of it there are not enough"
    return text


def _topology(b: Blocker) -> str:
    misfit = b.misfit
    if misfit is None:
        return b.detail
    if misfit.code in (MisfitCode.NO_FIT, MisfitCode.NO_DOMAINS_AT_LEVEL):
        return _no_room(b, misfit)
    return f"flavor {b.flavor}, topology {misfit.topology}: {_misfit_rule(misfit)}"


def _no_room(b: Blocker, misfit: Misfit) -> str:
    """Asked and free, at which level, in which domain, and what is short."""
    where = f"one domain of level {misfit.level}" if misfit.level else "the topology"
    if misfit.spread:
        where = f"all domains of level {misfit.level} together"
    who = f"{misfit.total} {misfit.unit}s" + (f" and the leader of group {misfit.group}" if misfit.group else "")
    text = f"{who} do not fit in {where} (topology {misfit.topology}, flavor {b.flavor})"
    if misfit.best_domain is not None:
        leader = ", but not for the leader besides" if misfit.leader else ""
        text += f": the best, {'/'.join(misfit.best_domain)}, has room for {misfit.fit}{leader}"
        text += "".join(f"; in it fit {a.fit} of {a.total} slices at level {a.level}" for a in misfit.layers)
    elif misfit.leader:
        text += ": no place holds their leader"
    else:
        text += f": {'only ' + str(misfit.fit) if misfit.fit else 'none'} of them would fit"
    if misfit.shortage is not None:
        short = misfit.shortage
        text += (
            f"; short of {short.resource}: asked {format_quantity(short.asked, short.resource)}, "
            f"free {format_quantity(short.free, short.resource)}"
        )
        if short.held:
            text += f", held by other workloads {format_quantity(short.held, short.resource)}"
    if misfit.leaves == 0:
        text += "; no ready, schedulable node has the flavor's labels and all levels of the topology"
    causes = _exclusions(misfit)
    if causes:
        text += f"; of {misfit.leaves} leaves these cannot hold one pod: {causes}"
    if b.never:
        text += "; it would not fit on an empty cluster either: ask for fewer pods, smaller pods or a wider level"
    return text


def _exclusions(misfit: Misfit) -> str:
    excluded = misfit.excluded
    counts: dict[str, int] = {}
    if excluded.node_selector:
        counts["node selector"] = excluded.node_selector
    if excluded.affinity:
        counts["node affinity"] = excluded.affinity
    if excluded.topology_domain:
        counts["lying outside of the domain to repair"] = excluded.topology_domain
    counts.update({f"taint {taint}": n for taint, n in sorted(excluded.taints.items())})
    counts.update({f"too little {resource}": n for resource, n in sorted(excluded.resources.items())})
    return ", ".join(f"{count} by {cause}" for cause, count in counts.items())


def _misfit_rule(misfit: Misfit) -> str:
    """Requests that no capacity could satisfy, each with its remedy."""
    match misfit.code:
        case MisfitCode.LEVEL_NOT_SPECIFIED:
            return "the request names no level; set required, preferred or unconstrained: true"
        case MisfitCode.LEVEL_NOT_FOUND | MisfitCode.SLICE_LEVEL_NOT_FOUND | MisfitCode.INNER_LEVEL_NOT_FOUND:
            return f"there is no level {misfit.level}; use one of the Topology's levels"
        case MisfitCode.SLICE_LEVEL_ABOVE_POD_SET_LEVEL:
            return (
                f"the slice level {misfit.other_level} is above the pod set's level {misfit.level}; choose a lower one"
            )
        case MisfitCode.SLICE_SIZE_MISSING:
            return "a slice level is given without a slice size; set podSetSliceSize"
        case MisfitCode.INNER_LEVEL_NOT_LOWER:
            return f"slice layer {misfit.level} must lie below {misfit.other_level}"
        case MisfitCode.INNER_SIZE_NOT_DIVISOR:
            return f"slice size {misfit.size} must divide the size {misfit.other_size} of the layer above"
        case MisfitCode.COUNT_BELOW_SLICE_SIZE:
            return f"{misfit.count} pods are fewer than one slice of {misfit.size}"
        case _:
            return misfit.detail or str(misfit.code)


def _amount(value: int, resource: str) -> str:
    return f"{format_quantity(value, resource)} {resource}" if resource else str(value)


_TEXTS: dict[BlockerKind, Callable[[Blocker], str]] = {
    BlockerKind.FLAVOR_MISSING: lambda b: f"ResourceFlavor {b.flavor} does not exist; create it or correct the name",
    BlockerKind.FLAVOR_TAINT: lambda b: f"taint {b.detail} of flavor {b.flavor} is not tolerated",
    BlockerKind.FLAVOR_LABELS: lambda b: f"node selector or affinity does not match the labels of flavor {b.flavor}",
    BlockerKind.FLAVOR_TOPOLOGY: lambda b: f"flavor {b.flavor} cannot serve the topology request: {b.detail}",
    BlockerKind.RESOURCE_NOT_COVERED: lambda b: (
        f"resource {b.resource} is not covered by ClusterQueue {b.queue}; add it to a resource group"
    ),
    BlockerKind.EXCEEDS_MAX_QUOTA: _max_quota,
    BlockerKind.QUOTA: _quota,
    BlockerKind.TOPOLOGY: _topology,
    BlockerKind.NO_CANDIDATES: _no_candidates,
    BlockerKind.TAKEN_THIS_CYCLE: lambda b: (
        f"fitted until {b.detail} took the room in the same cycle; it is tried again"
    ),
    BlockerKind.LENDERS: lambda b: (
        f"ClusterQueue {b.queue} would borrow quota that workloads of its owner are tried for first; it is tried again"
    ),
    BlockerKind.QUEUE: lambda b: b.detail,
    BlockerKind.NAMESPACE: lambda b: b.detail,
    BlockerKind.REQUESTS: lambda b: b.detail,
    BlockerKind.LOWER_SHARE: lambda b: (
        f"ClusterQueue {b.queue} has a lower share and waits for workloads that it preempts; its next workload is first"
    ),
    BlockerKind.PREEMPTION_GATED: lambda b: (
        f"others could be preempted for it once these gates of it are open: {b.detail}"
    ),
}
_ABOUT_WORKLOADS: dict[BlockerKind, Callable[[str], str]] = {
    BlockerKind.YIELDS: lambda others: f"it was preempted for {others}, which is admitted first",
    BlockerKind.LEAVING: lambda others: f"fits as soon as those have left who are preempted for {others or 'it'}",
    BlockerKind.PODS_NOT_READY: lambda others: (
        f"the pods of {others} must be ready before another workload is admitted"
    ),
}
