"""The quality of places: how many domains they use against the smallest possible number, and how full they are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.topology.counting import pods_per_domain, tally
from kqueue.core.topology.quality import quality_of
from kqueue.core.topology.request import PodSetRequest, Profile, Resolved, resolve
from kqueue.core.topology.result import DomainUsage, LevelQuality
from kqueue.core.workload import TopologyView


def quality_now(
    view: TopologyView,
    pod_sets: Sequence[PodSetRequest],
    places: Mapping[str, TopologyAssignment],
    profile: Profile,
) -> tuple[LevelQuality, ...]:
    """Return, per level, widest first: the number of domains that the pods use, and the smallest number if placed now.

    `pod_sets` share domains: one, or a leader and its workers, with their admitted counts; `places` are their
    assignments by name. Empty if their places, or a requested level, are no longer in the tree.
    """
    workers = max(pod_sets, key=lambda request: request.count + request.ended)
    leader = next((request for request in pod_sets if request is not workers), None)
    resolved = resolve(workers, view.tree.levels, profile)
    if not isinstance(resolved, Resolved):
        return ()
    usage = _usage(pod_sets, places)
    leaves = _leaves(view, usage)
    if not leaves:
        return ()
    with view.capacity.trial():
        view.capacity.release(usage)
        counts = tally(view.capacity, workers, leader, resolved, affinity=False)
        return quality_of(view.tree, counts, resolved, sorted(leaves), min(leaves))


def pods_left(
    view: TopologyView, pod_sets: Sequence[PodSetRequest], places: Mapping[str, TopologyAssignment], level: str
) -> int | None:
    """Return how many more pods like those of the first placed pod set fit the domains in use, once all pods are there.

    Of two equal placements the one with fewer pods left is tighter, and leaves more whole domains to others.

    Args:
        view: the pods are not charged to it yet.
        pod_sets: the requests of a workload.
        places: their assignments by name; a pod set without one counts nothing.
        level: the level of the domains; the lowest one if the flavor has no such level.

    Returns:
        None: no place is in the tree.
    """
    first = next((request for request in pod_sets if request.name in places), None)
    usage = _usage(pod_sets, places)
    leaves = _leaves(view, _usage([first], places)) if first is not None else set()
    if first is None or not leaves:
        return None
    tree = view.tree
    depth = tree.levels.index(level) if level in tree.levels else tree.lowest
    domain_of = tree.domain_of(depth)
    used = {int(domain_of[leaf]) for leaf in leaves}
    with view.capacity.trial():
        view.capacity.charge(usage)
        counts = pods_per_domain(view.capacity, first.shape)[depth]
        return sum(int(counts[domain]) for domain in used)


def _usage(pod_sets: Sequence[PodSetRequest], places: Mapping[str, TopologyAssignment]) -> list[DomainUsage]:
    return [
        DomainUsage(where.named(domain.values), request.requests, domain.count)
        for request in pod_sets
        if (where := places.get(request.name)) is not None
        for domain in where.domains
    ]


def _leaves(view: TopologyView, usage: Sequence[DomainUsage]) -> set[int]:
    """Return the leaves of places that are still in the tree."""
    return {leaf for item in usage if (leaf := view.tree.leaf_of(item.values)) is not None}
