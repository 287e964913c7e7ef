"""The controller: outcomes, limits, and orderly ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog

from kqueue import errors
from kqueue.clock import FakeClock
from kqueue.runtime.controller import Controller, ControllerSettings, ReconcileOutcome, ReconcileRecord, Result
from kqueue.runtime.workqueue import KeyRank
from tests.unit.runtime.conftest import running

SETTINGS = ControllerSettings(workers=4, timeout=60, retry_base=1, retry_max=60, conflict_retry_max=2)


def make_controller(
    clock: FakeClock, reconcile: Callable[[str], Coroutine[Any, Any, Result]], records: list[ReconcileRecord]
) -> Controller:
    """Four workers, a minute for each reconcile."""
    return Controller("test", reconcile, clock=clock, settings=SETTINGS, on_reconcile=records.append)


@pytest.mark.parametrize(
    ("ends", "outcome", "due"),
    [
        pytest.param(Result(), ReconcileOutcome.DONE, None, id="done"),
        pytest.param(Result(requeue_after=7), ReconcileOutcome.REQUEUED, (7, 7), id="requeue-after"),
        pytest.param(errors.TerminalError("no"), ReconcileOutcome.TERMINAL, None, id="terminal-waits-for-a-change"),
        pytest.param(errors.ConflictError("newer"), ReconcileOutcome.CONFLICT, (0.5, 1), id="conflict-soon"),
        pytest.param(errors.ServerError("down"), ReconcileOutcome.FAILED, (0.5, 1), id="failure-backs-off"),
        pytest.param(
            errors.TooManyRequestsError("slow", retry_after=20),
            ReconcileOutcome.FAILED,
            (20, 21),
            id="retry-after-is-honoured",
        ),
        pytest.param(ZeroDivisionError(), ReconcileOutcome.FAILED, (0.5, 1), id="a-bug-backs-off-too"),
    ],
)
async def test_each_end_of_a_reconcile_has_its_consequence(
    ends: Result | Exception, outcome: ReconcileOutcome, due: tuple[float, float] | None
) -> None:
    """What a reconcile returns or raises decides when its key comes again."""
    clock = FakeClock()
    records: list[ReconcileRecord] = []

    async def reconcile(key: str) -> Result:
        if isinstance(ends, Exception):
            raise ends
        return ends

    controller = make_controller(clock, reconcile, records)
    async with running(controller.run()):
        controller.enqueue("a")
        await clock.advance(0)
        wake = clock.next_wake()

    assert [(r.controller, r.key, r.outcome) for r in records] == [("test", "a", outcome)]
    assert (wake is None) if due is None else (wake is not None and due[0] <= wake <= due[1])


async def test_one_broken_key_does_not_stop_the_others() -> None:
    """While one key fails again and again, all others are reconciled, and the failure is logged with its key."""
    clock = FakeClock()
    done: list[str] = []

    async def reconcile(key: str) -> Result:
        if key == "broken":
            raise ZeroDivisionError
        done.append(key)
        return Result()

    controller = make_controller(clock, reconcile, [])
    with structlog.testing.capture_logs() as logs:
        async with running(controller.run()):
            for key in ["broken", *"abcdef"]:
                controller.enqueue(key)
            await clock.advance(0)
            await clock.advance(30)

    assert done == list("abcdef")
    assert len(logs) >= 4
    assert {log["key"] for log in logs} == {"broken"}


async def test_a_reconcile_that_hangs_is_cut_off() -> None:
    """After its time limit a reconcile is cancelled and tried again later."""
    clock = FakeClock()
    records: list[ReconcileRecord] = []

    async def reconcile(key: str) -> Result:
        await asyncio.Event().wait()
        return Result()

    controller = make_controller(clock, reconcile, records)
    async with running(controller.run()):
        controller.enqueue("a")
        await clock.advance(0)
        await clock.advance(59)
        before = len(records)
        await clock.advance(1)

    assert before == 0
    assert [(r.outcome, r.seconds) for r in records] == [(ReconcileOutcome.FAILED, 60)]


async def test_success_makes_the_next_failure_the_first() -> None:
    """A key that went well starts its back-off afresh."""
    clock = FakeClock()
    bad = True

    async def reconcile(key: str) -> Result:
        if bad:
            raise errors.ServerError("down")
        return Result()

    controller = make_controller(clock, reconcile, [])
    async with running(controller.run()):
        controller.enqueue("a")
        await clock.advance(0)
        await clock.advance(20)
        failures = controller.queue.failures("a")
        bad = False
        await clock.advance(60)

        assert failures >= 4
        assert controller.queue.failures("a") == 0


async def test_one_key_has_one_worker_and_others_run_beside_it() -> None:
    """Four workers, but never two on the same key."""
    clock = FakeClock()
    now: set[str] = set()
    together = 0

    async def reconcile(key: str) -> Result:
        nonlocal together
        assert key not in now
        now.add(key)
        together = max(together, len(now))
        await clock.sleep(1)
        now.discard(key)
        return Result()

    controller = make_controller(clock, reconcile, [])
    async with running(controller.run()):
        for _ in range(3):
            for key in "abcdef":
                controller.enqueue(key)
            await clock.advance(0.5)
        await clock.advance(10)

    assert together == 4
    assert controller.queue.idle


async def test_stopping_finishes_what_is_ready() -> None:
    """`stop` lets running and ready keys end, takes no new ones, and `run` returns."""
    clock = FakeClock()
    done: list[str] = []

    async def reconcile(key: str) -> Result:
        await clock.sleep(1)
        done.append(key)
        return Result()

    controller = make_controller(clock, reconcile, [])
    run = asyncio.ensure_future(controller.run())
    for key in "abcdef":
        controller.enqueue(key)
    await clock.advance(0.5)
    stop = asyncio.ensure_future(controller.stop(grace=5))
    await clock.advance(0.1)
    controller.enqueue("late")
    await clock.advance(3)
    await asyncio.gather(run, stop)

    assert sorted(done) == list("abcdef")


async def test_stopping_has_an_end() -> None:
    """What does not finish within the grace period is cancelled."""
    clock = FakeClock()

    async def reconcile(key: str) -> Result:
        await asyncio.Event().wait()
        return Result()

    controller = make_controller(clock, reconcile, [])
    run = asyncio.ensure_future(controller.run())
    controller.enqueue("a")
    await clock.advance(1)
    stop = asyncio.ensure_future(controller.stop(grace=5))
    await clock.advance(0)
    await clock.advance(6)
    await stop
    await asyncio.gather(run, return_exceptions=True)

    assert run.done()


async def test_a_cancelled_run_keeps_its_keys_for_the_next() -> None:
    """After leadership was lost and won again, what had been cut off is looked at again."""
    clock = FakeClock()
    started: list[str] = []

    async def reconcile(key: str) -> Result:
        started.append(key)
        await clock.sleep(1)
        return Result()

    controller = make_controller(clock, reconcile, [])
    async with running(controller.run()):
        for key in "abcde":
            controller.enqueue(key)
        await clock.advance(0.5)
    async with running(controller.run()):
        await clock.advance(0)
        await clock.advance(9)

    assert sorted(started) == sorted("abcd" + "abcde")


class Slow:
    """Reconciles that take so many seconds; which began, which ended."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self.began: list[str] = []
        self.ended: list[str] = []

    async def reconcile(self, key: str) -> Result:
        self.began.append(key)
        await self._clock.sleep(self._seconds)
        self.ended.append(key)
        return Result()


