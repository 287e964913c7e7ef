"""Leadership that one process loses and regains, at any turn of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

from kqueue.manager.operator import Operator
from kqueue.runtime.deadline import within

AWAY_SECONDS = (0.5, 1.5, 5.0)
"""Seconds from the loss of the lease to the next term."""
DRAIN_SECONDS = (0.0, 0.0, 1.0)
"""Seconds that running writes may take after the loss of the lease: 0, as without any CPU time, or the usual."""


class TermedOperator(Operator):
    """A controller process whose terms of leadership a test ends; it leads again after `away` seconds.

    Ending a term cancels every task of the leader in any state, also tasks before their first step.
    """

    away = 0.0
    """Seconds until the next term; 0 while this process leads."""
    drain = 0.0
    terms = 0
    """Terms that have begun."""
    _term: asyncio.Task[None] | None = None

    def may_write(self) -> bool:
        """Whether writes are allowed: as in any operator, and never between two terms."""
        return not self.away and super().may_write()

    def depose(self, *, away: float, drain: float) -> bool:
        """Lose the lease now; return False if this process does not lead.

        If `drain` is 0, status writes are cancelled at the same moment, unstarted ones included.
        """
        if self._term is None or self._term.done() or self.away or not self.ready.is_set():
            return False
        self.away, self.drain = away, drain
        self._term.cancel()
        for write in list(self.loop._writes._tasks) if not drain else ():
            write.cancel()
        return True

    def _drain_for(self) -> float:
        return self.drain if self.away else super()._drain_for()

    async def _lead(self) -> None:
        while True:
            self.terms += 1
            self._term = asyncio.create_task(super()._lead(), name=f"term {self.terms}")
            try:
                await self._term
                return
            except asyncio.CancelledError:
                here = asyncio.current_task()
                if not self.away or (here is not None and here.cancelling()):
                    raise  # the process ends, perhaps just after its term has
            await self.clock.sleep(self.away)
            self.away = 0.0
            with contextlib.suppress(TimeoutError):  # it goes on with what is known, as any operator does
                await within(self.clock, self.timings.catch_up, self._catch_up())

    async def _catch_up(self) -> None:
        await asyncio.gather(*(watch.catch_up() for watch in self.watches.all()))


class Deposer:
    """Ends terms of a world's controller after random numbers of turns of the event loop."""

    def __init__(self, world: Any, seed: int | str, *, every: int) -> None:
        """`every` is the mean number of turns between two losses."""
        self._world, self._every = world, every
        self._chance = random.Random(f"{seed}/terms")
        self._left = self._draw()
        self.losses = 0

    def __call__(self) -> None:
        """One turn has passed."""
        self._left -= 1
        controller = self._world.controller
        if self._left > 0 or controller is None:
            return
        self._left = self._draw()
        away, drain = self._chance.choice(AWAY_SECONDS), self._chance.choice(DRAIN_SECONDS)
        if controller.operator.depose(away=away, drain=drain):
            self.losses += 1
            self._world.log.append(f"    t={self._world.clock.monotonic():.1f} the lease is lost for {away:g} s")
            self._world.history.disturb(self._world.clock.monotonic())

    def _draw(self) -> int:
        return 1 + int(self._chance.expovariate(1 / self._every))


class DeposeOnce:
    """Ends the term of a world's controller at one turn of the event loop, counted from now."""

    def __init__(self, world: Any, at: int, *, drain: float) -> None:
        self._world, self._left, self._drain = world, at, drain
        self.done = False

    def __call__(self) -> None:
        """One turn has passed."""
        self._left -= 1
        controller = self._world.controller
        if self._left <= 0 and not self.done and controller is not None:
            self.done = controller.operator.depose(away=1.5, drain=self._drain)
