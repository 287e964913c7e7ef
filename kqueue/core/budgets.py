"""Budgets: how much of a resource, times time, the workloads of a namespace or of a LocalQueue may use in a period.

Amounts are integers in units of the resource (milli for cpu), times milliseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from kqueue.core.quantity import parse_quantity
from kqueue.core.value import value

HOUR_MS = 3_600_000
MOST_BUDGETS = 500
"""The largest number of budgets of a ClusterQueue."""
SHORTEST, LONGEST = 60, 366 * 86_400
"""The least and the most seconds of a period."""
_EXAMPLE = (
    "write [NAMESPACE[/LOCALQUEUE]:]RESOURCE=AMOUNTh/PERIOD such as nvidia.com/gpu=1000h/week or "
    "team-a:cpu=500h/month; a period is day, week, month, or a number of seconds such as 86400s"
)
_EPOCH = datetime.fromtimestamp(0, UTC)
_DAY = timedelta(days=1)
_MS = timedelta(milliseconds=1)


class Calendar(StrEnum):
    """Periods of the calendar in UTC; weeks begin on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@value()
class Period:
    """The period in which a budget is spent: one of the calendar, or so many seconds (counted from 1970 in UTC)."""

    of: Calendar | int

    def __str__(self) -> str:
        return str(self.of) if isinstance(self.of, Calendar) else f"{self.of}s"

    def start(self, now: datetime) -> datetime:
        """Return the beginning of the period that contains a time."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        match self.of:
            case Calendar.DAY:
                return midnight
            case Calendar.WEEK:
                return midnight - midnight.weekday() * _DAY
            case Calendar.MONTH:
                return midnight.replace(day=1)
        length = timedelta(seconds=self.of)
        return _EPOCH + (now - _EPOCH) // length * length

    def end(self, start: datetime) -> datetime:
        """Return the end of the period with this beginning."""
        match self.of:
            case Calendar.DAY:
                return start + _DAY
            case Calendar.WEEK:
                return start + 7 * _DAY
            case Calendar.MONTH:
                return (start + 31 * _DAY).replace(day=1)
        return start + timedelta(seconds=self.of)


@value(kw_only=True)
class Budget:
    """A budget of a ClusterQueue.

    Args:
        scope: a namespace, or namespace/name of a LocalQueue; empty: each namespace without a budget of its own for the
            resource.
        amount: what may be used in the period.
    """

    scope: str = ""
    resource: str
    amount: int
    period: Period


@value()
class Spent:
    """The use since the beginning of a period."""

    start: datetime
    used: int

    def after(self, period: Period, rate: int, elapsed: int, now: datetime) -> Spent:
        """Return the use after further milliseconds, until now, in which this amount was used.

        A new period counts from its beginning.  Where the clock went back, the period stays as it is.
        """
        start = period.start(now)
        if start <= self.start:
            return Spent(self.start, self.used + rate * elapsed)
        return Spent(start, rate * min(elapsed, (now - start) // _MS))

    def plus(self, other: Spent) -> Spent:
        """Return the use of two meters together."""
        return Spent(max(self.start, other.start), self.used + other.used)


def parse_budgets(text: str) -> tuple[Budget, ...]:
    """Parse budgets as `nvidia.com/gpu=1000h/week, team-a:cpu=500h/month`.

    Raises:
        ValueError: a budget is wrong; the message quotes it and says what to write.
    """
    found: dict[tuple[str, str], Budget] = {}
    for part in text.split(","):
        budget = _budget(part.strip())
        if budget is None:
            raise ValueError(f"{part.strip()[:80]!r} is no budget; {_EXAMPLE}")
        if (budget.scope, budget.resource) in found:
            who = budget.scope or "every namespace"
            raise ValueError(f"{who} has two budgets of {budget.resource}; keep one of them")
        found[budget.scope, budget.resource] = budget
        if len(found) > MOST_BUDGETS:
            raise ValueError(f"has more than {MOST_BUDGETS} budgets; use several ClusterQueues")
    return tuple(found.values())


def _budget(text: str) -> Budget | None:
    what, equals, limit = text.partition("=")
    scope, colon, resource = what.rpartition(":")
    amount, slash, name = limit.rpartition("/")
    period = parse_period(name.strip())
    amount, resource, scope = amount.strip(), resource.strip(), scope.strip()
    if period is None or not (equals and slash and resource and amount.endswith("h")):
        return None
    if bool(colon) is not bool(scope) or scope.count("/") > 1 or "" in scope.split("/")[1:]:
        return None
    try:
        hours = parse_quantity(amount[:-1], resource)
    except ValueError:
        return None
    return Budget(scope=scope, resource=resource, amount=hours * HOUR_MS, period=period) if hours >= 0 else None


def parse_period(text: str) -> Period | None:
    """Parse `day`, `week`, `month`, or a number of seconds as in `86400s`; None: it is no such period."""
    if text in tuple(Calendar):
        return Period(Calendar(text))
    digits = text.removesuffix("s")
    if digits == text or not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(LONGEST))):
        return None
    seconds = int(digits)
    return Period(seconds) if SHORTEST <= seconds <= LONGEST else None
