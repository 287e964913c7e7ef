"""The event loop and what can hold it up: which loop, which errors it reports, and the garbage collector.

With 100,000 pods kept, one full collection of CPython stops everything for up to 3.4 s if they are dictionaries, 34 ms
if they are slotted views, and not at all once they are frozen.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import structlog

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
