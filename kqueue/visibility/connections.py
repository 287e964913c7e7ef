"""Connections of the visibility server: whom they belong to.

When all places are taken, one that asks nothing makes room, unless it belongs to the front proxy.
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
    """Limits of one server; times in seconds.  A user of many groups has a header for each; no request has a body."""

    requests: int = 64
    """At once, of all users."""
    requests_of_one: int = 16
    """At once, of one user."""
    answer: float = 20.0
    """Until an answer is known."""
    write_all: float = 60.0
    """Until the last piece of it is taken."""


@dataclass(frozen=True, slots=True)
class Trust:
    """How connections are taken from now on: our certificate, and whose clients are believed."""

    context: ssl.SSLContext
    proxy: FrontProxy | None


class UserConnection(connections.Connection):
    """One connection of one client."""

    __slots__ = ("trust",)

    def __init__(self, server: web.Server, trust: Trust, limits: ServerLimits, clock: Clock) -> None:
        super().__init__(server, limits, clock)
        self.trust = trust

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

    @property
    def spared(self) -> bool:
        """The front proxy's are."""
        return bool(self.certificate)

    def unreadable(self, status: int) -> web.Response:
        """As the API server would say it."""
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
        """Where it listens; the real port where 0 was asked."""
        return self._all.port

    @property
    def trust(self) -> Trust | None:
        """What counts now."""
        return self._trust

    @property
    def _believed(self) -> Trust:
        assert self._trust is not None, "set when it starts"
        return self._trust

    def believe(self, trust: Trust) -> None:
        """Take new connections so.  Where others are believed than before, open connections end after their request."""
        before, self._trust = self._trust, trust
        if before is not None and before.proxy != trust.proxy:
            for connection in self._all.open():
                if connection.idle_since is not None:
                    connection.force_close()
                connection.close()

    def listen(self, host: str, port: int) -> None:
        """Take the address; `host` empty is all interfaces, `port` 0 takes a free one.  Who connects has to wait.

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
        """Let those in who connect."""
        self._trust = trust
        self._all.start()

    async def stop(self, seconds: float = 2.0) -> None:
        """Accept no more, answer what is being asked, and close."""
        await self._all.stop(seconds)
