"""Connections of our servers: how many there may be, how long they may take, and how much they may send.

A connection that sends no request, or whose client does not read the answers, is cut after a while.  When all
connections are taken, an idle one is closed first.  So a client that opens a thousand connections keeps no other
client out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from kqueue.clock import Clock

_BACKLOG = 128
_SWEEP_SECONDS = 1.0
_AFTER_FAILURE_SECONDS = 0.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one server's connections; times in seconds."""

    connections: int = 128
    handshake: float = 5.0
    first_request: float = 10.0
    """From the handshake to a request whose headers are complete."""
    idle: float = 60.0
    """From the end of one request to the next one's."""
    request_bytes: int = 64 * 1024
    """Line, headers and body."""
    headers: int = 512
    """Each of 8 KiB at most."""
    lingering: float = 0.0
    """How long an unwanted body is read, so that its sender reads the answer."""
    write: float = 10.0
    """Until the client has read most of the bytes sent."""


class Connection(RequestHandler):
    """One connection of one client."""

    __slots__ = ("_bounds", "_clock", "_received", "cut_off", "idle_since", "served", "unread_since", "writable")

    def __init__(self, server: web.Server, bounds: Bounds, clock: Clock) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=bounds.idle,
            access_log=None,  # type: ignore[arg-type] # None switches the log off
            max_headers=bounds.headers,
            auto_decompress=False,  # a few KiB that mean many MiB: compressed bodies are for the handler to refuse
            lingering_time=bounds.lingering,
        )
        self._bounds, self._clock = bounds, clock
        self.idle_since: float | None = None
        """When the connection was opened, or its last request was answered; None while a request is answered."""
        self.unread_since: float | None = None
        """Since when the client does not read the bytes sent; None while it reads."""
        self.served = 0
        self.cut_off = False
        self.writable = asyncio.Event()
        """Set while the client reads the bytes sent."""
        self.writable.set()
        self._received = 0

    @property
    def spared(self) -> bool:
        """Whether the connection stays even if it is idle and all connections are taken."""
        return False

    def begin(self) -> None:
        """Note that a request is being answered from now on."""
        self.idle_since, self._received = None, 0
        self.served += 1

    def end(self, now: float) -> None:
        """Note that the request was answered."""
        self.idle_since, self._received = now, 0

    def cut(self) -> None:
        """End the connection at once, even if bytes are still to be sent."""
        self.cut_off = True
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the request, and of those behind it; cut the connection when they are too many."""
        self._received += len(data)
        if self._received > self._bounds.request_bytes:
            self.cut()
            return
        super().data_received(data)

    def pause_writing(self) -> None:
        """Stop writers, and note since when the client reads nothing of the answer."""
        self.writable.clear()
        self.unread_since = self._clock.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Let the answer go on: the client has read most of it."""
        self.unread_since = None
        self.writable.set()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let writers go on: no client waits for the answer any more."""
        self.cut_off = True
        self.writable.set()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer input that is no HTTP request, without a line in the log: strangers could fill the log."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent already")
        response = self.unreadable(status)
        response.force_close()
        return response

    async def _handle_request(self, *request: Any) -> tuple[web.StreamResponse, bool]:
        """Answer one request.

        When the server stops and gives up waiting in the same turn of the loop in which the answer ends, aiohttp sets
        the result of a future that is cancelled.  The connection is closed then anyway, which is no error.
        """
        try:
            return await super()._handle_request(*request)
        except asyncio.InvalidStateError as e:
            raise ConnectionAbortedError("the server stopped before the answer was sent") from e

    def unreadable(self, status: int) -> web.Response:
        """Return the answer to input that is no request."""
        return web.Response(status=status, text="this is no request that can be read\n")

    def expired(self, now: float) -> bool:
        """Whether the connection has taken longer than it may."""
        if self.unread_since is not None and now - self.unread_since > self._bounds.write:
            return True
        allowed = self._bounds.idle if self.served else self._bounds.first_request
        return self.idle_since is not None and now - self.idle_since > allowed


class Connections:
    """Accepts connections on one address and hands their requests to `handler`.

    The handler calls `begin` and `end` of the connection, which is its request's protocol.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        *,
        clock: Clock,
        bounds: Bounds,
        context: Callable[[], ssl.SSLContext | None],
        make: Callable[[web.Server], Connection] | None = None,
        **options: Any,
    ) -> None:
        """`context` returns the TLS context of a new connection, None for plain HTTP; `make` makes the connection;
        `options` are those of aiohttp's Server.
        """
        self._handler, self._clock, self._bounds, self._options = handler, clock, bounds, options
        self._context = context
        self._make = make or (lambda server: Connection(server, bounds, clock))
        self._server: web.Server | None = None
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._shaking: dict[asyncio.Task[None], None] = {}
        self.port = 0

    def listen(self, host: str, port: int) -> None:
        """Bind the address.  An empty `host` means all interfaces, `port` 0 any free port.  Clients wait until `start`.

        Raises:
            OSError: the address cannot be used.
        """
        self._socket = _listening(host, port)
        self.port = int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Accept connections."""
        assert self._socket is not None, "it listens"
        self._server = web.Server(self._handler, **self._options)
        self._spawn(self._accept(self._socket, self._server))
        self._spawn(self._sweep())

    async def stop(self, seconds: float) -> None:
        """Accept no more connections, answer present requests within so many seconds, and close."""
        tasks, self._tasks = list(self._tasks), set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(seconds)
        self._socket = self._server = None

    def open(self) -> list[Connection]:
        """Return the open connections, without those that were cut."""
        found = self._server.connections if self._server is not None else ()
        return [each for each in found if isinstance(each, Connection) and not each.cut_off]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="connections")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as e:  # no file descriptor is left, or the client was gone at once
                _log.warning("connection not accepted", error=e.strerror or str(e))
                self._make_room()
                await self._clock.sleep(_AFTER_FAILURE_SECONDS)
                continue
            if self._is_full(server) and not self._make_room():
                accepted.close()
            else:
                task = self._spawn(self._shake(accepted, server))
                self._shaking[task] = None
                task.add_done_callback(lambda done: self._shaking.pop(done, None))
            await asyncio.sleep(0)  # accepting does not yield by itself while connections wait

    def _is_full(self, server: web.Server) -> bool:
        most = self._bounds.connections - len(self._shaking)
        return len(server.connections) >= most and len(self.open()) >= most

    def _make_room(self) -> bool:
        """Cut an idle connection; return False when all are being answered, or are spared.

        Handshakes that do not end go first when they are many, then connections without any request so far, then the
        connection that has been idle for longest.
        """
        if len(self._shaking) <= self._bounds.connections // 2:
            idle = [each for each in self.open() if each.idle_since is not None and not each.spared]
            if idle:
                min(idle, key=lambda each: (each.served > 0, each.idle_since)).cut()
                return True
        oldest = next(iter(self._shaking), None)
        if oldest is None:
            return False
        del self._shaking[oldest]
        oldest.cancel()
        return True

    async def _shake(self, accepted: socket.socket, server: web.Server) -> None:
        context, made = self._context(), self._make(server)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: made,
                accepted,
                ssl=context,
                ssl_handshake_timeout=self._bounds.handshake if context is not None else None,
            )
            if not made.served:  # the first request may have come with the end of the handshake
                made.idle_since = self._clock.monotonic()
        except OSError:  # ssl.SSLError and TimeoutError, too: errors of a client need no report
            with contextlib.suppress(OSError):
                accepted.close()
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                accepted.close()
            raise

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            now = self._clock.monotonic()
            for connection in self.open():
                if connection.expired(now):
                    connection.cut()


def not_listening(where: str, address: str, error: OSError, *, remedy: str) -> str:
    """Return one sentence for an address on which the process cannot listen; `where` is its setting or flag."""
    if error.errno == errno.EADDRINUSE:
        return f"{where}: {address}: address already in use; stop the process that listens there, or {remedy}"
    if error.errno == errno.EACCES:
        return f"{where}: no permission to listen on {address}; {remedy}"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{where}: {address} is no address of this machine; {remedy}"
    return f"{where}: cannot listen on {address}: {error.strerror or error}; {remedy}"


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; on all interfaces, of both families where there are both."""
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    made.setblocking(False)
    return made
