"""Runs the placement of a case: group by group, or pod set by pod set where failed nodes are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kqueue.cli.placing.values import AskedPodSet, Case
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
    Tree,
    membership,
    place,
    usage_of,
)
from kqueue.core.topology.result import Path

_LATE = (MisfitCode.NO_FIT, MisfitCode.NO_DOMAINS_AT_LEVEL, MisfitCode.INTERNAL_INCONSISTENCY)
"""Found by the search, after all checks of what was asked."""


class Status(StrEnum):
    """What became of a pod set."""

    PLACED = "Placed"
    FAILED = "Failed"
    NOT_EVALUATED = "NotEvaluated"
    SKIPPED = "Skipped"


@dataclass(frozen=True, slots=True)
class UpdateConflict:
    """The updates of a pod set contradict each other."""

    pod_set: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one pod set.

    Args:
        placement: where its pods are; None unless it is placed.
        failure: why it is not; None unless it failed.
    """

    name: str
    status: Status
    placement: PodSetPlacement | None = None
    failure: Misfit | UpdateConflict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One group as its placement begins.

    Args:
        members: its pod sets, in input order.
        capacity: what is free before anything of it is placed; changes afterwards.
        result: a placement per member, or the failure of all.
    """

    members: tuple[AskedPodSet, ...]
    capacity: Capacity
    result: tuple[PodSetPlacement, ...] | Misfit | UpdateConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A case, done.

    Args:
        ignored: nodes left out of the tree, by reason.
        capacity: what is left after all that was placed.
        used: per written domain, the resources of which something is used there.
        outcomes: one per pod set, in input order.
    """

    case: Case
    tree: Tree
    ignored: Mapping[str, int]
    capacity: Capacity
    used: Mapping[Path, set[str]]
    outcomes: tuple[Outcome, ...]

    @property
    def placed(self) -> bool:
        """Whether nothing failed."""
        return all(outcome.status in (Status.PLACED, Status.SKIPPED) for outcome in self.outcomes)


def _unwatched(step: Step) -> None:
    """Nobody looks."""


def solve(case: Case, *, watch: Callable[[Step], None] = _unwatched) -> Solution:
    """Place everything that the case asks for, up to the first failure.  `watch` sees each group when it is done."""
    cluster = case.cluster
    members = membership(
        cluster.nodes,
        levels=cluster.levels,
        node_labels=cluster.node_labels,
        merge_duplicate_hostnames=case.switches.duplicate_hostnames == "merge",
    )
    tree = Tree(
        topology=cluster.topology, levels=cluster.levels, leaves=members.leaves, tolerations=cluster.tolerations
    )
    usage = _counted_usage(case)
    capacity = Capacity.of(tree, foreign=cluster.foreign, usage=usage)
    used = _used(case, tree, usage)
    outcomes = {
        pod_set.request.name: Outcome(pod_set.request.name, Status.SKIPPED)
        for pod_set in case.pod_sets
        if pod_set.request.count == 0
    }
    for group in _groups(case.pod_sets):
        result = _place_group(case, capacity, group)
        watch(Step(members=group, capacity=capacity, result=result))
        if not isinstance(result, tuple):
            for pod_set in group:
                outcomes[pod_set.request.name] = Outcome(pod_set.request.name, Status.FAILED, failure=result)
            break
        for placement in result:
            outcomes[placement.name] = Outcome(placement.name, Status.PLACED, placement=placement)
        taken = usage_of(Placement(result))
        capacity.charge(taken)
        _note(used, taken)
    return Solution(
        case=case,
        tree=tree,
        ignored=members.ignored,
        capacity=capacity,
        used=used,
        outcomes=tuple(
            outcomes.get(pod_set.request.name) or Outcome(pod_set.request.name, Status.NOT_EVALUATED)
            for pod_set in case.pod_sets
        ),
    )


# --- usage -----------------------------------------------------------------------------------------------------------


def _counted_usage(case: Case) -> tuple[DomainUsage, ...]:
    """What counts of the usage of workloads that topology placed."""
    if case.switches.simulate_empty and not case.unhealthy_nodes:
        return ()
    others = case.switches.overlapping_flavors and case.cluster.is_hostname
    return (*case.cluster.usage, *(case.cluster.other_usage if others else ()))


def _used(case: Case, tree: Tree, usage: Iterable[DomainUsage]) -> dict[Path, set[str]]:
    used: dict[Path, set[str]] = {}
    for i, leaf in enumerate(tree.leaves):
        used[tree.written(i)] = _foreign_resources(case, leaf)
    _note(used, usage)
    return used


def _foreign_resources(case: Case, leaf: Leaf) -> set[str]:
    amounts = (case.cluster.foreign.get(node.name, {}) for node in leaf.nodes)
    return {resource for found in amounts for resource, amount in found.items() if amount}


def _note(used: dict[Path, set[str]], usage: Iterable[DomainUsage]) -> None:
    for item in usage:
        if item.count and item.values in used:
            used[item.values].update([PODS, *(resource for resource, amount in item.requests.items() if amount)])


# --- groups ----------------------------------------------------------------------------------------------------------


def _groups(pod_sets: Sequence[AskedPodSet]) -> list[tuple[AskedPodSet, ...]]:
    """Groups in order of first appearance; pod sets without pods are in none."""
    groups: dict[tuple[str | None, int], list[AskedPodSet]] = {}
    for i, pod_set in enumerate(pod_sets):
        if pod_set.request.count:
            group = pod_set.request.group
            groups.setdefault((group, -1 if group is not None else i), []).append(pod_set)
    return [tuple(members) for members in groups.values()]


def _place_group(
    case: Case, capacity: Capacity, group: Sequence[AskedPodSet]
) -> tuple[PodSetPlacement, ...] | Misfit | UpdateConflict:
    requests = [pod_set.request for pod_set in group]
    workers = max(group, key=lambda pod_set: pod_set.request.count)
    conflicts = [pod_set for pod_set in group if pod_set.conflict is not None]
    for pod_set in conflicts:
        if pod_set is not workers:  # its own rules are judged last, and a conflict stands before them
            requests[group.index(pod_set)] = replace(pod_set.request, rules=ANY_NODE)
    found = place(capacity, requests, profile=case.switches.profile, measure=case.output.quality)
    if conflicts:
        early = isinstance(found, Misfit) and (
            found.code is MisfitCode.INVALID_GROUP or (workers.conflict is None and found.code not in _LATE)
        )
        if not early:
            conflict = workers if workers.conflict is not None else conflicts[0]
            return UpdateConflict(conflict.request.name, conflict.conflict or "")
    return found if isinstance(found, Misfit) else found.pod_sets
