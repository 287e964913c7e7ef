"""The answer of a round: its plan, without the values that only the planner needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kqueue.core.hints import PlanHint, WaitForPlace
from kqueue.core.joint.candidate import CandidateName
from kqueue.core.joint.plan import FlavorUnits, JointPlan, PlannedWorkload, PlanStatus, gap_text
from kqueue.core.value import value


@value(kw_only=True)
class PlannedEntry:
    """A workload of the plan; `hint` is None if the plan does not admit it, lets it wait for no better place, and
    proposes no workloads to preempt for it.
    """

    uid: str
    key: str
    queue: str
    rank: int
    units: int
    relaxed: int
    is_proven: bool
    hint: PlanHint | None

    @property
    def is_deferred(self) -> bool:
        """Whether the workload waits for a better place."""
        return self.hint is not None and self.hint.wait is not None

    @property
    def is_admitted(self) -> bool:
        """Whether the plan admits the workload."""
        return self.hint is not None and self.hint.has_place


@value(kw_only=True)
class PlanAnswer:
    """A plan, without the values that only the process needs.

    Args:
        seconds: of planning, by phase.
        failed_policies: the problems of policies that were switched off for the round, by name.
        drifts: kept tables that differed from the state when they were checked, and were made anew.
        static_nodes: nodes whose reservations counted, because a policy looked at use that was not measured.
    """

    round: int
    chosen: CandidateName
    status: PlanStatus
    bound: int | None
    units: int
    greedy_units: int
    gap: int | None
    cost: int
    greedy_cost: int
    flavors: tuple[FlavorUnits, ...]
    seconds: Mapping[str, float]
    entries: tuple[PlannedEntry, ...]
    faults: tuple[str, ...] = ()
    failed_policies: Mapping[str, str] = field(default_factory=dict)
    drifts: tuple[str, ...] = ()
    static_nodes: int = 0

    @property
    def name(self) -> str:
        """The round and its gap, for messages."""
        return plan_name(self.round, self.gap)


def plan_name(number: int, gap: int | None) -> str:
    """Return the name of a plan for messages; `gap` in thousandths, None: unknown."""
    return f"joint round {number}" + (f", gap {gap_text(gap)}" if gap is not None else "")


def answer_of(number: int, plan: JointPlan, seconds: Mapping[str, float]) -> PlanAnswer:
    """Return the plan in the form in which the manager gets it: admitted workloads first, in their order."""
    name = plan_name(number, plan.gap)
    entries = [
        PlannedEntry(
            uid=one.head.uid,
            key=one.head.key,
            queue=one.head.queue,
            rank=one.rank,
            units=one.units,
            relaxed=one.relaxed,
            is_proven=one.is_proven,
            hint=_hint(one, name),
        )
        for one in plan.workloads
    ]
    return PlanAnswer(
        round=number,
        chosen=plan.chosen,
        status=plan.status,
        bound=plan.bound,
        units=plan.units,
        greedy_units=plan.greedy_units,
        gap=plan.gap,
        cost=plan.cost,
        greedy_cost=plan.greedy_cost,
        flavors=plan.flavors,
        seconds=seconds,
        entries=tuple(sorted(entries, key=lambda entry: not entry.is_admitted)),
        faults=plan.faults,
        failed_policies=plan.failed_policies,
        static_nodes=plan.static_nodes,
    )


def _hint(one: PlannedWorkload, plan: str) -> PlanHint | None:
    if one.is_deferred:
        return PlanHint(flavors={}, places={}, plan=plan, wait=WaitForPlace(seconds=one.opens))
    if one.victims is not None:
        return PlanHint(flavors={}, places={}, plan=plan, victims=one.victims)
    if one.admitted is None:
        return None
    flavors = {pod_set.name: pod_set.flavors for pod_set in one.admitted.pod_sets}
    return PlanHint(flavors=flavors, places=one.hint or {}, plan=plan)
