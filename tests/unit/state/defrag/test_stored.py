"""Stored plans that are only proposed: when they expire, are superseded, approved without a person, and deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.clock import utc_text
from kqueue.state.defrag.document import hash_of
from kqueue.state.defrag.stored import (
    AutoBudget,
    PlanStep,
    dispensable,
    goal_key,
    is_open,
    next_step,
    open_plan_for,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HASH = "its own"
OTHER = f"sha256:{2:064}"
BUDGET = AutoBudget(moves=2, pod_seconds=600)
OURS = ("Proposed", "ByController", 0)


def minutes(after: float) -> str:
    return utc_text(NOW + timedelta(minutes=after))


def plan(
    phase: str | None = "Proposed",
    *conditions: tuple[str, str, float],
    name: str = "p",
    made: float = 0,
    until: float | None = 10,
    approved: str = "",
    digest: str | None = None,
    workload: str = "team-a/big",
    moves: int = 1,
    **status: Any,
) -> DefragmentationPlan:
    """A plan; times are minutes after NOW, conditions type, reason and time; `approved` HASH: by its own hash."""
    namespace, _, of = workload.partition("/")
    goal = {"workload": {"namespace": namespace, "name": of}} if workload else {"flavor": "f", "level": "l", "nodes": 1}
    found: dict[str, Any] = {
        "phase": phase,
        "moves": [{"workload": "x/y"}] * moves,
        "cost": {"podSeconds": 600},
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": minutes(at)}
            for kind, reason, at in conditions
        ],
        **({"validUntil": minutes(until)} if until is not None else {}),
        **status,
    }
    obj = {
        "metadata": {"name": name, "creationTimestamp": minutes(made)},
        "spec": {"goal": goal, "approved": approved},
        "status": {key: value for key, value in found.items() if value is not None},
    }
    made = msgspec.convert(obj, DefragmentationPlan, strict=False)
    sound = hash_of(made) if digest is None else digest
    spec = replace(made.spec, approved=sound if approved == HASH else approved)
    return replace(made, spec=spec, status=replace(made.status, hash=sound))


EXPIRE, SUPERSEDE, APPROVE, DELETE, NONE = (
    PlanStep.EXPIRE,
    PlanStep.SUPERSEDE,
    PlanStep.APPROVE,
    PlanStep.DELETE,
    PlanStep.NONE,
)
CASES = [
    # the plan, minutes from NOW, whether its workload waits, the step, minutes until the next one
    (plan(), 0, True, NONE, 10),
    (plan(), 10, True, EXPIRE, None),
    (plan(), 0, False, SUPERSEDE, None),
    (plan(), 11, False, EXPIRE, None),
    (plan(workload=""), 0, True, NONE, 10),
    # a plan without a status, or with one that nobody of kqueue wrote
    (plan(None, until=None, digest=""), 0, True, NONE, 10),
    (plan(None, until=None, digest=""), 10, True, EXPIRE, None),
    (plan(until=10_000), 59, True, NONE, 60),
    (plan(until=10_000), 60, True, EXPIRE, None),
    # approved, or under way: somebody else carries it out
    (plan(approved=HASH), 11, True, NONE, None),
    (plan(approved=HASH), 0, False, NONE, None),
    (plan(approved=OTHER), 11, True, EXPIRE, None),
    (plan("Approved", approved=HASH), 100, False, NONE, None),
    (plan("Running", approved=HASH), 100, False, NONE, None),
    # over
    *[(plan(phase, (phase, "r", 5)), 0, True, NONE, 65) for phase in ("Expired", "Done", "Aborted", "Failed")],
    *[(plan(phase, (phase, "r", 5)), 65, True, DELETE, None) for phase in ("Done", "Aborted", "Failed", "Superseded")],
    (plan("Done", ("Proposed", "r", -90), ("Done", "r", 0)), 59, True, NONE, 60),
    (plan("Done"), 60, True, DELETE, None),  # no record of its end
    (plan("Nonsense"), 60, True, DELETE, None),
]


@pytest.mark.parametrize(("stored", "after", "waits", "step", "again"), CASES)
def test_a_proposal_ends_and_is_deleted(
    stored: DefragmentationPlan, after: float, waits: bool, step: PlanStep, again: float | None
) -> None:
    now = NOW + timedelta(minutes=after)
    at = None if again is None else NOW + timedelta(minutes=again)
    assert next_step(stored, now, waits=waits, budget=None) == (step, at)


@pytest.mark.parametrize(
    ("stored", "step"),
    [
        (plan("Proposed", OURS), APPROVE),
        (plan("Proposed", OURS, moves=2), APPROVE),
        (plan("Proposed", OURS, moves=3), NONE),
        (plan("Proposed", OURS, cost={"podSeconds": 601}), NONE),
        (plan("Proposed", OURS, cost=None), NONE),
        (plan("Proposed", OURS, cost={"podSeconds": -1}), NONE),
        (plan("Proposed", OURS, digest=""), NONE),
        (plan("Proposed", OURS, digest=OTHER), NONE),
        (plan("Proposed", ("Proposed", "Computed", 0)), NONE),
        (plan("Proposed"), NONE),
        (plan("Proposed", OURS, approved=HASH), NONE),
        (plan("Expired", OURS), NONE),
    ],
)
def test_only_plans_of_the_controller_within_the_budget_are_approved(
    stored: DefragmentationPlan, step: PlanStep
) -> None:
    """J5.14."""
    assert next_step(stored, NOW, waits=True, budget=BUDGET)[0] is step


def test_without_a_budget_nothing_is_approved() -> None:
    assert next_step(plan("Proposed", OURS), NOW, waits=True, budget=None)[0] is NONE


@pytest.mark.parametrize(
    ("stored", "stands"),
    [(plan(), True), (plan(until=0), False), (plan(digest=""), False), (plan(digest=OTHER), False), (plan(until=0, approved=HASH), True),
     (plan("Approved"), True), (plan("Running"), True), (plan("Done"), False), (plan("Expired"), False)],
)  # fmt: skip
def test_a_plan_stands_while_it_can_be_carried_out(stored: DefragmentationPlan, stands: bool) -> None:
    assert is_open(stored, NOW) is stands


def test_the_newest_plan_for_a_workload_counts() -> None:
    older, newer = plan(name="older", made=-5), plan(name="newer", made=-1)
    others = [plan(name="other", workload="team-a/other"), plan(name="nodes", workload=""), plan("Done", name="over")]
    assert open_plan_for([older, newer, *others], "team-a/big", NOW) == newer
    assert open_plan_for(others, "team-a/big", NOW) is None
    assert goal_key(others[1]) == ""


def test_the_oldest_plan_that_ended_unapproved_makes_room() -> None:
    plans = [
        plan("Expired", ("Expired", "r", -5), name="a"),
        plan("Superseded", ("Superseded", "r", -9), name="b"),
        plan("Done", ("Done", "r", -50), name="c"),
        plan(name="d"),
    ]
    found = dispensable(plans, NOW)
    assert found is not None
    assert found.metadata.name == "b"
    assert dispensable(plans[2:], NOW) is None
