"""Logs are one bounded line each, whatever is logged."""

from __future__ import annotations

import io
import json
import logging
import warnings
from typing import Any

import pytest
import structlog
import structlog.testing
from hypothesis import given
from hypothesis import strategies as st

from kqueue.clock import FakeClock
from kqueue.errors import ConfigError
from kqueue.observe import configure_logs, current_level, logs, set_level


@pytest.fixture
def stream() -> io.BytesIO:
    """Where JSON logs go in the test."""
    stream = io.BytesIO()
    configure_logs("json", "info", stream=stream, clock=FakeClock())
    return stream


def lines(stream: io.BytesIO) -> list[dict[str, Any]]:
    """The lines so far, read."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_carries_time_level_logger_event_and_keys(stream: io.BytesIO) -> None:
    """The message is constant, variables are keys."""
    structlog.get_logger("kqueue.state").info("workload admitted", workload="a/b", pods=4)
    assert lines(stream) == [
        {
            "time": "2026-01-01T00:00:00.000Z",
            "level": "info",
            "logger": "kqueue.state",
            "event": "workload admitted",
            "workload": "a/b",
            "pods": 4,
        }
    ]


def test_the_level_changes_while_the_process_runs(stream: io.BytesIO) -> None:
    """A logger that was used before follows too, and so does the standard library."""
    log, standard = structlog.get_logger("ours"), logging.getLogger("theirs")
    log.debug("one")
    standard.debug("one")
    set_level("DEBUG")
    log.debug("two")
    standard.debug("two")
    set_level("error")
    log.warning("three")
    standard.warning("three")
    assert [(line["logger"], line["event"]) for line in lines(stream)] == [("ours", "two"), ("theirs", "two")]
    assert current_level() == "error"


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(("json", "loud"), "log level: must be one of debug, info, warning, error", id="level"),
        pytest.param(("xml", "info"), "log format: must be json or console", id="format"),
    ],
)
def test_unknown_settings_are_refused(arguments: Any, want: str) -> None:
    """Level and format are checked."""
    with pytest.raises(ConfigError, match=want):
        configure_logs(*arguments)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"leaves": [f"node-{i}" for i in range(5000)]}, id="a-long-list"),
        pytest.param({"text": "x" * 300_000}, id="a-long-text"),
        pytest.param({"text": "\x01" * 20_000}, id="a-text-that-grows-when-escaped"),
        pytest.param({f"key{i}": "v" * 50 for i in range(2000)}, id="many-keys"),
        pytest.param({"k" * 9000: 1}, id="a-long-key"),
        pytest.param({f"key{i}": "é" * 3000 for i in range(60)}, id="many-long-values"),
    ],
)
@pytest.mark.parametrize("shape", ["json", "console"])
def test_no_line_is_longer_than_the_bound(fields: dict[str, Any], shape: Any) -> None:
    """Details belong to an endpoint, not to a line."""
    stream = io.BytesIO()
    configure_logs(shape, stream=stream, line_bytes_max=4096)
    structlog.get_logger("l").info("does not fit", **fields)
    written = stream.getvalue()
    assert 0 < len(written) <= 4096 + 1
    assert b"does not fit" in written
    if shape == "json":
        assert json.loads(written)["event"] == "does not fit"


def test_a_cut_value_says_how_much_is_missing(stream: io.BytesIO) -> None:
    """Nobody takes a cut value for a whole one."""
    structlog.get_logger("l").info("long", text="x" * 10_000)
    assert lines(stream)[0]["text"].endswith("x … (7952 characters cut)")


class Unprintable:
    """A value that breaks whoever looks at it."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param(Unprintable(), "<Unprintable without a repr: RuntimeError>", id="broken-repr"),
        pytest.param("\ud800", "\\ud800", id="lone-surrogate"),
        pytest.param(ValueError("bad"), "bad", id="exception"),
        pytest.param({1, 2}, [1, 2], id="set"),
        pytest.param(float("inf"), None, id="infinity"),
    ],
)
def test_any_value_can_be_logged(stream: io.BytesIO, value: object, want: object) -> None:
    """Logging never raises."""
    structlog.get_logger("l").info("value", value=value)
    assert lines(stream)[0]["value"] == want


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.text()),
        max_size=8,
    )
)
def test_any_fields_make_one_json_line(fields: dict[str, Any]) -> None:
    """Whatever the keys and values are, the result is one JSON object on one line."""
    line = logs._JsonLine(1024)(fields)
    assert isinstance(json.loads(line), dict)
    assert b"\n" not in line
    assert len(line) <= 1024


