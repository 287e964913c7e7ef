"""Which flavor each pod set gets: quota, taints, labels and topology levels, flavor by flavor in the queue's order.

    NO_FIT           this flavor cannot serve the request, now or ever
    NO_CANDIDATES    it could, if others gave quota back
    FIT              quota is there

Pod sets of one group get the same flavors; a group that fails ends the assignment.
Source: the compatible system's flavor assigner (KEP-582 fungibility, and what its behaviour shows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from kqueue.core import quota
from kqueue.core.explain import Blocker, BlockerKind, WaitReason, mildest, most_severe
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.core.topology import missing_level
from kqueue.core.topology.matching import matches_labels, untolerated_taint
from kqueue.core.workload import Flavor, Head, PodSet, PodSetAssignment, QueueSpec, ResourceGroup, Snapshot

PODS = "pods"


class Mode(IntEnum):
    """How well a flavor serves, from worst to best."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    FIT = 2


@dataclass(slots=True)
class FlavorTry:
    """The outcome of trying one flavor for the resources of one resource group."""

    flavor: str
    mode: Mode = Mode.FIT
    level: int = 0
    """How far up the cohort tree it borrows; 0: not at all."""
    reason: WaitReason | None = None
    blockers: list[Blocker] = field(default_factory=list)

    def worsen(self, mode: Mode, reason: WaitReason, blocker: Blocker) -> None:
        """Take in one more problem; the worst mode and the most severe reason stay."""
        self.mode = min(self.mode, mode)
        self.reason = reason if self.reason is None else most_severe((self.reason, reason))
        self.blockers.append(blocker)


@dataclass(slots=True)
class Assignment:
    """Flavors for a whole workload.

    `pod_sets` lacks those of a failed group and later ones; `level` is the highest borrowing level;
    `reason` and `blockers` say why it is not FIT; `last_tried` is the scan memory for the next attempt.
    """

    mode: Mode = Mode.FIT
    level: int = 0
    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: Usage = field(default_factory=dict)
    reason: WaitReason = WaitReason.WAITING_FOR_QUOTA
    blockers: list[Blocker] = field(default_factory=list)
    last_tried: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def has_more_flavors(self) -> bool:
        """Whether the next attempt would look at flavors that this one did not reach."""
        return any(index != -1 for index in self.last_tried.values())


def assign(head: Head, snapshot: Snapshot, *, pinned: Mapping[str, Mapping[str, str]] | None = None) -> Assignment:
    """Choose flavors for every pod set of a workload.

    `pinned` (pod set -> resource -> flavor) restricts the choice to flavors nominated before.
    """
    spec, node = snapshot.queues[head.queue], snapshot.nodes[head.queue]
    out = Assignment()
    for group in _groups(head.pod_sets):
        reason = _assign_group(group, _Search(head, spec, node, snapshot, pinned, out))
        if reason is not None:
            out.mode, out.reason = Mode.NO_FIT, reason
            break
    return out


def _groups(pod_sets: Sequence[PodSet]) -> list[list[PodSet]]:
    groups: dict[str, list[PodSet]] = {}
    for index, pod_set in enumerate(pod_sets):
        # a group name is never a number (validation), so the index cannot collide with one
        groups.setdefault(pod_set.request.group or str(index), []).append(pod_set)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class _Search:
    """What stays the same while one group is searched."""

    head: Head
    spec: QueueSpec
    node: QuotaNode
    snapshot: Snapshot
    pinned: Mapping[str, Mapping[str, str]] | None
    out: Assignment

    def wanted(self, pod_set: PodSet) -> dict[str, int]:
        """Total quota the pod set asks for, per covered resource; `pods` only where the queue covers it."""
        count = pod_set.request.count
        totals = {r: per_pod * count for r, per_pod in pod_set.quota_requests.items() if r != PODS}
        if self.spec.covers(PODS):
            totals[PODS] = count
        return {r: v for r, v in totals.items() if v > 0 or self.spec.covers(r)}


