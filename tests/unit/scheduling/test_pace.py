"""When cycles begin: at once on a quiet cluster, together under load, and never later than their window."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.controllers.resources import WORKLOADS
from kqueue.scheduling.pace import WritePace
from tests.unit.controllers.builders import JSON, make_workload
from tests.unit.scheduling.scheduled import Scheduled

SHORTEST, LONGEST = 0.02, 0.25


class Paced:
    """A pace, and how long it makes a cycle wait."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pace = WritePace(self.clock, shortest=SHORTEST, longest=LONGEST)
        self.writes: list[Callable[[], None]] = []

    def cycle(self, *, writes: int = 0, admitted: bool = True, seconds_ago: float = 0.0) -> None:
        self.writes += [self.pace.write_begins() for _ in range(writes)]
        self.pace.cycle_ended(begun=self.clock.monotonic() - seconds_ago, admitted=admitted)

    async def waits(self, *, goes_on: bool = False, ended: dict[float, int] | None = None) -> float:
        """Seconds until the next cycle begins; `ended`: after so many seconds so many writes have ended."""
        begun = self.clock.monotonic()
        turn = asyncio.create_task(self.pace.turn(goes_on=goes_on))
        left = dict(ended or {})
        for _ in range(2000):
            await self.clock.advance(0)
            if turn.done():
                return round(self.clock.monotonic() - begun, 3)
            await self.clock.advance(0.001)
            for _write in range(left.pop(round(self.clock.monotonic() - begun, 3), 0)):
                self.writes.pop()()
        raise AssertionError("the turn does not come")


async def test_the_first_cycle_begins_at_once() -> None:
    assert await Paced().waits() == 0


async def test_on_a_quiet_cluster_a_cycle_begins_at_once() -> None:
    """The window of the last cycle has passed, whatever it came to."""
    for admitted in (True, False):
        paced = Paced()
        paced.cycle(admitted=admitted)
        await paced.clock.advance(SHORTEST)
        assert await paced.waits() == 0


async def test_a_cycle_begins_at_once_when_nothing_is_being_written() -> None:
    paced = Paced()
    paced.cycle(writes=0)

    assert await paced.waits() == 0


@pytest.mark.parametrize("goes_on", [False, True])
async def test_under_load_a_cycle_begins_when_three_quarters_of_the_writes_have_ended(goes_on: bool) -> None:
    paced = Paced()
    paced.cycle(writes=8)

    assert await paced.waits(goes_on=goes_on, ended={0.003: 5, 0.007: 1}) == 0.007


async def test_under_load_a_cycle_begins_at_the_end_of_its_window() -> None:
    """However slow the writes are."""
    paced = Paced()
    paced.cycle(writes=8)

    assert await paced.waits(ended={0.003: 5}) == SHORTEST


@pytest.mark.parametrize(("latency", "window"), [(0.001, SHORTEST), (0.1, 0.1), (9.0, LONGEST)])
async def test_the_window_follows_the_time_that_writes_take(latency: float, window: float) -> None:
    paced = Paced()
    for _ in range(60):
        ended = paced.pace.write_begins()
        await paced.clock.advance(latency)
        ended()
    paced.cycle(writes=4)

    assert paced.pace.window == pytest.approx(window)
    assert await paced.waits() == pytest.approx(window, abs=0.002)


async def test_after_a_cycle_in_vain_only_the_window_counts() -> None:
    """What freed nothing for one is no reason to look again: events of the window are decided together."""
    paced = Paced()
    paced.cycle(writes=4, admitted=False)

    assert await paced.waits(ended={0.001: 4}) == SHORTEST


async def test_heads_that_are_left_do_not_wait_for_a_window_after_a_cycle_in_vain() -> None:
    paced = Paced()
    paced.cycle(writes=4, admitted=False)

    assert await paced.waits(goes_on=True) == 0.001


async def test_a_load_is_many_writes_a_second_and_fades_within_seconds() -> None:
    """A burst of a dozen is none, and neither is a steady trickle."""
    paced = Paced()

    async def write(count: int, apart: float) -> list[bool]:
        seen = []
        for _ in range(count):
            paced.pace.write_begins()()
            seen.append(paced.pace.is_loaded)
            await paced.clock.advance(apart)
        return seen

    assert not paced.pace.is_loaded
    assert not any(await write(12, 0.0))
    await paced.clock.advance(5)
    assert not any(await write(100, 0.1))
    assert (await write(200, 0.02))[-1]
    await paced.clock.advance(2)
    assert not paced.pace.is_loaded


# --- what the loop makes of it ----------------------------------------------------------------------------------------


