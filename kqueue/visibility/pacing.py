"""Computes long answers in short pieces, with turns of the event loop between them."""

from __future__ import annotations

from kqueue.clock import Clock

STRETCH_SECONDS = 0.008
"""Time between two yields of a view to the event loop: with its last step well below the 20 ms of a stall."""


class RequestPace:
    """Yields to the event loop between small steps of a long answer."""

    def __init__(self, clock: Clock, *, stretch: float = STRETCH_SECONDS) -> None:
        self._clock, self._stretch = clock, stretch
        self._since = clock.monotonic()

    async def step(self) -> None:
        """Yield to other tasks if the last yield was long enough ago; call it before each step."""
        if self._clock.monotonic() - self._since >= self._stretch:
            await self._clock.sleep(0)
            self._since = self._clock.monotonic()
