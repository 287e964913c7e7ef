"""Placement algorithms by name: each is a function from a question to places, or the reason why there are none.

A new algorithm is one file with a `Placer`, and one line in `PLACERS`.  Other packages register theirs by the entry
point group `kqueue.placers`; `kqueue.placing.contract` has the test that each of them must pass.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

from kqueue.core.topology.counting import Tally
from kqueue.core.topology.optimal import Arrangement, optimal
from kqueue.core.topology.request import Algorithm, Resolved
from kqueue.core.topology.result import Misfit, MisfitCode
from kqueue.core.topology.search import PlacementSearch
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value


@value(kw_only=True)
class Question:
    """The input of a placer, which must not change any of it.

    Args:
        tree: levels and domains.
        counts: the pods that fit in each domain of each level.
        request: the level, slices and pods of the request.
        leaders: 1 when a leader pod goes beside the workers, else 0.
        steps: budget for searches without a bound of their own; a count, so that results do not depend on the machine.
    """

    tree: Tree
    counts: Tally
    request: Resolved
    leaders: int
    steps: int


@value()
class FoundPlacement:
    """The found places.  `proven`: whether no placement is better; None: unknown."""

    arrangement: Arrangement
    proven: bool | None = None


class Placer(Protocol):
    """Chooses domains for one pod set, perhaps with its leader."""

    def __call__(self, question: Question) -> FoundPlacement | Misfit:
        """Return places for all pods of the request, or the reason for a misfit; equal questions have equal answers."""
        ...


def greedy(question: Question) -> FoundPlacement | Misfit:
    """Place by best fit or least free capacity, as the request demands."""
    found = PlacementSearch(question.tree, question.counts, question.request, leaders=question.leaders).run()
    return found if isinstance(found, Misfit) else FoundPlacement(Arrangement(*found))


def balanced(question: Question) -> FoundPlacement | Misfit:
    """Fill few domains evenly; use best fit if that is not possible, or if one domain must have all pods."""
    if question.request.binding is not None:
        return greedy(question)
    found = PlacementSearch(question.tree, question.counts, question.request, leaders=question.leaders).balanced()
    return greedy(question) if found is None else FoundPlacement(Arrangement(*found))


def best(question: Question) -> FoundPlacement | Misfit:
    """Find the placement with the fewest domains, then the least surplus, of all placements, as far as the
    steps allow.
    """
    first = greedy(question)
    if isinstance(first, Misfit):
        return first
    arrangement, proven = optimal(
        question.tree,
        question.counts,
        question.request,
        leader=question.leaders > 0,
        limit=question.steps,
        incumbent=first.arrangement,
    )
    return FoundPlacement(arrangement, proven)


JOINT = "joint"
"""The profile of workloads that are planned together; a workload that is placed alone gets the best fit."""

PLACERS: dict[str, Placer] = {
    Algorithm.BEST_FIT: greedy,
    Algorithm.LEAST_FREE_CAPACITY: greedy,
    Algorithm.OPTIMAL: best,
    Algorithm.BALANCED: balanced,
    JOINT: greedy,
}
"""Placers by the name of their profile."""


def place_joint_by(name: str) -> None:
    """Let another placer choose the domains inside each workload of the profile `joint`, from the start of a process.

    Raises KeyError when there is no such placer.
    """
    inner = PLACERS[name]

    def place(question: Question) -> FoundPlacement | Misfit:
        """Place by best fit where the pods need one domain of a wider level, which others do not support."""
        return greedy(question) if question.request.widest is not None else inner(question)

    PLACERS[JOINT] = place


def register(name: str, placer: Placer) -> None:
    """Add a placer at the start of a process.  Raises ValueError when the name is taken or empty."""
    if not name or name in PLACERS:
        raise ValueError(f"a placer of the name {name!r} is registered already" if name else "a placer needs a name")
    PLACERS[name] = placer


def answer(question: Question) -> FoundPlacement | Misfit:
    """Return the answer of the request's placer; answers of placers from other packages are checked."""
    name = question.request.algorithm
    found = PLACERS[name](question)
    if isinstance(found, Misfit) or name in _OURS:
        return found
    problem = problem_with(question, found.arrangement)
    if problem is None:
        return found
    return Misfit(
        code=MisfitCode.INTERNAL_INCONSISTENCY,
        pod_set="",
        topology=question.tree.topology,
        level=question.tree.levels[question.request.level],
        detail=f"placer {name} gave a placement that cannot be: {problem}",
    )


_OURS = frozenset((*Algorithm, JOINT))


def problem_with(question: Question, arrangement: Arrangement) -> str | None:
    """Return why a placement does not satisfy the request; None: it does."""
    tests: tuple[Callable[[Question, Arrangement], str | None], ...] = (_form, _room, _leader, _domains, _slices)
    return next((problem for test in tests if (problem := test(question, arrangement)) is not None), None)


def _form(question: Question, arrangement: Arrangement) -> str | None:
    leaves, pods, leader = arrangement
    request, size = question.request, len(question.tree)
    if len(leaves) != len(pods) or any(b <= a for a, b in pairwise(leaves)):
        return "leaves must be in path order, each once, with a number of pods for each"
    if any(not 0 <= leaf < size for leaf in (*leaves, *([leader] if question.leaders else []))):
        return f"leaves are numbered from 0 to {size - 1}"
    wanted = request.need * request.slice_size
    if min(pods, default=1) < 1 or sum(pods) != wanted:
        return f"{sum(pods)} pods are placed, {wanted} are to be"
    return None


def _room(question: Question, arrangement: Arrangement) -> str | None:
    counts = question.counts
    for leaf, pods in zip(arrangement.leaves, arrangement.pods, strict=True):
        leads = question.leaders > 0 and leaf == arrangement.leader
        room = (counts.pods_led if leads else counts.pods)[-1].item(leaf)
        if pods > room:
            return f"leaf {leaf} has room for {room} pods and got {pods}"
    return None


def _leader(question: Question, arrangement: Arrangement) -> str | None:
    leaders = question.counts.leaders
    if question.leaders and (leaders is None or not leaders[-1].item(arrangement.leader)):
        return f"leaf {arrangement.leader} has no room for the leader"
    return None


def _domains(question: Question, arrangement: Arrangement) -> str | None:
    level = question.request.binding
    if level is None:
        return None
    used = [*arrangement.leaves, *([arrangement.leader] if question.leaders else [])]
    domains = {question.tree.domain_of(level).item(leaf) for leaf in used}
    label = question.tree.levels[level]
    return None if len(domains) == 1 else f"{len(domains)} domains of level {label} are used, one must hold all pods"


def _slices(question: Question, arrangement: Arrangement) -> str | None:
    for level, size in question.request.layers:
        held: dict[int, int] = {}
        for leaf, pods in zip(arrangement.leaves, arrangement.pods, strict=True):
            domain = question.tree.domain_of(level).item(leaf)
            held[domain] = held.get(domain, 0) + pods
        if any(pods % size for pods in held.values()):
            return f"a slice of {size} pods is cut at level {question.tree.levels[level]}"
    return None