def test_an_exception_is_told_with_its_traceback(stream: io.BytesIO) -> None:
    """`exception` carries the traceback; if it must be cut, its end stays."""

    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("the bottom")
        for _ in [0]:
            deep(n - 1)

    try:
        deep(100)
    except ValueError:
        structlog.get_logger("l").exception("failed", key="a/b")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert line["key"] == "a/b"
    assert line["exception"].endswith("ValueError: the bottom")


def test_the_standard_library_and_warnings_take_the_same_road(stream: io.BytesIO) -> None:
    """Libraries' lines have the same shape; their chatter is left out."""
    logging.getLogger("lib").warning("took %d ms", 5)
    record = logging.LogRecord("lib", logging.WARNING, "lib.py", 1, "wrong %d", ("arguments",), None)
    next(h for h in logging.getLogger().handlers if isinstance(h, logs._FromStandardLibrary)).emit(record)
    logging.getLogger("aiohttp.access").info("GET /")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    events = [(line["logger"], line["event"]) for line in lines(stream)]
    assert events[0] == ("lib", "took 5 ms")
    assert events[1] == ("lib", "wrong %d ('arguments',)")
    assert events[2][0] == "py.warnings"
    assert len(events) == 3


def test_context_is_on_every_line_of_the_block(stream: io.BytesIO) -> None:
    """Keys bound for a block are on its lines and on no other."""
    log = structlog.get_logger("l")
    with structlog.contextvars.bound_contextvars(workload="a/b"):
        log.info("inside")
    log.info("outside")
    assert [line.get("workload") for line in lines(stream)] == ["a/b", None]


def test_bound_fields_are_on_every_line_of_the_logger(stream: io.BytesIO) -> None:
    """A bound logger takes the long way round, and its line is as complete."""
    structlog.get_logger("here").bind(workload="ns/w").info("done", seconds=2)
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["workload"], line["seconds"]) == ("done", "here", "ns/w", 2)


def test_lines_can_be_captured(stream: io.BytesIO) -> None:
    """Whoever puts something else into structlog's pipeline gets the lines, and nothing is written."""
    with structlog.testing.capture_logs() as captured:
        structlog.get_logger("here").info("done", seconds=2)
    assert captured == [{"event": "done", "seconds": 2, "log_level": "info"}]
    assert not lines(stream)


def test_a_broken_stream_does_not_stop_the_caller(stream: io.BytesIO) -> None:
    """A closed stderr loses lines; they are counted."""
    stream.close()
    structlog.get_logger("l").error("nobody hears")
    assert logs._sink.lost == 1


def test_console_lines_are_for_eyes() -> None:
    """Time, level, message and keys, without colour when it is no terminal."""
    stream = io.BytesIO()
    configure_logs("console", stream=stream, clock=FakeClock())
    structlog.get_logger("l").warning("disk is slow", seconds=3)
    text = stream.getvalue().decode()
    assert "disk is slow" in text
    assert "seconds=3" in text
    assert "\x1b" not in text


HOSTILE = "job\n2026-01-01T00:00:00Z [error] forged\r\x1b[2J\x9b31m\u202e\u2028end"


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        pytest.param(HOSTILE, {}, id="in-a-message"),
        pytest.param("refused", {"name": HOSTILE}, id="in-a-value"),
        pytest.param("refused", {"name": HOSTILE.replace(" ", "")}, id="in-a-value-without-a-blank"),
        pytest.param("refused", {"names": [HOSTILE]}, id="in-a-list"),
        pytest.param("refused", {"error": ValueError(HOSTILE)}, id="in-an-exception-that-is-a-value"),
    ],
)
@pytest.mark.parametrize("shape", ["json", "console"])
def test_nobody_writes_a_line_of_their_own(shape: Any, event: str, fields: dict[str, Any]) -> None:
    """Names and messages of others stay inside their line and drive no terminal."""
    stream = io.BytesIO()
    configure_logs(shape, stream=stream, clock=FakeClock())
    structlog.get_logger("l").info(event, **fields)
    text = stream.getvalue().decode()

    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert not {"\x1b", "\r"} & set(text)
    assert shape == "json" or text[:-1].isprintable()


def test_a_traceback_keeps_its_lines_but_not_at_the_margin() -> None:
    """What the exception says cannot pass for a line of the log."""
    stream = io.BytesIO()
    configure_logs("console", stream=stream, clock=FakeClock())
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        structlog.get_logger("l").exception("failed")
    first, *others = stream.getvalue().decode().splitlines()

    assert "failed" in first
    assert any("forged" in line for line in others)
    assert all(line.startswith("    ") and line.isprintable() for line in others if line)


def test_configuring_again_replaces(stream: io.BytesIO) -> None:
    """Two calls do not double the lines of the standard library."""
    again = io.BytesIO()
    configure_logs("json", stream=again)
    logging.getLogger("lib").warning("once")
    assert stream.getvalue() == b""
    assert len(lines(again)) == 1
