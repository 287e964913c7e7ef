"""The event loop's care: which loop, its lag, the collector."""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
from typing import Any

import pytest
import structlog

from kqueue.clock import FakeClock
from kqueue.runtime.deadline import within
from kqueue.runtime.loop import freeze_after_sync, run


def test_uvloop_is_used_where_it_is() -> None:
    """And the result is returned."""

    assert run(_loop_in_use()) == "uvloop"


async def _loop_in_use() -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]


def test_without_uvloop_asyncio_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing wheel is no error."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert run(_loop_in_use()) == "asyncio"


CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x7f>; the handler is closed"


class Peer(asyncio.Protocol):
    """What a loop names as the protocol of a connection."""


def connection(error: BaseException) -> dict[str, Any]:
    """What a loop reports of a connection."""
    return {"message": "Fatal error on SSL protocol", "exception": error, "protocol": Peer(), "transport": None}


@pytest.mark.parametrize(
    ("error", "level"),
    [
        pytest.param(ssl.SSLError(1, "application data after close notify"), "debug", id="tls-after-the-end"),
        pytest.param(ConnectionResetError(104, "Connection reset by peer"), "debug", id="reset"),
        pytest.param(BrokenPipeError(32, "Broken pipe"), "debug", id="broken-pipe"),
        pytest.param(TimeoutError("SSL shutdown timed out"), "debug", id="no-goodbye-in-time"),
        pytest.param(RuntimeError(CLOSED), "debug", id="written-after-it-was-closed"),
        pytest.param(RuntimeError("dictionary changed size during iteration"), "error", id="a-bug-in-a-protocol"),
        pytest.param(ssl.SSLCertVerificationError(1, "self-signed"), "error", id="a-certificate-is-not-trusted"),
        pytest.param(AttributeError("x"), "error", id="another-bug"),
    ],
)
def test_a_connection_that_the_other_side_ended_is_no_error_of_ours(
    error: BaseException, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On the loop that the commands run on: one plain sentence at debug level; a bug keeps its traceback and level."""

    async def report() -> None:
        asyncio.get_running_loop().call_exception_handler(connection(error))

    with structlog.testing.capture_logs() as logs, caplog.at_level("ERROR", logger="asyncio"):
        run(report())

    said = [(each["log_level"], each["event"]) for each in logs]
    assert said == ([("debug", "a connection was ended by the other side")] if level == "debug" else [])
    assert [record.exc_info is not None for record in caplog.records] == ([True] if level == "error" else [])


def test_a_task_whose_error_nobody_reads_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    """Also when the error is that of a connection: somebody started the task and forgot it."""

    async def fails() -> None:
        raise ConnectionResetError("reset")

    async def forgets() -> None:
        task = asyncio.ensure_future(fails())
        await asyncio.wait([task])
        del task
        gc.collect()

    with caplog.at_level("ERROR", logger="asyncio"):
        run(forgets())
    assert [record.message.splitlines()[0] for record in caplog.records] == ["Task exception was never retrieved"]


def test_frozen_objects_are_out_of_the_collectors_way() -> None:
    """After the freeze living objects are not looked at again; before it only the youngest ones are collected."""
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collected.append(info["generation"])

    before = gc.get_freeze_count()
    gc.callbacks.append(note)
    try:
        freeze_after_sync()
        frozen = gc.get_freeze_count()
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()

    assert frozen > before
    assert collected == [0]


@pytest.mark.parametrize("disabled", [True, False])
def test_imports_made_while_the_collector_was_off_are_never_collected(disabled: bool) -> None:
    """Where a start had disabled the collector, `run` freezes what there is, and collects from then on."""
    before = gc.get_freeze_count()
    if disabled:
        gc.disable()
    try:
        frozen = run(_count_frozen())
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()

    assert (frozen > before) == disabled


async def _count_frozen() -> int:
    return gc.get_freeze_count()


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
