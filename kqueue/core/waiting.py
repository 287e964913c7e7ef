"""Decisions to wait, made of nominated workloads."""

from __future__ import annotations

from datetime import UTC, datetime

from kqueue.core.decision import Outcome, Wait
from kqueue.core.explain import Blocker, BlockerKind, WaitReason
from kqueue.core.mention import Mention
from kqueue.core.nomination import NominatedHead
from kqueue.core.workload import Claim


def waits(
    entry: NominatedHead,
    outcome: Outcome,
    reason: WaitReason | None = None,
    *blockers: Blocker,
    after: tuple[Blocker, ...] = (),
) -> Wait:
    """Return the decision to wait: `blockers` come before the blockers of the assignment, `after` behind them."""
    assignment = entry.assignment
    return Wait(
        head=entry.head,
        outcome=outcome,
        reason=reason or assignment.reason,
        blockers=(*blockers, *assignment.blockers, *after),
        last_tried=assignment.last_tried,
    )


def kept_for_others(entry: NominatedHead, now: datetime) -> Wait:
    """Return the decision for an entry whose room is kept by claims with a time."""
    blockers = [_kept(claim, now) for claim in entry.kept_for]
    return waits(entry, Outcome.PLANNED, WaitReason.WAITING_FOR_QUOTA, *blockers)


def _kept(claim: Claim, now: datetime) -> Blocker:
    assert claim.at is not None, "only claims with a time bind an entry so"
    at = f"{claim.at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if claim.queue:
        return Blocker(kind=BlockerKind.PLANNED_START, detail=at, workloads=(Mention(claim.key, claim.queue),))
    begun = claim.at <= now
    when = f"since {at}" if begun else f"from {at} on; runs limited to end before may start"
    return Blocker(kind=BlockerKind.RESERVATION, detail=f"{claim.key} {when}")
