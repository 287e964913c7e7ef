"""The network between a client and an API server, which fails on request: as bytes (`Relay`), and as HTTP (`Gateway`)."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from tests.integration.controlplane.access import Access

PAGE = "<html><head><title>Bad Gateway</title></head><body>nginx</body></html>"


class Relay:
    """Passes bytes on, encrypted or not: it can be cut, or go silent."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.delay = 0.0
        """Seconds by which all that passes is late, in each direction."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Relay]:
        """Listen on a free port of loopback."""
        server = await asyncio.start_server(
            lambda reader, writer: self._spawn(self._accept(reader, writer)), "127.0.0.1", 0
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._open:
            writer.transport.abort()

    def silence(self) -> None:
        """Keep connections open and let nothing through."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let everything through again."""
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        back = self._spawn(self._pump(far_reader, writer))
        await self._pump(reader, far_writer)
        await back
        self._open -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@dataclass(slots=True)
class Written:
    """A request that was to change something; `status` 0 while it has no answer, or never got one."""

    method: str
    path: str
    arrived: float
    status: int = 0

    @property
    def is_decision(self) -> bool:
        """Whether it is neither of the lease nor an event."""
        return "/leases" not in self.path and "/events" not in self.path


class Gateway:
    """An HTTP proxy in plain text before an API server, with the administrator's rights; faults wait in its `plans`.

    It plays what a load balancer does to requests, and what a server does that is overloaded, restarted, or has another
    idea of who we are.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self.url = ""
        self.token: str | None = None
        """The bearer token that is asked for; None lets everybody in."""
        self.plans: dict[str, deque[Fault]] = defaultdict(deque)
        """What happens to the next requests, by verb: one each.  GET, WATCH, POST, PUT, PATCH, DELETE."""
        self.asked: list[tuple[str, float]] = []
        """Verb and arrival, on the event loop's clock, of each request."""
        self.writes: list[Written] = []
        """All that was to change something."""
        self.write_delay = 0.0
        """Seconds that a write waits here before it is passed on."""
        self._held: list[bytes] | None = None
        self._watching: set[asyncio.Transport] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Gateway]:
        """Listen on a free port of loopback."""
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.01)
        await runner.setup()
        # every watch holds a connection for itself
        async with self._access.session(connections=0) as self._far:
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    def plan(self, verb: str, *faults: Fault) -> None:
        """Let the next requests of this kind meet `faults`, one each."""
        self.plans[verb].extend(faults)

    def arrivals(self, verb: str) -> list[float]:
        """When requests of this kind came."""
        return [moment for each, moment in self.asked if each == verb]

    # --- watch lines

    def hold(self) -> list[bytes]:
        """From now on keep back what watches bring about objects; returns the list that it goes to."""
        self._held = []
        return self._held

    async def deliver(self, lines: list[bytes]) -> None:
        """Send `lines` on the watch that was opened last, and hold nothing back any more."""
        self._held = None
        await self._watch.write(b"".join(lines))

    def end_watches(self) -> None:
        """Reset the connections of all watches that are open."""
        for transport in self._watching:
            transport.abort()

    # --- underneath

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        verb = "WATCH" if request.query.get("watch") == "true" else request.method
        self.asked.append((verb, asyncio.get_running_loop().time()))
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return failed(401, "Unauthorized")
        plans = self.plans[verb]
        answer = plans.popleft() if plans else Gateway.forward
        if verb in ("GET", "WATCH"):
            return await answer(self, request)
        write = Written(request.method, request.path, arrived=asyncio.get_running_loop().time())
        self.writes.append(write)
        if self.write_delay and "/leases/" not in request.path:
            await asyncio.sleep(self.write_delay)
        response = await answer(self, request)
        write.status = response.status
        return response

    async def forward(self, request: web.BaseRequest) -> web.StreamResponse:
        """Ask the server and hand its answer on."""
        async with self.ask(request) as answer:
            headers = {k: v for k, v in answer.headers.items() if k in {"Content-Type", "Retry-After"}}
            if request.query.get("watch") != "true" or answer.status != 200:
                return web.Response(body=await answer.read(), status=answer.status, headers=headers)
            return await self._pass_on_watch(request, answer, headers)

    async def _pass_on_watch(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        response = self._watch = web.StreamResponse(headers=headers)
        await response.prepare(request)
        assert request.transport is not None
        self._watching.add(request.transport)
        try:
            async for line in answer.content:
                if self._held is None:
                    await response.write(line)
                elif b'"BOOKMARK"' not in line:
                    self._held.append(line)
        finally:
            self._watching.discard(request.transport)
        return response

    @asynccontextmanager
    async def ask(self, request: web.BaseRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """The server's answer."""
        headers = {k: v for k, v in request.headers.items() if k in {"Content-Type", "Accept", "User-Agent"}}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._far.request(
            request.method, request.path_qs, data=await request.read(), headers=headers, timeout=timeout
        ) as answer:
            yield answer


Fault = Callable[[Gateway, web.BaseRequest], Awaitable[web.StreamResponse]]
"""What is done to one request in place of passing it on."""


def failed(code: int, reason: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """A refusal as an API server words it."""
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.json_response({**told, "message": "told so"}, status=code, headers=headers)


def answers(code: int, reason: str, **headers: str) -> Fault:
    """The server says no, with headers such as `Retry_After`."""

    async def fault(_: Gateway, __: web.BaseRequest) -> web.StreamResponse:
        return failed(code, reason, {name.replace("_", "-"): value for name, value in headers.items()})

    return fault


def shows_page(code: int) -> Fault:
    """A proxy answers with its own page."""

    async def fault(_: Gateway, __: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=PAGE, status=code, content_type="text/html")

    return fault


def acts_then(fault: Fault) -> Fault:
    """The server does what was asked, and then `fault` takes the place of its answer."""

    async def both(gateway: Gateway, request: web.BaseRequest) -> web.StreamResponse:
        async with gateway.ask(request) as answer:
            await answer.read()
        return await fault(gateway, request)

    return both


async def drops(_: Gateway, request: web.BaseRequest) -> web.StreamResponse:
    """The connection is reset without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hangs(_: Gateway, __: web.BaseRequest) -> web.StreamResponse:
    """No answer, ever."""
    await asyncio.Event().wait()
    raise AssertionError("it waits until the client gives up")


def streams(*pieces: bytes, then: Fault | None = None) -> Fault:
    """A watch that brings `pieces` and ends, or meets another fault."""

    async def fault(gateway: Gateway, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if then is not None:
            await then(gateway, request)
        return response

    return fault


def error_event(code: int, reason: str) -> bytes:
    """A watch line that says no."""
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no"}
    return json.dumps({"type": "ERROR", "object": told}).encode() + b"\n"
