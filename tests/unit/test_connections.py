"""Connections of our servers at their end."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from kqueue.clock import SystemClock
from kqueue.connections import Bounds, Connections

ASKED = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


async def test_an_answer_that_ends_as_the_server_gives_up_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The server stops waiting and the answer ends in the same turn of the loop: no traceback, and the server ends."""
    arrived = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        arrived.set()
        while (waiter := request.protocol._handler_waiter) is None:
            await asyncio.sleep(0)
        waiter.cancel()  # what the time limit of the server's end does, in the same turn
        return web.Response(text="late")

    connections = Connections(answer, clock=SystemClock(), bounds=Bounds(), context=lambda: None)
    connections.listen("127.0.0.1", 0)
    connections.start()
    with caplog.at_level("WARNING"):
        reader, writer = await asyncio.open_connection("127.0.0.1", connections.port)
        writer.write(ASKED)
        await asyncio.wait_for(arrived.wait(), 5)
        await asyncio.wait_for(connections.stop(5), 10)
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
    assert [record.message for record in caplog.records] == []
