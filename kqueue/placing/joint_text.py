"""A joint placement in words: what the plan reaches, and each workload with its domains or the reason for none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kqueue.core.joint.plan import PlanStatus
from kqueue.core.topology import Misfit
from kqueue.placing.joint_solving import JointSolution, JointStatus, NoQuota, WorkloadOutcome

_MOST_DOMAINS = 6


def text(solution: JointSolution) -> str:
    """Return the description, which ends in a newline."""
    return "\n".join([*_summary(solution), "", *_workloads(solution)]) + "\n"


def _summary(solution: JointSolution) -> Iterator[str]:
    plan = solution.plan
    placed = sum(outcome.status is JointStatus.PLACED for outcome in solution.outcomes)
    yield f"{placed} of {len(solution.outcomes)} workloads are placed (plan: {plan.chosen}, order: {_order(solution)})."
    units = f"They use {plan.units} units"
    if plan.bound is not None:
        units += f" of at most {plan.bound}"
    yield f"{units}; placed one by one they would use {plan.greedy_units}."
    match plan.status:
        case PlanStatus.OPTIMAL:
            yield "No plan uses more without leaving out an earlier workload."
        case PlanStatus.FEASIBLE:
            yield "A plan that uses more may exist: the bound allows gangs to be split, which no plan may do."
        case PlanStatus.NO_BOUND:
            yield "How far it is from the best plan is not known, because there is no bound."


def _order(solution: JointSolution) -> str:
    return solution.case.settings.order.value


def _workloads(solution: JointSolution) -> Iterator[str]:
    outcomes = sorted(solution.outcomes, key=lambda outcome: (outcome.planned.rank, outcome.planned.head.uid))
    names = max(len(outcome.asked.name) for outcome in outcomes)
    for outcome in outcomes:
        line = f"{outcome.planned.rank:>4}  {outcome.asked.name:<{names}}  {outcome.planned.units:>6} units  "
        yield line + (_where(outcome) if outcome.placements else _why(outcome))


def _where(outcome: WorkloadOutcome) -> str:
    """Return the domains around the hosts, with the number of pods in each."""
    pods: Counter[str] = Counter()
    for placement in outcome.placements.values():
        for path, domain in zip(placement.paths, placement.assignment.domains, strict=True):
            pods["/".join(path[:-1] or path)] += domain.count
    shown = [f"{count} in {path}" for path, count in sorted(pods.items())[:_MOST_DOMAINS]]
    rest = len(pods) - len(shown)
    return ", ".join(shown) + (f" and in {rest} more" if rest else "")


def _why(outcome: WorkloadOutcome) -> str:
    why = outcome.failure
    if isinstance(why, NoQuota):
        sentence = f"needs {why.asked} {why.resource} of queue {why.queue}, which has {why.available} left"
    elif isinstance(why, Misfit):
        sentence = f"{why.fit} of {why.total} {why.unit}s fit in one {why.level}" if why.total else why.code.value
    else:
        sentence = "would fit in what is left, but a workload before it in a strict queue waits"
    proven = "; no plan with the same earlier workloads has room for it" if outcome.planned.is_proven else ""
    return f"left out: {sentence}{proven}" if outcome.status is JointStatus.LEFT else f"cannot fit: {sentence}"
