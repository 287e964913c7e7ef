"""Pauses after failures: growing, capped, with jitter."""

from __future__ import annotations

import random


def pause_after(failures: int, *, base: float, cap: float, chance: random.Random) -> float:
    """Return the seconds to wait after the `failures`-th failure in a row (the first is 1).

    `base` doubles with each failure up to `cap`; the pause is a random part of that, between half and all, so that
    processes that failed together do not retry together.
    """
    return min(cap, base * 2.0 ** min(failures - 1, 60)) * chance.uniform(0.5, 1.0)


class Backoff:
    """Counts the consecutive failures of an operation that is retried."""

    def __init__(self, *, base: float, cap: float, chance: random.Random) -> None:
        self._base, self._cap, self._chance = base, cap, chance
        self.failures = 0

    def next(self, at_least: float | None = None) -> float:
        """Count a failure and return the pause; it is added to `at_least`, the pause that a server asked for."""
        self.failures += 1
        pause = pause_after(self.failures, base=self._base, cap=self._cap, chance=self._chance)
        return pause if at_least is None else at_least + pause

    def reset(self) -> None:
        """Forget the failures after a success."""
        self.failures = 0