async def test_what_becomes_free_goes_to_a_parked_workload_of_higher_priority(make: Callable[..., Scheduled]) -> None:
    """A smaller one arrives in the same moment; it does not take the room because it happens to stand in line."""
    world = make()
    world.add(make_workload("runs", cpus=10))
    world.start()
    await world.until_quiet()
    world.add(make_workload("large", cpus=10, priority=10, minute=1))
    await world.until_quiet()
    assert world.observed.reservations == ["runs"]

    world.client.drop(WORKLOADS, "ns/runs")
    world.add(make_workload("small", minute=2))
    await world.until_quiet()

    assert world.observed.reservations == ["runs", "large"]


async def test_what_becomes_free_within_a_round_goes_to_a_parked_workload_that_fits(
    make: Callable[..., Scheduled],
) -> None:
    """Heads of lower priority are left to try; they do not take what a parked one waits for."""
    world = make()
    world.add(make_workload("runs", cpus=8))
    world.start()
    await world.until_quiet()
    note = world.observed.reserved

    def end_the_running_one(workload: Any, *args: Any, **more: Any) -> None:
        note(workload, *args, **more)
        if workload.metadata.name == "small-0":
            world.client.drop(WORKLOADS, "ns/runs")
            world.sync()

    world.observed.reserved = end_the_running_one  # type: ignore[method-assign]
    for job in (make_workload("large", cpus=9, priority=10, minute=1), *_small(3)):
        world.client.put(WORKLOADS, job)
    world.sync()
    await world.until_quiet()

    assert world.observed.reservations == ["runs", "small-0", "large"]


def _small(count: int) -> list[JSON]:
    """Workloads of about one CPU; no two are equal, so each is tried for itself."""
    return [make_workload(f"small-{n}", cpus=f"{1000 - n}m", minute=2 + n) for n in range(count)]


async def test_parked_workloads_leave_turns_to_others_within_a_round(make: Callable[..., Scheduled]) -> None:
    """Two shapes came back, and something becomes free before each cycle: a third workload is tried before they come
    back again.
    """
    world, asked = make(), list[int]()

    def look(*, fitting: bool) -> int:
        if fitting:
            asked.append(world.loop.cycles)
        return 2

    world.loop._look_at_parked = look
    for job in _small(9):
        world.client.put(WORKLOADS, job)
    world.sync()
    world.start()
    await world.until_quiet()

    assert len(world.observed.reservations) == 9
    assert len(asked) > 1
    assert all(later - earlier >= 3 for earlier, later in pairwise(asked))


async def test_what_becomes_free_is_given_out_without_a_pause(make: Callable[..., Scheduled]) -> None:
    """On a quiet cluster a parked workload does not wait for the window in which others are collected."""
    world = make()
    world.add(make_workload("runs", cpus=10))
    world.start()
    await world.until_quiet()
    world.add(make_workload("next", cpus=10, minute=1))
    await world.until_quiet()

    world.client.drop(WORKLOADS, "ns/runs")
    world.sync()
    await world.clock.advance(0)

    assert world.observed.reservations == ["runs", "next"]


@pytest.mark.parametrize("seed", range(20))
async def test_a_workload_that_fits_is_admitted_within_two_windows(make: Callable[..., Scheduled], seed: int) -> None:
    """Whatever comes, ends and is written in whichever order: two windows and the rest of a round after the last event
    no workload waits for room that is there.
    """
    pick, world = random.Random(seed), make()
    world.start()
    made = 0
    for _ in range(60):
        for _event in range(pick.randint(1, 3)):
            running = [name for name in world.observed.reservations if world.workload(name) is not None]
            if running and pick.random() < 0.4:
                world.client.drop(WORKLOADS, f"ns/{pick.choice(running)}")
            else:
                made += 1
                job = make_workload(f"w{made}", cpus=pick.randint(1, 6), priority=pick.randint(0, 2), minute=made % 60)
                world.client.put(WORKLOADS, job)
        world.client.sync()
        await world.clock.advance(pick.choice([0.0, 0.001, 0.01, 0.03, 0.3]))
    await world.clock.advance(2 * LONGEST)

    waiting = [key.removeprefix("ns/") for key in world.queues.known() if world.cache.held.holding(key) is None]
    assert made > 50
    assert min(map(_cpus, filter(None, map(world.workload, waiting))), default=99) > world.free()


def _cpus(workload: JSON) -> int:
    [pod_set] = workload["spec"]["podSets"]
    [container] = pod_set["template"]["spec"]["containers"]
    return int(container["resources"]["requests"]["cpu"])
