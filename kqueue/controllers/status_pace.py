"""The pauses between writes of a status of which only counts change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GROWTH: Final = 1.5
"""Each pause is so many times the one before."""
LONGEST: Final = 10.0
"""The longest pause, in shortest ones."""


@dataclass(slots=True)
class StatusPace:
    """The times of the writes of one status.

    A change of its state is written at once.  While only counts change, the pauses grow from `window`, so that a gang
    of a thousand pods that starts slowly costs few writes.  They begin anew after a change of the state, and after a
    time without a write.
    """

    at: float = float("-inf")
    """The time of the last write."""
    _repeated: int = 0
    """Writes of counts alone, one after the other."""

    def left(self, now: float, window: float) -> float:
        """Return the seconds until counts may be written again; 0 or less: now."""
        return self.at + self._pause(window) - now

    def note(self, now: float, window: float, *, state: bool) -> None:
        """Note a write; `state`: it was not of counts alone."""
        rested = now - self.at > 2 * self._pause(window)
        self._repeated = 0 if state or rested else self._repeated + 1
        self.at = now

    def _pause(self, window: float) -> float:
        return window * min(LONGEST, GROWTH**self._repeated)
