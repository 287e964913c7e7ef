"""What is printed: text from the cluster made harmless, tables, ages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from kqueue.cli.output import printable
from kqueue.cli.tables import age, aligned, duration, print_nothing_found, print_table

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("team-a", "team-a", id="plain-text-stays"),
        pytest.param("Köln, 東京, 🚀, é", "Köln, 東京, 🚀, é", id="letters-of-any-script-stay"),
        pytest.param("a\\n", "a\\n", id="a-backslash-stays"),
        pytest.param("", "", id="nothing"),
        pytest.param("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m", id="a-colour"),
        pytest.param("\x1b]0;title\x07", "\\x1b]0;title\\x07", id="a-window-title"),
        pytest.param("\x9b31m", "\\x9b31m", id="an-ansi-sequence-of-one-byte"),
        pytest.param("a\nb\r\nc\td", "a\\nb\\r\\nc\\td", id="line-ends-and-tabs"),
        pytest.param("a\bb\x7f\x00", "a\\x08b\\x7f\\x00", id="backspace-delete-and-null"),
        pytest.param("a\u202eb\u2066c", "a\\u202eb\\u2066c", id="text-that-runs-backwards"),
        pytest.param("a\u200bb\ufeff", "a\\u200bb\\ufeff", id="characters-of-no-width"),
        pytest.param("a\u2028b\u2029\x85", "a\\u2028b\\u2029\\x85", id="separators-of-lines-and-paragraphs"),
        pytest.param("\U000e0041", "\\U000e0041", id="a-tag"),
        pytest.param("\ud800", "\\ud800", id="half-a-surrogate-pair"),
        pytest.param(7, "7", id="a-number"),
    ],
)
def test_printable_escapes_what_a_terminal_would_obey(text: object, shown: str) -> None:
    """Nothing is lost and nothing is obeyed; the result can be written anywhere."""
    assert printable(text) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(-2.0, "<invalid>", id="our-clock-is-behind"),
        pytest.param(-1.9, "0s", id="our-clock-is-a-little-behind"),
        pytest.param(0, "0s", id="now"),
        pytest.param(0.9, "0s", id="fractions-are-cut"),
        pytest.param(119, "119s", id="almost-two-minutes"),
        pytest.param(120, "2m", id="two-minutes"),
        pytest.param(125, "2m5s", id="minutes-and-seconds"),
        pytest.param(599, "9m59s", id="almost-ten-minutes"),
        pytest.param(605, "10m", id="seconds-go-after-ten-minutes"),
        pytest.param(3 * 3600 - 1, "179m", id="minutes-up-to-three-hours"),
        pytest.param(3 * 3600, "3h", id="three-hours"),
        pytest.param(7 * 3600 + 1800, "7h30m", id="hours-and-minutes"),
        pytest.param(8 * 3600 + 1800, "8h", id="minutes-go-after-eight-hours"),
        pytest.param(48 * 3600 - 1, "47h", id="hours-up-to-two-days"),
        pytest.param(5 * 86400 + 2 * 3600, "5d2h", id="days-and-hours"),
        pytest.param(5 * 86400, "5d", id="whole-days"),
        pytest.param(8 * 86400 + 2 * 3600, "8d", id="hours-go-after-eight-days"),
        pytest.param(729 * 86400, "729d", id="days-up-to-two-years"),
        pytest.param((3 * 365 + 10) * 86400, "3y10d", id="years-and-days"),
        pytest.param((8 * 365 + 10) * 86400, "8y", id="days-go-after-eight-years"),
    ],
)
def test_a_duration_is_written_as_kubectl_writes_ages(seconds: float, text: str) -> None:
    """One or two units, fewer as it gets longer."""
    assert duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("since", "text"),
    [
        pytest.param("2026-05-01T11:59:00Z", "60s", id="a-minute-ago"),
        pytest.param("2026-05-01T11:59:00.123456Z", "59s", id="with-microseconds"),
        pytest.param(None, "<unknown>", id="no-time"),
        pytest.param("", "<unknown>", id="empty"),
        pytest.param("yesterday", "<unknown>", id="not-a-time"),
        pytest.param("2026-05-01T11:59:00", "<unknown>", id="no-time-zone"),
    ],
)
def test_an_age_is_counted_from_a_timestamp_of_the_api(since: str | None, text: str) -> None:
    """What cannot be read is unknown, not an error."""
    assert age(since, NOW) == text


def test_columns_align_and_lines_end_without_spaces() -> None:
    """A column is as wide as its widest cell and three spaces; wide characters count twice."""
    lines = aligned([["NAME", "N", "AGE"], ["team-a", "1", "5s"], ["東京", "", ""]])
    assert lines == ["NAME     N     AGE", "team-a   1     5s", "東京"]


def test_a_table_that_is_not_on_a_terminal_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per row, whatever a name holds: markup stays text, line ends are escaped."""
    print_table(["Name", "Pending Workloads"], [["[red]a[/]\nb", 3]])
    assert capsys.readouterr().out == "NAME           PENDING WORKLOADS\n[red]a[/]\\nb   3\n"


@pytest.mark.parametrize(
    ("width", "longest"),
    [
        pytest.param("200", 110, id="roomy"),
        pytest.param("40", 40, id="long-cells-are-folded"),
        pytest.param("20", 110, id="too-narrow-for-columns"),
    ],
)
def test_a_table_on_a_terminal_shows_the_same_words(
    width: str, longest: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a long value is lost, nothing is read as markup or as an escape, and short cells stay whole."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("TERM", "xterm")
    print_table(["Name", "Age"], [["[red]a\x1b[31m", "2y360d"], ["x" * 100, "6s"]])
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)  # without rich's own style
    assert "[red]a\\x1b[31m" in out
    assert "2y360d" in out
    assert out.count("x") == 101  # and the one of \x1b
    assert longest - 5 <= max(len(line.rstrip()) for line in out.splitlines()) <= longest


@pytest.mark.parametrize(
    ("namespace", "text"),
    [
        pytest.param("a\x1b", "No resources found in a\\x1b namespace.\n", id="in-a-namespace"),
        pytest.param(None, "No resources found\n", id="anywhere"),
    ],
)
def test_an_empty_list_is_told_on_stderr(namespace: str | None, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So that pipes stay empty."""
    print_nothing_found(namespace)
    assert capsys.readouterr() == ("", text)
