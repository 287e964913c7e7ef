"""The event loop and what can hold it up: which loop, how late it runs, and the garbage collector.

With 100,000 pods kept, one full collection of CPython stops everything for up to 3.4 s if they are dictionaries, 34 ms
if they are slotted views, and not at all once they are frozen.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import structlog

from kqueue.clock import Clock

T = TypeVar("T")

COLLECTOR_THRESHOLDS = (50_000, 20, 100)
"""Young objects before a collection, and how many of those make an older one: rarer than CPython's (700, 10, 10),
because most of what we make per event dies by reference count."""

_HANDLE_CLOSED = "the handler is closed"
"""The end of uvloop's message when a connection was closed before it was written to."""

_log = structlog.get_logger(__name__)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on uvloop where it is installed (30 % less CPU per event under TLS), else on asyncio's own loop.

    The garbage collector runs from here on.  Where it was disabled, it never looks at what there is by now: the first
    collection would go through all that was imported, which takes 40 ms and finds nothing.
    """
    if not gc.isenabled():
        gc.freeze()
    gc.enable()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.get_loop().set_exception_handler(on_loop_error)
        return runner.run(main)


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the event loop reports: a connection that the other side ended at debug level, all else as an error.

    Whoever used the connection gets the error too, and says what it means; the loop only knows that bytes were lost.
    """
    error = context.get("exception")
    if isinstance(error, BaseException) and is_lost_connection(context, error):
        _log.debug("a connection was ended by the other side", error=str(error) or type(error).__name__)
        return
    loop.default_exception_handler(context)


def is_lost_connection(context: Mapping[str, Any], error: BaseException) -> bool:
    """Whether `context`, as the loop reports it, is about a connection that broke, and not about a bug of ours.

    A task whose error nobody reads is a bug, whatever the error is.  uvloop reports a write to a connection that was
    closed in the meantime as a RuntimeError.
    """
    if isinstance(context.get("task") or context.get("future"), asyncio.Task):
        return False
    if isinstance(error, ssl.SSLCertVerificationError):
        return False
    if isinstance(error, ConnectionError | ssl.SSLError | asyncio.IncompleteReadError):
        return True
    is_of_transport = "transport" in context or "protocol" in context
    return is_of_transport and (
        isinstance(error, TimeoutError) or (isinstance(error, RuntimeError) and _HANDLE_CLOSED in str(error))
    )


def loop_name() -> str:
    """`uvloop` or `asyncio`: which loop `run` would use."""
    return "asyncio" if _loop_factory() is None else "uvloop"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def tune_collector() -> None:
    """Take what starting up has made out of all collections, and collect less often; call once, before the watches.

    Nothing is collected first: 50 ms for a handful of objects.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def freeze_after_sync() -> None:
    """Take everything that lives out of later collections; call when a cache has been filled, and filled anew.

    Only the youngest objects are collected first: a full collection at this point would hold the loop for 60 ms with
    100,000 pods, to find next to nothing.  Frozen objects still die by reference count.
    """
    gc.collect(0)
    gc.freeze()


class CollectorPauses:
    """Reports how long each garbage collection stopped the process."""

    def __init__(self, on_pause: Callable[[int, float], None]) -> None:
        """`on_pause` gets (generation, seconds); it is called inside the collector and must be quick."""
        self._on_pause = on_pause
        self._started = 0.0

    def __enter__(self) -> CollectorPauses:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started = time.perf_counter()
        else:
            self._on_pause(info["generation"], time.perf_counter() - self._started)


class LoopLag:
    """A heartbeat: how much later than asked the loop woke us is how long something held it."""

    def __init__(
        self,
        *,
        clock: Clock,
        interval: float = 0.25,
        limit: float = 0.050,
        on_lag: Callable[[float], None] | None = None,
    ) -> None:
        """Times in seconds.  A lag above `limit` is logged; `on_lag` gets every one."""
        self._clock, self._interval, self._limit, self._on_lag = clock, interval, limit, on_lag
        self.longest = 0.0
        """The longest lag since the start or the last `reset`."""

    def reset(self) -> None:
        """Forget the longest lag."""
        self.longest = 0.0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            asked = self._clock.monotonic() + self._interval
            await self._clock.sleep(self._interval)
            lag = max(0.0, self._clock.monotonic() - asked)
            self.longest = max(self.longest, lag)
            if lag > self._limit:
                _log.warning("event loop was held up", seconds=round(lag, 3), limit=self._limit)
            if self._on_lag is not None:
                self._on_lag(lag)
