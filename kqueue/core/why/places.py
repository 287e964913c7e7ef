"""Domains that would have room for a workload if other workloads ended, or nodes came back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kqueue.core.spares import Spare
from kqueue.core.topology.counting import leaves_within, tally
from kqueue.core.topology.request import PodSetRequest, Resolved, resolve
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints
from kqueue.core.why.blockers import FlavorLook, leader_of, roomiest, units, workers_of
from kqueue.core.workload import Head, Snapshot, TopologyView

PLACES = 6
"""The number of domains that are examined for sets of workloads or nodes."""


def requests_in(head: Head, one: FlavorLook) -> list[PodSetRequest]:
    """Return the requests of the pod sets of one look that have pods."""
    return [p.request for p in head.pod_sets if p.name in one.pod_sets and p.request.count > 0]


def _room(
    head: Head, snapshot: Snapshot, view: TopologyView, one: FlavorLook, *, empty: bool = False
) -> tuple[Resolved, Ints, int] | None:
    """Return the units that fit in each domain of the required level (of the widest level without a requirement)."""
    requests = requests_in(head, one)
    workers, leader = workers_of(requests), leader_of(requests)
    profile = snapshot.queues[head.queue].profile.with_algorithm(head.algorithm)
    resolved = resolve(workers, view.tree.levels, profile)
    if not isinstance(resolved, Resolved):
        return None
    capacity = view.capacity.empty() if empty else view.capacity
    room, total, _ = units(tally(capacity, workers, leader, resolved, affinity=False), resolved, _level(resolved))
    return resolved, room, total


def _level(resolved: Resolved) -> int:
    return resolved.binding or 0


def roomy_domains(head: Head, snapshot: Snapshot, view: TopologyView, one: FlavorLook, *, most: int) -> list[slice]:
    """Return the leaves of each domain that would suffice if its workloads ended; the domain that lacks least comes
    first.
    """
    now, idle = _room(head, snapshot, view, one), _room(head, snapshot, view, one, empty=True)
    if now is None or idle is None:
        return []
    resolved, room, total = now
    if resolved.binding is None:
        return [slice(0, len(view.tree))]
    enough = np.flatnonzero(idle[1] >= total)
    return [view.tree.leaves_of(_level(resolved), int(enough[i])) for i in roomiest(room[enough], most)]


def spares_by_domain(
    head: Head, wider: Snapshot, spares: Mapping[str, list[Spare]], looks: Sequence[FlavorLook]
) -> Iterator[list[str]]:
    """Yield sets of nodes that would come back to the same domain; the domain that lacks least comes first."""
    for one in looks:
        if one.misfit is None or one.problem is not None:
            continue
        view = wider.topologies[one.flavor]
        now = _room(head, wider, view, one)
        if now is None:
            continue
        resolved, room, _ = now
        depth = 0 if resolved.binding is None else resolved.binding + 1
        groups: dict[Path, list[str]] = {}
        for node in sorted(spares):
            for spare in spares[node]:
                if spare.flavor == one.flavor:
                    groups.setdefault(spare.leaf.path[:depth], []).append(node)
        lengths = {path: _there(view, path, room) for path in groups}
        for path in sorted(groups, key=lambda path: (-lengths[path], path))[:PLACES]:
            yield groups[path]


def _there(view: TopologyView, path: Path, room: Ints) -> int:
    if not path:
        return 0
    leaves = leaves_within(view.tree, path)
    return room.item(int(view.tree.domain_of(len(path) - 1)[leaves.start]))
