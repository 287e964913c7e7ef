"""Hints: domains that a planner proposes for the pods of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.topology.knapsack import NO_LEADER
from kqueue.core.topology.optimal import Arrangement
from kqueue.core.topology.placers import FoundPlacement, Question, problem_with
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Tree

Hint = Mapping[str, Sequence[tuple[Path, int]]]
"""By pod set, the full path of each domain of the lowest level and the number of pods in it."""


def hinted(question: Question, hint: Hint, workers: str, leader: str | None) -> FoundPlacement | None:
    """Return the hint for these pod sets as an answer to the question; None: there is no hint, or it does not answer
    the question.
    """
    try:
        arrangement = _arrangement(question.tree, hint, workers, leader)
        if arrangement is None or problem_with(question, arrangement) is not None:
            return None
    except (TypeError, ValueError):  # another package made the hint, so its types are not certain
        return None
    return FoundPlacement(arrangement)


def has_domains(assigned: TopologyAssignment, hint: Hint, pod_set: str) -> bool:
    """Whether the pods of a pod set have exactly the domains of the hint."""
    found = sorted((tuple(domain.values), domain.count) for domain in assigned.domains)
    size = len(assigned.levels)
    return found == sorted((tuple(path[-size:]), count) for path, count in hint.get(pod_set, ()))


def _arrangement(tree: Tree, hint: Hint, workers: str, leader: str | None) -> Arrangement | None:
    pods: dict[int, int] = {}
    for path, count in hint.get(workers, ()):
        leaf = _leaf(tree, path)
        if leaf is None or leaf in pods:
            return None
        pods[leaf] = count
    leading = NO_LEADER
    if leader is not None:
        places = hint.get(leader, ())
        found = _leaf(tree, places[0][0]) if len(places) == 1 else None
        if found is None:
            return None
        leading = found
    leaves = sorted(pods)
    return Arrangement(leaves, [pods[leaf] for leaf in leaves], leading) if leaves else None


def _leaf(tree: Tree, path: Path) -> int | None:
    return tree.leaf_of(path[-1:] if tree.is_hostname else path)
