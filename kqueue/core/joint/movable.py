"""Whether a running workload may be moved, and the cost of its move.

No workload is moved unless its user allows it: there is no consent by default.
"""

from __future__ import annotations

from enum import StrEnum

from kqueue.core.value import value

_LEAST_RUNTIME = 600
"""Seconds that every workload runs before it is moved."""
_HOUR = 3600


class Consent(StrEnum):
    """The moves to which the user of a workload agrees; the value is that of an annotation."""

    NEVER = "Never"
    AFTER_CHECKPOINT = "AfterCheckpoint"
    """Only shortly after the workload has written a checkpoint."""
    ALWAYS = "Always"


class MovePolicy(StrEnum):
    """The use of plans that move workloads."""

    NEVER = "Never"
    PROPOSE = "Propose"
    """Each plan waits for its approval."""
    AUTO = "Auto"
    """Plans within the budget of the configuration are approved at once."""


@value(kw_only=True)
class MoveLimits:
    """The limits of moves.

    Args:
        checkpoint_age: seconds that the checkpoint of a workload with `AfterCheckpoint` may be old.
        cooldown: seconds between two moves of one workload.
        moves, pods: the most that begin within an hour.
    """

    migration: MovePolicy = MovePolicy.PROPOSE
    checkpoint_age: int = 600
    cooldown: int = 21_600
    moves: int = 4
    pods: int = 64


@value(kw_only=True)
class MoveHistory:
    """The moves that began within the last hour, and the ClusterQueues of which a workload is being moved."""

    moves: int = 0
    pods: int = 0
    queues: frozenset[str] = frozenset()


@value(kw_only=True)
class MoveFacts:
    """The facts about a running workload that decide about its move.

    Args:
        consent: its own, or else that of its ClusterQueue.
        running: seconds since its admission; None: it is not admitted yet, or leaves already.
        checkpoint_age: seconds since its last checkpoint; None: none is known.
        minimum_runtime: seconds for which it is safe from preemption.
        moved: seconds since its last move; None: none is known.
        budgets: names of PodDisruptionBudgets that do not allow the disruption of all its pods at once.
    """

    queue: str
    pods: int
    consent: Consent = Consent.NEVER
    running: int | None
    checkpoint_age: int | None = None
    minimum_runtime: int = 0
    moved: int | None = None
    budgets: tuple[str, ...] = ()


def why_immovable(facts: MoveFacts, limits: MoveLimits, history: MoveHistory) -> tuple[str, ...]:
    """Return all reasons for which a workload may not be moved now; empty: it may be."""
    return tuple(
        [
            text
            for text in (*_by_its_user(facts, limits), *_by_time(facts, limits), *_by_limit(facts, limits, history))
            if text
        ]
    )


def _by_its_user(facts: MoveFacts, limits: MoveLimits) -> tuple[str, ...]:
    if facts.consent is Consent.NEVER:
        return ("kqueue.dev/reschedule: Never",)
    if facts.consent is Consent.ALWAYS:
        return ()
    if facts.checkpoint_age is None:
        return ("kqueue.dev/reschedule: AfterCheckpoint, and no checkpoint is known",)
    if facts.checkpoint_age >= limits.checkpoint_age:
        return (
            f"kqueue.dev/reschedule: AfterCheckpoint, and its checkpoint is {facts.checkpoint_age} s old; "
            f"{limits.checkpoint_age} s are allowed",
        )
    return ()


def _by_time(facts: MoveFacts, limits: MoveLimits) -> tuple[str, ...]:
    least = max(_LEAST_RUNTIME, facts.minimum_runtime)
    if facts.running is None:
        return ("it does not run",)
    return (
        f"it has run for {facts.running} s of at least {least} s" if facts.running < least else "",
        f"it was moved {facts.moved} s ago; at least {limits.cooldown} s are between two moves"
        if facts.moved is not None and facts.moved < limits.cooldown
        else "",
    )


def _by_limit(facts: MoveFacts, limits: MoveLimits, history: MoveHistory) -> tuple[str, ...]:
    return (
        "joint.rescheduling.migration: Never" if limits.migration is MovePolicy.NEVER else "",
        f"PodDisruptionBudget {', '.join(facts.budgets)} does not allow it" if facts.budgets else "",
        f"another workload of ClusterQueue {facts.queue} is being moved" if facts.queue in history.queues else "",
        f"{history.moves} moves began within the last hour" if history.moves >= limits.moves else "",
        f"{history.pods} pods were moved within the last hour, so {facts.pods} more are too many"
        if history.pods + facts.pods > limits.pods
        else "",
    )


def pays(gain: int, cost: int, least_gain: int) -> bool:
    """Whether moves gain enough; `gain` and `cost` are in the same unit, `least_gain` in thousandths of the cost."""
    return gain * 1000 >= least_gain * cost
