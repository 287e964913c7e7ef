"""Durations are read as Go reads them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.config import duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("5m", timedelta(minutes=5), id="one-unit"),
        pytest.param("1h30m", timedelta(minutes=90), id="two-units"),
        pytest.param("1.5h", timedelta(minutes=90), id="fraction"),
        pytest.param(".5s", timedelta(milliseconds=500), id="fraction-without-a-leading-digit"),
        pytest.param("2.s", timedelta(seconds=2), id="point-without-digits-behind"),
        pytest.param("300ms", timedelta(milliseconds=300), id="milliseconds"),
        pytest.param("1500us", timedelta(microseconds=1500), id="microseconds"),
        pytest.param("1µs", timedelta(microseconds=1), id="micro-sign"),
        pytest.param("1500ns", timedelta(microseconds=1), id="nanoseconds-are-cut-to-microseconds"),
        pytest.param("0", timedelta(0), id="zero-needs-no-unit"),
        pytest.param("-10s", timedelta(seconds=-10), id="negative"),
        pytest.param("+10s", timedelta(seconds=10), id="plus-sign"),
    ],
)
def test_durations_are_read(text: str, want: timedelta) -> None:
    """Every form that Kubernetes writes is understood."""
    assert parse_duration(text) == want


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "1d", "5x", "1h-30m", ".s", "٣s", "1e3s", "10000000h"])
def test_other_texts_are_refused(text: str) -> None:
    """What is no duration is an error that shows how one looks, or names the limit."""
    with pytest.raises(ValueError, match=r"300ms, 5m or 1h30m|292 years"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(days=-3000), max_value=timedelta(days=3000)))
def test_a_written_duration_reads_back(value: timedelta) -> None:
    """Writing and reading are inverse, to the microsecond."""
    assert parse_duration(duration_text(value)) == value
