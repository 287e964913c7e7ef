"""Victims of preemption that a round proposes: the running workloads that lose least when others start.

All that the plan admits is charged.  Then the workloads that it leaves out, and the running workloads that policies let
them preempt, share one network.  A running workload is before all waiting ones of equal or lower priority; among those
of one priority the one that loses most work comes first.  A running workload that the cheapest flow does not schedule
is proposed.  A flow splits gangs, so for a gang that needs one domain the cheapest victims of any one domain come in
their place.  Policies are asked again by the cycle that preempts, so the set of legal victims is never widened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kqueue.core.demand import Demands
from kqueue.core.hints import ProposedVictims
from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.classes import PodClass, classes_of
from kqueue.core.joint.domain_victims import DomainVictims
from kqueue.core.joint.graph import CostRangeError, FlowSolver
from kqueue.core.joint.network import build
from kqueue.core.joint.preparation import units_of
from kqueue.core.joint.relaxation import class_input
from kqueue.core.joint.running import lost_by, stopped_classes, units_of_running
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import Choice, PlannedAdmission, World
from kqueue.core.lost_work import Checkpoints
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Findings, all_candidates, preemptor_of
from kqueue.core.quota import FlavorResource
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Head, QueueSpec, Snapshot

_MOST = 1_000
"""Running workloads in one network: those of low priority that lose least."""


@value(kw_only=True)
class VictimQuestion:
    """The input of the search for victims.

    Args:
        state: the state before the round.
        queues: the ClusterQueues of the batch.
        left: the workloads that the plan leaves out, in their order.
        admitted: the admissions of the plan.
        checkpoints: of running workloads, by UID.
    """

    state: PlannedState
    queues: Sequence[str]
    left: Sequence[RankedWorkload]
    admitted: Iterable[PlannedAdmission]
    how: JointOrder
    solver: FlowSolver
    checkpoints: Mapping[str, Checkpoints]


def proposed_victims(asked: VictimQuestion) -> dict[str, ProposedVictims]:
    """Return the proposed victims by the UID of the workload that is left out; most have none."""
    legal = _legal_victims(asked)
    if not legal:
        return {}
    seconds = {
        uid: lost_by(workload, asked.checkpoints, asked.state.rules.now)
        for of_head in legal.values()
        for uid, workload in of_head.items()
    }
    every = {uid: workload for of_head in legal.values() for uid, workload in of_head.items()}
    some = sorted(every.values(), key=lambda one: (one.priority, seconds[one.uid], one.uid))[:_MOST]
    search = _Search(asked, _world_without(asked, some), {one.uid: one for one in some}, seconds)
    search.choose([one for one in asked.left if one.head.uid in legal])
    return search.answer(legal, search.lost(every))


def may_preempt(head: Head, snapshot: Snapshot, findings: Findings) -> list[Admitted]:
    """Return the running workloads that policies let a workload preempt for any of its columns; none leaves already."""
    spec = snapshot.queues.get(head.queue)
    if spec is None or head.never_preempts or head.closed_gates:
        return []
    preemptor = preemptor_of(head, {}, _columns(spec))
    return [one for one in all_candidates(snapshot, preemptor, findings) if not one.evicted]


def _columns(spec: QueueSpec) -> frozenset[FlavorResource]:
    return frozenset(
        FlavorResource(flavor, resource)
        for group in spec.groups
        for flavor in group.flavors
        for resource in group.resources
    )


def _legal_victims(asked: VictimQuestion) -> dict[str, dict[str, Admitted]]:
    """Return the legal victims with hosts by UID, by the UID of the workload that is left out."""
    findings, found = Findings(asked.state.rules), dict[str, dict[str, Admitted]]()
    for one in asked.left:
        victims = {v.uid: v for v in may_preempt(one.head, asked.state.snapshot, findings) if v.domains}
        if victims:
            found[one.head.uid] = victims
    return found


def _world_without(asked: VictimQuestion, victims: Iterable[Admitted]) -> World:
    """Return the world of the plan without these running workloads."""
    emptied = asked.state.copied(asked.queues, ended=list(victims))
    state = PlannedState(snapshot=emptied, rules=asked.state.rules, hooks=asked.state.hooks)
    world = World(state, asked.queues, demands=Demands())
    for planned in asked.admitted:
        world.admit(planned)
    return world


@dataclass(slots=True)
class _Search:
    """The networks of one question."""

    asked: VictimQuestion
    world: World
    running: Mapping[str, Admitted]
    seconds: Mapping[str, int]
    choices: dict[str, list[Choice]] = field(default_factory=dict)
    unit_of: dict[str, Unit] = field(default_factory=dict)
    waiting: dict[str, list[RankedWorkload]] = field(default_factory=dict)

    def choose(self, left: Sequence[RankedWorkload]) -> None:
        """Note the first flavor with a topology that each workload would get."""
        for one in left:
            choice = next(self.world.choices(one.head), None)
            if choice is not None and len(choice.requests) == 1:
                self.choices[one.head.uid] = [choice]
                self.waiting.setdefault(next(iter(choice.requests)), []).append(one)
        self.unit_of = units_of(self.world, self.choices.values())

    def lost(self, every: Mapping[str, Admitted]) -> dict[str, int]:
        """Return the points of work that each of these running workloads loses, by UID."""
        topologies = self.world.snapshot.topologies
        return {
            uid: self.seconds[uid] * max(1, sum(units_of_running(one, self.unit_of, topologies).values()))
            for uid, one in sorted(every.items())
        }

    def answer(
        self, legal: Mapping[str, Mapping[str, Admitted]], lost: Mapping[str, int]
    ) -> dict[str, ProposedVictims]:
        """Return the victims by workload; `legal` as in `_legal_victims`."""
        found = dict[str, ProposedVictims]()
        for flavor in sorted(self.waiting.keys() & self.unit_of.keys()):
            leaving, unit = self._leaving(flavor), self.unit_of[flavor]
            domains = DomainVictims(self.world, self.running, flavor, unit)
            for one in self.waiting[flavor]:
                allowed = legal[one.head.uid]
                given = class_input(one, flavor, self.choices, unit)
                victims = domains.cheapest(given, allowed, lost) or leaving.intersection(allowed)
                if victims:
                    found[one.head.uid] = ProposedVictims(uids=tuple(sorted(victims)), lost=lost)
        return found

    def _leaving(self, flavor: str) -> frozenset[str]:
        """Return the UIDs of the running workloads that the cheapest flow of a flavor does not schedule."""
        snapshot, unit = self.world.snapshot, self.unit_of[flavor]
        inputs = [
            replace(class_input(one, flavor, self.choices, unit), key=one.head.priority) for one in self.waiting[flavor]
        ]
        waiting = classes_of(inputs, snapshot.topologies[flavor].tree.levels, unit, JointOrder.STRICT)
        running = [
            one
            for uid, workload in self.running.items()
            for one in stopped_classes(workload, flavor, snapshot.topologies, unit, lost=self.seconds[uid])
        ]
        if not waiting or not running:
            return frozenset()
        network = build(flavor, snapshot, in_ranks(waiting, running, self.asked.how), unit)
        try:
            flow = self.asked.solver(network.graph)
        except CostRangeError:
            return frozenset()
        pairs = list(zip(network.classes, network.scheduled(flow), strict=True))
        return frozenset(one.members[0].head.uid for one, units in pairs if one.stay is not None and units < one.demand)


def in_ranks(waiting: Sequence[PodClass], running: Sequence[PodClass], how: JointOrder) -> list[PodClass]:
    """Return all classes with their common ranks.

    `waiting` are in their order, and all members of a class have one priority.  With `Strict` a running class is before
    the first waiting one of equal or lower priority; running ones of one priority share a rank.  With `Priority` all
    classes of one priority share a rank.  Seconds are doubled, so that of equals the running one stays.
    """
    places: list[tuple[tuple[int, int, int], PodClass]] = []
    for number, one in enumerate(waiting):
        priority = _priority(one)
        place = (-priority, 0, 0) if how is JointOrder.PRIORITY else (number, 1, 0)
        places.append((place, one))
    for one in running:
        priority = _priority(one)
        before = next((n for n, other in enumerate(waiting) if _priority(other) <= priority), len(waiting))
        place = (-priority, 0, 0) if how is JointOrder.PRIORITY else (before, 0, -priority)
        places.append((place, one))
    ranks = {place: rank for rank, place in enumerate(sorted({place for place, _ in places}), 1)}
    return [replace(one, rank=ranks[place], members=_weighed(one)) for place, one in places]


def _weighed(one: PodClass) -> list[RankedWorkload]:
    """Return the members with twice their seconds, and one more if they run: of equals, the running one stays."""
    extra = 0 if one.stay is None else 1
    return [replace(member, waited=2 * member.waited + extra) for member in one.members]


def _priority(one: PodClass) -> int:
    return one.members[0].head.priority
