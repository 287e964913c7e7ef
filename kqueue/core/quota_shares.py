"""Nominal quotas as shares of a capacity that changes: they rise at once, and fall in steps."""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue.core.value import value

WHOLE = 1000
"""The whole of a capacity, in per mille."""
STEP_EVERY = timedelta(minutes=1)
STEP = 100
"""Per mille of the amount before the descent by which a quota falls in a step, so that it falls to 0 in ten steps."""


@value()
class Descent:
    """A quota that falls: its amount before the descent, and the time of its last step."""

    peak: int
    at: datetime


def share_of(capacity: int, per_mille: int) -> int:
    """Return a share of a capacity, rounded down, so that shares never exceed the whole together."""
    return capacity * per_mille // WHOLE


def next_amount(present: int | None, target: int, descent: Descent | None, now: datetime) -> tuple[int, Descent | None]:
    """Return the quota after this moment, and the descent that goes on (None: none does).

    A call makes one step at most, so that a jump of the clock brings one step early.  `present` None: the quota is
    resolved for the first time, without steps.
    """
    if present is None or target >= present:
        return target, None
    if descent is None or now < descent.at:
        return present, Descent(descent.peak if descent is not None else present, now)
    if now - descent.at < STEP_EVERY:
        return present, descent
    lowered = max(target, present - max(1, descent.peak * STEP // WHOLE))
    return lowered, Descent(descent.peak, now) if lowered > target else None
