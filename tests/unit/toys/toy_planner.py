"""A planner in one file: it places the largest workloads of a plan first, instead of kqueue's order."""

from __future__ import annotations

from collections.abc import Sequence

from kqueue.core.planners import Wish
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.request import DEFAULT_PROFILE
from kqueue.core.topology.result import Placement, usage_of
from kqueue.core.workload import Snapshot

NAME = "ToyJoint"


def plan(snapshot: Snapshot, wishes: Sequence[Wish]) -> Sequence[Hint | None]:
    """Best fit for each workload on what larger ones leave."""
    free = {flavor: view.capacity.fork() for flavor, view in snapshot.topologies.items()}
    hints: list[Hint | None] = [None] * len(wishes)
    for index in sorted(range(len(wishes)), key=lambda i: -pods(wishes[i])):
        wish = wishes[index]
        found = place_workload(free, wish.requests, profile=DEFAULT_PROFILE, explain=False)
        placements = {flavor: placed for flavor, placed in found.items() if isinstance(placed, Placement)}
        if len(placements) < len(found):
            continue
        hints[index] = {
            pod_set.name: [(path, d.count) for path, d in zip(pod_set.paths, pod_set.assignment.domains, strict=True)]
            for placed in placements.values()
            for pod_set in placed.pod_sets
        }
        for flavor, placed in placements.items():
            free[flavor].charge(usage_of(placed))
    return hints


def pods(wish: Wish) -> int:
    """How many pods a workload has."""
    return sum(request.count for requests in wish.requests.values() for request in requests)
