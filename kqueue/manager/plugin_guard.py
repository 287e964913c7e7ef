"""The boundary around plugins: it measures their calls, turns their errors into ours, and sets slow plugins aside."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import structlog

from kqueue.clock import Clock, utc_text
from kqueue.core.hooks import failure
from kqueue.core.plugins import Point
from kqueue.errors import PluginError
from kqueue.isolation import isolated
from kqueue.runtime.deadline import within

_log = structlog.get_logger(__name__)

LONGEST_CALL = 0.05
"""Seconds that a call without `async` may hold the event loop."""
MOST_LONG_CALLS = 3
"""So many long calls within `ASIDE_FOR` set a plugin aside."""
ASIDE_FOR = timedelta(minutes=10)
LONGEST_WAIT = 10.0
"""Seconds that an `async` call may take."""
_QUIET = 10.0
"""Seconds between two logged failures of one plugin."""

T = TypeVar("T")


class PluginGuard:
    """Calls plugins.  Plugins are called in the leader only; elsewhere each of them agrees."""

    def __init__(
        self,
        ignores_errors: Mapping[str, bool],
        *,
        clock: Clock,
        leads: Callable[[], bool],
        count: Callable[[str, str, float], None],
    ) -> None:
        """`ignores_errors` says by plugin whether its failures count as agreement; `count` gets the plugin, the point
        and the seconds of each call.
        """
        self._ignores_errors, self._clock, self._leads, self._count = ignores_errors, clock, leads, count
        self._long: dict[str, deque[datetime]] = {}
        """By plugin: the times of its last long calls."""
        self._aside: dict[str, datetime] = {}
        """By plugin: until when it is not called."""
        self._logged: dict[str, float] = {}
        """By plugin: when its last failure was logged."""

    def ask(self, plugin: str, point: Point, agreed: T, question: Callable[..., T], *about: Any) -> T:
        """Call a plain method; see `kqueue.core.hooks.Asking`."""
        if not self._leads():
            return agreed
        aside = self._set_aside(plugin) if point is not Point.UNRESERVE else None
        if aside is not None:
            return self._failed(plugin, point, agreed, aside)
        began = self._clock.monotonic()
        with isolated() as call:
            answer = question(*about)
        self._measure(plugin, point, self._clock.monotonic() - began)
        if call.error is not None:
            return self._failed(plugin, point, agreed, failure(plugin, call.error), cause=call.error)
        return answer

    async def ask_async(
        self, plugin: str, point: Point, agreed: T, question: Callable[..., Awaitable[T]], *about: Any
    ) -> T:
        """Await an async method for ten seconds at most; return the answer, `agreed` or raise as `ask` does."""
        if not self._leads():
            return agreed
        aside = self._set_aside(plugin)
        if aside is not None:
            return self._failed(plugin, point, agreed, aside)
        began = self._clock.monotonic()
        with isolated() as call:
            answer = await within(self._clock, LONGEST_WAIT, _awaited(question, about))
        self._count(plugin, point.value, self._clock.monotonic() - began)
        error = call.error
        if isinstance(error, TimeoutError):
            error = TimeoutError(f"no answer within {LONGEST_WAIT:.0f} s")
        if error is not None:
            return self._failed(plugin, point, agreed, failure(plugin, error), cause=error)
        return answer

    def _set_aside(self, plugin: str) -> PluginError | None:
        """Return the error of a plugin that is not called now; None: it is called."""
        until = self._aside.get(plugin)
        if until is None:
            return None
        if until > self._clock.now():
            return _aside_error(plugin, until)
        del self._aside[plugin]
        return None

    def _measure(self, plugin: str, point: Point, seconds: float) -> None:
        self._count(plugin, point.value, seconds)
        if seconds <= LONGEST_CALL:
            return
        now = self._clock.now()
        _log.warning("a plugin blocked the event loop", plugin=plugin, point=point.value, seconds=round(seconds, 3))
        long = self._long.setdefault(plugin, deque(maxlen=MOST_LONG_CALLS))
        long.append(now)
        if len(long) == MOST_LONG_CALLS and now - long[0] <= ASIDE_FOR:
            self._aside[plugin] = now + ASIDE_FOR
            long.clear()
            _log.error("a plugin is set aside, its calls take too long", plugin=plugin, until=utc_text(now + ASIDE_FOR))

    def _failed(self, plugin: str, point: Point, agreed: T, error: PluginError, *, cause: Exception | None = None) -> T:
        if cause is not None and self._may_log(plugin):
            _log.error("a plugin failed", plugin=plugin, point=point.value, exc_info=cause)
        if self._ignores_errors.get(plugin, False):
            return agreed
        raise error from cause

    def _may_log(self, plugin: str) -> bool:
        """Whether the last logged failure of a plugin is long ago: a broken one may fail for each workload."""
        now, last = self._clock.monotonic(), self._logged.get(plugin)
        if last is not None and now - last < _QUIET:
            return False
        self._logged[plugin] = now
        return True


def _aside_error(plugin: str, until: datetime) -> PluginError:
    why = f"its calls took more than {LONGEST_CALL * 1000:.0f} ms, it is set aside until {utc_text(until)}"
    return failure(plugin, TimeoutError(why))


async def _awaited(question: Callable[..., Awaitable[T]], about: tuple[Any, ...]) -> T:
    return await question(*about)
