"""Runs the placement of a case: group by group, or pod set by pod set if failed nodes are replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kqueue.core.topology import (
    ANY_NODE,
    PODS,
    Capacity,
    DomainUsage,
    Leaf,
    Misfit,
    MisfitCode,
    Placement,
    PodSetPlacement,
    PodSetRequest,
    Replacement,
    TopologyAssignment,
    Tree,
    failed_hosts,
    find_replacement,
    place,
    place_workload,
    usage_of,
    uses_host,
)
from kqueue.core.topology.elastic import inherit
from kqueue.core.topology.groups import Group, groups_of
from kqueue.core.topology.result import Path
from kqueue.core.topology.together import kin_of, near_each_other
from kqueue.placing.values import AskedPodSet, Case, FlavorNodes, Switches

_LATE = (MisfitCode.NO_FIT, MisfitCode.NO_DOMAINS_AT_LEVEL, MisfitCode.INTERNAL_INCONSISTENCY)
"""Codes of misfits that the search finds, after all checks of the request."""


class PodSetStatus(StrEnum):
    """The result of placing a pod set, in one word."""

    PLACED = "Placed"
    FAILED = "Failed"
    NOT_EVALUATED = "NotEvaluated"
    SKIPPED = "Skipped"


@dataclass(frozen=True, slots=True)
class UpdateConflict:
    """The updates of a pod set contradict each other."""

    pod_set: str
    detail: str


Result = tuple[PodSetPlacement, ...] | Misfit | UpdateConflict
"""Placements of all members of a group, or the failure."""


@dataclass(frozen=True, slots=True)
class PodSetOutcome:
    """The result of placing one pod set.

    Args:
        placement: the domains of its pods; None unless it is placed.
        failure: why it was not placed; None unless it failed.
        kept: in a replacement, whether all its pods stay; None if no replacement was requested.
        added: the domains that a replacement added.
    """

    name: str
    status: PodSetStatus
    placement: PodSetPlacement | None = None
    failure: Misfit | UpdateConflict | None = None
    kept: bool | None = None
    added: PodSetPlacement | None = None


@dataclass(frozen=True, slots=True)
class PlacingStep:
    """A group whose placement begins.

    Args:
        requests: of its pod sets, in input order; in a replacement, of the missing pods.
        capacity: the free capacity before the group is placed; changes afterwards.
        result: a placement per request, or the failure of all.
    """

    requests: tuple[PodSetRequest, ...]
    capacity: Capacity
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The result of a case.

    Args:
        ignored: nodes left out of the tree, by reason.
        capacity: the free capacity after all placements.
        used: per written domain, the resources with usage.
        outcomes: one per pod set, in input order.
    """

    case: Case
    tree: Tree
    ignored: Mapping[str, int]
    capacity: Capacity
    used: Mapping[Path, set[str]]
    outcomes: tuple[PodSetOutcome, ...]

    @property
    def placed(self) -> bool:
        """Whether nothing failed."""
        return all(outcome.status in (PodSetStatus.PLACED, PodSetStatus.SKIPPED) for outcome in self.outcomes)


def _unwatched(step: PlacingStep) -> None:
    """Ignore a step."""


def solve(case: Case, *, watch: Callable[[PlacingStep], None] = _unwatched) -> Solution:
    """Place all pod sets of the case, up to the first failure.  `watch` is called with each group when it is done."""
    tree = tree_of(case)
    run = _Run(case, tree, watch)
    outcomes = run.replacements() if case.unhealthy_nodes else run.placements()
    return Solution(
        case=case,
        tree=tree,
        ignored=case.members.ignored,
        capacity=run.capacity,
        used=run.used,
        outcomes=tuple(outcomes),
    )


def tree_of(case: Case) -> Tree:
    """Return the topology of a case."""
    cluster = case.cluster
    return Tree(
        topology=cluster.topology, levels=cluster.levels, leaves=case.members.leaves, tolerations=cluster.tolerations
    )


