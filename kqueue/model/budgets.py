"""Budgets of a ClusterQueue: the annotation of its administrator, and what kqueue writes about their use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from kqueue.api import quota_names
from kqueue.clock import api_time, utc_text
from kqueue.core.budgets import HOUR_MS, Budget, Calendar, Period, Spent
from kqueue.core.quantity import parse_quantity

MOST_BUDGETS = 500
SHORTEST, LONGEST = 60, 366 * 86_400
"""The least and the most seconds of a period."""
_EXAMPLE = (
    "write [NAMESPACE[/LOCALQUEUE]:]RESOURCE=AMOUNTh/PERIOD such as nvidia.com/gpu=1000h/week or "
    "team-a:cpu=500h/month; a period is day, week, month, or a number of seconds such as 86400s"
)

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
    if text is None:
        return (), ""
    found: dict[tuple[str, str], Budget] = {}
    for part in text.split(","):
        budget = _budget(part.strip())
        if budget is None:
            return (), f"{part.strip()[:80]!r} is no budget; {_EXAMPLE}"
        if (budget.scope, budget.resource) in found:
            who = budget.scope or "every namespace"
            return (), f"{who} has two budgets of {budget.resource}; keep one of them"
        found[budget.scope, budget.resource] = budget
        if len(found) > MOST_BUDGETS:
            return (), f"has more than {MOST_BUDGETS} budgets; use several ClusterQueues"
    return tuple(found.values()), ""


def _budget(text: str) -> Budget | None:
    what, equals, limit = text.partition("=")
    scope, colon, resource = what.rpartition(":")
    amount, slash, name = limit.rpartition("/")
    period = _period(name.strip())
    amount, resource, scope = amount.strip(), resource.strip(), scope.strip()
    complete = equals and slash and resource and period is not None and amount.endswith("h")
    if not complete or bool(colon) is not bool(scope) or scope.count("/") > 1 or "" in scope.split("/")[1:]:
        return None
    try:
        hours = parse_quantity(amount[:-1], resource)
    except ValueError:
        return None
    assert period is not None
    return Budget(scope=scope, resource=resource, amount=hours * HOUR_MS, period=period) if hours >= 0 else None


def _period(text: str) -> Period | None:
    if text in tuple(Calendar):
        return Period(Calendar(text))
    digits = text.removesuffix("s")
    if digits == text or not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(LONGEST))):
        return None
    seconds = int(digits)
    return Period(seconds) if SHORTEST <= seconds <= LONGEST else None


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
            period = _period(text)
            if resource and period is not None and used >= 0 and abs(start) < _FAR:
                yield (local_queue, resource, period), Spent(datetime.fromtimestamp(start, UTC), used)


_FAR = 1 << 34
"""Seconds after 1970 that any time is before: it is the year 2514."""
