"""The topology as an indented tree: per domain the pods that fit, free resources, and placed pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kqueue.core.quantity import format_quantity
from kqueue.core.topology import PODS, Misfit, MisfitCode, PodSetPlacement, TopologyRequest
from kqueue.core.topology.counting import Tally, tally
from kqueue.core.topology.request import Resolved, resolve
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints, Tree
from kqueue.placing.solving import PlacingStep, UpdateConflict
from kqueue.placing.values import Case

_MOST_CHILDREN = 8
"""Limit of domains shown below one parent; the rest is counted."""
_MOST_LINES = 200
_SMALL_TREE = 64
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
    free = {
        resource: np.maximum(row, 0)
        for resource in sorted({*workers.requests} - {PODS})
        if (row := step.capacity.row(resource)) is not None
    }
    marks: dict[Path, str] = {}
    if not isinstance(result, Misfit):
        marks = _marks(result)
    elif result.best_domain is not None and result.fit:
        marks = {result.best_domain: "came closest"}
    note = "; + leader: it can sit here" if leader is not None else ""
    yield f"  before it was placed (pods of {workers.name or 'this shape'} that fit; free in total{note}):"
    lines = _Lines(tree=tree, counts=counts, resolved=resolved, free=free, marks=marks)
    yield from lines.of_children(0, np.arange(tree.domains(0), dtype=np.int64))


def _marks(placed: Sequence[PodSetPlacement]) -> dict[Path, str]:
    found: dict[Path, list[str]] = {}
    for pod_set in placed:
        for path, domain in zip(pod_set.paths, pod_set.assignment.domains, strict=True):
            found.setdefault(path, []).append(f"{pod_set.name or 'pods'} {domain.count}")
    return {path: ", ".join(parts) for path, parts in found.items()}


@dataclass(slots=True, kw_only=True)
class _Lines:
    """Draws domains up to the limit."""

    tree: Tree
    counts: Tally
    resolved: Resolved
    free: Mapping[str, Ints]
    marks: Mapping[Path, str]
    drawn: int = 0
    around: set[Path] = field(init=False)
    """Paths of marked domains and of all domains around them."""

    def __post_init__(self) -> None:
        """Compute the marked branches."""
        self.around = {path[:length] for path in self.marks for length in range(1, len(path) + 1)}

    def of_children(self, level: int, domains: Ints) -> Iterator[str]:
        """Yield the marked domains of one parent and those with the most capacity, in path order."""
        room = self.counts.pods[level]
        ranked = sorted(domains.tolist(), key=lambda d: (not self._is_marked(level, d), -int(room[d]), d))
        for domain in sorted(ranked[:_MOST_CHILDREN]):
            yield from self._of_domain(level, domain)
        rest = ranked[_MOST_CHILDREN:]
        if rest:
            most = max(int(room[d]) for d in rest)
            marked = sum(self._is_marked(level, d) for d in rest)
            chosen = f", {marked} of them chosen" if marked else ""
            yield f"{self._indent(level)}and {len(rest)} more{chosen}, with room for at most {most} each"

    def _of_domain(self, level: int, domain: int) -> Iterator[str]:
        if self.drawn >= _MOST_LINES:
            return
        self.drawn += 1
        path = self.tree.path_of(level, domain)
        mark = f"   <- {self.marks[path]}" if path in self.marks else ""
        yield f"{self._indent(level)}{path[-1]}: {self._room(level, domain)}{mark}"
        if level < self.tree.lowest and (len(self.tree) <= _SMALL_TREE or self._is_marked(level, domain)):
            children = self.tree.children(level, np.array([domain], dtype=np.int64))
            yield from self.of_children(level + 1, children)

    def _indent(self, level: int) -> str:
        return "  " * (level + 2)

    def _is_marked(self, level: int, domain: int) -> bool:
        return self.tree.path_of(level, domain) in self.around

    def _room(self, level: int, domain: int) -> str:
        pods = int(self.counts.pods[level][domain])
        parts = [f"{pods} {'pod' if pods == 1 else 'pods'}"]
        if self.resolved.slice_size > 1 and level <= self.resolved.slice_level:
            parts.append(f"{int(self.counts.slices[level][domain])} slices of {self.resolved.slice_size}")
        leaves = self.tree.leaves_of(level, domain)
        for resource, row in self.free.items():
            parts.append(f"free {resource} {format_quantity(sum(row[leaves].tolist()), resource)}")
        can_lead = self.counts.leaders is not None and bool(self.counts.leaders[level][domain])
        return ", ".join(parts) + (", + leader" if can_lead else "")
