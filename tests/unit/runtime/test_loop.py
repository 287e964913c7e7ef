"""The event loop's care: which loop, its lag, the collector."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest
import structlog

from kqueue.clock import FakeClock, SystemClock
from kqueue.runtime.deadline import within
from kqueue.runtime.loop import CollectorPauses, LoopLag, freeze_after_sync, loop_name, run
from tests.unit.runtime.conftest import running


def test_uvloop_is_used_where_it_is() -> None:
    """`run` runs on the loop that `loop_name` names, and returns the result."""

    async def which() -> str:
        return type(asyncio.get_running_loop()).__module__.split(".")[0]

    assert run(which()) == loop_name() == "uvloop"


def test_without_uvloop_asyncio_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing wheel is no error."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def answer() -> int:
        return 42

    assert loop_name() == "asyncio"
    assert run(answer()) == 42


async def test_lag_is_measured_and_logged() -> None:
    """A blocked loop shows in the heartbeat and, above the limit, in the log."""
    seen: list[float] = []
    lag = LoopLag(clock=SystemClock(), interval=0.001, limit=0.02, on_lag=seen.append)

    with structlog.testing.capture_logs() as logs:
        async with running(lag.run()):
            while not seen:
                await asyncio.sleep(0.001)
            until = SystemClock().monotonic() + 0.05
            while SystemClock().monotonic() < until:
                pass
            while lag.longest < 0.02:
                await asyncio.sleep(0.001)

    assert max(seen) == lag.longest >= 0.02
    assert {log["event"] for log in logs} == {"event loop was held up"}


def test_frozen_objects_are_out_of_the_collectors_way() -> None:
    """After the freeze what lives is not looked at again; a pause is reported for each collection."""
    pauses: list[tuple[int, float]] = []
    before = gc.get_freeze_count()
    try:
        with CollectorPauses(lambda generation, seconds: pauses.append((generation, seconds))):
            freeze_after_sync()
        frozen = gc.get_freeze_count()
    finally:
        gc.unfreeze()

    assert frozen > before
    assert [generation for generation, _ in pauses] == [0]


async def test_a_time_limit_waits_for_the_end_of_what_it_cancels() -> None:
    """After the TimeoutError nothing of the work goes on."""
    clock = FakeClock()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clock.sleep(1)
            ended.append("clean")

    limited = asyncio.ensure_future(within(clock, 5, work()))
    await clock.advance(0)
    await clock.advance(5.5)
    early = limited.done()
    await clock.advance(1)

    with pytest.raises(TimeoutError, match="longer than 5 s"):
        await limited
    assert not early
    assert ended == ["clean"]
