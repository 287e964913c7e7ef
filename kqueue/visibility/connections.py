"""Connections of the visibility server.

When the limit of connections is reached, an idle connection is closed for a new one, unless it belongs to the front
proxy.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from kqueue import connections
from kqueue.clock import Clock
from kqueue.errors import ConfigError
from kqueue.visibility.answers import Refusal
from kqueue.visibility.front_proxy import FrontProxy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits(connections.Bounds):
    """Limits of one server; times in seconds.  A user of many groups has a header for each."""

    requests: int = 64
    """Concurrent requests of all users."""
    requests_of_one: int = 16
    """Concurrent requests of one user."""
    answer: float = 20.0
    """Seconds until an answer must be computed."""
    write_all: float = 60.0
    """Seconds until the client must have read the whole answer."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The TLS settings of new connections: the server's certificate, and the trusted front proxy."""

    context: ssl.SSLContext
    proxy: FrontProxy | None


class UserConnection(connections.Connection):
    """A connection that knows the client's certificate."""

    __slots__ = ("trust",)

    def __init__(self, server: web.Server, trust: Trust, limits: ServerLimits, clock: Clock) -> None:
        super().__init__(server, limits, clock)
        self.trust = trust

    @property
    def certificate(self) -> dict[str, Any]:
        """The client's certificate in the form of `getpeercert`; empty unless an authority of `trust` has signed it.

        The certificate of a resumed TLS session does not count, because TLS does not verify it again.
        """
        if self.transport is None:
            return {}
        tls = self.transport.get_extra_info("ssl_object")
        if tls is None or tls.session_reused:
            return {}
        return tls.getpeercert() or {}

    @property
    def spared(self) -> bool:
        """Whether the connection belongs to the front proxy, so that it is not closed for a new one."""
        return bool(self.certificate)

    def unreadable(self, status: int) -> web.Response:
        """Refuse a request that is not HTTP, in the form of the API server."""
        return Refusal(status, "this is no request that can be read").response()


class UserConnections:
    """Accepts connections on one address and hands their requests to `handler`."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], *, clock: Clock, limits: ServerLimits
    ) -> None:
        self._trust: Trust | None = None
        self._all = connections.Connections(
            handler,
            clock=clock,
            bounds=limits,
            context=lambda: self._believed.context,
            make=lambda server: UserConnection(server, self._believed, limits, clock),
            handler_cancellation=True,
        )

    @property
    def port(self) -> int:
        """The port; the one that was taken if 0 was requested."""
        return self._all.port

    @property
    def trust(self) -> Trust | None:
        """The present TLS settings; None before `start`."""
        return self._trust

    @property
    def _believed(self) -> Trust:
        assert self._trust is not None, "set when it starts"
        return self._trust

    def believe(self, trust: Trust) -> None:
        """Use these TLS settings for new connections.

        If the front proxy has changed, open connections are closed after their present request.
        """
        before, self._trust = self._trust, trust
        if before is not None and before.proxy != trust.proxy:
            for connection in self._all.open():
                if connection.idle_since is not None:
                    connection.force_close()
                connection.close()

    def listen(self, host: str, port: int) -> None:
        """Bind the address.  An empty `host` means all interfaces, `port` 0 any free port.  Clients wait until `start`.

        Raises:
            ConfigError: the address cannot be used.
        """
        try:
            self._all.listen(host, port)
        except OSError as e:
            remedy = "choose another bindAddress or bindPort"
            raise ConfigError(
                connections.not_listening("visibilityServer", f"{host or '*'}:{port}", e, remedy=remedy)
            ) from e

    def start(self, trust: Trust) -> None:
        """Accept connections."""
        self._trust = trust
        self._all.start()

    async def stop(self, seconds: float = 2.0) -> None:
        """Accept no more connections, answer the requests under way, and close."""
        await self._all.stop(seconds)
