"""Nominal quotas as shares of a capacity that changes: they rise at once, and fall in steps."""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue.core.quota import FlavorResource
from kqueue.core.value import value

WHOLE = 1000
"""The whole of a capacity, in per mille."""
MOST_SHARES = 256
"""The largest number of shares of a ClusterQueue."""
_EXAMPLE = "write FLAVOR/RESOURCE=SHARE such as h100/nvidia.com/gpu=500 (per mille) or h100/cpu=50%"
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


def parse_shares(text: str) -> dict[FlavorResource, int]:
    """Parse shares as `h100/nvidia.com/gpu=500, h100/cpu=50%`, into per mille.

    Raises:
        ValueError: a share is wrong; the message quotes it and says what to write.
    """
    found: dict[FlavorResource, int] = {}
    for part in text.split(","):
        column, share = column_and_text(part)
        per_mille = _per_mille(share)
        if column is None or per_mille is None:
            raise ValueError(f"{part.strip()[:80]!r} is no share from 0 to {WHOLE} per mille; {_EXAMPLE}")
        if column in found:
            raise ValueError(f"{column.flavor}/{column.resource} has two shares; keep one of them")
        found[column] = per_mille
        if len(found) > MOST_SHARES:
            raise ValueError(f"has more than {MOST_SHARES} shares; use several ClusterQueues")
    return found


def column_and_text(part: str) -> tuple[FlavorResource | None, str]:
    """Return the column and the text of `flavor/resource=text`; None: it has no such form."""
    name, equals, amount = part.strip().partition("=")
    flavor, slash, resource = name.strip().partition("/")
    return (FlavorResource(flavor, resource) if equals and slash and flavor and resource else None), amount.strip()


def _per_mille(text: str) -> int | None:
    digits, factor = (text[:-1], WHOLE // 100) if text.endswith("%") else (text, 1)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
        return None
    share = int(digits) * factor
    return share if share <= WHOLE else None
