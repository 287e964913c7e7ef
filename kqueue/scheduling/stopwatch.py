"""Where the time of a cycle goes."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.core.decision import Phase


class Stopwatch:
    """How long a cycle is in each phase."""

    __slots__ = ("_now", "_phase", "_since", "seconds")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._phase, self._since = now, Phase.SNAPSHOT, now()
        self.seconds = dict.fromkeys(Phase, 0.0)

    def enter(self, phase: Phase) -> None:
        """Go over to another phase."""
        now = self._now()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def stop(self) -> None:
        """The phase is interrupted, or over."""
        self.enter(self._phase)

    def go_on(self) -> None:
        """Continue the phase; the time since the interruption counts for no phase."""
        self._since = self._now()
