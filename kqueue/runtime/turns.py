"""Turns for what may wait while something more urgent is under way."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.clock import Clock

_FOLLOWS_WITHIN = 0.5
"""Seconds after something urgent within which more of it is taken to follow."""
_OVER_AFTER = 5.0
"""Seconds without anything urgent after which moments that were handed out need not be waited for."""


class Turns:
    """Hands out moments that lie apart from each other; all at once while nothing urgent is under way."""

    def __init__(self, clock: Clock, quiet_for: Callable[[], float], *, apart: float = 0.1, burst: int = 40) -> None:
        """`quiet_for` returns the seconds since something urgent was under way, 0 while it is.  `apart` is the seconds
        between two moments, `burst` how many of them may come at once after a pause.
        """
        self._clock, self._quiet_for, self._apart = clock, quiet_for, apart
        self._burst = burst * apart
        self._next_at = float("-inf")

    @property
    def are_over(self) -> bool:
        """Whether what is urgent has ended, so that moments handed out before need not be waited for."""
        return self._quiet_for() >= _OVER_AFTER

    def take(self) -> float:
        """Seconds until the moment that the caller gets; 0: now."""
        if self.are_over:
            self._next_at = float("-inf")
        if self._quiet_for() >= _FOLLOWS_WITHIN:
            return 0.0
        now = self._clock.monotonic()
        self._next_at = max(self._next_at, now - self._burst) + self._apart
        return max(0.0, self._next_at - now)
