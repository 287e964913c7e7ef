"""Lanes: bounds, and a shared rate that starves nobody."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kqueue.clock import FakeClock
from kqueue.runtime.lane import Lane, LaneLimit, Lanes, Rate
from tests.unit.runtime.conftest import running


async def ask(lanes: Lanes, lane: Lane, log: list[tuple[float, Lane]], clock: FakeClock) -> None:
    """One request that takes no time."""
    async with lanes.place(lane):
        log.append((clock.monotonic(), lane))


async def test_a_lane_holds_as_many_as_it_has_places() -> None:
    """The next request waits until one has left; other lanes do not notice."""
    clock = FakeClock()
    lanes = Lanes({Lane.UNGATE: LaneLimit(2)}, clock=clock)
    entered = asyncio.Event()

    async def hold() -> None:
        async with lanes.place(Lane.UNGATE):
            await entered.wait()

    async with running(*(hold() for _ in range(5))):
        await clock.advance(0)
        busy = dict(lanes.in_flight)
        async with lanes.place(Lane.STATUS):
            assert lanes.in_flight[Lane.STATUS] == 1

    assert busy[Lane.UNGATE] == 2
    assert lanes.in_flight[Lane.UNGATE] == 0


async def test_what_waits_is_counted_by_lane() -> None:
    """Requests wait for a place or for the rate; a cancelled one does not count any more."""
    clock = FakeClock()
    lanes = Lanes({Lane.WORDS: LaneLimit(1)}, clock=clock, per_second=1, burst=1)
    log: list[tuple[float, Lane]] = []
    open_ended = asyncio.Event()

    async def hold() -> None:
        async with lanes.place(Lane.WORDS):
            await open_ended.wait()

    async with running(hold(), hold(), hold()):
        await clock.advance(2)
        full = (lanes.in_flight[Lane.WORDS], lanes.waiting(Lane.WORDS), lanes.oldest_age(Lane.WORDS))
        async with running(ask(lanes, Lane.STATUS, log, clock), ask(lanes, Lane.STATUS, log, clock)):
            await clock.advance(0.5)
            paced = (lanes.waiting(Lane.STATUS), lanes.oldest_age(Lane.STATUS))
    left = (lanes.waiting(Lane.WORDS), lanes.oldest_age(Lane.WORDS))

    assert (full, paced, left) == ((1, 2, 2.0), (1, 0.5), (0, 0.0))


async def test_words_leave_decisions_their_places() -> None:
    """However many words wait, all places of decisions are free."""
    clock = FakeClock()
    lanes = Lanes({}, clock=clock)

    async def hold() -> None:
        async with lanes.place(Lane.WORDS):
            await asyncio.Event().wait()

    async with running(*(hold() for _ in range(200))):
        await clock.advance(0)
        async with lanes.place(Lane.STATUS):
            assert (lanes.in_flight[Lane.WORDS], lanes.waiting(Lane.STATUS)) == (8, 0)


async def test_the_rate_allows_a_burst_and_then_its_pace() -> None:
    """After a quiet time `burst` go at once, the rest one by one."""
    clock = FakeClock()
    lanes = Lanes({}, clock=clock, per_second=10, burst=5)
    log: list[tuple[float, Lane]] = []

    async with running(*(ask(lanes, Lane.JOBS, log, clock) for _ in range(15))):
        await clock.advance(0)
        at_once = len(log)
        await clock.advance(0.5)
        after_half_a_second = len(log)
        await clock.advance(0.6)

    assert at_once == 5
    assert after_half_a_second in {9, 10}
    assert len(log) == 15


async def test_the_lease_never_waits_for_the_rate() -> None:
    """A renewal goes through while everything else is queued for tokens."""
    clock = FakeClock()
    lanes = Lanes({}, clock=clock, per_second=1, burst=1)
    log: list[tuple[float, Lane]] = []

    async with running(*(ask(lanes, Lane.UNGATE, log, clock) for _ in range(50))):
        await clock.advance(0)
        await ask(lanes, Lane.LEASE, log, clock)

    assert log == [(0, Lane.UNGATE), (0, Lane.LEASE)]


async def test_a_busy_lane_does_not_starve_another() -> None:
    """Tokens go by weight: a status patch that comes while thousands of pod patches wait is among the next."""
    clock = FakeClock()
    lanes = Lanes({Lane.UNGATE: LaneLimit(1000, weight=8)}, clock=clock, per_second=10, burst=1)
    log: list[tuple[float, Lane]] = []

    async with running(*(ask(lanes, Lane.UNGATE, log, clock) for _ in range(500))):
        await clock.advance(5)
        async with running(ask(lanes, Lane.STATUS, log, clock)):
            await clock.advance(0)
            await clock.advance(0.25)

    assert Lane.STATUS in [lane for _, lane in log]


async def test_waiting_lanes_share_by_weight_and_idle_ones_leave_theirs() -> None:
    """Two waiting lanes get tokens as 8 to 4; when one is done the other gets all."""
    clock = FakeClock()
    limits = {Lane.STATUS: LaneLimit(1000, weight=8), Lane.JOBS: LaneLimit(1000, weight=4)}
    lanes = Lanes(limits, clock=clock, per_second=100, burst=1)
    log: list[tuple[float, Lane]] = []
    asks = [ask(lanes, lane, log, clock) for lane in (Lane.STATUS, Lane.JOBS) for _ in range(200)]

    async with running(*asks):
        await clock.advance(0)
        await clock.advance(1.5)
        shared = Counter(lane for _, lane in log[:120])
        await clock.advance(3)

    assert 75 <= shared[Lane.STATUS] <= 85
    assert 35 <= shared[Lane.JOBS] <= 45
    assert len(log) == 400


async def test_a_cancelled_request_costs_no_token() -> None:
    """Who gives up while waiting does not slow down the others."""
    clock = FakeClock()
    lanes = Lanes({}, clock=clock, per_second=1, burst=1)
    log: list[tuple[float, Lane]] = []

    async with running(ask(lanes, Lane.JOBS, log, clock)):
        await clock.advance(0)
        async with running(*(ask(lanes, Lane.JOBS, log, clock) for _ in range(20))):
            await clock.advance(0)
        async with running(ask(lanes, Lane.JOBS, log, clock)):
            await clock.advance(0)
            await clock.advance(1.1)

    assert len(log) == 2


@pytest.mark.parametrize(("per_second", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_a_rate_that_never_moves_is_refused(per_second: float, burst: int) -> None:
    """No rate is written as None, not as zero or less."""
    with pytest.raises(ValueError, match="per_second > 0"):
        Rate(per_second, burst, limits={lane: LaneLimit(1) for lane in Lane}, clock=FakeClock())
