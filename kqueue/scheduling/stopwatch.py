"""The time that a cycle spends in each phase."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.core.decision import Phase


class Stopwatch:
    """Measures the time of each phase."""

    __slots__ = ("_now", "_phase", "_since", "seconds")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._phase, self._since = now, Phase.SNAPSHOT, now()
        self.seconds = dict.fromkeys(Phase, 0.0)

    def enter(self, phase: Phase) -> None:
        """Begin another phase."""
        now = self._now()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def stop(self) -> None:
        """Interrupt or end the phase."""
        self.enter(self._phase)

    def go_on(self) -> None:
        """Continue the phase; the time since the interruption counts for no phase."""
        self._since = self._now()
