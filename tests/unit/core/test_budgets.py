"""Periods of budgets, and the use that counts in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kqueue.core.budgets import Calendar, Period, Spent

DAY, WEEK, MONTH = Period(Calendar.DAY), Period(Calendar.WEEK), Period(Calendar.MONTH)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "now", "start", "end"),
    [
        (DAY, at(2026, 11, 27, 20, 30), at(2026, 11, 27), at(2026, 11, 28)),
        (DAY, at(2026, 11, 27), at(2026, 11, 27), at(2026, 11, 28)),
        (WEEK, at(2026, 11, 29, 23, 59), at(2026, 11, 23), at(2026, 11, 30)),
        (WEEK, at(2026, 11, 30), at(2026, 11, 30), at(2026, 12, 7)),
        (MONTH, at(2026, 12, 31, 23), at(2026, 12, 1), at(2027, 1, 1)),
        (MONTH, at(2028, 2, 29), at(2028, 2, 1), at(2028, 3, 1)),
        (Period(3600), at(2026, 11, 27, 20, 30), at(2026, 11, 27, 20), at(2026, 11, 27, 21)),
    ],
)
def test_periods(period: Period, now: datetime, start: datetime, end: datetime) -> None:
    assert period.start(now) == start
    assert period.end(start) == end
    assert period.start(end) == end
    assert period.start(end - timedelta(milliseconds=1)) == start


@pytest.mark.parametrize(
    ("now", "elapsed", "start", "used"),
    [
        pytest.param(at(2026, 11, 27, 12, 0, 9), 9000, at(2026, 11, 27), 100 + 2 * 9000, id="in-the-period"),
        pytest.param(at(2026, 11, 28, 0, 0, 3), 9000, at(2026, 11, 28), 2 * 3000, id="a-new-period-from-its-beginning"),
        pytest.param(at(2026, 11, 28, 0, 0, 30), 9000, at(2026, 11, 28), 2 * 9000, id="a-jump-into-the-next-period"),
        pytest.param(at(2026, 11, 26, 12), 9000, at(2026, 11, 27), 100 + 2 * 9000, id="a-clock-that-went-back"),
        pytest.param(at(2026, 11, 27, 12), 0, at(2026, 11, 27), 100, id="no-time-has-passed"),
    ],
)
def test_use_of_two_units_goes_on(now: datetime, elapsed: int, start: datetime, used: int) -> None:
    assert Spent(at(2026, 11, 27), 100).after(DAY, 2, elapsed, now) == Spent(start, used)
