"""The planned start of a workload, as views and commands show it."""

from __future__ import annotations

from datetime import UTC, datetime

from kqueue.core.backfill.plans import StartHistory
from kqueue.core.mention import Mention, readers_of
from kqueue.core.workload import Claim
from kqueue.visibility.question import JSON


def planned_start_part(claim: Claim, history: StartHistory) -> JSON:
    """Return a planned start: its time, the first one, and how it became later.

    Workloads that are the cause are named only within the namespace of the planned one.
    """
    assert claim.at is not None, "a planned start has a time"
    found: JSON = {"at": _text(claim.at), "first": _text(history.first), "timesLater": history.moves}
    if history.last is not None:
        may_name = readers_of(claim.key)
        named = [key for key in history.last.workloads if may_name(Mention(key).namespace)]
        found["lastLater"] = {
            "before": _text(history.last.before),
            "after": _text(history.last.after),
            "cause": history.last.cause.value,
            "workloads": named,
            "workloadCount": len(history.last.workloads),
        }
    return found


def _text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
