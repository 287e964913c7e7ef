"""The next step of a defragmentation plan that is carried out, from what its object says and what is seen.

    Planned ──► Reserved ──► Evicting ──► Replacing ──► Running ──► Done
                    │            │             │            │
                    └─► Aborted ◄┘ (not evicted yet)        └─► Failed

Before a workload is evicted its move can be aborted without a trace.  After that there is no way back: the move goes
forward whatever becomes of the plan.  A step only names changes; its caller writes them before anything else happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum

from kqueue.core.value import value

PAUSE_SECONDS = 1_800
"""Seconds for which a plan waits because no further move may begin within this hour."""
EVICTION_TRIES = 5
"""Evictions of one move that may fail to be written."""
LOOK_SECONDS = 30
"""Seconds after which a plan that waits is looked at again, also without an event."""


class PlanPhase(StrEnum):
    """The state of a plan; the value is that of `status.phase`."""

    PROPOSED = "Proposed"
    APPROVED = "Approved"
    RUNNING = "Running"
    DONE = "Done"
    ABORTED = "Aborted"
    FAILED = "Failed"
    EXPIRED = "Expired"
    SUPERSEDED = "Superseded"


class MoveState(StrEnum):
    """The state of a move; the value is that of `status.moves[].state`."""

    PLANNED = "Planned"
    RESERVED = "Reserved"
    """Its target is kept for it."""
    EVICTING = "Evicting"
    """Its eviction is written, and some of its pods have not ended."""
    REPLACING = "Replacing"
    """It waits in its queue, to be admitted to its target."""
    RUNNING = "Running"
    """It is admitted again, and its pods are not ready yet."""
    DONE = "Done"
    ABORTED = "Aborted"
    FAILED = "Failed"


UNDER_WAY = frozenset((MoveState.RESERVED, MoveState.EVICTING, MoveState.REPLACING, MoveState.RUNNING))
"""States of a move that is neither planned nor over."""
UNFINISHED = UNDER_WAY | {MoveState.PLANNED}


class GoalState(StrEnum):
    """The state of the gang for which a plan frees a domain."""

    NONE = "None"
    """The goal is room, and no gang waits for it."""
    WAITS = "Waits"
    STARTED = "Started"
    GONE = "Gone"
    """It is deleted, over, inactive, or another one of its name."""


@value(kw_only=True)
class MoveSeen:
    """A move as it is written, and the facts about its workload.

    Args:
        age: seconds since the state began.
        exists: whether the workload that was planned is there, and has not finished.
        active: whether its user lets it run.
        holds: whether it holds the quota that it had when the move began.
        again: whether it holds quota that it got after its eviction.
        evicted: whether its eviction is written.
        ready: whether its pods are ready.
        obstacles: the reasons for which it may not be evicted now; empty: it may be.
        busy: whether another workload of its ClusterQueue is being moved.
        tries: evictions that failed to be written.
    """

    workload: str
    queue: str
    state: MoveState
    message: str = ""
    """The reason for the state, as it is written."""
    age: int = 0
    exists: bool = True
    active: bool = True
    holds: bool = True
    again: bool = False
    evicted: bool = False
    ready: bool = False
    obstacles: tuple[str, ...] = ()
    busy: bool = False
    tries: int = 0


@value(kw_only=True)
class PlanSeen:
    """A plan as it is written, and the facts about its goal.

    Args:
        approved: whether the approval is for the hash that is written.
        sound: whether the written hash is that of the plan.
        expired: whether the time is over in which it can begin.
        age: seconds since its phase, or the state of one of its moves, last changed.
        goal_obstacles: the reasons for which the gang gains too little; empty: it gains enough.
        other: the name of another plan that is carried out; empty: none is.
        limited: why no further move may begin within this hour; empty: one may.
    """

    phase: PlanPhase
    approved: bool = True
    sound: bool = True
    expired: bool = False
    age: int = 0
    goal: GoalState = GoalState.WAITS
    goal_obstacles: tuple[str, ...] = ()
    other: str = ""
    limited: str = ""
    moves: tuple[MoveSeen, ...] = ()


@value(kw_only=True)
class StepLimits:
    """Limits of a plan that is carried out; `timeout` in seconds, for each state of a move."""

    timeout: int = 600
    parallel: int = 1


@value(kw_only=True)
class MoveChange:
    """The next state of a move, and why."""

    state: MoveState
    message: str


@value(kw_only=True)
class Step:
    """The next step of a plan.

    Args:
        phase: the next phase; None: it stays.
        reason, message: of the next phase.
        moves: changes by the number of the move.
        evict: the moves whose workloads are evicted now; only where nothing is to be written.
        withdraw: whether the approval is taken back.
        look: seconds after which the plan is looked at again without an event; None: never.
    """

    phase: PlanPhase | None = None
    reason: str = ""
    message: str = ""
    moves: Mapping[int, MoveChange] = field(default_factory=dict)
    evict: tuple[int, ...] = ()
    withdraw: bool = False
    look: int | None = None

    @property
    def writes(self) -> bool:
        """Whether the status of the plan changes."""
        return self.phase is not None or bool(self.moves) or self.withdraw


def next_step(plan: PlanSeen, limits: StepLimits) -> Step:
    """Return what is done next with a plan."""
    match plan.phase:
        case PlanPhase.PROPOSED:
            return _proposed(plan)
        case PlanPhase.APPROVED:
            return _approved(plan, limits)
        case PlanPhase.RUNNING:
            return _running(plan, limits)
        case _:
            return _over(plan, limits)


def _proposed(plan: PlanSeen) -> Step:
    if not plan.approved:
        return Step(withdraw=False)
    if not plan.sound:
        return _changed(plan)
    if plan.expired:
        return Step(phase=PlanPhase.EXPIRED, reason="TooLate", message="it was approved after the end of its validity")
    return Step(phase=PlanPhase.APPROVED, reason="ByHash", message="spec.approved has its hash")


def _approved(plan: PlanSeen, limits: StepLimits) -> Step:
    if not plan.approved:
        return Step(phase=PlanPhase.PROPOSED, reason="Withdrawn", message="its approval was withdrawn")
    if not plan.sound:
        return _changed(plan)
    if plan.expired:
        return Step(phase=PlanPhase.EXPIRED, reason="TooLate", message="it did not begin while it was valid")
    if plan.goal in _SETTLED:
        return Step(phase=PlanPhase.SUPERSEDED, reason=f"Gang{plan.goal}", message=_SETTLED[plan.goal])
    if plan.other:
        return _held_up(plan, f"DefragmentationPlan {plan.other} is carried out first")
    obstacle = _obstacle(plan, range(len(plan.moves)))
    if obstacle:
        return Step(phase=PlanPhase.ABORTED, reason="NotPossible", message=obstacle)
    if plan.limited:
        return _held_up(plan, plan.limited)
    if any(move.busy for move in plan.moves):
        return _held_up(plan, _BUSY)
    begun = {number: _reserved() for number in _to_begin(plan, limits)}
    return Step(phase=PlanPhase.RUNNING, reason="Begun", message="its first target is reserved", moves=begun)


def _running(plan: PlanSeen, limits: StepLimits) -> Step:
    has_begun = any(move.state not in (MoveState.PLANNED, MoveState.RESERVED) for move in plan.moves)
    if not (plan.approved and plan.sound):
        if not has_begun:
            back = {n: MoveChange(state=MoveState.PLANNED, message="") for n, _ in _in_state(plan, MoveState.RESERVED)}
            return replace(_changed(plan), moves=back)
        return _stopped(plan, PlanPhase.ABORTED, "Changed", "the plan was changed after its approval")
    waiting = [n for n, move in enumerate(plan.moves) if move.state in (MoveState.PLANNED, MoveState.RESERVED)]
    if plan.goal in _SETTLED and waiting:
        return _stopped(plan, PlanPhase.SUPERSEDED, f"Gang{plan.goal}", _SETTLED[plan.goal])
    changes: dict[int, MoveChange] = {}
    evict: list[int] = []
    for number, move in enumerate(plan.moves):
        change = _followed(plan, move, limits)
        if change is not None:
            changes[number] = change
        elif move.state is MoveState.EVICTING and move.holds and not move.evicted:
            evict.append(number)
    for change in changes.values():
        if change.state is MoveState.FAILED:
            return replace(_stopped(plan, PlanPhase.FAILED, "MoveFailed", change.message), moves=_all(plan, changes))
        if change.state is MoveState.ABORTED:
            return replace(_stopped(plan, PlanPhase.ABORTED, "NotPossible", change.message), moves=_all(plan, changes))
    if changes:
        return Step(moves=changes)
    if evict:
        return Step(evict=tuple(evict), look=1)
    return _further(plan, limits)


def _further(plan: PlanSeen, limits: StepLimits) -> Step:
    """Return the step of a plan none of whose moves changes by itself: the next moves begin, or the plan is over."""
    if any(move.state is MoveState.PLANNED for move in plan.moves):
        begin = _to_begin(plan, limits)
        if not begin:
            return Step(look=LOOK_SECONDS)
        if plan.limited:
            if plan.age > PAUSE_SECONDS:
                return Step(phase=PlanPhase.ABORTED, reason="Limited", message=plan.limited)
            return _held_up(plan, plan.limited)
        obstacle = _obstacle(plan, begin)
        if obstacle:
            return _stopped(plan, PlanPhase.ABORTED, "NotPossible", obstacle)
        return Step(moves={number: _reserved() for number in begin})
    if any(move.state in UNDER_WAY for move in plan.moves):
        return Step(look=LOOK_SECONDS)
    if plan.goal is GoalState.WAITS and plan.age <= limits.timeout:
        return Step(look=LOOK_SECONDS)  # the room is kept for it
    return Step(phase=PlanPhase.DONE, reason="Moved", message=_ENDS[plan.goal])


def _held_up(plan: PlanSeen, why: str) -> Step:
    """Return the step of a plan whose next move must wait: the move says why, and the plan is looked at again."""
    for number, move in _in_state(plan, MoveState.PLANNED):
        if move.message != why:
            return Step(moves={number: MoveChange(state=MoveState.PLANNED, message=why)})
        break
    return Step(look=LOOK_SECONDS)


def _over(plan: PlanSeen, limits: StepLimits) -> Step:
    """Return the step of a plan that is over: moves that have begun go forward, and no other one begins."""
    changes: dict[int, MoveChange] = {}
    for number, move in enumerate(plan.moves):
        if move.state is MoveState.RESERVED:
            changes[number] = _aborted("its plan is over")
        elif move.state is MoveState.EVICTING and move.exists and move.holds and not move.evicted:
            changes[number] = _aborted("its plan is over, and it was not evicted yet")
        elif (change := _followed(plan, move, limits)) is not None:
            changes[number] = change
    open_ = any(move.state in UNDER_WAY for move in plan.moves)
    return Step(moves=changes, look=LOOK_SECONDS if open_ else None)


def _followed(plan: PlanSeen, move: MoveSeen, limits: StepLimits) -> MoveChange | None:
    """Return the next state of a move by what became of its workload; None: it stays."""
    if move.state not in UNDER_WAY:
        return None
    if move.state is MoveState.RESERVED:
        if not (move.exists and move.holds):
            return _aborted("the workload does not run any more")
        if move.obstacles or plan.goal_obstacles:
            return _aborted("; ".join((*move.obstacles, *plan.goal_obstacles)))
        return MoveChange(state=MoveState.EVICTING, message="its target is free, and it may be moved")
    if not move.exists:
        return MoveChange(state=MoveState.DONE, message="the workload is over")
    if move.state is MoveState.RUNNING:
        return _started(move, limits)
    if move.again:
        return MoveChange(state=MoveState.RUNNING, message="it is admitted again")
    if not move.holds and not move.active:
        return MoveChange(state=MoveState.DONE, message="its user has stopped the workload")
    return _leaving(move, limits)


def _started(move: MoveSeen, limits: StepLimits) -> MoveChange | None:
    if not move.again:
        return MoveChange(state=MoveState.FAILED, message=f"{move.workload} lost its quota before its pods were ready")
    if move.ready:
        return MoveChange(state=MoveState.DONE, message="its pods are ready")
    if move.age > limits.timeout:
        late = f"the pods of {move.workload} were not ready within {limits.timeout} s"
        return MoveChange(state=MoveState.FAILED, message=late)
    return None


def _leaving(move: MoveSeen, limits: StepLimits) -> MoveChange | None:
    """Return the next state of a move whose workload is not admitted again."""
    if move.state is MoveState.EVICTING:
        if not move.holds:
            return MoveChange(state=MoveState.REPLACING, message="its pods have ended")
        if not move.evicted:
            if move.tries >= EVICTION_TRIES:
                return _aborted(f"its eviction could not be written {move.tries} times")
            return _aborted("; ".join(move.obstacles)) if move.obstacles else None
    elif move.holds and not move.evicted:
        return MoveChange(state=MoveState.FAILED, message=f"another writer took back the eviction of {move.workload}")
    if move.age > limits.timeout:
        verb = "ended" if move.state is MoveState.EVICTING else "admitted again"
        late = f"{move.workload} was not {verb} within {limits.timeout} s; it waits at its place in its queue"
        return MoveChange(state=MoveState.FAILED, message=late)
    return None


_BUSY = "another workload of its ClusterQueue is being moved"
_SETTLED: Mapping[GoalState, str] = {
    GoalState.STARTED: "the gang has started without it",
    GoalState.GONE: "the gang is gone",
}
_ENDS: Mapping[GoalState, str] = {
    GoalState.NONE: "all workloads were moved",
    GoalState.WAITS: "all workloads were moved, and the gang did not take the room in time",
    GoalState.STARTED: "all workloads were moved, and the gang has started",
    GoalState.GONE: "all workloads were moved, and the gang is gone",
}


def _changed(plan: PlanSeen) -> Step:
    told = "its text was changed after its approval" if not plan.sound else "its approval is for another hash"
    return Step(phase=PlanPhase.PROPOSED, reason="Changed", message=told, withdraw=True)


def _stopped(plan: PlanSeen, phase: PlanPhase, reason: str, message: str) -> Step:
    """Return the end of a plan; moves that are reserved are aborted."""
    return Step(phase=phase, reason=reason, message=message, moves=_all(plan, {}))


def _all(plan: PlanSeen, changes: Mapping[int, MoveChange]) -> dict[int, MoveChange]:
    """Return the changes of a plan that ends: whatever is only reserved, or begins just now, is aborted."""
    ended = {number: _aborted("its plan is over") for number, _ in _in_state(plan, MoveState.RESERVED)}
    kept = {number: change for number, change in changes.items() if change.state is not MoveState.EVICTING}
    return {**ended, **kept}


def _in_state(plan: PlanSeen, state: MoveState) -> Iterator[tuple[int, MoveSeen]]:
    return ((number, move) for number, move in enumerate(plan.moves) if move.state is state)


def _obstacle(plan: PlanSeen, numbers: Sequence[int]) -> str:
    """Return why these moves must not begin; empty: they may."""
    if plan.goal_obstacles:
        return "; ".join(plan.goal_obstacles)
    for number in numbers:
        move = plan.moves[number]
        if not (move.exists and move.holds):
            return f"{move.workload} does not run any more"
        if move.obstacles:
            return f"{move.workload}: {'; '.join(move.obstacles)}"
    return ""


def _to_begin(plan: PlanSeen, limits: StepLimits) -> list[int]:
    """Return the moves that may begin beside those under way, in their order."""
    room = limits.parallel - sum(move.state in UNDER_WAY for move in plan.moves)
    planned = [number for number, _ in _in_state(plan, MoveState.PLANNED)]
    found: list[int] = []
    queues = set[str]()
    for number in planned[: max(0, room)]:
        move = plan.moves[number]
        if move.busy or move.queue in queues:
            break  # moves keep their order
        queues.add(move.queue)
        found.append(number)
    return found


def _reserved() -> MoveChange:
    return MoveChange(state=MoveState.RESERVED, message="its target is kept for it")


def _aborted(message: str) -> MoveChange:
    return MoveChange(state=MoveState.ABORTED, message=message)
