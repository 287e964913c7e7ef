"""The reasons why a workload waits, as data, and the only place where that data becomes sentences.

Conditions, events, metrics and the command line are renderings of the same list of blockers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from kqueue.core.mention import MayName, Mention, mentioned, no_reader
from kqueue.core.quantity import format_quantity
from kqueue.core.request_faults import request_fault
from kqueue.core.topology.node import PODS
from kqueue.core.topology.result import Misfit, MisfitCode, Shortage
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
    WAITING_FOR_LOCALITY = "WaitingForLocality"


SEVERITY = (
    WaitReason.TOPOLOGY_PLACEMENT_FAILED,
    WaitReason.WAITING_FOR_QUOTA,
    WaitReason.EXCEEDS_MAX_QUOTA,
    WaitReason.NO_MATCHING_FLAVOR,
)
"""From the mildest to the most severe."""


class BlockerKind(StrEnum):
    """Kinds of reasons for which a workload does not start."""

    FLAVOR_MISSING = "FlavorMissing"
    FLAVOR_TAINT = "FlavorTaint"
    FLAVOR_LABELS = "FlavorLabels"
    FLAVOR_TOPOLOGY = "FlavorTopology"
    FLAVOR_CLASS = "FlavorClass"
    RESOURCE_NOT_COVERED = "ResourceNotCovered"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    QUOTA = "Quota"
    TOPOLOGY = "Topology"
    NO_CANDIDATES = "NoCandidates"
    NEVER_PREEMPTS = "NeverPreempts"
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
    PLUGIN = "Plugin"
    FLAVOR_PLUGIN = "FlavorPlugin"
    GANG_LEADER = "GangLeader"
    LEAST = "MinResources"
    JOINT_ROUND = "JointRound"
    LEFT_OUT_BY_JOINT_ROUND = "LeftOutByJointRound"
    LOCALITY = "Locality"
    SIBLING = "Sibling"
    PLANNED_START = "PlannedStart"
    RESERVATION = "Reservation"


@value(kw_only=True)
class Blocker:
    """One reason to wait.

    `asked` and `free` are amounts of `resource` (cpu in milli); `misfit` is the result of the failed placement
    (topology blockers only), on an empty cluster with `never`; `never` is True when not even an empty cluster, or the
    whole cohort, has room for it; `holders` counts the workloads of lower priority that use it in the same queue, None:
    they were not counted; `used` is the queue's own usage of its `nominal` quota, None: unknown; `unusable` are nodes
    of the flavor that are cordoned or not ready; `workloads` are other workloads in the sentence; `detail` is text
    without numbers, and never the name of a workload.
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
    unusable: tuple[str, ...] = ()
    detail: str = ""
    workloads: tuple[Mention, ...] = ()


_ORDER = {
    BlockerKind.TOPOLOGY: 1,
    BlockerKind.QUOTA: 2,
    BlockerKind.EXCEEDS_MAX_QUOTA: 3,
    BlockerKind.FLAVOR_TAINT: 4,
    BlockerKind.FLAVOR_LABELS: 4,
    BlockerKind.FLAVOR_TOPOLOGY: 4,
    BlockerKind.FLAVOR_CLASS: 4,
    BlockerKind.FLAVOR_MISSING: 4,
    BlockerKind.FLAVOR_PLUGIN: 4,
    BlockerKind.NO_CANDIDATES: 5,
    BlockerKind.NEVER_PREEMPTS: 5,
}
_NO_PREEMPTION = (BlockerKind.NO_CANDIDATES, BlockerKind.NEVER_PREEMPTS)
"""Causes of single flavors, from the mildest to the most severe; all other causes concern the whole workload."""
_LACKS_QUOTA = (BlockerKind.QUOTA, BlockerKind.EXCEEDS_MAX_QUOTA)


def sentence(blocker: Blocker, may_name: MayName = no_reader) -> str:
    """Return the blocker as a sentence: request, free amount, place.  Workloads are named where `may_name` allows."""
    text = _text(_TEXTS, blocker, may_name)
    return f"pod set {blocker.pod_set}: {text}" if blocker.pod_set else text


def message(blockers: Sequence[Blocker], may_name: MayName = no_reader) -> str:
    """Return one sentence for each blocker, without repetition, in the given order."""
    return "; ".join(dict.fromkeys([sentence(blocker, may_name) for blocker in blockers]))


