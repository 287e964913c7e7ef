"""Restarts parts of a process that fail on a bug; other parts continue."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from kqueue.clock import Clock
from kqueue.isolation import isolated, isolated_logged

_log = structlog.get_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a part that failed is started again; doubles."""
_WELL_AFTER = 300.0
"""Seconds after which a running part counts as healthy, so that its next pause is the first again."""


class Supervisor:
    """Runs parts, and records which of them are down."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._down: dict[str, str] = {}

    @property
    def down(self) -> dict[str, str]:
        """Parts that have failed and are not restarted yet, with the reason."""
        return dict(self._down)

    async def run(self, name: str, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part until it ends by itself, or until cancelled.  An exception starts it again after a pause."""
        pause = FIRST_PAUSE
        while True:
            started = self._clock.monotonic()
            with isolated() as run:
                await part()
                return
            assert run.error is not None, "the part has ended by an error"
            if self._clock.monotonic() - started > _WELL_AFTER:
                pause = FIRST_PAUSE
            self._down[name] = _reason(run.error)
            failed = "a part failed on a bug, it is started again"
            _log.error(failed, part=name, seconds=pause, exc_info=run.error)
            try:
                await self._clock.sleep(pause)
            finally:
                self._down.pop(name, None)
            pause = min(LONGEST_PAUSE, 2 * pause)


def guarded(what: str, act: Callable[[], object]) -> None:
    """Call a function on which nothing else depends; log an error of it."""
    with isolated_logged(_log, "a step failed on a bug, the others go on", step=what):
        act()


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