@pytest.mark.parametrize(
    ("takes", "given", "ended"),
    [
        pytest.param(3, 5, ["a", "b"], id="it has the time that it needs"),
        pytest.param(7, 5, [], id="it is cut off at the limit"),
        pytest.param(3, 0, [], id="no time is given"),
    ],
)
async def test_what_is_being_reconciled_comes_to_its_end(takes: float, given: float, ended: list[str]) -> None:
    """When the lead ends: no new key is begun, and what is cut off or was not begun stays queued."""
    clock = FakeClock()
    slow = Slow(clock, takes)
    controller = make_controller(clock, slow.reconcile, [])
    controller.drain_for = lambda: given
    for key in "ab":
        controller.enqueue(key)
    task = asyncio.create_task(controller.run())
    await clock.advance(1)
    task.cancel()
    await clock.advance(0)
    controller.enqueue("c")
    with structlog.testing.capture_logs():
        await clock.advance(10)

    assert task.cancelled()
    assert slow.began == ["a", "b"]
    assert slow.ended == ended
    again = asyncio.create_task(controller.run())
    await clock.advance(10)
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
    assert sorted(set(slow.ended)) == ["a", "b", "c"]
    assert slow.ended.count("a") == 1


async def test_keys_are_reconciled_by_rank() -> None:
    """The controller asks for ranks, a given rank counts instead, and a key is not lost when the search for its rank fails."""
    done: list[str] = []

    async def reconcile(key: str) -> Result:
        done.append(key)
        return Result()

    def rank_of(key: str) -> KeyRank:
        return {"word": KeyRank.TELL, "free": KeyRank.FREE, "raised": KeyRank.TELL}[key]

    controller = Controller("test", reconcile, clock=FakeClock(), settings=SETTINGS, rank_of=rank_of)
    for key in ("word", "unknown", "free"):
        controller.enqueue(key)
    controller.enqueue("raised", rank=KeyRank.FREE)
    controller.queue.shut_down()
    await controller.run()

    assert done == ["free", "raised", "unknown", "word"]
    assert controller.ranks == tuple(KeyRank)


