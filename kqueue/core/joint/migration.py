"""The gain of moves of running workloads: the network of a round is solved once more, with them as classes.

Their hosts are given back, and they stay where they are at no cost, or go elsewhere at the cost of a move.  Their quota
stays as it is.  A waiting unit is worth the seconds that it has waited, and other places cost nothing, so a unit moves
only where that gains enough.  Gangs may be split here: no plan of moves gains more, and some gain less or do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kqueue.core.demand import Demands
from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.classes import PodClass, classes_of
from kqueue.core.joint.costs import WAIT_MAX, PointCosts
from kqueue.core.joint.graph import CostRangeError, FlowSolver
from kqueue.core.joint.movable import pays
from kqueue.core.joint.moving import RunningGang, release
from kqueue.core.joint.network import build
from kqueue.core.joint.policy import PolicyFailedError
from kqueue.core.joint.preparation import Preparation, prepare
from kqueue.core.joint.relaxation import class_input
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.running import movable_classes
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.world import World
from kqueue.core.value import value
from kqueue.core.workload import Admitted

_MOST = 1_000
"""Running workloads in one network: those whose moves cost least."""


@value(kw_only=True)
class MigrationGain:
    """The most that moves of running workloads of one flavor would gain.

    Args:
        gain: points: the seconds that those units have waited which could start.
        cost: points of work that the moves lose.
    """

    flavor: str
    gain: int = 0
    cost: int = 0

    @property
    def points(self) -> int:
        """The points that are left of the gain."""
        return self.gain - self.cost

    def pays(self, least_gain: int) -> bool:
        """Whether the moves gain something, and enough; `least_gain` in thousandths of their cost."""
        return self.gain > 0 and pays(self.gain, self.cost, least_gain)


@value(kw_only=True)
class MigrationAnswer:
    """The gains of moves, by flavor, which the planner sends after the plan of a round.

    `problem`: why they are unknown; empty: they are known.
    """

    round: int
    gains: tuple[MigrationGain, ...] = ()
    problem: str = ""


def migration_gains(given: RoundInput) -> tuple[MigrationGain, ...]:
    """Return the gain of moves for each flavor with workloads that wait and others that may move.

    A unit moves only if that gains `least_gain` thousandths of its cost, so the gain is 0 where no move is worth it.
    """
    if given.solver is None or not given.running.movable:
        return ()
    while True:
        try:
            return _gains(given, given.solver)
        except PolicyFailedError as e:
            given = replace(given, policies=given.policies.without(e.policy))


def _gains(given: RoundInput, solver: FlowSolver) -> tuple[MigrationGain, ...]:
    start = World(given.state, given.batch.queues, demands=Demands())
    prepared = prepare(start, given.batch, given.waited, given.settings.order, given.policies)
    waiting: dict[str, list[RankedWorkload]] = {}
    for number, head in enumerate(prepared.batch.heads(), 1):
        seconds = max(0, prepared.waited.get(head.uid, 0))
        one = RankedWorkload(head=head, rank=number, waited=_weighed(seconds))
        for choice in prepared.choices[head.uid][:1]:
            for flavor in choice.requests if len(choice.requests) == 1 else ():
                waiting.setdefault(flavor, []).append(one)
    gains = [
        _gain(given, prepared, flavor, waiting[flavor], solver)
        for flavor in sorted(waiting.keys() & prepared.unit_of.keys())
    ]
    return tuple([gain for gain in gains if gain is not None])


def _weighed(seconds: int) -> int:
    """Return twice the seconds that a workload has waited, and one more: a move that gains just enough is made."""
    return 2 * seconds + 1 if seconds else 0


def _gain(
    given: RoundInput, prepared: Preparation, flavor: str, waiting: Sequence[RankedWorkload], solver: FlowSolver
) -> MigrationGain | None:
    """Return the gain of one flavor; None: no workload may move, or none waits with units."""
    unit, least = prepared.unit_of[flavor], given.settings.least_gain
    emptied = World(given.state, given.batch.queues, demands=Demands()).snapshot
    tree = emptied.topologies[flavor].tree
    running: list[PodClass] = []
    for gang, workload in _movable(given.running.movable, flavor, given.state.snapshot.admitted):
        points = min(WAIT_MAX, 2 * -(-gang.lost * least // 1000))
        classes = movable_classes(gang, workload, flavor, tree, unit, points=points)
        if classes is not None:
            running += classes
            release(gang.usage, emptied.topologies)
    inputs = [class_input(one, flavor, prepared.choices, unit) for one in waiting]
    pending = classes_of(inputs, tree.levels, unit, JointOrder.STRICT)
    if not running or not pending:
        return None
    before = build(flavor, prepared.start.snapshot, pending, unit, costs_of=PointCosts.of)
    after = build(flavor, emptied, [*pending, *running], unit, costs_of=PointCosts.of)
    try:
        now, then = solver(before.for_points()), solver(after.for_points())
    except CostRangeError:
        return None
    pairs = zip(pending, before.scheduled(now), after.scheduled(then), strict=False)
    gain = sum((more - units) * (one.waited // 2) for one, units, more in pairs)
    cost = sum(int(then.units[arc]) * after.classes[number].waited for number, arc in after.moves.items())
    return MigrationGain(flavor=flavor, gain=gain, cost=cost)


def _movable(
    gangs: Sequence[RunningGang], flavor: str, admitted: Mapping[str, Mapping[str, Admitted]]
) -> list[tuple[RunningGang, Admitted]]:
    """Return the gangs that may move and have domains in this flavor alone, the cheapest ones first."""
    found = [
        (gang, workload)
        for gang in sorted(gangs, key=lambda gang: (gang.cost, gang.key))
        if not gang.immovable and gang.requests.keys() == {flavor}
        if (workload := admitted.get(gang.queue, {}).get(gang.key)) is not None and not workload.evicted
    ]
    return found[:_MOST]
