"""Backfill by time, as annotations of ClusterQueues and Cohorts say it."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.api import backfill_names
from kqueue.api.wire import kueue as wire
from kqueue.core.backfill.mode import BackfillMode, parse_backfill


def backfill_mode(annotations: Mapping[str, str]) -> BackfillMode | None:
    """Return what an object says about backfill; None: nothing, or nothing valid."""
    text = annotations.get(backfill_names.BACKFILL_ANNOTATION)
    try:
        return None if text is None else parse_backfill(text)
    except ValueError:
        return None


def backfill_problem(annotations: Mapping[str, str]) -> str:
    """Return the problem of the annotation of an object; empty: it has none, or a valid one."""
    try:
        if (text := annotations.get(backfill_names.BACKFILL_ANNOTATION)) is not None:
            parse_backfill(text)
    except ValueError as e:
        return str(e)
    return ""


def has_overrun(obj: wire.Workload) -> bool:
    """Whether the workload was evicted because it ran longer than guessed; its guesses count as limits no more."""
    stats = obj.status.scheduling_stats
    return stats is not None and any(one.reason == backfill_names.REASON_BACKFILL_OVERRUN for one in stats.evictions)
