"""The facts about a plan that is carried out, as the pure function of its next step needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import PlannedMove
from kqueue.core.demand import Demands
from kqueue.core.joint.movable import MoveHistory, MoveLimits
from kqueue.core.joint.move_steps import GoalState, MoveSeen, MoveState, PlanPhase, PlanSeen
from kqueue.core.joint.moving import charge, release, trial
from kqueue.core.joint.world import World
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.topology.request import GangDomains
from kqueue.core.workload import Claim, Head
from kqueue.errors import InvalidObjectError
from kqueue.state.cache import Cache
from kqueue.state.defrag.running import running_gang
from kqueue.state.defrag.view import DefragState
from kqueue.state.heads import Heads
from kqueue.state.moves import FollowedPlan, Moves, is_again, is_planned, limited

_NOT_BEGUN = frozenset((MoveState.PLANNED, MoveState.RESERVED))
_TARGET_LOST = "its target is not free any more"
_NO_LIMIT = 1_000_000
_MOST_KEPT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryLimits:
    """The settings of moves that are carried out; `least_gain` in thousandths of the cost."""

    moves: MoveLimits
    least_gain: int = 2_000


@dataclass(frozen=True, slots=True)
class _KeptRoom:
    """The room for a gang.  `about` names the gang, `generation` the state of the cache in which it was found."""

    about: tuple[str, bool]
    generation: tuple[int, int]
    claim: Claim | None


class PlanFacts:
    """Reads the facts about plans from the state of the process."""

    def __init__(self, moves: Moves, state: Callable[[], DefragState], limits: CarryLimits) -> None:
        """`state` returns the present state, without claims."""
        self._moves, self._state, self._limits = moves, state, limits
        self._kept: dict[str, _KeptRoom] = {}
        """By the UID of a plan."""

    # --- the gang that waits

    def goal_claim(self, plan: FollowedPlan) -> Claim | None:
        """Return the room in the domain of a plan for its waiting gang; None: there is no gang, or not room enough.

        The room stays the same until the gang changes, or one of its domains is gone.
        """
        state = self._state()
        obj, cache = self._goal(plan, state), state.cache
        if obj is None or _goal_state(plan, state) is not GoalState.WAITS:
            return None
        about = f"{obj.metadata.uid}/{obj.metadata.generation}", plan.phase == PlanPhase.RUNNING
        generation = cache.generation, cache.ledger.generation
        kept = self._kept.get(plan.obj.metadata.uid)
        if kept is not None and kept.about == about:
            if kept.claim is not None and plan.phase == PlanPhase.RUNNING and _are_there(kept.claim, cache):
                return kept.claim
            if kept.generation == generation:
                return kept.claim
        claim = self._goal_claim(plan, state)
        if len(self._kept) > _MOST_KEPT:
            self._kept.clear()
        self._kept[plan.obj.metadata.uid] = _KeptRoom(about, generation, claim)
        return claim

    def _goal_claim(self, plan: FollowedPlan, state: DefragState) -> Claim | None:
        obj = self._goal(plan, state)
        if obj is None:
            return None
        queue = self._moves.queue_of(model.workload_key(obj))
        head = _head(state, obj, queue) if queue else None
        if head is None:
            return None
        kept = [claim for move in plan.obj.status.moves if (claim := self._moves.claim_of(move)) is not None]
        snapshot = state.cache.snapshot([queue], kept)
        if queue not in snapshot.queues:
            return None
        world = World(PlannedState(snapshot=snapshot, rules=Rules(now=state.now)), [queue], demands=Demands())
        topologies = world.snapshot.topologies
        view = topologies.get(plan.obj.status.flavor or "")
        choice = next(iter(world.choices(head)), None)
        if view is None or choice is None:
            return None
        for move in plan.obj.status.moves:
            held = state.cache.held.holding(move.workload)
            if held is not None and not is_again(move, held) and move.state not in _OVER:
                release(held.view(state.cache.quota.with_topology).domains, topologies)
        within = GangDomains(levels=view.tree.levels, paths=(tuple(plan.obj.status.domain),))
        planned = world.place(choice, within=within)
        if planned is None:
            return None
        return Claim(
            key=head.key,
            uid=head.uid,
            queue=queue,
            usage=planned.usage,
            domains=planned.domains,
            victims={},
            pod_sets=planned.pod_sets,
        )

    @staticmethod
    def _goal(plan: FollowedPlan, state: DefragState) -> wire.Workload | None:
        goal = plan.obj.spec.goal.workload
        return state.workloads.get(f"{goal.namespace}/{goal.name}") if goal is not None else None

    # --- the plan

    def of(self, plan: FollowedPlan, tries: Callable[[str], int]) -> PlanSeen:
        """Return the facts about a plan; `tries` returns how many evictions of a workload failed to be written."""
        state = self._state()
        now, status = state.now, plan.obj.status
        phase = PlanPhase(plan.phase)
        history = self._moves.history(now)
        limits = self._limits.moves
        goal = _goal_state(plan, state)
        seen = tuple([self._move(plan, move, state, history, tries) for move in status.moves])
        planned = [move.pods for move, one in zip(status.moves, seen, strict=True) if one.state is MoveState.PLANNED]
        began = [move.since for move in status.moves if move.since is not None]
        changed = [c.last_transition_time for c in status.conditions if c.last_transition_time is not None]
        return PlanSeen(
            phase=phase,
            approved=plan.is_approved,
            sound=plan.is_sound,
            expired=status.valid_until is not None and status.valid_until < now,
            age=int((now - max([*began, *changed], default=now)).total_seconds()),
            goal=goal,
            goal_obstacles=self._goal_obstacles(plan, state, goal) if _begins(phase, seen) else (),
            other=self._moves.carried_out(besides=plan.name),
            limited=limited(history, planned[:1], moves=limits.moves, most_pods=limits.pods),
            moves=seen,
        )

    def _goal_obstacles(self, plan: FollowedPlan, state: DefragState, goal: GoalState) -> tuple[str, ...]:
        """Return why the room is not worth the moves that have not begun; without a gang it always is."""
        obj = self._goal(plan, state)
        if goal is not GoalState.WAITS or obj is None:
            return ()
        key = model.workload_key(obj)
        queue = self._moves.queue_of(key)
        head = _head(state, obj, queue) if queue else None
        if head is None:
            return (f"{key} cannot be tried",)
        if self.goal_claim(plan) is None:
            return (f"{key} would have no room in {'/'.join(plan.obj.status.domain)}, or no quota",)
        waited = max(0, int((state.now - head.timestamp).total_seconds()))
        worth = waited * sum(pod_set.request.count for pod_set in head.pod_sets)
        cost = self._cost(plan, state)
        least = self._limits.least_gain
        if worth * 1000 < least * cost:
            return (
                f"{key} has waited for {worth} pod-seconds, the moves lose {cost}, and joint.rescheduling.minGain is "
                f"{least} thousandths",
            )
        return ()

    def _cost(self, plan: FollowedPlan, state: DefragState) -> int:
        """Return the pod-seconds that moves lose which have not begun."""
        topologies = state.cache.snapshot([]).topologies
        total = 0
        for move in plan.obj.status.moves:
            if move.state in _NOT_BEGUN:
                gang = running_gang(state, move.workload, topologies, limits=_all_of_it(), history=MoveHistory())
                total += gang.cost if gang is not None else 0
        return total

    # --- its moves

    def _move(
        self,
        plan: FollowedPlan,
        move: PlannedMove,
        state: DefragState,
        history: MoveHistory,
        tries: Callable[[str], int],
    ) -> MoveSeen:
        obj, now = state.workloads.get(move.workload), state.now
        held = state.cache.held.holding(move.workload)
        exists = (
            obj is not None
            and is_planned(move, obj)
            and not model.condition_true(obj, names.CONDITION_FINISHED)
            and obj.metadata.deletion_timestamp is None
        )
        again = exists and held is not None and is_again(move, held)
        queue = self._moves.queue_of(move.workload)
        seen = MoveSeen(
            workload=move.workload,
            queue=queue,
            state=MoveState(move.state),
            message=move.message,
            age=int((now - move.since).total_seconds()) if move.since is not None else 0,
            exists=exists,
            active=obj is not None and obj.spec.active and not _is_on_hold(obj),
            holds=exists and held is not None and not again,
            again=again,
            evicted=obj is not None and model.condition_true(obj, names.CONDITION_EVICTED),
            ready=again and obj is not None and model.condition_true(obj, names.CONDITION_PODS_READY),
            busy=queue in history.queues,
            tries=tries(move.workload),
        )
        may_be_evicted = seen.holds and (seen.state in _NOT_BEGUN or not seen.evicted)
        asks = may_be_evicted and plan.phase in (PlanPhase.APPROVED, PlanPhase.RUNNING) and plan.is_trusted
        return replace(seen, obstacles=self._obstacles(move, state)) if asks else seen

    def _obstacles(self, move: PlannedMove, state: DefragState) -> tuple[str, ...]:
        """Return why a workload may not be evicted now; limits of all moves together are not among it."""
        obj = state.workloads.get(move.workload)
        if obj is None:
            return ("it is gone",)
        queue = self._moves.queue_of(move.workload)
        claims = self._moves.claims(besides=obj.metadata.uid)
        snapshot = state.cache.snapshot([queue], claims)
        world = World(PlannedState(snapshot=snapshot, rules=Rules(now=state.now)), [queue], demands=Demands())
        topologies = world.snapshot.topologies
        limits = replace(self._limits.moves, moves=_NO_LIMIT, pods=_NO_LIMIT)
        gang = running_gang(state, move.workload, topologies, limits=limits, history=MoveHistory())
        if gang is None:
            return ("it has no domains",)
        head = _head(state, obj, queue)
        target = self._moves.target_of(move, head) if head is not None else None
        if target is None:
            return (*gang.immovable, _TARGET_LOST)
        if sum(one.count or 0 for one in move.assignments) != gang.pods or gang.pods != move.pods:
            return (*gang.immovable, f"it has {gang.pods} pods now, and {move.pods} when the plan was made")
        with trial(topologies):
            charge(target, topologies)
            for flavor, taken in target.items():
                capacity = topologies[flavor].capacity
                leaves = [leaf for usage in taken if (leaf := capacity.tree.leaf_of(usage.values)) is not None]
                for resource in capacity.resources:
                    row = capacity.row(resource)
                    if row is not None and bool(np.any(row[leaves] < 0)):
                        return (*gang.immovable, _TARGET_LOST)
        return gang.immovable


_OVER = frozenset((MoveState.DONE, MoveState.ABORTED, MoveState.FAILED))


def _begins(phase: PlanPhase, moves: tuple[MoveSeen, ...]) -> bool:
    """Whether any move may begin, so that the worth of the plan counts."""
    return phase in (PlanPhase.APPROVED, PlanPhase.RUNNING) and any(move.state in _NOT_BEGUN for move in moves)


def _goal_state(plan: FollowedPlan, state: DefragState) -> GoalState:
    goal = plan.obj.spec.goal.workload
    if goal is None:
        return GoalState.NONE
    key = f"{goal.namespace}/{goal.name}"
    obj = state.workloads.get(key)
    if obj is None or obj.metadata.deletion_timestamp is not None or model.is_over(obj):
        return GoalState.GONE
    if state.cache.held.holding(key) is not None:
        return GoalState.STARTED
    return GoalState.WAITS if model.is_queueable(obj) else GoalState.GONE


def _are_there(claim: Claim, cache: Cache) -> bool:
    """Whether all domains of a claim exist."""
    return all(
        (capacity := cache.ledger.capacity(flavor)) is not None
        and all(capacity.tree.leaf_of(usage.values) is not None for usage in taken)
        for flavor, taken in claim.domains.items()
    )


def _is_on_hold(obj: wire.Workload) -> bool:
    reserved = model.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return reserved is not None and reserved.status == "False" and reserved.reason == names.REASON_ON_HOLD


def _head(state: DefragState, obj: wire.Workload, queue: str) -> Head | None:
    try:
        return Heads(state.cache, state.workloads.get).make(obj, None, queue=queue, now=state.now)
    except InvalidObjectError:
        return None


def _all_of_it() -> MoveLimits:
    return MoveLimits(moves=_NO_LIMIT, pods=_NO_LIMIT)