def root_cause(blockers: Sequence[Blocker]) -> Blocker:
    """Return the most important blocker.

    Blockers of the whole workload come first; a lack of preemption candidates is no cause by itself.  For one pod set
    the result is the cause of the flavor that came closest; among pod sets it is the most severe cause; ties go to the
    first. Raises ValueError without blockers.
    """
    mildest_of: dict[str, Blocker] = {}
    causes = [blocker for blocker in blockers if blocker.kind not in _NO_PREEMPTION]
    for blocker in causes or blockers:
        known = mildest_of.get(blocker.pod_set)
        if known is None or _ORDER.get(blocker.kind, 0) < _ORDER.get(known.kind, 0):
            mildest_of[blocker.pod_set] = blocker
    whole = [blocker for blocker in mildest_of.values() if blocker.kind not in _ORDER]
    return whole[0] if whole else max(mildest_of.values(), key=lambda blocker: _ORDER[blocker.kind])


NO_DOMAINS = "Quota is there; no room in the topology"
"""The begin of the sentence about a workload that waits for domains while others have them."""


def brief(blockers: Sequence[Blocker], may_name: MayName = no_reader) -> str:
    """Return the root cause as one short sentence, empty without blockers: for conditions, events and summaries."""
    if not blockers:
        return ""
    cause = root_cause(blockers)
    text = _text(_BRIEF, cause, may_name)
    if cause.kind is BlockerKind.TOPOLOGY and not cause.never and not any(b.kind in _LACKS_QUOTA for b in blockers):
        text = f"{NO_DOMAINS}: {text}"
    named = cause.pod_set not in ("", "main")
    return f"{text[:1].upper()}{text[1:]}{f' (pod set {cause.pod_set})' if named else ''}"


def _text(texts: Mapping[BlockerKind, Callable[[Blocker], str]], blocker: Blocker, may_name: MayName) -> str:
    about = _ABOUT_WORKLOADS.get(blocker.kind)
    return about(blocker, mentioned(blocker.workloads, may_name)) if about is not None else texts[blocker.kind](blocker)


def most_severe(reasons: Iterable[WaitReason]) -> WaitReason:
    """Return the most severe reason; WaitingForQuota for an empty list."""
    known = [r for r in reasons if r in SEVERITY]
    return max(known, key=SEVERITY.index, default=WaitReason.WAITING_FOR_QUOTA)


def mildest(reasons: Iterable[WaitReason]) -> WaitReason:
    """Return the reason of the flavor that came closest; NoMatchingFlavor for an empty list."""
    known = [r for r in reasons if r in SEVERITY]
    return min(known, key=SEVERITY.index, default=WaitReason.NO_MATCHING_FLAVOR)


def _quota(b: Blocker) -> str:
    short = max(0, b.asked - b.free)
    return (
        f"asks for {_amount(b.asked, b.resource)} of flavor {b.flavor}, ClusterQueue {b.queue} has "
        f"{_amount(max(0, b.free), b.resource)} free{_parts(b)}, {_amount(short, b.resource)} more needed"
    )


def _brief_quota(b: Blocker) -> str:
    own, lent = _split(b)
    borrowed = f"{format_quantity(lent, b.resource)} of it" if own else "all of it"
    return (
        f"{_amount(b.asked, b.resource)} of flavor {b.flavor} asked, ClusterQueue {b.queue} has "
        f"{format_quantity(max(0, b.free), b.resource)} free{f', {borrowed} to borrow from its cohort' if lent else ''}"
    )


def _parts(b: Blocker) -> str:
    """Return the usage of the queue's own quota and the amount that it could borrow as text; empty if neither
    is known.
    """
    if b.used is None:
        return ""
    own, lent = _split(b)
    text = f"it uses {format_quantity(b.used, b.resource)} of its own {format_quantity(b.nominal, b.resource)}"
    by_others = b.nominal - b.used - own
    if by_others > 0:
        text += f", others of its cohort {format_quantity(by_others, b.resource)} of it"
    if lent:
        text += f"; {format_quantity(lent, b.resource)} are to borrow from its cohort"
    return f" ({text})"


def _split(b: Blocker) -> tuple[int, int]:
    """Return the free amount of the queue's own quota, and the amount that it could borrow: 0 where that is unknown."""
    free = max(0, b.free)
    own = free if b.used is None else min(free, max(0, b.nominal - b.used))
    return own, free - own


def _max_quota(b: Blocker) -> str:
    return (
        f"asks for {_amount(b.asked, b.resource)} of flavor {b.flavor}, ClusterQueue {b.queue} can never get more than "
        f"{_amount(b.free, b.resource)}, its cohort included; ask for less or raise the quota"
    )


