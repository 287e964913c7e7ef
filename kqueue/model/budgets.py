"""Budgets of a ClusterQueue: the annotation of its administrator, and what kqueue writes about their use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from kqueue.api import quota_names
from kqueue.clock import api_time, utc_text
from kqueue.core.budgets import Budget, Period, Spent, parse_budgets, parse_period

Meter = tuple[str, str, Period]
"""namespace/name of a LocalQueue, resource and period: what is counted."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The use of budgets at a time; `at` None: nothing was written yet."""

    at: datetime | None
    spent: Mapping[Meter, Spent]


def budgets(annotations: Mapping[str, str]) -> tuple[tuple[Budget, ...], str]:
    """Return the budgets of a ClusterQueue, and the problem of the annotation (empty: none).

    A wrong annotation has no budgets at all.
    """
    text = annotations.get(quota_names.BUDGETS_ANNOTATION)
    try:
        return () if text is None else parse_budgets(text), ""
    except ValueError as e:
        return (), str(e)


def ledger_text(at: datetime, spent: Mapping[Meter, Spent]) -> str:
    """Return the use as the text of the annotation: by LocalQueue, resource and period the beginning of the period and
    the use, in seconds and in units times milliseconds.
    """
    used: dict[str, dict[str, list[int]]] = {}
    for (local_queue, resource, period), one in sorted(spent.items(), key=lambda item: (*item[0][:2], str(item[0][2]))):
        used.setdefault(local_queue, {})[f"{resource} {period}"] = [int(one.start.timestamp()), one.used]
    return msgspec.json.encode({"at": utc_text(at, digits=3), "used": used}).decode()


class _Stored(msgspec.Struct):
    at: str = ""
    used: dict[str, dict[str, tuple[int, int]]] = {}


def ledger(annotations: Mapping[str, str]) -> Ledger:
    """Return the use that was written last; parts that cannot be read are left out."""
    try:
        stored = msgspec.json.decode(annotations.get(quota_names.BUDGETS_USED_ANNOTATION, "{}"), type=_Stored)
    except (msgspec.DecodeError, RecursionError):
        return Ledger(None, {})
    return Ledger(api_time(stored.at), dict(_entries(stored)))


def _entries(stored: _Stored) -> Iterable[tuple[Meter, Spent]]:
    for local_queue, meters in stored.used.items():
        for name, (start, used) in meters.items():
            resource, _, text = name.rpartition(" ")
            period = parse_period(text)
            if resource and period is not None and used >= 0 and abs(start) < _FAR:
                yield (local_queue, resource, period), Spent(datetime.fromtimestamp(start, UTC), used)


_FAR = 1 << 34
"""Seconds after 1970 that any time is before: it is the year 2514."""
