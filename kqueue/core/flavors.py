"""The choice of a flavor for each pod set: quota, taints, labels and topology levels, flavor by flavor in queue order.

An oracle says whether preemption could free quota, one column at a time.  The workloads to preempt are chosen later,
for all columns together.

Pod sets of one group get the same flavors; a group that fails ends the assignment. Source: the compatible system's
flavor assigner (KEP-582 fungibility, and observed behaviour).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Protocol

from kqueue.core import quota
from kqueue.core.demand import Demands, Grant, GroupDemand, Option, Pick, RequestedGroup
from kqueue.core.explain import Blocker, BlockerKind, WaitReason, mildest, most_severe
from kqueue.core.hooks import NO_HOOKS, ProfileHooks
from kqueue.core.preemption import Target
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.value import value
from kqueue.core.workload import Head, LastTried, PodSetAssignment, Preempts, QueueSpec, Snapshot, has_more_flavors


class Mode(IntEnum):
    """How well a flavor serves, from worst to best."""

    NO_FIT = 0
    """The flavor has no room, and preemption would not help."""
    NO_CANDIDATES = 1
    """Preemption would help, but no workload may be preempted."""
    PREEMPT = 2
    """Preempting workloads, some of the own queue, would make room."""
    RECLAIM = 3
    """Preempting workloads of other queues would make room."""
    FIT = 4
    """The quota is free."""


NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = Mode
"""Constants, because an attribute lookup in an enum takes 0.1 us, and a head needs dozens of them."""
_WAITING_FOR_QUOTA = WaitReason.WAITING_FOR_QUOTA
_EXCEEDS_MAX_QUOTA, _QUOTA = BlockerKind.EXCEEDS_MAX_QUOTA, BlockerKind.QUOTA

_NOTHING: dict[Any, Any] = {}


def _nothing() -> dict[Any, Any]:
    """Return a shared empty dictionary: a search does not change its dictionaries in place."""
    return _NOTHING


class Oracle(Protocol):
    """A test whether preemption could free quota in one column alone."""

    def __call__(self, column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
        """Return one of the three middle modes, and the borrowing level after preemption.

        `level` is the borrowing level without preemption; it is returned if no workload can be preempted.
        """
        ...


def nobody(column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
    """Return NO_CANDIDATES and `level`: the oracle for a choice without preemption."""
    del column, amount
    return NO_CANDIDATES, level


@dataclass(slots=True)
class FlavorTry:
    """The result of a try of one flavor for the resources of one resource group.

    `mode` and `level` come from the least preferred resource, `worst` and `borrows` are the worst of all resources.
    """

    option: Option
    mode: Mode = FIT
    level: int = 0
    """Levels of the cohort tree through which the flavor borrows; 0: no borrowing."""
    worst: Mode = FIT
    borrows: int = 0
    reason: WaitReason | None = None
    blockers: tuple[Blocker, ...] = ()
    lacking: tuple[FlavorResource, ...] = ()
    """The columns without enough free quota."""

    def refuse(self, reason: WaitReason, blocker: Blocker) -> None:
        """Add a problem; the most severe reason is kept."""
        self.reason = reason if self.reason is None else most_severe((self.reason, reason))
        self.blockers += (blocker,)

    def take(self, mode: Mode, level: int, spec: QueueSpec) -> None:
        """Add the result for one more resource."""
        if mode is FIT and level == 0:
            return  # no mode is better, so other resources decide
        if mode < self.worst:
            self.worst = mode
        if level > self.borrows:
            self.borrows = level
        if _is_preferred(self.mode, self.level, mode, level, spec):
            self.mode, self.level = mode, level


@value(kw_only=True)
class Assignment:
    """Flavors for a whole workload.

    `pod_sets` lacks those of a failed group and later ones; `level` is the highest borrowing level; `lacking` are the
    columns without enough free quota; `reason` and `blockers` say why the mode is not FIT; `places` are the requests
    for domains, by topology flavor; `last_tried` is the scan memory for the next attempt.
    """

    mode: Mode = FIT
    level: int = 0
    pod_sets: tuple[PodSetAssignment, ...] = ()
    usage: Usage = field(default_factory=dict)
    places: Mapping[str, Sequence[PodSetRequest]] = field(default_factory=dict)
    lacking: frozenset[FlavorResource] = frozenset()
    reason: WaitReason = WaitReason.WAITING_FOR_QUOTA
    blockers: tuple[Blocker, ...] = ()
    last_tried: LastTried = field(default_factory=dict)

    @property
    def flavors(self) -> dict[str, Mapping[str, str]]:
        """Pod set -> resource -> flavor."""
        return {p.name: p.flavors for p in self.pod_sets}

    @property
    def has_more_flavors(self) -> bool:
        """Whether the next attempt would try flavors that this one did not reach."""
        return has_more_flavors(self.last_tried)


Victims = Mapping[tuple[FlavorResource, int], tuple[Target, ...]]
"""Targets for so much of one column and nothing else."""
Pins = Mapping[str, Mapping[str, str]]
"""By pod set and resource: the flavor of an earlier nomination."""


def assign(
    head: Head,
    snapshot: Snapshot,
    *,
    oracle: Oracle = nobody,
    fair: bool = False,
    pinned: Pins | None = None,
    demands: Demands | None = None,
    hooks: ProfileHooks = NO_HOOKS,
    victims: Victims | None = None,
) -> Assignment:
    """Choose flavors for every pod set of a workload.

    `oracle` is called where quota is missing that preemption might free; `fair`: fair sharing is on, which widens where
    that is considered.  `pinned` restricts the choice to flavors nominated before, and looks at all of them.  `demands`
    keeps what follows from the form of the workload.  `hooks` are the plugins of the queue's profile; `victims` gets
    the targets that the oracle found, for the plugins that compare them.

    Raises PluginError where a plugin fails.
    """
    spec, node = snapshot.queues[head.queue], snapshot.nodes[head.queue]
    if spec.delayed and head.replaces is not None:  # running pods keep their domains, so they are chosen now
        spec = replace(spec, delayed=frozenset())
    search = _Search(head, spec, node, snapshot, oracle, fair, pinned, hooks, _NOTHING if victims is None else victims)
    for demand in (demands if demands is not None else Demands()).of(head.pod_sets, spec):
        reason = _assign_group(demand, search)
        if reason is not None:
            search.mode, search.reason = NO_FIT, reason
            break
    return search.assignment()


@dataclass(slots=True)
class _Search:
    """The search for the flavors of one workload: its input, and the flavors of its groups so far."""

    head: Head
    spec: QueueSpec
    node: QuotaNode
    snapshot: Snapshot
    oracle: Oracle
    fair: bool
    pinned: Pins | None
    hooks: ProfileHooks = NO_HOOKS
    victims: Victims = field(default_factory=_nothing)
    mode: Mode = FIT
    level: int = 0
    pod_sets: tuple[PodSetAssignment, ...] = ()
    usage: Usage = field(default_factory=_nothing)
    places: Mapping[str, Sequence[PodSetRequest]] = field(default_factory=_nothing)
    lacking: frozenset[FlavorResource] = frozenset()
    reason: WaitReason = _WAITING_FOR_QUOTA
    blockers: tuple[Blocker, ...] = ()
    last_tried: LastTried = field(default_factory=_nothing)

    def add(self, grant: Grant) -> None:
        """Add the flavors of one more group."""
        if not self.pod_sets:  # most workloads have one group, whose grant is shared without a copy
            self.pod_sets, self.usage = grant.pod_sets, grant.usage
            self.places, self.last_tried = grant.places, grant.last_tried
            return
        self.pod_sets += grant.pod_sets
        usage = dict(self.usage)
        for column, amount in grant.usage.items():
            usage[column] = usage.get(column, 0) + amount
        self.usage = usage
        self.last_tried = {**self.last_tried, **grant.last_tried}
        both = [*self.places.items(), *grant.places.items()]
        self.places = {flavor: [p for f, some in both if f == flavor for p in some] for flavor, _ in both}

    def assignment(self) -> Assignment:
        """Return the result."""
        return Assignment(
            mode=self.mode,
            level=self.level,
            pod_sets=self.pod_sets,
            usage=self.usage,
            places=self.places,
            lacking=self.lacking,
            reason=self.reason,
            blockers=self.blockers,
            last_tried=self.last_tried,
        )


def _assign_group(demand: GroupDemand, search: _Search) -> WaitReason | None:
    """Add the group's pod sets to the assignment; return the reason if no flavor serves."""
    if demand.uncovered:
        search.blockers += tuple(
            Blocker(
                kind=BlockerKind.RESOURCE_NOT_COVERED,
                pod_set=demand.name,
                queue=search.spec.name,
                resource=resource,
                asked=asked,
            )
            for resource, asked in demand.uncovered.items()
        )
        return WaitReason.NO_MATCHING_FLAVOR
    fault = demand.class_fault(search.head, search.spec, search.snapshot)
    if fault is not None:
        search.blockers += (fault.blocker,)
        return fault.reason
    picks: tuple[Pick, ...] = ()
    wanting: list[tuple[FlavorTry, list[FlavorTry]]] = []
    for choice in demand.choices:
        best, index, tried = _best_flavor(demand, choice, search)
        if best is None:
            search.blockers += _all_blockers(tried)
            if not tried and search.pinned is None:
                search.blockers += (_no_flavors(demand.name, choice.asked, search),)
            return mildest(t.reason for t in tried if t.reason is not None)
        if best.worst is not FIT or best.borrows:
            wanting.append((best, tried))
        picks += ((best.option, index),)
    for best, tried in wanting:
        search.mode, search.level = min(search.mode, best.worst), max(search.level, best.borrows)
        if best.worst is not FIT:
            search.lacking = search.lacking.union(best.lacking)
            search.blockers += _all_blockers(tried)
    search.add(demand.grant(picks))
    return None