def _brief_max_quota(b: Blocker) -> str:
    return (
        f"{_amount(b.asked, b.resource)} of flavor {b.flavor} asked, ClusterQueue {b.queue} can get "
        f"{format_quantity(b.free, b.resource)} at most; ask for less or raise the quota"
    )


def _no_candidates(b: Blocker) -> str:
    text = f"no workload may be preempted for it: ClusterQueue {b.queue} has {b.detail}"
    if b.holders == 0:
        return f"{text}, and no workload of lower priority holds any of it there"
    if b.holders:
        return f"{text}, and the {b.holders} of lower priority that hold some of it there are not enough"
    return text


def _locality(b: Blocker) -> str:
    later = f"other places are good enough from {b.detail}" if b.detail else "no other place is good enough"
    return f"waits for a place near its data, and has no room there now; {later}"


def _topology(b: Blocker) -> str:
    misfit = b.misfit
    if misfit is None:
        return b.detail
    if misfit.together and misfit.code is MisfitCode.NO_FIT:
        return _no_common_domain(b, misfit)
    if misfit.code in (MisfitCode.NO_FIT, MisfitCode.NO_DOMAINS_AT_LEVEL):
        return _no_room(b, misfit)
    return f"flavor {b.flavor}, topology {misfit.topology}: {request_fault(misfit)}"


def _brief_topology(b: Blocker) -> str:
    misfit = b.misfit
    if misfit is None or misfit.code not in (MisfitCode.NO_FIT, MisfitCode.NO_DOMAINS_AT_LEVEL):
        return _topology(b)
    if misfit.together:
        return _common_domain(misfit, when=", even with no workload running" if b.never else "")
    outside = misfit.excluded.topology_domain > 0 and misfit.best_domain is not None
    if misfit.leaves == 0 or (misfit.excluded.total() >= misfit.leaves and not outside):
        return _no_node(b, misfit)
    best = _best(misfit, brief=True)
    if not b.never:
        return best
    rest = f"cordoned or not ready: {_named(b.unusable, 2)}" if b.unusable else "ask for fewer pods"
    return f"with no workload running, {best}; {rest}"


def _no_room(b: Blocker, misfit: Misfit) -> str:
    """Return request and free amount, with level, best domain and scarcest resource, as text."""
    if misfit.leaves == 0 or misfit.one_pod is not None:
        return f"{_no_node(b, misfit)} (topology {misfit.topology})"
    where = f"one domain of level {misfit.level}" if misfit.level else "the topology"
    if misfit.spread:
        where = f"all domains of level {misfit.level} together"
    who = _counted(misfit.total, misfit.unit) + (f" and the leader of group {misfit.group}" if misfit.group else "")
    verb = "do" if misfit.total != 1 or misfit.group else "does"
    when = ", even with no workload running" if b.never else ""
    text = f"{who} {verb} not fit in {where} (topology {misfit.topology}, flavor {b.flavor}){when}: {_best(misfit)}"
    text += "".join(f"; in it fit {a.fit} of {a.total} slices at level {a.level}" for a in misfit.layers)
    if misfit.shortage is not None:
        text += f"; {_short_of(misfit.shortage)}"
    causes = exclusions(misfit)
    if causes:
        text += f"; of {_counted(misfit.leaves, 'node')} these cannot hold one pod: {causes}"
    if b.unusable:
        text += f"; {unusable_nodes(b.unusable)}"
    if b.never:
        text += f"; {_remedy(b)}"
    return text


def _no_common_domain(b: Blocker, misfit: Misfit) -> str:
    """Return why no domain has room for all roles of a gang, as text."""
    when = ", even with no workload running" if b.never else ""
    text = _common_domain(misfit, when=f" (topology {misfit.topology}, flavor {b.flavor}){when}")
    if misfit.shortage is not None:
        text += f"; {_short_of(misfit.shortage)}"
    if b.unusable:
        text += f"; {unusable_nodes(b.unusable)}"
    return f"{text}; {_remedy(b)}" if b.never else text


def _common_domain(misfit: Misfit, *, when: str) -> str:
    level = _last_part(misfit.level or "domain")
    text = f"no {level} has room for all roles together{when}"
    if misfit.best_domain is None:
        return text
    return f"{text}: the best, {'/'.join(misfit.best_domain)}, has room for {misfit.fit} of {misfit.total} pods"


def _remedy(b: Blocker) -> str:
    fewer = "ask for fewer pods, smaller pods or a wider level"
    return f"bring nodes back, or {fewer}" if b.unusable else fewer


