"""Let one worker cluster after the other preempt for a workload, of whose copies only one will run.

Each copy has a preemption gate.  A worker that would preempt for its copy says so, and waits; the manager opens one
gate per period, so that workloads are not stopped on all clusters at once for a place on one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kqueue.api import multikueue_names as words
from kqueue.api import names
from kqueue.jobs.fields import JSON, mapping
from kqueue.jobs.multikueue.facts import Remote
from kqueue.state.preemption_gates import is_closed, opened_at

PERIOD = timedelta(minutes=5)
"""Time that a cluster has to preempt and to admit its copy, before another one may.  Source: Kueue."""
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class GatesToOpen:
    """The clusters whose gates are to be opened now, and the time until there may be more; None: events tell."""

    clusters: tuple[str, ...] = ()
    again: timedelta | None = None


def gated(copy: JSON) -> JSON:
    """Return the copy of a Workload with the gate, which is closed until the manager opens it."""
    gate: Mapping[str, Any] = {"name": words.PREEMPTION_GATE}
    return {**copy, "spec": {**mapping(copy, "spec"), "preemptionGates": [gate]}}


def gates_to_open(remotes: Sequence[Remote], now: datetime, *, orchestrated: bool) -> GatesToOpen:
    """Return the gates to open on clusters that still compete for a workload.

    Among those that would preempt, the longest waiting one comes first.  When gates were opened is read from the
    copies, so a controller that starts anew keeps the pace.  Without orchestration, gates that an earlier configuration
    set are all opened.
    """
    closed = [remote for remote in remotes if _has_closed_gate(remote)]
    if not orchestrated:
        return GatesToOpen(tuple(remote.cluster for remote in closed))
    blocked = [(since, remote.cluster) for remote in closed if (since := _blocked_since(remote)) is not None]
    if not blocked:
        return GatesToOpen()
    pause = max((_pause_after(remote, now) for remote in remotes), default=timedelta(0))
    return GatesToOpen(again=pause) if pause > timedelta(0) else GatesToOpen((min(blocked)[1],), PERIOD)


def _has_closed_gate(remote: Remote) -> bool:
    copy = remote.counted
    return copy is not None and is_closed(copy, words.PREEMPTION_GATE)


def _blocked_since(remote: Remote) -> datetime | None:
    """Return the time since which the worker would preempt, were the gate open; None: it would not."""
    if not remote.is_true(names.CONDITION_BLOCKED_ON_PREEMPTION_GATES):
        return None
    return remote.since(names.CONDITION_BLOCKED_ON_PREEMPTION_GATES) or _LATEST


def _pause_after(remote: Remote, now: datetime) -> timedelta:
    """Return the rest of the period that the gate of a cluster began.

    The manager writes the time.  One that is later than the clocks of two controllers can differ was written by the
    worker, and counts for nothing: it would hold all other clusters back.
    """
    opened = opened_at(remote.counted, words.PREEMPTION_GATE) if remote.counted is not None else None
    if opened is None or opened > now + PERIOD:
        return timedelta(0)
    return PERIOD - max(now - opened, timedelta(0))
