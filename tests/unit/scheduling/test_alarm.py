"""The alarm for second looks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kqueue.clock import FakeClock
from kqueue.scheduling.alarm import Alarm
from kqueue.state.quota_cache import QuotaCache
from kqueue.state.wake_up import QueueLookup, WakeUp, WakeUpSource
from tests.unit.controllers.builders import World


async def test_the_end_of_a_pause_wakes_the_paused_cluster_queues_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without their cohort trees: nothing has become free there."""
    world, seen, wakes = World(), list[WakeUp](), list[int]()
    clock: FakeClock = world.clock

    def helped_by(wake_up: WakeUp, lookup: QueueLookup) -> frozenset[str]:
        assert isinstance(lookup, QuotaCache)
        seen.append(wake_up)
        return frozenset()

    monkeypatch.setattr(world.queues, "helped_by", helped_by)
    alarm = Alarm(world.queues, lookup=world.cache.quota, clock=clock, wake=lambda: wakes.append(1))
    alarm.pause("left", clock.now() + timedelta(seconds=5))
    alarm.pause("later", clock.now() + timedelta(seconds=9))
    await clock.advance(5)

    assert seen == [WakeUp(source=WakeUpSource.PAUSE, cluster_queues=frozenset({"left"}))]
    assert wakes == [1]
    await alarm.stop()
    await world.close()


async def test_a_time_is_kept_while_earlier_ones_pass() -> None:
    """Also over a stop; parked workloads stay parked."""
    world, wakes = World(), list[int]()
    clock: FakeClock = world.clock
    alarm = Alarm(world.queues, lookup=world.cache.quota, clock=clock, wake=lambda: wakes.append(1))
    for seconds in (5, 2, 8):
        alarm.ring_at(clock.now() + timedelta(seconds=seconds))
    found = []
    for _ in range(2):
        await clock.advance(3)
        found.append(len(wakes))
    await alarm.stop()
    alarm.resume()
    await clock.advance(3)
    assert (*found, len(wakes)) == (1, 2, 3)
    await alarm.stop()
    await world.close()