def _all_blockers(tried: Sequence[FlavorTry]) -> tuple[Blocker, ...]:
    return tried[0].blockers if len(tried) == 1 else tuple([b for attempt in tried for b in attempt.blockers])


def _no_flavors(pod_set: str, asked: Mapping[str, int], search: _Search) -> Blocker:
    """Return the blocker for a group whose queue lists no flavor."""
    what, variant = ", ".join(asked), search.head.variant
    detail = f"ClusterQueue {search.spec.name} lists no flavor for {what}; add one to the resource group"
    if variant is not None:
        detail = f"ClusterQueue {search.spec.name} does not list flavor {variant.flavor} for {what}"
    return Blocker(kind=BlockerKind.QUEUE, pod_set=pod_set, queue=search.spec.name, detail=detail)


def _best_flavor(
    demand: GroupDemand, choice: RequestedGroup, search: _Search
) -> tuple[FlavorTry | None, int, list[FlavorTry]]:
    """Return the chosen flavor (None: none serves), the index after which the next scan starts (-1: the first), and all
    tries.

    Positions are those of the order of tries: the queue's, unless the pod sets prefer card types.
    """
    tried: list[FlavorTry] = []
    best: FlavorTry | None = None
    spec, names = search.spec, choice.group.flavors
    last = len(names) - 1
    start = 0
    only = search.head.variant.flavor if search.head.variant is not None else None
    if search.pinned is None and search.head.last_tried and spec.fungible and only is None:
        start = _remembered(demand, choice, search.head.last_tried) + 1
        if start > last:
            start = 0  # flavors were removed from the queue since then
    reached = start
    if search.hooks.prefers_flavors or search.hooks.ranks:
        tried = _all_tried(demand, choice, search)
        return _preferred(tried, search), (-1 if spec.fungible else last), tried
    for reached in range(start, last + 1):
        index = choice.order[reached] if choice.order else reached
        if search.pinned is not None and not _is_pinned(demand, choice, names[index], search.pinned):
            continue
        if only is not None and names[index] != only:
            continue
        attempt = _try_flavor(demand, demand.option(choice, index, search.snapshot), search)
        tried.append(attempt)
        if attempt.mode is NO_FIT:
            continue
        if _stops_at(attempt, spec):
            best = attempt
            break
        if best is None or _is_preferred(attempt.mode, attempt.level, best.mode, best.level, spec):
            best = attempt
    # without fungibility a workload with a flavor is tried again at once
    seen_all = (reached >= last or only is not None) and spec.fungible
    return best, (-1 if seen_all else reached), tried


