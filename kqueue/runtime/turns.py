"""Turns for what may wait while something more urgent is under way."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.clock import Clock


class Turns:
    """Hands out moments that lie apart from each other; all at once while nothing urgent is under way."""

    def __init__(self, clock: Clock, is_busy: Callable[[], bool], *, apart: float = 0.1, burst: int = 40) -> None:
        """`is_busy` says whether something urgent is under way; `apart` is the seconds between two moments, `burst` how
        many of them may come at once after a pause.
        """
        self._clock, self._is_busy, self._apart = clock, is_busy, apart
        self._burst = burst * apart
        self._next_at = float("-inf")

    @property
    def are_needed(self) -> bool:
        """Whether something urgent is under way; else nobody need wait for a moment that was handed out before."""
        return self._is_busy()

    def take(self) -> float:
        """Seconds until the moment that the caller gets; 0: now."""
        if not self.are_needed:
            self._next_at = float("-inf")
            return 0.0
        now = self._clock.monotonic()
        self._next_at = max(self._next_at, now - self._burst) + self._apart
        return max(0.0, self._next_at - now)
