"""Which flavor each pod set gets: quota, taints, labels and topology levels, flavor by flavor in the queue's order.

What preemption could free is asked of an oracle, one column at a time; which workloads are really preempted is decided
later, for all columns together.

Pod sets of one group get the same flavors; a group that fails ends the assignment.
Source: the compatible system's flavor assigner (KEP-582 fungibility, and what its behaviour shows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from kqueue.core import quota
from kqueue.core.explain import Blocker, BlockerKind, WaitReason, mildest, most_severe
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.core.topology import missing_level
from kqueue.core.topology.matching import matches_labels, untolerated_taint
from kqueue.core.workload import (
    Flavor,
    Head,
    LastTried,
    PodSet,
    PodSetAssignment,
    Preempts,
    QueueSpec,
    ResourceGroup,
    Snapshot,
)

PODS = "pods"


class Mode(IntEnum):
    """How well a flavor serves, from worst to best."""

    NO_FIT = 0
    """Not now, and not by taking something back."""
    NO_CANDIDATES = 1
    """Others could be asked to give quota back, but there is nobody who may be preempted."""
    PREEMPT = 2
    """Preempting workloads, some of the own queue, would make room."""
    RECLAIM = 3
    """Preempting workloads of other queues would make room."""
    FIT = 4
    """Quota is there."""


class Oracle(Protocol):
    """Says whether preemption could make room for one column alone."""

    def __call__(self, column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
        """One of the three middle modes, and how far up the tree the amount would reach then.

        `level` is how far it reaches as things are, which is the answer where nobody can be preempted.
        """
        ...


def nobody(column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
    """The oracle where preemption is not considered."""
    del column, amount
    return Mode.NO_CANDIDATES, level


@dataclass(slots=True)
class FlavorTry:
    """The outcome of trying one flavor for the resources of one resource group.

    `mode` and `level` are those of the least preferred resource, `worst` and `borrows` the worst of any.
    """

    flavor: str
    mode: Mode = Mode.FIT
    level: int = 0
    """How far up the cohort tree it borrows; 0: not at all."""
    worst: Mode = Mode.FIT
    borrows: int = 0
    reason: WaitReason | None = None
    blockers: list[Blocker] = field(default_factory=list)
    lacking: list[FlavorResource] = field(default_factory=list)
    """Columns whose quota is not there."""

    def refuse(self, reason: WaitReason, blocker: Blocker) -> None:
        """Take in one more problem; the most severe reason stays."""
        self.reason = reason if self.reason is None else most_severe((self.reason, reason))
        self.blockers.append(blocker)

    def take(self, mode: Mode, level: int, spec: QueueSpec) -> None:
        """Take in one more resource."""
        if mode is Mode.FIT and level == 0:
            return  # nothing is better, so others decide
        self.worst, self.borrows = min(self.worst, mode), max(self.borrows, level)
        if _is_preferred(self.mode, self.level, mode, level, spec):
            self.mode, self.level = mode, level


@dataclass(slots=True)
class Assignment:
    """Flavors for a whole workload.

    `pod_sets` lacks those of a failed group and later ones; `level` is the highest borrowing level; `lacking` are the
    columns whose quota is not there; `reason` and `blockers` say why it is not FIT; `last_tried` is the scan memory for
    the next attempt.
    """

    mode: Mode = Mode.FIT
    level: int = 0
    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: Usage = field(default_factory=dict)
    lacking: set[FlavorResource] = field(default_factory=set)
    reason: WaitReason = WaitReason.WAITING_FOR_QUOTA
    blockers: list[Blocker] = field(default_factory=list)
    last_tried: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def flavors(self) -> dict[str, Mapping[str, str]]:
        """Pod set -> resource -> flavor."""
        return {p.name: p.flavors for p in self.pod_sets}

    @property
    def has_more_flavors(self) -> bool:
        """Whether the next attempt would look at flavors that this one did not reach."""
        return any(index != -1 for index in self.last_tried.values())


Pins = Mapping[str, Mapping[str, str]]
"""Pod set -> resource -> the flavor that it was nominated for."""


def assign(
    head: Head, snapshot: Snapshot, *, oracle: Oracle = nobody, fair: bool = False, pinned: Pins | None = None
) -> Assignment:
    """Choose flavors for every pod set of a workload.

    `oracle` is asked where quota is missing that preemption might free; `fair`: fair sharing is on, which widens where
    that is considered.  `pinned` restricts the choice to flavors nominated before, and looks at all of them.
    """
    spec, node = snapshot.queues[head.queue], snapshot.nodes[head.queue]
    search = _Search(head, spec, node, snapshot, oracle, fair, pinned, Assignment())
    out = search.out
    for group in _groups(head.pod_sets):
        reason = _assign_group(group, search)
        if reason is not None:
            out.mode, out.reason = Mode.NO_FIT, reason
            break
    return out


def _groups(pod_sets: Sequence[PodSet]) -> list[list[PodSet]]:
    if len(pod_sets) == 1:
        return [list(pod_sets)]
    groups: dict[str, list[PodSet]] = {}
    for index, pod_set in enumerate(pod_sets):
        # a group name is never a number (validation), so the index cannot collide with one
        groups.setdefault(pod_set.request.group or str(index), []).append(pod_set)
    return list(groups.values())


@dataclass(slots=True)
class _Search:
    """What stays the same while the groups of one workload are searched, and what is found."""

    head: Head
    spec: QueueSpec
    node: QuotaNode
    snapshot: Snapshot
    oracle: Oracle
    fair: bool
    pinned: Pins | None
    out: Assignment

    def wanted(self, pod_set: PodSet) -> dict[str, int]:
        """Total quota the pod set asks for, per resource; `pods` only where the queue covers it.

        Resources that the queue does not cover are left out where nothing of them is asked, or it ignores them.
        """
        count, covered, spec = pod_set.request.count, self.spec.covered, self.spec
        totals = {
            r: per_pod * count
            for r, per_pod in pod_set.quota_requests.items()
            if r != PODS and (r in covered or (per_pod * count > 0 and not spec.ignores_undeclared))
        }
        if PODS in covered:
            totals[PODS] = count
        return totals


def _assign_group(group: list[PodSet], search: _Search) -> WaitReason | None:
    """Add the group's pod sets to the assignment; the reason when no flavor serves."""
    spec, out = search.spec, search.out
    wanted = [search.wanted(pod_set) for pod_set in group]
    totals = wanted[0] if len(wanted) == 1 else _summed(wanted)
    uncovered = totals.keys() - spec.covered
    if uncovered:
        out.blockers += [
            Blocker(
                kind=BlockerKind.RESOURCE_NOT_COVERED,
                pod_set=group[0].name,
                queue=spec.name,
                resource=resource,
                asked=totals[resource],
            )
            for resource in sorted(uncovered)
        ]
        return WaitReason.NO_MATCHING_FLAVOR
    chosen: dict[str, str] = {}
    memory: dict[str, int] = {}
    found: list[FlavorTry] = []
    blockers: list[Blocker] = []
    for resource_group in spec.groups:
        asked = {r: totals[r] for r in resource_group.resources if r in totals}
        if not asked:
            continue
        best, index, tried = _best_flavor(group, resource_group, asked, search)
        if best is None:
            out.blockers += [b for attempt in tried for b in attempt.blockers]
            if not tried and search.pinned is None:
                out.blockers.append(_no_flavors(group[0].name, asked, search))
            return mildest(t.reason for t in tried if t.reason is not None)
        if best.worst is not Mode.FIT:
            blockers += [b for attempt in tried for b in attempt.blockers]
        found.append(best)
        for resource in asked:
            chosen[resource], memory[resource] = best.flavor, index
    for best in found:
        out.mode, out.level = min(out.mode, best.worst), max(out.level, best.borrows)
        out.lacking.update(best.lacking)
    out.blockers += blockers
    _record(group, wanted, search, chosen, memory)
    return None


