"""The check of a finished candidate: each admission is repeated on a new copy of the world."""

from __future__ import annotations

from kqueue.core import quota
from kqueue.core.joint.candidate import Candidate
from kqueue.core.joint.plan import hint_of
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.result import Placement


def fault_in(candidate: Candidate, world: World) -> str | None:
    """Return the first fault of a candidate, as text; None: all its workloads can be admitted together.

    `world` is a new copy; it is charged with the admissions.
    """
    for planned in candidate.admitted.values():
        fault = _fault(planned, world)
        if fault is not None:
            return f"{planned.head.key}: {fault}"
        world.admit(planned)
    return None


def _fault(planned: PlannedAdmission, world: World) -> str | None:
    head, snapshot = planned.head, world.snapshot
    if not quota.has_room(snapshot.nodes[head.queue], planned.usage):
        return f"ClusterQueue {head.queue} has no quota for it"
    counts = {pod_set.name: pod_set.request.count for pod_set in head.pod_sets}
    if any(pod_set.count != counts.get(pod_set.name) for pod_set in planned.pod_sets):
        return "it has another number of pods"
    if not planned.requests:
        return None
    profile = snapshot.queues[head.queue].profile.with_algorithm(head.algorithm)
    capacities = {flavor: snapshot.topologies[flavor].capacity for flavor in planned.requests}
    found = place_workload(capacities, planned.requests, profile=profile, explain=False, hint=hint_of(planned))
    wanted = {pod_set.name: pod_set.topology for pod_set in planned.pod_sets if pod_set.topology is not None}
    placed = {
        pod_set.name: pod_set.assignment
        for answer in found.values()
        if isinstance(answer, Placement)
        for pod_set in answer.pod_sets
    }
    return None if placed == wanted else "its domains have no room for its pods, or break its request"