class _Run:
    """The run of a case: each placement reduces the capacity."""

    def __init__(self, case: Case, tree: Tree, watch: Callable[[PlacingStep], None]) -> None:
        self._case, self._tree, self._watch = case, tree, watch
        usage = _counted_usage(case)
        self.capacity = Capacity.of(tree, foreign=case.cluster.foreign, usage=usage)
        self.used = used_resources(tree, case.cluster.foreign, usage)

    def placements(self) -> list[PodSetOutcome]:
        """Place group after group; return the outcome of every pod set."""
        done: dict[str, PodSetOutcome] = {}
        for group in steps_of(self._case.pod_sets):
            result = self._place_together(group) if shares_level(group) else self._place_group(group)
            self._watch(PlacingStep(tuple(pod_set.request for pod_set in group), self.capacity, result))
            if not isinstance(result, tuple):
                names = [pod_set.request.name for pod_set in group]
                done.update((name, PodSetOutcome(name, PodSetStatus.FAILED, failure=result)) for name in names)
                break
            done.update(
                (found.name, PodSetOutcome(found.name, PodSetStatus.PLACED, placement=found)) for found in result
            )
            self._charge(result)
        return [
            PodSetOutcome(pod_set.request.name, PodSetStatus.SKIPPED)
            if pod_set.request.count == 0
            else done.get(pod_set.request.name, PodSetOutcome(pod_set.request.name, PodSetStatus.NOT_EVALUATED))
            for pod_set in self._case.pod_sets
        ]

    def _place_together(self, pod_sets: Sequence[AskedPodSet]) -> Result:
        """Place pod sets that share a level in one domain; contradicting updates are reported first."""
        conflict = next((pod_set for pod_set in pod_sets if pod_set.conflict is not None), None)
        if conflict is not None:
            return _conflict_of(conflict)
        found = place_workload(
            {"": self.capacity},
            {"": [pod_set.request for pod_set in pod_sets]},
            profile=self._case.switches.profile,
            measure=self._case.output.quality,
            previous=previous_of(self._case, pod_sets),
        )[""]
        return found if isinstance(found, Misfit) else found.pod_sets

    def _place_group(self, group: Sequence[AskedPodSet]) -> Result:
        """Place the group; contradicting updates are reported first, as in the order of checks."""
        requests = [pod_set.request for pod_set in group]
        workers, leader = roles(group)
        searched = self._searched(workers, leader) if len(group) <= 2 else ()
        conflict = next((pod_set for pod_set in searched if pod_set.conflict is not None), None)
        if conflict is leader and leader is not None:  # its own rules are judged after its updates
            requests[group.index(leader)] = replace(leader.request, rules=ANY_NODE)
        found = place(
            self.capacity,
            requests,
            profile=self._case.switches.profile,
            measure=self._case.output.quality,
            previous=previous_of(self._case, group),
        )
        if conflict is not None and not (isinstance(found, Misfit) and _is_earlier(found, conflict is workers)):
            return _conflict_of(conflict)
        return found if isinstance(found, Misfit) else found.pod_sets

    def _searched(self, workers: AskedPodSet, leader: AskedPodSet | None) -> tuple[AskedPodSet, ...]:
        """Return the pod sets to search domains for, workers first; pod sets that keep all domains are left out."""
        both = (workers,) if leader is None else (workers, leader)
        led = leader.request if leader is not None else None
        kept = inherit(self._tree, previous_of(self._case, both), workers=workers.request, leader=led)
        if kept is None:
            return both
        if not kept.missing:
            return ()
        return both if kept.leader is None else (workers,)

    def replacements(self) -> list[PodSetOutcome]:
        """Replace hosts of each pod set by itself, up to the first failure; return the outcome of every pod set."""
        failed = failed_hosts(self._case.unhealthy_nodes[:1], self._case.cluster.nodes)
        outcomes: list[PodSetOutcome] = []
        failure = False
        for pod_set in self._near_each_other(failed):
            name = pod_set.request.name
            outcomes.append(
                PodSetOutcome(name, PodSetStatus.NOT_EVALUATED) if failure else self._replace(pod_set, failed)
            )
            failure = outcomes[-1].status is PodSetStatus.FAILED or failure
        return outcomes

    def _near_each_other(self, failed: Collection[str]) -> list[AskedPodSet]:
        """Return the pod sets; those that share a level are within the domains in which some of them keep pods."""
        held = [(p.request, p.assignment) for p in self._case.pod_sets if p.request.count and p.assignment is not None]
        choice = next(near_each_other({"": held}, {"": self.capacity}, failed))
        near = {request.name: request for request, _ in choice[""]}
        return [replace(p, request=near.get(p.request.name, p.request)) for p in self._case.pod_sets]

    def _replace(self, pod_set: AskedPodSet, failed: Collection[str]) -> PodSetOutcome:
        name, old = pod_set.request.name, pod_set.assignment
        if pod_set.request.count == 0 or old is None:
            return PodSetOutcome(name, PodSetStatus.SKIPPED)
        stays = self._case.owned_by_single_pod and self._case.switches.skip_pod_owned
        if stays or not uses_host(old, failed):
            return PodSetOutcome(name, PodSetStatus.PLACED, placement=self._as_it_is(pod_set.request, old), kept=True)
        found: Replacement | Misfit | UpdateConflict = find_replacement(
            self.capacity, pod_set.request, old, failed, profile=self._case.switches.profile
        )
        early = isinstance(found, Misfit) and found.code in (MisfitCode.STALE_ASSIGNMENT, MisfitCode.SLICE_SIZE_MISSING)
        if pod_set.conflict is not None and not early:
            found = _conflict_of(pod_set)
        missing = sum(domain.count for domain in old.domains if domain.values[-1] in failed)
        request = replace(pod_set.request, count=missing, group=None)
        self._watch(PlacingStep((request,), self.capacity, (found.added,) if isinstance(found, Replacement) else found))
        if not isinstance(found, Replacement):
            return PodSetOutcome(name, PodSetStatus.FAILED, failure=found)
        self._charge((found.added,))
        return PodSetOutcome(name, PodSetStatus.PLACED, placement=found.whole, kept=False, added=found.added)

    def _as_it_is(self, request: PodSetRequest, assignment: TopologyAssignment) -> PodSetPlacement:
        leaves = [self._tree.leaf_of(domain.values) for domain in assignment.domains]
        paths = [
            domain.values if leaf is None else self._tree.paths[leaf]
            for leaf, domain in zip(leaves, assignment.domains, strict=True)
        ]
        return PodSetPlacement(name=request.name, assignment=assignment, paths=tuple(paths), requests=request.requests)

    def _charge(self, placed: tuple[PodSetPlacement, ...]) -> None:
        taken = usage_of(Placement(placed))
        self.capacity.charge(taken)
        note_usage(self.used, taken)