def _short_of(short: Shortage) -> str:
    asked, free = (format_quantity(n, short.resource) for n in (short.asked, short.free))
    what = "places for pods, in use or reserved" if short.resource == PODS else short.resource
    text = f"short of {what}: asked {asked}, free {free}"
    return f"{text}, held by other workloads {format_quantity(short.held, short.resource)}" if short.held else text


def _best(misfit: Misfit, *, brief: bool = False) -> str:
    """Return how many units fit into the best domain, as text."""
    of_total = f" of {misfit.total} {misfit.unit}s" if brief else ""
    if misfit.best_domain is not None:
        leader = ", but not for the leader besides" if misfit.leader else ""
        level = f" {_last_part(misfit.level)}" if brief and misfit.level else ""
        if brief and misfit.excluded.topology_domain:
            level += " of its gang"
        comma = " " if brief and not misfit.excluded.topology_domain else ", "
        path, alone = "/".join(misfit.best_domain), _one_a_host(misfit, brief=brief)
        return f"the best{level}{comma}{path}{comma}has room for {misfit.fit}{of_total}{leader}{alone}"
    if misfit.leader:
        return "no place holds their leader"
    if misfit.fit:
        fit = f"only {misfit.fit}{of_total} fit" if brief else f"only {misfit.fit} of them would fit"
        return fit + _one_a_host(misfit, brief=brief)
    return f"none{of_total} fits" if brief else "none of them would fit"


def _one_a_host(misfit: Misfit, *, brief: bool) -> str:
    """Return a text for the limit on the pods of each host; empty if only resources limit them."""
    if not misfit.alone:
        return ""
    return ", one a host" if brief else ", one a host because of its host port or required anti-affinity"


def _no_node(b: Blocker, misfit: Misfit) -> str:
    """Return the text for pods that no node can run."""
    more = f"; {unusable_nodes(b.unusable)}" if b.unusable else ""
    if misfit.leaves == 0:
        return f"no ready, schedulable node has the labels of flavor {b.flavor} and all levels of the topology{more}"
    nodes = f"{_counted(misfit.leaves, 'usable node')} of flavor {b.flavor}"
    if misfit.excluded.node_selector == misfit.leaves:
        return f"node selector {misfit.selector} matches none of the {nodes}{more}"
    if misfit.excluded.affinity == misfit.leaves:
        return f"required node affinity matches none of the {nodes}{more}"
    if misfit.one_pod is not None:
        one = misfit.one_pod
        if one.resource == PODS and not b.never:
            return f"none of the {nodes} has a place for another pod (in use or reserved){more}"
        asked, most = (format_quantity(n, one.resource) for n in (one.asked, one.free))
        if not b.never:
            return f"one pod asks for {asked} {one.resource}, the most free on a node is {most}"
        return (
            f"with no workload running, no node of flavor {b.flavor} has room for one pod: it asks for {asked} "
            f"{one.resource}, the most on a node is {most}{more}"
        )
    return f"none of the {nodes} can hold one pod: {exclusions(misfit)}{more}"


def unusable_nodes(nodes: Sequence[str], *, most: int = 3) -> str:
    """Return a text with nodes that are cordoned or not ready, `most` of them by name; the list must not be empty."""
    are = "is" if len(nodes) == 1 else "are"
    return f"{_counted(len(nodes), 'node')} {are} cordoned or not ready: {_named(nodes, most)}"


def _named(nodes: Sequence[str], most: int) -> str:
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return f"{', '.join(nodes[:most])}{more}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _last_part(label: str) -> str:
    """Return a label's name without its prefix."""
    return label.rpartition("/")[2]


def exclusions(misfit: Misfit) -> str:
    """Return the numbers of nodes that cannot run one pod, by cause, as text; empty: every node can."""
    excluded = misfit.excluded
    counts: dict[str, int] = {}
    if excluded.node_selector:
        counts[f"node selector {misfit.selector}".rstrip()] = excluded.node_selector
    if excluded.affinity:
        counts["node affinity"] = excluded.affinity
    if excluded.topology_domain:
        counts["lying outside of its gang's domain"] = excluded.topology_domain
    if excluded.others:
        counts["another pod of the workload (host port or anti-affinity)"] = excluded.others
    counts.update({f"taint {taint}": n for taint, n in sorted(excluded.taints.items())})
    counts.update(sorted(excluded.refused.items()))
    counts.update({_too_little(resource): n for resource, n in sorted(excluded.resources.items())})
    return ", ".join(f"{count} by {cause}" for cause, count in counts.items())


def _too_little(resource: str) -> str:
    """Return why a node cannot run one pod; a Reservation of a whole host takes its places for pods."""
    return "having no place for another pod (in use or reserved)" if resource == PODS else f"too little {resource}"


