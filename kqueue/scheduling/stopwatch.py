"""The time that work of several phases spends in each of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, TypeVar

P = TypeVar("P", bound=StrEnum)


class Stopwatch(Generic[P]):
    """Measures the time of each phase."""

    __slots__ = ("_now", "_phase", "_since", "seconds")

    def __init__(self, now: Callable[[], float], first: P) -> None:
        self._now, self._phase, self._since = now, first, now()
        self.seconds = dict.fromkeys(type(first), 0.0)

    def enter(self, phase: P) -> None:
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
