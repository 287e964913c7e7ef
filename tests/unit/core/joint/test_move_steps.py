"""The next step of a plan that is carried out: every transition, and every failure, of a plan and of its moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.joint.move_steps import (
    EVICTION_TRIES,
    PAUSE_SECONDS,
    GoalState,
    MoveSeen,
    MoveState,
    PlanPhase,
    PlanSeen,
    Step,
    StepLimits,
    next_step,
)

pytestmark = pytest.mark.mechanism("2.10")

LIMITS = StepLimits(timeout=600, parallel=1)
PLANNED, RESERVED, EVICTING, REPLACING = (
    MoveState.PLANNED,
    MoveState.RESERVED,
    MoveState.EVICTING,
    MoveState.REPLACING,
)
RUNNING, DONE, ABORTED, FAILED = MoveState.RUNNING, MoveState.DONE, MoveState.ABORTED, MoveState.FAILED


def move(state: MoveState = PLANNED, name: str = "a", **facts: Any) -> MoveSeen:
    return MoveSeen(workload=f"team/{name}", queue=facts.pop("queue", name), state=state, **facts)


def plan(*moves: MoveSeen, phase: PlanPhase = PlanPhase.RUNNING, **facts: Any) -> PlanSeen:
    return PlanSeen(phase=phase, moves=moves, **facts)


def states(step: Step) -> dict[int, MoveState]:
    return {number: change.state for number, change in step.moves.items()}


# --- before anything moves


def test_a_plan_without_approval_stays_as_it_is() -> None:
    step = next_step(plan(move(), phase=PlanPhase.PROPOSED, approved=False), LIMITS)
    assert not step.writes
    assert not step.evict


@pytest.mark.parametrize(
    ("phase", "facts", "wanted"),
    [
        (PlanPhase.PROPOSED, {}, PlanPhase.APPROVED),
        (PlanPhase.PROPOSED, {"expired": True}, PlanPhase.EXPIRED),
        (PlanPhase.PROPOSED, {"sound": False}, PlanPhase.PROPOSED),
        (PlanPhase.APPROVED, {"approved": False}, PlanPhase.PROPOSED),
        (PlanPhase.APPROVED, {"sound": False}, PlanPhase.PROPOSED),
        (PlanPhase.APPROVED, {"expired": True}, PlanPhase.EXPIRED),
        (PlanPhase.APPROVED, {"goal": GoalState.STARTED}, PlanPhase.SUPERSEDED),
        (PlanPhase.APPROVED, {"goal": GoalState.GONE}, PlanPhase.SUPERSEDED),
        (PlanPhase.APPROVED, {"goal_obstacles": ("no gain",)}, PlanPhase.ABORTED),
        (PlanPhase.APPROVED, {}, PlanPhase.RUNNING),
        (PlanPhase.APPROVED, {"goal": GoalState.NONE}, PlanPhase.RUNNING),
    ],
)
def test_an_approval_begins_a_plan_or_ends_it(phase: PlanPhase, facts: dict[str, Any], wanted: PlanPhase) -> None:
    step = next_step(plan(move(), phase=phase, **facts), LIMITS)
    assert step.phase is wanted
    assert not step.evict
    assert states(step) == ({0: RESERVED} if wanted is PlanPhase.RUNNING else {})


def test_the_approval_of_a_changed_plan_is_taken_back() -> None:
    for phase in (PlanPhase.PROPOSED, PlanPhase.APPROVED, PlanPhase.RUNNING):
        assert next_step(plan(move(), phase=phase, sound=False), LIMITS).withdraw


@pytest.mark.parametrize("facts", [{"obstacles": ("Never",)}, {"exists": False}, {"holds": False}])
def test_every_move_is_checked_before_the_first_one_begins(facts: dict[str, Any]) -> None:
    step = next_step(plan(move(), move(name="b", **facts), phase=PlanPhase.APPROVED), LIMITS)
    assert step.phase is PlanPhase.ABORTED
    assert "team/b" in step.message
    assert not step.moves


def assert_waits(seen: PlanSeen, why: str) -> None:
    """Nothing begins; the first move that has not begun says why, and it is written once."""
    step = next_step(seen, LIMITS)
    ((number, change),) = step.moves.items()
    assert (step.phase, change.state) == (None, MoveState.PLANNED)
    assert why in change.message
    moves = [replace(m, message=change.message) if n == number else m for n, m in enumerate(seen.moves)]
    again = next_step(replace(seen, moves=tuple(moves)), LIMITS)
    assert not again.writes
    assert again.look is not None


@pytest.mark.parametrize(
    ("facts", "why"),
    [({"other": "another"}, "DefragmentationPlan another is carried out first"), ({"limited": "4 moves"}, "4 moves")],
)
def test_a_plan_waits_for_another_one_and_for_the_next_hour(facts: dict[str, Any], why: str) -> None:
    assert_waits(plan(move(), phase=PlanPhase.APPROVED, **facts), why)


def test_a_plan_waits_while_a_workload_of_the_same_queue_is_moved() -> None:
    assert_waits(plan(move(busy=True), phase=PlanPhase.APPROVED), "another workload of its ClusterQueue")
    assert not next_step(plan(move(DONE), move(name="b", busy=True)), LIMITS).writes


# --- one move


@pytest.mark.parametrize(
    ("before", "facts", "after"),
    [
        (RESERVED, {}, EVICTING),
        (EVICTING, {"evicted": True}, None),
        (EVICTING, {"holds": False}, REPLACING),
        (EVICTING, {"holds": False, "again": True}, RUNNING),
        (EVICTING, {"exists": False}, DONE),
        (EVICTING, {"holds": False, "active": False}, DONE),
        (REPLACING, {"holds": False}, None),
        (REPLACING, {"holds": False, "again": True}, RUNNING),
        (REPLACING, {"exists": False, "holds": False}, DONE),
        (REPLACING, {"holds": False, "active": False}, DONE),
        (RUNNING, {"holds": False, "again": True}, None),
        (RUNNING, {"holds": False, "again": True, "ready": True}, DONE),
        (RUNNING, {"exists": False, "holds": False}, DONE),
    ],
)
def test_a_move_goes_forward(before: MoveState, facts: dict[str, Any], after: MoveState | None) -> None:
    step = next_step(plan(move(before, **facts)), LIMITS)
    assert step.phase is None
    assert states(step) == ({0: after} if after is not None else {})
    assert not step.evict


@pytest.mark.parametrize(
    ("before", "facts"),
    [
        (RESERVED, {"obstacles": ("its target is not free any more",)}),
        (RESERVED, {"exists": False}),
        (RESERVED, {"holds": False}),
        (EVICTING, {"obstacles": ("kqueue.dev/reschedule: Never",)}),
        (EVICTING, {"tries": EVICTION_TRIES}),
    ],
)
def test_a_move_whose_workload_was_not_evicted_is_aborted_with_its_plan(
    before: MoveState, facts: dict[str, Any]
) -> None:
    step = next_step(plan(move(before, **facts), move(name="b")), LIMITS)
    assert step.phase is PlanPhase.ABORTED
    assert states(step) == {0: ABORTED}
    assert not step.evict


@pytest.mark.parametrize(
    ("before", "facts"),
    [
        (EVICTING, {"evicted": True, "age": 601}),
        (REPLACING, {"holds": False, "age": 601}),
        (REPLACING, {"holds": True, "evicted": False}),
        (RUNNING, {"holds": False, "again": True, "age": 601}),
        (RUNNING, {"holds": False, "again": False}),
    ],
)
def test_a_move_that_is_late_or_undone_fails_and_stops_its_plan(before: MoveState, facts: dict[str, Any]) -> None:
    step = next_step(plan(move(before, **facts), move(name="b")), LIMITS)
    assert step.phase is PlanPhase.FAILED
    assert states(step) == {0: FAILED}


def test_an_eviction_follows_only_where_its_state_is_written_and_none_is_there() -> None:
    assert next_step(plan(move(RESERVED)), LIMITS).evict == ()
    assert next_step(plan(move(EVICTING)), LIMITS).evict == (0,)
    assert next_step(plan(move(EVICTING, evicted=True)), LIMITS).evict == ()
    assert next_step(plan(move(EVICTING, holds=False, again=True)), LIMITS).evict == ()
    assert next_step(plan(move(REPLACING, holds=False)), LIMITS).evict == ()


# --- several moves


@pytest.mark.parametrize(
    ("parallel", "before", "begun"),
    [
        (1, (PLANNED, PLANNED, PLANNED), {0}),
        (1, (DONE, PLANNED, PLANNED), {1}),
        (2, (PLANNED, PLANNED, PLANNED), {0, 1}),
        (4, (PLANNED, PLANNED, PLANNED), {0, 1, 2}),
        (2, (DONE, DONE, PLANNED), {2}),
    ],
)
def test_as_many_moves_begin_as_may(parallel: int, before: tuple[MoveState, ...], begun: set[int]) -> None:
    moves = [move(state, name=str(n)) for n, state in enumerate(before)]
    assert states(next_step(plan(*moves), replace(LIMITS, parallel=parallel))) == dict.fromkeys(begun, RESERVED)


def test_moves_of_one_queue_do_not_begin_together() -> None:
    moves = [move(name="a", queue="q"), move(name="b", queue="q")]
    assert states(next_step(plan(*moves), replace(LIMITS, parallel=2))) == {0: RESERVED}


def test_no_move_begins_beside_one_that_is_under_way() -> None:
    for state in (EVICTING, REPLACING, RUNNING):
        seen = move(state, evicted=True, holds=state is EVICTING, again=state is RUNNING)
        assert not next_step(plan(seen, move(name="b")), LIMITS).writes


def test_the_next_move_is_checked_before_it_begins() -> None:
    step = next_step(plan(move(DONE), move(name="b", obstacles=("PodDisruptionBudget x does not allow it",))), LIMITS)
    assert step.phase is PlanPhase.ABORTED
    assert "PodDisruptionBudget x" in step.message


def test_a_plan_pauses_at_the_limit_of_an_hour_and_then_ends() -> None:
    seen = plan(move(DONE), move(name="b"), limited="4 moves began within the last hour")
    assert_waits(replace(seen, age=PAUSE_SECONDS), "4 moves began within the last hour")
    late = next_step(replace(seen, age=PAUSE_SECONDS + 1), LIMITS)
    assert (late.phase, late.message) == (PlanPhase.ABORTED, seen.limited)


# --- the end of a plan


@pytest.mark.parametrize("goal", [GoalState.STARTED, GoalState.GONE])
def test_a_plan_whose_gang_has_started_or_is_gone_begins_no_further_move(goal: GoalState) -> None:
    step = next_step(plan(move(DONE), move(name="b"), goal=goal), LIMITS)
    assert step.phase is PlanPhase.SUPERSEDED
    reserved = next_step(plan(move(RESERVED), goal=goal), LIMITS)
    assert (reserved.phase, states(reserved)) == (PlanPhase.SUPERSEDED, {0: ABORTED})


def test_a_gang_that_starts_while_the_last_workload_is_placed_is_what_the_plan_is_for() -> None:
    placing = next_step(plan(move(REPLACING, holds=False), goal=GoalState.STARTED), LIMITS)
    assert placing.phase is None
    assert next_step(plan(move(DONE), goal=GoalState.STARTED), LIMITS).phase is PlanPhase.DONE


@pytest.mark.parametrize(
    ("goal", "age", "phase"),
    [
        (GoalState.WAITS, 600, None),
        (GoalState.WAITS, 601, PlanPhase.DONE),
        (GoalState.NONE, 0, PlanPhase.DONE),
        (GoalState.GONE, 0, PlanPhase.DONE),
    ],
)
def test_the_room_is_kept_for_the_gang_for_a_time(goal: GoalState, age: int, phase: PlanPhase | None) -> None:
    assert next_step(plan(move(DONE), goal=goal, age=age), LIMITS).phase is phase


@pytest.mark.parametrize("phase", [PlanPhase.ABORTED, PlanPhase.FAILED, PlanPhase.SUPERSEDED, PlanPhase.EXPIRED])
def test_a_plan_that_is_over_leaves_no_trace_before_an_eviction(phase: PlanPhase) -> None:
    assert states(next_step(plan(move(RESERVED), move(name="b"), phase=phase), LIMITS)) == {0: ABORTED}
    unwritten = next_step(plan(move(EVICTING), phase=phase), LIMITS)
    assert (states(unwritten), unwritten.evict) == ({0: ABORTED}, ())


@pytest.mark.parametrize(
    ("before", "facts", "after"),
    [
        (EVICTING, {"evicted": True}, {}),
        (EVICTING, {"holds": False}, {0: REPLACING}),
        (REPLACING, {"holds": False, "again": True}, {0: RUNNING}),
        (RUNNING, {"holds": False, "again": True, "ready": True}, {0: DONE}),
    ],
)
def test_after_an_eviction_a_move_goes_forward_whatever_becomes_of_its_plan(
    before: MoveState, facts: dict[str, Any], after: dict[int, MoveState]
) -> None:
    step = next_step(plan(move(before, **facts), move(name="b"), phase=PlanPhase.ABORTED), LIMITS)
    assert (step.phase, states(step), step.evict) == (None, after, ())


def test_a_plan_that_is_over_is_not_looked_at_again() -> None:
    assert next_step(plan(move(DONE), move(name="b"), phase=PlanPhase.ABORTED), LIMITS) == Step()


@pytest.mark.parametrize("facts", [{"approved": False}, {"sound": False}])
def test_a_plan_that_was_changed_before_an_eviction_is_a_proposal_again(facts: dict[str, Any]) -> None:
    step = next_step(plan(move(RESERVED), move(name="b"), **facts), LIMITS)
    assert (step.phase, states(step)) == (PlanPhase.PROPOSED, {0: PLANNED})


@pytest.mark.parametrize("facts", [{"approved": False}, {"sound": False}])
def test_a_plan_that_was_changed_after_an_eviction_is_aborted(facts: dict[str, Any]) -> None:
    step = next_step(plan(move(EVICTING, evicted=True), move(RESERVED, name="b"), **facts), LIMITS)
    assert (step.phase, states(step), step.evict) == (PlanPhase.ABORTED, {1: ABORTED}, ())


def test_a_plan_that_ends_takes_no_further_workload_with_it() -> None:
    """One move fails in the same step in which another one would be evicted."""
    late = move(RUNNING, holds=False, again=True, age=601)
    step = next_step(plan(late, move(RESERVED, name="b")), replace(LIMITS, parallel=2))
    assert (step.phase, states(step)) == (PlanPhase.FAILED, {0: FAILED, 1: ABORTED})
