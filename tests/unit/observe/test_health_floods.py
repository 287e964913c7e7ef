"""Probes and metrics under clients that mean harm: the kubelet and the scraper are answered all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from kqueue.clock import FakeClock
from kqueue.connections import Bounds
from kqueue.observe import Checks, HealthServer, HttpEndpoint, Metrics, Route

PROBES = HttpEndpoint(setting="health.healthProbeBindAddress", bind_address="127.0.0.1:0")
OFF = HttpEndpoint(setting="metrics.bindAddress", bind_address="0")
SAME = HttpEndpoint(setting="metrics.bindAddress", bind_address="127.0.0.1:0")

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(*, metrics: HttpEndpoint = SAME, **options: Any) -> AsyncIterator[int]:
    """The port of the pages."""
    server = HealthServer(checks=Checks(), metrics=Metrics(), **options)
    await server.start(probes=PROBES, metrics=metrics)
    try:
        yield server.addresses[metrics.setting if metrics is SAME else PROBES.setting].port
    finally:
        await server.stop()


@asynccontextmanager
async def connected(port: int, count: int, sent: bytes = b"") -> AsyncIterator[list[Pair]]:
    pairs: list[Pair] = []
    try:
        for _ in range(count):
            pairs.append(await asyncio.open_connection("127.0.0.1", port))
            pairs[-1][1].write(sent)
        yield pairs
    finally:
        for _, writer in pairs:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for _, writer in pairs), return_exceptions=True)


async def told(port: int, request: bytes) -> str:
    """All that is answered until the connection ends."""
    async with connected(port, 1, request) as [(reader, _)], asyncio.timeout(10):
        try:
            return (await reader.read()).decode()
        except ConnectionError:
            return ""


def get(path: str, method: str = "GET", rest: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{rest}\r\n".encode()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="say-nothing"),
        pytest.param(b"GET /hea", id="begin-a-request"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n", id="ask-and-stay"),
    ],
)
async def test_three_hundred_connections_keep_no_probe_out(sent: bytes) -> None:
    """A process that lives is not restarted because of them."""
    async with serving(metrics=OFF, bounds=Bounds(connections=8)) as port, connected(port, 300, sent):
        assert (await told(port, get("/healthz"))).endswith("ok\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(get("/metrics"), "200", id="the-page"),
        pytest.param(get("/metrics", "HEAD"), "200", id="its-head"),
        pytest.param(get("/metrics?" + "a" * 100), "200", id="with-a-query"),
        pytest.param(get("/metrics", "POST"), "405", id="another-method"),
        pytest.param(get("/metrics", "DELETE"), "405", id="a-method-that-takes-away"),
        pytest.param(get("/metrics/../healthz"), "404", id="a-path-trick"),
        pytest.param(get("/%2e%2e/etc/passwd"), "404", id="an-escaped-path-trick"),
        pytest.param(get("/bug"), "500", id="a-page-that-fails"),
        pytest.param(get("/metrics", rest="".join(f"X-{n}: a\r\n" for n in range(300))), "400", id="300-headers"),
        pytest.param(get("/metrics", rest=f"X-A: {'a' * 9000}\r\n"), "400", id="a-long-header"),
        pytest.param(get("/" + "a" * 100_000), "400 or cut", id="a-path-of-100-kilobytes"),
        pytest.param(
            get("/metrics", "POST", "Content-Length: 9999999\r\n") + b"a" * 200_000, "405 or cut", id="a-large-body"
        ),
    ],
)
async def test_odd_requests_get_their_answer_or_none(request_: bytes, status: str) -> None:
    """And the next one is answered."""

    async def bug(_request: web.BaseRequest) -> web.StreamResponse:
        raise ZeroDivisionError("planted")

    async with serving(routes=[Route("/bug", bug)]) as port:
        answer = await told(port, request_)
        assert (answer.split(" ")[1] if answer else "cut") in status.split(" or ")
        assert " 200 " in (await told(port, get("/metrics"))).split("\r\n")[0]


async def test_a_scraper_that_does_not_read_is_cut() -> None:
    """Its page is dropped."""

    async def large(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x" * 20_000_000)

    clock = FakeClock()
    async with (
        serving(routes=[Route("/large", large)], clock=clock) as port,
        connected(port, 1, get("/large")) as [(reader, _)],
    ):
        await reader.readuntil(b"\r\n\r\n")
        await clock.advance(17)
        async with asyncio.timeout(10):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(20_000_000)
