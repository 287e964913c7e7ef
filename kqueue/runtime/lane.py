"""Priority lanes: limits of requests in flight, and the order of requests under a rate limit.

A thousand pod patches must not delay one lease renewal.  Every request names its lane.  Each lane has its own limit of
requests in flight.  All lanes share one rate by weight, so a busy lane cannot starve another, and other lanes use the
share of an idle lane.  The lease lane does not count against the rate at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from kqueue.clock import Clock


class Lane(Enum):
    """The purpose of a request.  The value is its name in metrics."""

    LEASE = "lease"
    """Leader election.  Never waits for the rate limit."""
    STATUS = "status"
    """Decisions: admissions, evictions, quota given back, and the conditions that follow from them."""
    WORDS = "words"
    """Reasons for waiting: thousands at once, and no decision depends on them."""
    JOBS = "jobs"
    """Jobs and Workloads: ordinary reads and writes of reconcilers."""
    UNGATE = "ungate"
    """Patches of pods that release gangs: many at once."""
    WATCH = "watch"
    """Lists that fill the caches.  Streams are opened here too but do not hold a place."""
    EVENTS = "events"
    """Kubernetes events: off the critical path."""
    REVIEWS = "reviews"
    """Reviews of identity and access; as many as we get requests."""
    NODE_USE = "node-use"
    """Measured use of nodes: one list at a time, and no decision waits for it."""
    POD_USE = "pod-use"
    """Measured use of pods, likewise."""


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """Limits of a lane: `in_flight` requests at once; `weight` is its share of the rate among the waiting lanes."""

    in_flight: int
    weight: int = 1


DEFAULT_LIMITS: Mapping[Lane, LaneLimit] = {
    Lane.LEASE: LaneLimit(2),
    Lane.STATUS: LaneLimit(64, weight=8),
    Lane.WORDS: LaneLimit(8, weight=1),
    Lane.JOBS: LaneLimit(32, weight=4),
    Lane.UNGATE: LaneLimit(64, weight=8),
    Lane.WATCH: LaneLimit(8, weight=4),
    Lane.EVENTS: LaneLimit(4, weight=1),
    Lane.REVIEWS: LaneLimit(8, weight=1),
    Lane.NODE_USE: LaneLimit(1, weight=1),
    Lane.POD_USE: LaneLimit(1, weight=1),
}
"""64 in flight keeps a kube-apiserver on a few cores busy (measured: status patches stop gaining beyond it)."""


class Rate:
    """A token bucket that gives tokens to waiting lanes by weight.

    `per_second` tokens are made, at most `burst` are kept.  Among lanes that wait, the next token goes to the lane
    with the fewest tokens in proportion to its weight (ties: the order of `Lane`); inside a lane, first come first
    served.  A cancelled waiter costs no token.
    """

    def __init__(self, per_second: float, burst: int, *, limits: Mapping[Lane, LaneLimit], clock: Clock) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError(f"a rate needs per_second > 0 and burst >= 1, got {per_second} and {burst}")
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._weight = {lane: limits[lane].weight for lane in Lane}
        self._used = dict.fromkeys(Lane, 0.0)  # tokens taken divided by weight: a lane's position in the round
        self._round = 0.0
        self._waiting: dict[Lane, deque[asyncio.Future[None]]] = {lane: deque() for lane in Lane}
        self._tokens, self._filled_at = float(burst), clock.monotonic()
        self._pump: asyncio.Task[None] | None = None

    async def take(self, lane: Lane) -> None:
        """Return when `lane` may send one request."""
        self._fill()
        if self._tokens >= 1 and not any(self._waiting.values()):
            self._charge(lane)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[lane].append(turn)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._hand_out())
        await turn

    def close(self) -> None:
        """Stop; cancel all waiting requests."""
        if self._pump is not None:
            self._pump.cancel()
        for turns in self._waiting.values():
            for turn in turns:
                turn.cancel()

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now

    def _charge(self, lane: Lane) -> None:
        self._tokens -= 1
        # A lane that was idle is served at once and counts from here: its idle time gives one turn, not a hundred.
        self._round = max(self._round, self._used[lane])
        self._used[lane] = self._round + 1 / self._weight[lane]

    async def _hand_out(self) -> None:
        while (lane := self._next_lane()) is not None:
            self._fill()
            if self._tokens < 1:
                # At least 1 ms: rounding must not make this loop spin on an almost complete token.
                await self._clock.sleep(max(0.001, (1 - self._tokens) / self._per_second))
                continue
            self._charge(lane)
            self._waiting[lane].popleft().set_result(None)

    def _next_lane(self) -> Lane | None:
        for turns in self._waiting.values():
            while turns and turns[0].done():  # cancelled while it waited
                turns.popleft()
        return min((lane for lane in Lane if self._waiting[lane]), key=lambda lane: self._used[lane], default=None)


class Lanes:
    """Admits requests lane by lane."""

    def __init__(
        self, limits: Mapping[Lane, LaneLimit], *, clock: Clock, per_second: float | None = None, burst: int = 1
    ) -> None:
        """`per_second` None means no rate limit.  Lanes missing in `limits` keep their default."""
        full = {**DEFAULT_LIMITS, **limits}
        self._places = {lane: asyncio.Semaphore(full[lane].in_flight) for lane in Lane}
        self._rate = None if per_second is None else Rate(per_second, burst, limits=full, clock=clock)
        self._clock = clock
        self._waiting: dict[Lane, dict[object, float]] = {lane: {} for lane in Lane}
        """Start times of waiting requests, in their order of arrival."""
        self.in_flight = dict.fromkeys(Lane, 0)
        """Return how many requests have a place now, per lane."""

    def waiting(self, lane: Lane) -> int:
        """Return how many requests wait for a place or for the rate, without retries."""
        return len(self._waiting[lane])

    def oldest_age(self, lane: Lane) -> float:
        """Return how many seconds the oldest waiting request has waited; 0 when none waits."""
        first = next(iter(self._waiting[lane].values()), None)
        return max(0.0, self._clock.monotonic() - first) if first is not None else 0.0

    @asynccontextmanager
    async def place(self, lane: Lane) -> AsyncIterator[None]:
        """Take one of the lane's places for the length of the block."""
        me = object()
        self._waiting[lane][me] = self._clock.monotonic()
        try:
            async with self._places[lane]:
                self.in_flight[lane] += 1
                try:
                    await self.pace(lane)
                    del self._waiting[lane][me]
                    yield
                finally:
                    self.in_flight[lane] -= 1
        finally:
            self._waiting[lane].pop(me, None)

    async def pace(self, lane: Lane) -> None:
        """Wait for the shared rate; each attempt of a request takes a token of its own."""
        if self._rate is not None and lane is not Lane.LEASE:
            await self._rate.take(lane)

    def close(self) -> None:
        """Stop; cancel the requests that wait for the rate."""
        if self._rate is not None:
            self._rate.close()
