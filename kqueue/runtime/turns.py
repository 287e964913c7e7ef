"""Spreads requests over time while more urgent ones run."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.clock import Clock

_FOLLOWS_WITHIN = 0.5
"""Seconds after urgent work within which more urgent work is expected."""
_OVER_AFTER = 5.0
"""Seconds without urgent work after which callers need not wait for their assigned moments."""


class Turns:
    """Assigns moments at intervals; all at once while no urgent work runs."""

    def __init__(self, clock: Clock, quiet_for: Callable[[], float], *, apart: float = 0.1, burst: int = 40) -> None:
        """`quiet_for` returns the seconds since urgent work ran, 0 while it runs.  `apart` is the seconds
        between two moments, `burst` the moments at once after a pause.
        """
        self._clock, self._quiet_for, self._apart = clock, quiet_for, apart
        self._burst = burst * apart
        self._next_at = float("-inf")

    @property
    def are_over(self) -> bool:
        """Whether urgent work has ended, so that callers need not wait for their assigned moments."""
        return self._quiet_for() >= _OVER_AFTER

    def take(self) -> float:
        """Assign a moment to the caller; return the seconds until then, 0: now."""
        if self.are_over:
            self._next_at = float("-inf")
        if self._quiet_for() >= _FOLLOWS_WITHIN:
            return 0.0
        now = self._clock.monotonic()
        self._next_at = max(self._next_at, now - self._burst) + self._apart
        return max(0.0, self._next_at - now)
