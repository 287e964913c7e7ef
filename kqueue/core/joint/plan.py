"""The plan of a round: the workloads in their order, the domains of those that it admits, and how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from kqueue.core.hints import ProposedVictims
from kqueue.core.joint.candidate import CandidateName
from kqueue.core.joint.score import Score
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import PlannedAdmission
from kqueue.core.topology.arranged import Hint
from kqueue.core.value import value
from kqueue.core.workload import Head


class PlanStatus(StrEnum):
    """Whether better plans may exist."""

    OPTIMAL = "Optimal"
    """No plan schedules more units of any rank without fewer of an earlier one."""
    FEASIBLE = "Feasible"
    """The relaxation would schedule more."""
    NO_BOUND = "NoBound"
    """There is no relaxation: no solver is installed, or no pod of the batch has units."""


@value(kw_only=True)
class PlannedWorkload:
    """A workload of the batch in the plan.

    Args:
        units: of all its pods.
        relaxed: units of it that the relaxation schedules.
        admitted: None: the plan leaves it out, or it preempts others.
        is_proven: whether no plan with the same earlier workloads admits it.
        is_deferred: whether it waits for a better place, so that no cycle may place it elsewhere.
        opens: seconds after which the next place opens for a deferred workload; None: none ever does.
        victims: running workloads that are proposed to be preempted for it; None: none are.
    """

    head: Head
    rank: int
    units: int
    relaxed: int
    admitted: PlannedAdmission | None
    preempts: bool = False
    is_proven: bool = False
    is_deferred: bool = False
    opens: int | None = None
    victims: ProposedVictims | None = None

    @property
    def hint(self) -> Hint | None:
        """The domains for the pods, to be checked by the cycle that admits the workload; None: it has no hint."""
        if self.admitted is None:
            return None
        return hint_of(self.admitted)


class RoundPhase(StrEnum):
    """Phases of planning.  The value is the phase's name in metrics."""

    BASELINE = "baseline"
    """One by one."""
    BUILD = "build"
    """The network of the relaxation."""
    SOLVE = "solve"
    SEARCH = "search"
    VERIFY = "verify"


@value(kw_only=True)
class FlavorUnits:
    """The units of one flavor: of the bound (None: unknown), of the plan, and of one by one."""

    flavor: str
    unit: Unit
    bound: int | None
    units: int
    greedy_units: int

    @property
    def gap(self) -> int | None:
        """The thousandths of the bound that the plan does not schedule, rounded up; None: there is no bound."""
        return gap_between(self.bound, self.units)


@value(kw_only=True)
class JointPlan:
    """The plan of a round.

    Args:
        chosen: the candidate that was chosen, after `polish`.
        scores: of all candidates, by name.
        bound: units that no plan exceeds; None: unknown.
        units: that the plan schedules, and `greedy_units` those of one by one.
        cost: points of the places of the plan, and `greedy_cost` those of one by one.
        flavors: units by flavor, for each flavor with a unit.
        steps: searches for domains that were made.
        static_nodes: nodes whose reservations counted, because a policy looked at use that was not measured.
    """

    chosen: CandidateName
    status: PlanStatus
    workloads: tuple[PlannedWorkload, ...]
    scores: Mapping[CandidateName, Score]
    bound: int | None
    units: int
    greedy_units: int
    cost: int
    greedy_cost: int
    flavors: tuple[FlavorUnits, ...] = ()
    steps: int = 0
    classes: int = 0
    arcs: int = 0
    static_nodes: int = 0
    faults: tuple[str, ...] = ()
    """Candidates that were dropped because the check of the finished plan found a fault, with the fault."""
    failed_policies: Mapping[str, str] = field(default_factory=dict)
    """Policies that have failed in the round, which was planned without them, and why."""

    @property
    def gap(self) -> int | None:
        """The thousandths of the bound that the plan does not schedule, rounded up; None: there is no bound."""
        return gap_between(self.bound, self.units)


def gap_between(bound: int | None, units: int) -> int | None:
    """Return the thousandths of a bound that are not scheduled, rounded up; None: there is no bound."""
    if bound is None:
        return None
    return -(-(bound - units) * 1000 // bound) if bound else 0


def gap_text(gap: int) -> str:
    """Return a gap in thousandths as text with three decimals."""
    return f"{gap // 1000}.{gap % 1000:03}"


def hint_of(planned: PlannedAdmission) -> Hint:
    """Return the domains of an admission as a hint: full paths of leaves with numbers of pods, by pod set."""
    return {
        pod_set.name: [(tuple(domain.values), domain.count) for domain in pod_set.topology.domains]
        for pod_set in planned.pod_sets
        if pod_set.topology is not None
    }
