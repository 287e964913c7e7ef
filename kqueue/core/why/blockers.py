"""All blockers of a workload with amounts, not only the first blocker, at which a cycle stops.

Each pod set is examined by itself in every flavor of its queue; in each flavor both quota and domains are examined; and
domains at every level from the widest to the requested one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kqueue.core import quota
from kqueue.core.decision import Decision, Wait
from kqueue.core.demand import Demands, GroupDemand, Option, RequestedGroup
from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.planned_state import PlannedState
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.counting import Tally, shortage, tally
from kqueue.core.topology.placement import place
from kqueue.core.topology.request import PodSetRequest, Resolved, resolve
from kqueue.core.topology.result import Misfit, Path, Shortage
from kqueue.core.topology.tree import Ints
from kqueue.core.topology_blockers import topology_blocker
from kqueue.core.value import value
from kqueue.core.why.holders import Occupancy, ResourceHolders, column_holders
from kqueue.core.why.trials import Trials
from kqueue.core.workload import Head, TopologyView

DOMAINS_SHOWN = 3
"""The number of best domains that are shown for each level."""


@value(kw_only=True)
class ColumnLook:
    """Quota of one resource in one flavor.

    Args:
        asked: the request of all pods of the pod sets.
        free: the amount that the queue could still take, borrowing included; never negative.
        most: the amount that the queue could use if no other workload existed.
        nominal, used: quota and usage of the queue itself.
        held: the workloads that use the rest, if the amount is short.
    """

    column: FlavorResource
    asked: int
    free: int
    most: int
    nominal: int
    used: int
    held: ResourceHolders | None = None


@value(kw_only=True)
class DomainLook:
    """One of the domains that come closest to the request.

    Args:
        fit, total: units (pods or slices) that fit, and units requested.
        short: the scarcest resource; None if rules exclude the pods.
        held: the workloads that use that resource.
    """

    path: Path
    fit: int
    total: int
    short: Shortage | None = None
    held: ResourceHolders | None = None


@value(kw_only=True)
class LevelLook:
    """One level of a flavor's topology.

    Args:
        asked: whether the request names the level.
        unit: `pod` or `slice`.
        domains: the number of domains.
        fit: units that fit in all domains together, of `total`.
        best: the domains with most room.
    """

    level: str
    asked: bool
    unit: str
    domains: int
    fit: int
    total: int
    best: tuple[DomainLook, ...]


@value(kw_only=True)
class FlavorLook:
    """One flavor, examined for pod sets that must get the same flavor.

    Args:
        pod_sets: their names.
        problem: why their pods could not run on its nodes; then the flavor was not examined further.
        misfit: why they have no domains; None: they have domains, or need none.
        never: not even an empty cluster has domains for them; then `misfit` is the misfit on an empty cluster.
        unusable: nodes of the flavor that are cordoned or not ready.
    """

    pod_sets: tuple[str, ...]
    flavor: str
    problem: Blocker | None = None
    columns: tuple[ColumnLook, ...] = ()
    levels: tuple[LevelLook, ...] = ()
    misfit: Misfit | None = None
    never: bool = False
    unusable: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the flavor has no blocker."""
        return not (self.problem or self.misfit or any(c.asked > c.free for c in self.columns))

    def blockers(self, queue: str) -> Iterator[Blocker]:
        """Yield the blockers of this flavor."""
        if self.problem is not None:
            yield self.problem
        for column in self.columns:
            if column.asked > column.free:
                never = column.asked > column.most
                yield Blocker(
                    kind=BlockerKind.EXCEEDS_MAX_QUOTA if never else BlockerKind.QUOTA,
                    pod_set=self.pod_sets[0],
                    queue=queue,
                    flavor=self.flavor,
                    resource=column.column.resource,
                    asked=column.asked,
                    free=column.most if never else column.free,
                    never=never,
                    used=None if never else column.used,
                    nominal=column.nominal,
                )
        if self.misfit is not None:
            yield topology_blocker(self.flavor, self.misfit, unusable=self.unusable, never=self.never)