def _all_tried(demand: GroupDemand, choice: RequestedGroup, search: _Search) -> list[FlavorTry]:
    """Try all flavors of a group, in the order of the queue."""
    names, pinned, variant = choice.group.flavors, search.pinned, search.head.variant
    indices = [
        i
        for i, name in enumerate(names)
        if (pinned is None or _is_pinned(demand, choice, name, pinned)) and (variant is None or name == variant.flavor)
    ]
    return [_try_flavor(demand, demand.option(choice, index, search.snapshot), search) for index in indices]


def _preferred(tried: Sequence[FlavorTry], search: _Search) -> FlavorTry | None:
    """Return the try that plugins prefer: of fitting flavors the one with the highest score, else the one with the best
    set of targets.  The order of the queue decides between equal ones.  None: no flavor serves.
    """
    best: FlavorTry | None = None
    for attempt in tried:
        if attempt.mode is NO_FIT:
            continue
        if best is None or _is_preferred(attempt.mode, attempt.level, best.mode, best.level, search.spec):
            best = attempt
    if best is None:
        return None
    fitting = [attempt for attempt in tried if attempt.worst is FIT and attempt.mode is FIT]
    if fitting:
        return _highest(fitting, search) if search.hooks.prefers_flavors else best
    with_targets = [attempt for attempt in tried if attempt.worst in (Mode.PREEMPT, Mode.RECLAIM)]
    if search.hooks.ranks and with_targets:
        return min(with_targets, key=lambda attempt: search.hooks.ranked(search.head, _targets(attempt, search)))
    return best


