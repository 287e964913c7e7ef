"""Describes a joint placement for people: what the plan reaches, each workload by rank, the room before and after."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from kqueue.core.explain import Blocker, BlockerKind, sentence
from kqueue.core.joint.plan import PlanStatus
from kqueue.core.quantity import format_quantity
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints, Tree
from kqueue.placing.drawing import Drawing
from kqueue.placing.explaining import head_of
from kqueue.placing.joint_solving import JointSolution, JointStatus, NoQuota, WorkloadOutcome
from kqueue.placing.picture import free_amounts

_MOST_WORKLOADS = 200
_MOST_CHILDREN = 32
_MOST_NAMES = 8
"""Limit of domains of one workload, and of workloads of one domain; the rest is counted."""


def explain_joint(solution: JointSolution) -> str:
    """Return the description, which ends in a newline."""
    placed = sum(outcome.status is JointStatus.PLACED for outcome in solution.outcomes)
    case, number = solution.case, len(solution.outcomes)
    verdict = f"{placed} of {number} workloads {'is' if number == 1 else 'are'} placed"
    head = head_of(case.name, verdict, case.cluster, solution.tree, solution.ignored)
    parts = [[head], [*_plan(solution)], [*_workloads(solution)], [*_picture(solution)]]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _plan(solution: JointSolution) -> Iterator[str]:
    """Yield how good the plan is."""
    plan = solution.plan
    yield f"plan: {plan.chosen}, order {solution.order}"
    most = "" if plan.bound is None else f" of at most {plan.bound}"
    size = f" (each {_amount(solution.unit.size, solution.unit.resource)})" if solution.unit is not None else ""
    yield f"placed: {plan.units}{most} units{size}; one by one it would be {plan.greedy_units}"
    if solution.exact_units is not None:
        yield f"optimum: {_units(solution.exact_units)}"
    elif plan.status is PlanStatus.OPTIMAL:
        yield "no plan places more without leaving out an earlier workload"
    elif plan.units == plan.bound:
        yield "no plan places more; whether one places an earlier workload in place of later ones is not known"
    elif plan.status is PlanStatus.FEASIBLE:
        yield "a better plan may exist: the limit counts gangs that are split, and no plan splits any"
    else:
        yield "whether a better plan exists is not known"


def _units(number: int) -> str:
    return f"{number} {'unit' if number == 1 else 'units'}"


def _amount(amount: int, resource: str) -> str:
    return f"{format_quantity(amount, resource)} {resource}"


def _workloads(solution: JointSolution) -> Iterator[str]:
    """Yield the workloads by rank."""
    outcomes = sorted(solution.outcomes, key=lambda outcome: (outcome.planned.rank, outcome.planned.head.uid))
    yield "by rank:"
    for outcome in outcomes[:_MOST_WORKLOADS]:
        result = f"placed, {_where(outcome)}" if outcome.placements else _why(solution, outcome)
        yield f"  {outcome.planned.rank}. {outcome.asked.name} ({_units(solution.units_of(outcome))}): {result}"
    rest = outcomes[_MOST_WORKLOADS:]
    if rest:
        placed = sum(outcome.status is JointStatus.PLACED for outcome in rest)
        yield f"  and {len(rest)} more, {placed} of them placed"


def _where(outcome: WorkloadOutcome) -> str:
    """Return the domains around the hosts, with the number of pods in each."""
    pods = _pods(outcome, levels=-1)
    return _listed([f"{number} in {'/'.join(path)}" for path, number in sorted(pods.items())])


def _pods(outcome: WorkloadOutcome, *, levels: int) -> Counter[Path]:
    """Return the pods of a workload in each domain of the lowest of so many levels; -1: of all but the hosts."""
    found: Counter[Path] = Counter()
    for placement in outcome.placements.values():
        for path, domain in zip(placement.paths, placement.assignment.domains, strict=True):
            found[path[:levels] or path] += domain.count
    return found


def _listed(parts: Sequence[str]) -> str:
    rest = len(parts) - _MOST_NAMES
    return ", ".join(parts[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _why(solution: JointSolution, outcome: WorkloadOutcome) -> str:
    why = outcome.failure
    if outcome.status is JointStatus.DEFERRED:
        opens = outcome.planned.opens
        later = f"other places are good enough in {opens} s" if opens is not None else "no other place is good enough"
        return f"waits for a place near its data, which has no room now; {later}"
    if isinstance(why, NoQuota):
        text = f"needs {_amount(why.asked, why.resource)} of queue {why.queue}, which has "
        text += f"{format_quantity(why.available, why.resource)}"
    elif why is not None:
        text = sentence(Blocker(kind=BlockerKind.TOPOLOGY, flavor=solution.case.cluster.flavor, misfit=why))
    elif outcome.asked.pod_sets and not any(pod_set.request.count for pod_set in outcome.asked.pod_sets):
        return "placed, without pods"
    else:
        text = "a workload before it waits, which no other passes in a strict queue"
    if outcome.status is JointStatus.FAILED:
        return f"cannot be placed: {text}"
    proven = "; proven: no plan with the same earlier workloads has room for it" if outcome.planned.is_proven else ""
    return f"left out: {text}{proven}"


def _picture(solution: JointSolution) -> Iterator[str]:
    """Draw the free amounts before and after the plan, down to the domains around the hosts."""
    tree = solution.tree
    deepest = max(0, tree.lowest - 1)
    resources = {r for w in solution.case.workloads for p in w.pod_sets for r, n in p.request.requests.items() if n}
    before = free_amounts(solution.before, resources)
    after = free_amounts(solution.capacity, resources)
    found: dict[Path, list[str]] = defaultdict(list)
    for outcome in solution.outcomes:
        for path, number in _pods(outcome, levels=deepest + 1).items():
            found[path].append(f"{outcome.asked.name} {number}")

    def text(level: int, domain: int) -> str:
        leaves = tree.leaves_of(level, domain)
        return ", ".join(_change(r, before[r][leaves], after[r][leaves]) for r in before) or "nothing is requested"

    yield "free before and after, and the new pods:"
    drawing = Drawing(
        tree=tree,
        room=[_sums(tree, level, next(iter(before.values()), None)) for level in range(deepest + 1)],
        text=text,
        rest=_rest,
        marks={path: _listed(names) for path, names in found.items()},
        deepest=deepest,
        is_whole=True,
        most_children=_MOST_CHILDREN,
    )
    yield from drawing.lines()


def _sums(tree: Tree, level: int, row: Ints | None) -> Ints:
    """Return the sum of the amounts of each domain of a level; None: nothing is requested."""
    return tree.nothing(level) if row is None or not len(tree) else np.add.reduceat(row, tree.first_leaf[level])


def _change(resource: str, before: Ints, after: Ints) -> str:
    old, new = (format_quantity(sum(row.tolist()), resource) for row in (before, after))
    return f"{resource} {old}" + (f" -> {new}" if new != old else "")


def _rest(number: int, marked: int, _most: int) -> str:
    return f"and {number} more" + (f", {marked} of them with new pods" if marked else "")
