"""Workloads that started before a planned start on a guess, and still run when the planned start is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from kqueue.core.workload import Admitted, Claim


def overrunning(holders: Iterable[Admitted], guessed: Mapping[str, int], now: datetime) -> list[Admitted]:
    """Return the workloads that have started on a guess and run longer, without those that are being evicted.

    `holders` are workloads with quota; `guessed` has the seconds from its start, by UID of each workload that has
    started on a guess.
    """
    started = [one for one in holders if one.uid in guessed and not one.evicted]
    return [one for one in started if (one.admitted_at or now) + timedelta(seconds=guessed[one.uid]) <= now]


def in_the_way(claim: Claim, overrun: Iterable[Admitted], now: datetime) -> list[Admitted]:
    """Return those of these workloads that a planned start waits for; none before its time."""
    is_due = claim.at is not None and claim.at <= now
    return [one for one in overrun if one.uid in claim.ends] if is_due else []