def _no_flavors(pod_set: str, asked: Mapping[str, int], search: _Search) -> Blocker:
    """Why no flavor was even tried."""
    what = ", ".join(asked)
    detail = f"ClusterQueue {search.spec.name} lists no flavor for {what}; add one to the resource group"
    return Blocker(kind=BlockerKind.QUEUE, pod_set=pod_set, queue=search.spec.name, detail=detail)


def _summed(amounts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for of_one in amounts:
        for resource, amount in of_one.items():
            totals[resource] = totals.get(resource, 0) + amount
    return totals


def _record(
    group: list[PodSet],
    wanted: Sequence[Mapping[str, int]],
    search: _Search,
    chosen: Mapping[str, str],
    memory: Mapping[str, int],
) -> None:
    out = search.out
    for pod_set, asked in zip(group, wanted, strict=True):
        # a pod set that requests nothing takes over what places its group, so that it gets a place there, too
        flavors = {r: chosen[r] for r in asked if r in chosen} or _placing(chosen, search.snapshot)
        usage = {r: asked.get(r, 0) for r in flavors}
        out.pod_sets.append(
            PodSetAssignment(name=pod_set.name, flavors=flavors, usage=usage, count=pod_set.request.count)
        )
        for resource, flavor in flavors.items():
            column = FlavorResource(flavor, resource)
            out.usage[column] = out.usage.get(column, 0) + usage[resource]
            out.last_tried[pod_set.name, resource] = memory[resource]


def _placing(chosen: Mapping[str, str], snapshot: Snapshot) -> dict[str, str]:
    return {r: name for r, name in chosen.items() if snapshot.flavors[name].topology is not None}


def _best_flavor(
    group: list[PodSet], resource_group: ResourceGroup, asked: Mapping[str, int], search: _Search
) -> tuple[FlavorTry | None, int, list[FlavorTry]]:
    """The flavor taken (None: none serves), where the next scan starts after (-1: from the front), all attempts."""
    tried: list[FlavorTry] = []
    best: FlavorTry | None = None
    spec = search.spec
    last = len(resource_group.flavors) - 1
    start = 0
    if search.pinned is None and search.head.last_tried and spec.fungible:
        start = _remembered(group, asked, search.head.last_tried) + 1
        if start > last:
            start = 0  # flavors were taken out of the queue since
    reached = start
    for reached in range(start, last + 1):
        name = resource_group.flavors[reached]
        if search.pinned is not None and not _is_pinned(group, asked, name, search.pinned):
            continue
        attempt = _try_flavor(group, name, resource_group, asked, search)
        tried.append(attempt)
        if attempt.mode is Mode.NO_FIT:
            continue
        if _stops_at(attempt, spec):
            best = attempt
            break
        if best is None or _is_preferred(attempt.mode, attempt.level, best.mode, best.level, spec):
            best = attempt
    seen_all = reached >= last and spec.fungible  # without fungibility who got a flavor is tried again at once
    return best, (-1 if seen_all else reached), tried


def _remembered(group: list[PodSet], asked: Mapping[str, int], last_tried: LastTried) -> int:
    """Where the last scan ended: what the first pod set of the group remembers of any of the resources."""
    found = (last_tried.get((pod_set.name, resource)) for pod_set in group for resource in asked)
    return next((index for index in found if index is not None), -1)


def _is_pinned(group: list[PodSet], asked: Mapping[str, int], flavor: str, pinned: Pins) -> bool:
    return any(pinned.get(p.name, {}).get(r) == flavor for p in group for r in asked)


def _try_flavor(
    group: list[PodSet], name: str, resource_group: ResourceGroup, asked: Mapping[str, int], search: _Search
) -> FlavorTry:
    attempt = FlavorTry(name)
    for pod_set in group:
        counts_only = pod_set.asks_topology and _counts_only(pod_set, resource_group, search.spec)
        problem = _eligibility(pod_set, name, search.snapshot, counts_only=counts_only)
        if problem is not None:
            attempt.mode = Mode.NO_FIT
            attempt.refuse(WaitReason.NO_MATCHING_FLAVOR, problem)
            return attempt
    for resource, amount in asked.items():
        _try_quota(attempt, FlavorResource(name, resource), amount, group[0].name, search)
    return attempt


def _try_quota(attempt: FlavorTry, column: FlavorResource, amount: int, pod_set: str, search: _Search) -> None:
    """Judge one column, counting what earlier groups of the same workload took from it."""
    node, spec, taken = search.node, search.spec, search.out.usage.get(column, 0)
    value = quota.plus(taken, amount) if taken else amount
    free = max(0, quota.available(node, column))
    if value <= free and value <= quota.potential_available(node, column):
        attempt.take(Mode.FIT, quota.lowest_subtree(node, column, value).height, spec)
        return

    def blocker(kind: BlockerKind, limit: int) -> Blocker:
        return Blocker(
            kind=kind,
            pod_set=pod_set,
            queue=spec.name,
            flavor=column.flavor,
            resource=column.resource,
            asked=value,
            free=limit,
            never=kind is BlockerKind.EXCEEDS_MAX_QUOTA,
        )

    most = quota.potential_available(node, column)
    if value > most:
        attempt.take(Mode.NO_FIT, 0, spec)
        attempt.refuse(WaitReason.EXCEEDS_MAX_QUOTA, blocker(BlockerKind.EXCEEDS_MAX_QUOTA, most))
        return
    attempt.refuse(WaitReason.WAITING_FOR_QUOTA, blocker(BlockerKind.QUOTA, free))
    attempt.lacking.append(column)
    reach = quota.lowest_subtree(node, column, value)
    if (
        node.quota(column).nominal >= value
        or reach.may_reclaim
        or spec.borrow_preempts
        or (search.fair and spec.reclaims is not Preempts.NEVER)
    ):
        attempt.take(*search.oracle(column, value, reach.height), spec)
    else:
        attempt.take(Mode.NO_FIT, reach.height, spec)


def _is_preferred(mode: Mode, level: int, other: Mode, other_level: int, spec: QueueSpec) -> bool:
    """Whether the first is strictly better than the other."""
    if mode is Mode.NO_FIT:
        return False
    if other is Mode.NO_FIT:
        return True
    if (mode is Mode.NO_CANDIDATES) != (other is Mode.NO_CANDIDATES):
        return other is Mode.NO_CANDIDATES
    if not spec.fungible:
        return mode > other
    if spec.prefers_preemption:
        return (-level, mode) > (-other_level, other)
    return (mode, -level) > (other, -other_level)


def _stops_at(attempt: FlavorTry, spec: QueueSpec) -> bool:
    if attempt.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
        return False
    if not spec.fungible:
        return attempt.mode is Mode.FIT
    if attempt.mode is not Mode.FIT and not spec.preempt_before_next_flavor:
        return False
    return attempt.level == 0 or spec.borrow_before_next_flavor


def _counts_only(pod_set: PodSet, resource_group: ResourceGroup, spec: QueueSpec) -> bool:
    """Whether the group is about nothing that pods really ask for, as what transformations make of it, and another
    one is: that one's flavor says where they go.
    """
    own = pod_set.request.requests.keys()
    return own.isdisjoint(resource_group.resources) and not own.isdisjoint(spec.covered)


def _eligibility(pod_set: PodSet, name: str, snapshot: Snapshot, *, counts_only: bool) -> Blocker | None:
    """None when the pod set's pods could run on the flavor's nodes, quota and capacity aside.

    `counts_only`: a flavor that stands on no nodes serves, too.
    """
    flavor = snapshot.flavors.get(name)
    if flavor is None:
        return Blocker(kind=BlockerKind.FLAVOR_MISSING, pod_set=pod_set.name, flavor=name)
    if counts_only and flavor.topology is None:
        return _node_problem(pod_set, flavor)
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
    taint = untolerated_taint(flavor.taints, (*rules.tolerations, *flavor.tolerations)) if flavor.taints else None
    if taint is not None:
        return Blocker(kind=BlockerKind.FLAVOR_TAINT, pod_set=pod_set.name, flavor=flavor.name, detail=str(taint))
    if not matches_labels(rules, flavor.node_labels, only_keys=frozenset(flavor.node_labels)):
        return Blocker(kind=BlockerKind.FLAVOR_LABELS, pod_set=pod_set.name, flavor=flavor.name)
    return None
