"""The optimum of a small batch by CP-SAT of OR-tools: a yardstick for plans, too slow for rounds.

The model has one number for each workload and leaf: the pods there.  All conditions are linear, so CP-SAT is called by
OR-tools' interface for linear programs, which needs none of the dependencies of OR-tools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count
from math import gcd
from typing import Any

from kqueue.core.joint.quota_arcs import own_amounts, quota_arcs
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Resolved, resolve
from kqueue.core.topology.result import Misfit, Path
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value

MOST_WORKLOADS, MOST_DOMAINS = 24, 32
_LIMIT = 60
"""Limit of one optimum in the solver's own measure of work, so that the answer does not depend on the machine."""
_PARAMETERS = "num_workers:1,random_seed:0,max_deterministic_time:{},mip_max_bound:1e15"


@value(kw_only=True)
class ExactWorkload:
    """A workload of one pod set.

    Args:
        worth: its value in its rank; above 0.
        usage: of quota, if it is admitted.
        planned: the pods on each leaf of a plan, from which the search starts; empty: it has none.
    """

    queue: str
    rank: int
    units: int
    worth: int
    request: PodSetRequest
    usage: Usage
    planned: Mapping[Path, int]


@value(kw_only=True)
class ExactInput:
    """A batch with its world, which do not change.

    Args:
        workloads: in the order of admission, ranks ascending.
        nodes: ClusterQueues by name.
        strict: ClusterQueues whose workloads never pass each other.
    """

    workloads: Sequence[ExactWorkload]
    capacity: Capacity
    nodes: Mapping[str, QuotaNode]
    strict: frozenset[str] = frozenset()


ExactSolver = Callable[[ExactInput], int | None]
"""Returns the units that the best plan admits; None: the search reached its limit."""


def exact_solver() -> ExactSolver | None:
    """Return the solver; None: OR-tools is not installed."""
    try:
        from ortools.linear_solver import pywraplp
    except ImportError:
        return None

    def solve(given: ExactInput) -> int | None:
        solver = pywraplp.Solver.CreateSolver("SAT")
        goals = list(_goals(given.workloads))
        assert solver.SetSolverSpecificParametersAsString(_PARAMETERS.format(_LIMIT / len(goals)))
        model = _Model(solver, given)
        model.build()
        chosen: list[int] = []
        for goal in goals:
            model.maximize(goal)
            if solver.Solve() != solver.OPTIMAL:
                return None
            chosen = model.chosen()
            model.hold(goal, chosen)
        return sum(one.units for one, is_in in zip(given.workloads, chosen, strict=True) if is_in)

    return solve


def domains_of(request: PodSetRequest, tree: Tree) -> int:
    """Return the number of domains of the level that a pod set asks for; of the parents of leaves if it names none."""
    resolved = resolve(request, tree.levels, DEFAULT_PROFILE)
    if isinstance(resolved, Misfit):
        return 0
    return tree.domains(max(0, tree.lowest - 1) if resolved.unconstrained else resolved.level)


def _goals(workloads: Sequence[ExactWorkload]) -> Iterator[list[int]]:
    """Yield the worth of each workload in sums to be made as large as possible, one after the other."""
    ranks = sorted({one.rank for one in workloads})
    if len(ranks) == len(workloads):  # all at once: each is worth more than all after it together
        yield [1 << (len(workloads) - 1 - place) for place in range(len(workloads))]
        return
    for rank in ranks:
        yield [one.worth if one.rank == rank else 0 for one in workloads]
    yield [one.units for one in workloads]