@dataclass(slots=True)
class Look:
    """All findings about a workload; complete when `look` has ended.

    `decision` is the decision of a cycle that tried this workload alone now.
    """

    decision: Decision | None = None
    flavors: list[FlavorLook] = field(default_factory=list)
    uncovered: list[Blocker] = field(default_factory=list)
    """Resources that no flavor of the queue lists, and node classes that none has."""
    occupancy: dict[str, Occupancy] = field(default_factory=dict)

    def blockers(self, queue: str) -> tuple[Blocker, ...]:
        """Return the blockers that a cycle would report, then all others, each of them once."""
        told = self.decision.blockers if isinstance(self.decision, Wait) else ()
        found = [*told, *self.uncovered]
        found += [blocker for one in self.flavors for blocker in one.blockers(queue)]
        seen: dict[tuple[object, ...], Blocker] = {}
        for blocker in found:
            seen.setdefault(_identity(blocker), blocker)
        return tuple(seen.values())


def _identity(blocker: Blocker) -> tuple[object, ...]:
    kind = blocker.kind
    if kind in (BlockerKind.QUOTA, BlockerKind.TOPOLOGY, BlockerKind.EXCEEDS_MAX_QUOTA):
        return kind, blocker.pod_set, blocker.flavor, blocker.resource
    return kind, blocker.pod_set, blocker.flavor, blocker.resource, blocker.detail, blocker.workloads


def look(head: Head, world: PlannedState, trials: Trials, found: Look) -> Iterator[None]:
    """Add all blockers of a workload to `found`, in steps of some milliseconds."""
    if trials.might_fit(head):
        yield
        found.decision = trials.admits(head)
    yield
    found.decision = found.decision or trials.decide(head)
    yield
    spec = world.snapshot.queues.get(head.queue)
    if spec is None or head.problem:
        return
    for demand in Demands().of(head.pod_sets, spec):
        for resource, asked in demand.uncovered.items():
            kind = BlockerKind.RESOURCE_NOT_COVERED
            found.uncovered.append(
                Blocker(kind=kind, pod_set=demand.name, queue=spec.name, resource=resource, asked=asked)
            )
        fault = demand.class_fault(head, spec, world.snapshot)
        if fault is not None:
            found.uncovered.append(fault.blocker)
        for choice in demand.choices:
            for index in range(len(choice.group.flavors)):
                yield from _look_at(_Case(head, world, trials, found, demand, choice, index))


@dataclass(frozen=True, slots=True)
class _Case:
    """One flavor for one group of pod sets."""

    head: Head
    world: PlannedState
    trials: Trials
    found: Look
    demand: GroupDemand
    choice: RequestedGroup
    index: int


def _look_at(case: _Case) -> Iterator[None]:
    snapshot = case.trials.scratch
    option = case.demand.option(case.choice, case.index, snapshot)
    pod_sets = tuple(pod_set.name for pod_set in case.demand.pod_sets)
    if option.problem is not None:
        case.found.flavors.append(FlavorLook(pod_sets=pod_sets, flavor=option.name, problem=option.problem))
        return
    columns = []
    for column, asked in option.columns:
        columns.append(_column(case, column, asked))
        yield
    levels: list[LevelLook] = []
    misfit, never, unusable = None, False, tuple[str, ...]()
    requests = _placed(case.demand, option)
    if requests:
        view = snapshot.topologies[option.name]
        profile = snapshot.queues[case.head.queue].profile.with_algorithm(case.head.algorithm)
        answer = place(view.capacity, requests, profile=profile)
        yield
        if isinstance(answer, Misfit):
            empty = place(view.capacity, requests, profile=profile, empty=True)
            never, unusable = isinstance(empty, Misfit), view.unusable
            misfit = empty if isinstance(empty, Misfit) else answer
            yield from _occupied(case, option.name, view)
            resolved = resolve(workers_of(requests), view.tree.levels, profile)
            if isinstance(resolved, Resolved):
                yield from _levels(case, option.name, view, requests, resolved, levels)
    case.found.flavors.append(
        FlavorLook(
            pod_sets=pod_sets,
            flavor=option.name,
            columns=tuple(columns),
            levels=tuple(levels),
            misfit=misfit,
            never=never,
            unusable=unusable,
        )
    )