def _assign_group(group: list[PodSet], search: _Search) -> WaitReason | None:
    """Add the group's pod sets to the assignment; the reason when no flavor serves."""
    totals: dict[str, int] = {}
    for pod_set in group:
        for resource, amount in search.wanted(pod_set).items():
            totals[resource] = totals.get(resource, 0) + amount
    uncovered = [r for r, v in totals.items() if v > 0 and not search.spec.covers(r)]
    if uncovered:
        search.out.blockers += [
            Blocker(
                kind=BlockerKind.RESOURCE_NOT_COVERED,
                pod_set=group[0].name,
                queue=search.spec.name,
                resource=resource,
                asked=totals[resource],
            )
            for resource in sorted(uncovered)
        ]
        return WaitReason.NO_MATCHING_FLAVOR
    chosen: dict[str, str] = {}
    memory: dict[str, int] = {}
    for resource_group in search.spec.groups:
        asked = {r: totals[r] for r in resource_group.resources if r in totals}
        if not asked:
            continue
        best, index, tried = _best_flavor(group, resource_group, asked, search)
        if best is None or best.mode is not Mode.FIT:
            search.out.blockers += [b for attempt in tried for b in attempt.blockers]
        if best is None:
            return mildest(t.reason for t in tried if t.reason is not None)
        if best.mode is not Mode.FIT:
            search.out.mode = min(search.out.mode, best.mode)
        search.out.level = max(search.out.level, best.level)
        for resource in asked:
            chosen[resource], memory[resource] = best.flavor, index
    _record(group, search, chosen, memory)
    return None


def _record(group: list[PodSet], search: _Search, chosen: Mapping[str, str], memory: Mapping[str, int]) -> None:
    for pod_set in group:
        wanted = search.wanted(pod_set)
        # a pod set that requests nothing takes over the flavors of its group, so that it gets a place
        flavors = {r: chosen[r] for r in wanted if r in chosen} or dict(chosen)
        usage = {r: wanted.get(r, 0) for r in flavors}
        search.out.pod_sets.append(
            PodSetAssignment(name=pod_set.name, flavors=flavors, usage=usage, count=pod_set.request.count)
        )
        for resource, flavor in flavors.items():
            column = FlavorResource(flavor, resource)
            search.out.usage[column] = search.out.usage.get(column, 0) + usage[resource]
            search.out.last_tried[pod_set.name, resource] = memory[resource]


def _best_flavor(
    group: list[PodSet], resource_group: ResourceGroup, asked: Mapping[str, int], search: _Search
) -> tuple[FlavorTry | None, int, list[FlavorTry]]:
    """The flavor taken (None: none serves), where the next scan starts after (-1: from the front), all attempts."""
    tried: list[FlavorTry] = []
    best: FlavorTry | None = None
    last = len(resource_group.flavors) - 1
    remembered = search.head.last_tried.get((group[0].name, next(iter(asked))), -1)
    start = remembered + 1 if search.pinned is None else 0
    reached = start
    for reached in range(start, last + 1):
        name = resource_group.flavors[reached]
        if search.pinned is not None and not _is_pinned(group, asked, name, search.pinned):
            continue
        attempt = _try_flavor(group, name, asked, search)
        tried.append(attempt)
        if attempt.mode is not Mode.NO_FIT and (best is None or _is_preferred(attempt, best, search.spec)):
            best = attempt
        if _stops_at(attempt, search.spec):
            best = attempt
            break
    return best, (-1 if reached >= last else reached), tried


def _is_pinned(
    group: list[PodSet], asked: Mapping[str, int], flavor: str, pinned: Mapping[str, Mapping[str, str]]
) -> bool:
    return any(pinned.get(p.name, {}).get(r) == flavor for p in group for r in asked)


def _try_flavor(group: list[PodSet], name: str, asked: Mapping[str, int], search: _Search) -> FlavorTry:
    attempt = FlavorTry(name)
    for pod_set in group:
        problem = _eligibility(pod_set, name, search.snapshot)
        if problem is not None:
            attempt.worsen(Mode.NO_FIT, WaitReason.NO_MATCHING_FLAVOR, problem)
            return attempt
    for resource, amount in asked.items():
        _try_quota(attempt, FlavorResource(name, resource), amount, group[0].name, search)
    return attempt


