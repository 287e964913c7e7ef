"""The quality of the places of running pods: the number of used domains, against the smallest possible number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.topology.counting import tally
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
    usage = [
        DomainUsage(where.named(domain.values), request.requests, domain.count)
        for request in pod_sets
        if (where := places.get(request.name)) is not None
        for domain in where.domains
    ]
    leaves = {leaf for item in usage if (leaf := view.tree.leaf_of(item.values)) is not None}
    if not leaves:
        return ()
    with view.capacity.trial():
        view.capacity.release(usage)
        counts = tally(view.capacity, workers, leader, resolved, affinity=False)
        return quality_of(view.tree, counts, resolved, sorted(leaves), min(leaves))
