"""Times are written as objects have them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kqueue.clock import SystemClock, utc_text

_NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "digits", "text"),
    [
        pytest.param(_NOON, 0, "2026-03-01T12:00:00Z", id="whole seconds"),
        pytest.param(_NOON.replace(microsecond=999_999), 0, "2026-03-01T12:00:00Z", id="cut, not rounded"),
        pytest.param(_NOON, 6, "2026-03-01T12:00:00.000000Z", id="all digits of nothing"),
        pytest.param(_NOON.replace(microsecond=7), 6, "2026-03-01T12:00:00.000007Z", id="all digits of little"),
        pytest.param(_NOON.replace(microsecond=120_999), 3, "2026-03-01T12:00:00.120Z", id="milliseconds"),
        pytest.param(_NOON, 3, "2026-03-01T12:00:00.000Z", id="no milliseconds"),
        pytest.param(
            _NOON.astimezone(timezone(timedelta(hours=-3))), 0, "2026-03-01T12:00:00Z", id="of another time zone"
        ),
    ],
)
def test_times_are_written_in_utc_with_as_many_digits_as_asked_for(moment: datetime, digits: int, text: str) -> None:
    """Every text has the same length, so that it sorts, and parsers that count digits take it."""
    assert utc_text(moment, digits=digits) == text


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux counts suspended time")
def test_the_monotonic_clock_counts_what_the_machine_slept() -> None:
    """Else a virtual machine that was paused would think that its lease is fresh."""
    assert abs(SystemClock().monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1
