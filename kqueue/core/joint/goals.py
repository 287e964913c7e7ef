"""The goal of a defragmentation plan: a waiting workload, or empty nodes in one domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kqueue.core.joint.defrag import Goal
from kqueue.core.joint.world import World
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import PODS
from kqueue.core.topology.request import AUTO, PodSetRequest, TopologyRequest
from kqueue.core.workload import Head


def goal_of(head: Head, world: World, *, waited: int) -> Goal | str:
    """Return the room that a waiting workload needs, in the first flavors with quota for it, or why moves cannot help.

    Args:
        waited: seconds that it has waited: the worth of each of its pods.
    """
    choice = next(iter(world.choices(head)), None)
    if choice is None:
        return "it waits for quota, and moves free none"
    if len(choice.requests) != 1:
        return "it needs no topology" if not choice.requests else "its pods use several flavors with a topology"
    ((flavor, requests),) = choice.requests.items()
    level = _level(requests, world.snapshot.topologies[flavor].tree.levels)
    if level is None:
        return "it names no level, or several, whose one domain is to hold its pods"
    spec = world.snapshot.queues[head.queue]
    label = world.snapshot.topologies[flavor].tree.levels[level]
    return Goal(
        flavor=flavor,
        level=level,
        requests=tuple([_within_one(request, label) for request in requests]),
        profile=spec.profile.with_algorithm(head.algorithm),
        worth=sum(request.count for request in requests) * max(0, waited),
    )


def goal_of_nodes(flavor: str, level: int, nodes: int, capacity: Capacity) -> Goal:
    """Return the room of so many empty nodes in one domain of a level.

    A node counts as empty if it has free what every node of the flavor has without workloads.
    """
    idle, size = capacity.empty(), len(capacity.tree)
    amounts: dict[str, int] = {}
    for resource in idle.resources:
        row = idle.row(resource)
        least = int(row.min()) if size and row is not None else 0
        if least > 0 and resource != PODS:
            amounts[resource] = least
    request = PodSetRequest(
        name="nodes",
        count=nodes,
        requests=amounts,
        topology=TopologyRequest(required=capacity.tree.levels[level]),
        apart=frozenset(("nodes",)),
    )
    return Goal(flavor=flavor, level=level, requests=(request,))


def _level(requests: Sequence[PodSetRequest], levels: Sequence[str]) -> int | None:
    """Return the one level that all pod sets require or prefer; None: they name none, or several."""
    named = {request.topology.required or request.topology.preferred for request in requests}
    label = named.pop() if len(named) == 1 else None
    if label == AUTO and AUTO not in levels:
        return len(levels) - 1
    return levels.index(label) if label in levels else None


def _within_one(request: PodSetRequest, label: str) -> PodSetRequest:
    """Return the request, all of whose pods need one domain of the level."""
    return replace(request, topology=replace(request.topology, required=label, preferred=None))
