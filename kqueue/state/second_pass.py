"""Workloads that lost hosts and wait for their second pass."""

from __future__ import annotations

from collections.abc import Callable

SECOND_PASS_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the first, the second ... try; the last one repeats.  Source: the compatible system."""


class SecondPass:
    """Admitted workloads that the scheduling loop must look at again: each after a pause that grows with its tries.

    The pause comes before the first try, too, so that failures of one moment are handled together.
    """

    def __init__(self) -> None:
        self.later: Callable[[str, float], None] = lambda _key, _seconds: None
        """Told to call `ready(key)` in so many seconds; once per key, also when it is told twice."""
        self._tries: dict[str, int] = {}
        self._ready: dict[str, None] = {}

    def ask(self, key: str) -> None:
        """The workload needs a look.  Asking again while it waits changes nothing."""
        if key not in self._tries:
            self._tries[key] = 0
            self._wait(key)

    def ready(self, key: str) -> bool:
        """Its pause is over.  False: it was dropped meanwhile."""
        if key in self._tries:
            self._ready[key] = None
        return key in self._ready

    def take(self) -> list[str]:
        """Return workloads whose pause is over, in the order of their times. The caller must drop or fail each."""
        taken = list(self._ready)
        self._ready.clear()
        return taken

    def failed(self, key: str) -> None:
        """The look was in vain: another one follows after a longer pause."""
        if key in self._tries:
            self._tries[key] += 1
            self._wait(key)

    def drop(self, key: str) -> None:
        """No look is needed any more."""
        self._tries.pop(key, None)
        self._ready.pop(key, None)

    def _wait(self, key: str) -> None:
        self.later(key, SECOND_PASS_DELAYS[min(self._tries[key], len(SECOND_PASS_DELAYS) - 1)])
