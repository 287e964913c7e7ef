"""Workloads with quota that wait for their second pass: they lost hosts, or their domains are chosen after checks."""

from __future__ import annotations

from collections.abc import Callable

SECOND_PASS_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the first, second, ... try; the last value applies to all further tries.  Source: the compatible
system.
"""


class SecondPass:
    """Workloads with quota that the scheduling loop must try again, each after a pause that grows with its tries.

    There is a pause before the first try, too, so that failures at the same time are handled together.
    """

    def __init__(self) -> None:
        self.later: Callable[[str, float], None] = lambda _key, _seconds: None
        """Called to request `ready(key)` after a number of seconds; repeated requests for a key cause one call."""
        self._tries: dict[str, int] = {}
        self._ready: dict[str, None] = {}

    def ask(self, key: str) -> None:
        """Request a try of the workload. A repeated request changes nothing while the workload waits."""
        if key not in self._tries:
            self._tries[key] = 0
            self._wait(key)

    def ready(self, key: str) -> bool:
        """Mark a workload whose pause is over; return whether it still waits for a try."""
        if key in self._tries:
            self._ready[key] = None
        return key in self._ready

    def take(self) -> list[str]:
        """Return workloads whose pause is over, in the order of their times. The caller must drop or fail each."""
        taken = list(self._ready)
        self._ready.clear()
        return taken

    def failed(self, key: str) -> None:
        """Wait for another try after a longer pause, because the try failed."""
        if key in self._tries:
            self._tries[key] += 1
            self._wait(key)

    def drop(self, key: str) -> None:
        """Forget a workload that needs no further try."""
        self._tries.pop(key, None)
        self._ready.pop(key, None)

    def _wait(self, key: str) -> None:
        self.later(key, SECOND_PASS_DELAYS[min(self._tries[key], len(SECOND_PASS_DELAYS) - 1)])
