"""The result of a joint placement as JSON.  The order of keys is fixed, and there are no fractions but as text."""

from __future__ import annotations

from typing import Any

from kqueue.core.joint.plan import gap_text
from kqueue.core.topology import Misfit
from kqueue.placing.answer import assigned, misfit, quality, remaining, tree_entry
from kqueue.placing.joint_solving import JointSolution, JointStatus, NoQuota, WorkloadOutcome
from kqueue.placing.solving import PodSetStatus


def answer(solution: JointSolution) -> dict[str, Any]:
    """Return the answer to a valid joint placement."""
    result: dict[str, Any] = {
        "name": solution.case.name,
        "placed": solution.placed,
        "tree": tree_entry(solution.tree, solution.ignored),
        "joint": _joint(solution),
        "workloads": [_workload(outcome, solution) for outcome in solution.outcomes],
    }
    if solution.case.output.remaining:
        result["remaining"] = remaining(solution.tree, solution.capacity, solution.used)
    return result


def _joint(solution: JointSolution) -> dict[str, Any]:
    plan = solution.plan
    facts: dict[str, Any] = {
        "status": plan.status.value,
        "chosen": plan.chosen.value,
        "order": solution.order.value,
    }
    if solution.unit is not None:
        facts["unit"] = {"resource": solution.unit.resource, "amount": solution.unit.size}
    if plan.bound is not None:
        facts["bound"] = plan.bound
    facts |= {"units": plan.units, "greedyUnits": plan.greedy_units}
    if plan.gap is not None:
        facts["gap"] = gap_text(plan.gap)
    facts |= {"cost": plan.cost, "greedyCost": plan.greedy_cost, "steps": plan.steps}
    facts |= {"classes": plan.classes, "arcs": plan.arcs}
    if solution.exact_units is not None:
        facts["exactUnits"] = solution.exact_units
    if plan.failed_policies:
        facts["failedPolicies"] = dict(sorted(plan.failed_policies.items()))
    return facts


def _workload(outcome: WorkloadOutcome, solution: JointSolution) -> dict[str, Any]:
    planned = outcome.planned
    entry: dict[str, Any] = {
        "name": outcome.asked.name,
        "rank": planned.rank,
        "status": outcome.status.value,
        "relaxedUnits": planned.relaxed,
        "units": solution.units_of(outcome),
        "provenLeft": planned.is_proven,
    }
    if outcome.status is JointStatus.DEFERRED and planned.opens is not None:
        entry["opensAfterSeconds"] = planned.opens
    entry["podSets"] = [_pod_set(outcome, name, count, solution) for name, count in _pod_sets(outcome)]
    if outcome.failure is not None:
        entry["failure"] = _failure(outcome.failure)
    return entry


def _pod_sets(outcome: WorkloadOutcome) -> list[tuple[str, int]]:
    return [(pod_set.request.name, pod_set.request.count) for pod_set in outcome.asked.pod_sets]


def _pod_set(outcome: WorkloadOutcome, name: str, count: int, solution: JointSolution) -> dict[str, Any]:
    if not count:
        return {"name": name, "status": PodSetStatus.SKIPPED.value}
    placement = outcome.placements.get(name)
    if placement is None:
        status = PodSetStatus.FAILED if outcome.status is JointStatus.FAILED else PodSetStatus.NOT_EVALUATED
        return {"name": name, "status": status.value}
    status = PodSetStatus.PLACED
    return {"name": name, "status": status.value} | assigned(placement, solution.case.output) | quality(placement)


def _failure(why: Misfit | NoQuota) -> dict[str, Any]:
    if isinstance(why, Misfit):
        return misfit(why)
    facts = {"queue": why.queue, "resource": why.resource, "asked": why.asked, "available": why.available}
    return {"code": "NoQuota", **facts}
