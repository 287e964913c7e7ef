"""The topology as an indented tree: per domain the pods that fit, free resources, and placed pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kqueue.core.quantity import format_quantity
from kqueue.core.topology import PODS, Capacity, Misfit, MisfitCode, PodSetPlacement, TopologyRequest
from kqueue.core.topology.counting import Tally, tally
from kqueue.core.topology.request import Resolved, resolve
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints, Tree
from kqueue.placing.drawing import Drawing
from kqueue.placing.solving import PlacingStep, UpdateConflict
from kqueue.placing.values import Case

_MOST_CHILDREN = 8
"""Limit of domains shown below one parent; the rest is counted."""
SMALL_TREE = 64
"""Number of leaves up to which the whole tree is shown, not only branches with placed pods."""


def picture(case: Case, step: PlacingStep) -> Iterator[str]:
    """Draw the pods that fitted in each domain before the group was placed; empty if the request was refused before any
    search.
    """
    workers = max(step.requests, key=lambda request: request.count)
    leader = next((request for request in step.requests if request is not workers and not workers.together), None)
    tree, profile = step.capacity.tree, case.switches.profile
    result = step.result
    if isinstance(result, UpdateConflict) or (isinstance(result, Misfit) and result.code is not MisfitCode.NO_FIT):
        return
    resolved = resolve(workers, tree.levels, profile)
    if isinstance(resolved, Misfit):  # a replacement may search for less than a slice
        resolved = resolve(replace(workers, topology=TopologyRequest(implied=True)), tree.levels, profile)
    assert not isinstance(resolved, Misfit)
    counts = tally(step.capacity, workers, leader, resolved, affinity=profile.preferred_affinity)
    free = free_amounts(step.capacity, workers.requests)
    marks: dict[Path, str] = {}
    if not isinstance(result, Misfit):
        marks = _marks(result)
    elif result.best_domain is not None and result.fit:
        marks = {result.best_domain: "came closest"}
    note = "; + leader: it can sit here" if leader is not None else ""
    yield f"  before it was placed (pods of {workers.name or 'this shape'} that fit; free in total{note}):"
    drawing = Drawing(
        tree=tree,
        room=counts.pods,
        text=_Room(tree=tree, counts=counts, resolved=resolved, free=free).text,
        rest=_rest,
        marks=marks,
        deepest=tree.lowest,
        is_whole=len(tree) <= SMALL_TREE,
        most_children=_MOST_CHILDREN,
    )
    yield from drawing.lines()


def free_amounts(capacity: Capacity, resources: Iterable[str]) -> dict[str, Ints]:
    """Return the free amounts of leaves by resource, in the order of names and without pods; none is below 0."""
    rows = ((resource, capacity.row(resource)) for resource in sorted({*resources} - {PODS}))
    return {resource: np.maximum(row, 0) for resource, row in rows if row is not None}


def _marks(placed: Sequence[PodSetPlacement]) -> dict[Path, str]:
    found: dict[Path, list[str]] = {}
    for pod_set in placed:
        for path, domain in zip(pod_set.paths, pod_set.assignment.domains, strict=True):
            found.setdefault(path, []).append(f"{pod_set.name or 'pods'} {domain.count}")
    return {path: ", ".join(parts) for path, parts in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """The room of each domain, in words."""

    tree: Tree
    counts: Tally
    resolved: Resolved
    free: Mapping[str, Ints]

    def text(self, level: int, domain: int) -> str:
        """Return pods, slices and free amounts of a domain."""
        pods = int(self.counts.pods[level][domain])
        parts = [f"{pods} {'pod' if pods == 1 else 'pods'}"]
        if self.resolved.slice_size > 1 and level <= self.resolved.slice_level:
            parts.append(f"{int(self.counts.slices[level][domain])} slices of {self.resolved.slice_size}")
        leaves = self.tree.leaves_of(level, domain)
        for resource, row in self.free.items():
            parts.append(f"free {resource} {format_quantity(sum(row[leaves].tolist()), resource)}")
        can_lead = self.counts.leaders is not None and bool(self.counts.leaders[level][domain])
        return ", ".join(parts) + (", + leader" if can_lead else "")


def _rest(number: int, marked: int, most: int) -> str:
    chosen = f", {marked} of them chosen" if marked else ""
    return f"and {number} more{chosen}, with room for at most {most} each"