@pytest.mark.mechanism("2.21")
async def test_a_key_of_pods_that_takes_long_delays_no_key_of_nodes() -> None:
    """Each kind has a queue and workers of its own: what pods do for ten seconds does not hold nodes up."""
    clock = FakeClock()
    done: list[tuple[str, float]] = []

    async def of_pods(key: str) -> Result:
        await clock.sleep(10)
        done.append((key, clock.monotonic()))
        return Result()

    async def of_nodes(key: str) -> Result:
        done.append((key, clock.monotonic()))
        return Result()

    pods, nodes = single(clock, of_pods), single(clock, of_nodes)
    async with running(pods.run()), running(nodes.run()):
        pods.enqueue("pod")
        for second in range(5):
            nodes.enqueue(f"node-{second}")
            await clock.advance(1)
        await clock.advance(10)
    assert done == [*((f"node-{second}", second) for second in range(5)), ("pod", 10)]


@pytest.mark.mechanism("2.21")
@pytest.mark.parametrize("seed", range(20))
async def test_no_key_is_in_two_workers_and_no_kind_waits_for_another(seed: int) -> None:
    """Drawn events and durations: nodes end when they would without pods."""
    with_pods, alone = await drawn_story(seed, pods=True), await drawn_story(seed, pods=False)
    assert with_pods == alone
    assert with_pods


async def drawn_story(seed: int, *, pods: bool) -> list[tuple[float, str]]:
    """The times at which keys of nodes end, beside drawn keys of pods or without them."""
    clock, ended = FakeClock(), list[tuple[float, str]]()
    busy: dict[str, set[str]] = {"node": set(), "pod": set()}
    durations = {kind: random.Random(f"{seed}{kind}") for kind in busy}

    def reconciler(kind: str) -> Callable[[str], Coroutine[Any, Any, Result]]:
        async def reconcile(key: str) -> Result:
            assert key not in busy[kind], f"{key} is in two workers"
            busy[kind].add(key)
            await clock.sleep(durations[kind].choice([0, 0.25, 1, 10]))
            busy[kind].remove(key)
            if kind == "node":
                ended.append((clock.monotonic(), key))
            return Result()

        return reconcile

    records: list[ReconcileRecord] = []
    of_nodes = make_controller(clock, reconciler("node"), records)
    of_pods = make_controller(clock, reconciler("pod"), records)
    events = {kind: random.Random(f"{seed}{kind}s") for kind in busy}
    async with running(of_nodes.run()), running(of_pods.run()):
        for _ in range(60):
            of_nodes.enqueue(f"n{events['node'].randrange(6)}")
            if pods:
                for _ in range(5):
                    of_pods.enqueue(f"p{events['pod'].randrange(6)}")
            await clock.advance(events["node"].choice([0, 0.5, 2]))
        await clock.advance(200)
    assert {record.outcome for record in records} == {ReconcileOutcome.DONE}
    return ended


def single(clock: FakeClock, reconcile: Callable[[str], Coroutine[Any, Any, Result]]) -> Controller:
    """A controller with one worker."""
    settings = ControllerSettings(workers=1, timeout=60, retry_base=1, retry_max=60, conflict_retry_max=2)
    return Controller("test", reconcile, clock=clock, settings=settings, on_reconcile=lambda _record: None)
