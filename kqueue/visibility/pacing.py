"""Computes long answers in short pieces, with turns of the event loop between them."""

from __future__ import annotations

from kqueue.clock import Clock

STRETCH_SECONDS = 0.008
"""How long a view may work until it lets others have a turn: with its last step well below the 20 ms of a stall."""


class RequestPace:
    """Asked before each small step of a long answer."""

    def __init__(self, clock: Clock, *, stretch: float = STRETCH_SECONDS) -> None:
        self._clock, self._stretch = clock, stretch
        self._since = clock.monotonic()

    async def step(self) -> None:
        """Let others have a turn when the last one is long enough ago."""
        if self._clock.monotonic() - self._since >= self._stretch:
            await self._clock.sleep(0)
            self._since = self._clock.monotonic()