def _column(case: _Case, column: FlavorResource, asked: int) -> ColumnLook:
    node = case.trials.scratch.nodes[case.head.queue]
    free = max(0, quota.available(node, column))
    short = asked > free
    return ColumnLook(
        column=column,
        asked=asked,
        free=free,
        most=quota.potential_available(node, column),
        nominal=node.quota(column).nominal,
        used=node.usage.get(column, 0),
        held=ResourceHolders.of(column.resource, column_holders(case.world, case.head.queue, column))
        if short
        else None,
    )


def _placed(demand: GroupDemand, option: Option) -> Sequence[PodSetRequest]:
    """Return the requests of the pod sets that need domains in this flavor."""
    if option.topology is None:
        return ()
    wanting = (p for p in demand.pod_sets if p.asks_topology or p.request.topology.implied)
    return [p.request for p in wanting if p.request.count > 0]


def workers_of(requests: Sequence[PodSetRequest]) -> PodSetRequest:
    """Return the larger one of pod sets that share a domain."""
    return max(requests, key=lambda request: request.count + request.ended)


def leader_of(requests: Sequence[PodSetRequest]) -> PodSetRequest | None:
    """Return the smaller one of pod sets that share a domain; None: there is only one pod set."""
    workers = workers_of(requests)
    return next((request for request in requests if request is not workers), None)


def _occupied(case: _Case, flavor: str, view: TopologyView) -> Iterator[None]:
    if flavor not in case.found.occupancy:
        occupancy = Occupancy(flavor, view)
        yield from occupancy.steps(case.world)
        case.found.occupancy[flavor] = occupancy


def _levels(
    case: _Case,
    flavor: str,
    view: TopologyView,
    requests: Sequence[PodSetRequest],
    resolved: Resolved,
    levels: list[LevelLook],
) -> Iterator[None]:
    workers, leader = workers_of(requests), leader_of(requests)
    counts = tally(view.capacity, workers, leader, resolved, affinity=False)
    yield
    asked = {resolved.level, resolved.slice_level} if resolved.slice_size > 1 else {resolved.level}
    for level in sorted({*range(resolved.level + 1), *asked}):
        room, total, unit = units(counts, resolved, level)
        best = []
        for domain in roomiest(room, DOMAINS_SHOWN):
            leaves = view.tree.leaves_of(level, domain)
            demand = [(workers.shape, workers.count), *([(leader.shape, 1)] if leader is not None else [])]
            short = shortage(view.capacity, workers.shape, demand, leaves)
            held = case.found.occupancy[flavor].held(leaves, short.resource) if short is not None else None
            path, fit = view.tree.path_of(level, domain), room.item(domain)
            best.append(DomainLook(path=path, fit=fit, total=total, short=short, held=held))
            yield
        levels.append(
            LevelLook(
                level=view.tree.levels[level],
                asked=level in asked and not resolved.unconstrained,
                unit=unit,
                domains=len(room),
                fit=int(room.sum()),
                total=total,
                best=tuple(best),
            )
        )


def units(counts: Tally, resolved: Resolved, level: int) -> tuple[Ints, int, str]:
    """Return the units that fit in each domain of a level (beside the leader, if any), the need, and the unit."""
    if level <= resolved.slice_level and resolved.slice_size > 1:
        return counts.slices_led[level], resolved.need, "slice"
    return counts.pods_led[level], resolved.count, "pod"


def roomiest(room: Ints, most: int) -> list[int]:
    """Return the domains with most room, of equals the first one first; at most `most`."""
    if len(room) > 4 * most:
        least = np.partition(room, len(room) - most)[len(room) - most]
        above = np.flatnonzero(room > least)
        some = np.concatenate([above, np.flatnonzero(room == least)[: most - len(above)]])
    else:
        some = np.arange(len(room))
    return sorted(some.tolist(), key=lambda domain: (-room.item(domain), domain))[:most]
