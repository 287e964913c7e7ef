"""Moves that take workloads out of one domain, without a gang that waits for its room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kqueue.core.joint.defrag import DefragPlan, DefragSettings, Move
from kqueue.core.joint.fragmentation import Fragmentation, fragmentation
from kqueue.core.joint.goals import goal_of_nodes
from kqueue.core.joint.movable import MoveHistory, MoveLimits
from kqueue.core.joint.moving import RunningGang, Topologies, charge, close, release, relocated, trial
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.result import DomainUsage, Path
from kqueue.state.defrag.planning import AskedGoal, DefragAnswer
from kqueue.state.defrag.running import running_gang
from kqueue.state.defrag.view import DefragState

MOST = DefragSettings(moves=64, pods=64, pod_seconds=64 * 2_592_000)
"""The most that a plan moves, whatever it costs: a drain is not worth less for dear workloads."""
_NO_ROOM = "it has no other place that is free now and as good"
_TOO_MANY = f"a plan moves at most {MOST.moves} workloads with {MOST.pods} pods: drain again once it is done"
_UNKNOWN = "its Workload cannot be read"


@dataclass(slots=True)
class DomainMoves:
    """The moves out of a domain; `stays` has the reasons of the workloads that stay, by key."""

    answer: DefragAnswer | None = None
    """The plan of the moves; None: no workload can move."""
    stays: dict[str, tuple[str, ...]] = field(default_factory=dict)


def moves_out(
    state: DefragState,
    flavor: str,
    domain: Path,
    keys: Iterable[str],
    reserved: Iterable[Mapping[str, tuple[DomainUsage, ...]]] = (),
) -> DomainMoves:
    """Return moves of these workloads to places outside of a domain that are free now, the cheapest first.

    `reserved`: hosts of other Reservations, by flavor, to which no workload moves.
    """
    found = DomainMoves()
    topologies = state.cache.snapshot([], ()).topologies
    view = topologies.get(flavor)
    if view is None:
        return found
    gangs: list[RunningGang] = []
    for key in keys:
        gang = running_gang(state, key, topologies, limits=MoveLimits(), history=MoveHistory())
        if gang is None or gang.immovable:
            found.stays[key] = gang.immovable if gang is not None else (_UNKNOWN,)
        else:
            gangs.append(gang)
    leaves = view.tree.below(domain)
    with trial(topologies):
        for usage in reserved:
            charge(usage, topologies)
        close(flavor, slice(leaves.start, leaves.stop), topologies)
        moves = _placed(gangs, topologies, found.stays)
    if not moves:
        return found
    hosts = {usage.values for move in moves for of_flavor in move.gang.usage.values() for usage in of_flavor}
    inside = [values for values in hosts if view.tree.leaf_of(values) in leaves]
    level = len(domain) - 1
    asked = AskedGoal(flavor=flavor, level=view.tree.levels[level], nodes=max(1, len(inside)))
    goal = goal_of_nodes(flavor, level, asked.nodes, view.capacity)

    def room() -> Fragmentation:
        return fragmentation(pods_per_domain(view.capacity, goal.largest.shape)[level].copy(), asked.nodes)

    before = room()
    with trial(topologies):
        for move in moves:
            release(move.gang.usage, topologies)
            charge(move.target.usage, topologies)
        after = room()
    plan = DefragPlan(domain=domain, moves=tuple(moves), before=before, after=after)
    found.answer = DefragAnswer(asked=asked, settings=MOST, goal=goal, found=plan, at=state.now)
    return found


def _placed(gangs: Iterable[RunningGang], topologies: Topologies, stays: dict[str, tuple[str, ...]]) -> list[Move]:
    """Return targets of as many workloads as possible, and charge them; add the others to `stays`."""
    moves: list[Move] = []
    pods = 0
    for gang in sorted(gangs, key=lambda gang: (gang.cost, gang.key)):
        if len(moves) == MOST.moves or pods + gang.pods > MOST.pods:
            stays[gang.key] = (_TOO_MANY,)
            continue
        target = relocated(gang, topologies)
        if target is None:
            stays[gang.key] = (_NO_ROOM,)
            continue
        charge(target.usage, topologies)
        pods += gang.pods
        moves.append(Move(gang=gang, target=target))
    return moves
