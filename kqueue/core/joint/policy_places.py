"""Places by policy: the hosts that cost a gang least, and the domains that are tried first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from kqueue.core.joint.policy import NEVER
from kqueue.core.joint.policy_set import PolicySet
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.counting import pods_within
from kqueue.core.topology.request import GangDomains
from kqueue.core.topology.result import DomainUsage
from kqueue.core.topology.tree import Ints

_DOMAINS = 8
"""Domains that are tried for one gang."""


def cheapest_hosts(policies: PolicySet, gang: Sequence[JudgedPods], view: WorldView) -> Hint | None:
    """Return the hosts that cost least for pod sets that may be anywhere, in their order; None: they have no room.

    Costs do not fall from pod to pod of a host, so taking the cheapest next pod is best for each pod set.  Ties go to
    the first host by path.
    """
    hint: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    tree, capacity = view.tree, view.capacity
    with capacity.trial():
        for pods in gang:
            counts = _fill(policies, pods, view)
            if counts is None:
                return None
            request = pods.request
            hint[request.name] = [(tree.paths[leaf], number) for leaf, number in sorted(counts.items())]
            capacity.charge([DomainUsage(tree.written(leaf), request.requests, n) for leaf, n in counts.items()])
    return hint


def _fill(policies: PolicySet, pods: JudgedPods, view: WorldView) -> Mapping[int, int] | None:
    """Return the pods of each leaf."""
    room, wanted = pods_within(view.capacity, pods.request)[-1], pods.request.count
    rows: list[Ints] = []

    def cost(leaf: int, nth: int) -> int:
        while len(rows) < nth:
            row = policies.hosts(pods, len(rows) + 1, view)
            rows.append(np.maximum(row, rows[-1]) if rows else row)
        return int(rows[nth - 1][leaf])

    if not len(room):
        return None
    cost(0, 1)
    first = rows[0]
    able = np.flatnonzero((room > 0) & (first != NEVER))
    if int(room[able].sum()) < wanted:
        return None
    nearest = able[np.argsort(first[able], kind="stable")[:wanted]].tolist()
    heap = [(cost(leaf, 1), leaf, 1) for leaf in nearest]
    heapq.heapify(heap)
    counts: dict[int, int] = {}
    for _ in range(wanted):
        if not heap:
            return None
        _, leaf, nth = heapq.heappop(heap)
        counts[leaf] = nth
        if nth < room[leaf] and (more := cost(leaf, nth + 1)) != NEVER:
            heapq.heappush(heap, (more, leaf, nth + 1))
    return counts


def domains_to_try(policies: PolicySet, pods: JudgedPods, view: WorldView) -> list[GangDomains]:
    """Return the domains of the gang's level that have room for all its pods: the cheapest first, of equal ones the
    tightest.
    """
    room = pods_within(view.capacity, pods.request)[pods.level]
    costs = policies.domains(pods, pods.level, view, in_search=True)
    able = np.flatnonzero((room >= pods.request.count) & (costs != NEVER))
    best = able[np.lexsort((room[able], costs[able]))[:_DOMAINS]].tolist()
    levels = view.tree.levels
    return [GangDomains(levels=levels, paths=(view.tree.path_of(pods.level, domain),)) for domain in best]
