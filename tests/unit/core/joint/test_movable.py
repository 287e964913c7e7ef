"""Workloads that may be moved, and what a move costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.joint.movable import Consent, MoveFacts, MoveHistory, MoveLimits, MovePolicy, why_immovable
from kqueue.core.lost_work import lost_seconds

WILLING = MoveFacts(queue="team", pods=8, consent=Consent.ALWAYS, running=3600)
LIMITS, NONE = MoveLimits(), MoveHistory()


def test_a_willing_workload_may_be_moved() -> None:
    assert why_immovable(WILLING, LIMITS, NONE) == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"consent": Consent.NEVER}, "kqueue.dev/reschedule: Never"),
        ({"consent": Consent.AFTER_CHECKPOINT}, "no checkpoint is known"),
        ({"consent": Consent.AFTER_CHECKPOINT, "checkpoint_age": 600}, "600 s old"),
        ({"running": None}, "does not run"),
        ({"running": 599}, "of at least 600 s"),
        ({"minimum_runtime": 3601}, "of at least 3601 s"),
        ({"moved": 21_599}, "was moved 21599 s ago"),
        ({"budgets": ("b",)}, "PodDisruptionBudget b"),
        ({"pods": 65}, "65 more are too many"),
    ],
)
def test_one_reason_is_enough(change: dict[str, Any], text: str) -> None:
    reasons = why_immovable(replace(WILLING, **change), LIMITS, NONE)
    assert len(reasons) == 1
    assert text in reasons[0]


@pytest.mark.parametrize(
    "change",
    [
        {"consent": Consent.AFTER_CHECKPOINT, "checkpoint_age": 599},
        {"running": 600},
        {"minimum_runtime": 3600},
        {"moved": 21_600},
        {"pods": 64},
    ],
)
def test_the_edges_are_allowed(change: dict[str, Any]) -> None:
    assert why_immovable(replace(WILLING, **change), LIMITS, NONE) == ()


@pytest.mark.parametrize(
    ("limits", "history", "text"),
    [
        (MoveLimits(migration=MovePolicy.NEVER), NONE, "joint.rescheduling.migration: Never"),
        (LIMITS, MoveHistory(moves=4), "4 moves began"),
        (MoveLimits(moves=0), NONE, "0 moves began"),
        (LIMITS, MoveHistory(pods=57), "57 pods were moved"),
        (LIMITS, MoveHistory(queues=frozenset(("team",))), "another workload of ClusterQueue team"),
    ],
)
def test_limits_of_moves_hold(limits: MoveLimits, history: MoveHistory, text: str) -> None:
    (reason,) = why_immovable(WILLING, limits, history)
    assert text in reason


def test_all_reasons_are_told() -> None:
    unwilling = replace(WILLING, consent=Consent.NEVER, running=5, budgets=("a", "b"))
    assert len(why_immovable(unwilling, LIMITS, MoveHistory(moves=9))) == 4


@pytest.mark.parametrize(
    ("running", "more", "lost"),
    [
        (1200, {}, 1260),
        (7200, {"checkpoint_age": 300}, 360),
        (100, {"checkpoint_age": 300}, 160),
        (7200, {"interval": 600}, 660),
        (7200, {"interval": 600, "checkpoint_age": 30}, 90),
        (7200, {"restart": 0, "checkpoint_age": 0}, 0),
        (10**9, {}, 2_592_000),
        (-5, {}, 60),
    ],
)
def test_the_work_since_the_last_safe_point_is_lost(running: int, more: dict[str, int], lost: int) -> None:
    assert lost_seconds(running, **more) == lost
