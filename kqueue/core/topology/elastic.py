"""Elastic jobs: a workload slice takes over the places of the slice that it replaces.

Running pods keep their places.  A larger slice adds domains for the new pods; a smaller slice gives up the last places,
in path order, because pods are removed from the last rank on.  If a place is gone, nothing is taken over and the slice
is placed from scratch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.topology.tree import Tree

Places = tuple[tuple[int, int], ...]
"""Leaves and the number of pods on each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """The places that workers and their leader inherit, in the order of the previous assignments.

    Attributes:
        workers: the inherited places of workers.
        leader: the inherited place of the leader; None: the leader has no place, or there is no leader.
        missing: workers without a place; 0 when no search is needed.
    """

    workers: Places
    leader: Places | None
    missing: int


def inherit(
    tree: Tree,
    previous: Mapping[str, TopologyAssignment],
    *,
    workers: PodSetRequest,
    leader: PodSetRequest | None = None,
) -> Inheritance | None:
    """Return the places that the group inherits from the slice that it replaces (by pod set); None: search all places.

    None when the workers have no previous assignment, when the tree has lost a domain of an assignment, and when only
    the leader is new: no worker could be searched together with it.
    """
    if workers.name not in previous:
        return None
    held = places(tree, previous[workers.name])
    led = None
    if leader is not None and leader.name in previous:
        led = places(tree, previous[leader.name])
        if led is None:
            return None
    if held is None:
        return None
    missing = workers.count - sum(pods for _, pods in held)
    if missing <= 0 and leader is not None and led is None:
        return None
    return Inheritance(workers=first_pods(held, workers.count), leader=led, missing=max(0, missing))


def places(tree: Tree, assignment: TopologyAssignment) -> Places | None:
    """Return the leaves of an assignment; None: it has other levels than the tree, or a domain that the tree does not
    have.
    """
    if assignment.levels != tree.written_levels:
        return None
    result = []
    for domain in assignment.domains:
        leaf = tree.leaf_of(domain.values)
        if leaf is None:
            return None
        result.append((leaf, domain.count))
    return tuple(result)


def first_pods(held: Places, count: int) -> Places:
    """Return the first `count` pods, or all pods if there are fewer."""
    result = []
    for leaf, pods in held:
        if count <= 0:
            break
        result.append((leaf, min(pods, count)))
        count -= pods
    return tuple(result)


def merged(held: Places, more: Iterable[tuple[int, int]]) -> Places:
    """Return the places of both, in path order."""
    total: Counter[int] = Counter()
    for leaf, pods in (*held, *more):
        total[leaf] += pods
    return tuple(sorted(total.items()))
