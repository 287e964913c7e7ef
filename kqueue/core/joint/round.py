"""One round: the candidates for the batch, the best of them, and the check of it.

The round is a pure function of its input: equal inputs give equal plans.  Searches are limited by steps, never by time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kqueue.core.demand import Demands
from kqueue.core.hints import ProposedVictims
from kqueue.core.joint.baseline import OneByOne, one_by_one
from kqueue.core.joint.batch import Batch, RankedWorkload, ranked
from kqueue.core.joint.candidate import Candidate, CandidateName
from kqueue.core.joint.classes import PodClass
from kqueue.core.joint.exchange import exchange
from kqueue.core.joint.graph import CostRangeError, Flow, FlowSolver, Graph
from kqueue.core.joint.kept import Kept
from kqueue.core.joint.plan import FlavorUnits, JointPlan, PlannedWorkload, PlanStatus, RoundPhase
from kqueue.core.joint.policy import PolicyFailedError
from kqueue.core.joint.polish import Scored, polish
from kqueue.core.joint.preparation import Preparation, prepare
from kqueue.core.joint.relaxation import Choices, FlowGuide, Relaxation, relax
from kqueue.core.joint.round_policies import NO_POLICIES, PolicyInput
from kqueue.core.joint.running import NOTHING_RUNS, RunningInput
from kqueue.core.joint.score import Scorer
from kqueue.core.joint.search import SearchInput, search
from kqueue.core.joint.settings import JointOrder, JointSettings, VictimChoice
from kqueue.core.joint.share_account import ShareAccount, by_share
from kqueue.core.joint.units import Unit, units
from kqueue.core.joint.verify import fault_in
from kqueue.core.joint.victims import VictimQuestion, proposed_victims
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.ordering import DEFAULT_RULES, OrderRules
from kqueue.core.planned_state import PlannedState
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.value import value
from kqueue.core.workload import Head


@value(kw_only=True)
class RoundInput:
    """The input of a round.

    Args:
        state: the state before the round.
        waited: seconds that each workload has waited, by UID.
        solver: None: there is no relaxation, and so no bound.
        kept: tables of earlier rounds, which save work and never change the plan; None: there are none.
    """

    state: PlannedState
    batch: Batch
    waited: Mapping[str, int]
    settings: JointSettings
    solver: FlowSolver | None = None
    order: OrderRules = DEFAULT_RULES
    policies: PolicyInput = NO_POLICIES
    kept: Kept | None = None
    running: RunningInput = NOTHING_RUNS


def plan_round(given: RoundInput, enter: Callable[[RoundPhase], None] = lambda _phase: None) -> JointPlan:
    """Return the plan: the best of one by one, packed and guided, in better places; never worse than one by one.

    When a policy fails, the round is planned again without it, so that all candidates are judged alike.  `enter` is
    called at the beginning of each phase.
    """
    failed: dict[str, str] = {}
    while True:
        try:
            return replace(_Round(given, enter).plan(), failed_policies=failed)
        except PolicyFailedError as e:
            failed[e.policy] = e.problem
            given = replace(given, policies=given.policies.without(e.policy))


@dataclass(slots=True)
class _Round:
    """The steps of one round."""

    given: RoundInput
    enter: Callable[[RoundPhase], None]
    demands: Demands = field(init=False)
    steps: int = 0
    order: tuple[RankedWorkload, ...] = ()
    faults: list[str] = field(default_factory=list)
    prepared: Preparation = field(init=False)
    kept: Kept = field(init=False)

    def __post_init__(self) -> None:
        self.kept = self.given.kept or Kept()
        self.demands = self.kept.demands

    def world(self, *, steps: int = 0, charged: bool = True) -> World:
        """Return a new copy of the world before the round."""
        return World(
            self.given.state,
            self.given.batch.queues,
            demands=self.demands,
            steps=steps,
            charged=charged,
            policies=self.prepared.policies,
        )

    def plan(self) -> JointPlan:
        given, settings = self.given, self.given.settings
        self.enter(RoundPhase.BASELINE)
        start = World(given.state, given.batch.queues, demands=self.demands)
        prepared = self.prepared = prepare(start, given.batch, given.waited, settings.order, given.policies)
        world, unit_of = self.world(charged=False), prepared.unit_of
        greedy = one_by_one(world, prepared.batch, rules=given.state.rules, order=given.order)
        by_uid = {head.uid: head for head in prepared.batch.heads()}
        self.order = ranked([by_uid[head.uid] for head in greedy.order], prepared.how, prepared.waited)
        reduced = {
            uid: planned.head
            for uid, planned in greedy.admitted.items()
            if planned.head.pod_sets != by_uid[uid].pod_sets
        }
        choices = {
            uid: prepared.choices[uid] or (list(start.choices(reduced[uid])) if uid in reduced else [])
            for uid in (one.head.uid for one in self.order)
        }
        scorer = Scorer(
            start=start.snapshot,
            order=self.order,
            how=prepared.how,
            unit_of=unit_of,
            sizes={uid: units(some[0].requests, unit_of) for uid, some in choices.items() if some},
            largest=_largest(choices, unit_of, self.order),
            policies=prepared.policies,
            new_world=self.world,
        )
        self.enter(RoundPhase.BUILD)
        relaxed = self._relaxed(self._roomiest(start), choices, unit_of, reduced)
        self.enter(RoundPhase.SEARCH)
        first = Candidate(CandidateName.ONE_BY_ONE, greedy.admitted)
        found = [Scored(candidate=first, score=scorer.score(first, world))]
        for name, given_search in self._searches(greedy, reduced, unit_of, relaxed, scorer):
            candidate_world = self.world(steps=settings.steps)
            candidate = search(candidate_world, given_search, name=name)
            if prepared.how is JointOrder.PRIORITY and not prepared.counts_shares:
                exchange(candidate_world, candidate, scorer, given.batch.strict)
            self.steps += candidate_world.steps_made
            found.append(Scored(candidate=candidate, score=scorer.score(candidate, candidate_world)))
        best = self._best(found, scorer, unit_of)
        return self._finished(best, found, greedy, relaxed, unit_of, choices)

    def _roomiest(self, start: World) -> World:
        """Return the world before the round without claims: their charges depend on what is admitted before them."""
        given = self.given
        return World(given.state, given.batch.queues, demands=self.demands, charged=False) if start.claims else start

    def _relaxed(
        self, start: World, choices: Choices, unit_of: Mapping[str, Unit], reduced: Mapping[str, Head]
    ) -> Relaxation | None:
        if self.given.solver is None or not unit_of:
            return None
        if start is not self.prepared.start:
            choices = {one.head.uid: list(start.choices(one.head)) or choices[one.head.uid] for one in self.order}
        choices = {one.head.uid: start.with_others(choices[one.head.uid]) for one in self.order}
        try:
            return relax(
                start.snapshot,
                self.order,
                choices,
                unit_of,
                how=self.prepared.how,
                solver=self._solve,
                reduced=reduced,
                policies=self.prepared.policies,
                kept=self.kept,
            )
        except CostRangeError:
            return None

    def _solve(self, graph: Graph) -> Flow:
        assert self.given.solver is not None, "without a solver nothing is relaxed"
        self.enter(RoundPhase.SOLVE)
        flow = self.given.solver(graph)
        self.enter(RoundPhase.BUILD)
        return flow

    def _searches(
        self,
        greedy: OneByOne,
        reduced: Mapping[str, Head],
        unit_of: Mapping[str, Unit],
        relaxed: Relaxation | None,
        scorer: Scorer,
    ) -> list[tuple[CandidateName, SearchInput]]:
        """Return the searches of the round."""
        prepared = self.prepared
        requests = {uid: some[0].requests if some else {} for uid, some in prepared.choices.items()}
        account = ShareAccount(prepared.policies, unit_of)
        packed = SearchInput(
            order=by_share(self.order, requests, account) if prepared.counts_shares else self.order,
            strict=self.given.batch.strict,
            claims=greedy.claims,
            unit_of=unit_of,
            reduced=reduced,
        )
        searches = [(CandidateName.PACKED, packed)]
        if self.prepared.how is JointOrder.PRIORITY:
            searches.append(
                (CandidateName.BY_VALUE, replace(packed, order=by_value(self.order, packed.strict, scorer)))
            )
        if relaxed is not None:
            guided = replace(packed, guide=FlowGuide(relaxed))
            searches.append((CandidateName.GUIDED, guided))
        return searches

    def _best(self, found: Sequence[Scored], scorer: Scorer, unit_of: Mapping[str, Unit]) -> Scored:
        """Return the best candidate that passes the check, in better places; faults of others are noted."""
        for candidate in sorted(found, key=lambda one: one.score.key(), reverse=True):
            for one in (polish(self.world, candidate, scorer, unit_of), candidate):
                if one is found[0]:
                    return one  # cycles have admitted exactly this
                self.enter(RoundPhase.VERIFY)
                fault = fault_in(one.candidate, self.world())
                self.enter(RoundPhase.SEARCH)
                if fault is None:
                    return one
                self.faults.append(f"{one.candidate.name}: {fault}")
        raise AssertionError(f"one by one was not among {[one.candidate.name for one in found]}")

    def _finished(
        self,
        best: Scored,
        found: Sequence[Scored],
        greedy: OneByOne,
        relaxed: Relaxation | None,
        unit_of: Mapping[str, Unit],
        choices: Choices,
    ) -> JointPlan:
        """Return the plan of the best candidate."""
        admitted, opens = best.candidate.admitted, self.prepared.withheld.opens
        proven = proven_out(relaxed, admitted, choices) if self.prepared.how is JointOrder.STRICT else frozenset()
        victims = self._victims(admitted)
        workloads = [
            PlannedWorkload(
                head=one.head,
                rank=one.rank,
                units=_units(one.head, admitted, choices, unit_of),
                relaxed=relaxed.units.get(one.head.uid, 0) if relaxed is not None else 0,
                admitted=admitted.get(one.head.uid),
                preempts=one.head.uid in greedy.claims and one.head.uid not in admitted,
                is_proven=one.head.uid in proven and one.head.uid not in opens,
                is_deferred=one.head.uid in opens
                and one.head.uid not in admitted
                and one.head.uid not in greedy.claims,
                opens=opens.get(one.head.uid),
                victims=victims.get(one.head.uid),
            )
            for one in self.order
        ]
        return JointPlan(
            chosen=best.candidate.name,
            status=status_of(relaxed, admitted, unit_of),
            workloads=tuple(workloads),
            scores={one.candidate.name: one.score for one in found} | {best.candidate.name: best.score},
            bound=relaxed.bound if relaxed is not None else None,
            units=_sum(admitted, unit_of),
            greedy_units=_sum(greedy.admitted, unit_of),
            cost=best.score.cost,
            greedy_cost=found[0].score.cost,
            flavors=_by_flavor(relaxed, admitted, greedy.admitted, unit_of),
            steps=self.steps,
            classes=relaxed.classes if relaxed is not None else 0,
            arcs=relaxed.arcs if relaxed is not None else 0,
            static_nodes=self.prepared.policies.static_nodes if self.prepared.policies is not None else 0,
            faults=tuple(self.faults),
        )

    def _victims(self, admitted: Mapping[str, PlannedAdmission]) -> Mapping[str, ProposedVictims]:
        """Return the running workloads that are proposed to be preempted, by UID of workloads that are left out."""
        given, opens = self.given, self.prepared.withheld.opens
        if given.settings.victims is VictimChoice.CYCLE or given.solver is None:
            return {}
        out = [one for one in self.order if one.head.uid not in admitted and one.head.uid not in opens]
        return proposed_victims(
            VictimQuestion(
                state=given.state,
                queues=list(given.batch.queues),
                left=out,
                admitted=admitted.values(),
                how=self.prepared.how,
                solver=self._solve,
                checkpoints=given.running.checkpoints,
            )
        )


def by_value(order: Sequence[RankedWorkload], strict: frozenset[str], scorer: Scorer) -> list[RankedWorkload]:
    """Return the workloads by value inside each rank, the largest first; those of a strict queue keep their order."""
    found = sorted(order, key=lambda one: (one.rank, -scorer.promised(one)))
    for queue in strict:
        places = [place for place, one in enumerate(found) if one.head.queue == queue]
        for place, one in zip(places, [one for one in order if one.head.queue == queue], strict=True):
            found[place] = one
    return found


def status_of(
    relaxed: Relaxation | None, admitted: Mapping[str, PlannedAdmission], unit_of: Mapping[str, Unit]
) -> PlanStatus:
    """Return what the relaxation says about better plans."""
    if relaxed is None or not relaxed.scheduled:
        return PlanStatus.NO_BOUND
    agree = all(scheduled == _of_class(one, admitted) for one, scheduled in relaxed.scheduled)
    is_best = relaxed.is_by_rank and agree and relaxed.bound == _sum(admitted, unit_of)
    return PlanStatus.OPTIMAL if is_best else PlanStatus.FEASIBLE


def proven_out(
    relaxed: Relaxation | None, admitted: Mapping[str, PlannedAdmission], choices: Choices
) -> frozenset[str]:
    """Return the UIDs that no plan with the same earlier workloads admits; `Strict` is in force.

    Where the relaxation schedules the most units of the first class, then of the second: as long as the plan has the
    same units of each class, a class of which it has all whole gangs that the relaxation schedules has no room for
    more.  Nothing is proven of workloads that may start with fewer pods.
    """
    found = set[str]()
    if relaxed is None or not relaxed.is_by_rank:
        return frozenset()
    for one, relaxed_units in relaxed.scheduled:
        has = _of_class(one, admitted)
        if has // one.form.units == relaxed_units // one.form.units:
            whole = [m.head for m in one.members if all(p.min_count is None for p in m.head.pod_sets)]
            out = [head.uid for head in whole if head.uid not in admitted]
            found.update(uid for uid in out if len(choices[uid]) == 1)
        if has != relaxed_units:
            break
    return frozenset(found)


def _of_class(one: PodClass, admitted: Mapping[str, PlannedAdmission]) -> int:
    return one.form.units * sum(member.head.uid in admitted for member in one.members)


def _sum(admitted: Mapping[str, PlannedAdmission], unit_of: Mapping[str, Unit]) -> int:
    return sum(units(planned.requests, unit_of) for planned in admitted.values())


def _by_flavor(
    relaxed: Relaxation | None,
    admitted: Mapping[str, PlannedAdmission],
    greedy: Mapping[str, PlannedAdmission],
    unit_of: Mapping[str, Unit],
) -> tuple[FlavorUnits, ...]:
    """Return the units of the bound, the plan and one by one, by flavor."""
    return tuple(
        FlavorUnits(
            flavor=flavor,
            unit=unit,
            bound=relaxed.bounds.get(flavor, 0) if relaxed is not None else None,
            units=_sum(admitted, {flavor: unit}),
            greedy_units=_sum(greedy, {flavor: unit}),
        )
        for flavor, unit in sorted(unit_of.items())
    )


def _units(head: Head, admitted: Mapping[str, PlannedAdmission], choices: Choices, unit_of: Mapping[str, Unit]) -> int:
    """Return the units of a workload, of those that it gets or else of its first flavors."""
    planned = admitted.get(head.uid)
    if planned is not None:
        return units(planned.requests, unit_of)
    return next((units(choice.requests, unit_of) for choice in choices[head.uid]), 0)


def _largest(
    choices: Choices, unit_of: Mapping[str, Unit], order: Sequence[RankedWorkload]
) -> tuple[str, PodSetRequest] | None:
    """Return the flavor and pod set with most units of the batch, the first of equals; None: there are no units."""
    best: tuple[int, str, PodSetRequest] | None = None
    for one in order:
        for choice in choices[one.head.uid][:1]:
            for flavor, pod_sets in choice.requests.items():
                for pod_set in pod_sets:
                    size = unit_of[flavor].of([pod_set]) if flavor in unit_of else 0
                    if size and (best is None or size > best[0]):
                        best = size, flavor, pod_set
    return best[1:] if best is not None else None
