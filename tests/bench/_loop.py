"""Which event loop a bench runs on, and how long something held it."""

from __future__ import annotations

from kqueue.clock import Clock


def loop_name() -> str:
    """`uvloop` or `asyncio`: which loop `kqueue.runtime.loop.run` uses."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


class LoopLag:
    """A heartbeat: how much later than asked the loop woke it is how long something held the loop."""

    def __init__(self, *, clock: Clock, interval: float) -> None:
        """`interval` in seconds."""
        self._clock, self._interval = clock, interval
        self.longest = 0.0
        """The longest lag in seconds since the start or the last `reset`."""

    def reset(self) -> None:
        """Forget the longest lag."""
        self.longest = 0.0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            asked = self._clock.monotonic() + self._interval
            await self._clock.sleep(self._interval)
            self.longest = max(self.longest, self._clock.monotonic() - asked)
