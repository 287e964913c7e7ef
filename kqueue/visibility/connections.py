"""Connections: how many there may be, how long they may take, and how much they may send.

A connection that asks nothing is cut after a while; when all places are taken, one that asks nothing makes room, unless
it belongs to the front proxy.  So whoever opens a thousand connections keeps nobody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from kqueue.clock import Clock
from kqueue.errors import ConfigError
from kqueue.visibility.answers import Refusal
from kqueue.visibility.front_proxy import FrontProxy

_BACKLOG = 128
_SWEEP_SECONDS = 1.0
_AFTER_FAILURE_SECONDS = 0.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server bears; times in seconds."""

    connections: int = 128
    handshake: float = 5.0
    first_request: float = 10.0
    """From the handshake to a request whose headers are complete."""
    idle: float = 60.0
    """From the end of one request to the next one's."""
    request_bytes: int = 64 * 1024
    """Line, headers and body, which nobody needs."""
    headers: int = 512
    """A user of many groups has one for each."""
    requests: int = 64
    """At once, of all users."""
    requests_of_one: int = 16
    """At once, of one user."""
    answer: float = 20.0
    """Until an answer is known."""
    write: float = 10.0
    """Until a reader takes the next piece of it."""
    write_all: float = 60.0
    """Until the last piece is taken."""


@dataclass(frozen=True, slots=True)
class Trust:
    """How connections are taken from now on: our certificate, and whose clients are believed."""

    context: ssl.SSLContext
    proxy: FrontProxy | None


class Connection(RequestHandler):
    """One connection of one client."""

    __slots__ = ("_limits", "_received", "idle_since", "served", "trust", "writable")

    def __init__(self, server: _Server, trust: Trust, limits: Limits) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle,
            access_log=None,  # type: ignore[arg-type] # None is what switches it off
            max_headers=limits.headers,
            lingering_time=0.0,
        )
        self.trust, self._limits = trust, limits
        self.idle_since: float | None = None
        """When it was opened or asked last; None while a request is answered."""
        self.served = 0
        self.writable = asyncio.Event()
        """Set while the client takes what is sent."""
        self.writable.set()
        self._received = 0

    @property
    def certificate(self) -> dict[str, Any]:
        """Of the client, in the form of `getpeercert`; empty without one that an authority of `trust` has signed.

        One that was shown on an earlier connection does not count: it is not looked at again when that is resumed.
        """
        if self.transport is None:
            return {}
        tls = self.transport.get_extra_info("ssl_object")
        if tls is None or tls.session_reused:
            return {}
        return tls.getpeercert() or {}

    def begin(self) -> None:
        """A request is answered from now on."""
        self.idle_since, self._received = None, 0
        self.served += 1

    def end(self, now: float) -> None:
        """It was answered."""
        self.idle_since = now

    def cut(self) -> None:
        """End it at once, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """More of a request, or of the ones behind it."""
        self._received += len(data)
        if self._received > self._limits.request_bytes:
            self.cut()
            return
        super().data_received(data)

    def pause_writing(self) -> None:
        """The client does not take it."""
        self.writable.clear()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self.writable.set()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Nobody needs to wait for it any more."""
        self.writable.set()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP request; it is answered without a word in the log, which others could fill."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was sent already")
        response = Refusal(status, "this is no request that can be read").response()
        response.force_close()
        return response


class _Server(web.Server):
    """Keeps our own kind of connections."""


class Connections:
    """Accepts connections on one address and hands their requests to `handler`."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], *, clock: Clock, limits: Limits
    ) -> None:
        self._handler, self._clock, self._limits = handler, clock, limits
        self._server: _Server | None = None
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._shaking = 0
        self._trust: Trust | None = None
        self.port = 0

    @property
    def trust(self) -> Trust | None:
        """What counts now."""
        return self._trust

    def believe(self, trust: Trust) -> None:
        """Take new connections so.  Where others are believed than before, open connections end after their request."""
        before, self._trust = self._trust, trust
        if before is not None and before.proxy != trust.proxy and self._server is not None:
            for idle in _idle(self._server):
                idle.force_close()
            for connection in self._server.connections:
                connection.close()

    def listen(self, host: str, port: int) -> None:
        """Take the address; `host` empty is all interfaces, `port` 0 takes a free one.  Who connects has to wait.

        Raises:
            ConfigError: the address cannot be used.
        """
        self._socket = listening(host, port)
        self.port = int(self._socket.getsockname()[1])

    def start(self, trust: Trust) -> None:
        """Let those in who connect."""
        assert self._socket is not None, "it listens"
        self._trust = trust
        self._server = _Server(self._handler, handler_cancellation=True)
        self._spawn(self._accept(self._socket, self._server))
        self._spawn(self._sweep(self._server))

    async def stop(self, seconds: float = 2.0) -> None:
        """Accept no more, answer what is being asked, and close."""
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

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work, name="visibility connections")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, server: _Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as e:  # no file descriptor is left, or the client was gone at once
                _log.warning("connection not accepted", error=e.strerror or str(e))
                await self._clock.sleep(_AFTER_FAILURE_SECONDS)
                continue
            if self._shaking + len(server.connections) >= self._limits.connections and not _make_room(server):
                accepted.close()
                continue
            self._shaking += 1
            self._spawn(self._shake(accepted, server))

    async def _shake(self, accepted: socket.socket, server: _Server) -> None:
        assert self._trust is not None, "set when it starts"
        try:
            connection = Connection(server, self._trust, self._limits)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._trust.context,
                ssl_handshake_timeout=self._limits.handshake,
            )
            if not connection.served:  # the first request may have come with the end of the handshake
                connection.idle_since = self._clock.monotonic()
        except OSError:  # ssl.SSLError and TimeoutError are some: what a client does wrong is its own affair
            with contextlib.suppress(OSError):
                accepted.close()
        finally:
            self._shaking -= 1

    async def _sweep(self, server: _Server) -> None:
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            now = self._clock.monotonic()
            for connection in _idle(server):
                allowed = self._limits.idle if connection.served else self._limits.first_request
                if connection.idle_since is not None and now - connection.idle_since > allowed:
                    connection.cut()


def _idle(server: _Server) -> list[Connection]:
    found = (each for each in server.connections if isinstance(each, Connection))
    return [connection for connection in found if connection.idle_since is not None]


def _make_room(server: _Server) -> bool:
    """Cut the one that has asked nothing for longest; False when all are being answered, or are the front proxy's."""
    strangers = [connection for connection in _idle(server) if not connection.certificate]
    if not strangers:
        return False
    min(strangers, key=lambda connection: connection.idle_since or 0.0).cut()
    return True


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; on all interfaces, of both families where there are both.

    Raises:
        ConfigError: the address cannot be used.
    """
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as e:
        setting = f"visibilityServer: {host or '*'}:{port}"
        if e.errno == errno.EADDRINUSE:
            raise ConfigError(f"{setting} is in use by another process; choose another bindPort") from e
        raise ConfigError(f"{setting} cannot be used: {e.strerror or e}; see bindAddress and bindPort") from e
    made.setblocking(False)
    return made
