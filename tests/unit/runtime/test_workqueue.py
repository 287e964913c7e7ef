"""The work queue: one place, one worker, one time per key."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.clock import FakeClock
from kqueue.runtime.workqueue import WorkQueue


def make_queue(clock: FakeClock) -> WorkQueue:
    """A queue that retries from 1 s to 60 s."""
    return WorkQueue(clock=clock, retry_base=1.0, retry_max=60.0, chance=random.Random(1))


async def take_all(queue: WorkQueue) -> list[str]:
    """Everything that is ready now, each done at once."""
    taken = []
    while len(queue):
        key = await queue.get()
        assert key is not None
        taken.append(key)
        queue.done(key)
    return taken


@pytest.mark.parametrize(
    ("script", "want"),
    [
        pytest.param([("add", "a"), ("add", "b"), ("add", "a")], ["a", "b"], id="one-place-per-key"),
        pytest.param([("after", "a", 5), ("to", 4)], [], id="not-before-its-time"),
        pytest.param([("after", "a", 5), ("to", 5)], ["a"], id="at-its-time"),
        pytest.param([("after", "a", 5), ("after", "a", 2), ("to", 2)], ["a"], id="the-earlier-time-wins"),
        pytest.param([("after", "a", 2), ("after", "a", 5), ("to", 2)], ["a"], id="a-later-time-loses"),
        pytest.param(
            [("after", "a", 2), ("after", "a", 5), ("to", 2), ("take",), ("to", 9)], [], id="one-time-only-per-key"
        ),
        pytest.param([("after", "a", 5), ("add", "a"), ("take",), ("to", 9)], [], id="now-replaces-later"),
        pytest.param([("after", "b", 3), ("after", "a", 1), ("to", 9)], ["a", "b"], id="in-order-of-time"),
        pytest.param([("after", "a", 0)], ["a"], id="no-delay-is-now"),
        pytest.param([("add", "a"), ("close",), ("add", "b"), ("after", "c", 1), ("to", 9)], ["a"], id="closed"),
        pytest.param([("after", "a", 1), ("close",), ("to", 9)], [], id="closing-drops-what-waits"),
    ],
)
async def test_keys_come_out(script: list[tuple[Any, ...]], want: list[str]) -> None:
    """What is ready after a series of calls and of time passing."""
    clock = FakeClock()
    queue = make_queue(clock)

    for step in script:
        match step:
            case ("add", key):
                queue.add(key)
            case ("after", key, seconds):
                queue.add_after(key, seconds)
            case ("to", moment):
                await asyncio.sleep(0)
                await clock.advance(moment - clock.monotonic())
            case ("take",):
                await take_all(queue)
            case ("close",):
                queue.shut_down()

    assert await take_all(queue) == want


async def test_a_key_never_has_two_workers() -> None:
    """A key that is added while it is worked on comes again, once, after it is done."""
    queue = make_queue(FakeClock())
    queue.add("a")
    await queue.get()

    queue.add("a")
    queue.add("a")
    before = len(queue)
    queue.done("a")

    assert before == 0
    assert await take_all(queue) == ["a"]


async def test_pauses_grow_to_the_cap_and_start_over() -> None:
    """Each failure doubles the pause, jittered, up to the cap; `forget` makes the next failure the first."""
    queue = make_queue(FakeClock())

    pauses = [queue.retry("a") for _ in range(10)]
    queue.forget("a")
    first_again = queue.retry("a")

    for i, pause in enumerate(pauses):
        full = min(60.0, 2.0**i)
        assert full / 2 <= pause <= full
    assert first_again <= 1.0


async def test_a_pause_honours_what_the_server_asked() -> None:
    """`at_least` is exceeded, `cap` lowers the growth."""
    queue = make_queue(FakeClock())

    assert queue.retry("a", at_least=30) > 30
    assert all(queue.retry("b", cap=2.0) <= 2.0 for _ in range(10))


async def test_waiting_workers_share_the_keys() -> None:
    """Workers that wait are woken, and all keys are handed out."""
    queue = make_queue(FakeClock())
    workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)

    queue.add("a")
    queue.add("b")
    await asyncio.sleep(0)
    queue.shut_down()

    assert sorted(str(key) for key in await asyncio.gather(*workers)) == ["None", "a", "b"]


async def test_a_cancelled_worker_loses_no_key() -> None:
    """A worker that is cancelled while it waits does not take a key with it."""
    queue = make_queue(FakeClock())
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert await take_all(queue) == ["a"]


async def test_the_age_is_that_of_the_oldest() -> None:
    """The age is counted from when the first ready key was queued; zero when none is."""
    clock = FakeClock()
    queue = make_queue(clock)
    empty = queue.oldest_age()
    queue.add("a")
    await clock.advance(3)
    queue.add("b")
    await clock.advance(2)

    assert empty == 0
    assert queue.oldest_age() == 5
    assert await take_all(queue) == ["a", "b"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=200))
def test_each_key_comes_at_its_earliest_time(adds: list[tuple[str, int]]) -> None:
    """However often a key is added for later, it comes once, at the earliest of its times."""

    async def play() -> None:
        clock = FakeClock()
        queue = make_queue(clock)
        for key, seconds in adds:
            queue.add_after(key, seconds)
        came: dict[str, float] = {}
        for _ in range(11):
            await asyncio.sleep(0)
            for key in await take_all(queue):
                assert key not in came
                came[key] = clock.monotonic()
            await clock.advance(1)
        queue.shut_down()
        assert came == {key: min(s for k, s in adds if k == key) for key, _ in adds}

    asyncio.run(play())
