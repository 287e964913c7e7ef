"""The work queue: one place, one worker, one time per key."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.clock import FakeClock
from kqueue.runtime.workqueue import KeyRank, WorkQueue


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
@pytest.mark.mechanism("2.20")
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


@pytest.mark.parametrize(
    ("adds", "want"),
    [
        pytest.param(
            [("word", 3), ("start", 1), ("free", 0), ("follow", 2)], "free start follow word", id="best-first"
        ),
        pytest.param([("a", 1), ("x", 3), ("b", 1), ("y", 3)], "a b x y", id="first-in-first-out-inside-a-rank"),
        pytest.param([("a", 3), ("b", 3), ("b", 0)], "b a", id="a-better-rank-moves-up"),
        pytest.param([("a", 0), ("b", 1), ("a", 3)], "a b", id="a-worse-rank-changes-nothing"),
        pytest.param([("a", 0), ("b", 3), ("b", 0)], "a b", id="moved-up-keys-go-behind-their-new-rank"),
    ],
)
async def test_keys_come_out_by_rank(adds: list[tuple[str, int]], want: str) -> None:
    """The best rank is handed out first."""
    queue = make_queue(FakeClock())

    for key, rank in adds:
        queue.add(key, KeyRank(rank))

    assert await take_all(queue) == want.split()


async def test_a_key_in_work_comes_again_with_its_best_rank() -> None:
    """Of all adds of a key while a worker has it, the best rank counts."""
    queue = make_queue(FakeClock())
    queue.add("a", KeyRank.TELL)
    await queue.get()
    for rank in (KeyRank.TELL, KeyRank.FREE, KeyRank.FOLLOW):
        queue.add("a", rank)
    queue.add("b", KeyRank.START)

    queue.done("a")

    assert await take_all(queue) == ["a", "b"]


async def test_a_late_key_has_the_rank_of_its_time() -> None:
    """A key for later is ranked when it is due; a rank that was asked for then is kept, unless that of its time is
    better.
    """
    clock, ranks = FakeClock(), {"a": KeyRank.TELL, "b": KeyRank.TELL, "c": KeyRank.TELL}
    queue = WorkQueue(
        clock=clock,
        retry_base=1,
        retry_max=60,
        chance=random.Random(1),
        rank_of=lambda key: ranks.get(key, KeyRank.START),
    )
    for key in ("a", "b"):
        queue.add_after(key, 5)
    queue.add_after("c", 5, KeyRank.FREE)
    queue.add_after("c", 4, KeyRank.FOLLOW)
    ranks["b"] = KeyRank.FREE
    queue.add("d")
    await asyncio.sleep(0)
    await clock.advance(5)

    assert await take_all(queue) == ["c", "b", "d", "a"]


async def test_no_rank_waits_for_ever() -> None:
    """While keys of the best rank come without end, one pick of eight takes the key that has waited longest."""
    clock = FakeClock()
    queue = make_queue(clock)
    for key in ("word-1", "word-2"):
        queue.add(key, KeyRank.TELL)
    taken = []
    for i in range(20):
        await clock.advance(1)
        queue.add(f"free-{i}", KeyRank.FREE)
        picked = await queue.get()
        assert picked is not None
        queue.done(picked)
        taken.append(picked)

    assert [i for i, key in enumerate(taken) if key.startswith("word")] == [7, 15]


async def test_a_new_key_of_the_best_rank_waits_behind_few_others() -> None:
    """Thousands of old words delay a new key of the best rank by one pick at most."""
    clock = FakeClock()
    for start in range(8):
        queue = make_queue(clock)
        for i in range(5000):
            queue.add(f"word-{i}", KeyRank.TELL)
        await clock.advance(600)
        for _ in range(start):
            queue.done(str(await queue.get()))

        queue.add("free", KeyRank.FREE)

        assert "free" in (await queue.get(), await queue.get())


async def test_a_worker_is_left_for_other_keys_than_words() -> None:
    """So many workers take keys of the last rank and no more; when one is done the next key is taken."""
    queue = WorkQueue(clock=FakeClock(), retry_base=1, retry_max=60, chance=random.Random(1), tell_at_once=2)
    for i in range(3):
        queue.add(f"word-{i}", KeyRank.TELL)
    first = [await queue.get(), await queue.get()]
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    alone = waiting.done()
    queue.add("free", KeyRank.FREE)
    freed = await waiting
    last = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not last.done()
    queue.done("word-0")

    assert (first, alone, freed, await last) == (["word-0", "word-1"], False, "free", "word-2")


async def test_words_are_drained_at_the_end() -> None:
    """A queue that is shut down hands out all that is ready, by however few workers."""
    queue = WorkQueue(clock=FakeClock(), retry_base=1, retry_max=60, chance=random.Random(1), tell_at_once=1)
    for key in "ab":
        queue.add(key, KeyRank.TELL)
    taken = [await queue.get()]
    queue.shut_down()

    assert [*taken, await queue.get(), await queue.get()] == ["a", "b", None]


async def test_depth_and_age_are_told_by_rank() -> None:
    """A key that moves up takes its age along."""
    clock = FakeClock()
    queue = make_queue(clock)
    queue.add("a", KeyRank.TELL)
    await clock.advance(3)
    queue.add("b", KeyRank.TELL)
    queue.add("c", KeyRank.FREE)
    await clock.advance(1)
    queue.add("a", KeyRank.FREE)

    assert {rank.label: (queue.depth(rank), queue.oldest_age(rank)) for rank in KeyRank} == {
        "free": (2, 4),
        "start": (0, 0),
        "follow": (0, 0),
        "tell": (1, 1),
    }
    assert (len(queue), queue.oldest_age()) == (3, 4)