def _highest(fitting: Sequence[FlavorTry], search: _Search) -> FlavorTry:
    flavors = {t.option.name: t.option.flavor for t in fitting if t.option.flavor is not None}
    scores = search.hooks.scored(search.head, flavors)
    return max(fitting, key=lambda attempt: scores.get(attempt.option.name, 0))


def _targets(attempt: FlavorTry, search: _Search) -> list[Target]:
    """Return the workloads that would be preempted for the columns of a flavor, each once."""
    found: dict[str, Target] = {}
    for column in attempt.lacking:
        for (asked, _), targets in search.victims.items():
            if asked == column:
                found.update({target.admitted.uid: target for target in targets})
    return list(found.values())


def _remembered(demand: GroupDemand, choice: RequestedGroup, last_tried: LastTried) -> int:
    """Return where the last scan ended, from the first pod set of the group with a memory of one of the resources."""
    found = (last_tried.get((pod_set.name, resource)) for pod_set in demand.pod_sets for resource in choice.asked)
    return next((index for index in found if index is not None), -1)


def _is_pinned(demand: GroupDemand, choice: RequestedGroup, flavor: str, pinned: Pins) -> bool:
    return any(pinned.get(p.name, {}).get(r) == flavor for p in demand.pod_sets for r in choice.asked)