def _is_earlier(misfit: Misfit, of_workers: bool) -> bool:
    """Whether this failure is found before contradicting updates of the workers, or else of the leader."""
    return misfit.code is MisfitCode.INVALID_GROUP or (not of_workers and misfit.code not in _LATE)


def _conflict_of(pod_set: AskedPodSet) -> UpdateConflict:
    return UpdateConflict(pod_set.request.name, pod_set.conflict.text if pod_set.conflict else "")


def counted_usage(cluster: FlavorNodes, switches: Switches) -> tuple[DomainUsage, ...]:
    """Return the usage of workloads placed by topology that counts in a placement."""
    if switches.simulate_empty:
        return ()
    others = switches.overlapping_flavors and cluster.is_hostname
    return (*cluster.usage, *(cluster.other_usage if others else ()))


def _counted_usage(case: Case) -> tuple[DomainUsage, ...]:
    """Return the usage that counts here; a replacement counts all."""
    switches = replace(case.switches, simulate_empty=False) if case.unhealthy_nodes else case.switches
    return counted_usage(case.cluster, switches)


def used_resources(
    tree: Tree, foreign: Mapping[str, Mapping[str, int]], usage: Iterable[DomainUsage]
) -> dict[Path, set[str]]:
    """Return, by written values of a leaf, the resources with usage; `foreign` is by node."""
    used = {tree.written(i): _foreign_resources(foreign, leaf) for i, leaf in enumerate(tree.leaves)}
    note_usage(used, usage)
    return used


def note_usage(used: Mapping[Path, set[str]], usage: Iterable[DomainUsage]) -> None:
    """Add the resources of this usage; domains that are not in `used` are ignored."""
    for item in usage:
        if item.count and item.values in used:
            used[item.values].update([PODS, *(resource for resource, amount in item.requests.items() if amount)])


def _foreign_resources(foreign: Mapping[str, Mapping[str, int]], leaf: Leaf) -> set[str]:
    amounts = (foreign.get(node.name, {}) for node in leaf.nodes)
    return {resource for found in amounts for resource, amount in found.items() if amount}


def previous_of(case: Case, group: Iterable[AskedPodSet]) -> dict[str, TopologyAssignment]:
    """Return, by pod set, the assignment of the replaced workload slice; empty if it does not count."""
    if not case.switches.elastic_slices:
        return {}
    return {pod_set.request.name: pod_set.previous for pod_set in group if pod_set.previous is not None}


def roles(group: Sequence[AskedPodSet]) -> tuple[AskedPodSet, AskedPodSet | None]:
    """Return the workers of a group and the leader (None: no leader), by the planner's rule."""
    asked = _by_request(group)
    found = Group.of(None, [pod_set.request for pod_set in group])
    return asked[id(found.workers)], asked[id(found.leader)] if found.leader is not None else None


def groups(pod_sets: Sequence[AskedPodSet]) -> list[tuple[AskedPodSet, ...]]:
    """Return the planner's groups of these pod sets, in its order."""
    asked = _by_request(pod_sets)
    found = groups_of([pod_set.request for pod_set in pod_sets])
    return [tuple([asked[id(member)] for member in group.members]) for group in found]


def steps_of(pod_sets: Sequence[AskedPodSet]) -> list[tuple[AskedPodSet, ...]]:
    """Return the groups in order; groups that share a level are one entry, at the place of the first."""
    kin = kin_of({"": [pod_set.request for pod_set in pod_sets]})
    found: list[tuple[AskedPodSet, ...]] = []
    shared: list[AskedPodSet] = []
    for group in groups(pod_sets):
        if kin is None or all(pod_set.request.name not in kin.names for pod_set in group):
            found.append(group)
            continue
        if not shared:
            found.append(())
        shared += group
    return [group or tuple(shared) for group in found]


def shares_level(pod_sets: Sequence[AskedPodSet]) -> bool:
    """Whether these pod sets of one step share a level."""
    return kin_of({"": [pod_set.request for pod_set in pod_sets]}) is not None


def _by_request(pod_sets: Iterable[AskedPodSet]) -> dict[int, AskedPodSet]:
    """Return pod sets by the identity of their requests, because two pod sets may have equal requests."""
    return {id(pod_set.request): pod_set for pod_set in pod_sets}
