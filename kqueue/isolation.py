"""One boundary for faults: an error in one object's work ends there, and the work of all other objects goes on.

This module logs nothing by itself, so that rooms without a log may use it: the caller passes a function for the error,
or its own log.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

OnError = Callable[[Exception], object]
"""Called with the error while it is being handled: `log.exception` in it has the traceback."""


class Log(Protocol):
    """A log that can write the error that is being handled."""

    def exception(self, event: str, /, **fields: Any) -> Any:
        """Write one line with the traceback of that error."""
        ...


class Isolation:
    """A `with` block in which an error ends the block and nothing else, in plain and in async functions.

    Only an `Exception` is stopped.  Errors that end a task or the process pass through: `asyncio.CancelledError`,
    `KeyboardInterrupt`, `SystemExit`, `GeneratorExit`.  An error that `on_error` raises goes on, too.

    The traceback of an error refers to the function around the block.  So an error that this function reads from
    `error` is freed by the garbage collector, not at once: where errors are common, pass `on_error`.

    A block costs 0.2 us, and 0.3 us with a log; a plain `try` costs next to nothing.  So the few loops that run for
    every watch event or every workload have a plain `try`; `tests/unit/test_house.py` lists them.
    """

    __slots__ = ("_on_error", "error")

    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error
        self.error: Exception | None = None
        """The error that ended the block; None before, and when the block ended by itself."""

    def __enter__(self) -> Isolation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        self._handle(error)
        return True

    def _handle(self, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(error)


class _Logged(Isolation):
    """The same with a log line; without a function for each block, which would take as long as the block itself."""

    __slots__ = ("_event", "_fields", "_log")

    def __init__(self, log: Log, event: str, fields: dict[str, Any]) -> None:
        self._log, self._event, self._fields = log, event, fields
        self.error = None

    def _handle(self, error: Exception) -> None:
        self._log.exception(self._event, **self._fields)


def isolated(on_error: OnError | None = None) -> Isolation:
    """Stop errors of the `with` block; call `on_error` with the error, or read `error` after the block."""
    return Isolation(on_error)


def isolated_logged(log: Log, event: str, /, **fields: Any) -> Isolation:
    """Stop errors of the `with` block; log the error as `event` with these fields, at level error with traceback."""
    return _Logged(log, event, fields)
