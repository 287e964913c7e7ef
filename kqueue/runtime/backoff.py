"""How long to wait after failures: growing, capped, jittered."""

from __future__ import annotations

import random


def pause_after(failures: int, *, base: float, cap: float, chance: random.Random) -> float:
    """Seconds to wait after the `failures`-th failure in a row (the first is 1).

    Between half and all of `base` doubled for each further failure, and never above `cap`: processes that failed
    together do not come back together.
    """
    return min(cap, base * 2.0 ** min(failures - 1, 60)) * chance.uniform(0.5, 1.0)


class Backoff:
    """The failures in a row of one thing that is tried again and again."""

    def __init__(self, *, base: float, cap: float, chance: random.Random) -> None:
        self._base, self._cap, self._chance = base, cap, chance
        self.failures = 0

    def next(self, at_least: float | None = None) -> float:
        """Note a failure and return the pause; `at_least` is what a server asked for, and is exceeded by the jitter."""
        self.failures += 1
        pause = pause_after(self.failures, base=self._base, cap=self._cap, chance=self._chance)
        return pause if at_least is None else at_least + pause

    def reset(self) -> None:
        """It went well."""
        self.failures = 0