def _amount(value: int, resource: str) -> str:
    return f"{format_quantity(value, resource)} {resource}" if resource else str(value)


_TEXTS: dict[BlockerKind, Callable[[Blocker], str]] = {
    BlockerKind.FLAVOR_MISSING: lambda b: f"ResourceFlavor {b.flavor} does not exist; create it or correct the name",
    BlockerKind.FLAVOR_TAINT: lambda b: f"taint {b.detail} of flavor {b.flavor} is not tolerated",
    BlockerKind.FLAVOR_LABELS: lambda b: f"node selector or affinity does not match the labels of flavor {b.flavor}",
    BlockerKind.FLAVOR_TOPOLOGY: lambda b: f"flavor {b.flavor} cannot serve the topology request: {b.detail}",
    BlockerKind.FLAVOR_CLASS: lambda b: f"flavor {b.flavor} {b.detail}" if b.flavor else b.detail,
    BlockerKind.RESOURCE_NOT_COVERED: lambda b: (
        f"resource {b.resource} is not covered by ClusterQueue {b.queue}; add it to a resource group"
    ),
    BlockerKind.EXCEEDS_MAX_QUOTA: _max_quota,
    BlockerKind.QUOTA: _quota,
    BlockerKind.TOPOLOGY: _topology,
    BlockerKind.NO_CANDIDATES: _no_candidates,
    BlockerKind.NEVER_PREEMPTS: lambda _: "its priority class never preempts",
    BlockerKind.TAKEN_THIS_CYCLE: lambda b: (
        f"fitted until {b.detail} took the room in the same cycle; it is tried again"
    ),
    BlockerKind.LENDERS: lambda b: (
        f"ClusterQueue {b.queue} would borrow quota that workloads of its owner are tried for first; it is tried again"
    ),
    BlockerKind.LEAST: lambda b: (
        f"minResources asks for {_amount(b.asked, b.resource)}, {_amount(b.free, b.resource)} is free of flavor "
        f"{b.flavor} in ClusterQueue {b.queue}, {_amount(b.asked - b.free, b.resource)} more needed"
    ),
    BlockerKind.QUEUE: lambda b: b.detail,
    BlockerKind.NAMESPACE: lambda b: b.detail,
    BlockerKind.REQUESTS: lambda b: b.detail,
    BlockerKind.LOCALITY: _locality,
    BlockerKind.PLUGIN: lambda b: b.detail,
    BlockerKind.RESERVATION: lambda b: f"its room is kept for Reservation {b.detail}",
    BlockerKind.SIBLING: lambda b: f"{b.detail} of the same parent is admitted in flavor {b.flavor}",
    BlockerKind.JOINT_ROUND: lambda b: b.detail,
    BlockerKind.LEFT_OUT_BY_JOINT_ROUND: lambda b: b.detail,
    BlockerKind.FLAVOR_PLUGIN: lambda b: f"{b.detail} (flavor {b.flavor})",
    BlockerKind.LOWER_SHARE: lambda b: (
        f"ClusterQueue {b.queue} has a lower share and waits for workloads that it preempts; its next workload is first"
    ),
    BlockerKind.PREEMPTION_GATED: lambda b: (
        f"others could be preempted for it once these gates of it are open: {b.detail}"
    ),
}
_BRIEF: dict[BlockerKind, Callable[[Blocker], str]] = {
    **_TEXTS,
    BlockerKind.EXCEEDS_MAX_QUOTA: _brief_max_quota,
    BlockerKind.QUOTA: _brief_quota,
    BlockerKind.TOPOLOGY: _brief_topology,
}
"""Short sentences, for messages whose readers find the rest in `kqueue explain`."""
_ABOUT_WORKLOADS: dict[BlockerKind, Callable[[Blocker, str], str]] = {
    BlockerKind.YIELDS: lambda _, others: f"it was preempted for {others}, which is admitted first",
    BlockerKind.LEAVING: lambda _, others: (
        f"waits for the workloads preempted for {others or 'it'} to release what they hold"
    ),
    BlockerKind.PODS_NOT_READY: lambda _, others: (
        f"the pods of {others} must be ready before another workload is admitted"
    ),
    BlockerKind.PLANNED_START: lambda b, others: (
        f"its room is kept for {others}, planned to start at {b.detail}; runs limited to end before may start"
    ),
    BlockerKind.GANG_LEADER: lambda b, gang: (
        f"flavor {b.flavor} is kept for {'gang ' if '/' in gang else ''}{gang}, of which {b.free} of {b.asked} pods "
        f"are scheduled, until {b.detail} at the latest"
    ),
}
