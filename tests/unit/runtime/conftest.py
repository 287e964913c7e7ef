"""A fake server per test, and clients and reflectors with short times."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kqueue.api.wire.meta import ObjectMeta, Struct
from kqueue.clock import SystemClock
from kqueue.runtime.client import Client
from kqueue.runtime.credentials import Credentials, NoCredentials
from kqueue.runtime.kubeconfig import ClusterAccess
from kqueue.runtime.reflector import Projection, Reflector, WatchSettings
from kqueue.runtime.transport import ClientSettings
from tests.unit.runtime.fake_server import THINGS, FakeServer


class Thing(Struct, frozen=True, kw_only=True):
    """The fake server's kind."""

    metadata: ObjectMeta
    spec: dict[str, int] = msgspec.field(default_factory=dict)


View = tuple[str, int]
"""(name, spec.n): what the store keeps of a thing."""


def view_of(thing: Thing) -> View:
    """Raises on a thing without `n`, as a view may."""
    return thing.metadata.name, thing.spec["n"]


QUICK = ClientSettings(call_timeout=2.0, retry_base=0.001, retry_max=0.05, watch_read_timeout=2.0)
RESTLESS = WatchSettings(page_size=2, retry_base=0.001, retry_max=0.01)


@asynccontextmanager
async def serving(fake: FakeServer) -> AsyncIterator[FakeServer]:
    """Serve `fake` on a free port of loopback."""
    runner = web.AppRunner(fake.app(), shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    fake.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    try:
        yield fake
    finally:
        await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with serving(FakeServer()) as fake:
        yield fake


@pytest.fixture
async def open_client(server: FakeServer) -> AsyncIterator[Callable[..., Client]]:
    async with AsyncExitStack() as stack:

        def make(settings: ClientSettings = QUICK, credentials: Credentials | None = None, **more: Any) -> Client:
            cluster = ClusterAccess(server=server.url, credentials=credentials or NoCredentials())
            client = Client(cluster, settings=settings, chance=random.Random(1), **more)
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
async def client(open_client: Callable[..., Client]) -> Client:
    return open_client()


def make_reflector(client: Client, settings: WatchSettings = RESTLESS, **more: Any) -> Reflector[Thing, View]:
    """A reflector of things that retries within milliseconds."""
    return Reflector(client, THINGS, Projection(Thing, view_of), clock=SystemClock(), settings=settings,
                     chance=random.Random(1), **more)  # fmt: skip


@asynccontextmanager
async def running(*tasks: Awaitable[Any]) -> AsyncIterator[None]:
    """Run `tasks` beside the block, and cancel them at its end."""
    started = [asyncio.ensure_future(t) for t in tasks]
    try:
        yield
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


async def eventually(true: Callable[[], bool], within: float = 10.0) -> None:
    """Return as soon as `true` holds; fail if it does not within a generous time."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.001)
