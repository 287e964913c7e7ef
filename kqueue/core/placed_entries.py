"""The domains of nominated workloads: where the pods go, and how good the domains are."""

from __future__ import annotations

from collections.abc import Iterator

from kqueue.core.decision import PlacementQuality
from kqueue.core.nomination import NominatedHead
from kqueue.core.topology.request import algorithm_for
from kqueue.core.workload import PodSetAssignment


def with_domains(entry: NominatedHead) -> tuple[PodSetAssignment, ...]:
    """Return the pod sets of an entry with the domains that were found for them."""
    domains = {p.name: p.assignment for found in entry.placement.values() for p in found.pod_sets}
    return tuple([assigned.placed(domains.get(assigned.name)) for assigned in entry.assignment.pod_sets])


def quality_of(entry: NominatedHead) -> Iterator[PlacementQuality]:
    """Yield the quality of the domains that were found for an entry, once for each search."""
    requests = {p.name: p.request for p in entry.head.pod_sets}
    for found in entry.placement.values():
        seen: set[str] = set()
        for placed in found.pod_sets:
            request = requests[placed.name]
            if not placed.quality or request.group in seen:
                continue
            if request.group is not None:
                seen.add(request.group)
            yield PlacementQuality(algorithm_for(request.topology, entry.profile), placed.proven, placed.quality)