def _try_quota(attempt: FlavorTry, column: FlavorResource, amount: int, pod_set: str, search: _Search) -> None:
    """Judge one column, counting what earlier groups of the same workload took from it."""
    value = quota.plus(search.out.usage.get(column, 0), amount)
    most = quota.potential_available(search.node, column)
    free = max(0, quota.available(search.node, column))
    reach = quota.lowest_subtree(search.node, column, value)
    attempt.level = max(attempt.level, reach.height)

    def blocker(kind: BlockerKind, limit: int) -> Blocker:
        return Blocker(
            kind=kind,
            pod_set=pod_set,
            queue=search.spec.name,
            flavor=column.flavor,
            resource=column.resource,
            asked=value,
            free=limit,
            never=kind is BlockerKind.EXCEEDS_MAX_QUOTA,
        )

    if value > most:
        attempt.worsen(Mode.NO_FIT, WaitReason.EXCEEDS_MAX_QUOTA, blocker(BlockerKind.EXCEEDS_MAX_QUOTA, most))
    elif value > free:
        # quota of its own, or of a cohort below the root, is only lent to others and may be taken back
        is_own = search.node.quota(column).nominal >= value or reach.may_reclaim
        may_take_back = is_own or search.spec.borrow_preempts
        mode = Mode.NO_CANDIDATES if may_take_back else Mode.NO_FIT
        attempt.worsen(mode, WaitReason.WAITING_FOR_QUOTA, blocker(BlockerKind.QUOTA, free))


def _is_preferred(a: FlavorTry, b: FlavorTry, spec: QueueSpec) -> bool:
    if (a.mode is Mode.NO_CANDIDATES) != (b.mode is Mode.NO_CANDIDATES):
        return b.mode is Mode.NO_CANDIDATES
    if spec.prefers_preemption:
        return (-a.level, a.mode) > (-b.level, b.mode)
    return (a.mode, -a.level) > (b.mode, -b.level)


def _stops_at(attempt: FlavorTry, spec: QueueSpec) -> bool:
    return attempt.mode is Mode.FIT and (attempt.level == 0 or spec.borrow_before_next_flavor)


def _eligibility(pod_set: PodSet, name: str, snapshot: Snapshot) -> Blocker | None:
    """None when the pod set's pods could run on the flavor's nodes, quota and capacity aside."""
    flavor = snapshot.flavors.get(name)
    if flavor is None:
        return Blocker(kind=BlockerKind.FLAVOR_MISSING, pod_set=pod_set.name, flavor=name)
    return _topology_problem(pod_set, flavor, snapshot) or _node_problem(pod_set, flavor)


def _topology_problem(pod_set: PodSet, flavor: Flavor, snapshot: Snapshot) -> Blocker | None:
    def blocker(detail: str) -> Blocker:
        return Blocker(kind=BlockerKind.FLAVOR_TOPOLOGY, pod_set=pod_set.name, flavor=flavor.name, detail=detail)

    wants_place = pod_set.asks_topology or pod_set.request.topology.implied
    if not wants_place:
        return blocker("it places pods by topology and this pod set asks for none") if flavor.topology else None
    if flavor.topology is None:
        return blocker("it names no topology; set spec.topologyName or use another flavor")
    view = snapshot.topologies.get(flavor.name)
    if view is None:
        return blocker(f"Topology {flavor.topology} is not known")
    level = missing_level(view.tree, pod_set.request)
    if level is not None:
        return blocker(f"Topology {view.name} has no level {level}; it has {', '.join(view.tree.levels)}")
    return None


def _node_problem(pod_set: PodSet, flavor: Flavor) -> Blocker | None:
    rules = pod_set.request.rules
    taint = untolerated_taint(flavor.taints, (*rules.tolerations, *flavor.tolerations))
    if taint is not None:
        return Blocker(kind=BlockerKind.FLAVOR_TAINT, pod_set=pod_set.name, flavor=flavor.name, detail=str(taint))
    if not matches_labels(rules, flavor.node_labels, only_keys=frozenset(flavor.node_labels)):
        return Blocker(kind=BlockerKind.FLAVOR_LABELS, pod_set=pod_set.name, flavor=flavor.name)
    return None
