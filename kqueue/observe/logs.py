"""Logs: a constant message, variables as keys, one bounded line each, to stderr.

Modules say `_log = structlog.get_logger(__name__)` and `_log.info("workload admitted", workload=key)`.  One pipeline
serves structlog's loggers and the standard library's; format, level and stream can change while the process runs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NoReturn, get_args

import msgspec
import structlog

from kqueue.clock import Clock, SystemClock, utc_text
from kqueue.config.names import nearest
from kqueue.errors import ConfigError
from kqueue.printable import printable

LogFormat = Literal["json", "console"]

LINE_BYTES_MAX = 8192
"""Limit of a line in bytes.  A placement error with every leaf of a big cluster has hundreds of kilobytes."""

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_NOISY = ("aiohttp.access", "aiohttp.server", "asyncio", "kubernetes_asyncio")
"""Libraries whose debug and info lines only repeat what our lines report."""

_FIRST_KEYS = ("time", "level", "logger", "event")
_KEYS_MAX = 64

Fields = MutableMapping[str, Any]


@dataclass(slots=True)
class _Sink:
    """The output of all lines.  One per process, so that loggers made early follow later changes."""

    level: int
    render: Callable[[dict[str, Any]], bytes]
    stream: BinaryIO | None  # None: whatever sys.stderr is when a line is written
    clock: Clock
    lost: int = 0

    def now(self) -> str:
        """Return the present time as text, for the beginning of a line."""
        return utc_text(self.clock.now(), digits=3)

    def write(self, fields: dict[str, Any]) -> None:
        """Write one line.  A full disk or a closed pipe must not stop the controller: failed lines are counted."""
        line = self.render(fields)
        try:
            stream = self.stream or sys.stderr.buffer
            stream.write(line + b"\n")
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, full, or no stderr at all
            self.lost += 1


class Logger(structlog.BoundLoggerBase):
    """The logger that `structlog.get_logger` returns.  Lines below the level cost one comparison."""

    def debug(self, event: str, /, **fields: Any) -> None:
        """Log a detail that helps to find a bug."""
        if _sink.level <= logging.DEBUG:
            self._line("debug", event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Log a fact that an operator may want to know later."""
        if _sink.level <= logging.INFO:
            self._line("info", event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Log a fault that may end by itself."""
        if _sink.level <= logging.WARNING:
            self._line("warning", event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """Log a fault that an operator should look into."""
        if _sink.level <= logging.ERROR:
            self._line("error", event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Log as `error`, with the traceback of the exception that is being handled."""
        self.error(event, **{"exc_info": True} | fields)

    def _line(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Write a line through structlog's pipeline, or directly (a third of the cost) if it would only write."""
        if self._context or self._processors is not _PIPELINE or _PIPELINE[-1] is not _finish:
            self._proxy_to_logger(level, event, **fields)
        else:
            _write(self._logger, level, event, structlog.contextvars.get_contextvars(), fields)


def configure_logs(
    format: LogFormat = "json",  # noqa: A002  (the word users know)
    level: str = "info",
    *,
    stream: BinaryIO | None = None,
    clock: Clock | None = None,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> None:
    """Send all logs, ours and the standard library's, as bounded lines to `stream` (None: stderr).

    May be called again: replaces the former configuration.

    Raises:
        ConfigError: unknown format or level.
    """
    if format not in get_args(LogFormat):
        raise ConfigError(f"log format: must be json or console (found {format!r})")
    set_level(level)
    _sink.stream, _sink.clock = stream, clock or SystemClock()
    _sink.render = _JsonLine(line_bytes_max) if format == "json" else _ConsoleLine(line_bytes_max, stream)
    structlog.configure(
        processors=_PIPELINE,
        wrapper_class=Logger,
        logger_factory=_name_of,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _FromStandardLibrary)]:
        root.removeHandler(handler)
    root.addHandler(_FromStandardLibrary())
    logging.captureWarnings(True)


def set_level(level: str) -> None:
    """Change the level of all loggers at once: debug, info, warning or error.

    Raises:
        ConfigError: unknown level.
    """
    name = level.lower()
    if name not in _LEVELS:
        raise ConfigError(f"log level: must be one of {', '.join(_LEVELS)} (found {level!r}){nearest(name, _LEVELS)}")
    _sink.level = _LEVELS[name]
    logging.getLogger().setLevel(_sink.level)
    for library in _NOISY:
        logging.getLogger(library).setLevel(max(_sink.level, logging.WARNING))


def current_level() -> str:
    """Return the current level."""
    return next(name for name, number in _LEVELS.items() if number == _sink.level)


# --- from the two kinds of loggers to the sink


def _name_of(*names: str) -> str:
    """Return structlog's logger below the bound one: only a name."""
    return names[0] if names else ""


def _finish(logger: object, level: str, fields: Fields) -> NoReturn:
    """Write the line and pass nothing on to structlog: the last step of the pipeline."""
    _write(logger, level, fields.pop("event", ""), fields, {})
    raise structlog.DropEvent


_PIPELINE: list[Any] = [structlog.contextvars.merge_contextvars, _finish]


def _write(logger: object, level: str, event: str, context: Fields, fields: Fields) -> None:
    line = {"time": _sink.now(), "level": level, "logger": str(logger), "event": "", **context, **fields}
    line["level"], line["event"] = level, event  # these keys keep their meaning, whatever fields have the same names
    exception = line.pop("exc_info", None)
    if exception:
        line["exception"] = _traceback(exception)
    _sink.write(line)


class _FromStandardLibrary(logging.Handler):
    """Writes records of the standard library's `logging` in the same format."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a record that cannot be formatted is shown as it is."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = f"{record.msg} {record.args!r}"
        line = {"time": _sink.now(), "level": record.levelname.lower(), "logger": record.name, "event": message}
        if record.exc_info:
            line["exception"] = _traceback(record.exc_info)
        _sink.write(line)


def _traceback(exc_info: Any) -> str:
    if exc_info is True:
        exc_info = sys.exc_info()
    elif isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    return logging.Formatter().formatException(exc_info) if exc_info and exc_info[0] else ""


# --- from fields to a line


class _JsonLine:
    """Return one JSON object of at most `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = max(bytes_max, 512)  # room for the first keys

    def __call__(self, fields: dict[str, Any]) -> bytes:
        line = _encoded(fields)
        if len(line) <= self._bytes_max:
            return line
        for characters in (2048, 512, 128, 32):
            line = _encoded(_shortened(fields, characters))
            if len(line) <= self._bytes_max:
                return line
        first = {key: fields[key] for key in _FIRST_KEYS if key in fields}
        return _encoded(_shortened(first, 32) | {"dropped_keys": len(fields) - len(first)})


class _ConsoleLine:
    """Return a line for people: aligned, in colour on a terminal, truncated at `bytes_max`.

    Values are escaped and tracebacks are indented, so no value controls the terminal or looks like another line.
    """

    def __init__(self, bytes_max: int, stream: BinaryIO | None) -> None:
        self._bytes_max = max(bytes_max, 512)
        colors = bool((stream or sys.stderr).isatty())
        self._render = structlog.dev.ConsoleRenderer(
            colors=colors, pad_event_to=36, sort_keys=False, timestamp_key="time", force_colors=colors
        )

    def __call__(self, fields: dict[str, Any]) -> bytes:
        short = _shortened(fields, 4 * self._bytes_max)
        try:
            text = str(self._render(None, "", {key: _harmless(key, value) for key, value in short.items()}))
        except Exception as e:  # noqa: BLE001  (values format themselves: any of them may raise)
            text = f"{printable(short.get('event'))} (line not printable: {type(e).__name__})"
        line = text.encode("utf-8", "backslashreplace")
        if len(line) <= self._bytes_max:
            return line
        note = f"\x1b[0m … ({len(line)} bytes)" if b"\x1b" in line else f" … ({len(line)} bytes)"
        tail = note.encode()
        return line[: self._bytes_max - len(tail)].decode("utf-8", "ignore").encode() + tail


def _harmless(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    if key == "exception":
        return "\n".join(f"    {printable(line)}" for line in value.split("\n"))
    return printable(value)


def _encoded(fields: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(fields)
    except Exception:  # noqa: BLE001  (any value may be logged, and logging must not fail)
        return msgspec.json.encode({str(key): _as_text(value) for key, value in fields.items()})


def _as_text(value: object) -> str:
    try:
        text = value if isinstance(value, str) else str(value) if isinstance(value, BaseException) else repr(value)
    except Exception as e:  # noqa: BLE001  (a value's own repr may raise anything)
        text = f"<{type(value).__name__} without a repr: {type(e).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()


_ENCODER = msgspec.json.Encoder(enc_hook=_as_text)


def _shortened(fields: dict[str, Any], characters: int) -> dict[str, Any]:
    """Truncate each value to `characters`, with the count of removed characters; tracebacks keep their end."""
    short: dict[str, Any] = {}
    for key, value in list(fields.items())[:_KEYS_MAX]:
        if isinstance(value, bool | int | float | None):
            short[key] = value if not isinstance(value, int) or abs(value) < 10**20 else _as_text(value)[:characters]
            continue
        text = _as_text(value)
        if len(text) <= characters:
            short[key] = text
        elif key == "exception":
            short[key] = f"({len(text) - characters} characters cut) … {text[-characters:]}"
        else:
            short[key] = f"{text[:characters]} … ({len(text) - characters} characters cut)"
    if len(fields) > _KEYS_MAX:
        short["dropped_keys"] = len(fields) - _KEYS_MAX
    return short


_sink = _Sink(level=logging.INFO, render=_JsonLine(LINE_BYTES_MAX), stream=None, clock=SystemClock())