class _Model:
    """The variables and conditions of one batch."""

    def __init__(self, solver: Any, given: ExactInput) -> None:
        self._solver, self._given = solver, given
        self._admitted = [solver.BoolVar("") for _ in given.workloads]
        self._on_leaf: dict[int, list[tuple[Any, PodSetRequest]]] = defaultdict(list)
        self._start: list[tuple[Any, int]] = []

    def build(self) -> None:
        """Add all conditions, and the plan from which the search starts."""
        last: dict[str, Any] = {}
        for one, is_in in zip(self._given.workloads, self._admitted, strict=True):
            self._place(one, is_in)
            if one.queue in last and one.queue in self._given.strict:
                self._require([(1, last[one.queue]), (-1, is_in)], least=0)
            last[one.queue] = is_in
        self._share_leaves()
        for column in sorted({column for one in self._given.workloads for column in one.usage}):
            self._share_quota(column)
        self._solver.SetHint([variable for variable, _ in self._start], [amount for _, amount in self._start])

    def maximize(self, worth: Sequence[int]) -> None:
        """Set the goal."""
        goal = self._solver.Objective()
        goal.Clear()
        for amount, is_in in zip(worth, self._admitted, strict=True):
            goal.SetCoefficient(is_in, amount)
        goal.SetMaximization()

    def chosen(self) -> list[int]:
        """Return 1 for each workload that the solution admits, 0 for the others."""
        return [round(is_in.solution_value()) for is_in in self._admitted]

    def hold(self, worth: Sequence[int], chosen: Iterable[int]) -> None:
        """Require as much of a goal as these admissions have."""
        least = sum(amount * is_in for amount, is_in in zip(worth, chosen, strict=True))
        self._require(zip(worth, self._admitted, strict=True), least=least)

    def _require(self, terms: Iterable[tuple[int, Any]], *, least: int | None = None, most: int | None = None) -> None:
        """Bound a sum of variables with their factors."""
        infinity = self._solver.infinity()
        rule = self._solver.Constraint(-infinity if least is None else least, infinity if most is None else most)
        for factor, variable in terms:
            rule.SetCoefficient(variable, factor)

    def _number(self, most: int) -> Any:
        return self._solver.IntVar(0, most, "")

    def _place(self, one: ExactWorkload, is_in: Any) -> None:
        """Give all pods of a workload their places, or none."""
        capacity = self._given.capacity
        resolved = resolve(one.request, capacity.tree.levels, DEFAULT_PROFILE)
        self._start.append((is_in, bool(one.planned)))
        if isinstance(resolved, Misfit):
            self._require([(1, is_in)], most=0)
            return
        pods = resolved.need * resolved.slice_size
        room = pods_per_domain(capacity, one.request.shape)[-1].tolist()
        found: dict[int, Any] = {}
        for leaf, most in enumerate(room):
            if most:
                found[leaf] = self._number(min(most, pods))
                self._start.append((found[leaf], one.planned.get(capacity.tree.written(leaf), 0)))
                self._on_leaf[leaf].append((found[leaf], one.request))
        self._require([(-pods, is_in), *((1, there) for there in found.values())], least=0, most=0)
        self._keep_together(resolved, found, pods)

    def _keep_together(self, resolved: Resolved, found: Mapping[int, Any], pods: int) -> None:
        """Require one domain for all pods where the request does, and whole slices in each domain of their levels."""
        multiples = [(resolved.binding, pods)] if resolved.binding is not None else []
        for level, size in [*multiples, *resolved.layers]:
            for inside in self._by_domain(level, found):
                whole = self._number(pods // size)
                self._require([(-size, whole), *((1, there) for there in inside)], least=0, most=0)

    def _by_domain(self, level: int, found: Mapping[int, Any]) -> list[list[Any]]:
        domain_of = self._given.capacity.tree.domain_of(level)
        domains: dict[int, list[Any]] = defaultdict(list)
        for leaf, pods in found.items():
            domains[domain_of.item(leaf)].append(pods)
        return list(domains.values())

    def _share_leaves(self) -> None:
        """Let no leaf have more pods than it has room for together."""
        for leaf, there in self._on_leaf.items():
            free = self._given.capacity.free(leaf)
            amounts = [dict(request.shape.requests) for _, request in there]
            for resource in sorted({resource for some in amounts for resource in some}):
                asked = [some.get(resource, 0) for some in amounts]
                unit = gcd(*asked)
                terms = [(amount // unit, pods) for amount, (pods, _) in zip(asked, there, strict=True) if amount]
                self._require(terms, most=max(0, free.get(resource, 0)) // unit)

    def _share_quota(self, column: FlavorResource) -> None:
        """Let the tree of queues give no more than it has."""
        asked = [one.usage.get(column, 0) for one in self._given.workloads]
        if not any(asked):
            return
        nodes = {one.queue: self._given.nodes[one.queue] for one in self._given.workloads}
        unit = gcd(*asked, *own_amounts(nodes, nodes, column))
        asked = [amount // unit for amount in asked]
        numbers = count(1)
        arcs, place_of = quota_arcs(
            sorted(nodes), nodes, column, Fraction(unit), source=0, new_node=lambda: next(numbers), most=sum(asked)
        )
        flows: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for arc in arcs:
            given = self._number(arc.capacity)
            flows[arc.tail].append((-1, given))
            flows[arc.head].append((1, given))
        for one, amount, is_in in zip(self._given.workloads, asked, self._admitted, strict=True):
            flows[place_of[one.queue]].append((-amount, is_in))
        for node, terms in flows.items():
            if node:
                self._require(terms, least=0)