def _try_flavor(demand: GroupDemand, option: Option, search: _Search) -> FlavorTry:
    attempt = FlavorTry(option)
    if option.problem is not None:
        attempt.mode = NO_FIT
        attempt.refuse(WaitReason.NO_MATCHING_FLAVOR, option.problem)
        return attempt
    if search.hooks.filters_flavors and option.flavor is not None:
        refusal = search.hooks.refused_flavor(demand.pod_sets, option.flavor)
        if refusal is not None:
            attempt.mode = NO_FIT
            attempt.refuse(WaitReason.NO_MATCHING_FLAVOR, _refused(demand.name, option.name, str(refusal)))
            return attempt
        view = search.snapshot.topologies.get(option.name)
        if view is not None and search.hooks.filters_nodes:
            for pod_set in demand.pod_sets:  # nodes are judged before flavors are scored
                search.hooks.without_refused(pod_set.request, pod_set, view.tree)
    for column, amount in option.columns:
        _try_quota(attempt, column, amount, demand.name, search)
    return attempt


def _refused(pod_set: str, flavor: str, sentence: str) -> Blocker:
    return Blocker(kind=BlockerKind.FLAVOR_PLUGIN, pod_set=pod_set, flavor=flavor, detail=sentence)


def _try_quota(attempt: FlavorTry, column: FlavorResource, amount: int, pod_set: str, search: _Search) -> None:
    """Add the result for one column, on top of the usage of earlier groups of the same workload."""
    node, spec, taken = search.node, search.spec, search.usage.get(column, 0)
    value = quota.plus(taken, amount) if taken else amount
    free, most = quota.available(node, column), quota.potential_available(node, column)
    if free < 0:
        free = 0
    reach = quota.lowest_subtree(node, column, value)
    if value <= free and value <= most:
        attempt.take(FIT, reach.height, spec)
    elif value > most:
        attempt.take(NO_FIT, 0, spec)
        attempt.refuse(WaitReason.EXCEEDS_MAX_QUOTA, _too_little(column, value, most, pod_set, spec, never=True))
    else:
        attempt.refuse(_WAITING_FOR_QUOTA, _too_little(column, value, free, pod_set, spec, node=node))
        attempt.lacking += (column,)
        if (
            node.quota(column).nominal >= value
            or reach.may_reclaim
            or spec.borrow_preempts
            or (search.fair and spec.reclaims is not Preempts.NEVER)
        ):
            attempt.take(*search.oracle(column, value, reach.height), spec)
        else:
            attempt.take(NO_FIT, reach.height, spec)


def _too_little(
    column: FlavorResource,
    asked: int,
    free: int,
    pod_set: str,
    spec: QueueSpec,
    *,
    node: QuotaNode | None = None,
    never: bool = False,
) -> Blocker:
    """Return the blocker for too little quota. `node` is the queue's node, for blockers that report the queue's usage;
    None: they do not.
    """
    return Blocker(
        kind=_EXCEEDS_MAX_QUOTA if never else _QUOTA,
        pod_set=pod_set,
        queue=spec.name,
        flavor=column.flavor,
        resource=column.resource,
        asked=asked,
        free=free,
        never=never,
        used=None if node is None else node.usage.get(column, 0),
        nominal=0 if node is None else node.quota(column).nominal,
    )


def _is_preferred(mode: Mode, level: int, other: Mode, other_level: int, spec: QueueSpec) -> bool:
    """Whether the first mode and level are strictly better than the other."""
    if mode is NO_FIT:
        return False
    if other is NO_FIT:
        return True
    if (mode is NO_CANDIDATES) != (other is NO_CANDIDATES):
        return other is NO_CANDIDATES
    if not spec.fungible:
        return mode > other
    if spec.prefers_preemption:
        return (-level, mode) > (-other_level, other)
    return (mode, -level) > (other, -other_level)


def _stops_at(attempt: FlavorTry, spec: QueueSpec) -> bool:
    if attempt.mode in (NO_FIT, NO_CANDIDATES):
        return False
    if not spec.fungible:
        return attempt.mode is FIT
    if attempt.mode is not FIT and not spec.preempt_before_next_flavor:
        return False
    return attempt.level == 0 or spec.borrow_before_next_flavor
